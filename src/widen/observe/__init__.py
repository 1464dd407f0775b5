"""What a batch holds: kinds, observations and how they merge."""
