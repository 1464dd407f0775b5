"""Modules that are imported on first use, so that a command that does not need them starts faster.

Importing Arrow's compute functions and its Parquet reader takes longer than printing the history of a table.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from types import ModuleType


def import_lazily(name: str) -> ModuleType:
    """Return a module that is imported when one of its attributes is first used.

    Example:
        >>> import_lazily("json").dumps([1])
        '[1]'
    """
    return _LateModule(name)


@cache
def imported_names(module: str) -> Mapping[str, str]:
    """Return from where a module imports each name, those that it imports only for type checkers included.

    So a module lists its lazy names once, as imports that type checkers read.
    """
    nodes = ast.walk(ast.parse(inspect.getsource(sys.modules[module])))
    imports = (node for node in nodes if isinstance(node, ast.ImportFrom))
    return {alias.name: str(node.module) for node in imports for alias in node.names}


class _LateModule(ModuleType):
    def __getattr__(self, name: str) -> object:
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)  # __getattr__ is only called for missing attributes: the next use is direct
        return value
