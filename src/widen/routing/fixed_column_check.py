"""Which records fit the columns that cannot yield: those that files are split by, that must not be null, that rules
look at. A record that does not is kept out of the table as a whole.

Source: docs/evolution-rules.md#d12
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from widen.model.column_path import Path, format_path
from widen.observe.json_document import JsonDocument, MapEntries, document_to_json, has_leaf
from widen.observe.json_number import NO_FACTS
from widen.observe.kind import NULL_WORD, Kind
from widen.observe.observation import SAMPLE_CHARS, RecordObservation, RecordPosition, get_field
from widen.observe.observe_document import observe_value
from widen.planning.evolution.policy import FixedColumn
from widen.routing.convert import MISSING
from widen.routing.rescue import is_fully_held
from widen.routing.route import ColumnSlot, RecordRoute
from widen.routing.row import cell_of

RecordLocation: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""The records around a field: the key of each, and how many arrays are around the maps in it and around itself."""


@dataclass(frozen=True, slots=True)
class GuardViolation:
    """A value that keeps its record out.

    Args:
        place: The records around it.
        key: Where it stands in the innermost.
        slot: The column that does not hold it.
        guard: Why that cannot yield.
        value: The value, as it was taken.
    """

    place: RecordLocation
    key: str
    slot: ColumnSlot
    guard: FixedColumn
    value: JsonDocument

    def __str__(self) -> str:
        path = format_path(self.source)
        if self.value is None:
            return f"{path} is null, and column {self.slot.name} is {self.guard.reason}"
        text = document_to_json(self.value)
        shown = text if len(text) <= SAMPLE_CHARS else text[:SAMPLE_CHARS] + "…"
        return (
            f"{path}: {shown} is not of type {self.slot.type.sql}, and column {self.slot.name} is {self.guard.reason}"
        )

    @property
    def source(self) -> Path:
        """The path of the source field."""
        return (*(key for key, _ in self.place), self.key)

    def observe(self, kept_out: RecordObservation, at: RecordPosition) -> None:
        """Count the value among those that keep records out, in place.

        Args:
            kept_out: What other records were kept out for; grows.
            at: Where the record stands.
        """
        for key, dims in self.place:
            field = get_field(kept_out, key)
            for dim in dims[:-1]:
                field = field.entries(dim)
            kept_out = field.record(dims[-1])
        found = get_field(kept_out, self.key)
        if not has_leaf(self.value):
            found.kind(Kind(NULL_WORD)).add(NO_FACTS, at, NULL_WORD)
        else:
            observe_value(found, self.value, at)


def fixed_column_route(route: RecordRoute) -> RecordRoute:
    """Return the part of a route in which there are columns that cannot yield; often nothing."""
    found = {
        key: tuple(part for slot in slots if (part := _fixed_slots(slot)) is not None) for key, slots in route.items()
    }
    return {key: slots for key, slots in found.items() if slots}


def _fixed_slots(slot: ColumnSlot) -> ColumnSlot | None:
    record = None if slot.record is None else fixed_column_route(slot.record)
    entries = None if slot.entries is None else _fixed_slots(slot.entries)
    if slot.guard is not None:
        return replace(slot, record=record)
    return replace(slot, record=record, entries=entries) if record or entries else None


def find_violations(
    route: RecordRoute, record: dict[str, JsonDocument], place: RecordLocation = ()
) -> Iterator[GuardViolation]:
    """Yield the values that keep a record out.

    Args:
        route: What `fixed_column_route` returns.
        record: The record as it is taken.
        place: The records around it.
    """
    for key, slots in route.items():
        value = record.get(key)
        for slot in slots:
            if slot.guard is not None and not _does_fit(slot, slot.guard, value):
                yield GuardViolation(place, key, slot, slot.guard, value)
            yield from _inside(slot, value, place, key, ())


def _does_fit(slot: ColumnSlot, guard: FixedColumn, value: JsonDocument) -> bool:
    if value is None or (guard.is_required and cell_of(slot, value) is MISSING):
        return not guard.is_required
    return is_fully_held((slot,), value) if slot.record is None else _are_records(value, slot.dim)


def _are_records(value: JsonDocument, dim: int) -> bool:
    """Tell whether a value is a record, or an array of them; what is in them is another question."""
    if isinstance(value, list):
        return dim > 0 and all(_are_records(item, dim - 1) for item in value)
    return value is None or isinstance(value, dict)


def _inside(
    slot: ColumnSlot, value: JsonDocument, place: RecordLocation, key: str, maps: tuple[int, ...], dim: int = 0
) -> Iterator[GuardViolation]:
    if isinstance(value, list):
        for item in value:
            yield from _inside(slot, item, place, key, maps, dim + 1)
    elif isinstance(value, MapEntries) and slot.entries is not None:
        for item in value.values():
            yield from _inside(slot.entries, item, place, key, (*maps, dim))
    elif isinstance(value, dict) and slot.record is not None:
        yield from find_violations(slot.record, value, (*place, (key, (*maps, dim))))
