"""Rows of a table as a frame that a test collects, read in this process where that gives what Spark gives.

Tests whose subject is not how Spark reads look with this at what was written: a job of Spark takes ten times as long as
reading a few rows does. What else a test asks of the frame is done by Spark, and so is what this process cannot do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any
from unittest import mock

from pyspark.sql import DataFrame, Row

from widen.log.snapshot import Snapshot
from widen.spark.read.local_query import query_locally
from widen.spark.read.local_rows import NotLocal, plan_local_scan
from widen.spark.spark_types import to_spark
from widen.table import Table


@dataclass(frozen=True)
class RowsHere:
    """Rows of a version.

    Args:
        make: Returns the frame of Spark with the same rows.
        condition: What the rows fulfil.
        names: Their columns; empty for all.
    """

    snapshot: Snapshot
    make: Callable[[], DataFrame]
    condition: str | None = None
    names: tuple[str, ...] = ()

    @cached_property
    def frame(self) -> DataFrame:
        return self.make()

    def where(self, condition: Any) -> Any:
        if self.condition is not None or self.names or not isinstance(condition, str):
            return self.frame.where(condition)
        return replace(self, make=lambda: self.frame.where(condition), condition=condition)

    def select(self, *names: Any) -> Any:
        columns = self.snapshot.schema.names
        if self.names or not names or not all(isinstance(name, str) and name in columns for name in names):
            return self.frame.select(*names)
        return replace(self, make=lambda: self.frame.select(*names), names=names)

    def collect(self) -> list[Row]:
        from pyspark.sql.conversion import ArrowTableToRowsConversion

        try:
            columns, rows = query_locally(self.snapshot, self.condition, self.names)
        except NotLocal:
            return self.frame.collect()
        found: list[Row] = ArrowTableToRowsConversion.convert(rows, to_spark(columns))
        return found

    def count(self) -> int:
        return len(self.collect())

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked by copy, pickle and the like
            raise AttributeError(name)
        return getattr(self.frame, name)


@contextmanager
def rows_read_here() -> Iterator[None]:
    """Let `Table.read` return `RowsHere` while this is open, but for tables that only Spark reads exactly."""
    read = Table.read

    def read_here(table: Table, where: Any = None, *, unified: bool = False, **words: Any) -> Any:
        make = partial(read, table, where, unified=unified, **words)
        if unified or not (where is None or isinstance(where, str)):
            return make()
        snapshot = table._past(words.get("version"), words.get("timestamp"))
        try:
            plan_local_scan(snapshot)
        except NotLocal:
            return make()
        return make() if "variant" in snapshot.schema.sql else RowsHere(snapshot, make, where)

    with mock.patch.object(Table, "read", read_here):
        yield
