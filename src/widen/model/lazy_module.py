"""Modules that are imported on first use, so that a command that does not need them starts faster.

Importing Arrow's compute functions and its Parquet reader takes longer than printing the history of a table.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import ModuleType

from widen.errors import SparkUnavailable


def import_lazily(name: str) -> ModuleType:
    """Return a module that is imported when one of its attributes is first used.

    Example:
        >>> import_lazily("json").dumps([1])
        '[1]'
    """
    return _LateModule(name)


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
