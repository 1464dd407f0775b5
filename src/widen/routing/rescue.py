"""What no column of a row holds, as JSON text: the content of the rescue column.

Source: docs/evolution-rules.md#u1, #d1 (freeze), #d10
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from widen.observe.json_document import JsonDocument, MapEntries, document_to_json, has_leaf
from widen.routing.convert import MISSING, convert, word_of_value
from widen.routing.route import ColumnSlot, RecordRoute, does_bar

_HELD: Final = object()


def rescue(route: RecordRoute, record: dict[str, JsonDocument]) -> str | None:
    """Return the part of a record that no column holds, as JSON text, or None where the columns hold all of it.

    An array or a map that is not held in full is kept in full, so that the places of its values are not lost.

    Args:
        route: Which columns each key goes to.
        record: The record, numbers as tokens.

    Source: docs/evolution-rules.md#d10
    """
    rest = _rest_of_record(route, record)
    return None if rest is _HELD else document_to_json(rest)


def _rest_of_record(route: RecordRoute, record: dict[str, JsonDocument]) -> Any:
    rest = {key: _rest(route.get(key, ()), value) for key, value in record.items() if value is not None}
    rest = {key: value for key, value in rest.items() if value is not _HELD}
    return rest or _HELD


def _rest(slots: tuple[ColumnSlot, ...], value: JsonDocument) -> Any:
    if isinstance(value, dict) and not isinstance(value, MapEntries) and has_leaf(value):
        record = record_route(slots)
        return value if record is None else _rest_of_record(record, value)
    return _HELD if is_fully_held(slots, value) else value


def record_route(slots: Iterable[ColumnSlot]) -> RecordRoute | None:
    """Return where the sub-fields of a record go in the column with the most arrays, which has all of them (U17)."""
    return next((slot.record for slot in sorted(slots, key=_minus_dim) if slot.record is not None), None)


def _minus_dim(slot: ColumnSlot) -> int:
    return -slot.dim


def is_fully_held(slots: tuple[ColumnSlot, ...], value: JsonDocument, dim: int = 0) -> bool:
    """Tell whether columns hold all of a value, each part of it in one of them.

    Args:
        slots: The columns.
        value: The value, numbers as tokens.
        dim: How many arrays are around it.
    """
    if isinstance(value, list):
        return all(is_fully_held(slots, item, dim + 1) for item in value)
    if not has_leaf(value):
        return True
    deep = tuple(slot for slot in slots if slot.dim >= dim)
    if isinstance(value, MapEntries):
        entries = tuple(slot.entries for slot in deep if slot.entries is not None)
        return all(is_fully_held(entries, item) for item in value.values())
    if isinstance(value, dict):
        record = record_route(deep)
        return record is not None and _rest_of_record(record, value) is _HELD
    word = word_of_value(value)
    takers = (slot for slot in deep if not does_bar(slot, word))
    return any(convert(value, word, slot.word, slot.type) is not MISSING for slot in takers)
