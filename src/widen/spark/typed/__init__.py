"""Typed records to rows, as Spark expressions."""
