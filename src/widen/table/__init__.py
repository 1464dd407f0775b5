"""The `Table` class: one mixin module for each group of methods.

The class needs Spark; `column_changes` and `property_changes` do not. So the class is imported on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from widen.table.table import Table, create_table

__all__ = ["Table", "create_table"]


def __getattr__(name: str) -> object:
    """Import a public name on first use and return it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("widen.table.table"), name)
