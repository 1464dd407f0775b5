"""Constants of SQL, as sqlglot has parsed them.

Source: Spark SQL's literals
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

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
)
from widen.protocol.comparison import Literal
from widen.protocol.partition_values import UnknownValue, is_float32, parse_partition_value

if TYPE_CHECKING:
    from sqlglot import expressions as sql
else:
    sql = import_lazily("sqlglot.expressions")

_MOST_DIGITS = 38
_PLAIN_NUMBER = re.compile(r"\d+(\.\d*)?|\.\d+")


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
