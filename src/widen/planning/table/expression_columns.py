"""Which columns an expression of the table looks at: SQL text to column paths.

The only module of planning that knows a parser; where it does not understand a text, every column whose name stands in
it counts.

Source: Delta Lake's check of dependent expressions; Spark SQL's grammar, as sqlglot reads it.
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
from widen.model.types import ArrayType, DataType, MapType, StructType

_WORD = re.compile(r"`((?:[^`]|``)+)`|(\w+)")


def referenced_columns(text: str, schema: StructType) -> frozenset[Path]:
    """Return the columns that an expression looks at, each as deep as it says, spelled as in the schema.

    An item of an array adds the step element. What is looked up in a map adds value, and its key is looked at too.

    Args:
        text: An expression in Spark SQL.
        schema: Of the table.

    Example:
        >>> sorted(references("a > 0 AND m[7] = 1", parse_type("struct<a: int, m: map<int,int>>")))
        [('a',), ('m', 'key'), ('m', 'value')]
    """
    try:
        parsed = _parse_expression(text)
        return frozenset(_ReferenceResolver(schema).at(parsed))
    except (SqlglotError, _UnresolvedName):
        words = {(quoted.replace("``", "`") or plain).casefold() for quoted, plain in _WORD.findall(text)}
        return frozenset((field.name,) for field in schema if field.name.casefold() in words)


def is_referenced(changed: Path, looked_at: Iterable[Path]) -> bool:
    """Tell whether one of the paths is the changed one, leads to it or begins with it; case does not count.

    Example:
        >>> touches(("a", "y"), [("a", "x")]), touches(("a",), [("a", "x")]), touches(("a", "x", "z"), [("a", "x")])
        (False, True, True)
    """
    return any(
        all(one.casefold() == two.casefold() for one, two in zip(changed, path, strict=False)) for path in looked_at
    )


def is_constant(text: str) -> bool:
    """Tell whether an expression can be read, and looks at no column and no other table."""
    try:
        parsed = _parse_expression(text)
    except SqlglotError:
        return False
    return parsed.find(sql.Column, sql.Star, sql.Query, sql.Subquery) is None


@lru_cache(maxsize=256)
def _parse_expression(text: str) -> Any:
    found = Dialect.get_or_raise("spark").parse_into(sql.Condition, text)
    if len(found) != 1 or found[0] is None:
        raise ParseError("There is not one expression.")
    return found[0]


class _UnresolvedName(Exception):
    """A name in the expression is no column, or does not lead where it should."""


class _ReferenceResolver:
    """A walk over one expression, as Spark would resolve it against a schema."""

    def __init__(self, schema: StructType) -> None:
        self._schema = schema

    def at(self, node: Any) -> Iterator[Path]:
        """Yield the paths that a part of the expression looks at."""
        found, others = self._value(node)
        yield from others
        if found is not None:
            yield found

    def _value(self, node: Any) -> tuple[Path | None, list[Path]]:
        """Return the path whose value a part of the expression is, if it is one, and what it looks at besides."""
        match node:
            case sql.Paren():
                return self._value(node.this)
            case sql.Column():
                first, *steps = (part.name for part in node.parts)
                return self._stepped(self._column(first), [], steps)
            case sql.Dot():
                start, others = self._value(node.this)
                name = node.expression.name
                return (None, others) if start is None else self._stepped(start, others, [name])
            case sql.Bracket():
                start, others = self._value(node.this)
                others += [path for key in node.expressions for path in self.at(key)]
                return (None, others) if start is None else self._looked_up(start, others)
        return None, [path for child in node.iter_expressions() for path in self.at(child)]

    def _column(self, name: str) -> Path:
        found = self._schema.find(name)
        if found is None:
            raise _UnresolvedName(name)
        return (found.name,)

    def _type(self, path: Path) -> DataType:
        return resolve(self._schema, path)[1]

    def _stepped(self, path: Path, others: list[Path], names: Iterable[str]) -> tuple[Path, list[Path]]:
        """Go on by names: to a field, to the field of every element, or to what a map holds under a name."""
        for name in names:
            data_type = self._type(path)
            if isinstance(data_type, MapType):
                path, others = self._looked_up(path, others)
                continue
            if isinstance(data_type, ArrayType):
                path, data_type = (*path, ELEMENT), data_type.element
            field = data_type.find(name) if isinstance(data_type, StructType) else None
            if field is None:
                raise _UnresolvedName(name)
            path = (*path, field.name)
        return path, others

    def _looked_up(self, path: Path, others: list[Path]) -> tuple[Path, list[Path]]:
        """Go on into brackets. What is no array and no map here is a struct, or a field of every element: it stays."""
        match self._type(path):
            case ArrayType():
                return (*path, ELEMENT), others
            case MapType():
                return (*path, VALUE), [*others, (*path, KEY)]
        return path, others
