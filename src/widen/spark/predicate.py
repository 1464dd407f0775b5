"""SQL predicates as predicates of the protocol; what is not understood never skips a file.

Source: Spark SQL's grammar, as sqlglot reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

import sqlglot
from sqlglot import expressions as sql
from sqlglot.errors import SqlglotError

from widen.errors import ColumnNotFound
from widen.model.path import Path, resolve
from widen.model.type import DATE, STRING, TIMESTAMP, TIMESTAMP_NTZ, DataType, StructType, is_atomic
from widen.protocol.predicate import And, Anything, Compare, IsNull, Not, Or, Predicate, comparable
from widen.protocol.value import UNKNOWN, Scalar, Unknown, from_text

_SIGNS: Mapping[type[sql.Expression], str] = {
    sql.EQ: "=",
    sql.NEQ: "<>",
    sql.LT: "<",
    sql.LTE: "<=",
    sql.GT: ">",
    sql.GTE: ">=",
}
_TURNED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_PLAIN_NUMBER = re.compile(r"\d+(\.\d*)?|\.\d+")


def parse_predicate(text: str, schema: StructType) -> Predicate:
    """Return what can be understood of a condition in Spark SQL; the rest is `Anything`.

    Args:
        text: The condition. It is not checked: Spark runs the same text and judges it.
        schema: Of the table, in logical names.
    """
    if "\\" in text:  # escapes are read differently by every parser
        return Anything()
    try:
        parsed = sqlglot.parse_one(text, read="spark")
    except SqlglotError:
        return Anything()
    return _translated(parsed, schema)


def _translated(node: Any, schema: StructType) -> Predicate:
    match node:
        case sql.Paren():
            return _translated(node.this, schema)
        case sql.And():
            return And(_translated(node.this, schema), _translated(node.expression, schema))
        case sql.Or():
            return Or(_translated(node.this, schema), _translated(node.expression, schema))
        case sql.Not():
            return Not(_translated(node.this, schema))
        case sql.Is():
            return _is_null(node, schema)
        case sql.Between():
            return _between(node, schema)
        case sql.In():
            return _in(node, schema)
    sign = _SIGNS.get(type(node))
    return _compare(node.this, sign, node.expression, schema) if sign else Anything()


def _is_null(node: sql.Is, schema: StructType) -> Predicate:
    found = _column(node.this, schema)
    return IsNull(*found) if found and isinstance(node.expression, sql.Null) else Anything()


def _between(node: sql.Between, schema: StructType) -> Predicate:
    if node.args.get("symmetric"):
        return Anything()
    low = _compare(node.this, ">=", node.args["low"], schema)
    return And(low, _compare(node.this, "<=", node.args["high"], schema))


def _in(node: sql.In, schema: StructType) -> Predicate:
    if not node.expressions:
        return Anything()
    result, *others = (_compare(node.this, "=", item, schema) for item in node.expressions)
    for other in others:
        result = Or(result, other)
    return result


def _compare(left: Any, sign: str, right: Any, schema: StructType) -> Predicate:
    found, constant = _column(left, schema), right
    if found is None:
        found, constant, sign = _column(right, schema), left, _TURNED[sign]
    if found is None:
        return Anything()
    path, data_type = found
    value = _constant(constant, data_type)
    known = UNKNOWN if isinstance(value, Unknown) else comparable(value, data_type)
    return Anything() if isinstance(known, Unknown) else Compare(path, data_type, sign, known)


def _column(node: Any, schema: StructType) -> tuple[Path, DataType] | None:
    """Return a leaf column that only struct fields lead to, or None."""
    names = tuple(_names(node))
    if not names or any(not name for name in names):
        return None
    try:
        path, data_type = resolve(schema, names)
    except ColumnNotFound:
        return None
    plain = all(isinstance(resolve(schema, path[:at])[1], StructType) for at in range(len(path)))
    return (path, data_type) if plain and is_atomic(data_type) else None


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


def _constant(node: Any, data_type: DataType) -> Scalar | Unknown:
    match node:
        case sql.Paren():
            return _constant(node.this, data_type)
        case sql.Neg():
            value = _constant(node.this, data_type)
            return -value if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool) else UNKNOWN
        case sql.Boolean():
            return bool(node.this)
        case sql.Literal():
            return _text(node.name, data_type) if node.is_string else _number(node.name)
        case sql.Cast() if isinstance(node.this, sql.Literal):
            return _cast(node.this, node.to.this, data_type)
    return UNKNOWN


def _number(text: str) -> Scalar | Unknown:
    """Return a whole number or a decimal; with an exponent Spark makes it a double."""
    if _PLAIN_NUMBER.fullmatch(text):
        return int(text) if text.isdecimal() else Decimal(text)
    try:
        return float(text)
    except ValueError:
        return UNKNOWN


def _text(text: str, data_type: DataType) -> Scalar | Unknown:
    """Return a quoted constant in the type of the column, where Spark casts it to that."""
    return _as(text, data_type) if str(data_type) in _QUOTED else UNKNOWN


def _cast(literal: sql.Literal, kind: object, data_type: DataType) -> Scalar | Unknown:
    """Return a constant with a type of its own: 3L, DATE '2024-01-01', TIMESTAMP '2024-01-01T00:00:00Z'."""
    if not literal.is_string:
        return _number(literal.name) if kind in _INTEGERS and literal.name.isdecimal() else UNKNOWN
    if kind is sql.DataType.Type.DATE:
        day = _as(literal.name, DATE)
        return day if data_type == DATE or isinstance(day, Unknown) else _as(f"{day} 00:00:00", TIMESTAMP_NTZ)
    if kind is sql.DataType.Type.TIMESTAMPNTZ:
        return _as(literal.name, TIMESTAMP_NTZ)
    return _as(literal.name, TIMESTAMP) if kind is sql.DataType.Type.TIMESTAMPTZ else UNKNOWN


def _as(text: str, data_type: DataType) -> Scalar | Unknown:
    if data_type == STRING:
        return text
    value = from_text(text, data_type)
    return UNKNOWN if value is None else value


_QUOTED = frozenset({"string", "date", "timestamp", "timestamp_ntz"})
_INTEGERS = frozenset({sql.DataType.Type.BIGINT, sql.DataType.Type.SMALLINT, sql.DataType.Type.TINYINT})
