"""Typed records to rows of the table, as expressions: every value goes to every column of its field that can hold it.

No Python runs per record. The routes decide which columns a value goes to, as for JSON texts.

Source: docs/evolution-rules.md#u14, #u16, #u17, #d1, #d10, #d16
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import and_, or_
from typing import TypeVar

from widen.evolution.policy import FixedColumn, Policy, Samples
from widen.frames.column_conversions import convert_exactly, holds_every_value, json_text_column, to_document
from widen.json.kinds import MAP_WORD, NULL_WORD, RECORD_WORD, Kind, leaf_and_dim
from widen.json.observation import (
    SAMPLE_CHARS,
    KindObservation,
    RecordObservation,
    get_field,
    type_facts,
)
from widen.model.column_path import Path, format_path
from widen.model.types import (
    STRING,
    ArrayType,
    DataType,
    MapType,
    StructType,
)
from widen.rows.row import (
    ColumnSlot,
    RecordRoute,
    build_routes,
    fixed_column_route,
    is_excluded_kind,
    stores_kind,
    widest_record_route,
)
from widen.schema.source_metadata import RESCUED, role_field
from widen.sources.file_ranges import Typed, fields_of
from widen.spark.errors import mask_text
from widen.spark.expression import join_columns
from widen.spark.spark_types import Column, F, type_to_spark

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
        columns[rescued.name] = F.lit(None) if rest is None else json_text_column(rest)
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
    column = None if does_bar(slot, data_type) else convert_exactly(values, data_type, slot.type, slot.epoch_unit)
    return None if column is None else HeldColumn(column, holds_every_value(data_type, slot.type))


def _hold_array(values: Column, data_type: ArrayType, slot: ColumnSlot, dim: int) -> HeldColumn | None:
    """Return arrays with null for elements that the column cannot hold; null if it cannot hold any of the elements."""
    # Spark calls the lambda below only for its result, which cannot be None. So try a null value first.
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
            deeper = [slot for slot in deep if slot.dim > dim and _can_hold(data_type, slot, slot.dim - dim)]
            return _all_held_expression(values, element, deeper, dim + 1) if deeper else values.isNull()
        case MapType(_, value):
            entries = [
                slot.entries for slot in deep if slot.entries is not None and _can_hold(data_type, slot, slot.dim - dim)
            ]
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


def _can_hold(data_type: DataType, slot: ColumnSlot, dim: int) -> bool:
    """Return whether a column with ``dim`` levels of arrays takes values of a type: then it also holds empty ones."""
    return _hold_values(F.lit(None), data_type, slot, dim) is not None


def _stores(slot: ColumnSlot, data_type: DataType) -> bool:
    facts = type_facts(data_type)
    return facts is None or stores_kind(slot, facts[0])


def does_bar(slot: ColumnSlot, data_type: DataType) -> bool:
    """Return whether a column must not have values of a type."""
    facts = type_facts(data_type)
    return facts is not None and is_excluded_kind(slot, facts[0])


def _all_held_expression(values: Column, data_type: DataType, slots: Sequence[ColumnSlot], dim: int) -> Column | None:
    if is_held_expression(F.lit(None), data_type, slots, dim) is None:
        return None
    return values.isNull() | F.forall(values, lambda item: _not_none(is_held_expression(item, data_type, slots, dim)))


def _not_none(value: _T | None) -> _T:
    assert value is not None
    return value


# Conversions of scalars to the types of columns, as expressions: exact, or null.
#
# A conversion that would lose the value gives null; then another column of the field holds the value.
#
# Source: docs/evolution-rules.md#d2, #d5, #d16


# Typed values as JSON documents, and back: with the source's field names, and with strings as map keys.
#
# Source: docs/evolution-rules.md#d10, #d16


# Typed records that do not fit the fixed columns, as expressions.
#
# Columns inside arrays and maps are not checked here: a row that violates one of their rules fails the job.
#
# Source: docs/evolution-rules.md#d12, #d16


@dataclass(frozen=True, slots=True)
class TypedViolation:
    """A reason to quarantine a record.

    Args:
        kind: The kind of the value; ``null`` for a required value that is missing.
        is_violated: Whether a record has the violation.
    """

    source: Path
    kind: Kind
    is_violated: Column
    reason: Column


def find_typed_violations(
    fields: Mapping[str, Typed],
    route: RecordRoute,
    samples: Samples = Samples.MASKED,
    missing: Mapping[str, Column] | None = None,
) -> list[TypedViolation]:
    """Return the violations that records may have; empty if the table has no fixed columns.

    Args:
        samples: How reasons show values.
        missing: Whether a record has no field for a column, by the columns that the table fills.
    """
    return list(_find_violations(fields, fixed_column_route(route), (), samples, missing or {}))


def violation_reason(violations: Sequence[TypedViolation]) -> Column:
    """Return why a record is quarantined; null if it is not."""
    reason = F.lit(None).cast("string")
    for violation in reversed(violations):
        reason = F.when(violation.is_violated, violation.reason).otherwise(reason)
    return reason


def observe_violations(violations: Sequence[TypedViolation], counts: Sequence[int]) -> RecordObservation:
    """Return violations as an observation.

    Args:
        counts: How many records have each violation.
    """
    root: RecordObservation = {}
    for violation, count in zip(violations, counts, strict=True):
        record = root
        for key in violation.source[:-1]:
            above = get_field(record, key)
            above.kinds.setdefault(Kind(RECORD_WORD), KindObservation())
            record = above.record(0)
        if count:
            get_field(record, violation.source[-1]).kinds[violation.kind] = KindObservation(count=count)
    return root


def _find_violations(
    fields: Mapping[str, Typed], route: RecordRoute, above: Path, samples: Samples, missing: Mapping[str, Column]
) -> Iterator[TypedViolation]:
    for key, slots in route.items():
        values, data_type = fields.get(key, (F.lit(None), None))
        for slot in slots:
            if slot.guard is not None:
                is_missing = missing.get(slot.name) if slot.guard.is_filled else None
                yield from _column_violations((*above, key), values, data_type, slot, slot.guard, samples, is_missing)
            if slot.record is not None and not slot.dim and isinstance(data_type, StructType):
                yield from _find_violations(fields_of(values, data_type), slot.record, (*above, key), samples, {})


def _column_violations(
    source: Path,
    values: Column,
    data_type: DataType | None,
    slot: ColumnSlot,
    guard: FixedColumn,
    samples: Samples,
    is_missing: Column | None,
) -> Iterator[TypedViolation]:
    path, column = format_path(source), f"and column {slot.name} is {guard.reason}"
    if guard.is_required:
        is_null = values.isNull() if is_missing is None else values.isNull() & ~is_missing
        yield TypedViolation(source, Kind(NULL_WORD), is_null, F.lit(f"{path} is null, {column}"))
    if not guard.takes_values and data_type is not None:
        text = F.lit(f"{path} has a value, but column {slot.name} is {guard.reason}")
        yield TypedViolation(source, kind_of(data_type), values.isNotNull(), text)
        return
    is_held = None if data_type is None else is_held_expression(values, data_type, (slot,), 0)
    if is_held is not None and data_type is not None:
        shown = _show_value(values, data_type, samples)
        text = F.concat(F.lit(f"{path}: "), shown, F.lit(f" is not of type {slot.type.sql}, {column}"))
        yield TypedViolation(source, kind_of(data_type), ~is_held, text)


def kind_of(data_type: DataType) -> Kind:
    """Return the kind of the values of a type."""
    leaf, dim = leaf_and_dim(data_type)
    facts = type_facts(leaf)
    word = RECORD_WORD if isinstance(leaf, StructType) else MAP_WORD if isinstance(leaf, MapType) else NULL_WORD
    return Kind(facts[0] if facts else word, dim)


def _show_value(values: Column, data_type: DataType, samples: Samples) -> Column:
    if samples is Samples.NONE:
        return F.lit("the value")
    text = json_text_column(F.array(to_document(values, data_type)))
    shown = text.substr(F.lit(2), F.least(F.length(text) - F.lit(2), F.lit(SAMPLE_CHARS)))
    return shown if samples is Samples.RAW else mask_text(shown)
