"""SQL conditions as predicates for file skipping; a condition that is not understood never skips a file.

Source: Spark SQL's grammar, as sqlglot reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlglot import expressions as sql
from sqlglot.errors import SqlglotError

from widen.errors import ColumnNotFound
from widen.model.column_path import Path, is_struct_path, nearest_field, resolve
from widen.model.types import DATE, STRING, TIMESTAMP, TIMESTAMP_NTZ, DataType, StructType, is_atomic, name_key
from widen.planning.table.expression_columns import parse_expression
from widen.protocol.column_metadata import COLLATIONS
from widen.protocol.partition_values import UNKNOWN, Scalar, UnknownValue, parse_partition_value
from widen.protocol.skipping.predicate import And, Compare, IsNull, Not, Or, Predicate, UnknownPredicate, to_comparable

_OPERATORS: Mapping[type[sql.Expression], str] = {
    sql.EQ: "=",
    sql.NEQ: "<>",
    sql.LT: "<",
    sql.LTE: "<=",
    sql.GT: ">",
    sql.GTE: ">=",
}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_PLAIN_NUMBER = re.compile(r"\d+(\.\d*)?|\.\d+")


@dataclass(frozen=True, slots=True)
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


def parse_predicate(text: str, scope: StructType | PredicateScope) -> Predicate:
    """Return a condition in Spark SQL as a predicate; parts that are not understood become `UnknownPredicate`.

    Args:
        text: The condition. It is not validated, because Spark parses the same text.
        scope: The columns that it may use: those of a table, or of a table with an alias.
    """
    columns = scope if isinstance(scope, PredicateScope) else PredicateScope(scope)
    if "\\" in text:  # sqlglot and Spark read escapes differently
        return UnknownPredicate()
    try:
        parsed = parse_expression(text)
    except (SqlglotError, RecursionError):
        return UnknownPredicate()
    return _translate(parsed, columns)


def _translate(node: Any, scope: PredicateScope) -> Predicate:
    match node:
        case sql.Paren():
            return _translate(node.this, scope)
        case sql.And():
            return And(_translate(node.this, scope), _translate(node.expression, scope))
        case sql.Or():
            return Or(_translate(node.this, scope), _translate(node.expression, scope))
        case sql.Not():
            return Not(_translate(node.this, scope))
        case sql.Is():
            return _is_null(node, scope)
        case sql.Between():
            return _between(node, scope)
        case sql.In():
            return _in(node, scope)
    sign = _OPERATORS.get(type(node))
    return _compare(node.this, sign, node.expression, scope) if sign else UnknownPredicate()


def _is_null(node: sql.Is, scope: PredicateScope) -> Predicate:
    column = _column(node.this, scope)
    return IsNull(*column) if column and isinstance(node.expression, sql.Null) else UnknownPredicate()


def _between(node: sql.Between, scope: PredicateScope) -> Predicate:
    if node.args.get("symmetric"):
        return UnknownPredicate()
    low = _compare(node.this, ">=", node.args["low"], scope)
    return And(low, _compare(node.this, "<=", node.args["high"], scope))


def _in(node: sql.In, scope: PredicateScope) -> Predicate:
    if not node.expressions:
        return UnknownPredicate()
    result, *others = (_compare(node.this, "=", item, scope) for item in node.expressions)
    for other in others:
        result = Or(result, other)
    return result


def _compare(left: Any, sign: str, right: Any, scope: PredicateScope) -> Predicate:
    column, constant = _column(left, scope), right
    if column is None:
        column, constant, sign = _column(right, scope), left, _MIRRORED[sign]
    if column is None:
        return UnknownPredicate()
    path, data_type = column
    value = _constant(constant, data_type)
    comparable = UNKNOWN if isinstance(value, UnknownValue) else to_comparable(value, data_type)
    return UnknownPredicate() if isinstance(comparable, UnknownValue) else Compare(path, data_type, sign, comparable)


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


def _constant(node: Any, data_type: DataType) -> Scalar | UnknownValue:
    match node:
        case sql.Paren():
            return _constant(node.this, data_type)
        case sql.Neg():
            value = _constant(node.this, data_type)
            return -value if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool) else UNKNOWN
        case sql.Boolean():
            return bool(node.this)
        case sql.Literal():
            return _quoted_constant(node.name, data_type) if node.is_string else _number(node.name)
        case sql.Cast() if isinstance(node.this, sql.Literal):
            return _typed_constant(node.this, node.to.this, data_type)
    return UNKNOWN


def _number(text: str) -> int | float | Decimal | UnknownValue:
    """Return an integer or a decimal; with an exponent, Spark parses a double."""
    if _PLAIN_NUMBER.fullmatch(text):
        return int(text) if text.isdecimal() else Decimal(text)
    try:
        return float(text)
    except ValueError:
        return UNKNOWN


def _quoted_constant(text: str, data_type: DataType) -> Scalar | UnknownValue:
    """Return a quoted constant in the type of the column, if Spark would cast it to that type."""
    return _parse_constant(text, data_type) if str(data_type) in _QUOTED else UNKNOWN


def _typed_constant(literal: sql.Literal, kind: object, data_type: DataType) -> Scalar | UnknownValue:
    """Return a typed constant: 3L, 3.5D, DATE '2024-01-01', TIMESTAMP '2024-01-01T00:00:00Z'."""
    if not literal.is_string:
        number = _number(literal.name)
        if kind is sql.DataType.Type.DOUBLE and not isinstance(number, UnknownValue):
            return float(number)
        return number if isinstance(number, int) and number < _INTEGERS.get(kind, 0) else UNKNOWN
    if kind is sql.DataType.Type.DATE:
        day = _parse_constant(literal.name, DATE)
        is_kept = data_type == DATE or isinstance(day, UnknownValue)
        return day if is_kept else _parse_constant(f"{day} 00:00:00", TIMESTAMP_NTZ)
    if kind is sql.DataType.Type.TIMESTAMPNTZ:
        return _parse_constant(literal.name, TIMESTAMP_NTZ)
    return _parse_constant(literal.name, TIMESTAMP) if kind is sql.DataType.Type.TIMESTAMPTZ else UNKNOWN


def _parse_constant(text: str, data_type: DataType) -> Scalar | UnknownValue:
    if data_type == STRING:
        return text
    value = parse_partition_value(text, data_type)
    return UNKNOWN if value is None else value


_QUOTED = frozenset({"string", "date", "timestamp", "timestamp_ntz"})
_INTEGERS: Mapping[object, int] = {
    sql.DataType.Type.TINYINT: 2**7,
    sql.DataType.Type.SMALLINT: 2**15,
    sql.DataType.Type.INT: 2**31,
    sql.DataType.Type.BIGINT: 2**63,
}
"""The exclusive upper limits of typed constants; a session may truncate or refuse greater ones."""
