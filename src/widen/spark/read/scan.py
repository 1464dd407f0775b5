"""Scans: the files of a snapshot as one DataFrame in the current types, read by Spark's own vectorised reader.

Column mapping is resolved by the names that columns have in files: the physical names, or where the mode is ``id``
those that the field ids of each file tell.

Source: PROTOCOL.md#reader-requirements-for-type-widening, #column-mapping, #deletion-vectors
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import reduce
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from widen.log.read.snapshot import Snapshot
from widen.log.store.log_store import LogStore
from widen.model.types import LONG, STRING, Field, StructType
from widen.protocol.actions import DeletionVector
from widen.protocol.column_mapping import ID, mapping_mode
from widen.protocol.skipping.file_selection import FileSelection
from widen.protocol.skipping.predicate import Predicate, UnknownPredicate
from widen.protocol.type_changes import ensure_readable
from widen.spark.parquet.rebase_mode import READ_OPTIONS
from widen.spark.read.deleted_rows import FILE, ROW, deleted_positions
from widen.spark.read.field_ids import divided_by_names
from widen.spark.read.file_manifest import write_manifest
from widen.spark.read.old_decimals import decimals_to_know, stored_types
from widen.spark.read.projection import VALUE, data_columns, projection
from widen.spark.read.pushdown import file_condition
from widen.spark.read.scan_groups import ScanGroup, ScanPlan, group_files, partition_values, split_group
from widen.spark.read.sql_predicate import parse_predicate
from widen.spark.source.source_files import as_literal
from widen.spark.spark_types import as_nullable, to_spark, visible_schema

EXPLICIT_FILES = 32
"""Up to how many files Spark is given by name; it then looks each of them up."""

_EVERYTHING = UnknownPredicate()
_SCHEME = r"^[A-Za-z0-9+.-]+:/*"


def read_snapshot(
    spark: SparkSession,
    store: LogStore,
    snapshot: Snapshot,
    where: str | Column | None = None,
    only: Collection[str] | None = None,
) -> DataFrame:
    """Return the rows of a version in its current types; columns in the order of the schema, all of them nullable.

    Args:
        spark: The session, classic or Connect.
        store: The store of the table.
        snapshot: The version.
        where: Which rows; a text in Spark SQL also skips files by partition values and statistics, a Column does not.
        only: Which files, by their paths in the log; by default all of the version.

    Raises:
        UnsupportedTypeChange: the schema records a change that is not in the matrix.
        CorruptLog: the schema breaks the rules of column mapping.
        StorageError: the store refused.
    """
    predicate = parse_predicate(where, snapshot.schema) if isinstance(where, str) else UnknownPredicate()
    scan = _with_old_types(spark, snapshot, plan_scan(snapshot, predicate, only))
    whole = _union(spark, store, scan, is_located=False)
    return whole if where is None else whole.filter(where)


def read_with_locations(spark: SparkSession, store: LogStore, snapshot: Snapshot, files: pa.Table) -> DataFrame:
    """Return the rows of some files like `read_snapshot`, with the columns `FILE` and `ROW`: where each row is.

    Args:
        spark: The session, classic or Connect.
        store: The store of the table.
        snapshot: The version.
        files: Rows of its list of files; `file_keys` tells what their rows have in `FILE`.

    Raises:
        UnsupportedTypeChange: the schema records a change that is not in the matrix.
        CorruptLog: the schema breaks the rules of column mapping.
        StorageError: the store refused.
    """
    return _union(spark, store, _with_old_types(spark, snapshot, _scan(snapshot, files)), is_located=True)


def file_keys(store: LogStore, files: pa.Table) -> list[str]:
    """Return what tells each file of a list from the others in the column `FILE`."""
    return [_key(store.uri(path)) for path in files["path"].to_pylist()]


def _union(spark: SparkSession, store: LogStore, scan: ScanPlan, *, is_located: bool) -> DataFrame:
    frames = [_frame(spark, store, scan, group, is_located=is_located) for group in scan.groups]
    if frames:
        return reduce(DataFrame.unionAll, frames)
    columns = visible_schema(scan.schema).fields
    place = (Field(FILE, STRING), Field(ROW, LONG)) if is_located else ()
    return spark.createDataFrame([], to_spark(as_nullable(StructType((*columns, *place)))))


def plan_scan(snapshot: Snapshot, predicate: Predicate, only: Collection[str] | None = None) -> ScanPlan:
    """Return which files are read and how; files without a matching row are left out.

    Args:
        snapshot: The version.
        predicate: Which rows are wanted, as far as that is understood.
        only: Which files, by their paths in the log; by default all of the version.

    Raises:
        UnsupportedTypeChange: the schema records a change that is not in the matrix.
        CorruptLog: the schema breaks the rules of column mapping.
        StorageError: the store refused.
    """
    files = snapshot.files()
    if only is not None:
        files = files.filter(pc.is_in(files["path"], value_set=pa.array(only, pa.string())))
    return _scan(snapshot, filter_files(files, select_files(snapshot, predicate)), predicate)


def _scan(snapshot: Snapshot, files: pa.Table, predicate: Predicate = _EVERYTHING) -> ScanPlan:
    ensure_readable(snapshot.schema)
    mode = mapping_mode(snapshot.properties, snapshot.protocol)
    scan = ScanPlan(snapshot.schema, mode, tuple(snapshot.partition_columns), predicate)
    return replace(scan, groups=tuple(group_files(scan, files)))


def _with_old_types(spark: SparkSession, snapshot: Snapshot, scan: ScanPlan) -> ScanPlan:
    """Return the scan with its groups divided by names and old types in the files, where these matter."""
    if scan.mode == ID:
        scan = replace(scan, groups=tuple(divided_by_names(spark, snapshot, scan.groups)))
    wanted = decimals_to_know(scan.schema, scan.partition_by)
    if not wanted or not scan.groups:
        return scan
    files = pa.concat_tables(group.files for group in scan.groups)
    stored = iter(stored_types(spark, snapshot, files, wanted))
    groups = [split_group(group, [next(stored) for _ in range(group.files.num_rows)]) for group in scan.groups]
    return replace(scan, groups=tuple(part for parts in groups for part in parts))


def select_files(snapshot: Snapshot, predicate: Predicate) -> FileSelection:
    """Return the files of a version in which rows that make a condition true are looked for."""
    mode = mapping_mode(snapshot.properties, snapshot.protocol)
    return FileSelection(predicate, snapshot.schema, mode, tuple(snapshot.partition_columns))


def filter_files(files: pa.Table, selection: FileSelection) -> pa.Table:
    """Return the files that may hold a matching row."""
    if selection.is_everything:
        return files
    pairs = zip(partition_values(files), files["stats"].to_pylist(), strict=True)
    return files.filter(pa.array([selection.may_hold(*pair) for pair in pairs], pa.bool_()))


# ---- Spark -----------------------------------------------------------------------------------------


def _frame(spark: SparkSession, store: LogStore, scan: ScanPlan, group: ScanGroup, *, is_located: bool) -> DataFrame:
    frame = _source(spark, store, scan, group)
    condition = file_condition(scan, group)
    frame = frame if condition is None else frame.filter(condition)
    joins_values = not group.is_hive and group.values is None
    if group.has_vectors or joins_values or is_located:
        frame = frame.select("*", _file_key().alias(FILE), F.col("_metadata.row_index").alias(ROW))
    if group.has_vectors:
        frame = frame.join(deleted_positions(spark, store, _vectors(store, group.files)), [FILE, ROW], "left_anti")
    if joins_values:
        frame = frame.join(F.broadcast(_values_frame(spark, store, scan, group.files)), FILE, "inner")
    place = (FILE, ROW) if is_located else ()
    return frame.select(*projection(scan, group), *place)


def _source(spark: SparkSession, store: LogStore, scan: ScanPlan, group: ScanGroup) -> DataFrame:
    """Return the files as Spark reads them: physical names, partition columns as text where directories name them."""
    fields = [column.read for column in data_columns(scan, group).values()]
    if group.is_hive:
        fields += [Field(name, STRING) for name in scan.physical_partitions]
    reader = spark.read.schema(to_spark(StructType(tuple(fields)))).options(**READ_OPTIONS)
    reader = reader.option("ignoreInvalidPartitionPaths" if group.is_hive else "recursiveFileLookup", "true")
    paths = _paths(spark, store, group.files)
    if group.is_hive and paths[0].startswith(store.uri("")):
        reader = reader.option("basePath", unquote(store.uri("")))
    return reader.parquet(*(as_literal(unquote(path)) for path in paths))


def _paths(spark: SparkSession, store: LogStore, files: pa.Table) -> list[str]:
    """Return what Spark is to open, as URIs: the files, or where they are many one manifest of them."""
    uris = [store.uri(path) for path in files["path"].to_pylist()]
    if len(uris) > EXPLICIT_FILES:
        sizes, times = (files[name].to_pylist() for name in ("size_bytes", "modification_time_ms"))
        manifest = write_manifest(spark, store, zip(uris, sizes, times, strict=True))
        return [manifest] if manifest is not None else uris
    return uris


def _file_key() -> Column:
    """Return what tells the file of a row: its decoded location without the scheme."""
    decoded = F.url_decode(F.replace(F.col("_metadata.file_path"), F.lit("+"), F.lit("%2B")))
    return F.regexp_replace(decoded, _SCHEME, "")


def _key(uri: str) -> str:
    return unquote(uri).partition(":")[2].lstrip("/")


def _vectors(store: LogStore, files: pa.Table) -> list[tuple[str, DeletionVector]]:
    keys, vectors = file_keys(store, files), files["deletion_vector"].to_pylist()
    return [(key, DeletionVector(**vector)) for key, vector in zip(keys, vectors, strict=True)]


def _values_frame(spark: SparkSession, store: LogStore, scan: ScanPlan, files: pa.Table) -> DataFrame:
    values = partition_values(files)
    keys = file_keys(store, files)
    columns = {VALUE + c: pa.array([v.get(c) or None for v in values], pa.string()) for c in scan.physical_partitions}
    return spark.createDataFrame(pa.table({FILE: pa.array(keys, pa.string()), **columns}))
