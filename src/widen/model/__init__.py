"""Types, fields, column paths and the schema JSON."""
