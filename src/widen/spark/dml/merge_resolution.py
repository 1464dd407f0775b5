"""Check a merge before it runs: resolve names, check types, and plan the growth of the schema.

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
from widen.protocol.column_metadata import has_generated_values
from widen.spark.dml.assignment import AssignedValue, to_assigned_values
from widen.spark.dml.merge import ResolvedMerge
from widen.spark.dml.merge_clause import MergeClause, MergeSide
from widen.spark.dml.row_decision import ChangeKind
from widen.spark.expression import Expression, ensure_deterministic_condition, to_column, translate_analysis_errors
from widen.spark.spark_types import from_spark, to_spark, visible_schema


@dataclass(frozen=True)
class MergeSides:
    """The source of a merge, the join condition, and the aliases."""

    source: DataFrame
    on: Expression
    source_alias: str
    target_alias: str


def resolve_merge(
    state: TableState, sides: MergeSides, clauses: tuple[MergeClause, ...], options: SchemaChangeOptions
) -> tuple[ResolvedMerge, SchemaGrowth]:
    """Return a merge that can run, and the growth of the schema; runs no job.

    The table gets the new columns and wider types of the source for columns that a clause with access to the source
    assigns.

    Args:
        clauses: The clauses, ordered by `widen.spark.dml.merge_clause.order_clauses`.
        options: The schema changes that are allowed; casts always are.

    Raises:
        NotDeterministic: a condition may give different results for the same row.
        InvalidCondition: a condition or a value cannot be used.
        ColumnMissingInSource: the source lacks a table column that a clause assigns from it.
        ColumnNotFound: the column of an assignment does not exist.
        InvalidPath: a path cannot be read.
        AssignmentConflict: two assignments of a clause have the same column.
        ItemAssignmentRefused: a path leads into an array or a map.
        SchemaMismatch: a value does not fit its column.
        FeatureRequired: a new type requires a feature that the table does not support.
    """
    return _MergeResolution(state, sides, options).of(clauses)


class _MergeResolution:
    """The names that the clauses of a merge may use, and the growth of the schema."""

    def __init__(self, state: TableState, sides: MergeSides, options: SchemaChangeOptions) -> None:
        self._state, self._sides, self._options = state, sides, options
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
        for clause_values in values:
            self._ensure_fitting(growth, clause_values)
        sides = self._sides
        return ResolvedMerge(
            sides.source, sides.on, sides.target_alias, sides.source_alias, clauses, tuple(values)
        ), growth

    def _given(self, clause: MergeClause) -> dict[Path, AssignedValue]:
        """Return the values that a clause assigns; columns that only the source has may be new."""
        assignments, sides = clause.values or {}, self._sides
        target = Relation(self._state.schema, sides.target_alias)
        may_add = self._options.adds and clause.side is not MergeSide.NOT_MATCHED_BY_SOURCE
        source = Relation(self._columns, sides.source_alias) if may_add else None
        paths = assigned_paths(target, assignments, source)
        return to_assigned_values(self._rows[clause.side], {path: assignments[text] for text, path in paths.items()})

    def _all(self, clause: MergeClause) -> dict[Path, AssignedValue]:
        """Return the source columns by table column; new ones by their own name if columns may be added."""
        schema = self._state.schema
        values: dict[Path, AssignedValue] = {}
        if not self._options.adds:
            self._ensure_no_column_missing(clause)
        for column in self._columns:
            table_field = schema.find(column.name)
            if table_field is not None or self._options.adds:
                source_column = F.col(f"{quote_name(self._sides.source_alias)}.{quote_name(column.name)}")
                name = table_field.name if table_field else column.name
                values[(name,)] = AssignedValue(source_column, column.type, is_patch=clause.kind is ChangeKind.UPDATE)
        return values

    def _ensure_no_column_missing(self, clause: MergeClause) -> None:
        missing = [
            f.name for f in self._state.schema if self._columns.find(f.name) is None and not has_generated_values(f)
        ]
        if missing:
            raise ColumnMissingInSource(
                reason=f"the clause `{clause}` needs {', '.join(missing)}, which the source does not have",
                fix="Assign the columns one by one, or leave the missing ones unchanged with merge_schema=True.",
                plan=f"  - the source has {', '.join(self._columns.names)}",
            )

    def _growth(self, clauses: Sequence[MergeClause], values: Sequence[Mapping[Path, AssignedValue]]) -> SchemaGrowth:
        """Return the growth of the schema by the source columns that a clause assigns.

        The new type of a column is that of the source column with the same name, whatever value is assigned.

        Source: Delta Lake's schema evolution of MERGE
        """
        if not self._options.adds:
            return SchemaGrowth(self._state.metadata)
        sees_source = (clause.side is not MergeSide.NOT_MATCHED_BY_SOURCE for clause in clauses)
        paths = {path for sees, assigned in zip(sees_source, values, strict=True) if sees for path in assigned}
        types = {path: data_type for path in paths if (data_type := self._type_in_source(path)) is not None}
        options = replace(self._options, fills=True, casts=True, can_cast=_always)
        return grow_schema(self._state, overlay_types(self._state.schema, types), options)

    def _type_in_source(self, path: Path) -> DataType | None:
        try:
            return resolve(self._columns, path)[1]
        except ColumnNotFound:
            return None

    def _ensure_fitting(self, growth: SchemaGrowth, values: Mapping[Path, AssignedValue]) -> None:
        """Check that the values can be cast to the types of their columns."""
        schema = from_json(growth.metadata.schema_string)
        types = {path: value.type for path, value in values.items()}
        options = SchemaChangeOptions(casts=True, fills=self._options.adds)
        merge_schema(schema, overlay_types(schema, types), options)


def _always(old: DataType, new: DataType) -> bool:
    """Allow every cast here; `_ensure_fitting` checks the assigned values."""
    return True
