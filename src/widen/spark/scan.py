"""Scans: the files of a snapshot as one DataFrame in the current types, read by Spark's own vectorised reader.

Files are divided into groups that are read in one way each. Column mapping is resolved by physical names in both
modes: writers use the physical name in files also where the mode is ``id``, and Spark can switch to field ids only for
a whole session.

Source: PROTOCOL.md#reader-requirements-for-type-widening, #column-mapping, #deletion-vectors
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from widen.log.snapshot import Snapshot
from widen.log.store import LogStore
from widen.model.path import Path, resolve
from widen.model.type import LONG, STRING, VOID, DataType, DecimalType, Field, StructType, quoted
from widen.protocol.action import DeletionVector
from widen.protocol.mapping import NONE, mapping_mode, physical_name, to_physical, to_physical_path
from widen.protocol.predicate import Anything, Predicate
from widen.protocol.selection import Selection
from widen.protocol.type_change import all_type_changes, ensure_readable
from widen.protocol.value import is_hive_path
from widen.spark.deletion import FILE, ROW, positions
from widen.spark.manifest import write_manifest
from widen.spark.predicate import parse_predicate
from widen.spark.schema import relaxed, surfaced, to_spark, type_to_spark

EXPLICIT_FILES = 32
"""Up to how many files Spark is given by name; it then looks each of them up."""

LITERAL_PARTITIONS = 16
"""Up to how many partitions whose directories do not name them get a scan of their own."""

_ABSOLUTE = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:/")
_VALUE = "__widen_value_"
_SCHEME = r"^[A-Za-z0-9+.-]+:/*"
_GLOB = str.maketrans({char: f"\\{char}" for char in "\\{}[]*?"})


@dataclass(frozen=True)
class Group:
    """Files that are read in one way.

    Args:
        files: As `Snapshot.files` gives them.
        is_hive: Whether the directories name the partition, so that Spark may take it from there.
        has_vectors: Whether every file has a deletion vector, or none.
        values: The partition texts by physical name if all files share them; None if they come by a join.
    """

    files: pa.Table
    is_hive: bool
    has_vectors: bool
    values: Mapping[str, str | None] | None = None


@dataclass(frozen=True)
class Scan:
    """What is to be read, decided without Spark.

    Args:
        schema: Of the table, in logical names.
        mode: Of column mapping.
        partition_by: The logical names of the partition columns.
        groups: The files.
    """

    schema: StructType
    mode: str
    partition_by: tuple[str, ...]
    groups: tuple[Group, ...]

    @property
    def physical_partitions(self) -> tuple[str, ...]:
        """The names of the partition columns in the log and in directories."""
        return tuple(physical_name(f, self.mode) for f in _named(self.schema, self.partition_by))


def read(
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
    predicate = parse_predicate(where, snapshot.schema) if isinstance(where, str) else Anything()
    whole = _union(spark, store, plan_scan(snapshot, predicate, only), is_located=False)
    return whole if where is None else whole.filter(where)


def read_located(spark: SparkSession, store: LogStore, snapshot: Snapshot, files: pa.Table) -> DataFrame:
    """Return the rows of some files like `read`; beside their columns stand `FILE` and `ROW`: where each row is.

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
    return _union(spark, store, _scan(snapshot, files), is_located=True)


def file_keys(store: LogStore, files: pa.Table) -> list[str]:
    """Return what tells each file of a list from the others in the column `FILE`."""
    return [_key(store.uri(path)) for path in files["path"].to_pylist()]


def _union(spark: SparkSession, store: LogStore, scan: Scan, *, is_located: bool) -> DataFrame:
    frames = [_frame(spark, store, scan, group, is_located=is_located) for group in scan.groups]
    if frames:
        return reduce(DataFrame.unionAll, frames)
    columns = surfaced(scan.schema).fields
    place = (Field(FILE, STRING), Field(ROW, LONG)) if is_located else ()
    return spark.createDataFrame([], to_spark(relaxed(StructType((*columns, *place)))))


def plan_scan(snapshot: Snapshot, predicate: Predicate, only: Collection[str] | None = None) -> Scan:
    """Return which files are read and how; files without a matching row are left out.

    Raises:
        UnsupportedTypeChange: the schema records a change that is not in the matrix.
        CorruptLog: the schema breaks the rules of column mapping.
        StorageError: the store refused.
    """
    files = snapshot.files()
    if only is not None:
        files = files.filter(pc.is_in(files["path"], value_set=pa.array(only, pa.string())))
    return _scan(snapshot, selected(files, select(snapshot, predicate)))


def _scan(snapshot: Snapshot, files: pa.Table) -> Scan:
    ensure_readable(snapshot.schema)
    mode = mapping_mode(snapshot.properties, snapshot.protocol)
    scan = Scan(snapshot.schema, mode, tuple(snapshot.partition_columns), ())
    return replace(scan, groups=tuple(_groups(scan, files)))


def select(snapshot: Snapshot, predicate: Predicate) -> Selection:
    """Return the files of a version in which rows that make a condition true are looked for."""
    mode = mapping_mode(snapshot.properties, snapshot.protocol)
    return Selection(predicate, snapshot.schema, mode, tuple(snapshot.partition_columns))


def selected(files: pa.Table, selection: Selection) -> pa.Table:
    """Return the files that may hold a matching row."""
    if selection.is_everything:
        return files
    pairs = zip(partition_values(files), files["stats"].to_pylist(), strict=True)
    return files.filter(pa.array([selection.may_hold(*pair) for pair in pairs], pa.bool_()))


def partition_values(files: pa.Table) -> list[dict[str, str | None]]:
    """Return the partition texts of each file by physical name."""
    return [dict(entries or ()) for entries in files["partition_values"].to_pylist()]


def _groups(scan: Scan, files: pa.Table) -> Iterable[Group]:
    for has_vectors in (False, True):
        chosen = files["deletion_vector"].is_valid() if has_vectors else files["deletion_vector"].is_null()
        some = files.filter(chosen)
        if some.num_rows and not scan.partition_by:
            yield Group(some, is_hive=False, has_vectors=has_vectors, values={})
        elif some.num_rows:
            yield from _partitioned(scan, some, has_vectors=has_vectors)


def _partitioned(scan: Scan, files: pa.Table, *, has_vectors: bool) -> Iterable[Group]:
    columns, values = scan.physical_partitions, partition_values(files)
    paths = files["path"].to_pylist()
    hive = _hive_flags(paths, columns, values)
    if any(hive):
        yield Group(files.filter(pa.array(hive)), is_hive=True, has_vectors=has_vectors)
    if all(hive):
        return
    tuples = [None if h else tuple(v.get(c) for c in columns) for h, v in zip(hive, values, strict=True)]
    distinct = list(dict.fromkeys(t for t in tuples if t is not None))
    if len(distinct) > LITERAL_PARTITIONS:
        other = files.filter(pa.array([not h for h in hive]))
        yield Group(other, is_hive=False, has_vectors=has_vectors)
        return
    for one in distinct:
        same = files.filter(pa.array([t == one for t in tuples]))
        shared = dict(zip(columns, one, strict=True))
        yield Group(same, is_hive=False, has_vectors=has_vectors, values=shared)


def _hive_flags(paths: list[str], columns: tuple[str, ...], values: list[dict[str, str | None]]) -> list[bool]:
    """Return for each file whether its directories say its partition; files in one directory are looked at once."""
    known: dict[tuple[str, tuple[str | None, ...]], bool] = {}
    flags = []
    for path, texts in zip(paths, values, strict=True):
        key = path.rpartition("/")[0], tuple(map(texts.get, columns))
        flag = known.get(key)
        if flag is None:
            flag = known[key] = _ABSOLUTE.match(path) is None and is_hive_path(path, columns, texts)
        flags.append(flag)
    return flags


# ---- Spark -----------------------------------------------------------------------------------------


def _frame(spark: SparkSession, store: LogStore, scan: Scan, group: Group, *, is_located: bool) -> DataFrame:
    frame = _source(spark, store, scan, group)
    joins_values = not group.is_hive and group.values is None
    if group.has_vectors or joins_values or is_located:
        frame = frame.select("*", _file_key().alias(FILE), F.col("_metadata.row_index").alias(ROW))
    if group.has_vectors:
        frame = frame.join(positions(spark, store, _vectors(store, group.files)), [FILE, ROW], "left_anti")
    if joins_values:
        frame = frame.join(F.broadcast(_values_frame(spark, store, scan, group.files)), FILE, "inner")
    place = (FILE, ROW) if is_located else ()
    return frame.select(*_projection(scan, group), *place)


def _source(spark: SparkSession, store: LogStore, scan: Scan, group: Group) -> DataFrame:
    """Return the files as Spark reads them: physical names, partition columns as text where directories name them."""
    physical = surfaced(to_physical(StructType(_data_fields(scan)), scan.mode))
    if group.is_hive:
        physical = StructType((*physical.fields, *(Field(name, STRING) for name in scan.physical_partitions)))
    reader = spark.read.schema(to_spark(relaxed(physical)))
    reader = reader.option("ignoreInvalidPartitionPaths" if group.is_hive else "recursiveFileLookup", "true")
    paths = _paths(spark, store, group.files)
    if group.is_hive and paths[0].startswith(store.uri("")):
        reader = reader.option("basePath", unquote(store.uri("")))
    return reader.parquet(*(unquote(path).translate(_GLOB) for path in paths))


def _paths(spark: SparkSession, store: LogStore, files: pa.Table) -> list[str]:
    """Return what Spark is to open, as URIs: the files, or where they are many one manifest of them."""
    uris = [store.uri(path) for path in files["path"].to_pylist()]
    if len(uris) > EXPLICIT_FILES:
        sizes, times = (files[name].to_pylist() for name in ("size_bytes", "modification_time_ms"))
        manifest = write_manifest(spark, store, zip(uris, sizes, times, strict=True))
        return [manifest] if manifest is not None else uris
    return uris


def _data_fields(scan: Scan) -> tuple[Field, ...]:
    return tuple(f for f in scan.schema.fields if f.name not in scan.partition_by and f.type != VOID)


def _file_key() -> Column:
    """Return what tells the file of a row: its decoded location without the scheme."""
    decoded = F.url_decode(F.replace(F.col("_metadata.file_path"), F.lit("+"), F.lit("%2B")))
    return F.regexp_replace(decoded, _SCHEME, "")


def _key(uri: str) -> str:
    return unquote(uri).partition(":")[2].lstrip("/")


def _vectors(store: LogStore, files: pa.Table) -> list[tuple[str, DeletionVector]]:
    keys, vectors = file_keys(store, files), files["deletion_vector"].to_pylist()
    return [(key, DeletionVector(**vector)) for key, vector in zip(keys, vectors, strict=True)]


def _values_frame(spark: SparkSession, store: LogStore, scan: Scan, files: pa.Table) -> DataFrame:
    values = partition_values(files)
    keys = file_keys(store, files)
    columns = {_VALUE + c: pa.array([v.get(c) or None for v in values], pa.string()) for c in scan.physical_partitions}
    return spark.createDataFrame(pa.table({FILE: pa.array(keys, pa.string()), **columns}))


def _projection(scan: Scan, group: Group) -> list[Column]:
    shown = surfaced(scan.schema)
    unsafe = _unsafe_decimals(scan)
    columns = []
    for field, visible in zip(scan.schema.fields, shown.fields, strict=True):
        name = physical_name(field, scan.mode)
        if field.name in scan.partition_by:
            column = _partition_column(group, name, field.type)
        elif field.type == VOID:
            column = F.lit(None)
        else:
            column = _logical(_guarded(name, unsafe), field, visible, scan.mode)
        columns.append(column.alias(field.name, metadata=dict(visible.metadata)))
    return columns


def _partition_column(group: Group, name: str, data_type: DataType) -> Column:
    if group.is_hive:
        text = F.col(quoted(name))
    elif group.values is None:
        text = F.col(quoted(_VALUE + name))
    else:
        text = F.lit(group.values.get(name) or None).cast("string")
    return from_partition_text(text, data_type)


def from_partition_text(text: Column, data_type: DataType) -> Column:
    """Return what partition texts stand for in a type.

    Source: PROTOCOL.md#partition-value-serialization; Delta Spark: a text that is no value of the type is null.
    """
    return text if data_type == STRING else text.try_cast(type_to_spark(data_type))


def _logical(column: Column, field: Field, visible: Field, mode: str) -> Column:
    """Return a column under its logical names: a cast to the same shape with other names goes by position."""
    renamed = mode != NONE and to_physical(StructType((field,)), mode).fields[0].type != field.type
    return column.cast(type_to_spark(relaxed(StructType((visible,))).fields[0].type)) if renamed else column


def _unsafe_decimals(scan: Scan) -> frozenset[Path]:
    """Return the decimals whose filters must not reach the files, by physical path.

    Spark compares the literal in the narrower type of an old file, without a range check: rows are lost, or it fails.
    """
    return frozenset(
        to_physical_path(scan.schema, path, scan.mode)
        for path, change in all_type_changes(scan.schema)
        if isinstance(change.old, DecimalType) and path[0] not in scan.partition_by and _is_pushed(scan.schema, path)
    )


def _is_pushed(schema: StructType, path: Path) -> bool:
    """Tell whether Spark pushes filters on a column to the files: only where nothing but structs leads to it."""
    return all(isinstance(resolve(schema, path[:at])[1], StructType) for at in range(len(path)))


def _guarded(name: str, unsafe: frozenset[Path]) -> Column:
    """Return a column of the files in a form that filters on its unsafe decimals are not pushed through."""
    column = F.col(quoted(name))
    for path in unsafe:
        if path == (name,):
            column = _twice(column)
        elif path[0] == name:
            column = column.withField(".".join(map(quoted, path[1:])), _twice(F.col(".".join(map(quoted, path)))))
    return column


def _twice(column: Column) -> Column:
    return F.greatest(column, column)


def _named(schema: StructType, names: Iterable[str]) -> tuple[Field, ...]:
    known = {field.name: field for field in schema.fields}
    return tuple(known[name] for name in names)
