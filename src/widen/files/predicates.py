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
    DATE,
    DOUBLE,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    StructType,
    is_atomic,
    name_key,
)
from widen.protocol.column_metadata import COLLATIONS, char_lengths
from widen.protocol.comparison import Constant, bind_comparison, bind_list
from widen.protocol.data_skipping import (
    And,
    ConstantPredicate,
    IsNull,
    Not,
    Or,
    Predicate,
    UnknownPredicate,
)
from widen.protocol.partition_values import UNKNOWN, Scalar, UnknownValue, is_float32, parse_partition_value
from widen.schema.table_state import parse_expression

if TYPE_CHECKING:
    from sqlglot import errors
    from sqlglot import expressions as sql
else:
    errors, sql = map(import_lazily, ("sqlglot.errors", "sqlglot.expressions"))

_OPERATORS: Mapping[str, str] = {"EQ": "=", "NEQ": "<>", "LT": "<", "LTE": "<=", "GT": ">", "GTE": ">="}
"""The operators by the names of sqlglot's classes."""

_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIMES = frozenset({DATE, TIMESTAMP, TIMESTAMP_NTZ})
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

    def pad(self, path: Path, value: Constant) -> Constant:
        """Return a constant as Spark compares it with a column: as long as char(n), but not beside a field of a struct.

        A constant that is longer is compared with longer texts, which is the same if the rest is spaces.
        """
        length = self.char_lengths.get(path)
        if length is None or not isinstance(value, str):
            return value
        return UNKNOWN if value[length:].strip(" ") else value[:length].ljust(length)

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
        scope: The columns that it may use: the columns of a table, or of a table with an alias.
    """
    columns = scope if isinstance(scope, PredicateScope) else PredicateScope(scope)
    if "\\" in text:  # sqlglot and Spark read escapes differently
        return UnknownPredicate()
    try:
        parsed = parse_expression(text)
    except (errors.SqlglotError, RecursionError):
        return UnknownPredicate()
    return translate_condition(parsed, columns)


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


def translate_condition(node: Any, scope: PredicateScope) -> Predicate:
    """Return a condition that sqlglot has parsed as a predicate; see `parse_predicate`."""
    match node:
        case sql.Paren():
            return translate_condition(node.this, scope)
        case sql.And():
            return And(translate_condition(node.this, scope), translate_condition(node.expression, scope))
        case sql.Or():
            return Or(translate_condition(node.this, scope), translate_condition(node.expression, scope))
        case sql.Not():
            return Not(translate_condition(node.this, scope))
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
    sign = _OPERATORS.get(type(node).__name__)
    if sign:
        return _compare(node.this, sign, node.expression, scope)
    column = _column(node, scope)
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
    path, data_type = column
    items = node.expressions
    has_texts = data_type in _TIMES and any(isinstance(item, sql.Literal) for item in items)
    # Without ANSI mode, Spark compares these as texts, which is the same for days that are written as it writes them.
    if has_texts and not (data_type == DATE and all(_DAY.fullmatch(item.name) for item in items)):
        return UnknownPredicate()
    constants = [scope.pad(path, _constant(item, data_type)) for item in items]
    if None in constants and path in scope.char_lengths:
        return UnknownPredicate()
    return bind_list(path, data_type, constants)


def _compare(left: Any, sign: str, right: Any, scope: PredicateScope) -> Predicate:
    if any(map(_is_null_constant, (left, right))) and all(_is_operand(each, scope) for each in (left, right)):
        return ConstantPredicate(None)
    column, constant = _column(left, scope), right
    if column is None:
        column, constant, sign = _column(right, scope), left, _MIRRORED[sign]
    if column is None:
        return UnknownPredicate()
    path, data_type = column
    return bind_comparison(path, data_type, sign, scope.pad(path, _constant(constant, data_type)))


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


def _constant(node: Any, data_type: DataType) -> Constant:
    match node:
        case sql.Paren():
            return _constant(node.this, data_type)
        case sql.Neg():
            return _negate(_constant(node.this, data_type))
        case sql.Null():
            return None
        case sql.Boolean():
            return bool(node.this)
        case sql.Literal():
            return _quoted_constant(node.name, data_type) if node.is_string else _number(node.name)
        case sql.Cast() if isinstance(node.this, sql.Literal):
            return _typed_constant(node.this, node.to, data_type)
    return UNKNOWN


def _negate(value: Constant) -> Constant:
    if isinstance(value, bool) or not isinstance(value, (int, float, Decimal)) or value in _SMALLEST:
        return UNKNOWN
    return value.copy_negate() if isinstance(value, Decimal) else -value


_SMALLEST = (-(2**31), -(2**63))
"""The integers whose negation is not an integer of the same type."""


def _number(text: str) -> int | float | Decimal | UnknownValue:
    """Return an integer or a decimal; with an exponent, Spark parses a double."""
    if _PLAIN_NUMBER.fullmatch(text):
        plain = Decimal(text)
        if len(plain.as_tuple().digits) > _MOST_DIGITS or -int(plain.as_tuple().exponent) > _MOST_DIGITS:
            return UNKNOWN
        return int(text) if text.isdecimal() else plain
    try:
        number = float(text)
    except ValueError:
        return UNKNOWN
    return number if math.isfinite(number) else UNKNOWN


def _quoted_constant(text: str, data_type: DataType) -> Constant:
    """Return a quoted constant in the type of the column, if Spark would cast it to that type."""
    return _parse_constant(text, data_type) if str(data_type) in _QUOTED else UNKNOWN


def _typed_constant(literal: sql.Literal, target: sql.DataType, data_type: DataType) -> Constant:
    """Return a typed constant: 3L, 3.5D, double('NaN'), DATE '2024-01-01', TIMESTAMP '2024-01-01T00:00:00Z'."""
    kind, text = target.this, literal.name
    if kind is sql.DataType.Type.DOUBLE:
        return _double(text)
    if kind is sql.DataType.Type.FLOAT:
        number = _double(text)
        is_exact = isinstance(number, float) and (is_float32(number) or not math.isfinite(number))
        return number if is_exact and str(data_type) in ("float", "double") else UNKNOWN
    if kind is sql.DataType.Type.DECIMAL:
        return _decimal(text, [each.name for each in target.expressions])
    if not literal.is_string:
        whole = _number(text)
        return whole if isinstance(whole, int) and whole < _INTEGERS.get(getattr(kind, "name", ""), 0) else UNKNOWN
    if kind is sql.DataType.Type.DATE:
        day = _parse_constant(text, DATE)
        is_kept = data_type == DATE or isinstance(day, UnknownValue)
        return day if is_kept else _parse_constant(f"{day} 00:00:00", TIMESTAMP_NTZ)
    if kind is sql.DataType.Type.TIMESTAMPNTZ:
        return _parse_constant(text, TIMESTAMP_NTZ)
    return _parse_constant(text, TIMESTAMP) if kind is sql.DataType.Type.TIMESTAMPTZ else UNKNOWN


def _double(text: str) -> float | UnknownValue:
    if text == "NaN":
        return math.nan
    number = parse_partition_value(text, DOUBLE)
    return number if isinstance(number, float) and (math.isfinite(number) or "inf" in text.lower()) else UNKNOWN


def _decimal(text: str, parameters: Sequence[str]) -> Decimal | UnknownValue:
    """Return a decimal with a suffix, 5.50BD: its type has as many digits as it shows."""
    if not _PLAIN_NUMBER.fullmatch(text):
        return UNKNOWN
    number = Decimal(text)
    _, digits, exponent = number.as_tuple()
    scale = -int(exponent)
    return number if [*parameters] == [str(max(len(digits), scale)), str(scale)] else UNKNOWN


def _parse_constant(text: str, data_type: DataType) -> Scalar | UnknownValue:
    if data_type == STRING:
        return text
    value = parse_partition_value(text, data_type)
    return UNKNOWN if value is None else value


_QUOTED = frozenset({"string", "date", "timestamp", "timestamp_ntz"})
_INTEGERS: Mapping[str, int] = {"TINYINT": 2**7, "SMALLINT": 2**15, "INT": 2**31, "BIGINT": 2**63}
"""The exclusive upper limits of typed constants; a session may truncate or refuse greater ones."""


# Filters on fields of rebuilt structs, in terms of the columns of the files: Spark itself cannot push those.
#
# They are added to the caller's own condition, and only let Spark skip row groups and rows that do not match. So
# old files are skipped like new ones.


# Partitions as rows, so that Spark evaluates conditions on them and compares them.
#
# The log may have several texts for one value, e.g. one from before and one from after a type change. So values are
# compared instead of texts, in the types of a read.
#
# Source: PROTOCOL.md#partition-value-serialization
