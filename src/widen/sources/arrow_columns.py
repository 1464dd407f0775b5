"""Columns of any Arrow type as columns of the types that Parquet sources have.

Source: docs/guide/memory.md; Spark's ParquetSchemaConverter
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from widen.errors import SourceContentError

_MOST_DIGITS = 38
_UNSIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20)}
_BYTES = (pa.types.is_large_binary, pa.types.is_binary_view, pa.types.is_fixed_size_binary)
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


def to_stored_columns(rows: pa.RecordBatch, name: str, *, drops_nan: bool = False) -> pa.Table:
    """Return rows with the types that Parquet sources have; every value stays exactly as it is.

    Args:
        name: The name of the source in errors.
        drops_nan: Whether NaN is null.

    Raises:
        SourceContentError: a column has values that no column of a table holds, or two columns have the same name.
    """
    repeated = next((each for at, each in enumerate(rows.schema.names) if each in rows.schema.names[:at]), None)
    if repeated is not None:
        raise SourceContentError(source=name, reason=f"it has two columns named {repeated}", fix="Rename one of them.")
    columns = []
    for field, values in zip(rows.schema, rows.columns, strict=True):
        try:
            columns.append(_to_stored(values, drops_nan=drops_nan))
        except _NotStored as error:
            reason = f"the column {field.name} has {error.args[0]}"
            raise SourceContentError(source=name, reason=reason, fix=error.args[1]) from None
    return pa.table(columns, names=rows.schema.names)


class _NotStored(Exception):
    """Values that no column of a table holds: what they are, and what to do."""


def _to_stored(values: pa.Array, *, drops_nan: bool) -> pa.Array:
    found = values.type
    if isinstance(found, pa.BaseExtensionType):
        return _from_extension(values, drops_nan=drops_nan)
    if pa.types.is_dictionary(found):
        return _to_stored(values.dictionary_decode(), drops_nan=drops_nan)
    if pa.types.is_run_end_encoded(found):
        return _to_stored(pc.run_end_decode(values), drops_nan=drops_nan)
    if pa.types.is_nested(found):
        return _to_stored_nested(values, drops_nan=drops_nan)
    wanted = next((to_type(found) for is_such, to_type in _LEAVES if is_such(found)), found)
    if wanted != found:
        values = _cast(values, wanted)
    elif not any(is_such(found) for is_such in _KNOWN):
        raise _NotStored(f"the type {found}, which no column of a table has", "Convert it, e.g. to text.")
    if drops_nan and pa.types.is_floating(wanted):
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
        ("times that microseconds do not hold", "Round them to microseconds, or pass them as integers or text."),
    ),
    "date32[day]": ("dates with a time of day", "Cast the column to a timestamp."),
}


def _from_extension(values: pa.Array, *, drops_nan: bool) -> pa.Array:
    kind, storage = getattr(values.type, "extension_name", ""), values.storage
    if kind == "arrow.uuid":
        texts = [None if each is None else str(each) for each in values.to_pylist()]
        return pa.array(texts, pa.string())
    if kind == "arrow.bool8":
        return storage.cast(pa.bool_())
    return _to_stored(storage, drops_nan=drops_nan)


def _to_stored_nested(values: pa.Array, *, drops_nan: bool) -> pa.Array:
    found, mask = values.type, values.is_null()
    if pa.types.is_struct(found):
        if not found.num_fields:
            raise _NotStored("structs without fields", "Drop the column, or pass the records as dicts.")
        columns = [_to_stored(each, drops_nan=drops_nan) for each in values.flatten()]
        fields = [field.with_type(column.type) for field, column in zip(found, columns, strict=True)]
        return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)
    if pa.types.is_union(found):
        raise _NotStored("a union of types", "Pass the records as dicts.")
    if pa.types.is_map(found):
        entries = values.cast(pa.list_(pa.struct([found.key_field, found.item_field])))
        keys, items = (_to_stored(each, drops_nan=drops_nan) for each in entries.flatten().flatten())
        return pa.MapArray.from_arrays(_offsets(entries), keys, items, mask=mask)
    return pa.ListArray.from_arrays(_offsets(values), _to_stored(values.flatten(), drops_nan=drops_nan), mask=mask)


def _offsets(values: pa.Array) -> pa.Array:
    """Return where each list begins in the flattened values, which lack those of null lists."""
    lengths = pc.fill_null(pc.list_value_length(values), 0)
    return pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths).cast(pa.int32())])
