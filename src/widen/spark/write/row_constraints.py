"""Rows that a table may not hold, found where they are written: each of them fails the job.

Source: PROTOCOL.md#column-invariants, #check-constraints, #generated-columns
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from widen.model.column_path import ELEMENT, KEY, VALUE, Path, children, find_field, format_path, resolve
from widen.model.types import VOID, ArrayType, DataType, Field, MapType, StructType, quote_name
from widen.planning.table.dependent_expressions import row_conditions
from widen.planning.table.expression_columns import referenced_columns
from widen.protocol.actions import Protocol
from widen.protocol.column_metadata import find_generation, text_limits
from widen.protocol.table_features import is_supported
from widen.spark.spark_errors import raise_expression, refusal_text
from widen.spark.spark_types import type_to_spark

Check: TypeAlias = Callable[[Column], Column]
RowRefusal: TypeAlias = tuple[str, Mapping[str, str], Column | None]
"""What `widen.spark.spark_errors.raise_expression` takes."""

RuleBreach: TypeAlias = tuple[Column, RowRefusal]
"""When a rule is broken, and what is then to be said."""

_SHOWN_CHARACTERS = 500
"""How much of a row an error shows."""


def check_rows(rows: DataFrame, schema: StructType, protocol: Protocol, properties: Mapping[str, str]) -> DataFrame:
    """Return rows of a table that fail the job which writes them if one of them breaks a rule of the table.

    Rules are columns and fields that must not be null, lengths of texts, invariants, CHECK constraints and generated
    columns: a value that was given must be the one that the expression makes.

    Args:
        rows: All columns of the table, in its types, as `fill_missing_columns` gives them.
        schema: Of the table, in logical names, with all metadata.
        protocol: Of the table: a rule counts only where its feature is supported.
        properties: The configuration of the table.

    Raises:
        CorruptLog: an invariant cannot be read.

    Source: PROTOCOL.md#column-invariants (what is null does not fulfil a condition), #check-constraints
    """
    stored = [field for field in schema if field.type != VOID]
    columns = []
    for field in schema:
        breaches = [*_column_breaches(field)]
        if stored and field is stored[-1]:
            breaches += _row_breaches(schema, protocol, properties)
        columns.append(_fail_on_breach(field, breaches).alias(field.name))
    return rows.select(*columns)


def _fail_on_breach(field: Field, breaches: Sequence[RuleBreach]) -> Column:
    """Return a column that fails the job where the first of some rules is broken that is broken at all."""
    column, spark_type = F.col(quote_name(field.name)), type_to_spark(field.type)
    for is_broken, refused in reversed(breaches):
        column = F.when(is_broken, raise_expression(*refused).cast(spark_type)).otherwise(column)
    return column


def first_broken_rule(schema: StructType, protocol: Protocol, properties: Mapping[str, str]) -> Column | None:
    """Return what tells the first rule that a row breaks, null if it breaks none; None if there are no such rules.

    Columns that must not be null, and fields of records that must not, are no such rules: whoever makes the rows sees
    to them.

    Args:
        schema: Of the table, in logical names, with all metadata.
        protocol: Of the table: a rule counts only where its feature is supported.
        properties: The configuration of the table.

    Raises:
        CorruptLog: an invariant cannot be read.
    """
    breaches = [breach for field in schema for breach in (*_item_breaches(field), *_length_breaches(field))]
    breaches += _row_breaches(schema, protocol, properties)
    told = F.lit(None).cast("string")
    for is_broken, refused in reversed(breaches):
        told = F.when(is_broken, refusal_text(*refused)).otherwise(told)
    return told if breaches else None


# ---- rules of a row --------------------------------------------------------------------------------


def _row_breaches(schema: StructType, protocol: Protocol, properties: Mapping[str, str]) -> Iterator[RuleBreach]:
    """Yield the breaches of rules that look at a whole row; the last column is guarded by them, after all others."""
    for name, text, holds in _conditions(schema, protocol, properties):
        refused = ("CHECK", {"name": name, "expression": text}, _row_excerpt(text, schema))
        yield ~F.coalesce(holds, F.lit(False)), refused


def _conditions(
    schema: StructType, protocol: Protocol, properties: Mapping[str, str]
) -> Iterator[tuple[str, str, Column]]:
    """Yield the name, the text and the condition of every rule that a row must fulfil."""
    for called, condition in row_conditions(schema, protocol, properties):
        yield f"The {called}", condition, F.expr(condition)
    for field in schema if is_supported(protocol, "generatedColumns") else ():
        text = find_generation(field)
        if text is not None:
            made = F.expr(text).cast(type_to_spark(field.type))
            name = f"The generated column {field.name}"
            yield name, f"{quote_name(field.name)} <=> ({text})", F.col(quote_name(field.name)).eqNullSafe(made)


def _row_excerpt(text: str, schema: StructType) -> Column:
    """Return what an error shows of a row: the columns that a rule looks at."""
    names = {path[0] for path in referenced_columns(text, schema)}
    looked_at = [F.col(quote_name(field.name)) for field in schema if field.name in names]
    if not looked_at:
        return F.lit("")
    return F.left(F.to_json(F.struct(*looked_at), {"ignoreNullFields": "false"}), F.lit(_SHOWN_CHARACTERS))


# ---- rules of a column -----------------------------------------------------------------------------


def _column_breaches(field: Field) -> Iterator[RuleBreach]:
    """Yield the breaches of rules that look at one column: null against the schema, and texts that are too long."""
    column = F.col(quote_name(field.name))
    if not field.nullable:
        yield column.isNull(), _null((field.name,))
    for path, is_null in _nulls(field.type):
        yield _somewhere(field.type, path[:-1], is_null)(column), _null((field.name, *path))
    yield from _length_breaches(field)


def _item_breaches(field: Field) -> Iterator[RuleBreach]:
    """Yield the breaches of elements and values that are null against the schema."""
    for path, is_null in _nulls(field.type):
        if find_field(StructType((field,)), (field.name, *path)) is None:
            is_broken = _somewhere(field.type, path[:-1], is_null)(F.col(quote_name(field.name)))
            yield is_broken, _null((field.name, *path))


def _length_breaches(field: Field) -> Iterator[RuleBreach]:
    column = F.col(quote_name(field.name))
    for path, limit in text_limits(field).items():
        is_long = _somewhere(field.type, path, partial(_is_longer, limit))
        yield is_long(column), _long((field.name, *path), limit, column)


def _null(path: Path) -> RowRefusal:
    return "NULL", {"column": format_path(path)}, None


def _long(path: Path, limit: int, column: Column) -> RowRefusal:
    told = {"column": format_path(path), "limit": f"of {limit} characters at most"}
    value = column if len(path) == 1 else F.to_json(F.struct(column))
    return "TEXT", told, F.left(value, F.lit(_SHOWN_CHARACTERS))


def _is_longer(limit: int, column: Column) -> Column:
    return F.length(column) > limit


def _nulls(data_type: DataType, at: Path = ()) -> Iterator[tuple[Path, Check]]:
    """Yield the path of everything inside a type that must not be null, and how its parent shows that it is."""
    match data_type:
        case StructType(items):
            yield from (((*at, f.name), partial(_lacks, f.name)) for f in items if not f.nullable)
        case ArrayType(_, False):
            yield (*at, ELEMENT), lambda column: F.exists(column, F.isnull)
        case MapType(_, _, False):
            yield (*at, VALUE), lambda column: F.exists(F.map_values(column), F.isnull)
    for step, child in children(data_type):
        yield from _nulls(child, (*at, step))


def _lacks(name: str, column: Column) -> Column:
    return column.isNotNull() & column.getField(name).isNull()


def _somewhere(data_type: DataType, path: Path, check: Check) -> Check:
    """Return a check of a column that is true if one is true of any of the values at a path in it."""
    if not path:
        return check
    below = _somewhere(resolve(StructType((Field("only", data_type),)), ("only", path[0]))[1], path[1:], check)
    return partial(_STEPS.get((type(data_type), path[0]), partial(_in_struct, path[0])), below)


def _in_struct(name: str, below: Check, column: Column) -> Column:
    return below(column.getField(name))


def _in_array(below: Check, column: Column) -> Column:
    return F.exists(column, lambda item: below(item))


def _in_keys(below: Check, column: Column) -> Column:
    return _in_array(below, F.map_keys(column))


def _in_values(below: Check, column: Column) -> Column:
    return _in_array(below, F.map_values(column))


_STEPS: Mapping[tuple[type[object], str], Callable[[Check, Column], Column]] = {
    (ArrayType, ELEMENT): _in_array,
    (MapType, KEY): _in_keys,
    (MapType, VALUE): _in_values,
}
