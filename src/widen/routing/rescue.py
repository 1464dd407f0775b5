"""The values of a record that no column holds, as JSON text for the rescue column.

Source: docs/evolution-rules.md#u1, #d1, #d10
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from widen.observe.json_document import JsonDocument, MapEntries, document_to_json, has_leaf
from widen.routing.convert import MISSING, word_of_value
from widen.routing.route import ColumnSlot, RecordRoute, stores_kind
from widen.routing.row import convert_scalar

_NOTHING: Final = object()


def rescue(route: RecordRoute, record: dict[str, JsonDocument]) -> str | None:
    """Return the part of a record that no column holds as JSON text, or None if the columns hold all of it.

    An array or a map with a value that no column holds is rescued in full, so that the text shows where the value
    stood.

    Args:
        record: The record, with numbers as tokens.

    Source: docs/evolution-rules.md#d10
    """
    unstored = _unstored_fields(route, record)
    return None if unstored is _NOTHING else document_to_json(unstored)


def _unstored_fields(route: RecordRoute, record: dict[str, JsonDocument]) -> Any:
    parts = {key: _unstored_part(route.get(key, ()), value) for key, value in record.items() if value is not None}
    return {key: part for key, part in parts.items() if part is not _NOTHING} or _NOTHING


def _unstored_part(slots: tuple[ColumnSlot, ...], value: JsonDocument) -> Any:
    if isinstance(value, dict) and not isinstance(value, MapEntries) and has_leaf(value):
        record = widest_record_route(slots)
        return value if record is None else _unstored_fields(record, value)
    return _NOTHING if is_fully_stored(slots, value) else value


def widest_record_route(slots: Iterable[ColumnSlot]) -> RecordRoute | None:
    """Return the route of the record column with the most arrays, which has all fields of the others (U17)."""
    return next((slot.record for slot in sorted(slots, key=lambda slot: -slot.dim) if slot.record is not None), None)


def is_fully_stored(slots: tuple[ColumnSlot, ...], value: JsonDocument, dim: int = 0) -> bool:
    """Tell whether columns hold all of a value, each part in at least one of them.

    Args:
        value: The value, with numbers as tokens.
        dim: Number of arrays around the value.
    """
    if isinstance(value, list):
        return all(is_fully_stored(slots, item, dim + 1) for item in value)
    if not has_leaf(value):
        return True
    deep = tuple(slot for slot in slots if slot.dim >= dim)
    if isinstance(value, MapEntries):
        entries = tuple(slot.entries for slot in deep if slot.entries is not None)
        return all(is_fully_stored(entries, item) for item in value.values())
    if isinstance(value, dict):
        record = widest_record_route(deep)
        return record is not None and _unstored_fields(record, value) is _NOTHING
    kind_word = word_of_value(value)
    candidates = (slot for slot in deep if stores_kind(slot, kind_word))
    return any(convert_scalar(value, kind_word, slot) is not MISSING for slot in candidates)
