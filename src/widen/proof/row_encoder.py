"""The rows of a table as encoded forms, made in Arrow column by column.

A row has the bytes that `encode_form` makes of its form. Values that Arrow may encode in other bytes, and
fields with several columns that do not plainly agree, go through `widen.proof.row_reader`, in their rows only.

Source: docs/evolution-rules.md#u1, #u14, #proof
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import repeat
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from widen.model.types import StructType
from widen.planning.evolution.policy import Policy
from widen.planning.evolution.source_metadata import CORRUPT, RESCUED, role_of
from widen.proof.record_digest import EXTENSION_MARK, EncodedRecord, Form, count_values
from widen.proof.record_layout import NO_ORDER, KeyOrder, RecordLayout
from widen.proof.row_reader import SCALAR_READERS, RowReader, read_field, read_maps
from widen.proof.source_columns import MAP, RECORD, ColumnsByKey, FieldColumns, SourceColumn, columns_by_key

MAX_BYTES = 2**28
"""Maximum number of bytes of rows that are encoded at once; the texts of an Arrow array have at most 2 GB."""

Texts: TypeAlias = pa.StringArray
"""Encoded forms; null where there is no value."""


class Encoded(NamedTuple):
    """The values of a column.

    Args:
        pieces: The parts of their encoded forms, in order: constants and arrays without nulls, which are joined only
            once for a whole row; or a single array, which is null where there is no value.
        counts: The number of values in each; 0 where there is none.
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
    """Encodes the rows of one table.

    Args:
        schema: Schema of the table; the rows have its columns in its order.
    """

    def __init__(self, schema: StructType, policy: Policy, layout: RecordLayout) -> None:
        self._fields, self._reader, self._layout = columns_by_key(schema, policy), RowReader(schema, policy), layout
        self._special = [position for position, field in enumerate(schema) if role_of(field) in (RESCUED, CORRUPT)]

    def encode(self, rows: pa.StructArray) -> Iterator[EncodedRecord]:
        """Yield the encoded form of each row, and the number of its values."""
        if rows.nbytes > MAX_BYTES and len(rows) > 1:
            middle = len(rows) // 2
            yield from self.encode(rows[:middle])
            yield from self.encode(rows[middle:])
            return
        arrays = rows.flatten()
        encoded = self._records(self._fields, arrays, len(rows), self._layout.root)
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

    def _records(self, fields: ColumnsByKey, arrays: Sequence[pa.Array], rows: int, order: KeyOrder) -> Encoded:
        counts, has_value = pa.repeat(0, rows), pa.repeat(False, rows)
        parts: list[Encoded] = []
        for key in order.order(fields):
            field = self._field(fields.get(key, ()), arrays, order.below.get(key, NO_ORDER))
            is_required = order.keys.get(key, False)
            if field is not None:
                counts = pc.add(counts, field.counts)
                has_value = pc.or_(has_value, field.pieces[0].is_valid()) if field.has_nulls else pa.repeat(True, rows)
            elif is_required:
                field = Encoded(["null"], pa.repeat(0, rows))
            if field is not None:
                parts.append(_with_key(self._layout.key_text(key), field, is_required=is_required))
        # An empty record in a row is one value.
        is_row = order is self._layout.root
        counts = pc.if_else(has_value, counts, 1) if has_value.false_count and not is_row else counts
        return Encoded(["{", *_join_fields(parts, self._layout.item_separator), "}"], counts)

    def _field(self, columns: FieldColumns, arrays: Sequence[pa.Array], order: KeyOrder) -> Encoded | None:
        """Return the value of a field in each row, or None if all its columns are null."""
        present = [column for column in columns if arrays[column.position].null_count < len(arrays[column.position])]
        encoded = [self._column(column, arrays[column.position], column.dim, order) for column in present]
        if len(encoded) < 2:
            return encoded[0] if encoded else None
        texts = [each.to_texts() for each in encoded]
        text = pc.coalesce(*texts)
        first = Encoded([text], reduce(pc.max_element_wise, (each.counts for each in encoded)))
        if any(column.dim or column.type_name in (RECORD, MAP) for column in present):
            agrees = _is_alone(texts)
        else:
            values = (arrays[column.position] for column in present)
            agrees = reduce(pc.and_, (_is_same(*each, text) for each in zip(present, values, texts, strict=True)))
        mask = pc.invert(agrees)
        positions, nothing = {column.position for column in columns}, pa.nulls(0)

        def read() -> list[Form] | None:
            filtered = (array.filter(mask) if at in positions else nothing for at, array in enumerate(arrays))
            return read_field(columns, list(filtered))

        return self._replace(first, mask, read, order)

    def _column(self, column: SourceColumn, values: pa.Array, dim: int, order: KeyOrder) -> Encoded:
        if dim:
            return self._lists(values, self._column(column, values.flatten(), dim - 1, order))
        if column.fields is not None:
            return _where_valid(values, self._records(column.fields, values.flatten(), len(values), order))
        if (inner := column.value) is not None:
            nothing = Encoded([pa.nulls(len(values), pa.string())], pa.repeat(0, len(values)))
            return self._replace(nothing, pa.repeat(True, len(values)), lambda: read_maps(inner, values), order)
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
    """Return a field with its key; if it is required, with the key of a null, too."""
    if not field.has_nulls:
        return Encoded([key, *field.pieces], field.counts)
    [texts] = field.pieces
    return Encoded([key, texts.fill_null("null")] if is_required else [_join(key, texts)], field.counts)


def _join_fields(fields: Sequence[Encoded], separator: str) -> Iterator[Any]:
    """Yield the pieces of records."""
    if fields and fields[0].has_nulls:
        texts = [field.to_texts() for field in fields]
        if all(field.has_nulls for field in fields):
            # Arrow leaves out rows in which every text is null.
            is_empty = reduce(pc.and_, (each.is_null() for each in texts))
            texts[0] = pc.if_else(is_empty, "", texts[0])
        yield pc.binary_join_element_wise(*texts, separator, null_handling="skip")
        return
    for number, field in enumerate(fields):
        prefix = separator if number else ""
        if field.has_nulls:
            yield _join(prefix, field.pieces[0]).fill_null("")
        else:
            yield from (prefix, *field.pieces)


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
"""Texts of scalars without quotes, and which of them are surely what `encode_form` writes; None for all."""

_ESCAPED, _ESCAPED_BYTES = r'["\\\x00-\x1f]', b'"\\' + bytes(range(32))
_SURE_CHARS = 15
"""Number of characters up to which the digits of a decimal are the shortest text of a double, or of an integer."""


def _encode_nothing(values: pa.Array) -> ScalarTexts:
    return pa.nulls(len(values), pa.string()), values.is_null()


def _encode_as_text(values: pa.Array) -> ScalarTexts:
    return values.cast(pa.string()), None


def _encode_strings(values: pa.Array) -> ScalarTexts:
    return values, pc.invert(pc.match_substring_regex(values, _ESCAPED)) if _may_have_escapes(values) else None


def _may_have_escapes(values: pa.StringArray) -> bool:
    _, offsets, data = values.buffers()
    if data is None or not len(values):
        return False
    ends = memoryview(offsets).cast("i")
    text = bytes(data[ends[values.offset] : ends[values.offset + len(values)]])
    return len(text.translate(None, _ESCAPED_BYTES)) < len(text)


def _encode_doubles(values: pa.Array) -> ScalarTexts:
    """Return the shortest digits; Arrow writes them like JSON where they need no exponent. Zero may have a sign."""
    size = pc.abs(values)
    least = pc.if_else(pc.equal(values, pc.trunc(values)), 1.0, 1e-4)
    return values.cast(pa.string()), pc.and_(pc.less(size, 1e10), pc.greater_equal(size, least))


def _encode_decimals(values: pa.Array) -> ScalarTexts:
    texts = values.cast(pa.string())
    if values.type.scale > 0:
        texts = pc.utf8_rtrim(pc.utf8_rtrim(texts, "0"), ".")
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
