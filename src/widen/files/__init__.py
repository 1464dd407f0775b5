"""The data files of tables, read, evaluated and written with Arrow."""
