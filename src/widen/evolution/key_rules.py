"""Rows that change: which fields are the key of a row, and which record of a key is the newest.

A key is compared by kind and value, in any column: numbers by value, and a text never equals a number. So a row keeps
its key if a column widens, or if the field gets another column.

Source: docs/guide/keys.md
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import msgspec

from widen.errors import InvalidCondition, InvalidOption, OptionConflict, OptionMissing
from widen.evolution.policy import Policy, parse_source, with_history
from widen.json.envelope import OTHER_POSITION, POSITION, POSITIONS, PREFIX, UNCHANGED
from widen.json.field_rules import LOADED_AT, SIGN, SOURCE_FILE, VERSION_FIELDS
from widen.json.observation import Observation, RecordObservation
from widen.model.column_path import Path, fold_path, format_path
from widen.model.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    DecimalType,
    Field,
    MapType,
    StructType,
    is_same_name,
    quote_name,
)
from widen.model.value_classes import dataclass
from widen.schema.source_metadata import role_of, source_key, source_keys
from widen.schema.table_state import find_missing_names

KEY = "__widen_key_"
"""The beginning of the columns of `ReplacedRows.keys`; a number follows."""


KEY_TEXT = f"{KEY}0"
"""The key of a row, as one text; see `widen.changes.key_columns.join_texts`."""


PROPERTY = "widen.keys"
"""Table property: the keys for writing the table, as JSON; see `KeyRules.to_property`."""


NUMBER, TEXT = "__widen_number", "__widen_text"


@dataclass(frozen=True, slots=True)
class KeyRules:
    """How an ingestion changes rows by key.

    Args:
        sequence_by: The fields that tell which of two records of a key is newer: the first one, then the next where
            it is equal. Without any, the last batch wins.
        delete_when: The condition of records that delete the row of their key, in Spark SQL over the fields of the
            source, or the columns of the table; see `deletes`.
        keeps_missing: Whether fields that a record lacks keep the values that the row has; else they become null.
        history: Whether the table keeps every version of a row, with the columns of `VERSION_FIELDS`.
        has_unchanged: Whether records name the fields that a change has left as they were, in the field
            `widen.json.envelope.UNCHANGED`: these keep the values that the row has.
        is_strict: Whether different records of a key with equal sequences refuse a batch. The table does not record it.
        excluded: The fields of the condition that the load excludes. They have no column, so tasks evaluate the
            condition while they make the rows, and write the rows that delete to files of their own.
        history_columns: The tracked fields: with history, a record that changes none of them updates the version
            before it, and a change of one opens a version. Without any, every record is a version.
        history_except: Or the fields that are not tracked, beside the key and the sequence.
    """

    key: tuple[Path, ...]
    sequence_by: tuple[Path, ...] = ()
    delete_when: str | None = None
    keeps_missing: bool = False
    history: bool = False
    has_unchanged: bool = False
    is_strict: bool = False
    excluded: tuple[Path, ...] = ()
    history_columns: tuple[Path, ...] = ()
    history_except: tuple[Path, ...] = ()

    def __str__(self) -> str:
        order = format_paths(self.sequence_by)
        newest = f", the newest by {order}" if order else ", the last batch wins"
        rows = f"every version by {order}{self._tracked} of" if self.history else "one row for"
        deletes = f", deleted when {self.delete_when}" if self.delete_when else ""
        missing = ", missing fields are kept" if self.keeps_missing else ""
        names = format_paths(self.key)
        return f"{rows} each {names}{'' if self.history else newest}{deletes}{missing}"

    @property
    def is_plain(self) -> bool:
        """Whether the newest record of a key is its row, regardless of earlier rows."""
        return not (self.keeps_missing or self.history)

    @property
    def is_tracking(self) -> bool:
        """Whether only changes of some fields open a version."""
        return bool(self.history_columns or self.history_except)

    @property
    def untracked(self) -> tuple[Path, ...]:
        """The fields that are not tracked, where the others are."""
        return (*self.history_except, *self.fields)

    @property
    def tracked_text(self) -> str:
        """The fields of the option that says which ones are tracked, for people."""
        return format_paths(self.history_columns or self.history_except)

    @property
    def _tracked(self) -> str:
        if not self.is_tracking:
            return ""
        return f", for changes of {'' if self.history_columns else 'fields other than '}{self.tracked_text},"

    def is_same_key(self, other: KeyRules) -> bool:
        """Tell whether rows have the same keys and the same order."""
        return (set(self.key), self.sequence_by, self.history) == (set(other.key), other.sequence_by, other.history)

    def is_same_history(self, other: KeyRules) -> bool:
        """Tell whether the same fields are tracked."""
        mine, others = (
            [set(map(fold_path, paths)) for paths in (rules.history_columns, rules.history_except)]
            for rules in (self, other)
        )
        return mine == others

    @property
    def fields(self) -> tuple[Path, ...]:
        """The fields that every record must have: the key and the sequence."""
        return (*self.key, *self.sequence_by)

    def times(self, name: str) -> tuple[Path, ...]:
        """Return where a version has a sequence, in the field `VALID_FROM` or `VALID_TO`."""
        return ((name,),) if len(self.sequence_by) == 1 else tuple((name, *path) for path in self.sequence_by)

    def spelled_as(self, schema: StructType | None) -> KeyRules:
        """Return the rules with the fields as the records of a table spell them; callers may write them in any case.

        Otherwise a record with a field ``ID`` would begin another key in a table whose records have an ``id``.
        """
        if schema is None:
            return self
        fields = (self.key, self.sequence_by, self.history_columns, self.history_except)
        key, order, tracked, untracked = (tuple(_spell(schema, path) for path in paths) for paths in fields)
        return replace(self, key=key, sequence_by=order, history_columns=tracked, history_except=untracked)

    def spelled_like(self, other: KeyRules) -> KeyRules:
        """Return the rules with the fields as other rules spell them, which may be in another case."""
        spelled = {fold_path(path): path for path in other.fields}
        fields = (self.key, self.sequence_by)
        key, order = (tuple(spelled.get(fold_path(path), path) for path in paths) for paths in fields)
        return replace(self, key=key, sequence_by=order)

    def deletes(self, schema: StructType) -> str | None:
        """Return the condition of deletions over the columns of a table; None if columns do not say what deletes.

        The name of a field may differ from the name of its column: ``_metadata`` and ``op type`` cannot be columns. A
        field that has no column yet is null.
        """
        return None if self.delete_when is None or self.excluded else self._deletes(self.delete_when, schema)

    def deletes_with(self, schema: StructType, names: Sequence[str | None]) -> str:
        """Return the condition over the columns of a table and others that hold the excluded fields.

        Args:
            names: The column of each excluded field, which the schema has; None for a field that is null.
        """
        text, folded = self.delete_when or "", list(map(fold_path, self.excluded))
        for start, end, path in reversed(find_missing_names(text, StructType())):
            if fold_path(path) in folded:
                name = names[folded.index(fold_path(path))]
                text = f"{text[:start]}{'NULL' if name is None else name}{text[end:]}"
        return self._deletes(text, schema)

    def _deletes(self, condition: str, schema: StructType) -> str:
        text = _spell_condition(condition, schema)
        for start, end, _ in reversed(find_missing_names(text, schema)):
            text = f"{text[:start]}NULL{text[end:]}"
        return text

    def missing_fields(self, schema: StructType) -> tuple[Path, ...]:
        """Return the fields of the condition of deletions that the columns of a table lack, but not excluded ones."""
        if self.delete_when is None:
            return ()
        missing = find_missing_names(_spell_condition(self.delete_when, schema), schema)
        excluded = set(map(fold_path, self.excluded))
        return tuple(path for _, _, path in missing if fold_path(path) not in excluded)

    def to_property(self) -> str:
        """Return the rules as the table records them."""
        order = list(map(format_path, self.sequence_by))
        value = {
            "key": list(map(format_path, self.key)),
            "sequenceBy": order[0] if len(order) == 1 else order or None,
            "deleteWhen": self.delete_when,
            "missing": "keep" if self.keeps_missing else None,
            "history": self.history or None,
            "unchanged": self.has_unchanged or None,
            "excluded": list(map(format_path, self.excluded)) or None,
            "historyColumns": list(map(format_path, self.history_columns)) or None,
            "historyExcept": list(map(format_path, self.history_except)) or None,
        }
        return msgspec.json.encode({name: each for name, each in value.items() if each is not None}).decode()

    @staticmethod
    def from_property(text: str) -> KeyRules:
        """Return the rules that a table records.

        Raises:
            InvalidOption: the property is damaged.
        """
        try:
            value: Any = msgspec.json.decode(text)
            names = ("sequenceBy", "deleteWhen", "missing", "history", "historyColumns", "historyExcept")
            rules = parse_key_rules(value["key"], *map(value.get, names))
            excluded = tuple(parse_source("exclude", each) for each in value.get("excluded", ()))
            return replace(rules, has_unchanged=bool(value.get("unchanged")), excluded=excluded)
        except (msgspec.DecodeError, KeyError, TypeError, AttributeError) as error:
            expected = "Must be what an ingestion by key has written; unset the property to ingest without keys."
            raise InvalidOption(option=PROPERTY, value=text, expected=expected) from error


_NAME = r"(?:`(?:[^`]|``)+`|[^\W\d]\w*)"


_NAMES = re.compile(
    rf"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|--[^\n]*|/\*.*?\*/|(?P<names>{_NAME}(?:\s*\.\s*{_NAME})*)(?!\s*\()""",
    re.DOTALL,
)
"""Texts and comments of a condition, which stay as they are, and the names of columns; functions are not columns."""


def _spell_condition(condition: str, schema: StructType) -> str:
    return _NAMES.sub(lambda match: _spell_names(match, schema), condition)


def _spell_names(match: re.Match[str], schema: StructType) -> str:
    if match["names"] is None:
        return match[0]
    spelled, level = [], schema.fields
    for name in re.findall(_NAME, match["names"]):
        field = _find_field(level, name[1:-1].replace("``", "`") if name[0] == "`" else name)
        is_same = field is None or is_same_name(field.name, name.strip("`"))
        spelled.append(name if field is None or is_same else quote_name(field.name))
        level = field.type.fields if field is not None and isinstance(field.type, StructType) else ()
    return ".".join(spelled)


def _find_field(fields: Sequence[Field], name: str) -> Field | None:
    """Return the first column of a field of the source, or else the column of a name, in any case."""
    tests: tuple[Callable[[Field], bool], ...] = (
        lambda each: source_key(each) == name,
        lambda each: name in source_keys(each),
        lambda each: is_same_name(each.name, name),
        lambda each: any(is_same_name(key, name) for key in source_keys(each)),
    )
    return next((each for test in tests for each in fields if test(each)), None)


def parse_key_rules(
    key: Sequence[str],
    sequence_by: str | Sequence[str] | None = None,
    delete_when: str | None = None,
    missing: str | None = None,
    history: bool | None = None,
    history_columns: Iterable[str] | None = None,
    history_except: Iterable[str] | None = None,
) -> KeyRules:
    """Return the rules from a caller's arguments.

    Raises:
        InvalidOption: one of them cannot be used.
    """
    if isinstance(key, str) or not key:
        raise InvalidOption(option="key", value=key, expected="Must be a list of at least one field.")
    paths = tuple(parse_source("key", each) for each in key)
    if len(set(paths)) < len(paths):
        raise InvalidOption(option="key", value=list(key), expected="Must name each field once.")
    if delete_when is not None and not delete_when.strip():
        raise InvalidOption(option="delete_when", value=delete_when, expected="Must be a condition in Spark SQL.")
    sequence = _parse_sequence(sequence_by, paths)
    if missing not in (None, "null", "keep"):
        raise InvalidOption(option="missing", value=missing, expected="Must be null or keep.")
    if history and not sequence:
        expected = "Needs sequence_by, which says from when to when a version is valid."
        raise InvalidOption(option="history", value=True, expected=expected)
    if history and missing == "keep":
        expected = "With a history, every version must be a whole row."
        raise OptionConflict(option="history", other_option="missing='keep'", expected=expected)
    given = {"history_columns": history_columns, "history_except": history_except}
    tracked = {option: _parse_tracked(option, fields) for option, fields in given.items() if fields is not None}
    if len(tracked) > 1:
        expected = "Name the fields whose changes open a version, or those whose changes do not."
        raise OptionConflict(option="history_columns", other_option="history_except", expected=expected)
    for option, fields in tracked.items():
        if not history:
            raise OptionMissing(option="history", expected=f"{option} applies to a table with history: add --history.")
        of_rows = set(map(fold_path, (*paths, *sequence)))
        wrong = next((path for path in fields if fold_path(path) in of_rows), None)
        if wrong is not None and option == "history_columns":
            expected = "Must not name the key or the sequence, which always is another one."
            raise InvalidOption(option=option, value=format_path(wrong), expected=expected)
    columns, others = (tracked.get(option, ()) for option in given)
    rules = KeyRules(paths, sequence, delete_when, missing == "keep", bool(history))
    return replace(rules, history_columns=columns, history_except=others)


def _parse_tracked(option: str, fields: Any) -> tuple[Path, ...]:
    if isinstance(fields, str) or not isinstance(fields, Iterable):
        raise InvalidOption(option=option, value=fields, expected="Must be a list of fields.")
    paths = tuple(dict.fromkeys(parse_source(option, each) for each in fields))
    if not paths:
        raise InvalidOption(option=option, value=[], expected="Must name at least one field.")
    return paths


def _parse_sequence(given: str | Sequence[str] | None, key: Sequence[Path]) -> tuple[Path, ...]:
    names: Sequence[str] = () if given is None else [given] if isinstance(given, str) else given
    paths = tuple(parse_source("sequence_by", each) for each in names)
    folded = list(map(fold_path, paths))
    if given is not None and not paths:
        raise InvalidOption(option="sequence_by", value=given, expected="Must name at least one field.")
    if {*paths} & {*key}:
        raise InvalidOption(option="sequence_by", value=given, expected="Must not be one of the keys.")
    if any(one == other[: len(one)] for one, other in permutations(folded, 2)):
        expected = "Must name each field once, and no field inside of another one."
        raise InvalidOption(option="sequence_by", value=given, expected=expected)
    return paths


def match_recorded_keys(
    rules: KeyRules | None, recorded: KeyRules | None, schema: StructType | None, *, in_any_case: bool = False
) -> KeyRules | None:
    """Return the rules of an ingestion with the spelling of its table; see `KeyRules.spelled_as`.

    Raises:
        OptionMissing: the ingestion has no keys, but the table records some.
        InvalidOption: it has other keys, or another order.
    """
    rules = None if rules is None else rules.spelled_as(schema)
    if recorded is None:
        return rules
    recorded = recorded.spelled_as(schema)
    rules = rules.spelled_like(recorded) if rules is not None and in_any_case else rules
    if rules is None:
        expected = f"The table has {recorded}: name its keys, or unset the property {PROPERTY} to only add rows."
        raise OptionMissing(option="key", expected=expected)
    if not rules.is_same_key(recorded):
        expected = f"The table has {recorded}. Unset the property {PROPERTY} first, if its rows fit other keys."
        raise InvalidOption(option="key", value=str(rules), expected=expected)
    if not rules.is_same_history(recorded):
        shown = rules if rules.is_tracking else recorded
        option = "history_columns" if shown.history_columns else "history_except"
        expected = (
            f"The table has {recorded}. Its versions were made so: repeat the option, or load all records into a new "
            "table."
        )
        raise InvalidOption(option=option, value=rules.tracked_text, expected=expected)
    return replace(rules, has_unchanged=rules.has_unchanged or recorded.has_unchanged)


def unchanged_column(schema: StructType, rules: KeyRules) -> Field | None:
    """Return the column with the names of the fields that keep their values; None without such a column."""
    if not rules.has_unchanged:
        return None
    wanted = ArrayType(STRING)
    found = (each for each in schema if source_key(each) == UNCHANGED and str(each.type) == str(wanted))
    return next(found, None)


def policy_of_keys(policy: Policy, rules: KeyRules | None) -> Policy:
    """Return the policy of an ingestion by key: with history, a row has when it was valid.

    Texts that are not records have no key, so they go to the quarantine.
    """
    if rules is None:
        return policy
    condition = rules.delete_when or "" if rules.excluded else ""
    policy = replace(policy, keeps_corrupt=False, deletes_by=rules.excluded, delete_when=condition)
    if rules.keeps_missing:
        # A row keeps its values where a partial record has none, and only a new row takes defaults.
        fixed = {path: replace(each, is_filled=False) for path, each in policy.fixed_columns.items()}
        policy = replace(policy, fixed_columns=fixed)
    return with_history(policy, rules.sequence_by) if rules.history else policy


@dataclass(frozen=True, slots=True)
class KeyCounts:
    """What the records of a batch did to the rows of their keys. The sum is the number of records.

    Args:
        inserted: Rows of keys that the table did not have.
        deleted: Rows that were deleted.
        unknown_deletes: Deletions of keys that the table does not have.
        late: Records that change nothing: the batch or the table has a newer one of their key, or the same one.
        merged: Partial records that are part of a row with a newer one of the same batch.
    """

    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    unknown_deletes: int = 0
    late: int = 0
    merged: int = 0

    def __str__(self) -> str:
        noun = "deletion of an unknown key" if self.unknown_deletes == 1 else "deletions of unknown keys"
        unknown = f", {self.unknown_deletes} {noun}" if self.unknown_deletes else ""
        merged = f", {self.merged} merged" if self.merged else ""
        changed = f"{self.inserted} inserted, {self.updated} updated, {self.deleted} deleted"
        return f"{changed}, {self.late} late{merged}{unknown}"

    def to_value(self) -> dict[str, int]:
        """Return the counts as a JSON object."""
        return {
            "inserted": self.inserted,
            "updated": self.updated,
            "deleted": self.deleted,
            "unknownDeletes": self.unknown_deletes,
            "late": self.late,
            **({"merged": self.merged} if self.merged else {}),
        }


def find_places(schema: StructType, path: Path) -> list[tuple[DataType, Path]]:
    """Return the types and places of the columns that hold values of a field, the first one first."""
    return list(_find(schema, path, ()))


def _find(schema: StructType, path: Path, place: Path) -> Iterator[tuple[DataType, Path]]:
    for field in _named(schema, path[0]):
        if len(path) == 1:
            yield field.type, (*place, field.name)
        elif isinstance(field.type, StructType):
            yield from _find(field.type, path[1:], (*place, field.name))


def _named(schema: StructType, key: str) -> list[Field]:
    """Return the columns of a field; another name or another case counts only where no field has this one."""
    exact = [field for field in schema if source_key(field) == key]
    exact = exact or [field for field in schema if key in source_keys(field)]
    return exact or [field for field in schema if any(is_same_name(name, key) for name in source_keys(field))]


def _spell(schema: StructType, path: Path) -> Path:
    """Return a path with the names of the fields that the columns hold; names without a column stay."""
    found = _named(schema, path[0])
    inner = next((field.type for field in found if isinstance(field.type, StructType)), StructType())
    return (source_key(found[0]), *(path[1:] and _spell(inner, path[1:]))) if found else path


INTEGERS = frozenset({BYTE, SHORT, INTEGER, LONG})


_KEY_TYPES = INTEGERS | {FLOAT, DOUBLE, STRING, BOOLEAN, BINARY, DATE, TIMESTAMP_NTZ, TIMESTAMP}


def is_key_type(data_type: DataType) -> bool:
    """Return whether values of a type can be keys; see `widen.changes.key_columns`."""
    return data_type in _KEY_TYPES or isinstance(data_type, DecimalType)


def find_order(schema: StructType, path: Path) -> tuple[str | None, list[tuple[DataType, Path]]]:
    """Return whether a field is ordered as numbers, times or texts, and the types and places of its columns.

    The first column decides. If that has lists or objects, which are only in a first batch with records that go to the
    quarantine, the others decide as they will without those.
    """
    places = find_places(schema, path)
    families = [order_family(data_type) for data_type, _ in places]
    widest = (families[:1], ["text"], ["number"], ["time"])
    return next((family for each in widest for family in each if family in families and family), None), places


def beside_texts(places: Iterable[tuple[DataType, Path]]) -> list[Path]:
    """Return the paths of the columns of scalars other than texts.

    A column of texts also has the text of their values, which have no place in its order.
    """
    nested = (ArrayType, MapType, StructType)
    return [place for each, place in places if order_family(each) != "text" and not isinstance(each, nested)]


def order_family(data_type: DataType) -> str | None:
    """Return whether values of a type are ordered as numbers, times or texts; None for other types."""
    if data_type in INTEGERS or data_type in (FLOAT, DOUBLE) or isinstance(data_type, DecimalType):
        return "number"
    if data_type in (DATE, TIMESTAMP, TIMESTAMP_NTZ):
        return "time"
    return "text" if data_type == STRING else None


def format_paths(paths: Iterable[Path]) -> str:
    """Return fields as a list for people."""
    return ", ".join(map(format_path, paths))


def explain_no_key(key: Iterable[Path]) -> str:
    """Return why a record without a key is refused."""
    return f"the key {format_paths(key)} is missing, null or not a scalar"


def explain_no_order(paths: Sequence[Path]) -> str:
    """Return why a record without an order is refused."""
    if tuple(paths) == ((POSITION,),):
        return f"the event has no position: the fields of its source that order it are missing or null. {_NAME_ORDER}"
    return f"{' or '.join(map(format_path, paths))} has no value that tells which record is newer"


def explain_no_position(schema: StructType) -> str:
    """Return why no event of a batch has a position, from the columns that it leads to."""
    types = [data_type for data_type, _ in find_places(schema, (PREFIX + "source",))]
    for name, wanted in _POSITIONS_OF_STREAMS.items():
        if find_places(schema, (name,)):
            return f"No event has {wanted}, which says where in its log a change is."
    if not types:
        return "The events have no field source, which says where in its log a change is, and no ts_ms."
    fields = next((each for each in types if isinstance(each, StructType)), None)
    if fields is None:
        return f"The field source of the events must be an object, but it is {types[0].sql}."
    known = {name for each in (*POSITIONS.values(), OTHER_POSITION) for part in each.parts for name in part}
    found = [f"{field.name} {field.type.sql}" for field in fields if source_key(field) in {*known, "connector"}]
    has = f"has only {', '.join(found)}" if found else "has no such field"
    wanted = ", ".join(f"{each.parts[0][-1]} of {name}" for name, each in POSITIONS.items())
    return f"No event has the field of source that orders it ({wanted}, ts_ms of others): source {has}."


_POSITIONS_OF_STREAMS = {
    "_operationType": "a clusterTime",
    "__$operation": "an __$start_lsn in hexadecimal digits or base64",
    "_mod_type": "a commit_timestamp",
}
"""What orders the events of each change stream, by the field with their operation."""

_NAME_ORDER = (
    "Name a field of the records that says which one is newer, such as the time of the event: sequence_by='_ts_ms' "
    "(--sequence-by _ts_ms)."
)


def ensure_rules_apply(schema: StructType, rules: KeyRules) -> None:
    """Check that the rows have the fields of the rules.

    Raises:
        InvalidOption: neither the table nor the batch has a key or the sequence with scalar values.
        OptionMissing: no event of an envelope has a position.
    """
    expected = "Neither the table nor the batch has scalar values in this field."
    if all(role_of(field) is not None for field in schema):
        expected = "No text of the batch is a record. Check its format, and the fields of its envelope if it has one."
    for path in rules.key:
        if not any(is_key_type(data_type) for data_type, _ in find_places(schema, path)):
            if "," in path[0]:
                each = [name.strip() for name in path[0].split(",")]
                expected += (
                    f" Name each field of a key on its own: {' '.join(f'--key {name}' for name in each)}, key={each}."
                )
            raise InvalidOption(option="key", value=format_path(path), expected=expected)
    for path in rules.sequence_by:
        family, places = find_order(schema, path)
        if family is not None:
            continue
        if rules.sequence_by == ((POSITION,),):
            raise OptionMissing(option="sequence_by", expected=f"{explain_no_position(schema)} {_NAME_ORDER}")
        if places:
            expected = f"Must be a number, a time or a string; the first column of the field is {places[0][0].sql}."
        elif "," in path[0]:
            each = [name.strip() for name in path[0].split(",")]
            flags = " ".join(f"--sequence-by {name}" for name in each)
            expected += f" Name each field of a sequence on its own: {flags}, sequence_by={each}."
        raise InvalidOption(option="sequence_by", value=format_path(path), expected=expected)


def ensure_condition_applies(rules: KeyRules, schema: StructType, observed: Observation) -> None:
    """Check that columns hold the fields of the condition of deletions, where records have them.

    Raises:
        InvalidCondition: records have a field with values that no column holds.
    """
    excluded = {fold_path(tuple(path)) for path in observed.excluded_seen}
    for path in rules.missing_fields(schema):
        folded = fold_path(path)
        is_excluded = any(folded[:length] in excluded for length in range(1, len(path) + 1))
        if is_excluded or _has_values(observed.root, folded):
            why = "the load excludes it" if is_excluded else "no column holds its values"
            reason = f"records have the field {format_path(path)}, but {why}"
            raise InvalidCondition(condition=rules.delete_when or "", reason=reason)


def _has_values(records: RecordObservation, folded: Path) -> bool:
    """Return whether records have a value in a field, given its folded name."""
    seen = [each for name, each in records.items() if fold_path((name,)) == folded[:1]]
    if len(folded) == 1:
        return any(each.kinds or each.maps for each in seen)
    return any(_has_values(inner, folded[1:]) for each in seen for inner in each.records.values())


def content_fields(schema: StructType, rules: KeyRules) -> tuple[Field, ...]:
    """Return the columns that are not about where and when a row was loaded, and when it was valid.

    A field of the source that has such a name is content.
    """
    others = {*(VERSION_FIELDS if rules.history else ()), SOURCE_FILE + SIGN, LOADED_AT + SIGN}
    return tuple(field for field in schema if _origin_key(field) not in others)


def _origin_key(field: Field) -> str:
    key = source_key(field)
    return key.rstrip(SIGN) + SIGN if key.endswith(SIGN) else key
