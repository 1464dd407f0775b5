"""Predicates as PyIceberg's row filters, which skip manifests and data files; a filter never skips a matching row.

Iceberg's bounds leave NaN out, PyIceberg rounds a double to the type of a float column, and its names are paths
with dots. Where its answer could differ from Spark's, the filter lets everything through.

Source: Iceberg's table specification, "Scan Planning"; Spark's NaN semantics
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from widen.iceberg.delta_statistics import EPOCH, to_micros
from widen.model.column_path import Path
from widen.model.lazy_module import import_lazily
from widen.model.types import DataType, DecimalType, plain_name
from widen.protocol.partition_values import Scalar, is_float32
from widen.protocol.skipping.predicate import NEGATED, And, Compare, IsNull, Not, Or, Predicate

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.schema import Schema

ice = import_lazily("pyiceberg.expressions")
literals = import_lazily("pyiceberg.expressions.literals")


def to_row_filter(predicate: Predicate, schema: Schema) -> BooleanExpression:
    """Return a filter that is true for every row for which a predicate is true.

    Args:
        schema: The schema to which PyIceberg binds the filter.
    """
    return _weaken(predicate, schema, truth=True) or ice.AlwaysTrue()


def _weaken(predicate: Predicate, schema: Schema, *, truth: bool) -> BooleanExpression | None:
    """Return a filter for all rows that make a predicate ``truth``; None if every row could."""
    match predicate:
        case Not(inner):
            return _weaken(inner, schema, truth=not truth)
        case And(left, right) | Or(left, right):
            parts = [_weaken(part, schema, truth=truth) for part in (left, right)]
            filters = [part for part in parts if part is not None]
            if isinstance(predicate, And) == truth:
                return ice.And(*filters) if len(filters) == len(parts) else next(iter(filters), None)
            return ice.Or(*filters) if len(filters) == len(parts) else None
        case IsNull(path, _):
            name = _name(path, schema)
            # A required field of a null struct is null, but PyIceberg takes every required field for not null.
            is_unsure = name is not None and truth and len(path) > 1 and schema.find_field(name).required
            return None if name is None or is_unsure else ice.IsNull(name) if truth else ice.NotNull(name)
        case Compare(path, data_type, operator, value):
            name, literal = _name(path, schema), _to_literal(value, data_type)
            return None if name is None or literal is None else _compare(name, data_type, operator, literal, truth)
    return None


def _compare(name: str, data_type: DataType, operator: str, literal: Any, truth: bool) -> Any:
    operator = operator if truth else NEGATED[operator]
    if str(data_type) == "boolean" and operator != "=":
        return None
    compared = getattr(ice, _OPERATORS[operator])(name, literal)
    if str(data_type) in ("float", "double") and operator in (">", ">="):  # Spark: NaN is greater than every number
        return ice.Or(compared, ice.IsNaN(name))
    return compared


def _name(path: Path, schema: Schema) -> str | None:
    """Return the name of a leaf for PyIceberg; None if a dot in a name makes it ambiguous."""
    name = ".".join(path)
    return name if not any("." in part for part in path) and name in schema.column_names else None


def _to_literal(value: Scalar, data_type: DataType) -> Any:
    make = _LITERALS.get(plain_name(data_type))
    return make(value, data_type) if make is not None else None


def _integer(value: Scalar, _: DataType) -> Any:
    return literals.LongLiteral(int(value)) if isinstance(value, (int, Decimal)) and value == int(value) else None


def _double(value: Scalar, data_type: DataType) -> Any:
    if not isinstance(value, float) or value != value:
        return None
    return literals.DoubleLiteral(value) if str(data_type) == "double" or is_float32(value) else None


def _decimal(value: Scalar, data_type: DataType) -> Any:
    assert isinstance(data_type, DecimalType)
    if not isinstance(value, (int, Decimal)):
        return None
    sign, digits, exponent = Decimal(value).as_tuple()
    unscaled = int("".join(map(str, digits))) * 10 ** max(int(exponent) + data_type.scale, 0)
    cut = -(int(exponent) + data_type.scale)
    if cut > 0:
        unscaled, rest = divmod(unscaled, 10**cut)
        if rest:
            return None
    if len(str(unscaled)) > data_type.precision:
        return None
    return literals.DecimalLiteral(Decimal((sign, tuple(map(int, str(unscaled))), -data_type.scale)))


def _string(value: Scalar, _: DataType) -> Any:
    return literals.StringLiteral(value) if isinstance(value, str) else None


def _boolean(value: Scalar, _: DataType) -> Any:
    return literals.BooleanLiteral(value) if isinstance(value, bool) else None


def _date(value: Scalar, _: DataType) -> Any:
    # PyIceberg looks for the partition of the day before or after, for which Python has no date here.
    if type(value) is not date or value in (date.min, date.max):
        return None
    return literals.DateLiteral((value - EPOCH.date()).days)


def _timestamp(value: Scalar, _: DataType) -> Any:
    micros = to_micros(value) if isinstance(value, datetime) else None
    return literals.TimestampLiteral(micros) if micros is not None and _FIRST < micros < _LAST else None


_FIRST, _LAST = to_micros(datetime.min), to_micros(datetime.max)

_LITERALS: Mapping[str, Callable[[Scalar, DataType], Any]] = {
    "boolean": _boolean,
    "integer": _integer,
    "long": _integer,
    "float": _double,
    "double": _double,
    "decimal": _decimal,
    "string": _string,
    "date": _date,
    "timestamp": _timestamp,
    "timestamp_ntz": _timestamp,
}
"""For each type, how a constant becomes a literal; None if PyIceberg could compare it in another way than Spark."""

_OPERATORS: Mapping[str, str] = {
    "=": "EqualTo",
    "<>": "NotEqualTo",
    "<": "LessThan",
    "<=": "LessThanOrEqual",
    ">": "GreaterThan",
    ">=": "GreaterThanOrEqual",
}
"""The class of PyIceberg for each operator."""
