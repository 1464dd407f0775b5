"""Which records violate fixed columns: partition, NOT NULL and CHECK columns, which ingestion must not change.

The table gets no part of a record that violates one.

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
from widen.planning.evolution.samples import Samples, sample_formatter
from widen.routing.convert import MISSING
from widen.routing.rescue import is_fully_stored
from widen.routing.route import ColumnSlot, RecordRoute
from widen.routing.row import to_cell

RecordLocation: TypeAlias = tuple[tuple[str, tuple[int, ...]], ...]
"""The records around a field: the key of each, the number of arrays around the maps in it, and around itself."""


@dataclass(frozen=True, slots=True)
class FixedColumnViolation:
    """A value that violates a fixed column.

    Args:
        key: Its key in the innermost record.
        value: The value after the field rules.
    """

    location: RecordLocation
    key: str
    slot: ColumnSlot
    guard: FixedColumn
    value: JsonDocument

    def __str__(self) -> str:
        return self.reason()

    def reason(self, samples: Samples = Samples.MASKED) -> str:
        """Return why the record is quarantined.

        Args:
            samples: How to show its value.
        """
        path = format_path(self.source)
        if self.value is None:
            return f"{path} is null, and column {self.slot.name} is {self.guard.reason}"
        if not self.guard.takes_values:
            return f"{path} has a value, but column {self.slot.name} is {self.guard.reason}"
        text = document_to_json(self.value)
        shown = sample_formatter(samples)(text if len(text) <= SAMPLE_CHARS else text[:SAMPLE_CHARS] + "…")
        column = f"column {self.slot.name} is {self.guard.reason}"
        return f"{path}: {shown or 'the value'} is not of type {self.slot.type.sql}, and {column}"

    @property
    def source(self) -> Path:
        """The path of the source field."""
        return (*(key for key, _ in self.location), self.key)

    def observe(self, kept_out: RecordObservation, position: RecordPosition) -> None:
        """Add the value to the observation of quarantined records, in place.

        Args:
            kept_out: Observation of the quarantined records; grows.
        """
        for key, dims in self.location:
            field = get_field(kept_out, key)
            for dim in dims[:-1]:
                field = field.entries(dim)
            kept_out = field.record(dims[-1])
        field = get_field(kept_out, self.key)
        if not has_leaf(self.value):
            field.kind(Kind(NULL_WORD)).add(NO_FACTS, position, NULL_WORD)
        else:
            observe_value(field, self.value, position)


def fixed_column_route(route: RecordRoute) -> RecordRoute:
    """Return the part of a route that leads to fixed columns; it is empty if the table has none."""
    routes = {
        key: tuple(fixed for slot in slots if (fixed := _fixed_slot(slot)) is not None) for key, slots in route.items()
    }
    return {key: slots for key, slots in routes.items() if slots}


def _fixed_slot(slot: ColumnSlot) -> ColumnSlot | None:
    record = None if slot.record is None else fixed_column_route(slot.record)
    entries = None if slot.entries is None else _fixed_slot(slot.entries)
    if slot.guard is not None:
        return replace(slot, record=record)
    return replace(slot, record=record, entries=entries) if record or entries else None


def find_violations(
    route: RecordRoute, record: dict[str, JsonDocument], location: RecordLocation = ()
) -> Iterator[FixedColumnViolation]:
    """Yield the values of a record that violate fixed columns.

    Args:
        route: A route from `fixed_column_route`.
        record: The record after the field rules.
    """
    for key, slots in route.items():
        value = record.get(key)
        for slot in slots:
            if slot.guard is not None and not _fits(slot, slot.guard, value):
                yield FixedColumnViolation(location, key, slot, slot.guard, value)
            yield from _violations_inside(slot, value, location, key, ())


def _fits(slot: ColumnSlot, guard: FixedColumn, value: JsonDocument) -> bool:
    if not guard.takes_values:
        return value is None
    # A value that cannot be converted would leave the column null, which NOT NULL forbids just as a missing value.
    if value is None or (guard.is_required and to_cell(slot, value) is MISSING):
        return not guard.is_required
    # The fields of a record have their own routes and are checked there.
    return is_fully_stored((slot,), value) if slot.record is None else _are_records(value, slot.dim)


def _are_records(value: JsonDocument, dim: int) -> bool:
    """Tell whether a value is a record or an array of records, whatever their fields hold."""
    if isinstance(value, list):
        return dim > 0 and all(_are_records(item, dim - 1) for item in value)
    return value is None or isinstance(value, dict)


def _violations_inside(
    slot: ColumnSlot, value: JsonDocument, location: RecordLocation, key: str, maps: tuple[int, ...], dim: int = 0
) -> Iterator[FixedColumnViolation]:
    if isinstance(value, list):
        for item in value:
            yield from _violations_inside(slot, item, location, key, maps, dim + 1)
    elif isinstance(value, MapEntries) and slot.entries is not None:
        for item in value.values():
            yield from _violations_inside(slot.entries, item, location, key, (*maps, dim))
    elif isinstance(value, dict) and slot.record is not None:
        yield from find_violations(slot.record, value, (*location, (key, (*maps, dim))))
