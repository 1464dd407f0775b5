"""Records of the source that fit the columns as they are, told without a look at each rule.

What this accepts has the same form that `widen.proof.expected_values` gives; everything else is read there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from math import copysign
from typing import Any, Final, TypeAlias

from widen.model.types import DecimalType
from widen.proof.canonical_number import EXACT_WHOLE
from widen.proof.expected_values import BITS, NOT_HELD, Counts, ExpectedRecord, scalar
from widen.proof.file_values import Told, with_told
from widen.proof.json_reader import MAX_DEPTH, MAX_LEVELS, read_whole_records, refuse, unique
from widen.proof.proof_rules import MASK, ProofRule, dated
from widen.proof.record_digest import Form
from widen.proof.source_columns import RECORD, Cells, Fields, SourceColumn, widest_record

_KEEP: Final = object()
_DROP: Final = object()

Act: TypeAlias = Any
"""`_KEEP`, `_DROP`, or a function that gives the form of a value or raises `_UnsureError`."""

Ways: TypeAlias = dict[type, Act]
"""What becomes of a value, by its Python type; of another type nothing is sure."""

_SURE_CHARS = 16
_MINUS_ZERO = re.compile(rb"-0\s*[,\]}]")


class _UnsureError(Exception):
    """A record needs the exact way."""


class _Every(dict[type, Act]):
    """One act for values of all types."""

    def __missing__(self, kind: type) -> Act:
        return self[object]


class FastReader:
    """Tells the form of records that need no closer look.

    Args:
        expectation: The exact way.
    """

    def __init__(self, expectation: ExpectedRecord) -> None:
        self._counts = Counts()
        self._respelled = 0
        self._hides = expectation.rules.hides
        self._scan = json.JSONDecoder(object_pairs_hook=unique, parse_float=self._float, parse_constant=refuse).decode
        self._ways = self._record_ways(expectation.fields, expectation.rules)
        # Columns of at most MAX_LEVELS take no object below them, so that only the exact path sees one.
        self._max_nested = MAX_DEPTH if _levels(expectation.fields) <= MAX_LEVELS else MAX_LEVELS

    def read(self, text: bytes, of_file: Told = ()) -> tuple[Form, Counts] | None:
        """Return the form of the one record in a text, with its counts; None if the text needs the exact way."""
        if text.count(b"{") + text.count(b"[") > self._max_nested or (b"-0" in text and _MINUS_ZERO.search(text)):
            return None
        counts = self._counts = Counts()
        self._respelled = 0
        try:
            records = read_whole_records(text, self._scan)
            if records is None or len(records) != 1 or text.lstrip()[:1] == b"[":
                return None
            record = with_told(records[0], of_file) if of_file else records[0]
            form = self._record(self._ways, record)
        except (_UnsureError, KeyError):
            return None
        if self._respelled and self._hides:
            return None
        counts.converted += self._respelled
        return form, counts

    def _float(self, token: str) -> Any:
        if len(token) > _SURE_CHARS or "e" in token or "E" in token:
            raise _UnsureError
        number = float(token)
        self._respelled += token[-1] == "0" and token[-2] != "."
        return number

    def _record(self, ways: dict[str, Ways], record: dict[str, Any]) -> Form:
        found = {}
        for key, value in record.items():
            if value is not None:
                act = ways[key][type(value)]
                if act is _KEEP:
                    found[key] = value
                elif act is not _DROP:
                    found[key] = act(value)
        self._counts.values += len(found)
        return found

    # ---- ways, made once --------------------------------------------------------------------------

    def _record_ways(self, fields: Fields, rule: ProofRule) -> dict[str, Ways]:
        keys = fields.keys() | {key for key, below in rule.below.items() if below.is_left_out}
        return {key: self._field_ways(fields.get(key, ()), rule.at(key)) for key in keys}

    def _field_ways(self, cells: Cells, rule: ProofRule) -> Ways:
        if rule.is_left_out:
            return _Every({object: _DROP})
        if rule.is_masked:
            has_text = any(cell.kind == "string" and not cell.dim for cell in cells)
            return _Every({object: self._mask}) if has_text else {}
        if rule.form is not None or rule.maps:
            return {}
        return self._ways_of([(cell, cell.dim) for cell in cells], rule)

    def _ways_of(self, places: Sequence[tuple[SourceColumn, int]], rule: ProofRule) -> Ways:
        bare = [cell for cell, dim in places if not dim]
        kinds = {cell.kind for cell in bare}
        ways: Ways = {}
        if rule.is_dated and kinds != {"string"}:
            ways[str] = self._dated_way(bare)
        elif "string" in kinds:
            ways[str] = _KEEP
        if "boolean" in kinds:
            ways[bool] = _KEEP
        if "double" in kinds:
            ways[float] = _double
        bound = max(map(_bound, bare), default=0)
        if bound:
            ways[int] = _bounded(bound)
        if RECORD in kinds:
            ways[dict] = self._records_way(tuple(cell for cell, _ in places), rule)
        deeper = [(cell, dim - 1) for cell, dim in places if dim]
        if deeper:
            ways[list] = self._items_way(self._ways_of(deeper, rule))
        return ways

    def _records_way(self, cells: Cells, rule: ProofRule) -> Act:
        widest = widest_record(cells)
        assert widest is not None
        assert widest.fields is not None
        ways, reader = self._record_ways(widest.fields, rule), self

        def act(record: dict[str, Any]) -> Form:
            found = reader._record(ways, record)
            reader._counts.values -= bool(found)
            return found

        return act

    def _items_way(self, ways: Ways) -> Act:
        def act(items: list[Any]) -> Form:
            found: list[Any] = []
            for item in items:
                if item is None:
                    found.append(None)
                    self._counts.values -= 1
                else:
                    way = ways[type(item)]
                    found.append(item if way is _KEEP else way(item))
            self._counts.values += len(found) - bool(found)
            return found

        return act

    def _dated_way(self, cells: Sequence[SourceColumn]) -> Act:
        def act(value: str) -> Form:
            counts = Counts()
            form = scalar(cells, dated(value), counts)
            if form is NOT_HELD:
                raise _UnsureError
            self._counts.converted += counts.converted
            return form

        return act

    def _mask(self, value: Any) -> Form:
        self._counts.converted += 1
        return MASK


def _levels(fields: Fields) -> int:
    below = (cell.dim + (_levels(cell.fields) if cell.fields else 0) for cells in fields.values() for cell in cells)
    return 1 + max(below, default=0)


def _double(value: float) -> Any:
    """Return the form of a short number with a fraction."""
    return value if value % 1 or (not value and copysign(1, value) < 0) else int(value)


def _bound(cell: SourceColumn) -> int:
    """Return below which magnitude a column holds every whole number."""
    if cell.kind in BITS:
        return int(2 ** BITS[cell.kind])
    if cell.kind == "double":
        return EXACT_WHOLE
    return int(10 ** (cell.type.precision - cell.type.scale)) if isinstance(cell.type, DecimalType) else 0


def _bounded(bound: int) -> Callable[[int], int]:
    bound = min(bound, 2**63)

    def act(value: int) -> int:
        if -bound < value < bound:
            return value
        raise _UnsureError

    return act
