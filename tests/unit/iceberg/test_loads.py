"""The record of loads of an Iceberg table: which loads count after commits of others, rollbacks and expiry."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.table import Table

from widen.errors import CorruptMetadata
from widen.iceberg.catalog import TableName, to_table_name
from widen.iceberg.file_metrics import IcebergFile
from widen.iceberg.snapshots import FOLDER, LOADS, read_snapshot_loads, record_load
from widen.iceberg.table_commit import NewTable, open_transaction
from widen.log import loads as record_loads
from widen.log.commit_outcome import Conflicted, StagedFiles
from widen.log.loads import Load, LoadedFile
from widen.log.log_store import LogStore
from widen.model.types import LONG, Field, StructType

COLUMNS = StructType((Field("id", LONG),))


@pytest.fixture
def name(tmp_path: Path) -> TableName:
    return to_table_name("shop.orders", tmp_path / "c.db")


def commit(name: TableName, table: Table | None, file: str, *, is_load: bool = True) -> int | Conflicted:
    """Commit a data file to a version of a table, and record that it was loaded from a source file of that name."""
    transaction = open_transaction(name, table, (), NewTable(COLUMNS))
    with StagedFiles() as staged:
        data = IcebergFile(f"job/{file}.parquet", 9, '{"rows":1,"offsets":[4],"columns":{}}')
        transaction.add_snapshot([data], {})
        if is_load:
            snapshot = transaction.metadata.snapshot_by_id(transaction.snapshot_id or 0)
            assert snapshot is not None
            load = Load(version=-1, loaded_ms=0, files=(LoadedFile(f"file:/landing/{file}", 10, 1000),), records=1)
            transaction.set_properties(
                record_load(table, snapshot, LogStore(transaction.metadata.location), load, staged)
            )
        return transaction.commit(staged)


def add(name: TableName, *files: str) -> int:
    """Commit each file to the newest version, and return the id of the last snapshot."""
    for file in files:
        version = commit(name, name.find(), file)
        assert isinstance(version, int)
    return version


def loaded(name: TableName) -> list[str]:
    table = name.load()
    loads = read_snapshot_loads(table, LogStore(table.location()))
    snapshots = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in table.snapshots()}
    assert all(snapshots.get(load.version, load.loaded_ms) == load.loaded_ms for load in loads)
    return [file.path.rpartition("/")[2] for load in loads for file in load.files]


def records(name: TableName) -> int:
    return len(list(LogStore(name.load().location()).list(FOLDER)))


def test_every_load_is_in_the_record(name: TableName) -> None:
    add(name, "a", "b")
    commit(name, name.load(), "by others", is_load=False)
    add(name, "c")
    assert loaded(name) == ["a", "b", "c"]


def test_many_loads_become_segments(name: TableName, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_loads, "MAX_INLINE_FILES", 2)
    add(name, *"abcdefgh")
    assert loaded(name) == list("abcdefgh")


def test_the_record_of_a_lost_race_is_deleted(name: TableName) -> None:
    add(name, "a")
    table = name.load()
    add(name, "b")
    assert isinstance(commit(name, table, "c"), Conflicted)
    assert (loaded(name), records(name)) == (["a", "b"], 2)


def test_loads_that_were_rolled_back_do_not_count(name: TableName) -> None:
    first = add(name, "a")
    second = add(name, "b", "c")
    name.load().manage_snapshots().rollback_to_snapshot(first).commit()
    assert loaded(name) == ["a"]
    add(name, "d")
    assert loaded(name) == ["a", "d"]
    name.load().manage_snapshots().set_current_snapshot(snapshot_id=second).commit()
    assert loaded(name) == ["a", "b", "c"]  # the newest record names the one that it has replaced


def test_loads_whose_snapshots_have_expired_count_unless_they_were_rolled_back(name: TableName) -> None:
    add(name, "a")
    kept = add(name, "b")
    gone = add(name, "c")
    name.load().manage_snapshots().rollback_to_snapshot(kept).commit()
    table = name.load()
    others = [each.snapshot_id for each in table.snapshots() if each.snapshot_id != kept]
    assert gone in others
    table.maintenance.expire_snapshots().by_ids(others).commit()
    assert len(name.load().snapshots()) == 1
    assert loaded(name) == ["a", "b"]


@pytest.mark.parametrize("is_rolled_back", [True, False])
def test_a_load_counts_after_commits_of_others_unless_it_was_rolled_back(
    name: TableName, *, is_rolled_back: bool
) -> None:
    """The snapshot of the load and the one after it have expired, so that only older metadata knows what was before."""
    add(name, "a")
    kept = add(name, "b")
    gone = add(name, "c")
    if is_rolled_back:
        name.load().manage_snapshots().rollback_to_snapshot(kept).commit()
    between = commit(name, name.load(), "by others", is_load=False)
    last = commit(name, name.load(), "by others, too", is_load=False)
    table = name.load()
    others = [each.snapshot_id for each in table.snapshots() if each.snapshot_id != last]
    assert {gone, kept, between} < set(others)
    table.maintenance.expire_snapshots().by_ids(others).commit()
    assert loaded(name) == (["a", "b"] if is_rolled_back else ["a", "b", "c"])
    add(name, "d")
    assert loaded(name) == (["a", "b", "d"] if is_rolled_back else ["a", "b", "c", "d"])


def test_a_missing_record_is_an_error_and_the_next_load_begins_a_new_one(name: TableName) -> None:
    add(name, "a")
    store = LogStore(name.load().location())
    store.delete([entry.path for entry in store.list(FOLDER)])
    with pytest.raises(CorruptMetadata, match=r"The property widen\.loads of .* a part of the record of loads"):
        loaded(name)
    add(name, "b")
    assert loaded(name) == ["b"]


def test_a_number_that_is_not_one_is_refused(name: TableName) -> None:
    add(name, "a")
    with name.load().transaction() as change:
        change.set_properties({LOADS: "../../etc/passwd"})
    with pytest.raises(CorruptMetadata, match="is not a number"):
        loaded(name)
