"""Values: types, fields, column paths and the schema JSON."""
