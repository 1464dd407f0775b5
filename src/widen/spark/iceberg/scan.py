"""Scans of Iceberg tables: the files of a snapshot as one DataFrame in the schema of the table, on stock Spark.

PyIceberg says which files and delete files a snapshot has. Footers say what each file calls the columns; files that
call them alike are read together by Spark's own Parquet reader.

Source: Iceberg's table specification, "Scan Planning", "Column Projection" and "Row-level Deletes"
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from widen.errors import UnsupportedFeatureForRead
from widen.iceberg.partitions import rounded_sources
from widen.iceberg.row_filter import to_row_filter
from widen.iceberg.scan_plan import DeleteFile, DeleteKind, IcebergScan, ScannedFile, plan_scan
from widen.iceberg.schema_conversion import ensure_names_distinct, to_model
from widen.model.column_path import Path, fields, format_path, resolve
from widen.model.types import DOUBLE, FLOAT, DataType, Field, StructType
from widen.protocol.column_mapping import COLUMN_ID
from widen.protocol.skipping.predicate import Predicate, UnknownPredicate
from widen.spark.expression import filter_rows
from widen.spark.iceberg.constants import initial_defaults, place_constants, to_column, to_values
from widen.spark.iceberg.deleted_rows import POSITION_DELETES, SEQUENCE, vector_positions
from widen.spark.iceberg.file_columns import FileColumns, find_columns, read_schemas
from widen.spark.iceberg.source import IcebergSource, to_uris
from widen.spark.read.deleted_rows import BROADCAST_ROWS, FILE, ROW
from widen.spark.read.scan import key_of
from widen.spark.read.sql_predicate import parse_predicate
from widen.spark.spark_types import as_nullable, to_spark, visible_schema
from widen.spark.stored_names import compares_names_exactly

if TYPE_CHECKING:
    from widen.iceberg.snapshots import ReadPoint

PARTITION, VALUE, HIDDEN = "__widen_partition", "__widen_value_", "__widen_hidden_"
_DELETE_SEQUENCE, _DELETE_PARTITION, _KEY = "__widen_delete_sequence", "__widen_delete_partition", "__widen_key_"
_LOCATION = r"^([A-Za-z][A-Za-z0-9+.-]*:)?/*"


@dataclass(frozen=True)
class _Group:
    """Files that call the columns alike, and that either all have or all lack delete files."""

    columns: FileColumns
    has_deletes: bool
    files: Sequence[ScannedFile]


def read_iceberg(source: IcebergSource, schema: StructType, where: str | Column | None = None) -> DataFrame:
    """Return the rows of a snapshot in the types of its schema, with the columns in its order, all nullable.

    Args:
        schema: The schema in the model, with field ids.
        where: The condition on rows. PyIceberg also skips files by partitions and bounds if it is Spark SQL.

    Raises:
        AmbiguousColumns: two columns have names that differ only in case, and the session ignores case.
        InvalidCondition: Spark cannot use the condition.
        CorruptFile: a file cannot be read, or its columns cannot be found.
        UnsupportedFeatureForRead: the snapshot has files or defaults that this version cannot read.
    """
    if not compares_names_exactly(source.spark):
        ensure_names_distinct(schema, source.point.metadata.location)
    predicate = parse_predicate(where, schema) if isinstance(where, str) else UnknownPredicate()
    return filter_rows(_rows(source, schema, predicate), where)


def _rows(source: IcebergSource, schema: StructType, predicate: Predicate) -> DataFrame:
    point = source.point
    if point.snapshot is None:
        return _no_rows(source.spark, schema)
    row_filter = to_row_filter(predicate, point.schema)
    return read_files(source, schema, plan_scan(point.metadata, source.io, point.snapshot, row_filter), predicate)


def read_files(
    source: IcebergSource, schema: StructType, scan: IcebergScan, predicate: Predicate, *, with_file: bool = False
) -> DataFrame:
    """Return the rows of some files of a snapshot as `read_iceberg` does, without the deleted ones.

    Args:
        schema: The schema in the model, with field ids.
        predicate: The condition that may be pushed to the files. The rows do not have to fulfil it.
        with_file: Whether a column `FILE` has the file of each row.

    Raises:
        CorruptFile: a file cannot be read, or its columns cannot be found.
        UnsupportedFeatureForRead: the files have something that this version cannot read.
    """
    whole = _with_dropped_keys(source.point, schema, scan.deletes)
    groups = _group_files(source, whole, scan)
    frames = [_frame(source, whole, predicate, group, with_file) for group in groups if not group.has_deletes]
    partial = [_frame(source, whole, predicate, group, with_file) for group in groups if group.has_deletes]
    if partial:
        left = _without_deleted(source, whole, reduce(DataFrame.unionAll, partial), scan.deletes)
        frames.append(left if with_file else left.drop(FILE))
    if not frames:
        return _no_rows(source.spark, schema)
    rows = reduce(DataFrame.unionAll, frames)
    return rows if whole is schema else rows.drop(*(f.name for f in whole if f.name.startswith(HIDDEN)))


def _no_rows(spark: SparkSession, schema: StructType) -> DataFrame:
    return spark.createDataFrame([], to_spark(as_nullable(visible_schema(schema))))


def _with_dropped_keys(point: ReadPoint, schema: StructType, deletes: Sequence[DeleteFile]) -> StructType:
    """Return the schema with the dropped columns by which equality deletes still name rows.

    Source: Iceberg's table specification, "Equality Delete Files"
    """
    wanted = {number for delete in deletes for number in delete.equality_ids} - _paths(schema).keys()
    if not wanted:
        return schema
    dropped = {
        field.metadata[COLUMN_ID]: replace(
            field, name=f"{HIDDEN}{field.metadata[COLUMN_ID]}", metadata={COLUMN_ID: field.metadata[COLUMN_ID]}
        )
        for old in point.metadata.schemas
        for field in to_model(old)
    }
    for number in sorted(wanted):
        if number not in dropped:
            raise _unsupported_error(point, f"equality deletes by a dropped field of a struct (field id {number})")
    hidden = (replace(dropped[number], name=f"{HIDDEN}{number}") for number in sorted(wanted))
    return StructType((*schema, *hidden))


def _unsupported_error(point: ReadPoint, features: str) -> UnsupportedFeatureForRead:
    return UnsupportedFeatureForRead(verb="read", location=point.metadata.location, features=features)


def _paths(schema: StructType) -> dict[int, Path]:
    return {field.metadata[COLUMN_ID]: path for path, field in fields(schema)}


def _group_files(source: IcebergSource, schema: StructType, scan: IcebergScan) -> list[_Group]:
    has_deletes = _delete_test(scan.deletes)
    groups: dict[tuple[FileColumns, bool], list[ScannedFile]] = {}
    columns = _columns_of(source, schema, [file.path for file in scan.files])
    for file, file_columns in zip(scan.files, columns, strict=True):
        groups.setdefault((file_columns, has_deletes(file)), []).append(file)
    return [_Group(*key, files) for key, files in groups.items()]


def _columns_of(source: IcebergSource, schema: StructType, paths: Sequence[str]) -> list[FileColumns]:
    """Return where each file has the columns of the schema; files with equal columns are compared once."""
    mapping = source.point.metadata.name_mapping()
    columns_by_schema: dict[int, FileColumns] = {}
    stored = read_schemas(source.spark, source.io, paths)
    for path, columns in zip(paths, stored, strict=True):
        # Equal schemas are one object here, so identity tells, and nothing compares thousands of schemas.
        if id(columns) not in columns_by_schema:
            columns_by_schema[id(columns)] = find_columns(columns, schema, mapping, path)
    return [columns_by_schema[id(columns)] for columns in stored]


def _delete_test(deletes: Sequence[DeleteFile]) -> Callable[[ScannedFile], bool]:
    """Return a test of whether a delete file may apply to a data file, which looks at no delete file one by one."""
    newest: dict[tuple[str | None, str | None], int] = {}
    for delete in deletes:
        key = (delete.data_file, None) if delete.data_file else (None, delete.partition)
        # Position deletes apply to files of their own sequence number too, equality deletes only to older ones.
        sequence = delete.sequence - (delete.kind is DeleteKind.EQUALITY)
        newest[key] = max(newest.get(key, -1), sequence)

    def has_deletes(file: ScannedFile) -> bool:
        keys = ((file.path, None), (None, file.partition), (None, None))
        return any(newest.get(key, -1) >= file.sequence for key in keys)

    return has_deletes


# ---- DataFrames of groups -------------------------------------------------------------------------


def _frame(
    source: IcebergSource, schema: StructType, predicate: Predicate, group: _Group, with_file: bool
) -> DataFrame:
    """Return the rows of a group; with deletes also where they are from, for the joins with deleted rows."""
    defaults, partitioned = _constants(source.point, schema, group)
    # A constant is not in the file, so a condition on it must not be pushed there.
    pushed = UnknownPredicate() if defaults or partitioned else predicate
    rows = source.open(schema, pushed, group.columns, group.files)
    frame = rows.frame
    location: tuple[str, ...] = ()
    if group.has_deletes or partitioned or with_file:
        frame = frame.select("*", rows.file.alias(FILE), rows.position.alias(ROW))
        facts = _facts(schema, group.files, partitioned)
        frame = frame.join(F.broadcast(source.spark.createDataFrame(facts)), FILE, "inner")
        location = (FILE, ROW, SEQUENCE, PARTITION) if group.has_deletes else (FILE,) * with_file
    constants = {path: to_column(value, resolve(schema, path)[1]) for path, value in defaults.items()}
    constants |= {path: F.col(f"{VALUE}{number}") for path, number in partitioned.items()}
    columns = [_with_constants(*each, constants) for each in zip(schema, rows.columns, strict=True)]
    return frame.select(*columns, *location)


def _constants(point: ReadPoint, schema: StructType, group: _Group) -> tuple[dict[Path, Any], dict[Path, int]]:
    """Return the initial defaults of the columns that the files lack, and which of them their partition has.

    Source: Iceberg's table specification, "Column Projection"
    """
    defaults: dict[Path, Any] = {}
    partitioned: dict[Path, int] = {}
    numbers = {path: number for number, path in _paths(schema).items()}
    identities = {number for file in group.files for number, _ in file.values}
    initial, rounded = initial_defaults(point.schema, point.metadata.location), rounded_sources(point.metadata)
    for path in group.columns.missing:
        number = numbers[path]
        if number in identities & rounded:
            raise _unsupported_error(point, f"files without {format_path(path)}, whose partition value is a double")
        if number in identities:
            partitioned[path] = number
        elif (default := initial.get(number)) is not None:
            defaults[path] = default
    return defaults, partitioned


def _with_constants(field: Field, column: Column, constants: Mapping[Path, Column]) -> Column:
    """Return a projected column with the constants that belong at or below it."""
    below = {path[1:]: value for path, value in constants.items() if path[0] == field.name}
    if not below:
        return column
    column = place_constants(column, field.type, below)
    (shown,) = visible_schema(StructType((field,)))
    return column.alias(field.name, metadata=dict(shown.metadata))


def _facts(schema: StructType, files: Sequence[ScannedFile], partitioned: Mapping[Path, int]) -> pa.Table:
    """Return what the manifests say of each file, by its key."""
    columns = {
        FILE: pa.array([key_of(uri) for uri in to_uris(file.path for file in files)], pa.string()),
        SEQUENCE: pa.array([file.sequence for file in files], pa.int64()),
        PARTITION: pa.array([file.partition for file in files], pa.string()),
    }
    for path, number in partitioned.items():
        values = [dict(file.values).get(number) for file in files]
        columns[f"{VALUE}{number}"] = to_values(values, resolve(schema, path)[1])
    return pa.table(columns)


# ---- deleted rows ---------------------------------------------------------------------------------


def _without_deleted(
    source: IcebergSource, schema: StructType, rows: DataFrame, deletes: Sequence[DeleteFile]
) -> DataFrame:
    by_kind = {kind: [each for each in deletes if each.kind is kind] for kind in DeleteKind}
    positions = []
    if by_kind[DeleteKind.POSITIONS]:
        positions.append(_position_rows(source, by_kind[DeleteKind.POSITIONS]))
    if by_kind[DeleteKind.VECTORS]:
        positions.append(_vector_rows(source, by_kind[DeleteKind.VECTORS]))
    if positions:
        deleted = reduce(DataFrame.unionAll, positions)
        total = sum(each.rows for kind in (DeleteKind.POSITIONS, DeleteKind.VECTORS) for each in by_kind[kind])
        deleted = F.broadcast(deleted) if total <= BROADCAST_ROWS else deleted
        same = (rows[FILE] == deleted[FILE]) & (rows[ROW] == deleted[ROW])
        rows = rows.join(deleted, same & (deleted[_DELETE_SEQUENCE] >= rows[SEQUENCE]), "left_anti")
    for ids in dict.fromkeys(each.equality_ids for each in by_kind[DeleteKind.EQUALITY]):
        rows = _without_equal(source, schema, rows, [each for each in deletes if each.equality_ids == ids])
    return rows.drop(ROW, SEQUENCE, PARTITION)


def _raw_key(path: Column) -> Column:
    """Return the key of a location as delete files spell it: without its scheme, not percent-encoded."""
    return F.regexp_replace(path, _LOCATION, "")


def _position_rows(source: IcebergSource, deletes: Sequence[DeleteFile]) -> DataFrame:
    frame = _delete_rows(source, POSITION_DELETES, deletes)
    return frame.select(_raw_key(F.col("file_path")).alias(FILE), F.col("pos").alias(ROW), _DELETE_SEQUENCE)


def _vector_rows(source: IcebergSource, deletes: Sequence[DeleteFile]) -> DataFrame:
    expanded = vector_positions(source.spark, source.io, {each.path: each.sequence for each in deletes})
    return expanded.select(_raw_key(F.col(FILE)).alias(FILE), ROW, F.col(SEQUENCE).alias(_DELETE_SEQUENCE))


def _delete_rows(source: IcebergSource, schema: StructType, deletes: Sequence[DeleteFile]) -> DataFrame:
    """Return the rows of delete files, with the sequence number and the partition of each file."""
    groups: dict[FileColumns, list[DeleteFile]] = {}
    columns = _columns_of(source, schema, [each.path for each in deletes])
    for delete, file_columns in zip(deletes, columns, strict=True):
        groups.setdefault(file_columns, []).append(delete)
    facts = pa.table(
        {
            FILE: pa.array([key_of(uri) for uri in to_uris(each.path for each in deletes)], pa.string()),
            _DELETE_SEQUENCE: pa.array([each.sequence for each in deletes], pa.int64()),
            _DELETE_PARTITION: pa.array([each.partition for each in deletes], pa.string()),
        }
    )
    file_facts = F.broadcast(source.spark.createDataFrame(facts))
    opened = (source.open(schema, UnknownPredicate(), file_columns, same) for file_columns, same in groups.items())
    frames = (rows.frame.select(*rows.columns, rows.file.alias(FILE)) for rows in opened)
    return reduce(DataFrame.unionAll, frames).join(file_facts, FILE, "inner")


def _without_equal(
    source: IcebergSource, schema: StructType, rows: DataFrame, deletes: Sequence[DeleteFile]
) -> DataFrame:
    """Return the rows without those that are equal to a deleted one in the columns that the deletes name.

    Source: Iceberg's table specification, "Equality Delete Files": null equals null. Iceberg for Spark takes the two
        zeros of a floating-point type for different values, and every NaN for the same one.
    """
    types = {path: field.type for path, field in fields(schema)}
    paths = [_paths(schema)[number] for number in deletes[0].equality_ids]
    values = [_distinct_zeros(F.col(format_path(path)), types[path]) for path in paths]
    keys = [value.alias(f"{_KEY}{at}") for at, value in enumerate(values)]
    columns = StructType(tuple(field for field in schema if any(path[0] == field.name for path in paths)))
    deleted = _delete_rows(source, columns, deletes).select(*keys, _DELETE_SEQUENCE, _DELETE_PARTITION)
    if sum(each.rows for each in deletes) <= BROADCAST_ROWS:
        deleted = F.broadcast(deleted)
    equal = reduce(and_, (value.eqNullSafe(F.col(f"{_KEY}{at}")) for at, value in enumerate(values)))
    is_newer = F.col(_DELETE_SEQUENCE) > F.col(SEQUENCE)
    is_same = F.col(_DELETE_PARTITION).isNull() | (F.col(_DELETE_PARTITION) == F.col(PARTITION))
    return rows.join(deleted, equal & is_newer & is_same, "left_anti")


def _distinct_zeros(value: Column, type: DataType) -> Column:
    """Return a value that Spark compares as Iceberg does: as text, 0.0 and -0.0 are different."""
    return value.cast("string") if type in (FLOAT, DOUBLE) else value
