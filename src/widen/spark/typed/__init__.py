"""Typed records to rows and back, as Spark expressions."""
