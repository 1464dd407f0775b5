"""Texts of a source as the rows that the table must have for them.

Source: docs/evolution-rules.md#proof
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import copysign
from typing import Any, Final, TypeAlias

from widen.evolution.policy import Policy
from widen.json.envelope import Envelope
from widen.model.types import DecimalType, StructType
from widen.model.value_classes import dataclass
from widen.proof.canonical import EXACT_WHOLE, EncodedRecord, Form, count_form, to_corrupt_form
from widen.proof.conditions import ExcludedCondition
from widen.proof.connect_json import typed_json_of_texts
from widen.proof.envelope_reader import fields_of_columns, is_row_of, read_envelopes
from widen.proof.expected_values import BITS, NOT_STORED, ExpectedRecord, ValueCounts, expected_scalar, has_marks
from widen.proof.json_reader import (
    MAX_DEPTH,
    MAX_LEVELS,
    Json,
    read_records,
    read_whole_records,
    reject_duplicate_keys,
    split_into_parts,
    split_into_records,
    split_lines,
)
from widen.proof.message_reader import typed_json_of
from widen.proof.proof_files import FileValues, PlacedFileValues, add_file_values
from widen.proof.row_encoder import LayoutMatcher, RecordLayout
from widen.proof.rules import (
    MASK,
    RECORD,
    ColumnsByKey,
    CorruptTextRedactor,
    FieldColumns,
    ProofRule,
    SourceColumn,
    read_defaults,
    widest_record_column,
)


@dataclass(frozen=True, slots=True)
class ExpectedRow:
    """The row that the table must have for one record.

    Args:
        values: Number of values in the record; a text that is not a record counts as one.
        converted: Number of these values that the table has in another form than the source.
        deletes: Whether the record deletes, if excluded fields say so; None if that cannot be told.
    """

    form: Form
    values: int
    converted: int = 0
    deletes: bool | None = None


class SourceReader:
    """Reads the texts of a source."""

    def __init__(self, schema: StructType, policy: Policy) -> None:
        self._expectation, self._redactor = ExpectedRecord(schema, policy), CorruptTextRedactor(policy)
        self._envelope, self._allows_nan = policy.envelope, policy.allows_nan
        self._columns = [] if policy.envelope is None else fields_of_columns(schema)
        self._has_documents, self._typed = (
            policy.record_path is not None,
            typed_json_of(policy.dialect),
        )
        self._row_texts = typed_json_of_texts(policy.dialect)
        # The quarantine has the text alone.
        self._keeps_corrupt = policy.keeps_corrupt and not policy.refuses_nulls
        self._fast = FastReader(self._expectation)
        is_excluded = bool(policy.deletes_by)
        self._deletes = ExcludedCondition(policy.delete_when, schema, policy.deletes_by) if is_excluded else None
        self.fields = self._expectation.fields

    def read(self, text: bytes, file_values: FileValues = ()) -> Iterator[ExpectedRow]:
        """Yield the row of each record in a text: of one record, of the records of an array, or of a corrupt text.

        A text of spaces has no row.
        """
        for plain in [text] if self._typed is None else self._typed.read(text):
            yield from self._read_plain(plain, file_values)

    def _read_plain(self, text: bytes, file_values: FileValues) -> Iterator[ExpectedRow]:
        if self._envelope is not None:
            yield from self._read_envelopes(text, self._envelope, file_values)
            return
        fast = self._fast.read(text, file_values) if self._deletes is None else None
        if fast is not None:
            yield _to_row(*fast)
        elif text.strip():
            yield from self.read_exactly(text, file_values)

    def _read_envelopes(self, text: bytes, envelope: Envelope, file_values: FileValues) -> Iterator[ExpectedRow]:
        nan, columns, texts = self._allows_nan, self._columns, self._row_texts
        for row in read_envelopes(text, envelope, allows_nan=nan, columns=columns, texts=texts):
            if isinstance(row, bytes):
                yield from self.read_refused(row, file_values)
            else:
                yield self._expect(add_file_values(row, file_values))

    def read_exactly(self, text: bytes, file_values: FileValues = ()) -> Iterator[ExpectedRow]:
        """Yield the rows of a text without the fast path."""
        records = read_records(text, allows_nan=self._allows_nan)
        # A text that is not one record may be several, one after the other or in an array.
        if records is None and (parts := split_into_records(text, allows_nan=self._allows_nan)) != [text]:
            for part in parts:
                yield from self._read_plain(part, file_values)
        elif records is None:
            yield from self.read_refused(text, file_values)
        else:
            completed = (add_file_values(record, file_values) if file_values else record for record in records)
            yield from map(self._expect, completed)

    def _expect(self, record: dict[str, Json]) -> ExpectedRow:
        row = _to_row(*self._expectation.expect(record))
        return row if self._deletes is None else replace(row, deletes=self._deletes.test(record, row.form))

    def read_refused(self, text: bytes, file_values: FileValues = ()) -> Iterator[ExpectedRow]:
        """Yield the row of a text that is not a record, even if it looks like one."""
        form, hidden = to_corrupt_form(self._redactor.redact(text)), int(self._redactor.is_redacting)
        if not self._keeps_corrupt and self._has_documents and not hidden:
            # In the quarantine, an object without the path looks like a record.
            form = self.read_quarantined_records(text.decode(errors="replace"))
            yield ExpectedRow(form, count_form(form))
            return
        if not (self._keeps_corrupt and isinstance(file_values, PlacedFileValues)):
            yield ExpectedRow(form, 1, hidden)
            return
        # It has the path and the time of its file's fields, which are the last ones.
        both = list(add_file_values({}, file_values).items())[-2:]
        own, counts = self._expectation.expect(dict(both))
        yield ExpectedRow([*form, own] if own else form, 1 + counts.values, hidden + counts.converted)

    def read_quarantined_records(self, text: str) -> Form:
        """Return the form of a quarantined text: the form of its record's row, or of a corrupt text."""
        records = None
        if text.lstrip()[:1] == "{":
            records = read_records(text.encode(), allows_nan=self._allows_nan)
        # Where fields are hidden, what is not a row is hidden as well, and a row may lack its operation.
        envelope = None if self._redactor.is_redacting else self._envelope
        if records and envelope and not is_row_of(envelope, records[0]):
            records = None
        return to_corrupt_form(text) if records is None else self._expectation.expect(records[0])[0]


class SourceEncoder:
    """Encodes the texts of a source, most of them without parsing."""

    def __init__(self, schema: StructType, policy: Policy, layout: RecordLayout) -> None:
        self._reader, self._layout = SourceReader(schema, policy), layout
        matcher = LayoutMatcher(self._reader.fields, layout)
        # The row of an envelope is only a part of its text, and a default is not in it.
        is_own_form = policy.envelope is None and not read_defaults(schema)
        self._match = matcher.match if is_own_form else _no_match

    def encode(self, text: bytes, file_values: FileValues = ()) -> Iterable[EncodedRecord]:
        """Return the encoded row of each record in a text; see `SourceReader.read`.

        The values are those beyond the values of the row.
        """
        # A value from the path of the file is not in the text, so the text alone cannot be the form of its row.
        own_form = None if file_values else self._match(text)
        return self._encode_exactly(text, file_values) if own_form is None else ((own_form, 0, 0),)

    def encode_file(self, data: bytes, file_values: FileValues = ()) -> Iterator[EncodedRecord]:
        """Yield the encoded row of each record in a file; see `split_into_parts`."""
        lines = split_lines(data) if not file_values else []
        # One line that is a record tells that the lines are the texts of the file.
        texts = lines if any(map(self._match, lines)) else split_into_parts(data)
        yield from self.encode_texts(texts, file_values)

    def encode_texts(self, texts: Iterable[bytes], file_values: FileValues = ()) -> Iterator[EncodedRecord]:
        """Yield the encoded row of each record in texts."""
        for text in texts:
            yield from self.encode(text, file_values)

    def _encode_exactly(self, text: bytes, file_values: FileValues) -> Iterator[EncodedRecord]:
        for row in self._reader.read(text, file_values):
            yield self._layout.encode(row.form), row.values - count_form(row.form), row.converted

    def encode_refused(self, text: bytes, file_values: FileValues = ()) -> EncodedRecord:
        """Return the encoded row of a text that is not a record."""
        (row,) = self._reader.read_refused(text, file_values)
        return self._layout.encode(row.form), row.values - count_form(row.form), row.converted

    def encode_quarantined_records(self, text: str) -> EncodedRecord:
        """Return the encoded form of a quarantined text, like the form of a row."""
        form = self._reader.read_quarantined_records(text)
        return self._layout.encode(form), count_form(form), 0


def _no_match(_: bytes) -> bytes | None:
    return None


def _to_row(form: Form, counts: ValueCounts) -> ExpectedRow:
    return ExpectedRow(form, counts.values, counts.converted)


# The fast path of the proof for source records that fit the columns as they are.
#
# It gives the form of `widen.proof.expected_values` or leaves the text to the exact path: the fast path must know
# when it cannot be exact.


_KEEP: Final = object()
_DROP: Final = object()

Handler: TypeAlias = Any
"""`_KEEP`, `_DROP`, or a function that returns the form of a value or raises `_NeedsExactPathError`."""

Handlers: TypeAlias = dict[type, Handler]
"""The handler of each Python type; values of other types need the exact path."""

# A double keeps 15 digits; with the point they are 16 characters.
_SURE_CHARS = 16
# The form of a smaller number may have an exponent.
_SURE_FRACTION = 1e-3
_MINUS_ZERO = re.compile(rb"-0\s*[,\]}]")


class _NeedsExactPathError(Exception):
    """The record needs the exact path."""


def _needs_exact_path(_: str) -> Any:
    raise _NeedsExactPathError


class _SameHandler(dict[type, Handler]):
    """One handler for values of all types."""

    def __missing__(self, python_type: type) -> Handler:
        return self[object]


class _RecordHandlers(dict[str, Handlers]):
    """The handlers of the fields of a record; an excluded field has one for every capitalization of its name."""

    def __init__(self, rule: ProofRule, handlers: dict[str, Handlers]) -> None:
        super().__init__(handlers)
        self._rule = rule

    def __missing__(self, key: str) -> Handlers:
        # Without a handler for its type, a value needs the exact path.
        return _SameHandler({object: _DROP}) if self._rule.rule_of(key).is_excluded else {}


class FastReader:
    """Returns the forms of records that need no closer look."""

    def __init__(self, expectation: ExpectedRecord) -> None:
        self._counts = ValueCounts()
        self._spelling_changes = 0
        self._defaults = expectation.defaults.keys()
        self._fills_excluded = any(expectation.rules.rule_of(key).is_excluded for key in self._defaults)
        self._has_marks = False
        self._has_redaction, self._is_rescuing = expectation.rules.has_redaction, expectation.is_rescuing
        self._scan = json.JSONDecoder(
            object_pairs_hook=reject_duplicate_keys, parse_float=self._float, parse_constant=_needs_exact_path
        ).decode
        self._handlers = self._record_handlers(expectation.fields, expectation.rules)
        # Columns of at most MAX_LEVELS take no object below them, so that only the exact path sees one.
        self._max_nested = MAX_DEPTH if _levels(expectation.fields) <= MAX_LEVELS else MAX_LEVELS

    def read(self, text: bytes, file_values: FileValues = ()) -> tuple[Form, ValueCounts] | None:
        """Return the form and the counts of the one record in a text, or None if the text needs the exact path."""
        # Python reads -0 as the integer 0, which has lost its sign.
        # Brackets inside of strings count too, which only sends more texts to the exact path.
        if text.count(b"{") + text.count(b"[") > self._max_nested or (b"-0" in text and _MINUS_ZERO.search(text)):
            return None
        counts = self._counts = ValueCounts()
        self._spelling_changes = 0
        try:
            records = read_whole_records(text, self._scan)
            if records is None or len(records) != 1 or text.lstrip()[:1] == b"[":
                return None
            record = add_file_values(records[0], file_values) if file_values else records[0]
            if self._fills_excluded or not self._defaults <= record.keys():
                return None
            form = self._read_record(self._handlers, record)
        # A KeyError is a key without a column, or a value of a type that its columns do not take.
        except (_NeedsExactPathError, KeyError):
            return None
        # A number with another spelling may stand in a field that is masked or excluded, and is not counted there.
        if self._spelling_changes and (self._has_redaction or self._has_marks):
            return None
        counts.converted += self._spelling_changes
        return form, counts

    def _float(self, token: str) -> Any:
        # 0.1 and 0.10 are one number, and 1e2 is 100: whether a double or a decimal holds a long token is for the exact
        # path.
        if len(token) > _SURE_CHARS or "e" in token or "E" in token:
            raise _NeedsExactPathError
        number = float(token)
        if self._has_marks and abs(number) < _SURE_FRACTION and number:
            raise _NeedsExactPathError
        self._spelling_changes += token[-1] == "0" and token[-2] != "."
        return number

    def _read_record(self, handlers: dict[str, Handlers], record: dict[str, Any]) -> Form:
        form = {}
        for key, value in record.items():
            # A missing key and a null give the same row, so neither has a place in the form.
            if value is not None:
                handle = handlers[key][type(value)]
                if handle is _KEEP:
                    form[key] = value
                elif handle is not _DROP:
                    form[key] = handle(value)
            elif self._is_rescuing and key not in handlers:
                raise _NeedsExactPathError
        self._counts.values += len(form)
        return form

    # ---- handlers, made once --------------------------------------------------------------------------

    def _record_handlers(self, fields: ColumnsByKey, rule: ProofRule) -> dict[str, Handlers]:
        keys = fields.keys() | {key for key, below in rule.below.items() if below.is_excluded}
        handlers = {key: self._field_handlers(fields.get(key, ()), rule.rule_of(key)) for key in keys}
        return _RecordHandlers(rule, handlers)

    def _field_handlers(self, columns: FieldColumns, rule: ProofRule) -> Handlers:
        if rule.is_excluded:
            return _SameHandler({object: _DROP})
        if rule.is_masked:
            has_text = any(column.type_name == "string" and not column.dim for column in columns)
            return _SameHandler({object: self._mask}) if has_text else {}
        if rule.text_form is not None or rule.map_levels:
            return {}
        return self._column_handlers([(column, column.dim) for column in columns], rule)

    def _column_handlers(self, columns: Sequence[tuple[SourceColumn, int]], rule: ProofRule) -> Handlers:
        scalar_columns = [column for column, dim in columns if not dim]
        type_names = {column.type_name for column in scalar_columns}
        handlers: Handlers = {}
        if rule.hidden:
            pass  # a text may be masked
        elif rule.reads_times and type_names != {"string"}:
            handlers[str] = self._temporal_handler(scalar_columns, rule)
        elif "string" in type_names:
            handlers[str] = _KEEP
        if "boolean" in type_names:
            handlers[bool] = _KEEP
        if "double" in type_names:
            is_marked = has_marks([column for column, _ in columns])
            self._has_marks |= is_marked
            handlers[float] = _fraction if is_marked else _double
        bound = max(map(_integer_bound, scalar_columns), default=0)
        if bound:
            handlers[int] = _integer_handler(bound)
        if RECORD in type_names:
            handlers[dict] = self._record_handler(tuple(column for column, _ in columns), rule)
        inner_columns = [(column, dim - 1) for column, dim in columns if dim]
        if inner_columns:
            handlers[list] = self._array_handler(self._column_handlers(inner_columns, rule))
        return handlers

    def _record_handler(self, columns: FieldColumns, rule: ProofRule) -> Handler:
        widest = widest_record_column(columns)
        assert widest is not None
        assert widest.fields is not None
        handlers, reader = self._record_handlers(widest.fields, rule), self

        def handle(record: dict[str, Any]) -> Form:
            form = reader._read_record(handlers, record)
            # The record above counts each of its keys; its fields count here instead, unless it has no fields.
            reader._counts.values -= bool(form)
            return form

        return handle

    def _array_handler(self, handlers: Handlers) -> Handler:
        def handle(items: list[Any]) -> Form:
            form: list[Any] = []
            for item in items:
                if item is None:
                    form.append(None)
                    self._counts.values -= 1
                else:
                    handler = handlers[type(item)]
                    form.append(item if handler is _KEEP else handler(item))
            self._counts.values += len(form) - bool(form)
            return form

        return handle

    def _temporal_handler(self, columns: Sequence[SourceColumn], rule: ProofRule) -> Handler:
        def handle(value: str) -> Form:
            counts = ValueCounts()
            form = expected_scalar(columns, rule.to_temporal(value), counts)
            if form is NOT_STORED:
                raise _NeedsExactPathError
            self._counts.converted += counts.converted
            return form

        return handle

    def _mask(self, value: Any) -> Form:
        self._counts.converted += 1
        return MASK


def _levels(fields: ColumnsByKey) -> int:
    below = (
        column.dim + (_levels(column.fields) if column.fields else 0)
        for columns in fields.values()
        for column in columns
    )
    return 1 + max(below, default=0)


def _double(value: float) -> Any:
    """Return the form of a short number with a fraction."""
    return value if value % 1 or (not value and copysign(1, value) < 0) else int(value)


def _fraction(value: float) -> Any:
    """Return the form of a short number with a fraction, in a field whose columns tell 7.0 from 7."""
    if not value % 1:
        raise _NeedsExactPathError
    return value


def _integer_bound(column: SourceColumn) -> int:
    """Return a bound; a column holds every integer of a smaller magnitude."""
    if column.type_name in BITS:
        return int(2 ** BITS[column.type_name])
    if column.type_name == "double":
        return EXACT_WHOLE
    return int(10 ** (column.type.precision - column.type.scale)) if isinstance(column.type, DecimalType) else 0


def _integer_handler(bound: int) -> Callable[[int], int]:
    bound = min(bound, 2**63)

    def handle(value: int) -> int:
        if -bound < value < bound:
            return value
        raise _NeedsExactPathError

    return handle
