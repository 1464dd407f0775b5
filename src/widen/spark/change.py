"""Changes of rows in place: rows are updated or deleted, each judged by a condition of its own.

Without deletion vectors every file with such a row is written anew in one pass.

Source: PROTOCOL.md#add-file-and-remove-file
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from pyspark.sql import functions as F

from widen.protocol.action import Add
from widen.spark.apart import change_apart
from widen.spark.decision import BEFORE, CLAUSE, Decide, Kind, tally, with_clause
from widen.spark.deletion import FILE, ROW
from widen.spark.ground import Files, Ground, Outcome, ensure_same, written_rows


def change_in_place(ground: Ground, decide: Decide, kind: Kind) -> Outcome | None:
    """Write what a decision makes of rows that are updated or deleted, and return it; None if no row is changed.

    Nothing is committed. If anything fails, what was written is deleted as far as the store lets us.

    Args:
        ground: What is changed.
        decide: The decision; it gives every row exactly once.
        kind: What is done to the rows that have a clause.

    Raises:
        UnsupportedFeatureForWrite: rows would be written again, and the table keeps track of each row.
        NotNullViolated: a row has null where the table forbids it.
        CorruptFile: a data file or a deletion vector cannot be read.
        JobFailed: Spark could not finish the job, or the data were not the same when they were read again.
        StorageError: the store refused.
    """
    if ground.has("deletionVectors") or ground.has("changeDataFeed"):
        return change_apart(ground, decide, (kind,))
    if kind is Kind.UPDATE:
        ground.ensure_untracked()
    counts = {key: found[0] for key, found in tally(with_clause(decide(ground.located()))).items() if key}
    if not counts:
        return None
    with Files(ground) as files:
        return _in_one_pass(ground, decide, kind, counts, files)


def _in_one_pass(ground: Ground, decide: Decide, kind: Kind, counts: Mapping[str, int], files: Files) -> Outcome:
    """Write the files anew; a row that is judged otherwise than before is written as it is judged now."""
    live = ground.live_rows(counts)
    partial = {key for key, count in counts.items() if kind is Kind.UPDATE or count < live[key]}
    added: list[Add] = []
    if partial:
        ground.ensure_untracked()
        judged = decide(ground.located(partial))
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
    )
