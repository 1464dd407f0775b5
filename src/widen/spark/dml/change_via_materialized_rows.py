"""Changes whose rows are kept aside: what goes is marked in vectors, or what is left of the files is written again.

Source: PROTOCOL.md#deletion-vectors, #add-file-and-remove-file, #add-cdc-file
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeAlias

import msgspec
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from widen.model.types import quote_name
from widen.protocol.actions import Add, AddCdc
from widen.protocol.change_data_files import CHANGE_TYPE
from widen.protocol.skipping.file_statistics import with_loose_bounds
from widen.spark.dml.change_context import (
    ChangeContext,
    ChangeFiles,
    ChangeResult,
    count_deleted_rows,
    count_written_rows,
    ensure_same_count,
)
from widen.spark.dml.row_decision import BEFORE, CLAUSE, ChangeKind, RowDecision, count_changes, keep_decided_rows
from widen.spark.read.deleted_rows import BROADCAST_ROWS, FILE, ROW
from widen.spark.spark_errors import translate_spark_errors
from widen.spark.write.deletion_vector_writer import write_vectors

Check: TypeAlias = Callable[[DataFrame], None]
"""Looks at the rows that a decision has a clause for, and raises if it may not be."""


def change_via_materialized_rows(
    ground: ChangeContext, decide: RowDecision, kinds: Sequence[ChangeKind], check: Check | None = None
) -> ChangeResult:
    """Write what a decision makes of the rows that it changes, and return it.

    Nothing is committed. If anything fails, what was written is deleted as far as the store lets us.

    Args:
        ground: What is changed.
        decide: The decision; rows that it has no clause for may be missing. Of the rows that are updated or deleted
            none is there twice.
        kinds: What each clause does, by its number; a clause with another number does nothing.
        check: Called before anything is written.

    Raises:
        UnsupportedFeatureForWrite: the table keeps track of each row and does not say where.
        NotNullViolated: a row has null where the table forbids it.
        CorruptFile: a data file or a deletion vector cannot be read.
        JobFailed: Spark could not finish the job, or the data were not the same when they were read again.
        StorageError: the store refused.
    """
    kept = [FILE, ROW, CLAUSE]
    kept += [quote_name(name) for name in ground.schema.names] if {*kinds} != {ChangeKind.DELETE} else []
    kept += [BEFORE] if _may_record(ground, kinds) else []
    with translate_spark_errors():
        changed = keep_decided_rows(decide(ground.located())).select(*kept).persist()
    try:
        if check is not None:
            check(changed)
        with ChangeFiles(ground) as files:
            return _MaterializedChange(ground, changed, kinds, files).outcome()
    finally:
        changed.unpersist()


def _may_record(ground: ChangeContext, kinds: Sequence[ChangeKind]) -> bool:
    """Tell whether the changes may have to be told; whole files, vectors and new rows speak for themselves."""
    return ground.has("changeDataFeed") and (ChangeKind.UPDATE in kinds or not ground.has("deletionVectors"))


class _MaterializedChange:
    """One change whose rows are kept aside."""

    def __init__(
        self, ground: ChangeContext, changed: DataFrame, kinds: Sequence[ChangeKind], files: ChangeFiles
    ) -> None:
        self._ground, self._changed, self._kinds, self._files = ground, changed, kinds, files
        self._tally = count_changes(changed)
        self._lost = {
            key: lost for key in self._tally if key and (lost := self._count(key, ChangeKind.UPDATE, ChangeKind.DELETE))
        }

    def outcome(self) -> ChangeResult:
        new = sum(self._count(key, ChangeKind.UPDATE, ChangeKind.INSERT) for key in self._tally)
        if not self._lost and not new:
            return ChangeResult(reads=self._ground.reads)
        ground, rows = self._ground, self._ground.all_rows(self._lost)
        left = {key: rows[key] - count_deleted_rows(ground.adds[key]) - lost for key, lost in self._lost.items()}
        partial = {key: count for key, count in left.items() if count}
        has_vectors = ground.has("deletionVectors")
        revised = self._revised(partial, rows) if partial and has_vectors else []
        copies = self._copies(partial) if partial and not has_vectors else []
        return ChangeResult(
            removed=tuple(ground.adds[key] for key in self._lost),
            added=(*copies, *(self._fresh(new) if new else ())),
            revised=tuple(revised),
            recorded=tuple(self._recorded(new, has_copies=bool(copies))),
            rows=sum(self._tally.values(), Counter()),
            copied=count_written_rows(copies),
            folders=self._files.folders,
            reads=ground.reads,
        )

    def _count(self, key: str | None, *kinds: ChangeKind) -> int:
        return sum(self._tally[key][code] for code in self._codes(*kinds))

    def _codes(self, *kinds: ChangeKind) -> list[int]:
        return [code for code, kind in enumerate(self._kinds) if kind in kinds]

    def _rows(self, *kinds: ChangeKind) -> DataFrame:
        return self._changed.where(F.col(CLAUSE).isin(self._codes(*kinds)))

    def _revised(self, partial: Collection[str], rows: Mapping[str, int]) -> list[Add]:
        """Return the files with the vectors that mark what is gone."""
        ground, gone = self._ground, self._rows(ChangeKind.UPDATE, ChangeKind.DELETE)
        old = {key: ground.adds[key] for key in partial}
        known = {key: add.deletion_vector for key, add in old.items()}
        vectors = write_vectors(ground.spark, ground.store, gone, known, self._files.new_folder())
        for key, add in old.items():
            ensure_same_count(self._lost[key] + count_deleted_rows(add), vectors[key].cardinality)
        return [
            msgspec.structs.replace(
                add, deletion_vector=vectors[key], stats=with_loose_bounds(add.stats, rows[key]), data_change=True
            )
            for key, add in old.items()
        ]

    def _copies(self, partial: Mapping[str, int]) -> list[Add]:
        """Write what is left of the files."""
        gone = self._rows(ChangeKind.UPDATE, ChangeKind.DELETE).select(FILE, ROW)
        gone = F.broadcast(gone) if sum(self._lost.values()) <= BROADCAST_ROWS else gone
        left = self._ground.located(partial).join(gone, [FILE, ROW], "left_anti")
        copies = self._files.rows(left.drop(FILE, ROW))
        ensure_same_count(sum(partial.values()), count_written_rows(copies))
        return copies

    def _fresh(self, count: int) -> list[Add]:
        """Write the rows that are new, or as they are now."""
        fresh = self._files.rows(self._rows(ChangeKind.UPDATE, ChangeKind.INSERT).select(*self._columns))
        ensure_same_count(count, count_written_rows(fresh))
        return fresh

    def _recorded(self, new: int, *, has_copies: bool) -> list[AddCdc]:
        """Write the changes for those who follow them, where the files of the table do not tell them."""
        has_updates = any(self._count(key, ChangeKind.UPDATE) for key in self._tally)
        if not self._ground.has("changeDataFeed") or not (has_copies or has_updates):
            return []
        gone, come = self._rows(ChangeKind.UPDATE, ChangeKind.DELETE), self._rows(ChangeKind.UPDATE, ChangeKind.INSERT)
        told = [gone.select(f"{BEFORE}.*", self._change_type("update_preimage", "delete"))] if self._lost else []
        if new:
            told += [come.select(*self._columns, self._change_type("update_postimage", "insert"))]
        return [recorded for frame in told for recorded in self._files.changes(frame)]

    def _change_type(self, update: str, other: str) -> Column:
        is_update = F.col(CLAUSE).isin(self._codes(ChangeKind.UPDATE))
        return F.when(is_update, update).otherwise(other).alias(CHANGE_TYPE)

    @property
    def _columns(self) -> list[str]:
        return [quote_name(name) for name in self._ground.schema.names]
