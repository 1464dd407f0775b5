"""Decoded records as columns: single columns as decoded, and the other fields by routing.

Source: docs/evolution-rules.md#u14
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from decimal import Decimal
from functools import cache
from itertools import repeat
from typing import Any, TypeAlias

import msgspec

from widen.json.document import InvalidJson, parse_document
from widen.json.field_rules import FieldRule
from widen.json.kinds import RECORD_WORD, SURE_CHARS, Kind
from widen.json.observation import FieldObservation, RecordObservation, RecordPosition, get_field, observe_value
from widen.model.value_classes import dataclass
from widen.rows.row import Row, route_value
from widen.rows.shape import (
    FastConversion,
    FieldLocation,
    MultiColumnField,
    NestedColumn,
    RecordShape,
    to_digits,
    to_source_text,
    to_typed_array,
)

_UNSET = msgspec.UNSET
_decode_any = msgspec.json.Decoder().decode
_EMPTY_ARRAYS = re.compile(rb"[\[\]\s,nul]*")
"""Arrays of nothing but nulls and empty arrays. Every array column takes them, so they do not affect the choice."""

_AS_TEXT = (to_digits, to_source_text)

ColumnValues: TypeAlias = Iterable[tuple[str, Any]]
"""Names of columns, each with its cell for one value."""


@dataclass(slots=True)
class ColumnAssembler:
    """Assembles the columns of one chunk of decoded records.

    Args:
        observation: What the records hold beyond the columns; grows.
        rejected: Indexes of the records that need the exact path; grows.
    """

    positions: Sequence[RecordPosition]
    observation: RecordObservation = field(default_factory=dict)
    rejected: set[int] = field(default_factory=set)

    def columns(self, shape: RecordShape, records: Sequence[Any], roots: Sequence[int]) -> dict[str, list[Any]]:
        """Return the values of the columns of one struct: values for Arrow, or decoded records of a nested shape.

        Args:
            roots: For each record, the index of the chunk's record that contains it. Empty if the shape needs no
                routing.

        Returns:
            For each column its values; a value that a record does not have is `msgspec.UNSET`.
        """
        values: dict[str, list[Any]] = {}
        for single in shape.single_columns:
            values[single.name] = _column_reader(single.attribute)(records)
        for redacted in shape.redacted_fields:
            column = _column_reader(redacted.attribute)(records)
            values |= {name: [_redact_value(value, cell) for value in column] for name, cell in redacted.row.items()}
        for item in shape.multi_column_fields:
            column = _column_reader(item.attribute)(records)
            values |= (
                columns_by_python_type(item, column) if item.is_decoded else self._route_texts(item, column, roots)
            )
        return values

    def observe(self, shape: RecordShape, records: Sequence[Any], roots: Sequence[int]) -> None:
        """Observe and reject the same as `columns` and the columns of nested shapes, but make no columns.

        Args:
            roots: For each record, the index of the chunk's record that contains it.
        """
        for single in shape.single_columns:
            if single.shape is not None and single.shape.needs_routing:
                self._observe_nested(single.shape, _column_reader(single.attribute)(records), roots)
        for item in shape.multi_column_fields:
            nested = {name: below for name, below in item.shapes.items() if below.needs_routing}
            if item.is_decoded and not nested:
                continue
            column = _column_reader(item.attribute)(records)
            values = columns_by_python_type(item, column) if item.is_decoded else self._route_texts(item, column, roots)
            for name, below in nested.items():
                self._observe_nested(below, values[name], roots)

    def _observe_nested(self, shape: RecordShape, values: Sequence[Any], roots: Sequence[int]) -> None:
        """Observe the records among values, and in arrays of them."""
        while any(isinstance(value, list) for value in values):
            arrays = [(v if isinstance(v, list) else [v], root) for v, root in zip(values, roots, strict=True)]
            roots = [root for items, root in arrays for _ in items]
            values = [item for items, _ in arrays for item in items]
        places = [at for at, value in enumerate(values) if type(value) is shape.struct]
        self.observe(shape, [values[at] for at in places], [roots[at] for at in places])

    def _route_texts(self, item: MultiColumnField, column: Sequence[Any], roots: Sequence[int]) -> dict[str, list[Any]]:
        """Return the columns of a field whose values came as texts.

        All values are converted by their Python types first, which needs no look at any of them; then the uncertain
        ones are routed one by one.
        """
        texts = [b"null" if value is _UNSET else bytes(value) for value in column]
        decoded, is_exact = _decode_texts(texts)
        if item.has_dates:
            parse = item.rules.parse_temporal
            decoded = [parse(value) if type(value) is str else value for value in decoded]
        bound = item.converter.array_bound
        if bound and list in set(map(type, decoded)):
            pairs = zip(decoded, texts, strict=True)
            decoded = [to_typed_array(value, text, bound) if type(value) is list else value for value, text in pairs]
        if item.is_required:
            # The decoder checks NOT NULL only for values that it decodes; these came as texts.
            self.rejected.update(root for root, text in zip(roots, texts, strict=True) if text == b"null")
        columns = columns_by_python_type(item, decoded, texts)
        for index in _uncertain_positions(item, decoded, texts, columns, is_exact=is_exact):
            # The value is new, or no conversion is certain: it is routed like in the exact path.
            cells = self._route_text(item, texts[index], roots[index])
            if cells is None:
                self.rejected.add(roots[index])
            # The conversion by type may have filled some columns already; only the routing of this value counts.
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
            # Records have fields of their own to observe. Only the exact path does that.
            if nested_columns is not None or (is_plain and b"{" in text):
                return nested_columns
        # The text is a part of a record: the levels above it count towards the depth limit.
        value = parse_document(text, sum(1 + dim for _, dim in item.location) + 1)
        # The exact path also fills the rescue column and checks fixed columns, so it needs the whole record.
        if isinstance(value, InvalidJson) or item.is_strict:
            return None
        value = item.rules.value(value)
        observe_value(_observed_field(self.observation, item.location, item.key), value, self.positions[root])
        row: Row = {}
        route_value(row, item.slots, value)
        return row.items()


@cache
def _column_reader(attribute: str) -> Callable[[Sequence[Any]], list[Any]]:
    """Return a function that reads an attribute of all records.

    Python specializes a comprehension that names the attribute; it takes a third of the time of `operator.attrgetter`.
    """
    reader: Callable[[Sequence[Any]], list[Any]] = eval(f"lambda records: [record.{attribute} for record in records]")
    return reader


def _redact_value(value: Any, cell: Any) -> Any:
    return None if value is None or value is _UNSET else cell


def _decode_texts(texts: Sequence[bytes]) -> tuple[Sequence[Any], bool]:
    """Return the Python values of JSON texts, and whether every number in them equals its text.

    One call decodes all texts as an array. Only if that fails each is decoded alone, and a text that is not UTF-8 is
    `_UNSET`.
    """
    joined = b"[" + b",".join(texts) + b"]"
    try:
        values: Sequence[Any] = _decode_any(joined)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return list(map(_decode_text, texts)), False
    return values, is_encoded(joined, values)


def _decode_text(text: bytes) -> Any:
    try:
        return _decode_any(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return _UNSET


def columns_by_python_type(
    item: MultiColumnField, decoded: Sequence[Any], texts: Sequence[bytes] = ()
) -> dict[str, list[Any]]:
    """Return the columns of a field, where the Python types of its values determine them."""
    python_types = list(map(type, decoded))
    main = max(set(python_types), key=python_types.count, default=type(None))
    others = [index for index, python_type in enumerate(python_types) if python_type is not main]
    return {
        name: _convert_by_type(conversions, decoded, python_types, main, others, texts)
        for name, conversions in item.converter.conversions.items()
    }


def _convert_by_type(
    conversions: Mapping[type, FastConversion | None],
    decoded: Sequence[Any],
    python_types: Sequence[type],
    main: type,
    others: Sequence[int],
    texts: Sequence[bytes],
) -> list[Any]:
    """Return the values of a column: values of some types, converted, and None for the others.

    Args:
        main: The type of most of them: its values are taken all at once.
    """
    conversion = conversions.get(main)
    if main not in conversions:
        column: list[Any] = [None] * len(decoded)
    elif conversion is None:
        column = list(decoded)
    # Texts are taken as they are, without a call for each value. This is the common case of numbers beside strings.
    elif texts and conversion in _AS_TEXT:
        column = list(texts)
    elif conversion is to_digits:
        column = list(map(str, decoded))
    else:
        cells = zip(decoded, python_types, texts or repeat(b""), strict=False)
        column = [conversion(value, text) if python_type is main else None for value, python_type, text in cells]
    for index in others:
        value, python_type = decoded[index], python_types[index]
        conversion = conversions.get(python_type)
        if conversion is not None:
            value = conversion(value, texts[index] if texts else b"")
        column[index] = value if python_type in conversions else None
    return column


def _uncertain_positions(
    item: MultiColumnField,
    decoded: Sequence[Any],
    texts: Sequence[bytes],
    columns: Mapping[str, Sequence[Any]],
    *,
    is_exact: bool,
) -> set[int]:
    """Return the indexes of the values whose Python type does not determine their columns.

    These are values without a conversion, integers out of bounds, fractions that a double may round, -0, and values
    that the deciding column cannot hold.
    """
    converter = item.converter
    present, certain = set(map(type, decoded)), converter.python_types
    uncertain: set[int] = set()
    if not present <= {*certain, type(None)}:
        uncertain |= {index for index, value in enumerate(decoded) if value is not None and type(value) not in certain}
    if int in present and int in certain:
        low, high = -converter.bound, converter.bound
        uncertain |= {index for index, value in enumerate(decoded) if type(value) is int and not low <= value < high}
    if not is_exact and float in present and float in certain and not converter.has_no_doubles:
        pairs = enumerate(zip(decoded, texts, strict=True))
        uncertain |= {index for index, (value, text) in pairs if type(value) is float and not _is_exact(value, text)}
    # The decoder reads -0 as the integer 0.
    if not is_exact and int in present:
        uncertain |= {index for index, text in enumerate(texts) if text == b"-0"}
    for python_type, name in converter.deciders.items():
        if python_type in present:
            column = columns[name]
            uncertain |= {
                index for index, value in enumerate(decoded) if type(value) is python_type and column[index] is None
            }
    return uncertain


def _is_exact(value: float, text: bytes) -> bool:
    is_short = len(text) <= SURE_CHARS and b"e" not in text and b"E" not in text
    return is_short or is_encoded(text, value)


def _decode_nested(columns: Sequence[NestedColumn], text: bytes) -> ColumnValues | None:
    for column in columns:
        try:
            value = column.decoder.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        # The column's decoder would keep the last of two equal keys, or round a number, without an error.
        return None if is_changed(text, value) else ((column.name, value),)
    return None


def _observed_field(observation: RecordObservation, location: FieldLocation, key: str) -> FieldObservation:
    for parent_key, dim in location:
        parent = get_field(observation, parent_key)
        parent.kind(Kind(RECORD_WORD, dim))
        observation = parent.record(dim)
    return get_field(observation, key)


# A decoder built from the columns. It accepts, in one native step, the records that fit the columns as they are.
#
# The values of an accepted record are not read again: the decoder knows every key, and every value is of the kind
# that its column takes. Only fields with several columns, or whose values need a conversion, are routed afterwards.
# A refused record takes the exact path as a whole. Both paths give the same row, so the fast path must know when it
# cannot be exact.
#
# A decoder reads two things without an error that a column cannot keep: the last of two equal keys, and a number
# that a double rounds. It has done neither where the decoded record, encoded again, gives the bytes of the text.
# That is one comparison for many records; only the others are searched for equal keys and for such numbers.


_encode = msgspec.json.Encoder().encode
# A quote after a backslash is part of a string.
_KEY_END = re.compile(rb'(?<!\\)"\s*:')
# The pattern above misses a key that ends with a backslash. The encoder writes an escaped space or colon plainly, so
# the string "\u003a" would look like the end of a key only after encoding, and could make up for a key that is lost.
_UNCOUNTABLE = re.compile(rb'\\\\"|\\u00(?:20|3[aA])')
_NUMBER = re.compile(rb"[:\[,]\s*(-?[0-9][0-9.eE+-]*)")

_SPACES = b" \t\r\n"
# One translation turns each digit and the point into 0, so that a substring search finds long numbers; a
# regular expression takes thirty times as long.
_NUMBER_CHARS = bytes.maketrans(b"123456789.E", b"0000000000e")
# A double holds every number of 15 digits, so no number of up to 15 characters is rounded.
_LONG_NUMBER, _EXPONENT = b"0" * 16, b"0e"
# The decoder reads the integer -0 as 0. These also find -0.5, which the closer look lets pass.
_NEGATIVE_ZEROS = (b":-0", b",-0", b"[-0")


class RecordDecoder:
    """Decodes the records that fit the columns; see the module."""

    def __init__(self, shape: RecordShape) -> None:
        self._decode = msgspec.json.Decoder(shape.struct).decode

    def decode(self, texts: Sequence[bytes]) -> list[Any]:
        """Return the record of each text, or None if the text needs the exact path."""
        decoded_records: list[Any] = []
        for text in texts:
            try:
                decoded_records.append(self._decode(text))
            # DecodeError is not enough: msgspec raises the other two for bytes that are not UTF-8 and for deep nesting.
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                decoded_records.append(None)
        for index in _find_suspects(texts, decoded_records):
            if is_changed(texts[index], decoded_records[index]):
                decoded_records[index] = None
        return decoded_records


def is_changed(text: bytes, decoded: Any) -> bool:
    """Return whether a decoded value may lack something of its text: a duplicate key, or digits of a number.

    The answer ignores parts that are still text (`msgspec.Raw`).
    """
    return not is_encoded(text, decoded) and (_has_duplicates(text, decoded) or (_may_round(text) and _rounds(text)))


def is_encoded(text: bytes, decoded: Any) -> bool:
    """Return whether a value, encoded again, gives its text; spaces between tokens do not count."""
    encoded = _encode(decoded)
    if encoded == text:
        return True
    try:
        return encoded == msgspec.json.format(text, indent=-1)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


def _find_suspects(texts: Sequence[bytes], decoded_records: Sequence[Any]) -> list[int]:
    """Return the indexes of the records that `is_changed` must look at.

    All are compared at once first, since most sources write numbers and strings like the encoder.
    """
    indexes = [index for index, record in enumerate(decoded_records) if record is not None]
    if is_encoded(*_join(texts, decoded_records, indexes)):
        return []
    indexes = [index for index in indexes if not is_encoded(texts[index], decoded_records[index])]
    # Quotes are counted over all records at once, which is wrong only where escapes hide or add quotes; records with
    # escapes are therefore always looked at alone.
    escaped = [index for index in indexes if b"\\" in texts[index]]
    plain = [index for index in indexes if b"\\" not in texts[index]]
    joined, records = _join(texts, decoded_records, plain)
    return indexes if _may_round(joined) or _has_duplicates(joined, records) else escaped


def _join(texts: Sequence[bytes], records: Sequence[Any], indexes: Sequence[int]) -> tuple[bytes, list[Any]]:
    """Return the texts and the records at some indexes, each as one array."""
    # The usual case: no record was refused, so nothing needs to be selected.
    if len(indexes) == len(texts):
        return b"[" + b",".join(texts) + b"]", list(records)
    return b"[" + b",".join([texts[index] for index in indexes]) + b"]", [records[index] for index in indexes]


def _has_duplicates(text: bytes, decoded: Any) -> bool:
    """Return whether an object in a text may have a duplicate key: the text has more quotes than its decoded value.

    If the text has escapes, quotes say nothing, and the keys are counted instead. If a key ends with a backslash, or a
    colon or a space is escaped, the keys cannot be counted, and the answer is yes.
    """
    encoded = _encode(decoded)
    if b"\\" not in text:
        # The decoder keeps the last of two equal keys; the encoded value then lacks at least the quotes of one key.
        return text.count(b'"') != encoded.count(b'"')
    return _UNCOUNTABLE.search(text) is not None or len(_KEY_END.findall(text)) != len(_KEY_END.findall(encoded))


def _may_round(text: bytes) -> bool:
    """Return whether a text may have a number that decoding changes: a long one, one with an exponent, or -0.

    Digits and letters of strings may look like one.
    """
    digits = text.translate(_NUMBER_CHARS)
    if _LONG_NUMBER in digits or _EXPONENT in digits:
        return True
    compact = text.translate(None, _SPACES) if b"-0" in text else b""
    return any(sign in compact for sign in _NEGATIVE_ZEROS)


def _rounds(text: bytes) -> bool:
    """Return whether decoding changes any number of a text."""
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
