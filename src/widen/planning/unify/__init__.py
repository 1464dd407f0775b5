"""One logical column for each source field."""
