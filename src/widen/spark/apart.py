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

from widen.model.type import quoted
from widen.protocol.action import Add, AddCdc
from widen.protocol.change_data import CHANGE_TYPE
from widen.protocol.statistics import with_loose_bounds
from widen.spark.decision import BEFORE, CLAUSE, Decide, Kind, tally, with_clause
from widen.spark.deletion import BROADCAST_ROWS, FILE, ROW
from widen.spark.failure import translated
from widen.spark.ground import Files, Ground, Outcome, deleted_rows, ensure_same, written_rows
from widen.spark.vector import write_vectors

Check: TypeAlias = Callable[[DataFrame], None]
"""Looks at the rows that a decision has a clause for, and raises if it may not be."""


def change_apart(ground: Ground, decide: Decide, kinds: Sequence[Kind], check: Check | None = None) -> Outcome:
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
    kept += [quoted(name) for name in ground.schema.names] if {*kinds} != {Kind.DELETE} else []
    kept += [BEFORE] if _may_record(ground, kinds) else []
    with translated():
        changed = with_clause(decide(ground.located())).select(*kept).persist()
    try:
        if check is not None:
            check(changed)
        with Files(ground) as files:
            return _Apart(ground, changed, kinds, files).outcome()
    finally:
        changed.unpersist()


def _may_record(ground: Ground, kinds: Sequence[Kind]) -> bool:
    """Tell whether the changes may have to be told; whole files, vectors and new rows speak for themselves."""
    return ground.has("changeDataFeed") and (Kind.UPDATE in kinds or not ground.has("deletionVectors"))


class _Apart:
    """One change whose rows are kept aside."""

    def __init__(self, ground: Ground, changed: DataFrame, kinds: Sequence[Kind], files: Files) -> None:
        self._ground, self._changed, self._kinds, self._files = ground, changed, kinds, files
        self._tally = tally(changed)
        self._lost = {key: lost for key in self._tally if key and (lost := self._count(key, Kind.UPDATE, Kind.DELETE))}

    def outcome(self) -> Outcome:
        new = sum(self._count(key, Kind.UPDATE, Kind.INSERT) for key in self._tally)
        if not self._lost and not new:
            return Outcome(reads=self._ground.reads)
        ground, rows = self._ground, self._ground.all_rows(self._lost)
        left = {key: rows[key] - deleted_rows(ground.adds[key]) - lost for key, lost in self._lost.items()}
        partial = {key: count for key, count in left.items() if count}
        has_vectors = ground.has("deletionVectors")
        revised = self._revised(partial, rows) if partial and has_vectors else []
        copies = self._copies(partial) if partial and not has_vectors else []
        return Outcome(
            removed=tuple(ground.adds[key] for key in self._lost),
            added=(*copies, *(self._fresh(new) if new else ())),
            revised=tuple(revised),
            recorded=tuple(self._recorded(new, has_copies=bool(copies))),
            rows=sum(self._tally.values(), Counter()),
            copied=written_rows(copies),
            folders=self._files.folders,
            reads=ground.reads,
        )

    def _count(self, key: str | None, *kinds: Kind) -> int:
        return sum(self._tally[key][code] for code in self._codes(*kinds))

    def _codes(self, *kinds: Kind) -> list[int]:
        return [code for code, kind in enumerate(self._kinds) if kind in kinds]

    def _rows(self, *kinds: Kind) -> DataFrame:
        return self._changed.where(F.col(CLAUSE).isin(self._codes(*kinds)))

    def _revised(self, partial: Collection[str], rows: Mapping[str, int]) -> list[Add]:
        """Return the files with the vectors that mark what is gone."""
        ground, gone = self._ground, self._rows(Kind.UPDATE, Kind.DELETE)
        old = {key: ground.adds[key] for key in partial}
        known = {key: add.deletion_vector for key, add in old.items()}
        vectors = write_vectors(ground.spark, ground.store, gone, known, self._files.new_folder())
        for key, add in old.items():
            ensure_same(self._lost[key] + deleted_rows(add), vectors[key].cardinality)
        return [
            msgspec.structs.replace(
                add, deletion_vector=vectors[key], stats=with_loose_bounds(add.stats, rows[key]), data_change=True
            )
            for key, add in old.items()
        ]

    def _copies(self, partial: Mapping[str, int]) -> list[Add]:
        """Write what is left of the files."""
        gone = self._rows(Kind.UPDATE, Kind.DELETE).select(FILE, ROW)
        gone = F.broadcast(gone) if sum(self._lost.values()) <= BROADCAST_ROWS else gone
        left = self._ground.located(partial).join(gone, [FILE, ROW], "left_anti")
        copies = self._files.rows(left.drop(FILE, ROW))
        ensure_same(sum(partial.values()), written_rows(copies))
        return copies

    def _fresh(self, count: int) -> list[Add]:
        """Write the rows that are new, or as they are now."""
        fresh = self._files.rows(self._rows(Kind.UPDATE, Kind.INSERT).select(*self._columns))
        ensure_same(count, written_rows(fresh))
        return fresh

    def _recorded(self, new: int, *, has_copies: bool) -> list[AddCdc]:
        """Write the changes for those who follow them, where the files of the table do not tell them."""
        has_updates = any(self._count(key, Kind.UPDATE) for key in self._tally)
        if not self._ground.has("changeDataFeed") or not (has_copies or has_updates):
            return []
        gone, come = self._rows(Kind.UPDATE, Kind.DELETE), self._rows(Kind.UPDATE, Kind.INSERT)
        told = [gone.select(f"{BEFORE}.*", self._change_type("update_preimage", "delete"))] if self._lost else []
        if new:
            told += [come.select(*self._columns, self._change_type("update_postimage", "insert"))]
        return [recorded for frame in told for recorded in self._files.changes(frame)]

    def _change_type(self, update: str, other: str) -> Column:
        is_update = F.col(CLAUSE).isin(self._codes(Kind.UPDATE))
        return F.when(is_update, update).otherwise(other).alias(CHANGE_TYPE)

    @property
    def _columns(self) -> list[str]:
        return [quoted(name) for name in self._ground.schema.names]
