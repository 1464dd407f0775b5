"""Changes of rows: UPDATE, DELETE, MERGE, loads by key, overwrites and rewritten files."""
