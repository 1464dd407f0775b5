"""Write a log: commits, conflict checks, checkpoints, and cleanup."""
