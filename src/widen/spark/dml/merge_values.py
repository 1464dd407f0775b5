"""Evaluate the expressions of a merge, each with only the names that its clause may refer to.

A clause for matched rows may refer to both sides, one for not matched rows to the source, and one for rows not matched
by source to the table. The join goes through one projection after the other, and each hides columns from the next
clauses.

Source: Delta Lake's MERGE
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from widen.model.column_path import Path
from widen.model.types import quote_name
from widen.spark.dml.assignment import AssignedValue
from widen.spark.dml.merge_clause import MergeClause, MergeSide
from widen.spark.dml.row_decision import CLAUSE
from widen.spark.expression import to_column
from widen.spark.read.deleted_rows import FILE, ROW

SOURCE = "__widen_source"
"""The column that is null in rows of the join without a source row."""

_IDLE = -1
"""The clause number of matched rows that no clause changes."""


@dataclass(frozen=True)
class Sides:
    """The two sides of the rows of a join.

    Args:
        target_columns: The columns of the table; empty if the rows have only the source.
    """

    target_alias: str
    target_columns: Sequence[str]
    source_alias: str
    source_columns: Sequence[str]


def evaluate_clauses(
    rows: DataFrame, sides: Sides, clauses: Sequence[MergeClause], values: Sequence[Mapping[Path, AssignedValue]]
) -> DataFrame:
    """Return the number of the clause that applies to each row, and the values that this clause assigns.

    Args:
        rows: The join, with `SOURCE`, `FILE` and `ROW`.

    Returns:
        `FILE`, `ROW`, `CLAUSE` (null if the row does not change), the columns of the table, named by `old_column`, and
        the values, named by `value_columns`.
    """
    return _Evaluation(sides, clauses, values).of(rows)


def old_column(column: str) -> str:
    """Return the name of a table column in the result of `evaluate_clauses`."""
    return f"__widen_old_{column}"


def value_columns(number: int, values: Mapping[Path, AssignedValue]) -> dict[Path, str]:
    """Return the names of the values of a clause in the result of `evaluate_clauses`."""
    return {path: f"__widen_value_{number}_{at}" for at, path in enumerate(values)}


class _Evaluation:
    def __init__(
        self, sides: Sides, clauses: Sequence[MergeClause], values: Sequence[Mapping[Path, AssignedValue]]
    ) -> None:
        self._sides, self._clauses, self._values = sides, clauses, values
        self._made: list[str] = []

    def of(self, rows: DataFrame) -> DataFrame:
        sides, common = self._sides, [FILE, ROW, SOURCE]
        hidden = [old_column(name) for name in sides.target_columns]
        if sides.target_columns:
            rows = self._with_side(rows, MergeSide.MATCHED)
            old = [_column_of(sides.target_alias, name).alias(old_column(name)) for name in sides.target_columns]
            source = [_column_of(sides.source_alias, name) for name in sides.source_columns]
            rows = rows.select(*old, *source, *common, *self._made)
        rows = self._with_side(rows, MergeSide.NOT_MATCHED)
        if self._has(MergeSide.NOT_MATCHED_BY_SOURCE):
            shown = [F.col(quote_name(old_column(name))).alias(name) for name in sides.target_columns]
            rows = rows.select(*shown, *map(_column, hidden), *common, *self._made).alias(sides.target_alias)
            rows = self._with_side(rows, MergeSide.NOT_MATCHED_BY_SOURCE)
        numbers = [_number(side) for side in MergeSide if _number(side) in self._made]
        clause = F.coalesce(*map(F.col, numbers)) if numbers else F.lit(None).cast("int")
        values = [name for name in self._made if name not in numbers]
        return rows.select(*map(_column, hidden), FILE, ROW, clause.alias(CLAUSE), *values)

    def _with_side(self, rows: DataFrame, side: MergeSide) -> DataFrame:
        """Add the number of the clause of a side that applies to each row, and its values."""
        if not self._has(side):
            return rows
        number = _number(side)
        rows = rows.select("*", F.when(_SIDES[side](), self._first(side)).alias(number))
        new = {}
        for at, (clause, values) in enumerate(zip(self._clauses, self._values, strict=True)):
            if clause.side is side:
                for path, name in value_columns(at, values).items():
                    # Other clauses must not be evaluated for this row: they may fail, e.g. with a division by zero.
                    new[name] = F.when(F.col(number) == at, values[path].column).alias(name)
        self._made += [number, *new]
        return rows.select("*", *new.values()) if new else rows

    def _first(self, side: MergeSide) -> Column:
        """Return the number of the first clause of a side that applies to a row of that side."""
        chosen = F.lit(_IDLE) if side is MergeSide.MATCHED else F.lit(None).cast("int")
        for number, clause in reversed([*enumerate(self._clauses)]):
            if clause.side is side:
                is_true = F.lit(True) if clause.condition is None else to_column(clause.condition)
                chosen = F.when(is_true, F.lit(number)).otherwise(chosen)
        return chosen

    def _has(self, side: MergeSide) -> bool:
        return any(clause.side is side for clause in self._clauses)


def _number(side: MergeSide) -> str:
    return f"__widen_{side.name.lower()}"


def _column_of(alias: str, column: str) -> Column:
    return F.col(f"{quote_name(alias)}.{quote_name(column)}")


def _column(name: str) -> Column:
    return F.col(quote_name(name))


_SIDES = {
    MergeSide.MATCHED: lambda: F.col(FILE).isNotNull() & F.col(SOURCE).isNotNull(),
    MergeSide.NOT_MATCHED: lambda: F.col(FILE).isNull() & F.col(SOURCE).isNotNull(),
    MergeSide.NOT_MATCHED_BY_SOURCE: lambda: F.col(FILE).isNotNull() & F.col(SOURCE).isNull(),
}
"""The condition of each side on the rows of the join. Functions, as a column needs a session."""
