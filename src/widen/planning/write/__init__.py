"""How appends, overwrites and merges may change the schema."""
