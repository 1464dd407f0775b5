"""Many columns joined to one.

Source: docs/spark-facts.md#deep-expressions
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pyspark.sql import Column


def join_columns(join: Callable[[Column, Column], Column], columns: Sequence[Column]) -> Column:
    """Return columns joined in their order, as an expression that is not deep.

    Args:
        join: Joins two.
        columns: At least one.
    """
    middle = len(columns) // 2
    return join(join_columns(join, columns[:middle]), join_columns(join, columns[middle:])) if middle else columns[0]
