"""Decoded records to columns: what the decoder let through as it is, and what is routed by hand.

Source: docs/evolution-rules.md#u14
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec

from widen.observe.date_text import parse_temporal
from widen.observe.field_rules import FieldRule
from widen.observe.json_document import InvalidJson, parse_document
from widen.observe.json_number import SURE_CHARS
from widen.observe.kind import RECORD_WORD, Kind
from widen.observe.observation import FieldObservation, RecordObservation, RecordPosition, get_field
from widen.observe.observe_document import observe_value
from widen.routing.native.decoder import has_duplicates
from widen.routing.native.record_shape import (
    FieldLocation,
    MultiColumnField,
    NestedColumn,
    RecordShape,
    RedactedField,
    SingleColumn,
)
from widen.routing.row import Row, route_value

_UNSET = msgspec.UNSET
_plain = msgspec.json.Decoder().decode
_SHAPELESS = re.compile(rb"[\[\]\s,nul]*")
"""An array of everything and nothing: every column of arrays takes it."""

ColumnValues: TypeAlias = Iterable[tuple[str, Any]]
"""Names of columns, each with what it holds of a value."""


@dataclass(slots=True)
class ColumnAssembler:
    """What becomes of one lot of decoded records.

    Args:
        places: Where each record stands.
        seen: What they hold beyond what the columns say; grows.
        refused: The records, by their place in the lot, that only the exact path can tell; grows.
    """

    places: Sequence[RecordPosition]
    seen: RecordObservation = field(default_factory=dict)
    refused: set[int] = field(default_factory=set)

    def columns(self, node: RecordShape, records: Sequence[Any], roots: Sequence[int]) -> dict[str, list[Any]]:
        """Return the values of the columns of one struct: what Arrow takes, or decoded records of the node below.

        Args:
            node: The shape of the records.
            records: As they were decoded.
            roots: For each, the record of the lot that it is a part of.
        """
        fields: list[SingleColumn | RedactedField | MultiColumnField] = [*node.plain, *node.hidden, *node.forked]
        found: dict[str, list[Any]] = {}
        for item, column in zip(fields, _transpose([item.attribute for item in fields], records), strict=True):
            match item:
                case SingleColumn():
                    found[item.name] = [None if value is _UNSET else value for value in column]
                case RedactedField():
                    found |= {name: [_hidden(value, held) for value in column] for name, held in item.row.items()}
                case _:
                    found |= (
                        _columns_by_python_type(item, column) if item.is_decoded else self._by_text(item, column, roots)
                    )
        return found

    def _by_text(self, item: MultiColumnField, column: Sequence[Any], roots: Sequence[int]) -> dict[str, list[Any]]:
        """Return the columns of a field whose values came as texts."""
        texts = [b"null" if value is _UNSET else bytes(value) for value in column]
        plain = _decode_texts(texts)
        if item.is_dated:
            plain = [parse_temporal(value) if type(value) is str else value for value in plain]
        if item.is_required:
            self.refused.update(root for root, text in zip(roots, texts, strict=True) if text == b"null")
        found = _columns_by_python_type(item, plain, texts)
        for at in _uncertain_positions(item, plain, texts, found):
            held = self._held(item, texts[at], roots[at])
            if held is None:
                self.refused.add(roots[at])
            for values in found.values():
                values[at] = None
            for name, value in held or ():
                found[name][at] = value
        return found

    def _held(self, item: MultiColumnField, text: bytes, root: int) -> ColumnValues | None:
        """Return what the columns hold of a value that has no sure way; None if that needs the exact path."""
        is_plain = item.reading.take is FieldRule.AS_IS and not item.reading.maps
        if text[:1] in b"{[" and not _SHAPELESS.fullmatch(text):
            direct = _held_by_nested_columns(item.direct, text)
            if direct is not None or (is_plain and b"{" in text):
                return direct
        value = parse_document(text, sum(1 + dim for _, dim in item.place) + 1)
        if isinstance(value, InvalidJson) or item.is_strict:
            return None
        value = item.reading.value(value)
        observe_value(_field_at(self.seen, item.place, item.key), value, self.places[root])
        row: Row = {}
        route_value(row, item.slots, value)
        return row.items()


def _hidden(value: Any, held: Any) -> Any:
    return None if value is None or value is _UNSET else held


def _transpose(attributes: Sequence[str], records: Sequence[Any]) -> list[Sequence[Any]]:
    if not records:
        return [()] * len(attributes)
    if len(attributes) == 1:
        return [list(map(attrgetter(attributes[0]), records))]
    return list(zip(*map(attrgetter(*attributes), records), strict=True)) if attributes else []


def _decode_texts(texts: Sequence[bytes]) -> Sequence[Any]:
    """Return the plain values of JSON texts; `_UNSET` for what is no UTF-8."""
    try:
        values: Sequence[Any] = _plain(b"[" + b",".join(texts) + b"]")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return list(map(_decode_text, texts))
    return values


def _decode_text(text: bytes) -> Any:
    try:
        return _plain(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _UNSET


def _columns_by_python_type(
    item: MultiColumnField, plain: Sequence[Any], texts: Sequence[bytes] | None = None
) -> dict[str, list[Any]]:
    """Return the columns of a field as far as the Python types of its values tell them."""
    forms = list(map(type, plain))
    there = set(forms)
    found = {}
    for name, ways in item.ways.of.items():
        if there.isdisjoint(ways):
            found[name] = [None] * len(plain)
        elif not any(ways[form] for form in there & ways.keys()):
            found[name] = [value if form in ways else None for value, form in zip(plain, forms, strict=True)]
        else:
            found[name] = [
                None if form not in ways else value if (way := ways[form]) is None else way(value, text)
                for value, form, text in zip(plain, forms, texts or repeat(b""), strict=False)
            ]
    return found


def _uncertain_positions(
    item: MultiColumnField, plain: Sequence[Any], texts: Sequence[bytes], columns: Mapping[str, Sequence[Any]]
) -> set[int]:
    """Return where the values are that their form does not tell.

    These are those without a way, whole numbers out of bounds, fractions that a double may not say, and what the
    column that decides does not hold.
    """
    ways = item.ways
    known = ways.forms | {type(None)}
    found = {at for at, value in enumerate(plain) if type(value) not in known}
    if int in known:
        low, high = -ways.bound, ways.bound
        found |= {at for at, value in enumerate(plain) if type(value) is int and not low <= value < high}
    if float in known and not ways.is_exact:
        both = enumerate(zip(plain, texts, strict=True))
        found |= {at for at, (value, text) in both if type(value) is float and not _is_short(text)}
    for form, name in ways.deciders.items():
        held = columns[name]
        found |= {at for at, value in enumerate(plain) if type(value) is form and held[at] is None}
    return found


def _is_short(text: bytes) -> bool:
    return len(text) <= SURE_CHARS and b"e" not in text and b"E" not in text


def _held_by_nested_columns(columns: Sequence[NestedColumn], text: bytes) -> ColumnValues | None:
    for column in columns:
        try:
            value = column.decoder.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        return None if has_duplicates(text, value) else ((column.name, value),)
    return None


def _field_at(seen: RecordObservation, place: FieldLocation, key: str) -> FieldObservation:
    for above, dim in place:
        field_above = get_field(seen, above)
        field_above.kind(Kind(RECORD_WORD, dim))
        seen = field_above.record(dim)
    return get_field(seen, key)
