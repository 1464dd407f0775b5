"""Modules that are imported when something of them is first used.

Arrow's compute functions, its Parquet reader and what builds on them take longer to import than a history takes to
print.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType


def late(name: str) -> ModuleType:
    """Return a module that is imported when an attribute of it is first used.

    Args:
        name: Its full name.

    Example:
        >>> late("json").dumps([1])
        '[1]'
    """
    return _LateModule(name)


class _LateModule(ModuleType):
    def __getattr__(self, name: str) -> object:
        found = getattr(import_module(self.__name__), name)
        setattr(self, name, found)  # the next use finds it without this detour
        return found
