"""Rows of small tables as Arrow tables, read in this process without a Spark session.

Old types are cast as Delta Lake widens them, columns are found by their physical names, deleted rows are left out, and
partition values come from the log. A file that this cannot read exactly is refused, and Spark reads the table instead.

Source: PROTOCOL.md#reader-requirements-for-type-widening, #column-mapping, #deletion-vectors
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyroaring import BitMap64

from widen.errors import EngineUnsuitable, InvalidOption
from widen.log.file_list import to_adds
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot
from widen.model.types import ArrayType, DataType, Field, MapType, StructType, is_same_name
from widen.proof.column_digests import TableDigest, digest_batches
from widen.protocol.actions import Add
from widen.protocol.column_mapping import ID, NONE, physical_name
from widen.protocol.parquet_files import is_legacy, is_legacy_int96
from widen.protocol.partition_values import UnknownValue, parse_partition_value
from widen.protocol.type_widening import ensure_changes_readable
from widen.spark.arrow_types import to_arrow, to_arrow_schema
from widen.spark.engine import LocalFrame
from widen.spark.read.deleted_rows import load_vector
from widen.spark.read.parquet_footer import open_data_file
from widen.spark.spark_types import SparkSession

_BATCH_ROWS = 65_536
_INT96 = "INT96"


class NotLocal(Exception):
    """Only Spark can read a file or a column exactly; the text says why."""


@dataclass(frozen=True)
class RowSlice:
    """Rows of one file.

    Args:
        first_byte: Only row groups that begin at this byte or later are read.
        end_byte: Only row groups that begin before this byte are read; None for no limit.
        kept: The same file in another version, whose rows are left out; None to leave out none.
        marked: Positions of more rows that are left out.
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
        schema: The columns to return, with the metadata of column mapping.
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

    def read(self, rows: RowSlice) -> Iterator[pa.Table]:
        """Yield the rows of a slice, in the order of the file.

        Raises:
            NotLocal: only Spark can read the file exactly.
            CorruptFile: the file or a deletion vector cannot be read.
        """
        with self._open(rows.file) as file:
            deleted, others = _load(self.store, rows.file), _load(self.store, rows.kept)
            deleted |= rows.marked or BitMap64()
            for first, batch in _batches(file, rows):
                chosen = batch
                if deleted or rows.kept is not None:
                    is_chosen = pc.invert(_flags(deleted, first, batch.num_rows))
                    if rows.kept is not None:
                        is_chosen = pc.and_(is_chosen, _flags(others, first, batch.num_rows))
                    chosen = batch.filter(is_chosen)
                yield self._in_table_types(file, chosen, rows.file, chosen.num_rows)

    def read_located(self, add: Add) -> Iterator[tuple[pa.Array, pa.Table]]:
        """Yield the rows of a file with their positions, a row group at a time, without the deleted ones.

        Raises:
            NotLocal: only Spark can read the file exactly.
            CorruptFile: the file or a deletion vector cannot be read.
        """
        with self._open(add) as file:
            deleted, names, first = _load(self.store, add), self._stored_names(file), 0
            gone = pa.array(deleted.to_array(), pa.uint64()) if deleted else None
            for number in range(file.metadata.num_row_groups):
                count = file.metadata.row_group(number).num_rows
                positions = pa.array(range(first, first + count), pa.uint64())
                first += count
                rows = file.read_row_group(number, columns=names)
                if gone is not None:
                    is_live = pc.invert(pc.is_in(positions, value_set=gone))
                    positions, rows = positions.filter(is_live), rows.filter(is_live)
                yield positions, self._in_table_types(file, rows, add, len(positions))

    @contextmanager
    def _open(self, add: Add) -> Iterator[pq.ParquetFile]:
        with open_data_file(self.store, self.store.plain(add.path)) as opened:
            # Old writers store times as INT96. Arrow reads those as nanoseconds by default, which end in the year 2262.
            file = pq.ParquetFile(opened, coerce_int96_timestamp_unit="us", page_checksum_verification=True)
            if is_legacy(file.metadata.metadata):
                raise NotLocal(f"{add.path} has dates of the Julian calendar")
            yield file

    def _stored_names(self, file: pq.ParquetFile) -> list[str] | None:
        """Return the names of the columns to read; None for all, because PyArrow takes a dot for a path."""
        stored = file.schema_arrow.names
        if any("." in name for name in stored):
            return None
        wanted = [physical_name(field, self.mode) for field in self.schema]
        # Also what is spelled differently: it decides whether only Spark can read the file.
        return [name for name in stored if any(is_same_name(name, each) for each in wanted)]

    def _in_table_types(self, file: pq.ParquetFile, stored: pa.Table, add: Add, count: int) -> pa.Table:
        stored = _with_zones(file, stored)
        values = {name: add.partition_values.get(key) for name, key in self.partition_keys.items()}
        columns = [_column(field, stored, self.mode, values, count) for field in self.schema]
        return pa.Table.from_arrays(columns, schema=self.arrow_schema)


def plan_local_scan(snapshot: Snapshot) -> LocalScan:
    """Return how to read the files of a version in this process.

    Raises:
        NotLocal: only Spark can read the table exactly.
        UnsupportedTypeChange: the schema records a type change that the protocol does not allow.
    """
    ensure_changes_readable(snapshot.schema)
    mode = snapshot.configuration.mapping
    if mode == ID:
        raise NotLocal("columns are found by field id")
    keys = dict(zip(snapshot.partition_columns, snapshot.partition_keys, strict=True))
    scan = LocalScan(snapshot.store, snapshot.schema, mode, keys)
    try:
        _ = scan.arrow_schema
    except InvalidOption as error:
        raise NotLocal(error.message) from error
    return scan


def read_locally(snapshot: Snapshot, limit: int | None = None) -> pa.Table:
    """Return the rows of a version in its current types, in the order of its files.

    Raises:
        NotLocal: only Spark can read the table exactly.
        UnsupportedTypeChange: the schema records a type change that the protocol does not allow.
    """
    scan = plan_local_scan(snapshot)
    tables, rows = [scan.arrow_schema.empty_table()], 0
    for part in (part for file in to_adds(snapshot.files()) for part in scan.read(RowSlice(file))):
        tables.append(part)
        rows += part.num_rows
        if limit is not None and rows >= limit:
            break
    whole = pa.concat_tables(tables)
    return whole if limit is None else whole.slice(0, min(limit, rows))


def read_in_tasks(spark: SparkSession, snapshot: Snapshot, only: Collection[str] | None = None) -> LocalFrame:
    """Return the rows of a version as a frame of this process, with a task for each file.

    Args:
        spark: A session for which `widen.spark.engine.is_local` holds.
        only: The files to read, by their paths in the log; by default all files of the version.

    Raises:
        NotLocal: only Spark can read the table exactly.
    """
    scan, files = plan_local_scan(snapshot), snapshot.files()
    if only is not None:
        files = files.filter(pc.is_in(files["path"], value_set=pa.array(only, pa.string())))
    adds = [msgspec.structs.replace(add, stats=None, tags=None) for add in to_adds(files)]
    numbers = cast(LocalFrame, spark.range(0, len(adds), 1, len(adds)))
    return numbers.mapInArrow(partial(_read_files, scan, adds), None)


def _read_files(scan: LocalScan, files: Sequence[Add], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    numbers = (number for batch in batches for number in batch.column(0).to_pylist())
    try:
        for rows in (rows for number in numbers for rows in scan.read(RowSlice(files[number]))):
            yield from rows.to_batches()
    except NotLocal as error:
        raise EngineUnsuitable(reason=str(error)) from error


def digest_locally(snapshot: Snapshot) -> TableDigest:
    """Return the digest of the rows of a version, read batch by batch.

    Raises:
        NotLocal: only Spark can read the table exactly.
    """
    scan = plan_local_scan(snapshot)
    parts = (part for file in to_adds(snapshot.files()) for part in scan.read(RowSlice(file)))
    return digest_batches(parts, scan.arrow_schema.names)


def _batches(file: pq.ParquetFile, rows: RowSlice) -> Iterator[tuple[int, pa.Table]]:
    """Yield the batches of the row groups of a slice, each with the position of its first row in the file."""
    position = 0
    for number in range(file.metadata.num_row_groups):
        group = file.metadata.row_group(number)
        begin, first = _first_byte(group), position
        position += group.num_rows
        if begin < rows.first_byte or (rows.end_byte is not None and begin >= rows.end_byte):
            continue
        for batch in file.iter_batches(_BATCH_ROWS, row_groups=[number]):
            yield first, pa.Table.from_batches([batch])
            first += batch.num_rows


def _first_byte(group: pq.RowGroupMetaData) -> int:
    if not group.num_columns:
        return 0
    column = group.column(0)
    return int(column.dictionary_page_offset or column.data_page_offset)


def _load(store: LogStore, file: Add | None) -> BitMap64:
    return load_vector(store, file.deletion_vector) if file and file.deletion_vector else BitMap64()


def _flags(bitmap: BitMap64, first: int, count: int) -> pa.Array:
    """Return for each position of a batch, from the first one on, whether a bitmap has it."""
    inside = (bitmap & BitMap64(range(first, first + count)) if bitmap else bitmap).to_array()
    positions = pa.Array.from_buffers(pa.uint64(), len(inside), [None, pa.py_buffer(inside)])
    return pc.is_in(_numbers().slice(0, count), value_set=pc.subtract(positions, pa.scalar(first, pa.uint64())))


@cache
def _numbers() -> pa.Array:
    """Return the numbers of the rows of a batch. To make them takes longer than to look them up."""
    return pa.array(range(_BATCH_ROWS), pa.uint64())


def _with_zones(file: pq.ParquetFile, rows: pa.Table) -> pa.Table:
    """Return rows whose timestamps are in UTC where they are stored as INT96, which has no zone in Parquet."""
    columns = (file.metadata.schema.column(index) for index in range(file.metadata.num_columns))
    zoned = {column.path for column in columns if column.physical_type == _INT96}
    if zoned and is_legacy_int96(file.metadata.metadata):
        raise NotLocal("timestamps of the Julian calendar")
    for index, name in enumerate(rows.column_names):
        if name in zoned:
            rows = rows.set_column(index, name, rows.column(name).cast(pa.timestamp("us", tz="UTC")))
    return rows


def _column(field: Field, rows: pa.Table, mode: str, partition: Mapping[str, str | None], count: int) -> pa.Array:
    """Return a column.

    Args:
        count: The number of rows, which a table without columns does not have.
    """
    if field.name in partition:
        return _partition_column(field, partition[field.name], count)
    name = _stored_name(field, rows.column_names, mode)
    if name is None:
        return pa.nulls(count, to_arrow(field.type))
    return convert_column(_one_array(rows.column(name)), field.type, mode)


def _stored_name(field: Field, stored: Collection[str], mode: str) -> str | None:
    """Return the name of a field in a file, or None if the file does not have it."""
    name = physical_name(field, mode)
    if name in stored:
        return name
    if any(is_same_name(other, name) for other in stored):
        raise NotLocal(f"the file spells the column {name} differently")  # Spark may take it for the same column
    return None


def _partition_column(field: Field, text: str | None, count: int) -> pa.Array:
    value = parse_partition_value(text, field.type)
    if isinstance(value, UnknownValue):
        raise NotLocal(f"the partition value {text!r} of {field.name}")
    return pa.repeat(pa.scalar(value, to_arrow(field.type)), count)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array that starts at its first value."""
    chunks = column.chunks
    return pa.concat_arrays(chunks) if chunks else pa.array([], column.type)


def convert_column(values: pa.Array, data_type: DataType, mode: str = NONE) -> pa.Array:
    """Return values of the same or a narrower type in another type; missing fields of structs become null.

    Args:
        mode: The mode of column mapping: whether the values have the physical names of the type.

    Raises:
        NotLocal: Arrow does not convert the values exactly.
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


def _struct(values: pa.Array, fields: tuple[Field, ...], mode: str) -> pa.Array:
    if not pa.types.is_struct(values.type):
        raise NotLocal(f"a struct is stored as {values.type}")
    stored = {values.type.field(index).name: part for index, part in enumerate(values.flatten())}
    parts = [
        convert_column(stored[name], field.type, mode)
        if (name := _stored_name(field, stored, mode)) is not None
        else pa.nulls(len(values), to_arrow(field.type))
        for field in fields
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
        raise NotLocal(f"{target} is stored as {values.type}")
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
