"""The transaction log: list, read, replay, check, commit."""
