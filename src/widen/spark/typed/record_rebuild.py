"""The proof for typed records: rebuild each from the rows of the table, in the types of the source, and compare.

This shares no code with the writer of the rows, so that one bug cannot hide in both. The writer converts to the types
of the columns; this converts back, and takes the value from any column of its field.

Source: docs/evolution-rules.md#one-interval, #u1, #u2, #d16
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from functools import reduce
from types import MappingProxyType

from pyspark.sql import Column
from pyspark.sql import functions as F

from widen.model.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    LONG,
    STRING,
    TIMESTAMP,
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    StructType,
    quote_name,
)
from widen.observe.observe_schema import TemporalString
from widen.planning.evolution.policy import EpochUnit, Policy
from widen.planning.evolution.source_metadata import RESCUED, role_field
from widen.proof.source_columns import ColumnsByKey, FieldColumns, SourceColumn, columns_by_key, widest_record_column
from widen.spark.source.field_names import Typed, field_steps, fields_of, with_field_steps
from widen.spark.spark_types import to_spark, type_to_spark
from widen.spark.typed.json_values import document_type, from_document, to_document, to_json_text
from widen.spark.typed.temporal_strings import comparable_time, comparable_values, count_text, has_temporal_strings

_DAY_MICROS = 86_400_000_000
_YEARS_MS = -62_135_596_800_000, 253_402_300_799_999
"""The years 1 to 9999, of which columns of numbers hold the milliseconds."""

Back = Callable[[Column, DataType, DataType], Column]
"""Converts values, given their type in the table and their type in the source."""


def rebuild_fields(
    source: StructType, schema: StructType, policy: Policy, *, is_own_kind: bool = False
) -> dict[str, Typed]:
    """Return the fields of records, rebuilt from the rows of a table.

    Args:
        source: The schema of the prepared records.
        schema: The schema of the table; the rows have its columns.
        policy: The policy, with what it says about single fields.
        is_own_kind: Whether to use only columns of the kind that a field has in the source.
    """
    rescued = role_field(schema, RESCUED)
    rest = None if rescued is None else parse_record(F.col(quote_name(rescued.name)), source)
    cells = columns_by_key(schema, policy)
    cells = _own_fields(source, cells) if is_own_kind else cells
    return _record(source, cells, lambda name: F.col(quote_name(name)), rest)


def is_own_kind(source: StructType, schema: StructType, policy: Policy) -> bool:
    """Tell whether all columns have the kinds of their fields in the source.

    Args:
        source: The schema of the prepared records.
        policy: The policy, with what it says about single fields.
    """
    cells = columns_by_key(schema, policy)
    return _own_fields(source, cells) == {field.name: cells.get(field.name, ()) for field in source}


def _own_fields(source: StructType, cells: ColumnsByKey) -> ColumnsByKey:
    return {field.name: tuple(_own_cells(field.type, cells.get(field.name, ()))) for field in source}


def _own_cells(data_type: DataType, cells: FieldColumns) -> Iterator[SourceColumn]:
    """Yield the columns that store values of a type unchanged: of the same kind, with the same levels of arrays."""
    leaf, dim = data_type, 0
    while isinstance(leaf, ArrayType):
        leaf, dim = leaf.element, dim + 1
    for cell in cells:
        if cell.fields is not None and isinstance(leaf, StructType):
            if cell.dim == dim or cell is widest_record_column(cells):
                yield replace(cell, fields=_own_fields(leaf, cell.fields))
        elif cell.value is not None and isinstance(leaf, MapType):
            inner = _own_cells(leaf.value, (cell.value,)) if cell.dim == dim else ()
            yield from (replace(cell, value=value) for value in inner)
        elif cell.fields is None and cell.value is None and cell.dim == dim and _is_own_type(cell.type, leaf):
            yield cell


def _is_own_type(stored: DataType, original: DataType) -> bool:
    is_string = stored == STRING and isinstance(original, TemporalString)
    return is_string or family_of(stored) == family_of(original)


def parse_record(text: Column, source: StructType) -> Column:
    """Return records from their texts, which may lack fields; see `record_text`.

    Values of another type become null, and Spark reads some that are written otherwise, such as a date as a timestamp.
    Only if `record_text` gives the text back, the records are what it says.
    """
    document = document_type(source)
    assert isinstance(document, StructType)
    parsed = F.from_json(text, to_spark(document), {"timeZone": "UTC"})
    return from_document(
        parsed if with_field_steps(document) == document else parsed.cast(type_to_spark(with_field_steps(document))),
        source,
    )


def record_text(fields: Mapping[str, Typed]) -> Column:
    """Return a text of records; two records have the same text only if they are equal."""
    parts = (to_document(values, data_type).alias(name) for name, (values, data_type) in fields.items())
    return to_json_text(F.struct(*parts))


def count_leaves(fields: Mapping[str, Typed]) -> Column:
    """Return the number of scalars in records that are not null.

    The counts are summed as an array, because Spark cannot evaluate a chain of thousands of additions.
    """
    return _total(F.array(F.lit(0), *(_leaves(values, data_type) for values, data_type in fields.values())))


def _leaves(values: Column, data_type: DataType) -> Column:
    match data_type:
        case StructType():
            return count_leaves(fields_of(values, data_type))
        case ArrayType(element):
            return F.coalesce(_total(F.transform(values, lambda item: _leaves(item, element))), F.lit(0))
        case MapType(_, value):
            return _leaves(F.map_values(values), ArrayType(value))
    return values.isNotNull().cast("int")


def _total(counts: Column) -> Column:
    return F.aggregate(counts, F.lit(0), lambda total, count: total + count)


def _record(
    source: StructType, route: ColumnsByKey, column: Callable[[str], Column], rest: Column | None
) -> dict[str, Typed]:
    fields = {}
    for field, name in zip(source, field_steps(source), strict=True):
        field_rest = None if rest is None else rest.getField(name)
        fields[field.name] = _value(field.type, route.get(field.name, ()), column, field_rest), field.type
    return fields


def _value(
    data_type: DataType, slots: Sequence[SourceColumn], column: Callable[[str], Column], rest: Column | None
) -> Column:
    """Return the value of a field from its columns; for records, from the one with the most arrays (U17)."""
    records = [slot for slot in slots if slot.fields is not None]
    # The record column with the most arrays has all fields; another would only repeat some of them.
    chosen = sorted(records, key=lambda slot: -slot.dim)[:1] if _has_records(data_type) else slots
    if has_temporal_strings(data_type):
        chosen = sorted(chosen, key=lambda slot: _TEMPORAL_FIRST.get(_leaf_name(slot), len(_TEMPORAL_FIRST)))
    unwrapped = [_unwrap(column(slot.name), data_type, slot, slot.dim, rest) for slot in chosen]
    values = [each for each in unwrapped if each is not None]
    if rest is not None and not (isinstance(data_type, StructType) and values):
        values = [comparable_values(rest, data_type, tuple(slots)), *values]
    typed = [each.cast(type_to_spark(with_field_steps(data_type))) for each in values]
    return reduce(lambda left, right: _either(left, right, data_type), typed) if typed else _nothing(data_type)


def _leaf_name(slot: SourceColumn) -> str:
    """Return the name of the type inside the arrays and maps of a column."""
    return slot.type_name if slot.value is None else _leaf_name(slot.value)


def _nothing(data_type: DataType) -> Column:
    return F.lit(None).cast(type_to_spark(with_field_steps(data_type)))


def _has_records(data_type: DataType) -> bool:
    while isinstance(data_type, ArrayType):
        data_type = data_type.element
    return isinstance(data_type, StructType)


def _either(first: Column, second: Column, data_type: DataType) -> Column:
    """Return the values of either of two columns, element by element; records come from the first that has them."""
    match data_type:
        case ArrayType(element):
            both = F.zip_with(first, second, lambda left, right: _either(left, right, element))
            return F.coalesce(both, first, second)
        case MapType(_, value):
            both = F.map_zip_with(first, second, lambda _, left, right: _either(left, right, value))
            return F.coalesce(both, first, second)
    return F.coalesce(first, second)


def _unwrap(values: Column, data_type: DataType, slot: SourceColumn, dim: int, rest: Column | None) -> Column | None:
    """Return values of a type from a column; None if the column cannot hold any."""
    if isinstance(data_type, ArrayType):
        return _each(values, lambda item: _unwrap(item, data_type.element, slot, dim - 1, None)) if dim else None
    if dim:
        return _unwrap(F.try_element_at(values, F.lit(1)), data_type, slot, dim - 1, rest)
    if isinstance(data_type, MapType):
        return None if slot.value is None else _entries(values, data_type, slot.value)
    if isinstance(data_type, StructType):
        if slot.fields is None:
            return None
        fields = _record(data_type, slot.fields, values.getField, rest)
        is_present = values.isNotNull() if rest is None else values.isNotNull() | rest.isNotNull()
        parts = (
            field_values.alias(name)
            for name, (field_values, _) in zip(field_steps(data_type), fields.values(), strict=True)
        )
        return F.when(is_present, F.struct(*parts))
    if slot.has_epochs and slot.type == TIMESTAMP and family_of(data_type) == "number":
        return _to_epoch(values, slot, data_type)
    return None if slot.fields is not None or slot.value is not None else convert_back(values, slot.type, data_type)


def _each(values: Column, convert: Callable[[Column], Column | None]) -> Column | None:
    return None if convert(F.lit(None)) is None else F.transform(values, lambda item: _not_none(convert(item)))


def _entries(values: Column, data_type: MapType, slot: SourceColumn) -> Column | None:
    if _unwrap(F.lit(None), data_type.value, slot, slot.dim, None) is None:
        return None
    return F.transform_values(
        map_entries(values, data_type),
        lambda _, value: _not_none(_unwrap(value, data_type.value, slot, slot.dim, None)),
    )


def map_entries(values: Column, data_type: MapType) -> Column:
    """Return maps with their keys in the type of the source; in tables all keys are strings."""
    if data_type.key == STRING:
        return values
    return F.transform_keys(values, lambda key, _: _not_none(convert_back(key, STRING, data_type.key)))


def _not_none(column: Column | None) -> Column:
    assert column is not None
    return column


# ---- scalars back to the types of the source -------------------------------------------------------


def convert_back(values: Column, stored: DataType, original: DataType) -> Column | None:
    """Return scalars of a column in their type in the source, null where none converts to them; None if none can."""
    if stored == original:
        return values
    convert = BACKWARD_CONVERSIONS.get((family_of(stored), family_of(original)))
    return None if convert is None else convert(values, stored, original)


def family_of(data_type: DataType) -> str:
    """Return the key of a type in `BACKWARD_CONVERSIONS`: one word for all numbers, else the type."""
    if isinstance(data_type, TemporalString):
        return _TEMPORAL_STRING
    if isinstance(data_type, DecimalType) or str(data_type) in _NUMBERS:
        return "number"
    return str(data_type)


_TEMPORAL_STRING = "temporal string"
_TEMPORAL_FIRST = {name: place for place, name in enumerate(("string", "date", "timestamp_ntz", "timestamp"))}
"""The order in which columns give back a string that is read as a date: first those that say most of its text."""

_NUMBERS = frozenset({"byte", "short", "integer", "long", "float", "double"})


def _to_number(values: Column, stored: DataType, original: DataType) -> Column:
    """Return numbers in the type of the source; a double that is an integer becomes the integer of its text."""
    integers = values.try_cast("decimal(38,0)") if (stored, original) == (DOUBLE, LONG) else values
    converted = integers.try_cast(type_to_spark(original))
    return F.when(converted.cast(type_to_spark(stored)) == values, converted)


def _to_boolean(values: Column, stored: DataType, original: DataType) -> Column:
    return F.when(values == 0, F.lit(False)).when(values == 1, F.lit(True))


def _parse_text(values: Column, stored: DataType, original: DataType) -> Column:
    return values.try_cast(type_to_spark(original))


def _parse_date(values: Column, stored: DataType, original: DataType) -> Column:
    """Return dates; Spark would also read the text of a timestamp, without its time."""
    dates = values.try_cast("date")
    return F.when(dates.cast("string") == values, dates)


def _parse_time(values: Column, stored: DataType, original: DataType) -> Column:
    """Return timestamps; Spark would also read the text of a date."""
    return F.when(values.contains("T"), values.try_cast(type_to_spark(original)))


def _to_date(values: Column, stored: DataType, original: DataType) -> Column:
    days = values.try_cast("int")
    return F.when(days == values, F.date_from_unix_date(days))


def _timestamp_to_date(values: Column, stored: DataType, original: DataType) -> Column:
    """Return the dates of midnights in UTC; a date has no other time."""
    micros = F.unix_micros(values)
    is_midnight = F.pmod(micros, F.lit(_DAY_MICROS)) == 0
    return F.when(is_midnight, F.date_from_unix_date(F.round(micros / F.lit(_DAY_MICROS)).cast("int")))


def _local_time_to_date(values: Column, stored: DataType, original: DataType) -> Column:
    """Return the dates of midnights; a date has no other time."""
    dates = values.cast("date")
    return F.when(dates.cast("timestamp_ntz") == values, dates)


def _to_timestamp(values: Column, stored: DataType, original: DataType) -> Column:
    ms = values.try_cast("bigint")
    return F.when((ms == values) & ms.between(*_YEARS_MS), F.timestamp_millis(ms))


def _date_to_text(values: Column, stored: DataType, original: DataType) -> Column:
    return values.cast("string")


def _local_time_to_text(values: Column, stored: DataType, original: DataType) -> Column:
    return comparable_time(F.replace(values.cast("string"), F.lit(" "), F.lit("T")), stored, original)


def _timestamp_to_text(values: Column, stored: DataType, original: DataType) -> Column:
    seconds = (F.unix_micros(values).cast("decimal(18,0)") * F.lit(Decimal("0.000001"))).cast("decimal(18,6)")
    time = F.lit("1970-01-01 00:00:00").cast("timestamp_ntz") + F.make_dt_interval(secs=seconds)
    return comparable_time(
        F.concat(F.replace(time.cast("string"), F.lit(" "), F.lit("T")), F.lit("Z")), stored, original
    )


def _number_to_count(values: Column, stored: DataType, original: DataType) -> Column:
    """Return what stands for a date or a timestamp: a number does not say whether it counts days or milliseconds."""
    counts = values.try_cast("decimal(38,0)")
    return F.when(counts == values, count_text(counts))


def _to_epoch(values: Column, slot: SourceColumn, original: DataType) -> Column:
    assert slot.epoch_unit is not None
    micros = F.unix_micros(values).cast("decimal(28,0)")
    return (micros * F.lit(Decimal(_UNITS_PER_MICRO[slot.epoch_unit]))).cast(type_to_spark(original))


_UNITS_PER_MICRO: Mapping[EpochUnit, str] = MappingProxyType(
    {
        EpochUnit.SECONDS: "0.000001",
        EpochUnit.MILLISECONDS: "0.001",
        EpochUnit.MICROSECONDS: "1",
        EpochUnit.NANOSECONDS: "1000",
    }
)


BACKWARD_CONVERSIONS: Mapping[tuple[str, str], Back] = MappingProxyType(
    {
        ("number", "number"): _to_number,
        ("number", str(BOOLEAN)): _to_boolean,
        ("number", str(DATE)): _to_date,
        ("number", str(TIMESTAMP)): _to_timestamp,
        (str(TIMESTAMP), str(DATE)): _timestamp_to_date,
        ("timestamp_ntz", str(DATE)): _local_time_to_date,
        (str(STRING), str(DATE)): _parse_date,
        (str(STRING), str(TIMESTAMP)): _parse_time,
        (str(STRING), "timestamp_ntz"): _parse_time,
        (str(STRING), _TEMPORAL_STRING): comparable_time,
        (str(DATE), _TEMPORAL_STRING): _date_to_text,
        ("timestamp_ntz", _TEMPORAL_STRING): _local_time_to_text,
        (str(TIMESTAMP), _TEMPORAL_STRING): _timestamp_to_text,
        ("number", _TEMPORAL_STRING): _number_to_count,
    }
    | {(str(STRING), original): _parse_text for original in ("number", str(BOOLEAN))}
)
"""The conversions back, by stored and source type; a timestamp does not convert back to a number (U16)."""
