"""Update or delete the rows that match a condition.

An update whose rows tasks can write with Arrow reads and writes each row once: with deletion vectors only the changed
rows, else all rows of the files that have one. Deletions without deletion vectors also rewrite such files.

Source: PROTOCOL.md#add-file-and-remove-file, #deletion-vectors
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from errno import EDQUOT, ENOSPC
from functools import partial, reduce
from typing import TypeAlias

import pyarrow as pa
from pyroaring import BitMap64

from widen.changes.assignment import (
    BEFORE,
    CLAUSE,
    ChangeCounts,
    ChangeKind,
    RowDecision,
    count_changes,
    keep_decided_rows,
    recompute_generated_columns,
)
from widen.changes.change_context import ChangeContext, ChangeFiles, ChangeResult, count_deleted_rows, ensure_same_count
from widen.changes.change_data_writer import (
    can_write_rows_and_changes,
    revise_files,
    to_bitmaps,
    write_replaced_rows,
    write_rows_and_changes,
)
from widen.changes.delta_copies import copy_without_positions
from widen.changes.keyed_files import NewRows, RowPart, read_on_spark
from widen.errors import EngineUnsuitable, InvalidOption, StorageError
from widen.files.data_writer import PARTS, PartFile, TableSink, codec_of, to_part_rows, to_partitioned_add, write_rows
from widen.files.deleted_rows import DISTINCT, FILE, MASK, ROW, mark_rows, to_words, without_marked
from widen.frames.parquet_writer import find_obstacle, table_sink, write_parquet
from widen.limits import BROADCAST_ROWS
from widen.log.commit_outcome import discard_folder
from widen.log.log_store import LogStore
from widen.model.types import quote_name
from widen.protocol.actions import Add, AddCdc
from widen.protocol.column_mapping import CHANGE_TYPE
from widen.protocol.file_statistics import count_written_rows
from widen.spark.engine import Unsupported, run_task, start_tasks
from widen.spark.errors import translate_spark_errors, unpersist
from widen.spark.ship import freeze_imports
from widen.spark.spark_types import Column, DataFrame, F

# How rows change, by what the table allows. The result says which files go, which come, and which get vectors.
#     update, with deletion vectors    The new rows are written and the old ones marked, in one pass over the table.
#     delete, with deletion vectors    The positions of the rows are persisted, and marked; no row is written.
#     without deletion vectors         A first pass counts which files have such rows, a second one rewrites these.
#     with a change data feed that     The decided rows are persisted, since they are written twice: as rows of the
#     tasks cannot write beside        table, and as changes. Another evaluation might decide otherwise.
# A row is identified by its file and position; not every table has row ids.


def change_in_place(context: ChangeContext, where: Column, new: Mapping[str, Column], kind: ChangeKind) -> ChangeResult:
    """Update or delete rows, and return the result. Nothing is committed.

    If anything fails, the written files are deleted (best effort).
    """
    if kind is ChangeKind.UPDATE and context.tracking:
        # Null stands for the version of the commit, which the new file has as its default.
        new = {**new, context.tracking.version: F.lit(None).cast("bigint")}
    can_write_both = kind is ChangeKind.UPDATE and can_write_rows_and_changes(context)
    if context.has("deletionVectors") and can_write_both:
        return _update_with_vectors(context, where, new)
    if context.has("deletionVectors") or (context.has("changeDataFeed") and not can_write_both):
        return change_via_materialized_rows(
            context, lambda rows: _decide_change(context, rows.where(where), where, new), (kind,)
        )
    # Without deletion vectors, whole files are rewritten. So a first pass counts which files have such rows at all; it
    # reads only the columns of the condition.
    changes = count_changes(context.located().where(where).withColumn(CLAUSE, F.lit(0)))
    counts = {key: clauses.total() for key, clauses in changes.items() if key is not None}
    if not counts:
        return ChangeResult(reads=context.reads)
    with ChangeFiles(context) as files:
        return _in_one_pass(context, where, new, kind, counts, files)


def _decide_change(context: ChangeContext, rows: DataFrame, where: Column, new: Mapping[str, Column]) -> DataFrame:
    """Return the rows with their decision columns and their new values."""
    old = [F.col(quote_name(name)) for name in context.schema.names]
    after = [
        (F.when(F.col(CLAUSE).isNotNull(), new[name]).otherwise(column) if name in new else column).alias(name)
        for name, column in zip(context.schema.names, old, strict=True)
    ]
    judged = rows.select("*", F.when(where, F.lit(0)).alias(CLAUSE), F.struct(*old).alias(BEFORE))
    after_image = judged.select(*after, FILE, ROW, CLAUSE, BEFORE)
    return recompute_generated_columns(after_image, context.schema, context.protocol, [new]) if new else after_image


def _update_with_vectors(context: ChangeContext, where: Column, new: Mapping[str, Column]) -> ChangeResult:
    """Write updated rows, and mark the old ones in deletion vectors."""
    rows = _decide_change(context, context.located().where(where), where, new)
    change = F.lit(ChangeKind.UPDATE.value if context.has("changeDataFeed") else None)
    with ChangeFiles(context) as files, write_replaced_rows(files, rows, change.cast("string")) as replaced:
        if not replaced.lost:
            return ChangeResult(reads=context.reads)
        updated = replaced.lost.total()
        # The numbers of new and marked rows must be equal, else rows would be duplicated or lost.
        ensure_same_count(updated, count_written_rows(replaced.fresh))
        revised = revise_files(files, replaced.words, replaced.lost, context.all_rows(replaced.lost))
        return ChangeResult(
            removed=tuple(context.adds[key] for key in replaced.lost),
            added=tuple(replaced.fresh),
            revised=tuple(revised),
            recorded=tuple(replaced.recorded),
            rows=Counter({0: updated}),
            folders=files.folders,
            reads=context.reads,
        )


def _in_one_pass(
    context: ChangeContext,
    where: Column,
    new: Mapping[str, Column],
    kind: ChangeKind,
    counts: Mapping[str, int],
    files: ChangeFiles,
) -> ChangeResult:
    """Rewrite files; the condition is evaluated again, and its second result decides."""
    live = context.live_rows(counts)
    # A file whose rows all go is only removed.
    partial = {key for key, count in counts.items() if kind is ChangeKind.UPDATE or count < live[key]}
    added: list[Add] = []
    recorded: list[AddCdc] = []
    if partial:
        judged = _decide_change(context, context.located(partial), where, new)
        stays = judged if kind is ChangeKind.UPDATE else judged.where(F.col(CLAUSE).isNull())
        if context.has("changeDataFeed"):
            added, recorded = write_rows_and_changes(files, stays, F.when(F.col(CLAUSE).isNotNull(), kind.value))
        else:
            added = files.rows(stays.drop(FILE, ROW, CLAUSE, BEFORE))
    total, written = sum(live.values()), count_written_rows(added)
    # An update neither adds nor removes rows. If the numbers differ, the files changed between the two passes, or the
    # condition is not deterministic, and rows would be lost.
    if kind is ChangeKind.UPDATE:
        ensure_same_count(total, written)
    changed = sum(counts.values()) if kind is ChangeKind.UPDATE else total - written
    return ChangeResult(
        removed=tuple(context.adds[key] for key in counts),
        added=tuple(added),
        recorded=tuple(recorded),
        rows=Counter({0: changed}),
        copied=total - changed,
        folders=files.folders,
        reads=context.reads,
    )


# Changes with persisted rows: mark the old rows in deletion vectors, or rewrite the rest of their files.
#
# Source: PROTOCOL.md#deletion-vectors, #add-file-and-remove-file, #add-cdc-file


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
        check: Called before anything is written, if a row of the table was decided twice.
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
        # Remove a file that loses all of its rows; else give it a vector, or copy it without the rows.
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
        """Rewrite the files without the updated and deleted rows, with Arrow where possible."""
        copies, are_few = None, self._word_count <= BROADCAST_ROWS
        if are_few:
            with translate_spark_errors():
                marked = to_bitmaps(self._words.toArrow())
            some = {key: marked[key] for key in partial}
            copies = copy_without_positions(self._context, some, self._files.new_folder)
        if copies is None:
            marks = F.broadcast(self._words) if are_few else self._words
            left = without_marked(self._context.located(partial), marks)
            copies = self._files.rows(left.drop(FILE, ROW))
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


# Rows that are known by their positions.


def copy_without(context: ChangeContext, marked: Mapping[str, BitMap64], new_folder: Callable[[], str]) -> list[Add]:
    """Copy files without some rows: with Arrow, or with Spark where Arrow cannot; see `copy_without_positions`."""
    copies = copy_without_positions(context, marked, new_folder)
    if copies is not None:
        return copies
    left = without_marked(context.located(marked), to_words(context.spark, marked))
    table = context.configuration.with_schema(context.schema)
    return write_parquet(left.drop(FILE, ROW), context.store, table, new_folder())


def remove_positions(context: ChangeContext, marked: Mapping[str, BitMap64]) -> ChangeResult:
    """Remove rows that are known by their positions, and return the result; nothing is committed.

    This process writes deletion vectors, and copies files unless they are large. Change data files are not written.

    Args:
        marked: The positions by the key of each file, which has at least one.
    """
    if not marked:
        return ChangeResult(reads=context.reads)
    rows, lost = context.all_rows(marked), {key: len(bitmap) for key, bitmap in marked.items()}
    left = {key: rows[key] - count_deleted_rows(context.adds[key]) - lost[key] for key in marked}
    partial_files = {key: count for key, count in left.items() if count}
    revised: list[Add] = []
    copies: list[Add] = []
    with ChangeFiles(context) as files:
        if context.has("deletionVectors"):
            revised = revise_files(files, marked, lost, rows)
        elif partial_files:
            copies = copy_without(context, {key: marked[key] for key in partial_files}, files.new_folder)
            ensure_same_count(sum(partial_files.values()), count_written_rows(copies))
    return ChangeResult(
        removed=tuple(context.adds[key] for key in marked),
        added=tuple(copies),
        revised=tuple(revised),
        rows=Counter({0: sum(lost.values())}),
        copied=count_written_rows(copies),
        folders=files.folders,
        reads=context.reads,
    )


def write_new_rows(context: ChangeContext, new: NewRows, new_folder: Callable[[], str]) -> list[Add]:
    """Write rows with the columns of the table: in this process, in tasks where there are many, or with Spark."""
    if not find_obstacle(context.configuration):
        written = _write_with_arrow(context, new, new_folder())
        if written is not None:
            return written
    # Arrow does not compute or check what the rules of the table say.
    store, folder = context.store, new_folder()
    try:
        rows = read_on_spark(context.spark, new, context.configuration.schema, store, folder)
        return write_parquet(rows, store, context.configuration, new_folder())
    finally:
        discard_folder(store, folder)


def _write_with_arrow(context: ChangeContext, new: NewRows, job: str) -> list[Add] | None:
    """Write rows in a folder; None if Arrow cannot."""
    try:
        sink = table_sink(context.store, context.configuration, job, codec_of(context.session))
    except (InvalidOption, EngineUnsuitable):  # a type that Arrow does not have, or a rule that only Spark checks
        return None
    numbers = start_tasks(context.session, len(new.parts)) if len(new.parts) > 1 else None
    try:
        if numbers is None:
            written = run_task(partial(_write_parts, sink, new.parts), [0])
        else:
            with translate_spark_errors():
                written = numbers.mapInArrow(partial(_write_parts, sink, new.parts), PARTS).toArrow()
    except BaseException:
        discard_folder(context.store, job)
        raise
    parts = [PartFile(**row) for row in written.to_pylist()]
    if any(part.size_bytes < 0 for part in parts):
        discard_folder(context.store, job)
        return None
    if numbers is not None:  # Spark may have run a task twice
        discard_folder(context.store, job, but={part.path for part in parts})
    return [to_partitioned_add(sink.layout.split, part) for part in parts]


def _write_parts(
    sink: TableSink, parts: Sequence[RowPart], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    freeze_imports()
    for number in (number for batch in batches for number in batch.column(0).to_pylist()):
        try:
            yield from write_rows(sink, (batch for rows in parts[number].read() for batch in rows.to_batches()))
        except (Unsupported, pa.ArrowException):  # raised, it would be the error of a Spark job
            yield to_part_rows([PartFile("", -1, "")])


def ensure_space(store: LogStore, error: Exception) -> None:
    """Raise StorageError for a full disk: Spark could not write to it."""
    if isinstance(error, OSError) and error.errno in (ENOSPC, EDQUOT):
        fix = "Nothing was committed. Free some space and try again."
        raise StorageError(location=store.location, reason="the disk is full", fix=fix) from error
