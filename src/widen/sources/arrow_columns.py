"""Columns of any Arrow type as columns of the types that Parquet sources have.

Source: docs/guide/memory.md; Spark's ParquetSchemaConverter
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from enum import Enum
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from widen.errors import SourceContentError
from widen.model.value_classes import dataclass


class Nanos(str, Enum):
    """What becomes of times with nanoseconds that microseconds do not hold."""

    ERROR = "error"
    """They are an error."""
    TRUNCATE = "truncate"
    """They lose the digits after the microseconds."""
    TEXT = "text"
    """Records with one have the field as text."""


class IntegralDoubles(str, Enum):
    """What becomes of floats that are integers in the whole of their file."""

    KEEP = "keep"
    """They stay floats."""
    CONVERT = "convert"
    """They become integers, and NaN among them null."""


@dataclass(frozen=True, slots=True)
class ColumnRules:
    """What becomes of values that a table holds in one of several ways.

    Args:
        drops_nan: Whether NaN is null.
        integral_doubles: What becomes of floats that are integers in the whole of their file.
        keeps_nanos: Whether nanoseconds stay, though no table holds them.
    """

    drops_nan: bool = False
    nanos: Nanos = Nanos.ERROR
    integral_doubles: IntegralDoubles = IntegralDoubles.KEEP
    keeps_nanos: bool = False


_DEFAULT = ColumnRules()

_MOST_DIGITS = 38
_UNSIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20)}
_BYTES = (pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
_WITHOUT_VIEW = {pa.string_view(): pa.large_string(), pa.binary_view(): pa.large_binary()}
_Type = Callable[[pa.DataType], pa.DataType]


def _to_decimal(found: pa.DataType) -> pa.DataType:
    precision, scale = (found.precision, found.scale) if found.scale >= 0 else (found.precision - found.scale, 0)
    return pa.decimal128(min(precision, _MOST_DIGITS), min(scale, _MOST_DIGITS))


_LEAVES: Sequence[tuple[Callable[[pa.DataType], bool], _Type]] = (
    (lambda found: found in _UNSIGNED, lambda found: _UNSIGNED[found]),
    (pa.types.is_float16, lambda _: pa.float32()),
    (pa.types.is_date64, lambda _: pa.date32()),
    (pa.types.is_timestamp, lambda found: pa.timestamp("us", None if found.tz is None else "UTC")),
    (pa.types.is_duration, lambda _: pa.int64()),
    (pa.types.is_time, lambda _: pa.string()),
    (pa.types.is_decimal, _to_decimal),
    (lambda found: pa.types.is_large_string(found) or pa.types.is_string_view(found), lambda _: pa.string()),
    (
        lambda found: any(is_such(found) for is_such in _BYTES),
        lambda _: pa.binary(),
    ),
)
"""The type of a column in the staged file, by the Arrow type of its values; other types stay."""

_KNOWN = (
    *(pa.types.is_null, pa.types.is_boolean, pa.types.is_signed_integer, pa.types.is_float32, pa.types.is_float64),
    *(pa.types.is_decimal128, pa.types.is_date32, pa.types.is_timestamp, pa.types.is_string, pa.types.is_binary),
)


def to_stored_rows(
    rows: pa.RecordBatch, name: str, rules: ColumnRules = _DEFAULT
) -> Iterator[tuple[pa.Table, pa.Array | None]]:
    """Yield rows with the types that Parquet sources have, those with the same types together.

    Each table comes with the indexes of its rows; None for all rows.
    """
    plain = rows if rules.nanos is not Nanos.TEXT else _to_stored_batch(rows, name, replace(rules, keeps_nanos=True))
    masks = {} if rules.nanos is not Nanos.TEXT else _find_nanos(plain)
    if not masks:
        yield to_stored_columns(plain, name, rules), None
        return
    keys = reduce(pc.add, (pc.multiply(mask.cast(pa.int64()), 2**at) for at, mask in enumerate(masks.values())))
    for key in pc.unique(keys).to_pylist():
        found = pc.indices_nonzero(pc.equal(keys, key))
        texts = frozenset(column for at, column in enumerate(masks) if key >> at & 1)
        yield to_stored_columns(plain.take(found), name, rules, texts), found


def to_stored_columns(
    rows: pa.RecordBatch, name: str, rules: ColumnRules = _DEFAULT, texts: frozenset[str] = frozenset()
) -> pa.Table:
    """Return rows with the types that Parquet sources have; every value stays exactly as it is.

    Args:
        texts: The columns whose nanoseconds become text.
    """
    return pa.Table.from_batches([_to_stored_batch(rows, name, rules, texts)])


def _to_stored_batch(
    rows: pa.RecordBatch, name: str, rules: ColumnRules, texts: frozenset[str] = frozenset()
) -> pa.RecordBatch:
    repeated = _find_repeated(rows.schema.names)
    if repeated is not None:
        raise SourceContentError(source=name, reason=f"it has two columns named {repeated}", fix="Rename one of them.")
    columns = []
    exact = replace(rules, nanos=Nanos.ERROR) if rules.nanos is Nanos.TEXT else rules
    for field, values in zip(rows.schema, rows.columns, strict=True):
        try:
            columns.append(_to_stored(values, rules if field.name in texts else exact))
        except _NotStored as error:
            reason = f"the column {field.name} has {error.args[0]}"
            raise SourceContentError(source=name, reason=reason, fix=error.args[1]) from None
        except pa.ArrowNotImplementedError:
            reason = f"the column {field.name} has the type {field.type}, which Arrow does not convert"
            raise SourceContentError(source=name, reason=reason, fix="Convert it, e.g. to text.") from None
    return pa.RecordBatch.from_arrays(columns, names=rows.schema.names)


def _find_repeated(names: Sequence[str]) -> str | None:
    return next((each for at, each in enumerate(names) if each in names[:at]), None)


class _NotStored(Exception):
    """Values that no column of a table holds: what they are, and what to do."""


def _to_stored(values: pa.Array, rules: ColumnRules) -> pa.Array:
    found = values.type
    if isinstance(found, pa.BaseExtensionType):
        return _from_extension(values, rules)
    if pa.types.is_dictionary(found):
        # Arrow takes no values from views, which the words of polars are.
        words = values.dictionary
        return _to_stored(words.cast(_WITHOUT_VIEW.get(words.type, words.type)).take(values.indices), rules)
    if pa.types.is_run_end_encoded(found):
        return _to_stored(pc.run_end_decode(values), rules)
    if pa.types.is_nested(found):
        return _to_stored_nested(values, rules)
    if pa.types.is_timestamp(found) and found.unit == "ns":
        if rules.keeps_nanos:
            return values
        if rules.nanos is not Nanos.ERROR:
            return _without_nanos(values, rules.nanos)
    wanted = next((to_type(found) for is_such, to_type in _LEAVES if is_such(found)), found)
    if wanted != found:
        values = _cast(values, wanted)
    elif not any(is_such(found) for is_such in _KNOWN):
        raise _NotStored(f"the type {found}, which no column of a table has", "Convert it, e.g. to text.")
    if rules.drops_nan and pa.types.is_floating(wanted):
        return pc.if_else(pc.is_nan(values), pa.scalar(None, wanted), values)
    return values


def _cast(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    try:
        return values.cast(wanted)
    except pa.ArrowInvalid:
        # The message of Arrow shows the value.
        what, fix = _LOSSES.get(str(wanted), ("decimals with more than 38 digits", "Pass them as text."))
        raise _NotStored(what, fix) from None


_LOSSES = {
    **dict.fromkeys(
        ("timestamp[us]", "timestamp[us, tz=UTC]"),
        (
            "times that microseconds do not hold",
            "Say what becomes of the other digits: nanos='truncate' (--nanos truncate) cuts them off, and with "
            "nanos='text' (--nanos text) the column is text where there are such times.",
        ),
    ),
    "date32[day]": ("dates with a time of day", "Cast the column to a timestamp."),
}


def _without_nanos(values: pa.Array, nanos: Nanos) -> pa.Array:
    has_zone = values.type.tz is not None
    if nanos is Nanos.TRUNCATE:
        counts = values.cast(pa.int64())
        down = pc.less(
            _rest(counts), 0
        )  # Arrow divides towards zero, and digits are cut from times before 1970 as well
        whole = pc.subtract(pc.divide(counts, 1000), down.cast(pa.int64()))
        return whole.cast(pa.timestamp("us", "UTC" if has_zone else None))
    texts = values.cast(pa.timestamp("ns", "UTC")).cast(pa.timestamp("ns")).cast(pa.string())
    texts = pc.replace_substring(texts, " ", "T")
    return pc.binary_join_element_wise(texts, "Z", "") if has_zone else texts


def _rest(counts: pa.Array) -> pa.Array:
    return pc.subtract(counts, pc.multiply(pc.divide(counts, 1000), 1000))


def _find_nanos(rows: pa.RecordBatch) -> dict[str, pa.Array]:
    """Return which rows have nanoseconds that microseconds do not hold, for each column that has some."""
    masks = {field.name: _has_nanos(values) for field, values in zip(rows.schema, rows.columns, strict=True)}
    return {name: mask for name, mask in masks.items() if mask is not None and mask.true_count}


def _has_nanos(values: pa.Array) -> pa.Array | None:
    """Return which values have nanoseconds at any depth; None if their type has none."""
    found = values.type
    if pa.types.is_timestamp(found):
        return pc.fill_null(pc.not_equal(_rest(values.cast(pa.int64())), 0), False) if found.unit == "ns" else None
    if pa.types.is_struct(found):
        masks = [mask for each in values.flatten() if (mask := _has_nanos(each)) is not None]
        return reduce(pc.or_, masks) if masks else None
    if not pa.types.is_nested(found):
        return None
    if pa.types.is_map(found):
        values = values.cast(pa.list_(pa.struct([found.key_field, found.item_field])))
    inner = _has_nanos(values.flatten())
    if inner is None:
        return None
    rows = pc.unique(pc.list_parent_indices(values).filter(inner))
    return pc.is_in(pa.array(range(len(values)), pa.int64()), rows.cast(pa.int64()))


def _from_extension(values: pa.Array, rules: ColumnRules) -> pa.Array:
    kind, storage = getattr(values.type, "extension_name", ""), values.storage
    if kind == "arrow.uuid":
        texts = [None if each is None else str(each) for each in values.to_pylist()]
        return pa.array(texts, pa.string())
    if kind == "arrow.bool8":
        return storage.cast(pa.bool_())
    return _to_stored(storage, rules)


def _to_stored_nested(values: pa.Array, rules: ColumnRules) -> pa.Array:
    found, mask = values.type, values.is_null()
    if pa.types.is_struct(found):
        if not found.num_fields:
            raise _NotStored("structs without fields", "Drop the column, or pass the records as dicts.")
        repeated = _find_repeated(found.names)
        if repeated is not None:
            raise _NotStored(f"structs with two fields named {repeated}", "Rename one of them.")
        columns = [_to_stored(each, rules) for each in values.flatten()]
        fields = [field.with_type(column.type) for field, column in zip(found, columns, strict=True)]
        return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)
    if pa.types.is_union(found):
        raise _NotStored("a union of types", "Pass the records as dicts.")
    if pa.types.is_map(found):
        entries = values.cast(pa.list_(pa.struct([found.key_field, found.item_field])))
        keys, items = (_to_stored(each, rules) for each in entries.flatten().flatten())
        return pa.MapArray.from_arrays(_offsets(entries), keys, items, mask=mask)
    return pa.ListArray.from_arrays(_offsets(values), _to_stored(values.flatten(), rules), mask=mask)


def _offsets(values: pa.Array) -> pa.Array:
    """Return where each list begins in the flattened values, which lack the values of null lists."""
    lengths = pc.fill_null(pc.list_value_length(values), 0)
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])


# Floats that are integers.
#
# pandas makes a column of integers with missing values one of floats with NaN.


Steps = tuple[int, ...]
"""The place of a column: its index, then the index of a field of a struct, or 0 for the values of a list or map."""


class IntegerColumns:
    """Finds the columns of floats whose values are all integers that a double holds, or NaN."""

    def __init__(self) -> None:
        self._seen: set[Steps] = set()
        self._others: set[Steps] = set()

    def add(self, rows: pa.RecordBatch) -> None:
        """Look at some rows."""
        for at, values in enumerate(rows.columns):
            self._add(values, (at,))

    @property
    def found(self) -> frozenset[Steps]:
        """The columns. One without a value but NaN is not among them."""
        return frozenset(self._seen - self._others)

    def _add(self, values: pa.Array, steps: Steps) -> None:
        if steps in self._others:
            return
        if pa.types.is_float32(values.type) or pa.types.is_float64(values.type):
            numbers = values.drop_null().cast(pa.float64())
            numbers = numbers.filter(pc.invert(pc.is_nan(numbers)))
            if len(numbers):
                (self._seen if _are_integers(numbers) else self._others).add(steps)
            return
        for at, part in enumerate(_parts_of(values)):
            self._add(part, (*steps, at))


def _are_integers(numbers: pa.Array) -> bool:
    is_small = pc.less(pc.abs(numbers), 2**53)
    is_whole = pc.equal(pc.floor(numbers), numbers)
    # A negative zero would lose its sign.
    is_zero = pc.and_(pc.equal(numbers, 0), pc.not_equal(numbers.view(pa.int64()), 0))
    return bool(pc.all(pc.and_(is_small, is_whole)).as_py()) and not pc.any(is_zero).as_py()


def _parts_of(values: pa.Array) -> list[pa.Array]:
    found = values.type
    if pa.types.is_struct(found):
        return list(values.flatten())
    if pa.types.is_map(found):
        return [values.cast(pa.list_(pa.struct([found.key_field, found.item_field]))).flatten().flatten()[1]]
    is_list = pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found)
    return [values.flatten()] if is_list else []


def with_integers(rows: pa.RecordBatch, columns: frozenset[Steps]) -> pa.RecordBatch:
    """Return rows with some columns of floats as integers, where NaN is null."""
    if not columns:
        return rows
    arrays = [_with_integers(values, (at,), columns) for at, values in enumerate(rows.columns)]
    return pa.RecordBatch.from_arrays(arrays, names=rows.schema.names)


def _with_integers(values: pa.Array, steps: Steps, columns: frozenset[Steps]) -> pa.Array:
    if steps in columns:
        return pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values).cast(pa.int64())
    if not any(each[: len(steps)] == steps for each in columns):
        return values
    found, mask = values.type, values.is_null()
    parts = [_with_integers(part, (*steps, at), columns) for at, part in enumerate(_parts_of(values))]
    if pa.types.is_struct(found):
        return pa.StructArray.from_arrays(parts, names=found.names, mask=mask)
    if pa.types.is_map(found):
        entries = values.cast(pa.list_(pa.struct([found.key_field, found.item_field])))
        return pa.MapArray.from_arrays(_offsets(entries), entries.flatten().flatten()[0], parts[0], mask=mask)
    return pa.ListArray.from_arrays(_offsets(values), parts[0], mask=mask)
