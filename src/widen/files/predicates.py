"""SQL conditions as predicates for file skipping; a condition that is not understood never skips a file.

Source: Spark SQL's grammar, as sqlglot reads it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

from widen.errors import ColumnNotFound
from widen.model.column_path import Path, is_struct_path, nearest_field, resolve
from widen.model.lazy_module import import_lazily
from widen.model.types import (
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    DataType,
    DecimalType,
    StructType,
    is_atomic,
    name_key,
)
from widen.protocol.column_metadata import COLLATIONS, char_lengths
from widen.protocol.comparison import Literal, bind_comparison, bind_list, bind_literal
from widen.protocol.data_skipping import (
    And,
    ConstantPredicate,
    IsNull,
    Not,
    Or,
    Predicate,
    UnknownPredicate,
)
from widen.protocol.partition_values import UnknownValue, is_float32, parse_partition_value
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
_MOST_DIGITS = 38
_PLAIN_NUMBER = re.compile(r"\d+(\.\d*)?|\.\d+")


@dataclass(frozen=True)
class PredicateScope:
    """The columns that a condition may use.

    Args:
        schema: The schema of the table, in logical names.
        alias: The alias of the table in the condition, if any.
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
        scope: The columns that it may use: the columns of a table, or of a table with an alias.
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


def read_literal(node: Any) -> Literal | None:
    """Return a constant that sqlglot has parsed; None for other nodes, or if the session decides what it is."""
    match node:
        case sql.Paren():
            return read_literal(node.this)
        case sql.Neg():
            return _negate(node.this)
        case sql.Null():
            return Literal(None, VOID)
        case sql.Boolean():
            return Literal(bool(node.this), BOOLEAN)
        case sql.Literal():
            return Literal(node.name, STRING) if node.is_string else _number(node.name)
        case sql.Cast() if isinstance(node.this, sql.Literal):
            return _typed_literal(node.this, node.to)
    return None


def _negate(node: Any) -> Literal | None:
    literal = read_literal(node)
    value = None if literal is None else literal.value
    if literal is None or isinstance(value, bool) or not isinstance(value, (int, float, Decimal)) or value in _SMALLEST:
        return None
    if isinstance(node, sql.Literal) and -value in _SMALLEST:
        return Literal(-value, _SMALLEST[-value])
    return Literal(value.copy_negate() if isinstance(value, Decimal) else -value, literal.type)


_SMALLEST: Mapping[Any, DataType] = {-(2**31): INTEGER, -(2**63): LONG}
"""The integers whose negation is not of the same type; after a minus, Spark takes their digits for that type."""


def _number(text: str) -> Literal | None:
    """Return an integer or a decimal; with an exponent, Spark parses a double."""
    if _PLAIN_NUMBER.fullmatch(text):
        plain = Decimal(text)
        _, digits, exponent = plain.as_tuple()
        scale = -int(exponent)
        if max(len(digits), scale) > _MOST_DIGITS:
            return None
        data_type: DataType = DecimalType(max(len(digits), scale), scale)
        if not text.isdecimal():
            return Literal(plain, data_type)
        whole = int(text)
        return Literal(whole, INTEGER if whole < 2**31 else LONG if whole < 2**63 else data_type)
    try:
        number = float(text)
    except ValueError:
        return None
    return Literal(number, DOUBLE) if math.isfinite(number) else None


def _typed_literal(literal: sql.Literal, target: sql.DataType) -> Literal | None:
    """Return a typed constant: 3L, 3.5D, double('NaN'), DATE '2024-01-01', TIMESTAMP '2024-01-01T00:00:00Z'."""
    name, text = getattr(target.this, "name", ""), literal.name
    if name in ("DOUBLE", "FLOAT"):
        number, is_float = _double(text), name == "FLOAT"
        if number is None or (is_float and math.isfinite(number) and not is_float32(number)):
            return None
        return Literal(number, FLOAT if is_float else DOUBLE)
    if name == "DECIMAL":
        return _decimal(text, [each.name for each in target.expressions])
    if not literal.is_string:
        whole, (data_type, limit) = _number(text), _INTEGERS.get(name, (VOID, 0))
        is_known = whole is not None and type(whole.value) is int and whole.value < limit
        return Literal(whole.value, data_type) if whole is not None and is_known else None
    value = parse_partition_value(text, _TIMES[name]) if name in _TIMES else None
    return None if value is None or isinstance(value, UnknownValue) else Literal(value, _TIMES[name])


_TIMES: Mapping[str, DataType] = {"DATE": DATE, "TIMESTAMPNTZ": TIMESTAMP_NTZ, "TIMESTAMPTZ": TIMESTAMP}
_INTEGERS: Mapping[str, tuple[DataType, int]] = {
    "TINYINT": (BYTE, 2**7),
    "SMALLINT": (SHORT, 2**15),
    "INT": (INTEGER, 2**31),
    "BIGINT": (LONG, 2**63),
}
"""The types of typed constants and their exclusive upper limits; a session may truncate or refuse greater ones."""


def _double(text: str) -> float | None:
    if text == "NaN":
        return math.nan
    number = parse_partition_value(text, DOUBLE)
    return number if isinstance(number, float) and (math.isfinite(number) or "inf" in text.lower()) else None


def _decimal(text: str, parameters: Sequence[str]) -> Literal | None:
    """Return a decimal with a suffix, 5.50BD: its type has as many digits as it shows."""
    if not _PLAIN_NUMBER.fullmatch(text):
        return None
    number = Decimal(text)
    _, digits, exponent = number.as_tuple()
    shown = max(len(digits), -int(exponent)), -int(exponent)
    return Literal(number, DecimalType(*shown)) if [*parameters] == [str(each) for each in shown] else None
