"""Tables: a module for each face of a table, and the class that has them all."""

from widen.table.table import Table, create_table

__all__ = ["Table", "create_table"]
