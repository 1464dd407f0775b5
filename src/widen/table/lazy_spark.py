"""Spark functions that are imported on first use, so that commands that do not need Spark run without it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING

from widen.errors import SparkUnavailable

if TYPE_CHECKING:
    from widen.spark.ddl.row_checks import check_operations, column_bound
    from widen.spark.maintain.executor_vacuum import ExecutorVacuum
    from widen.spark.session import find_session
    from widen.spark.spark_types import to_schema

__all__ = ["ExecutorVacuum", "check_operations", "column_bound", "find_session", "load", "to_schema"]

_HOMES: Mapping[str, str] = {
    "ExecutorVacuum": "widen.spark.maintain.executor_vacuum",
    "check_operations": "widen.spark.ddl.row_checks",
    "column_bound": "widen.spark.ddl.row_checks",
    "find_session": "widen.spark.session",
    "to_schema": "widen.spark.spark_types",
}
_PACKAGES = ("pyspark", "py4j")


def load(module: str, name: str = "") -> object:
    """Import a module that may need Spark, and return it or one of its names.

    Args:
        name: A name in the module; empty for the module itself.

    Raises:
        SparkUnavailable: Spark is not installed.
    """
    try:
        return getattr(import_module(module), name) if name else import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _PACKAGES:
            raise
        raise SparkUnavailable(reason=str(error), fix="Install it with: pip install 'widen[spark]'") from error


def __getattr__(name: str) -> object:
    """Import a name of `widen.spark` and return it."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return load(_HOMES[name], name)
