"""Assignments: expressions become columns in the types of the table, whole or field by field.

Source: Delta Lake's UPDATE and MERGE; Spark's ANSI store assignment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from widen.model.path import Path
from widen.model.type import DataType, StructType
from widen.spark.complete import fitted
from widen.spark.condition import Expression, analysed, to_column
from widen.spark.schema import from_spark


@dataclass(frozen=True)
class Value:
    """What is assigned to a column.

    Args:
        column: The expression.
        type: Its type.
    """

    column: Column
    type: DataType


def to_values(rows: DataFrame, expressions: Mapping[Path, Expression]) -> dict[Path, Value]:
    """Return expressions with their types.

    Args:
        rows: With the columns that they may name.
        expressions: By the path of the column that each is assigned to.

    Raises:
        ConditionRefused: Spark cannot use one of them.
    """
    columns = {path: to_column(expression) for path, expression in expressions.items()}
    try:
        schema = rows.select(*(column.alias(str(at)) for at, column in enumerate(columns.values()))).schema
    except PySparkException:
        for expression in expressions.values():
            with analysed(expression):
                _ = rows.select(to_column(expression)).schema
        raise
    types = (field.type for field in from_spark(schema))
    return {path: Value(column, data_type) for (path, column), data_type in zip(columns.items(), types, strict=True)}


def assigned(schema: StructType, values: Mapping[Path, Value], old: Callable[[str], Column]) -> dict[str, Column]:
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
        field.name: _assigned(field.type, (field.name,), values, old(field.name))
        for field in schema
        if field.name in names
    }


def _assigned(data_type: DataType, path: Path, values: Mapping[Path, Value], old: Column) -> Column:
    value = values.get(path)
    if value is not None:
        return fitted(value.column, value.type, data_type, path)
    if not isinstance(data_type, StructType) or not any(other[: len(path)] == path for other in values):
        return old
    parts = (_assigned(f.type, (*path, f.name), values, old.getField(f.name)).alias(f.name) for f in data_type)
    return F.struct(*parts)
