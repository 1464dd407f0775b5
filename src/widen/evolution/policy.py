"""The policy: which schema changes an ingestion may make, and how it reads single fields.

Source: docs/evolution-rules.md#d1, #d5, #d6, #d10, #d12, #d13
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import field, replace
from enum import Enum
from functools import partial
from typing import TypeAlias, TypeVar

from widen.errors import InvalidOption, InvalidPath, InvalidType
from widen.json.dialect import Dialect
from widen.json.document import MAX_RECORD_BYTES
from widen.json.envelope import Envelope
from widen.json.field_rules import (
    LOADED_AT,
    PLAIN,
    SIGN,
    SOURCE_FILE,
    VALID_FROM,
    VALID_TO,
    VERSION_FIELDS,
    FieldRule,
    FieldRules,
)
from widen.json.kinds import BINARY_WORD, MAP_WORD, word_of
from widen.json.observation import RecordObservation
from widen.json.record_path import RecordPath
from widen.json.time_spellings import ISO, TimeSpelling
from widen.model.column_path import Path, as_nullable, fold_path, parse_path
from widen.model.schema_json import parse_type
from widen.model.types import (
    DATE,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    ArrayType,
    DataType,
    Field,
    MapType,
    StructType,
    similarity_key,
)
from widen.model.value_classes import dataclass
from widen.schema.field_names import (
    FieldNames,
    NameUse,
    Spellings,
    find_field_names,
    find_spellings,
    keys_of,
    respell,
    respell_path,
)
from widen.schema.source_metadata import EVOLVED_FROM, FORM, SOURCE, TableFormat, role_of, source_key

# How sample values are shown and stored: not at all, masked, or raw.
#
# A masked value shows why it did not fit without its content: `12.50 EUR` becomes `99.99 XXX`.
#
# Source: docs/evolution-rules.md#d24


class Samples(str, Enum):
    """How sample values are shown."""

    NONE = "none"
    MASKED = "masked"
    RAW = "raw"


def mask(text: str) -> str:
    """Replace every letter of a text with x or X and every digit with 9; keep other characters.

    Example:
        >>> mask("12.50 EUR"), mask("Müller-Lüdenscheidt")
        ('99.99 XXX', 'Xxxxxx-Xxxxxxxxxxxx')
    """
    return "".join(map(_mask, text))


def _mask(char: str) -> str:
    if char.isnumeric():
        return "9"
    if char.isalpha():
        return "X" if char.isupper() else "x"
    return char


def sample_formatter(samples: Samples | str) -> Callable[[str], str]:
    """Return the function that formats a sample value; its result is empty if samples are not shown."""
    return _SHOWN[Samples(samples)]


_SHOWN: Mapping[Samples, Callable[[str], str]] = {Samples.NONE: lambda _: "", Samples.MASKED: mask, Samples.RAW: str}


MAX_COLUMNS = 2000
MAX_KEYS = 10_000
"""The default limit of leaves in a table that ingestion adds columns to."""

ANYWHERE: Path = ()
"""The path that stands for all fields."""


class Mode(str, Enum):
    """What happens when a batch does not fit the schema."""

    WIDEN = "widen"
    """Widen the column in place if that is exact, else add columns."""
    SPLIT = "split"
    """Add columns; never change existing ones."""
    FREEZE = "freeze"
    """Keep the schema. Values that do not fit go to the rescue column."""
    FAIL = "fail"
    """Refuse the batch."""


class TextForm(str, Enum):
    """How a field is stored in one string column, regardless of its values."""

    TEXT = "text"
    """Strings as they are, other scalars as spelled in the source, arrays and records as JSON."""
    JSON = "json"
    """Every value as JSON."""


class EpochUnit(str, Enum):
    """The unit of integers that are converted to timestamps, counted since 1970."""

    SECONDS = "s"
    MILLISECONDS = "ms"
    MICROSECONDS = "us"
    NANOSECONDS = "ns"

    @property
    def nanos(self) -> int:
        """How many nanoseconds the unit has."""
        return {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[self.value]


class Numbers(str, Enum):
    """What fractions become."""

    EXACT = "exact"
    """A double where that is exact, else a decimal."""
    DECIMAL = "decimal"
    """A decimal with the digits as written, so that 12.50 stays 12.50."""
    DOUBLE = "double"
    """A double, rounded where a double cannot hold the number, so that a field of fractions stays one column."""


class Names(str, Enum):
    """When two names mean one field."""

    ANY_CASE = "any-case"
    """Where they differ in case only, unless the table or a record has both."""
    EXACT = "exact"
    """Only where they are equal."""


Pin: TypeAlias = Mode | TextForm | DataType
"""What a field can be pinned to."""

ANY_MAP = MapType(STRING, VOID)
"""The pin that reads objects as maps and leaves the type of the values to the rules."""


@dataclass(frozen=True, slots=True)
class FixedColumn:
    """A column that ingestion must not reroute: it gets no evolved column, and records that do not fit are quarantined.

    Args:
        is_required: Whether it is NOT NULL, and the table does not fill it where a record says null.
        is_filled: Whether the table fills it where a record has no field for it.
        takes_values: Whether it takes values of records; an identity column that is always generated does not.
    """

    column: str
    reason: str
    can_widen: bool = True
    is_required: bool = False
    is_filled: bool = False
    takes_values: bool = True


@dataclass(frozen=True, slots=True)
class Policy:
    """Which schema changes an ingestion may make, and how it reads single fields.

    A field is named by its path in the source: the keys from the root, without array indexes and keys of maps.

    Args:
        pins: For single fields, a mode for the field and everything below it; or the type or text form of its first
            column, which is never widened.
        max_columns: The maximum number of leaves; ingestion adds no columns beyond it.
        max_keys: The limit of keys in one field of a batch; more of them are data and not names.
        date_fields: The fields that convert strings in and below them if they are ISO 8601 dates or timestamps.
        local_time_fields: The same for strings that are ISO 8601 dates or timestamps without a time zone.
        spelling: Which spellings of times are read, wherever strings are read as dates or timestamps.
        epoch_units: For single fields, the unit of integers that become timestamps. For other fields the magnitude of a
            value decides. Where the field is also pinned to a timestamp, such integers are timestamps and nothing else.
        fixed_columns: The columns that must not be rerouted, by their path in the table.
        samples: How plans, events and commits show sample values.
        included: The top-level fields that are read; None for all.
        allows_unmatched: Whether masks, exclusions and inclusions may name fields that neither the table nor the batch
            has.
        no_stats: The fields whose columns get no minimum and no maximum, beside those masked and excluded.
        known_fields: The fields that earlier loads into the table have masked or excluded.
        detects_maps: Whether the objects of a new field become maps if they look like maps.
        numbers: What fractions become in columns that ingestion adds or widens.
        layout: The columns that a new table begins with; None for no columns.
        kept_types: The columns whose type no ingestion may change, by path with steps into arrays and maps; values that
            they cannot hold get a column of their own.
        reserved_names: More names that a new top-level column must not have.
        max_record_bytes: The maximum size of a record or a line of text, after decompression.
        keeps_corrupt: Whether the table holds the texts that are not records; a load by key quarantines them.
        enables_widening: Whether the ingestion turns on type widening for a Delta table that exists without it.
        record_path: Where the documents of the source have their records, if they are not the records themselves.
        dialect: How the records wrap values in their types, if they are not plain JSON.
        envelope: What the records are, if they are not the rows themselves.
        history: The fields that order the versions of a row, for a table that keeps them.
        deletes_by: The excluded fields that say, in a load by key, whether a record deletes; see `KeyRules.excluded`.
        delete_when: The condition of deletions with such fields.
        names: When two names mean one field; None if neither the caller nor an earlier load has said it.
        allows_nan: Whether NaN, Infinity and -Infinity in JSON are doubles; otherwise such texts are not records.
        takes_integral: Whether numbers such as 1.0 in JSON and CSV are integers.
    """

    mode: Mode = Mode.WIDEN
    pins: Mapping[Path, Pin] = field(default_factory=dict)
    max_columns: int = MAX_COLUMNS
    max_keys: int = MAX_KEYS
    table_format: TableFormat = TableFormat.DELTA
    date_fields: frozenset[Path] = frozenset()
    local_time_fields: frozenset[Path] = frozenset()
    spelling: TimeSpelling = ISO
    epoch_units: Mapping[Path, EpochUnit] = field(default_factory=dict)
    excluded: frozenset[Path] = frozenset()
    masked: frozenset[Path] = frozenset()
    included: frozenset[Path] | None = None
    allows_unmatched: bool = False
    no_stats: frozenset[Path] = frozenset()
    known_fields: frozenset[Path] = frozenset()
    fixed_columns: Mapping[Path, FixedColumn] = field(default_factory=dict)
    kept_types: frozenset[Path] = frozenset()
    file_fields: frozenset[str] = frozenset()
    samples: Samples = Samples.MASKED
    detects_maps: bool = False
    numbers: Numbers = Numbers.EXACT
    layout: StructType | None = None
    reserved_names: frozenset[str] = frozenset()
    max_record_bytes: int = MAX_RECORD_BYTES
    enables_widening: bool = False
    record_path: RecordPath | None = None
    dialect: Dialect | None = None
    envelope: Envelope | None = None
    history: tuple[Path, ...] = ()
    deletes_by: tuple[Path, ...] = ()
    delete_when: str = ""
    names: Names | None = None
    keeps_corrupt: bool = True
    allows_nan: bool = False
    takes_integral: bool = False

    @property
    def hides(self) -> bool:
        """Whether some values of a source are not stored as they are, or not at all."""
        return bool(self.masked or self.excluded) or self.included is not None

    @property
    def included_names(self) -> frozenset[str] | None:
        """The folded names of the included fields, with those that Widen itself adds to records; None for all."""
        if self.included is None:
            return None
        own = VERSION_FIELDS if self.history else ()
        return frozenset(map(similarity_key, (*(path[0] for path in self.included), *own)))

    def loads(self, path: Path) -> bool:
        """Return whether a field is neither excluded nor outside of the included ones."""
        names, excluded = self.included_names, set(map(fold_path, self.excluded))
        is_included = names is None or similarity_key(path[0]) in names
        return is_included and not any(fold_path(path[:length]) in excluded for length in range(1, len(path) + 1))

    @property
    def matches_any_case(self) -> bool:
        """Whether a name may stand for a field in another case."""
        return self.names is not Names.EXACT

    @property
    def refuses_nulls(self) -> bool:
        """Whether the table may refuse a row that has null in all source fields."""
        # A condition, such as `a IS NOT NULL`, may be false for such a row. Only columns with conditions cannot be
        # widened.
        columns = self.fixed_columns.values()
        return any(not fixed.can_widen or (fixed.is_required and not fixed.is_filled) for fixed in columns)

    @property
    def named_fields(self) -> tuple[Path, ...]:
        """The fields with a rule of their own, whose names count like names of columns."""
        return (*self.pins, *self.date_fields, *self.local_time_fields, *self.epoch_units)

    def mode_of(self, source: Path) -> Mode:
        """Return the mode of a field: its own pin, else the pin of its nearest pinned ancestor, else the default.

        A field that is pinned to a type is split, never widened. This does not apply to the fields below it.
        """
        pin = self.pins.get(source)
        if pin is not None and not isinstance(pin, Mode) and pin != ANY_MAP:
            above = self.mode_of(source[:-1])
            return Mode.SPLIT if above is Mode.WIDEN else above
        return self._nearest_mode(source)

    def keeps_booleans(self, source: Path) -> bool:
        """Return whether booleans of a field never become numbers. They do so only in mode split.

        A pin to a type does not change this: `true` and 1 also stay apart beside a pinned column.

        Source: docs/evolution-rules.md#d18
        """
        return self._nearest_mode(source) is not Mode.SPLIT

    def _nearest_mode(self, source: Path) -> Mode:
        for length in range(len(source), 0, -1):
            pin = self.pins.get(source[:length])
            if isinstance(pin, Mode):
                return pin
        return self.mode

    def reads_epochs(self, source: Path) -> bool:
        """Return whether integers of a field are timestamps: it is pinned to this type, and their unit is known.

        Source: docs/evolution-rules.md#d5
        """
        return source in self.epoch_units and self.pins.get(source) == TIMESTAMP

    def type_of(self, source: Path) -> DataType | None:
        """Return the type that a field is pinned to; None if it has no such pin."""
        pin = self.pins.get(source)
        return None if isinstance(pin, Mode) or pin == ANY_MAP else STRING if isinstance(pin, TextForm) else pin


def field_names(schema: StructType, policy: Policy) -> FieldNames | None:
    """Return the names of the fields of a table, and of those that a policy names; None if only equal names count.

    Source: docs/evolution-rules.md#d9
    """
    names = find_field_names(schema, policy.named_fields, in_any_case=policy.matches_any_case)
    return names if names.in_any_case or names.has_aliases else None


def match_names(policy: Policy, schema: StructType | None) -> Policy:
    """Return a policy whose rules name the fields of a table as its columns do."""
    names_any = policy.named_fields or policy.excluded or policy.masked or policy.included
    if schema is None or not names_any:
        return policy
    return with_paths(policy, find_field_names(schema, in_any_case=policy.matches_any_case).path)


def with_paths(policy: Policy, change: Callable[[Path], Path]) -> Policy:
    """Return a policy with other paths of the fields that it names."""
    return replace(
        policy,
        pins={change(path): pin for path, pin in policy.pins.items()},
        date_fields=frozenset(map(change, policy.date_fields)),
        local_time_fields=frozenset(map(change, policy.local_time_fields)),
        epoch_units={change(path): unit for path, unit in policy.epoch_units.items()},
        excluded=frozenset(map(change, policy.excluded)),
        masked=frozenset(map(change, policy.masked)),
        included=None if policy.included is None else frozenset(map(change, policy.included)),
    )


def spell_as(
    schema: StructType, policy: Policy, source: StructType, use: NameUse | None = None
) -> tuple[StructType, Policy]:
    """Return a table and a policy with the names that a source with types has for their fields."""
    names = field_names(schema, policy)
    spellings = {} if names is None else find_spellings(names, keys_of(source), use or NameUse())
    return respell_all(schema, policy, spellings)


def respell_all(schema: StructType, policy: Policy, spellings: Spellings) -> tuple[StructType, Policy]:
    """Return a table and a policy with other names of fields."""
    if not spellings:
        return schema, policy
    return respell(schema, spellings), with_paths(policy, partial(respell_path, spellings=spellings))


def parse_names(place: str, text: object) -> Names:
    """Parse when two names mean one field."""
    return _parse_word(Names, place, text)


NAMES = "widen.names"
"""The table property with `Names`, which applies to later loads that do not say it."""


def read_names(policy: Policy, properties: Mapping[str, str]) -> Policy:
    """Return a policy with what an earlier load has said about names, if it says nothing itself."""
    stored = properties.get(NAMES)
    known = stored if stored in {each.value for each in Names} else None
    return policy if policy.names is not None or known is None else replace(policy, names=Names(known))


def with_history(policy: Policy, order: tuple[Path, ...]) -> Policy:
    """Return a policy for a table with history: the times of a version are read like the fields that order them."""
    pins, units = dict(policy.pins), dict(policy.epoch_units)
    dated, local = policy.date_fields, policy.local_time_fields
    for path in order:
        times = [(name, *(path if len(order) > 1 else ())) for name in (VALID_FROM, VALID_TO)]
        pins |= {each: pins[path] for each in times if path in pins}
        units |= {each: units[path] for each in times if path in units}
        dated, local = (fields.union(times) if path in fields else fields for fields in (dated, local))
    return replace(policy, history=order, pins=pins, epoch_units=units, date_fields=dated, local_time_fields=local)


# The field rules of an ingestion: how to read the values of each field, from the table and the policy.
#
# A choice that a column shows need not be repeated in the policy: objects stay maps if the column is a map, and
# values stay strings if the column was created for their text form.
#
# Source: docs/evolution-rules.md#d6, #d10, #d13


_FIELD_RULE: Mapping[TextForm, FieldRule] = {TextForm.TEXT: FieldRule.AS_TEXT, TextForm.JSON: FieldRule.AS_JSON}
_DATED = (DATE, TIMESTAMP)


def build_field_rules(schema: StructType, policy: Policy, *, keeps_forms: bool = False) -> FieldRules:
    """Return the field rules for a table and a policy.

    Args:
        keeps_forms: Whether values that the table keeps as text stay values: for the text of a whole record.

    Source: docs/evolution-rules.md#d6, #d10, #d13
    """
    root = _RuleNode()
    for column in schema:
        if role_of(column) is None:
            _add_column_rules(root, column, keeps_forms=keeps_forms)
    for source, pin in policy.pins.items():
        if isinstance(pin, TextForm):
            root.at(source).take = FieldRule.AS_IS if keeps_forms else _FIELD_RULE[pin]
        elif not isinstance(pin, Mode):
            _add_pin_rules(root.at(source), pin)
    for source in policy.date_fields:
        root.at(source).is_dated = True
    for source, unit in policy.epoch_units.items():
        if policy.reads_epochs(source):
            root.at(source).epoch_nanos = unit.nanos
    for source in policy.local_time_fields:
        root.at(source).has_local_times = True
    # Masks and exclusions come last: no other rule may bring a hidden value back.
    hidden = _HiddenNode()
    for sources, take in ((policy.masked, FieldRule.MASKED), (policy.excluded, FieldRule.LEFT_OUT)):
        for source in sorted(sources):
            node = hidden.at(source)
            node.take, node.source = take, source
    above = FieldRules(included=policy.included_names, spelling=policy.spelling, takes_integral=policy.takes_integral)
    return root.build(above, hidden)


def unseen_hidden_fields(policy: Policy, schema: StructType) -> frozenset[Path]:
    """Return the masked and excluded fields that no column shows: excluded ones, and those inside of maps and texts."""
    rules = build_field_rules(schema, replace(policy, masked=frozenset(), excluded=frozenset()))
    return policy.excluded | {source for source in policy.masked if _is_inside_closed(rules, source)}


def _is_inside_closed(rules: FieldRules, source: Path) -> bool:
    for key in source[:-1]:
        rules = next(
            (below for name, below in rules.below.items() if similarity_key(name) == similarity_key(key)), PLAIN
        )
        if rules.maps or rules.take is not FieldRule.AS_IS:
            return True
    return False


def with_time_fields(policy: Policy, schema: StructType) -> Policy:
    """Return a policy that reads ISO 8601 texts in the fields whose main columns are dates or timestamps.

    Source: docs/evolution-rules.md#d6
    """
    return replace(
        policy,
        date_fields=policy.date_fields | {*_fields_of_types(schema, (DATE, TIMESTAMP), ())},
        local_time_fields=policy.local_time_fields | {*_fields_of_types(schema, (TIMESTAMP_NTZ,), ())},
    )


def with_declared_times(policy: Policy, schema: StructType) -> Policy:
    """Return a policy that reads texts as times in all fields with such a column, if schema parts say what is a time.

    A later schema part may call the same field a string, and then it has a column for each.

    Source: docs/guide/typed-json.md#connect
    """
    if policy.dialect is None or not policy.dialect.has_schemas:
        return policy
    found = _fields_of_types(schema, _DATED, (), with_siblings=True)
    return replace(policy, date_fields=policy.date_fields.union(found))


def _fields_of_types(
    schema: StructType, types: Collection[DataType] | None, above: Path, *, with_siblings: bool = False
) -> Iterator[Path]:
    """Yield the source fields whose main columns have one of some types, or any, inside their arrays and maps.

    Args:
        with_siblings: Whether any of its columns may have the type.
    """
    for column in schema:
        leaf, source = column.type, (*above, source_key(column))
        while isinstance(leaf, (ArrayType, MapType)):
            leaf = leaf.element if isinstance(leaf, ArrayType) else leaf.value
        if isinstance(leaf, StructType):
            yield from _fields_of_types(leaf, types, source, with_siblings=with_siblings)
        elif (types is None or leaf in types) and (with_siblings or EVOLVED_FROM not in column.metadata):
            yield source


def build_typed_field_rules(schema: StructType, policy: Policy) -> FieldRules:
    """Return the field rules for a source with types: strings are read as dates only where a column takes dates.

    Dates are not detected: the type of the source decides the first column of a field. A column of numbers could not
    distinguish a date from a timestamp.

    Source: docs/evolution-rules.md#d6, #d16
    """
    fields = {*_fields_of_types(schema, None, ())}
    pins = {source: pin for source, pin in policy.pins.items() if source not in fields or not _is_temporal(pin)}
    declared = replace(
        policy,
        date_fields=frozenset(),
        local_time_fields=frozenset(),
        pins=pins,
        epoch_units={},
        spelling=ISO,
        takes_integral=False,
    )
    return build_field_rules(schema, for_file_fields(with_time_fields(declared, schema)))


def _is_temporal(pin: Pin) -> bool:
    return not isinstance(pin, (Mode, TextForm)) and _inside(pin)[0] in (*_DATED, TIMESTAMP_NTZ)


@dataclass(slots=True)
class _RuleNode:
    """A mutable tree of field rules for building `FieldRules`."""

    take: FieldRule = FieldRule.AS_IS
    maps: int = 0
    is_dated: bool = False
    has_local_times: bool = False
    epoch_nanos: int = 0
    below: dict[str, _RuleNode] = field(default_factory=dict)

    def at(self, source: Path) -> _RuleNode:
        node = self
        for key in source:
            node = node.below.setdefault(key, _RuleNode())
        return node

    def build(self, above: FieldRules, hidden: _HiddenNode) -> FieldRules:
        """Return the rules of the node, given those that it inherits, and what is hidden here and below."""
        is_dated, has_local_times = self.is_dated or above.is_dated, self.has_local_times or above.has_local_times
        inherited = FieldRules(
            is_dated=is_dated,
            has_local_times=has_local_times,
            spelling=above.spelling,
            takes_integral=above.takes_integral,
        )
        hidden_below = {name: _RuleNode().build(inherited, each) for name, each in hidden.below.items()}
        below = {
            key: node.build(inherited, hidden.below.get(similarity_key(key), _NOTHING_HIDDEN))
            for key, node in self.below.items()
        }
        kept = {key: each for key, each in below.items() if each != hidden_below.get(similarity_key(key), inherited)}
        take = hidden.take or self.take
        rules = FieldRules(
            take,
            self.maps,
            is_dated,
            has_local_times,
            self.epoch_nanos,
            above.spelling,
            above.takes_integral,
            kept,
            hidden_below,
            hidden.source,
            above.included,
        )
        return PLAIN if rules.is_plain else rules


@dataclass(slots=True)
class _HiddenNode:
    """A tree of the masked and excluded fields, by folded names.

    Args:
        source: The field as the policy spells it.
    """

    take: FieldRule | None = None
    source: Path = ()
    below: dict[str, _HiddenNode] = field(default_factory=dict)

    def at(self, source: Path) -> _HiddenNode:
        node = self
        for key in source:
            node = node.below.setdefault(similarity_key(key), _HiddenNode())
        return node


_NOTHING_HIDDEN = _HiddenNode()


def _add_column_rules(above: _RuleNode, column: Field, *, keeps_forms: bool) -> None:
    form = None if keeps_forms else column.metadata.get(FORM)
    leaf, maps = _inside(column.type)
    if form is None and not maps and not isinstance(leaf, StructType):
        return  # the field inherits its rules
    node = above.at((source_key(column),))
    if form is not None:
        node.take = _FIELD_RULE[TextForm(form)]
    node.maps = max(node.maps, maps)
    for item in leaf if isinstance(leaf, StructType) else ():
        _add_column_rules(node, item, keeps_forms=keeps_forms)


def _add_pin_rules(node: _RuleNode, data_type: DataType) -> None:
    leaf, maps = _inside(data_type)
    # The pin "map" says nothing of the values, so nested maps that the column already has stay maps.
    node.maps = max(node.maps, maps) if data_type == ANY_MAP else maps
    node.is_dated, node.has_local_times = leaf in _DATED, leaf == TIMESTAMP_NTZ
    for item in leaf if isinstance(leaf, StructType) else ():
        _add_pin_rules(node.at((item.name,)), item.type)


def _inside(data_type: DataType) -> tuple[DataType, int]:
    """Return the type inside the arrays and maps of a type, and the number of maps with string keys."""
    match data_type:
        case ArrayType(element):
            return _inside(element)
        case MapType(key, value) if key == STRING:
            leaf, maps = _inside(value)
            return leaf, maps + 1
    return data_type, 0


# Parse the settings of a policy: pins, paths, modes and units.
#
# Source: docs/evolution-rules.md#d1, #d5, #d10


_Word = TypeVar("_Word", bound=Enum)

_WORDS = ", ".join(each.value for each in (*Mode, *TextForm)) + f", {MAP_WORD}"
_EXPECTED = f"Must be one of {_WORDS}, or a type like decimal(18,4), map<string,string>, array<int>."


def parse_pin(place: str, text: object) -> Pin:
    """Parse what a field is pinned to.

    Args:
        text: A mode, a text form, or a type that a JSON value can have.

    Raises:
        InvalidOption: the text is not one of these.
    """
    if not isinstance(text, str):
        raise InvalidOption(option=place, value=text, expected=_EXPECTED)
    if text.strip().lower() == MAP_WORD:
        return ANY_MAP
    for words in (Mode, TextForm):
        if text.strip().lower() in {each.value for each in words}:
            return words(text.strip().lower())
    try:
        data_type = parse_type(text)
    except InvalidType as error:
        raise InvalidOption(option=place, value=text, expected=f"{error.message} {_EXPECTED}") from error
    unsupported = _unsupported_part(data_type)
    if unsupported is not None:
        raise InvalidOption(
            option=place, value=text, expected=f"A JSON value cannot have the type {unsupported.sql}. {_EXPECTED}"
        )
    return as_nullable(StructType((Field(place, data_type),))).fields[0].type


def _unsupported_part(data_type: DataType) -> DataType | None:
    """Return the part of a type that no JSON value can have; None without such a part."""
    match data_type:
        case StructType(fields):
            unsupported = [part for field in fields if (part := _unsupported_part(field.type)) is not None]
            return data_type if not fields else unsupported[0] if unsupported else None
        case ArrayType(element):
            return _unsupported_part(element)
        case MapType(key, value):
            return data_type if key != STRING else _unsupported_part(value)
    return data_type if word_of(data_type) in (None, BINARY_WORD) else None


def parse_source(place: str, text: object) -> Path:
    """Parse the path of a source field, e.g. ``a.b``.

    Raises:
        InvalidOption: the text is not a path.
    """
    expected = "Must be a path of keys like a.b; quote special characters with backticks."
    if not isinstance(text, str):
        raise InvalidOption(option=place, value=text, expected=expected)
    try:
        return parse_path(text)
    except InvalidPath as error:
        raise InvalidOption(option=place, value=text, expected=f"{error.message} {expected}") from error


def parse_mode(place: str, text: object) -> Mode:
    """Parse a mode."""
    return _parse_word(Mode, place, text)


def parse_unit(place: str, text: object) -> EpochUnit:
    """Parse an epoch unit."""
    return _parse_word(EpochUnit, place, text)


def _parse_word(words: type[_Word], place: str, text: object) -> _Word:
    by_value = {each.value: each for each in words}
    if not isinstance(text, str) or text not in by_value:
        raise InvalidOption(option=place, value=text, expected=f"Must be one of {', '.join(by_value)}.")
    return by_value[text]


# How a policy and a table handle the fields that records get from their file.
#
# Source: docs/evolution-rules.md#d9, #d21; see `widen.json.field_rules`.


_Rule = TypeVar("_Rule")


def for_file_fields(policy: Policy) -> Policy:
    """Return a policy that applies a rule for a name to the file field of that name as well.

    For example, a rule to mask ``region`` also masks the folder ``region=eu``. The load time is a timestamp.
    """
    names = policy.file_fields
    if not names:
        return policy
    included = policy.included
    if included is not None:
        own = {(name + SIGN,) for name in names & {SOURCE_FILE, LOADED_AT}}
        included |= own | _hidden_file_fields(included, names)
    date_fields = _add_file_fields(policy.date_fields, names) | {
        (LOADED_AT + SIGN,) for name in names if name == LOADED_AT
    }
    return replace(
        policy,
        pins=_with_file_fields(policy.pins, names),
        date_fields=frozenset(date_fields),
        local_time_fields=_add_file_fields(policy.local_time_fields, names),
        epoch_units=_with_file_fields(policy.epoch_units, names),
        excluded=policy.excluded | _hidden_file_fields(policy.excluded, names),
        masked=policy.masked | _hidden_file_fields(policy.masked, names),
        included=included,
        no_stats=policy.no_stats | _hidden_file_fields(policy.no_stats, names),
    )


def _with_file_fields(rules: Mapping[Path, _Rule], names: frozenset[str]) -> dict[Path, _Rule]:
    return {**{(name + SIGN,): rules[(name,)] for name in names if (name,) in rules}, **rules}


def _add_file_fields(rules: frozenset[Path], names: frozenset[str]) -> frozenset[Path]:
    return rules | {(name + SIGN,) for name in names if (name,) in rules}


def _hidden_file_fields(rules: frozenset[Path], names: frozenset[str]) -> frozenset[Path]:
    """Return the file fields that rules to hide values name, however they capitalize them."""
    hidden = set(map(fold_path, rules))
    return frozenset((name + SIGN,) for name in names if fold_path((name,)) in hidden)


def with_file_fields(schema: StructType, observed: RecordObservation, names: frozenset[str]) -> StructType:
    """Return the columns of a table, with file fields assigned to declared columns of the same name.

    A declared column that was never ingested into holds the source field of its name. If no record has that field, it
    holds the file field instead: a table partitioned by ``day`` takes the folders ``day=…``.
    """
    source_names = {field.metadata[SOURCE][-1] for field in schema if SOURCE in field.metadata}
    free = {name for name in names if name not in observed and name + SIGN not in source_names}
    if not free.intersection(schema.names):
        return schema
    return StructType(
        tuple(
            field.with_metadata(**{SOURCE: [field.name + SIGN]})
            if field.name in free and SOURCE not in field.metadata and role_of(field) is None
            else field
            for field in schema
        )
    )
