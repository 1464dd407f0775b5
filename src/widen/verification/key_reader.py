"""The key, the order and the content of a record or a row, as the proof of an ingestion by key reads them off its form.

Source: docs/guide/keys.md
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import partial
from typing import Any
from zlib import crc32

import msgspec

from widen.errors import InvalidCondition
from widen.evolution.key_rules import KeyRules
from widen.evolution.policy import Policy
from widen.json.envelope import UNCHANGED
from widen.json.field_rules import IS_CURRENT, VALID_FROM, VALID_TO, VERSION_FIELDS
from widen.model.column_path import Path, fold_path
from widen.model.types import (
    BINARY,
    BOOLEAN,
    DATE,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    ArrayType,
    DataType,
    MapType,
    StructType,
)
from widen.model.value_classes import dataclass
from widen.proof.canonical import (
    Form,
    canonical_instant,
    canonical_number,
    canonical_time,
    count_form,
    digest,
    encode_form,
    to_decimal,
)
from widen.proof.conditions import Condition, Undecided, UnsupportedCondition, build_condition
from widen.proof.deletion_lists import Deletion
from widen.proof.expected_values import (
    NOT_STORED,
    ExpectedRecord,
    ValueCounts,
    expected_scalar,
    expected_value,
    has_marks,
    unmark_fields,
)
from widen.proof.json_reader import Json, NumberToken
from widen.proof.quarantine_reasons import QuarantineReasons
from widen.proof.rules import (
    ColumnsByKey,
    DateString,
    SourceColumn,
    source_columns_by_key,
    to_temporal,
    without_defaults,
)
from widen.schema.source_metadata import source_key

UNDECIDED = 2
"""Only Spark can tell whether the record deletes."""

BROKEN = "broken"
"""Marks a version that is current but has an end, or is neither current nor ended."""


def build_keyed_reasons(
    rules: KeyRules, schema: StructType, policy: Policy, conditions: Sequence[str] = ()
) -> QuarantineReasons:
    """Return what judges the quarantined records of an ingestion by key."""
    reader, fields = KeyReader.of(rules, schema, policy), source_columns_by_key(schema, policy)
    columns = {path: _columns_at(fields, path) for path in (*rules.key, *rules.sequence_by)}
    has_key = partial(_has_key, reader, columns)
    return QuarantineReasons(schema_of_records(schema, rules), policy, conditions, has_key)


def _has_key(
    reader: KeyReader, columns: Mapping[Path, Sequence[SourceColumn]], record: Mapping[str, Json], form: Form
) -> bool:
    """Return whether columns hold the key of a record and, if the rules name one, its order.

    Args:
        form: The form of its row, which also has what no column holds.
    """
    paths = reader.rules.sequence_by
    has_order = bool(reader.family) and reader.sequence(form) is not None
    values = {path: _value_at(record, path) for path in columns}
    texts = (path for part, path in zip(reader.parts or (reader,), paths, strict=False) if part.family == "text")
    return (
        reader.key(form) is not None
        and (has_order or not paths)
        and all(_is_held(each, values[path]) for path, each in columns.items())
        and not any(_is_large(values[path]) for path in paths)
        # The text of a value of another kind has no place in the order of texts.
        and not any(_is_held([each for each in columns[path] if each.type != STRING], values[path]) for path in texts)
    )


def _is_large(value: Json) -> bool:
    number = to_decimal(value) if isinstance(value, NumberToken) else None
    return number is not None and abs(number) >= _MAX_DOUBLE


def _is_held(columns: Sequence[SourceColumn], value: Json) -> bool:
    return expected_scalar(columns, value, ValueCounts()) is not NOT_STORED


def _columns_at(fields: ColumnsByKey, path: Path) -> tuple[SourceColumn, ...]:
    """Return the columns of a field outside of arrays."""
    levels: list[ColumnsByKey] = [fields]
    columns: list[SourceColumn] = []
    for name in path:
        columns = [each for level in levels for key in _same_names(level, name) for each in level[key] if not each.dim]
        levels = [each.fields for each in columns if each.fields is not None]
    return tuple(columns)


def schema_of_records(schema: StructType, rules: KeyRules) -> StructType:
    """Return the schema for reading records: only new rows take defaults where partial records have no value."""
    return without_defaults(schema) if rules.keeps_missing else schema


_MAX_ORDER, _LAST_DIGIT, _DIGITS = 10**20, Decimal("1e-18"), Context(prec=60)
"""Sequences are compared as decimals of 38 digits, 18 of them after the point."""

_MAX_DOUBLE = 10**19
"""Larger doubles have no place in the order; decimals of this size have."""

_LISTED_TEXT = re.compile("(?:[^\0]|\0\1)*")
"""A text in the list of deleted keys, up to its end, where a sequence has several fields."""


@dataclass(frozen=True, slots=True)
class KeyReader:
    """Reads the key and the sequence of a form, which is a record or a row as the proof sees it.

    Args:
        family: Whether sequences are numbers, times or texts; empty without a sequence.
        columns: The columns of the sequence outside of arrays, which may hold a number as a time, and a time as one.
        parts: The readers of the fields of a sequence of several.
        defaults: What a new row has where its partial records say nothing.
        marked: The columns of all fields, if the forms of records may have marks of spellings.
    """

    rules: KeyRules
    family: str
    columns: tuple[SourceColumn, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[KeyReader, ...] = ()
    marked: ColumnsByKey = field(default_factory=dict)

    @staticmethod
    def of(rules: KeyRules, schema: StructType, policy: Policy) -> KeyReader:
        """Return the reader for a table; the first column of the sequence decides which of the three it is."""
        fields = source_columns_by_key(schema, policy)
        return replace(KeyReader._of(rules, schema, policy), marked=fields if _has_marks(fields) else {})

    @staticmethod
    def _of(rules: KeyRules, schema: StructType, policy: Policy) -> KeyReader:
        defaults = ExpectedRecord(schema, policy).defaults if rules.keeps_missing else {}
        if len(rules.sequence_by) > 1:
            single = (replace(rules, sequence_by=(path,)) for path in rules.sequence_by)
            return KeyReader(
                rules, "several", (), defaults, tuple(KeyReader._of(each, schema, policy) for each in single)
            )
        (path,) = rules.sequence_by or [()]
        places = find_field_columns(schema, path) if path else []
        if not places:
            return KeyReader(rules, "", (), defaults)
        kinds = [_order_kind(data_type) for data_type, _ in places]
        family = kinds[0] or next((kind for kind in ("text", "number", "time") if kind in kinds), "")
        return KeyReader(rules, family, _columns_at(source_columns_by_key(schema, policy), path), defaults)

    def form_of(self, record: Form) -> Form:
        """Return the form of a record as keys are compared: a number is the same however it is spelled."""
        return unmark_fields(record, self.marked) if self.marked else record

    def key(self, form: Form) -> bytes | None:
        """Return the key, None if a field of it is missing, null or not a scalar."""
        values = [_value_at(form, path) for path in self.rules.key]
        is_key = all(value is not None and not isinstance(value, (dict, list)) for value in values)
        # As keys, both zeros are one.
        return encode_form([0 if type(each) is float and each == 0 else each for each in values]) if is_key else None

    def sequence(self, form: Form) -> str | None:
        """Return the sequence as a text of `order`, None without a sequence."""
        return self._sequence_at(form, self.rules.sequence_by)

    def _sequence_at(self, form: Form, paths: Sequence[Path]) -> str | None:
        """Return a sequence of the fields at some paths."""
        if len(paths) < 2:
            return self._order_text(form, paths[0]) if paths else None
        texts = [part._order_text(form, path) for part, path in zip(self.parts, paths, strict=True)]
        return None if None in texts else msgspec.json.encode(texts).decode()

    def listed_sequence(self, deletion: Deletion) -> str | None:
        """Return the sequence of a deletion in the list of a table, as a text of `order`."""
        if not self.parts or deletion.text is None:
            return deletion.order
        rest, texts = deletion.text, []
        for part in self.parts:
            if part.family == "text":
                size = len(_LISTED_TEXT.match(rest)[0])  # type: ignore[index]
                texts.append(rest[:size].replace("\0\1", "\0"))
                rest = rest[size + 2 :]
                continue
            # A negative number is what is missing to the largest one of 38 digits.
            number = int(rest[1:39]) - (rest[0] == "0") * (10**38 - 1)
            texts.append(f"{number}e-18")
            rest = rest[39:]
        return msgspec.json.encode(texts).decode()

    def without_times(self, form: Form) -> tuple[Form, str | None, str | None]:
        """Return a row of a table with history without the fields of its version, its `UNTIL` and its `SINCE`."""
        if not self.rules.history or not isinstance(form, dict):
            return form, None, None
        start, until = (self._sequence_at(form, self.rules.times(name)) for name in (VALID_FROM, VALID_TO))
        is_open = form.get(VALID_TO) is None if self.parts else until is None
        is_own = self.order(start) == self.order(self.sequence(form))
        starts_itself = is_own or (self.rules.is_tracking and start is not None)
        is_sound = form.get(IS_CURRENT) is is_open and is_open is (until is None) and starts_itself
        rest = {name: value for name, value in form.items() if name not in VERSION_FIELDS}
        return rest, (until or "") if is_sound else BROKEN, start

    def tracked(self, form: Form) -> bytes | None:
        """Return the values of the tracked fields of a record or a row; None if every record is a version."""
        rules = self.rules
        if not rules.is_tracking:
            return None
        if rules.history_columns:
            return digest([_value_at(form, path) for path in rules.history_columns])
        return digest(_without(without_origin(form), [fold_path(path) for path in (*rules.untracked, (UNCHANGED,))]))

    def kept_form(self, form: Form) -> bytes | None:
        """Return a form as bytes if the row of its key is made from several forms."""
        is_needed = self.rules.keeps_missing or self.rules.has_unchanged
        return msgspec.msgpack.encode(form) if is_needed else None

    def content(self, form: Form, whole: bytes) -> tuple[bytes | None, int]:
        """Return `CONTENT` and `ORIGINS` of a form; nothing with a sequence, which alone says what is newer."""
        rest = form if self.family else without_origin(form)
        if rest is form:
            return None if self.family else whole, 0
        return digest(rest), count_form(form) - count_form(rest)

    def put_on(self, old: Form, new: Form) -> Form:
        """Return the row that a record makes of the row before it; None means no row."""
        if self.rules.keeps_missing:
            if old is None and isinstance(new, dict):  # a null says nothing there, and stays where there is no default
                return {**new, **{name: value for name, value in self.defaults.items() if new.get(name) is None}}
            return _merge_forms(old, new)
        if not isinstance(old, dict) or not isinstance(new, dict):
            return new
        return {**new, **{name: old[name] for name in new.get(UNCHANGED) or () if name in old}}

    def depends_on_rows(self, form: Form) -> bool:
        """Return whether the row of a record depends on the row before it."""
        return self.rules.has_unchanged and isinstance(form, dict) and bool(form.get(UNCHANGED))

    def _order_text(self, form: Form, path: Path) -> str | None:
        value = _value_at(form, path)
        if value is None or isinstance(value, (bool, dict, list)):
            return None
        if self.family == "text":
            return value if isinstance(value, str) else None
        if (self.family == "time") != isinstance(value, str):
            value = self._as_other_kind(value)
        if value is None:
            return None
        if self.family == "time":
            micros = read_micros(value)
            return None if micros is None else str(micros)
        return repr(value) if type(value) is int else _rounded_order(value)

    def _as_other_kind(self, value: Any) -> Any:
        """Return a number as the time that a column stores for it, or a time as the number; None without such a column.

        Source: docs/evolution-rules.md#d5, #u16
        """
        reads_dates = any(each.has_dates for each in self.columns)
        has_dates = any(each.type == DATE for each in self.columns)
        if isinstance(value, str):
            given = to_temporal(value) if reads_dates or any(_is_time(each.type) for each in self.columns) else value
        elif type(value) is not int:
            return None
        elif reads_dates and not has_dates and 0 <= value <= _LAST_DAY:
            # If numbers and times have columns, and dates do not, the form of a date is the number of its day.
            given = DateString(date.fromordinal(_EPOCH + value))
        else:
            given = NumberToken(value)
        if type(given) is str:
            return None
        found = (expected_value(each, given) for each in self.columns if _is_time(each.type) is (self.family == "time"))
        return next((each for each in found if each is not NOT_STORED), None)

    def order(self, sequence: str | None) -> Any:
        """Return a sort key for the text of a sequence; None is older than everything."""
        if sequence is None:
            return (0,)
        if self.parts:
            texts = msgspec.json.decode(sequence)
            return (1, *(part.order(text) for part, text in zip(self.parts, texts, strict=True)))
        return (1, sequence.encode() if self.family == "text" else Decimal(sequence))


def _rounded_order(value: Any) -> str | None:
    """Return a number as the order of sequences has it, with 18 digits after the point; None if it has no place there.

    NaN and an infinity say nothing about which record is newer, and the order has no longer numbers.
    """
    text = bytes(value.data).decode() if isinstance(value, msgspec.msgpack.Ext) else repr(value)
    number = Decimal(text)
    if not number.is_finite() or abs(number) >= _MAX_ORDER:
        return None
    rounded = number.quantize(_LAST_DIGIT, ROUND_HALF_UP, _DIGITS)
    return text if rounded == number else str(rounded)


def _has_marks(fields: ColumnsByKey) -> bool:
    # A rounded number has the mark of a fraction beside integers.
    inner = (each for columns in fields.values() for each in columns)
    return any(map(has_marks, fields.values())) or any(
        bool(each.rounds)
        or _has_marks(each.fields or {})
        or (each.value is not None and _has_marks({"": (each.value,)}))
        for each in inner
    )


def find_field_columns(schema: StructType, path: Path) -> list[tuple[DataType, Path]]:
    """Return the types and the places of the columns that hold values of a field, the first one first."""
    names = _same_names(map(source_key, schema), path[0])
    found = [column for column in schema if source_key(column) in names]
    if len(path) == 1:
        return [(column.type, (column.name,)) for column in found]
    records = [(column.name, column.type) for column in found if isinstance(column.type, StructType)]
    inner = ((name, each) for name, record in records for each in find_field_columns(record, path[1:]))
    return [(data_type, (name, *place)) for name, (data_type, place) in inner]


def _same_names(names: Iterable[str], name: str) -> list[str]:
    """Return the names that mean a field: its own, or those that differ from it in their case only."""
    known, folded = list(names), fold_path((name,))
    return [name] if name in known else [each for each in known if fold_path((each,)) == folded]


_ORIGIN = re.compile("_(?:source_file|loaded_at)=+")


def without_origin(form: Form) -> Form:
    """Return a record or a row without the fields that a load adds: the file and the time.

    Source: docs/guide/keys.md; docs/evolution-rules.md#d21
    """
    if not isinstance(form, dict) or not any(map(_ORIGIN.fullmatch, form)):
        return form
    return {name: value for name, value in form.items() if not _ORIGIN.fullmatch(name)}


_EPOCH = date(1970, 1, 1).toordinal()
_LAST_DAY = date.max.toordinal() - _EPOCH


def _order_kind(data_type: DataType) -> str:
    """Return the kind of order of a type's values; empty for lists, objects and other unordered values."""
    if data_type == STRING or _is_time(data_type):
        return "text" if data_type == STRING else "time"
    return "" if isinstance(data_type, (ArrayType, MapType, StructType)) or data_type in (BINARY, BOOLEAN) else "number"


def _is_time(data_type: DataType) -> bool:
    return data_type in (DATE, TIMESTAMP, TIMESTAMP_NTZ)


def _without(form: Form, paths: Sequence[Path]) -> Form:
    """Return a record without the values at some paths, which are folded, and without objects that had only those."""
    if not isinstance(form, dict):
        return form
    rest: dict[str, Any] = {}
    for name, value in form.items():
        inner = [path[1:] for path in paths if path[:1] == fold_path((name,))]
        if () not in inner:
            kept = _without(value, inner) if inner else value
            rest |= {} if inner and kept in (None, {}) else {name: kept}
    return rest


def _value_at(form: Form, path: Path) -> Any:
    for name in path:
        if not isinstance(form, dict):
            return None
        value = form.get(name)
        if value is None and name not in VERSION_FIELDS:
            wanted = fold_path((name,))
            value = next((each for key, each in form.items() if fold_path((key,)) == wanted), None)
        form = value
    return form


_TIME = re.compile(r"(\d{4,6})-(\d\d)-(\d\d)(?:[T ](\d\d):(\d\d):(\d\d)(?:\.(\d{1,6})\d*)?)?(?:Z|\+00:00)?$")


def read_micros(text: str) -> int | None:
    """Return a date or a time in the form of the proof as microseconds from 1970; None if a text is neither."""
    match = _TIME.match(text)
    if match is None or int(match[1]) > 9999:
        return None
    year, month, day, hour, minute, second = (int(each or 0) for each in match.groups()[:6])
    days = date(year, month, day).toordinal() - date(1970, 1, 1).toordinal()
    micros = int((match[7] or "").ljust(6, "0"))
    return (((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000_000 + micros


def listed_key(text: str, keys: int) -> bytes | None:
    """Return the key that a text in the list of deleted keys stands for, in the form of the proof."""
    texts = [text] if keys == 1 else msgspec.json.decode(text)
    values: list[Any] = []
    for each in texts:
        kind, _, value = each.partition(":")
        match kind:
            case "n":
                values.append(canonical_number(Decimal(value)))
            case "b":
                values.append(value == "true")
            case "t":
                seconds, micros = divmod(int(value), 1_000_000)
                moment = datetime(1970, 1, 1) + timedelta(seconds=seconds, microseconds=micros)
                values.append(canonical_instant(moment.isoformat()))
            case "d":
                values.append(canonical_time(value.replace(" ", "T")))
            case _:
                values.append(value)
    return encode_form(values)


def is_chosen(key: bytes | None, limit: int) -> bool:
    """Return whether a key is in the sample that a limit of checksums gives."""
    return limit >= 2**32 or crc32(key or b"") < limit


def delete_flags(rules: KeyRules, schema: StructType) -> Callable[[Form, bool | None], int]:
    """Return a function that tells whether the form of a record deletes: 0 or 1, or `UNDECIDED`.

    If fields of the condition are excluded, the reader of the source has evaluated it before it left them out.
    """
    if rules.delete_when is None:
        return _never
    if rules.excluded:
        return _known_flag
    try:
        is_delete = build_condition(rules.delete_when, schema)
    except UnsupportedCondition:
        return _undecided
    return partial(_delete_flag, is_delete)


def _never(_: Form, __: bool | None) -> int:
    return 0


def _known_flag(form: Form, deletes: bool | None) -> int:
    if deletes is None:
        return UNDECIDED if isinstance(form, dict) else 0
    return int(deletes)


def ensure_decided(rules: KeyRules) -> None:
    """Check, where the proof cannot tell of a record whether it deletes, that Spark can.

    Raises:
        InvalidCondition: fields of the condition are excluded.
    """
    if rules.excluded:
        raise InvalidCondition(condition=rules.delete_when or "", reason=_NOT_PROVED)


_NOT_PROVED = (
    "the load excludes fields of it, and verify compares them only with constants: leave verify out, or load the fields"
)


def _undecided(form: Form, _: bool | None) -> int:
    # A text that is not a record has a row without values.
    return UNDECIDED if isinstance(form, dict) else 0


def _delete_flag(is_delete: Condition, form: Form, _: bool | None) -> int:
    try:
        return int(bool(is_delete(form))) if isinstance(form, dict) else 0
    except Undecided:
        return UNDECIDED


def _merge_forms(old: Form, new: Form) -> Form:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {**old, **{name: _merge_forms(old.get(name), value) for name, value in new.items() if value is not None}}
