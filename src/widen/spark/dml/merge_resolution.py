"""Merges looked at before they run: every name is found, every value fits, and the table grows as it has to.

Source: Delta Lake's MERGE and its schema evolution
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from widen.errors import ColumnMissingInSource, ColumnNotFound
from widen.model.column_path import Path, as_nullable, resolve
from widen.model.schema_json import from_json
from widen.model.types import DataType, quote_name
from widen.planning.table.table_state import TableState
from widen.planning.write.assigned_columns import Relation, assigned_paths, overlay_types
from widen.planning.write.schema_growth import SchemaGrowth, grow_schema
from widen.planning.write.schema_merge import SchemaChangeOptions, merge_schema
from widen.planning.write.store_assignment import can_cast
from widen.protocol.column_metadata import has_generated_values
from widen.spark.dml.assignment import AssignedValue, to_assigned_values
from widen.spark.dml.merge import ResolvedMerge
from widen.spark.dml.merge_clause import MergeClause, MergeSide
from widen.spark.dml.row_decision import ChangeKind
from widen.spark.expression import Expression, ensure_deterministic_condition, to_column, translate_analysis_errors
from widen.spark.spark_types import from_spark, to_spark, visible_schema


@dataclass(frozen=True)
class MergeSides:
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


def resolve_merge(
    state: TableState, sides: MergeSides, clauses: tuple[MergeClause, ...], leeway: SchemaChangeOptions
) -> tuple[ResolvedMerge, SchemaGrowth]:
    """Return a merge that can be carried out, with what becomes of the table; nothing runs.

    The table gets those columns and wider types of the source that a clause which sees the source assigns something to.

    Args:
        state: The table.
        sides: What is joined.
        clauses: As `widen.spark.dml.merge_clause.order_clauses` gives them.
        leeway: What may become of the table; casts are allowed in any case.

    Raises:
        NotDeterministic: a condition may say something else the next time.
        InvalidCondition: a condition or a value cannot be used.
        ColumnMissingInSource: the source lacks a column of the table that a clause takes.
        ColumnNotFound: there is no column to assign to.
        InvalidPath: a path cannot be read.
        AssignmentConflict: two assignments of a clause go to the same column.
        ItemAssignmentRefused: a path leads into an array or a map.
        SchemaMismatch: a value does not fit its column.
        FeatureRequired: a new type needs a feature that the table does not have.
    """
    return _MergeResolution(state, sides, leeway).of(clauses)


class _MergeResolution:
    """The names that a merge may use, and the table as it grows by one clause after the other."""

    def __init__(self, state: TableState, sides: MergeSides, leeway: SchemaChangeOptions) -> None:
        self._state, self._sides, self._leeway = state, sides, leeway
        spark = sides.source.sparkSession
        target = spark.createDataFrame([], to_spark(as_nullable(visible_schema(state.schema)))).alias(
            sides.target_alias
        )
        source = sides.source.alias(sides.source_alias)
        self._columns = from_spark(sides.source.schema)
        self._rows = {
            MergeSide.MATCHED: target.crossJoin(source),
            MergeSide.NOT_MATCHED: source,
            MergeSide.NOT_MATCHED_BY_SOURCE: target,
        }
        with translate_analysis_errors(sides.on):
            _ = target.join(source, to_column(sides.on)).schema

    def of(self, clauses: tuple[MergeClause, ...]) -> tuple[ResolvedMerge, SchemaGrowth]:
        for clause in clauses:
            if clause.condition is not None:
                ensure_deterministic_condition(self._rows[clause.side], clause.condition)
        values = [self._all(clause) if clause.takes_all else self._given(clause) for clause in clauses]
        growth = self._growth(clauses, values)
        for found in values:
            self._ensure_fitting(growth, found)
        sides = self._sides
        return ResolvedMerge(
            sides.source, sides.on, sides.target_alias, sides.source_alias, clauses, tuple(values)
        ), growth

    def _given(self, clause: MergeClause) -> dict[Path, AssignedValue]:
        """Return what a clause assigns; columns that only the source has may be new ones."""
        assignments, sides = clause.values or {}, self._sides
        target = Relation(self._state.schema, sides.target_alias)
        may_add = self._leeway.adds and clause.side is not MergeSide.NOT_MATCHED_BY_SOURCE
        source = Relation(self._columns, sides.source_alias) if may_add else None
        paths = assigned_paths(target, assignments, source)
        return to_assigned_values(self._rows[clause.side], {path: assignments[text] for text, path in paths.items()})

    def _all(self, clause: MergeClause) -> dict[Path, AssignedValue]:
        """Return the columns of the source by those of the table, and under their own names if the table may grow."""
        schema = self._state.schema
        values: dict[Path, AssignedValue] = {}
        if not self._leeway.adds:
            self._ensure_no_column_missing(clause)
        for column in self._columns:
            known = schema.find(column.name)
            if known is not None or self._leeway.adds:
                taken = F.col(f"{quote_name(self._sides.source_alias)}.{quote_name(column.name)}")
                name = known.name if known else column.name
                values[(name,)] = AssignedValue(taken, column.type, is_patch=clause.kind is ChangeKind.UPDATE)
        return values

    def _ensure_no_column_missing(self, clause: MergeClause) -> None:
        missing = [
            f.name for f in self._state.schema if self._columns.find(f.name) is None and not has_generated_values(f)
        ]
        if missing:
            raise ColumnMissingInSource(
                reason=f"the source of the merge lacks {', '.join(missing)}, which is to be taken from it {clause}",
                fix="Assign the columns one by one, or let those that are missing stay with merge_schema=True.",
                plan=f"  - the source has {', '.join(self._columns.names)}",
            )

    def _growth(self, clauses: Sequence[MergeClause], values: Sequence[Mapping[Path, AssignedValue]]) -> SchemaGrowth:
        """Return what becomes of the table: of the columns of the source those that something is assigned to.

        Whatever is assigned to a column, it is the column of that name in the source that says its new type.

        Source: Delta Lake's schema evolution of MERGE
        """
        if not self._leeway.adds:
            return SchemaGrowth(self._state.metadata)
        sees_source = (clause.side is not MergeSide.NOT_MATCHED_BY_SOURCE for clause in clauses)
        paths = {path for sees, found in zip(sees_source, values, strict=True) if sees for path in found}
        types = {path: data_type for path in paths if (data_type := self._type_in_source(path)) is not None}
        leeway = replace(self._leeway, fills=True, casts=True, can_cast=_always)
        return grow_schema(self._state, overlay_types(self._state.schema, types), leeway)

    def _type_in_source(self, path: Path) -> DataType | None:
        try:
            return resolve(self._columns, path)[1]
        except ColumnNotFound:
            return None

    def _ensure_fitting(self, growth: SchemaGrowth, values: Mapping[Path, AssignedValue]) -> None:
        """Check that values can be cast to the columns that they are assigned to."""
        schema = from_json(growth.metadata.schema_string)
        types = {path: value.type for path, value in values.items()}
        leeway = SchemaChangeOptions(casts=True, fills=self._leeway.adds, can_cast=can_cast)
        merge_schema(schema, overlay_types(schema, types), leeway)


def _always(old: DataType, new: DataType) -> bool:
    """Tell that values may be cast: whether they can be is looked at where they are assigned."""
    return True
