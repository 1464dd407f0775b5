"""Rows of a table as a frame that a test collects, read in this process where that gives what Spark gives.

Tests whose subject is not how Spark reads look with this at what was written: a job of Spark takes ten times as long as
reading a few rows does. What else a test asks of the frame is done by Spark, and so is what this process cannot do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any
from unittest import mock

import pyarrow as pa
from pyspark.sql import DataFrame, Row

from widen.files.arrow_types import to_arrow_schema
from widen.files.data_reader import RowSlice, plan_local_scan
from widen.files.expressions import query_locally
from widen.frames.change_feed import load_changes
from widen.log.snapshot import Snapshot
from widen.log.version_changes import VersionChanges, change_slices
from widen.model.types import LONG, TIMESTAMP, Field, StructType
from widen.protocol.column_mapping import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, with_change_type
from widen.spark.engine import Unsupported
from widen.spark.spark_types import to_spark
from widen.table import Table


@dataclass(frozen=True)
class RowsHere:
    """Rows of a version, or of what versions have changed.

    Args:
        columns: The names of all their columns.
        read: Returns the rows that fulfil a condition, in some of the columns or, without any names, in all of them.
        make: Returns the frame of Spark with the same rows.
        condition: What the rows fulfil.
        names: Their columns; empty for all.
    """

    columns: Sequence[str]
    read: Callable[[str | None, Sequence[str]], tuple[StructType, pa.Table]]
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
        if self.names or not names or not all(isinstance(name, str) and name in self.columns for name in names):
            return self.frame.select(*names)
        return replace(self, make=lambda: self.frame.select(*names), names=names)

    def drop(self, *names: Any) -> Any:
        return self.select(*(name for name in self.names or self.columns if name not in names))

    def collect(self) -> list[Row]:
        from pyspark.sql.conversion import ArrowTableToRowsConversion

        try:
            columns, rows = self.read(self.condition, self.names)
        except Unsupported:
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
def rows_read_here(*, with_changes: bool = True) -> Iterator[None]:
    """Let `Table.read` return `RowsHere` while this is open, but for tables that only Spark reads exactly.

    Args:
        with_changes: Whether `Table.changes` does so, too.
    """
    read, changes = Table.read, Table.changes

    def read_here(table: Table, where: Any = None, *, unified: bool = False, **words: Any) -> Any:
        make = partial(read, table, where, unified=unified, **words)
        if unified or not (where is None or isinstance(where, str)):
            return make()
        snapshot = table._past(words.get("version"), words.get("timestamp"))
        if not _is_read_here(snapshot):
            return make()
        return RowsHere(snapshot.schema.names, partial(query_locally, snapshot), make, where)

    def changes_here(table: Table, first: int, last: int | None = None, **words: Any) -> Any:
        snapshot, make = table.snapshot, partial(changes, table, first, last, **words)
        if not _is_read_here(snapshot):
            return make()
        found = load_changes(snapshot, first, table.version if last is None else last)
        return RowsHere((*snapshot.schema.names, *FEED_COLUMNS), partial(_read_changes, snapshot, found), make)

    chosen = changes_here if with_changes else changes
    with mock.patch.object(Table, "read", read_here), mock.patch.object(Table, "changes", chosen):
        yield


def _is_read_here(snapshot: Snapshot) -> bool:
    try:
        plan_local_scan(snapshot)
    except Unsupported:
        return False
    return "variant" not in snapshot.schema.sql


FEED_COLUMNS = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)


def _read_changes(
    snapshot: Snapshot, changes: Sequence[VersionChanges], condition: str | None, names: Sequence[str]
) -> tuple[StructType, pa.Table]:
    """Return the rows that versions have changed, and their columns.

    Raises:
        Unsupported: only Spark can read them exactly.
    """
    if condition is not None:
        raise Unsupported("it filters changes")
    wide = with_change_type(snapshot.schema)
    columns = StructType((*wide, Field(COMMIT_VERSION, LONG), Field(COMMIT_TIMESTAMP, TIMESTAMP)))
    schema = to_arrow_schema(columns)
    untyped = plan_local_scan(snapshot)
    typed = plan_local_scan(snapshot.with_metadata(snapshot.metadata.with_schema(wide)))
    tables = [schema.empty_table()]
    for part in (part for each in changes for part in change_slices(each)):
        for rows in (untyped if part.change_type else typed).read(RowSlice(part.file, kept=part.without)):
            said = (part.change_type, part.version, part.time_ms * 1_000)[0 if part.change_type else 1 :]
            found = [*rows.columns, *(pa.repeat(value, len(rows)) for value in said)]
            cast = [column.cast(field.type) for column, field in zip(found, schema, strict=True)]
            tables.append(pa.Table.from_arrays(cast, schema=schema))
    chosen = names or columns.names
    rows = pa.concat_tables(tables).select([*chosen])
    return StructType(tuple(field for name in chosen for field in columns if field.name == name)), rows
