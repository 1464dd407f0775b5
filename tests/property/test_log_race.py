"""Writers that race in separate processes: every commit lands, and none is lost."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

from widen.log.commit import Committed, commit
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.protocol.actions import Add, Metadata, Protocol

WRITERS, COMMITS = 2, 40
SCHEMA = '{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}'


def write(location: str, writer: int, start: object) -> None:
    """Append `COMMITS` files, always on top of the first version: every race is resolved by the log."""
    store = LogStore(location)
    base = open_snapshot(store, 0)
    start.wait()  # type: ignore[attr-defined]
    for number in range(COMMITS):
        path = f"w{writer}-{number}"
        new = Add(path=path, partition_values={}, size=1, modification_time=1, data_change=True)
        assert isinstance(commit(store, base, [new], "WRITE", {"path": path}), Committed)


def test_racing_processes_lose_nothing(tmp_path: Path) -> None:
    store = LogStore(str(tmp_path))
    protocol = Protocol(min_reader_version=1, min_writer_version=2)
    metadata = Metadata(id="m", schema_string=SCHEMA, partition_columns=())
    commit(store, None, [protocol, metadata], "CREATE TABLE", {}).or_raise()
    context = multiprocessing.get_context("spawn")
    start = context.Barrier(WRITERS)
    writers = [context.Process(target=write, args=(str(tmp_path), number, start)) for number in range(WRITERS)]
    for process in writers:
        process.start()
    for process in writers:
        process.join(120)
    assert [process.exitcode for process in writers] == [0] * WRITERS

    expected = {f"w{writer}-{number}" for writer in range(WRITERS) for number in range(COMMITS)}
    newest = open_snapshot(store)
    assert newest.version == WRITERS * COMMITS
    files = newest.files()["path"].to_pylist()
    assert (len(files), set(files)) == (len(expected), expected)
    told = [info["operationParameters"]["path"] for version, _, info in newest.history() if version]
    assert (len(told), set(told)) == (len(expected), expected)
    assert [name for name in tmp_path.rglob("*") if name.suffix == ".widen-staged"] == []
