"""What Iceberg compatibility asks of the files of a table: of new ones, and of those that are there when it begins.

Source: PROTOCOL.md#writer-requirements-for-icebergcompatv1, #writer-requirements-for-icebergcompatv2
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow.compute as pc

from widen.errors import IcebergIncompatible
from widen.log.read.snapshot import Snapshot
from widen.protocol.actions import Add, Metadata
from widen.protocol.iceberg_compat import IcebergCompat, enabled_compat
from widen.protocol.skipping.file_statistics import FileStatistics

_REWRITE = "Write the rows to a new table that is compatible from its beginning."


def ensure_files_compatible(base: Snapshot | None, metadata: Metadata, adds: Iterable[Add]) -> None:
    """Check that files are as Iceberg needs them, where compatibility is enabled.

    Args:
        base: The version before; None if there is none.
        metadata: Of the version to be written.
        adds: The files that it adds.

    Raises:
        IcebergIncompatible: a file is not; the error says which, and why.
        CorruptLog: the log is damaged.
        StorageError: the store refused.
    """
    compat = enabled_compat(metadata.configuration)
    if compat is None:
        return
    _ensure_row_counts(compat, ((add.path, add.stats) for add in adds))
    if base is not None and enabled_compat(base.properties) != compat:
        _ensure_earlier(compat, base)


def _ensure_earlier(compat: IcebergCompat, base: Snapshot) -> None:
    """Check the files that were there before the compatibility."""
    files = base.files()
    if files.num_rows == 0:
        return
    if pc.any(files["deletion_vector"].is_valid()).as_py():
        raise _incompatible(compat, "DELETION_VECTORS_NOT_PURGED", "rows are marked as deleted in deletion vectors")
    if compat.version == 1 and base.partition_columns:
        raise _incompatible(compat, "PARTITION_COLUMNS_NOT_IN_FILES", "the partition columns are not in the files")
    _ensure_row_counts(compat, zip(files["path"].to_pylist(), files["stats"].to_pylist(), strict=True))


def _ensure_row_counts(compat: IcebergCompat, files: Iterable[tuple[str, str | None]]) -> None:
    for path, stats in files:
        if FileStatistics(stats).rows is None:
            raise _incompatible(compat, "MISSING_NUM_RECORDS", f"the file {path} does not say how many rows it has")


def _incompatible(compat: IcebergCompat, kind: str, reason: str) -> IcebergIncompatible:
    return IcebergIncompatible(version=compat.version, kind=kind, reason=reason, fix=_REWRITE)
