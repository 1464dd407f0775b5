"""The operation metrics of row changes.

Source: Delta Lake's operation metrics
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from widen.protocol.actions import Add
from widen.spark.dml.change_context import ChangeResult, count_written_rows
from widen.spark.dml.merge_clause import MergeClause, MergeSide
from widen.spark.dml.row_decision import ChangeKind


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
    """Return the metrics of a MERGE.

    Args:
        clauses: The clauses, in the order of their numbers.
    """

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
