"""Rules for the fields of a source: exclude or mask a field, or read it as text, as a map or as dates.

The rules are applied to each record before anything else reads it. So an excluded or masked value never reaches a
column, the rescued data or a sample.

Source: docs/evolution-rules.md#d6, #d10, #d13
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from itertools import product
from typing import Any

from widen.observe.date_text import parse_temporal
from widen.observe.json_document import JsonDocument, JsonText, MapEntries, document_to_json, parse_nested

MASK = "***"
"""Replaces every masked value."""


class FieldRule(Enum):
    """What happens to the values of a field."""

    AS_IS = "as it is"
    AS_TEXT = "as text"
    """Arrays and records become JSON text; scalars do not change."""
    AS_JSON = "as json"
    """Every value becomes JSON text."""
    MASKED = "masked"
    """Every value becomes `MASK`."""
    LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class FieldRules:
    """The rules for a field and its nested fields. The rules for a record are those of its root.

    Args:
        maps: How many nested levels of objects are read as maps; arrays between them do not count as levels.
        is_dated: Whether strings that are dates or timestamps are read as such, at any depth.
        has_local_times: The same for strings that are dates or timestamps without a time zone.
        below: The rules for nested fields by name. Map keys and array positions are not part of the path. A nested
            field without an entry inherits only ``is_dated`` and ``has_local_times``.
    """

    take: FieldRule = FieldRule.AS_IS
    maps: int = 0
    is_dated: bool = False
    has_local_times: bool = False
    below: Mapping[str, FieldRules] = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """Whether no value changes."""
        return self.take is FieldRule.AS_IS and not (self.maps or self.reads_times or self.below)

    @property
    def reads_times(self) -> bool:
        """Whether some strings are read as dates or timestamps."""
        return self.is_dated or self.has_local_times

    def at(self, key: str) -> FieldRules:
        """Return the rules for a nested field."""
        rules = self.below.get(key)
        return rules if rules is not None else _INHERITED[self.is_dated, self.has_local_times]

    def record(self, record: dict[str, JsonDocument]) -> dict[str, JsonDocument]:
        """Return a record with the rules applied.

        Args:
            record: A record from `widen.observe.json_document.parse_document`.
        """
        if self.is_plain:
            return record
        fields = ((key, value, self.at(key)) for key, value in record.items())
        return {key: rules.value(value) for key, value, rules in fields if rules.take is not FieldRule.LEFT_OUT}

    def value(self, value: JsonDocument) -> JsonDocument:
        """Return a value of the field with the rules applied; `record` has already dropped excluded fields."""
        if value is None or self.is_plain:
            return value
        if self.take is FieldRule.MASKED:
            return MASK
        nested = self._apply_nested(value, self.maps)
        is_text = self.take is FieldRule.AS_JSON or (
            self.take is FieldRule.AS_TEXT and isinstance(nested, (dict, list))
        )
        return document_to_json(nested) if is_text else nested

    def _apply_nested(self, value: JsonDocument, maps: int) -> JsonDocument:
        if isinstance(value, dict):
            return self._to_map(value, maps - 1) if maps else self.record(value)
        if isinstance(value, list):
            return [self._apply_nested(item, maps) for item in value]
        if isinstance(value, JsonText) and self.below:
            return JsonText(document_to_json(self._apply_nested(parse_nested(value), maps)))
        return self.parse_temporal(value) if self.reads_times and type(value) is str else value

    def parse_temporal(self, text: str) -> str:
        """Return a string as the date or the timestamp that it is, otherwise unchanged."""
        return parse_temporal(text, has_instants=self.is_dated, has_local_times=self.has_local_times)

    def _to_map(self, entries: dict[str, Any], maps: int) -> MapEntries:
        """Return an object as a map. Rules that exclude or mask a name also apply to its keys."""
        items = ((key, value, self.below.get(key, PLAIN).take) for key, value in entries.items())
        return MapEntries(
            (key, MASK if take is FieldRule.MASKED and value is not None else self._apply_nested(value, maps))
            for key, value, take in items
            if take is not FieldRule.LEFT_OUT
        )


PLAIN = FieldRules()

_INHERITED: Mapping[tuple[bool, bool], FieldRules] = {
    (is_dated, has_local_times): FieldRules(is_dated=is_dated, has_local_times=has_local_times)
    for is_dated, has_local_times in product((False, True), repeat=2)
}
