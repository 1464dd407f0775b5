"""Modules that are imported on first use, so that a command that does not need them starts faster.

Importing Arrow's compute functions and its Parquet reader takes longer than printing the history of a table.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType
from typing import Any

from widen.errors import SparkUnavailable


def import_lazily(name: str) -> ModuleType:
    """Return a module that is imported when one of its attributes is first used.

    Example:
        >>> import_lazily("json").dumps([1])
        '[1]'
    """
    return _LateModule(name)


def import_class_lazily(module: str, name: str) -> Any:
    """Return a stand-in for a class, for annotations, `isinstance` and class methods, that loads it on first use.

    Nothing is an instance of a class whose module is not loaded, so that `isinstance` does not load it.

    Example:
        >>> isinstance(1, import_class_lazily("decimal", "Decimal"))
        False
    """
    return _LateClass(name, (), {"__module__": module})


class _LateClass(type):
    def __instancecheck__(cls, value: object) -> bool:
        module = sys.modules.get(cls.__module__)
        return module is not None and isinstance(value, getattr(module, cls.__name__))

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return getattr(import_module(cls.__module__), cls.__name__)(*args, **kwargs)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):  # asked by typing, copy and the like
            raise AttributeError(name)
        return getattr(getattr(import_module(cls.__module__), cls.__name__), name)


@contextmanager
def spark_required() -> Iterator[None]:
    """Say how to install Spark where an import within the block does not find it.

    Raises:
        SparkUnavailable: Spark is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"pyspark", "py4j"}:
            raise
        raise SparkUnavailable(reason=str(error), fix="Install it with: pip install 'widen[spark]'") from error


class _LateModule(ModuleType):
    def __getattr__(self, name: str) -> object:
        value = getattr(import_module(self.__name__), name)
        setattr(self, name, value)  # __getattr__ is only called for missing attributes: the next use is direct
        return value
