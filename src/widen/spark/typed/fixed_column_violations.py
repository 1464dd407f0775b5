"""Typed records that do not fit the fixed columns, as expressions.

Columns inside arrays and maps are not checked here: a row that violates one of their rules fails the job.

Source: docs/evolution-rules.md#d12, #d16
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from widen.model.column_path import Path, format_path
from widen.model.types import DataType, MapType, StructType
from widen.observe.kind import MAP_WORD, NULL_WORD, RECORD_WORD, Kind, leaf_and_dim
from widen.observe.observation import SAMPLE_CHARS, KindObservation, RecordObservation, get_field
from widen.observe.observe_schema import type_facts
from widen.planning.evolution.policy import FixedColumn
from widen.planning.evolution.samples import Samples
from widen.routing.fixed_column_check import fixed_column_route
from widen.routing.route import ColumnSlot, RecordRoute
from widen.spark.masked_values import mask_text
from widen.spark.source.field_names import Typed, fields_of
from widen.spark.typed.column_expressions import is_held_expression
from widen.spark.typed.json_values import to_document, to_json_text


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
    fields: Mapping[str, Typed], route: RecordRoute, samples: Samples = Samples.MASKED
) -> list[TypedViolation]:
    """Return the violations that records may have; empty if the table has no fixed columns.

    Args:
        samples: How reasons show values.
    """
    return list(_find_violations(fields, fixed_column_route(route), (), samples))


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
    fields: Mapping[str, Typed], route: RecordRoute, above: Path, samples: Samples
) -> Iterator[TypedViolation]:
    for key, slots in route.items():
        values, data_type = fields.get(key, (F.lit(None), None))
        for slot in slots:
            if slot.guard is not None:
                yield from _column_violations((*above, key), values, data_type, slot, slot.guard, samples)
            if slot.record is not None and not slot.dim and isinstance(data_type, StructType):
                yield from _find_violations(fields_of(values, data_type), slot.record, (*above, key), samples)


def _column_violations(
    source: Path, values: Column, data_type: DataType | None, slot: ColumnSlot, guard: FixedColumn, samples: Samples
) -> Iterator[TypedViolation]:
    path, column = format_path(source), f"and column {slot.name} is {guard.reason}"
    if guard.is_required:
        yield TypedViolation(source, Kind(NULL_WORD), values.isNull(), F.lit(f"{path} is null, {column}"))
    if not guard.takes_values and data_type is not None:
        text = F.lit(f"{path} has a value, but column {slot.name} is {guard.reason}")
        yield TypedViolation(source, _kind(data_type), values.isNotNull(), text)
        return
    is_held = None if data_type is None else is_held_expression(values, data_type, (slot,), 0)
    if is_held is not None and data_type is not None:
        shown = _show_value(values, data_type, samples)
        text = F.concat(F.lit(f"{path}: "), shown, F.lit(f" is not of type {slot.type.sql}, {column}"))
        yield TypedViolation(source, _kind(data_type), ~is_held, text)


def _kind(data_type: DataType) -> Kind:
    leaf, dim = leaf_and_dim(data_type)
    facts = type_facts(leaf)
    word = RECORD_WORD if isinstance(leaf, StructType) else MAP_WORD if isinstance(leaf, MapType) else NULL_WORD
    return Kind(facts[0] if facts else word, dim)


def _show_value(values: Column, data_type: DataType, samples: Samples) -> Column:
    if samples is Samples.NONE:
        return F.lit("the value")
    text = to_json_text(F.array(to_document(values, data_type)))
    shown = text.substr(F.lit(2), F.least(F.length(text) - F.lit(2), F.lit(SAMPLE_CHARS)))
    return shown if samples is Samples.RAW else mask_text(shown)
