"""Update or delete the rows that match a condition.

An update whose rows tasks can write with Arrow reads and writes each row once: with deletion vectors only the rows that
change, else all rows of the files that have one. Deletions without deletion vectors rewrite such files, too.

Source: PROTOCOL.md#add-file-and-remove-file, #deletion-vectors
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from widen.model.types import quote_name
from widen.protocol.actions import Add, AddCdc
from widen.spark.dml.assignment import recompute_generated_columns
from widen.spark.dml.change_context import (
    ChangeContext,
    ChangeFiles,
    ChangeResult,
    count_written_rows,
    ensure_same_count,
)
from widen.spark.dml.change_via_materialized_rows import change_via_materialized_rows
from widen.spark.dml.revised_files import revise_files
from widen.spark.dml.row_decision import BEFORE, CLAUSE, ChangeKind, count_changes
from widen.spark.dml.rows_and_changes import (
    can_write_rows_and_changes,
    write_replaced_rows,
    write_rows_and_changes,
)
from widen.spark.read.deleted_rows import FILE, ROW


def change_in_place(context: ChangeContext, where: Column, new: Mapping[str, Column], kind: ChangeKind) -> ChangeResult:
    """Update or delete rows, and return the result. Nothing is committed.

    If anything fails, the written files are deleted (best effort).

    Args:
        new: The new values by column, for an update; other columns stay as they are.

    Raises:
        UnsupportedFeatureForWrite: row tracking is enabled, but the properties do not name its columns.
        NotNullViolated: a row has null in a NOT NULL column.
        JobFailed: the Spark job failed, or the data changed between two reads.
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
