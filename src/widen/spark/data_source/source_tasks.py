"""Tasks of the data source: which rows of which files each one reads, and how it reads them, with Arrow.

Only what Arrow reads exactly is read here: the current types are those of the table, and deleted rows are left out.

Source: PROTOCOL.md#reader-requirements-for-type-widening, #deletion-vectors, #change-data-files
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from widen.errors import DataSourceRefused
from widen.log.read.snapshot import Snapshot
from widen.log.read.version_changes import ChangeSlice
from widen.model.types import LONG, STRING, TIMESTAMP, Field, StructType
from widen.protocol.change_data_files import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, with_change_type
from widen.spark.arrow_types import to_arrow_schema
from widen.spark.read.local_rows import LocalScan, NotLocal, RowSlice, plan_local_scan
from widen.spark.spark_types import as_nullable, visible_schema
from widen.spark.worker_memory import freeze_imports

TASK_BYTES = 128 * 2**20
"""How many bytes of files a task reads at most; Spark's default for its own readers."""

_SMALL_TASK_BYTES = 32 * 2**20
"""How many bytes a task may always read: each task starts a Python process, which takes longer than small files."""

_FILE_BYTES = 4 * 2**20
"""How many bytes opening a file counts as; Spark's default for its own readers."""

_LOCAL_FILE_BYTES = 2**19
"""The same for a file on a local disk, which takes about a millisecond to open."""

_SPREAD = 16
"""Into how many tasks a read is split at least, if its files are large enough."""

_READ_INSTEAD = "Use Table.read of Widen, for which Spark reads the files."


@dataclass(frozen=True)
class TableColumns:
    """What a read returns.

    Args:
        recorded: How change data files are read, which say themselves how each row changed.
        has_changes: Whether rows have the columns of the change data feed.
    """

    scan: LocalScan
    recorded: LocalScan
    has_changes: bool

    @property
    def schema(self) -> StructType:
        """The columns that a read returns."""
        columns = as_nullable(visible_schema(self.scan.schema))
        changes = (Field(CHANGE_TYPE, STRING), Field(COMMIT_VERSION, LONG), Field(COMMIT_TIMESTAMP, TIMESTAMP))
        return StructType((*columns, *changes)) if self.has_changes else columns


def plan_columns(snapshot: Snapshot, *, has_changes: bool) -> TableColumns:
    """Return what a read of a version returns.

    Args:
        has_changes: Whether rows have the columns of the change data feed.

    Raises:
        DataSourceRefused: only Spark can read the table exactly.
        UnsupportedTypeChange: the schema records a type change that the protocol does not allow.
    """
    try:
        scan = plan_local_scan(snapshot)
    except NotLocal as error:
        raise _refuse_read(snapshot.location, error) from error
    return TableColumns(scan, replace(scan, schema=with_change_type(scan.schema)), has_changes)


def _refuse_read(location: str, reason: NotLocal) -> DataSourceRefused:
    return DataSourceRefused(verb="read", location=location, reason=str(reason), fix=_READ_INSTEAD)


class SlicePartition(InputPartition):
    """The rows that one task reads.

    Args:
        value: The slices of files, each with how its rows changed.
    """

    value: Sequence[tuple[RowSlice, ChangeSlice]]


def plan_tasks(slices: Iterable[ChangeSlice], *, is_local: bool) -> list[InputPartition]:
    """Return the tasks that read slices: small files together, and the row groups of a large file apart.

    Args:
        is_local: Whether the files are on a local disk.
    """
    cost = partial(_cost, _LOCAL_FILE_BYTES if is_local else _FILE_BYTES)
    parts = sorted((part for each in slices for part in _split(each)), key=cost, reverse=True)
    limit = max(min(sum(map(cost, parts)) // _SPREAD, TASK_BYTES), _SMALL_TASK_BYTES)
    tasks: list[InputPartition] = []
    current: list[tuple[RowSlice, ChangeSlice]] = []
    size = 0
    for part in parts:
        if current and size + cost(part) > limit:
            tasks.append(SlicePartition(current))
            current, size = [], 0
        current.append(part)
        size += cost(part)
    return [*tasks, SlicePartition(current)] if current else tasks


def _split(each: ChangeSlice) -> Iterator[tuple[RowSlice, ChangeSlice]]:
    """Yield the parts of a file, by the bytes at which row groups begin."""
    size = each.file.size
    for first in range(0, max(size, 1), TASK_BYTES):
        end = None if first + TASK_BYTES >= size else first + TASK_BYTES
        yield RowSlice(each.file, first, end, each.without), each


def _cost(file_bytes: int, part: tuple[RowSlice, ChangeSlice]) -> int:
    rows = part[0]
    return (rows.file.size if rows.end_byte is None else rows.end_byte) - rows.first_byte + file_bytes


def read_task(columns: TableColumns, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a task.

    Raises:
        DataSourceRefused: only Spark can read a file exactly.
    """
    freeze_imports()
    schema = to_arrow_schema(columns.schema)
    for rows, change in partition.value or ():
        scan = columns.recorded if change.change_type is None else columns.scan
        try:
            for table in scan.read(rows):
                yield from _with_changes(table, change, schema, has_changes=columns.has_changes)
        except NotLocal as error:
            raise _refuse_read(scan.store.location, error) from error


def _with_changes(
    table: pa.Table, change: ChangeSlice, schema: pa.Schema, *, has_changes: bool
) -> Iterator[pa.RecordBatch]:
    if has_changes:
        stored = () if change.change_type is None else (pa.scalar(change.change_type),)
        time = pa.scalar(change.time_ms, pa.timestamp("ms", tz="UTC"))
        for value in (*stored, pa.scalar(change.version), time):
            field = schema.field(table.num_columns)
            table = table.append_column(field, pa.repeat(value.cast(field.type), table.num_rows))
    yield from table.combine_chunks().to_batches()
