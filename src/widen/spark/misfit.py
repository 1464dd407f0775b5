"""Which typed records do not fit the columns that cannot yield, as expressions.

Columns inside arrays and maps are not looked at: a row that breaks a rule of theirs fails the job.

Source: spec of evolution, D12, D16.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F

from widen.model.path import Path, format_path
from widen.model.type import DataType, MapType, StructType
from widen.observe.kind import MAP_WORD, NULL_WORD, RECORD_WORD, Kind, leaf_and_dim
from widen.observe.observation import SAMPLE_CHARS, KindSeen, RecordSeen, field_of
from widen.observe.typed import facts_of
from widen.planning.policy import Guard
from widen.routing.fit import guarded
from widen.routing.route import RecordRoute, Slot
from widen.spark.document import to_document, to_json_text
from widen.spark.step import Typed, fields_of
from widen.spark.wiring import is_held


@dataclass(frozen=True, slots=True)
class Misfit:
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


def misfits(fields: Mapping[str, Typed], route: RecordRoute) -> list[Misfit]:
    """Return what may keep records out; nothing where every column yields.

    Args:
        fields: What stands at each key of a record, with its type.
        route: Which columns each key goes to.
    """
    return list(_misfits(fields, guarded(route), ()))


def reason_of(found: Sequence[Misfit]) -> Column:
    """Return why a record is kept out; null where it is not."""
    told = F.lit(None).cast("string")
    for misfit in reversed(found):
        told = F.when(misfit.is_there, misfit.reason).otherwise(told)
    return told


def seen_of(found: Sequence[Misfit], counts: Sequence[int]) -> RecordSeen:
    """Return what keeps records out as what they hold.

    Args:
        found: What may keep records out.
        counts: How many records have each.
    """
    root: RecordSeen = {}
    for misfit, count in zip(found, counts, strict=True):
        record = root
        for key in misfit.source[:-1]:
            above = field_of(record, key)
            above.kinds.setdefault(Kind(RECORD_WORD), KindSeen())
            record = above.record(0)
        if count:
            field_of(record, misfit.source[-1]).kinds[misfit.kind] = KindSeen(count=count)
    return root


def _misfits(fields: Mapping[str, Typed], route: RecordRoute, above: Path) -> Iterator[Misfit]:
    for key, slots in route.items():
        values, data_type = fields.get(key, (F.lit(None), None))
        for slot in slots:
            if slot.guard is not None:
                yield from _of_slot((*above, key), values, data_type, slot, slot.guard)
            if slot.record is not None and not slot.dim and isinstance(data_type, StructType):
                yield from _misfits(fields_of(values, data_type), slot.record, (*above, key))


def _of_slot(
    source: Path, values: Column, data_type: DataType | None, slot: Slot, guard: Guard
) -> Iterator[Misfit]:
    path, column = format_path(source), f"and column {slot.name} is {guard.reason}"
    if guard.is_required:
        yield Misfit(source, Kind(NULL_WORD), values.isNull(), F.lit(f"{path} is null, {column}"))
    held = None if data_type is None else is_held(values, data_type, (slot,), 0)
    if held is not None and data_type is not None:
        text = F.concat(F.lit(f"{path}: "), _shown(values, data_type), F.lit(f" is no {slot.type.sql}, {column}"))
        yield Misfit(source, _kind(data_type), ~held, text)


def _kind(data_type: DataType) -> Kind:
    leaf, dim = leaf_and_dim(data_type)
    told = facts_of(leaf)
    word = RECORD_WORD if isinstance(leaf, StructType) else MAP_WORD if isinstance(leaf, MapType) else NULL_WORD
    return Kind(told[0] if told else word, dim)


def _shown(values: Column, data_type: DataType) -> Column:
    text = to_json_text(F.array(to_document(values, data_type)))
    return text.substr(F.lit(2), F.least(F.length(text) - F.lit(2), F.lit(SAMPLE_CHARS)))
