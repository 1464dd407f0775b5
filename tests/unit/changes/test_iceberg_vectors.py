"""Rows that deletion vectors mark: what PyIceberg, Widen and a model of the rows see after each change.

Source: Iceberg's table specification, "Deletion Vectors"; the Puffin specification
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile
from pyroaring import BitMap64

import widen
from widen.changes import iceberg_keys
from widen.errors import TableChanged, UnsupportedFeatureForWrite
from widen.iceberg import table_commit
from widen.iceberg.catalog import to_table_name
from widen.iceberg.metadata_files import first_row_ids, live_entries
from widen.iceberg.puffin import read_vectors

MODES = {f"write.{each}.mode": "merge-on-read" for each in ("delete", "update", "merge")}


@dataclass
class Rows:
    """A table, and what must be in it.

    Args:
        rows: The value of each row by its key.
        ids: The id of each row, and the number of the commit that changed it last, by its key.
        replaced: The keys of the rows that the last step added or replaced, which get new ids.
        updated: The keys of the rows that it updated, which keep their ids.
    """

    place: Path
    rng: random.Random
    rows: dict[int, str] = field(default_factory=dict)
    ids: dict[int, tuple[int, int]] = field(default_factory=dict)
    highest: int = -1
    replaced: set[int] = field(default_factory=set)
    updated: set[int] = field(default_factory=set)
    log: list[str] = field(default_factory=list)

    @property
    def table(self) -> widen.IcebergTable:
        return widen.IcebergTable("ns.t", self.place / "catalog.db")

    @property
    def opened(self) -> Any:
        return to_table_name("ns.t", self.place / "catalog.db").load()

    def load(self, keys: list[int], **options: Any) -> None:
        value = f"v{self.rng.randint(0, 10**6)}"
        path = self.place / f"{len(self.log)}.json"
        path.write_text("".join(json.dumps({"id": key, "p": key % 3, "v": value}) + "\n" for key in keys))
        self.log.append(f"load {keys} {options}")
        widen.ingest(str(path), "ns.t", catalog=self.place / "catalog.db", to="iceberg", verify=True, **options)
        self.rows |= dict.fromkeys(keys, value)
        self.replaced |= {*keys}

    def new_keys(self) -> list[int]:
        first = max(self.rows, default=0) + 1
        return [*range(first, first + self.rng.randint(1, 40))]

    def some(self) -> tuple[str, set[int]]:
        low = self.rng.randint(0, max(self.rows, default=1))
        high = low + self.rng.choice([0, 1, 5, 30])
        return f"id BETWEEN {low} AND {high}", {key for key in self.rows if low <= key <= high}

    def inserts(self) -> None:
        self.load(self.new_keys(), key=["id"])

    def upserts(self) -> None:
        self.load([*self.rng.sample([*self.rows], min(5, len(self.rows))), *self.new_keys()[:2]], key=["id"])

    def deletes(self) -> None:
        condition, keys = self.some()
        self.log.append(f"delete {condition}")
        assert self.table.delete(condition).metrics.get("numDeletedRows", 0) == len(keys)
        self.rows = {key: value for key, value in self.rows.items() if key not in keys}

    def updates(self) -> None:
        condition, keys = self.some()
        self.log.append(f"update {condition}")
        assert self.table.update({"v": "'new'"}, condition).metrics.get("numUpdatedRows", 0) == len(keys)
        self.rows |= dict.fromkeys(keys, "new")
        self.updated |= keys

    def optimizes(self) -> None:
        self.log.append("optimize")
        self.table.optimize()

    def sorts(self) -> None:
        self.log.append("sort")
        self.table.optimize(zorder_by=["v", "id"])

    def grows(self) -> None:
        """Add a column; a rewrite writes the files that lack it again."""
        self.log.append("add a column and rewrite")
        self.table.add_columns({f"c{len(self.log)}": {"type": "int", "default": "7"}})
        self.table.rewrite()

    def changes_mode(self) -> None:
        mode = self.rng.choice(["copy-on-write", "merge-on-read"])
        self.log.append(mode)
        self.table.set_properties(dict.fromkeys(MODES, mode))

    def check(self) -> None:
        said = "\n".join(self.log)
        ours = self.table.to_arrow().select(["id", "v"]).to_pylist()
        theirs = self.opened.scan(selected_fields=("id", "v")).to_arrow().to_pylist()
        for found in (ours, theirs):
            assert len(found) == len(self.rows), said
            assert {row["id"]: row["v"] for row in found} == self.rows, said
        assert len(self.vectors()) == len({*self.vectors()}), said

    def check_ids(self) -> None:
        """Compare the ids of rows with those before the last step."""
        said = "\n".join(self.log)
        found, now = self.lineage(), self.opened.current_snapshot().sequence_number
        assert found.keys() == self.rows.keys(), said
        assert len({number for number, _ in found.values()}) == len(found), said
        for key, (number, updated) in found.items():
            if key in self.replaced:
                assert (number > self.highest, updated) == (True, now), (key, said)
            else:
                before = self.ids[key]
                assert (number, updated) == (before[0], now if key in self.updated else before[1]), (key, said)
        self.ids, self.highest = found, max([self.highest, *(number for number, _ in found.values())])
        self.replaced, self.updated = set(), set()

    def lineage(self) -> dict[int, tuple[int, int]]:
        """The id and the number of the last change of each row by its key, as its file or the manifests say."""
        table, found, gone = self.opened, dict[int, tuple[int, int]](), dict[str, BitMap64]()
        for path in {each.file_path for each in self.deletes_listed()}:
            for file, rows in read_vectors(content_of(path), path):  # an older file may have fewer rows of a file
                gone[file] = gone.get(file, BitMap64()) | rows
        snapshot = table.current_snapshot()
        first = first_row_ids(table.metadata, table.io, snapshot, [""])
        for entry in live_entries(table.metadata, table.io, snapshot):
            path = entry.data_file.file_path
            for at, row in enumerate(pq.ParquetFile(path.removeprefix("file://")).read().to_pylist()):
                if at not in gone.get(path, ()):
                    number, updated = row.get("_row_id"), row.get("_last_updated_sequence_number")
                    number = first[path] + at if number is None else number
                    found[row["id"]] = number, entry.sequence_number if updated is None else updated
        return found

    def deletes_listed(self) -> list[Any]:
        table = self.opened
        listed = [each for each in table.current_snapshot().manifests(table.io) if each.content == 1]
        return [entry.data_file for each in listed for entry in each.fetch_manifest_entry(table.io)]

    def vectors(self) -> list[tuple[str, int]]:
        """The place of each vector of the newest snapshot."""
        paths = {each.file_path for each in self.deletes_listed()}
        return [(file, len(rows)) for path in paths for file, rows in read_vectors(content_of(path), path)]


def content_of(path: str) -> bytes:
    return Path(path.removeprefix("file://")).read_bytes()


def files_in(place: Path, ending: str) -> set[Path]:
    return {path for path in place.rglob(f"*{ending}") if "metadata" not in path.parts}


def new_table(place: Path, seed: int = 0, **options: Any) -> Rows:
    rows = Rows(place, random.Random(seed))
    rows.load([*range(1, 61)], key=["id"], format_version=3, **options)
    rows.table.set_properties(MODES)
    return rows


@pytest.mark.parametrize("seed", range(60 if os.environ.get("WIDEN_TEST_FAULTS") else 6))
def test_a_walk(tmp_path: Path, seed: int) -> None:
    rows = new_table(tmp_path, seed, **({"partition_by": ["p"]} if seed % 2 else {}))
    rows.check_ids()
    rng = rows.rng
    steps: list[Callable[[], None]] = [rows.inserts, rows.upserts, rows.deletes, rows.deletes, rows.updates]
    others = [rows.optimizes, rows.optimizes, rows.sorts, rows.grows, rows.changes_mode]
    for _ in range(int(os.environ.get("WIDEN_STEPS", "8"))):
        rng.choice([*steps, *steps, rng.choice(others)])()
        rows.check()
        rows.check_ids()


def test_files_stay_and_a_commit_has_one_puffin_file(tmp_path: Path) -> None:
    rows = new_table(tmp_path, partition_by=["p"])
    before = files_in(tmp_path, ".parquet")
    assert len(before) == 3
    rows.table.delete("id IN (1, 2, 3, 4)")
    assert files_in(tmp_path, ".parquet") == before
    assert len(files_in(tmp_path, ".puffin")) == 1
    assert sorted(each.record_count for each in rows.deletes_listed()) == [1, 1, 2]
    summary = rows.opened.current_snapshot().summary
    assert summary.operation.value == "delete"
    assert {name: summary[name] for name in ("added-dvs", "added-delete-files", "total-position-deletes")} == {
        "added-dvs": "3",
        "added-delete-files": "3",
        "total-position-deletes": "4",
    }


def test_a_file_that_loses_all_rows_goes(tmp_path: Path) -> None:
    rows = new_table(tmp_path)
    rows.table.delete("id < 50")
    assert rows.opened.current_snapshot().summary["total-delete-files"] == "1"
    rows.table.delete("id >= 50")
    assert rows.deletes_listed() == []
    assert rows.opened.scan().to_arrow().num_rows == 0
    assert rows.opened.current_snapshot().summary["total-delete-files"] == "0"


def test_a_second_vector_has_the_rows_of_the_first(tmp_path: Path) -> None:
    rows = new_table(tmp_path)
    rows.table.delete("id = 7")
    (first,) = rows.deletes_listed()
    rows.table.delete("id IN (9, 30)")
    (second,) = rows.deletes_listed()
    assert (first.record_count, second.record_count) == (1, 3)
    (vector,) = deletion_vectors_from_puffin_file(PuffinFile(content_of(second.file_path)))
    assert vector.to_vector().to_pylist() == [6, 8, 29]


def test_the_vectors_of_a_lost_race_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = new_table(tmp_path)
    commit, races = table_commit.IcebergTransaction.commit, [True]

    def lose(transaction: Any, staged: Any) -> Any:
        if races:
            races.pop()
            widen.IcebergTable("ns.t", tmp_path / "catalog.db").update({"v": "'theirs'"}, "id = 60")
        return commit(transaction, staged)

    monkeypatch.setattr(table_commit.IcebergTransaction, "commit", lose)
    try:
        rows.table.delete("id = 1")
    except TableChanged:
        pytest.fail("the deletion was not made again")
    kept = {Path(each.file_path.removeprefix("file://")) for each in rows.deletes_listed()}
    older = {path for path in files_in(tmp_path, ".puffin") if path not in kept}
    assert len(kept) == 1
    assert len(older) == 1  # of the update in between, which an older snapshot needs
    found = {row["id"]: row["v"] for row in rows.table.to_arrow().to_pylist()}
    assert 1 not in found
    assert found[60] == "theirs"


@pytest.mark.parametrize("mode", ["copy-on-write", "MERGE-ON-READ"])
def test_the_mode_of_each_statement_counts(tmp_path: Path, mode: str) -> None:
    rows = new_table(tmp_path)
    rows.table.set_properties({"write.delete.mode": mode, "write.update.mode": "copy-on-write"})
    rows.table.update({"v": "'x'"}, "id = 1")
    assert rows.deletes_listed() == []
    rows.table.delete("id = 1")
    assert len(rows.deletes_listed()) == (mode == "MERGE-ON-READ")


def test_no_vector_gets_a_rounded_partition(tmp_path: Path) -> None:
    rows = Rows(tmp_path, random.Random(0))
    path = tmp_path / "doubles.json"
    path.write_text('{"id": 1, "d": 0.1}\n{"id": 2, "d": 0.1}\n')
    widen.ingest(path, "ns.t", catalog=tmp_path / "catalog.db", to="iceberg", partition_by=["d"], format_version=3)
    rows.table.set_properties(MODES)
    with pytest.raises(UnsupportedFeatureForWrite, match="PyIceberg would round"):
        rows.table.delete("id = 1")
    assert files_in(tmp_path, ".puffin") == set()


def test_version_2_copies(tmp_path: Path) -> None:
    rows = Rows(tmp_path, random.Random(0))
    rows.load([1, 2, 3])
    rows.table.set_properties(MODES)
    rows.table.delete("id = 1")
    assert rows.deletes_listed() == []


def test_optimize_applies_the_vectors(tmp_path: Path) -> None:
    rows = new_table(tmp_path)
    rows.deletes()
    rows.updates()
    rows.upserts()
    rows.table.optimize()
    rows.check()
    assert rows.deletes_listed() == []
    assert files_in(tmp_path, ".puffin")


def test_a_proof_reads_the_rows_of_marked_files_as_each_version_has_them(tmp_path: Path) -> None:
    rows = new_table(tmp_path)
    path = tmp_path / "partial.json"
    path.write_text('{"id": 6, "p": 7}\n')
    place = tmp_path / "catalog.db"
    loaded = widen.ingest(path, "ns.t", catalog=place, to="iceberg", key=["id"], missing="keep", verify=True)
    assert loaded.verification is not None
    assert loaded.verification.is_clean, loaded.verification
    assert len(rows.deletes_listed()) == 1


def test_a_proof_notices_a_marked_row_of_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = new_table(tmp_path)
    mark = iceberg_keys.mark_deleted

    def mark_one_more(source: Any, writer: Any, scan: Any, deleted: Any, staged: Any) -> Any:
        return mark(source, writer, scan, {path: gone | BitMap64([40]) for path, gone in deleted.items()}, staged)

    monkeypatch.setattr(iceberg_keys, "mark_deleted", mark_one_more)
    path = tmp_path / "one.json"
    path.write_text('{"id": 6, "p": 7, "v": "x"}\n')
    loaded = widen.ingest(path, "ns.t", catalog=tmp_path / "catalog.db", to="iceberg", key=["id"], verify=True)
    assert loaded.verification is not None
    assert not loaded.verification.is_clean
    assert len(rows.table.to_arrow()) == 59


def test_a_replay_leaves_out_deleted_records_of_a_quarantine(tmp_path: Path) -> None:
    rows = new_table(tmp_path)
    path, place = tmp_path / "keyless.json", tmp_path / "catalog.db"
    path.write_text('{"v": "one"}\n{"v": "two"}\n{"v": "three"}\n')
    widen.ingest(path, "ns.t", catalog=place, to="iceberg", key=["id"])
    quarantine = widen.IcebergTable("ns.t_quarantine", place)
    quarantine.set_properties({"format-version": "3", **MODES})
    quarantine.delete("position = 2")
    assert len(files_in(tmp_path, ".puffin")) == 1
    replayed = widen.replay("ns.t_quarantine", "ns.t", catalog=place)
    assert (replayed.replayed, replayed.left) == (0, 2)
    left = quarantine.refresh().to_arrow()["text"].to_pylist()
    assert [json.loads(text) for text in left] == [{"v": "one"}, {"v": "three"}]
    assert len(rows.table.to_arrow()) == 60
