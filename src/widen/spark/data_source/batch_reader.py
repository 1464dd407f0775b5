"""Batch reads of the data source: one version of a table, or the changes between two versions.

Source: Spark's Python Data Source API
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceReader, InputPartition

from widen.errors import InvalidOption
from widen.log.read.commit_timestamps import to_ms
from widen.log.read.file_filter import filter_files
from widen.log.read.file_list import to_adds
from widen.log.read.snapshot import Snapshot, first_version_from, open_snapshot
from widen.log.read.version_changes import INSERT, ChangeSlice, change_slices
from widen.protocol.skipping.predicate import And, Predicate, UnknownPredicate
from widen.spark.data_source.pushed_filters import to_predicate
from widen.spark.data_source.source_options import SourceOptions
from widen.spark.data_source.source_tasks import TableColumns, plan_columns, plan_tasks, read_task
from widen.spark.dml.changed_rows import load_changes
from widen.spark.read.scan import select_files


def read_snapshot_of(options: SourceOptions) -> Snapshot:
    """Return the version that a batch reads; for changes, the version whose columns they have.

    Raises:
        InvalidOption: an option cannot be used.
        VersionNotFound: the version does not exist.
        TableNotFound: the table does not exist.
    """
    time = options.text("timestampAsOf")
    return open_snapshot(options.open_store(), options.number("versionAsOf"), None if time is None else to_ms(time))


def plan_batch_columns(options: SourceOptions, snapshot: Snapshot) -> TableColumns:
    """Return the columns of a batch.

    Raises:
        InvalidOption: ``readChangeFeed`` is neither true nor false.
        DataSourceRefused: only Spark can read the table exactly.
    """
    return plan_columns(snapshot, has_changes=options.flag("readChangeFeed"))


class BatchReader(DataSourceReader):
    """Reads one version of a table, or the changes between two versions."""

    def __init__(self, options: SourceOptions, snapshot: Snapshot, columns: TableColumns) -> None:
        self._options, self._snapshot, self._columns = options, snapshot, columns
        self._predicate: Predicate = UnknownPredicate()

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks."""
        slices = self._changes() if self._columns.has_changes else self._rows()
        return plan_tasks(slices, is_local=self._snapshot.store.is_local)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        return read_task(self._columns, partition)

    def _rows(self) -> Iterator[ChangeSlice]:
        snapshot = self._snapshot
        files = filter_files(snapshot.files(), select_files(snapshot, self._predicate))
        return (ChangeSlice(snapshot.version, 0, INSERT, file) for file in to_adds(files))

    def _changes(self) -> Iterator[ChangeSlice]:
        first, last = (self._version(kind) for kind in ("starting", "ending"))
        if first is None:
            expected = "Give startingVersion or startingTimestamp to read the change feed."
            raise InvalidOption(option="startingVersion", value=None, expected=expected)
        changes = load_changes(self._snapshot, first, self._snapshot.version if last is None else last)
        return (part for each in changes for part in change_slices(each))

    def _version(self, kind: str) -> int | None:
        time = self._options.text(f"{kind}Timestamp")
        if time is None:
            return self._options.number(f"{kind}Version")
        if kind == "starting":
            return first_version_from(self._snapshot.store, to_ms(time))
        return open_snapshot(self._snapshot.store, timestamp_ms=to_ms(time)).version


class FilteringReader(BatchReader):
    """Also skips files that cannot have a row that matches the filters of the query.

    Spark 4.1 and later call it, and only if ``spark.sql.python.filterPushdown.enabled`` is true.
    """

    def pushFilters(self, filters: list[datasource.Filter]) -> Iterable[datasource.Filter]:
        """Skip files by the filters, and return all of them, so that Spark applies them to rows."""
        predicates = (to_predicate(each, self._snapshot.schema) for each in filters)
        self._predicate = reduce(And, predicates, self._predicate)
        return filters
