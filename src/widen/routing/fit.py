"""Which records fit the columns that cannot yield: those that files are split by, that must not be null, that rules
look at. A record that does not is kept out of the table as a whole.

Source: spec of evolution, D12.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from widen.model.path import Path, format_path
from widen.observe.document import Document, Entries, has_leaf, to_text
from widen.observe.kind import NULL_WORD, Kind
from widen.observe.number import NO_FACTS
from widen.observe.observation import SAMPLE_CHARS, Position, RecordSeen, field_of
from widen.observe.walk import observe_value
from widen.planning.policy import Guard
from widen.routing.convert import MISSING
from widen.routing.rescue import is_held
from widen.routing.route import RecordRoute, Slot
from widen.routing.row import cell_of

Place: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""The records around a field: the key of each, and how many arrays are around the maps in it and around itself."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """A value that keeps its record out.

    Args:
        place: The records around it.
        key: Where it stands in the innermost.
        slot: The column that does not hold it.
        guard: Why that cannot yield.
        value: The value, as it was taken.
    """

    place: Place
    key: str
    slot: Slot
    guard: Guard
    value: Document

    def __str__(self) -> str:
        path = format_path(self.source)
        if self.value is None:
            return f"{path} is null, and column {self.slot.name} is {self.guard.reason}"
        text = to_text(self.value)
        shown = text if len(text) <= SAMPLE_CHARS else text[:SAMPLE_CHARS] + "…"
        return f"{path}: {shown} is no {self.slot.type.sql}, and column {self.slot.name} is {self.guard.reason}"

    @property
    def source(self) -> Path:
        """The path of the source field."""
        return (*(key for key, _ in self.place), self.key)

    def observe(self, kept_out: RecordSeen, at: Position) -> None:
        """Count the value among those that keep records out, in place.

        Args:
            kept_out: What other records were kept out for; grows.
            at: Where the record stands.
        """
        for key, dims in self.place:
            field = field_of(kept_out, key)
            for dim in dims[:-1]:
                field = field.entries(dim)
            kept_out = field.record(dims[-1])
        found = field_of(kept_out, self.key)
        if not has_leaf(self.value):
            found.kind(Kind(NULL_WORD)).add(NO_FACTS, at, NULL_WORD)
        else:
            observe_value(found, self.value, at)


def guarded(route: RecordRoute) -> RecordRoute:
    """Return the part of a route in which there are columns that cannot yield; often nothing."""
    found = {key: tuple(part for slot in slots if (part := _guarded(slot)) is not None) for key, slots in route.items()}
    return {key: slots for key, slots in found.items() if slots}


def _guarded(slot: Slot) -> Slot | None:
    record = None if slot.record is None else guarded(slot.record)
    entries = None if slot.entries is None else _guarded(slot.entries)
    if slot.guard is not None:
        return replace(slot, record=record)
    return replace(slot, record=record, entries=entries) if record or entries else None


def misfits(route: RecordRoute, record: dict[str, Document], place: Place = ()) -> Iterator[Misfit]:
    """Yield the values that keep a record out.

    Args:
        route: What `guarded` returns.
        record: The record as it is taken.
        place: The records around it.
    """
    for key, slots in route.items():
        value = record.get(key)
        for slot in slots:
            if slot.guard is not None and not _does_fit(slot, slot.guard, value):
                yield Misfit(place, key, slot, slot.guard, value)
            yield from _inside(slot, value, place, key, ())


def _does_fit(slot: Slot, guard: Guard, value: Document) -> bool:
    if value is None or (guard.is_required and cell_of(slot, value) is MISSING):
        return not guard.is_required
    return is_held((slot,), value) if slot.record is None else _are_records(value, slot.dim)


def _are_records(value: Document, dim: int) -> bool:
    """Tell whether a value is a record, or an array of them; what is in them is another question."""
    if isinstance(value, list):
        return dim > 0 and all(_are_records(item, dim - 1) for item in value)
    return value is None or isinstance(value, dict)


def _inside(
    slot: Slot, value: Document, place: Place, key: str, maps: tuple[int, ...], dim: int = 0
) -> Iterator[Misfit]:
    if isinstance(value, list):
        for item in value:
            yield from _inside(slot, item, place, key, maps, dim + 1)
    elif isinstance(value, Entries) and slot.entries is not None:
        for item in value.values():
            yield from _inside(slot.entries, item, place, key, (*maps, dim))
    elif isinstance(value, dict) and slot.record is not None:
        yield from misfits(slot.record, value, (*place, (key, (*maps, dim))))
