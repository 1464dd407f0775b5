"""Which columns an SQL expression references.

If sqlglot cannot parse an expression, every column whose name occurs in it counts as referenced: a change is then
refused rather than made behind a constraint.

Source: Delta Lake's check of dependent expressions; sqlglot's Spark dialect.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from sqlglot import Dialect
from sqlglot import expressions as sql
from sqlglot.errors import ParseError, SqlglotError

from widen.model.column_path import ELEMENT, KEY, VALUE, Path, resolve
from widen.model.types import ArrayType, DataType, MapType, StructType, name_key

_WORD = re.compile(r"`((?:[^`]|``)+)`|(\w+)")


def referenced_columns(text: str, schema: StructType) -> frozenset[Path]:
    """Return the paths that an expression references, as deep as it goes, spelled as in the schema.

    An array item adds the step ``element``. A map lookup adds ``value``, and references ``key`` as well.

    Example:
        >>> from widen.model.type_parser import parse_type
        >>> sorted(referenced_columns("a > 0 AND m[7] = 1", parse_type("struct<a: int, m: map<int,int>>")))
        [('a',), ('m', 'key'), ('m', 'value')]
    """
    try:
        parsed = parse_expression(text)
        return frozenset(_ReferenceResolver(schema).resolve(parsed))
    except (SqlglotError, RecursionError, _UnresolvedName):
        words = {name_key(quoted.replace("``", "`") or plain) for quoted, plain in _WORD.findall(text)}
        return frozenset((field.name,) for field in schema if name_key(field.name) in words)


def is_referenced(changed: Path, references: Iterable[Path]) -> bool:
    """Tell whether one of the paths is the changed one, a parent of it or below it. Names are case-insensitive.

    Example:
        >>> is_referenced(("a", "y"), [("a", "x")]), is_referenced(("a",), [("a", "x")])
        (False, True)
    """
    return any(
        all(name_key(old) == name_key(new) for old, new in zip(changed, path, strict=False)) for path in references
    )


def is_constant(text: str) -> bool:
    """Tell whether an expression can be parsed and references neither columns nor tables."""
    try:
        parsed = parse_expression(text)
    except (SqlglotError, RecursionError):
        return False
    return parsed.find(sql.Column, sql.Star, sql.Query, sql.Subquery) is None


@lru_cache(maxsize=256)
def parse_expression(text: str) -> Any:
    """Return the tree of one SQL expression, which is not a statement even if it begins with the word of one.

    Raises:
        ParseError: sqlglot cannot parse it. Its tokenizer raises another `SqlglotError`.
        RecursionError: it is nested too deeply.
    """
    try:
        parsed = Dialect.get_or_raise("spark").parse_into(sql.Condition, text)
    except ValueError as error:
        # sqlglot raises it for a type whose argument is an empty name.
        raise ParseError(str(error)) from error
    if len(parsed) != 1 or parsed[0] is None:
        raise ParseError("Must be exactly one expression.")
    return parsed[0]


class _UnresolvedName(Exception):
    """A name in the expression is not a column, or not a field of the type before it."""


class _ReferenceResolver:
    """Resolves the column references of one expression against a schema, as Spark does."""

    def __init__(self, schema: StructType) -> None:
        self._schema = schema

    def resolve(self, node: Any) -> Iterator[Path]:
        """Yield the paths that a node references."""
        path, others = self._value(node)
        yield from others
        if path is not None:
            yield path

    def _value(self, node: Any) -> tuple[Path | None, list[Path]]:
        """Return the path that a node evaluates to, if it is a plain reference, and what else it references."""
        match node:
            case sql.Paren():
                return self._value(node.this)
            case sql.Column():
                first, *steps = (part.name for part in node.parts)
                return self._follow_names(self._column(first), [], steps)
            case sql.Dot():
                start, others = self._value(node.this)
                name = node.expression.name
                return (None, others) if start is None else self._follow_names(start, others, [name])
            case sql.Bracket():
                start, others = self._value(node.this)
                others += [path for key in node.expressions for path in self.resolve(key)]
                return (None, others) if start is None else self._follow_brackets(start, others)
        return None, [path for child in node.iter_expressions() for path in self.resolve(child)]

    def _column(self, name: str) -> Path:
        field = self._schema.find(name)
        if field is None:
            raise _UnresolvedName(name)
        return (field.name,)

    def _type(self, path: Path) -> DataType:
        return resolve(self._schema, path)[1]

    def _follow_names(self, path: Path, others: list[Path], names: Iterable[str]) -> tuple[Path, list[Path]]:
        """Follow names from a path: to a field of a struct, a field of every element, or a value of a map."""
        for name in names:
            data_type = self._type(path)
            if isinstance(data_type, MapType):
                path, others = self._follow_brackets(path, others)
                continue
            if isinstance(data_type, ArrayType):
                path, data_type = (*path, ELEMENT), data_type.element
            field = data_type.find(name) if isinstance(data_type, StructType) else None
            if field is None:
                raise _UnresolvedName(name)
            path = (*path, field.name)
        return path, others

    def _follow_brackets(self, path: Path, others: list[Path]) -> tuple[Path, list[Path]]:
        """Follow brackets from a path. On a struct, brackets name a field; the path then stays the whole struct."""
        match self._type(path):
            case ArrayType():
                return (*path, ELEMENT), others
            case MapType():
                return (*path, VALUE), [*others, (*path, KEY)]
        return path, others
