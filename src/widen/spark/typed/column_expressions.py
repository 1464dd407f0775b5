"""Typed records to rows of the table, as expressions: every value goes to every column of its field that can hold it.

No Python runs per record. The routes decide which columns a value goes to, as for JSON texts.

Source: docs/evolution-rules.md#u14, #u16, #u17, #d1, #d10, #d16
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import TypeVar

from pyspark.sql import Column
from pyspark.sql import functions as F

from widen.model.types import STRING, ArrayType, DataType, MapType, StructType
from widen.observe.observe_schema import type_facts
from widen.planning.evolution.policy import Policy
from widen.planning.evolution.source_metadata import RESCUED, role_field
from widen.routing.rescue import widest_record_route
from widen.routing.route import ColumnSlot, RecordRoute, build_routes, is_excluded_kind, stores_kind
from widen.spark.expression import join_columns
from widen.spark.source.field_names import Typed, fields_of
from widen.spark.spark_types import type_to_spark
from widen.spark.typed.exact_cast import convert_exactly, holds_every_value
from widen.spark.typed.json_values import to_document, to_json_text

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class HeldColumn:
    """The part of a value that a column holds.

    Args:
        is_total: Whether the expression is null only where the value is.
    """

    column: Column
    is_total: bool


def to_columns(fields: Mapping[str, Typed], schema: StructType, policy: Policy) -> list[Column]:
    """Return the columns of a table, made of the fields of records.

    Args:
        policy: The policy, with what it says about single fields.

    Source: docs/evolution-rules.md#u14
    """
    route = build_routes(schema, policy)
    columns = _fill_columns(fields, route)
    rescued = role_field(schema, RESCUED)
    if rescued is not None:
        rest = _rest_of_record(fields, route)
        columns[rescued.name] = F.lit(None) if rest is None else to_json_text(rest)
    return [_of_type(columns.get(field.name), field.type).alias(field.name) for field in schema]


def _of_type(column: Column | None, data_type: DataType) -> Column:
    return (F.lit(None) if column is None else column).cast(type_to_spark(data_type))


def _fill_columns(fields: Mapping[str, Typed], route: RecordRoute) -> dict[str, Column]:
    columns = {}
    for key, (values, data_type) in fields.items():
        for slot in route.get(key, ()):
            held_values = _hold_values(values, data_type, slot, slot.dim)
            if held_values is not None:
                columns[slot.name] = held_values.column
    return columns


def _hold_values(values: Column, data_type: DataType, slot: ColumnSlot, dim: int) -> HeldColumn | None:
    """Return what a column with ``dim`` levels of arrays holds of values; None if it holds no value of their type.

    Values with fewer levels are wrapped in arrays.
    """
    if isinstance(data_type, ArrayType):
        return _hold_array(values, data_type, slot, dim - 1) if dim else None
    if dim:
        inner = _hold_values(values, data_type, slot, dim - 1)
        return inner and HeldColumn(F.when(inner.column.isNotNull(), F.array(inner.column)), inner.is_total)
    if isinstance(data_type, MapType):
        return None if slot.entries is None else _hold_map(values, data_type, slot.entries)
    if isinstance(data_type, StructType):
        return None if slot.record is None else HeldColumn(_hold_record(values, data_type, slot, slot.record), True)
    column = None if _does_bar(slot, data_type) else convert_exactly(values, data_type, slot.type, slot.epoch_unit)
    return None if column is None else HeldColumn(column, holds_every_value(data_type, slot.type))


def _hold_array(values: Column, data_type: ArrayType, slot: ColumnSlot, dim: int) -> HeldColumn | None:
    """Return arrays with null for elements that the column cannot hold; null if it cannot hold any of the elements."""
    # Spark builds the lambda below only for its result, which cannot be None. So a null value asks first.
    probe = _hold_values(F.lit(None), data_type.element, slot, dim)
    if probe is None:
        return None
    elements = F.transform(values, lambda item: _not_none(_hold_values(item, data_type.element, slot, dim)).column)
    if probe.is_total:
        return HeldColumn(elements, True)
    # An array of nothing but nulls is held as it is; only values that the column cannot hold make it null.
    is_lost = F.exists(values, F.isnotnull) & ~F.exists(elements, F.isnotnull)
    return HeldColumn(F.when(~is_lost, elements), False)


def _hold_map(values: Column, data_type: MapType, slot: ColumnSlot) -> HeldColumn | None:
    probe = _hold_values(F.lit(None), data_type.value, slot, slot.dim)
    if probe is None:
        return None
    entries = F.transform_values(
        values, lambda _, value: _not_none(_hold_values(value, data_type.value, slot, slot.dim)).column
    )
    if data_type.key != STRING:
        entries = F.transform_keys(entries, lambda key, _: _not_none(convert_exactly(key, data_type.key, STRING)))
    return HeldColumn(entries, probe.is_total)


def _hold_record(values: Column, data_type: StructType, slot: ColumnSlot, route: RecordRoute) -> Column:
    assert isinstance(slot.type, StructType)
    filled = _fill_columns(fields_of(values, data_type), route)
    columns = [_of_type(filled.get(field.name), field.type).alias(field.name) for field in slot.type]
    return F.when(values.isNotNull(), F.struct(*columns))


# ---- values that no column holds -------------------------------------------------------------------


def _rest_of_record(fields: Mapping[str, Typed], route: RecordRoute) -> Column | None:
    """Return the fields that no column holds completely, as a struct; None if every field is always held.

    Source: docs/evolution-rules.md#d10
    """
    candidates = ((key, _rest(values, data_type, route.get(key, ()))) for key, (values, data_type) in fields.items())
    rests = [(key, rest) for key, rest in candidates if rest is not None]
    is_present = [rest.isNotNull() for _, rest in rests]
    return F.when(join_columns(or_, is_present), F.struct(*(rest.alias(key) for key, rest in rests))) if rests else None


def _rest(values: Column, data_type: DataType, slots: Sequence[ColumnSlot]) -> Column | None:
    """Return the values that no column holds, and null for the others; None if columns always hold all values.

    An array or a map that is not held completely is returned as a whole.
    """
    record = widest_record_route(slots)
    if isinstance(data_type, StructType) and record is not None:
        return _rest_of_record(fields_of(values, data_type), record)
    is_held = is_held_expression(values, data_type, slots, 0)
    return None if is_held is None else F.when(~is_held, to_document(values, data_type))


def is_held_expression(values: Column, data_type: DataType, slots: Sequence[ColumnSlot], dim: int) -> Column | None:
    """Return an expression that tells whether some column holds each value exactly; None if that is always so.

    Args:
        values: The values; null counts as held.
        dim: How many levels of arrays surround the values.
    """
    deep = [slot for slot in slots if slot.dim >= dim]
    match data_type:
        case ArrayType(element):
            return _all_held_expression(values, element, slots, dim + 1)
        case MapType(_, value):
            entries = [slot.entries for slot in deep if slot.entries is not None]
            return _all_held_expression(F.map_values(values), value, entries, 0) if entries else values.isNull()
        case StructType():
            record = widest_record_route(deep)
            if record is None:
                return values.isNull()
            fields = fields_of(values, data_type)
            conditions = (
                is_held_expression(inner, kind, record.get(key, ()), 0) for key, (inner, kind) in fields.items()
            )
            partial = [each for each in conditions if each is not None]
            return join_columns(and_, partial) if partial else None
    plain = [slot for slot in deep if slot.record is None and slot.entries is None and _stores(slot, data_type)]
    if any(holds_every_value(data_type, slot.type) for slot in plain):
        return None
    converted = (convert_exactly(values, data_type, slot.type, slot.epoch_unit) for slot in plain)
    return reduce(or_, (column.isNotNull() for column in converted if column is not None), values.isNull())


def _stores(slot: ColumnSlot, data_type: DataType) -> bool:
    facts = type_facts(data_type)
    return facts is None or stores_kind(slot, facts[0])


def _does_bar(slot: ColumnSlot, data_type: DataType) -> bool:
    facts = type_facts(data_type)
    return facts is not None and is_excluded_kind(slot, facts[0])


def _all_held_expression(values: Column, data_type: DataType, slots: Sequence[ColumnSlot], dim: int) -> Column | None:
    if is_held_expression(F.lit(None), data_type, slots, dim) is None:
        return None
    return values.isNull() | F.forall(values, lambda item: _not_none(is_held_expression(item, data_type, slots, dim)))


def _not_none(value: _T | None) -> _T:
    assert value is not None
    return value
