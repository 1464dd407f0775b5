"""A snapshot that replaces files by others with the same rows, which PyIceberg does not make by itself.

This module imports PyIceberg when it is imported, so it is imported only to commit such a snapshot.

Source: Iceberg's table specification, "Snapshots" (the operation replace), "Scan Planning"
"""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import REMOVED_FILE_SIZE, TOTAL_FILE_SIZE, Operation, Summary
from pyiceberg.table.update.snapshot import _OverwriteFiles

from widen.iceberg.scan_plan import ReplacedDeletes


def new_replacement(
    transaction: Transaction, summary: Mapping[str, str], branch: str, deletes: ReplacedDeletes
) -> Replacement:
    """Return the producer of a snapshot that replaces files and drops manifests of delete files.

    Args:
        summary: More entries of the snapshot summary.
    """
    io = transaction._table.io
    producer = Replacement(
        Operation.OVERWRITE, transaction, io, snapshot_properties={**summary, **deletes.counts}, branch=branch
    )
    producer.deletes = deletes
    return producer


class Replacement(_OverwriteFiles):
    """Replaces data files; delete files that apply to no file any more leave the table with their manifests."""

    deletes: ReplacedDeletes

    def _existing_manifests(self) -> list[ManifestFile]:
        return [each for each in super()._existing_manifests() if each.manifest_path not in self.deletes.manifests]

    def _summary(self, snapshot_properties: dict[str, str] | None = None) -> Summary:
        # PyIceberg computes totals for overwrites only, and does not know of the delete files.
        entries = super()._summary(snapshot_properties or {}).additional_properties
        size = self.deletes.size_bytes
        if size:
            entries[REMOVED_FILE_SIZE] = str(int(entries.get(REMOVED_FILE_SIZE, 0)) + size)
            if TOTAL_FILE_SIZE in entries:
                entries[TOTAL_FILE_SIZE] = str(int(entries[TOTAL_FILE_SIZE]) - size)
        return Summary(Operation.REPLACE, **entries)
