"""The context of a row change: the version that is read and its candidate files; and the result of the change.

Source: PROTOCOL.md#add-file-and-remove-file, #deletion-vectors, #add-cdc-file
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field
from functools import cached_property
from typing import Any

import pyarrow as pa

from widen.errors import JobFailed
from widen.files.footers import read_footers
from widen.frames.parquet_writer import write_parquet
from widen.frames.scan import location_keys, read_with_locations, with_row_tracking
from widen.log.commit_files import current_ms
from widen.log.commit_outcome import discard_folder
from widen.log.conflict import ReadSet
from widen.log.file_list import filter_files, to_adds, to_remove
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot
from widen.model.types import StructType
from widen.model.value_classes import dataclass
from widen.protocol.actions import Action, Add, AddCdc, Metadata, Protocol
from widen.protocol.column_mapping import CHANGE_FOLDER, TrackingColumns, with_change_type
from widen.protocol.data_skipping import FileSelection
from widen.protocol.file_statistics import FileStatistics
from widen.protocol.iceberg_compat import enabled_compat, stores_partition_columns
from widen.protocol.table_configuration import TableConfiguration, tracking_columns
from widen.spark.engine import READS, Session, require_spark
from widen.spark.spark_types import DataFrame, SparkSession


@dataclass(frozen=True)
class ChangeContext:
    """The version that a change reads, and the files that may have rows to change.

    Args:
        files: These files, if they differ from the files that the selection chooses.
    """

    session: Session
    snapshot: Snapshot
    metadata: Metadata
    selection: FileSelection
    files: pa.Table | None = None

    @property
    def store(self) -> LogStore:
        """The files of the table."""
        return self.snapshot.store

    @cached_property
    def configuration(self) -> TableConfiguration:
        """The configuration that the table has after the change."""
        return TableConfiguration(self.protocol, self.metadata)

    @property
    def spark(self) -> SparkSession:
        """The session of Spark, which starts if it has not."""
        return require_spark(self.session, READS)

    @property
    def protocol(self) -> Protocol:
        """The protocol, which the change does not alter."""
        return self.snapshot.protocol

    @cached_property
    def tracking(self) -> TrackingColumns | None:
        """The columns of row ids and row commit versions, if row tracking is enabled."""
        return tracking_columns(self.configuration, self.snapshot.location)

    @cached_property
    def before(self) -> StructType:
        """The columns that are read: the table's columns and the row tracking columns."""
        return self._with_tracking(self.snapshot.schema)

    @cached_property
    def schema(self) -> StructType:
        """The columns that are written: the table's columns and the row tracking columns."""
        return self._with_tracking(self.configuration.schema)

    def _with_tracking(self, schema: StructType) -> StructType:
        return self.tracking.add_to(schema) if self.tracking else schema

    @cached_property
    def candidates(self) -> pa.Table:
        """The files that may have rows to change."""
        return filter_files(self.snapshot.files(), self.selection) if self.files is None else self.files

    @cached_property
    def adds(self) -> dict[str, Add]:
        """The candidates by the value of `FILE` in their rows."""
        return dict(zip(location_keys(self.store, self.candidates), to_adds(self.candidates), strict=True))

    @cached_property
    def reads(self) -> ReadSet:
        """The read set of a change of the candidates, for conflict detection."""
        return ReadSet(selection=self.selection, paths=frozenset(self.candidates["path"].to_pylist()))

    def has(self, feature: str) -> bool:
        """Return whether a feature is enabled."""
        return self.configuration.enables(feature)

    @property
    def has_arrow_layout(self) -> bool:
        """Whether the types allow tasks to write rows with Arrow: rows keep their columns, without ids."""
        table = self.configuration
        needs_spark = enabled_compat(table.properties) is not None or stores_partition_columns(table)
        return not needs_spark and self.tracking is None and self.before == self.schema

    def located(self, keys: Collection[str] | None = None) -> DataFrame:
        """Return the rows of the candidates, or of some of them, with their file and row index."""
        files = self.candidates
        if keys is not None:
            files = files.filter(pa.array([key in keys for key in self.adds], pa.bool_()))
        if self.tracking is None:
            return read_with_locations(self.spark, self.store, self.snapshot, files)
        view = self.snapshot.with_metadata(self.snapshot.metadata.with_schema(self.before))
        return with_row_tracking(
            read_with_locations(self.spark, self.store, view, files), self.store, files, self.tracking
        )

    def all_rows(self, keys: Iterable[str]) -> dict[str, int]:
        """Return the row count of files, including deleted rows; from the footer if the log has no statistics."""
        counts = {key: FileStatistics(self.adds[key].stats).rows for key in keys}
        uncounted = [key for key, rows in counts.items() if rows is None]
        paths = [self.store.plain(self.adds[key].path) for key in uncounted]
        footers = read_footers(self.session, self.store, paths, frozenset()) if paths else []
        footer_rows = {key: footer.rows for key, footer in zip(uncounted, footers, strict=True)}
        return {key: footer_rows[key] if rows is None else rows for key, rows in counts.items()}

    def live_rows(self, keys: Iterable[str]) -> dict[str, int]:
        """Return the row count of files without deleted rows."""
        return {key: rows - count_deleted_rows(self.adds[key]) for key, rows in self.all_rows(keys).items()}


def count_deleted_rows(add: Add) -> int:
    """Return the number of deleted rows of a file."""
    return add.deletion_vector.cardinality if add.deletion_vector else 0


@dataclass(frozen=True)
class ChangeResult:
    """The result of a change, before it is committed.

    Args:
        revised: The files with a new deletion vector; `removed` has them with their old one.
        folders: The folders of the written files, to delete if the commit fails.
    """

    removed: tuple[Add, ...] = ()
    added: tuple[Add, ...] = ()
    revised: tuple[Add, ...] = ()
    recorded: tuple[AddCdc, ...] = ()
    rows: Counter[int] = field(default_factory=Counter)
    copied: int = 0
    folders: tuple[str, ...] = ()
    reads: ReadSet = ReadSet.NOTHING
    totals: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether no row changes."""
        return not self.removed and not self.added

    @property
    def actions(self) -> list[Action]:
        """The actions of the commit, apart from those that change the metadata."""
        now_ms = current_ms()
        removes = [to_remove(add, now_ms, data_change=True) for add in self.removed]
        return [*removes, *self.revised, *self.added, *self.recorded]

    def discard(self, store: LogStore) -> None:
        """Delete the written files (best effort); no commit refers to them."""
        for folder in self.folders:
            discard_folder(store, folder)


def remove_whole_files(files: pa.Table, reads: ReadSet) -> ChangeResult:
    """Return the change that removes whole files; row counts come from the statistics in the log."""
    adds = to_adds(files)
    counts = [(FileStatistics(add.stats).rows or 0) - count_deleted_rows(add) for add in adds]
    return ChangeResult(removed=tuple(adds), rows=Counter({0: sum(max(count, 0) for count in counts)}), reads=reads)


class ChangeFiles:
    """Write the files of one change; as a context manager, delete them (best effort) if the block raises."""

    def __init__(self, context: ChangeContext) -> None:
        self.context = context
        self._folders: list[str] = []

    def __enter__(self) -> ChangeFiles:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is not None:
            ChangeResult(folders=self.folders).discard(self.context.store)

    @property
    def folders(self) -> tuple[str, ...]:
        """The folders with written files, relative to the table."""
        return tuple(self._folders)

    def new_folder(self, below: str = "") -> str:
        """Return a new folder."""
        self._folders.append(f"{below}{uuid.uuid4().hex}")
        return self._folders[-1]

    def rows(self, frame: DataFrame) -> list[Add]:
        """Write rows with `widen.frames.parquet_writer.write_parquet`."""
        context = self.context
        table = context.configuration.with_schema(context.schema)
        return write_parquet(frame, context.store, table, self.new_folder())

    def changes(self, frame: DataFrame) -> list[AddCdc]:
        """Write rows with their `CHANGE_TYPE` to change data files.

        Source: PROTOCOL.md#add-cdc-file, #change-data-files
        """
        context = self.context
        table = context.configuration.with_schema(with_change_type(context.configuration.schema))
        adds = write_parquet(frame, context.store, table, self.new_folder(f"{CHANGE_FOLDER}/"))
        return [
            AddCdc(path=add.path, partition_values=add.partition_values, size=add.size, data_change=False)
            for add in adds
        ]


def ensure_same_count(expected: int, written: int) -> None:
    """Check that the number of written rows is the number counted before, so that no row is lost or duplicated.

    Raises:
        JobFailed: the numbers differ, because the data changed between two reads.
    """
    if written != expected:
        reason = f"{written} rows were written where {expected} had been counted: the data changed while they were read"
        raise JobFailed(reason=reason)
