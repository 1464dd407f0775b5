"""A snapshot that replaces files by others with the same rows, which PyIceberg does not make by itself.

Source: Iceberg's table specification, "Snapshots" (the operation replace), "Scan Planning"
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from widen.iceberg.scan_plan import ReplacedDeletes
from widen.model.lazy_module import import_lazily

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.table import Transaction

ice_snapshots = import_lazily("pyiceberg.table.snapshots")
snapshot_updates = import_lazily("pyiceberg.table.update.snapshot")


def new_replacement(transaction: Transaction, summary: Mapping[str, str], branch: str, deletes: ReplacedDeletes) -> Any:
    """Return PyIceberg's producer of a snapshot that replaces data files and drops manifests of delete files.

    Args:
        summary: More entries of the snapshot summary.
    """
    entries = {**summary, **deletes.counts}
    operation, io = ice_snapshots.Operation.OVERWRITE, transaction._table.io
    producer = _replacement()(operation, transaction, io, snapshot_properties=entries, branch=branch)
    producer.deletes = deletes
    return producer


@cache
def _replacement() -> type[Any]:
    """Return the class of the producer; its base is imported with PyIceberg, which may not be installed."""

    class Replacement(snapshot_updates._OverwriteFiles):  # type: ignore[misc, name-defined]
        deletes: ReplacedDeletes

        def _existing_manifests(self) -> list[ManifestFile]:
            return [each for each in super()._existing_manifests() if each.manifest_path not in self.deletes.manifests]

        def _summary(self, snapshot_properties: Mapping[str, str]) -> Any:
            # PyIceberg computes totals for overwrites only, and does not know of the delete files.
            entries, size = super()._summary(snapshot_properties).additional_properties, self.deletes.size_bytes
            removed, total = ice_snapshots.REMOVED_FILE_SIZE, ice_snapshots.TOTAL_FILE_SIZE
            if size:
                entries[removed] = str(int(entries.get(removed, 0)) + size)
            if size and total in entries:
                entries[total] = str(int(entries[total]) - size)
            return ice_snapshots.Summary(ice_snapshots.Operation.REPLACE, **entries)

    return Replacement
