"""Metrics: the numbers that the history shows of a change of rows.

Source: Delta Lake's operation metrics
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from widen.protocol.action import Add
from widen.spark.decision import Kind
from widen.spark.ground import Outcome, written_rows


def delete_metrics(outcome: Outcome) -> dict[str, int]:
    """Return the numbers of a DELETE."""
    return {**_files(outcome), "numDeletedRows": outcome.rows.total(), "numCopiedRows": outcome.copied}


def update_metrics(outcome: Outcome) -> dict[str, int]:
    """Return the numbers of an UPDATE."""
    return {**_files(outcome), "numUpdatedRows": outcome.rows.total(), "numCopiedRows": outcome.copied}


def overwrite_metrics(outcome: Outcome) -> dict[str, int]:
    """Return the numbers of an overwrite, of the whole table or of a part."""
    numbers = _files(outcome)
    return {
        "numFiles": len(outcome.added),
        "numOutputRows": written_rows(outcome.added),
        "numOutputBytes": _bytes(outcome.added),
        "numRemovedFiles": numbers["numRemovedFiles"],
        "numRemovedBytes": numbers["numRemovedBytes"],
        "numDeletedRows": outcome.rows.total(),
        "numCopiedRows": outcome.copied,
        "numAddedChangeFiles": len(outcome.recorded),
    }


def merge_metrics(outcome: Outcome, kinds: Sequence[Kind], matched: int) -> dict[str, int]:
    """Return the numbers of a MERGE.

    Args:
        outcome: What it comes to.
        kinds: What each clause does.
        matched: How many of the clauses, from the first, are for rows that match.
    """

    def rows(kind: Kind, clauses: Iterable[int]) -> int:
        return sum(outcome.rows[clause] for clause in clauses if kinds[clause] is kind)

    every, own, others = range(len(kinds)), range(matched), range(matched, len(kinds))
    inserted, updated = rows(Kind.INSERT, every), rows(Kind.UPDATE, every)
    return {
        "numTargetRowsInserted": inserted,
        "numTargetRowsUpdated": updated,
        "numTargetRowsMatchedUpdated": rows(Kind.UPDATE, own),
        "numTargetRowsNotMatchedBySourceUpdated": rows(Kind.UPDATE, others),
        "numTargetRowsDeleted": rows(Kind.DELETE, every),
        "numTargetRowsMatchedDeleted": rows(Kind.DELETE, own),
        "numTargetRowsNotMatchedBySourceDeleted": rows(Kind.DELETE, others),
        "numTargetRowsCopied": outcome.copied,
        "numOutputRows": inserted + updated + outcome.copied,
        **{_MERGE_NAMES[name]: number for name, number in _files(outcome).items()},
    }


def _files(outcome: Outcome) -> dict[str, int]:
    """Return the numbers of files; one that gets another deletion vector neither comes nor goes."""
    revised = {add.path for add in outcome.revised}
    gone = [add for add in outcome.removed if add.path not in revised]
    updated = sum(add.deletion_vector is not None for add in outcome.removed if add.path in revised)
    return {
        "numRemovedFiles": len(gone),
        "numRemovedBytes": _bytes(gone),
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
