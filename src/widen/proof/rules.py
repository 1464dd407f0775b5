"""The proof's own reading of the policy for single fields: masks, exclusions, maps, texts and dates.

Source: docs/evolution-rules.md#d6, #d10, #d13
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import date, datetime
from functools import cache
from types import MappingProxyType
from typing import Any, Final, TypeAlias, cast

from widen.evolution.policy import EpochUnit, Mode, Numbers, Policy, TextForm
from widen.json.time_spellings import ISO, TimeSpelling
from widen.model.column_path import ELEMENT, VALUE, Path, format_path
from widen.model.types import STRING, ArrayType, DataType, DecimalType, Field, MapType, StructType, similarity_key
from widen.model.value_classes import dataclass
from widen.proof.json_reader import DeepJson, Json, NumberToken, read_json, to_text
from widen.proof.time_texts import read_time_text, to_instant_form, to_local_form
from widen.protocol.column_metadata import DEFAULT, find_default, find_generation, find_identity, is_computed
from widen.schema.source_metadata import FORM, role_of, source_key

MASK = "***"


class DateString(str):
    """A string that the policy reads as a date."""

    __slots__ = ()


class TimestampString(str):
    """A string that the policy reads as a timestamp.

    Attributes:
        form: The form of the timestamp, if the text is not ISO 8601 in UTC.
    """

    __slots__ = ("form",)
    form: str


class LocalTimeString(str):
    """A string that the policy reads as a timestamp without a time zone; see `TimestampString`."""

    __slots__ = ("form",)
    form: str


class ReplacedText(str):
    """A text in place of another value: a mask, or the JSON of a number, an array or a record."""

    __slots__ = ()


class MapObject(dict[str, Any]):
    """An object whose keys are data."""


@dataclass(slots=True)
class ProofRule:
    """What happens to the values of a field and of the fields below it.

    Args:
        map_levels: Number of levels of objects that are maps.
        has_dates: Strings that are dates or timestamps become such values, also below.
        has_local_times: Strings that are dates or timestamps without a time zone become such values, also below.
        spelling: Which spellings of times are read.
        below: The rules of the fields below, by key.
        hidden: What is masked or excluded below, by folded key: however a name is capitalized.
        included: The folded keys below that are not excluded; None for all.
    """

    is_excluded: bool = False
    is_masked: bool = False
    text_form: TextForm | None = None
    map_levels: int = 0
    has_dates: bool = False
    has_local_times: bool = False
    spelling: TimeSpelling = ISO
    below: dict[str, ProofRule] = field(default_factory=dict)
    hidden: dict[str, ProofRule] = field(default_factory=dict)
    included: frozenset[str] | None = None

    def rule_of(self, key: str) -> ProofRule:
        """Return the rule of a key of a record."""
        if self.included is not None and similarity_key(key) not in self.included:
            return _EXCLUDED
        # A rule of the very name comes first: two fields may differ in nothing but capitals, and only one has a pin.
        rule = self.below.get(key) or self.hidden.get(similarity_key(key) if self.hidden else key)
        return rule or _without_entry(self.has_dates, self.has_local_times, self.spelling)

    def get_or_add(self, path: Path) -> ProofRule:
        """Return the rule of a field; add an empty rule for a new field."""
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
            and self.included is None
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
        is_redacting = self.is_excluded or self.is_masked or self.included is not None
        return is_redacting or any(rule.has_redaction for rule in below)

    def apply_to_record(self, record: Mapping[str, Json]) -> dict[str, Json]:
        """Return a record after the rules."""
        kept = {}
        for key, value in record.items():
            rule = self.rule_of(key)
            if not rule.is_excluded:
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
            # A pin to text leaves scalars as they are: their text is the column's business.
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
        # A text where a record was expected may be that record, written out.
        if self._hides_text(value, is_entry=is_entry):
            return ReplacedText(MASK)
        return self.to_temporal(value) if self.reads_times and type(value) is str else value

    def _hides_text(self, value: Json, *, is_entry: bool) -> bool:
        """Return whether a text may be a record with a hidden field; an entry only if its text may be JSON."""
        return bool(self.hidden) and type(value) is str and (not is_entry or value.lstrip()[:1] in ("{", "[", '"'))

    def to_temporal(self, text: str) -> str:
        """Return a text as a date or a timestamp if it is one that the rule reads, else the text."""
        temporal = to_temporal(text)
        is_local = isinstance(temporal, LocalTimeString)
        if type(temporal) is not str:
            is_read = self.has_local_times if is_local else self.has_dates
            if is_read or isinstance(temporal, DateString):
                return temporal
        if self.spelling.is_any or (self.spelling.zone and is_local):
            return self._to_spelled_time(text)
        return text

    def _to_spelled_time(self, text: str) -> str:
        found = read_time_text(text)
        if found is None:
            return text
        micros, offset = found
        if offset is None and self.has_local_times:
            local_time = LocalTimeString(text)
            local_time.form = to_local_form(micros)
            return local_time
        is_instant = self.has_dates and (offset is not None or self.spelling.zone)
        form = to_instant_form(micros, offset, self.spelling.zone) if is_instant else None
        if form is None:
            return text
        instant = TimestampString(text)
        instant.form = form
        return instant

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
_EXCLUDED = ProofRule(is_excluded=True)


def spelled_times(text: str, spelling: TimeSpelling) -> list[str]:
    """Return the forms of the times, of an instant and without a zone, that a text in another spelling means."""
    if spelling == ISO:
        return []
    rules = ProofRule(has_dates=True, spelling=spelling), ProofRule(has_local_times=True, spelling=spelling)
    forms = (getattr(rule.to_temporal(text), "form", None) for rule in rules)
    return [form for form in forms if form is not None]


@cache
def _without_entry(has_dates: bool, has_local_times: bool, spelling: TimeSpelling) -> ProofRule:
    return ProofRule(has_dates=has_dates, has_local_times=has_local_times, spelling=spelling)


def with_times_of_columns(schema: StructType, policy: Policy) -> Policy:
    """Return a policy that reads times from text in each field with a column of times, where schema parts declare them.

    Source: docs/guide/typed-json.md#connect
    """
    if policy.dialect is None or not policy.dialect.has_schemas:
        return policy
    return replace(policy, date_fields=policy.date_fields.union(_fields_with_times(schema, ())))


def _fields_with_times(struct: StructType, above: Path) -> Iterator[Path]:
    for column in struct:
        leaf, field = column.type, (*above, source_key(column))
        while isinstance(leaf, (ArrayType, MapType)):
            leaf = leaf.value if isinstance(leaf, MapType) else leaf.element
        if isinstance(leaf, StructType):
            yield from _fields_with_times(leaf, field)
        elif str(leaf) in ("date", "timestamp"):
            yield field


def build_proof_rules(schema: StructType, policy: Policy) -> ProofRule:
    """Return the rules for the records of a table.

    Args:
        schema: Schema of the table: objects are maps where a column is a map, and texts where a column stores text.
    """
    policy, root = with_times_of_columns(schema, policy), ProofRule()
    for column in schema:
        if role_of(column) is None:
            _add_column_rule(root.get_or_add((source_key(column),)), column.type, column.metadata.get(FORM))
    # After the columns: what the policy says now wins over what it said when the column was created.
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
    # Last, since a mask holds for rules of every kind, however their names are capitalized.
    _hide(root, hidden)
    _inherit_times(root, ProofRule(spelling=policy.spelling))
    root.included = policy.included_names
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
    # A name that has only a hidden rule leads to others below it.
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
    rule.spelling = above.spelling
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
        # The patterns admit a 30th of February, and Python's calendar does not.
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
        if policy.included is not None:
            self._paths = "fields that are not loaded"

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


# The columns of each source field, from the schema of a table: the proof's own code, not the writer's.
#
# Source: docs/evolution-rules.md#u14, #u17, #d9, #d18


RECORD, MAP = "record", "map"

_TYPE_ORDER: Mapping[str, int] = MappingProxyType(
    {
        name: order
        for order, name in enumerate(
            (
                *(RECORD, MAP, "date", "boolean", "byte", "short", "integer", "long", "double", "float", "decimal"),
                *("timestamp_ntz", "binary", "string", "timestamp"),
            )
        )
    }
)
"""The types of columns that hold JSON values, sorted as the proof reads them.

Dates come before numbers, since a date may also stand in a column of numbers. Timestamps come last, since columns of
timestamps also hold integers (U16).
"""


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column that holds values of a source field.

    Args:
        name: Name of the column in its struct.
        dim: Number of arrays around the leaf type.
        type_name: Name of the leaf type; ``decimal``, `RECORD` or `MAP` for types with parameters.
        value: The column of the values, for maps.
        epoch_unit: The unit of integers, for timestamps, if the policy names one.
        has_epochs: Whether integers stand in this timestamp column alone: it is fixed, or its field is pinned to this
            type, and the policy names their unit.
        has_booleans_as_numbers: Whether booleans become numbers here: in mode split (D18).
        rounds: The kinds whose values a column of doubles rounds, because the policy asks for it.
        has_dates: Whether strings of the field may be dates and timestamps, which a column of numbers holds as counts.
        spelling: Which spellings of times are read.
        takes_integral: Whether a column of integers holds numbers such as 1.0.
    """

    name: str
    position: int
    dim: int
    type_name: str
    type: DataType
    fields: ColumnsByKey | None = None
    value: SourceColumn | None = None
    epoch_unit: EpochUnit | None = None
    has_epochs: bool = False
    has_booleans_as_numbers: bool = False
    has_dates: bool = False
    rounds: frozenset[str] = frozenset()
    spelling: TimeSpelling = ISO
    takes_integral: bool = False


FieldColumns: TypeAlias = tuple[SourceColumn, ...]
ColumnsByKey: TypeAlias = dict[str, FieldColumns]
"""For each key of a record its columns, sorted as the proof reads them."""


def computed_keys(schema: StructType) -> frozenset[str]:
    """Return the fields whose columns the table fills with values that the proof cannot tell; it leaves them out.

    The table has either the value of the source there or a computed one, and it does not say which.
    """
    return frozenset(source_key(field) for field in schema if _is_left_out(field))


def _is_left_out(field: Field) -> bool:
    return is_computed(field) and read_default(field) is UNKNOWN


UNKNOWN: Final = object()
"""The value of a column that only the table computes."""


def read_default(field: Field) -> Json | object:
    """Return the value that a column has where its field is missing, as JSON; `UNKNOWN` if it is not a plain literal.

    Source: PROTOCOL.md#default-columns; Spark's literals
    """
    text = find_default(field)
    if text is None or find_generation(field) is not None or find_identity(field) is not None:
        return UNKNOWN
    for pattern, read in _LITERALS.get(str(field.type).partition("(")[0], ()):
        match = pattern.fullmatch(text.strip())
        if match is not None:
            return read(match[match.lastindex or 0])
    return None if text.strip().upper() == "NULL" else UNKNOWN


_WHOLE_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,18})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,15})?")
_TEXT = re.compile(r"'([^'\\]*)'")
_LITERALS: Mapping[str, Sequence[tuple[re.Pattern[str], Callable[[str], Json]]]] = {
    **dict.fromkeys(("byte", "short", "integer", "long"), ((_WHOLE_NUMBER, NumberToken),)),
    **dict.fromkeys(("double", "decimal"), ((_NUMBER, NumberToken),)),
    "string": ((_TEXT, str), (_WHOLE_NUMBER, str)),
    "boolean": ((re.compile("(?i:true)"), lambda _: True), (re.compile("(?i:false)"), lambda _: False)),
    "date": ((re.compile(rf"(?i:date)?\s*'({_DATE.pattern})'"), DateString),),
}
"""For each type, the literals whose value the proof knows."""


def read_defaults(schema: StructType) -> dict[str, Json]:
    """Return what the table has where a record has no field, by field; nulls are left out."""
    found = {source_key(field): read_default(field) for field in schema if find_default(field) is not None}
    return {key: cast(Json, value) for key, value in found.items() if value is not UNKNOWN and value is not None}


def leave_out(schema: StructType, keys: Collection[str]) -> StructType:
    """Return a schema that makes the proof leave out the columns of some fields that have a default."""
    # The proof does not know the value of this expression.
    unknown = {DEFAULT: "current_user()"}
    is_meant = (find_default(field) is not None and source_key(field) in keys for field in schema)
    pairs = zip(schema, is_meant, strict=True)
    return StructType(tuple(field.with_metadata(**unknown) if meant else field for field, meant in pairs))


def without_defaults(schema: StructType) -> StructType:
    """Return a schema that makes a missing field null in columns whose default the proof knows."""
    return StructType(
        tuple(field if read_default(field) is UNKNOWN else field.without_metadata(DEFAULT) for field in schema)
    )


def source_columns_by_key(schema: StructType, policy: Policy) -> ColumnsByKey:
    """Return the columns of each source field of a table.

    Args:
        schema: Schema of the table; its metadata names the field of each column.

    Source: docs/evolution-rules.md#d9, #d14
    """
    return _columns_by_key(schema, with_times_of_columns(schema, policy), (), ())


def _columns_by_key(struct: StructType, policy: Policy, path: Path, above: Path) -> ColumnsByKey:
    by_key: dict[str, list[SourceColumn]] = {}
    for position, each in enumerate(struct):
        # Only columns at the top can have a role; a field of a record that is called _rescued is data.
        if above or (role_of(each) is None and not _is_left_out(each)):
            key = source_key(each)
            column = _source_column((*path, each.name), position, each.type, policy, (*above, key))
            if column is not None:
                by_key.setdefault(key, []).append(column)
    rounds = policy.numbers is Numbers.DOUBLE
    return {
        key: tuple(sorted(_with_rounding(columns) if rounds else columns, key=_sort_key))
        for key, columns in by_key.items()
    }


def _with_rounding(columns: Sequence[SourceColumn]) -> Sequence[SourceColumn]:
    """Return the columns of a field with what its doubles round: nothing beside decimals, no longs beside integers."""
    type_names = {column.type_name for column in columns}
    # A decimal beside the doubles takes what they would round.
    if type_names & {"decimal", "float"}:
        return columns
    rounds = frozenset({"decimal"} if type_names & _WHOLE else {"decimal", "long"})
    return [replace(column, rounds=rounds) if column.type_name == "double" else column for column in columns]


_WHOLE = frozenset({"byte", "short", "integer", "long"})


def _source_column(path: Path, position: int, data_type: DataType, policy: Policy, source: Path) -> SourceColumn | None:
    name, dim = path[-1], 0
    while isinstance(data_type, ArrayType):
        data_type, dim = data_type.element, dim + 1
    inside = (*path, *[ELEMENT] * dim)
    match data_type:
        case StructType():
            fields = _columns_by_key(data_type, policy, inside, source)
            return SourceColumn(name, position, dim, RECORD, data_type, fields, spelling=policy.spelling)
        case MapType(key, value):
            inner = _source_column((*inside, VALUE), position, value, policy, source) if key == STRING else None
            return inner and SourceColumn(name, position, dim, MAP, data_type, value=inner, spelling=policy.spelling)
        case DecimalType():
            return SourceColumn(
                *(name, position, dim, "decimal", data_type),
                has_booleans_as_numbers=_is_split_mode(policy, source),
                spelling=policy.spelling,
            )
    if str(data_type) not in _TYPE_ORDER:
        return None
    above = [source[:length] for length in range(len(source) + 1)]
    dated = (policy.pins, policy.date_fields, policy.local_time_fields)
    has_dates = any(each in fields for each in above for fields in dated)
    is_pinned = str(data_type) == "timestamp" and policy.pins.get(source) == data_type
    return SourceColumn(
        name,
        position,
        dim,
        type_name=str(data_type),
        type=data_type,
        epoch_unit=policy.epoch_units.get(source),
        has_epochs=source in policy.epoch_units and (path in policy.fixed_columns or (not dim and is_pinned)),
        has_booleans_as_numbers=_is_split_mode(policy, source),
        has_dates=has_dates,
        spelling=policy.spelling,
        takes_integral=policy.takes_integral,
    )


def _is_split_mode(policy: Policy, source: Path) -> bool:
    """Return whether the mode of a field is split: the nearest mode on its path, else the default mode."""
    pins = (policy.pins.get(source[:length]) for length in range(len(source), 0, -1))
    return next((pin for pin in pins if isinstance(pin, Mode)), policy.mode) is Mode.SPLIT


def _sort_key(column: SourceColumn) -> tuple[object, ...]:
    inner = _sort_key(column.value) if column.value is not None else ()
    return (column.type_name != RECORD, column.dim, _TYPE_ORDER[column.type_name], inner)


def widest_record_column(columns: FieldColumns) -> SourceColumn | None:
    """Return the record column with the most arrays, which has all fields that have had a value (U17)."""
    return max(
        (column for column in columns if column.type_name == RECORD), key=lambda column: column.dim, default=None
    )


def merge_record_fields(columns: FieldColumns) -> ColumnsByKey:
    """Return the columns of each key in all record columns of a field.

    A column other than the widest may alone have a field that had values before, and that is only empty since.
    """
    by_key: ColumnsByKey = {}
    for column in columns:
        for key, inner in (column.fields or {}).items():
            by_key[key] = (*by_key.get(key, ()), *inner)
    return {key: tuple(sorted(inner, key=_sort_key)) for key, inner in by_key.items()}
