"""What rows must show before a command changes the table."""
