"""Changes of rows in place: those that a condition is true for are updated or deleted.

Without deletion vectors every file with such a row is written anew in one pass.

Source: PROTOCOL.md#add-file-and-remove-file
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from widen.model.type import quoted
from widen.protocol.action import Add
from widen.spark.apart import change_apart
from widen.spark.decision import BEFORE, CLAUSE, Kind, tally
from widen.spark.deletion import FILE, ROW
from widen.spark.ground import Files, Ground, Outcome, ensure_same, written_rows


def change_in_place(ground: Ground, where: Column, new: Mapping[str, Column], kind: Kind) -> Outcome | None:
    """Update or delete rows, and return what it comes to; None if there are none. Nothing is committed.

    If anything fails, what was written is deleted as far as the store lets us.

    Args:
        ground: What is changed.
        where: Which rows.
        new: Their new values by column, if they are updated; other columns stay.
        kind: What is done to them.

    Raises:
        UnsupportedFeatureForWrite: rows would be written again, and the table keeps track of each row.
        NotNullViolated: a row has null where the table forbids it.
        CorruptFile: a data file or a deletion vector cannot be read.
        JobFailed: Spark could not finish the job, or the data were not the same when they were read again.
        StorageError: the store refused.
    """
    if ground.has("deletionVectors") or ground.has("changeDataFeed"):
        return change_apart(ground, lambda rows: _judged(ground, rows.where(where), new), (kind,))
    if kind is Kind.UPDATE:
        ground.ensure_untracked()
    found = tally(ground.located().where(where).withColumn(CLAUSE, F.lit(0)))
    counts = {key: clauses.total() for key, clauses in found.items() if key is not None}
    if not counts:
        return None
    with Files(ground) as files:
        return _in_one_pass(ground, where, new, kind, counts, files)


def _judged(ground: Ground, rows: DataFrame, new: Mapping[str, Column]) -> DataFrame:
    """Return rows that are all to be changed as a decision on them."""
    old = [F.col(quoted(name)) for name in ground.schema.names]
    after = [new.get(name, column).alias(name) for name, column in zip(ground.schema.names, old, strict=True)]
    return rows.select(*after, FILE, ROW, F.lit(0).alias(CLAUSE), F.struct(*old).alias(BEFORE))


def _in_one_pass(
    ground: Ground, where: Column, new: Mapping[str, Column], kind: Kind, counts: Mapping[str, int], files: Files
) -> Outcome:
    """Write files anew; a row that is judged otherwise than when it was counted is written as it is judged now."""
    live = ground.live_rows(counts)
    partial = {key for key, count in counts.items() if kind is Kind.UPDATE or count < live[key]}
    added: list[Add] = []
    if partial:
        ground.ensure_untracked()
        rows = ground.located(partial)
        added = files.rows(_updated(ground, rows, where, new) if kind is Kind.UPDATE else rows.where(_is_not(where)))
    total, written = sum(live.values()), written_rows(added)
    if kind is Kind.UPDATE:
        ensure_same(total, written)
    changed = sum(counts.values()) if kind is Kind.UPDATE else total - written
    return Outcome(
        removed=tuple(ground.adds[key] for key in counts),
        added=tuple(added),
        rows=Counter({0: changed}),
        copied=total - changed,
        folders=files.folders,
        reads=ground.reads,
    )


def _is_not(where: Column) -> Column:
    return ~F.coalesce(where, F.lit(False))


def _updated(ground: Ground, rows: DataFrame, where: Column, new: Mapping[str, Column]) -> DataFrame:
    columns = []
    for name in ground.schema.names:
        old = F.col(quoted(name))
        columns.append((F.when(where, new[name]).otherwise(old) if name in new else old).alias(name))
    return rows.select(*columns)
