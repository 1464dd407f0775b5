"""Scans of Iceberg tables: the files of a snapshot as one DataFrame in the schema of the table, on stock Spark.

PyIceberg says which files and delete files a snapshot has. Footers say what each file calls the columns; files that
call them alike are read together by Spark's own Parquet reader.

Source: Iceberg's table specification, "Scan Planning", "Column Projection" and "Row-level Deletes"
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import cached_property, partial, reduce
from operator import and_
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from widen.errors import AmbiguousColumns, InvalidOption, UnsupportedFeatureForRead
from widen.files.arrow_types import to_arrow, to_arrow_schema
from widen.files.deleted_rows import FILE, ROW, add_positions, bitmap_batches
from widen.files.equality_deletes import find_equal_rows
from widen.files.expressions import QueriedFiles
from widen.files.footers import field_id
from widen.files.iceberg_columns import (
    LINEAGE,
    PLACE,
    POSITION,
    FileColumns,
    IcebergFileScan,
    locate_columns,
    open_with_arrow,
    read_schemas,
    read_unmarked,
    with_names_in_files,
)
from widen.files.predicates import bind_condition
from widen.files.scan_groups import ScanGroup, ScanPlan
from widen.frames.file_filters import filter_stored_rows
from widen.frames.projection import projection
from widen.frames.scan import list_scan_files, location_key, open_files, row_location_key
from widen.iceberg.column_defaults import initial_defaults, to_plain
from widen.iceberg.metadata_files import ensure_regular, first_row_ids, translate_file_errors
from widen.iceberg.partitions import rounded_sources
from widen.iceberg.puffin import DELETES_FIX, read_vectors
from widen.iceberg.scan_plan import DeleteFile, DeleteKind, IcebergScan, ScannedFile, find_applying, plan_scan
from widen.iceberg.schema_conversion import ensure_names_distinct, to_readable
from widen.limits import BROADCAST_ROWS, DRIVER_SCHEMAS, EQUALITY_BYTES
from widen.log.log_store import LogStore, percent_encode
from widen.model.column_path import KEY, Path, fields, format_path, resolve
from widen.model.lazy_module import import_lazily
from widen.model.types import (
    DATE,
    DOUBLE,
    FLOAT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    AtomicType,
    DataType,
    Field,
    MapType,
    StructType,
    quote_name,
)
from widen.model.value_classes import dataclass
from widen.protocol.column_mapping import COLUMN_ID, NONE
from widen.protocol.data_skipping import Predicate, UnknownPredicate
from widen.spark.engine import READS, Session, Unsupported, as_unsupported, require_spark
from widen.spark.expression import filter_frame
from widen.spark.session import options_of_files, with_own_client
from widen.spark.spark_types import (
    Column,
    DataFrame,
    F,
    SparkSession,
    as_nullable,
    compares_names_exactly,
    to_spark,
    type_to_spark,
    visible_schema,
)

if TYPE_CHECKING:
    from pyiceberg import types as ice_types
    from pyiceberg.io import FileIO

    from widen.iceberg.snapshots import ReadPoint
else:
    ice_types = import_lazily("pyiceberg.types")


PARTITION, VALUE, HIDDEN = "__widen_partition", "__widen_value_", "__widen_hidden_"
_DELETE_SEQUENCE, _DELETE_PARTITION, _KEY = "__widen_delete_sequence", "__widen_delete_partition", "__widen_key_"
_LOCATION = r"^([A-Za-z][A-Za-z0-9+.-]*:)?/*"


@dataclass(frozen=True)
class _Group:
    """Files with the same column names. All of them have delete files, or not one."""

    columns: FileColumns
    has_deletes: bool
    files: Sequence[ScannedFile]


def read_iceberg(source: IcebergSource, schema: StructType, where: str | Column | None = None) -> DataFrame:
    """Return the rows of a snapshot in the types of its schema, with the columns in its order, all nullable.

    Args:
        where: The condition on rows. PyIceberg also skips files by partitions and bounds if it is Spark SQL.
    """
    if not compares_names_exactly(source.spark):
        ensure_names_distinct(schema, source.point.metadata.location)
    predicate = bind_condition(where, schema)
    return filter_frame(_rows(source, schema, predicate), where)


def open_queried_files(source: IcebergSource, schema: StructType, predicate: Predicate | None) -> QueriedFiles:
    """Return the files of a snapshot as `widen.files.expressions` reads them in this process.

    That only Spark can read a file exactly, or that it is damaged, may show when its rows are asked for.

    Args:
        predicate: The condition on rows that PyIceberg uses to skip files; None for no condition.

    Raises:
        Unsupported: only Spark can read the snapshot exactly.
    """
    point = source.point
    with as_unsupported(AmbiguousColumns, InvalidOption):
        ensure_names_distinct(schema, point.metadata.location)
        types = to_arrow_schema(as_nullable(visible_schema(schema)))
    if point.snapshot is None:
        return QueriedFiles(types, 0, ())
    scan = plan_scan(point, source.io, predicate)
    return QueriedFiles(types, sum(file.size_bytes for file in scan.files), _queried_rows(source, schema, scan))


def _queried_rows(source: IcebergSource, schema: StructType, scan: IcebergScan) -> Iterator[pa.Table]:
    """Yield the rows of a scan, without the deleted ones.

    Footers and deletes are read for one file, then for two, and so on up to `DRIVER_SCHEMAS`, so that a caller who
    wants a few rows opens a few files.
    """
    first, count = 0, 1
    while files := scan.files[first : first + count]:
        part = IcebergScan(files, tuple(find_applying(files, scan.deletes)))
        columns, marked = columns_by_file(source, schema, part), deleted_positions(source, part)
        if columns is None:
            raise Unsupported("rows have values that are not in its files")
        if marked is None:
            raise Unsupported("the table has equality deletes, or too many deleted rows")
        for path, stored in columns.items():
            with as_unsupported(pa.ArrowException, reason=f"Arrow cannot read {path}"):
                yield from read_unmarked(source.io, stored, path, marked.get(path, BitMap64()))
        first, count = first + count, min(2 * count, DRIVER_SCHEMAS)


def _rows(source: IcebergSource, schema: StructType, predicate: Predicate) -> DataFrame:
    return read_iceberg_files(source, schema, plan_scan(source.point, source.io, predicate), predicate)


def read_iceberg_files(
    source: IcebergSource,
    schema: StructType,
    scan: IcebergScan,
    predicate: Predicate | None = None,
    *,
    place: Sequence[str] = (),
) -> DataFrame:
    """Return the rows of some files of a snapshot as `read_iceberg` does, without the deleted ones.

    Args:
        predicate: The condition that may be pushed to the files, if any. The rows do not have to fulfil it.
        place: Which of the columns `FILE` and `ROW` to add to the columns of the schema.
    """
    predicate, whole = predicate or UnknownPredicate(), _with_dropped_keys(source.point, schema, scan.deletes)
    groups = _group_files(source, whole, scan)
    frames = [_frame(source, whole, predicate, group, place) for group in groups if not group.has_deletes]
    partial = [_frame(source, whole, predicate, group, place) for group in groups if group.has_deletes]
    if partial:
        left = _without_deleted(source, whole, reduce(DataFrame.unionAll, partial), scan.deletes)
        frames.append(left.drop(*({FILE, ROW} - {*place})))
    if not frames:
        return _no_rows(source.spark, schema, place)
    rows = reduce(DataFrame.unionAll, frames)
    return rows if whole is schema else rows.drop(*(f.name for f in whole if f.name.startswith(HIDDEN)))


_FIRST_ID, _ADDED_BY = "__widen_first_id", "__widen_added_by"


def read_iceberg_lineage(source: IcebergSource, schema: StructType, where: str | Column | None = None) -> DataFrame:
    """Return the rows of a snapshot as `read_iceberg` does, with the columns of `LINEAGE`.

    Both are null in files that were written before the table had format version 3.

    Source: Iceberg's table specification, "Row Lineage"
    """
    point, whole = source.point, StructType((*schema, *LINEAGE))
    ensure_names_distinct(whole, point.metadata.location)
    if point.snapshot is None:
        return filter_frame(_no_rows(source.spark, whole), where)
    predicate = bind_condition(where, schema)
    scan = plan_scan(point, source.io, predicate)
    rows = read_lineage(source, schema, scan, predicate)
    return filter_frame(rows.drop(FILE, ROW), where)


def read_lineage(
    source: IcebergSource, schema: StructType, scan: IcebergScan, predicate: Predicate | None = None
) -> DataFrame:
    """Return the rows of a scan with the columns of `LINEAGE`, and with `FILE` and `ROW`."""
    whole = StructType((*schema, *LINEAGE))
    ensure_names_distinct(whole, source.point.metadata.location)
    rows = read_iceberg_files(source, whole, scan, predicate, place=(FILE, ROW))
    first = first_row_ids(source.point.metadata, source.io, source.point.snapshot, [file.path for file in scan.files])
    facts = {
        FILE: pa.array([location_key(uri) for uri in to_uris(file.path for file in scan.files)], pa.string()),
        _FIRST_ID: pa.array([first.get(file.path) for file in scan.files], pa.int64()),
        _ADDED_BY: pa.array([file.sequence for file in scan.files], pa.int64()),
    }
    located = rows.join(F.broadcast(source.spark.createDataFrame(pa.table(facts))), FILE, "left")
    inherited = F.col(_FIRST_ID) + F.col(ROW), F.col(_ADDED_BY)
    lineage = [
        F.when(F.col(_FIRST_ID).isNotNull(), F.coalesce(F.col(field.name), value)).alias(field.name)
        for field, value in zip(LINEAGE, inherited, strict=True)
    ]
    return located.select(*map(quote_name, schema.names), *lineage, FILE, ROW)


def _no_rows(spark: SparkSession, schema: StructType, place: Sequence[str] = ()) -> DataFrame:
    located = (Field(name, STRING if name == FILE else LONG) for name in place)
    return spark.createDataFrame([], to_spark(as_nullable(StructType((*visible_schema(schema), *located)))))


def _with_dropped_keys(point: ReadPoint, schema: StructType, deletes: Sequence[DeleteFile]) -> StructType:
    """Return the schema with the dropped columns that equality deletes still use.

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
        for field in to_readable(old)
    }
    for number in sorted(wanted):
        if number not in dropped:
            what = "a dropped field of a struct, or a column of a type that Spark does not have"
            raise _unsupported_error(point, f"equality deletes by {what} (field id {number})")
    hidden = (replace(dropped[number], name=f"{HIDDEN}{number}") for number in sorted(wanted))
    return StructType((*schema, *hidden))


def _unsupported_error(point: ReadPoint, features: str) -> UnsupportedFeatureForRead:
    return UnsupportedFeatureForRead(verb="read", location=point.metadata.location, features=features)


def _paths(schema: StructType) -> dict[int, Path]:
    return {field.metadata[COLUMN_ID]: path for path, field in fields(schema)}


def _group_files(source: IcebergSource, schema: StructType, scan: IcebergScan) -> list[_Group]:
    has_deletes = delete_test(scan.deletes)
    groups: dict[tuple[FileColumns, bool], list[ScannedFile]] = {}
    columns = _columns_of(source, schema, [file.path for file in scan.files])
    for file, file_columns in zip(scan.files, columns, strict=True):
        groups.setdefault((file_columns, has_deletes(file)), []).append(file)
    return [_Group(*key, files) for key, files in groups.items()]


def _columns_of(source: IcebergSource, schema: StructType, paths: Sequence[str]) -> list[FileColumns]:
    """Return where each file has the columns of the schema; files with equal columns are compared once."""
    mapping = source.point.metadata.name_mapping()
    columns_by_schema: dict[int, FileColumns] = {}
    stored = read_schemas(source.session, source.io, paths)
    for path, columns in zip(paths, stored, strict=True):
        # Equal schemas are one object here, so compare identities instead of thousands of schemas.
        if id(columns) not in columns_by_schema:
            columns_by_schema[id(columns)] = locate_columns(columns, schema, mapping, path)
    return [columns_by_schema[id(columns)] for columns in stored]


def columns_by_file(source: IcebergSource, schema: StructType, scan: IcebergScan) -> Mapping[str, StructType] | None:
    """Return the columns of each file of a scan, by its path, as tasks read them with `read_unmarked`.

    Returns:
        None if the partitions of files have values that the files lack.
    """
    visible, found = as_nullable(visible_schema(schema)), dict[str, StructType]()
    for group in _group_files(source, schema, scan):
        defaults, partitioned = _constants(source.point, schema, group)
        if partitioned:
            return None
        stored = with_names_in_files(visible, group.columns.names, defaults)
        found |= dict.fromkeys((file.path for file in group.files), stored)
    return found


def file_scan(source: IcebergSource, schema: StructType, deleted: Mapping[str, BitMap64]) -> IcebergFileScan:
    """Return how this process reads columns of the files of a snapshot, if `columns_by_file` knows their columns."""
    point = source.point
    initial = initial_defaults(point.schema, point.metadata.location)
    return IcebergFileScan(source.io, schema, point.metadata.name_mapping(), deleted, initial)


def delete_test(deletes: Sequence[DeleteFile]) -> Callable[[ScannedFile], bool]:
    """Return a predicate that tells whether any delete file may apply to a data file, without scanning the list."""
    newest: dict[tuple[str | None, str | None], int] = {}
    for delete in deletes:
        key = (delete.data_file, None) if delete.data_file else (None, delete.partition)
        # Position deletes also apply to files of their own sequence number, equality deletes only to older files.
        sequence = delete.sequence - (delete.kind is DeleteKind.EQUALITY)
        newest[key] = max(newest.get(key, -1), sequence)

    def has_deletes(file: ScannedFile) -> bool:
        keys = ((file.path, None), (None, file.partition), (None, None))
        return any(newest.get(key, -1) >= file.sequence for key in keys)

    return has_deletes


# ---- DataFrames of groups -------------------------------------------------------------------------


def _frame(
    source: IcebergSource, schema: StructType, predicate: Predicate, group: _Group, place: Sequence[str]
) -> DataFrame:
    """Return the rows of a group; with deletes also where they are from, for the joins with deleted rows."""
    defaults, partitioned = _constants(source.point, schema, group)
    # A constant is not in the file, so a condition on it must not be pushed there.
    pushed = UnknownPredicate() if defaults or partitioned else predicate
    rows = source.open(schema, pushed, group.columns, group.files)
    frame = rows.frame
    location = tuple(place)
    if group.has_deletes or partitioned or place:
        frame = frame.select("*", rows.file.alias(FILE), rows.position.alias(ROW))
    if group.has_deletes or partitioned:
        facts = _facts(schema, group.files, partitioned)
        frame = frame.join(F.broadcast(source.spark.createDataFrame(facts)), FILE, "inner")
        location = (FILE, ROW, SEQUENCE, PARTITION) if group.has_deletes else location
    constants = {path: to_scan_column(value, resolve(schema, path)[1]) for path, value in defaults.items()}
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
    missing, rounded = group.columns.missing, rounded_sources(point.metadata)
    initial = initial_defaults(point.schema, point.metadata.location) if missing else {}
    for path in missing:
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
    """Return the facts of each file in the manifests, by its key."""
    columns = {
        FILE: pa.array([location_key(uri) for uri in to_uris(file.path for file in files)], pa.string()),
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
    return rows.drop(SEQUENCE, PARTITION)


def are_few_positions(scan: IcebergScan) -> bool:
    """Return whether this process can find and hold which rows of the files of a scan are deleted."""
    if sum(each.rows for each in scan.deletes) > BROADCAST_ROWS:
        return False
    has_values = any(each.kind is DeleteKind.EQUALITY for each in scan.deletes)
    return not has_values or sum(file.size_bytes for file in scan.files) <= EQUALITY_BYTES


def deleted_positions(source: IcebergSource, scan: IcebergScan) -> Mapping[str, BitMap64] | None:
    """Map each file path to the positions of its deleted rows; reads the delete files in this process.

    Returns:
        None if there may be too many, or if only Spark reads the values of equality deletes exactly.
    """
    if not are_few_positions(scan):
        return None
    equal = _equal_positions(source, scan)
    if equal is None:
        return None
    files = {re.sub(_LOCATION, "", file.path): file for file in scan.files}
    found: defaultdict[str, BitMap64] = defaultdict(BitMap64)
    # A Puffin file is listed once for each vector.
    for delete in {each.path: each for each in scan.deletes if each.kind is not DeleteKind.EQUALITY}.values():
        content = _read(source.io, delete.path)
        named = read_vectors(content, delete.path)
        if delete.kind is DeleteKind.POSITIONS:
            named = _read_positions(content, delete.path)
        for name, rows in named:
            file = files.get(re.sub(_LOCATION, "", name))
            if file is not None and delete.sequence >= file.sequence:
                found[file.path] |= rows
    for path, rows in equal:
        found[path] |= rows
    return found


def _equal_positions(source: IcebergSource, scan: IcebergScan) -> list[tuple[str, BitMap64]] | None:
    """Return the rows that equality deletes remove, by the paths of their files; None if Spark has to find them."""
    deletes = [each for each in scan.deletes if each.kind is DeleteKind.EQUALITY]
    if not deletes:
        return []
    whole = _with_dropped_keys(source.point, to_readable(source.point.schema), deletes)
    paths, found = _paths(whole), list[tuple[str, BitMap64]]()
    files = tuple(file for file in scan.files if any(each.applies_to(file) for each in deletes))
    for ids in dict.fromkeys(each.equality_ids for each in deletes):
        keys = [paths[number] for number in ids]
        columns = StructType(tuple(field for field in whole if any(path[0] == field.name for path in keys)))
        # A value that is not in its file may be a partition value.
        if columns_by_file(source, columns, IcebergScan(files, ())) is None:
            return None
        reader = file_scan(source, columns, {})
        same = [each for each in deletes if each.equality_ids == ids]
        try:
            found += find_equal_rows(files, same, reader, keys).items()
        except (Unsupported, InvalidOption):
            return None
    return found


def _read_positions(content: bytes, path: str) -> Iterator[tuple[str, BitMap64]]:
    """Yield the data files and the deleted rows of a file of position deletes."""
    found: defaultdict[str, BitMap64] = defaultdict(BitMap64)
    with translate_file_errors(path, DELETES_FIX):
        file = pq.ParquetFile(pa.BufferReader(content), page_checksum_verification=True)
        by_id = {field_id(each): each.name for each in file.schema_arrow}
        names = [by_id.get(str(each.metadata[COLUMN_ID]), each.name) for each in POSITION_DELETES]
        for batch in file.iter_batches(columns=names):
            add_positions(found, batch[names[0]].cast(pa.string()), batch[names[1]].cast(pa.int64()))
    yield from found.items()


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
            FILE: pa.array([location_key(uri) for uri in to_uris(each.path for each in deletes)], pa.string()),
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
    """Leave out the rows that equal a deleted row in the columns that the deletes name.

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


# Values of Iceberg's metadata as Spark values: initial defaults, and the values of identity partitions.
#
# PyIceberg gives partition dates as days and times as microseconds since 1970, but defaults as Python objects.
#
# Source: Iceberg's table specification, "Column Projection"


_COUNTED = {DATE: pa.int32(), TIMESTAMP: pa.int64(), TIMESTAMP_NTZ: pa.int64()}
_DAY_MICROS = 86_400_000_000


def to_values(values: Iterable[Any], data_type: DataType) -> pa.Array:
    """Return values as an Arrow column of a type."""
    plain = [to_plain(value) for value in values]
    if data_type in _COUNTED:
        return pa.array(plain, _COUNTED[data_type]).cast(to_arrow(data_type))
    return pa.array(plain, to_arrow(data_type))


def to_scan_column(value: Any, data_type: DataType) -> Column:
    """Return a value as a constant of a type. A struct is a dict of its fields by name, in their order."""
    plain = to_plain(value)
    match data_type:
        case StructType():
            fields = [to_scan_column(plain[field.name], field.type).alias(field.name) for field in data_type]
            return F.struct(*fields).cast(type_to_spark(data_type))
        case AtomicType() if plain is None:
            return F.lit(None).cast(type_to_spark(data_type))
    if data_type == DATE:
        return F.date_from_unix_date(F.lit(plain))
    if data_type == TIMESTAMP:
        return F.timestamp_micros(F.lit(plain))
    if data_type == TIMESTAMP_NTZ:
        # Use an interval since 1970, because strings and Python datetimes end in year 9999.
        days, micros = divmod(plain, _DAY_MICROS)
        seconds = F.lit(Decimal(micros) / 1_000_000).cast("decimal(18,6)")
        return F.lit("1970-01-01").cast("timestamp_ntz") + F.make_dt_interval(F.lit(days), secs=seconds)
    return F.lit(plain).cast(type_to_spark(data_type))


def place_constants(column: Column, data_type: DataType, values: Mapping[Path, Column]) -> Column:
    """Return a column with constants at paths; null structs, lists and maps stay null.

    All at once: Spark repeats an expression for each time that a column is changed and read again.

    Args:
        values: The constants by the steps below the column: fields of structs, elements of lists, keys and values of
            maps. A path without steps is the only one.
    """
    if () in values:
        return values[()]
    below: dict[str, dict[Path, Column]] = {}
    for path, value in values.items():
        below.setdefault(path[0], {})[path[1:]] = value
    if isinstance(data_type, StructType):
        return _place_in_struct(column, data_type, below)
    for step, inner in below.items():
        column = _place_in_items(column, data_type, step, inner)
    return column


def _place_in_items(column: Column, data_type: DataType, step: str, inner: Mapping[Path, Column]) -> Column:
    match data_type:
        case ArrayType(element):
            return F.transform(column, lambda item: place_constants(item, element, inner))
        case MapType(key, _) if step == KEY:
            return F.transform_keys(column, lambda item, _: place_constants(item, key, inner))
        case MapType(_, value):
            return F.transform_values(column, lambda _, item: place_constants(item, value, inner))
    return column


def _place_in_struct(column: Column, data_type: StructType, below: Mapping[str, Mapping[Path, Column]]) -> Column:
    types = {field.name: field.type for field in data_type}
    changed = column
    for step, inner in below.items():
        changed = changed.withField(quote_name(step), place_constants(column.getField(step), types[step], inner))
    return changed


# Deleted rows of an Iceberg snapshot: position deletes, deletion vectors and equality deletes as rows to leave out.
#
# Executors read the delete files; neither positions nor values reach the driver.
#
# Source: Iceberg's table specification, "Row-level Deletes"; the Puffin specification, ``deletion-vector-v1``


SEQUENCE = "__widen_sequence"
"""The column with the data sequence number of a file."""


def vector_positions(spark: SparkSession, io: FileIO, sequences: Mapping[str, int]) -> DataFrame:
    """Return the rows that deletion vectors delete: the location of the data file as `FILE`, `ROW` and `SEQUENCE`.

    Args:
        io: Opens the Puffin files; executors get a copy of it.
        sequences: Their locations, each with its data sequence number.
    """
    described = spark.createDataFrame(pa.table({"path": list(sequences), SEQUENCE: list(sequences.values())}))
    spread = described.repartition(min(len(sequences), 200)) if len(sequences) > 1 else described
    return spread.mapInArrow(partial(_expand, io), f"{FILE} string, {ROW} bigint, {SEQUENCE} bigint")


def _expand(io: FileIO, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    places = (row for batch in batches for row in zip(*(each.to_pylist() for each in batch.columns), strict=True))
    for path, sequence in places:
        for data_file, bitmap in read_vectors(_read(io, path), path):
            for rows in bitmap_batches(data_file, bitmap):
                yield rows.append_column(SEQUENCE, pa.array([sequence] * len(rows), pa.int64()))


def _read(io: FileIO, path: str) -> bytes:
    with translate_file_errors(path, DELETES_FIX):
        ensure_regular(path)
        with io.new_input(path).open() as stream:
            return bytes(stream.read())


POSITION_DELETES = StructType(
    (
        Field("file_path", STRING, metadata={COLUMN_ID: 2147483546}),
        Field("pos", LONG, metadata={COLUMN_ID: 2147483545}),
    )
)
"""The columns of position deletes that matter; the deleted rows themselves, which may be beside them, do not.

Source: Iceberg's table specification, "Position Delete Files" and "Reserved Field IDs"
"""


# How Spark opens files of an Iceberg table that use the same column names.
#
# Source: Iceberg's table specification, "Column Projection"


@dataclass(frozen=True)
class IcebergSource:
    """A table as a scan reads it.

    Args:
        io: Opens footers and delete files; executors get a copy of it.
    """

    session: Callable[[], Session]
    io: FileIO
    point: ReadPoint

    @cached_property
    def spark(self) -> SparkSession:
        """The session of Spark, which starts if it has not."""
        return require_spark(self.session(), READS)

    def open(
        self, schema: StructType, predicate: Predicate, columns: FileColumns, files: Sequence[FileEntry]
    ) -> FileRows:
        """Return files with the same column names, as Spark reads them, with what their projection needs."""
        listed = _to_file_list(files)
        group = ScanGroup(
            listed, is_hive=False, has_vectors=False, values={}, stored=columns.stored, names=columns.names
        )
        scan = ScanPlan(predicate, schema, NONE, (), (group,))
        uris = to_uris(file.path for file in files)
        if columns.has_similar_names and not compares_names_exactly(self.spark):
            keys = {file.path: location_key(uri) for file, uri in zip(files, uris, strict=True)}
            frame = open_with_arrow(self.spark, self.io, schema, columns.names, keys)
            in_table = projection(scan, replace(group, stored=(), names=()))
            return FileRows(frame, in_table, F.col(PLACE), F.col(POSITION))
        if all(uri.startswith("file:") for uri in uris):
            uris = list_scan_files(self.spark, LogStore(self.point.metadata.location), listed, uris)
        uris, options = with_own_client(uris, options_of_files(uris, self.io.properties))
        frame = open_files(self.spark, scan, group, uris, store_options=options)
        frame = filter_stored_rows(frame, scan, group)
        return FileRows(frame, projection(scan, group), row_location_key(), F.col("_metadata.row_index"))


FileEntry: TypeAlias = "ScannedFile | DeleteFile"


@dataclass(frozen=True)
class FileRows:
    """The rows of files with the columns of the files, and the columns of the table made of these."""

    frame: DataFrame
    columns: list[Column]
    file: Column
    position: Column


def to_uris(paths: Iterable[str]) -> Sequence[str]:
    """Return the locations of files as Spark spells them."""
    return [_ROOT.uri(percent_encode(path)) for path in paths]


_ROOT = LogStore("/")


def _to_file_list(files: Sequence[FileEntry]) -> pa.Table:
    sizes = pa.array([file.size_bytes for file in files], pa.int64())
    paths = pa.array([file.path for file in files], pa.string())
    return pa.table(
        {"path": paths, "size_bytes": sizes, "modification_time_ms": pa.array([0] * len(files), pa.int64())}
    )
