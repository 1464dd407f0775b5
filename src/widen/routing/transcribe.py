"""Texts of one batch to rows of one table, with what did not fit as an observation.

Records that fit the columns as they are take the native path; every other one is read exactly, observed and routed.
So the observation holds just what the columns do not already say, and an interval that brings nothing new costs
little more than decoding it.

Source: spec of evolution, section 3; D11 for what is no record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal

from widen.model.type import StructType
from widen.observe.document import Document, parse
from widen.observe.kind import DOUBLE_WORD, INT_WORD, LONG_WORD, Kind
from widen.observe.observation import FieldSeen, KindSeen, Observation, Position, RecordSeen
from widen.observe.walk import observe_record
from widen.planning.name import CORRUPT, RESCUED, role_field
from widen.routing.decoder import Decoder
from widen.routing.rescue import rescue
from widen.routing.route import RecordRoute, Slot, routes
from widen.routing.row import Row, to_row
from widen.routing.shape import Habits, SourcePath

ROUNDING_PATTERN = r"[:\[,]\s*(?:-?[0-9][0-9.]{15}|-?[0-9.]+[eE]|-0[^.])"
"""Finds, in RE2 and in Python, the numbers that decoding may change: long ones, those with an exponent, and -0."""

_NUMBER = re.compile(rb"[:\[,]\s*(-?[0-9][0-9.eE+-]*)")


class Transcriber:
    """Makes rows of texts, and observes those that do not fit.

    Args:
        schema: The schema of the table to write; its columns say where each key goes.
    """

    def __init__(self, schema: StructType) -> None:
        self.observation = Observation()
        self._route = routes(schema)
        self._corrupt, self._rescued = role_field(schema, CORRUPT), role_field(schema, RESCUED)
        self._habits = Habits(self._rescued is not None)
        self._decoder = Decoder(self._route, self._habits)

    def rows(self, text: bytes, at: Position, *, may_round: bool = True) -> Iterator[Row]:
        """Yield the rows of one text: one, or one for each element of an array of records.

        Args:
            text: One JSON value as UTF-8. What is no record makes a row that keeps the text.
            at: The file and the number of the text in it.
            may_round: Whether `ROUNDING_PATTERN` is in the text, or nobody has looked.
        """
        row = None if may_round and _rounds(text) else self._decoder.row(text, self.observation.root, at)
        if row is None:
            yield from self._exact_rows(text, at)
        else:
            self.observation.records += 1
            yield row

    def adapt(self) -> None:
        """Take what was seen so far into account: fields that drift are handed out raw from now on."""
        habits = _habits(self._route, self.observation.root, rescues=self._rescued is not None)
        if habits != self._habits:
            self._habits = habits
            self._decoder = Decoder(self._route, habits)

    def _exact_rows(self, text: bytes, at: Position) -> Iterator[Row]:
        document = parse(text)
        match document:
            case dict():
                yield self._exact_row(document, at)
            case [*records] if all(isinstance(record, dict) for record in records):
                yield from (self._exact_row(record, at) for record in records)
            case _:
                yield self._corrupt_row(text)

    def _corrupt_row(self, text: bytes) -> Row:
        self.observation.corrupt += 1
        return {self._corrupt.name: text.decode(errors="backslashreplace")} if self._corrupt else {}

    def _exact_row(self, record: dict[str, Document], at: Position) -> Row:
        self.observation.records += 1
        observe_record(self.observation.root, record, at)
        row = to_row(self._route, record)
        if self._rescued:
            row[self._rescued.name] = rescue(self._route, record)
        return row


def _rounds(text: bytes) -> bool:
    """Tell whether decoding would change any number of a text."""
    return any(
        token == b"-0" or _rounds_number(token.decode())
        for token in _NUMBER.findall(text)
        if len(token) > 15 or token == b"-0" or b"e" in token.lower()
    )


def _rounds_number(token: str) -> bool:
    try:
        return token.lstrip("-").isdecimal() is False and Decimal(repr(float(token))) != Decimal(token)
    except (ValueError, ArithmeticError):
        return True


def _habits(route: RecordRoute, seen: RecordSeen, *, rescues: bool) -> Habits:
    loose: set[SourcePath] = set()
    empty: dict[SourcePath, FieldSeen] = {}
    _sort_fields(route, seen, (), loose, empty)
    return Habits(rescues, frozenset(loose), empty)


def _sort_fields(
    route: RecordRoute, seen: RecordSeen, above: SourcePath, loose: set[SourcePath], empty: dict[SourcePath, FieldSeen]
) -> None:
    for key, field in seen.items():
        slots, path = route.get(key, ()), (*above, key)
        if not slots and not field.kinds:
            empty[path] = FieldSeen(
                dict.fromkeys(field.nulls, 1), dict.fromkeys(field.empty, 1), dict.fromkeys(field.empty_records, 1)
            )
        elif slots and not all(_is_plain(slots[0], kind, values) for kind, values in field.kinds.items()):
            loose.add(path)
        for slot in slots:
            if slot.record is not None:
                _sort_fields(slot.record, field.records.get(slot.dim, {}), path, loose, empty)


def _is_plain(slot: Slot, kind: Kind, values: KindSeen) -> bool:
    """Tell whether the values of a kind are what a column of that type has natively."""
    word = INT_WORD if kind.word == LONG_WORD and values.fits_int32 and slot.word == INT_WORD else kind.word
    whole_double = kind.word == LONG_WORD and slot.word == DOUBLE_WORD
    return kind.dim == slot.dim and (word == slot.word or whole_double)
