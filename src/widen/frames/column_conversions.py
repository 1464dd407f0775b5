"""Values of one type as values of another, and values as JSON documents, as Spark expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from widen.evolution.policy import EpochUnit
from widen.evolution.type_lattice import can_route
from widen.evolution.unify import EXACT_JSON
from widen.files.conversions import EXACT_FLOAT, EXACT_LONG, FIRST_MICROS, LAST_MICROS, MICROS_PER_UNIT
from widen.frames.physical_layout import partition_text
from widen.json.observation import TemporalString, type_facts
from widen.model.types import (
    DATE,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    DecimalType,
    Field,
    MapType,
    StructType,
    plain_name,
)
from widen.protocol.type_widening import is_widening
from widen.rows.row import EPOCH_UNIT_LIMITS
from widen.sources.file_ranges import field_steps, fields_of, with_field_steps
from widen.spark.spark_types import Column, F, type_to_spark

_DAY_MICROS = 86_400_000_000


Conversion: TypeAlias = Callable[[Column, DataType, DataType], Column]
"""Converts values, given their type and the type to convert to."""


def convert_exactly(values: Column, old: DataType, new: DataType, unit: EpochUnit | None = None) -> Column | None:
    """Return scalars as values of a column, null where it cannot hold them exactly; None if the types do not convert.

    Args:
        unit: The unit of integers that become timestamps; by default their size decides.

    Source: docs/evolution-rules.md#u14, #u16, #d2
    """
    if isinstance(old, TemporalString) and new != STRING:
        return _temporal_to(values, old, new)
    if holds_every_value(old, new):
        return values if old == new else TOTAL_CONVERSIONS.get((str(old), str(new)), _cast)(values, old, new)
    facts = type_facts(old)
    if facts is None or not can_route(new, facts[0]):
        return None
    if (facts[0], new) == ("long", TIMESTAMP):
        return epoch_column_to_timestamp(values, unit)
    return PARTIAL_CONVERSIONS[facts[0], plain_name(new)](values, old, new)


def holds_every_value(old: DataType, new: DataType) -> bool:
    """Return whether a column of a type holds every value of another type."""
    facts = type_facts(old)
    if old == new or is_widening(old, new) or facts is None:
        return old == new or is_widening(old, new)
    return can_route(new, facts[0]) and (new == STRING or (str(old), str(new)) in TOTAL_CONVERSIONS)


def read_temporal(texts: Column, data_type: DataType) -> Column:
    """Return strings as dates or timestamps, null if they are not, or if a column would not keep them exactly.

    Args:
        data_type: What to read them as: date, timestamp or timestamp_ntz.

    Source: docs/evolution-rules.md#d6
    """
    # Spark reads the year 0, which not all systems have.
    is_valid = texts.rlike(_TEMPORAL_PATTERNS[data_type]) & ~texts.startswith("0000")
    return F.when(is_valid, texts.try_cast(type_to_spark(data_type)))


def epoch_column_to_timestamp(values: Column, unit: EpochUnit | None = None) -> Column:
    """Return integers as timestamps.

    Source: docs/evolution-rules.md#u16, #d5
    """
    # The absolute value of the least long is not a long.
    wide = values.cast("decimal(38,0)")
    if unit is not None:
        return _to_timestamp(wide, unit)
    result = _to_timestamp(wide, EpochUnit.NANOSECONDS)
    for limit, each in reversed(EPOCH_UNIT_LIMITS):
        result = F.when(F.abs(wide) < F.lit(limit), _to_timestamp(wide, each)).otherwise(result)
    return result


def is_exact_double(values: Column, data_type: DataType) -> Column:
    """Return whether the shortest text of the nearest double denotes the same number."""
    if isinstance(data_type, DecimalType):
        return values.cast("double").try_cast(type_to_spark(data_type)) == values
    is_small = (values >= F.lit(-EXACT_LONG)) & (values <= F.lit(EXACT_LONG))
    return is_small | (values.cast("double").cast("decimal(38,0)") == values.cast("decimal(38,0)"))


def is_whole_ms(values: Column) -> Column:
    """Return whether timestamps are whole milliseconds."""
    return F.pmod(F.unix_micros(values), F.lit(1000)) == 0


def _temporal_to(texts: Column, old: TemporalString, new: DataType) -> Column | None:
    parts = (convert_exactly(read_temporal(texts, each), each, new) for each in old.types)
    columns = [column for column in parts if column is not None]
    return F.coalesce(*columns) if columns else None


_DAY = "[0-9]{4}-[0-9]{2}-[0-9]{2}"


_TIME = rf"{_DAY}T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]{{1,6}})?"


_TEMPORAL_PATTERNS: Mapping[DataType, str] = MappingProxyType(
    {DATE: rf"\A{_DAY}\z", TIMESTAMP: rf"\A{_TIME}(?:Z|\+00:00)\z", TIMESTAMP_NTZ: rf"\A{_TIME}\z"}
)


def _cast(values: Column, old: DataType, new: DataType) -> Column:
    return values.cast(type_to_spark(new))


# In ANSI mode a plain cast fails the job for a value that is out of range.
def _try_cast(values: Column, old: DataType, new: DataType) -> Column:
    return values.try_cast(type_to_spark(new))


def _if_restored(values: Column, old: DataType, new: DataType) -> Column:
    """Return the values that a cast back restores."""
    converted = values.try_cast(type_to_spark(new))
    return F.when(converted.try_cast(type_to_spark(old)) == values, converted)


def _if_restored_unsigned(values: Column, old: DataType, new: DataType) -> Column:
    """Return the values that a cast back restores; a decimal cannot restore the sign of -0.0."""
    return F.when(values.cast("string") != F.lit("-0.0"), _if_restored(values, old, new))


def _long_to_double(values: Column, old: DataType, new: DataType) -> Column:
    return F.when(is_exact_double(values, old), values.cast("double"))


def _long_to_float(values: Column, old: DataType, new: DataType) -> Column:
    return F.when(F.abs(values.cast("decimal(38,0)")) <= F.lit(EXACT_FLOAT), values.cast("float"))


def _boolean_to_number(values: Column, old: DataType, new: DataType) -> Column:
    return values.cast("int").try_cast(type_to_spark(new))


def _date_to_number(values: Column, old: DataType, new: DataType) -> Column:
    return F.unix_date(values).try_cast(type_to_spark(new))


def _date_to_timestamp(values: Column, old: DataType, new: DataType) -> Column:
    # A cast would give midnight in the time zone of the session.
    return F.timestamp_micros(F.unix_date(values).cast("bigint") * F.lit(_DAY_MICROS))


def _timestamp_to_number(values: Column, old: DataType, new: DataType) -> Column:
    return F.when(is_whole_ms(values), F.unix_millis(values)).try_cast(type_to_spark(new))


def _timestamp_to_text(values: Column, old: DataType, new: DataType) -> Column:
    return partition_text(values, old)


def _timestamp_ntz_to_text(values: Column, old: DataType, new: DataType) -> Column:
    return F.replace(values.cast("string"), F.lit(" "), F.lit("T"))


def _to_timestamp(numbers: Column, unit: EpochUnit) -> Column:
    factor, divisor = MICROS_PER_UNIT[unit]
    micros = numbers * F.lit(factor) if divisor == 1 else F.floor(numbers / F.lit(divisor))
    is_whole = F.lit(True) if divisor == 1 else numbers % F.lit(divisor) == 0
    is_valid = is_whole & micros.between(FIRST_MICROS, LAST_MICROS)
    return F.timestamp_micros(F.when(is_valid, micros.cast("bigint")))


TOTAL_CONVERSIONS: Mapping[tuple[str, str], Conversion] = MappingProxyType(
    {
        (str(DATE), str(TIMESTAMP)): _date_to_timestamp,
        (str(DATE), "integer"): _date_to_number,
        (str(DATE), str(LONG)): _date_to_number,
        (str(DATE), str(DOUBLE)): _date_to_number,
        (str(TIMESTAMP), str(STRING)): _timestamp_to_text,
        ("timestamp_ntz", str(STRING)): _timestamp_ntz_to_text,
    }
    | {("boolean", name): _boolean_to_number for name in ("byte", "short", "integer", "long", "float", "double")}
)
"""The conversions that hold every value of the old type; pairs that are not listed use a cast."""


PARTIAL_CONVERSIONS: Mapping[tuple[str, str], Conversion] = MappingProxyType(
    {
        ("boolean", "decimal"): _boolean_to_number,
        ("date", "decimal"): _date_to_number,
        ("long", "decimal"): _try_cast,
        ("long", "double"): _long_to_double,
        ("long", "float"): _long_to_float,
        ("double", "float"): _if_restored,
        ("double", "decimal"): _if_restored_unsigned,
        ("decimal", "decimal"): _if_restored,
        ("decimal", "double"): _if_restored,
        ("decimal", "float"): _if_restored,
    }
    | {("long", name): _try_cast for name in ("byte", "short", "integer", "long")}
    | {("timestamp", name): _timestamp_to_number for name in ("long", "double", "decimal")}
)
"""The conversions that hold some values only, by kind and new type; the other values become null."""


def json_text_column(values: Column) -> Column:
    """Return documents as JSON texts, without the null fields of records."""
    return F.to_json(values, dict(EXACT_JSON))


def to_document(values: Column, data_type: DataType) -> Column:
    """Return values in the form that is written as JSON."""
    if document_type(data_type) == with_field_steps(data_type):
        return values
    match data_type:
        case StructType():
            inner_fields = fields_of(values, data_type)
            parts = (to_document(inner, inner_type).alias(name) for name, (inner, inner_type) in inner_fields.items())
            return F.when(values.isNotNull(), F.struct(*parts))
        case ArrayType(element):
            return F.transform(values, lambda item: to_document(item, element))
        case MapType(key, value):
            entries = F.transform_values(values, lambda _, item: to_document(item, value))
            return entries if key == STRING else F.transform_keys(entries, lambda each, _: _key_text(each, key))
    return values


def from_document(values: Column, data_type: DataType) -> Column:
    """Return the values that `to_document` turned into documents.

    Args:
        values: Documents of the type `document_type`, with the field names of `with_field_steps`.
    """
    if with_field_steps(document_type(data_type)) == with_field_steps(data_type):
        return values
    match data_type:
        case StructType(fields):
            names = field_steps(data_type)
            parts = (from_document(values.getField(n), f.type).alias(n) for n, f in zip(names, fields, strict=True))
            return F.when(values.isNotNull(), F.struct(*parts))
        case ArrayType(element):
            return F.transform(values, lambda item: from_document(item, element))
        case MapType(key, value):
            entries = F.transform_values(values, lambda _, item: from_document(item, value))
            return entries if key == STRING else F.transform_keys(entries, lambda each, _: each.try_cast(key.sql))
    return values


def document_type(data_type: DataType) -> DataType:
    """Return the type of the documents that `to_document` returns."""
    match data_type:
        case StructType(fields):
            return StructType(tuple(Field(field.name, document_type(field.type)) for field in fields))
        case ArrayType(element):
            return ArrayType(document_type(element))
        case MapType(_, value):
            return MapType(STRING, document_type(value))
    return data_type


def _key_text(key: Column, data_type: DataType) -> Column:
    text = convert_exactly(key, data_type, STRING)
    assert text is not None
    return text
