"""The proof for typed records: each is rebuilt from the rows of the table, in the types of the source, and compared.

Nothing here shares code with what made the rows: where that converts to the types of the columns, this converts back,
and takes for a value whatever the columns of its field say.

Source: docs/evolution-rules.md#one-interval, #u1, #u2, #d16
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
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
from widen.planning.evolution.policy import Policy
from widen.planning.evolution.source_metadata import RESCUED, role_field
from widen.proof.source_columns import ColumnsByKey, FieldColumns, SourceColumn, columns_by_key, widest_record_column
from widen.spark.source.field_names import Typed, field_steps, fields_of, with_field_steps
from widen.spark.spark_types import to_spark, type_to_spark
from widen.spark.typed.json_values import document_type, from_document, to_document, to_json_text

_DAY_MICROS = 86_400_000_000

Back = Callable[[Column, DataType, DataType], Column]
"""Takes values, their type in the table and their type in the source."""


def rebuild_fields(
    source: StructType, schema: StructType, policy: Policy, *, is_own_kind: bool = False
) -> dict[str, Typed]:
    """Return the fields of records as the rows of a table say them.

    Args:
        source: The schema of the records, as they were taken.
        schema: Of the table; its columns are those of the rows.
        policy: What is known of single fields.
        is_own_kind: Only columns of the kind that a field has in the source are asked.
    """
    rescued = role_field(schema, RESCUED)
    rest = None if rescued is None else _rescued(F.col(quote_name(rescued.name)), source)
    cells = columns_by_key(schema, policy)
    cells = _own_fields(source, cells) if is_own_kind else cells
    return _record(source, cells, lambda name: F.col(quote_name(name)), rest)


def is_own_kind(source: StructType, schema: StructType, policy: Policy) -> bool:
    """Tell whether all columns are of the kinds that their fields have in the source.

    Args:
        source: The schema of the records, as they were taken.
        schema: Of the table.
        policy: What is known of single fields.
    """
    cells = columns_by_key(schema, policy)
    return _own_fields(source, cells) == {field.name: cells.get(field.name, ()) for field in source}


def _own_fields(source: StructType, cells: ColumnsByKey) -> ColumnsByKey:
    return {field.name: tuple(_own_cells(field.type, cells.get(field.name, ()))) for field in source}


def _own_cells(data_type: DataType, cells: FieldColumns) -> Iterator[SourceColumn]:
    """Yield the columns that have values of a type as they are: no other kind, no arrays around them."""
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
        elif cell.fields is None and cell.value is None and (cell.dim, _family(cell.type)) == (dim, _family(leaf)):
            yield cell


_PARSE = {"timeZone": "UTC", "mode": "FAILFAST"}


def _rescued(text: Column, source: StructType) -> Column:
    told = document_type(source)
    assert isinstance(told, StructType)
    found = F.from_json(text, to_spark(told), _PARSE)
    return from_document(
        found if with_field_steps(told) == told else found.cast(type_to_spark(with_field_steps(told))), source
    )


def record_text(fields: Mapping[str, Typed]) -> Column:
    """Return the text of records that only equal ones share."""
    parts = (to_document(values, data_type).alias(name) for name, (values, data_type) in fields.items())
    return to_json_text(F.struct(*parts))


def count_leaves(fields: Mapping[str, Typed]) -> Column:
    """Return how many values stand in records that are no container and not null; Spark chains what is added up."""
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
    found = {}
    for field, name in zip(source, field_steps(source), strict=True):
        left = None if rest is None else rest.getField(name)
        found[field.name] = _value(field.type, route.get(field.name, ()), column, left), field.type
    return found


def _value(
    data_type: DataType, slots: Sequence[SourceColumn], column: Callable[[str], Column], rest: Column | None
) -> Column:
    """Return what the columns of a field say; of records the one with the most arrays says it (U17)."""
    told = [slot for slot in slots if slot.fields is not None]
    chosen = sorted(told, key=lambda slot: -slot.dim)[:1] if _has_records(data_type) else slots
    said = [_unwrapped(column(slot.name), data_type, slot, slot.dim, rest) for slot in chosen]
    ways = [way for way in said if way is not None]
    if rest is not None and not (isinstance(data_type, StructType) and ways):
        ways = [rest, *ways]
    typed = [way.cast(type_to_spark(with_field_steps(data_type))) for way in ways]
    return reduce(lambda one, other: _either(one, other, data_type), typed) if typed else _nothing(data_type)


def _nothing(data_type: DataType) -> Column:
    return F.lit(None).cast(type_to_spark(with_field_steps(data_type)))


def _has_records(data_type: DataType) -> bool:
    while isinstance(data_type, ArrayType):
        data_type = data_type.element
    return isinstance(data_type, StructType)


def _either(one: Column, other: Column, data_type: DataType) -> Column:
    """Return what one of two columns says, element by element; records and what only one says are as that one."""
    match data_type:
        case ArrayType(element):
            both = F.zip_with(one, other, lambda left, right: _either(left, right, element))
            return F.coalesce(both, one, other)
        case MapType(_, value):
            both = F.map_zip_with(one, other, lambda _, left, right: _either(left, right, value))
            return F.coalesce(both, one, other)
    return F.coalesce(one, other)


def _unwrapped(values: Column, data_type: DataType, slot: SourceColumn, dim: int, rest: Column | None) -> Column | None:
    """Return what a column says of values of a type; None if it cannot say any."""
    if isinstance(data_type, ArrayType):
        return _each(values, lambda item: _unwrapped(item, data_type.element, slot, dim - 1, None)) if dim else None
    if dim:
        return _unwrapped(F.try_element_at(values, F.lit(1)), data_type, slot, dim - 1, rest)
    if isinstance(data_type, MapType):
        return None if slot.value is None else _entries(values, data_type, slot.value)
    if isinstance(data_type, StructType):
        if slot.fields is None:
            return None
        fields = _record(data_type, slot.fields, values.getField, rest)
        is_there = values.isNotNull() if rest is None else values.isNotNull() | rest.isNotNull()
        parts = (found.alias(name) for name, (found, _) in zip(field_steps(data_type), fields.values(), strict=True))
        return F.when(is_there, F.struct(*parts))
    return None if slot.fields is not None or slot.value is not None else _back(values, slot.type, data_type)


def _each(values: Column, way: Callable[[Column], Column | None]) -> Column | None:
    return None if way(F.lit(None)) is None else F.transform(values, lambda item: _there(way(item)))


def _entries(values: Column, data_type: MapType, slot: SourceColumn) -> Column | None:
    if _unwrapped(F.lit(None), data_type.value, slot, slot.dim, None) is None:
        return None
    found = F.transform_values(
        values, lambda _, value: _there(_unwrapped(value, data_type.value, slot, slot.dim, None))
    )
    if data_type.key != STRING:
        found = F.transform_keys(found, lambda key, _: _there(_back(key, STRING, data_type.key)))
    return found


def _there(column: Column | None) -> Column:
    assert column is not None
    return column


# ---- scalars back to the types that they had -------------------------------------------------------


def _back(values: Column, stored: DataType, said: DataType) -> Column | None:
    if stored == said:
        return values
    way = _BACK.get((_family(stored), _family(said)))
    return None if way is None else way(values, stored, said)


def _family(data_type: DataType) -> str:
    if isinstance(data_type, DecimalType) or str(data_type) in _NUMBERS:
        return "number"
    return str(data_type)


_NUMBERS = frozenset({"byte", "short", "integer", "long", "float", "double"})


def _number(values: Column, stored: DataType, said: DataType) -> Column:
    """Return what says the number; a whole number that is a double is the one that the text of the double says."""
    told = values.try_cast("decimal(38,0)") if (stored, said) == (DOUBLE, LONG) else values
    found = told.try_cast(type_to_spark(said))
    return F.when(found.cast(type_to_spark(stored)) == values, found)


def _truth(values: Column, stored: DataType, said: DataType) -> Column:
    return F.when(values == 0, F.lit(False)).when(values == 1, F.lit(True))


def _text(values: Column, stored: DataType, said: DataType) -> Column:
    return values.try_cast(type_to_spark(said))


def _local(values: Column, stored: DataType, said: DataType) -> Column:
    return F.replace(values, F.lit("T"), F.lit(" ")).try_cast("timestamp_ntz")


def _day(values: Column, stored: DataType, said: DataType) -> Column:
    return F.date_from_unix_date(values.try_cast("int"))


def _day_of_instant(values: Column, stored: DataType, said: DataType) -> Column:
    return F.date_from_unix_date(F.floor(F.unix_micros(values) / F.lit(_DAY_MICROS)).cast("int"))


def _instant(values: Column, stored: DataType, said: DataType) -> Column:
    return F.timestamp_millis(values.try_cast("bigint"))


_BACK: Mapping[tuple[str, str], Back] = MappingProxyType(
    {
        ("number", "number"): _number,
        ("number", str(BOOLEAN)): _truth,
        ("number", str(DATE)): _day,
        ("number", str(TIMESTAMP)): _instant,
        (str(TIMESTAMP), str(DATE)): _day_of_instant,
        ("timestamp_ntz", str(DATE)): _text,
        (str(STRING), "timestamp_ntz"): _local,
    }
    | {(str(STRING), said): _text for said in ("number", str(BOOLEAN), str(DATE), str(TIMESTAMP))}
)
"""How a column says what a value of the source was, by the two types; of points in time it says no numbers (U16)."""
