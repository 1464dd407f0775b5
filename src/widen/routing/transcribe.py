"""Texts of one batch to rows of one table, with what did not fit as an observation.

Records that fit the columns as they are take the native path; every other one is read exactly, observed and routed.
So the observation holds just what the columns do not already say, and an interval that brings nothing new costs
little more than decoding it.

Source: spec of evolution, section 3; D11 for what is no record.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from widen.model.type import StructType
from widen.observe.document import Document, parse
from widen.observe.kind import DOUBLE_WORD, INT_WORD, LONG_WORD, Kind
from widen.observe.observation import FieldSeen, KindSeen, Observation, Position, RecordSeen, merge_records
from widen.observe.walk import observe_record
from widen.planning.name import CORRUPT, RESCUED, role_field
from widen.routing.decoder import Decoder
from widen.routing.rescue import rescue
from widen.routing.route import RecordRoute, Slot, routes
from widen.routing.row import Row, to_row
from widen.routing.shape import Habits, Shape, SourcePath, shape_of
from widen.routing.spread import Spread

ROUNDING_PATTERN = r"[:\[,]\s*(?:-?[0-9][0-9.]{15}|-?[0-9.]+[eE]|-0[^.])"
"""Finds, in RE2 and in Python, the numbers that decoding may change: long ones, those with an exponent, and -0."""

_NUMBER = re.compile(rb"[:\[,]\s*(-?[0-9][0-9.eE+-]*)")


@dataclass(frozen=True, slots=True)
class Lot:
    """Records that were decoded natively, in one shape.

    Args:
        shape: Their shape.
        records: The decoded records.
        texts: What each was decoded from.
        places: Where each stands.
    """

    shape: Shape
    records: list[Any]
    texts: list[bytes]
    places: list[Position]

    def without(self, refused: Collection[int]) -> Lot:
        """Return the lot without the records at some places of it."""
        kept = [at for at in range(len(self.records)) if at not in refused]
        records, texts = [self.records[at] for at in kept], [self.texts[at] for at in kept]
        return Lot(self.shape, records, texts, [self.places[at] for at in kept])


class Transcriber:
    """Makes rows of texts, and observes those that do not fit.

    A text is taken, and either decoded natively or, as a row, read exactly. Decoded records become columns outside;
    those that this refuses are read exactly, too.

    Args:
        schema: The schema of the table to write; its columns say where each key goes.
    """

    def __init__(self, schema: StructType) -> None:
        self.observation = Observation()
        self._route = routes(schema)
        self._corrupt, self._rescued = role_field(schema, CORRUPT), role_field(schema, RESCUED)
        self._rows: list[Row] = []
        self._use(Habits(self._rescued is not None))

    def _use(self, habits: Habits) -> None:
        self._habits, shape = habits, shape_of(self._route, habits)
        self._decoder, self._lot = Decoder(shape), Lot(shape, [], [], [])

    def take(self, texts: Sequence[bytes], places: Sequence[Position], may_round: Sequence[bool]) -> None:
        """Take texts, each a record, an array of records, or nothing but space.

        Args:
            texts: JSON values as UTF-8. What is no record makes a row that keeps the text.
            places: For each the file, and the number of the text in it.
            may_round: For each whether `ROUNDING_PATTERN` is in it.
        """
        records = self._decoder.records(texts)
        pairs = enumerate(zip(records, may_round, strict=True))
        exact = {at for at, (record, may) in pairs if record is None or (may and _rounds(texts[at]))}
        for at in sorted(exact):
            self._rows.extend(self._exact_rows(texts[at], places[at]))
        lot = Lot(self._lot.shape, records, list(texts), list(places))
        lot = lot.without(exact) if exact else lot
        self._lot.records.extend(lot.records)
        self._lot.texts.extend(lot.texts)
        self._lot.places.extend(lot.places)

    def decoded(self) -> Lot:
        """Return the records that were decoded since the last time."""
        lot, self._lot = self._lot, Lot(self._lot.shape, [], [], [])
        return lot

    def settled(self, lot: Lot, spread: Spread) -> Lot:
        """Return what is left to do of a lot that was spread: nothing, unless some of its records were refused.

        These are read exactly; the others have to be spread again, without them.
        """
        refused = sorted(spread.refused)
        if not refused:
            self.observation.records += len(lot.records)
            self.observation.root = merge_records(self.observation.root, spread.seen)
            return Lot(lot.shape, [], [], [])
        for at in refused:
            self._rows.extend(self._exact_rows(lot.texts[at], lot.places[at]))
        return lot.without(spread.refused)

    def rows(self) -> list[Row]:
        """Return the rows of the records that were read exactly, and of the texts that are none."""
        rows, self._rows = self._rows, []
        return rows

    def adapt(self) -> None:
        """Take what was seen so far into account: fields that drift are routed by hand from now on.

        Nothing that was decoded must be waiting.
        """
        habits = _habits(self._route, self.observation.root, rescues=self._rescued is not None)
        if habits != self._habits:
            self._use(habits)

    def _exact_rows(self, text: bytes, at: Position) -> Iterator[Row]:
        if not text.strip():
            return
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
