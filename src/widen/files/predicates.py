"""SQL conditions as predicates for file skipping; a condition that is not understood never skips a file.

Source: Spark SQL's grammar, as sqlglot reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from widen.errors import ColumnNotFound
from widen.model.column_path import Path, is_struct_path, nearest_field, resolve
from widen.model.lazy_module import import_lazily
from widen.model.types import (
    BOOLEAN,
    STRING,
    DataType,
    StructType,
    is_atomic,
    name_key,
)
from widen.model.value_classes import dataclass
from widen.protocol.column_metadata import COLLATIONS, char_lengths
from widen.protocol.comparison import bind_comparison, bind_list, bind_literal
from widen.protocol.data_skipping import (
    And,
    ConstantPredicate,
    IsNull,
    Not,
    Or,
    Predicate,
    UnknownPredicate,
)
from widen.schema.literals import read_literal
from widen.schema.table_state import parse_expression
from widen.spark.expression import Expression

if TYPE_CHECKING:
    from sqlglot import errors
    from sqlglot import expressions as sql
else:
    errors, sql = map(import_lazily, ("sqlglot.errors", "sqlglot.expressions"))

OPERATORS: Mapping[str, str] = {"EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
"""The operators by the names of sqlglot's classes."""

_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class PredicateScope:
    """The columns that a condition may use.

    Args:
        other: The alias of the other relation whose columns the condition may use.
    """

    schema: StructType
    alias: str | None = None
    other: str | None = None

    @cached_property
    def char_lengths(self) -> Mapping[Path, int]:
        """The lengths of columns of char(n)."""
        return {path: length for path, length in char_lengths(self.schema).items() if len(path) == 1}

    def find(self, names: tuple[str, ...]) -> tuple[Path, DataType] | None:
        """Return a leaf column that is not inside an array or a map, and not collated, or None."""
        first = name_key(names[0])
        if len(names) > 1 and self.other is not None and first == name_key(self.other):
            return None
        has_alias = len(names) > 1 and self.alias is not None and first == name_key(self.alias)
        try:
            path, data_type = resolve(self.schema, names[1:] if has_alias else names)
        except ColumnNotFound:
            return None
        if not is_atomic(data_type) or not is_struct_path(self.schema, path):
            return None
        # Statistics and partition values are compared byte by byte, which is not how a collation compares texts.
        return None if COLLATIONS in nearest_field(self.schema, path).metadata else (path, data_type)


def bind_condition(where: Expression | None, scope: StructType | PredicateScope) -> Predicate:
    """Return a condition, bound to the columns; parts that are not understood become `UnknownPredicate`.

    Args:
        where: The condition in Spark SQL, which is not validated, because Spark parses the same text. Nothing is known
            of a Column, or without a condition.
    """
    if not isinstance(where, str) or "\\" in where:  # sqlglot and Spark read escapes differently
        return UnknownPredicate()
    try:
        parsed = parse_expression(where)
    except (errors.SqlglotError, RecursionError):
        return UnknownPredicate()
    return _bind(parsed, scope if isinstance(scope, PredicateScope) else PredicateScope(scope))


def parse_like(node: Any, scope: PredicateScope) -> tuple[Path, str, bool] | None:
    """Return the column and the pattern of a LIKE without escapes, and whether it is NOT LIKE; None for other nodes.

    Newer versions of sqlglot have no node around a LIKE that is negated.
    """
    column = _column(node.this, scope) if isinstance(node, sql.Like) else None
    if column is None or column[1] != STRING:
        return None
    pattern = node.expression
    is_text = isinstance(pattern, sql.Literal) and pattern.is_string
    return (column[0], pattern.name, bool(node.args.get("negate"))) if is_text else None


def _bind(node: Any, scope: PredicateScope) -> Predicate:
    match node:
        case sql.Paren():
            return _bind(node.this, scope)
        case sql.And():
            return And(_bind(node.this, scope), _bind(node.expression, scope))
        case sql.Or():
            return Or(_bind(node.this, scope), _bind(node.expression, scope))
        case sql.Not():
            return Not(_bind(node.this, scope))
        case sql.Is():
            return _is_null(node, scope)
        case sql.Between():
            return _between(node, scope)
        case sql.In():
            return _in(node, scope)
        case sql.Like() if _is_null_constant(node.this) and isinstance(node.expression, sql.Literal):
            return ConstantPredicate(None)
        case sql.Null():
            return ConstantPredicate(None)
    sign = OPERATORS.get(type(node).__name__)
    bound = _compare(node.this, sign, node.expression, scope) if sign else _is_true(_column(node, scope))
    return UnknownPredicate(node) if isinstance(bound, UnknownPredicate) else bound


def _is_true(column: tuple[Path, DataType] | None) -> Predicate:
    return bind_comparison(*column, "=", True) if column and column[1] == BOOLEAN else UnknownPredicate()


def _is_null(node: sql.Is, scope: PredicateScope) -> Predicate:
    if _is_null_constant(node.this) and isinstance(node.expression, sql.Null):
        return ConstantPredicate(True)
    column = _column(node.this, scope)
    return IsNull(*column) if column and isinstance(node.expression, sql.Null) else UnknownPredicate()


def _between(node: sql.Between, scope: PredicateScope) -> Predicate:
    if node.args.get("symmetric"):
        return UnknownPredicate()
    column = _column(node.this, scope)
    if column is not None and column[0] in scope.char_lengths:
        return UnknownPredicate()  # Spark does not pad these constants
    low = _compare(node.this, ">=", node.args["low"], scope)
    return And(low, _compare(node.this, "<=", node.args["high"], scope))


def _in(node: sql.In, scope: PredicateScope) -> Predicate:
    if not node.expressions:
        return UnknownPredicate()
    if _is_null_constant(node.this) and all(_is_operand(item, scope) for item in node.expressions):
        return ConstantPredicate(None)
    column = _column(node.this, scope)
    if column is None:
        return UnknownPredicate()
    return bind_list(*column, list(map(read_literal, node.expressions)), scope.char_lengths.get(column[0]))


def _compare(left: Any, sign: str, right: Any, scope: PredicateScope) -> Predicate:
    if any(map(_is_null_constant, (left, right))) and all(_is_operand(each, scope) for each in (left, right)):
        return ConstantPredicate(None)
    column, constant = _column(left, scope), right
    if column is None:
        column, constant, sign = _column(right, scope), left, _MIRRORED[sign]
    if column is None:
        return UnknownPredicate()
    return bind_literal(*column, sign, read_literal(constant), scope.char_lengths.get(column[0]))


def _is_null_constant(node: Any) -> bool:
    return isinstance(node.unnest(), sql.Null)


def find_equal_columns(on: Expression, alias: str, other: str) -> list[tuple[str, str]]:
    """Return the columns of two relations that a condition says are equal, if it says nothing else; none otherwise.

    Args:
        on: The condition in Spark SQL; nothing is known of a Column.
        alias: The alias of the relation whose columns come first.
    """
    if not isinstance(on, str) or "\\" in on:
        return []
    try:
        parsed = parse_expression(on)
    except (errors.SqlglotError, RecursionError):
        return []
    pairs = [_equal_columns(part, name_key(alias), name_key(other)) for part in _conjuncts(parsed)]
    return [] if None in pairs else [pair for pair in pairs if pair is not None]


def _conjuncts(node: Any) -> Iterator[Any]:
    node = node.unnest()
    if isinstance(node, sql.And):
        yield from _conjuncts(node.this)
        yield from _conjuncts(node.expression)
    else:
        yield node


def _equal_columns(node: Any, alias: str, other: str) -> tuple[str, str] | None:
    if not isinstance(node, sql.EQ):
        return None
    sides = [tuple(_names(side)) for side in (node.this, node.expression)]
    if any(len(names) != 2 or not all(names) for names in sides):
        return None
    own = {name_key(relation): name for relation, name in sides}
    return (own[alias], own[other]) if own.keys() == {alias, other} else None


def _is_operand(node: Any, scope: PredicateScope) -> bool:
    """Return whether a node is a column of the table or a constant, so that Spark allows null beside it."""
    inner = node.unnest()
    inner = inner.this if isinstance(inner, sql.Neg) else inner
    return isinstance(inner, (sql.Null, sql.Boolean, sql.Literal)) or _column(inner, scope) is not None


def _column(node: Any, scope: PredicateScope) -> tuple[Path, DataType] | None:
    names = tuple(_names(node))
    return scope.find(names) if names and all(names) else None


def _names(node: Any) -> Iterator[str]:
    match node:
        case sql.Paren():
            yield from _names(node.this)
        case sql.Column():
            yield from (part.name for part in node.parts)
        case sql.Dot():
            yield from _names(node.this)
            yield from _names(node.expression)
        case sql.Identifier():
            yield node.name
        case _:
            yield ""
