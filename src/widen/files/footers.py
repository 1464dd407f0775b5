"""What Parquet footers say: row counts, bounds and null counts, and the types that files have; no data is read.

Up to some files are read in this process, and more of them by executors. Without those, the module does not need Spark.

Source: the Parquet format; PROTOCOL.md#per-file-statistics, #type-widening
"""

from __future__ import annotations

import itertools
import json
import math
import pickle
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, TypeVar

import pyarrow as pa

from widen.errors import CorruptFile, FileMissing, WidenError
from widen.errors.tables import first_line, missing_data_file
from widen.limits import DRIVER_FOOTERS
from widen.log.log_store import LogStore
from widen.log.parquet_footers import ensure_chunks_readable, find_damaged_footers, read_statistics
from widen.log.snapshot import Snapshot
from widen.model.column_path import ELEMENT, KEY, VALUE, Path
from widen.model.lazy_module import import_lazily
from widen.model.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    Field,
    MapType,
    StructType,
    is_atomic,
    similarity_key,
)
from widen.model.value_classes import dataclass
from widen.protocol.column_mapping import COLUMN_ID, ID, PHYSICAL_NAME, physical_name
from widen.protocol.file_statistics import ColumnStatistics, encode_statistics
from widen.protocol.parquet_files import file_tag, is_ambiguous, is_legacy
from widen.protocol.type_widening import is_widening
from widen.spark.errors import environment_error
from widen.spark.ship import freeze_imports

if TYPE_CHECKING:
    import pyarrow.parquet as pq

    from widen.spark.engine import Session
else:
    pq = import_lazily("pyarrow.parquet")


@dataclass(frozen=True)
class Footer:
    """The facts of a footer that the log needs.

    Args:
        counts: How many values each leaf has, as a tag of the log; empty if the statistics say so for all of them.
    """

    rows: int
    stats: str
    counts: str = ""


@dataclass(frozen=True)
class LeafFooter:
    """What a footer says of every leaf, also of those without statistics in the log.

    Args:
        stats: The row count and the statistics of all leaves, as JSON text in the form of the log.
        values: The number of values of each leaf, by physical path; each value in an array or a map counts.
    """

    stats: str
    values: Mapping[Path, int]


def read_footers(spark: Session, store: LogStore, paths: Sequence[str], columns: frozenset[Path]) -> list[Footer]:
    """Return the footers of files, in the order of the paths.

    Args:
        columns: The physical paths of the leaf columns that get statistics.
    """
    return read_files(lambda: spark, partial(read_footer, store, columns), paths, DRIVER_FOOTERS)


def read_footer(store: LogStore, columns: frozenset[Path], path: str) -> Footer:
    """Return the footer of one file.

    Args:
        columns: The physical paths of the leaf columns that get statistics.
    """
    with open_data_file(store, path) as file:
        return footer_of(_read_metadata(file), columns)


def read_bounds_here(store: LogStore, columns: frozenset[Path], paths: Sequence[str]) -> list[str]:
    """Return the statistics of some columns of each of many files, as JSON text; reads the footers in this process.

    The footers of many files are checked together, which takes a fraction of the time.

    Args:
        columns: The physical paths of the leaf columns.
        paths: The plain paths, relative to the table.
    """
    texts: list[str] = []
    for start in range(0, len(paths), _CHECKED_TOGETHER):
        part = paths[start : start + _CHECKED_TOGETHER]
        slices = [part[at : at + _READ_BY_THREAD] for at in range(0, len(part), _READ_BY_THREAD)]
        found = list(itertools.chain.from_iterable(_read_in_threads(partial(_read_unchecked, store), slices)))
        for place, damage in find_damaged_footers(found).items():
            with _name_damage(part[place]):
                raise damage
        for path, metadata in zip(part, found, strict=True):
            with _name_damage(path):
                all_leaves = leaf_paths(metadata.schema.to_arrow_schema())
                statistics = _statistics_of(metadata, all_leaves, columns)
                texts.append(encode_statistics(metadata.num_rows, statistics))
    return texts


def _read_unchecked(store: LogStore, paths: Sequence[str]) -> list[pq.FileMetaData]:
    found = []
    for path in paths:
        with open_data_file(store, path) as file:
            found.append(pq.read_metadata(file))
    return found


def read_leaf_footer(store: LogStore, path: str) -> LeafFooter:
    """Return what the footer of one file says of every leaf; needs no Spark."""
    with open_data_file(store, path) as file:
        metadata = _read_metadata(file)
        all_leaves = list(leaf_paths(metadata.schema.to_arrow_schema()))
        counts = ((leaf, count_non_null(metadata, index)) for index, leaf in enumerate(all_leaves))
        values = {leaf: count for leaf, count in counts if count is not None}
        return LeafFooter(footer_of(metadata, frozenset(all_leaves)).stats, values)


def _read_metadata(file: BinaryIO) -> pq.FileMetaData:
    metadata = pq.read_metadata(file)
    ensure_chunks_readable(metadata)
    return metadata


def footer_of(metadata: pq.FileMetaData, columns: frozenset[Path], partition_by: Collection[str] = ()) -> Footer:
    """Return the footer of the metadata of a Parquet file.

    Args:
        columns: The physical paths of the leaf columns that get statistics.
        partition_by: The physical names of partition columns that the file also has. They are not counted: the log has
            their values.
    """
    all_leaves = list(leaf_paths(metadata.schema.to_arrow_schema()))
    statistics_by_leaf = _statistics_of(metadata, all_leaves, columns)
    own = [(index, leaf) for index, leaf in enumerate(all_leaves) if leaf[0] not in partition_by]
    is_counted = all(leaf in statistics_by_leaf and statistics_by_leaf[leaf].nulls is not None for _, leaf in own)
    counts = "" if is_counted else file_tag({leaf: count_non_null(metadata, index) for index, leaf in own})
    return Footer(metadata.num_rows, encode_statistics(metadata.num_rows, statistics_by_leaf), counts)


def _statistics_of(
    metadata: pq.FileMetaData, all_leaves: Iterable[Path], columns: Collection[Path]
) -> dict[Path, ColumnStatistics]:
    is_old = is_legacy(metadata.metadata)
    return {
        leaf: _without_ambiguous(statistics) if is_old else statistics
        for index, leaf in enumerate(all_leaves)
        if leaf in columns and (statistics := _merge_row_groups(metadata, index)) is not None
    }


def count_non_null(metadata: pq.FileMetaData, index: int) -> int | None:
    """Return how many values a leaf has; each value in an array or a map counts. None if the footer does not say."""
    total = 0
    for group in range(metadata.num_row_groups):
        statistics = read_statistics(metadata, group, index)
        if statistics is None or not statistics.has_null_count:
            return None
        total += metadata.row_group(group).column(index).num_values - statistics.null_count
    return total


def _without_ambiguous(statistics: ColumnStatistics) -> ColumnStatistics:
    """Return the statistics without bounds that only Spark can convert from the legacy calendar."""
    bounds = (statistics.low, statistics.high)
    return ColumnStatistics(nulls=statistics.nulls) if any(map(is_ambiguous, bounds)) else statistics


def leaf_paths(fields: Iterable[Any], path: Path = ()) -> Iterator[Path]:
    """Return the path of every leaf in the order of the file; dotted paths would be ambiguous for names with dots."""
    return (leaf for leaf, _ in leaf_types(fields, path))


def leaf_types(fields: Iterable[Any], path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the path and the Arrow type of every leaf; see `leaf_paths`."""
    for field in fields:
        yield from _leaves_below(field.type, (*path, field.name))


def _leaves_below(data_type: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if pa.types.is_struct(data_type):
        yield from leaf_types((data_type.field(i) for i in range(data_type.num_fields)), path)
    elif pa.types.is_map(data_type):
        yield from _leaves_below(data_type.key_type, (*path, "key"))
        yield from _leaves_below(data_type.item_type, (*path, "value"))
    elif pa.types.is_nested(data_type):
        yield from _leaves_below(data_type.value_type, (*path, "element"))
    else:
        yield path, data_type


def _merge_row_groups(metadata: Any, index: int) -> ColumnStatistics | None:
    """Return the statistics of one leaf over all row groups; None if the file has no rows."""
    groups = range(metadata.num_row_groups)
    parts = [part for group in groups if (part := read_statistics(metadata, group, index)) is not None]
    if len(parts) < len(groups) or not groups:
        return ColumnStatistics() if groups else None
    nulls = sum(part.null_count for part in parts) if all(part.has_null_count for part in parts) else None
    filled = [part for part in parts if part.num_values]
    if not filled or not all(part.has_min_max for part in filled):
        return ColumnStatistics(nulls=nulls)
    try:
        low, high = [part.min for part in filled], [part.max for part in filled]
    except (OverflowError, UnicodeDecodeError):  # years that datetime does not support, texts that are not UTF-8
        return ColumnStatistics(nulls=nulls)
    if any(isinstance(value, float) and math.isnan(value) for value in (*low, *high)):
        return ColumnStatistics(nulls=nulls)
    return ColumnStatistics(min(low), max(high), nulls)


# Read data files of a table, many of them in parallel: the driver reads few of them, the executors read more.


_THREADS = 16
_CHECKED_TOGETHER, _READ_BY_THREAD = 1_024, 64
_COLUMNS = "numbers array<bigint>, result binary"

P = TypeVar("P")
T = TypeVar("T")


@contextmanager
def open_data_file(store: LogStore, path: str) -> Iterator[BinaryIO]:
    """Open a Parquet file of a table."""
    with _name_damage(path), store.open(path) as file:
        yield file


@contextmanager
def _name_damage(path: str) -> Iterator[None]:
    try:
        yield
    except FileMissing as error:
        raise missing_data_file(path) from error
    except (pa.ArrowException, OSError) as error:  # Arrow has errors of both kinds for damaged files
        fix = "Restore the file from a backup; its content is unknown."
        damage = CorruptFile(path=path, reason=first_line(error), fix=fix)
        raise environment_error(path, error) or damage from error


def read_files(
    session: Callable[[], Session], read: Callable[[str], T], paths: Sequence[str], driver_files: int
) -> list[T]:
    """Return what a function reads from each file, in the order of the paths.

    Args:
        read: Reads a file, given its path. It travels to the executors, and its results travel back.
    """
    if len(paths) <= driver_files:
        return _read_in_threads(read, paths)
    from widen.spark.engine import can_start, is_local, require_spark
    from widen.spark.errors import translate_spark_errors

    given, results = session(), dict[int, T]()
    if is_local(given) and not can_start(given):
        return _read_in_threads(read, paths)
    spark = require_spark(given, f"it reads {len(paths):,} files in parallel")

    with translate_spark_errors():
        listed = pa.table({"number": pa.array(range(len(paths))), "path": list(paths)})
        frame = spark.createDataFrame(listed).repartition(min(len(paths) // 64 + 1, 400))
        rows = frame.mapInArrow(partial(_run_task, read), _COLUMNS).collect()
    for row in rows:
        result = pickle.loads(row.result)
        if isinstance(result, WidenError):
            raise result
        results.update(dict.fromkeys(row.numbers, result))
    return [results[number] for number in range(len(paths))]


def _run_task(read: Callable[[str], Any], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield each result once, with the numbers of all files that have it: most files of a table are alike."""
    freeze_imports()
    numbers: dict[bytes, list[int]] = {}
    for batch in batches:
        results = _read_in_threads(partial(_read_or_error, read), batch.column("path").to_pylist())
        for number, result in zip(batch.column("number").to_pylist(), results, strict=True):
            numbers.setdefault(pickle.dumps(result), []).append(number)
    columns = [pa.array(numbers.values(), pa.list_(pa.int64())), pa.array(numbers.keys(), pa.binary())]
    yield pa.RecordBatch.from_arrays(columns, names=["numbers", "result"])


def _read_or_error(read: Callable[[str], Any], path: str) -> Any:
    """Return an error as a result: raised in a task, it would be the error of a Spark job."""
    try:
        return read(path)
    except WidenError as error:
        return error


def _read_in_threads(read: Callable[[P], T], paths: Sequence[P]) -> list[T]:
    with ThreadPoolExecutor(_THREADS, "widen-footer") as pool:
        return list(pool.map(read, paths))


# The types in a footer, and the leaves whose type is narrower than the table's. Only footers show which files hold an
# old type: any writer may have added a narrow file after a type change.
#
# Source: the Parquet format; PROTOCOL.md#type-widening


_FIELD_ID = b"PARQUET:field_id"
_NO_IDS = "the table resolves columns by field id, but the file has no field ids"
_FIX_IDS = "Write its rows again with a client that supports column mapping, or remove the file from the table."
_FIX = "Restore the file from a backup; its content is unknown."


def old_types(store: LogStore, schema: StructType, mode: str, path: str) -> tuple[int, dict[Path, DataType]]:
    """Return the number of rows in a file, deleted ones included, and its leaves with a type from before a widening.

    Columns are matched by their physical names, or by field id in the mode ``id``, and compared at every depth: struct
    fields, array elements, map keys and map values. Differences other than a widening are ignored.

    Returns:
        The number of rows, and the old type of each such leaf by its logical path.

    Raises:
        CorruptFile: the file is not Parquet, or it has no field ids in the mode ``id``.

    Source: PROTOCOL.md#writer-requirements-for-type-widening. Delta Spark does not compare elements, keys and values.
    """
    with open_data_file(store, path) as file:
        footer = pq.read_metadata(file)
        columns = footer.schema.to_arrow_schema()
        file_leaves = list(_SchemaWalk(mode).fields(columns, schema))
    if mode == ID and not any(field_id(column) for column in columns):
        raise CorruptFile(path=path, reason=_NO_IDS, fix=_FIX_IDS)
    if len(file_leaves) != footer.num_columns:
        raise CorruptFile(path=path, reason="its columns are ambiguous", fix=_FIX)
    old = {}
    for number, (leaf, table_type) in enumerate(file_leaves):
        if (
            table_type is not None
            and is_widening(file_type := type_of(footer.schema.column(number)), table_type)
            and file_type != table_type
        ):
            old[leaf] = file_type
    return footer.num_rows, old


def type_of(column: Any) -> DataType:
    """Return the Spark type of a leaf column in a Parquet schema; void if Spark does not support it.

    Source: Spark's ParquetToSparkSchemaConverter
    """
    logical = json.loads(column.logical_type.to_json())
    if logical["Type"] == "Decimal":
        return DecimalType(logical["precision"], logical["scale"])
    if logical["Type"] == "Int":
        return _INTEGERS.get((logical["isSigned"], logical["bitWidth"]), VOID)
    if logical["Type"] == "Timestamp":
        return TIMESTAMP if logical["isAdjustedToUTC"] else TIMESTAMP_NTZ
    return (
        _LOGICAL.get(logical["Type"]) or _PHYSICAL[column.physical_type] if logical["Type"] in _LOGICAL_NAMES else VOID
    )


_INTEGERS: Mapping[tuple[bool, int], DataType] = {
    (True, 8): BYTE,
    (True, 16): SHORT,
    (True, 32): INTEGER,
    (True, 64): LONG,
    (False, 8): SHORT,
    (False, 16): INTEGER,
    (False, 32): LONG,
    (False, 64): DecimalType(20, 0),
}
_LOGICAL: Mapping[str, DataType] = {"Date": DATE, "String": STRING, "Enum": STRING, "Json": STRING, "Bson": BINARY}
_PHYSICAL: Mapping[str, DataType] = {
    "BOOLEAN": BOOLEAN,
    "INT32": INTEGER,
    "INT64": LONG,
    "INT96": TIMESTAMP,
    "FLOAT": FLOAT,
    "DOUBLE": DOUBLE,
    "BYTE_ARRAY": BINARY,
    "FIXED_LEN_BYTE_ARRAY": BINARY,
}
_LOGICAL_NAMES = {"None", *_LOGICAL}


def field_id(column: Any) -> str:
    """Return the field id of a column as text; empty if it has no id."""
    return str((column.metadata or {}).get(_FIELD_ID, b"").decode())


def with_field_id(column: Any, number: int) -> Any:
    """Return a column with a field id."""
    return column.with_metadata({**(column.metadata or {}), _FIELD_ID: str(number).encode()})


def _field_finder(fields: Iterable[Field], mode: str) -> Callable[[Any], Field | None]:
    """Return what finds the table field of a file column: by field id in the mode ``id``, else by name.

    A field without an id, such as a materialized row id, is also matched by name in that mode. The first one counts.

    Source: PROTOCOL.md#reader-requirements-for-column-mapping
    """
    by_id: dict[str, tuple[int, Field]] = {}
    by_name: dict[str, tuple[int, Field]] = {}
    for at, field in enumerate(fields):
        if mode == ID and COLUMN_ID in field.metadata:
            by_id.setdefault(str(field.metadata[COLUMN_ID]), (at, field))
        else:
            by_name.setdefault(physical_name(field, mode), (at, field))

    def find(column: Any) -> Field | None:
        found = [each for each in (by_id and by_id.get(field_id(column)), by_name.get(column.name)) if each]
        return min(found, key=itemgetter(0))[1] if found else None

    return find


Names: TypeAlias = tuple[tuple[Path, str], ...]
"""The names of columns in a file where they differ from the physical names, by logical path; empty for most files."""


def names_in_file(store: LogStore, schema: StructType, path: str) -> Names:
    """Return the names of columns in a file; see `names_by_id`."""
    with open_data_file(store, path) as file:
        return names_by_id(pq.read_schema(file), schema, path)


def names_by_id(columns: pa.Schema, schema: StructType, path: str) -> Names:
    """Return the names of columns in a file, resolved by field id, where they differ from the physical names.

    If the file lacks a column but another column has its physical name, the column gets an unused name, so that a
    reader by name does not find the wrong one.

    Raises:
        CorruptFile: the file is not Parquet, or it has no field ids, so its columns are unknown.

    Source: PROTOCOL.md#reader-requirements-for-column-mapping
    """
    if not any(map(field_id, columns)):
        raise CorruptFile(path=path, reason=_NO_IDS, fix=_FIX_IDS)
    return tuple(names_of_columns(list(columns), schema))


def names_of_columns(columns: list[Any], struct: StructType, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield the columns that have another name in a file, in the form of `names_by_id`."""
    find = _field_finder(struct, ID)
    by_field = {field.name: column for column in columns if (field := find(column))}
    used_names = {similarity_key(column.name) for column in columns}
    free_names = (name for number in itertools.count() if (name := f"__widen_none_{number}") not in used_names)
    for field in struct:
        column, physical = by_field.get(field.name), field.metadata.get(PHYSICAL_NAME, field.name)
        if column is None:
            if similarity_key(physical) in used_names:
                yield (*path, field.name), next(free_names)
            continue
        if column.name != physical:
            yield (*path, field.name), column.name
        yield from _names_below(column.type, field.type, (*path, field.name))


def _names_below(kind: Any, data_type: DataType, path: Path) -> Iterator[tuple[Path, str]]:
    if pa.types.is_struct(kind) and isinstance(data_type, StructType):
        yield from names_of_columns([kind.field(i) for i in range(kind.num_fields)], data_type, path)
    elif pa.types.is_map(kind) and isinstance(data_type, MapType):
        yield from _names_below(kind.key_type, data_type.key, (*path, KEY))
        yield from _names_below(kind.item_type, data_type.value, (*path, VALUE))
    elif pa.types.is_nested(kind) and isinstance(data_type, ArrayType):
        yield from _names_below(kind.value_type, data_type.element, (*path, ELEMENT))


_Leaf: TypeAlias = tuple[Path, DataType | None]


@dataclass(frozen=True, slots=True)
class _SchemaWalk:
    """Walks the columns of a file and of the table in parallel."""

    mode: str

    def fields(self, fields: Iterable[Any], struct: DataType | None, path: Path = ()) -> Iterator[_Leaf]:
        """Yield for every leaf its logical path and its type in the table, in the order of the file.

        The type is None if the table does not have the leaf.
        """
        find = _field_finder(struct.fields if isinstance(struct, StructType) else (), self.mode)
        for item in fields:
            field = find(item)
            yield from self._below(
                item.type, field.type if field else None, (*path, field.name if field else item.name)
            )

    def _below(self, kind: Any, data_type: DataType | None, path: Path) -> Iterator[_Leaf]:
        if isinstance(kind, pa.BaseExtensionType):
            kind = kind.storage_type
        if pa.types.is_struct(kind):
            yield from self.fields((kind.field(i) for i in range(kind.num_fields)), data_type, path)
        elif pa.types.is_map(kind):
            key, value = (data_type.key, data_type.value) if isinstance(data_type, MapType) else (None, None)
            yield from self._below(kind.key_type, key, (*path, KEY))
            yield from self._below(kind.item_type, value, (*path, VALUE))
        elif pa.types.is_nested(kind):
            element = data_type.element if isinstance(data_type, ArrayType) else None
            yield from self._below(kind.value_type, element, (*path, ELEMENT))
        else:
            yield path, data_type if data_type is not None and is_atomic(data_type) else None


# Old files: files that hold a type from before a widening, found by reading the footers of all files.
#
# Source: PROTOCOL.md#writer-requirements-for-type-widening


FILES_TYPED_BY_DRIVER = 256
"""The maximum number of footers that the driver reads; the executors read more."""


@dataclass(frozen=True, slots=True)
class OldFile:
    """A file that holds an old type.

    Args:
        rows: The number of rows, deleted ones included.
        types: The old type of each leaf in Spark SQL, by logical path.
    """

    path: str
    size_bytes: int
    rows: int
    types: Mapping[Path, str]


@dataclass(frozen=True, slots=True)
class OldType:
    """How much of a column is still stored in an old type.

    Args:
        path: The logical path of the leaf.
    """

    path: Path
    type: str
    files: int
    size_bytes: int


def find_old_files(
    session: Callable[[], Session], snapshot: Snapshot, files: pa.Table, driver_files: int | None = None
) -> list[OldFile]:
    """Return the files that hold an old type, in the order of the list."""
    mode = snapshot.configuration.mapping
    read = partial(_read_old_types, snapshot.store, snapshot.schema, mode)
    paths = files["path"].to_pylist()
    results = read_files(session, read, paths, FILES_TYPED_BY_DRIVER if driver_files is None else driver_files)
    listed = zip(paths, files["size_bytes"].to_pylist(), results, strict=True)
    return [OldFile(path, size_bytes, rows, types) for path, size_bytes, (rows, types) in listed if types]


def summarize_old_types(files: Iterable[OldFile]) -> list[OldType]:
    """Return how much of each column is stored in each old type, sorted by path and type."""
    totals: dict[tuple[Path, str], tuple[int, int]] = {}
    for file in files:
        for key in file.types.items():
            count, size_bytes = totals.get(key, (0, 0))
            totals[key] = (count + 1, size_bytes + file.size_bytes)
    return [OldType(*key, *totals[key]) for key in sorted(totals)]


def _read_old_types(store: LogStore, schema: StructType, mode: str, path: str) -> tuple[int, Mapping[Path, str]]:
    """Return the number of rows of a file, and the old types of its leaves in Spark SQL."""
    rows, types = old_types(store, schema, mode, store.plain(path))
    return rows, {leaf: old.sql for leaf, old in types.items()}
