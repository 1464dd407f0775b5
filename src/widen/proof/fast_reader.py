"""The fast path of the proof for source records that fit the columns as they are.

It gives the form of `widen.proof.expected_values` or leaves the text to the exact path: the fast path must know when it
cannot be exact.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from math import copysign
from typing import Any, Final, TypeAlias

from widen.model.types import DecimalType
from widen.proof.canonical_number import EXACT_WHOLE
from widen.proof.expected_values import BITS, NOT_STORED, ExpectedRecord, ValueCounts, expected_scalar
from widen.proof.file_values import FileValues, add_file_values
from widen.proof.json_reader import MAX_DEPTH, MAX_LEVELS, read_whole_records, reject_constant, reject_duplicate_keys
from widen.proof.proof_rules import MASK, ProofRule
from widen.proof.record_digest import Form
from widen.proof.source_columns import RECORD, ColumnsByKey, FieldColumns, SourceColumn, widest_record_column

_KEEP: Final = object()
_DROP: Final = object()

Handler: TypeAlias = Any
"""`_KEEP`, `_DROP`, or a function that returns the form of a value or raises `_NeedsExactPathError`."""

Handlers: TypeAlias = dict[type, Handler]
"""The handler of each Python type; values of other types need the exact path."""

# A double keeps 15 digits; with the point they are 16 characters.
_SURE_CHARS = 16
_MINUS_ZERO = re.compile(rb"-0\s*[,\]}]")


class _NeedsExactPathError(Exception):
    """The record needs the exact path."""


class _SameHandler(dict[type, Handler]):
    """One handler for values of all types."""

    def __missing__(self, python_type: type) -> Handler:
        return self[object]


class _RecordHandlers(dict[str, Handlers]):
    """The handlers of the fields of a record; those of an excluded field, however its name is capitalized."""

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
        self._has_redaction = expectation.rules.has_redaction
        self._scan = json.JSONDecoder(
            object_pairs_hook=reject_duplicate_keys, parse_float=self._float, parse_constant=reject_constant
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
            form = self._read_record(self._handlers, record)
        # A KeyError is a key without a column, or a value of a type that its columns do not take.
        except (_NeedsExactPathError, KeyError):
            return None
        # A number with another spelling may stand in a field that is masked or excluded, and is not counted there.
        if self._spelling_changes and self._has_redaction:
            return None
        counts.converted += self._spelling_changes
        return form, counts

    def _float(self, token: str) -> Any:
        if len(token) > _SURE_CHARS or "e" in token or "E" in token:
            raise _NeedsExactPathError
        number = float(token)
        self._spelling_changes += token[-1] == "0" and token[-2] != "."
        return number

    def _read_record(self, handlers: dict[str, Handlers], record: dict[str, Any]) -> Form:
        form = {}
        for key, value in record.items():
            if value is not None:
                handle = handlers[key][type(value)]
                if handle is _KEEP:
                    form[key] = value
                elif handle is not _DROP:
                    form[key] = handle(value)
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
            handlers[float] = _double
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
            # The record above counts each of its keys; here its fields count instead, unless there is none.
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


def _integer_bound(column: SourceColumn) -> int:
    """Return the magnitude below which a column holds every integer."""
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
