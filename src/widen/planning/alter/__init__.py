"""ALTER TABLE: what a command changes, and whether the table allows it."""
