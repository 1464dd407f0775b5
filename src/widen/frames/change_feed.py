"""Read the rows that versions inserted, updated and deleted, as one DataFrame.

Source: PROTOCOL.md#change-data-files; Delta Spark's change data feed
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce

import pyarrow as pa

from widen.errors import ChangeFeedNotRecorded, ChangeFeedSchemaChanged, ChangeFeedSchemaMismatch, InvalidOption
from widen.files.deleted_rows import FILE, ROW
from widen.frames.scan import location_keys, read_with_locations
from widen.log.file_list import concat_files, from_adds
from widen.log.snapshot import Snapshot, open_snapshot
from widen.log.version_changes import DELETE, INSERT, ChangeSlice, VersionChanges, change_slices, version_changes
from widen.model.schema_json import from_json
from widen.model.types import quote_name
from widen.protocol.actions import Add
from widen.protocol.column_mapping import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, with_change_type
from widen.protocol.column_metadata import visible_schema
from widen.protocol.table_properties import ENABLE_CHANGE_DATA_FEED, is_on
from widen.schema.growth import is_readable_in, is_representable_in
from widen.spark.spark_types import DataFrame, F, SparkSession

_TIME_MS = "__widen_time_ms"


def read_changed_rows(spark: SparkSession, snapshot: Snapshot, changes: Sequence[VersionChanges]) -> DataFrame:
    """Return the rows that versions changed, each with its change type, version and commit time.

    Args:
        changes: The changes of the versions, in order; the schema can represent them.
    """
    parts = [part for each in changes for part in change_slices(each)]
    by_type = {kind: [part for part in parts if part.change_type == kind] for kind in (None, INSERT, DELETE)}
    frames = list(_frames(spark, _with_type(snapshot), by_type[None]))
    for kind in (INSERT, DELETE):
        frames += [frame.withColumn(CHANGE_TYPE, F.lit(kind)) for frame in _frames(spark, snapshot, by_type[kind])]
    whole = reduce(DataFrame.unionByName, frames) if frames else _nothing(spark, snapshot)
    columns = [F.col(quote_name(name)) for name in snapshot.schema.names]
    time = F.timestamp_millis(F.col(_TIME_MS)).alias(COMMIT_TIMESTAMP)
    return whole.select(*columns, CHANGE_TYPE, COMMIT_VERSION, time)


def load_changes(shown: Snapshot, first: int, last: int) -> list[VersionChanges]:
    """Return the changes of a range of versions, whose rows the schema of a version can represent.

    Raises:
        InvalidOption: the last version is before the first.
        ChangeFeedNotRecorded: the change data feed was disabled in one of the versions.
        ChangeFeedSchemaMismatch: the first version, or the rows that it removed, have other columns or types than the
            version whose schema is used.

    Source: PROTOCOL.md#add-cdc-file; Delta Spark's change data feed, which does not support type changes either
    """
    if last < first:
        raise InvalidOption(option="last", value=last, expected=f"Must not be before the first version, {first}.")
    start = open_snapshot(shown.store, first)
    if not is_on(start.properties, ENABLE_CHANGE_DATA_FEED):
        raise ChangeFeedNotRecorded(first=first, last=last, version=first)
    changes = list(_ensure_representable(shown, first, last))
    is_representable = is_representable_in(start.schema, first, shown.schema, shown.version)
    if not is_representable or not _are_removed_rows_readable(shown, changes[0]):
        schema, version = visible_schema(shown.schema).sql, first - 1 if is_representable else first
        raise ChangeFeedSchemaMismatch(first=first, last=last, version=version, shown=shown.version, schema=schema)
    return changes


def _are_removed_rows_readable(shown: Snapshot, changes: VersionChanges) -> bool:
    """Return whether the rows of the files that a version removed can be read in a schema.

    A restore or an overwrite can remove files of wider types than it leaves to the table, which Spark may read without
    an error as other values. Differs: Delta Spark's change data feed returns these values.
    """
    if changes.metadata is None or changes.change_files or not changes.removed:
        return True
    return is_readable_in(open_snapshot(shown.store, changes.version - 1).schema, shown.schema, may_drop=True)


def _ensure_representable(shown: Snapshot, first: int, last: int) -> Iterator[VersionChanges]:
    """Yield the changes of each version; raise if the schema of a version cannot represent its rows."""
    for each in version_changes(shown.store, first, last):
        if each.metadata is not None and not is_on(each.metadata.configuration, ENABLE_CHANGE_DATA_FEED):
            raise ChangeFeedNotRecorded(first=first, last=last, version=each.version)
        if each.metadata is not None and each.version > first:
            schema = from_json(each.metadata.schema_string)
            if not is_representable_in(schema, each.version, shown.schema, shown.version):
                raise ChangeFeedSchemaChanged(
                    first=first, last=last, version=each.version, shown=shown.version, schema=shown.schema.sql
                )
        yield each


def _with_type(snapshot: Snapshot) -> Snapshot:
    """Return the version with the schema of change data files, which have one more column."""
    return snapshot.with_metadata(snapshot.metadata.with_schema(with_change_type(snapshot.schema)))


def _frames(spark: SparkSession, snapshot: Snapshot, parts: Iterable[ChangeSlice]) -> Iterator[DataFrame]:
    """Yield the rows of files with their versions; a frame has no file twice, as rows are joined by file."""
    for layer in _layers(parts):
        rows = read_with_locations(spark, snapshot.store, snapshot, _to_file_list([part.file for part in layer]))
        kept = [part.without for part in layer if part.without is not None]
        if kept:
            rest = read_with_locations(spark, snapshot.store, snapshot, _to_file_list(kept)).select(FILE, ROW)
            rows = rows.join(rest, [FILE, ROW], "left_anti")
        keys = location_keys(snapshot.store, _to_file_list([part.file for part in layer]))
        columns = {
            FILE: pa.array(keys, pa.string()),
            COMMIT_VERSION: pa.array([part.version for part in layer], pa.int64()),
            _TIME_MS: pa.array([part.time_ms for part in layer], pa.int64()),
        }
        yield rows.join(F.broadcast(spark.createDataFrame(pa.table(columns))), FILE).drop(FILE, ROW)


def _layers(parts: Iterable[ChangeSlice]) -> list[list[ChangeSlice]]:
    layers: list[list[ChangeSlice]] = []
    depth: dict[str, int] = {}
    for part in parts:
        at = depth[part.file.path] = depth.get(part.file.path, -1) + 1
        if at == len(layers):
            layers.append([])
        layers[at].append(part)
    return layers


def _to_file_list(files: Sequence[Add]) -> pa.Table:
    return concat_files([from_adds(files)])


def _nothing(spark: SparkSession, snapshot: Snapshot) -> DataFrame:
    empty = read_with_locations(spark, snapshot.store, snapshot, _to_file_list([])).drop(FILE, ROW)
    zero = F.lit(0).cast("bigint")
    return empty.withColumns({CHANGE_TYPE: F.lit(""), COMMIT_VERSION: zero, _TIME_MS: zero})
