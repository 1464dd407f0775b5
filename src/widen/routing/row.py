"""One record to one row: every value to every column of its field that can hold it.

Source: docs/evolution-rules.md#u14, #u16, #u17, #d7, #d8, #d10
"""

from __future__ import annotations

from typing import Any

from widen.observe.json_document import JsonDocument, MapEntries, has_leaf
from widen.observe.kind import RECORD_WORD
from widen.routing.convert import MISSING, convert, word_of_value
from widen.routing.route import ColumnSlot, RecordRoute, does_bar

Row = dict[str, Any]


def to_row(route: RecordRoute, record: dict[str, JsonDocument]) -> Row:
    """Return the row of a record: column names with the values that pyarrow takes.

    A key without a column, and a value that no column of its field holds, is left out; the plan sees to it that
    there is none. A null and a missing key are the same in a table.

    Args:
        route: Which columns each key goes to.
        record: The record, numbers as tokens.

    Source: docs/evolution-rules.md#u14
    """
    row: Row = {}
    for key, value in record.items():
        if value is not None:
            route_value(row, route.get(key, ()), value)
    return row


def route_value(row: Row, slots: tuple[ColumnSlot, ...], value: JsonDocument) -> None:
    """Set every column of one field that can hold the value, in place.

    Source: docs/evolution-rules.md#u14
    """
    for slot in slots:
        held = cell_of(slot, value)
        if held is not MISSING:
            row[slot.name] = held


def cell_of(slot: ColumnSlot, value: JsonDocument) -> Any:
    """Return what a column holds for a value, or `MISSING` if that is nothing of it."""
    return _to_cell(value, _word(value), slot, slot.dim)


def _word(value: JsonDocument) -> str:
    return RECORD_WORD if isinstance(value, (dict, list)) else word_of_value(value)


def _to_cell(value: JsonDocument, word: str, slot: ColumnSlot, dim: int) -> Any:
    """Return what a column of ``dim`` arrays holds for a value: itself, wrapped, or `MISSING`."""
    if isinstance(value, list):
        return _array_to_cell(value, slot, dim - 1) if dim else MISSING
    if dim:
        inner = _to_cell(value, word, slot, dim - 1)
        return inner if inner is MISSING else [inner]
    if isinstance(value, MapEntries):
        return _map_to_cell(value, slot.entries) if slot.entries is not None else MISSING
    if isinstance(value, dict):
        return to_row(slot.record, value) if slot.record is not None else MISSING
    return MISSING if does_bar(slot, word) else convert(value, word, slot.word, slot.type, slot.epoch_unit)


def _array_to_cell(items: list[JsonDocument], slot: ColumnSlot, dim: int) -> Any:
    """Return the array with NULL in place of what the column cannot hold; `MISSING` if that is everything."""
    held = [MISSING if item is None else _to_cell(item, _word(item), slot, dim) for item in items]
    if held and all(item is MISSING for item in held) and any(map(has_leaf, items)):
        return MISSING
    return [None if item is MISSING else item for item in held]


def _map_to_cell(entries: MapEntries, slot: ColumnSlot) -> Any:
    """Return the map, as pairs, with NULL in place of what the column cannot hold; `MISSING` if that is everything."""
    held = _array_to_cell(list(entries.values()), slot, slot.dim)
    return MISSING if held is MISSING else list(zip(entries, held, strict=True))
