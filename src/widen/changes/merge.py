"""MERGE: join a source with a table, and change the rows by clauses.

The join runs once and the changed rows are persisted, because a source that is not deterministic could return other
rows the second time.

Source: Delta Lake's MERGE
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from functools import partial
from itertools import pairwise
from typing import Protocol as Interface

from widen.changes.assignment import (
    BEFORE,
    CLAUSE,
    AssignedValue,
    ChangeKind,
    assign_columns,
    recompute_generated_columns,
    to_assigned_values,
    translate_overflow,
)
from widen.changes.change_context import ChangeContext, ChangeResult
from widen.changes.keyed_merge import find_merge_keys, merge_by_key
from widen.changes.spark_changes import change_via_materialized_rows
from widen.errors import AmbiguousMerge, ColumnMissingInSource, ColumnNotFound, MergeWithoutClause, UnreachableClause
from widen.files.deleted_rows import FILE, ROW
from widen.files.predicates import PredicateScope, bind_condition, find_equal_columns
from widen.frames.physical_layout import cast_to_table_type, default_value, next_identity_values
from widen.log.snapshot import Snapshot, select_files
from widen.model.column_path import Path, as_nullable, resolve
from widen.model.schema_json import from_json
from widen.model.types import DataType, Field, StructType, quote_name
from widen.model.value_classes import dataclass
from widen.protocol.actions import Add, Protocol
from widen.protocol.column_mapping import TrackingColumns
from widen.protocol.column_metadata import find_identity, has_generated_values
from widen.protocol.data_skipping import Predicate, UnknownPredicate
from widen.protocol.file_statistics import count_written_rows
from widen.protocol.table_features import is_supported, supported_features
from widen.schema.growth import (
    Relation,
    SchemaChangeOptions,
    SchemaGrowth,
    assigned_paths,
    ensure_identities_kept,
    grow_schema,
    merge_schema,
    overlay_types,
)
from widen.schema.table_state import TableState
from widen.spark.engine import Session
from widen.spark.errors import translate_spark_errors
from widen.spark.expression import (
    Expression,
    ensure_deterministic_condition,
    expression_text,
    to_column,
    translate_analysis_errors,
)
from widen.spark.spark_types import (
    Column,
    DataFrame,
    F,
    from_spark,
    to_spark,
    type_to_spark,
    visible_schema,
)

# An example. The table has the rows (1, "a") and (2, "b"), and the source has (2, "B") and (3, "C"):
#     MERGE INTO t USING s ON t.id = s.id
#     WHEN MATCHED THEN UPDATE SET *          (2, "B"): the join gives the pair, and the position of the old row
#     WHEN NOT MATCHED THEN INSERT *          (3, "C"): a row of the source without a position
#     WHEN NOT MATCHED BY SOURCE THEN DELETE  (1, "a"): a row of the table without one of the source
# One join gives all three, and the first clause whose condition holds decides what happens to a row. Which join it is
# depends on the clauses: without the last one, rows like (1, "a") are not part of it.

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
        # A row can be deleted twice with one result. An update by two source rows has no answer, and neither has a
        # condition that one of them fulfils and the other does not.
        return [(clause.kind, clause.condition) for clause in matched] in ([], [(ChangeKind.DELETE, None)])

    def searched(self, schema: StructType) -> Predicate:
        """Return what the rows of the table fulfil that may change, so that other files are left out."""
        # A row without a match may change then, so no file can be left out.
        if not isinstance(self.on, str) or self.has(MergeSide.NOT_MATCHED_BY_SOURCE):
            return UnknownPredicate()
        return bind_condition(self.on, PredicateScope(schema, self.target_alias, self.source_alias))

    @property
    def is_upsert(self) -> bool:
        """Whether every row of the source becomes a row: of those with a match, and of the others."""
        both = [(MergeSide.MATCHED, ChangeKind.UPDATE), (MergeSide.NOT_MATCHED, ChangeKind.INSERT)]
        sides = [(clause.side, clause.kind) for clause in self.clauses]
        return sides == both and all(clause.takes_all and clause.condition is None for clause in self.clauses)

    @property
    def join(self) -> str:
        """How the table and the source are joined, the table on the left."""
        # A side without a clause changes nothing, so the join need not give its rows.
        if self.has(MergeSide.NOT_MATCHED):
            return "full_outer" if self.has(MergeSide.NOT_MATCHED_BY_SOURCE) else "right_outer"
        return "left_outer" if self.has(MergeSide.NOT_MATCHED_BY_SOURCE) else "inner"


def merge_rows(snapshot: Snapshot, growth: SchemaGrowth, merge: ResolvedMerge) -> ChangeResult:
    """Merge rows, and return the result. Nothing is committed.

    The totals of the result are the bounds of the values that inserted rows got from identity columns, by their names.

    If anything fails, the written files are deleted (best effort).
    """
    selection = select_files(snapshot, merge.searched(snapshot.schema))
    context = ChangeContext(merge.source.sparkSession, snapshot, growth.metadata, selection)
    pairs = find_equal_columns(merge.on, merge.target_alias, merge.source_alias) if merge.is_upsert else []
    keys = find_merge_keys(context, merge.source, pairs)
    with translate_overflow():
        if not keys:
            return _join_rows(context, merge, merge.source)
        return merge_by_key(context, merge.source, merge.kinds, keys, partial(_join_rows, context, merge))


def _join_rows(context: ChangeContext, merge: ResolvedMerge, source: DataFrame) -> ChangeResult:
    merge = replace(merge, source=source)
    check, decision = None if merge.takes_any else refuse_several_matches, MergeDecision(context, merge)
    return change_via_materialized_rows(context, decision.decide, merge.kinds, check, decision.used_identities())


def refuse_several_matches(changed: DataFrame) -> None:
    """Refuse rows of the table that more than one source row matches; call it if there is such a row."""
    with translate_spark_errors():
        twice = changed.where(F.col(FILE).isNotNull()).groupBy(FILE, ROW).count().where("count > 1").count()
    raise AmbiguousMerge(count=twice)


def _identity_column(column: str) -> str:
    return f"__widen_identity_{column}"


class MergeTarget(Interface):
    """What a merge needs to know about the table."""

    @property
    def spark(self) -> Session: ...

    @property
    def before(self) -> StructType:
        """The columns of the rows that are read."""

    @property
    def schema(self) -> StructType:
        """The columns of the rows that are written."""

    @property
    def protocol(self) -> Protocol:
        """The features that fill columns: defaults, generated values and identities."""

    @property
    def tracking(self) -> TrackingColumns | None:
        """The columns of row tracking, if it is enabled."""


class MergeDecision:
    """The row decision of a merge."""

    def __init__(self, context: MergeTarget, merge: ResolvedMerge) -> None:
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
        # A row that several source rows match is deleted once. Source rows without a match are identified by a number,
        # because equal ones are inserted as often as they occur.
        deduplicates = merge.takes_any and merge.has(MergeSide.MATCHED)
        mark = F.monotonically_increasing_id() if deduplicates else F.lit(True)
        source = merge.source.withColumn(SOURCE, mark).alias(merge.source_alias)
        target, on = rows.alias(merge.target_alias), to_column(merge.on)
        # Only inserts: an anti join keeps no row of the table, so nothing of it is shuffled but the columns of the
        # condition.
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
        evaluated_rows, next_values = next_identity_values(
            evaluated_rows, context.schema, context.protocol, self._numbering
        )
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
        # Each column is a chain over the clauses that assign it; rows of other clauses keep the old value.
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


# The clauses of a merge.
#
# Source: Delta Lake's MERGE


class MergeSide(Enum):
    """The rows that a clause is for; the value is the name in messages."""

    MATCHED = "matched"
    NOT_MATCHED = "not matched"
    NOT_MATCHED_BY_SOURCE = "not matched by source"


@dataclass(frozen=True)
class MergeClause:
    """A change of the rows of one side that no earlier clause of that side applies to.

    Args:
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
        condition = f" and {expression_text(self.condition)}" if self.condition is not None else ""
        return f"when {self.side.value}{condition} then {self.kind.value}"

    def to_value(self) -> dict[str, str]:
        """Return the clause as the history shows it."""
        predicate = {} if self.condition is None else {"predicate": expression_text(self.condition)}
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
    # The order within a side stays, since the first clause whose condition holds decides.
    return tuple(clause for side_clauses in sides.values() for clause in side_clauses)


# Evaluate the expressions of a merge, each with only the names that its clause may refer to.
#
# A clause for matched rows may refer to both sides, one for not matched rows to the source, and one for rows not
# matched by source to the table. The join goes through one projection after the other, and each hides columns from
# the next clauses.
#
# Source: Delta Lake's MERGE


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

    Returns:
        `FILE`, `ROW`, `CLAUSE` (null if the row does not change), the columns of the table, named by `old_column`, and
        the values, named by `value_columns`.
    """
    return _ClauseEvaluation(sides, clauses, values).of(rows)


def old_column(column: str) -> str:
    """Return the name of a table column in the result of `evaluate_clauses`."""
    return f"__widen_old_{column}"


def value_columns(number: int, values: Mapping[Path, AssignedValue]) -> dict[Path, str]:
    """Return the names of the values of a clause in the result of `evaluate_clauses`."""
    return {path: f"__widen_value_{number}_{at}" for at, path in enumerate(values)}


class _ClauseEvaluation:
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
        # A row is on one side only, so at most one of the numbers is not null.
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
        # From the last to the first: each wraps those after it, so the first whose condition holds is the outermost.
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


# The operation metrics of row changes.
#
# Source: Delta Lake's operation metrics


def delete_metrics(outcome: ChangeResult) -> dict[str, int]:
    """Return the metrics of a DELETE."""
    return {**_files(outcome), "numDeletedRows": outcome.rows.total(), "numCopiedRows": outcome.copied}


def update_metrics(outcome: ChangeResult) -> dict[str, int]:
    """Return the metrics of an UPDATE."""
    return {**_files(outcome), "numUpdatedRows": outcome.rows.total(), "numCopiedRows": outcome.copied}


def overwrite_metrics(outcome: ChangeResult) -> dict[str, int]:
    """Return the metrics of an overwrite, of the whole table or of a part."""
    numbers = _files(outcome)
    return {
        "numFiles": len(outcome.added),
        "numOutputRows": count_written_rows(outcome.added),
        "numOutputBytes": _bytes(outcome.added),
        "numRemovedFiles": numbers["numRemovedFiles"],
        "numRemovedBytes": numbers["numRemovedBytes"],
        "numDeletedRows": outcome.rows.total(),
        "numCopiedRows": outcome.copied,
        "numAddedChangeFiles": len(outcome.recorded),
    }


def merge_metrics(outcome: ChangeResult, clauses: Sequence[MergeClause]) -> dict[str, int]:
    """Return the metrics of a MERGE."""

    def rows(kind: ChangeKind, *sides: MergeSide) -> int:
        wanted = (number for number, c in enumerate(clauses) if c.kind is kind and c.side in (sides or MergeSide))
        return sum(outcome.rows[number] for number in wanted)

    inserted, updated = rows(ChangeKind.INSERT), rows(ChangeKind.UPDATE)
    return {
        "numTargetRowsInserted": inserted,
        "numTargetRowsUpdated": updated,
        "numTargetRowsMatchedUpdated": rows(ChangeKind.UPDATE, MergeSide.MATCHED),
        "numTargetRowsNotMatchedBySourceUpdated": rows(ChangeKind.UPDATE, MergeSide.NOT_MATCHED_BY_SOURCE),
        "numTargetRowsDeleted": rows(ChangeKind.DELETE),
        "numTargetRowsMatchedDeleted": rows(ChangeKind.DELETE, MergeSide.MATCHED),
        "numTargetRowsNotMatchedBySourceDeleted": rows(ChangeKind.DELETE, MergeSide.NOT_MATCHED_BY_SOURCE),
        "numTargetRowsCopied": outcome.copied,
        "numOutputRows": inserted + updated + outcome.copied,
        **{_MERGE_NAMES[name]: number for name, number in _files(outcome).items()},
    }


def _files(outcome: ChangeResult) -> dict[str, int]:
    """Return the metrics of files; a file whose deletion vector is replaced counts as neither added nor removed."""
    revised = {add.path for add in outcome.revised}
    removed = [add for add in outcome.removed if add.path not in revised]
    updated = sum(add.deletion_vector is not None for add in outcome.removed if add.path in revised)
    return {
        "numRemovedFiles": len(removed),
        "numRemovedBytes": _bytes(removed),
        "numAddedFiles": len(outcome.added),
        "numAddedBytes": _bytes(outcome.added),
        "numAddedChangeFiles": len(outcome.recorded),
        "numDeletionVectorsAdded": len(revised),
        "numDeletionVectorsUpdated": updated,
        "numDeletionVectorsRemoved": sum(add.deletion_vector is not None for add in outcome.removed),
    }


_MERGE_NAMES = {
    "numRemovedFiles": "numTargetFilesRemoved",
    "numRemovedBytes": "numTargetBytesRemoved",
    "numAddedFiles": "numTargetFilesAdded",
    "numAddedBytes": "numTargetBytesAdded",
    "numAddedChangeFiles": "numTargetChangeFilesAdded",
    "numDeletionVectorsAdded": "numTargetDeletionVectorsAdded",
    "numDeletionVectorsUpdated": "numTargetDeletionVectorsUpdated",
    "numDeletionVectorsRemoved": "numTargetDeletionVectorsRemoved",
}


def _bytes(adds: Iterable[Add]) -> int:
    return sum(add.size for add in adds)


# Check a merge before it runs: resolve names, check types, and plan the growth of the schema.
#
# Source: Delta Lake's MERGE and its schema evolution


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
    """
    resolution = MergeResolution(state.schema, sides, clauses, options)
    growth = SchemaGrowth(state.metadata)
    if resolution.incoming is not None:
        growth = grow_schema(state, resolution.incoming, resolution.growth_options)
    return resolution.resolve(from_json(growth.metadata.schema_string)), growth


class MergeResolution:
    """The names that the clauses of a merge may use, the values that they assign, and the columns that these need."""

    def __init__(
        self, schema: StructType, sides: MergeSides, clauses: tuple[MergeClause, ...], options: SchemaChangeOptions
    ) -> None:
        self._schema, self._sides, self._clauses, self._options = schema, sides, clauses, options
        spark = sides.source.sparkSession
        target = spark.createDataFrame([], to_spark(as_nullable(visible_schema(schema)))).alias(sides.target_alias)
        source = sides.source.alias(sides.source_alias)
        self._columns = from_spark(sides.source.schema)
        self._rows = {
            MergeSide.MATCHED: target.crossJoin(source),
            MergeSide.NOT_MATCHED: source,
            MergeSide.NOT_MATCHED_BY_SOURCE: target,
        }
        with translate_analysis_errors(sides.on):
            _ = target.join(source, to_column(sides.on)).schema
        for clause in clauses:
            if clause.condition is not None:
                ensure_deterministic_condition(self._rows[clause.side], clause.condition)
        self._values = [self._all(clause) if clause.takes_all else self._given(clause) for clause in clauses]

    @property
    def growth_options(self) -> SchemaChangeOptions:
        """The options of the growth: `resolve` checks whether the assigned values can be cast."""
        return replace(self._options, fills=True, casts=True, can_cast=_always)

    @property
    def incoming(self) -> StructType | None:
        """The columns that the schema may gain: source columns that a clause assigns. None if it may not grow.

        The new type of a column is the type of the source column with the same name, regardless of the assigned value.

        Source: Delta Lake's schema evolution of MERGE
        """
        if not self._options.adds:
            return None
        sees_source = (clause.side is not MergeSide.NOT_MATCHED_BY_SOURCE for clause in self._clauses)
        paths = {path for sees, assigned in zip(sees_source, self._values, strict=True) if sees for path in assigned}
        types = {path: data_type for path in paths if (data_type := self._type_in_source(path)) is not None}
        return overlay_types(self._schema, types)

    def resolve(self, schema: StructType) -> ResolvedMerge:
        """Return the merge, after a check that the values can be cast to the types of their columns."""
        options = SchemaChangeOptions(casts=True, fills=self._options.adds)
        for values in self._values:
            merge_schema(schema, overlay_types(schema, {path: value.type for path, value in values.items()}), options)
        sides = self._sides
        return ResolvedMerge(
            sides.source, sides.on, sides.target_alias, sides.source_alias, self._clauses, tuple(self._values)
        )

    def _given(self, clause: MergeClause) -> dict[Path, AssignedValue]:
        """Return the values that a clause assigns; columns that only the source has may be new."""
        assignments, sides = clause.values or {}, self._sides
        target = Relation(self._schema, sides.target_alias)
        may_add = self._options.adds and clause.side is not MergeSide.NOT_MATCHED_BY_SOURCE
        source = Relation(self._columns, sides.source_alias) if may_add else None
        paths = assigned_paths(target, assignments, source)
        if clause.kind is ChangeKind.UPDATE:
            ensure_identities_kept(self._schema, paths.values())
        return to_assigned_values(self._rows[clause.side], {path: assignments[text] for text, path in paths.items()})

    def _all(self, clause: MergeClause) -> dict[Path, AssignedValue]:
        """Return the source columns by table column; new ones by their own name if columns may be added."""
        values: dict[Path, AssignedValue] = {}
        if not self._options.adds:
            self._ensure_no_column_missing(clause)
        for column in self._columns:
            table_field = self._schema.find(column.name)
            if table_field is not None or self._options.adds:
                source_column = F.col(f"{quote_name(self._sides.source_alias)}.{quote_name(column.name)}")
                name = table_field.name if table_field else column.name
                values[(name,)] = AssignedValue(source_column, column.type, is_patch=clause.kind is ChangeKind.UPDATE)
        return values

    def _ensure_no_column_missing(self, clause: MergeClause) -> None:
        missing = [f.name for f in self._schema if self._columns.find(f.name) is None and not has_generated_values(f)]
        if missing:
            raise ColumnMissingInSource(
                reason=f"the clause `{clause}` needs {', '.join(missing)}, which the source does not have",
                fix="Assign the columns one by one, or leave the missing ones unchanged with merge_schema=True.",
                plan=f"  - the source has {', '.join(self._columns.names)}",
            )

    def _type_in_source(self, path: Path) -> DataType | None:
        try:
            return resolve(self._columns, path)[1]
        except ColumnNotFound:
            return None


def _always(old: DataType, new: DataType) -> bool:
    """Allow every cast here; `MergeResolution.resolve` checks the assigned values."""
    return True
