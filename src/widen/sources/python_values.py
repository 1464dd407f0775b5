"""Values of Python as columns of Arrow: records as dicts, and columns of objects of pandas.

A column has one kind of values. Records whose values of a field have different kinds go to different batches, so that
each value keeps its kind: an evolution of the schema follows, as between two files.

Source: docs/guide/memory.md#dicts
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from itertools import chain, islice
from typing import Any
from uuid import UUID

import pyarrow as pa

from widen.errors import InvalidOption, SourceContentError

CHUNK_RECORDS = 2**15
"""How many records are read before they are written: an iterator takes as much memory as so many."""

_PLAIN = (bool, int, float, str, bytes, Decimal, datetime, date, time, timedelta)
_INT64 = range(-(2**63), 2**63)
_AS_JSON = (
    'Pass such records as JSON instead, which has rules for them: a table with a column of texts, and format="json".'
)
_FIX = "Turn it into text, a number, a time, a list or a dict."


class _Kind(str, Enum):
    """Kinds of values that are no classes."""

    WIDE = "integer of more than 64 bits"
    LOCAL = "time without a zone"
    LIST = "list"
    RECORD = "dict"


def read_dicts(records: Iterable[Any], name: str) -> Iterable[pa.RecordBatch]:
    """Yield records as batches with one kind of values in each column."""
    return _with_types(_read_dicts(records, name), name)


def _read_dicts(records: Iterable[Any], name: str) -> Iterator[pa.RecordBatch]:
    every = iter(records)
    while chunk := list(islice(every, CHUNK_RECORDS)):
        for each in chunk:
            if not isinstance(each, Mapping):
                expected = "Each record must be a dict, from the names of fields to values."
                raise InvalidOption(option="source", value=f"{name} of {type(each).__name__}", expected=expected)
        names = list(dict.fromkeys(chain.from_iterable(chunk)))
        for each in names:
            if not isinstance(each, str):
                reason = f"a field has a name of the type {type(each).__name__}"
                raise SourceContentError(source=name, reason=reason, fix="The names of fields must be texts.")
        if not names:
            raise SourceContentError(source=name, reason="records have no field", fix="Leave empty dicts out.")
        yield from to_batches({each: [record.get(each) for record in chunk] for each in names}, name)


def has_objects(frame: Any) -> bool:
    """Return whether something of pandas is a DataFrame that has columns of objects."""
    return any(str(kind) == "object" for kind in getattr(frame, "dtypes", ()))


def ensure_names_differ(frame: Any, name: str) -> None:
    """Check that no two columns of a DataFrame of pandas have the same name as text.

    Raises:
        SourceContentError: two have.
    """
    names = [str(each) for each in getattr(frame, "columns", ())]
    repeated = next((each for at, each in enumerate(names) if each in names[:at]), None)
    if repeated is not None:
        raise SourceContentError(source=name, reason=f"it has two columns named {repeated}", fix="Rename one of them.")


def ensure_no_objects(frame: Any, name: str) -> None:
    """Check that a DataFrame of polars has no column of objects: Arrow has only their addresses.

    Raises:
        SourceContentError: it has one.
    """
    found = next((column for column, kind in getattr(frame, "schema", {}).items() if str(kind) == "Object"), None)
    if found is not None:
        raise SourceContentError(source=name, reason=f"the column {found} has objects of Python", fix=_FIX)


def read_pandas(frame: Any, name: str) -> Iterable[pa.RecordBatch]:
    """Yield the rows of a DataFrame of pandas with columns of objects; their values have the kinds of the objects."""
    return _with_types(_read_pandas(frame, name), name)


def _read_pandas(frame: Any, name: str) -> Iterator[pa.RecordBatch]:
    objects = [str(each) for each, kind in frame.dtypes.items() if str(kind) == "object"]
    for start in range(0, len(frame), CHUNK_RECORDS):
        part = frame.iloc[start : start + CHUNK_RECORDS]
        columns: dict[str, Any] = {}
        for each in part.columns:
            if str(each) in objects:
                columns[str(each)] = [_without_missing(value) for value in part[each]]
            else:
                columns[str(each)] = pa.array(part[each], from_pandas=False)
        yield from to_batches(columns, name)


def _without_missing(value: Any) -> Any:
    """Return None for the values of pandas that are missing and no NaN."""
    return None if type(value).__name__ in ("NAType", "NaTType") else value


def to_batches(columns: Mapping[str, pa.Array | Sequence[Any]], name: str) -> Iterator[pa.RecordBatch]:
    """Yield columns of values as batches, in each of which a column has one kind of values.

    Args:
        columns: Arrays of Arrow, or values of Python; all of the same length.
    """
    made: dict[str, pa.Array] = {}
    mixed: dict[str, list[Any]] = {}
    for column, values in columns.items():
        if isinstance(values, (pa.Array, pa.ChunkedArray)):
            made[column] = values
            continue
        plain = [_normalize(value, column, name) for value in values]
        array = _to_array(plain)
        if array is None:
            mixed[column] = plain
        else:
            made[column] = array
    if not mixed:
        yield pa.RecordBatch.from_arrays([_one(made[column]) for column in columns], names=list(columns))
        return
    for places in _group(list(mixed.values())):
        chosen = {column: [values[at] for at in places] for column, values in mixed.items()}
        arrays = []
        for column in columns:
            array = _one(made[column]).take(pa.array(places)) if column in made else _to_array(chosen[column])
            if array is None:  # empty lists and dicts beside values of other kinds
                array = _to_array([value if _signature(value) else None for value in chosen[column]])
            if array is None:
                reason = f"the column {column} has values with several kinds of values in one list"
                raise SourceContentError(source=name, reason=reason, fix=_AS_JSON)
            arrays.append(array)
        yield pa.RecordBatch.from_arrays(arrays, names=list(columns))


def _one(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _group(columns: Sequence[Sequence[Any]]) -> list[list[int]]:
    """Return the places of the rows whose values have the same kinds in every column, or no kind."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for at, row in enumerate(zip(*columns, strict=True)):
        groups.setdefault(tuple(map(_signature, row)), []).append(at)
    if len(groups) <= _MAX_MERGED:
        for kinds in sorted(groups, key=lambda each: sum(map(len, each))):
            found = next((other for other in groups if other != kinds and _has_all(other, kinds)), None)
            if found is not None:
                groups[found] += groups.pop(kinds)
    return [sorted(places) for places in groups.values()]


def _has_all(wider: tuple[Any, ...], kinds: tuple[Any, ...]) -> bool:
    return all(each <= other for each, other in zip(kinds, wider, strict=True))


_MAX_MERGED = 200
"""Up to this number of groups, one is merged with another that has its kinds and more."""


def _with_types(batches: Iterable[pa.RecordBatch], name: str) -> Iterator[pa.RecordBatch]:
    """Yield batches; rows of one without any value get the types of another."""
    known: pa.Schema | None = None
    waiting = 0
    for batch in batches:
        if all(pa.types.is_null(kind) for kind in batch.schema.types):
            waiting += batch.num_rows
            continue
        known = known or batch.schema
        yield batch
    if known is None:
        if not waiting:
            raise SourceContentError(source=name, reason="it has no record", fix="Load at least one record.")
        fix = "Load records with at least one value."
        raise SourceContentError(source=name, reason="no record has a value", fix=fix)
    for start in range(0, waiting, CHUNK_RECORDS):
        arrays = [pa.nulls(min(CHUNK_RECORDS, waiting - start), kind) for kind in known.types]
        yield pa.RecordBatch.from_arrays(arrays, schema=known)


def _normalize(value: Any, column: str, name: str) -> Any:
    """Return a value as one of the classes that Arrow knows."""
    kind = type(value)
    if value is None or kind in (bool, float, str, bytes, Decimal, date, time, timedelta):
        return value
    if kind is int:
        return value if value in _INT64 else Decimal(value)
    if kind is dict or isinstance(value, Mapping):
        if not all(isinstance(each, str) for each in value):
            raise _unknown(column, name, "dicts with names that are no texts")
        return {key: _normalize(inner, column, name) for key, inner in value.items()}
    if kind in (list, tuple, set, frozenset):
        return [_normalize(inner, column, name) for inner in value]
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Enum):
        return _normalize(value.value, column, name)
    if hasattr(value, "tolist") and kind.__module__.partition(".")[0] == "numpy":
        return _normalize(value.tolist(), column, name)
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, (bytearray, memoryview)):
        return bytes(value)
    raise _unknown(column, name, f"values of the class {kind.__name__}")


def _unknown(column: str, name: str, what: str) -> SourceContentError:
    return SourceContentError(source=name, reason=f"the column {column} has {what}", fix=_FIX)


def _to_array(values: Sequence[Any]) -> pa.Array | None:
    """Return values as an array; None if they have several kinds."""
    found: dict[tuple[str, ...], set[Any]] = {}
    for value in values:
        _collect(value, (), found)
    if any(len(kinds) > 1 and kinds != {int, float} for kinds in found.values()):
        return None
    try:
        array = pa.array(values, from_pandas=False)
        return pa.array([*map(_without_empty, values)], from_pandas=False) if _has_no_fields(array.type) else array
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError):
        return None


def _has_no_fields(kind: pa.DataType) -> bool:
    """Return whether a type has structs without fields or lists without values, which no file holds."""
    if pa.types.is_struct(kind) and not kind.num_fields:
        return True
    if pa.types.is_list(kind) and pa.types.is_null(kind.value_type):
        return True
    return any(_has_no_fields(kind.field(at).type) for at in range(kind.num_fields))


def _without_empty(value: Any) -> Any:
    """Return a value with nulls instead of empty dicts and lists, as JSON is loaded whose values have no column."""
    if isinstance(value, dict):
        return {key: _without_empty(inner) for key, inner in value.items()} or None
    return [*map(_without_empty, value)] or None if isinstance(value, list) else value


def _collect(value: Any, path: tuple[str, ...], found: dict[tuple[str, ...], set[Any]]) -> None:
    """Add the kinds of a value and of what is in it, by their paths."""
    if value is None:
        return
    found.setdefault(path, set()).add(_kind(value))
    if isinstance(value, dict):
        for key, inner in value.items():
            _collect(inner, (*path, key), found)
    elif isinstance(value, list):
        for inner in value:
            _collect(inner, (*path, "[]"), found)


def _kind(value: Any) -> Any:
    if isinstance(value, dict):
        return _Kind.RECORD
    if isinstance(value, list):
        return _Kind.LIST
    if isinstance(value, datetime):
        return _Kind.LOCAL if value.tzinfo is None else datetime
    return next(kind for kind in _PLAIN if isinstance(value, kind))


def _signature(value: Any) -> Any:
    """Return the kinds in a value by their paths; none for a value without one, such as an empty list."""
    found: dict[tuple[str, ...], set[Any]] = {}
    _collect(value, (), found)
    if all(kinds <= {_Kind.LIST, _Kind.RECORD} for kinds in found.values()):
        return frozenset()
    return frozenset((path, frozenset(map(str, kinds))) for path, kinds in found.items())
