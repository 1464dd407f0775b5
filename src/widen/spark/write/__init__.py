"""Writing a DataFrame as data files of a table."""
