"""How the values of a source are taken, where not just as what they are: left out, masked, as text, as maps, as dates.

It is applied to every record before anything looks at it. So what is left out or masked is so in every column that
evolves from the field, in what is rescued, and in every sample.

Source: docs/evolution-rules.md#d6, #d10, #d13
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from widen.observe.date_text import parse_temporal
from widen.observe.json_document import JsonDocument, MapEntries, document_to_json

MASK = "***"
"""What stands in place of every value that is masked."""


class FieldRule(Enum):
    """What becomes of the values of a field."""

    AS_IS = "as it is"
    AS_TEXT = "as text"
    """Arrays and records become JSON text; scalars stay."""
    AS_JSON = "as json"
    """Every value becomes JSON text."""
    MASKED = "masked"
    """Every value becomes `MASK`."""
    LEFT_OUT = "left out"


@dataclass(frozen=True, slots=True)
class FieldRules:
    """How the values of one field are taken, and those below it. That of a whole record is the one of its root.

    Args:
        take: What becomes of the values.
        maps: How many levels of objects in it are maps, arrays between them passed over.
        is_dated: Texts that are dates or instants, here and below, are taken as such.
        below: For fields of the records in it; keys of maps and places in arrays are passed over. Of a key that is
            not here only ``is_dated`` holds.
    """

    take: FieldRule = FieldRule.AS_IS
    maps: int = 0
    is_dated: bool = False
    below: Mapping[str, FieldRules] = field(default_factory=dict)

    @property
    def is_plain(self) -> bool:
        """Whether every value is taken as it is."""
        return self.take is FieldRule.AS_IS and not self.maps and not self.is_dated and not self.below

    def at(self, key: str) -> FieldRules:
        """Return how the values at a key of a record are taken."""
        found = self.below.get(key)
        return found if found is not None else _DATED if self.is_dated else PLAIN

    def record(self, record: dict[str, JsonDocument]) -> dict[str, JsonDocument]:
        """Return a record as it is taken.

        Args:
            record: As `widen.observe.json_document.parse_document` gives it.
        """
        if self.is_plain:
            return record
        below = ((key, value, self.at(key)) for key, value in record.items())
        return {key: each.value(value) for key, value, each in below if each.take is not FieldRule.LEFT_OUT}

    def value(self, value: JsonDocument) -> JsonDocument:
        """Return a value of the field as it is taken. One that is left out does not come here: `record` drops it."""
        if value is None or self.is_plain:
            return value
        if self.take is FieldRule.MASKED:
            return MASK
        found = self._inside(value, self.maps)
        is_text = self.take is FieldRule.AS_JSON or (self.take is FieldRule.AS_TEXT and isinstance(found, (dict, list)))
        return document_to_json(found) if is_text else found

    def _inside(self, value: JsonDocument, maps: int) -> JsonDocument:
        if isinstance(value, dict):
            return self._entries(value, maps - 1) if maps else self.record(value)
        if isinstance(value, list):
            return [self._inside(item, maps) for item in value]
        return parse_temporal(value) if self.is_dated and type(value) is str else value

    def _entries(self, entries: dict[str, Any], maps: int) -> MapEntries:
        """Return a map. A key of it that is to be left out or masked is, though it is no field."""
        below = ((key, value, self.below.get(key, PLAIN).take) for key, value in entries.items())
        return MapEntries(
            (key, MASK if take is FieldRule.MASKED and value is not None else self._inside(value, maps))
            for key, value, take in below
            if take is not FieldRule.LEFT_OUT
        )


PLAIN, _DATED = FieldRules(), FieldRules(is_dated=True)
