"""Changes with persisted rows: mark the old rows in deletion vectors, or rewrite the rest of their files.

Source: PROTOCOL.md#deletion-vectors, #add-file-and-remove-file, #add-cdc-file
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import reduce
from typing import TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from widen.model.types import quote_name
from widen.protocol.actions import Add, AddCdc
from widen.protocol.change_data_files import CHANGE_TYPE
from widen.spark.dml.change_context import (
    ChangeContext,
    ChangeFiles,
    ChangeResult,
    count_deleted_rows,
    count_written_rows,
    ensure_same_count,
)
from widen.spark.dml.copied_files import copy_without_marked
from widen.spark.dml.revised_files import revise_files
from widen.spark.dml.row_decision import BEFORE, CLAUSE, ChangeCounts, ChangeKind, RowDecision, keep_decided_rows
from widen.spark.dml.rows_and_changes import can_write_rows_and_changes, write_rows_and_changes
from widen.spark.read.deleted_rows import BROADCAST_ROWS, DISTINCT, FILE, MASK, ROW, mark_rows, without_marked
from widen.spark.spark_errors import translate_spark_errors, unpersist

Check: TypeAlias = Callable[[DataFrame], None]
"""Checks the decided rows, and raises if the change is not allowed."""

_ROWS = "__widen_rows"
_NO_TOTALS: Mapping[str, Column] = {}


def change_via_materialized_rows(
    context: ChangeContext,
    decide: RowDecision,
    kinds: Sequence[ChangeKind],
    check: Check | None = None,
    totals: Mapping[str, Column] = _NO_TOTALS,
) -> ChangeResult:
    """Write the rows that a decision changes, and return the result.

    Nothing is committed. If anything fails, the written files are deleted (best effort).

    Args:
        decide: The decision; it may omit rows without a clause. It must not return an updated or deleted row twice.
        kinds: What each clause does, by the number of the clause; other numbers do nothing.
        check: Called before anything is written, if a row of the table was decided twice.
        totals: Aggregates of the decided rows, for the result.

    Raises:
        UnsupportedFeatureForWrite: row tracking is enabled, but the properties do not name its columns.
        NotNullViolated: a row has null in a NOT NULL column.
        JobFailed: the Spark job failed, or the data changed between two reads.
    """
    kept = [quote_name(name) for name in context.schema.names] if {*kinds} != {ChangeKind.DELETE} else []
    kept += [BEFORE] if _may_record(context, kinds) else []
    with ExitStack() as persisted:
        with translate_spark_errors():
            changed = keep_decided_rows(decide(context.located())).select(FILE, ROW, CLAUSE, *kept)
            if kept or check:  # else the words say everything
                persisted.callback(unpersist, changed.persist())
            # Both frames are persisted: another evaluation of a source that is not deterministic could decide
            # otherwise.
            words = mark_rows(
                changed,
                F.col(CLAUSE).isin(_codes(kinds, ChangeKind.UPDATE, ChangeKind.DELETE)),
                F.count(F.lit(1)).alias(_ROWS),
                *(F.count_if(F.col(CLAUSE) == code).alias(_count_column(code)) for code in range(len(kinds))),
            )
            persisted.callback(unpersist, words.persist())
        with ChangeFiles(context) as files:
            change = _MaterializedChange(context, changed, words, kinds, files)
            if check is not None and change.has_row_twice:
                check(changed)
            outcome = change.outcome()
            if not totals or outcome.is_empty:
                return outcome
            with translate_spark_errors():
                row = changed.agg(*(total.alias(name) for name, total in totals.items())).first()
            return replace(outcome, totals=row.asDict() if row else {})


def _may_record(context: ChangeContext, kinds: Sequence[ChangeKind]) -> bool:
    """Return whether change data files may be needed; deletion vectors, whole files and inserts do not need them."""
    return context.has("changeDataFeed") and (ChangeKind.UPDATE in kinds or not context.has("deletionVectors"))


def _codes(kinds: Sequence[ChangeKind], *wanted: ChangeKind) -> list[int]:
    return [code for code, kind in enumerate(kinds) if kind in wanted]


def _count_column(code: int) -> str:
    return f"__widen_rows_{code}"


class _MaterializedChange:
    """One change with persisted rows, and with the words that they mark."""

    def __init__(
        self,
        context: ChangeContext,
        changed: DataFrame,
        words: DataFrame,
        kinds: Sequence[ChangeKind],
        files: ChangeFiles,
    ) -> None:
        self._context, self._changed, self._kinds, self._files = context, changed, kinds, files
        self._words = words.where(F.col(MASK).isNotNull())
        self._tally: ChangeCounts = {}
        self._word_count, self.has_row_twice = 0, False
        counts = [F.sum(_count_column(code)) for code in range(len(kinds))]
        sums = words.groupBy(FILE).agg(F.count(MASK), F.sum(_ROWS), F.sum(DISTINCT), *counts)
        with translate_spark_errors():
            for key, word_count, rows, distinct, *by_clause in sums.collect():
                self._tally[key] = Counter({code: count for code, count in enumerate(by_clause) if count})
                self._word_count += word_count
                self.has_row_twice |= key is not None and rows != distinct
        self._lost = {
            key: lost for key in self._tally if key and (lost := self._count(key, ChangeKind.UPDATE, ChangeKind.DELETE))
        }

    def outcome(self) -> ChangeResult:
        new = sum(self._count(key, ChangeKind.UPDATE, ChangeKind.INSERT) for key in self._tally)
        if not self._lost and not new:
            return ChangeResult(reads=self._context.reads)
        context, rows = self._context, self._context.all_rows(self._lost)
        left = {key: rows[key] - count_deleted_rows(context.adds[key]) - lost for key, lost in self._lost.items()}
        partial = {key: count for key, count in left.items() if count}
        has_vectors = context.has("deletionVectors")
        revised = revise_files(self._files, self._words, self._lost, rows) if has_vectors else []
        copies = self._copies(partial) if partial and not has_vectors else []
        fresh, recorded = self._write_new_rows(new, records=self._records(has_copies=bool(copies)))
        return ChangeResult(
            removed=tuple(context.adds[key] for key in self._lost),
            added=(*copies, *fresh),
            revised=tuple(revised),
            recorded=tuple(recorded),
            rows=sum(self._tally.values(), Counter()),
            copied=count_written_rows(copies),
            folders=self._files.folders,
            reads=context.reads,
        )

    def _count(self, key: str | None, *kinds: ChangeKind) -> int:
        return sum(self._tally[key][code] for code in _codes(self._kinds, *kinds))

    def _rows(self, *kinds: ChangeKind) -> DataFrame:
        return self._changed.where(F.col(CLAUSE).isin(_codes(self._kinds, *kinds)))

    def _copies(self, partial: Mapping[str, int]) -> list[Add]:
        """Rewrite the files without the updated and deleted rows, as far as possible with Arrow."""
        copies, copied = copy_without_marked(self._context, partial, self._words, self._files.new_folder())
        if rest := partial.keys() - copied:
            marks = F.broadcast(self._words) if self._word_count <= BROADCAST_ROWS else self._words
            left = without_marked(self._context.located(rest), marks)
            copies += self._files.rows(left.drop(FILE, ROW))
        ensure_same_count(sum(partial.values()), count_written_rows(copies))
        return copies

    def _records(self, *, has_copies: bool) -> bool:
        """Return whether change data files are needed: readers cannot derive the changes from the other files."""
        has_updates = any(self._count(key, ChangeKind.UPDATE) for key in self._tally)
        return self._context.has("changeDataFeed") and (has_copies or has_updates)

    def _write_new_rows(self, count: int, *, records: bool) -> tuple[list[Add], list[AddCdc]]:
        """Write inserted rows and the new values of updated rows, and all change data if it is needed."""
        rows = self._rows(ChangeKind.UPDATE, ChangeKind.INSERT)
        if count and records and self._lost and can_write_rows_and_changes(self._context):
            change = F.when(self._is_update(), ChangeKind.UPDATE.value).otherwise(ChangeKind.INSERT.value)
            fresh, recorded = write_rows_and_changes(self._files, rows, change)
            if any(self._count(key, ChangeKind.DELETE) for key in self._lost):
                recorded += self._files.changes(self._removed_rows(ChangeKind.DELETE))
        else:
            fresh = self._files.rows(rows.select(*self._columns)) if count else []
            recorded = self._write_changes(count) if records else []
        ensure_same_count(count, count_written_rows(fresh))
        return fresh, recorded

    def _write_changes(self, new: int) -> list[AddCdc]:
        added = self._rows(ChangeKind.UPDATE, ChangeKind.INSERT)
        frames = [self._removed_rows(ChangeKind.UPDATE, ChangeKind.DELETE)] if self._lost else []
        if new:
            frames += [added.select(*self._columns, self._change_type("update_postimage", "insert"))]
        # If the change widens the schema, old rows lack columns of new ones, so they are written apart.
        if self._context.before == self._context.schema:
            frames = [reduce(DataFrame.unionByName, frames)]
        return [recorded for frame in frames for recorded in self._files.changes(frame)]

    def _removed_rows(self, *kinds: ChangeKind) -> DataFrame:
        return self._rows(*kinds).select(f"{BEFORE}.*", self._change_type("update_preimage", "delete"))

    def _is_update(self) -> Column:
        return F.col(CLAUSE).isin(_codes(self._kinds, ChangeKind.UPDATE))

    def _change_type(self, update: str, other: str) -> Column:
        return F.when(self._is_update(), update).otherwise(other).alias(CHANGE_TYPE)

    @property
    def _columns(self) -> list[str]:
        return [quote_name(name) for name in self._context.schema.names]
