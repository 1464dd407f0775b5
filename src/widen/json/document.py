"""Parse JSON without loss: numbers keep their spelling, and a text that cannot be stored exactly is rejected.

Source: RFC 8259; docs/evolution-rules.md#d3, #d11
"""

from __future__ import annotations

import ast
import json
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias

BOM = b"\xef\xbb\xbf"

MAX_LEVELS = 41
"""The most levels of nested records and arrays in a table; the record itself is the first. deltalake cannot open
tables with more than 41 nested structs, since its JSON reader stops at 128 levels of the schema's text."""


class JsonNumber(str):
    """A JSON number in the spelling of the source. The class only distinguishes it from a string."""

    __slots__ = ()


class JsonText(str):
    """The JSON text of a record or array that is nested too deeply; `document_to_json` embeds it unquoted."""

    __slots__ = ()


class DateText(str):
    """A string that is read as a date, in the spelling of the source."""

    __slots__ = ()


class TimestampText(str):
    """A string that is read as a timestamp, in the spelling of the source."""

    __slots__ = ()


class LocalTimeText(str):
    """A string that is read as a timestamp without a time zone, in the spelling of the source."""

    __slots__ = ()


class MapEntries(dict[str, "JsonDocument"]):
    """An object that is read as a map: its keys are data, not field names."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class InvalidJson:
    """Why a text is not a document that can be stored exactly."""

    reason: str


JsonDocument: TypeAlias = Any
"""A dict, list, str, JsonNumber, JsonText, bool or None; the items of dicts and lists are documents too.

After `widen.json.field_rules.FieldRules` are applied, a str may be a DateText, a TimestampText or a
LocalTimeText, and a dict may be MapEntries.
"""


class _RejectedError(Exception):
    """Carries the reason out of the hooks of the JSON decoder."""


def parse_document(data: bytes, above: int = 0) -> JsonDocument | InvalidJson:
    """Return the document of a JSON text, or why the text is rejected.

    A text is rejected if no column could store it exactly: it is not JSON (NaN and Infinity are not), not UTF-8, has
    duplicate keys or half of a surrogate pair, or has hundreds of nested levels. A record or array nested in
    `MAX_LEVELS` others becomes a `JsonText`.

    Args:
        data: One JSON value as UTF-8; a leading byte order mark is ignored.
        above: How many records and arrays contain the value, if it is a part of a text.

    Source: RFC 8259; docs/evolution-rules.md#d11, #d23

    Example:
        >>> parse_document(b'{"a": 1.10}'), parse_document(b'{"a":1,"a":2}')
        ({'a': '1.10'}, InvalidJson(reason="the key 'a' appears twice in one object"))
    """
    try:
        text = data.removeprefix(BOM).decode()
        document = _decoder.decode(text)
        if data.count(b"{") + data.count(b"[") + above > MAX_LEVELS:
            # A top-level array of records is not a level of the table: each record may use all levels.
            is_batch = not above and isinstance(document, list) and all(isinstance(item, dict) for item in document)
            document = [_limit_levels(item) for item in document] if is_batch else _limit_levels(document, above)
        # Only an escape can spell half of a surrogate pair; encoding the document finds it.
        if "\\ud" in text or "\\uD" in text:
            json.dumps(document, ensure_ascii=False).encode()
    except UnicodeDecodeError:
        return InvalidJson("it is not UTF-8")
    except UnicodeEncodeError:
        return InvalidJson("it has half of a surrogate pair")
    except RecursionError:
        return InvalidJson(_TOO_DEEP)
    except (json.JSONDecodeError, _RejectedError) as error:
        return InvalidJson(str(error))
    return document


def has_leaf(document: JsonDocument) -> bool:
    """Return whether a document has a value other than null, ``[]`` and ``{}``.

    Source: docs/evolution-rules.md#d7
    """
    if isinstance(document, dict):
        return any(map(has_leaf, document.values()))
    return any(map(has_leaf, document)) if isinstance(document, list) else document is not None


def parse_nested(text: JsonText) -> JsonDocument:
    """Return the document of a text that replaces a nested one, with all its levels."""
    return _decoder.decode(text)


def document_to_json(document: JsonDocument) -> str:
    """Return the JSON text of a document, with the numbers in their original spelling."""
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


_MAX_TEXT_LEVELS = 200
"""The most nested records and arrays in a text: a limit that does not depend on Python's stack."""

_TOO_DEEP = f"more than {_MAX_TEXT_LEVELS} nested records and arrays"


def _limit_levels(document: JsonDocument, above: int = 0) -> JsonDocument:
    """Return a document whose records and arrays below the last level are replaced by their JSON text.

    Args:
        document: The document; changes in place.
        above: How many records and arrays contain it.

    Source: docs/evolution-rules.md#d23
    """
    levels = MAX_LEVELS - above
    if levels <= 0:
        return _to_json_text(document, above) if isinstance(document, (dict, list)) else document
    groups = [document] if isinstance(document, (dict, list)) else []
    for _ in range(levels - 1):
        groups = [item for group in groups for _, item in _items(group) if isinstance(item, (dict, list))]
    for group in groups:
        for key, item in _items(group):
            if isinstance(item, (dict, list)):
                group[key] = _to_json_text(item, MAX_LEVELS)
    return document


def _to_json_text(document: JsonDocument, above: int) -> JsonText:
    _ensure_depth(document, _MAX_TEXT_LEVELS - above)
    return JsonText(document_to_json(document))


def _items(group: Any) -> list[tuple[Any, JsonDocument]]:
    return list(group.items() if isinstance(group, dict) else enumerate(group))


def _ensure_depth(document: JsonDocument, levels: int) -> None:
    groups = [document]
    for _ in range(levels):
        groups = [item for group in groups for _, item in _items(group) if isinstance(item, (dict, list))]
        if not groups:
            return
    raise _RejectedError(_TOO_DEEP)


def _to_record(pairs: list[tuple[str, JsonDocument]]) -> dict[str, JsonDocument]:
    record = dict(pairs)
    if len(record) != len(pairs):
        keys = [key for key, _ in pairs]
        raise _RejectedError(f"the key {next(k for k in keys if keys.count(k) > 1)!r} appears twice in one object")
    return record


def _reject_constant(token: str) -> NoReturn:
    raise _RejectedError(f"{token} is not JSON")


_decoder = json.JSONDecoder(
    object_pairs_hook=_to_record, parse_float=JsonNumber, parse_int=JsonNumber, parse_constant=_reject_constant
)


# Corrupt records as text, without loss: the original bytes can be restored from the text.
#
# UTF-8 bytes are decoded. Other bytes are written in the notation of Python, ``b'...'``. Text that already begins
# like that is written in this notation too, so that a text never means two different contents.
#
# Source: docs/evolution-rules.md#d11


_LITERAL_PREFIXES = ("b'", 'b"')


def corrupt_bytes_to_text(data: bytes) -> str:
    r"""Return the text to store for the bytes of a corrupt record.

    Example:
        >>> corrupt_bytes_to_text(b"no"), corrupt_bytes_to_text(b"no\xff")
        ('no', "b'no\\xff'")
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return repr(data)
    return repr(data) if text.startswith(_LITERAL_PREFIXES) else text


def corrupt_text_to_bytes(text: str) -> bytes:
    r"""Return the original bytes of a text from `corrupt_bytes_to_text`.

    Example:
        >>> corrupt_text_to_bytes("no"), corrupt_text_to_bytes("b'no\\xff'")
        (b'no', b'no\xff')
    """
    if not text.startswith(_LITERAL_PREFIXES):
        return text.encode()
    data = ast.literal_eval(text)
    assert isinstance(data, bytes)
    return data
