"""SQL commands: parse a string into a statement, and run it with one call of a table method."""
