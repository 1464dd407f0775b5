"""Decisions: what is to become of each row, told by columns beside its own."""

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
"""What a decision adds to a row: the number of the clause that changes it, and how it was before."""

RowDecision: TypeAlias = Callable[[DataFrame], DataFrame]
"""Decides what happens to the rows of `ChangeContext.located`. The result has the columns as they will be, `FILE`
and `ROW` (null for a new row), `CLAUSE`, which is null for a row that nothing is done to, and the struct `BEFORE`."""

ChangeCounts: TypeAlias = dict[str | None, Counter[int]]
"""How many rows each clause has, by the file that they are in; None for new rows."""


class ChangeKind(Enum):
    """What a clause does to a row."""

    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"


def keep_decided_rows(judged: DataFrame) -> DataFrame:
    """Return the rows that something is done to."""
    return judged.where(F.col(CLAUSE).isNotNull())


def count_changes(changed: DataFrame) -> ChangeCounts:
    """Count rows that something is done to.

    Raises:
        CorruptFile: a data file cannot be read.
        JobFailed: Spark could not finish the job.
    """
    found: ChangeCounts = {}
    with translate_spark_errors():
        for key, clause, count in changed.groupBy(FILE, CLAUSE).count().collect():
            found.setdefault(key, Counter())[clause] += count
    return found
