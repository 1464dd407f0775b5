"""Loads that fail after their records are in the quarantine, and cannot undo that: a repeat doubles nothing.

A disk that stays full, or a process that is killed, leaves the commit to the quarantine behind.
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.table import Transaction

import widen
from support.iceberg_files import embedded_catalog
from widen import ingest
from widen.errors import StorageError, WidenError
from widen.iceberg.catalog import to_table_name
from widen.ingestion import commit_batch

_FIX = "Nothing was committed. Repeat the call."


class Place:
    """A table, its quarantine, and a disk that becomes full as soon as a load has written its quarantined records."""

    def __init__(self, folder: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.kind, self.words = folder, kind, dict[str, Any]()
        self.becomes_full = self.is_full = False
        if kind.startswith("iceberg"):
            self.catalog = embedded_catalog(folder)
            self.words["catalog"] = folder / "catalog.db"
            widen.sql("CREATE TABLE shop.t (id BIGINT NOT NULL) USING iceberg", catalog=folder / "catalog.db")
        else:
            widen.create_table(str(folder / "t"), "id bigint NOT NULL")
        if not kind.endswith("append"):
            self.words["key"] = ["id"]
        write, commit = commit_batch._write_quarantine, Transaction.commit_transaction

        def write_quarantine(*arguments: Any) -> Any:
            done = write(*arguments)
            self.is_full = self.becomes_full
            return done

        def commit_transaction(transaction: Transaction) -> Any:
            self.ensure_space()
            return commit(transaction)

        from widen.targets import delta, delta_quarantine

        commit_delta = delta.commit

        def commit_log(*arguments: Any, **words: Any) -> Any:
            try:
                self.ensure_space()
            except OSError as error:
                raise StorageError(location=str(folder), reason=error.strerror, fix=_FIX) from error
            return commit_delta(*arguments, **words)

        monkeypatch.setattr(commit_batch, "_write_quarantine", write_quarantine)
        monkeypatch.setattr(Transaction, "commit_transaction", commit_transaction)
        for module in (delta, delta_quarantine):
            monkeypatch.setattr(module, "commit", commit_log)

    def ensure_space(self) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    @property
    def target(self) -> str:
        return "shop.t" if self.kind.startswith("iceberg") else str(self.folder / "t")

    def file(self, number: int) -> str:
        path = self.folder / f"{number}.jsonl"
        if not path.exists():
            path.write_text(json.dumps({"id": number}) + "\n" + json.dumps({"note": f"bad {number}"}) + "\n")
        return str(path)

    def load(self, number: int, **words: Any) -> None:
        ingest(self.file(number), self.target, engine="local", **{**self.words, **words})

    def fail(self, number: int, **words: Any) -> WidenError:
        self.becomes_full = True
        with pytest.raises(WidenError) as failed:
            self.load(number, **words)
        self.becomes_full = self.is_full = False
        return failed.value

    def rows(self, suffix: str = "") -> pa.Table:
        if self.kind.startswith("iceberg"):
            return self.catalog.load_table(f"{self.target}{suffix}").scan().to_arrow()
        return DeltaTable(f"{self.target}{suffix}").to_pyarrow_table()

    @property
    def quarantined(self) -> list[str]:
        return sorted(text[-7:-2] for text in self.rows("_quarantine")["text"].to_pylist())

    @property
    def ids(self) -> list[int]:
        return sorted(self.rows()["id"].to_pylist())


@pytest.fixture(params=["delta", "iceberg", "delta append", "iceberg append"])
def place(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    return Place(tmp_path, request.param, monkeypatch)


def test_a_repeated_load_does_not_double_the_quarantine(place: Place) -> None:
    place.load(1)
    for _ in range(2):
        error = place.fail(2)
        assert "Nothing was committed" not in str(error)
        assert f"{place.target}_quarantine, from an earlier step of the call, is committed" in str(error)
    assert (place.ids, place.quarantined) == ([1], ["bad 1", "bad 2"])
    place.load(2)
    assert (place.ids, place.quarantined) == ([1, 2], ["bad 1", "bad 2"])


def test_new_files_after_a_load_by_name_that_failed(place: Place) -> None:
    place.load(1)
    place.fail(2)
    place.load(2, new=True)
    assert (place.ids, place.quarantined) == ([1, 2], ["bad 1", "bad 2"])


def test_a_file_that_is_loaded_twice_is_quarantined_twice(place: Place) -> None:
    expected = [1] if "key" in place.words else [1, 1]
    place.load(1)
    place.fail(1)
    assert place.quarantined == ["bad 1", "bad 1"]
    place.fail(1)
    place.load(1)
    assert (place.ids, place.quarantined) == (expected, ["bad 1", "bad 1"])


def test_a_load_that_fails_with_a_disk_that_recovers_leaves_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.load(1)
    undo = commit_batch._undo_quarantine

    def recover(*arguments: Any) -> None:
        place.is_full = False
        undo(*arguments)

    monkeypatch.setattr(commit_batch, "_undo_quarantine", recover)
    error = place.fail(2)
    assert error.committed is None
    assert place.quarantined == ["bad 1"]


def test_a_plan_makes_no_namespace(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id":1,"at":1}\n{"at":2,"v":"x"}\n')
    words: dict[str, Any] = {"catalog": tmp_path / "c.db", "key": ["id"], "sequence_by": "at", "engine": "local"}
    planned = widen.plan(tmp_path / "a.json", "shop.t", **words)
    assert to_table_name("shop.t", tmp_path / "c.db").catalog.open().list_namespaces() == []
    done = widen.ingest(tmp_path / "a.json", "shop.t", **words)
    assert (done.quarantined, done.plan.hash) == (1, planned.hash)
