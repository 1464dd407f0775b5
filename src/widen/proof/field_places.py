"""Whether the columns of a field hold a value where the rules put it, and nowhere else.

The form of a row has one value for a field, whatever columns hold it. Here each column is asked what it must hold for
that value: a column that lacks it, or has one without a reason, is a contradiction.

Source: docs/evolution-rules.md#u14, #u16, #u17, #d2, #d5, #d18
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from types import MappingProxyType
from typing import Any, TypeAlias

from msgspec.msgpack import Ext

from widen.proof.canonical import CONTRADICTION, LONG_NUMBER, MAX_DIGITS, NON_FINITE, Form, encode_form
from widen.proof.expected_values import BITS, NOT_STORED, expected_value, mark_spelling
from widen.proof.json_reader import Json, NumberToken
from widen.proof.rules import (
    MAP,
    RECORD,
    DateString,
    LocalTimeString,
    ProofRule,
    SourceColumn,
    TimestampString,
    widest_record_column,
)

# An example. A field has the columns n (bigint), n_double and n_string.
#     source   7        7.0       "7"       7.5
#     row      7        null      null      null      A bigint takes no number with a point.
#              7.0      7.0       null      7.5
#              "7"      "7.0"     "7"       "7.5"
# All other rows contradict themselves, such as (7, null, "7"). Without n_string, the rows of 7 and 7.0 have the same
# number, and only their columns differ. So the form of 7.0 has a mark in such a field.

Cell: TypeAlias = tuple[SourceColumn, int, Any]
"""A column of a field, the number of its arrays that are not entered yet, and the form of its value or None."""

_NUMBERS = frozenset({*BITS, "double", "float", "decimal"})
_COUNTS = frozenset({"integer", "long", "double", "decimal"})
"""The columns of numbers that hold dates and times as counts."""

_ALSO: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        **dict.fromkeys(_NUMBERS, _NUMBERS | {"string", "timestamp"}),
        "boolean": frozenset({"boolean", "string"}),
        "date": _COUNTS | {"date", "timestamp", "timestamp_ntz", "string"},
        "timestamp": _NUMBERS | {"date", "timestamp", "string"},
        "timestamp_ntz": frozenset({"date", "timestamp_ntz", "string"}),
        "string": frozenset({"string"}),
    }
)
"""For each type of a column the types of those that may hold the same value; by default only its own type."""

_TIMES = _COUNTS | {"date", "timestamp", "timestamp_ntz"}


def stands_alone(column: SourceColumn, dim: int, others: Sequence[tuple[SourceColumn, int]], rule: ProofRule) -> bool:
    """Return whether no other column of a field may hold a value that a column holds."""
    also = _ALSO.get(column.type_name, frozenset({column.type_name}))
    if column.type_name == "string" and rule.reads_times:
        also |= _TIMES
    if dim and any(each_dim for each, each_dim in others if each is not column):
        return False  # every column of arrays holds an empty one
    return not any(
        each is not column
        and each_dim >= dim
        and (each.type_name in also or (column.type_name == "boolean" and each.has_booleans_as_numbers))
        for each, each_dim in others
    )


def check_field_places(cells: Sequence[Cell], value: Form, rule: ProofRule) -> Form:
    """Return the value that columns of a field hold together, `CONTRADICTION` if one should hold another or nothing.

    Args:
        value: The value that those that are not null hold together.
    """
    present = [cell for cell in cells if cell[2] is not None]
    if not present or value is CONTRADICTION:
        return value
    columns = [(column, dim) for column, dim, _ in cells]
    if len(present) == 1 and stands_alone(*present[0][:2], columns, rule):
        return value
    outermost = {column.type_name for column, dim, _ in present if not dim}
    if outermost - {RECORD, MAP}:
        return _check_scalar(cells, present, value, rule)
    if RECORD in outermost:
        return value if _have_same_fields([cell for cell in cells if cell[0].type_name == RECORD]) else CONTRADICTION
    return _check_maps(cells, value, rule) if MAP in outermost else _check_lists(cells, value, rule)


# ---- scalars ---------------------------------------------------------------------------------------


def _check_scalar(cells: Sequence[Cell], present: Sequence[Cell], value: Form, rule: ProofRule) -> Form:
    for token in _tokens(present, rule):
        if all(_holds(cell, token) for cell in cells):
            return mark_spelling([column for column, _, _ in cells], value, token)
    return CONTRADICTION


def _holds(cell: Cell, value: Json) -> bool:
    """Return whether a column holds what it must hold for a scalar."""
    column, dim, found = cell
    expected = NOT_STORED if column.type_name in (RECORD, MAP) else expected_value(column, value)
    if expected is NOT_STORED or found is None:
        return expected is NOT_STORED and found is None
    return encode_form(_only_item(found, dim)) == encode_form(expected)


def _only_item(value: Form, dim: int) -> Form:
    for _ in range(dim):
        if not isinstance(value, list) or len(value) != 1:
            return CONTRADICTION
        value = value[0]
    return value


_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_MAX_WHOLE = 60


def _tokens(present: Sequence[Cell], rule: ProofRule) -> Iterator[Json]:
    """Yield the values of a source that columns may hold."""
    texts = [_only_item(found, dim) for column, dim, found in present if column.type_name == "string"]
    if texts:  # it has the spelling of the source
        yield from _tokens_of_text(texts[0], rule) if isinstance(texts[0], str) else ()
        return
    for column, dim, found in present:
        yield from _tokens_of(column, _only_item(found, dim), rule)


def _tokens_of_text(text: str, rule: ProofRule) -> Iterator[Json]:
    yield rule.to_temporal(text) if rule.reads_times else text
    if _NUMBER.fullmatch(text) or text in NON_FINITE:
        yield NumberToken(text)
    if text in ("true", "false"):
        yield text == "true"


def _tokens_of(column: SourceColumn, form: Form, rule: ProofRule) -> Iterator[Json]:
    if isinstance(form, bool):
        yield form
    elif isinstance(form, (int, float)) or (isinstance(form, Ext) and form.code == LONG_NUMBER):
        yield from map(NumberToken, _spellings(form))
        if column.rounds:
            yield from map(NumberToken, _rounded_to(form))
        if form in (0, 1):
            yield bool(form)
        if type(form) is int and rule.reads_times:
            yield from _counted(form)
    elif isinstance(form, str):
        yield from _READ_TIMES.get(column.type_name, _no_tokens)(column, form)


def _spellings(form: Form) -> Iterator[str]:
    text = bytes(form.data).decode() if isinstance(form, Ext) else repr(form)
    yield text
    number = Decimal(text)
    if number.is_finite() and number.adjusted() < _MAX_WHOLE and number == number.to_integral_value():
        yield from (f"{number:.0f}", f"{number:.1f}")
        if not number:
            yield from ("-0", "-0.0")


def _rounded_to(form: Form) -> Iterator[str]:
    """Yield numbers that are rounded to a whole double: integers whose nanoseconds no timestamp has, and one with a
    fraction; integers have no column for it.
    """
    double = float(bytes(form.data).decode() if isinstance(form, Ext) else form)
    if double and math.isfinite(double) and double.is_integer():
        yield from (str(near) for near in (int(double) + 1, int(double) - 1) if float(near) == double)
        whole = f"{Decimal(double):f}"
        zeros = MAX_DIGITS - 1 - len(whole.lstrip("-"))
        if zeros >= 0:
            yield f"{whole}.{'0' * zeros}1"


_LAST_DAY = date.max.toordinal() - date(1970, 1, 1).toordinal()
_FIRST_DAY = date.min.toordinal() - date(1970, 1, 1).toordinal()


def _counted(number: int) -> Iterator[Json]:
    """Yield the date and the time that a number counts to, in days and in milliseconds."""
    if _FIRST_DAY <= number <= _LAST_DAY:
        yield DateString((date(1970, 1, 1) + timedelta(number)).isoformat())
    if _FIRST_DAY <= number // 86_400_000 <= _LAST_DAY:
        moment = datetime(1970, 1, 1) + timedelta(milliseconds=number)
        yield TimestampString(f"{moment.isoformat()}Z")


def _no_tokens(column: SourceColumn, form: str) -> Iterator[Json]:
    return iter(())


def _date_tokens(column: SourceColumn, form: str) -> Iterator[Json]:
    yield DateString(form)


def _local_tokens(column: SourceColumn, form: str) -> Iterator[Json]:
    if form.endswith("T00:00:00"):
        yield DateString(form[:10])
    yield LocalTimeString(form)


def _instant_tokens(column: SourceColumn, form: str) -> Iterator[Json]:
    if form.endswith("T00:00:00Z"):
        yield DateString(form[:10])
    yield TimestampString(form)
    seconds, _, fraction = form.removesuffix("Z").partition(".")
    passed = datetime.fromisoformat(seconds) - datetime(1970, 1, 1)
    micros = (passed.days * 86_400 + passed.seconds) * 1_000_000 + int(fraction.ljust(6, "0"))
    yield from (NumberToken(micros * 1000), NumberToken(micros))
    yield from (NumberToken(micros // unit) for unit in (1000, 1_000_000) if not micros % unit)


_READ_TIMES: Mapping[str, Callable[[SourceColumn, str], Iterator[Json]]] = MappingProxyType(
    {"date": _date_tokens, "timestamp": _instant_tokens, "timestamp_ntz": _local_tokens}
)


# ---- records, maps and arrays ----------------------------------------------------------------------


def _have_same_fields(cells: Sequence[Cell]) -> bool:
    """Return whether all columns of records have a record, each with all of its fields that another one has."""
    records = [(column, _only_item(found, dim)) for column, dim, found in cells]
    widest = widest_record_column(tuple(column for column, _ in records))
    [wide] = [found for column, found in records if column is widest]
    return all(
        isinstance(found, dict) and isinstance(wide, dict) and _has_fields(column, found, widest, wide)
        for column, found in records
    )


def _has_fields(column: SourceColumn, found: Form, widest: SourceColumn | None, wide: Form) -> bool:
    for key in wide.keys() ^ found.keys():
        kinds = [
            {(each.type_name, each.dim) for each in (one.fields or {}).get(key, ())} for one in (column, widest) if one
        ]
        lacking, having = kinds if key in wide else kinds[::-1]
        if lacking and lacking >= having:
            return False
    return True


def _check_maps(cells: Sequence[Cell], value: Form, rule: ProofRule) -> Form:
    maps = [(column.value, found) for column, dim, found in cells if not dim and column.value is not None]
    if not isinstance(value, dict) or not _has_scalar(value):
        return value
    checked = {}
    for key, item in value.items():
        inner = [(column, column.dim, None if found is None else found.get(key)) for column, found in maps]
        checked[key] = check_field_places(inner, item, rule)
    return _whole(checked, checked.values(), [found and list(found.values()) for _, found in maps])


def _check_lists(cells: Sequence[Cell], value: Form, rule: ProofRule) -> Form:
    lists = [(column, dim - 1, found) for column, dim, found in cells if dim]
    if not isinstance(value, list) or not _has_scalar(value):
        return CONTRADICTION if _is_empty_misplaced(lists, value) else value
    checked = [
        check_field_places(
            [(column, dim, None if found is None else found[at]) for column, dim, found in lists], item, rule
        )
        for at, item in enumerate(value)
    ]
    return _whole(checked, checked, [found for _, _, found in lists])


def _is_empty_misplaced(lists: Sequence[Cell], value: Form) -> bool:
    """Return whether an array without scalars is lacking in a column, or has empty objects in one of scalars (D19)."""
    if any(isinstance(item, dict) for item in value or ()):
        return any(found is not None and column.type_name not in (RECORD, MAP) for column, _, found in lists)
    return any(found is None for _, _, found in lists) and not any(value or ())


def _whole(value: Form, items: Any, found: Sequence[list[Form] | None]) -> Form:
    """Return a value, unless one of its items is wrong, or a column has nothing but nulls for it."""
    is_wrong = any(item is CONTRADICTION for item in items)
    is_void = any(each and all(item is None for item in each) for each in found)
    return CONTRADICTION if is_wrong or is_void else value


def _has_scalar(form: Form) -> bool:
    if isinstance(form, dict):
        return any(map(_has_scalar, form.values()))
    return any(map(_has_scalar, form)) if isinstance(form, list) else form is not None
