"""The record of loads: what it holds, how it grows, races, and copies of tables without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from widen.errors import ConcurrentTransaction, CorruptLog
from widen.log import loads as record_loads
from widen.log.commit import commit
from widen.log.commit_outcome import Committed, Conflicted, Outcome, StagedFiles
from widen.log.load_segments import Segment
from widen.log.loads import FOLDER, Load, LoadedFile, Record, RecordFolder, encode_record, find_head, read_loads
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.protocol.actions import Txn
from widen.table import Table, create_table


@pytest.fixture
def store(tmp_path: Path) -> LogStore:
    return create_table(str(tmp_path / "t"), "n int", properties={"delta.checkpointInterval": "3"}).store


def load(*names: str, records: int = 1) -> Load:
    files = tuple(LoadedFile(f"file:/landing/{name}", 10, 1000) for name in names)
    return Load(version=-1, loaded_ms=0, files=files, records=records)


def record(store: LogStore, what: Load, base: int | None = None, *, is_exclusive: bool = False) -> Outcome:
    """Commit a load on top of a version, by default the newest."""

    def commit_on(base: object, txn: Txn) -> Outcome:
        return commit(store, base, [txn], "WRITE", {}, staged=staged, max_attempts=1)  # type: ignore[arg-type]

    with StagedFiles() as staged:
        return record_loads.commit_with_loads(
            store, open_snapshot(store, base), what, commit_on, staged=staged, is_exclusive=is_exclusive
        )


def names(store: LogStore) -> list[tuple[int, list[str]]]:
    return [
        (load.version, [file.path.rpartition("/")[2] for file in load.files])
        for load in read_loads(open_snapshot(store))
    ]


def test_a_table_without_loads_has_no_record(store: LogStore) -> None:
    assert read_loads(None) == ()
    assert read_loads(open_snapshot(store)) == ()
    assert Table(store.location).loads() == []


def test_each_load_has_its_version_files_and_counts(store: LogStore) -> None:
    record(store, load("a", "b", records=7))
    Table(store.location).set_properties({"k": "v"})
    record(store, load("c"))
    assert names(store) == [(1, ["a", "b"]), (3, ["c"])]
    first = read_loads(open_snapshot(store))[0]
    assert (first.records, first.files[0]) == (7, LoadedFile("file:/landing/a", 10, 1000))
    assert first.loaded_ms > 1_600_000_000_000


def test_a_record_that_is_written_reads_back_equal(store: LogStore) -> None:
    hashed = Load(version=1, loaded_ms=2, files=(LoadedFile("/a", 1, 2, "aa"), LoadedFile("/b", 1, 2)))
    bad = Load(version=1, loaded_ms=2, files=(), bad_files=(LoadedFile("/c", 3, 4, "cc"), LoadedFile("/d", 5, 6)))
    segments = ("x", Segment("y", 2, b"/a", b"/b\xff", 7, 1, 2))
    whole = Record(number=3, loads=(load("a"), load("ü b"), hashed, bad), segments=segments)
    store.put(f"{FOLDER}/x1", encode_record(whole))
    assert RecordFolder(store).read("x1") == whole


def test_an_earlier_version_has_the_loads_of_its_time(store: LogStore) -> None:
    record(store, load("a"))
    record(store, load("b"))
    assert len(read_loads(open_snapshot(store, 1))) == 1


def test_the_record_survives_a_checkpoint_and_the_cleanup_of_the_log(store: LogStore) -> None:
    for name in "abcd":
        record(store, load(name))
    log = Path(store.location) / "_delta_log"
    assert (log / f"{3:020}.checkpoint.parquet").exists()
    for version in range(4):
        (log / f"{version:020}.json").unlink()
    assert [files for _, files in names(store)] == [["a"], ["b"], ["c"], ["d"]]


def test_many_loads_become_segments_that_are_read_in_order(store: LogStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_loads, "MAX_INLINE_FILES", 2)
    for number in range(16):
        record(store, load(str(number)))
        head = find_head(open_snapshot(store))
        assert head is not None
        assert len(RecordFolder(store).read(head).segments) <= 3
    assert [files for _, files in names(store)] == [[str(number)] for number in range(16)]


def test_old_records_are_deleted_and_needed_ones_stay(store: LogStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_loads, "MAX_INLINE_FILES", 3)
    monkeypatch.setattr(record_loads, "CLEANUP_EVERY", 4)
    monkeypatch.setattr(record_loads, "KEPT_MS", -60_000)
    for number in range(9):
        record(store, load(str(number)))
    assert [files for _, files in names(store)] == [[str(number)] for number in range(9)]
    assert len(list(store.list(FOLDER))) < 9


def test_two_ordinary_loads_at_the_same_time_are_both_recorded(store: LogStore) -> None:
    record(store, load("a"), 0)
    assert isinstance(record(store, load("b"), 0), Committed)
    assert names(store) == [(1, ["a"]), (2, ["b"])]


def test_a_load_that_depends_on_the_record_conflicts_with_another_load(store: LogStore) -> None:
    record(store, load("a"), 0)
    outcome = record(store, load("b"), 0, is_exclusive=True)
    assert isinstance(outcome, Conflicted)
    assert isinstance(outcome.error, ConcurrentTransaction)
    assert names(store) == [(1, ["a"])]
    assert len(list(store.list(FOLDER))) == 1


def test_a_load_that_depends_on_the_record_follows_another_change(store: LogStore) -> None:
    commit(store, open_snapshot(store), [Txn(app_id="other", version=1)], "WRITE", {}).or_raise()
    assert isinstance(record(store, load("b"), 0, is_exclusive=True), Committed)
    assert names(store) == [(2, ["b"])]


def test_an_interval_that_the_winner_has_written_is_not_committed_again(store: LogStore) -> None:
    interval = Txn(app_id="stream", version=5)
    staged = StagedFiles()

    def commit_on(base: object, txn: Txn) -> Outcome:
        return commit(store, base, [txn, interval], "WRITE", {}, staged=staged, max_attempts=1)  # type: ignore[arg-type]

    base = open_snapshot(store)
    for expected in (Committed, Conflicted):
        outcome = record_loads.commit_with_loads(
            store, base, load("a"), commit_on, staged=staged, is_exclusive=False, interval=interval
        )
        assert isinstance(outcome, expected)
    assert names(store) == [(1, ["a"])]


def test_a_missing_record_is_an_error_and_the_next_load_begins_a_new_one(store: LogStore) -> None:
    record(store, load("a"))
    store.delete([entry.path for entry in store.list(FOLDER)])
    with pytest.raises(CorruptLog, match="a part of the record of loads is missing"):
        read_loads(open_snapshot(store))
    record(store, load("b"))
    assert names(store) == [(2, ["b"])]


def test_a_damaged_record_is_an_error_that_names_it(store: LogStore) -> None:
    record(store, load("a"))
    entry = next(store.list(FOLDER))
    store.put(entry.path, b"nonsense")
    with pytest.raises(CorruptLog, match=entry.name):
        read_loads(open_snapshot(store))


def test_restore_brings_back_the_loads_of_that_version(store: LogStore) -> None:
    record(store, load("a"))
    record(store, load("b"))
    table = Table(store.location)
    table.restore(version=1)
    assert names(store) == [(1, ["a"])]
    table.restore(version=2)
    assert names(store) == [(1, ["a"]), (2, ["b"])]
    table.restore(version=0)
    assert names(store) == []


def test_restore_works_where_the_record_of_that_time_is_deleted(store: LogStore) -> None:
    record(store, load("a"))
    first = [entry.path for entry in store.list(FOLDER)]
    record(store, load("b"))
    store.delete(first)
    Table(store.location).restore(version=1)
    assert names(store) == [(1, ["a"])]


def test_spellings_of_a_path_are_the_same_file() -> None:
    spellings = ("file:/a/b%20c", "file:///a//b%20c", "/a/x/../b%20c")
    assert {LoadedFile(path, 1, 1).key for path in spellings} == {"/a/b%20c"}
    assert LoadedFile("file:/a/b c", 1, 1).key == "/a/b c"
    assert LoadedFile("s3a://x/y", 1, 1).key == LoadedFile("s3://x/y", 1, 1).key
