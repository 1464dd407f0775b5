"""Conditions on the forms of records: whether a record deletes, as the proof finds it.

These are the comparisons that `--where` takes without Spark, of what a record says instead of what a column has. The
writer shares nothing of them.

Source: Spark SQL, "NULL Semantics"; docs/guide/keys.md
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from operator import eq, ge, gt, le, lt, ne
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec.msgpack import Ext

from widen.model.column_path import Path
from widen.model.lazy_module import import_lazily
from widen.model.types import (
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    Field,
    StructType,
    is_same_name,
)
from widen.proof.canonical import EXACT_WHOLE, LONG_NUMBER, Form
from widen.protocol.column_metadata import COLLATIONS
from widen.schema.source_metadata import FORM, role_of, source_key
from widen.schema.table_state import parse_expression
from widen.spark.ingest.keyed_verification import read_micros
from widen.spark.read.local_rows import NotLocal

if TYPE_CHECKING:
    from sqlglot import errors
    from sqlglot import expressions as sql
else:
    errors, sql = map(import_lazily, ("sqlglot.errors", "sqlglot.expressions"))

Condition: TypeAlias = Callable[[Form], "bool | None"]
"""Returns whether a condition is true, false or null for a form; raises `Undecided` where only Spark can tell."""


class Undecided(Exception):
    """A value is not one that the column of the condition surely holds as it is."""


def build_condition(text: str, schema: StructType) -> Condition:
    """Return what evaluates a condition in Spark SQL on the forms of records.

    Args:
        schema: The columns that it may use.

    Raises:
        NotLocal: it has more than comparisons of columns with constants.
    """
    if "\\" in text:  # sqlglot and Spark read escapes differently
        raise NotLocal(_TOO_MUCH)
    try:
        return _build(parse_expression(text), schema)
    except (errors.SqlglotError, RecursionError) as error:
        raise NotLocal(_TOO_MUCH) from error


_TOO_MUCH = "the condition of deletions is not a comparison of columns with constants"


def _build(node: Any, schema: StructType) -> Condition:
    match node:
        case sql.Paren():
            return _build(node.this, schema)
        case sql.And() | sql.Or():
            sides = _build(node.this, schema), _build(node.expression, schema)
            return partial(_both if isinstance(node, sql.And) else _either, *sides)
        case sql.Not():
            return partial(_not, _build(node.this, schema))
        case sql.Is() if isinstance(node.expression, sql.Null):
            return partial(_is_null, _Column.of(node.this, schema))
        case sql.Between() if not node.args.get("symmetric"):
            low = _compare(ge, node.this, node.args["low"], schema)
            return partial(_both, low, _compare(le, node.this, node.args["high"], schema))
        case sql.In() if node.expressions:
            tests = [_compare(eq, node.this, each, schema) for each in node.expressions]
            return partial(_any, tests)
    compare = _OPERATORS.get(type(node).__name__)
    if compare is None:
        raise NotLocal(_TOO_MUCH)
    if isinstance(node.this, (sql.Column, sql.Dot)):
        return _compare(compare, node.this, node.expression, schema)
    return _compare(_MIRRORED[compare], node.expression, node.this, schema)


Compare: TypeAlias = Callable[[Any, Any], bool]
_OPERATORS: Mapping[str, Compare] = {"EQ": eq, "NEQ": ne, "LT": lt, "LTE": le, "GT": gt, "GTE": ge}
_MIRRORED: Mapping[Compare, Compare] = {eq: eq, ne: ne, lt: gt, le: ge, gt: lt, ge: le}


def _both(left: Condition, right: Condition, form: Form) -> bool | None:
    results = left(form), right(form)
    return False if False in results else None if None in results else True


def _either(left: Condition, right: Condition, form: Form) -> bool | None:
    return _any((left, right), form)


def _any(tests: Sequence[Condition], form: Form) -> bool | None:
    results = [test(form) for test in tests]
    return True if True in results else None if None in results else False


def _not(test: Condition, form: Form) -> bool | None:
    result = test(form)
    return None if result is None else not result


def _is_null(column: _Column, form: Form) -> bool:
    return column.value(form) is None


def _compare(compare: Compare, column: Any, constant: Any, schema: StructType) -> Condition:
    found = _Column.of(column, schema)
    return partial(_is_true, compare, found, found.constant(constant))


def _is_true(compare: Compare, column: _Column, constant: Any, form: Form) -> bool | None:
    value = column.value(form)
    return None if value is None else compare(value, constant)


@dataclass(frozen=True, slots=True)
class _Column:
    """The only column of a field, or one of numbers or booleans that has only a column of texts beside it.

    Args:
        path: The field.
        has_texts: Whether there is a column of texts, which has the texts of the field.
    """

    path: Path
    type: DataType
    has_texts: bool = False

    @staticmethod
    def of(node: Any, schema: StructType) -> _Column:
        """Return the column that a part of a condition names.

        Raises:
            NotLocal: it is not the name of a column, or the field has other columns, too.
        """
        while isinstance(node, sql.Paren):
            node = node.this
        names = list(_names(node))
        path: list[str] = []
        found: DataType = schema
        has_texts = False
        for name in names:
            fields = found.fields if isinstance(found, StructType) else ()
            field = next((each for each in fields if is_same_name(each.name, name)), None)
            if field is None or not (_is_plain(field) and all(map(_is_plain, others := _beside(field, fields)))):
                raise NotLocal(_TOO_MUCH)
            has_texts = [each.type for each in others] == [STRING] and _is_number(field.type)
            if others and not has_texts:
                raise NotLocal(_TOO_MUCH)
            path.append(source_key(field))
            found = field.type
        if not (names and (found in _VALUES or isinstance(found, DecimalType))):
            raise NotLocal(_TOO_MUCH)
        return _Column(tuple(path), found, has_texts)

    def value(self, form: Form) -> Any:
        """Return the value that the column has for a record; None for null.

        Raises:
            Undecided: it may be another one than that of the record.
        """
        for name in self.path:
            if form is not None and not isinstance(form, dict):
                raise Undecided
            form = None if form is None else form.get(name)
        if form is None or (self.has_texts and isinstance(form, str)):
            return None
        return _decimal(form, self.type) if isinstance(self.type, DecimalType) else _VALUES[self.type](form)

    def constant(self, node: Any) -> Any:
        """Return a constant in the type of the values.

        Raises:
            NotLocal: Spark would compare in another type.
        """
        match node:
            case sql.Paren():
                return self.constant(node.this)
            case sql.Neg():
                value = self.constant(node.this)
                if type(value) in (int, float, Decimal):
                    return -value
            case sql.Boolean() if self.type == BOOLEAN:
                return bool(node.this)
            case sql.Literal() if node.is_string:
                if self.type == STRING or (self.type == DATE and _DAY.fullmatch(node.name)):
                    return node.name
            case sql.Literal() if _NUMBER.fullmatch(node.name):
                if self.type == DOUBLE:
                    return float(node.name)
                if self.type in _BITS or isinstance(self.type, DecimalType):
                    return Decimal(node.name)
            case sql.Cast() if node.to.this is sql.DataType.Type.DATE and self.type == DATE:
                return self.constant(node.this)
        raise NotLocal(_TOO_MUCH)


def _names(node: Any) -> Iterator[str]:
    match node:
        case sql.Column():
            yield from (part.name for part in node.parts)
        case sql.Dot():
            yield from _names(node.this)
            yield from _names(node.expression)
        case sql.Identifier():
            yield node.name
        case _:
            raise NotLocal(_TOO_MUCH)


def _beside(field: Field, fields: Sequence[Field]) -> list[Field]:
    """Return the other columns of the same field."""
    return [each for each in fields if each is not field and is_same_name(source_key(each), source_key(field))]


def _is_plain(field: Field) -> bool:
    # A column of texts for all kinds has other texts than the record, and a collation compares otherwise.
    return role_of(field) is None and field.metadata.keys().isdisjoint((COLLATIONS, FORM))


def _is_number(data_type: DataType) -> bool:
    return data_type in (*_BITS, BOOLEAN, DOUBLE) or isinstance(data_type, DecimalType)


_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_NUMBER = re.compile(r"\d{1,18}(\.\d{0,18})?|\.\d{1,18}")
_BITS: Mapping[DataType, int] = {BYTE: 7, SHORT: 15, INTEGER: 31, LONG: 63}


def _text(form: Form) -> str:
    if not isinstance(form, str):
        raise Undecided
    return form


def _boolean(form: Form) -> bool:
    if not isinstance(form, bool):
        raise Undecided
    return form


def _integer(bits: int, form: Form) -> int:
    if type(form) is not int or not -(2**bits) <= form < 2**bits:
        raise Undecided
    return form


def _double(form: Form) -> float:
    if type(form) is float or (type(form) is int and abs(form) <= EXACT_WHOLE):
        return float(form)
    raise Undecided


def _day(form: Form) -> str:
    if isinstance(form, str) and _DAY.fullmatch(form):
        return form
    raise Undecided


def _time(form: Form) -> str:
    """Return a time, of which only whether there is one counts."""
    if isinstance(form, str) and read_micros(form) is not None:
        return form
    raise Undecided


def _decimal(form: Form, data_type: DecimalType) -> Decimal:
    if isinstance(form, Ext) and form.code == LONG_NUMBER:
        number = Decimal(bytes(form.data).decode())
    elif type(form) in (int, float):
        number = Decimal(repr(form))
    else:
        raise Undecided
    limit = Decimal(10) ** (data_type.precision - data_type.scale)
    if not number.is_finite() or abs(number) >= limit or number != number.quantize(Decimal(1).scaleb(-data_type.scale)):
        raise Undecided
    return number


_VALUES: Mapping[DataType, Callable[[Form], Any]] = {
    STRING: _text,
    BOOLEAN: _boolean,
    DOUBLE: _double,
    DATE: _day,
    TIMESTAMP: _time,
    TIMESTAMP_NTZ: _time,
    **{data_type: partial(_integer, bits) for data_type, bits in _BITS.items()},
}
