"""Rows with one column for each source field.

Source: docs/evolution-rules.md#one-logical-field
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from widen.model.sql_literal import to_identifier
from widen.model.types import StructType
from widen.planning.unify.unified_columns import unify_schema


def unify_rows(rows: DataFrame, schema: StructType) -> DataFrame:
    """Return rows with one column for each source field, which says what all its columns say together.

    Args:
        rows: Of the table.
        schema: Of the same version, with its metadata.

    Source: docs/evolution-rules.md#one-logical-field
    """
    return rows.selectExpr(*(f"{column.sql} AS {to_identifier(column.name)}" for column in unify_schema(schema)))
