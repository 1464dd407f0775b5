"""Changes of a schema: operations, their checks, and the metadata that they produce."""
