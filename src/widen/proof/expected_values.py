"""The values that the columns of a table must hold for a source record: the exact path, value by value.

Source: docs/evolution-rules.md#u1, #u2, #d1 to #d5, #d18 to #d20
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from enum import Enum, auto
from struct import pack, unpack
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from msgspec.msgpack import Ext

from widen.evolution.policy import Policy
from widen.model.types import DecimalType, StructType
from widen.model.value_classes import dataclass
from widen.proof.canonical import (
    MAX_DIGITS,
    NON_FINITE,
    SPELLING,
    Form,
    canonical_double,
    canonical_instant,
    canonical_number,
    canonical_spelling,
    canonical_time,
    count_values,
    encode_form,
    exact_double,
    has_canonical_spelling,
    number_kind_of,
    to_decimal,
    unmarked,
)
from widen.proof.json_reader import DeepJson, Json, NumberToken, read_json
from widen.proof.known_names import learn_names
from widen.proof.rules import (
    MAP,
    RECORD,
    ColumnsByKey,
    DateString,
    FieldColumns,
    LocalTimeString,
    MapObject,
    ProofRule,
    ReplacedText,
    SourceColumn,
    TimestampString,
    build_proof_rules,
    merge_record_fields,
    read_defaults,
    source_columns_by_key,
    widest_record_column,
)
from widen.schema.source_metadata import RESCUED, role_field

NOT_STORED: Final = object()
"""No column can hold the value, so the rescue column must have it."""

BITS: Mapping[str, int] = MappingProxyType({"byte": 7, "short": 15, "integer": 31, "long": 63})

ColumnDepths: TypeAlias = Sequence[tuple[SourceColumn, int]]
"""Columns, each with the number of its arrays that are not entered yet."""


@dataclass(slots=True)
class ValueCounts:
    """The number of values in a record, and how many of them the table has in another form."""

    values: int = 0
    converted: int = 0

    def add(self, *, is_exact: bool) -> None:
        self.values += 1
        self.converted += not is_exact

    def merge(self, other: ValueCounts) -> None:
        self.values += other.values
        self.converted += other.converted


class _Part(Enum):
    """What a value is a part of, which decides what happens to one that no column can hold."""

    FIELD = auto()
    """A field of a table without a rescue column: what is empty may become null."""
    RESCUED_FIELD = auto()
    """A field of a table with a rescue column, which has what no column can hold, also what is empty."""
    ELEMENT = auto()
    """An element of an array or a map, which is stored in full or rescued with all of it."""


class ExpectedRecord:
    """Computes what the columns of a table must hold for records."""

    def __init__(self, schema: StructType, policy: Policy) -> None:
        self.fields: ColumnsByKey = source_columns_by_key(schema, policy)
        self.rules: ProofRule = build_proof_rules(schema, policy)
        self.is_rescuing = role_field(schema, RESCUED) is not None
        self._names = learn_names(schema, policy)
        self._part = _Part.RESCUED_FIELD if self.is_rescuing else _Part.FIELD
        defaults = read_defaults(schema)
        self.defaults = {
            key: unmarked(_expected_field(self.fields.get(key, ()), value, ValueCounts(), self._part))
            for key, value in defaults.items()
        }

    def expect(self, record: Mapping[str, Json]) -> tuple[Form, ValueCounts]:
        """Return the form that the row of a record must have, and the counts of its values."""
        counts = ValueCounts()
        ruled = self.apply_rules(record)
        form = _expected_record(self.fields, ruled, counts, self._part)
        # A default fills one column of its field, so the proof does not ask which columns have its value.
        form |= {key: unmarked(form[key]) for key in self.defaults if key in form}
        missing = {key: value for key, value in self.defaults.items() if key not in ruled}
        return {**form, **missing}, counts

    def apply_rules(self, record: Mapping[str, Json]) -> dict[str, Json]:
        """Return a record with the names of the fields of the table, after the rules of the policy."""
        return self.rules.apply_to_record(self.rename(record))

    def rename(self, record: Mapping[str, Json]) -> Mapping[str, Json]:
        """Return a record with the names of the fields of the table, also of those that the table computes."""
        return self._names.rename(record)


def _expected_record(fields: ColumnsByKey, record: Mapping[str, Json], counts: ValueCounts, part: _Part) -> Any:
    forms: dict[str, Any] = {}
    for key, value in record.items():
        if value is None:
            # No column shows a null, so nothing is expected of it; the text of a rescued record spells it out.
            if part is _Part.RESCUED_FIELD and not fields.get(key):
                forms[key] = None
            continue
        value_counts = ValueCounts()
        form = _expected_field(fields.get(key, ()), value, value_counts, part)
        # Only in an element of an array: there, one value without a place sends the whole record elsewhere.
        if form is NOT_STORED:
            return NOT_STORED
        counts.merge(value_counts)
        if form is not None:
            forms[key] = form
    return forms


def _expected_field(columns: FieldColumns, value: Json, counts: ValueCounts, part: _Part) -> Any:
    places = [(column, column.dim) for column in columns]
    has_place = part is not _Part.RESCUED_FIELD or _is_record(columns, value) or _has_place(places, value)
    form = _expected_form(places, value, counts, part) if has_place else NOT_STORED
    if form is not NOT_STORED or part is _Part.ELEMENT:
        return form
    rescued = to_rescued_form(value)
    # The rescue column keeps a value with its spelling, so that nothing in it is converted.
    counts.values, counts.converted = count_values(rescued), 0
    return rescued


def _is_record(columns: FieldColumns, value: Json) -> bool:
    """Return whether a value is a record of a field with columns of records, so that each of its fields is a part."""
    is_object = isinstance(value, dict) and not isinstance(value, MapObject)
    return is_object and any(column.type_name == RECORD for column in columns)


def _has_place(columns: ColumnDepths, value: Json) -> bool:
    """Return whether columns have a place for each null, ``[]`` and ``{}`` in a value.

    Source: docs/evolution-rules.md#d10
    """
    if value is None:
        return bool(columns)
    if isinstance(value, list):
        # Each level of a list uses up one array of the columns.
        inner = [(column, dim - 1) for column, dim in columns if dim]
        return bool(inner) and all(_has_place(inner, item) for item in value)
    if isinstance(value, MapObject):
        entries = [(column.value, column.value.dim) for column, _ in columns if column.value is not None]
        return bool(entries) and all(_has_place(entries, item) for item in value.values())
    if isinstance(value, dict):
        record = widest_record_column(tuple(column for column, _ in columns if column.type_name == RECORD))
        if record is None:
            return False
        fields = record.fields or {}
        return all(
            _has_place([(column, column.dim) for column in fields.get(key, ())], item) for key, item in value.items()
        )
    return True


def _expected_form(columns: ColumnDepths, value: Json, counts: ValueCounts, part: _Part) -> Any:
    """Return the form of a value in columns; an array element goes to them in full or not at all."""
    if value is None:
        return None
    if isinstance(value, list):
        return _expected_array([(column, dim - 1) for column, dim in columns if dim], value, counts)
    if isinstance(value, MapObject):
        map_columns = [column.value for column, dim in columns if not dim and column.value is not None]
        if map_columns:
            map_counts = ValueCounts()
            form = _expected_map([(column, column.dim) for column in map_columns], value, map_counts)
            if form is not NOT_STORED:
                counts.merge(map_counts)
                return form
    # A record may lie in several columns, which differ in their arrays; a field is expected where the widest has it.
    elif isinstance(value, dict):
        record_columns = tuple(column for column, dim in columns if column.type_name == RECORD)
        if any(column.type_name == RECORD and not dim for column, dim in columns):
            form = _expected_record(_fields_for(record_columns, value), value, counts, part)
            # An empty object is also a value.
            counts.values += not form and all(item is None for item in value.values())
            return form
    elif (form := expected_scalar([column for column, dim in columns if not dim], value, counts)) is not NOT_STORED:
        return mark_spelling([column for column, _ in columns], form, value)
    # No column of the kind itself: an array of it takes the value as its only item (U14).
    deeper = [(column, dim - 1) for column, dim in columns if dim]
    if deeper:
        form = _expected_in_array(deeper, value, counts, part)
        timestamp = _ambiguous_timestamp(columns, value) if isinstance(form, list) else None
        if timestamp is None:
            return form
        # The digits in an array of strings are not a date.
        texts = [(column, dim) for column, dim in deeper if column.type_name == "string"]
        if texts:
            return _expected_in_array(texts, value, ValueCounts(), part)
        return mark_spelling([column for column, _ in columns], timestamp, value)
    return _null_if_empty(value, counts)


def _ambiguous_timestamp(columns: ColumnDepths, value: Json) -> Any:
    """Return the timestamp of an integer that may be in an array: a date would be in the same two columns."""
    if not isinstance(value, NumberToken):
        return None
    timestamps = (column for column, dim in columns if not dim and column.type_name == "timestamp" and column.has_dates)
    forms = (expected_value(column, value) for column in timestamps)
    return next((form for form in forms if form is not NOT_STORED), None)


def _fields_for(columns: FieldColumns, record: Mapping[str, Json]) -> ColumnsByKey:
    """Return the columns of each key of a record: the widest record column's, or all columns for an empty value."""
    widest = widest_record_column(columns)
    assert widest is not None
    assert widest.fields is not None
    empty = {key for key, value in record.items() if value is not None and not _has_scalar(value)}
    if len(columns) == 1 or not empty:
        return widest.fields
    fields = merge_record_fields(columns)
    return {key: (fields if key in empty else widest.fields).get(key, ()) for key in record}


def _expected_in_array(columns: ColumnDepths, value: Json, counts: ValueCounts, part: _Part) -> Any:
    """Return the array of one item that an array column holds for a value; the value counts as converted (U14)."""
    form = _expected_form(columns, value, counts, part)
    if form is None or form is NOT_STORED:
        return form
    counts.converted = counts.values
    return [form]


def _null_if_empty(value: Json, counts: ValueCounts) -> Any:
    """Return null for a value without scalars: no column shows that it was empty. Other values are not stored."""
    if _has_scalar(value):
        return NOT_STORED
    for _ in range(_count_empties(value)):
        counts.add(is_exact=False)
    return None


def _expected_array(columns: ColumnDepths, items: list[Json], counts: ValueCounts) -> Any:
    if not columns:
        return _null_if_empty(items, counts)
    if not items:
        counts.add(is_exact=True)
        return []
    forms = [_expected_form(columns, item, counts, _Part.ELEMENT) for item in items]
    if any(form is NOT_STORED for form in forms):
        return NOT_STORED
    # Objects are not stored in columns of scalars, and an array of nothing else is not stored either (D19).
    is_null = all(form is None for form in forms) and any(isinstance(item, dict) for item in items)
    return None if is_null else forms


def _expected_map(columns: ColumnDepths, entries: MapObject, counts: ValueCounts) -> Any:
    if not entries:
        counts.add(is_exact=True)
    forms = {key: _expected_form(columns, item, counts, _Part.ELEMENT) for key, item in entries.items()}
    return NOT_STORED if any(form is NOT_STORED for form in forms.values()) else forms


def _has_scalar(value: Json) -> bool:
    if isinstance(value, dict):
        return any(map(_has_scalar, value.values()))
    return any(map(_has_scalar, value)) if isinstance(value, list) else value is not None


def _count_empties(value: Json) -> int:
    if isinstance(value, dict):
        return sum(map(_count_empties, value.values())) if any(item is not None for item in value.values()) else 1
    if isinstance(value, list):
        return sum(map(_count_empties, value)) if value else 1
    return 0


def to_rescued_form(value: Json) -> Form:
    """Return the form of a value in the rescue column, where it is JSON and keeps every null."""
    if isinstance(value, dict):
        return {key: to_rescued_form(item) for key, item in value.items()}
    if isinstance(value, list):
        return [to_rescued_form(item) for item in value]
    if isinstance(value, NumberToken):
        return canonical_spelling(value)
    if isinstance(value, DeepJson):
        # JSON in JSON is not a text: the rescue column holds it with all its levels.
        return to_rescued_form(read_json(value))
    return str(value) if isinstance(value, str) else value


# ---- scalars ---------------------------------------------------------------------------------------


def expected_scalar(columns: Sequence[SourceColumn], value: Json, counts: ValueCounts) -> Any:
    """Return what the first column without arrays that can hold a scalar must hold, and count it, or `NOT_STORED`."""
    for column in columns:
        is_epoch = isinstance(value, NumberToken) and column.type_name == "timestamp"
        if column.type_name in (RECORD, MAP) or (is_epoch and not column.has_epochs):
            continue
        form = expected_value(column, value)
        if form is not NOT_STORED:
            counts.add(is_exact=_is_exact(columns, column, form, value))
            return form
    return NOT_STORED


def has_marks(columns: Sequence[SourceColumn]) -> bool:
    """Return whether the columns of a field may hold different things for two spellings of one number."""
    kinds = {each.type_name for each in columns}
    takes_whole = "timestamp" in kinds or (kinds & BITS.keys() and not any(each.takes_integral for each in columns))
    return len(columns) > 1 and bool(takes_whole or "string" in kinds)


def mark_spelling(columns: Sequence[SourceColumn], form: Form, value: Json) -> Form:
    """Return the form of a number or boolean, with a mark if columns hold something else for its plain spelling.

    Args:
        form: The form without a mark; an array of texts has the spelling itself.
    """
    if len(columns) < 2 or not isinstance(value, (bool, NumberToken)) or isinstance(form, (bool, list)):
        return form
    number = bytes(form.data).decode() if isinstance(form, Ext) else encode_form(form).decode()
    plain = form if isinstance(form, str) else NumberToken(number)
    if plain == value and type(plain) is type(value):
        return form
    inner = [each for each in columns if each.type_name not in (RECORD, MAP)]
    held, usual = ([encode_form(_or_none(expected_value(each, one))) for each in inner] for one in (value, plain))
    if held == usual:
        return form
    is_spelled = any(each.type_name == "string" for each in inner)
    if isinstance(value, bool) and not is_spelled:
        # The row of 1.0 may be the same, and then does not say which of the two it was.
        pointed = NumberToken(f"{number}.0")
        if held == [encode_form(_or_none(expected_value(each, pointed))) for each in inner]:
            return mark_spelling(columns, form, pointed)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    # A double that rounds an integer does not say which one it was.
    is_text = is_spelled or isinstance(value, bool) or _is_whole(value, plain)
    return Ext(SPELLING, (text if is_text else f"{number}.").encode())


def _is_whole(token: NumberToken, plain: Json) -> bool:
    """Return whether a number is an integer, and its plain form, if that is a number, does not round it."""
    is_rounded = isinstance(plain, NumberToken) and Decimal(token) != Decimal(plain)
    return token.lstrip("-").isdecimal() and not is_rounded


def unmark_fields(form: Form, fields: ColumnsByKey) -> Form:
    """Return the form of a record without marks: each number as the first column that takes it holds it."""
    if not isinstance(form, dict):
        return unmarked(form)
    return {key: _unmark([(each, each.dim) for each in fields.get(key, ())], item) for key, item in form.items()}


def _unmark(columns: ColumnDepths, form: Form) -> Form:
    if isinstance(form, list):
        inner = [(column, dim - 1) for column, dim in columns if dim]
        return [_unmark(inner, item) for item in form]
    if isinstance(form, dict):
        entries = [(column.value, column.value.dim) for column, _ in columns if column.value is not None]
        fields = merge_record_fields(tuple(column for column, _ in columns if column.type_name == RECORD))
        depths = {key: [(each, each.dim) for each in found] for key, found in fields.items()}
        return {key: _unmark(depths.get(key, entries), item) for key, item in form.items()}
    if not isinstance(form, Ext) or form.code != SPELLING:
        return form
    text = bytes(form.data).decode()
    value = text == "true" if text in ("true", "false") else NumberToken(text)
    if text.endswith("."):  # the form has its digits
        return unmarked(form)
    found = expected_scalar([column for column, dim in columns if not dim], value, ValueCounts())
    return unmarked(form) if found is NOT_STORED else found


def _or_none(form: Any) -> Form:
    return None if form is NOT_STORED else form


def _is_exact(columns: Sequence[SourceColumn], column: SourceColumn, form: Form, value: Json) -> bool:
    """Return whether a table gives back a value as it was; a timestamp that is also a count has its own column."""
    if isinstance(value, (ReplacedText, DeepJson)):
        return False
    if isinstance(value, TimestampString):
        own_columns = (column for column in columns if column.type_name in ("string", "timestamp"))
        return any(expected_value(column, value) == value for column in own_columns)
    if isinstance(value, NumberToken):
        return column.type_name != "string" and column.type_name != "timestamp" and _keeps_spelling(column, value)
    return type(form) is bool if isinstance(value, bool) else form == value


def _keeps_spelling(column: SourceColumn, token: str) -> bool:
    if column.rounds and token not in NON_FINITE and exact_double(Decimal(token)) is None:
        return False
    if isinstance(column.type, DecimalType) and token.partition(".")[2].isdecimal():
        return has_canonical_spelling(token) or len(token.partition(".")[2]) == column.type.scale
    return has_canonical_spelling(token)


def expected_value(column: SourceColumn, value: Json) -> Any:
    """Return what a column without arrays must hold for a scalar, or `NOT_STORED` if it cannot hold it exactly."""
    if column.type_name == "string":
        return ("true" if value else "false") if isinstance(value, bool) else str(value)
    if isinstance(value, LocalTimeString):
        is_stored = column.type_name == "timestamp_ntz"
        return getattr(value, "form", None) or canonical_time(value) if is_stored else NOT_STORED
    if isinstance(value, (DateString, TimestampString)):
        return _FROM_TEMPORAL.get(column.type_name, _not_stored)(column, value)
    if isinstance(value, bool):
        return value if column.type_name == "boolean" else _from_boolean(column, value)
    return _from_number(column, value) if isinstance(value, NumberToken) else NOT_STORED


def _from_boolean(column: SourceColumn, value: bool) -> Any:
    if column.type_name == "timestamp" or not column.has_booleans_as_numbers:
        return NOT_STORED  # a timestamp holds integers (U16), but not the booleans that count as 0 and 1
    return _from_number(column, NumberToken(int(value)))


def _from_number(column: SourceColumn, token: NumberToken) -> Any:
    is_whole = token.lstrip("-").isdecimal()
    # No column holds as many digits, and Python refuses to parse some thousands of them.
    if is_whole and len(token.lstrip("-")) > MAX_DIGITS:
        return NOT_STORED
    if is_whole and column.type_name == "timestamp":
        return _from_epoch(column, int(token))
    number = to_decimal(token)
    if column.type_name == "timestamp":
        if number is None or not column.takes_integral or not _is_integral(number, 63):
            return NOT_STORED
        return _from_epoch(column, int(number))
    if number is not None and not number.is_finite():
        # Only floating-point columns have such values; every other column would have to change them.
        return canonical_number(number) if column.type_name in ("double", "float") else NOT_STORED
    convert = _FROM_NUMBER.get(column.type_name)
    return NOT_STORED if number is None or convert is None else convert(column, token, number)


def _to_integer(column: SourceColumn, token: str, number: Decimal) -> Any:
    bits = BITS[column.type_name]
    if token.lstrip("-").isdecimal():
        return int(token) if -(2**bits) <= number < 2**bits else NOT_STORED
    return int(number) if column.takes_integral and _is_integral(number, bits) else NOT_STORED


def _is_integral(number: Decimal, bits: int) -> bool:
    """Return whether a number is an integer of some bits and a sign. Negative zero is not: a double keeps its sign."""
    if not number.is_finite() or not -(2**bits) <= number < 2**bits:
        return False
    return number == int(number) and not (number.is_zero() and number.is_signed())


def _to_decimal_number(column: SourceColumn, token: str, number: Decimal) -> Any:
    assert isinstance(column.type, DecimalType)
    if number.is_zero():
        return NOT_STORED if number.is_signed() and not token.lstrip("-").isdecimal() else 0
    digits = "".join(map(str, number.as_tuple().digits))
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    scale = -exponent - (len(digits) - len(digits.rstrip("0")))
    fits = number.adjusted() < column.type.precision - column.type.scale and scale <= column.type.scale
    return canonical_number(number) if fits else NOT_STORED


def _to_double(column: SourceColumn, token: str, number: Decimal) -> Any:
    if exact_double(number) is None:
        is_long = column.takes_integral and _is_integral(number, 63)
        kind = "long" if is_long else number_kind_of(token, number) if column.rounds else ""
        if kind not in column.rounds:
            return NOT_STORED
    return canonical_double(float(number))


def _to_float(column: SourceColumn, token: str, number: Decimal) -> Any:
    try:
        (nearest,) = unpack("f", pack("f", float(number)))
    except OverflowError:
        return NOT_STORED
    is_known = len(number.as_tuple().digits) <= MAX_DIGITS or Decimal(repr(float(number))) == number
    return canonical_number(number) if is_known and Decimal(nearest) == number else NOT_STORED


_FROM_NUMBER: Mapping[str, Callable[[SourceColumn, str, Decimal], Any]] = MappingProxyType(
    {"decimal": _to_decimal_number, "double": _to_double, "float": _to_float} | dict.fromkeys(BITS, _to_integer)
)

_UNIT_ZEROS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def _from_epoch(column: SourceColumn, number: int) -> Any:
    """Return the timestamp of an integer, in the unit of the policy or the unit that its size implies (D5)."""
    # Seconds reach the year 5138 with 11 digits; each further three digits are the next smaller unit.
    size = sum(abs(number) >= limit for limit in (10**11, 10**14, 10**17))
    zeros = _UNIT_ZEROS[column.epoch_unit.value] if column.epoch_unit else 3 * size
    seconds, rescued = divmod(number, 10**zeros)
    days, second = divmod(seconds, 86_400)
    ordinal = date(1970, 1, 1).toordinal() + days
    # A column of microseconds would lose single nanoseconds.
    if (zeros == 9 and rescued % 1000) or not -(2**63) <= number < 2**63 or not 1 <= ordinal <= date.max.toordinal():
        return NOT_STORED
    clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    return canonical_instant(f"{date.fromordinal(ordinal).isoformat()}T{clock}.{rescued:0{zeros or 1}}")


# ---- dates and instants ----------------------------------------------------------------------------


def _not_stored(column: SourceColumn, value: str) -> Any:
    return NOT_STORED


def _to_date(column: SourceColumn, value: str) -> Any:
    return str(value) if isinstance(value, DateString) else NOT_STORED


def _to_timestamp(column: SourceColumn, value: str) -> Any:
    return getattr(value, "form", None) or canonical_instant(
        f"{value}T00:00:00Z" if isinstance(value, DateString) else value
    )


def _to_local_timestamp(column: SourceColumn, value: str) -> Any:
    return f"{value}T00:00:00" if isinstance(value, DateString) else NOT_STORED


def _to_epoch_count(column: SourceColumn, value: str) -> Any:
    """Return the days or milliseconds since 1970; a column of 32 bits takes only days."""
    if isinstance(value, TimestampString) and column.type_name == "integer":
        return NOT_STORED
    seconds, _, fraction = _to_timestamp(column, value).removesuffix("Z").partition(".")
    passed = datetime.fromisoformat(seconds) - datetime(1970, 1, 1)
    if len(fraction) > 3:
        return NOT_STORED
    ms = (passed.days * 86_400 + passed.seconds) * 1000 + int(fraction.ljust(3, "0"))
    return _from_number(column, NumberToken(passed.days if isinstance(value, DateString) else ms))


_FROM_TEMPORAL: Mapping[str, Callable[[SourceColumn, str], Any]] = MappingProxyType(
    {"date": _to_date, "timestamp": _to_timestamp, "timestamp_ntz": _to_local_timestamp}
    | dict.fromkeys(("integer", "long", "double", "decimal"), _to_epoch_count)
)
