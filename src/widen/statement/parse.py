"""Reading a statement from its text, token by token; the tokens are those of Spark SQL.

A table is named by its path: ``delta.`/data/orders```.

Source: Spark's ALTER TABLE; Delta Lake's DESCRIBE HISTORY.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from sqlglot import Token, TokenType, tokenize
from sqlglot.errors import TokenError

from widen.errors import InvalidStatement
from widen.model.path import Path, format_path
from widen.model.text import parse_type
from widen.model.type import DataType
from widen.statement.value import (
    UNDERSTOOD,
    AddColumns,
    AlterColumn,
    DescribeHistory,
    SetProperties,
    Statement,
    UnsetProperties,
)


def parse(text: str) -> Statement:
    """Return the statement that a text holds.

    Raises:
        InvalidStatement: it holds none, more than one, or one that this version does not understand.
        InvalidType: a type cannot be read.

    Example:
        >>> parse("ALTER TABLE delta.`/data/orders` ALTER COLUMN total TYPE double").path
        ('total',)
    """
    try:
        tokens = tokenize(text, read="spark")
    except TokenError as error:
        raise _invalid(str(error).partition("\n")[0].rstrip(".")) from error
    words = _Words(text, tokens)
    statement = _statement(words)
    words.skip(";")
    words.ensure_end()
    return statement


def _invalid(reason: str) -> InvalidStatement:
    return InvalidStatement(reason=reason, understood="\n".join(f"  {form}" for form in UNDERSTOOD))


_NAMED = (TokenType.IDENTIFIER, TokenType.STRING)
_Item = TypeVar("_Item")


@dataclass(slots=True)
class _Words:
    """The tokens of a statement, taken from left to right."""

    text: str
    tokens: list[Token]
    at: int = field(default=0)

    def peek(self) -> Token | None:
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def skip(self, *words: str) -> bool:
        """Take these words if they come next, all of them."""
        following = self.tokens[self.at : self.at + len(words)]
        said = [token.text.upper() for token in following if token.token_type not in _NAMED]
        if said != list(words):
            return False
        self.at += len(words)
        return True

    def expect(self, *words: str) -> None:
        if not self.skip(*words):
            raise self.unexpected(" ".join(words))

    def take(self) -> Token:
        token = self.peek()
        if token is None:
            raise self.unexpected("more")
        self.at += 1
        return token

    def unexpected(self, wanted: str) -> InvalidStatement:
        token = self.peek()
        return _invalid(f"{wanted} was expected, not {self.text[token.start :]!r}" if token else f"it lacks {wanted}")

    def ensure_end(self) -> None:
        if self.peek():
            raise self.unexpected("the end")

    def name(self) -> str:
        token = self.peek()
        is_word = token is not None and (token.text.isidentifier() or token.token_type is TokenType.IDENTIFIER)
        if token is None or not is_word or token.token_type is TokenType.STRING:
            raise self.unexpected("a name")
        self.at += 1
        return token.text

    def path(self) -> Path:
        parts = [self.name()]
        while self.skip("."):
            parts.append(self.name())
        return tuple(parts)

    def string(self) -> str:
        """Take a text; two quotes in it stand for one, and texts in a row are one."""
        token = self.take()
        if token.token_type is not TokenType.STRING:
            self.at -= 1
            raise self.unexpected("a text in quotes")
        text, end = token.text, token.end
        while (following := self.peek()) is not None and following.token_type is TokenType.STRING:
            text += (self.text[end] if following.start == end + 1 else "") + following.text
            end = self.take().end
        return text

    def number(self) -> int:
        token = self.take()
        if token.token_type is not TokenType.NUMBER or not token.text.isdecimal():
            self.at -= 1
            raise self.unexpected("a whole number")
        return int(token.text)

    def type(self) -> DataType:
        """Take a type: all up to a word that cannot belong to it, outside of brackets."""
        first, depth = self.at, 0
        while (token := self.peek()) is not None and (depth or token.text.upper() not in _AFTER_TYPE):
            if token.token_type not in _NAMED:
                depth += sum(map(token.text.count, "<(")) - sum(map(token.text.count, ">)"))
            self.at += 1
        if self.at == first:
            raise self.unexpected("a type")
        return parse_type(self.text[self.tokens[first].start : self.tokens[self.at - 1].end + 1])

    def listed(self, item: Callable[[], _Item]) -> list[_Item]:
        """Take items in brackets, separated by commas."""
        self.expect("(")
        items = [item()]
        while self.skip(","):
            items.append(item())
        self.expect(")")
        return items


_AFTER_TYPE = frozenset({",", ";", ")", "COMMENT", "FIRST", "AFTER", "NOT", "DROP", "SET", "DEFAULT"})


def _statement(words: _Words) -> Statement:
    if words.skip("DESCRIBE", "HISTORY") or words.skip("DESC", "HISTORY"):
        return DescribeHistory(_location(words), words.number() if words.skip("LIMIT") else None)
    if not words.skip("ALTER", "TABLE"):
        raise words.unexpected("ALTER TABLE or DESCRIBE HISTORY")
    location = _location(words)
    for start, rest in _CLAUSES:
        if words.skip(*start):
            return rest(words, location)
    raise words.unexpected("ALTER, CHANGE, ADD, SET or UNSET")


def _location(words: _Words) -> str:
    if not words.skip("DELTA", "."):
        raise words.unexpected("a table named delta.`path`")
    token = words.take()
    if token.token_type is not TokenType.IDENTIFIER:
        words.at -= 1
        raise words.unexpected("the path of a table in back-ticks")
    return token.text


def _alter_column(words: _Words, location: str) -> Statement:
    words.skip("COLUMN")
    path = words.path()
    statement = AlterColumn(location, path)
    token = words.peek()
    if token is not None and token.text.upper() not in _ACTIONS:
        statement = _hive_style(words, statement)
    while (changed := _action(words, statement)) is not None:
        statement = changed
    if statement == AlterColumn(location, path):
        raise words.unexpected("TYPE, COMMENT, DROP NOT NULL, FIRST or AFTER")
    return statement


_ACTIONS = frozenset({"TYPE", "COMMENT", "DROP", "SET", "FIRST", "AFTER"})


def _hive_style(words: _Words, statement: AlterColumn) -> AlterColumn:
    """Take the name again, which must be the same, and the type.

    Source: Spark's CHANGE COLUMN in the form of Hive, by which nothing is renamed.
    """
    again = words.path()
    if format_path(again).casefold() != format_path(statement.path).casefold():
        raise _invalid(f"a column is not renamed by its type: {format_path(statement.path)} to {format_path(again)}")
    return replace(statement, type=words.type())


def _action(words: _Words, statement: AlterColumn) -> AlterColumn | None:
    if words.skip("TYPE"):
        return replace(statement, type=words.type())
    if words.skip("COMMENT"):
        return replace(statement, comment=words.string())
    if words.skip("DROP", "NOT", "NULL"):
        return replace(statement, nullable=True)
    if words.skip("SET", "NOT", "NULL"):
        return replace(statement, nullable=False)
    if words.skip("FIRST"):
        return replace(statement, first=True)
    return replace(statement, after=words.name()) if words.skip("AFTER") else None


def _add_columns(words: _Words, location: str) -> Statement:
    token = words.peek()
    is_list = token is not None and token.text == "("
    items = words.listed(lambda: _column(words)) if is_list else [_column(words)]
    while not is_list and words.skip(","):
        items.append(_column(words))
    columns = dict(items)
    if len(columns) < len(items):
        raise _invalid("a column is there twice")
    return AddColumns(location, columns)


def _column(words: _Words) -> tuple[str, DataType]:
    path = format_path(words.path())
    words.skip(":")
    return path, words.type()


def _set_properties(words: _Words, location: str) -> Statement:
    return SetProperties(location, dict(words.listed(lambda: _property(words))))


def _property(words: _Words) -> tuple[str, str]:
    key = _key(words)
    words.skip("=")
    token = words.peek()
    return key, words.string() if token is not None and token.token_type is TokenType.STRING else words.take().text


def _key(words: _Words) -> str:
    token = words.peek()
    is_text = token is not None and token.token_type is TokenType.STRING
    return words.string() if is_text else ".".join(words.path())


def _unset_properties(words: _Words, location: str) -> Statement:
    if_exists = words.skip("IF", "EXISTS")
    return UnsetProperties(location, tuple(words.listed(lambda: _key(words))), if_exists)


_CLAUSES: tuple[tuple[tuple[str, ...], Callable[[_Words, str], Statement]], ...] = (
    (("ALTER",), _alter_column),
    (("CHANGE",), _alter_column),
    (("ADD", "COLUMNS"), _add_columns),
    (("ADD", "COLUMN"), _add_columns),
    (("SET", "TBLPROPERTIES"), _set_properties),
    (("UNSET", "TBLPROPERTIES"), _unset_properties),
)
