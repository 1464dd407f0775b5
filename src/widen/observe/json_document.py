"""JSON text to documents, exactly: numbers stay the tokens they are, and what cannot be kept exactly is refused whole.

Source: RFC 8259; docs/evolution-rules.md#d3, #d11
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

from widen.model.column_path import Path

BOM = b"\xef\xbb\xbf"

MAX_LEVELS = 41
"""How many records and arrays may stand in each other in a table; a record itself is the first. deltalake cannot open
tables with more than 41 structs in each other, since its JSON reader stops at 128 levels of the schema's text."""


class JsonNumber(str):
    """A JSON number, as the source spells it. Telling it from a text is all that the class is for."""

    __slots__ = ()


class JsonText(str):
    """The JSON text of a record or an array that stands in too many others; part of any longer JSON text."""

    __slots__ = ()


class DateText(str):
    """A text that is taken as a date; it stays as the source spells it."""

    __slots__ = ()


class TimestampText(str):
    """A text that is taken as a point in time; it stays as the source spells it."""

    __slots__ = ()


class MapEntries(dict[str, "JsonDocument"]):
    """An object that is taken as a map: its keys are data, and no names of fields."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class InvalidJson:
    """Why a text is no document that can be kept exactly."""

    reason: str


JsonDocument: TypeAlias = Any
"""A dict, a list, a str, a Number, a bool or None; of dicts and lists, what is in them likewise.

Where a `widen.observe.field_rules.FieldRules` has been applied, a str may be a DateText or a TimestampText, and a dict
may be MapEntries.
"""


class _RefusedError(Exception):
    """Carries a reason out of the JSON scanner."""


def parse_document(data: bytes, above: int = 0) -> JsonDocument | InvalidJson:
    """Return the document that a text holds, or why it holds none.

    Refused are: what is no JSON (NaN and Infinity too), duplicate keys, half surrogate pairs and what is not UTF-8,
    for no column could hold them as they are. A record or an array below `MAX_LEVELS` others becomes its JSON text;
    a text in which hundreds stand in each other is refused.

    Args:
        data: One JSON value as UTF-8; a byte order mark in front is passed over.
        above: How many records and arrays the value stands in, where it is a part of a text.

    Source: RFC 8259; docs/evolution-rules.md#d11, #d23

    Example:
        >>> parse(b'{"a": 1.10}'), parse(b'{"a":1,"a":2}')
        ({'a': '1.10'}, NotJson(reason="the key 'a' stands twice in one object"))
    """
    try:
        text = data.removeprefix(BOM).decode()
        document = _decoder.decode(text)
        if data.count(b"{") + data.count(b"[") + above > MAX_LEVELS:
            # An array of records is no level of the table: each record has all levels, as in a line of its own.
            is_batch = not above and isinstance(document, list) and all(isinstance(item, dict) for item in document)
            document = [_flattened(item) for item in document] if is_batch else _flattened(document, above)
        if "\\ud" in text or "\\uD" in text:
            json.dumps(document, ensure_ascii=False).encode()
    except UnicodeDecodeError:
        return InvalidJson("it is not UTF-8")
    except UnicodeEncodeError:
        return InvalidJson("half of a surrogate pair stands alone")
    except RecursionError:
        return InvalidJson(_TOO_DEEP)
    except (json.JSONDecodeError, _RefusedError) as error:
        return InvalidJson(str(error))
    return document


def has_leaf(document: JsonDocument) -> bool:
    """Tell whether there is anything in a document but null, ``[]`` and ``{}``.

    Source: docs/evolution-rules.md#d7
    """
    if isinstance(document, dict):
        return any(map(has_leaf, document.values()))
    return any(map(has_leaf, document)) if isinstance(document, list) else document is not None


def has_field(document: JsonDocument | InvalidJson, path: Path) -> bool:
    """Tell whether a record has a field, in any of the arrays on the way to it."""
    if not path:
        return True
    if isinstance(document, list):
        return any(has_field(item, path) for item in document)
    return isinstance(document, dict) and path[0] in document and has_field(document[path[0]], path[1:])


def document_to_json(document: JsonDocument) -> str:
    """Return the JSON text of a document, its numbers as the tokens they were."""
    match document:
        case dict():
            return (
                "{"
                + ",".join(f"{document_to_json(key)}:{document_to_json(value)}" for key, value in document.items())
                + "}"
            )
        case list():
            return "[" + ",".join(map(document_to_json, document)) + "]"
        case JsonNumber() | JsonText():
            return str(document)
    return json.dumps(document, ensure_ascii=False)


_REFUSED_DEPTH = 200
"""How many records and arrays may stand in each other in a text: a bound that does not depend on Python's stack."""

_TOO_DEEP = f"more than {_REFUSED_DEPTH} records and arrays stand in each other"


def _flattened(document: JsonDocument, above: int = 0) -> JsonDocument:
    """Return a document with the JSON text of every record and array that stands in too many others.

    Args:
        document: The document; what is in it is changed in place.
        above: How many records and arrays it stands in.

    Source: docs/evolution-rules.md#d23
    """
    levels = MAX_LEVELS - above
    if levels <= 0:
        return _to_json_text(document, above) if isinstance(document, (dict, list)) else document
    groups = [document] if isinstance(document, (dict, list)) else []
    for _ in range(levels - 1):
        groups = [item for group in groups for _, item in _items(group) if isinstance(item, (dict, list))]
    for group in groups:
        for place, item in _items(group):
            if isinstance(item, (dict, list)):
                group[place] = _to_json_text(item, MAX_LEVELS)
    return document


def _to_json_text(document: JsonDocument, above: int) -> JsonText:
    _ensure_depth(document, _REFUSED_DEPTH - above)
    return JsonText(document_to_json(document))


def _items(group: Any) -> list[tuple[Any, JsonDocument]]:
    return list(group.items() if isinstance(group, dict) else enumerate(group))


def _ensure_depth(document: JsonDocument, levels: int) -> None:
    groups = [document]
    for _ in range(levels):
        groups = [item for group in groups for _, item in _items(group) if isinstance(item, (dict, list))]
        if not groups:
            return
    raise _RefusedError(_TOO_DEEP)


def _unique(pairs: list[tuple[str, JsonDocument]]) -> dict[str, JsonDocument]:
    record = dict(pairs)
    if len(record) != len(pairs):
        keys = [key for key, _ in pairs]
        raise _RefusedError(f"the key {next(k for k in keys if keys.count(k) > 1)!r} stands twice in one object")
    return record


def _no_constant(token: str) -> NoReturn:
    raise _RefusedError(f"{token} is no JSON")


_decoder = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=JsonNumber, parse_int=JsonNumber, parse_constant=_no_constant
)
