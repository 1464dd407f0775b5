"""Clauses of a merge: which rows each is for, and what it does to them.

Source: Delta Lake's MERGE
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise

from widen.errors import MergeWithoutClause, UnreachableClause
from widen.spark.dml.row_decision import ChangeKind
from widen.spark.expression import Expression, to_text


class MergeSide(Enum):
    """Which rows a clause is for; the value is how people call them."""

    MATCHED = "matched"
    NOT_MATCHED = "not matched"
    NOT_MATCHED_BY_SOURCE = "not matched by source"


@dataclass(frozen=True)
class MergeClause:
    """What is done to the rows of one side that no earlier clause of that side has taken.

    Args:
        side: Which rows it is for.
        kind: What it does.
        condition: Which of them; all if it is None.
        values: What is assigned, by the paths of the columns; None takes every column from the source.
    """

    side: MergeSide
    kind: ChangeKind
    condition: Expression | None = None
    values: Mapping[str, Expression] | None = None

    @property
    def takes_all(self) -> bool:
        """Whether every column is taken from the source."""
        return self.values is None and self.kind is not ChangeKind.DELETE

    def __str__(self) -> str:
        said = f" and {to_text(self.condition)}" if self.condition is not None else ""
        return f"when {self.side.value}{said} then {self.kind.value}"

    def to_value(self) -> dict[str, str]:
        """Return the clause as the history shows it."""
        said = {} if self.condition is None else {"predicate": to_text(self.condition)}
        return {**said, "actionType": self.kind.value}


def order_clauses(clauses: Sequence[MergeClause]) -> tuple[MergeClause, ...]:
    """Return the clauses of a merge side by side, each side in its own order.

    Raises:
        MergeWithoutClause: there are none.
        UnreachableClause: one comes after another of its side that takes every row.
    """
    if not clauses:
        raise MergeWithoutClause()
    sides = {side: [clause for clause in clauses if clause.side is side] for side in MergeSide}
    for own in sides.values():
        for clause, following in pairwise(own):
            if clause.condition is None:
                raise UnreachableClause(kind=clause.side.value, clause=str(following))
    return tuple(clause for own in sides.values() for clause in own)
