"""Whether a row says everything that a record says, told leaf by leaf from U1 and U2 and from nothing of the engine."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any

from widen.json.document import DateText, JsonNumber, LocalTimeText, MapEntries, TimestampText
from widen.model.types import ArrayType, DataType, Field, MapType, StructType

Cell = tuple[Any, DataType]
"""What stands somewhere in a row, with its type."""


def lost(schema: StructType, row: Mapping[str, Any], record: Mapping[str, Any]) -> list[str]:
    """Return the paths of the values of a record that no column of the row says exactly, the rescue column apart."""
    rescued = row.get("_rescued")
    rest = {} if rescued is None else json.loads(rescued, parse_int=JsonNumber, parse_float=JsonNumber)
    return [path for path in _lost(schema, row, record, "") if not _is_rescued(rest, record, path)]


def _lost(struct: StructType, row: Mapping[str, Any], record: Mapping[str, Any], above: str) -> list[str]:
    found: list[str] = []
    for key, value in record.items():
        cells = [
            (row[field.name], field.type) for field in struct if _key(field) == key and row.get(field.name) is not None
        ]
        found += _lost_value(cells, value, f"{above}/{json.dumps(key)}")
    return found


def _key(field: Field) -> str:
    return str(field.metadata.get("widen.source", [field.name])[-1])


def _lost_value(cells: list[Cell], value: Any, path: str) -> list[str]:
    if value is None:
        return []
    if isinstance(value, list):
        arrays = [(cell, kind) for cell, kind in cells if isinstance(kind, ArrayType) and len(cell) == len(value)]
        if not value or not any(True for _ in _scalars(value)):
            return []
        return [
            at
            for n, item in enumerate(value)
            for at in _lost_value([(c[n], k.element) for c, k in arrays if c[n] is not None], item, f"{path}[{n}]")
        ]
    plain = [(cell, kind) for cell, kind in cells if not isinstance(kind, ArrayType)]
    if isinstance(value, MapEntries) and any(isinstance(kind, MapType) for _, kind in plain):
        maps = [(dict(cell), kind.value) for cell, kind in plain if isinstance(kind, MapType)]
        return [at for key, item in value.items() for at in _lost_entry(maps, key, item, f"{path}/{json.dumps(key)}")]
    wrapped = [(c[0], k.element) for c, k in cells if isinstance(k, ArrayType) and len(c) == 1 and c[0] is not None]
    if isinstance(value, dict):
        ways = [_lost(kind, cell, value, path) for cell, kind in plain if isinstance(kind, StructType)]
        ways += [_lost_value(wrapped, value, path)] if wrapped else []
        # Of two ways with one loss each, the deeper one loses less.
        depth = partial(max, default=0)
        best = min(ways, key=lambda way: (len(way), -depth(each.count("/") for each in way)), default=None)
        return best if best is not None else [path] if any(True for _ in _scalars(value)) else []
    if any(_says(cell, value) for cell, kind in plain if not isinstance(kind, StructType)):
        return []
    return _lost_value(wrapped, value, path) if wrapped else [path]


def _lost_entry(maps: list[tuple[dict[str, Any], DataType]], key: str, value: Any, path: str) -> list[str]:
    if not all(key in entries for entries, _ in maps):
        return [path]
    return _lost_value([(entries[key], kind) for entries, kind in maps if entries[key] is not None], value, path)


def _says(cell: Any, value: Any) -> bool:
    if isinstance(value, bool):
        return cell in (value, "true" if value else "false") and isinstance(cell, bool | int | float | Decimal | str)
    if isinstance(value, DateText | LocalTimeText | TimestampText) and not isinstance(cell, str):
        return _says_time(cell, value)
    if isinstance(cell, str) or not isinstance(value, JsonNumber):
        return isinstance(cell, str) and cell == value
    if isinstance(cell, bool) or not isinstance(cell, int | float | Decimal):
        return False
    try:
        token = Decimal(value)
    except InvalidOperation:
        return False
    said = Decimal(repr(cell)) if isinstance(cell, float) else Decimal(cell)
    is_signed = token == 0 and token.is_signed() and any(char in value for char in ".eE")
    return said == token and (not is_signed or said.is_signed())


def _says_time(cell: Any, value: DateText | LocalTimeText | TimestampText) -> bool:
    """Judge by arithmetic on what Python's own reader of ISO texts makes of the text."""
    if isinstance(value, LocalTimeText):
        at = datetime.fromisoformat(value[:19]) + timedelta(microseconds=int(value[20:].ljust(6, "0")))
        return isinstance(cell, datetime) and cell.tzinfo is None and cell == at
    text = value.replace("Z", "+00:00") if isinstance(value, TimestampText) else f"{value}T00:00:00+00:00"
    whole, point, rest = text.partition(".")
    micros = int(rest.partition("+")[0].ljust(6, "0")) if point else 0
    at = datetime.fromisoformat(f"{whole}+00:00" if point else whole) + timedelta(microseconds=micros)
    if isinstance(cell, datetime):
        return (cell if cell.tzinfo else cell.replace(tzinfo=timezone.utc)) == at
    if isinstance(cell, date):
        return isinstance(value, DateText) and cell == at.date()
    unit = timedelta(days=1) if isinstance(value, DateText) else timedelta(milliseconds=1)
    passed = at - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return isinstance(cell, int | float | Decimal) and not passed % unit and cell == passed // unit


def _scalars(value: Any) -> Iterable[Any]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _scalars(each)
    elif value is not None:
        yield value


def _is_rescued(rest: Any, record: Any, path: str) -> bool:
    """Return whether the rest, a part of the record, has the value at a path, or an array that it stands in."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(path):
        if path[at] == "[":
            return bool(rest == record)
        key, at = decoder.raw_decode(path, at + 1)
        if not isinstance(rest, dict) or key not in rest:
            return False
        rest, record = rest[key], record[key]
    return bool(rest == record) and type(rest) is type(record)
