"""Merges: the rows of a source are matched with those of a table, and clauses say what becomes of either.

Every pair is judged once; the changed rows are kept aside, so that a source that would say something else the next time
is asked only once.

Source: Delta Lake's MERGE
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from widen.errors import AmbiguousMerge, UnsupportedFeatureForWrite
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
from widen.spark.dml.merge_values import SOURCE, Sides, evaluated, old_column, value_columns
from widen.spark.dml.row_decision import BEFORE, CLAUSE, ChangeKind
from widen.spark.expression import Expression, to_column
from widen.spark.read.deleted_rows import FILE, ROW
from widen.spark.read.scan import select_files
from widen.spark.read.sql_predicate import PredicateScope, parse_predicate
from widen.spark.spark_errors import translate_spark_errors
from widen.spark.spark_types import type_to_spark
from widen.spark.write.missing_columns import cast_to_table_type, default_value

_NEW = "__widen_new"


@dataclass(frozen=True)
class ResolvedMerge:
    """A merge that has been looked at and can be carried out.

    Args:
        source: The rows.
        on: When one of them matches a row of the table.
        target_alias: What the table is called in expressions.
        source_alias: What the source is called there.
        clauses: In the order in which they are numbered: first those for rows that match.
        values: What each clause assigns.
    """

    source: DataFrame
    on: Expression
    target_alias: str
    source_alias: str
    clauses: tuple[MergeClause, ...]
    values: tuple[Mapping[Path, AssignedValue], ...]

    def has(self, side: MergeSide) -> bool:
        """Tell whether a clause is for rows of that side."""
        return any(clause.side is side for clause in self.clauses)

    @property
    def kinds(self) -> tuple[ChangeKind, ...]:
        """What each clause does."""
        return tuple(clause.kind for clause in self.clauses)

    @property
    def takes_any(self) -> bool:
        """Whether it does not matter how many rows match: all that happens to a row is that it is deleted.

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
    """Merge rows, and return what it comes to. Nothing is committed.

    If anything fails, what was written is deleted as far as the store lets us.

    Args:
        snapshot: The version.
        growth: What becomes of the columns.
        merge: What is merged.

    Raises:
        AmbiguousMerge: several rows of the source match one row that is changed.
        RowRefused: a row would be one that the table may not hold.
        UnsupportedFeatureForWrite: the table makes the values of a column that a new row lacks, or keeps track of
            each row and does not say where.
        CorruptFile: a data file or a deletion vector cannot be read.
        JobFailed: Spark could not finish the job.
        StorageError: the store refused.
    """
    predicate: Predicate = UnknownPredicate()
    if isinstance(merge.on, str) and not merge.has(MergeSide.NOT_MATCHED_BY_SOURCE):
        predicate = parse_predicate(merge.on, PredicateScope(snapshot.schema, merge.target_alias, merge.source_alias))
    ground = ChangeContext(merge.source.sparkSession, snapshot, growth.metadata, select_files(snapshot, predicate))
    _ensure_no_identities(ground, merge)
    check = None if merge.takes_any else _ensure_one_match
    with translate_overflow():
        return change_via_materialized_rows(ground, _MergeDecision(ground, merge).decide, merge.kinds, check)


def _ensure_no_identities(ground: ChangeContext, merge: ResolvedMerge) -> None:
    for clause, values in zip(merge.clauses, merge.values, strict=True):
        lacks = any(find_identity(field) and (field.name,) not in values for field in ground.schema)
        if clause.kind is ChangeKind.INSERT and lacks and is_supported(ground.protocol, "identityColumns"):
            raise UnsupportedFeatureForWrite(location=ground.store.location, features="identityColumns", verb="merge")


def _ensure_one_match(changed: DataFrame) -> None:
    """Check that no row of the table is matched twice."""
    with translate_spark_errors():
        twice = changed.where(F.col(FILE).isNotNull()).groupBy(FILE, ROW).count().where("count > 1").count()
    if twice:
        raise AmbiguousMerge(count=twice)


class _MergeDecision:
    """What a merge makes of rows."""

    def __init__(self, ground: ChangeContext, merge: ResolvedMerge) -> None:
        self._ground, self._merge = ground, merge
        self._before = {field.name: field.type for field in ground.before}

    def decide(self, rows: DataFrame) -> DataFrame:
        """Judge rows of the table together with the source."""
        merge = self._merge
        deduplicates = merge.takes_any and merge.has(MergeSide.MATCHED)
        mark = F.monotonically_increasing_id() if deduplicates else F.lit(True)
        source = merge.source.withColumn(SOURCE, mark).alias(merge.source_alias)
        target, on = rows.alias(merge.target_alias), to_column(merge.on)
        if not merge.has(MergeSide.MATCHED) and not merge.has(MergeSide.NOT_MATCHED_BY_SOURCE):
            new = source.join(target, on, "left_anti")
            nowhere = new.withColumns({FILE: F.lit(None).cast("string"), ROW: F.lit(None).cast("bigint")})
            return self._judged(nowhere, has_target=False)
        joined = target.join(source, on, merge.join)
        if deduplicates:
            joined = joined.withColumn(_NEW, F.when(F.col(FILE).isNull(), F.col(SOURCE)))
            joined = joined.dropDuplicates([FILE, ROW, _NEW])
        return self._judged(joined, has_target=True)

    def _judged(self, rows: DataFrame, *, has_target: bool) -> DataFrame:
        ground, merge = self._ground, self._merge
        names = list(self._before) if has_target else []
        sides = Sides(merge.target_alias, names, merge.source_alias, merge.source.columns)
        found = evaluated(rows, sides, merge.clauses, merge.values)
        old = [F.col(quote_name(old_column(name))).alias(name) for name in names] or [F.lit(None)]
        judged = found.select("*", F.struct(*old).alias(BEFORE))
        columns = self._after(has_target=has_target)
        after = judged.select(*(column.alias(name) for name, column in columns.items()), FILE, ROW, CLAUSE, BEFORE)
        given = [
            [*columns] if clause.kind is ChangeKind.DELETE else [path[0] for path in values]
            for clause, values in zip(merge.clauses, merge.values, strict=True)
        ]
        return recompute_generated_columns(after, ground.schema, ground.protocol, given)

    def _after(self, *, has_target: bool) -> dict[str, Column]:
        """Return every column as the clause of the row makes it."""
        schema = self._ground.schema
        old = {field.name: self._old(field, has_target=has_target) for field in schema}
        missing = {field.name: default_value(field, supported_features(self._ground.protocol)) for field in schema}
        tracking = self._ground.tracking
        changed = {tracking.version: F.lit(None).cast("bigint")} if tracking else {}
        after = dict(old)
        for number, (clause, values) in enumerate(zip(self._merge.clauses, self._merge.values, strict=True)):
            if clause.kind is ChangeKind.DELETE:
                continue
            names = value_columns(number, values)
            held = {path: replace(value, column=F.col(names[path])) for path, value in values.items()}
            new = assign_columns(schema, held, old.__getitem__)
            new = {**(missing if clause.kind is ChangeKind.INSERT else changed), **new}
            for name, column in new.items():
                after[name] = F.when(F.col(CLAUSE) == number, column).otherwise(after[name])
        return after

    def _old(self, field: Field, *, has_target: bool) -> Column:
        """Return a column as it is in the table, in the type that it gets."""
        if not has_target or field.name not in self._before:
            return F.lit(None).cast(type_to_spark(field.type))
        return cast_to_table_type(
            F.col(quote_name(old_column(field.name))), self._before[field.name], field.type, (field.name,)
        )
