"""Texts of one batch to rows of one table, with what did not fit as an observation.

Records that fit the columns as they are take the native path; every other one is read exactly, observed and routed.
So the observation holds just what the columns do not already say, and an interval that brings nothing new costs
little more than decoding it.

Source: docs/evolution-rules.md#one-interval, #d11, #d12
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import msgspec

from widen.model.types import StructType
from widen.observe.file_fields import FileFields, joined
from widen.observe.json_document import BOM, InvalidJson, JsonDocument, has_field, parse_document
from widen.observe.kind import DOUBLE_WORD, INT_WORD, LONG_WORD, Kind
from widen.observe.observation import (
    FieldObservation,
    KindObservation,
    Observation,
    RecordObservation,
    RecordPosition,
    merge_records,
    position_text,
)
from widen.observe.observe_document import observe_record
from widen.planning.evolution.policy import Policy
from widen.planning.evolution.policy_field_rules import build_field_rules
from widen.planning.evolution.source_metadata import CORRUPT, CORRUPT_AT, RESCUED, ROLES, role_field
from widen.routing.fixed_column_check import find_violations, fixed_column_route
from widen.routing.native.column_assembler import ColumnAssembler
from widen.routing.native.decoder import RecordDecoder
from widen.routing.native.record_shape import BatchProfile, RecordShape, SourcePath
from widen.routing.native.shape_builder import build_record_shape
from widen.routing.redact import Redactor
from widen.routing.rescue import rescue
from widen.routing.route import ColumnSlot, RecordRoute, build_routes
from widen.routing.row import Row, to_row

ROUNDING_PATTERN = r"[:\[,]\s*(?:-?[0-9][0-9.]{15}|-?[0-9.]+[eE]|-0[^.])"
"""Finds, in RE2 and in Python, the numbers that decoding may change: long ones, those with an exponent, and -0."""

_NUMBER = re.compile(rb"[:\[,]\s*(-?[0-9][0-9.eE+-]*)")


SEARCHED_TEXTS = 10_000
"""In how many texts that have its key a task looks for a field that is left out."""

ORIGIN_FIELDS = ("text", "file", "position", "reason")
"""What a row says of where it is from: its text, the file, the number in it, and why it is kept out if it is."""


@dataclass(frozen=True, slots=True)
class OriginColumn:
    """The column that says what rows are made of.

    Args:
        column: Its name.
        is_for_all: Every row has it; else only those of what is kept out.
    """

    column: str
    is_for_all: bool = False


@dataclass(frozen=True, slots=True)
class DecodedChunk:
    """Records that were decoded natively, in one shape.

    Args:
        shape: Their shape.
        records: The decoded records.
        texts: What each was decoded from.
        places: Where each stands.
    """

    shape: RecordShape
    records: list[Any]
    texts: list[bytes]
    places: list[RecordPosition]

    def without(self, refused: Collection[int]) -> DecodedChunk:
        """Return the lot without the records at some places of it."""
        kept = [at for at in range(len(self.records)) if at not in refused]
        records, texts = [self.records[at] for at in kept], [self.texts[at] for at in kept]
        return DecodedChunk(self.shape, records, texts, [self.places[at] for at in kept])


class RowBuilder:
    """Makes rows of texts, and observes those that do not fit.

    A text is taken, and either decoded natively or, as a row, read exactly. Decoded records become columns outside;
    those that this refuses are read exactly, too.

    Args:
        schema: The schema of the table to write; its columns say where each key goes.
        policy: How values are taken, and which columns cannot yield.
        base: The schema before the interval; None where there is no table yet.
        origin: The column that says what rows are made of, if there is to be one; without it there is no row of what
            is kept out.
        file_fields: Which fields the records get from their files.
    """

    def __init__(
        self,
        schema: StructType,
        policy: Policy | None = None,
        base: StructType | None = None,
        origin: OriginColumn | None = None,
        file_fields: FileFields | None = None,
    ) -> None:
        policy = policy or Policy()
        self.observation, self._origin, self._file_fields = Observation(), origin, file_fields
        self._begins: dict[str, bytes] = {}  # of the text of a record, by the file
        self._route, self._reading = build_routes(schema, policy), build_field_rules(schema, policy)
        self._guarded, self._refuses_nulls = fixed_column_route(self._route), policy.refuses_nulls
        self._hider = Redactor(policy)
        self._roles = {role: field.name for role in ROLES if (field := role_field(schema, role)) is not None}
        self._base = build_routes(base or StructType(), policy)
        self._rows: list[Row] = []
        self._searched = dict.fromkeys(policy.left_out, SEARCHED_TEXTS)
        self._use(BatchProfile(RESCUED in self._roles))

    def _use(self, habits: BatchProfile) -> None:
        shape = build_record_shape(self._route, habits, self._base, self._reading)
        self._habits, self._decoder, self._lot = habits, RecordDecoder(shape), DecodedChunk(shape, [], [], [])

    def take(self, texts: Sequence[bytes], places: Sequence[RecordPosition], may_round: Sequence[bool]) -> None:
        """Take texts, each a record, an array of records, or nothing but space.

        Args:
            texts: JSON values as UTF-8. What is no record makes a row that keeps the text.
            places: For each the file, and the number of the text in it.
            may_round: For each whether `ROUNDING_PATTERN` is in it.
        """
        if self._searched:
            self._search(texts)
        records = self._decoder.records(self._with_begins(texts, places))
        pairs = enumerate(zip(records, may_round, strict=True))
        exact = {at for at, (record, may) in pairs if record is None or (may and _rounds(texts[at]))}
        for at in sorted(exact):
            self._rows.extend(self._exact_rows(texts[at], places[at]))
        lot = DecodedChunk(self._lot.shape, records, list(texts), list(places))
        lot = lot.without(exact) if exact else lot
        self._lot.records.extend(lot.records)
        self._lot.texts.extend(lot.texts)
        self._lot.places.extend(lot.places)

    def _search(self, texts: Sequence[bytes]) -> None:
        """Look for fields that are left out, which nothing else tells of, until each is found once."""
        for path, left in list(self._searched.items()):
            key = msgspec.json.encode(path[-1])
            for text in texts:
                if key in text:
                    left -= 1
                    if has_field(parse_document(text), path):
                        self.observation.met.append([*path])
                        left = 0
                    if not left:
                        break
            self._searched[path] = left
        self._searched = {path: left for path, left in self._searched.items() if left}

    def _with_begins(self, texts: Sequence[bytes], places: Sequence[RecordPosition]) -> Sequence[bytes]:
        """Return texts in which records begin with the fields of their files; a key that stands twice is refused."""
        if self._file_fields is None:
            return texts
        return [_with_begin(text, self._begin(file)) for text, (file, _) in zip(texts, places, strict=True)]

    def _begin(self, file: str) -> bytes:
        assert self._file_fields is not None
        found = self._begins.get(file)
        if found is None:
            found = self._begins[file] = msgspec.json.encode(self._file_fields.of(file))[1:-1]
        return found

    def _joined(self, record: dict[str, JsonDocument], at: RecordPosition) -> dict[str, JsonDocument]:
        return record if self._file_fields is None else joined(record, self._file_fields.of(at[0]))

    def decoded(self) -> DecodedChunk:
        """Return the records that were decoded since the last time."""
        lot, self._lot = self._lot, DecodedChunk(self._lot.shape, [], [], [])
        return lot

    def settled(self, lot: DecodedChunk, spread: ColumnAssembler) -> DecodedChunk:
        """Return what is left to do of a lot that was spread: nothing, unless some of its records were refused.

        These are read exactly; the others have to be spread again, without them.
        """
        refused = sorted(spread.refused)
        if not refused:
            self.observation.records += len(lot.records)
            self.observation.root = merge_records(self.observation.root, spread.seen)
            return DecodedChunk(lot.shape, [], [], [])
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
        habits = _batch_profile(self._route, self.observation.root, rescues=RESCUED in self._roles)
        if habits != self._habits:
            self._use(habits)

    def _exact_rows(self, text: bytes, at: RecordPosition) -> Iterator[Row]:
        if not text.strip():
            return
        document = parse_document(text)
        match document:
            case dict():
                whole = text if self._file_fields is None else None
                yield from self._exact_row(self._joined(document, at), at, whole)
            case [*records] if all(isinstance(record, dict) for record in records):
                for record in records:
                    yield from self._exact_row(self._joined(record, at), at)
            case _:
                yield from self._corrupt_row(text, at, document)

    def _corrupt_row(self, text: bytes, at: RecordPosition, document: JsonDocument | InvalidJson) -> Iterator[Row]:
        kept = self._hider.corrupt(text)
        if self._refuses_nulls:
            reason = document.reason if isinstance(document, InvalidJson) else "it is JSON of another kind"
            yield from self._kept_out(kept, at, f"no record: {reason}")
            return
        self.observation.corrupt += 1
        told = {CORRUPT: kept, CORRUPT_AT: position_text(at)}
        yield {self._roles[role]: value for role, value in told.items() if role in self._roles} | self._told(kept, at)

    def _kept_out(self, text: str, at: RecordPosition, reason: str) -> Iterator[Row]:
        """Count something that is kept out of the table; yield the row that says so, if anybody asks for it."""
        self.observation.quarantined += 1
        if self._origin:
            yield self._told(text, at, reason)

    def _exact_row(
        self, record: dict[str, JsonDocument], at: RecordPosition, text: bytes | None = None
    ) -> Iterator[Row]:
        """Yield the row of a record, or what is kept of one that is kept out, if anybody asks for it."""
        taken = self._reading.record(record)
        wrong = list(find_violations(self._guarded, taken))
        if wrong:
            for misfit in wrong:
                misfit.observe(self.observation.kept_out, at)
            yield from self._kept_out(self._hider.record(record, text), at, "; ".join(map(str, wrong)))
            return
        self.observation.records += 1
        observe_record(self.observation.root, taken, at)
        row = to_row(self._route, taken)
        if RESCUED in self._roles:
            row[self._roles[RESCUED]] = rescue(self._route, taken)
        is_told = self._origin is not None and self._origin.is_for_all
        yield row | self._told(self._hider.record(record, text), at) if is_told else row

    def _told(self, text: str, at: RecordPosition, reason: str | None = None) -> Row:
        """Return the cell that says what a row is made of, where there is to be one."""
        if self._origin is None or (reason is None and not self._origin.is_for_all):
            return {}
        return {self._origin.column: dict(zip(ORIGIN_FIELDS, (text, *at, reason), strict=True))}

    def origins(self, lot: DecodedChunk) -> dict[str, list[Any]]:
        """Return the column that says what the rows of decoded records are made of, if they are to have one."""
        if self._origin is None or not self._origin.is_for_all:
            return {}
        texts = [self._kept_text(text, at) for text, at in zip(lot.texts, lot.places, strict=True)]
        rows = (self._told(text, at) for text, at in zip(texts, lot.places, strict=True))
        return {self._origin.column: [row[self._origin.column] for row in rows]}

    def _kept_text(self, text: bytes, at: RecordPosition) -> str:
        """Return a record as it may be kept, with the fields of its file, which its text alone does not tell."""
        record = None if self._file_fields is None else parse_document(text)
        if not isinstance(record, dict):
            return self._hider.text(text)
        return self._hider.record(self._joined(record, at), None)


def _with_begin(text: bytes, begin: bytes) -> bytes:
    rest = text.removeprefix(BOM).lstrip()[1:]
    if not begin or not text.removeprefix(BOM).lstrip().startswith(b"{"):
        return text
    return b"{" + begin + (b"" if rest.lstrip().startswith(b"}") else b",") + rest


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


def _batch_profile(route: RecordRoute, seen: RecordObservation, *, rescues: bool) -> BatchProfile:
    loose: set[SourcePath] = set()
    empty: dict[SourcePath, FieldObservation] = {}
    _sort_fields(route, seen, (), loose, empty)
    return BatchProfile(rescues, frozenset(loose), empty)


def _sort_fields(
    route: RecordRoute,
    seen: RecordObservation,
    above: SourcePath,
    loose: set[SourcePath],
    empty: dict[SourcePath, FieldObservation],
) -> None:
    for key, field in seen.items():
        slots, path = route.get(key, ()), (*above, key)
        if not slots and not field.kinds:
            empty[path] = FieldObservation(
                dict.fromkeys(field.nulls, 1), dict.fromkeys(field.empty, 1), dict.fromkeys(field.empty_records, 1)
            )
        elif slots and not all(
            any(_is_plain(slot, kind, values) for slot in slots) for kind, values in field.kinds.items()
        ):
            loose.add(path)
        for slot in slots:
            if slot.record is not None:
                _sort_fields(slot.record, field.records.get(slot.dim, {}), path, loose, empty)


def _is_plain(slot: ColumnSlot, kind: Kind, values: KindObservation) -> bool:
    """Tell whether the values of a kind are what a column of that type has natively."""
    word = INT_WORD if kind.word == LONG_WORD and values.fits_int32 and slot.word == INT_WORD else kind.word
    whole_double = kind.word == LONG_WORD and slot.word == DOUBLE_WORD
    return kind.dim == slot.dim and (word == slot.word or whole_double)
