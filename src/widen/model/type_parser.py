"""Parse types in the syntax of Spark SQL and of Delta's schema JSON.

Source: PROTOCOL.md#primitive-types; Spark's DDL for the other names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from widen.errors import InvalidType
from widen.model.sql_literal import LITERAL, from_literal
from widen.model.types import ATOMIC_NAMES, ArrayType, AtomicType, DataType, DecimalType, Field, MapType, StructType

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
        text: A type of Spark SQL or of the schema JSON, in any case, e.g. ``bigint``, ``long``, ``decimal(6, 2)``,
            ``array<struct<a: int not null, b: string comment 'x'>>``.
        allow_limits: Whether the text may have ``char(n)`` and ``varchar(n)``. The types of a schema
            do not include them, see `widen.protocol.text_limits`.

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
