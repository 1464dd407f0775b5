"""Decoded records as columns: single columns as decoded, and the other fields by routing.

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
_decode_any = msgspec.json.Decoder().decode
_EMPTY_ARRAYS = re.compile(rb"[\[\]\s,nul]*")
"""Arrays of nothing but nulls and empty arrays. Every array column takes them, so none of them decides."""

ColumnValues: TypeAlias = Iterable[tuple[str, Any]]
"""Names of columns, each with its cell for one value."""


@dataclass(slots=True)
class ColumnAssembler:
    """Assembles the columns of one chunk of decoded records.

    Args:
        positions: File and number of each record.
        observation: What the records hold beyond the columns; grows.
        rejected: Indexes of the records that need the exact path; grows.
    """

    positions: Sequence[RecordPosition]
    observation: RecordObservation = field(default_factory=dict)
    rejected: set[int] = field(default_factory=set)

    def columns(self, shape: RecordShape, records: Sequence[Any], roots: Sequence[int]) -> dict[str, list[Any]]:
        """Return the values of the columns of one struct: values for Arrow, or decoded records of a nested shape.

        Args:
            shape: Shape of the records.
            records: The decoded records.
            roots: For each, the index of the record in the chunk that it is a part of.
        """
        fields: list[SingleColumn | RedactedField | MultiColumnField] = [
            *shape.single_columns,
            *shape.redacted_fields,
            *shape.multi_column_fields,
        ]
        values: dict[str, list[Any]] = {}
        for item, column in zip(fields, _transpose([item.attribute for item in fields], records), strict=True):
            match item:
                case SingleColumn():
                    values[item.name] = [None if value is _UNSET else value for value in column]
                case RedactedField():
                    values |= {name: [_redacted(value, cell) for value in column] for name, cell in item.row.items()}
                case _:
                    values |= (
                        _columns_by_python_type(item, column)
                        if item.is_decoded
                        else self._route_texts(item, column, roots)
                    )
        return values

    def _route_texts(self, item: MultiColumnField, column: Sequence[Any], roots: Sequence[int]) -> dict[str, list[Any]]:
        """Return the columns of a field whose values came as texts.

        All values are converted by their Python types first, which needs no look at any of them; then the uncertain
        ones are routed one by one.
        """
        texts = [b"null" if value is _UNSET else bytes(value) for value in column]
        decoded = _decode_texts(texts)
        if item.has_dates:
            decoded = [parse_temporal(value) if type(value) is str else value for value in decoded]
        if item.is_required:
            self.rejected.update(root for root, text in zip(roots, texts, strict=True) if text == b"null")
        columns = _columns_by_python_type(item, decoded, texts)
        for index in _uncertain_positions(item, decoded, texts, columns):
            # The value is new, or no conversion is certain: it is routed like in the exact path.
            cells = self._route_text(item, texts[index], roots[index])
            if cells is None:
                self.rejected.add(roots[index])
            for values in columns.values():
                values[index] = None
            for name, value in cells or ():
                columns[name][index] = value
        return columns

    def _route_text(self, item: MultiColumnField, text: bytes, root: int) -> ColumnValues | None:
        """Return the cells of a value without a certain conversion, or None if its record needs the exact path."""
        is_plain = item.rules.take is FieldRule.AS_IS and not item.rules.maps
        if text[:1] in b"{[" and not _EMPTY_ARRAYS.fullmatch(text):
            nested_columns = _decode_nested(item.nested_columns, text)
            if nested_columns is not None or (is_plain and b"{" in text):
                return nested_columns
        value = parse_document(text, sum(1 + dim for _, dim in item.location) + 1)
        if isinstance(value, InvalidJson) or item.is_strict:
            return None
        value = item.rules.value(value)
        observe_value(_observed_field(self.observation, item.location, item.key), value, self.positions[root])
        row: Row = {}
        route_value(row, item.slots, value)
        return row.items()


def _redacted(value: Any, cell: Any) -> Any:
    return None if value is None or value is _UNSET else cell


def _transpose(attributes: Sequence[str], records: Sequence[Any]) -> list[Sequence[Any]]:
    if not records:
        return [()] * len(attributes)
    if len(attributes) == 1:
        return [list(map(attrgetter(attributes[0]), records))]
    return list(zip(*map(attrgetter(*attributes), records), strict=True)) if attributes else []


def _decode_texts(texts: Sequence[bytes]) -> Sequence[Any]:
    """Return the Python values of JSON texts; `_UNSET` for a text that is not UTF-8.

    One call decodes all texts as an array; each is decoded alone only if that fails.
    """
    try:
        values: Sequence[Any] = _decode_any(b"[" + b",".join(texts) + b"]")
    except (msgspec.DecodeError, UnicodeDecodeError):
        return list(map(_decode_text, texts))
    return values


def _decode_text(text: bytes) -> Any:
    try:
        return _decode_any(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _UNSET


def _columns_by_python_type(
    item: MultiColumnField, decoded: Sequence[Any], texts: Sequence[bytes] | None = None
) -> dict[str, list[Any]]:
    """Return the columns of a field as far as the Python types of its values determine them."""
    python_types = list(map(type, decoded))
    present = set(python_types)
    columns = {}
    for name, conversions in item.converter.conversions.items():
        if present.isdisjoint(conversions):
            columns[name] = [None] * len(decoded)
        elif not any(conversions[python_type] for python_type in present & conversions.keys()):
            columns[name] = [
                value if python_type in conversions else None
                for value, python_type in zip(decoded, python_types, strict=True)
            ]
        else:
            columns[name] = [
                None
                if python_type not in conversions
                else value
                if (conversion := conversions[python_type]) is None
                else conversion(value, text)
                for value, python_type, text in zip(decoded, python_types, texts or repeat(b""), strict=False)
            ]
    return columns


def _uncertain_positions(
    item: MultiColumnField, decoded: Sequence[Any], texts: Sequence[bytes], columns: Mapping[str, Sequence[Any]]
) -> set[int]:
    """Return the indexes of the values whose Python type does not determine their columns.

    These are values without a conversion, integers out of bounds, fractions that a double may round, and values that
    the deciding column cannot hold.
    """
    converter = item.converter
    certain_types = converter.python_types | {type(None)}
    uncertain = {index for index, value in enumerate(decoded) if type(value) not in certain_types}
    if int in certain_types:
        low, high = -converter.bound, converter.bound
        uncertain |= {index for index, value in enumerate(decoded) if type(value) is int and not low <= value < high}
    if float in certain_types and not converter.has_no_doubles:
        both = enumerate(zip(decoded, texts, strict=True))
        uncertain |= {index for index, (value, text) in both if type(value) is float and not _is_short(text)}
    for python_type, name in converter.deciders.items():
        column = columns[name]
        uncertain |= {
            index for index, value in enumerate(decoded) if type(value) is python_type and column[index] is None
        }
    return uncertain


def _is_short(text: bytes) -> bool:
    return len(text) <= SURE_CHARS and b"e" not in text and b"E" not in text


def _decode_nested(columns: Sequence[NestedColumn], text: bytes) -> ColumnValues | None:
    for column in columns:
        try:
            value = column.decoder.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        return None if has_duplicates(text, value) else ((column.name, value),)
    return None


def _observed_field(observation: RecordObservation, location: FieldLocation, key: str) -> FieldObservation:
    for parent_key, dim in location:
        parent = get_field(observation, parent_key)
        parent.kind(Kind(RECORD_WORD, dim))
        observation = parent.record(dim)
    return get_field(observation, key)
