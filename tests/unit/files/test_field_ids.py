"""Without Spark, columns of files are found by their field ids at every depth, whatever their names are.

Source: PROTOCOL.md#reader-requirements-for-column-mapping
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import widen
from support.field_ids import add_shuffled_file
from widen.errors import CorruptFile
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.spark import engine, session

SCHEMA = "id int, n int, who struct<a: int, b: int>, items array<struct<x: int, y: int>>"
FOREIGN: list[Any] = [
    (1, 10, (100, 200), [(5, 6), None]),
    (2, 20, (101, None), []),
    (3, 30, None, None),
]
"""Rows of a file in which each column has the name of another one."""

OURS = {"id": 4, "n": 40, "who": {"a": 102, "b": 202}, "items": [{"x": 9, "y": 8}]}
FEED = {"delta.enableChangeDataFeed": "true"}
LAYOUTS = {"rewritten": {}, "with changes": FEED, "vectors": {"delta.enableDeletionVectors": "true"}}


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIDEN_ENGINE", "local")
    for module in (session, engine):
        monkeypatch.setattr(module, "find_active", lambda: None)


def load(folder: Path, *records: dict[str, Any], **options: Any) -> widen.IngestResult:
    (folder / "in.jsonl").write_text("".join(f"{json.dumps(each)}\n" for each in records))
    return widen.ingest(folder / "in.jsonl", folder / "table", **options)


def make_table(folder: Path, suffix: str = "", **properties: str) -> widen.Table:
    """Return a table with a file of other names; with a suffix, no column has the name of another one."""
    given = {"delta.columnMapping.mode": "id", "delta.enableTypeWidening": "true", **properties}
    widen.create_table(str(folder / "table"), SCHEMA, properties=given)
    load(folder, OURS, verify=True)
    add_shuffled_file(str(folder / "table"), FOREIGN, "foreign.parquet", suffix=suffix)
    return widen.Table(str(folder / "table"))


def rows(table: widen.Table) -> list[dict[str, Any]]:
    return sorted(table.refresh().to_arrow().to_pylist(), key=lambda row: row["id"])


EXPECTED = [
    {"id": 1, "n": 10, "who": {"a": 100, "b": 200}, "items": [{"x": 5, "y": 6}, None]},
    {"id": 2, "n": 20, "who": {"a": 101, "b": None}, "items": []},
    {"id": 3, "n": 30, "who": None, "items": None},
    OURS,
]


@pytest.mark.parametrize("suffix", ["", "_x"])
def test_columns_are_found_by_their_ids(tmp_path: Path, suffix: str) -> None:
    table = make_table(tmp_path, suffix)
    assert rows(table) == EXPECTED
    assert table.to_arrow("who.b = 200").to_pylist() == EXPECTED[:1]
    (ours,) = (tmp_path / "table").glob("*/*.parquet")
    ids = {int(field.metadata[b"PARQUET:field_id"]) for field in pq.read_schema(ours)}
    schema = open_snapshot(LogStore(table.location)).schema
    assert ids == {field.metadata["delta.columnMapping.id"] for field in schema}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_are_changed(tmp_path: Path, layout: str) -> None:
    table = make_table(tmp_path, **LAYOUTS[layout])
    assert table.delete("who.b = 200").metrics["numDeletedRows"] == 1
    table.refresh().update({"n": "n + 1"}, "id IN (2, 4)")
    assert rows(table) == [{**EXPECTED[1], "n": 21}, EXPECTED[2], {**OURS, "n": 41}]


def test_files_are_rewritten_in_new_types(tmp_path: Path) -> None:
    table = make_table(tmp_path).alter_columns({path: {"type": "bigint"} for path in ("n", "items.element.y")})
    assert {(old.path, old.files) for old in table.old_types()} == {(("n",), 2), (("items", "element", "y"), 2)}
    assert rows(table) == EXPECTED
    table.rewrite()
    assert table.refresh().old_types() == []
    assert rows(table) == EXPECTED


def test_records_are_loaded_by_key_and_verified(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    first = load(tmp_path, {"id": 1, "n": 11}, {"id": 9, "n": 90}, key=["id"], sequence_by="n", verify=True)
    assert first.keys is not None
    assert (first.keys.inserted, first.keys.updated) == (1, 1)
    wider = load(tmp_path, {"id": 4, "n": 2**40, "new": True}, key=["id"], sequence_by="n", verify=True)
    assert wider.verification is not None
    found = {row["id"]: row for row in rows(table)}
    assert [found[number]["n"] for number in (1, 2, 3, 4, 9)] == [11, 20, 30, 2**40, 90]
    assert found[2]["who"] == {"a": 101, "b": None}


def test_a_file_without_ids_is_refused(tmp_path: Path) -> None:
    table = make_table(tmp_path)
    add_shuffled_file(str(tmp_path / "table"), FOREIGN, "no_ids.parquet", ids=False)
    with pytest.raises(CorruptFile, match=r"no_ids\.parquet.*has no field ids"):
        table.refresh().to_arrow()
