"""ALTER TABLE: what a command asks of a table, and whether it is allowed."""
