"""Rows of small tables as Arrow tables, read in this process without a Spark session.

Old types are cast as Delta Lake widens them, columns are found by their physical names, deleted rows are left out, and
partition values come from the log. A file that this cannot read exactly is refused, and Spark reads the table instead.

Source: PROTOCOL.md#reader-requirements-for-type-widening, #column-mapping, #deletion-vectors
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from widen.errors import CorruptFile, InvalidOption
from widen.errors.foreign import first_line
from widen.log.read.snapshot import Snapshot
from widen.log.store.log_store import LogStore
from widen.model.types import ArrayType, DataType, Field, MapType, StructType
from widen.protocol.actions import DeletionVector
from widen.protocol.column_mapping import ID, mapping_mode, physical_name
from widen.protocol.parquet_calendar import is_legacy
from widen.protocol.partition_values import UnknownValue, parse_partition_value
from widen.protocol.type_changes import ensure_readable
from widen.spark.arrow_types import to_arrow, to_arrow_schema
from widen.spark.read.deleted_rows import load_vector

_COLUMNS = ["path", "partition_values", "deletion_vector"]


class NotLocal(Exception):
    """Only Spark can read a file or a column exactly; the text says why."""


def read_locally(snapshot: Snapshot, limit: int | None = None) -> pa.Table:
    """Return the rows of a version in its current types, in the order of its files.

    Args:
        snapshot: The version.
        limit: The most rows to return.

    Raises:
        NotLocal: only Spark can read the table exactly.
        UnsupportedTypeChange: the schema records a type change that the protocol does not allow.
        CorruptFile: a file or a deletion vector cannot be read.
        StorageError: the store cannot be read.
    """
    ensure_readable(snapshot.schema)
    mode = mapping_mode(snapshot.properties, snapshot.protocol)
    if mode == ID:
        raise NotLocal("columns are found by field id")
    try:
        target = to_arrow_schema(snapshot.schema)
    except InvalidOption as error:
        raise NotLocal(error.message) from error
    keys = dict(zip(snapshot.partition_columns, snapshot.partition_keys, strict=True))
    tables, rows = [target.empty_table()], 0
    for file in snapshot.files().select(_COLUMNS).to_pylist(maps_as_pydicts="lossy"):
        if limit is not None and rows >= limit:
            break
        stored = _without_deleted(snapshot.store, _read_file(snapshot.store, file["path"]), file["deletion_vector"])
        values = {name: (file["partition_values"] or {}).get(key) for name, key in keys.items()}
        columns = [_column(field, stored, mode, values) for field in snapshot.schema]
        tables.append(pa.Table.from_arrays(columns, schema=target))
        rows += stored.num_rows
    whole = pa.concat_tables(tables)
    return whole if limit is None else whole.slice(0, limit)


def _read_file(store: LogStore, path: str) -> pa.Table:
    try:
        with store.open(store.plain(path)) as file:
            opened = pq.ParquetFile(file)
            if is_legacy(opened.metadata.metadata):
                raise NotLocal(f"{path} has dates of the Julian calendar")
            return opened.read()
    except pa.ArrowException as error:
        raise CorruptFile(path=path, reason=first_line(error), fix="Restore the file from a backup.") from error


def _without_deleted(store: LogStore, rows: pa.Table, vector: Mapping[str, Any] | None) -> pa.Table:
    if vector is None:
        return rows
    deleted = pa.array(list(load_vector(store, DeletionVector(**vector))), pa.int64())
    return rows.filter(pc.invert(pc.is_in(pa.array(range(rows.num_rows), pa.int64()), value_set=deleted)))


def _column(field: Field, rows: pa.Table, mode: str, partition: Mapping[str, str | None]) -> pa.Array:
    if field.name in partition:
        return _partition_column(field, partition[field.name], rows.num_rows)
    name = physical_name(field, mode)
    if name not in rows.column_names:
        return pa.nulls(rows.num_rows, to_arrow(field.type))
    return _converted(_one_array(rows.column(name)), field.type, mode)


def _partition_column(field: Field, text: str | None, count: int) -> pa.Array:
    value = parse_partition_value(text, field.type)
    if isinstance(value, UnknownValue):
        raise NotLocal(f"the partition value {text!r} of {field.name}")
    return pa.repeat(pa.scalar(value, to_arrow(field.type)), count)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return a column as one array that starts at its first value."""
    chunks = column.chunks
    return pa.concat_arrays(chunks) if chunks else pa.array([], column.type)


def _converted(values: pa.Array, data_type: DataType, mode: str) -> pa.Array:
    """Return stored values in the type of the table, with its names at any depth."""
    match data_type:
        case StructType(fields):
            return _struct(values, fields, mode)
        case ArrayType(element):
            lengths = pc.fill_null(pc.list_value_length(values), 0)
            items = _converted(values.flatten(), element, mode)
            return pa.ListArray.from_arrays(_offsets(lengths), items, mask=pc.is_null(values))
        case MapType(key, value):
            return _map(values, key, value, mode)
    return _cast(values, to_arrow(data_type))


def _struct(values: pa.Array, fields: tuple[Field, ...], mode: str) -> pa.Array:
    if not pa.types.is_struct(values.type):
        raise NotLocal(f"a struct is stored as {values.type}")
    stored = {values.type.field(index).name: part for index, part in enumerate(values.flatten())}
    parts = [
        _converted(stored[name], field.type, mode)
        if (name := physical_name(field, mode)) in stored
        else pa.nulls(len(values), to_arrow(field.type))
        for field in fields
    ]
    arrow_fields = [pa.field(field.name, to_arrow(field.type)) for field in fields]
    return pa.StructArray.from_arrays(parts, fields=arrow_fields, mask=pc.is_null(values))


def _map(values: pa.Array, key: DataType, value: DataType, mode: str) -> pa.Array:
    """Return a map by way of its entries, which do not include those behind a null."""
    entries = values.cast(pa.list_(pa.struct([("key", values.type.key_type), ("value", values.type.item_type)])))
    lengths, parts = pc.fill_null(pc.list_value_length(entries), 0), entries.flatten().flatten()
    keys, items = _converted(parts[0], key, mode), _converted(parts[1], value, mode)
    offsets = _offsets(lengths)
    if values.null_count:
        is_null = pa.concat_arrays([pc.is_null(values), pa.array([False])])
        offsets = pc.if_else(is_null, pa.scalar(None, pa.int32()), offsets)
    return pa.MapArray.from_arrays(offsets, keys, items)


def _offsets(lengths: pa.Array) -> pa.Array:
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths.cast(pa.int32()))])


def _cast(values: pa.Array, target: pa.DataType) -> pa.Array:
    if values.type == target:
        return values
    if not _is_widening(values.type, target):
        raise NotLocal(f"{target} is stored as {values.type}")
    return values.cast(target)


def _is_widening(stored: pa.DataType, target: pa.DataType) -> bool:
    """Tell whether Arrow casts a stored type exactly as Delta Lake widens it."""
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
)
"""The stored types and the types of columns that Arrow casts exactly."""
