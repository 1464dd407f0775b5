"""Records of scalar texts, such as rows of CSV, as Arrow columns without a Python object for each value.

A record takes this path if each of its values is null or of a kind that its columns hold unchanged. All other records
become JSON texts and take the path of those; both paths give the same row.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial, reduce
from types import MappingProxyType

import pyarrow as pa
import pyarrow.compute as pc

from widen.json.kinds import DOUBLE_WORD, STRING_WORD
from widen.model.native_kernel import find_kernel
from widen.model.value_classes import dataclass
from widen.rows.native_decoder import BOOLEAN, DATE, DOUBLE, LONG, STRING
from widen.rows.row import ColumnSlot
from widen.rows.row_builder import RowBuilder
from widen.rows.shape import ScalarField
from widen.sources.csv_dialect import EXACT_VALUES, FRACTION_PATTERN, WRITTEN_VALUES, FieldGroup

_FRACTION = f"^(?:{FRACTION_PATTERN})$"
_INTEGER = "^(?:0|-?[1-9][0-9]{0,17})$"
"""Integers that are known to fit into 64 bits."""

_DATE_BEGIN = "^[0-9]{4}-[0-9]{2}-[0-9]{2}"
_BOOLEAN = "^(?:true|false)$"
_MAX_INTEGER = 10**18
"""No integer that matches `_INTEGER` has this magnitude."""


@dataclass(frozen=True, slots=True)
class ColumnBatch:
    """Records as columns, and those that need a closer look.

    Args:
        exact: The indexes of the records that need a closer look.
    """

    rows: pa.RecordBatch
    exact: pa.Array


def build_columns(builder: RowBuilder, group: FieldGroup, file_name: str, schema: pa.Schema) -> ColumnBatch:
    """Return the rows of those records that the kinds of their values determine."""
    # A field of the record wins over one of the file, record by record; the closer look does that.
    if not builder.file_fields(file_name).keys().isdisjoint(group.names):
        return ColumnBatch(pa.RecordBatch.from_pylist([], schema), pa.array(range(group.records), pa.int64()))
    arrays: dict[str, pa.Array] = {}
    certain = pa.repeat(pa.scalar(True), group.records)
    names = builder.match_names([*group.names, *builder.file_fields(file_name)])
    for key, texts, find_kinds in _columns(builder, group, file_name):
        field = builder.scalar_field(names.get(key, key))
        values, is_certain = _field_columns(field, texts, find_kinds)
        arrays |= values
        certain = pc.and_(certain, is_certain)
    columns = [
        arrays[field.name].cast(field.type) if field.name in arrays else pa.nulls(group.records, field.type)
        for field in schema
    ]
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    builder.observation.records += certain.true_count
    return ColumnBatch(rows.filter(certain) if columns else rows, pc.indices_nonzero(pc.invert(certain)))


_FindKinds = Callable[[ScalarField], dict[type, pa.Array]]
"""Returns, for each Python type, which texts are of it. Longer integers and fractions have no type; if the field has
dates, texts that begin like a date have no type."""


def _columns(builder: RowBuilder, group: FieldGroup, file_name: str) -> Iterator[tuple[str, pa.Array, _FindKinds]]:
    """Yield each field of records with its texts and their kinds."""
    kinds = _native_kinds(group) or [None] * len(group.names)
    for key, texts, kind in zip(group.names, group.columns, kinds, strict=True):
        yield key, texts, partial(_match_kinds, texts, group.detects) if kind is None else partial(_split_kinds, kind)
    for key, text in builder.file_fields(file_name).items():
        texts = pa.repeat(pa.scalar(text, pa.string()), group.records)
        yield key, texts, partial(_match_kinds, texts, "")


def _field_columns(field: ScalarField, texts: pa.Array, find_kinds: _FindKinds) -> tuple[dict[str, pa.Array], pa.Array]:
    """Return the columns of a field, and which values need no closer look."""
    masks = {python_type: mask for python_type, mask in find_kinds(field).items() if python_type in field.columns}
    if int in masks:
        masks[int] = pc.and_(masks[int], _is_within(texts, masks[int], field.bound))
    values = _FieldValues(texts, masks)
    certain = _any_of(masks.values(), len(texts))
    if field.takes_null and texts.null_count:
        certain = pc.or_(certain, texts.is_null())
    return {slot.name: values.column(slot, field) for slot in field.slots if values.is_taken(slot, field)}, certain


def _native_kinds(group: FieldGroup) -> list[pa.Array] | None:
    """Return the kinds of the texts of each field as bits, which the kernel finds; None without it."""
    kernel = find_kernel()
    if kernel is None or group.detects not in (EXACT_VALUES, WRITTEN_VALUES):
        return None
    texts = pa.RecordBatch.from_arrays(list(group.columns), names=list(map(str, range(len(group.columns)))))
    return list(kernel.text_kinds(texts, group.detects == WRITTEN_VALUES).columns)


_BITS = MappingProxyType({int: (LONG,), float: (DOUBLE,), bool: (BOOLEAN,), str: (STRING, DATE)})
"""The kinds of the texts that are values of each Python type."""


def _split_kinds(kinds: pa.Array, field: ScalarField) -> dict[type, pa.Array]:
    counts = {each["values"]: each["counts"] for each in pc.value_counts(kinds).to_pylist()}
    masks = {}
    for python_type, bits in _BITS.items():
        is_open = python_type is str and field.has_spellings
        found = [bit for bit in bits if bit in counts and not (is_open or (bit == DATE and field.has_dates))]
        if sum(counts[bit] for bit in found) == len(kinds) - kinds.null_count:
            return {python_type: kinds.is_valid()}
        if found:
            masks[python_type] = pc.fill_null(_any_of([pc.equal(kinds, bit) for bit in found], len(kinds)), False)
    return masks


def _match_kinds(texts: pa.Array, detects: str, field: ScalarField) -> dict[type, pa.Array]:
    """Find the kinds with regular expressions.

    Most fields have values of one kind, so what the columns hold is tried first.

    Args:
        detects: The pattern of the texts that are numbers and booleans; empty if none are.
    """
    valid = texts.is_valid()
    for python_type, pattern in ((int, _INTEGER), (float, _FRACTION), (bool, _BOOLEAN)) if detects else ():
        if python_type in field.columns and str not in field.columns:
            mask = _matches(texts, pattern)
            if mask.equals(valid):
                return {python_type: mask}
    masks: dict[type, pa.Array] = {str: valid}
    is_token = _matches(texts, f"^(?:{detects})$") if detects else None
    if is_token is not None and is_token.true_count:
        masks = {str: pc.and_(valid, pc.invert(is_token)), bool: _matches(texts, _BOOLEAN)}
        masks |= {int: _matches(texts, _INTEGER), float: _matches(texts, _FRACTION)}
    if field.has_spellings:
        del masks[str]
    elif field.has_dates:
        masks[str] = pc.and_(masks[str], pc.invert(_matches(texts, _DATE_BEGIN)))
    return masks


def _matches(texts: pa.Array, pattern: str) -> pa.Array:
    """Return which texts match a pattern; null does not."""
    return pc.fill_null(pc.match_substring_regex(texts, pattern), False)


def _is_within(texts: pa.Array, mask: pa.Array, bound: int) -> pa.Array:
    """Return which of the integers among texts are below a bound."""
    if bound > _MAX_INTEGER:
        return mask
    numbers = _only(texts, mask).cast(pa.int64())
    return pc.fill_null(pc.and_(pc.greater_equal(numbers, -bound), pc.less(numbers, bound)), False)


def _only(values: pa.Array, mask: pa.Array) -> pa.Array:
    """Return the values where a mask holds, else null."""
    return values if mask.true_count == len(values) - values.null_count else pc.if_else(mask, values, None)


def _any_of(masks: Collection[pa.Array], size: int) -> pa.Array:
    return reduce(pc.or_, masks) if masks else pa.repeat(pa.scalar(False), size)


@dataclass(frozen=True, slots=True)
class _FieldValues:
    """The texts of a field, and which of them are of each Python type; a type that needs a closer look is missing."""

    texts: pa.Array
    masks: Mapping[type, pa.Array]

    def is_taken(self, slot: ColumnSlot, field: ScalarField) -> bool:
        """Return whether a column takes values of any of the types."""
        return bool(self._types(slot, field))

    def column(self, slot: ColumnSlot, field: ScalarField) -> pa.Array:
        """Return the values of a column; null for those that it does not take."""
        types = self._types(slot, field)
        if slot.word == STRING_WORD:
            return _only(self.texts, _any_of([self.masks[each] for each in types], len(self.texts)))
        parts = [self._convert(python_type, slot) for python_type in types]
        return reduce(pc.coalesce, parts)

    def _types(self, slot: ColumnSlot, field: ScalarField) -> list[type]:
        return [python_type for python_type in self.masks if slot.name in field.columns[python_type]]

    def _convert(self, python_type: type, slot: ColumnSlot) -> pa.Array:
        texts = _only(self.texts, self.masks[python_type])
        if python_type is bool:
            return pc.equal(texts, "true")
        return texts.cast(pa.float64() if slot.word == DOUBLE_WORD else pa.int64())
