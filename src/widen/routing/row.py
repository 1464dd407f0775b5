"""One record to one row: each value goes to every column of its field that can hold it.

Source: docs/evolution-rules.md#u14, #u16, #u17, #d7, #d8, #d10
"""

from __future__ import annotations

from typing import Any

from widen.observe.json_document import JsonDocument, MapEntries, has_leaf
from widen.observe.kind import RECORD_WORD
from widen.routing.convert import MISSING, convert, word_of_value
from widen.routing.route import ColumnSlot, RecordRoute, is_excluded_kind

Row = dict[str, Any]


def to_row(route: RecordRoute, record: dict[str, JsonDocument]) -> Row:
    """Return the row of a record: column names with values for pyarrow.

    A key without a column, and a value that no column of its field can hold, is left out; the plan makes sure that
    there is none. Null and a missing key are the same in a table.

    Args:
        record: The record, with numbers as tokens.

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
        cell = to_cell(slot, value)
        if cell is not MISSING:
            row[slot.name] = cell


def to_cell(slot: ColumnSlot, value: JsonDocument) -> Any:
    """Return the value that a column holds for a source value, or `MISSING` if it cannot hold any of it."""
    return _to_cell(value, _kind_word(value), slot, slot.dim)


def _kind_word(value: JsonDocument) -> str:
    return RECORD_WORD if isinstance(value, (dict, list)) else word_of_value(value)


def _to_cell(value: JsonDocument, kind_word: str, slot: ColumnSlot, dim: int) -> Any:
    """Return the value for a column with ``dim`` arrays: unchanged, wrapped in an array, or `MISSING`."""
    if isinstance(value, list):
        return _array_to_cell(value, slot, dim - 1) if dim else MISSING
    if dim:
        inner = _to_cell(value, kind_word, slot, dim - 1)
        return inner if inner is MISSING else [inner]
    if isinstance(value, MapEntries):
        return _map_to_cell(value, slot.entries) if slot.entries is not None else MISSING
    if isinstance(value, dict):
        return to_row(slot.record, value) if slot.record is not None else MISSING
    return MISSING if is_excluded_kind(slot, kind_word) else convert_scalar(value, kind_word, slot)


def convert_scalar(value: JsonDocument, kind_word: str, slot: ColumnSlot) -> Any:
    """Return the value that a column without arrays holds for a scalar, or `MISSING`.

    Source: docs/evolution-rules.md#d1, #d2
    """
    cell = convert(value, kind_word, slot.word, slot.type, slot.epoch_unit)
    # Rounding comes last: only values without an exact column are rounded.
    return float(value) if cell is MISSING and kind_word in slot.rounds else cell


def _array_to_cell(items: list[JsonDocument], slot: ColumnSlot, dim: int) -> Any:
    """Return the array with NULL for items that the column cannot hold; `MISSING` if it can hold none of them."""
    cells = [MISSING if item is None else _to_cell(item, _kind_word(item), slot, dim) for item in items]
    if cells and all(item is MISSING for item in cells) and any(_belongs_elsewhere(item, slot) for item in items):
        return MISSING
    return [None if item is MISSING else item for item in cells]


def _belongs_elsewhere(item: JsonDocument, slot: ColumnSlot) -> bool:
    """Tell whether an item that the column cannot hold is more than a null; an empty record is (D19)."""
    return has_leaf(item) or (isinstance(item, dict) and slot.record is None and slot.entries is None)


def _map_to_cell(entries: MapEntries, slot: ColumnSlot) -> Any:
    """Return the map as pairs, with NULL for values that the column cannot hold; `MISSING` if it can hold none."""
    items = list(entries.values())
    cells = _array_to_cell(items, slot, slot.dim)
    if cells is MISSING and not any(map(has_leaf, items)):
        cells = [None] * len(items)  # the keys are values, too
    return MISSING if cells is MISSING else list(zip(entries, cells, strict=True))
