"""Decisions: what is to become of each row, told by columns beside its own.

Source: house rule: a row is judged once, and what was judged is what is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from widen.spark.deletion import FILE
from widen.spark.failure import translated

CLAUSE, BEFORE = "__widen_clause", "__widen_before"
"""What a decision adds to a row: the number of the clause that changes it, and how it was before."""

Decide: TypeAlias = Callable[[DataFrame], DataFrame]
"""Judges rows as `widen.spark.ground.Ground.located` gives them. The result has the columns as they are to be, `FILE`
and `ROW` (null for a new row), `CLAUSE`, which is null for a row that nothing is done to, and the struct `BEFORE`."""

Tally: TypeAlias = dict[str | None, Counter[int]]
"""How many rows each clause has, by the file that they are in; None for new rows."""


class Kind(Enum):
    """What a clause does to a row."""

    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"


def with_clause(judged: DataFrame) -> DataFrame:
    """Return the rows that something is done to."""
    return judged.where(F.col(CLAUSE).isNotNull())


def tally(changed: DataFrame) -> Tally:
    """Count rows that something is done to.

    Raises:
        CorruptFile: a data file cannot be read.
        JobFailed: Spark could not finish the job.
    """
    found: Tally = {}
    with translated():
        for key, clause, count in changed.groupBy(FILE, CLAUSE).count().collect():
            found.setdefault(key, Counter())[clause] += count
    return found
