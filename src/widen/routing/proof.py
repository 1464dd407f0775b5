"""The proof that nothing was lost: records and rows, each brought to one form in which they must be equal.

Nothing here shares code with what made the rows. A record is told from the source text with decimal arithmetic; a row
is told from its columns alone. The form says for every leaf which column holds it, and the value that stands there, so
two forms are equal only if every leaf of the record is in the row and comes back exactly.

Source: spec of evolution, section 3, "conservation proof"; U1, U2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from hashlib import blake2b
from typing import Any, Final, TypeAlias

import msgspec

from widen.model.type import DecimalType, StructType
from widen.observe.document import Document, NotJson, Number, parse
from widen.observe.kind import DOUBLE_WORD, STRING_WORD, TIMESTAMP_WORD
from widen.planning.name import CORRUPT, RESCUED, role_field
from widen.routing.route import RecordRoute, Slot, routes

Form: TypeAlias = Any
"""Dicts, lists that begin with ``"[]"``, and ``[column, text]`` pairs, the column None for what is rescued; None for
what is not there."""

_LOST: Final = object()
_WHOLE: Mapping[str, int] = {"byte": 7, "short": 15, "integer": 31, "long": 63}


class Proof:
    """Brings the records and the rows of one table to the same form.

    Args:
        schema: Of the table, with the metadata that says which source field each column holds.
    """

    def __init__(self, schema: StructType) -> None:
        self._route = _telling(routes(schema))
        self._corrupt, self._rescued = (role_field(schema, role) for role in (CORRUPT, RESCUED))

    def of_record(self, record: dict[str, Document]) -> Form:
        """Return the form of a record of the source."""
        return _of_record(self._route, record)

    def of_corrupt(self, text: bytes) -> Form:
        """Return the form of a text that is no record."""
        return [CORRUPT, text.decode(errors="backslashreplace")]

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


def _telling_slots(slots: Sequence[Slot]) -> Iterator[Slot]:
    largest = max((slot.dim for slot in slots if slot.record is not None), default=0)
    for slot in slots:
        if slot.record is None:
            yield slot
        elif slot.dim == largest:
            yield replace(slot, record=_telling(slot.record))


# ---- from the source -------------------------------------------------------------------------------


def _of_record(route: RecordRoute, record: dict[str, Document]) -> Form:
    return {key: form for key, value in record.items() if (form := _of_field(route.get(key, ()), value)) is not None}


def _of_field(slots: Sequence[Slot], value: Document) -> Form:
    if isinstance(value, dict) and not any(slot.record is not None for slot in slots):
        return _rescued_form(value) if count_leaves(value) else None
    form = _of_value([(slot, slot.dim) for slot in slots], value, whole=False)
    return _rescued_text(value) if form is _LOST else form


def _of_value(slots: Sequence[tuple[Slot, int]], value: Document, *, whole: bool) -> Form:
    """Return the form of a value for the columns it may stand in, each with the arrays that are left to go into.

    What stands in an array is held as a ``whole`` or lost; of another record a part may be rescued.
    """
    if value is None:
        return None
    if isinstance(value, list):
        return _of_array([(slot, dim - 1) for slot, dim in slots if dim], value)
    for slot, dim in slots:
        if dim == 0 and slot.record is not None and isinstance(value, dict):
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


def _of_scalar(slot: Slot, value: Document) -> Form:
    text = _LOST if slot.record is not None or isinstance(value, dict) else _expected(slot, value)
    return text if text is _LOST else [slot.name, text]


def _expected(slot: Slot, value: Document) -> Any:
    """Return the text of what a column must hold for a scalar, or `_LOST` if it cannot hold it exactly."""
    if slot.word == STRING_WORD:
        return ("true" if value else "false") if isinstance(value, bool) else str(value)
    if isinstance(value, str) and not isinstance(value, Number):
        return _LOST
    if str(slot.type) == "boolean":
        return str(value) if isinstance(value, bool) else _LOST
    if slot.word == TIMESTAMP_WORD or str(slot.type) in ("date", "timestamp_ntz"):
        return _LOST
    return _expected_number(slot, Number(int(value)) if isinstance(value, bool) else value)


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
    except OverflowError:
        return _LOST
    same = Decimal(nearest) if str(slot.type) == "float" else Decimal(repr(nearest))
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
        if dim == 0:
            return _of_row(slot.record, value) if slot.record is not None else [slot.name, _held(value)]
    if not there:
        return None
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
