"""How the source writes its records: the order of keys, the separators, and which keys every record has.

The proof encodes forms in this layout. A text that matches the pattern of the layout then is its own encoded form:
nothing has to be parsed, and the row must give back exactly this text. All other texts are parsed.

Source: docs/evolution-rules.md#proof
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from widen.model.types import DecimalType
from widen.proof.expected_values import BITS
from widen.proof.json_reader import Json, read_records
from widen.proof.record_digest import Form, encode_form
from widen.proof.source_columns import RECORD, ColumnsByKey, FieldColumns, SourceColumn, widest_record_column

Pattern: TypeAlias = "re.Pattern[bytes]"

MAX_KEYS = 300
"""Maximum number of keys in a pattern. A longer one takes too long to compile."""


@dataclass(slots=True)
class KeyOrder:
    """The keys of the records at one path, in their order.

    Args:
        keys: Whether each key is always written: as null where it has no value.
        below: The orders of the records below the keys, in arrays or not.
    """

    keys: dict[str, bool] = field(default_factory=dict)
    below: dict[str, KeyOrder] = field(default_factory=dict)

    def order(self, more: Iterable[str]) -> list[str]:
        """Return the keys in their order, and after them other keys, sorted."""
        return [*self.keys, *sorted(key for key in more if key not in self.keys)]


NO_ORDER = KeyOrder()


@dataclass(frozen=True, slots=True)
class RecordLayout:
    """How the source writes its records.

    Args:
        item_separator: Text between the items of a container.
        key_separator: Text between a key and its value.
        has_sample: Whether any record showed it. If not, forms are encoded with sorted keys.
    """

    root: KeyOrder = field(default_factory=KeyOrder)
    item_separator: str = ","
    key_separator: str = ":"
    has_sample: bool = False

    def encode(self, form: Form) -> bytes:
        """Return a form as JSON in this layout; only equal forms have equal bytes."""
        return self.encode_at(form, self.root).encode() if self.has_sample else encode_form(form)

    def encode_at(self, form: Form, order: KeyOrder) -> str:
        """Return a form as JSON, given the order of the keys at its path."""
        if isinstance(form, dict):
            fields = (self._encode_field(key, form, order) for key in order.order(form))
            return "{" + self.item_separator.join(text for text in fields if text) + "}"
        if isinstance(form, list):
            return "[" + self.item_separator.join(self.encode_at(item, order) for item in form) + "]"
        return encode_form(form).decode()

    def _encode_field(self, key: str, form: Mapping[str, Form], order: KeyOrder) -> str:
        if key not in form:
            return f"{self.key_text(key)}null" if order.keys[key] else ""
        return self.key_text(key) + self.encode_at(form[key], order.below.get(key, NO_ORDER))

    def key_text(self, key: str) -> str:
        """Return a key with the separator after it."""
        return encode_form(key).decode() + self.key_separator


def learn_layout(texts: Sequence[bytes]) -> RecordLayout:
    """Return the layout of the records in a sample of the texts of a source.

    It must not be used where objects are maps: it does not tell a missing key from a null.

    Args:
        texts: The sample. Texts that are not a record are ignored.
    """
    records = [each[0] for text in texts if text[:1] == b"{" and (each := read_records(text)) and len(each) == 1]
    if not records:
        return RecordLayout()
    is_spaced = 2 * sum(text.count(b'": ') for text in texts) > sum(text.count(b'":') for text in texts)
    items, keys = (", ", ": ") if is_spaced else (",", ":")
    return RecordLayout(_learn_order(records), items, keys, has_sample=True)


def _learn_order(records: Sequence[Mapping[str, Json]]) -> KeyOrder:
    keys: list[str] = []
    for record in records:
        at = 0
        for key in record:
            if key not in keys:
                keys.insert(at, key)
            at = keys.index(key) + 1
        if len(keys) > MAX_KEYS:
            return KeyOrder()
    below = {
        key: _learn_order(inner) for key in keys if (inner := [*_inner_records(record.get(key) for record in records)])
    }
    return KeyOrder({key: all(key in record for record in records) for key in keys}, below)


def _inner_records(values: Iterable[Json]) -> Iterable[Mapping[str, Json]]:
    for value in values:
        if isinstance(value, dict):
            yield value
        elif isinstance(value, list):
            yield from _inner_records(value)


# ---- patterns --------------------------------------------------------------------------------------

_STRING = rb'"[^"\\\x00-\x1f]*"'
_FRACTION = rb"-?(?:[1-9](?:[0-9]{0,2}\.[0-9]{0,11}|[0-9]{3,8}\.[0-9]{0,5})[1-9]|0\.(?!0000)[0-9]{0,12}[1-9])"
"""Numbers of at most 15 digits that Python and Arrow write like this: without exponent or zeros at the end."""

_ZERO_FRACTIONS = rb"-?[1-9][0-9]{0,8}\.0|0\.0"
_ZERO_FRACTION = re.compile(rb"\.0(?=[,}\]])")
_NEVER = rb"(?!)"
_PLAIN_KEY = re.compile(r'[^"\\\x00-\x1f]*')
_DOUBLE_DIGITS = 9
_LONG_DIGITS = 18


class LayoutMatcher:
    """Finds the texts that are their own encoded form."""

    def __init__(self, fields: ColumnsByKey, layout: RecordLayout) -> None:
        self._layout, self._keys = layout, 0
        self._between = re.escape(layout.item_separator.encode())
        pattern = self._record(fields, layout.root) if layout.has_sample else _NEVER
        self._match = re.compile(pattern if self._keys <= MAX_KEYS else _NEVER).fullmatch

    def match(self, text: bytes) -> bytes | None:
        """Return the encoded form of the record in a text, or None if the text has to be parsed."""
        if self._match(text) is None or not (text.isascii() or _is_utf8(text)):
            return None
        return _without_zero_fractions(text) if b".0" in text and _ZERO_FRACTION.search(text) else text

    def _record(self, fields: ColumnsByKey, order: KeyOrder) -> bytes:
        if self._keys > MAX_KEYS:
            return _NEVER
        required = [key for key, is_required in order.keys.items() if is_required]
        parts, is_first = [], bool(required)
        for key in order.order(fields):
            field = self._field(key, fields.get(key, ()), order)
            if field is None:
                if order.keys.get(key):
                    return _NEVER
                continue
            if not required:
                parts.append(rb"(?:(?:(?<=\{)|%s)%s)?" % (self._between, field))
            elif is_first:
                is_first = key != required[0]
                parts.append(rb"(?:%s%s)?" % (field, self._between) if is_first else field)
            else:
                parts.append((rb"%s%s" if order.keys.get(key) else rb"(?:%s%s)?") % (self._between, field))
        return rb"\{" + b"".join(parts) + rb"\}"

    def _field(self, key: str, columns: FieldColumns, order: KeyOrder) -> bytes | None:
        if not _PLAIN_KEY.fullmatch(key):
            return None
        self._keys += 1
        values = self._values([(column, column.dim) for column in columns], order.below.get(key, NO_ORDER))
        if order.keys.get(key):
            values.append(rb"null")
        return re.escape(self._layout.key_text(key).encode()) + rb"(?:%s)" % b"|".join(values) if values else None

    def _values(self, columns: Sequence[tuple[SourceColumn, int]], order: KeyOrder) -> list[bytes]:
        scalars = [column for column, dim in columns if not dim]
        type_names = {column.type_name for column in scalars}
        values = [_STRING] if "string" in type_names else []
        if "boolean" in type_names:
            values.append(rb"true|false")
        if "double" in type_names:
            values += [_FRACTION, _ZERO_FRACTIONS]
        digits = max(map(_sure_digits, scalars), default=0)
        if digits:
            values.append(rb"-?[1-9][0-9]{0,%d}|0" % (digits - 1))
        if RECORD in type_names:
            widest = widest_record_column(tuple(column for column, _ in columns))
            assert widest is not None
            values.append(self._record(widest.fields or {}, order))
        inner = [(column, dim - 1) for column, dim in columns if dim]
        if inner:
            item = b"|".join([*self._values(inner, order), rb"null"])
            values.append(rb"\[(?:(?:(?<=\[)|%s)(?:%s))*\]" % (self._between, item))
        return values


def _without_zero_fractions(text: bytes) -> bytes:
    """Return a text without escapes with numbers like 5.0 as 5, which is the same number (D3)."""
    parts = text.split(b'"')
    # Every other part is inside a string.
    parts[::2] = [_ZERO_FRACTION.sub(b"", part) if b".0" in part else part for part in parts[::2]]
    return b'"'.join(parts)


def _is_utf8(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _sure_digits(column: SourceColumn) -> int:
    """Return the number of digits up to which a column holds every integer."""
    if column.type_name in BITS:
        return len(str(2 ** BITS[column.type_name])) - 1
    if isinstance(column.type, DecimalType):
        return min(column.type.precision - column.type.scale, _LONG_DIGITS)
    return _DOUBLE_DIGITS if column.type_name == "double" else 0
