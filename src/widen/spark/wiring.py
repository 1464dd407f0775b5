"""Typed records to rows of the table, as expressions: every value to every column of its field that can hold it.

Nothing runs in Python for a record. Which columns a value goes to is read off the routes, as for texts.

Source: spec of evolution, U14, U16, U17, D1, D10, D16.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import TypeVar

from pyspark.sql import Column
from pyspark.sql import functions as F

from widen.model.type import STRING, ArrayType, DataType, MapType, StructType
from widen.observe.typed import facts_of
from widen.planning.name import RESCUED, role_field
from widen.planning.policy import Policy
from widen.routing.rescue import record_of
from widen.routing.route import RecordRoute, Slot, does_bar, routes
from widen.spark.balance import balanced
from widen.spark.document import to_document, to_json_text
from widen.spark.exact import converted, is_total
from widen.spark.schema import type_to_spark
from widen.spark.step import Typed, fields_of

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Held:
    """What a column holds of a value.

    Args:
        column: The expression.
        is_total: It is null only where the value is.
    """

    column: Column
    is_total: bool


def to_columns(fields: Mapping[str, Typed], schema: StructType, policy: Policy) -> list[Column]:
    """Return the columns of a table, made of the fields of records.

    Args:
        fields: What stands at each key of a record, with its type.
        schema: Of the table.
        policy: What is known of single fields.

    Source: spec of evolution, U14.
    """
    route = routes(schema, policy)
    made = _filled(fields, route)
    rescued = role_field(schema, RESCUED)
    if rescued is not None:
        rest = _rest_of_record(fields, route)
        made[rescued.name] = F.lit(None) if rest is None else to_json_text(rest)
    return [_of_type(made.get(field.name), field.type).alias(field.name) for field in schema]


def _of_type(column: Column | None, data_type: DataType) -> Column:
    return (F.lit(None) if column is None else column).cast(type_to_spark(data_type))


def _filled(fields: Mapping[str, Typed], route: RecordRoute) -> dict[str, Column]:
    found = {}
    for key, (values, data_type) in fields.items():
        for slot in route.get(key, ()):
            held = _held(values, data_type, slot, slot.dim)
            if held is not None:
                found[slot.name] = held.column
    return found


def _held(values: Column, data_type: DataType, slot: Slot, dim: int) -> Held | None:
    """Return what a column of ``dim`` arrays holds of values: themselves, wrapped; None if nothing of that type."""
    if isinstance(data_type, ArrayType):
        return _held_array(values, data_type, slot, dim - 1) if dim else None
    if dim:
        inner = _held(values, data_type, slot, dim - 1)
        return inner and Held(F.when(inner.column.isNotNull(), F.array(inner.column)), inner.is_total)
    if isinstance(data_type, MapType):
        return None if slot.entries is None else _held_map(values, data_type, slot.entries)
    if isinstance(data_type, StructType):
        return None if slot.record is None else Held(_held_record(values, data_type, slot, slot.record), True)
    column = None if _does_bar(slot, data_type) else converted(values, data_type, slot.type, slot.epoch_unit)
    return None if column is None else Held(column, is_total(data_type, slot.type))


def _held_array(values: Column, data_type: ArrayType, slot: Slot, dim: int) -> Held | None:
    """Return the array with null in place of what the column cannot hold; null if that is everything."""
    probe = _held(F.lit(None), data_type.element, slot, dim)
    if probe is None:
        return None
    found = F.transform(values, lambda item: _sure(_held(item, data_type.element, slot, dim)).column)
    if probe.is_total:
        return Held(found, True)
    is_lost = F.exists(values, F.isnotnull) & ~F.exists(found, F.isnotnull)
    return Held(F.when(~is_lost, found), False)


def _held_map(values: Column, data_type: MapType, slot: Slot) -> Held | None:
    probe = _held(F.lit(None), data_type.value, slot, slot.dim)
    if probe is None:
        return None
    found = F.transform_values(values, lambda _, value: _sure(_held(value, data_type.value, slot, slot.dim)).column)
    if data_type.key != STRING:
        found = F.transform_keys(found, lambda key, _: _sure(converted(key, data_type.key, STRING)))
    return Held(found, probe.is_total)


def _held_record(values: Column, data_type: StructType, slot: Slot, route: RecordRoute) -> Column:
    assert isinstance(slot.type, StructType)
    made = _filled(fields_of(values, data_type), route)
    columns = [_of_type(made.get(field.name), field.type).alias(field.name) for field in slot.type]
    return F.when(values.isNotNull(), F.struct(*columns))


# ---- what no column holds --------------------------------------------------------------------------


def _rest_of_record(fields: Mapping[str, Typed], route: RecordRoute) -> Column | None:
    """Return the fields of which no column holds everything, as a struct; None if there can be none.

    Source: spec of evolution, D10.
    """
    found = ((key, _rest(values, data_type, route.get(key, ()))) for key, (values, data_type) in fields.items())
    rests = [(key, rest) for key, rest in found if rest is not None]
    is_there = [rest.isNotNull() for _, rest in rests]
    return F.when(balanced(or_, is_there), F.struct(*(rest.alias(key) for key, rest in rests))) if rests else None


def _rest(values: Column, data_type: DataType, slots: Sequence[Slot]) -> Column | None:
    """Return values that no column holds, null where one does; an array or a map that is not held in full is kept."""
    record = record_of(slots)
    if isinstance(data_type, StructType) and record is not None:
        return _rest_of_record(fields_of(values, data_type), record)
    held = is_held(values, data_type, slots, 0)
    return None if held is None else F.when(~held, to_document(values, data_type))


def is_held(values: Column, data_type: DataType, slots: Sequence[Slot], dim: int) -> Column | None:
    """Tell whether for every value some column holds it exactly; None if that is always so.

    Args:
        values: The values; what is null is held.
        data_type: Their type.
        slots: The columns of their field.
        dim: How many arrays are around the values.
    """
    deep = [slot for slot in slots if slot.dim >= dim]
    match data_type:
        case ArrayType(element):
            return _all_held(values, element, slots, dim + 1)
        case MapType(_, value):
            entries = [slot.entries for slot in deep if slot.entries is not None]
            return _all_held(F.map_values(values), value, entries, 0) if entries else values.isNull()
        case StructType():
            record = record_of(deep)
            if record is None:
                return values.isNull()
            fields = fields_of(values, data_type)
            inside = (is_held(inner, kind, record.get(key, ()), 0) for key, (inner, kind) in fields.items())
            held = [each for each in inside if each is not None]
            return balanced(and_, held) if held else None
    plain = [slot for slot in deep if slot.record is None and slot.entries is None and not _does_bar(slot, data_type)]
    if any(is_total(data_type, slot.type) for slot in plain):
        return None
    ways = (converted(values, data_type, slot.type, slot.epoch_unit) for slot in plain)
    return reduce(or_, (way.isNotNull() for way in ways if way is not None), values.isNull())


def _does_bar(slot: Slot, data_type: DataType) -> bool:
    told = facts_of(data_type)
    return told is not None and does_bar(slot, told[0])


def _all_held(values: Column, data_type: DataType, slots: Sequence[Slot], dim: int) -> Column | None:
    if is_held(F.lit(None), data_type, slots, dim) is None:
        return None
    return values.isNull() | F.forall(values, lambda item: _sure(is_held(item, data_type, slots, dim)))


def _sure(found: _T | None) -> _T:
    assert found is not None
    return found
