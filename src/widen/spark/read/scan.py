"""Scans: the files of a snapshot as one DataFrame in the current types, read by Spark's own vectorized reader.

Columns are read by their names in the files: the physical names, or with column mapping by ``id`` the names that the
field ids of each file resolve to.

Source: PROTOCOL.md#reader-requirements-for-type-widening, #column-mapping, #deletion-vectors
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from widen.log.read.file_filter import filter_files
from widen.log.read.snapshot import Snapshot
from widen.log.store.log_store import LogStore
from widen.model.column_path import leaves
from widen.model.sql_literal import to_identifier
from widen.model.types import DOUBLE, FLOAT, LONG, STRING, Field, StructType, quote_name
from widen.planning.unify.unified_columns import unify_schema
from widen.proof.column_digests import TableDigest, digest_batches
from widen.protocol.actions import DeletionVector
from widen.protocol.column_mapping import ID, mapping_mode
from widen.protocol.skipping.file_selection import FileSelection
from widen.protocol.skipping.predicate import Predicate, UnknownPredicate
from widen.protocol.tracking_columns import TrackingColumns
from widen.protocol.type_changes import ensure_readable
from widen.spark.expression import filter_rows
from widen.spark.file_sources import FILE_SOURCES
from widen.spark.hadoop_options import hadoop_options
from widen.spark.pinned_settings import READ_OPTIONS
from widen.spark.read.deleted_rows import FILE, ROW, deleted_words, without_marked
from widen.spark.read.field_ids import split_by_names
from widen.spark.read.file_manifest import write_manifest
from widen.spark.read.old_decimals import decimals_to_know, stored_types
from widen.spark.read.projection import VALUE, data_columns, projection
from widen.spark.read.pushdown import filter_stored_rows
from widen.spark.read.scan_groups import ScanGroup, ScanPlan, group_files, partition_values, split_group
from widen.spark.read.sql_predicate import parse_predicate
from widen.spark.source.source_files import as_literal
from widen.spark.spark_errors import translate_spark_errors
from widen.spark.spark_types import as_nullable, to_spark, visible_schema
from widen.spark.stored_names import ensure_distinct_names

EXPLICIT_FILES = 32
"""The number of files up to which Spark gets their paths, each of which it looks up in the store."""

_WITHOUT_DICTIONARY_FILTER = {"parquet.filter.dictionary.enabled": "false"}
"""The filter on dictionaries takes 0.0 and -0.0 for two values: `d = 0` would lose the rows of a file with only -0.0.

Source: docs/spark-facts.md#signed-zeros
"""

_EVERYTHING = UnknownPredicate()
_NO_OPTIONS: Mapping[str, str] = {}
_BASE_ROW_ID, _COMMIT_VERSION = "__widen_base_row_id", "__widen_row_version"


def read_snapshot(
    spark: SparkSession,
    store: LogStore,
    snapshot: Snapshot,
    where: str | Column | None = None,
    only: Collection[str] | None = None,
) -> DataFrame:
    """Return the rows of a version in its current types, with the columns in the order of the schema, all nullable.

    Args:
        where: The condition on rows. Spark SQL also skips files by partition values and statistics; a Column does not.
        only: The files to read, by their paths in the log; by default all files of the version.

    Raises:
        InvalidCondition: Spark cannot use the condition.
        UnsupportedTypeChange: the schema records a change that is not in the matrix.
        CorruptLog: the schema violates the rules of column mapping.
    """
    predicate = parse_predicate(where, snapshot.schema) if isinstance(where, str) else UnknownPredicate()
    scan = _with_old_types(spark, snapshot, plan_scan(snapshot, predicate, only))
    whole = _union(spark, store, scan, is_located=False)
    return filter_rows(whole, where)


def digest_with_spark(spark: SparkSession, snapshot: Snapshot) -> TableDigest:
    """Return the digest of the rows of a version, as Spark reads them: each task sums its share.

    Raises:
        JobFailed: the job failed.
    """
    # One struct column, since mapInArrow reads a dot in a column name as a nested field.
    rows = read_snapshot(spark, snapshot.store, snapshot).select(F.struct("*").alias("row"))
    digest = digest_batches((), [field.name for field in snapshot.schema])
    with translate_spark_errors():
        for part in rows.mapInArrow(_digest_rows, "digest string").toArrow()["digest"].to_pylist():
            digest.merge(TableDigest.from_json(part))
    return digest


def _digest_rows(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    tables = (pa.Table.from_struct_array(batch.column(0)) for batch in batches)
    yield pa.RecordBatch.from_pydict({"digest": [digest_batches(tables).to_json()]})


def read_with_locations(spark: SparkSession, store: LogStore, snapshot: Snapshot, files: pa.Table) -> DataFrame:
    """Return the rows of files like `read_snapshot`, with the location of each row in the columns `FILE` and `ROW`.

    Args:
        files: Rows of its list of files; `file_keys` returns their values in `FILE`.

    Raises:
        UnsupportedTypeChange: the schema records a change that is not in the matrix.
        CorruptLog: the schema violates the rules of column mapping.
    """
    return _union(spark, store, _with_old_types(spark, snapshot, _scan(snapshot, files)), is_located=True)


def read_files(spark: SparkSession, store: LogStore, snapshot: Snapshot, files: pa.Table) -> DataFrame:
    """Return the rows of files like `read_snapshot`; the files need not be live in the version.

    Args:
        snapshot: The version whose columns and types the rows have.
        files: Rows of a list of files.

    Raises:
        UnsupportedTypeChange: the schema records a change that is not in the matrix.
        CorruptLog: the schema violates the rules of column mapping.
    """
    return _union(spark, store, _with_old_types(spark, snapshot, _scan(snapshot, files)), is_located=False)


def file_keys(store: LogStore, files: pa.Table) -> list[str]:
    """Return the value of the column `FILE` for each file of a list."""
    return [key_of(store.uri(path)) for path in files["path"].to_pylist()]


def with_row_tracking(rows: DataFrame, store: LogStore, files: pa.Table, columns: TrackingColumns) -> DataFrame:
    """Return rows with their row ids and commit versions.

    A value that the file materializes wins; otherwise it follows from the file's base row id and the row's position.

    Args:
        rows: As `read_with_locations` returns them, with the columns in which files materialize both values.

    Source: PROTOCOL.md#reader-requirements-for-row-tracking
    """
    if not files.num_rows:
        return rows
    defaults = {FILE: pa.array(file_keys(store, files), pa.string())}
    defaults |= {_BASE_ROW_ID: files["base_row_id"], _COMMIT_VERSION: files["default_row_commit_version"]}
    joined = rows.join(F.broadcast(rows.sparkSession.createDataFrame(pa.table(defaults))), FILE)
    row_id = F.coalesce(F.col(quote_name(columns.row_id)), F.col(_BASE_ROW_ID) + F.col(ROW))
    version = F.coalesce(F.col(quote_name(columns.version)), F.col(_COMMIT_VERSION))
    return joined.withColumns({columns.row_id: row_id, columns.version: version}).drop(_BASE_ROW_ID, _COMMIT_VERSION)


def unify_rows(rows: DataFrame, schema: StructType) -> DataFrame:
    """Return rows with one column for each source field, which coalesces all columns of the field.

    Args:
        schema: The schema of the same version, with its metadata.

    Source: docs/evolution-rules.md#one-interval
    """
    return rows.selectExpr(*(f"{column.sql} AS {to_identifier(column.name)}" for column in unify_schema(schema)))


def _union(spark: SparkSession, store: LogStore, scan: ScanPlan, *, is_located: bool) -> DataFrame:
    ensure_distinct_names(spark, store.location, scan.schema, scan.mode)
    frames = [_frame(spark, store, scan, group, is_located=is_located) for group in scan.groups]
    if frames:
        return reduce(DataFrame.unionAll, frames)
    columns = visible_schema(scan.schema).fields
    location = (Field(FILE, STRING), Field(ROW, LONG)) if is_located else ()
    return spark.createDataFrame([], to_spark(as_nullable(StructType((*columns, *location)))))


def plan_scan(snapshot: Snapshot, predicate: Predicate, only: Collection[str] | None = None) -> ScanPlan:
    """Return which files a scan reads and how, without the files that cannot have a matching row.

    Args:
        only: The files to read, by their paths in the log; by default all files of the version.

    Raises:
        UnsupportedTypeChange: the schema records a change that is not in the matrix.
        CorruptLog: the schema violates the rules of column mapping.
    """
    files = snapshot.files()
    if only is not None:
        files = files.filter(pc.is_in(files["path"], value_set=pa.array(only, pa.string())))
    return _scan(snapshot, filter_files(files, select_files(snapshot, predicate)), predicate)


def _scan(snapshot: Snapshot, files: pa.Table, predicate: Predicate = _EVERYTHING) -> ScanPlan:
    ensure_readable(snapshot.schema)
    chosen = select_files(snapshot, predicate)
    scan = ScanPlan(predicate, chosen.schema, chosen.mode, chosen.partition_by)
    return replace(scan, groups=tuple(group_files(scan, files)))


def _with_old_types(spark: SparkSession, snapshot: Snapshot, scan: ScanPlan) -> ScanPlan:
    """Return the scan with its groups split by column names and old types in the files, where these matter."""
    if scan.mode == ID:
        scan = replace(scan, groups=tuple(split_by_names(spark, snapshot, scan.groups)))
    wanted = decimals_to_know(scan.schema, scan.partition_by)
    if not wanted or not scan.groups:
        return scan
    files = pa.concat_tables(group.files for group in scan.groups)
    stored = iter(stored_types(spark, snapshot, files, wanted))
    groups = [split_group(group, [next(stored) for _ in range(group.files.num_rows)]) for group in scan.groups]
    return replace(scan, groups=tuple(part for parts in groups for part in parts))


def select_files(snapshot: Snapshot, predicate: Predicate) -> FileSelection:
    """Return which files of a version may have rows that fulfil a predicate."""
    mode = mapping_mode(snapshot.properties, snapshot.protocol)
    return FileSelection(predicate, snapshot.schema, mode, tuple(snapshot.partition_columns))


# ---- DataFrames of groups --------------------------------------------------------------------------


def _frame(spark: SparkSession, store: LogStore, scan: ScanPlan, group: ScanGroup, *, is_located: bool) -> DataFrame:
    frame = _source(spark, store, scan, group)
    frame = filter_stored_rows(frame, scan, group)
    joins_values = not group.is_hive and group.values is None
    if group.has_vectors or joins_values or is_located:
        frame = frame.select("*", file_key().alias(FILE), F.col("_metadata.row_index").alias(ROW))
    if group.has_vectors:
        frame = without_marked(frame, deleted_words(spark, store, _vectors(store, group.files)))
    if joins_values:
        frame = frame.join(F.broadcast(_values_frame(spark, store, scan, group.files)), FILE, "inner")
    location = (FILE, ROW) if is_located else ()
    return frame.select(*projection(scan, group), *location)


def _source(spark: SparkSession, store: LogStore, scan: ScanPlan, group: ScanGroup) -> DataFrame:
    """Return the files as Spark reads them: physical names, and partition columns as text if directories name them."""
    uris = [store.uri(path) for path in group.files["path"].to_pylist()]
    paths, root = list_files(spark, store, group.files, uris), store.uri("")
    # Not for a manifest: it is outside of the table, and Spark refuses a base that its path does not begin with.
    base = unquote(root) if group.is_hive and paths[0].startswith(root) else None
    return open_files(spark, scan, group, paths, base, hadoop_options(store))


def open_files(
    spark: SparkSession,
    scan: ScanPlan,
    group: ScanGroup,
    paths: Sequence[str],
    base: str | None = None,
    store_options: Mapping[str, str] = _NO_OPTIONS,
) -> DataFrame:
    """Return files as Spark reads them: with the names that columns have in the files.

    Args:
        paths: What `list_files` returns for them.
        base: The directory below which directories name partitions.
    """
    fields = [column.read for column in data_columns(scan, group).values()]
    if group.is_hive:
        fields += [Field(name, STRING) for name in scan.physical_partitions]
    schema = StructType(tuple(fields))
    reader = spark.read.schema(to_spark(schema)).options(**READ_OPTIONS, **store_options)
    if any(leaf in (FLOAT, DOUBLE) for _, leaf in leaves(schema)):
        reader = reader.options(**_WITHOUT_DICTIONARY_FILTER)
    # A recursive look-up keeps Spark from taking folders called key=value for columns.
    reader = reader.option("ignoreInvalidPartitionPaths" if group.is_hive else "recursiveFileLookup", "true")
    reader = reader if base is None else reader.option("basePath", base)
    with translate_spark_errors():  # the classic session looks a few files up already here
        return reader.format(FILE_SOURCES["parquet"]).load([as_literal(unquote(path)) for path in paths])


def list_files(spark: SparkSession, store: LogStore, files: pa.Table, uris: Sequence[str]) -> Sequence[str]:
    """Return the URIs for Spark to open: the files, or for many files one manifest of them.

    Args:
        files: Their sizes and modification times.
        uris: Their locations, as Spark spells them.
    """
    if len(uris) > EXPLICIT_FILES:
        sizes, times = (files[name].to_pylist() for name in ("size_bytes", "modification_time_ms"))
        manifest = write_manifest(spark, store, zip(uris, sizes, times, strict=True))
        return [manifest] if manifest is not None else uris
    return uris


def file_key() -> Column:
    """Return the value of `FILE` for a row: the decoded location of its file without the scheme.

    Spark and the log may write the scheme and the escapes of one location differently.
    """
    # It is evaluated for each row, for which regular expressions and substrings of texts are slow.
    path = F.col("_metadata.file_path")
    after_scheme = F.expr("substring(CAST(_metadata.file_path AS BINARY), instr(_metadata.file_path, ':') + 1)")
    key = F.ltrim(after_scheme.cast("string"), F.lit("/"))
    # Spark's url_decode takes a plus sign for a space, as in forms.
    return F.when(path.contains("%"), F.url_decode(F.replace(key, F.lit("+"), F.lit("%2B")))).otherwise(key)


def key_of(uri: str) -> str:
    """Return the value of `FILE` for a location as Spark spells it."""
    return unquote(uri).partition(":")[2].lstrip("/")


def _vectors(store: LogStore, files: pa.Table) -> list[tuple[str, DeletionVector]]:
    keys, vectors = file_keys(store, files), files["deletion_vector"].to_pylist()
    return [(key, DeletionVector(**vector)) for key, vector in zip(keys, vectors, strict=True)]


def _values_frame(spark: SparkSession, store: LogStore, scan: ScanPlan, files: pa.Table) -> DataFrame:
    values = partition_values(files)
    keys = file_keys(store, files)
    columns = {VALUE + c: pa.array([v.get(c) or None for v in values], pa.string()) for c in scan.physical_partitions}
    return spark.createDataFrame(pa.table({FILE: pa.array(keys, pa.string()), **columns}))
