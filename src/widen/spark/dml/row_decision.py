"""Row decisions: additional columns with the change of each row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from widen.spark.read.deleted_rows import FILE
from widen.spark.spark_errors import translate_spark_errors

CLAUSE, BEFORE = "__widen_clause", "__widen_before"
"""The columns that a decision adds: the number of the clause that changes the row, and the old row."""

RowDecision: TypeAlias = Callable[[DataFrame], DataFrame]
"""Decides the change of each row of `ChangeContext.located`. The result has the new values of the columns, `FILE`
and `ROW` (null for an inserted row), `CLAUSE` (null for an unchanged row), and the struct `BEFORE`."""

ChangeCounts: TypeAlias = dict[str | None, Counter[int]]
"""The number of rows of each clause, by their file; None for inserted rows."""


class ChangeKind(Enum):
    """The kind of change that a clause makes."""

    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"


def keep_decided_rows(judged: DataFrame) -> DataFrame:
    """Return the rows that a clause changes."""
    return judged.where(F.col(CLAUSE).isNotNull())


def count_changes(changed: DataFrame) -> ChangeCounts:
    """Count the changed rows by file and clause."""
    counts: ChangeCounts = {}
    with translate_spark_errors():
        for key, clause, count in changed.groupBy(FILE, CLAUSE).count().collect():
            counts.setdefault(key, Counter())[clause] += count
    return counts
