"""The rules that a table sets for rows, checked while rows are written: a row that violates one fails the job.

Source: PROTOCOL.md#column-invariants, #check-constraints, #generated-columns
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from widen.iceberg.schema_conversion import fixed_lengths
from widen.model.column_path import ELEMENT, KEY, VALUE, Path, children, fields, find_field, format_path, resolve
from widen.model.types import VOID, ArrayType, DataType, Field, MapType, StructType, quote_name
from widen.planning.table.dependent_expressions import row_conditions
from widen.planning.table.expression_columns import referenced_columns
from widen.protocol.actions import Protocol
from widen.protocol.column_metadata import find_generation
from widen.protocol.table_features import is_supported
from widen.protocol.text_limits import text_limits
from widen.spark.masked_values import show_values
from widen.spark.spark_errors import raise_expression, refusal_text
from widen.spark.spark_types import type_to_spark

Check: TypeAlias = Callable[[Column], Column]
RowRefusal: TypeAlias = tuple[str, Mapping[str, str], Column | None]
"""The arguments of `widen.spark.spark_errors.raise_expression`."""

RuleBreach: TypeAlias = tuple[Column, RowRefusal]
"""The condition under which a rule is violated, and the error of the violation."""

NO_LIMITS: Mapping[str, str] = {}

_SHOWN_CHARACTERS = 500
"""The most characters of a row that an error shows."""


def check_rows(
    rows: DataFrame,
    schema: StructType,
    protocol: Protocol,
    properties: Mapping[str, str],
    other: Sequence[Column] = (),
    limits: Mapping[str, str] = NO_LIMITS,
) -> DataFrame:
    """Return rows of a table; a row that violates a rule of the table fails the job that writes them.

    Rules are NOT NULL columns and fields, lengths of strings, invariants, CHECK constraints, and generated columns,
    whose given values must equal those of the expression.

    Args:
        rows: All columns of the table, in its types, as `fill_missing_columns` returns them.
        schema: The schema of the table, in logical names, with all metadata.
        protocol: The protocol of the table: a rule applies only if its feature is supported.
        other: Columns to return, too.
        limits: More conditions in SQL that every row must fulfil, by their names.

    Raises:
        CorruptLog: an invariant cannot be parsed.

    Source: PROTOCOL.md#column-invariants (a null condition is a violation), #check-constraints
    """
    stored = [field for field in schema if field.type != VOID]
    columns = []
    for field in schema:
        breaches = [*_column_breaches(field)]
        # A void column is not written, so Spark would drop a check that it carries.
        if stored and field is stored[-1]:
            breaches += _row_breaches(schema, protocol, properties, limits)
        columns.append(_fail_on_breach(field, breaches).alias(field.name))
    return rows.select(*columns, *other)


def _fail_on_breach(field: Field, breaches: Sequence[RuleBreach]) -> Column:
    """Return a column that fails the job with the first violated rule."""
    column, spark_type = F.col(quote_name(field.name)), type_to_spark(field.type)
    for is_violated, refusal in reversed(breaches):
        column = F.when(is_violated, raise_expression(*refusal).cast(spark_type)).otherwise(column)
    return column


def first_violated_rule(
    schema: StructType, protocol: Protocol, properties: Mapping[str, str], limits: Mapping[str, str] = NO_LIMITS
) -> Column | None:
    """Return the message of the first rule that a row violates, or null; None if there are no rules.

    NOT NULL columns and struct fields are not included: the fixed columns of an ingestion cover them.

    Args:
        schema: The schema of the table, in logical names, with all metadata.
        protocol: The protocol of the table: a rule applies only if its feature is supported.
        limits: More conditions in SQL that every row must fulfil, by their names.

    Raises:
        CorruptLog: an invariant cannot be parsed.
    """
    breaches = [breach for field in schema for breach in (*_item_breaches(field), *_length_breaches(field))]
    breaches += _row_breaches(schema, protocol, properties, limits)
    message = F.lit(None).cast("string")
    for is_violated, refusal in reversed(breaches):
        message = F.when(is_violated, refusal_text(*refusal)).otherwise(message)
    return message if breaches else None


# ---- rules of a row --------------------------------------------------------------------------------


def _row_breaches(
    schema: StructType, protocol: Protocol, properties: Mapping[str, str], limits: Mapping[str, str]
) -> Iterator[RuleBreach]:
    """Yield the breaches of rules on whole rows. The last column carries them, after all column rules."""
    for name, text, holds in _conditions(schema, protocol, properties, limits):
        refusal = ("CHECK", {"name": name, "expression": text}, _row_excerpt(text, schema))
        yield ~F.coalesce(holds, F.lit(False)), refusal


def _conditions(
    schema: StructType, protocol: Protocol, properties: Mapping[str, str], limits: Mapping[str, str]
) -> Iterator[tuple[str, str, Column]]:
    """Yield the name, the text and the condition of every rule on rows."""
    for name, condition in (*row_conditions(schema, protocol, properties), *limits.items()):
        yield f"The {name}", condition, F.expr(condition)
    for field in schema if is_supported(protocol, "generatedColumns") else ():
        text = find_generation(field)
        if text is not None:
            generated = F.expr(text).cast(type_to_spark(field.type))
            label = f"The generated column {field.name}"
            yield label, f"{quote_name(field.name)} <=> ({text})", F.col(quote_name(field.name)).eqNullSafe(generated)


def _row_excerpt(text: str, schema: StructType) -> Column:
    """Return the excerpt of a row for an error: the columns that a rule uses."""
    names = {path[0] for path in referenced_columns(text, schema)}
    used = [field for field in schema if field.name in names]
    if not used:
        return F.lit("")
    shown = [show_values(F.col(quote_name(field.name)), field.type).alias(field.name) for field in used]
    return F.left(F.to_json(F.struct(*shown), {"ignoreNullFields": "false"}), F.lit(_SHOWN_CHARACTERS))


# ---- rules of a column -----------------------------------------------------------------------------


def _column_breaches(field: Field) -> Iterator[RuleBreach]:
    """Yield the breaches of rules on one column: nulls that the schema forbids, and values of a wrong length."""
    column = F.col(quote_name(field.name))
    if not field.nullable:
        yield column.isNull(), _null_refusal((field.name,))
    for path, is_null in _nulls(field.type):
        yield _anywhere(field.type, path[:-1], is_null)(column), _null_refusal((field.name, *path))
    yield from _length_breaches(field)


def _item_breaches(field: Field) -> Iterator[RuleBreach]:
    """Yield the breaches of elements and map values that are null although the schema forbids it."""
    for path, is_null in _nulls(field.type):
        if find_field(StructType((field,)), (field.name, *path)) is None:
            is_violated = _anywhere(field.type, path[:-1], is_null)(F.col(quote_name(field.name)))
            yield is_violated, _null_refusal((field.name, *path))


def _length_breaches(field: Field) -> Iterator[RuleBreach]:
    column = F.col(quote_name(field.name))
    for path, limit in text_limits(field).items():
        is_long = _anywhere(field.type, path, partial(_is_longer, limit))
        yield is_long(column), _length_refusal((field.name, *path), limit, field)
    for parent, item in fields(StructType((field,))):
        for path, _, size in fixed_lengths(item):
            whole = (*parent[1:], *path)
            has_other_length = _anywhere(field.type, whole, partial(_has_other_length, size))
            facts = {"column": format_path((field.name, *whole)), "size": str(size)}
            yield has_other_length(column), ("BYTES", facts, None)


def _null_refusal(path: Path) -> RowRefusal:
    return "NULL", {"column": format_path(path)}, None


def _length_refusal(path: Path, limit: int, field: Field) -> RowRefusal:
    facts = {"column": format_path(path), "limit": f"of {limit} characters at most"}
    shown = show_values(F.col(quote_name(field.name)), field.type)
    value = shown if len(path) == 1 else F.to_json(F.struct(shown.alias(field.name)))
    return "TEXT", facts, F.left(value, F.lit(_SHOWN_CHARACTERS))


def _is_longer(limit: int, column: Column) -> Column:
    return F.length(column) > limit


def _has_other_length(size: int, column: Column) -> Column:
    return F.octet_length(column) != size


def _nulls(data_type: DataType, path: Path = ()) -> Iterator[tuple[Path, Check]]:
    """Yield the path of everything inside a type that must not be null, with a check of its parent for nulls."""
    match data_type:
        case StructType(items):
            yield from (((*path, f.name), partial(_lacks, f.name)) for f in items if not f.nullable)
        case ArrayType(_, False):
            yield (*path, ELEMENT), lambda column: F.exists(column, F.isnull)
        case MapType(_, _, False):
            yield (*path, VALUE), lambda column: F.exists(F.map_values(column), F.isnull)
    for step, child in children(data_type):
        yield from _nulls(child, (*path, step))


def _lacks(name: str, column: Column) -> Column:
    return column.isNotNull() & column.getField(name).isNull()


def _anywhere(data_type: DataType, path: Path, check: Check) -> Check:
    """Return a check of a column that is true if a check is true for any value at a path in the column."""
    if not path:
        return check
    below = _anywhere(resolve(StructType((Field("only", data_type),)), ("only", path[0]))[1], path[1:], check)
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
