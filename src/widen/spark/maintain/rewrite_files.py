"""Rewriting: the rows of files are written to new files in the current types, and nothing else changes.

Deleted rows are dropped, partition values keep their texts, and rows keep their row ids if the table tracks them.

Source: PROTOCOL.md#add-file-and-remove-file (dataChange is false), #writer-requirements-for-row-tracking
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from widen.errors import InternalError
from widen.log.commit import Conflicted, StagedFiles, after_commit, commit
from widen.log.commit_files import current_ms
from widen.log.commit_outcome import discard
from widen.log.file_list import to_adds, to_remove
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot, open_snapshot
from widen.model.column_path import map_fields
from widen.model.schema_json import to_json
from widen.model.types import STRING, Field, StructType
from widen.protocol import iceberg_compat
from widen.protocol.actions import Action, Add, Metadata, Remove
from widen.protocol.column_mapping import TrackingColumns, without_mapping
from widen.protocol.column_metadata import ROLE, SOURCE
from widen.protocol.file_statistics import HIDDEN_FIELDS, INDEXED_COLUMNS, NO_STATS, FileStatistics, indexed_leaves
from widen.protocol.table_configuration import TableConfiguration, tracking_columns
from widen.protocol.type_widening import TYPE_CHANGES, ensure_changes_readable, strip_type_changes
from widen.schema.table_state import check_constraints
from widen.spark.dml.change_context import count_written_rows
from widen.spark.read.deleted_rows import FILE, ROW
from widen.spark.read.parquet_footer import read_footers
from widen.spark.read.physical_types import OldFile, find_old_files
from widen.spark.read.scan import read_snapshot, read_with_locations, with_row_tracking
from widen.spark.spark_types import DataFrame, SparkSession, as_nullable
from widen.spark.write.parquet_writer import write_parquet

REWRITE = "REORG"
PARAMETERS: Mapping[str, object] = {"predicate": [], "applyPurge": True}
"""The operation and the parameters of a rewrite in the history.

Source: Delta Spark's REORG
"""

_KEPT_KEYS = ("delta.columnMapping.", TYPE_CHANGES, SOURCE, ROLE)


@dataclass(frozen=True, slots=True)
class RewrittenFiles:
    """Files that replace others."""

    adds: tuple[Add, ...]
    removes: tuple[Remove, ...]

    @property
    def actions(self) -> list[Action]:
        """The actions to commit."""
        return [*self.removes, *self.adds]

    @property
    def metrics(self) -> dict[str, int]:
        """The operation metrics for the history.

        Source: Delta Spark's metrics of OPTIMIZE and REORG
        """
        sizes = sorted(add.size for add in self.adds) or [0]
        return {
            "numAddedFiles": len(self.adds),
            "numRemovedFiles": len(self.removes),
            "numAddedBytes": sum(add.size for add in self.adds),
            "numRemovedBytes": sum(remove.size or 0 for remove in self.removes),
            "minFileSize": sizes[0],
            "p25FileSize": sizes[len(sizes) // 4],
            "p50FileSize": sizes[len(sizes) // 2],
            "p75FileSize": sizes[len(sizes) * 3 // 4],
            "maxFileSize": sizes[-1],
            "numDeletionVectorsRemoved": sum(remove.deletion_vector is not None for remove in self.removes),
        }


def rewrite_files(
    spark: SparkSession,
    snapshot: Snapshot,
    files: pa.Table,
    rows: int,
    arrange: Callable[[DataFrame], DataFrame] | None = None,
    *,
    unmapped: bool = False,
) -> RewrittenFiles:
    """Write the rows of files to new files in the current types; commits nothing.

    If the rewrite fails, the new files are deleted as far as the store allows.

    Args:
        files: Rows of its list of files.
        rows: The number of their rows that are not deleted.
        arrange: Distributes and sorts the rows; each partition of its result becomes a file for each table partition.
        unmapped: Whether the new files have the logical names of the columns, instead of those of column mapping.

    Raises:
        UnsupportedTypeChange: the schema records a type change that the protocol does not list.
        UnsupportedFeatureForWrite: the row ids cannot be preserved.
        InternalError: the new files have another number of rows; they are deleted.

    Source: PROTOCOL.md#add-file-and-remove-file
    """
    ensure_changes_readable(snapshot.schema)
    columns = tracking_columns(snapshot.configuration, snapshot.location)
    stored = _as_stored(snapshot, columns)
    view = snapshot.with_metadata(stored)
    frame = (
        _read_tracked(spark, view, files, columns)
        if columns
        else read_snapshot(spark, view.store, view, only=_paths(files))
    )
    target = without_mapping(stored) if unmapped else stored
    table = TableConfiguration(snapshot.protocol, target)
    adds = write_parquet(arrange(frame) if arrange else frame, snapshot.store, table)
    written = count_written_rows(adds)
    if written != rows:
        discard(snapshot.store, adds)
        raise InternalError(reason=f"{files.num_rows} files with {rows} rows became files with {written} rows")
    now_ms = current_ms()
    return RewrittenFiles(
        tuple(msgspec.structs.replace(add, data_change=False) for add in adds),
        tuple(to_remove(add, now_ms, data_change=False) for add in to_adds(files)),
    )


def live_rows(spark: SparkSession, snapshot: Snapshot, files: pa.Table) -> list[int]:
    """Return the number of rows of each file without the deleted ones; footers tell what statistics do not."""
    counts = [FileStatistics(stats).rows for stats in files["stats"].to_pylist()]
    unknown = [
        snapshot.store.plain(path) for path, rows in zip(files["path"].to_pylist(), counts, strict=True) if rows is None
    ]
    footers = iter(read_footers(spark, snapshot.store, unknown, frozenset()))
    deleted = [(vector or {}).get("cardinality", 0) for vector in files["deletion_vector"].to_pylist()]
    return [(next(footers).rows if rows is None else rows) - count for rows, count in zip(counts, deleted, strict=True)]


def _paths(files: pa.Table) -> Sequence[str]:
    paths: list[str] = files["path"].to_pylist()
    return paths


def _as_stored(snapshot: Snapshot, columns: TrackingColumns | None) -> Metadata:
    """Return metadata with which rows are read and written unchanged.

    No rules are checked and no values are generated, and materialized row ids are columns, too. Partition values are
    strings, so that their texts do not change, except in files that also contain the partition columns.
    """
    text_columns = () if iceberg_compat.stores_partition_columns(snapshot.configuration) else snapshot.partition_columns
    schema = map_fields(as_nullable(snapshot.schema), lambda _, field: _without_rules(field))
    schema = StructType(tuple(_as_text(field) if field.name in text_columns else field for field in schema))
    rules = check_constraints(snapshot.properties)
    kept = {key: value for key, value in snapshot.properties.items() if key not in rules}
    if columns:
        # The materialized row ids come after these columns, and get no statistics.
        counted = {key: value for key, value in kept.items() if key not in (HIDDEN_FIELDS, NO_STATS)}
        kept[INDEXED_COLUMNS] = str(len(indexed_leaves(schema, counted, snapshot.partition_columns)))
        schema = columns.add_to(schema)
    return msgspec.structs.replace(snapshot.metadata, schema_string=to_json(schema), configuration=kept)


def _without_rules(field: Field) -> Field:
    return replace(field, metadata={k: value for k, value in field.metadata.items() if k.startswith(_KEPT_KEYS)})


def _as_text(field: Field) -> Field:
    return replace(field, type=STRING).without_metadata(TYPE_CHANGES)


def _read_tracked(spark: SparkSession, view: Snapshot, files: pa.Table, columns: TrackingColumns) -> DataFrame:
    return with_row_tracking(read_with_locations(spark, view.store, view, files), view.store, files, columns).drop(
        FILE, ROW
    )


# The rewrite of all old files to the current types, while other writers continue.
#
# Every batch of files is one commit. A batch that loses a race against another commit is rewritten from its files
# that are left, in smaller batches; earlier batches stay committed.
#
# Source: PROTOCOL.md#writer-requirements-for-type-widening (rewriting files as necessary)


BATCH_BYTES = 64 * 2**30
"""The most bytes of old files that one commit replaces."""

MOST_CONFLICTS = 10
"""The number of conflicts in a row after which the last one is reported."""


@dataclass
class OldFileRewrite:
    """The rewrite of one table, with its progress.

    Args:
        session: Returns the session; called only to rewrite files, or to read very many footers.
        batch_bytes: The most bytes of old files that one commit replaces.
        files: The number of files rewritten so far.
    """

    store: LogStore
    session: Callable[[], SparkSession]
    batch_bytes: int = BATCH_BYTES
    files: int = 0
    size_bytes: int = 0

    def __post_init__(self) -> None:
        self._version: int | None = None
        self._types: object = None
        self._current: set[str] = set()
        self._old: dict[str, OldFile] = {}

    def run(self) -> Snapshot:
        """Rewrite every old file, and return a version without old files, which was the latest when it was read.

        The footer of a file is read once, even over several calls, as long as the types of the table stay the same.

        Raises:
            UnsupportedTypeChange: the schema records a type change that the protocol does not list.
            UnsupportedFeatureForWrite: the table has a feature that Widen does not support for writing.
            ContentionError: too many commits in a row had conflicts, or the outcome of a commit is unknown.
            PostCommitFailed: files were rewritten, but the table cannot be read for others.
        """
        conflicts = 0
        while True:
            with nullcontext() if self._version is None else after_commit(self.store.location, self._version):
                snapshot = open_snapshot(self.store)
                pending = _by_partition(self._find_files(snapshot))
            if not pending.num_rows:
                return snapshot
            conflict = self._rewrite(snapshot, _first_batch(pending, self.batch_bytes >> conflicts))
            conflicts = conflicts + 1 if conflict else 0
            if conflict is not None and conflicts == MOST_CONFLICTS:
                conflict.or_raise()

    def _find_files(self, snapshot: Snapshot) -> pa.Table:
        """Return the files of a version that are to be rewritten."""
        types = strip_type_changes(snapshot.schema)
        if types != self._types:
            self._types, self._current, self._old = types, set(), {}
        files = snapshot.files()
        paths = files["path"].to_pylist()
        unknown = files.filter(pa.array([p not in self._current and p not in self._old for p in paths], pa.bool_()))
        self._old.update((file.path, file) for file in find_old_files(self.session, snapshot, unknown))
        self._current.update(path for path in unknown["path"].to_pylist() if path not in self._old)
        return files.filter(pa.array([path in self._old for path in paths], pa.bool_()))

    def _count_rows(self, _: Snapshot, files: pa.Table) -> int:
        rows = sum(self._old[path].rows for path in files["path"].to_pylist())
        return rows - (pc.sum(pc.struct_field(files["deletion_vector"], "cardinality")).as_py() or 0)

    def _rewrite(self, snapshot: Snapshot, files: pa.Table) -> Conflicted | None:
        rewrite = rewrite_files(self.session(), snapshot, files, self._count_rows(snapshot, files))
        with StagedFiles() as staged:
            staged.add_files(self.store, rewrite.adds)
            actions, numbers = rewrite.actions, rewrite.metrics
            outcome = commit(self.store, snapshot, actions, REWRITE, PARAMETERS, metrics=numbers, staged=staged)
        if isinstance(outcome, Conflicted):
            return outcome
        self._version = outcome.or_raise().version
        self.files += len(rewrite.removes)
        self.size_bytes += rewrite.metrics["numRemovedBytes"]
        self._current.update(add.path for add in rewrite.adds)
        return None


class Purge(OldFileRewrite):
    """The rewrite of all files with deletion vectors, without the deleted rows."""

    def _find_files(self, snapshot: Snapshot) -> pa.Table:
        files = snapshot.files()
        return files.filter(files["deletion_vector"].is_valid())

    def _count_rows(self, snapshot: Snapshot, files: pa.Table) -> int:
        return sum(live_rows(self.session(), snapshot, files))


def _by_partition(files: pa.Table) -> pa.Table:
    split = [sorted((k, v or "") for k, v in values or ()) for values in files["partition_values"].to_pylist()]
    return files.take(pa.array(sorted(range(files.num_rows), key=split.__getitem__), pa.int64()))


def _first_batch(files: pa.Table, size_bytes: int) -> pa.Table:
    """Return as many files from the start as fit into a number of bytes, but at least one."""
    total, count = 0, 0
    for size in files["size_bytes"].to_pylist():
        total += size
        if count and total > size_bytes:
            break
        count += 1
    return files.slice(0, count)
