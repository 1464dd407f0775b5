"""The proof's own reading of what was said about single fields: masks, exclusions, maps, texts, dates.

Source: docs/evolution-rules.md#d6, #d10, #d13
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any

from widen.model.column_path import Path, format_path
from widen.model.types import STRING, ArrayType, DataType, MapType, StructType
from widen.planning.evolution.policy import Mode, Policy, TextForm
from widen.planning.evolution.source_metadata import FORM, role_of, source_key
from widen.proof.json_reader import Json, to_text

MASK = "***"


class Day(str):
    """A text that is taken as a date."""

    __slots__ = ()


class Instant(str):
    """A text that is taken as a point in time."""

    __slots__ = ()


class Respelled(str):
    """A text that stands for another value: a mask, or the JSON of a number, an array or a record."""

    __slots__ = ()


class Keyed(dict[str, Any]):
    """An object whose keys are data."""


@dataclass(slots=True)
class ProofRule:
    """What becomes of the values of a field, and of those below it.

    Args:
        is_left_out: They are not in the table.
        is_masked: `MASK` stands in their place.
        form: They are texts.
        maps: How many levels of objects are maps.
        is_dated: Texts that are dates or instants are taken as such, here and below.
        below: By the keys of records.
    """

    is_left_out: bool = False
    is_masked: bool = False
    form: TextForm | None = None
    maps: int = 0
    is_dated: bool = False
    below: dict[str, ProofRule] = field(default_factory=dict)

    def at(self, key: str) -> ProofRule:
        """Return the rule for a key of a record."""
        return self.below.get(key) or (_DATED if self.is_dated else _NOTHING)

    def find(self, path: Path) -> ProofRule:
        """Return the rule for a field, which is made if there is none."""
        rule = self
        for key in path:
            rule = rule.below.setdefault(key, ProofRule())
        return rule

    @property
    def is_plain(self) -> bool:
        """Whether values are taken as they are, here and below."""
        return self == _NOTHING or (
            not (self.is_left_out or self.is_masked or self.form or self.maps or self.is_dated)
            and all(rule.is_plain for rule in self.below.values())
        )

    @property
    def hides(self) -> bool:
        """Whether anything is masked or left out, here or below."""
        return self.is_left_out or self.is_masked or any(rule.hides for rule in self.below.values())

    def record(self, record: Mapping[str, Json]) -> dict[str, Json]:
        """Return a record as it is taken; what is null in it is left out."""
        found = {}
        for key, value in record.items():
            rule = self.at(key)
            if value is not None and not rule.is_left_out:
                found[key] = rule.value(value)
        return found

    def value(self, value: Json) -> Json:
        """Return a value as it is taken."""
        if value is None:
            return None
        if self.is_masked:
            return Respelled(MASK)
        if self.form is not None:
            inside = self._inside(value, self.maps)
            if self.form is TextForm.JSON or isinstance(inside, (dict, list)):
                return Respelled(to_text(self._with_nulls(value, self.maps)))
        return self._inside(value, self.maps)

    def _inside(self, value: Json, maps: int) -> Json:
        if isinstance(value, dict):
            return self._keyed(value, maps - 1) if maps else self.record(value)
        if isinstance(value, list):
            return [self._inside(item, maps) for item in value]
        return dated(value) if self.is_dated and type(value) is str else value

    def _keyed(self, entries: dict[str, Json], maps: int) -> Keyed:
        found = Keyed()
        for key, value in entries.items():
            rule = self.below.get(key, _NOTHING)
            if not rule.is_left_out:
                is_masked = rule.is_masked and value is not None
                found[key] = Respelled(MASK) if is_masked else self._inside(value, maps)
        return found

    def _with_nulls(self, value: Json, maps: int) -> Json:
        """Return a value that becomes text: masked, but with its nulls."""
        if isinstance(value, list):
            return [self._with_nulls(item, maps) for item in value]
        if not isinstance(value, dict):
            return value
        if maps:
            kept = self._keyed(value, maps - 1)
            return {key: self._entry_text(item, value[key], maps - 1) for key, item in kept.items()}
        kept_keys = [key for key in value if not self.at(key).is_left_out]
        return {key: self.at(key).text_part(value[key]) for key in kept_keys}

    def _entry_text(self, taken: Json, value: Json, maps: int) -> Json:
        return taken if isinstance(taken, Respelled) else self._with_nulls(value, maps)

    def text_part(self, value: Json) -> Json:
        """Return a value inside of one that becomes text."""
        if value is None:
            return None
        if self.is_masked:
            return MASK
        found = self._with_nulls(value, self.maps)
        is_text = self.form is TextForm.JSON or (self.form is TextForm.TEXT and isinstance(found, (dict, list)))
        return to_text(found) if is_text else found


_NOTHING, _DATED = ProofRule(), ProofRule(is_dated=True)


def rules_of(schema: StructType, policy: Policy) -> ProofRule:
    """Return the rules for the records of a table.

    Args:
        schema: Of the table: objects are maps where a column is one, and texts where a column was made for them.
        policy: What was said about single fields.
    """
    root = ProofRule()
    for column in schema:
        if role_of(column) is None:
            _see(root.find((source_key(column),)), column.type, column.metadata.get(FORM))
    for path, pin in policy.pins.items():
        if isinstance(pin, TextForm):
            root.find(path).form = pin
        elif not isinstance(pin, Mode):
            _see_pin(root.find(path), pin)
    for path in policy.dated:
        root.find(path).is_dated = True
    for path in policy.masked:
        root.find(path).is_masked = True
    for path in policy.left_out:
        root.find(path).is_left_out = True
    _spread_dates(root, is_dated=False)
    return root


def _see(rule: ProofRule, data_type: DataType, form: object = None) -> None:
    if form is not None:
        rule.form = TextForm(form)
    leaf, maps = _unwrapped(data_type)
    rule.maps = max(rule.maps, maps)
    for item in leaf if isinstance(leaf, StructType) else ():
        _see(rule.find((source_key(item),)), item.type, item.metadata.get(FORM))


def _see_pin(rule: ProofRule, data_type: DataType) -> None:
    leaf, rule.maps = _unwrapped(data_type)
    rule.is_dated = str(leaf) in ("date", "timestamp", "timestamp_ntz")
    for item in leaf if isinstance(leaf, StructType) else ():
        _see_pin(rule.find((item.name,)), item.type)


def _unwrapped(data_type: DataType) -> tuple[DataType, int]:
    match data_type:
        case ArrayType(element):
            return _unwrapped(element)
        case MapType(key, value) if key == STRING:
            leaf, maps = _unwrapped(value)
            return leaf, maps + 1
    return data_type, 0


def _spread_dates(rule: ProofRule, *, is_dated: bool) -> None:
    rule.is_dated = rule.is_dated or is_dated
    for below in rule.below.values():
        _spread_dates(below, is_dated=rule.is_dated)


_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_INSTANT = re.compile(rf"({_DAY.pattern}T{_CLOCK})(?:\.[0-9]{{1,6}})?(?:Z|\+00:00)")


def dated(text: str) -> str:
    """Return a text as a `Day` or an `Instant` if it is one and comes back, else as it is.

    Source: docs/evolution-rules.md#d6
    """
    try:
        if _DAY.fullmatch(text):
            date.fromisoformat(text)
            return Day(text)
        if found := _INSTANT.fullmatch(text):
            datetime.fromisoformat(found[1])
            return Instant(text)
    except ValueError:
        pass
    return text


class Hiding:
    """What is kept of texts that are not records.

    Args:
        policy: What must be hidden.
    """

    def __init__(self, policy: Policy) -> None:
        self._names = ", ".join(sorted(map(format_path, policy.left_out | policy.masked)))

    @property
    def hides(self) -> bool:
        """Whether anything must be hidden."""
        return bool(self._names)

    def corrupt(self, text: bytes) -> str:
        """Return what a table keeps of such a text: all of it, or its length where something must be hidden."""
        if self._names:
            return f"{MASK} {len(text)} bytes that may hold {self._names}"
        try:
            found = text.decode()
        except UnicodeDecodeError:
            return repr(text)
        return repr(text) if found.startswith(("b'", 'b"')) else found
