"""What a batch or a command changes: operations, policy, and the plan as one value."""
