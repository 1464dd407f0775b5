"""Read a log: list its files, replay them, and reconstruct a version."""
