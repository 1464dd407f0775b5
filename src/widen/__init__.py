"""Widen: schemas that grow with the data, without rewriting a table and without losing a value."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from widen.errors import ContentionError, InternalError, RequestError, TableError, WidenError
    from widen.table import Table, create_table

__all__ = [
    "ContentionError",
    "InternalError",
    "RequestError",
    "Table",
    "TableError",
    "WidenError",
    "create_table",
]


def __getattr__(name: str) -> object:
    """Return a public name, imported when it is first used, so that the pure part needs no engine."""
    home = "widen.table" if name in ("Table", "create_table") else "widen.errors"
    if name not in __all__:
        raise AttributeError(f"module 'widen' has no attribute {name!r}")
    return getattr(import_module(home), name)
