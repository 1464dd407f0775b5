"""What the columns of a table must say of a record of the source: the exact way, value by value.

Source: docs/evolution-rules.md#u1, #u2, #d1 to #d5, #d18 to #d20
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from struct import pack, unpack
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from widen.model.types import DecimalType, StructType
from widen.planning.evolution.policy import Policy
from widen.proof.canonical_number import canonical_double, canonical_number, is_shortest, spelled, to_decimal
from widen.proof.json_reader import DeepJson, Json, Token, read_json
from widen.proof.proof_rules import Day, Instant, Keyed, ProofRule, Respelled, rules_of
from widen.proof.record_digest import Form, count_values
from widen.proof.source_columns import MAP, RECORD, Cells, Fields, SourceColumn, fields_of, widest_record

NOT_HELD: Final = object()
"""No column holds the value; it must be in the rescue column."""

MAX_DIGITS = 38

BITS: Mapping[str, int] = MappingProxyType({"byte": 7, "short": 15, "integer": 31, "long": 63})

Places: TypeAlias = Sequence[tuple[SourceColumn, int]]
"""Columns, each with the arrays that are left to go into."""


@dataclass(slots=True)
class Counts:
    """How many values a record has, and how many of them the table has in another form."""

    values: int = 0
    converted: int = 0

    def see(self, *, is_exact: bool) -> None:
        """Count a value."""
        self.values += 1
        self.converted += not is_exact


class ExpectedRecord:
    """Says what the columns of one table must say of records.

    Args:
        schema: Of the table.
        policy: What was said about single fields.
    """

    def __init__(self, schema: StructType, policy: Policy) -> None:
        self.fields: Fields = fields_of(schema, policy)
        self.rules: ProofRule = rules_of(schema, policy)

    def of(self, record: Mapping[str, Json]) -> tuple[Form, Counts]:
        """Return the form that the row of a record must have, and what was counted.

        Args:
            record: As `widen.proof.json_reader.read_records` gives it.
        """
        counts = Counts()
        return _record(self.fields, self.rules.record(record), counts, whole=False), counts


def _record(fields: Fields, record: Mapping[str, Json], counts: Counts, *, whole: bool) -> Any:
    found = {}
    for key, value in record.items():
        if value is None:
            continue
        own = Counts()
        form = _field(fields.get(key, ()), value, own, whole=whole)
        if form is NOT_HELD:
            return NOT_HELD
        counts.values += own.values
        counts.converted += own.converted
        if form is not None:
            found[key] = form
    return found


def _field(cells: Cells, value: Json, counts: Counts, *, whole: bool) -> Any:
    form = _value([(cell, cell.dim) for cell in cells], value, counts, whole=whole)
    if form is not NOT_HELD or whole:
        return form
    rest = plain(value)
    counts.values, counts.converted = count_values(rest), 0
    return rest


def _value(places: Places, value: Json, counts: Counts, *, whole: bool) -> Any:
    """Return what columns say of a value; what stands in an array is held as a ``whole`` or not at all."""
    if value is None:
        return None
    if isinstance(value, list):
        return _array([(cell, dim - 1) for cell, dim in places if dim], value, counts)
    if isinstance(value, Keyed):
        maps = [cell.value for cell, dim in places if not dim and cell.value is not None]
        if maps:
            return _keyed([(cell, cell.dim) for cell in maps], value, counts)
    elif isinstance(value, dict):
        records = tuple(cell for cell, dim in places if cell.kind == RECORD)
        if any(cell.kind == RECORD and not dim for cell, dim in places):
            widest = widest_record(records)
            assert widest is not None
            assert widest.fields is not None
            counts.values += not value
            return _record(widest.fields, value, counts, whole=whole)
    elif (form := scalar([cell for cell, dim in places if not dim], value, counts)) is not NOT_HELD:
        return form
    deeper = [(cell, dim - 1) for cell, dim in places if dim]
    if deeper:
        return _wrapped(deeper, value, counts, whole=whole)
    return _nothing(value, counts)


def _wrapped(places: Places, value: Json, counts: Counts, *, whole: bool) -> Any:
    """Return the array of one item that a column of arrays holds for a value; that is another kind (U14)."""
    form = _value(places, value, counts, whole=whole)
    if form is None or form is NOT_HELD:
        return form
    counts.converted = counts.values
    return [form]


def _nothing(value: Json, counts: Counts) -> Any:
    """Return null for what has no value in it and no column; every other value is not held."""
    if _has_scalar(value):
        return NOT_HELD
    for _ in range(_count_empties(value)):
        counts.see(is_exact=False)
    return None


def _array(places: Places, items: list[Json], counts: Counts) -> Any:
    if not places:
        return _nothing(items, counts)
    if not items:
        counts.see(is_exact=True)
        return []
    forms = [_value(places, item, counts, whole=True) for item in items]
    return NOT_HELD if any(form is NOT_HELD for form in forms) else forms


def _keyed(places: Places, entries: Keyed, counts: Counts) -> Any:
    if not entries:
        counts.see(is_exact=True)
    forms = {key: _value(places, item, counts, whole=True) for key, item in entries.items()}
    return NOT_HELD if any(form is NOT_HELD for form in forms.values()) else forms


def _has_scalar(value: Json) -> bool:
    if isinstance(value, dict):
        return any(map(_has_scalar, value.values()))
    return any(map(_has_scalar, value)) if isinstance(value, list) else value is not None


def _count_empties(value: Json) -> int:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    if inner is None:
        return 0
    return sum(map(_count_empties, inner)) if inner else 1


def plain(value: Json) -> Form:
    """Return the form of a value that stands in the rescue column, as JSON; nulls of records are left out."""
    if isinstance(value, Keyed):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, Token):
        return spelled(value)
    if isinstance(value, DeepJson):
        # JSON in JSON is not a text: the rescue column holds it with all its levels.
        return plain(read_json(value))
    return str(value) if isinstance(value, str) else value


# ---- scalars ---------------------------------------------------------------------------------------


def scalar(cells: Sequence[SourceColumn], value: Json, counts: Counts) -> Any:
    """Return what the first column without arrays that holds a scalar must say, and count it; else `NOT_HELD`."""
    for cell in cells:
        if cell.kind in (RECORD, MAP):
            continue
        form = said(cell, value)
        if form is not NOT_HELD:
            counts.see(is_exact=_is_exact(cells, cell, form, value))
            return form
    return NOT_HELD


def _is_exact(cells: Sequence[SourceColumn], cell: SourceColumn, form: Form, value: Json) -> bool:
    """Tell whether a value comes back as it was; an instant that is a number, too, comes back from its own column."""
    if isinstance(value, (Respelled, DeepJson)):
        return False
    if isinstance(value, Instant):
        own = (said(cell, value) for cell in cells if cell.kind in ("string", "timestamp"))
        return any(said_text == value for said_text in own)
    if isinstance(value, Token):
        return cell.kind != "string" and cell.kind != "timestamp" and _is_spelled(cell, value)
    return type(form) is bool if isinstance(value, bool) else form == value


def _is_spelled(cell: SourceColumn, token: str) -> bool:
    if isinstance(cell.type, DecimalType) and token.partition(".")[2].isdecimal():
        return is_shortest(token) or len(token.partition(".")[2]) == cell.type.scale
    return is_shortest(token)


def said(cell: SourceColumn, value: Json) -> Any:
    """Return what a column without arrays must say of a scalar; `NOT_HELD` if it cannot hold it exactly."""
    if cell.kind == "string":
        return ("true" if value else "false") if isinstance(value, bool) else str(value)
    if isinstance(value, (Day, Instant)):
        return _SAID_OF_TIME.get(cell.kind, _said_of_nothing)(cell, value)
    if isinstance(value, bool):
        return value if cell.kind == "boolean" else _said_of_boolean(cell, value)
    return _said_of_number(cell, value) if isinstance(value, Token) else NOT_HELD


def _said_of_boolean(cell: SourceColumn, value: bool) -> Any:
    return _said_of_number(cell, Token(int(value))) if cell.has_booleans_as_numbers else NOT_HELD


def _said_of_number(cell: SourceColumn, token: Token) -> Any:
    is_whole = token.lstrip("-").isdecimal()
    if is_whole and len(token.lstrip("-")) > MAX_DIGITS:
        return NOT_HELD
    if cell.kind == "timestamp":
        return _said_of_epoch(cell, int(token)) if is_whole else NOT_HELD
    number = to_decimal(token)
    said_of = _SAID_OF_NUMBER.get(cell.kind)
    return NOT_HELD if number is None or said_of is None else said_of(cell, token, number)


def _said_by_whole(cell: SourceColumn, token: str, number: Decimal) -> Any:
    half = 2 ** BITS[cell.kind]
    return int(token) if token.lstrip("-").isdecimal() and -half <= number < half else NOT_HELD


def _said_by_decimal(cell: SourceColumn, token: str, number: Decimal) -> Any:
    assert isinstance(cell.type, DecimalType)
    if number.is_zero():
        return NOT_HELD if number.is_signed() and not token.lstrip("-").isdecimal() else 0
    digits = "".join(map(str, number.as_tuple().digits))
    exponent = number.as_tuple().exponent
    assert isinstance(exponent, int)
    scale = -exponent - (len(digits) - len(digits.rstrip("0")))
    fits = number.adjusted() < cell.type.precision - cell.type.scale and scale <= cell.type.scale
    return canonical_number(number) if fits else NOT_HELD


def _said_by_double(cell: SourceColumn, token: str, number: Decimal) -> Any:
    try:
        nearest = float(number)
    except OverflowError:
        return NOT_HELD
    return canonical_double(nearest) if Decimal(repr(nearest)) == number else NOT_HELD


def _said_by_float(cell: SourceColumn, token: str, number: Decimal) -> Any:
    try:
        (nearest,) = unpack("f", pack("f", float(number)))
    except OverflowError:
        return NOT_HELD
    is_known = len(number.as_tuple().digits) <= MAX_DIGITS or Decimal(repr(float(number))) == number
    return canonical_double(nearest) if is_known and Decimal(nearest) == number else NOT_HELD


_SAID_OF_NUMBER: Mapping[str, Callable[[SourceColumn, str, Decimal], Any]] = MappingProxyType(
    {"decimal": _said_by_decimal, "double": _said_by_double, "float": _said_by_float}
    | dict.fromkeys(BITS, _said_by_whole)
)

_UNIT_ZEROS = {"s": 0, "ms": 3, "us": 6, "ns": 9}


def _said_of_epoch(cell: SourceColumn, number: int) -> Any:
    """Return the instant that a whole number is, in the unit that was said or that its size tells (D5)."""
    size = sum(abs(number) >= limit for limit in (10**11, 10**14, 10**17))
    zeros = _UNIT_ZEROS[cell.unit.value] if cell.unit else 3 * size
    seconds, rest = divmod(number, 10**zeros)
    days, second = divmod(seconds, 86_400)
    ordinal = date(1970, 1, 1).toordinal() + days
    if (zeros == 9 and rest % 1000) or not -(2**63) <= number < 2**63 or not 1 <= ordinal <= date.max.toordinal():
        return NOT_HELD
    clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    return utc(f"{date.fromordinal(ordinal).isoformat()}T{clock}.{rest:0{zeros or 1}}")


def utc(text: str) -> str:
    """Return the text of an instant as every text of the same one is: with a Z, and without zeros at the end."""
    seconds, _, fraction = text.removesuffix("Z").removesuffix("+00:00").partition(".")
    return f"{seconds}.{fraction.rstrip('0')}".rstrip(".") + "Z"


# ---- dates and instants ----------------------------------------------------------------------------


def _said_of_nothing(cell: SourceColumn, value: str) -> Any:
    return NOT_HELD


def _said_by_date(cell: SourceColumn, value: str) -> Any:
    return str(value) if isinstance(value, Day) else NOT_HELD


def _said_by_timestamp(cell: SourceColumn, value: str) -> Any:
    return utc(f"{value}T00:00:00Z" if isinstance(value, Day) else value)


def _said_by_local(cell: SourceColumn, value: str) -> Any:
    return utc(f"{value}T00:00:00Z") if isinstance(value, Day) else NOT_HELD


def _days_or_ms(cell: SourceColumn, value: str) -> Any:
    """Return the days or the milliseconds since 1970; a column of 32 bits takes days alone."""
    if isinstance(value, Instant) and cell.kind == "integer":
        return NOT_HELD
    seconds, _, fraction = _said_by_timestamp(cell, value).removesuffix("Z").partition(".")
    passed = datetime.fromisoformat(seconds) - datetime(1970, 1, 1)
    if len(fraction) > 3:
        return NOT_HELD
    ms = (passed.days * 86_400 + passed.seconds) * 1000 + int(fraction.ljust(3, "0"))
    return _said_of_number(cell, Token(passed.days if isinstance(value, Day) else ms))


_SAID_OF_TIME: Mapping[str, Callable[[SourceColumn, str], Any]] = MappingProxyType(
    {"date": _said_by_date, "timestamp": _said_by_timestamp, "timestamp_ntz": _said_by_local}
    | dict.fromkeys(("integer", "long", "double", "decimal"), _days_or_ms)
)
