"""Type texts, as Spark SQL and Delta's schema JSON write them, to types.

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
_TOKEN = re.compile(r"\s*(?:`((?:[^`]|``)+)`|(\w+)|([<>(),:]))")
_TEXT = re.compile(rf"\s*({LITERAL})")


def parse_type(text: str) -> DataType:
    """Return the type that a text names.

    Args:
        text: A type of Spark SQL or of the schema JSON, in any case, e.g. ``bigint``, ``long``, ``decimal(6, 2)``,
            ``array<struct<a: int not null, b: string comment 'x'>>``.

    Raises:
        InvalidType: the text names no type; the error says where it stopped.

    Source: PROTOCOL.md#primitive-types

    Example:
        >>> str(parse_type("map<string, decimal(6, 2)>"))
        'map<string,decimal(6,2)>'
    """
    reader = _TypeParser(text)
    result = reader.data_type()
    reader.expect_end()
    return result


class _TypeParser:
    """A recursive descent over the tokens of one text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def _fail(self, reason: str) -> InvalidType:
        return InvalidType(text=self._text, reason=f"{reason} at position {self._at + 1}")

    def _peek(self) -> re.Match[str] | None:
        return _TOKEN.match(self._text, self._at)

    def _symbol(self, symbol: str) -> bool:
        found = self._peek()
        if found is None or found[3] != symbol:
            return False
        self._at = found.end()
        return True

    def _expect(self, symbol: str) -> None:
        if not self._symbol(symbol):
            raise self._fail(f"{symbol!r} is missing")

    def _word(self) -> str:
        found = self._peek()
        if found is None or not (found[1] or found[2]):
            raise self._fail("a name is missing")
        self._at = found.end()
        return found[1].replace("``", "`") if found[1] else found[2]

    def _keyword(self, word: str) -> bool:
        found = self._peek()
        if found is None or (found[2] or "").lower() != word:
            return False
        self._at = found.end()
        return True

    def expect_end(self) -> None:
        if self._text[self._at :].strip():
            raise self._fail("there is more than a type")

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
        name = _ALIASES.get(name, name)
        if name not in ATOMIC_NAMES:
            raise self._fail(f"no type is called {name}; stopped")
        return AtomicType(name)

    def _struct(self) -> StructType:
        self._expect("<")
        found: list[Field] = []
        while not self._symbol(">"):
            if found:
                self._expect(",")
            name = self._word()
            self._symbol(":")
            data_type = self.data_type()
            nullable = not (self._keyword("not") and self._keyword("null"))
            metadata = {"comment": self._literal()} if self._keyword("comment") else {}
            found.append(Field(name, data_type, nullable, metadata))
        return StructType(tuple(found))

    def _literal(self) -> str:
        found = _TEXT.match(self._text, self._at)
        if found is None:
            raise self._fail("a text in quotes is missing")
        self._at = found.end()
        return from_literal(found[1])

    def _decimal(self) -> DecimalType:
        if not self._symbol("("):
            return DecimalType(10, 0)
        precision = self._number()
        scale = self._number() if self._symbol(",") else 0
        self._expect(")")
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise self._fail("a decimal has 1 to 38 digits, and no more of them after the point; stopped")
        return DecimalType(precision, scale)

    def _number(self) -> int:
        word = self._word()
        if not word.isdecimal():
            raise self._fail("a number is missing")
        return int(word)
