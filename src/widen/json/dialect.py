"""Dialects: JSON that writes the type of each value around it, such as ``{"$numberLong": "7"}``, as plain JSON.

An object with one field whose name the dialect knows is replaced by its value, if that is as the type has it. All other
objects stay, and so does what is wrapped wrongly. Numbers keep their spelling.

Source: docs/guide/typed-json.md
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, TypeAlias
from uuid import UUID

from widen.errors import InvalidOption
from widen.json.document import BOM, JsonDocument, JsonNumber, document_to_json, split_text
from widen.json.record_path import PARENT
from widen.model.value_classes import dataclass

KINDS: Mapping[str, str] = MappingProxyType(
    {
        "text": "a string",
        "number": "a number, or a string with one; also NaN, Infinity and -Infinity",
        "boolean": "true or false",
        "null": "null, or true",
        "date": "a string, or milliseconds since 1970, which become a string",
        "object": "an object whose fields are wrapped; after a colon, the field that has it",
        "list": "a list whose items may be wrapped; after a colon, the field that has it",
        "numbers": "a list of numbers, or of strings with one each",
        "binary": "an object with base64 and subType: the bytes in base64, or a UUID",
    }
)
"""What the value in a wrapper can be, by the word for it."""


@dataclass(frozen=True)
class Dialect:
    """How values are wrapped.

    Args:
        kinds: The word of `KINDS` for each name of a wrapper, and the field after its colon or nothing.
        root: The field that has the record, where it is the only one of its document; else empty.
        has_schemas: Whether each document says its types in a schema part, see `widen.json.connect`.
        nanos: With schema parts, what becomes of times that microseconds do not hold: error, truncate or text.
        registry: The URL or the folder of a registry, whose schemas say the types of framed messages; else empty.
        function: The function that makes JSON of a message, as ``module:function``; else empty.
        for_texts: The dialect of rows that an event has as texts, as MongoDB's connectors write them; None if it is the
            same.
    """

    name: str
    kinds: tuple[tuple[str, str, str], ...]
    root: str = ""
    has_schemas: bool = False
    nanos: str = "error"
    registry: str = ""
    function: str = ""
    for_texts: Dialect | None = None

    @property
    def of_plain(self) -> Dialect:
        """The same for documents that are plain already, but for the rows that they have as texts."""
        return Dialect(self.name, (), for_texts=self.for_texts or self)

    @property
    def is_plain(self) -> bool:
        """Whether documents are plain JSON, but for the rows that they have as texts."""
        return not self.kinds and not self.has_schemas and not self.function

    @property
    def has_messages(self) -> bool:
        """Whether the texts are messages that are not JSON."""
        return bool(self.registry or self.function)


def build_dialect(name: str, values: Mapping[str, str], root: str = "", option: str = "dialect") -> Dialect:
    """Return a dialect.

    Args:
        values: A word of `KINDS` for each name of a wrapper; ``object`` and ``list`` may have a colon and a field.
    """
    kinds = []
    for wrapper, text in values.items():
        word, colon, field = text.partition(":")
        if word not in KINDS or bool(colon) != bool(field) or (field and word not in ("object", "list")):
            expected = f"Must be {', '.join(KINDS)}; object and list may name a field, as in object:fields."
            raise InvalidOption(option=f"{option}.values.{wrapper}", value=text, expected=expected)
        kinds.append((wrapper, word, field))
    return Dialect(name, tuple(kinds), root)


_MONGODB = {
    "$oid": "text",
    "$numberInt": "number",
    "$numberLong": "number",
    "$numberDouble": "number",
    "$numberDecimal": "number",
    "$date": "date",
    "$uuid": "text",
    "$symbol": "text",
    "$code": "text",
    "$binary": "binary",
    "$timestamp": "object",
    "$regularExpression": "object",
    "$dbPointer": "object",
    "$undefined": "null",
}
_DYNAMODB = {
    "S": "text",
    "N": "number",
    "B": "text",
    "BOOL": "boolean",
    "NULL": "null",
    "M": "object",
    "L": "list",
    "SS": "list",
    "NS": "numbers",
    "BS": "list",
}
_FIRESTORE = {
    "nullValue": "null",
    "booleanValue": "boolean",
    "integerValue": "number",
    "doubleValue": "number",
    "timestampValue": "text",
    "stringValue": "text",
    "bytesValue": "text",
    "referenceValue": "text",
    "geoPointValue": "object",
    "arrayValue": "list:values",
    "mapValue": "object:fields",
}

_MONGODB_DIALECT = build_dialect("mongodb", _MONGODB)

DIALECTS: Mapping[str, Dialect] = MappingProxyType(
    {
        "mongodb": _MONGODB_DIALECT,
        "dynamodb": build_dialect("dynamodb", _DYNAMODB, "Item"),
        "firestore": build_dialect("firestore", _FIRESTORE),
        "connect": Dialect("connect", (), has_schemas=True, for_texts=_MONGODB_DIALECT),
    }
)
"""The dialects that a caller can name."""


class DialectReader:
    """Returns records as plain JSON."""

    def __init__(self, dialect: Dialect) -> None:
        self._root = dialect.root
        self._convert = {name: _converter(self, word, field) for name, word, field in dialect.kinds}
        names = [json.dumps(name).encode() for name in (*self._convert, *filter(None, [dialect.root]))]
        # A text without any of these names, and without an escape that may spell one, has no wrapper.
        self._may_wrap = re.compile(b"|".join((*map(re.escape, names), rb"\\u"))).search

    def read(self, text: bytes) -> Iterator[bytes]:
        """Yield the records in a text: one, several, or the items of an array. What is not a record stays as it is."""
        if not self._may_wrap(text):
            yield text
            return
        document = parse_json(text)
        if isinstance(document, dict):
            plain = self._record(document)
            yield text if plain == document else document_to_json(plain).encode()
            return
        parts = split_text(text, allows_nan=True)
        for part in parts:
            yield from (part,) if part == text else self.read(part)

    def _record(self, record: dict[str, JsonDocument]) -> dict[str, JsonDocument]:
        inner = record.get(self._root) if self._root else None
        above = {key: value for key, value in record.items() if key.startswith(PARENT)}
        if len(record) == 1 + len(above) and isinstance(inner, dict) and inner.keys().isdisjoint(above):
            record = {**inner, **above}
        return self.unwrap_fields(record)

    def unwrap_fields(self, fields: dict[str, JsonDocument]) -> dict[str, JsonDocument]:
        """Return an object whose values have no wrappers."""
        return {key: self.unwrap(value) for key, value in fields.items()}

    def unwrap(self, value: JsonDocument) -> JsonDocument:
        """Return a value without wrappers."""
        if isinstance(value, list):
            return [self.unwrap(each) for each in value]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            ((name, inner),) = value.items()
            convert = self._convert.get(name)
            if convert is not None and (plain := convert(inner)) is not _NOT_WRAPPED:
                return plain
        return self.unwrap_fields(value)


_Converter: TypeAlias = Callable[[JsonDocument], Any]
_NOT_WRAPPED = object()
"""What a converter returns for a value that its wrapper does not have."""

_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|NaN|-?Infinity").fullmatch


_MAX_LEVELS = 200
"""A text with more nested objects and arrays stays as it is. It is no record either."""


def parse_json(text: bytes) -> JsonDocument:
    """Return the document of a text; None if it is not JSON, has a field twice in an object, or too many levels."""
    try:
        document = _decode(text.removeprefix(BOM).decode())
        if b"\\u" in text:
            # An escape can spell half of a surrogate pair.
            json.dumps(document, ensure_ascii=False).encode()
    except (ValueError, RecursionError, _FieldTwiceError):
        return None
    return None if text.count(b"{") + text.count(b"[") > _MAX_LEVELS and _is_deep(document) else document


def _is_deep(document: JsonDocument) -> bool:
    groups = [document]
    for _ in range(_MAX_LEVELS + 1):
        groups = [each for each in groups if isinstance(each, (dict, list))]
        groups = [item for each in groups for item in (each.values() if isinstance(each, dict) else each)]
    return bool(groups)


class _FieldTwiceError(Exception):
    """An object has a field twice."""


def _to_object(pairs: list[tuple[str, JsonDocument]]) -> dict[str, JsonDocument]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise _FieldTwiceError
    return fields


_decode = json.JSONDecoder(
    object_pairs_hook=_to_object, parse_float=JsonNumber, parse_int=JsonNumber, parse_constant=JsonNumber
).decode


def _converter(reader: DialectReader, word: str, field: str) -> _Converter:
    match word:
        case "text":
            return lambda value: value if type(value) is str else _NOT_WRAPPED
        case "number":
            return _to_number
        case "boolean":
            return lambda value: value if isinstance(value, bool) else _NOT_WRAPPED
        case "null":
            return lambda value: None if value is None or value is True or value == "NULL_VALUE" else _NOT_WRAPPED
        case "date":
            return lambda value: _to_date(reader.unwrap(value))
        case "numbers":
            return _to_numbers
        case "binary":
            return _to_text_of_bytes
    kind: type = dict if word == "object" else list

    def convert(value: JsonDocument) -> Any:
        if field:
            if not isinstance(value, dict) or not value.keys() <= {field}:
                return _NOT_WRAPPED
            value = value.get(field, kind())
        if not isinstance(value, kind):
            return _NOT_WRAPPED
        # An object in a wrapper is not a wrapper itself.
        return reader.unwrap_fields(value) if isinstance(value, dict) else reader.unwrap(value)

    return convert


def _to_number(value: JsonDocument) -> Any:
    return JsonNumber(value) if isinstance(value, str) and _NUMBER(value) else _NOT_WRAPPED


def _to_numbers(value: JsonDocument) -> Any:
    numbers = [_to_number(each) for each in value] if isinstance(value, list) else [_NOT_WRAPPED]
    return _NOT_WRAPPED if _NOT_WRAPPED in numbers else numbers


def _to_date(value: JsonDocument) -> Any:
    if not isinstance(value, JsonNumber):
        return value if type(value) is str else _NOT_WRAPPED
    try:
        time = datetime(1970, 1, 1) + timedelta(milliseconds=int(value))
    except (ValueError, OverflowError):
        return _NOT_WRAPPED
    return time.isoformat(timespec="milliseconds" if time.microsecond else "seconds") + "Z"


def _to_text_of_bytes(value: JsonDocument) -> Any:
    if not isinstance(value, dict) or value.keys() != {"base64", "subType"}:
        return _NOT_WRAPPED
    text, kind = value["base64"], value["subType"]
    if type(text) is not str or type(kind) is not str:
        return _NOT_WRAPPED
    if kind == _UUID:
        with suppress(ValueError):
            return str(UUID(bytes=b64decode(text, validate=True)))
    return text if kind == _BYTES else value


_BYTES, _UUID = "00", "04"
"""The subtypes of BSON whose bytes say all; of others the subtype is kept."""
