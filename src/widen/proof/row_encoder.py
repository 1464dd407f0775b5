"""The rows of a table as encoded forms, made in Arrow column by column.

A row has the bytes that `encode_form` makes of its form. Values that Arrow may encode in other bytes, and
fields with several columns that do not plainly agree, go through `widen.proof.row_reader`, in their rows only.

Source: docs/evolution-rules.md#u1, #u14, #proof
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import reduce
from itertools import repeat
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from widen.evolution.policy import Policy
from widen.model.types import DecimalType, StructType
from widen.model.value_classes import dataclass
from widen.proof.canonical import EXTENSION_MARK, EncodedRecord, Form, count_values, encode_form
from widen.proof.expected_values import BITS, has_marks
from widen.proof.field_places import stands_alone
from widen.proof.json_reader import Json, read_records
from widen.proof.row_reader import SCALAR_READERS, RowReader, read_field, read_maps
from widen.proof.rules import (
    MAP,
    RECORD,
    ColumnsByKey,
    FieldColumns,
    ProofRule,
    SourceColumn,
    build_proof_rules,
    read_defaults,
    source_columns_by_key,
    widest_record_column,
)
from widen.schema.source_metadata import CORRUPT, RESCUED, role_of

MAX_BYTES = 2**28
"""Maximum number of bytes of rows that are encoded at once; the texts of an Arrow array have at most 2 GB."""

Texts: TypeAlias = pa.StringArray
"""Encoded forms; null where there is no value."""


class Encoded(NamedTuple):
    """The values of a column.

    Args:
        pieces: The parts of their encoded forms, in order: constants and arrays without nulls, which are joined only
            once for a whole row; or a single array, which is null where there is no value.
        counts: The number of values in each; 0 without values.
    """

    pieces: Sequence[Any]
    counts: pa.Int64Array

    @property
    def has_nulls(self) -> bool:
        """Whether a value is missing."""
        [first, *more] = self.pieces
        return not more and not isinstance(first, str) and bool(first.null_count)

    def to_texts(self) -> Texts:
        """Return the encoded forms."""
        if all(isinstance(piece, str) for piece in self.pieces):
            return _repeat("".join(self.pieces), len(self.counts))
        return _join(*self.pieces) if len(self.pieces) > 1 else self.pieces[0]


class RowEncoder:
    """Encodes the rows of one table."""

    def __init__(self, schema: StructType, policy: Policy, layout: RecordLayout) -> None:
        self._fields, self._layout = source_columns_by_key(schema, policy), layout
        self._reader, self._rule = RowReader(schema, policy), build_proof_rules(schema, policy)
        self._unchecked = read_defaults(schema).keys()
        self._special = [position for position, field in enumerate(schema) if role_of(field) in (RESCUED, CORRUPT)]

    def encode(self, rows: pa.StructArray) -> Iterator[EncodedRecord]:
        """Yield the encoded form of each row, and the number of its values."""
        # Encoding multiplies the bytes, and one Arrow array of texts holds at most 2 GB.
        if rows.nbytes > MAX_BYTES and len(rows) > 1:
            middle = len(rows) // 2
            yield from self.encode(rows[:middle])
            yield from self.encode(rows[middle:])
            return
        arrays = rows.flatten()
        encoded = self._records(self._fields, arrays, len(rows), self._layout.root, self._rule)
        special = [arrays[position].is_valid() for position in self._special]
        if special:
            mask = reduce(pc.or_, special)
            encoded = self._replace(encoded, mask, lambda: self._reader.forms(rows.filter(mask)), self._layout.root)
        yield from zip(encoded.to_texts().cast(pa.binary()).to_pylist(), encoded.counts.to_pylist(), repeat(0))

    def _replace(
        self, encoded: Encoded, mask: pa.BooleanArray, read: Callable[[], list[Form] | None], order: KeyOrder
    ) -> Encoded:
        """Return values with other forms where a mask is true."""
        if not mask.true_count:
            return encoded
        forms = read() or [None] * mask.true_count
        texts = [None if form is None else self._layout.encode_at(form, order) for form in forms]
        counts = pa.array(map(count_values, forms), pa.int64())
        return Encoded(
            [pc.replace_with_mask(encoded.to_texts(), mask, pa.array(texts, pa.string()))],
            pc.replace_with_mask(encoded.counts, mask, counts),
        )

    def _records(
        self, fields: ColumnsByKey, arrays: Sequence[pa.Array], rows: int, order: KeyOrder, rule: ProofRule
    ) -> Encoded:
        is_row = order is self._layout.root
        counts, has_value = pa.repeat(0, rows), pa.repeat(False, rows)
        parts: list[Encoded] = []
        for key in order.order(fields):
            own = None if is_row and key in self._unchecked else rule.rule_of(key)
            field = self._field(fields.get(key, ()), arrays, order.below.get(key, NO_ORDER), own)
            is_required = order.keys.get(key, False)
            if field is not None:
                counts = pc.add(counts, field.counts)
                has_value = pc.or_(has_value, field.pieces[0].is_valid()) if field.has_nulls else pa.repeat(True, rows)
            elif is_required:
                field = Encoded(["null"], pa.repeat(0, rows))
            if field is not None:
                parts.append(_with_key(self._layout.key_text(key), field, is_required=is_required))
        # An empty record in a row is one value.
        counts = pc.if_else(has_value, counts, 1) if has_value.false_count and not is_row else counts
        return Encoded(["{", *_join_fields(parts, self._layout.item_separator), "}"], counts)

    def _field(
        self, columns: FieldColumns, arrays: Sequence[pa.Array], order: KeyOrder, rule: ProofRule | None
    ) -> Encoded | None:
        """Return the value of a field in each row, or None if all its columns are null."""
        present = [column for column in columns if arrays[column.position].null_count < len(arrays[column.position])]
        # Columns that are null in every row of the batch are the rule in a table that has evolved; they cost nothing
        # here.
        encoded = [self._column(column, arrays[column.position], column.dim, order, rule) for column in present]
        if len(encoded) < 1 or len(columns) < 2:
            return encoded[0] if encoded else None
        # Usually one column of a field has the value. If several have one, they must agree, like a number and its text.
        # Rows that may disagree, or lack a value in a column, are read one by one by the exact reader.
        texts = [each.to_texts() for each in encoded]
        text = pc.coalesce(*texts)
        first = Encoded([text], reduce(pc.max_element_wise, (each.counts for each in encoded)))
        values = [arrays[column.position] for column in present]
        if any(column.dim or column.type_name in (RECORD, MAP) for column in present):
            agrees = _is_alone(texts)
        else:
            agrees = reduce(pc.and_, (_is_same(*each, text) for each in zip(present, values, texts, strict=True)))
        if rule is not None:
            agrees = pc.and_(agrees, _has_places(columns, present, texts, text, rule))
        mask = pc.invert(agrees)
        positions, nothing = {column.position for column in columns}, pa.nulls(0)

        def read() -> list[Form] | None:
            filtered = (array.filter(mask) if at in positions else nothing for at, array in enumerate(arrays))
            return read_field(columns, list(filtered), rule)

        return self._replace(first, mask, read, order)

    def _column(
        self, column: SourceColumn, values: pa.Array, dim: int, order: KeyOrder, rule: ProofRule | None
    ) -> Encoded:
        if dim:
            return self._lists(values, self._column(column, values.flatten(), dim - 1, order, rule))
        if column.fields is not None:
            below = rule or ProofRule()
            return _where_valid(values, self._records(column.fields, values.flatten(), len(values), order, below))
        if (inner := column.value) is not None:
            nothing = Encoded([pa.nulls(len(values), pa.string())], pa.repeat(0, len(values)))
            mask = pa.repeat(True, len(values))
            return self._replace(nothing, mask, lambda: read_maps(inner, values, rule), order)
        encode = _SCALAR_ENCODERS.get(column.type_name, _encode_nothing)
        texts, is_sure = encode(values)
        quote = '"' if column.type_name in _QUOTED else ""
        pieces = [texts] if not quote else [_join(quote, texts, quote)] if texts.null_count else [quote, texts, quote]
        encoded = Encoded(pieces, values.is_valid().cast(pa.int64()))
        if is_sure is None:
            return encoded
        mask = pc.invert(is_sure).fill_null(False)
        return self._replace(encoded, mask, lambda: SCALAR_READERS[column.type_name](values.filter(mask)), order)

    def _lists(self, lists: pa.ListArray, items: Encoded) -> Encoded:
        lengths = pc.list_value_length(lists).fill_null(0).cast(pa.int32())
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
        groups = pa.ListArray.from_arrays(offsets, items.to_texts().fill_null("null"))
        sums = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(items.counts)]).take(offsets)
        counts = pc.if_else(pc.equal(lengths, 0), 1, pc.subtract(sums[1:], sums[:-1]))
        texts = pc.binary_join(groups, self._layout.item_separator)
        return _where_valid(lists, Encoded(["[", texts, "]"], counts))


def _with_key(key: str, field: Encoded, *, is_required: bool) -> Encoded:
    """Return a field with its key; if it is required, with the key of a null as well."""
    if not field.has_nulls:
        return Encoded([key, *field.pieces], field.counts)
    [texts] = field.pieces
    return Encoded([key, texts.fill_null("null")] if is_required else [_join(key, texts)], field.counts)


def _join_fields(fields: Sequence[Encoded], separator: str) -> Iterator[Any]:
    """Yield the pieces of records."""
    if fields and fields[0].has_nulls:
        texts = [each.to_texts() for each in fields]
        if all(each.has_nulls for each in fields):
            # Arrow leaves out rows that have null for every text.
            is_empty = reduce(pc.and_, (each.is_null() for each in texts))
            texts[0] = pc.if_else(is_empty, "", texts[0])
        yield pc.binary_join_element_wise(*texts, separator, null_handling="skip")
        return
    for number, each in enumerate(fields):
        prefix = separator if number else ""
        if each.has_nulls:
            yield _join(prefix, each.pieces[0]).fill_null("")
        else:
            yield from (prefix, *each.pieces)


def _join(*parts: Any) -> Texts:
    return pc.binary_join_element_wise(*parts, "")


def _repeat(text: str, rows: int) -> Texts:
    return pa.repeat(pa.scalar(text, pa.string()), rows)


def _where_valid(values: pa.Array, encoded: Encoded) -> Encoded:
    if not values.null_count:
        return encoded
    is_valid = values.is_valid()
    return Encoded([pc.if_else(is_valid, encoded.to_texts(), None)], pc.if_else(is_valid, encoded.counts, 0))


def _is_alone(texts: Sequence[Texts]) -> pa.BooleanArray:
    """Tell for each row whether at most one column has a value."""
    return pc.less_equal(reduce(pc.add, (each.is_valid().cast(pa.int32()) for each in texts)), 1)


def _has_places(
    columns: FieldColumns, present: Sequence[SourceColumn], texts: Sequence[Texts], first: Texts, rule: ProofRule
) -> pa.BooleanArray:
    """Tell for each row whether the columns of a field that are null in it are known to hold nothing of its value.

    Args:
        texts: The encoded values of the columns that are not null in every row.
        first: The first of them in each row.
    """
    others = [(column, column.dim) for column in columns]
    by_name = {column.name: text.is_valid() for column, text in zip(present, texts, strict=True)}
    valid = [by_name.get(column.name, pa.scalar(False)) for column in columns]
    nothing = pa.repeat(False, len(first))
    # All columns have the value, or the only one that may have it.
    result = pc.or_(first.is_null(), reduce(pc.and_, valid, pc.invert(nothing)))
    alone = [column for column in present if stands_alone(column, column.dim, others, rule)]
    if alone:
        result = pc.or_(result, pc.and_(reduce(pc.or_, (by_name[each.name] for each in alone)), _is_alone(texts)))
    if any(column.dim or column.type_name not in _PLAIN_TYPES for column in columns):
        return result
    # A number with a fraction is in all columns but integers and booleans, and a boolean in no number.
    is_fraction = pc.match_substring_regex(first, r"^-?[0-9]+\.[0-9]*[1-9]$").fill_null(False)
    is_boolean = pc.is_in(first, value_set=pa.array(["true", "false"]))
    if any(column.has_booleans_as_numbers for column in columns):
        is_boolean = nothing
    is_integer = pc.match_substring_regex(first, "^-?[0-9]{1,9}$").fill_null(False)
    for is_kind, types in (
        (is_fraction, _FRACTIONS),
        (is_boolean, _BOOLEANS),
        (is_integer, _PLAIN_TYPES - {"boolean"}),
    ):
        wanted = (
            flag if column.type_name in types else pc.invert(flag) for column, flag in zip(columns, valid, strict=True)
        )
        result = pc.or_(result, reduce(pc.and_, wanted, is_kind))
    return result


_FRACTIONS, _BOOLEANS = frozenset({"double", "string"}), frozenset({"boolean", "string"})
_PLAIN_TYPES = frozenset({"boolean", "integer", "long", "double", "string"})


def _is_same(column: SourceColumn, values: pa.Array, texts: Texts, first: Texts) -> pa.BooleanArray:
    """Tell for each row whether a column is null, has the value of the field, or, as a string, the text of it."""
    same = pc.equal(texts, first)
    if column.type_name == "string":
        # The mark of an extension belongs to no number or boolean.
        is_text = pc.and_(pc.equal(values, first), pc.invert(pc.starts_with(first, EXTENSION_MARK)))
        same = pc.or_(same, is_text)
    return same.fill_null(True)


# ---- scalars ---------------------------------------------------------------------------------------

ScalarTexts: TypeAlias = tuple[Texts, "pa.BooleanArray | None"]
"""Texts of scalars without quotes, and which of them are known to equal the output of `encode_form`; None for all."""

_ESCAPED, _ESCAPED_BYTES = r'["\\\x00-\x1f]', b'"\\' + bytes(range(32))
_SURE_CHARS = 15
"""Up to this many characters, the digits of a decimal are the shortest text of a double, or of an integer."""


def _encode_nothing(values: pa.Array) -> ScalarTexts:
    return pa.nulls(len(values), pa.string()), values.is_null()


def _encode_as_text(values: pa.Array) -> ScalarTexts:
    return values.cast(pa.string()), None


def _encode_strings(values: pa.Array) -> ScalarTexts:
    return values, pc.invert(pc.match_substring_regex(values, _ESCAPED)) if _may_have_escapes(values) else None


def _may_have_escapes(values: pa.StringArray) -> bool:
    # One look at all bytes of the array is faster than a regular expression on each text, and most arrays have no
    # escape.
    _, offsets, data = values.buffers()
    if data is None or not len(values):
        return False
    ends = memoryview(offsets).cast("i")
    text = bytes(data[ends[values.offset] : ends[values.offset + len(values)]])
    return len(text.translate(None, _ESCAPED_BYTES)) < len(text)


def _encode_doubles(values: pa.Array) -> ScalarTexts:
    """Return the shortest digits; Arrow writes them like JSON where they need no exponent. Zero may have a sign."""
    # Beyond these bounds Arrow and JSON write exponents differently, so the exact reader encodes those numbers.
    size = pc.abs(values)
    least = pc.if_else(pc.equal(values, pc.trunc(values)), 1.0, 1e-4)
    return values.cast(pa.string()), pc.and_(pc.less(size, 1e10), pc.greater_equal(size, least))


def _encode_decimals(values: pa.Array) -> ScalarTexts:
    texts = values.cast(pa.string())
    if values.type.scale > 0:
        # A decimal(9, 2) writes 1.50 where the source had 1.5: the form has the digits without zeros at the end.
        texts = pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), ".")
    # With an exponent on either side the texts may differ, so the exact reader encodes those numbers.
    is_small = pc.match_substring(texts, "0.000")
    is_plain = pc.invert(pc.or_(is_small, pc.match_substring(texts, "E")))
    return texts, pc.and_(is_plain, pc.less_equal(pc.binary_length(texts), _SURE_CHARS))


def _encode_dates(values: pa.Array) -> ScalarTexts:
    return values.cast(pa.string()), None


def _encode_timestamps(values: pa.Array) -> ScalarTexts:
    return _join(_local_times(values), "Z"), None


def _encode_local_times(values: pa.Array) -> ScalarTexts:
    return _local_times(values), None


def _local_times(values: pa.Array) -> Texts:
    # Through an integer: Arrow would look up the zone to write a time with one, and add it to the text.
    micros = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64()).cast(pa.timestamp("us"))
    texts = pc.utf8_rtrim(pc.utf8_rtrim(micros.cast(pa.string()), "0"), ".")
    return pc.replace_substring(texts, " ", "T")


_SCALAR_ENCODERS: Mapping[str, Callable[[pa.Array], ScalarTexts]] = MappingProxyType(
    {
        **dict.fromkeys(("boolean", "byte", "short", "integer", "long"), _encode_as_text),
        "string": _encode_strings,
        "double": _encode_doubles,
        "decimal": _encode_decimals,
        "date": _encode_dates,
        "timestamp": _encode_timestamps,
        "timestamp_ntz": _encode_local_times,
    }
)
"""The types whose values Arrow encodes; the values of others are read one by one."""

_QUOTED = frozenset({"string", "date", "timestamp", "timestamp_ntz"})
"""The types whose texts are in quotes."""


# How the source writes its records: the order of keys, the separators, and which keys every record has.
#
# The proof encodes forms in this layout. A text that matches the pattern of the layout then is its own encoded
# form: nothing has to be parsed, and the row must give back exactly this text. All other texts are parsed.
#
# Source: docs/evolution-rules.md#proof


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
            values += [_FRACTION] if has_marks([column for column, _ in columns]) else [_FRACTION, _ZERO_FRACTIONS]
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
    """Return the number of digits of the integers that a column always holds."""
    if column.type_name in BITS:
        return len(str(2 ** BITS[column.type_name])) - 1
    if isinstance(column.type, DecimalType):
        return min(column.type.precision - column.type.scale, _LONG_DIGITS)
    return _DOUBLE_DIGITS if column.type_name == "double" else 0
