"""Rewriting: the rows of files are written to new files in the current types, and nothing else changes.

Deleted rows are dropped, partition values keep their texts, and rows keep their row ids if the table tracks them.

Source: PROTOCOL.md#add-file-and-remove-file (dataChange is false), #writer-requirements-for-row-tracking
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec
import pyarrow as pa

from widen.errors import InternalError
from widen.log.read.commit_timestamps import current_ms
from widen.log.read.file_list import to_adds, to_remove
from widen.log.read.snapshot import Snapshot
from widen.log.write.staged_files import discard
from widen.model.column_path import map_fields
from widen.model.schema_json import to_json
from widen.model.types import STRING, Field, StructType
from widen.planning.table.dependent_expressions import check_constraints
from widen.protocol import iceberg_compat
from widen.protocol.actions import Action, Add, Metadata, Remove
from widen.protocol.column_mapping import without_mapping
from widen.protocol.column_metadata import ROLE, SOURCE
from widen.protocol.skipping.file_statistics import HIDDEN_FIELDS, INDEXED_COLUMNS, NO_STATS, indexed_leaves
from widen.protocol.tracking_columns import TrackingColumns, tracking_columns
from widen.protocol.type_changes import TYPE_CHANGES, ensure_readable
from widen.spark.dml.change_context import count_written_rows
from widen.spark.read.deleted_rows import FILE, ROW
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
    ensure_readable(snapshot.schema)
    columns = tracking_columns(snapshot.protocol, snapshot.properties, snapshot.location)
    stored = _as_stored(snapshot, columns)
    view = snapshot.with_metadata(stored)
    frame = (
        _read_tracked(spark, view, files, columns)
        if columns
        else read_snapshot(spark, view.store, view, only=_paths(files))
    )
    target = without_mapping(stored) if unmapped else stored
    adds = write_parquet(arrange(frame) if arrange else frame, snapshot.store, snapshot.protocol, target)
    written = count_written_rows(adds)
    if written != rows:
        discard(snapshot.store, adds)
        raise InternalError(reason=f"{files.num_rows} files with {rows} rows became files with {written} rows")
    now_ms = current_ms()
    return RewrittenFiles(
        tuple(msgspec.structs.replace(add, data_change=False) for add in adds),
        tuple(to_remove(add, now_ms, data_change=False) for add in to_adds(files)),
    )


def _paths(files: pa.Table) -> Sequence[str]:
    paths: list[str] = files["path"].to_pylist()
    return paths


def _as_stored(snapshot: Snapshot, columns: TrackingColumns | None) -> Metadata:
    """Return metadata with which rows are read and written unchanged.

    No rules are checked and no values are generated, and materialized row ids are columns, too. Partition values are
    strings, so that their texts do not change, except in files that also contain the partition columns.
    """
    text_columns = () if iceberg_compat.enabled_compat(snapshot.properties) else snapshot.partition_columns
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
