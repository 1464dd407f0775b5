"""The proof that nothing was lost: records and rows, each brought to one form in which they must be equal.

Nothing here shares code with what made the rows. A record is told from the source text with decimal arithmetic; a row
is told from its columns alone. The form says for every leaf which column holds it, and the value that stands there, so
two forms are equal only if every leaf of the record is in the row and comes back exactly.

Source: spec of evolution, section 3, "conservation proof"; U1, U2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from hashlib import blake2b
from struct import pack, unpack
from typing import Any, Final, TypeAlias

import msgspec

from widen.model.type import DecimalType, StructType
from widen.observe.document import Day, Document, Entries, Instant, NotJson, Number, parse
from widen.observe.kind import DATE_WORD, DECIMAL_WORD, DOUBLE_WORD, LONG_WORD, STRING_WORD, TIMESTAMP_WORD
from widen.planning.name import CORRUPT, RESCUED, role_field
from widen.planning.policy import Policy
from widen.planning.treatment import reading_of
from widen.routing.fit import guarded, misfits
from widen.routing.hide import Hider
from widen.routing.route import RecordRoute, Slot, routes

Form: TypeAlias = Any
"""Dicts, lists that begin with ``"[]"``, lists of ``"{}"`` and a dict for maps, and ``[column, text]`` pairs, the
column None for what is rescued; None for what is not there."""

KEPT_OUT = "kept out"
"""Begins the form of what does not fit a column that cannot yield."""

_LOST: Final = object()
_WHOLE: Mapping[str, int] = {"byte": 7, "short": 15, "integer": 31, "long": 63}


class Proof:
    """Brings the records and the rows of one table to the same form.

    Args:
        schema: Of the table, with the metadata that says which source field each column holds.
        policy: How values were taken, and which columns cannot yield.
    """

    def __init__(self, schema: StructType, policy: Policy | None = None) -> None:
        policy = policy or Policy()
        route = routes(schema, policy)
        self._route, self._guarded, self._reading = _telling(route), guarded(route), reading_of(schema, policy)
        self._corrupt, self._rescued = (role_field(schema, role) for role in (CORRUPT, RESCUED))
        self._hider, self._refuses_nulls = Hider(policy), policy.refuses_nulls

    def of_record(self, record: dict[str, Document]) -> Form:
        """Return the form of a record, of the source or in the quarantine."""
        taken = self._reading.record(record)
        if any(True for _ in misfits(self._guarded, taken)):
            return [KEPT_OUT, _text(parse(self._hider.record(record, None).encode()))]
        return _of_record(self._route, taken)

    def of_corrupt(self, text: bytes) -> Form:
        """Return the form of a text that is no record."""
        return [KEPT_OUT if self._refuses_nulls else CORRUPT, self._hider.corrupt(text)]

    def of_kept_out(self, text: str) -> Form:
        """Return the form of what the quarantine holds, from its text."""
        document = parse(text.encode())
        return self.of_record(document) if isinstance(document, dict) else [KEPT_OUT, text]

    def count_leaves(self, record: dict[str, Document]) -> int:
        """Return how many values of a record are to be found again."""
        return count_leaves(self._reading.record(record))

    def of_row(self, row: Mapping[str, Any]) -> Form:
        """Return the form of a row of the table, from its columns alone."""
        if self._corrupt and row.get(self._corrupt.name) is not None:
            return [CORRUPT, row[self._corrupt.name]]
        form = _of_row(self._route, row)
        rest = row.get(self._rescued.name) if self._rescued else None
        return form if rest is None else _merged(form, _rescued_form(parse(rest.encode())))


def digest(form: Form) -> bytes:
    """Return a short text that only equal forms share."""
    return blake2b(msgspec.json.encode(form, order="sorted"), digest_size=16).digest()


def count_leaves(document: Document) -> int:
    """Return how many values a document has that are no container and not null."""
    if isinstance(document, dict):
        return sum(map(count_leaves, document.values()))
    if isinstance(document, list):
        return sum(map(count_leaves, document))
    return int(document is not None)


def _telling(route: RecordRoute) -> RecordRoute:
    """Return the routes with one column for the records of each field: the one with the most arrays.

    Source: spec of evolution, U17: it has all sub-fields.
    """
    return {key: tuple(_telling_slots(slots)) for key, slots in route.items()}


_TURN: Mapping[str, int] = {DATE_WORD: 0, TIMESTAMP_WORD: 2}


def _telling_slots(slots: Sequence[Slot]) -> Iterator[Slot]:
    """Yield the columns of a field that say its values.

    Dates come before the numbers that they are as well, and instants last, for numbers may be put there, too (U16).
    """
    largest = max((slot.dim for slot in slots if slot.record is not None), default=0)
    for slot in sorted(slots, key=lambda slot: (slot.record is None, slot.dim, _TURN.get(slot.word, 1))):
        if slot.record is None:
            yield slot if slot.entries is None else replace(slot, entries=next(_telling_slots([slot.entries]), None))
        elif slot.dim == largest:
            yield replace(slot, record=_telling(slot.record))


# ---- from the source -------------------------------------------------------------------------------


def _of_record(route: RecordRoute, record: dict[str, Document]) -> Form:
    return {key: form for key, value in record.items() if (form := _of_field(route.get(key, ()), value)) is not None}


def _of_field(slots: Sequence[Slot], value: Document) -> Form:
    is_record = isinstance(value, dict) and not isinstance(value, Entries)
    if is_record and not any(slot.record is not None for slot in slots):
        return _rescued_form(value) if count_leaves(value) else None
    form = _of_value([(slot, slot.dim) for slot in slots], value, whole=False)
    if form is not _LOST:
        return form
    return _rescued_form(value) if isinstance(value, Entries) else _rescued_text(value)


def _of_value(slots: Sequence[tuple[Slot, int]], value: Document, *, whole: bool) -> Form:
    """Return the form of a value for the columns it may stand in, each with the arrays that are left to go into.

    What stands in an array is held as a ``whole`` or lost; of another record a part may be rescued.
    """
    if value is None:
        return None
    if isinstance(value, list):
        return _of_array([(slot, dim - 1) for slot, dim in slots if dim], value)
    maps = [slot.entries for slot, dim in slots if dim == 0 and slot.entries is not None]
    if isinstance(value, Entries) and maps:
        return _of_entries([(slot, slot.dim) for slot in maps], value)
    for slot, dim in slots:
        if dim == 0 and slot.record is not None and isinstance(value, dict) and not isinstance(value, Entries):
            form = _of_record(slot.record, value)
            return _LOST if whole and _is_rescued(form) else form
        if dim == 0 and (form := _of_scalar(slot, value)) is not _LOST:
            return form
    deeper = [(slot, dim - 1) for slot, dim in slots if dim]
    if not deeper:
        return _LOST if count_leaves(value) else None
    wrapped = _of_value(deeper, value, whole=whole)
    return wrapped if wrapped is None or wrapped is _LOST else ["[]", wrapped]


def _of_array(slots: Sequence[tuple[Slot, int]], items: list[Document]) -> Form:
    if not slots:
        return _LOST if count_leaves(items) else None
    forms = [_of_value(slots, item, whole=True) for item in items]
    return _LOST if any(form is _LOST for form in forms) else ["[]", *forms]


def _of_entries(slots: Sequence[tuple[Slot, int]], entries: Entries) -> Form:
    forms = {key: _of_value(slots, item, whole=True) for key, item in entries.items()}
    return _LOST if any(form is _LOST for form in forms.values()) else ["{}", forms]


def _of_scalar(slot: Slot, value: Document) -> Form:
    text = _LOST if slot.record is not None or isinstance(value, dict) else _expected(slot, value)
    return text if text is _LOST else [slot.name, text]


def _expected(slot: Slot, value: Document) -> Any:
    """Return the text of what a column must hold for a scalar, or `_LOST` if it cannot hold it exactly."""
    if slot.word == STRING_WORD:
        return ("true" if value else "false") if isinstance(value, bool) else str(value)
    if isinstance(value, (Day, Instant)):
        return _expected_time(slot, value)
    if isinstance(value, str) and not isinstance(value, Number):
        return _LOST
    if str(slot.type) == "boolean":
        return str(value) if isinstance(value, bool) else _LOST
    if slot.word == TIMESTAMP_WORD and isinstance(value, Number) and value.lstrip("-").isdigit():
        return _expected_epoch(slot, int(value))
    if slot.word == TIMESTAMP_WORD or str(slot.type) in ("date", "timestamp_ntz"):
        return _LOST
    if isinstance(value, bool):
        return _LOST if slot.keeps_booleans else _expected_number(slot, Number(int(value)))
    return _expected_number(slot, value)


def _expected_time(slot: Slot, value: Day | Instant) -> Any:
    """Return what a column holds for a date or an instant: as numbers, the days or milliseconds since 1970."""
    text = str(value) if isinstance(value, Instant) else f"{value}T00:00:00Z"
    if slot.word == TIMESTAMP_WORD or (str(slot.type) == "timestamp_ntz" and isinstance(value, Day)):
        return _utc(text)
    if str(slot.type) == "date":
        return str(value) if isinstance(value, Day) else _LOST
    has_room = slot.word in (LONG_WORD, DECIMAL_WORD) or str(slot.type) == "double"
    if not has_room and not (isinstance(value, Day) and str(slot.type) == "integer"):
        return _LOST
    seconds, _, fraction = _utc(text).removesuffix("Z").partition(".")
    passed = datetime.fromisoformat(seconds) - datetime(1970, 1, 1)
    days, ms = passed.days, (passed.days * 86_400 + passed.seconds) * 1000 + int(fraction.ljust(3, "0"))
    return _expected_number(slot, str(days if isinstance(value, Day) else ms)) if len(fraction) <= 3 else _LOST


def _expected_epoch(slot: Slot, number: int) -> Any:
    """Return the instant that a whole number is, in the unit that was said or that its size tells.

    Source: spec of evolution, U16, D5.
    """
    size = sum(abs(number) >= limit for limit in (10**11, 10**14, 10**17))
    zeros = {"s": 0, "ms": 3, "us": 6, "ns": 9}[slot.epoch_unit.value] if slot.epoch_unit else 3 * size
    seconds, rest = divmod(number, 10**zeros)
    days, second = divmod(seconds, 86_400)
    ordinal = date(1970, 1, 1).toordinal() + days
    if (zeros == 9 and rest % 1000) or not -(2**63) <= number < 2**63 or not 1 <= ordinal <= date.max.toordinal():
        return _LOST
    clock = f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    return _utc(f"{date.fromordinal(ordinal).isoformat()}T{clock}.{rest:0{zeros or 1}}")


def _utc(text: str) -> str:
    """Return the text of an instant as every text of the same one is: with a Z, and no zeros at the end."""
    seconds, _, fraction = text.removesuffix("Z").removesuffix("+00:00").partition(".")
    return f"{seconds}.{fraction.rstrip('0')}".rstrip(".") + "Z"


def _expected_number(slot: Slot, token: str) -> Any:
    try:
        number = Decimal(token)
    except InvalidOperation:
        return _LOST
    if str(slot.type) in _WHOLE:
        half = 2 ** _WHOLE[str(slot.type)]
        return str(int(token)) if token.lstrip("-").isdigit() and -half <= number < half else _LOST
    if isinstance(slot.type, DecimalType):
        return _expected_decimal(slot.type, number)
    return _expected_double(slot, number)


def _expected_decimal(data_type: DecimalType, number: Decimal) -> Any:
    if number.is_zero():
        return _LOST if number.is_signed() and number.as_tuple().exponent != 0 else "0"
    _, digits, exponent = number.normalize(_EXACT).as_tuple()
    assert isinstance(exponent, int)
    before = len(digits) + exponent
    fits = before <= data_type.precision - data_type.scale and -exponent <= data_type.scale
    return _plain(number) if fits else _LOST


def _expected_double(slot: Slot, number: Decimal) -> Any:
    try:
        nearest = float(number)
        same = Decimal(*unpack("f", pack("f", nearest))) if str(slot.type) == "float" else Decimal(repr(nearest))
    except OverflowError:
        return _LOST
    return _plain(number) if slot.word == DOUBLE_WORD and same == number else _LOST


# ---- from the table --------------------------------------------------------------------------------


def _of_row(route: RecordRoute, row: Mapping[str, Any]) -> Form:
    found = (
        (key, _of_columns([(slot, slot.dim, row.get(slot.name)) for slot in slots])) for key, slots in route.items()
    )
    return {key: form for key, form in found if form is not None}


def _of_columns(columns: Sequence[tuple[Slot, int, Any]]) -> Form:
    """Return the form of what stands in the columns of one field; the shallowest and narrowest says it."""
    there = [(slot, dim, value) for slot, dim, value in columns if value is not None]
    for slot, dim, value in there:
        if dim == 0 and slot.entries is None:
            return _of_row(slot.record, value) if slot.record is not None else [slot.name, _held(value)]
    if not there:
        return None
    maps = [(slot.entries, dict(value)) for slot, dim, value in there if dim == 0 and slot.entries is not None]
    if maps:
        keys = dict.fromkeys(key for _, entries in maps for key in entries)
        return ["{}", {key: _of_columns([(slot, slot.dim, each.get(key)) for slot, each in maps]) for key in keys}]
    length = max(len(value) for _, _, value in there)
    items = (
        _of_columns([(slot, dim - 1, value[n]) for slot, dim, value in there if n < len(value)]) for n in range(length)
    )
    return ["[]", *items]


def _held(value: Any) -> str:
    """Return the text of what a column holds, in the form in which the source's value is told."""
    if isinstance(value, (bool, str)):
        return str(value)
    if isinstance(value, float):
        return _plain(Decimal(repr(value)))
    if isinstance(value, datetime):
        at = value.replace(tzinfo=None) if value.tzinfo is None else value.astimezone(timezone.utc).replace(tzinfo=None)
        return _utc(at.isoformat() + "Z")
    if isinstance(value, date):
        return value.isoformat()
    return _plain(value) if isinstance(value, Decimal) else str(value)


def _plain(number: Decimal) -> str:
    return format(number.normalize(_EXACT), "f") if number else ("-0" if number.is_signed() else "0")


# ---- the rescue column -----------------------------------------------------------------------------


def _rescued_form(document: Document | NotJson) -> Form:
    if isinstance(document, dict):
        rest = {key: form for key, value in document.items() if (form := _rescued_form(value)) is not None}
        return rest or None
    return None if document is None else _rescued_text(document)


def _rescued_text(document: Document) -> Form:
    return [None, _text(document)]


def _is_rescued(form: Form) -> bool:
    """Tell whether any part of a form stands in the rescue column."""
    if isinstance(form, dict):
        return any(map(_is_rescued, form.values()))
    return isinstance(form, list) and (form[0] is None or any(map(_is_rescued, form[1:])))


def _merged(form: Form, rest: Form) -> Form:
    """Return what columns and rescue column say together; a record that a column of arrays wraps is rescued bare."""
    if isinstance(rest, dict) and isinstance(form, list) and len(form) == 2 and form[0] == "[]":
        return ["[]", _merged(form[1], rest)]
    if isinstance(form, dict) and isinstance(rest, dict):
        return {**form, **{key: _merged(form.get(key), value) for key, value in rest.items()}}
    return rest


def _text(document: Document) -> str:
    """Return a text that only equal documents share; a text in it is not taken for a number of the same letters."""
    if isinstance(document, dict):
        return "{" + ",".join(f"{key!r}:{_text(value)}" for key, value in sorted(document.items())) + "}"
    if isinstance(document, list):
        return "[" + ",".join(map(_text, document)) + "]"
    return str(document) if isinstance(document, Number) else repr(document)


_EXACT = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)
