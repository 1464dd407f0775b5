"""Merges looked at before they run: every name is found, every value fits, and the table grows as it has to.

Source: Delta Lake's MERGE and its schema evolution
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from widen.errors import ColumnMissingInSource, ColumnNotFound
from widen.model.path import Path, relaxed, resolve
from widen.model.type import quoted
from widen.planning.destination import assigned_paths, overlaid
from widen.planning.growth import Growth, grow
from widen.planning.merge import Leeway
from widen.planning.state import State
from widen.protocol.column import is_filled
from widen.spark.assign import Value, to_values
from widen.spark.clause import Clause, Side
from widen.spark.condition import Expression, analysed, ensure_usable, to_column
from widen.spark.decision import Kind
from widen.spark.merge import Merge
from widen.spark.predicate import parse_column
from widen.spark.schema import from_spark, surfaced, to_spark


@dataclass(frozen=True)
class Sides:
    """What a merge joins, and how either is called.

    Args:
        source: The rows.
        on: When one of them matches a row of the table.
        source_alias: What the source is called in expressions.
        target_alias: What the table is called there.
    """

    source: DataFrame
    on: Expression
    source_alias: str
    target_alias: str


def resolve_merge(state: State, sides: Sides, clauses: tuple[Clause, ...], leeway: Leeway) -> tuple[Merge, Growth]:
    """Return a merge that can be carried out, with what becomes of the table; nothing runs.

    Only columns that are taken from the source as they are let the table grow, and only by clauses that see the source.

    Args:
        state: The table.
        sides: What is joined.
        clauses: As `widen.spark.clause.ordered` gives them.
        leeway: What may become of the table for what is taken from the source; casts are allowed in any case.

    Raises:
        NotDeterministic: a condition may say something else the next time.
        ConditionRefused: a condition or a value cannot be used.
        ColumnMissingInSource: the source lacks a column of the table that a clause takes.
        ColumnNotFound: there is no column to assign to.
        InvalidPath: a path cannot be read.
        AssignmentConflict: two assignments of a clause go to the same column.
        ItemAssignmentRefused: a path leads into an array or a map.
        SchemaMismatch: a value does not fit its column.
        FeatureRequired: a new type needs a feature that the table does not have.
    """
    return _Resolution(state, sides, leeway).of(clauses)


class _Resolution:
    """The names that a merge may use, and the table as it grows by one clause after the other."""

    def __init__(self, state: State, sides: Sides, leeway: Leeway) -> None:
        self._state, self._sides, self._leeway = state, sides, leeway
        spark = sides.source.sparkSession
        target = spark.createDataFrame([], to_spark(relaxed(surfaced(state.schema)))).alias(sides.target_alias)
        source = sides.source.alias(sides.source_alias)
        self._columns = from_spark(sides.source.schema)
        self._rows = {
            Side.MATCHED: target.crossJoin(source),
            Side.NOT_MATCHED: source,
            Side.NOT_MATCHED_BY_SOURCE: target,
        }
        with analysed(sides.on):
            _ = target.join(source, to_column(sides.on)).schema

    def of(self, clauses: tuple[Clause, ...]) -> tuple[Merge, Growth]:
        for clause in clauses:
            if clause.condition is not None:
                ensure_usable(self._rows[clause.side], clause.condition)
        growth, values = Growth(self._state.metadata), []
        for clause in clauses:
            found, taken = self._all(clause) if clause.takes_all else self._given(clause)
            values.append(found)
            growth = self._grown(growth, found, taken if clause.side is not Side.NOT_MATCHED_BY_SOURCE else set())
        sides = self._sides
        merge = Merge(sides.source, sides.on, sides.target_alias, sides.source_alias, clauses, tuple(values))
        return merge, growth

    def _given(self, clause: Clause) -> tuple[dict[Path, Value], set[Path]]:
        """Return what a clause assigns, and what of it is a column of the source as it is."""
        assignments = clause.values or {}
        paths = assigned_paths(self._state.schema, assignments)
        values = to_values(self._rows[clause.side], {path: assignments[text] for text, path in paths.items()})
        return values, {path for text, path in paths.items() if self._is_taken(assignments[text], clause.side)}

    def _all(self, clause: Clause) -> tuple[dict[Path, Value], set[Path]]:
        """Return the columns of the source by those of the table, and under their own names if the table may grow."""
        schema = self._state.schema
        values: dict[Path, Value] = {}
        if not self._leeway.adds:
            self._ensure_no_column_missing(clause)
        for column in self._columns:
            known = schema.find(column.name)
            if known is not None or self._leeway.adds:
                taken = F.col(f"{quoted(self._sides.source_alias)}.{quoted(column.name)}")
                name = known.name if known else column.name
                values[(name,)] = Value(taken, column.type, is_patch=clause.kind is Kind.UPDATE)
        return values, set(values)

    def _ensure_no_column_missing(self, clause: Clause) -> None:
        missing = [f.name for f in self._state.schema if self._columns.find(f.name) is None and not is_filled(f)]
        if missing:
            raise ColumnMissingInSource(
                reason=f"the source of the merge lacks {', '.join(missing)}, which is to be taken from it {clause}",
                fix="Assign the columns one by one, or let those that are missing stay with merge_schema=True.",
                plan=f"  - the source has {', '.join(self._columns.names)}",
            )

    def _grown(self, growth: Growth, values: Mapping[Path, Value], taken: set[Path]) -> Growth:
        """Return what becomes of the table so that further values fit; what is not taken as it is has to be cast."""
        state = replace(self._state, metadata=growth.metadata)
        as_they_are = replace(Leeway.NONE, fills=self._leeway.fills)
        for paths, leeway in ((values.keys() - taken, as_they_are), (taken, self._leeway)):
            types = {path: values[path].type for path in paths}
            found = grow(state, overlaid(state.schema, types), replace(leeway, casts=True))
            growth = Growth(found.metadata, (*growth.operations, *found.operations))
        return growth

    def _is_taken(self, expression: Expression, side: Side) -> bool:
        """Tell whether a value is a column of the source as it is, with or without the alias."""
        names = parse_column(expression) if isinstance(expression, str) else None
        if names is None:
            return False
        if len(names) > 1 and names[0].casefold() == self._sides.source_alias.casefold():
            names = names[1:]
        elif side is Side.MATCHED and self._state.schema.find(names[0]) is not None:
            return False
        try:
            resolve(self._columns, names)
        except ColumnNotFound:
            return False
        return True
