"""The clauses of a merge.

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
    """The rows that a clause is for; the value is the name in messages."""

    MATCHED = "matched"
    NOT_MATCHED = "not matched"
    NOT_MATCHED_BY_SOURCE = "not matched by source"


@dataclass(frozen=True)
class MergeClause:
    """A change of the rows of one side that no earlier clause of that side applies to.

    Args:
        condition: The condition on the rows; None for all rows.
        values: The assigned values by column path; None assigns all columns of the source.
    """

    side: MergeSide
    kind: ChangeKind
    condition: Expression | None = None
    values: Mapping[str, Expression] | None = None

    @property
    def takes_all(self) -> bool:
        """Whether the clause assigns all columns of the source."""
        return self.values is None and self.kind is not ChangeKind.DELETE

    def __str__(self) -> str:
        condition = f" and {to_text(self.condition)}" if self.condition is not None else ""
        return f"when {self.side.value}{condition} then {self.kind.value}"

    def to_value(self) -> dict[str, str]:
        """Return the clause as the history shows it."""
        predicate = {} if self.condition is None else {"predicate": to_text(self.condition)}
        return {**predicate, "actionType": self.kind.value}


def order_clauses(clauses: Sequence[MergeClause]) -> tuple[MergeClause, ...]:
    """Return the clauses grouped by side, in their order within each side.

    Raises:
        MergeWithoutClause: the merge has no clause.
        UnreachableClause: a clause follows one of its side that applies to every row.
    """
    if not clauses:
        raise MergeWithoutClause()
    sides = {side: [clause for clause in clauses if clause.side is side] for side in MergeSide}
    for side_clauses in sides.values():
        for clause, following in pairwise(side_clauses):
            if clause.condition is None:
                raise UnreachableClause(kind=clause.side.value, clause=str(following))
    return tuple(clause for side_clauses in sides.values() for clause in side_clauses)
