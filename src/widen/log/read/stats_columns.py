"""Convert file statistics between JSON text (``stats``) and typed columns (``stats_parsed``).

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
    """Return statistics as JSON text, generated from the struct where the text is null.

    Args:
        parsed: A column ``stats_parsed`` of a checkpoint, in the types that the table had then.
        text: The column ``stats`` beside it, if there is one.

    Source: PROTOCOL.md#checkpoint-schema; Delta Spark for the formats of dates, times and decimals.
    """
    texts = text.to_pylist() if text is not None else [None] * len(parsed)
    structs = _to_representable(parsed).to_pylist()
    filled = [
        stats if stats is not None or struct is None else _encoder.encode(_value(struct)).decode()
        for stats, struct in zip(texts, structs, strict=True)
    ]
    return pa.array(filled, pa.string())


def _to_representable(column: pa.Array) -> pa.Array:
    """Return a column whose INT96 times are in UTC, and whose dates and times outside of Python's range are null.

    A null bound means that the bound is unknown, so readers do not skip the file.
    """
    if pa.types.is_struct(column.type):
        parts = [_to_representable(column.field(number)) for number in range(column.type.num_fields)]
        return pa.StructArray.from_arrays(parts, names=[field.name for field in column.type], mask=column.is_null())
    if column.type == INT96:
        column = column.cast(pa.timestamp(INT96.unit, "UTC"))
    if column.type not in _YEARS:
        return column
    first, last = (pa.scalar(end, column.type) for end in _YEARS[column.type])
    is_known = pc.and_(pc.greater_equal(column, first), pc.less_equal(column, last))
    return pc.if_else(is_known, column, None)


INT96 = pa.timestamp("ms")
"""The Arrow type that INT96 times are read as. They are always in UTC, and no other Parquet type is read as this."""

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
    """A typed copy of a column of a checkpoint.

    Args:
        convert: Computes the column from rows of the list of files.
    """

    field: pa.Field
    convert: Callable[[pa.RecordBatch], pa.Array]


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
"""The types that have bounds in statistics."""

_UNORDERED: Mapping[str, pa.DataType] = {"boolean": pa.bool_(), "binary": pa.binary()}
"""Types that partition values may have, too."""


def parsed_stats(schema: StructType, partition_columns: Sequence[str]) -> ParsedColumn:
    """Return the column ``stats_parsed``: statistics in the current types of the table.

    If the bounds of a file do not fit these types, like the infinite ones of Delta Spark, only its counts are kept.

    Source: PROTOCOL.md#checkpoint-schema (physical names, current types)
    """
    columns = [field for field in schema if field.name not in partition_columns]
    bounds, counts = _bounds(columns), _counts(columns)
    fields = [("numRecords", pa.int64()), ("tightBounds", pa.bool_())]
    fields += [("minValues", bounds), ("maxValues", bounds)] if bounds.num_fields else []
    fields += [("nullCount", counts)] if counts.num_fields else []
    data_type = pa.struct(fields)
    read = [pa.field(name, _json_reader_type(kind)) for name, kind in fields]
    options = pj.ParseOptions(explicit_schema=pa.schema(read), unexpected_field_behavior="ignore")

    def convert(rows: pa.RecordBatch) -> pa.Array:
        texts = rows.column("stats")
        table = _read_json([text if text and text.startswith("{") else "{}" for text in texts.to_pylist()], options)
        arrays = [table.column(name).combine_chunks().cast(kind) for name, kind in fields]
        return pa.StructArray.from_arrays(arrays, fields=list(data_type), mask=texts.is_null())

    return ParsedColumn(pa.field("stats_parsed", data_type), convert)


def _read_json(texts: Sequence[str], options: pj.ParseOptions) -> pa.Table:
    data = "\n".join(text.replace("\n", " ") for text in texts).encode()
    try:
        table = pj.read_json(pa.BufferReader(data), pj.ReadOptions(block_size=len(data) + 1), options)
        if table.num_rows == len(texts):
            return table
    except pa.ArrowInvalid:
        pass
    # Arrow does not say which line it rejects, so halve the batch until the line is alone.
    if len(texts) == 1:
        return _read_json([_without_bounds(texts[0])], options)
    middle = len(texts) // 2
    return pa.concat_tables([_read_json(part, options) for part in (texts[:middle], texts[middle:])])


def _without_bounds(text: str) -> str:
    """Return statistics without their bounds, or empty statistics if they have no bounds."""
    try:
        stats = msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.DecodeError:
        return "{}"
    counts = {key: value for key, value in stats.items() if key not in (MIN_VALUES, MAX_VALUES)}
    return _encoder.encode(counts).decode() if len(counts) < len(stats) else "{}"


def parsed_partition_values(schema: StructType, columns: Sequence[str], keys: Sequence[str]) -> ParsedColumn:
    """Return the column ``partitionValues_parsed``: partition values in the current types of the table.

    Args:
        columns: The logical names of the partition columns.
        keys: The physical names of the partition columns, in the same order.

    Source: PROTOCOL.md#checkpoint-schema; PROTOCOL.md#partition-value-serialization (an empty string is null)
    """
    types = [_partition_type(schema.find(name)) for name in columns]
    data_type = pa.struct(list(zip(keys, types, strict=True)))

    def convert(rows: pa.RecordBatch) -> pa.Array:
        values = rows.column("partition_values")
        arrays = [_cast(pc.map_lookup(values, key, "first"), kind) for key, kind in zip(keys, types, strict=True)]
        return pa.StructArray.from_arrays(arrays, fields=list(data_type))

    return ParsedColumn(pa.field("partitionValues_parsed", data_type), convert)


def _cast(texts: pa.Array, data_type: pa.DataType) -> pa.Array:
    values = pc.if_else(pc.equal(texts, ""), None, texts)
    if data_type == _ARROW["timestamp"]:
        # The protocol also allows timestamps without a zone. No session is known here, so they are read as UTC.
        values = pc.if_else(pc.ends_with(values, "Z"), values, pc.binary_join_element_wise(values, "Z", ""))
    try:
        return values.cast(data_type)
    except pa.ArrowInvalid:
        return pa.concat_arrays([_cast_or_null(values.slice(row, 1), data_type) for row in range(len(values))])


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
    data_type = None if column is None else _arrow_type(column.type) or _UNORDERED.get(str(column.type))
    return data_type or pa.string()


def _bounds(columns: Iterable[Field]) -> pa.StructType:
    fields = []
    for column in columns:
        data_type = _bounds(column.type) if isinstance(column.type, StructType) else _arrow_type(column.type)
        if data_type is not None and not (pa.types.is_struct(data_type) and data_type.num_fields == 0):
            fields.append((_physical(column), data_type))
    return pa.struct(fields)


def _counts(columns: Iterable[Field]) -> pa.StructType:
    fields = []
    for column in columns:
        data_type = _counts(column.type) if isinstance(column.type, StructType) else pa.int64()
        if not (pa.types.is_struct(data_type) and data_type.num_fields == 0):
            fields.append((_physical(column), data_type))
    return pa.struct(fields)


def _json_reader_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type to give to Arrow's JSON reader: it parses ISO times, but reads dates only as numbers."""
    if pa.types.is_struct(data_type):
        return pa.struct([pa.field(field.name, _json_reader_type(field.type)) for field in data_type])
    return pa.timestamp("us") if data_type == pa.date32() else data_type


def _physical(column: Field) -> str:
    name: str = column.metadata.get(PHYSICAL_NAME, column.name)
    return name
