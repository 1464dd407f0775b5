"""Appends without Spark: what every change of rows does, without the job that writes them."""

from __future__ import annotations

from pathlib import Path

from widen.log.commit import StagedFiles, commit
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.protocol.actions import Add


def append(place: Path, path: str = "job/n.parquet") -> int:
    """Add a file of one row to the table ``t`` in a folder, and return the version.

    Raises:
        WidenError: the store failed, or the version contradicts another one.
    """
    store = LogStore(str(place / "t"))
    base = open_snapshot(store)
    with StagedFiles() as staged:
        store.put(path, b"rows")
        stats = '{"numRecords":1}'
        file = Add(path=path, partition_values={}, size=4, modification_time=1, data_change=True, stats=stats)
        staged.add_files(store, [file])
        outcome = commit(store, base, [file], "WRITE", {"mode": "Append"}, staged=staged)
    return outcome.or_raise().snapshot.version
