"""Assignments: expressions become columns in the types of the table, whole or field by field.

Source: Delta Lake's UPDATE and MERGE; Spark's ANSI store assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from widen.errors import AssignedOverflow, CastOverflow
from widen.model.column_path import Path
from widen.model.types import DataType, StructType, quote_name
from widen.protocol.actions import Protocol
from widen.protocol.column_metadata import find_generation
from widen.protocol.table_features import is_supported
from widen.spark.dml.row_decision import CLAUSE
from widen.spark.expression import Expression, to_column, translate_analysis_errors
from widen.spark.spark_types import from_spark, type_to_spark
from widen.spark.write.missing_columns import cast_to_table_type


@dataclass(frozen=True)
class AssignedValue:
    """What is assigned to a column.

    Args:
        column: The expression.
        type: Its type.
        is_patch: Whether fields that it lacks stay as they were; else they become null.
    """

    column: Column
    type: DataType
    is_patch: bool = False


def to_assigned_values(rows: DataFrame, expressions: Mapping[Path, Expression]) -> dict[Path, AssignedValue]:
    """Return expressions with their types.

    Args:
        rows: With the columns that they may name.
        expressions: By the path of the column that each is assigned to.

    Raises:
        InvalidCondition: Spark cannot use one of them.
    """
    columns = {path: to_column(expression) for path, expression in expressions.items()}
    try:
        schema = rows.select(*(column.alias(str(at)) for at, column in enumerate(columns.values()))).schema
    except PySparkException:
        for expression in expressions.values():
            with translate_analysis_errors(expression):
                _ = rows.select(to_column(expression)).schema
        raise
    types = (field.type for field in from_spark(schema))
    return {
        path: AssignedValue(column, data_type) for (path, column), data_type in zip(columns.items(), types, strict=True)
    }


@contextmanager
def translate_overflow() -> Iterator[None]:
    """Tell a value that is out of range as one that was assigned.

    Raises:
        AssignedOverflow: in place of the error of a write.

    Source: Delta Lake: UPDATE and MERGE have an error of their own.
    """
    try:
        yield
    except CastOverflow as error:
        told = error.fields
        raise AssignedOverflow(column=told["column"], old=told["old"], new=told["new"], value=told["value"]) from error


def assign_columns(
    schema: StructType, values: Mapping[Path, AssignedValue], old: Callable[[str], Column]
) -> dict[str, Column]:
    """Return the columns that are assigned, whole or in part, as they are afterwards.

    Args:
        schema: Of the table.
        values: By the paths that they are assigned to.
        old: Gives a column as it is before, by its name.

    Returns:
        The columns by name; those that nothing is assigned to are left out.
    """
    names = {path[0] for path in values}
    return {
        field.name: _assign_type(field.type, (field.name,), values, old(field.name))
        for field in schema
        if field.name in names
    }


def _assign_type(data_type: DataType, path: Path, values: Mapping[Path, AssignedValue], old: Column) -> Column:
    value = values.get(path)
    if value is not None:
        if value.is_patch:
            return _patch_struct(value, data_type, path, old)
        return cast_to_table_type(value.column, value.type, data_type, path)
    if not isinstance(data_type, StructType) or not any(other[: len(path)] == path for other in values):
        return old
    parts = (_assign_type(f.type, (*path, f.name), values, old.getField(f.name)).alias(f.name) for f in data_type)
    return F.struct(*parts)


def _patch_struct(value: AssignedValue, data_type: DataType, path: Path, old: Column) -> Column:
    """Return a value with the fields that it lacks as they were; it is null only if both are, or nothing is lacking.

    Source: Delta Lake's UPDATE SET *
    """
    have = value.type
    if not isinstance(have, StructType) or not isinstance(data_type, StructType) or not _lacks(have, data_type):
        return cast_to_table_type(value.column, have, data_type, path)
    parts = []
    for field in data_type:
        known, before = have.find(field.name), old.getField(field.name)
        if known is not None:
            inner = AssignedValue(value.column.getField(known.name), known.type, is_patch=True)
            before = _patch_struct(inner, field.type, (*path, field.name), before)
        parts.append(before.alias(field.name))
    return F.when(value.column.isNotNull() | old.isNotNull(), F.struct(*parts))


def _lacks(have: StructType, want: StructType) -> bool:
    """Tell whether a struct has not every field of another one, at any depth that only structs lead to."""
    for field in want:
        known = have.find(field.name)
        if known is None:
            return True
        if isinstance(known.type, StructType) and isinstance(field.type, StructType) and _lacks(known.type, field.type):
            return True
    return False


def recompute_generated_columns(
    rows: DataFrame, schema: StructType, protocol: Protocol, given: Sequence[Collection[str]]
) -> DataFrame:
    """Return judged rows whose generated columns are made anew wherever a clause changes a row and does not give them.

    Args:
        rows: With `CLAUSE`.
        schema: Of the table, with all metadata.
        protocol: Of the table.
        given: The columns that each clause gives a value, by its number.

    Source: PROTOCOL.md#generated-columns
    """
    made = {field.name: text for field in schema if (text := find_generation(field))}
    if not made or not is_supported(protocol, "generatedColumns"):
        return rows
    columns = {}
    for field in schema:
        clauses = [clause for clause, names in enumerate(given) if field.name not in names]
        if field.name in made and clauses:
            new = F.expr(made[field.name]).cast(type_to_spark(field.type))
            columns[field.name] = F.when(F.col(CLAUSE).isin(clauses), new).otherwise(F.col(quote_name(field.name)))
    return rows.withColumns(columns) if columns else rows
