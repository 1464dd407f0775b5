"""The proof's own reading of the policy for single fields: masks, exclusions, maps, texts and dates.

Source: docs/evolution-rules.md#d6, #d10, #d13
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any

from widen.model.column_path import Path, format_path
from widen.model.types import STRING, ArrayType, DataType, MapType, StructType, similarity_key
from widen.planning.evolution.policy import Mode, Policy, TextForm
from widen.planning.evolution.source_metadata import FORM, role_of, source_key
from widen.proof.json_reader import DeepJson, Json, read_json, to_text
from widen.proof.source_columns import computed_keys

MASK = "***"


class DateString(str):
    """A string that the policy reads as a date."""

    __slots__ = ()


class TimestampString(str):
    """A string that the policy reads as a timestamp."""

    __slots__ = ()


class LocalTimeString(str):
    """A string that the policy reads as a timestamp without a time zone."""

    __slots__ = ()


class ReplacedText(str):
    """A text in place of another value: a mask, or the JSON of a number, an array or a record."""

    __slots__ = ()


class MapObject(dict[str, Any]):
    """An object whose keys are data."""


@dataclass(slots=True)
class ProofRule:
    """What happens to the values of a field and of the fields below it.

    Args:
        is_excluded: The table does not have them.
        map_levels: Number of levels of objects that are maps.
        has_dates: Strings that are dates or timestamps become such values, also below.
        has_local_times: Strings that are dates or timestamps without a time zone become such values, also below.
        below: The rules of the fields below, by key.
        hidden: What is masked or excluded below, by folded key: however a name is capitalized.
    """

    is_excluded: bool = False
    is_masked: bool = False
    text_form: TextForm | None = None
    map_levels: int = 0
    has_dates: bool = False
    has_local_times: bool = False
    below: dict[str, ProofRule] = field(default_factory=dict)
    hidden: dict[str, ProofRule] = field(default_factory=dict)

    def rule_of(self, key: str) -> ProofRule:
        """Return the rule of a key of a record."""
        rule = self.below.get(key) or self.hidden.get(similarity_key(key) if self.hidden else key)
        return rule or _WITHOUT_ENTRY[self.has_dates, self.has_local_times]

    def get_or_add(self, path: Path) -> ProofRule:
        """Return the rule of a field; add an empty rule if there is none."""
        rule = self
        for key in path:
            rule = rule.below.setdefault(key, ProofRule())
        return rule

    @property
    def is_plain(self) -> bool:
        """Whether the rule changes no value, here or below."""
        return self == _AS_IS or (
            not (self.is_excluded or self.is_masked or self.text_form or self.map_levels or self.reads_times)
            and not self.hidden
            and all(rule.is_plain for rule in self.below.values())
        )

    @property
    def reads_times(self) -> bool:
        """Whether some strings become dates or timestamps."""
        return self.has_dates or self.has_local_times

    @property
    def has_redaction(self) -> bool:
        """Whether the rule masks or excludes anything, here or below."""
        below = (*self.below.values(), *self.hidden.values())
        return self.is_excluded or self.is_masked or any(rule.has_redaction for rule in below)

    def apply_to_record(self, record: Mapping[str, Json]) -> dict[str, Json]:
        """Return a record after the rules; nulls are left out."""
        kept = {}
        for key, value in record.items():
            rule = self.rule_of(key)
            if value is not None and not rule.is_excluded:
                kept[key] = rule.apply(value)
        return kept

    def apply(self, value: Json) -> Json:
        """Return a value after the rules."""
        if value is None:
            return None
        if self.is_masked:
            return ReplacedText(MASK)
        if self.text_form is not None:
            inside = self._apply_inside(value, self.map_levels)
            if self.text_form is TextForm.JSON or isinstance(inside, (dict, list)):
                return ReplacedText(to_text(self._apply_in_text(value, self.map_levels)))
        return self._apply_inside(value, self.map_levels)

    def _apply_inside(self, value: Json, map_levels: int, *, is_entry: bool = False) -> Json:
        if isinstance(value, dict):
            return self._to_map(value, map_levels - 1) if map_levels else self.apply_to_record(value)
        if isinstance(value, list):
            return [self._apply_inside(item, map_levels, is_entry=is_entry) for item in value]
        if isinstance(value, DeepJson):
            has_rules = self.below or self.hidden
            return DeepJson(to_text(self._apply_in_text(value, map_levels))) if has_rules else value
        if self._hides_text(value, is_entry=is_entry):
            return ReplacedText(MASK)
        return self.to_temporal(value) if self.reads_times and type(value) is str else value

    def _hides_text(self, value: Json, *, is_entry: bool) -> bool:
        """Tell whether a text may spell out a record with a hidden field; that of an entry only if it may be JSON."""
        return bool(self.hidden) and type(value) is str and (not is_entry or value.lstrip()[:1] in ("{", "[", '"'))

    def to_temporal(self, text: str) -> str:
        """Return a text as a date or a timestamp if it is one that the rule reads, else the text."""
        temporal = to_temporal(text)
        is_read = self.has_local_times if isinstance(temporal, LocalTimeString) else self.has_dates
        return temporal if is_read or isinstance(temporal, DateString) else text

    def _to_map(self, entries: dict[str, Json], map_levels: int) -> MapObject:
        kept = MapObject()
        for key, value in entries.items():
            rule = self.hidden.get(similarity_key(key), _AS_IS)
            if not rule.is_excluded:
                is_masked = rule.is_masked and value is not None
                # The policy may name the key as if the map were a record.
                inside = rule._apply_hidden(value)
                kept[key] = ReplacedText(MASK) if is_masked else self._apply_inside(inside, map_levels, is_entry=True)
        return kept

    def _apply_hidden(self, value: Json) -> Json:
        """Return a value with what is hidden below, and otherwise as it is."""
        if not self.hidden:
            return value
        if isinstance(value, DeepJson):
            value = read_json(value)
        if isinstance(value, list):
            return [self._apply_hidden(item) for item in value]
        if not isinstance(value, dict):
            return ReplacedText(MASK) if self._hides_text(value, is_entry=False) else value
        rules = {key: self.hidden.get(similarity_key(key), _AS_IS) for key in value}
        return {
            key: ReplacedText(MASK) if rules[key].is_masked and item is not None else rules[key]._apply_hidden(item)
            for key, item in value.items()
            if not rules[key].is_excluded
        }

    def _apply_in_text(self, value: Json, map_levels: int, *, is_entry: bool = False) -> Json:
        """Apply masks and exclusions to a value that becomes text; its nulls stay."""
        if isinstance(value, DeepJson) and (self.below or self.hidden):
            value = read_json(value)
        if isinstance(value, list):
            return [self._apply_in_text(item, map_levels, is_entry=is_entry) for item in value]
        if not isinstance(value, dict):
            return MASK if self._hides_text(value, is_entry=is_entry) else value
        if map_levels:
            kept = self._to_map(value, map_levels - 1)
            return {key: self._map_value_in_text(item, key, value[key], map_levels - 1) for key, item in kept.items()}
        kept_keys = [key for key in value if not self.rule_of(key).is_excluded]
        return {key: self.rule_of(key).apply_in_text(value[key]) for key in kept_keys}

    def _map_value_in_text(self, entry: Json, key: str, value: Json, map_levels: int) -> Json:
        if isinstance(entry, ReplacedText):
            return entry
        inside = self.hidden.get(similarity_key(key), _AS_IS)._apply_hidden(value)
        return self._apply_in_text(inside, map_levels, is_entry=True)

    def apply_in_text(self, value: Json) -> Json:
        """Return a value that is part of a value that becomes text."""
        if value is None:
            return None
        if self.is_masked:
            return MASK
        result = self._apply_in_text(value, self.map_levels)
        is_text = self.text_form is TextForm.JSON or (
            self.text_form is TextForm.TEXT and isinstance(result, (dict, list))
        )
        return to_text(result) if is_text else result


_AS_IS = ProofRule()
_WITHOUT_ENTRY: Mapping[tuple[bool, bool], ProofRule] = {
    (has_dates, has_local_times): ProofRule(has_dates=has_dates, has_local_times=has_local_times)
    for has_dates in (False, True)
    for has_local_times in (False, True)
}


def build_proof_rules(schema: StructType, policy: Policy) -> ProofRule:
    """Return the rules for the records of a table.

    Args:
        schema: Schema of the table: objects are maps where a column is a map, and texts where a column stores text.
    """
    root = ProofRule()
    for column in schema:
        if role_of(column) is None:
            _add_column_rule(root.get_or_add((source_key(column),)), column.type, column.metadata.get(FORM))
    for path, pin in policy.pins.items():
        if isinstance(pin, TextForm):
            root.get_or_add(path).text_form = pin
        elif not isinstance(pin, Mode):
            _add_pin_rule(root.get_or_add(path), pin)
    for path in policy.date_fields:
        root.get_or_add(path).has_dates = True
    for path in policy.local_time_fields:
        root.get_or_add(path).has_local_times = True
    for key in computed_keys(schema):
        root.get_or_add((key,)).is_excluded = True
    hidden = ProofRule()
    for path in policy.masked:
        _hidden_rule(hidden, path).is_masked = True
    for path in policy.excluded:
        _hidden_rule(hidden, path).is_excluded = True
    _hide(root, hidden)
    _inherit_times(root, _AS_IS)
    return root


def _hidden_rule(rule: ProofRule, path: Path) -> ProofRule:
    for key in path:
        rule = rule.hidden.setdefault(similarity_key(key), ProofRule())
    return rule


def _hide(rule: ProofRule, hidden: ProofRule) -> None:
    """Add to a rule, and to those below it, what is masked or excluded however the keys are capitalized."""
    rule.is_masked |= hidden.is_masked
    rule.is_excluded |= hidden.is_excluded
    rule.hidden = {key: replace(each) for key, each in hidden.hidden.items()}
    for key, below in rule.below.items():
        _hide(below, hidden.hidden.get(similarity_key(key), _AS_IS))
    for each in list(rule.hidden.values()):
        _hide(each, each)


def _add_column_rule(rule: ProofRule, data_type: DataType, text_form: object = None) -> None:
    if text_form is not None:
        rule.text_form = TextForm(text_form)
    leaf, map_levels = _leaf_and_map_levels(data_type)
    rule.map_levels = max(rule.map_levels, map_levels)
    for item in leaf if isinstance(leaf, StructType) else ():
        _add_column_rule(rule.get_or_add((source_key(item),)), item.type, item.metadata.get(FORM))


def _add_pin_rule(rule: ProofRule, data_type: DataType) -> None:
    leaf, map_levels = _leaf_and_map_levels(data_type)
    is_open = str(leaf) == "void"  # the pin map does not say how deep the maps are
    rule.map_levels = max(rule.map_levels, map_levels) if is_open else map_levels
    rule.has_dates, rule.has_local_times = str(leaf) in ("date", "timestamp"), str(leaf) == "timestamp_ntz"
    for item in leaf if isinstance(leaf, StructType) else ():
        _add_pin_rule(rule.get_or_add((item.name,)), item.type)


def _leaf_and_map_levels(data_type: DataType) -> tuple[DataType, int]:
    match data_type:
        case ArrayType(element):
            return _leaf_and_map_levels(element)
        case MapType(key, value) if key == STRING:
            leaf, map_levels = _leaf_and_map_levels(value)
            return leaf, map_levels + 1
    return data_type, 0


def _inherit_times(rule: ProofRule, above: ProofRule) -> None:
    rule.has_dates = rule.has_dates or above.has_dates
    rule.has_local_times = rule.has_local_times or above.has_local_times
    for below in (*rule.below.values(), *rule.hidden.values()):
        _inherit_times(below, rule)


_TIME = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_TIMESTAMP = re.compile(rf"({_DATE.pattern}T{_TIME})(?:\.[0-9]{{1,6}})?(Z|\+00:00)?")


def to_temporal(text: str) -> str:
    """Return a DateString, a TimestampString or a LocalTimeString if a text is such a value and nothing of it would be
    lost, else the text.

    Source: docs/evolution-rules.md#d6
    """
    try:
        if _DATE.fullmatch(text):
            date.fromisoformat(text)
            return DateString(text)
        if match := _TIMESTAMP.fullmatch(text):
            datetime.fromisoformat(match[1])
            return TimestampString(text) if match[2] else LocalTimeString(text)
    except ValueError:
        pass
    return text


class CorruptTextRedactor:
    """Hides texts that are not records where the policy masks or excludes fields.

    Such a text has no fields, so only the whole text can be hidden.
    """

    def __init__(self, policy: Policy) -> None:
        self._paths = ", ".join(sorted(map(format_path, policy.excluded | policy.masked)))

    @property
    def is_redacting(self) -> bool:
        """Whether the policy masks or excludes any field."""
        return bool(self._paths)

    def redact(self, text: bytes) -> str:
        """Return what the table keeps of a corrupt text: the text, or only its length if the policy hides fields."""
        if self._paths:
            return f"{MASK} {len(text)} bytes that may hold {self._paths}"
        try:
            content = text.decode()
        except UnicodeDecodeError:
            return repr(text)
        return repr(text) if content.startswith(("b'", 'b"')) else content
