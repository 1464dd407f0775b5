"""Which typed records do not fit the columns that cannot yield, as expressions.

Columns inside arrays and maps are not looked at: a row that breaks a rule of theirs fails the job.

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
from widen.routing.fixed_column_check import fixed_column_route
from widen.routing.route import ColumnSlot, RecordRoute
from widen.spark.source.field_names import Typed, fields_of
from widen.spark.typed.column_expressions import is_held_expression
from widen.spark.typed.json_values import to_document, to_json_text


@dataclass(frozen=True, slots=True)
class TypedViolation:
    """What keeps a record out.

    Args:
        source: The path of the source field.
        kind: The kind of the value; ``null`` for one that has to be there.
        is_there: Whether a record has it.
        reason: What is told of it.
    """

    source: Path
    kind: Kind
    is_there: Column
    reason: Column


def find_typed_violations(fields: Mapping[str, Typed], route: RecordRoute) -> list[TypedViolation]:
    """Return what may keep records out; nothing where every column yields.

    Args:
        fields: What stands at each key of a record, with its type.
        route: Which columns each key goes to.
    """
    return list(_find_violations(fields, fixed_column_route(route), ()))


def violation_reason(found: Sequence[TypedViolation]) -> Column:
    """Return why a record is kept out; null where it is not."""
    told = F.lit(None).cast("string")
    for misfit in reversed(found):
        told = F.when(misfit.is_there, misfit.reason).otherwise(told)
    return told


def observe_violations(found: Sequence[TypedViolation], counts: Sequence[int]) -> RecordObservation:
    """Return what keeps records out as what they hold.

    Args:
        found: What may keep records out.
        counts: How many records have each.
    """
    root: RecordObservation = {}
    for misfit, count in zip(found, counts, strict=True):
        record = root
        for key in misfit.source[:-1]:
            above = get_field(record, key)
            above.kinds.setdefault(Kind(RECORD_WORD), KindObservation())
            record = above.record(0)
        if count:
            get_field(record, misfit.source[-1]).kinds[misfit.kind] = KindObservation(count=count)
    return root


def _find_violations(fields: Mapping[str, Typed], route: RecordRoute, above: Path) -> Iterator[TypedViolation]:
    for key, slots in route.items():
        values, data_type = fields.get(key, (F.lit(None), None))
        for slot in slots:
            if slot.guard is not None:
                yield from _of_slot((*above, key), values, data_type, slot, slot.guard)
            if slot.record is not None and not slot.dim and isinstance(data_type, StructType):
                yield from _find_violations(fields_of(values, data_type), slot.record, (*above, key))


def _of_slot(
    source: Path, values: Column, data_type: DataType | None, slot: ColumnSlot, guard: FixedColumn
) -> Iterator[TypedViolation]:
    path, column = format_path(source), f"and column {slot.name} is {guard.reason}"
    if guard.is_required:
        yield TypedViolation(source, Kind(NULL_WORD), values.isNull(), F.lit(f"{path} is null, {column}"))
    held = None if data_type is None else is_held_expression(values, data_type, (slot,), 0)
    if held is not None and data_type is not None:
        text = F.concat(F.lit(f"{path}: "), _shown(values, data_type), F.lit(f" is no {slot.type.sql}, {column}"))
        yield TypedViolation(source, _kind(data_type), ~held, text)


def _kind(data_type: DataType) -> Kind:
    leaf, dim = leaf_and_dim(data_type)
    told = type_facts(leaf)
    word = RECORD_WORD if isinstance(leaf, StructType) else MAP_WORD if isinstance(leaf, MapType) else NULL_WORD
    return Kind(told[0] if told else word, dim)


def _shown(values: Column, data_type: DataType) -> Column:
    text = to_json_text(F.array(to_document(values, data_type)))
    return text.substr(F.lit(2), F.least(F.length(text) - F.lit(2), F.lit(SAMPLE_CHARS)))
