"""Rows of small tables as Arrow tables, read in this process without a Spark session.

Old types are cast as Delta Lake widens them, columns are found by physical names or field ids, deleted rows are left
out, and partition values come from the log. A file that this cannot read exactly is refused, and Spark reads the table
instead.

Source: PROTOCOL.md#reader-requirements-for-type-widening, #column-mapping, #deletion-vectors
"""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import date, datetime
from functools import cached_property, partial
from typing import Any
from typing import Protocol as Interface

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from widen.errors import InvalidOption
from widen.files.arrow_types import count_up, stored_type, to_arrow, to_arrow_schema
from widen.files.deleted_rows import load_vector
from widen.files.footers import names_by_id, open_data_file
from widen.log.file_list import to_adds
from widen.log.log_store import LogStore
from widen.log.parquet_footers import ensure_chunks_readable
from widen.log.snapshot import Snapshot
from widen.model.column_path import map_fields
from widen.model.types import (
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    Field,
    MapType,
    StructType,
    name_keys,
    plain_name,
)
from widen.model.value_classes import dataclass
from widen.proof.column_digests import TableDigest, digest_batches
from widen.protocol.actions import Add
from widen.protocol.column_mapping import ID, NAME, NONE, PHYSICAL_NAME, physical_name
from widen.protocol.column_metadata import char_lengths, has_limits, text_limit, to_declared
from widen.protocol.parquet_files import is_legacy, is_legacy_int96
from widen.protocol.partition_values import UnknownValue, parse_partition_value
from widen.protocol.type_widening import ensure_changes_readable
from widen.spark.engine import LocalFrame, Session, Unsupported, as_unsupported, fail_if_unsupported, start_tasks

_BATCH_ROWS = 65_536
_INT96 = "INT96"


@dataclass(frozen=True)
class RowSlice:
    """Rows of one file.

    Args:
        first_byte: Only row groups that begin at this byte or later are read.
        end_byte: Only row groups that begin before this byte are read; None for no limit.
        kept: The same file in another version, whose rows are left out; None to leave out none.
    """

    file: Add
    first_byte: int = 0
    end_byte: int | None = None
    kept: Add | None = None
    marked: BitMap64 | None = None


@dataclass(frozen=True)
class LocalScan:
    """How this process reads the files of a table. Picklable.

    Args:
        partition_keys: The keys of the partition values in file actions, by column.
    """

    store: LogStore
    schema: StructType
    mode: str
    partition_keys: Mapping[str, str]

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The schema of the batches."""
        return to_arrow_schema(self.schema)

    @cached_property
    def _padded(self) -> Mapping[str, DataType]:
        """The declared types of columns with char(n), by name."""
        names = {path[0] for path in char_lengths(self.schema)}
        return {field.name: to_declared(field).type for field in self.schema if field.name in names}

    def read(self, rows: RowSlice) -> Iterator[pa.Table]:
        """Yield the rows of a slice, in the order of the file."""
        return (chosen for _, chosen in self.read_numbered(rows))

    def read_numbered(self, rows: RowSlice) -> Iterator[tuple[pa.Array, pa.Table]]:
        """Yield the rows of a slice with their positions, some at a time, in the order of the file."""
        with self._open(rows.file) as (found, file):
            deleted, others = _load(self.store, rows.file), _load(self.store, rows.kept)
            deleted |= rows.marked or BitMap64()
            for first, batch in _batches(file, rows, found._stored_names(file)):
                positions, chosen = count_up(batch.num_rows, first, pa.uint64()), batch
                if deleted or rows.kept is not None:
                    is_chosen = pc.invert(position_flags(deleted, first, batch.num_rows))
                    if rows.kept is not None:
                        is_chosen = pc.and_(is_chosen, position_flags(others, first, batch.num_rows))
                    positions, chosen = positions.filter(is_chosen), batch.filter(is_chosen)
                yield positions, found._in_table_types(file, chosen, rows.file, len(positions))

    def read_located(self, add: Add) -> Iterator[tuple[pa.Array, pa.Table]]:
        """Yield the rows of a file with their positions, a row group at a time, without the deleted ones."""
        with self._open(add) as (found, file):
            deleted, names, first = _load(self.store, add), found._stored_names(file), 0
            gone = pa.array(deleted.to_array(), pa.uint64()) if deleted else None
            for number in range(file.metadata.num_row_groups):
                count = file.metadata.row_group(number).num_rows
                positions = count_up(count, first, pa.uint64())
                first += count
                rows = _without_views(file.read_row_group(number, columns=names))
                if gone is not None:
                    is_live = pc.invert(pc.is_in(positions, value_set=gone))
                    positions, rows = positions.filter(is_live), rows.filter(is_live)
                yield positions, found._in_table_types(file, rows, add, len(positions))

    def read_marked(self, add: Add, marked: BitMap64) -> Iterator[tuple[pa.Array, pa.Table]]:
        """Yield the rows of a file, some at a time and without the deleted ones, with whether a bitmap has the position
        of each row.
        """
        with self._open(add) as (found, file):
            deleted = _load(self.store, add)
            for first, batch in _batches(file, RowSlice(add)):
                flags, rows = position_flags(marked, first, batch.num_rows), batch
                if deleted:
                    is_live = pc.invert(position_flags(deleted, first, batch.num_rows))
                    flags, rows = flags.filter(is_live), batch.filter(is_live)
                yield flags, found._in_table_types(file, rows, add, len(flags))

    @contextmanager
    def _open(self, add: Add) -> Iterator[tuple[LocalScan, pq.ParquetFile]]:
        """Open a file, and say how it is read: by the names that it gives to the columns."""
        with open_data_file(self.store, self.store.plain(add.path)) as opened:
            # Old writers store times as INT96. Arrow reads those as nanoseconds by default, which end in the year 2262.
            file = pq.ParquetFile(opened, coerce_int96_timestamp_unit="us", page_checksum_verification=True)
            if is_legacy(file.metadata.metadata):
                raise Unsupported(f"{add.path} has dates of the Julian calendar")
            with as_unsupported(pa.ArrowNotImplementedError, reason=f"Arrow cannot read {add.path}"):
                yield self._named_as_in(file, add), file

    def _named_as_in(self, file: pq.ParquetFile, add: Add) -> LocalScan:
        if self.mode != ID:
            return self
        names = dict(names_by_id(file.schema_arrow, self.schema, self.store.plain(add.path)))
        named = map_fields(
            self.schema,
            lambda path, field: field.with_metadata(**{PHYSICAL_NAME: names[path]}) if path in names else field,
        )
        return replace(self, schema=named, mode=NAME)

    def _stored_names(self, file: pq.ParquetFile) -> list[str] | None:
        """Return the names of the columns to read; None for all, because PyArrow takes a dot for a path."""
        stored = file.schema_arrow.names
        if any("." in name for name in stored):
            return None
        wanted = {key for field in self.schema for key in name_keys(physical_name(field, self.mode))}
        # Also what is spelled differently: it decides whether only Spark can read the file.
        return [name for name in stored if not wanted.isdisjoint(name_keys(name))]

    def _in_table_types(self, file: pq.ParquetFile, stored: pa.Table, add: Add, count: int) -> pa.Table:
        stored = _with_zones(file, stored)
        values = {name: add.partition_values.get(key) for name, key in self.partition_keys.items()}
        found = _StoredColumns({name: stored.column(name) for name in stored.column_names}, self.mode)
        columns = [_column(field, found, values, count) for field in self.schema]
        columns = [
            pad_texts(column, self._padded.get(field.name)) for column, field in zip(columns, self.schema, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=self.arrow_schema)


def plan_local_scan(snapshot: Snapshot) -> LocalScan:
    """Return how to read the files of a version in this process.

    Raises:
        Unsupported: only Spark can read the table exactly.
    """
    ensure_changes_readable(snapshot.schema)
    keys = dict(zip(snapshot.partition_columns, snapshot.partition_keys, strict=True))
    scan = LocalScan(snapshot.store, snapshot.schema, snapshot.configuration.mapping, keys)
    with as_unsupported(InvalidOption):
        _ = scan.arrow_schema
    return scan


def read_locally(snapshot: Snapshot, limit: int | None = None) -> pa.Table:
    """Return the rows of a version in its current types, in the order of its files."""
    scan = plan_local_scan(snapshot)
    tables, rows = [scan.arrow_schema.empty_table()], 0
    for part in (part for file in to_adds(snapshot.files()) for part in scan.read(RowSlice(file))):
        tables.append(part)
        rows += part.num_rows
        if limit is not None and rows >= limit:
            break
    whole = pa.concat_tables(tables)
    return whole if limit is None else whole.slice(0, min(limit, rows))


def read_in_tasks(spark: Session, snapshot: Snapshot, only: Collection[str] | None = None) -> LocalFrame:
    """Return the rows of a version as a frame of this process, with a task for each file.

    Args:
        spark: A session of this process; see `widen.spark.engine.is_local`.
    """
    scan, files = plan_local_scan(snapshot), snapshot.files()
    if only is not None:
        files = files.filter(pc.is_in(files["path"], value_set=pa.array(only, pa.string())))
    adds = [msgspec.structs.replace(add, stats=None, tags=None) for add in to_adds(files)]
    numbers: LocalFrame = start_tasks(spark, len(adds))
    return numbers.mapInArrow(partial(_read_files, scan, adds), None)


def _read_files(scan: LocalScan, files: Sequence[Add], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    numbers = (number for batch in batches for number in batch.column(0).to_pylist())
    with fail_if_unsupported():
        for rows in (rows for number in numbers for rows in scan.read(RowSlice(files[number]))):
            yield from rows.to_batches()


def digest_locally(snapshot: Snapshot) -> TableDigest:
    """Return the digest of the rows of a version, read batch by batch."""
    scan = plan_local_scan(snapshot)
    parts = (part for file in to_adds(snapshot.files()) for part in scan.read(RowSlice(file)))
    return digest_batches(parts, scan.arrow_schema.names)


def _batches(
    file: pq.ParquetFile, rows: RowSlice, columns: Sequence[str] | None = None
) -> Iterator[tuple[int, pa.Table]]:
    """Yield the batches of the row groups of a slice, each with the position of its first row in the file."""
    position, is_whole = 0, not rows.first_byte and rows.end_byte is None
    if not is_whole:
        ensure_chunks_readable(file.metadata)
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        begin, first = 0 if is_whole else _first_byte(group), position
        position += group.num_rows
        if begin < rows.first_byte or (rows.end_byte is not None and begin >= rows.end_byte):
            continue
        for batch in file.iter_batches(_BATCH_ROWS, row_groups=[number], columns=columns):
            yield first, _without_views(pa.Table.from_batches([batch]))
            first += batch.num_rows


def _without_views(rows: pa.Table) -> pa.Table:
    """Return rows without views of strings, which a file of DataFusion asks for and Arrow cannot filter."""
    if not any(map(_has_view, rows.schema.types)):
        return rows
    fields = [field.with_type(stored_type(field.type)) for field in rows.schema]
    return rows.cast(pa.schema(fields, rows.schema.metadata))


def _has_view(kind: pa.DataType) -> bool:
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return True
    return any(_has_view(kind.field(number).type) for number in range(kind.num_fields))


def _first_byte(group: pq.RowGroupMetaData) -> int:
    if not group.num_columns:
        return 0
    column = group.column(0)
    return int(column.dictionary_page_offset or column.data_page_offset)


def _load(store: LogStore, file: Add | None) -> BitMap64:
    return load_vector(store, file.deletion_vector) if file and file.deletion_vector else BitMap64()


def position_flags(bitmap: BitMap64, first: int, count: int) -> pa.Array:
    """Return for each position of a batch, from the first one on, whether a bitmap has it."""
    inside = (bitmap & BitMap64(range(first, first + count)) if bitmap else bitmap).to_array()
    positions = pa.Array.from_buffers(pa.uint64(), len(inside), [None, pa.py_buffer(inside)])
    return pc.is_in(count_up(count, 0, pa.uint64()), value_set=pc.subtract(positions, pa.scalar(first, pa.uint64())))


def _with_zones(file: pq.ParquetFile, rows: pa.Table) -> pa.Table:
    """Return rows whose timestamps are in UTC where they are stored as INT96, which has no zone in Parquet."""
    columns = (file.metadata.schema.column(index) for index in range(file.metadata.num_columns))
    zoned = {column.path for column in columns if column.physical_type == _INT96}
    if zoned and is_legacy_int96(file.metadata.metadata):
        raise Unsupported("the file has timestamps of the Julian calendar")
    for index, name in enumerate(rows.column_names):
        if name in zoned:
            rows = rows.set_column(index, name, rows.column(name).cast(pa.timestamp("us", tz="UTC")))
    return rows


@dataclass(frozen=True)
class _StoredColumns:
    """Columns, or the fields of a struct, by their names in a file."""

    by_name: Mapping[str, Any]
    mode: str

    def find(self, field: Field) -> Any | None:
        """Return the values of a field; None if the file does not have it."""
        name = physical_name(field, self.mode)
        values = self.by_name.get(name)
        if values is None and not self._keys.isdisjoint(name_keys(name)):
            raise Unsupported(f"the file spells the column {name} differently")  # Spark may take it for the same column
        return values

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(key for name in self.by_name for key in name_keys(name))


def _column(field: Field, stored: _StoredColumns, partition: Mapping[str, str | None], count: int) -> pa.Array:
    if field.name in partition:
        return _partition_column(field, partition[field.name], count)
    values = stored.find(field)
    if values is None:
        return pa.nulls(count, to_arrow(field.type))
    return convert_column(_one_array(values), field.type, stored.mode)


def _partition_column(field: Field, text: str | None, count: int) -> pa.Array:
    return pa.repeat(_partition_values(field, [text])[0], count)


def _partition_values(field: Field, texts: Sequence[str | None]) -> pa.Array:
    values = [parse_partition_value(text, field.type) for text in texts]
    for text, value in zip(texts, values, strict=True):
        if isinstance(value, UnknownValue):
            raise Unsupported(f"it reads the partition value {text!r} of {field.name}")
    return pa.array(values, to_arrow(field.type))


def partition_table(schema: StructType, partitions: Sequence[Sequence[str | None]]) -> pa.Table:
    """Return partitions as rows."""
    columns = [
        pad_texts(_partition_values(field, texts), to_declared(field).type)
        for field, texts in zip(schema, zip(*partitions, strict=True), strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=to_arrow_schema(schema))


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array that starts at its first value."""
    chunks = column.chunks
    return pa.concat_arrays(chunks) if chunks else pa.array([], column.type)


def convert_column(values: pa.Array, data_type: DataType, mode: str = NONE) -> pa.Array:
    """Return values of the same or a narrower type in another type; missing fields of structs get their `CONSTANT`.

    Args:
        mode: The mode of column mapping: whether the values have the physical names of the type.
    """
    match data_type:
        case StructType(fields):
            return _struct(values, fields, mode)
        case ArrayType(element):
            lengths = pc.fill_null(pc.list_value_length(values), 0)
            items = convert_column(values.flatten(), element, mode)
            return pa.ListArray.from_arrays(_offsets(lengths), items, mask=pc.is_null(values))
        case MapType(key, value):
            return _map(values, key, value, mode)
    return _cast(values, to_arrow(data_type))


def pad_texts(values: pa.Array, declared: DataType | None) -> pa.Array:
    """Return a column whose texts of char(n) have at least n characters.

    Args:
        declared: The type of the column as it was declared; None if nothing is padded.
    """
    match declared:
        case StructType(fields) if has_limits(declared):
            parts = [pad_texts(part, field.type) for part, field in zip(values.flatten(), fields, strict=True)]
            return pa.StructArray.from_arrays(parts, fields=[*values.type], mask=pc.is_null(values))
        case ArrayType(element) if has_limits(declared):
            lengths = pc.fill_null(pc.list_value_length(values), 0)
            items = pad_texts(values.flatten(), element)
            return pa.ListArray.from_arrays(_offsets(lengths), items, mask=pc.is_null(values))
        case MapType() if has_limits(declared):
            raise Unsupported("it has maps with char(n)")
    limit = None if declared is None else text_limit(declared)
    return pc.utf8_rpad(values, limit[1], " ") if limit and limit[0] == "char" else values


CONSTANT = "widen.constant"
"""Metadata key: the value of every row of a file that lacks the column; null without it."""


def missing_column(field: Field, count: int) -> pa.Array:
    """Return a column that a file lacks."""
    return pa.repeat(pa.scalar(field.metadata.get(CONSTANT), to_arrow(field.type)), count)


def _struct(values: pa.Array, fields: tuple[Field, ...], mode: str) -> pa.Array:
    if not pa.types.is_struct(values.type):
        raise Unsupported(f"a struct is stored as {values.type}")
    stored = _StoredColumns({each.name: part for each, part in zip(values.type, values.flatten(), strict=True)}, mode)
    parts = [
        missing_column(field, len(values)) if found is None else convert_column(found, field.type, mode)
        for field, found in ((field, stored.find(field)) for field in fields)
    ]
    arrow_fields = [pa.field(field.name, to_arrow(field.type)) for field in fields]
    return pa.StructArray.from_arrays(parts, fields=arrow_fields, mask=pc.is_null(values))


def _map(values: pa.Array, key: DataType, value: DataType, mode: str) -> pa.Array:
    """Return a map from its entries, which do not include those behind a null."""
    entries = values.cast(pa.list_(pa.struct([("key", values.type.key_type), ("value", values.type.item_type)])))
    lengths, parts = pc.fill_null(pc.list_value_length(entries), 0), entries.flatten().flatten()
    keys, items = convert_column(parts[0], key, mode), convert_column(parts[1], value, mode)
    offsets = _offsets(lengths)
    if values.null_count:
        is_null = pa.concat_arrays([pc.is_null(values), pa.array([False])])
        offsets = pc.if_else(is_null, pa.scalar(None, pa.int32()), offsets)
    return pa.MapArray.from_arrays(offsets, keys, items)


def _offsets(lengths: pa.Array) -> pa.Array:
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths.cast(pa.int32()))])


def _cast(values: pa.Array, target: pa.DataType) -> pa.Array:
    values = values.storage if isinstance(values, pa.ExtensionArray) else values
    if values.type == target:
        return values
    if not _is_widening(values.type, target):
        raise Unsupported(f"{target} is stored as {values.type}")
    return values.cast(target)


def _is_widening(stored: pa.DataType, target: pa.DataType) -> bool:
    """Return whether Arrow casts a stored type exactly as Delta Lake widens it."""
    is_exact: bool = any(old(stored) and new(target) for old, new in _CASTS)
    return is_exact


def _is_int_of_32_bits(stored: pa.DataType) -> bool:
    return pa.types.is_integer(stored) and bool(stored.bit_width <= 32)


def _is_timestamp_without_zone(target: pa.DataType) -> bool:
    return pa.types.is_timestamp(target) and target.tz is None


_CASTS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType], bool]], ...] = (
    (pa.types.is_integer, pa.types.is_integer),
    (pa.types.is_integer, pa.types.is_decimal),
    (_is_int_of_32_bits, pa.types.is_float64),
    (pa.types.is_float32, pa.types.is_float64),
    (pa.types.is_decimal, pa.types.is_decimal),
    (pa.types.is_date32, _is_timestamp_without_zone),
    (pa.types.is_fixed_size_binary, pa.types.is_binary),
    (pa.types.is_large_binary, pa.types.is_binary),
    (pa.types.is_large_string, pa.types.is_string),
)
"""The stored types and the types of columns that Arrow casts exactly."""


def find_leaf(rows: pa.Table, place: Sequence[str]) -> pa.ChunkedArray:
    """Return a column, or a field of a struct; names are compared without regard to case."""
    values = rows.column(_find_same(rows.column_names, place[0]))
    for step in place[1:]:
        # A field of a null struct is null, regardless of what is stored behind it.
        field = pc.struct_field(values, _find_same([each.name for each in values.type], step))
        values = pc.if_else(values.is_valid(), field, None)
    return values


def _find_same(names: Sequence[str], name: str) -> int:
    return names.index(name) if name in names else [each.lower() for each in names].index(name.lower())


# Rows as JSON; `widen.files.expressions` evaluates `widen read` with it.
#
# Do only what gives the same result as Spark; raise `Unsupported` for the rest, so that Spark does it. The JSON equals
# Spark's ``to_json``, with all digits of times, in UTC, and with nulls.
#
# Source: Spark's to_json and its JSON options; Java's Double.toString


Encoder = Callable[[Any], str]

NO_SUCH_YEAR = "a date or time is not between the years 1 and 9999"
"""Why Python does not have a value."""


def json_lines(schema: StructType, rows: pa.Table) -> Iterator[str]:
    """Yield each row as a JSON object, as Spark's ``to_json`` writes it in UTC, nulls included.

    Raises:
        Unsupported: Spark writes a type, or a date out of Python's range, differently.
    """
    encode = _encoder(schema)
    with as_unsupported(OverflowError, ValueError, reason=NO_SUCH_YEAR):
        for batch in rows.to_batches(max_chunksize=1_000):
            yield from map(encode, batch.to_pylist())


def record_texts(schema: StructType, rows: pa.Table) -> list[str]:
    """Return each row as a JSON object without the null fields of records; see `json_lines`.

    Raises:
        Unsupported: Spark writes a type, or a date out of Python's range, differently.
    """
    encode = _encoder(schema, has_nulls=False)
    with as_unsupported(OverflowError, ValueError, reason=NO_SUCH_YEAR):
        return list(map(encode, rows.to_pylist()))


def _encoder(data_type: DataType, *, has_nulls: bool = True) -> Encoder:
    inner = partial(_encoder, has_nulls=has_nulls)
    match data_type:
        case StructType(fields):
            names = [_encode_text(field.name) for field in fields]
            parts = [*zip(fields, names, map(inner, (field.type for field in fields)), strict=True)]
            return partial(_encode_struct, parts, has_nulls)
        case ArrayType(element):
            return partial(_encode_list, inner(element))
        case MapType(key, value) if plain_name(key) in _KEYS:
            return partial(_encode_map, _KEYS[plain_name(key)], inner(value))
        case DecimalType():
            return partial(_or_null, str)
        case _ if data_type == VOID:
            return lambda _: "null"
        case _ if data_type == VARIANT and not has_nulls:  # documents have it as JSON
            return partial(_or_null, str)
    encode = _SCALARS.get(plain_name(data_type))
    if encode is None:
        raise Unsupported(f"it shows values of the type {data_type.sql}")
    return partial(_or_null, encode)


def _or_null(encode: Encoder, value: Any) -> str:
    return "null" if value is None else encode(value)


def _encode_struct(fields: Sequence[tuple[Field, str, Encoder]], has_nulls: bool, value: Any) -> str:
    if value is None:
        return "null"
    given = ((name, encode, value[field.name]) for field, name, encode in fields)
    return (
        "{" + ",".join(f"{name}:{encode(each)}" for name, encode, each in given if has_nulls or each is not None) + "}"
    )


def _encode_list(encode: Encoder, value: Any) -> str:
    return "null" if value is None else f"[{','.join(map(encode, value))}]"


def _encode_map(encode_key: Encoder, encode: Encoder, value: Any) -> str:
    if value is None:
        return "null"
    return "{" + ",".join(f"{encode_key(key)}:{encode(each)}" for key, each in value) + "}"


def _encode_text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _encode_as_text(key: Any) -> str:
    return f'"{_SCALARS["boolean"](key) if isinstance(key, bool) else key}"'


_KEYS: Mapping[str, Encoder] = {
    "string": _encode_text,
    **dict.fromkeys(("boolean", "byte", "short", "integer", "long"), _encode_as_text),
}
"""How keys of maps are written."""


def java_number(value: float, shortest: str) -> str:
    """Return a floating-point number as Java writes it.

    Args:
        shortest: Its shortest form that reads back, as Python writes it.

    Example:
        >>> java_number(1e10, "10000000000.0"), java_number(0.0001, "0.0001"), java_number(1.0, "1.0")
        ('1.0E10', '1.0E-4', '1.0')
    """
    if value != value or value in (float("inf"), float("-inf")):
        return '"NaN"' if value != value else '"Infinity"' if value > 0 else '"-Infinity"'
    sign, digits, exponent = _split_number(shortest)
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        at = exponent + 1
        whole, rest = digits[: max(at, 0)].ljust(at, "0"), "0" * -min(at, 0) + digits[max(at, 0) :]
        return f"{sign}{whole or '0'}.{rest or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _split_number(text: str) -> tuple[str, str, int]:
    """Return the sign, the digits, and the power of ten of the first one."""
    sign, text = ("-", text[1:]) if text.startswith("-") else ("", text)
    mantissa, _, power = text.partition("e")
    whole, _, rest = mantissa.partition(".")
    digits = (whole + rest).lstrip("0")
    first = len(whole) - 1 - (len(whole + rest) - len(digits))
    return sign, digits.rstrip("0") or "0", (first if digits else 0) + int(power or 0)


def java_float(value: float) -> str:
    """Return a number of 32 bits as Java writes it; see `java_number`."""
    if value != value or value in (float("inf"), float("-inf")):
        return java_number(value, "")
    shortest = next(each for each in (f"{value:.{digits}g}" for digits in range(1, 10)) if _as_float(each) == value)
    return java_number(value, shortest)


def _as_float(text: str) -> float:
    """Return a number of 32 bits."""
    number: float = struct.unpack("f", struct.pack("f", float(text)))[0]
    return number


def _encode_time(value: datetime) -> str:
    zone = "Z" if value.tzinfo is not None else ""
    day, _, time = value.replace(tzinfo=None).isoformat(timespec="microseconds").partition("T")
    return f'"{day}T{time}{zone}"'


def _encode_date(value: date) -> str:
    return f'"{value.isoformat()}"'


_SCALARS: Mapping[str, Encoder] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), str),
    "boolean": lambda value: "true" if value else "false",
    "string": _encode_text,
    "double": lambda value: java_number(value, repr(value)),
    "float": java_float,
    "binary": lambda value: f'"{b64encode(value).decode()}"',
    "date": _encode_date,
    "timestamp": _encode_time,
    "timestamp_ntz": _encode_time,
}


class FileScan(Interface):
    """How this process reads columns of the files of a table. Picklable."""

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns of the rows."""

    def read_located(self, add: Add) -> Iterator[tuple[pa.Array, pa.Table]]:
        """Yield the rows of a file with their positions, some at a time, without the deleted ones."""
