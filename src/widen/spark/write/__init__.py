"""A DataFrame to the data files of a table."""
