"""Read the rows that versions inserted, updated and deleted, as one DataFrame.

Source: PROTOCOL.md#change-data-files; Delta Spark's change data feed
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import pyarrow as pa
from pyspark.sql import functions as F

from widen.log.read.file_list import concat_files, from_adds
from widen.log.read.snapshot import Snapshot
from widen.log.read.version_changes import VersionChanges
from widen.model.types import quote_name
from widen.protocol.actions import Add, AddCdc, Remove
from widen.protocol.change_data_files import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION, with_change_type
from widen.spark.read.deleted_rows import FILE, ROW
from widen.spark.read.scan import file_keys, read_with_locations
from widen.spark.spark_types import DataFrame, SparkSession

INSERT, DELETE = "insert", "delete"
_TIME_MS = "__widen_time_ms"


@dataclass(frozen=True, slots=True)
class _ChangeSlice:
    """A file with rows that one version changed in one way.

    Args:
        version: The version.
        time_ms: The time of its commit.
        file: The file.
        without: The same file with only the unchanged rows, if there are any.
    """

    version: int
    time_ms: int
    file: Add
    without: Add | None = None


def read_changed_rows(spark: SparkSession, snapshot: Snapshot, changes: Sequence[VersionChanges]) -> DataFrame:
    """Return the rows that versions changed, each with its change type, version and commit time.

    Args:
        spark: The session, classic or Connect.
        snapshot: The version whose schema the rows have.
        changes: The changes of the versions, in order; the schema can represent them.

    Raises:
        UnsupportedTypeChange: the schema records a type change that the protocol does not allow.
        CorruptLog: the schema breaks the rules of column mapping.
        StorageError: the storage returned an error.
    """
    recorded = [_ChangeSlice(each.version, each.time_ms, _as_add(cdc)) for each in changes for cdc in each.change_files]
    derived = [each for each in changes if not each.change_files]
    frames = list(_frames(spark, _with_type(snapshot), recorded))
    frames += [
        frame.withColumn(CHANGE_TYPE, F.lit(INSERT)) for frame in _frames(spark, snapshot, _inserted_slices(derived))
    ]
    frames += [
        frame.withColumn(CHANGE_TYPE, F.lit(DELETE)) for frame in _frames(spark, snapshot, _deleted_slices(derived))
    ]
    whole = reduce(DataFrame.unionByName, frames) if frames else _nothing(spark, snapshot)
    columns = [F.col(quote_name(name)) for name in snapshot.schema.names]
    time = F.timestamp_millis(F.col(_TIME_MS)).alias(COMMIT_TIMESTAMP)
    return whole.select(*columns, CHANGE_TYPE, COMMIT_VERSION, time)


def _inserted_slices(changes: Iterable[VersionChanges]) -> Iterator[_ChangeSlice]:
    for each in changes:
        before = {remove.path: remove for remove in each.removed}
        for add in each.added:
            known = before.get(add.path)
            yield _ChangeSlice(each.version, each.time_ms, add, _as_file(known) if known else None)


def _deleted_slices(changes: Iterable[VersionChanges]) -> Iterator[_ChangeSlice]:
    for each in changes:
        after = {add.path: add for add in each.added}
        for remove in each.removed:
            yield _ChangeSlice(each.version, each.time_ms, _as_file(remove), after.get(remove.path))


def _as_file(remove: Remove) -> Add:
    return Add(
        path=remove.path,
        partition_values=remove.partition_values or {},
        size=remove.size or 0,
        modification_time=0,
        data_change=False,
        deletion_vector=remove.deletion_vector,
    )


def _as_add(cdc: AddCdc) -> Add:
    values = cdc.partition_values
    return Add(path=cdc.path, partition_values=values, size=cdc.size, modification_time=0, data_change=False)


def _with_type(snapshot: Snapshot) -> Snapshot:
    """Return the version with the schema of change data files, which have one more column."""
    return snapshot.with_metadata(snapshot.metadata.with_schema(with_change_type(snapshot.schema)))


def _frames(spark: SparkSession, snapshot: Snapshot, parts: Iterable[_ChangeSlice]) -> Iterator[DataFrame]:
    """Yield the rows of files with their versions; a frame has no file twice, as rows are joined by file."""
    for layer in _layers(parts):
        rows = read_with_locations(spark, snapshot.store, snapshot, _listed([part.file for part in layer]))
        kept = [part.without for part in layer if part.without is not None]
        if kept:
            rest = read_with_locations(spark, snapshot.store, snapshot, _listed(kept)).select(FILE, ROW)
            rows = rows.join(rest, [FILE, ROW], "left_anti")
        keys = file_keys(snapshot.store, _listed([part.file for part in layer]))
        columns = {
            FILE: pa.array(keys, pa.string()),
            COMMIT_VERSION: pa.array([part.version for part in layer], pa.int64()),
            _TIME_MS: pa.array([part.time_ms for part in layer], pa.int64()),
        }
        yield rows.join(F.broadcast(spark.createDataFrame(pa.table(columns))), FILE).drop(FILE, ROW)


def _layers(parts: Iterable[_ChangeSlice]) -> list[list[_ChangeSlice]]:
    layers: list[list[_ChangeSlice]] = []
    depth: dict[str, int] = {}
    for part in parts:
        at = depth[part.file.path] = depth.get(part.file.path, -1) + 1
        if at == len(layers):
            layers.append([])
        layers[at].append(part)
    return layers


def _listed(files: Sequence[Add]) -> pa.Table:
    return concat_files([from_adds(files)])


def _nothing(spark: SparkSession, snapshot: Snapshot) -> DataFrame:
    empty = read_with_locations(spark, snapshot.store, snapshot, _listed([])).drop(FILE, ROW)
    return empty.withColumns({CHANGE_TYPE: F.lit(""), COMMIT_VERSION: F.lit(0), _TIME_MS: F.lit(0)})
