"""An Iceberg table that a batch by key is for: how its rows are read, and how what the batch does is written.

The decision is the same as for Delta tables.

Source: docs/guide/keys.md
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import reduce
from typing import TYPE_CHECKING

import pyarrow as pa
from pyroaring import BitMap64

from widen.changes.assignment import CLAUSE, ChangeKind
from widen.changes.change_context import ensure_same_count
from widen.changes.deleted_keys import KeyLists
from widen.changes.iceberg_apply import RowChange
from widen.changes.iceberg_vectors import mark_deleted, marks_rows
from widen.changes.iceberg_write import ChangedRows, ReplacedFiles, copy_unmarked, find_deleted, to_add, to_plain_adds
from widen.changes.keyed_files import KeyedTable, evaluate_defaults, read_on_spark
from widen.changes.keyed_load import LocalMerge
from widen.files.deleted_rows import FILE, ROW, only_marked, to_words, without_marked
from widen.files.iceberg_columns import IcebergFileScan
from widen.frames.iceberg_scan import IcebergSource, file_scan, read_iceberg_files, to_uris
from widen.frames.physical_layout import ICEBERG
from widen.frames.scan import location_key
from widen.frames.table_writers import IcebergWriter
from widen.iceberg.file_metrics import IcebergFile
from widen.iceberg.metadata_files import live_entries
from widen.iceberg.scan_plan import IcebergScan, ScannedFile, plan_scan
from widen.log.commit_outcome import StagedFiles, discard_folder
from widen.log.log_store import LogStore
from widen.model.types import StructType
from widen.model.value_classes import dataclass
from widen.protocol.actions import Add
from widen.protocol.data_skipping import Predicate
from widen.spark.engine import Session, Unsupported
from widen.spark.spark_types import DataFrame, F, SparkSession

if TYPE_CHECKING:
    from widen.iceberg.snapshots import DataFile


@dataclass(frozen=True, slots=True)
class IcebergFiles(KeyedTable):
    """An Iceberg table that a batch by key is for.

    Args:
        source: The snapshot before the batch, with the metadata of the commit.
        lists: The keys that were deleted until the snapshot.
    """

    source: IcebergSource
    old_schema: StructType | None = field()  # else the protocol's property would be its default
    writer: IcebergWriter
    data: str
    lists: KeyLists = field()
    by_spark: bool = False
    _known: list[Mapping[str, BitMap64]] = field(default_factory=list, init=False, repr=False, compare=False)
    """The deleted rows of the snapshot, once they were read."""

    @property
    def schema(self) -> StructType:
        return self.writer.schema

    @property
    def store(self) -> LogStore:
        return self.writer.store

    @property
    def _deleted(self) -> Mapping[str, BitMap64]:
        if not self._known:
            self._known.append(find_deleted(self.source, self._scan()))
        return self._known[0]

    def scan(self, columns: StructType) -> IcebergFileScan:
        return file_scan(self.source, columns, {} if self.by_spark else self._deleted)

    def find_files(self, searched: Predicate) -> Sequence[Add]:
        scan = self._scan(searched)
        if self.by_spark:
            return [to_add(file.path, file.size_bytes) for file in scan.files]
        return to_plain_adds(self.source, scan, self.schema)

    def key_of(self, add: Add) -> str:
        return add.path

    def on_spark(self) -> IcebergFiles:
        return replace(self, by_spark=True)

    def locate(self, spark: SparkSession, adds: Sequence[Add]) -> DataFrame:
        scan = self._scan()
        known = {file.path: file for file in scan.files}
        files = tuple(known.get(add.path) or _to_scanned(add.path, add.size, 0) for add in adds)
        source = replace(self.source, session=lambda: spark)
        return read_iceberg_files(source, self.schema, replace(scan, files=files), place=(FILE, ROW))

    def location_of(self, add: Add) -> str:
        return _location_of(add.path)

    def read_defaults(self, session: Session) -> Mapping[str, pa.Array]:
        return evaluate_defaults(session, self.schema, ICEBERG)

    def to_adds(self, files: Sequence[IcebergFile]) -> list[Add]:
        return [to_add(f"{self.data}/{file.path}", file.size) for file in files]

    def count_rows(self, files: Sequence[IcebergFile]) -> int:
        return self.writer.count_rows(files)

    def apply(
        self, merge: LocalMerge, files: Sequence[IcebergFile], staged: StagedFiles
    ) -> tuple[list[IcebergFile], ReplacedFiles]:
        """Write the result of the batch.

        Returns:
            The files with its rows, and what replaces the files with rows that are removed.
        """
        written = self._without_losers(merge, files)
        kept = {file.path for file in files}
        staged.add_undo(lambda: self.writer.discard([file for file in written if file.path not in kept]))
        lost = sum(map(len, merge.losers.values())) - (0 if merge.new_rows is None else merge.new_rows.count)
        ensure_same_count(self.count_rows(files) - lost, self.count_rows(written))
        return written, self._without_rows(merge, staged)

    def _without_losers(self, merge: LocalMerge, files: Sequence[IcebergFile]) -> list[IcebergFile]:
        paths = {file.path: f"{self.data}/{file.path}" for file in files}
        kept = [file for file in files if paths[file.path] not in merge.losers]
        copied = [file for file in files if paths[file.path] in merge.losers]
        if not copied:
            return kept
        scanned = (_to_scanned(paths[file.path], file.size, file.metrics.rows) for file in copied)
        scan, added = IcebergScan(tuple(scanned), ()), () if merge.new_rows is None else merge.new_rows.parts
        rows = copy_unmarked(self.source, self.writer, scan, merge.losers, changed=ChangedRows({}, added))
        return [*kept, *(self._copy_on_spark(scan, merge) if rows is None else rows)]

    def _copy_on_spark(self, scan: IcebergScan, merge: LocalMerge) -> list[IcebergFile]:
        spark, store, folder = self.source.spark, self.store, uuid.uuid4().hex
        rows = read_iceberg_files(self.source, self.schema, scan, place=(FILE, ROW))
        frames = [without_marked(rows, _words(spark, merge.losers)).drop(FILE, ROW)]
        try:
            if merge.new_rows is not None:
                frames.append(read_on_spark(spark, merge.new_rows, self.schema, store, folder))
            return self.writer.write(reduce(DataFrame.unionAll, frames))
        finally:
            discard_folder(store, folder)

    def _without_rows(self, merge: LocalMerge, staged: StagedFiles) -> ReplacedFiles:
        if not merge.removed:
            return ReplacedFiles()
        scan = self._scan(merge.searched)
        touched = replace(scan, files=tuple(file for file in scan.files if file.path in merge.removed))
        try:
            removed = None if self.by_spark else self._without_rows_here(merge, touched, staged)
        except Unsupported:
            removed = None
        return self._without_rows_on_spark(merge, touched, staged) if removed is None else removed

    def _without_rows_here(self, merge: LocalMerge, touched: IcebergScan, staged: StagedFiles) -> ReplacedFiles | None:
        """Return files without rows that are removed; None if Arrow cannot write them."""
        if marks_rows(self.source.point.metadata, "merge"):
            gone = {path: rows | self._deleted.get(path, BitMap64()) for path, rows in merge.removed.items()}
            marked = mark_deleted(self.source, self.writer, touched, gone, staged)
            return ReplacedFiles(marked.removed, vectors=marked.vectors)
        copies = copy_unmarked(self.source, self.writer, touched, merge.removed)
        if copies is None:
            return None
        staged.add_undo(lambda: self.writer.discard(copies))
        point = self.source.point
        entries = live_entries(point.metadata, self.source.io, point.snapshot, merge.removed.keys())
        removed = [entry.data_file for entry in entries]
        rows = self._count_live(removed) - sum(map(len, merge.removed.values()))
        ensure_same_count(rows, self.count_rows(copies))
        return ReplacedFiles(removed, copies)

    def _count_live(self, files: Iterable[DataFile]) -> int:
        """Return how many rows some files of the snapshot have, without the deleted ones."""
        return sum(each.record_count - len(self._deleted.get(each.file_path, ())) for each in files)

    def _without_rows_on_spark(self, merge: LocalMerge, touched: IcebergScan, staged: StagedFiles) -> ReplacedFiles:
        source, schema = self.source, self.schema
        words = _words(source.spark, merge.removed)

        def decide(_: StructType, rows: DataFrame) -> DataFrame:
            return only_marked(rows, words).withColumn(CLAUSE, F.lit(0))

        marks = marks_rows(source.point.metadata, "merge")
        change = RowChange(source, schema, self.writer, schema, touched, (ChangeKind.DELETE,), decide, marks=marks)
        return change.write(staged)

    def _scan(self, searched: Predicate | None = None) -> IcebergScan:
        if self.old_schema is None:
            return IcebergScan((), ())
        return plan_scan(self.source.point, self.source.io, searched)


def _location_of(path: str) -> str:
    return location_key(to_uris([path])[0])


def _words(spark: SparkSession, marked: Mapping[str, BitMap64]) -> DataFrame:
    return to_words(spark, {_location_of(path): rows for path, rows in marked.items()})


def _to_scanned(path: str, size_bytes: int, rows: int) -> ScannedFile:
    """Return a file of the batch; no delete file applies to it."""
    return ScannedFile(path, size_bytes, rows, sys.maxsize, "", ())
