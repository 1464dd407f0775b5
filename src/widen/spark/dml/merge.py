"""MERGE: join a source with a table, and change the rows by clauses.

The join runs once and the changed rows are persisted, because a source that is not deterministic could return other
rows the second time.

Source: Delta Lake's MERGE
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from widen.errors import AmbiguousMerge
from widen.log.read.snapshot import Snapshot
from widen.model.column_path import Path
from widen.model.types import Field, quote_name
from widen.planning.write.schema_growth import SchemaGrowth
from widen.protocol.column_metadata import find_identity
from widen.protocol.skipping.predicate import Predicate, UnknownPredicate
from widen.protocol.table_features import is_supported, supported_features
from widen.spark.dml.assignment import AssignedValue, assign_columns, recompute_generated_columns, translate_overflow
from widen.spark.dml.change_context import ChangeContext, ChangeResult
from widen.spark.dml.change_via_materialized_rows import change_via_materialized_rows
from widen.spark.dml.merge_clause import MergeClause, MergeSide
from widen.spark.dml.merge_values import SOURCE, Sides, evaluate_clauses, old_column, value_columns
from widen.spark.dml.row_decision import BEFORE, CLAUSE, ChangeKind
from widen.spark.expression import Expression, to_column
from widen.spark.read.deleted_rows import FILE, ROW
from widen.spark.read.scan import select_files
from widen.spark.read.sql_predicate import PredicateScope, parse_predicate
from widen.spark.spark_errors import translate_spark_errors
from widen.spark.spark_types import type_to_spark
from widen.spark.write.missing_columns import cast_to_table_type, default_value, next_identity_values

_NEW = "__widen_new"


@dataclass(frozen=True)
class ResolvedMerge:
    """A merge that has been checked and can run.

    Args:
        clauses: The clauses in the order of their numbers: first those for matched rows.
    """

    source: DataFrame
    on: Expression
    target_alias: str
    source_alias: str
    clauses: tuple[MergeClause, ...]
    values: tuple[Mapping[Path, AssignedValue], ...]

    def has(self, side: MergeSide) -> bool:
        """Return whether a clause is for rows of that side."""
        return any(clause.side is side for clause in self.clauses)

    @property
    def kinds(self) -> tuple[ChangeKind, ...]:
        """What each clause does."""
        return tuple(clause.kind for clause in self.clauses)

    @property
    def takes_any(self) -> bool:
        """Whether several source rows may match a row, because matched rows are only deleted.

        Source: Delta Lake's MERGE
        """
        matched = [clause for clause in self.clauses if clause.side is MergeSide.MATCHED]
        return [(clause.kind, clause.condition) for clause in matched] in ([], [(ChangeKind.DELETE, None)])

    @property
    def join(self) -> str:
        """How the table and the source are joined, the table on the left."""
        if self.has(MergeSide.NOT_MATCHED):
            return "full_outer" if self.has(MergeSide.NOT_MATCHED_BY_SOURCE) else "right_outer"
        return "left_outer" if self.has(MergeSide.NOT_MATCHED_BY_SOURCE) else "inner"


def merge_rows(snapshot: Snapshot, growth: SchemaGrowth, merge: ResolvedMerge) -> ChangeResult:
    """Merge rows, and return the result. Nothing is committed.

    The totals of the result are the bounds of the values that inserted rows got from identity columns, by their names.

    If anything fails, the written files are deleted (best effort).

    Raises:
        AmbiguousMerge: several rows of the source match one row that is changed.
        RowRefused: a row violates a column rule or a constraint.
        UnsupportedFeatureForWrite: row tracking is enabled, but the properties do not name its columns.
    """
    predicate: Predicate = UnknownPredicate()
    # A row without a match may change then, so no file can be left out.
    if isinstance(merge.on, str) and not merge.has(MergeSide.NOT_MATCHED_BY_SOURCE):
        predicate = parse_predicate(merge.on, PredicateScope(snapshot.schema, merge.target_alias, merge.source_alias))
    context = ChangeContext(merge.source.sparkSession, snapshot, growth.metadata, select_files(snapshot, predicate))
    check = None if merge.takes_any else _refuse_several_matches
    decision = _MergeDecision(context, merge)
    with translate_overflow():
        return change_via_materialized_rows(context, decision.decide, merge.kinds, check, decision.used_identities())


def _refuse_several_matches(changed: DataFrame) -> None:
    """Refuse rows of the table that more than one source row matches."""
    with translate_spark_errors():
        twice = changed.where(F.col(FILE).isNotNull()).groupBy(FILE, ROW).count().where("count > 1").count()
    raise AmbiguousMerge(count=twice)


def _identity_column(column: str) -> str:
    return f"__widen_identity_{column}"


class _MergeDecision:
    """The row decision of a merge."""

    def __init__(self, context: ChangeContext, merge: ResolvedMerge) -> None:
        self._context, self._merge = context, merge
        self._before = {field.name: field.type for field in context.before}
        self._numbering = {
            field.name: clauses
            for field in context.schema
            if find_identity(field) and is_supported(context.protocol, "identityColumns")
            if (clauses := self._clauses_without(field))
        }  # by identity column, the clauses whose rows get its next values

    def _clauses_without(self, field: Field) -> list[int]:
        merge = self._merge
        return [
            number
            for number, (kind, values) in enumerate(zip(merge.kinds, merge.values, strict=True))
            if kind is ChangeKind.INSERT and (field.name,) not in values
        ]

    def used_identities(self) -> dict[str, Column]:
        """Return aggregates of the decided rows: an array with the bounds of the new values of each identity column."""
        new = {
            name: F.when(F.col(CLAUSE).isin(clauses), F.col(quote_name(name)))
            for name, clauses in self._numbering.items()
        }
        return {name: F.array_compact(F.array(F.min(value), F.max(value))) for name, value in new.items()}

    def decide(self, rows: DataFrame) -> DataFrame:
        """Join rows of the table with the source, and decide what each clause changes."""
        merge = self._merge
        # A row that several source rows match is deleted once. Source rows without a match are told apart by a number,
        # since equal ones are inserted as often as they occur.
        deduplicates = merge.takes_any and merge.has(MergeSide.MATCHED)
        mark = F.monotonically_increasing_id() if deduplicates else F.lit(True)
        source = merge.source.withColumn(SOURCE, mark).alias(merge.source_alias)
        target, on = rows.alias(merge.target_alias), to_column(merge.on)
        if not merge.has(MergeSide.MATCHED) and not merge.has(MergeSide.NOT_MATCHED_BY_SOURCE):
            new = source.join(target, on, "left_anti")
            unmatched = new.withColumns({FILE: F.lit(None).cast("string"), ROW: F.lit(None).cast("bigint")})
            return self._judge(unmatched, has_target=False)
        joined = target.join(source, on, merge.join)
        if deduplicates:
            joined = joined.withColumn(_NEW, F.when(F.col(FILE).isNull(), F.col(SOURCE)))
            joined = joined.dropDuplicates([FILE, ROW, _NEW])
        return self._judge(joined, has_target=True)

    def _judge(self, rows: DataFrame, *, has_target: bool) -> DataFrame:
        context, merge = self._context, self._merge
        names = list(self._before) if has_target else []
        sides = Sides(merge.target_alias, names, merge.source_alias, merge.source.columns)
        evaluated_rows = evaluate_clauses(rows, sides, merge.clauses, merge.values)
        old = [F.col(quote_name(old_column(name))).alias(name) for name in names] or [F.lit(None)]
        next_values = next_identity_values(context.schema, context.protocol, context.spark, self._numbering)
        # One column for all clauses, since the values are unique only within one expression.
        identities = [
            F.when(F.col(CLAUSE).isin(self._numbering[name]), value).alias(_identity_column(name))
            for name, value in next_values.items()
        ]
        judged = evaluated_rows.select("*", F.struct(*old).alias(BEFORE), *identities)
        columns = self._after(has_target=has_target)
        after = judged.select(*(column.alias(name) for name, column in columns.items()), FILE, ROW, CLAUSE, BEFORE)
        given = [
            [*columns] if clause.kind is ChangeKind.DELETE else [path[0] for path in values]
            for clause, values in zip(merge.clauses, merge.values, strict=True)
        ]
        return recompute_generated_columns(after, context.schema, context.protocol, given)

    def _after(self, *, has_target: bool) -> dict[str, Column]:
        """Return every column with the value that the clause of the row assigns."""
        schema = self._context.schema
        old = {field.name: self._old(field, has_target=has_target) for field in schema}
        missing = {field.name: default_value(field, supported_features(self._context.protocol)) for field in schema}
        missing |= {name: F.col(quote_name(_identity_column(name))) for name in self._numbering}
        tracking = self._context.tracking
        # Null stands for the version of the commit, which the new file has as its default.
        changed = {tracking.version: F.lit(None).cast("bigint")} if tracking else {}
        by_clause: dict[int, dict[str, Column]] = {}
        for number, (clause, values) in enumerate(zip(self._merge.clauses, self._merge.values, strict=True)):
            if clause.kind is ChangeKind.DELETE:
                continue
            names = value_columns(number, values)
            assigned = {path: replace(value, column=F.col(names[path])) for path, value in values.items()}
            new = assign_columns(schema, assigned, old.__getitem__)
            by_clause[number] = {**(missing if clause.kind is ChangeKind.INSERT else changed), **new}
        after = dict(old)
        for field in schema:
            # The join need not carry a column that every clause assigns, since deleted rows are not written.
            if all(field.name in new for new in by_clause.values()):
                after[field.name] = F.lit(None).cast(type_to_spark(field.type))
            for number, new in by_clause.items():
                if field.name in new:
                    after[field.name] = F.when(F.col(CLAUSE) == number, new[field.name]).otherwise(after[field.name])
        return after

    def _old(self, field: Field, *, has_target: bool) -> Column:
        """Return the old value of a column, cast to its new type."""
        if not has_target or field.name not in self._before:
            return F.lit(None).cast(type_to_spark(field.type))
        return cast_to_table_type(
            F.col(quote_name(old_column(field.name))), self._before[field.name], field.type, (field.name,)
        )
