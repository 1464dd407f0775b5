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
from widen.spark.assign import remade
from widen.spark.decision import BEFORE, CLAUSE, Kind, tally
from widen.spark.deletion import FILE, ROW
from widen.spark.ground import Files, Ground, Outcome, ensure_same, written_rows


def change_in_place(ground: Ground, where: Column, new: Mapping[str, Column], kind: Kind) -> Outcome:
    """Update or delete rows, and return what it comes to. Nothing is committed.

    If anything fails, what was written is deleted as far as the store lets us.

    Args:
        ground: What is changed.
        where: Which rows.
        new: Their new values by column, if they are updated; other columns stay.
        kind: What is done to them.

    Raises:
        UnsupportedFeatureForWrite: the table keeps track of each row and does not say where.
        NotNullViolated: a row has null where the table forbids it.
        CorruptFile: a data file or a deletion vector cannot be read.
        JobFailed: Spark could not finish the job, or the data were not the same when they were read again.
        StorageError: the store refused.
    """
    if kind is Kind.UPDATE and ground.tracking:
        new = {**new, ground.tracking.version: F.lit(None).cast("bigint")}
    if ground.has("deletionVectors") or ground.has("changeDataFeed"):
        return change_apart(ground, lambda rows: _judged(ground, rows.where(where), where, new), (kind,))
    found = tally(ground.located().where(where).withColumn(CLAUSE, F.lit(0)))
    counts = {key: clauses.total() for key, clauses in found.items() if key is not None}
    if not counts:
        return Outcome(reads=ground.reads)
    with Files(ground) as files:
        return _in_one_pass(ground, where, new, kind, counts, files)


def _judged(ground: Ground, rows: DataFrame, where: Column, new: Mapping[str, Column]) -> DataFrame:
    """Return a decision on rows: what becomes of them, if anything."""
    old = [F.col(quoted(name)) for name in ground.schema.names]
    after = [
        (F.when(F.col(CLAUSE).isNotNull(), new[name]).otherwise(column) if name in new else column).alias(name)
        for name, column in zip(ground.schema.names, old, strict=True)
    ]
    judged = rows.select("*", F.when(where, F.lit(0)).alias(CLAUSE), F.struct(*old).alias(BEFORE))
    after_image = judged.select(*after, FILE, ROW, CLAUSE, BEFORE)
    return remade(after_image, ground.schema, ground.protocol, [new]) if new else after_image


def _in_one_pass(
    ground: Ground, where: Column, new: Mapping[str, Column], kind: Kind, counts: Mapping[str, int], files: Files
) -> Outcome:
    """Write files anew; a row that is judged otherwise than when it was counted is written as it is judged now."""
    live = ground.live_rows(counts)
    partial = {key for key, count in counts.items() if kind is Kind.UPDATE or count < live[key]}
    added: list[Add] = []
    if partial:
        judged = _judged(ground, ground.located(partial), where, new)
        stays = judged if kind is Kind.UPDATE else judged.where(F.col(CLAUSE).isNull())
        added = files.rows(stays.drop(FILE, ROW, CLAUSE, BEFORE))
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
