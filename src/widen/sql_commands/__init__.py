"""SQL: a text becomes one statement, and a statement one call of a table."""
