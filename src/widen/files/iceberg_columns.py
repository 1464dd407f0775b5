"""Where a data file has the columns of a table: found by field id, regardless of their names in the file.

Files without field ids get them from the table's name mapping. Iceberg never changes a file, so what a footer says is
kept for as long as the process lives.

Source: Iceberg's table specification, "Column Projection" and "Name Mapping Serialization"
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from operator import eq
from threading import Lock
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from widen.errors import CorruptFile
from widen.errors.tables import first_line
from widen.files.arrow_types import COPIED, count_up, to_arrow_schema
from widen.files.data_reader import CONSTANT, convert_column, missing_column, position_flags
from widen.files.deleted_rows import ROW, to_bitmap
from widen.files.footers import Names, field_id, names_of_columns, read_files, with_field_id
from widen.files.scan_groups import StoredTypes
from widen.iceberg.metadata_files import ensure_regular
from widen.limits import DRIVER_SCHEMAS
from widen.model.column_path import ELEMENT, KEY, VALUE, Path, fields, format_path, is_struct_path, map_fields
from widen.model.types import INTEGER, LONG, STRING, ArrayType, DataType, DecimalType, Field, MapType, StructType
from widen.model.value_classes import dataclass
from widen.protocol.actions import Add
from widen.protocol.column_mapping import COLUMN_ID, NAME, PHYSICAL_NAME, physical_name
from widen.protocol.parquet_files import is_legacy
from widen.spark.engine import Session, Unsupported
from widen.spark.errors import environment_error
from widen.spark.spark_types import DataFrame, SparkSession, as_nullable, to_spark, visible_schema

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table.name_mapping import MappedField, NameMapping


@dataclass(frozen=True, slots=True)
class FileColumns:
    """How the columns of a file differ from the table's columns. Equal for all files that can be read together.

    Args:
        stored: The decimals that have fewer digits in the file, and integers with fewer bits, by path.
        has_similar_names: Whether columns of the file have names that differ only in case.
    """

    names: Names
    stored: StoredTypes
    missing: tuple[Path, ...]
    has_similar_names: bool = False


def locate_columns(columns: pa.Schema, schema: StructType, mapping: NameMapping | None, path: str) -> FileColumns:
    """Return where a file has the columns of a table.

    Raises:
        CorruptFile: the file has no field ids and the table has no name mapping, or a column has a type that cannot
            become the type of the table.
    """
    fields = list(columns)
    if not any(map(field_id, fields)):
        if mapping is None:
            raise CorruptFile(path=path, reason=_NO_IDS, fix=_FIX_IDS)
        fields = list(_map_names(fields, mapping.root))
    leaves = list(_find(fields, schema, ()))
    for at, stored, wanted in leaves:
        if stored is not None and not _can_read(stored, wanted):
            reason = f"its column {format_path(at)} is {stored}, which cannot be read as {wanted.sql}"
            raise CorruptFile(path=path, reason=reason, fix=_FIX_FORMAT)
    return FileColumns(
        names=tuple(names_of_columns(fields, schema)),
        stored=tuple(
            sorted((at, old) for at, stored, wanted in leaves if (old := _old_type(schema, at, stored, wanted)))
        ),
        missing=tuple(at for at, stored, _ in leaves if stored is None),
        has_similar_names=_has_similar_names(fields),
    )


def missing_values(schema: StructType, missing: Iterable[Path], initial: Mapping[int, Any]) -> dict[Path, Any]:
    """Return the values of columns that a file lacks, by path; those that are null are left out."""
    ids = {path: int(each.metadata.get(COLUMN_ID, -1)) for path, each in fields(schema)} if initial else {}
    return {path: initial[ids[path]] for path in missing if ids.get(path) in initial}


_NO_IDS = "it has no field ids, and the table has no name mapping"
_FIX_IDS = "Set the property schema.name-mapping.default of the table, which says which column each name is."
_FIX_FORMAT = "Write its rows again with a client of Iceberg, or remove the file from the table."


def _find(
    fields: Iterable[pa.Field], struct: StructType, path: Path
) -> Iterator[tuple[Path, pa.DataType | None, DataType]]:
    """Yield every leaf of the table that the file has, and every field that it lacks, with the types in both."""
    by_id = {field_id(field): field for field in fields}
    for wanted in struct:
        stored = by_id.get(str(wanted.metadata.get(COLUMN_ID)))
        if stored is None:
            yield (*path, wanted.name), None, wanted.type
        else:
            yield from _find_below(stored.type, wanted.type, (*path, wanted.name))


def _find_below(
    stored: pa.DataType, wanted: DataType, path: Path
) -> Iterator[tuple[Path, pa.DataType | None, DataType]]:
    match wanted:
        case StructType() if pa.types.is_struct(stored):
            yield from _find(stored, wanted, path)
        case MapType(key, value) if pa.types.is_map(stored):
            yield from _find_below(stored.key_type, key, (*path, KEY))
            yield from _find_below(stored.item_type, value, (*path, VALUE))
        case ArrayType(element) if pa.types.is_list(stored) or pa.types.is_large_list(stored):
            yield from _find_below(stored.value_type, element, (*path, ELEMENT))
        case _:
            yield path, stored.storage_type if isinstance(stored, pa.BaseExtensionType) else stored, wanted


def _can_read(stored: pa.DataType, wanted: DataType) -> bool:
    if isinstance(wanted, DecimalType):
        return (
            bool(pa.types.is_decimal(stored)) and stored.scale == wanted.scale and stored.precision <= wanted.precision
        )
    test = _READABLE.get(str(wanted))
    return test is not None and test(stored)


def has_old_types(columns: pa.Schema, schema: StructType, mapping: NameMapping | None) -> bool:
    """Return whether a file has a column in a narrower type than the table."""
    fields = list(columns)
    if mapping is not None and not any(map(field_id, fields)):
        fields = list(_map_names(fields, mapping.root))
    leaves = ((stored, wanted) for _, stored, wanted in _find(fields, schema, ()) if stored is not None)
    return any(_is_narrower(stored, wanted) for stored, wanted in leaves)


def _is_narrower(stored: pa.DataType, wanted: DataType) -> bool:
    if isinstance(wanted, DecimalType):
        return bool(stored.precision < wanted.precision)
    test = _NARROWER.get(str(wanted))
    return test is not None and bool(test(stored))


_NARROWER: Mapping[str, Callable[[pa.DataType], bool]] = {
    "long": lambda stored: _is_integer(stored, 32),
    "double": pa.types.is_float32,
    "timestamp_ntz": pa.types.is_date32,
}
"""For each type of a table, which types of a file have become it.

Source: Iceberg's table specification, "Schema Evolution"
"""


def _has_similar_names(fields: Sequence[pa.Field]) -> bool:
    """Return whether two fields of the same struct, at any depth, have names that differ only in case."""
    is_alike = len({field.name.lower() for field in fields}) < len(fields)
    return is_alike or any(_has_similar_names(_fields_below(field.type)) for field in fields)


def _fields_below(data_type: pa.DataType) -> Sequence[pa.Field]:
    return [data_type.field(at) for at in range(data_type.num_fields)]


def _old_type(schema: StructType, path: Path, stored: pa.DataType | None, wanted: DataType) -> DataType | None:
    """Return the type for reading a column, if it is not the table's type.

    Source: docs/spark-facts.md#pushed-filters; Spark pushes no filters on values inside arrays and maps
    """
    if stored is None:
        return None
    if isinstance(wanted, DecimalType) and stored.precision != wanted.precision:
        return DecimalType(stored.precision, stored.scale)
    return INTEGER if wanted == LONG and _is_integer(stored, 32) and is_struct_path(schema, path) else None


def _map_names(fields: Iterable[pa.Field], mapped: Iterable[MappedField]) -> Iterator[pa.Field]:
    """Yield fields with the ids that a name mapping has for their names; unmapped fields have no id.

    A column that was renamed to the name of a dropped one has both names. A file may have both columns; the first of
    the names is the older one.
    """
    fields = list(fields)
    in_file = {field.name for field in fields}
    by_name = {next((name for name in each.names if name in in_file), None): each for each in mapped}
    for field in fields:
        stored = by_name.get(field.name)
        below = stored.fields if stored is not None else ()
        inner = field.with_type(_map_names_below(field.type, below))
        yield inner if stored is None or stored.field_id is None else with_field_id(inner, stored.field_id)


def _map_names_below(data_type: pa.DataType, mapped: Iterable[MappedField]) -> pa.DataType:
    by_name = {name: each.fields for each in mapped for name in each.names}
    if pa.types.is_struct(data_type):
        return pa.struct(list(_map_names(data_type, mapped)))
    if pa.types.is_map(data_type):
        key = _map_names_below(data_type.key_type, by_name.get(KEY, ()))
        return pa.map_(key, _map_names_below(data_type.item_type, by_name.get(VALUE, ())))
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return pa.list_(_map_names_below(data_type.value_type, by_name.get(ELEMENT, ())))
    return data_type


def _is_integer(data_type: pa.DataType, bits: int) -> bool:
    return bool(pa.types.is_signed_integer(data_type) and data_type.bit_width <= bits)


def _is_text(data_type: pa.DataType) -> bool:
    # The Arrow schema in a file may ask for a view, which is the same column in Parquet.
    return any(test(data_type) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _is_bytes(data_type: pa.DataType) -> bool:
    tests = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
    return any(test(data_type) for test in tests) and not pa.types.is_decimal(data_type)


def _is_timestamp(data_type: pa.DataType, *, has_zone: bool) -> bool:
    return bool(pa.types.is_timestamp(data_type)) and (data_type.tz is not None) == has_zone


_READABLE: Mapping[str, Callable[[pa.DataType], bool]] = {
    "boolean": pa.types.is_boolean,
    "integer": lambda stored: _is_integer(stored, 32),
    "long": lambda stored: _is_integer(stored, 64),
    "float": pa.types.is_float32,
    "double": lambda stored: pa.types.is_float32(stored) or pa.types.is_float64(stored),
    "string": lambda stored: _is_text(stored) or _is_bytes(stored),
    "binary": lambda stored: _is_bytes(stored) or _is_text(stored),
    "date": pa.types.is_date32,
    "timestamp": lambda stored: _is_timestamp(stored, has_zone=True),
    "timestamp_ntz": lambda stored: _is_timestamp(stored, has_zone=False) or pa.types.is_date32(stored),
    **{name: partial(eq, kind) for name, kind in COPIED.items()},
}
"""For each type of a table, which types of a file Spark's Parquet reader makes values of it from, or Arrow copies.

Source: Iceberg's table specification, "Schema Evolution"; docs/spark-facts.md#wider-types
"""


# ---- footers ----------------------------------------------------------------------------------------


CACHED_FILES = 100_000
"""How many files the cache of schemas keeps."""

_cache: dict[str, pa.Schema] = {}
_schemas: dict[bytes, pa.Schema] = {}
_lock = Lock()


def read_schemas(session: Callable[[], Session], io: FileIO, paths: Sequence[str]) -> list[pa.Schema]:
    """Return the columns of Parquet files, in the order of the paths; files with equal columns share one object.

    Args:
        io: Opens the files; executors get a copy of it.
    """
    # Another thread may clear the caches between the two locks, so the result does not depend on them.
    with _lock:
        found = {path: _cache.get(path) for path in paths}
        new = [path for path, columns in found.items() if columns is None]
        if len(_cache) + len(new) > CACHED_FILES:
            _cache.clear()
            _schemas.clear()
    footers = list(read_files(session, partial(_read, io), new, DRIVER_SCHEMAS))
    with _lock:
        for path, fields in zip(new, footers, strict=True):
            columns = _schemas.get(fields) or _schemas.setdefault(fields, pa.ipc.read_schema(pa.py_buffer(fields)))
            found[path] = _cache[path] = columns
    return [columns for path in paths if (columns := found[path]) is not None]


def _read(io: FileIO, path: str) -> bytes:
    """Return the columns of a file in Arrow's form."""
    try:
        ensure_regular(path)
        with io.new_input(path).open() as stream:
            columns = pq.read_schema(stream)
    except FileNotFoundError as error:
        raise CorruptFile(path=path, reason="the file does not exist", fix=_FIX_FILE) from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFile(path=path, reason=first_line(error), fix=_FIX_FILE) from error
    return columns.remove_metadata().serialize().to_pybytes()  # type: ignore[no-any-return]


# Data files that tasks read with Arrow, because Spark confuses columns whose names differ only in case.
#
# Spark's Parquet reader finds columns by name without regard to case, unless the whole session compares names
# exactly.
#
# Source: docs/spark-facts.md#names


NO_CONSTANTS: Mapping[Path, Any] = {}

PLACE, POSITION = "__widen_place", "__widen_position"
"""The columns with the key of the file of a row, and with its position there."""

_PATH, _BATCH_ROWS, _MOST_TASKS = "path", 65_536, 200
_FIX_FILE = "Restore the file from a backup, or check that its store can be reached."
_CASE_FIX = "Set spark.sql.caseSensitive to true, so that Spark can read the file."


def open_with_arrow(
    spark: SparkSession, io: FileIO, schema: StructType, names: Names, keys: Mapping[str, str]
) -> DataFrame:
    """Return the rows of files in the names and types of the table, with `PLACE` and `POSITION`."""
    visible = as_nullable(visible_schema(schema))
    listed = spark.createDataFrame(pa.table({_PATH: list(keys), PLACE: list(keys.values())}))
    spread = listed.repartition(min(len(keys), _MOST_TASKS)) if len(keys) > 1 else listed
    shown = StructType((*visible, Field(PLACE, STRING), Field(POSITION, LONG)))
    return spread.mapInArrow(partial(_read_files, io, with_names_in_files(visible, names)), to_spark(shown))


def with_names_in_files(schema: StructType, names: Names, constants: Mapping[Path, Any] = NO_CONSTANTS) -> StructType:
    """Return the columns of a table with the names that files give them as physical names.

    Args:
        constants: The values of columns that the files lack, by path; null for others.
    """
    in_file = dict(names)

    def rename(at: Path, field: Field) -> Field:
        constant = {CONSTANT: constants[at]} if at in constants else {}
        return Field(field.name, field.type, metadata={PHYSICAL_NAME: in_file.get(at, field.name), **constant})

    return map_fields(schema, rename)


def _read_files(io: FileIO, stored: StructType, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for path, place in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            try:
                yield from _read_file(io, stored, path, place)
            except Unsupported as error:
                raise CorruptFile(path=path, reason=first_line(error), fix=_CASE_FIX) from error
            except (pa.ArrowException, OSError) as error:
                raise CorruptFile(path=path, reason=_reason(error), fix=_FIX_FILE) from error


def _read_file(io: FileIO, stored: StructType, path: str, place: str) -> Iterator[pa.RecordBatch]:
    schema = to_arrow_schema(stored).append(pa.field(PLACE, pa.string())).append(pa.field(POSITION, pa.int64()))
    for first, batch in _open_batches(io, path):
        count = batch.num_rows
        columns = convert_column(batch.to_struct_array(), stored, NAME).flatten()
        location = [pa.repeat(pa.scalar(place), count), count_up(count, first)]
        yield from pa.Table.from_arrays([*columns, *location], schema=schema).to_batches()


@dataclass(frozen=True)
class IcebergFileScan:
    """How this process reads columns of data files whose rows have no values outside of the files."""

    io: FileIO
    schema: StructType
    mapping: NameMapping | None
    deleted: Mapping[str, BitMap64]
    initial: Mapping[int, Any]

    @cached_property
    def _visible(self) -> StructType:
        return as_nullable(visible_schema(self.schema))

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the rows."""
        return to_arrow_schema(self._visible)

    def read_located(self, add: Add) -> Iterator[tuple[pa.Array, pa.Table]]:
        """Yield the rows of a file with their positions, some at a time, without the deleted ones.

        Raises:
            CorruptFile: the file is missing, or cannot be read.
        """
        stored = StructType()

        def choose(columns: pa.Schema) -> Sequence[str] | None:
            nonlocal stored
            found = locate_columns(columns, self.schema, self.mapping, add.path)
            constants = missing_values(self.schema, found.missing, self.initial)
            stored = with_names_in_files(self._visible, found.names, constants)
            wanted = [physical_name(field, NAME) for field in stored]
            # PyArrow takes a dot for a path.
            return None if any("." in name for name in columns.names) else [n for n in columns.names if n in wanted]

        try:
            for first, batch in _open_batches(self.io, add.path, is_exact=True, choose=choose):
                count = batch.num_rows
                if not batch.num_columns:
                    parts = [missing_column(each, count) for each in stored]
                else:
                    parts = convert_column(batch.to_struct_array(), stored, NAME).flatten()
                positions = count_up(count, first, pa.uint64())
                rows = pa.Table.from_arrays(parts, schema=self.arrow_schema)
                if add.path in self.deleted:
                    is_live = pc.invert(position_flags(self.deleted[add.path], first, count))
                    positions, rows = positions.filter(is_live), rows.filter(is_live)
                yield positions, rows
        except (pa.ArrowException, OSError) as error:
            raise CorruptFile(path=add.path, reason=_reason(error), fix=_FIX_FILE) from error


LINEAGE = StructType(
    (
        Field("_row_id", LONG, metadata={COLUMN_ID: 2147483540}),
        Field("_last_updated_sequence_number", LONG, metadata={COLUMN_ID: 2147483539}),
    )
)
"""The columns of row lineage, which a file may have.

Source: Iceberg's table specification, "Reserved Field IDs"
"""


@dataclass(frozen=True, slots=True)
class Lineage:
    """What the rows of a file inherit that does not have the columns of `LINEAGE`, or has null there.

    Args:
        first_row_id: The id of the first row; None if its rows have no ids yet.

    Source: Iceberg's table specification, "Row Lineage"
    """

    first_row_id: int | None
    sequence: int

    def fill(self, rows: pa.Table, positions: pa.Array, is_changed: pa.Array) -> pa.Table:
        """Return rows with the values of `LINEAGE`.

        Args:
            is_changed: Whether each row gets new values, so that the number of this change is not known yet.
        """
        if self.first_row_id is None:
            return _with_lineage(rows, (pa.nulls(len(rows), pa.int64()),) * 2)
        stored = [rows[field.name] for field in LINEAGE]
        ids = pc.coalesce(stored[0], pc.add(positions, self.first_row_id))
        updated = pc.coalesce(stored[1], pa.scalar(self.sequence, pa.int64()))
        return _with_lineage(rows, (ids, pc.if_else(is_changed, pa.scalar(None, pa.int64()), updated)))


def _with_lineage(rows: pa.Table, columns: Iterable[pa.Array]) -> pa.Table:
    for field, values in zip(LINEAGE, columns, strict=True):
        rows = rows.set_column(rows.schema.get_field_index(field.name), field.name, values)
    return rows


def with_new_lineage(rows: pa.Table) -> pa.Table:
    """Return new rows with the columns of `LINEAGE`: they get their ids with the commit."""
    nulls = pa.nulls(len(rows), pa.int64())
    return rows.append_column(LINEAGE.fields[0].name, nulls).append_column(LINEAGE.fields[1].name, nulls)


def read_unmarked(
    io: FileIO,
    stored: StructType,
    path: str,
    marked: BitMap64,
    replaced: pa.RecordBatch | None = None,
    lineage: Lineage | None = None,
) -> Iterator[pa.Table]:
    """Yield the rows of a file in the names and types of the table, without those at some positions.

    Args:
        replaced: New values of some columns, in the types of the table, with their positions as `ROW`, in their order.
        lineage: What the rows inherit, if the columns are also those of `LINEAGE`.

    Raises:
        CorruptFile: the file is missing, or cannot be read.
    """
    schema = to_arrow_schema(stored)
    changed = BitMap64() if replaced is None else to_bitmap(replaced[ROW])
    try:
        for first, batch in _open_batches(io, path, is_exact=True):
            is_left = pc.invert(position_flags(marked, first, batch.num_rows))
            columns = convert_column(batch.filter(is_left).to_struct_array(), stored, NAME).flatten()
            rows = pa.Table.from_arrays(columns, schema=schema)
            is_changed = position_flags(changed, first, batch.num_rows)
            if replaced is not None and (count := is_changed.true_count):
                new = replaced.slice(changed.rank(first - 1) if first else 0, count)
                rows = _replace(rows, is_changed.filter(is_left), new)
            if lineage is not None:
                positions = count_up(batch.num_rows, first).filter(is_left)
                rows = lineage.fill(rows, positions, is_changed.filter(is_left))
            yield rows
    except OSError as error:
        raise CorruptFile(path=path, reason=_reason(error), fix=_FIX_FILE) from error


def _replace(rows: pa.Table, is_changed: pa.Array, new: pa.RecordBatch) -> pa.Table:
    """Return rows with new values of some columns, which are in the order of the rows that have them."""
    numbers = pc.cumulative_sum(is_changed.cast(pa.int64()))
    chosen = pc.if_else(is_changed, pc.add(numbers, len(rows) - 1), count_up(len(rows)))
    for number, name in enumerate(rows.column_names):
        if name in new.schema.names:
            both = pa.concat_arrays([rows[name].combine_chunks(), new[name]])
            rows = rows.set_column(number, rows.schema.field(number), both.take(chosen))
    return rows


def _reason(error: Exception) -> str:
    return "the file does not exist" if isinstance(error, FileNotFoundError) else first_line(error)


def _open_batches(
    io: FileIO,
    path: str,
    *,
    is_exact: bool = False,
    choose: Callable[[pa.Schema], Sequence[str] | None] = lambda _: None,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the batches of a file, each with the position of its first row.

    Args:
        is_exact: Whether to refuse what Spark reads in another way: dates and times that it counts in the Julian
            calendar, and what only it reads.

    Raises:
        Unsupported: only Spark can read the file exactly.
    """
    first = 0
    try:
        ensure_regular(path)
        with io.new_input(path).open() as stream:
            file = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us", page_checksum_verification=True)
            if is_exact and (is_legacy(file.metadata.metadata) or _has_int96(file.metadata)):
                raise Unsupported(f"{path} may have dates of the Julian calendar")
            for batch in file.iter_batches(_BATCH_ROWS, columns=choose(file.schema_arrow)):
                yield first, batch
                first += batch.num_rows
    except (pa.ArrowException, OSError) as error:
        if is_exact and isinstance(error, pa.ArrowNotImplementedError):
            raise Unsupported(f"Arrow cannot read {path}") from error
        damage = CorruptFile(path=path, reason=_reason(error), fix=_FIX_FILE)
        raise environment_error(path, error) or damage from error


def _has_int96(metadata: pq.FileMetaData) -> bool:
    columns = (metadata.schema.column(at) for at in range(metadata.num_columns))
    return any(column.physical_type == "INT96" for column in columns)
