"""Statistics between their two forms: JSON text in a column, and a struct of columns.

Source: PROTOCOL.md#per-file-statistics
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from widen.model.types import AtomicType, DataType, DecimalType, Field, StructType
from widen.protocol.column_mapping import PHYSICAL_NAME
from widen.protocol.skipping.file_statistics import MAX_VALUES, MIN_VALUES

_encoder = msgspec.json.Encoder(decimal_format="number")


def to_json_text(parsed: pa.StructArray, text: pa.Array | None) -> pa.Array:
    """Return statistics as JSON text, made from the struct where there is no text yet.

    Args:
        parsed: A column ``stats_parsed`` of a checkpoint, in the types of its time.
        text: The column ``stats`` beside it, if there is one.

    Source: PROTOCOL.md#checkpoint-schema; Delta Spark for the forms of dates, times and decimals.
    """
    given = text.to_pylist() if text is not None else [None] * len(parsed)
    values = _to_representable(parsed).to_pylist()
    made = [
        old if old is not None or new is None else _encoder.encode(_value(new)).decode()
        for old, new in zip(given, values, strict=True)
    ]
    return pa.array(made, pa.string())


def _to_representable(column: pa.Array) -> pa.Array:
    """Return a column in which times stored in 96 bits have their zone, and others than Python knows are null.

    A bound that is null is unknown.
    """
    if pa.types.is_struct(column.type):
        parts = [_to_representable(column.field(at)) for at in range(column.type.num_fields)]
        return pa.StructArray.from_arrays(parts, names=[field.name for field in column.type], mask=column.is_null())
    if column.type == INT96:
        column = column.cast(pa.timestamp(INT96.unit, "UTC"))
    if column.type not in _YEARS:
        return column
    first, last = (pa.scalar(end, column.type) for end in _YEARS[column.type])
    is_known = pc.and_(pc.greater_equal(column, first), pc.less_equal(column, last))
    return pc.if_else(is_known, column, None)


INT96 = pa.timestamp("ms")
"""What times that are stored in 96 bits are read as; they are always in UTC, and no other one is read so."""

_YEARS: Mapping[pa.DataType, tuple[dt.date, dt.date]] = {
    pa.date32(): (dt.date.min, dt.date.max),
    **{pa.timestamp(unit): (dt.datetime.min, dt.datetime.max) for unit in ("ms", "us")},
    **{pa.timestamp(unit, "UTC"): (dt.datetime.min, dt.datetime.max) for unit in ("ms", "us")},
}


def _value(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _value(item) for key, item in value.items() if item is not None}
    convert = _FORMS.get(type(value))
    return convert(value) if convert else value


def _time(value: dt.datetime) -> str:
    text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return text if value.tzinfo is None else text + "Z"


_FORMS: Mapping[type, Callable[[Any], Any]] = {
    dt.date: dt.date.isoformat,
    dt.datetime: _time,
    bytes: lambda value: value.decode("utf-8", "replace"),
}


@dataclass(frozen=True)
class ParsedColumn:
    """A column of a checkpoint that repeats another one in typed form.

    Args:
        field: Its name and type.
        made: Makes it from rows of the list of files.
    """

    field: pa.Field
    made: Callable[[pa.RecordBatch], pa.Array]


_ARROW: Mapping[str, pa.DataType] = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
"""The types that have a smallest and a largest value in statistics."""

_UNORDERED: Mapping[str, pa.DataType] = {"boolean": pa.bool_(), "binary": pa.binary()}
"""Further types that partition values may have."""


def parsed_stats(schema: StructType, partition_columns: Sequence[str]) -> ParsedColumn:
    """Return the column ``stats_parsed``: statistics in the types that the table has now.

    Of a file with bounds that do not fit these types, as the infinite ones of Delta Spark, only the counts are there.

    Source: PROTOCOL.md#checkpoint-schema (physical names, current types)
    """
    columns = [field for field in schema if field.name not in partition_columns]
    bounds, counts = _bounds(columns), _counts(columns)
    fields = [("numRecords", pa.int64()), ("tightBounds", pa.bool_())]
    fields += [("minValues", bounds), ("maxValues", bounds)] if bounds.num_fields else []
    fields += [("nullCount", counts)] if counts.num_fields else []
    data_type = pa.struct(fields)
    read = [pa.field(name, _as_read(kind)) for name, kind in fields]
    options = pj.ParseOptions(explicit_schema=pa.schema(read), unexpected_field_behavior="ignore")

    def made(rows: pa.RecordBatch) -> pa.Array:
        texts = rows.column("stats")
        table = _read_json([text if text and text.startswith("{") else "{}" for text in texts.to_pylist()], options)
        arrays = [table.column(name).combine_chunks().cast(kind) for name, kind in fields]
        return pa.StructArray.from_arrays(arrays, fields=list(data_type), mask=texts.is_null())

    return ParsedColumn(pa.field("stats_parsed", data_type), made)


def _read_json(texts: Sequence[str], options: pj.ParseOptions) -> pa.Table:
    data = "\n".join(text.replace("\n", " ") for text in texts).encode()
    try:
        table = pj.read_json(pa.BufferReader(data), pj.ReadOptions(block_size=len(data) + 1), options)
        if table.num_rows == len(texts):
            return table
    except pa.ArrowInvalid:
        pass
    if len(texts) == 1:
        return _read_json([_without_bounds(texts[0])], options)
    middle = len(texts) // 2
    return pa.concat_tables([_read_json(part, options) for part in (texts[:middle], texts[middle:])])


def _without_bounds(text: str) -> str:
    """Return statistics without their bounds, or without anything if they have none."""
    try:
        found = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        return "{}"
    counts = {key: value for key, value in found.items() if key not in (MIN_VALUES, MAX_VALUES)}
    return _encoder.encode(counts).decode() if len(counts) < len(found) else "{}"


def parsed_partition_values(schema: StructType, columns: Sequence[str], keys: Sequence[str]) -> ParsedColumn:
    """Return the column ``partitionValues_parsed``: partition values in the types that the table has now.

    Args:
        schema: Of the table.
        columns: The logical names of the partition columns.
        keys: Their physical names, in the same order.

    Source: PROTOCOL.md#checkpoint-schema; PROTOCOL.md#partition-value-serialization (the empty text is null)
    """
    types = [_partition_type(schema.find(name)) for name in columns]
    data_type = pa.struct(list(zip(keys, types, strict=True)))

    def made(rows: pa.RecordBatch) -> pa.Array:
        values = rows.column("partition_values")
        arrays = [_cast(pc.map_lookup(values, key, "first"), kind) for key, kind in zip(keys, types, strict=True)]
        return pa.StructArray.from_arrays(arrays, fields=list(data_type))

    return ParsedColumn(pa.field("partitionValues_parsed", data_type), made)


def _cast(texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    given = pc.if_else(pc.equal(texts, ""), None, texts)
    if data_type == _ARROW["timestamp"]:
        given = pc.if_else(pc.ends_with(given, "Z"), given, pc.binary_join_element_wise(given, "Z", ""))
    try:
        return given.cast(data_type)
    except pa.ArrowInvalid:
        return pa.concat_arrays([_cast_or_null(given.slice(at, 1), data_type) for at in range(len(given))])


def _cast_or_null(text: pa.Array, data_type: pa.DataType) -> pa.Array:
    try:
        return text.cast(data_type)
    except pa.ArrowInvalid:
        return pa.nulls(len(text), data_type)


def _arrow_type(data_type: DataType) -> pa.DataType | None:
    if isinstance(data_type, DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    return _ARROW.get(str(data_type)) if isinstance(data_type, AtomicType) else None


def _partition_type(column: Field | None) -> pa.DataType:
    known = None if column is None else _arrow_type(column.type) or _UNORDERED.get(str(column.type))
    return known or pa.string()


def _bounds(columns: Iterable[Field]) -> pa.StructType:
    found = []
    for column in columns:
        below = _bounds(column.type) if isinstance(column.type, StructType) else _arrow_type(column.type)
        if below is not None and not (pa.types.is_struct(below) and below.num_fields == 0):
            found.append((_physical(column), below))
    return pa.struct(found)


def _counts(columns: Iterable[Field]) -> pa.StructType:
    found = []
    for column in columns:
        below = _counts(column.type) if isinstance(column.type, StructType) else pa.int64()
        if not (pa.types.is_struct(below) and below.num_fields == 0):
            found.append((_physical(column), below))
    return pa.struct(found)


def _as_read(data_type: pa.DataType) -> pa.DataType:
    """Return the type as Arrow's JSON reader knows it: it takes dates for numbers, but has times as text."""
    if pa.types.is_struct(data_type):
        return pa.struct([pa.field(field.name, _as_read(field.type)) for field in data_type])
    return pa.timestamp("us") if data_type == pa.date32() else data_type


def _physical(column: Field) -> str:
    name: str = column.metadata.get(PHYSICAL_NAME, column.name)
    return name
