"""Widen: schemas that grow with the data, without rewriting a table and without losing a value."""
