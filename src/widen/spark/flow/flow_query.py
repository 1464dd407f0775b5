"""The query of a flow: from the rows of the source to the rows of the target.

Source: Spark's parameterized queries (``{name}`` for a DataFrame).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from widen.errors import InvalidOption
from widen.errors.foreign import first_line
from widen.model.column_path import as_nullable, leaves
from widen.model.types import VOID, DataType, Field, StructType
from widen.protocol.table_features import required_features
from widen.spark.spark_errors import SPARK_ERRORS
from widen.spark.spark_types import DataFrame, SparkSession, from_spark

Transform: TypeAlias = Callable[[DataFrame], DataFrame]
"""Computes the rows of the target from those of the source."""


def type_features(rows: DataFrame) -> frozenset[str]:
    """Return the table features that the types of rows need."""
    types = {leaf for _, leaf in leaves(from_spark(rows.schema))}
    return required_features({}, StructType(tuple(Field(str(leaf), leaf) for leaf in types)))


def to_layout(rows: DataFrame) -> StructType:
    """Return the columns that a table for rows begins with; those without a type are left out."""
    schema = as_nullable(from_spark(rows.schema))
    return StructType(tuple(Field(field.name, field.type) for field in schema if _has_type(field.type)))


def _has_type(data_type: DataType) -> bool:
    return all(leaf != VOID for _, leaf in leaves(data_type))


@dataclass(frozen=True, slots=True)
class FlowQuery:
    """What a flow makes of the rows of its source: a function, a query, or nothing.

    Args:
        sql: The query, if there is one; its table is ``source``.
    """

    transform: Transform | None = None
    sql: str | None = None

    @property
    def text(self) -> str:
        """The query, or the name of the function: what a checkpoint remembers."""
        if self.sql is not None:
            return self.sql
        if self.transform is None:
            return ""
        return str(getattr(self.transform, "__qualname__", type(self.transform).__qualname__))

    def run(self, spark: SparkSession, source: DataFrame) -> DataFrame:
        """Return the rows of the target.

        Raises:
            InvalidOption: Spark cannot run the query, or the function does not return a DataFrame.
        """
        if self.sql is None:
            result = source if self.transform is None else self.transform(source)
            if not isinstance(result, DataFrame):
                raise InvalidOption(option="transform", value=result, expected="Must return a DataFrame.")
            return result
        escaped = self.sql.strip().rstrip(";").replace("{", "{{").replace("}", "}}")
        # The query is on its own line, so that a comment at its end does not hide the bracket.
        template = f"WITH source AS (SELECT * FROM {{widen_source}}) SELECT * FROM (\n{escaped}\n)"
        try:
            return spark.sql(template, None, widen_source=source)
        except SPARK_ERRORS as error:
            expected = f"Spark says: {first_line(error)}"
            raise InvalidOption(option="sql", value=self.sql, expected=expected) from error
