"""What the rows of a table say, column by column from Arrow.

Every column of a field is read. The first that has a value says it, and the others must say the same.

Source: docs/evolution-rules.md#u1, #u14, #u17, #d8, #d10
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import repeat
from types import MappingProxyType
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from widen.model.types import StructType
from widen.planning.evolution.policy import Policy
from widen.planning.evolution.source_metadata import CORRUPT, RESCUED, role_of
from widen.proof.canonical_number import EXACT_WHOLE, canonical_double, canonical_number, canonical_token
from widen.proof.expected_values import plain, said, utc
from widen.proof.json_reader import Token, read_whole_records
from widen.proof.record_digest import CONTRADICTION, Form, corrupt_form
from widen.proof.source_columns import MAP, RECORD, Cells, Fields, SourceColumn, fields_of

Parts: TypeAlias = Sequence[tuple[SourceColumn, int, Any]]
"""Columns of one field, each with the arrays that are left to go into and what it has there."""


class RowReader:
    """Reads the rows of one table.

    Args:
        schema: Of the table; its columns are those of the rows, in their order.
        policy: What was said about single fields.
    """

    def __init__(self, schema: StructType, policy: Policy) -> None:
        self._fields = fields_of(schema, policy)
        places = {role: at for at, field in enumerate(schema) if (role := role_of(field)) is not None}
        self._rescued, self._corrupt = places.get(RESCUED), places.get(CORRUPT)

    def forms(self, rows: pa.StructArray) -> list[Form]:
        """Return the form of each row."""
        columns = rows.flatten()
        forms = _records(self._fields, columns, len(rows))
        for at, text in _there(columns, self._rescued):
            forms[at] = _merged(forms[at], _rescued(text))
        for at, text in _there(columns, self._corrupt):
            forms[at] = [*corrupt_form(text), forms[at]] if forms[at] else corrupt_form(text)
        return forms


def _there(columns: Sequence[pa.Array], at: int | None) -> list[tuple[int, str]]:
    """Return what stands in a column of texts, with the number of the row."""
    if at is None or columns[at].null_count == len(columns[at]):
        return []
    return [(row, text) for row, text in enumerate(columns[at].to_pylist()) if text is not None]


def _rescued(text: str) -> Form:
    found = read_whole_records(text.encode())
    return CONTRADICTION if found is None or len(found) != 1 else plain(found[0])


def _merged(form: Form, rest: Form) -> Form:
    """Return what columns and rescue column say together; a record that a column of arrays wraps is rescued bare."""
    if isinstance(rest, dict) and isinstance(form, list) and len(form) == 1:
        return [_merged(form[0], rest)]
    if isinstance(form, dict) and isinstance(rest, dict):
        return {**form, **{key: _merged(form.get(key), value) for key, value in rest.items()}}
    return rest


# ---- columns ---------------------------------------------------------------------------------------


def _records(fields: Fields, columns: Sequence[pa.Array], rows: int) -> list[Any]:
    told = {key: values for key, cells in fields.items() if (values := _field(cells, columns)) is not None}
    if not told:
        return [{} for _ in range(rows)]
    keys = tuple(told)
    return [
        {key: value for key, value in zip(keys, row, strict=True) if value is not None}
        for row in zip(*told.values(), strict=True)
    ]


def _field(cells: Cells, columns: Sequence[pa.Array]) -> list[Any] | None:
    """Return what the columns of a field say together in each row; None if they are all null."""
    there = [cell for cell in cells if columns[cell.at].null_count < len(columns[cell.at])]
    values = [_nested(cell, columns[cell.at], cell.dim) for cell in there]
    if len(there) < 2:
        return values[0] if values else None
    if len(there) == 2 and not any(cell.dim or cell.kind in (RECORD, MAP) for cell in there):
        return [_pair(there, one, other) for one, other in zip(*values, strict=True)]
    return [_together(there, row) for row in zip(*values, strict=True)]


def _pair(cells: Sequence[SourceColumn], one: Any, other: Any) -> Any:
    """Return what two columns of scalars say together; mostly they are a number and its text."""
    if other is None or one is None:
        return other if one is None else one
    return one if str(one) == other or one == other else _together(cells, (one, other))


def _together(cells: Sequence[SourceColumn], row: Sequence[Any]) -> Any:
    parts = [(cell, cell.dim, value) for cell, value in zip(cells, row, strict=True) if value is not None]
    return _said(parts) if len(parts) > 1 else parts[0][2] if parts else None


def _nested(cell: SourceColumn, values: pa.Array, dim: int) -> list[Any]:
    if dim:
        return _grouped(_nested(cell, values.flatten(), dim - 1), pc.list_value_length(values).to_pylist())
    if cell.fields is not None:
        found = _records(cell.fields, values.flatten(), len(values))
        if not values.null_count:
            return found
        valid = values.is_valid().to_pylist()
        return [record if is_there else None for record, is_there in zip(found, valid, strict=True)]
    if cell.value is not None:
        return _maps(cell.value, values)
    return _LEAVES[cell.kind](values)


def _grouped(items: list[Any], lengths: list[int | None]) -> list[Any]:
    found: list[Any] = []
    at = 0
    for length in lengths:
        if length is None:
            found.append(None)
        else:
            found.append(items[at : at + length])
            at += length
    return found


def _maps(inner: SourceColumn, values: pa.MapArray) -> list[Any]:
    pairs = values.cast(pa.list_(pa.struct([("key", values.type.key_type), ("value", values.type.item_type)])))
    keys, items = pairs.flatten().flatten()
    told = list(zip(keys.to_pylist(), _nested(inner, items, inner.dim), strict=True))
    lengths = pc.list_value_length(pairs).to_pylist()
    return [None if entries is None else _keyed(entries) for entries in _grouped(told, lengths)]


def _keyed(entries: list[tuple[str, Any]]) -> Any:
    found = dict(entries)
    return found if len(found) == len(entries) else CONTRADICTION


# ---- leaves ----------------------------------------------------------------------------------------


def _as_they_are(values: pa.Array) -> list[Any]:
    found: list[Any] = values.to_pylist()
    return found


def _doubles(values: pa.Array) -> list[Any]:
    return [
        value if value is None or (value % 1 and abs(value) < EXACT_WHOLE) else _whole_double(value)
        for value in values.to_pylist()
    ]


def _whole_double(value: float) -> Any:
    return int(value) if value and abs(value) <= EXACT_WHOLE and value % 1 == 0 else canonical_double(value)


def _decimals(values: pa.Array) -> list[Any]:
    return [None if value is None else canonical_number(value) for value in values.to_pylist()]


def _bytes(values: pa.Array) -> list[Any]:
    """Return bytes as they are: no JSON says them, so no record equals a row that has some."""
    return _as_they_are(values)


def _days(values: pa.Array) -> list[Any]:
    return _as_they_are(values.cast(pa.string()))


def _instants(values: pa.Array) -> list[Any]:
    micros = values.cast(pa.timestamp("us", values.type.tz)).cast(pa.int64()).cast(pa.timestamp("us"))
    return [None if text is None else utc(text.replace(" ", "T")) for text in micros.cast(pa.string()).to_pylist()]


_LEAVES: Mapping[str, Callable[[pa.Array], list[Any]]] = MappingProxyType(
    {
        **dict(zip(("boolean", "byte", "short", "integer", "long", "string"), repeat(_as_they_are))),
        "double": _doubles,
        "float": _doubles,
        "decimal": _decimals,
        "date": _days,
        "timestamp": _instants,
        "timestamp_ntz": _instants,
        "binary": _bytes,
    }
)


# ---- several columns of one field ------------------------------------------------------------------


def _said(parts: Parts) -> Any:
    """Return what columns of one field say together, none of them null there."""
    bare = [(cell, value) for cell, dim, value in parts if not dim and cell.kind != MAP]
    if bare:
        return _agreed(bare[0][1], bare[0][0], parts)
    maps = [(cell.value, value) for cell, dim, value in parts if not dim and cell.value is not None]
    if maps:
        return _agreed(_said_by_maps(maps), None, [part for part in parts if part[1]])
    length = len(parts[0][2])
    if any(len(value) != length for _, _, value in parts):
        return CONTRADICTION
    return [_said_at(parts, at) for at in range(length)]


def _said_at(parts: Parts, at: int) -> Any:
    there = [(cell, dim - 1, value[at]) for cell, dim, value in parts if value[at] is not None]
    return _said(there) if len(there) > 1 else there[0][2] if there else None


def _said_by_maps(maps: Sequence[tuple[SourceColumn, Any]]) -> Any:
    keys = maps[0][1].keys()
    if any(entries.keys() != keys for _, entries in maps):
        return CONTRADICTION
    found = {}
    for key in keys:
        there = [(cell, cell.dim, entries[key]) for cell, entries in maps if entries[key] is not None]
        found[key] = _said(there) if len(there) > 1 else there[0][2] if there else None
    return found


def _agreed(told: Any, teller: SourceColumn | None, parts: Parts) -> Any:
    """Return what one column says if the others say the same, wrapped in arrays or not."""
    for cell, dim, value in parts:
        if cell is teller:
            continue
        for _ in range(dim):
            if len(value) != 1:
                return CONTRADICTION
            value = value[0]
        if teller is not None and teller.kind == cell.kind == RECORD:
            told = _united(value, told)
        elif not (_is_instant_of(cell, told, value) if _counts(cell, told) else does_agree(told, value)):
            return CONTRADICTION
    return told


def _counts(cell: SourceColumn, told: Any) -> bool:
    return cell.kind == "timestamp" and type(told) is int and not cell.is_dated


def _is_instant_of(cell: SourceColumn, number: int, value: str) -> bool:
    """Tell whether an instant is the one that a whole number counts, in the unit of the column (D5)."""
    return bool(said(cell, Token(number)) == value)


def _united(wide: Any, narrow: Any) -> Any:
    """Return a record as two columns say it; the one with more arrays has all fields (U17)."""
    if not isinstance(wide, dict) or not isinstance(narrow, dict):
        return CONTRADICTION
    both = wide.keys() & narrow.keys()
    is_same = all(does_agree(wide[key], narrow[key]) or does_agree(narrow[key], wide[key]) for key in both)
    return {**narrow, **wide} if is_same else CONTRADICTION


def does_agree(told: Any, other: Any) -> bool:
    """Tell whether another column of the field may hold that for a value that one column says.

    Args:
        told: What the first column of the field says.
        other: What the other says, of a wider type (U14).
    """
    if told is None or other is None:
        return True
    if isinstance(told, dict) and isinstance(other, dict):
        return all(does_agree(told[key], other[key]) for key in told.keys() & other.keys())
    if isinstance(told, list) or isinstance(other, list):
        one, two = (value if isinstance(value, list) else [value] for value in (told, other))
        return len(one) == len(two) and all(map(does_agree, one, two))
    if type(told) is type(other):
        return bool(told == other) or (isinstance(told, str) and _is_same_moment(told, other))
    if isinstance(told, str) or isinstance(other, str):
        text, value = (told, other) if isinstance(told, str) else (other, told)
        return _is_text_of(text, value)
    return bool(told == other)


def _is_text_of(text: str, value: Any) -> bool:
    """Tell whether a column of texts holds that for a boolean or a number, or for a moment that the number counts."""
    if isinstance(value, bool):
        return text == _BITS[value]
    if not isinstance(value, (int, float)):
        return _spells(text, value)
    return text == str(value) or text == _BITS.get(value) or _spells(text, value) or _is_count(text, value)


_BITS: Mapping[float, str] = MappingProxyType({0: "false", 1: "true"})


def _spells(text: str, number: Any) -> bool:
    digits = text.lstrip("-")
    return digits[:1].isdigit() and bool(_number(text) == number)


def _number(text: str) -> Any:
    try:
        return canonical_token(text)
    except ValueError:
        return None


def _is_same_moment(text: str, other: str) -> bool:
    return other.endswith("Z") and other in (utc(text), utc(f"{text}T00:00:00Z"))


_MICROS = (1, 10**3, 10**6, 86_400 * 10**6)


def _is_count(text: str, number: Any) -> bool:
    """Tell whether a number counts days, seconds or parts of seconds from 1970 to a moment."""
    micros = _micros(text)
    if micros is None or isinstance(number, bool) or not isinstance(number, (int, float)):
        return False
    return any(Decimal(number) * each == micros for each in _MICROS) or Decimal(number) / 1000 == micros


def _micros(text: str) -> int | None:
    try:
        passed = datetime.fromisoformat(text.replace("Z", "").replace("+00:00", "")) - datetime(1970, 1, 1)
    except ValueError:
        return None
    return (passed.days * 86_400 + passed.seconds) * 10**6 + passed.microseconds
