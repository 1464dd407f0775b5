"""Decode and encode the schema JSON; types and metadata that are not known are kept as they are.

Source: PROTOCOL.md#schema-serialization-format
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from widen.errors import CorruptLog, InvalidType
from widen.model.types import (
    ATOMIC_NAMES,
    ArrayType,
    AtomicType,
    DataType,
    DecimalType,
    Field,
    MapType,
    OpaqueType,
    StructType,
)

_MALFORMED = (msgspec.DecodeError, RecursionError, KeyError, TypeError, AttributeError, ValueError, InvalidType)
"""Raised for invalid JSON, for JSON that is nested too deeply, and for values of an unexpected shape."""


@lru_cache(maxsize=16)
def from_json(text: str) -> StructType:
    """Return the schema in a ``schemaString``. The last ones are cached, since a commit needs the same one many times.

    Source: PROTOCOL.md#schema-serialization-format
    """
    try:
        result = type_from_value(msgspec.json.decode(text))
    except _MALFORMED as error:
        raise _corrupt(f"its schemaString cannot be read ({error})") from error
    if not isinstance(result, StructType):
        raise _corrupt("its schemaString is not a struct")
    return result


def _corrupt(reason: str) -> CorruptLog:
    return CorruptLog(path="_delta_log", reason=reason, fix="Restore the log from a backup, or read an older version.")


def to_json(schema: StructType) -> str:
    """Return the ``schemaString`` of a schema."""
    return msgspec.json.encode(type_to_value(schema)).decode()


def type_from_value(value: Any) -> DataType:
    """Return the type of a decoded JSON value; an unknown type becomes an `OpaqueType`."""
    if isinstance(value, str):
        try:
            return parse_type(value)
        except InvalidType:
            if value.startswith("decimal"):
                raise
            return OpaqueType(msgspec.json.encode(value).decode())
    match value["type"]:
        case "struct":
            return StructType(tuple(field_from_value(f) for f in value["fields"]))
        case "array":
            return ArrayType(type_from_value(value["elementType"]), value["containsNull"])
        case "map":
            key, item = type_from_value(value["keyType"]), type_from_value(value["valueType"])
            return MapType(key, item, value["valueContainsNull"])
    return OpaqueType(msgspec.json.encode(value).decode())


def field_from_value(value: dict[str, Any]) -> Field:
    """Return the field of a decoded JSON object.

    Raises:
        InvalidType: the name is not a text, or the metadata is not an object.
    """
    name, metadata = value["name"], value.get("metadata") or {}
    if not isinstance(name, str) or not isinstance(metadata, dict):
        raise InvalidType(text=str(name), reason="the name of a field must be a string, and its metadata an object")
    return Field(name, type_from_value(value["type"]), value.get("nullable", True), _restore_metadata(metadata))


def type_to_value(data_type: DataType) -> Any:
    """Return the JSON value of a type, ready to encode."""
    match data_type:
        case AtomicType() | DecimalType():
            return str(data_type)
        case OpaqueType(text):
            return msgspec.json.decode(text)
        case StructType(fields):
            return {"type": "struct", "fields": [field_to_value(f) for f in fields]}
        case ArrayType(element, contains_null):
            return {"type": "array", "elementType": type_to_value(element), "containsNull": contains_null}
        case MapType(key, value, contains_null):
            return {
                "type": "map",
                "keyType": type_to_value(key),
                "valueType": type_to_value(value),
                "valueContainsNull": contains_null,
            }


def field_to_value(item: Field) -> dict[str, Any]:
    """Return the JSON object of a field, ready to encode."""
    return {
        "name": item.name,
        "type": type_to_value(item.type),
        "nullable": item.nullable,
        "metadata": dict(item.metadata),
    }


# Metadata of columns whose values are not texts.
#
# Arrow keeps metadata of fields as texts. A client that passes a schema through Arrow, as deltalake does when it merges
# schemas, writes `"widen.source": ["id"]` back as `"widen.source": "[\"id\"]"`. The value in the text is what it means.
#
# Source: PROTOCOL.md#column-metadata, which gives the types of these values; Spark's keys for collations and field ids.


COLUMN_ID, NESTED_IDS = "delta.columnMapping.id", "delta.columnMapping.nested.ids"
TYPE_CHANGES = "delta.typeChanges"
START, STEP = "delta.identity.start", "delta.identity.step"
HIGH_WATER_MARK, ALLOWS_EXPLICIT = "delta.identity.highWaterMark", "delta.identity.allowExplicitInsert"
COLLATIONS = "__COLLATIONS"
"""The key that Spark uses to store the collations of texts in a column."""
FIELD_ID = "parquet.field.id"
"""The metadata key with the field id that Spark writes into Parquet."""
SOURCE = "widen.source"
"""Metadata key: the path of the source field from the root, as a list of keys without array steps."""
ALIASES = "widen.aliases"
"""Metadata key: other names of the source field in records, as a list of keys of the same object."""

TYPES_OF_METADATA: Mapping[str, type] = {
    COLUMN_ID: int,
    NESTED_IDS: dict,
    TYPE_CHANGES: list,
    START: int,
    STEP: int,
    HIGH_WATER_MARK: int,
    ALLOWS_EXPLICIT: bool,
    COLLATIONS: dict,
    FIELD_ID: int,
    SOURCE: list,
    ALIASES: list,
}
"""The metadata keys whose values are not texts, and the types of their values. All other keys are kept as they are."""

_AS_TEXT = re.compile(rf'"(?:{"|".join(map(re.escape, TYPES_OF_METADATA))})"\s*:\s*"')


def has_metadata_as_text(schema_string: str) -> bool:
    """Return whether a schema has values as text that are not texts, so that other clients could not read them."""
    # Inside a string of JSON every quote has a backslash before it, so only a key can match.
    return _AS_TEXT.search(schema_string) is not None


def _restore_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """Return metadata with values instead of the texts of values; a text of anything else is kept.

    A source or another name of it that is not a list of texts is left out: only Widen reads it, and a column without
    one is matched by name.
    """
    wrong = {key: value for key, value in metadata.items() if isinstance(value, str) and key in TYPES_OF_METADATA}
    if wrong:
        metadata = {**metadata, **{key: _restore_value(key, text) for key, text in wrong.items()}}
    if no_paths := [key for key in (SOURCE, ALIASES) if key in metadata and not _is_path(metadata[key])]:
        metadata = {key: value for key, value in metadata.items() if key not in no_paths}
    return metadata


def _is_path(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(key, str) for key in value)


def _restore_value(key: str, text: str) -> Any:
    value: Any = text
    try:
        while isinstance(value, str):  # each client that takes the value for a text may have quoted it once more
            value = msgspec.json.decode(value)
    except msgspec.DecodeError:
        return text
    return value if type(value) is TYPES_OF_METADATA[key] else text


# String literals and quoted identifiers of Spark SQL.
#
# Source: Spark's string literals and identifiers.


LITERAL = r"""[rR](?:'[^']*'|"[^"]*")|'(?:[^'\\]|\\[\s\S]|'')*'|"(?:[^"\\]|\\[\s\S]|"")*\""""
"""The pattern of one string literal."""

_ESCAPE = re.compile(
    r"\\u(?P<short>[0-9a-fA-F]{4})|\\U(?P<long>00(?:0[0-9a-fA-F]|10)[0-9a-fA-F]{4})|\\(?P<octal>[0-3][0-7]{2})"
    r"|\\(?P<char>[\s\S])|''|\"\""
)
_CHARS: Mapping[str, str] = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": r"\%", "_": r"\_"}


def from_literal(literal: str) -> str:
    r"""Return the value of a string literal; a doubled quote in it is one quote.

    Half of a surrogate pair cannot be stored as UTF-8, so it becomes a replacement character.

    Example:
        >>> from_literal(r"'it\'s'"), from_literal("'it''s'"), from_literal(r"r'\d'")
        ("it's", "it's", '\\d')
    """
    if literal[0] in "rR":
        return literal[2:-1]
    quote = literal[0]
    text = _ESCAPE.sub(lambda match: _unescape(match, quote), literal[1:-1])
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _unescape(match: re.Match[str], quote: str) -> str:
    code = match["short"] or match["long"]
    if code or match["octal"]:
        return chr(int(code, 16) if code else int(match["octal"], 8))
    char = match["char"]
    if char is None:
        return quote if match[0][0] == quote else match[0]
    return _CHARS.get(char, char)


def to_literal(text: str) -> str:
    r"""Return the string literal for a text.

    Example:
        >>> print(to_literal("it's"))
        'it\'s'
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def to_identifier(name: str) -> str:
    """Return the name in backticks, which is always an identifier, even for keywords."""
    return "`" + name.replace("`", "``") + "`"


# Parse types in the syntax of Spark SQL and of Delta's schema JSON.
#
# Source: PROTOCOL.md#primitive-types; Spark's DDL for the other names.


_ALIASES: Mapping[str, str] = {
    "tinyint": "byte",
    "smallint": "short",
    "int": "integer",
    "bigint": "long",
    "real": "float",
    "timestamp_ltz": "timestamp",
}
_LIMITED: Mapping[str, str] = {"char": "char", "character": "char", "varchar": "varchar"}
_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|(\w+)|([<>(),:]))")
_TEXT = re.compile(rf"\s*({LITERAL})")


def parse_type(text: str, *, allow_limits: bool = False) -> DataType:
    """Return the parsed type.

    Args:
        text: A type in Spark SQL or in the schema JSON, in any case, e.g. ``bigint``, ``long``, ``decimal(6, 2)``,
            ``array<struct<a: int not null, b: string comment 'x'>>``.
        allow_limits: Whether the text may have ``char(n)`` and ``varchar(n)``. The types of a schema
            do not include them, see `widen.protocol.column_metadata`.

    Raises:
        InvalidType: the text is not a valid type; the error has the position.

    Source: PROTOCOL.md#primitive-types

    Example:
        >>> str(parse_type("map<string, decimal(6, 2)>"))
        'map<string,decimal(6,2)>'
    """
    reader = _TypeParser(text, allow_limits=allow_limits)
    try:
        result = reader.data_type()
    except RecursionError as error:
        raise InvalidType(text=text, reason="it has too many levels") from error
    reader.expect_end()
    return result


class _TypeParser:
    """A recursive descent parser of one type."""

    def __init__(self, text: str, *, allow_limits: bool) -> None:
        self._text = text
        self._position = 0
        self._limited = _LIMITED if allow_limits else {}

    def _fail(self, reason: str) -> InvalidType:
        return InvalidType(text=self._text, reason=f"{reason} at position {self._position + 1}")

    def _peek(self) -> re.Match[str] | None:
        return _TOKEN.match(self._text, self._position)

    def _symbol(self, symbol: str) -> bool:
        match = self._peek()
        if match is None or match[3] != symbol:
            return False
        self._position = match.end()
        return True

    def _expect(self, symbol: str) -> None:
        if not self._symbol(symbol):
            raise self._fail(f"{symbol!r} is missing")

    def _word(self) -> str:
        match = self._peek()
        if match is None or not (match[1] or match[2]):
            raise self._fail("a name is missing")
        self._position = match.end()
        return match[1].replace("``", "`") if match[1] else match[2]

    def _keyword(self, word: str) -> bool:
        match = self._peek()
        if match is None or (match[2] or "").lower() != word:
            return False
        self._position = match.end()
        return True

    def expect_end(self) -> None:
        if self._text[self._position :].strip():
            raise self._fail("unexpected text after the type")

    def data_type(self) -> DataType:
        name = self._word().lower()
        match name:
            case "array":
                self._expect("<")
                element = self.data_type()
                self._expect(">")
                return ArrayType(element)
            case "map":
                self._expect("<")
                key = self.data_type()
                self._expect(",")
                value = self.data_type()
                self._expect(">")
                return MapType(key, value)
            case "struct":
                return self._struct()
            case "decimal" | "dec" | "numeric":
                return self._decimal()
        if name in self._limited:
            return self._limited_text(self._limited[name])
        name = _ALIASES.get(name, name)
        if name not in ATOMIC_NAMES:
            raise self._fail(f"unknown type {name}")
        return AtomicType(name)

    def _struct(self) -> StructType:
        self._expect("<")
        members: list[Field] = []
        while not self._symbol(">"):
            if members:
                self._expect(",")
            name = self._word()
            self._symbol(":")
            data_type = self.data_type()
            nullable = not (self._keyword("not") and self._keyword("null"))
            metadata = {"comment": self._literal()} if self._keyword("comment") else {}
            members.append(Field(name, data_type, nullable, metadata))
        return StructType(tuple(members))

    def _literal(self) -> str:
        match = _TEXT.match(self._text, self._position)
        if match is None:
            raise self._fail("a string in quotes is missing")
        self._position = match.end()
        return from_literal(match[1])

    def _decimal(self) -> DecimalType:
        if not self._symbol("("):
            return DecimalType(10, 0)
        precision = self._number()
        scale = self._number() if self._symbol(",") else 0
        self._expect(")")
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise self._fail("the precision must be 1 to 38 and the scale 0 to the precision")
        return DecimalType(precision, scale)

    def _limited_text(self, name: str) -> AtomicType:
        self._expect("(")
        limit = self._number()
        self._expect(")")
        return AtomicType(f"{name}({limit})")

    def _number(self) -> int:
        word = self._word()
        if not word.isdecimal():
            raise self._fail("a number is missing")
        return int(word)
