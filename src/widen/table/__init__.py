"""The classes `Table`, one mixin module for each group of methods, and `IcebergTable`, which needs PyIceberg.

They are imported on first use. A method of `Table` that needs Spark imports it when it is called.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from widen.table.iceberg_table import IcebergTable
    from widen.table.table import Table, create_table

__all__ = ["IcebergTable", "Table", "create_table"]


def __getattr__(name: str) -> object:
    """Import a public name on first use and return it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = "iceberg_table" if name == "IcebergTable" else "table"
    return getattr(import_module(f"widen.table.{module}"), name)
