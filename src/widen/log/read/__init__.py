"""Read a log: list its files, replay them, reconstruct a version."""
