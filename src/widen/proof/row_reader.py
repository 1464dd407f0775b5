"""The values in the rows of a table, read from Arrow column by column.

The proof reads every column of a field. The first column with a value gives the value; the others must agree with it.

Source: docs/evolution-rules.md#u1, #u14, #u17, #d8, #d10
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from decimal import Decimal
from functools import partial
from itertools import chain, permutations, repeat
from types import MappingProxyType
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.msgpack import Ext

from widen.evolution.policy import Policy
from widen.json.time_spellings import ISO, TimeSpelling
from widen.model.types import StructType
from widen.proof.canonical import (
    BINARY_CODE,
    CONTRADICTION,
    EXACT_WHOLE,
    LONG_NUMBER,
    NON_FINITE,
    Form,
    canonical_double,
    canonical_number,
    canonical_time,
    canonical_token,
    count_micros,
    is_epoch_count_of,
    is_same_timestamp,
    to_corrupt_form,
    to_decimal,
    unmarked,
)
from widen.proof.expected_values import expected_value, to_rescued_form
from widen.proof.field_places import check_field_places, stands_alone
from widen.proof.json_reader import NumberToken, read_json, read_whole_records
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
    spelled_times,
)
from widen.schema.source_metadata import CORRUPT, RESCUED, role_of

ColumnValues: TypeAlias = Sequence[tuple[SourceColumn, int, Any]]
"""Columns of one field, each with the number of its arrays that are not entered yet, and its value."""


class RowReader:
    """Reads the rows of one table.

    Args:
        checks_places: Whether each column of a field must hold a value that it can hold. Rows of older versions need
            not: a column is null in the rows that were there before it.
    """

    def __init__(self, schema: StructType, policy: Policy, *, checks_places: bool = True) -> None:
        self._fields = source_columns_by_key(schema, policy)
        self._rule = build_proof_rules(schema, policy) if checks_places else None
        # A default fills one column of its field, whatever the others could hold.
        self._unchecked = read_defaults(schema).keys()
        positions = {role: position for position, field in enumerate(schema) if (role := role_of(field)) is not None}
        self._rescued, self._corrupt = positions.get(RESCUED), positions.get(CORRUPT)

    def forms(self, rows: pa.StructArray) -> list[Form]:
        arrays = rows.flatten()
        forms = _read_records(self._fields, arrays, len(rows), self._rule, self._unchecked)
        for row, text in _present_texts(arrays, self._rescued):
            forms[row] = _merge_rescued(forms[row], _to_form(text))
        for row, text in _present_texts(arrays, self._corrupt):
            # A corrupt row has no values but the file and the time of its text, if the load has these as columns.
            forms[row] = [*to_corrupt_form(text), forms[row]] if forms[row] else to_corrupt_form(text)
        return forms


def _present_texts(arrays: Sequence[pa.Array], position: int | None) -> list[tuple[int, str]]:
    """Return the texts in a column that are not null, each with the number of its row."""
    if position is None or arrays[position].null_count == len(arrays[position]):
        return []
    return [(row, text) for row, text in enumerate(arrays[position].to_pylist()) if text is not None]


def _to_form(text: str) -> Form:
    records = read_whole_records(text.encode(), read_json)
    return CONTRADICTION if records is None or len(records) != 1 else to_rescued_form(records[0])


def _merge_rescued(form: Form, rescued: Form) -> Form:
    """Add the values of the rescue column to the values of the columns.

    The rescue column holds a record without the array of one item that a column may wrap around it.
    """
    if isinstance(rescued, dict) and isinstance(form, list) and len(form) == 1:
        return [_merge_rescued(form[0], rescued)]
    if isinstance(form, dict) and isinstance(rescued, dict):
        return {**form, **{key: _merge_rescued(form.get(key), value) for key, value in rescued.items()}}
    return rescued


# ---- columns ---------------------------------------------------------------------------------------


def _read_records(
    fields: ColumnsByKey,
    arrays: Sequence[pa.Array],
    rows: int,
    rule: ProofRule | None,
    unchecked: Collection[str] = (),
) -> list[Any]:
    rules = {key: None if rule is None or key in unchecked else rule.rule_of(key) for key in fields}
    found = {key: read_field(columns, arrays, rules[key]) for key, columns in fields.items()}
    by_key = {key: values for key, values in found.items() if values is not None}
    # Without columns there is nothing to zip, and each row is its own empty record.
    if not by_key:
        return [{} for _ in range(rows)]
    keys = tuple(by_key)
    return [
        {key: value for key, value in zip(keys, row, strict=True) if value is not None}
        for row in zip(*by_key.values(), strict=True)
    ]


def read_field(columns: FieldColumns, arrays: Sequence[pa.Array], rule: ProofRule | None) -> list[Any] | None:
    """Return the value of a field in each row, or None if all its columns are null.

    Args:
        rule: The rule of the field, to check which columns hold the value; None not to check it.
    """
    present = [column for column in columns if arrays[column.position].null_count < len(arrays[column.position])]
    values = [_read_nested(column, arrays[column.position], column.dim, rule) for column in present]
    if len(present) < 2:
        merged = values[0] if values else None
    elif len(present) == 2 and not any(column.dim or column.type_name in (RECORD, MAP) for column in present):
        merged = [_merge_pair(present, first, other) for first, other in zip(*values, strict=True)]
    else:
        merged = [_merge_row(present, row) for row in zip(*values, strict=True)]
    if rule is None or merged is None or len(columns) < 2:
        return merged
    if len(present) == 1 and stands_alone(present[0], present[0].dim, [(each, each.dim) for each in columns], rule):
        return merged
    absent = [(column, column.dim, None) for column in columns if column not in present]
    return [
        value
        if value is None
        else check_field_places(
            [*((c, c.dim, cell) for c, cell in zip(present, row, strict=True)), *absent], value, rule
        )
        for value, *row in zip(merged, *values, strict=True)
    ]


def _merge_pair(columns: Sequence[SourceColumn], first: Any, other: Any) -> Any:
    """Return the value of two columns without arrays; in most cases they hold a number and its text."""
    if other is None or first is None:
        return other if first is None else first
    return first if str(first) == other or first == other else _merge_row(columns, (first, other))


def _merge_row(columns: Sequence[SourceColumn], row: Sequence[Any]) -> Any:
    parts = [(column, column.dim, value) for column, value in zip(columns, row, strict=True) if value is not None]
    return _merge_values(parts) if len(parts) > 1 else parts[0][2] if parts else None


def _read_nested(column: SourceColumn, values: pa.Array, dim: int, rule: ProofRule | None) -> list[Any]:
    if dim:
        return _group_items(
            _read_nested(column, values.flatten(), dim - 1, rule), pc.list_value_length(values).to_pylist()
        )
    if column.fields is not None:
        records = _read_records(column.fields, values.flatten(), len(values), rule)
        if not values.null_count:
            return records
        valid = values.is_valid().to_pylist()
        return [record if is_valid else None for record, is_valid in zip(records, valid, strict=True)]
    if column.value is not None:
        return read_maps(column.value, values, rule)
    return SCALAR_READERS[column.type_name](values)


def _group_items(items: list[Any], lengths: list[int | None]) -> list[Any]:
    groups: list[Any] = []
    start = 0
    for length in lengths:
        if length is None:
            groups.append(None)
        else:
            groups.append(items[start : start + length])
            start += length
    return groups


def read_maps(inner: SourceColumn, values: pa.MapArray, rule: ProofRule | None) -> list[Any]:
    """Return the forms of maps."""
    # As a list of pairs: as dictionaries, two entries of one key would be one.
    pairs = values.cast(pa.list_(pa.struct([("key", values.type.key_type), ("value", values.type.item_type)])))
    keys, items = pairs.flatten().flatten()
    entries = list(zip(keys.to_pylist(), _read_nested(inner, items, inner.dim, rule), strict=True))
    lengths = pc.list_value_length(pairs).to_pylist()
    return [None if group is None else _to_map(group) for group in _group_items(entries, lengths)]


def _to_map(entries: list[tuple[str, Any]]) -> Any:
    by_key = dict(entries)
    return by_key if len(by_key) == len(entries) else CONTRADICTION


# ---- leaves ----------------------------------------------------------------------------------------


def _to_python(values: pa.Array) -> list[Any]:
    items: list[Any] = values.to_pylist()
    return items


def _read_doubles(values: pa.Array) -> list[Any]:
    return [
        value if value is None or (value % 1 and abs(value) < EXACT_WHOLE) else _canonical_whole(value)
        for value in values.to_pylist()
    ]


def _read_floats(values: pa.Array) -> list[Any]:
    """Return the exact numbers: a float means its exact value, a double the number of its shortest text."""
    return [None if value is None else canonical_number(Decimal(value)) for value in values.to_pylist()]


def _canonical_whole(value: float) -> Any:
    return int(value) if value and abs(value) <= EXACT_WHOLE and value % 1 == 0 else canonical_double(value)


def _read_decimals(values: pa.Array) -> list[Any]:
    return [None if value is None else canonical_number(value) for value in values.to_pylist()]


def _read_bytes(values: pa.Array) -> list[Any]:
    """Return bytes with a mark. JSON has no bytes, so no record equals a row with bytes."""
    return [None if value is None else Ext(BINARY_CODE, value) for value in values.to_pylist()]


def _read_dates(values: pa.Array) -> list[Any]:
    return _to_python(values.cast(pa.string()))


def _read_timestamps(values: pa.Array) -> list[Any]:
    return [None if text is None else f"{text}Z" for text in _read_local_times(values)]


def _read_local_times(values: pa.Array) -> list[Any]:
    micros = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64()).cast(pa.timestamp("us"))
    texts = micros.cast(pa.string()).to_pylist()
    return [None if text is None else canonical_time(text.replace(" ", "T")) for text in texts]


SCALAR_READERS: Mapping[str, Callable[[pa.Array], list[Any]]] = MappingProxyType(
    {
        **dict(zip(("boolean", "byte", "short", "integer", "long", "string"), repeat(_to_python))),
        "double": _read_doubles,
        "float": _read_floats,
        "decimal": _read_decimals,
        "date": _read_dates,
        "timestamp": _read_timestamps,
        "timestamp_ntz": _read_local_times,
        "binary": _read_bytes,
    }
)


# ---- several columns of one field ------------------------------------------------------------------


def _merge_values(parts: ColumnValues) -> Any:
    """Return the value that the columns of a field hold together; all of them are non-null here."""
    # The order of the columns decides: the first that is not an array has the value as it was, the others have other
    # forms of it.
    scalars = [(column, value) for column, dim, value in parts if not dim and column.type_name != MAP]
    if scalars:
        column, value = scalars[0]
        epoch = _find_epoch(parts, column) if column.type_name == "timestamp" else None
        if epoch is None:
            return _reconcile(value, column, parts)
        column, number, value = epoch
        return CONTRADICTION if _reconcile(number, column, parts) is CONTRADICTION else value
    maps = [(column.value, value) for column, dim, value in parts if not dim and column.value is not None]
    if maps:
        return _reconcile(_merge_maps(maps), None, [part for part in parts if part[1]])
    # Arrays only: item by item, as the columns of a field at this depth.
    length = len(parts[0][2])
    if any(len(value) != length for _, _, value in parts):
        return CONTRADICTION
    return [_merge_items(parts, index) for index in range(length)]


def _find_epoch(parts: ColumnValues, timestamps: SourceColumn) -> tuple[SourceColumn, Any, Any] | None:
    """Return the column whose arrays hold an integer that a timestamp stands for, the integer, and its arrays.

    A timestamp alone does not tell that the value was an integer.
    """
    for column, dim, value in parts:
        number = _unwrap(value, dim)
        if dim and _is_epoch(number, timestamps):
            return column, number, value
    return None


def _unwrap(value: Any, dim: int) -> Any:
    """Return the only item inside nested arrays, or `CONTRADICTION` if one of them does not have exactly one item."""
    for _ in range(dim):
        if value is None or len(value) != 1:
            return CONTRADICTION
        value = value[0]
    return value


def _merge_items(parts: ColumnValues, index: int) -> Any:
    present = [(column, dim - 1, value[index]) for column, dim, value in parts if value[index] is not None]
    return _merge_values(present) if len(present) > 1 else present[0][2] if present else None


def _merge_maps(maps: Sequence[tuple[SourceColumn, Any]]) -> Any:
    keys = maps[0][1].keys()
    if any(entries.keys() != keys for _, entries in maps):
        return CONTRADICTION
    merged = {}
    for key in keys:
        present = [(column, column.dim, entries[key]) for column, entries in maps if entries[key] is not None]
        merged[key] = _merge_values(present) if len(present) > 1 else present[0][2] if present else None
    return merged


def _reconcile(first: Any, source_column: SourceColumn | None, parts: ColumnValues) -> Any:
    """Return the value of one column if the values of the others, in arrays or not, agree with it."""
    for column, dim, value in parts:
        if column is source_column:
            continue
        # In an array column, the same value stands as the only item (U14).
        value = _unwrap(value, dim)
        if value is CONTRADICTION:
            return CONTRADICTION
        if source_column is not None and source_column.type_name == column.type_name == RECORD:
            first = _merge_record_columns(column, value, source_column, first)
        elif not (
            _is_same_value(column, first, value)
            or _is_rounded(source_column, first, value)
            or _is_rounded(column, value, first)
            or _is_rounded_epoch(source_column, first, column, value)
        ):
            return CONTRADICTION
    return first


def _is_same_value(column: SourceColumn, first: Any, value: Any) -> bool:
    if column.type_name == "timestamp" and _is_epoch(first, column):
        return bool(expected_value(column, NumberToken(first)) == value)
    return is_consistent(first, value, spelling=column.spelling)


def _is_rounded(column: SourceColumn | None, number: Any, text: Any) -> bool:
    """Return whether a column that rounds has the double that is nearest to the number in a text."""
    given = to_decimal(text) if column is not None and column.rounds and isinstance(text, str) else None
    return given is not None and bool(canonical_double(float(given)) == number)


def _is_rounded_epoch(column: SourceColumn | None, number: Any, timestamps: SourceColumn, instant: Any) -> bool:
    """Return whether a column that rounds has the double that is nearest to the integer of a timestamp (D5)."""
    if column is None or not column.rounds or timestamps.type_name != "timestamp" or not isinstance(instant, str):
        return False
    micros = count_micros(instant)
    # An integer that a double rounds counts microseconds or nanoseconds: in a larger unit, it is in no year.
    return micros is not None and any(
        canonical_double(float(count)) == number and expected_value(timestamps, NumberToken(count)) == instant
        for count in (micros, micros * 1000)
    )


def _is_epoch(value: Any, timestamps: SourceColumn) -> bool:
    """Return whether a value is an integer in the unit of a timestamp column (D5), also as the text of a string."""
    if isinstance(value, str):
        is_whole = value.removeprefix("-").isdecimal()
        return is_whole or (timestamps.takes_integral and type(_parse_number(value)) is int)
    return type(value) is int and not timestamps.has_dates  # it may be the count of a date instead


def _merge_record_columns(wide_column: SourceColumn, wide: Any, narrow_column: SourceColumn, narrow: Any) -> Any:
    """Return the record that two columns hold; the one with more arrays has all fields (U17)."""
    if not isinstance(wide, dict) or not isinstance(narrow, dict):
        return CONTRADICTION
    for key in wide.keys() & narrow.keys():
        # One of the records may have a column that holds a number exactly, where the other has only one that rounds.
        columns = [(column.fields or {}).get(key, ()) for column in (wide_column, narrow_column)]
        rounds = any(map(_has_rounding, chain.from_iterable(columns)))
        pairs = permutations((wide[key], narrow[key]))
        if not any(is_consistent(*pair, rounds=rounds, spelling=wide_column.spelling) for pair in pairs):
            return CONTRADICTION
    return {**narrow, **wide}


def _has_rounding(column: SourceColumn) -> bool:
    """Return whether a column, or one below it, rounds numbers."""
    below = chain.from_iterable((column.fields or {}).values())
    return bool(column.rounds) or any(map(_has_rounding, below)) or bool(column.value and _has_rounding(column.value))


def is_consistent(first: Any, other: Any, *, rounds: bool = False, spelling: TimeSpelling = ISO) -> bool:
    """Return whether two columns of a field may hold these values for one source value.

    Args:
        rounds: Whether one of them may hold the double that is nearest to the number in the other.
    """
    first, other = (unmarked(each) if isinstance(each, Ext) else each for each in (first, other))
    if first is None or other is None:
        return True
    is_same = partial(is_consistent, rounds=rounds, spelling=spelling)
    if isinstance(first, dict) and isinstance(other, dict):
        return all(is_same(first[key], other[key]) for key in first.keys() & other.keys())
    if isinstance(first, list) or isinstance(other, list):
        items, other_items = (value if isinstance(value, list) else [value] for value in (first, other))
        return len(items) == len(other_items) and all(map(is_same, items, other_items))
    if rounds and (_is_nearest_double(first, other) or _is_nearest_double(other, first)):
        return True
    if isinstance(first, str) and isinstance(other, str):
        pairs = (first, other), (other, first)
        is_equal = first == other or is_same_timestamp(first, other)
        return is_equal or any(time in spelled_times(text, spelling) for text, time in pairs)
    if isinstance(first, str) or isinstance(other, str):
        text, value = (first, other) if isinstance(first, str) else (other, first)
        return any(_is_text_of(each, value) for each in (text, *spelled_times(text, spelling)))
    return bool(first == other)


def _is_nearest_double(double: Any, number: Any) -> bool:
    """Return whether a number is the double that is nearest to another number, or to the number in a text."""
    if isinstance(double, str):
        return False
    number = _parse_number(number) if isinstance(number, str) else number
    if isinstance(number, Ext) and number.code == LONG_NUMBER:
        number = Decimal(bytes(number.data).decode())
    return _is_number(number) and bool(canonical_double(float(number)) == double)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def _is_text_of(text: str, value: Any) -> bool:
    """Return whether a text is the text of a boolean or a number, or a date or time that the number counts to."""
    if isinstance(value, bool):
        return text == _BOOLEAN_TEXTS[value]
    if not isinstance(value, (int, float)):
        return _is_spelling_of(text, value)
    is_text = text == str(value) or text == _BOOLEAN_TEXTS.get(value)
    return is_text or _is_spelling_of(text, value) or is_epoch_count_of(text, value)


_BOOLEAN_TEXTS: Mapping[float, str] = MappingProxyType({0: "false", 1: "true"})


def _is_spelling_of(text: str, number: Any) -> bool:
    found = _parse_number(text)
    return found is not None and bool(found == number)


def _parse_number(text: str) -> Any:
    if not text.lstrip("-")[:1].isdigit() and text not in NON_FINITE:
        return None
    try:
        return canonical_token(text)
    except ValueError:
        return None
