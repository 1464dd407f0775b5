"""Requirements of Iceberg compatibility on files: on new ones, and on those that exist when it is enabled.

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

_REWRITE = "Write the rows to a new table that is created with Iceberg compatibility."


def ensure_files_compatible(base: Snapshot | None, metadata: Metadata, adds: Iterable[Add]) -> None:
    """Check that files meet the requirements of the enabled Iceberg compatibility.

    Raises:
        IcebergIncompatible: a file does not; the error says which and why.
    """
    compat = enabled_compat(metadata.configuration)
    if compat is None:
        return
    _ensure_row_counts(compat, ((add.path, add.stats) for add in adds))
    if base is not None and enabled_compat(base.properties) != compat:
        _ensure_existing_files(compat, base)


def _ensure_existing_files(compat: IcebergCompat, base: Snapshot) -> None:
    """Check the files that existed before compatibility was enabled."""
    files = base.files()
    if files.num_rows == 0:
        return
    if pc.any(files["deletion_vector"].is_valid()).as_py():
        raise _incompatible(compat, "DELETION_VECTORS_NOT_PURGED", "rows are deleted through deletion vectors")
    if compat.version == 1 and base.partition_columns:
        raise _incompatible(compat, "PARTITION_COLUMNS_NOT_IN_FILES", "the partition columns are not in the files")
    _ensure_row_counts(compat, zip(files["path"].to_pylist(), files["stats"].to_pylist(), strict=True))


def _ensure_row_counts(compat: IcebergCompat, files: Iterable[tuple[str, str | None]]) -> None:
    for path, stats in files:
        if FileStatistics(stats).rows is None:
            raise _incompatible(compat, "MISSING_NUM_RECORDS", f"the file {path} has no row count")


def _incompatible(compat: IcebergCompat, kind: str, reason: str) -> IcebergIncompatible:
    return IcebergIncompatible(version=compat.version, kind=kind, reason=reason, fix=_REWRITE)
