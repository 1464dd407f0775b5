"""The footers of live files, for the counts and bounds that the log does not have.

Source: docs/evolution-rules.md#report
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

from widen.errors import CorruptFile, StorageError
from widen.log.read.snapshot import Snapshot
from widen.log.store.log_store import LogStore
from widen.model.lazy_module import import_lazily
from widen.protocol.skipping.file_statistics import FileStatistics
from widen.report.column_counts import LeafColumn

if TYPE_CHECKING:
    from widen.spark.parquet import footer as footers
    from widen.spark.parquet.footer import LeafFooter
else:
    footers = import_lazily("widen.spark.parquet.footer")

AUTOMATIC_FILES = 64
"""Up to this number of files, their footers are read without being asked for."""

_THREADS = 16
_COLUMNS = ["path", "stats"]


class FooterUse(str, Enum):
    """Which footers a report reads: those of small tables, of every table, or none."""

    AUTOMATIC = "automatic"
    ALL = "all"
    NONE = "none"


def read_needed_footers(snapshot: Snapshot, columns: Sequence[LeafColumn], use: FooterUse) -> Mapping[str, LeafFooter]:
    """Return the footers of the live files whose statistics do not count every leaf, by path.

    Args:
        use: Which footers to read. `AUTOMATIC` leaves out files that cannot be read.

    Raises:
        CorruptFile: a file is not Parquet, and all footers were asked for.
        StorageError: a file cannot be read, and all footers were asked for.
    """
    if use is FooterUse.NONE or (use is FooterUse.AUTOMATIC and snapshot.files().num_rows > AUTOMATIC_FILES):
        return {}
    rows = snapshot.files().select(_COLUMNS).to_pylist()
    needed = [row["path"] for row in rows if not _counts_all(row["stats"], columns)]
    with ThreadPoolExecutor(_THREADS, "widen-footer") as pool:
        read = partial(_read, snapshot.store, is_strict=use is FooterUse.ALL)
        footers = zip(needed, pool.map(read, needed), strict=True)
        return {path: footer for path, footer in footers if footer is not None}


def _counts_all(stats: str | None, columns: Sequence[LeafColumn]) -> bool:
    file = FileStatistics(stats)
    stored = (leaf for leaf in columns if not leaf.partition_key)
    return all(leaf.is_counted and file.column(leaf.physical, leaf.type).nulls is not None for leaf in stored)


def _read(store: LogStore, path: str, *, is_strict: bool) -> LeafFooter | None:
    try:
        return footers.read_leaf_footer(store, store.plain(path))
    except (CorruptFile, StorageError):
        if is_strict:
            raise
        return None
