"""Rows that change by key in Iceberg tables: one snapshot for each batch, files copied on write.

PyIceberg reads the tables, and the models are those of Delta tables.
"""

from __future__ import annotations

import itertools
import json
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyspark.sql import SparkSession

import widen
from engine.test_keys import HISTORIES, Keyed, Model, Record, drifting_records, record
from engine.test_row_versions import TIMES, Merged, Versions, partial_records, rows_by_key
from support.command_line import run
from support.iceberg_files import append_deletes, equality_deletes, field, position_deletes
from widen.errors import InvalidOption, OptionMissing, SequenceRepeated

NAME = "shop.status"


class IcebergKeyed(Keyed):
    """An Iceberg table by key, and a folder for its batches."""

    def __init__(self, spark: SparkSession, place: Path, *key: str, **words: Any) -> None:
        super().__init__(spark, place, *key, **words)
        self.location = NAME
        self.words = {"catalog": place / "catalog.db", "verify": True, **self.words}

    @property
    def iceberg(self) -> Table:
        return SqlCatalog("default", uri=f"sqlite:///{self.place}/catalog.db").load_table(NAME)

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        found = self.iceberg.scan(selected_fields=columns).to_arrow().to_pylist()
        return sorted((tuple(row[name] for name in columns) for row in found), key=repr)

    def load(self, records: list[Record], **words: Any) -> widen.IngestResult:
        """Ingest a batch; the proof must agree."""
        result = self.ingest(records, files=2, **words)
        proof = result.verification
        assert proof is not None
        assert proof.is_clean, (str(proof), proof.places)
        return result


@pytest.fixture
def keyed(spark: SparkSession, tmp_path: Path) -> IcebergKeyed:
    return IcebergKeyed(spark, tmp_path, "id")


def test_the_newest_record_of_a_key_wins_in_one_snapshot(keyed: IcebergKeyed) -> None:
    first = keyed.load([record(1, 5, 1), record(1, 7, 2), record(2, 1, 3), record(1, 6, 4)])
    assert str(first.keys) == "2 inserted, 0 updated, 0 deleted, 2 late"
    assert keyed.rows("id", "n") == [(1, 2), (2, 3)]
    second = keyed.load([record(1, 6, 5), record(2, 2, 6), record(3, 1, 7), record(9, 9, 9, "d")])
    assert str(second.keys) == "1 inserted, 1 updated, 0 deleted, 1 late, 1 deletion of an unknown key"
    third = keyed.load([record(3, 2, 8, "d"), record(9, 8, 9), record(2**40, 1, 10, value="new")])
    assert str(third.keys) == "1 inserted, 0 updated, 1 deleted, 1 late"
    assert keyed.rows("id", "n") == [(1, 2), (2**40, 10), (2, 6)]
    table = keyed.iceberg
    assert len(table.snapshots()) == 3
    summary = table.current_snapshot().summary.additional_properties
    assert "widen.keyed-rows" in summary
    late = keyed.load([record(3, 1, 11), record(None, 1, 12)])
    assert late.keys is not None
    assert (late.keys.late, late.quarantined) == (1, 1)
    assert keyed.numbers() == [2, 6, 10]


def test_a_strict_ingestion_refuses_equal_sequences(keyed: IcebergKeyed) -> None:
    keyed.load([record(1, 5, 1), record(2, 5, 2)])
    for records in ([record(1, 5, 3)], [record(3, 1, 4), record(3, 1, 5)]):
        with pytest.raises(SequenceRepeated):
            keyed.ingest(records, strict=True)
    keyed.load([record(1, 5, 1), record(1, 6, 6)], strict=True)
    assert keyed.numbers() == [2, 6]


def test_a_table_by_key_refuses_other_keys_and_bare_records(keyed: IcebergKeyed) -> None:
    keyed.load([record(1, 1, 1)])
    with pytest.raises(OptionMissing, match="one row for each id"):
        widen.ingest(keyed.batch([record(1, 1, 1)]), NAME, catalog=keyed.words["catalog"], spark=keyed.spark)
    for words in ({"key": ["n"]}, {"sequence_by": "n"}, {"history": True}):
        with pytest.raises(InvalidOption, match=r"widen\.keys"):
            keyed.ingest([record(1, 1, 1)], **words)


def test_a_key_may_move_to_another_partition(keyed: IcebergKeyed) -> None:
    first = [record(1, 1, 1, day="mon"), record(2, 1, 2, day="mon"), record(3, 1, 3, day="tue")]
    keyed.load(first, partition_by=["day"])
    keyed.load([record(1, 2, 4, day="tue"), record(2, 2, 5, "d", day="wed")])
    assert keyed.rows("id", "n", "day") == [(1, 4, "tue"), (3, 3, "tue")]


def test_new_files_replays_and_intervals_are_loaded_once(keyed: IcebergKeyed) -> None:
    source = keyed.batch([record(1, 1, 1), {"id": 2, "n": 2, "op": "u"}])
    for is_repeated in (False, True):
        words = {**keyed.words, "txn": ("app", 1)}
        assert widen.ingest(source, NAME, spark=keyed.spark, **words).is_repeated is is_repeated
    loaded = widen.ingest(source, NAME, new=True, spark=keyed.spark, **keyed.words)
    assert loaded.is_unchanged
    replayed = widen.replay(f"{NAME}_quarantine", NAME, catalog=keyed.words["catalog"], spark=keyed.spark)
    assert (replayed.replayed, replayed.left) == (0, 1)
    assert keyed.numbers() == [1]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("position", {}),
        ("equality", {"missing": "keep"}),
        ("equality", {"history": True}),
        ("both", {}),
        ("both", {"history": True}),
    ],
    ids=str,
)
def test_rows_that_other_writers_have_deleted_are_no_rows_of_their_keys(
    spark: SparkSession, tmp_path: Path, kind: str, words: dict[str, Any]
) -> None:
    """Position deletes and equality deletes of others count, for what a batch does and for its proof."""
    keyed = IcebergKeyed(spark, tmp_path, "id", **words)
    keyed.load([record(key, 5, key, more=key) for key in range(1, 7)])
    table = keyed.iceberg
    if kind != "equality":
        append_deletes(table, position_deletes(table, [place_of(table, 1), place_of(table, 2)]))
    if kind != "position":
        column, key = next((each.field_id, each.name) for each in table.schema().fields if each.name == "id")
        gone = [{"id": each} for each in ((1, 2) if kind == "equality" else (3,))]
        columns = [field(key, table.schema().as_arrow().field("id").type, column)]
        append_deletes(table, equality_deletes(table, columns, gone, [column]))
    left = [4, 5, 6] if kind == "both" else [3, 4, 5, 6]
    assert sorted(row["n"] for row in read(keyed, kind)) == left
    # Key 1 comes back with a record that is older than its deleted row, 2 with a newer one; a deletion finds no row.
    done = keyed.load([record(1, 4, 11), record(2, 6, 12), record(4, 4, 14), record(5, 6, 15), record(6, 6, 0, "d")])
    again = keyed.load([record(1, 4, 11), record(2, 6, 12), record(4, 4, 14), record(5, 6, 15), record(6, 6, 0, "d")])
    assert done.keys is not None
    assert again.keys is not None
    kept = {3: 3} if 3 in left else {}
    if "history" in words:
        versions = {**kept, 1: 11, 2: 12, 4: 4, 5: 15}
        found = read(keyed, kind)
        assert {row["id"]: row["n"] for row in found if row["_is_current"]} == versions
        assert sorted(row["n"] for row in found) == sorted([*versions.values(), 5, 6, 14])
        return
    rows = {row["id"]: row for row in read(keyed, kind)}
    assert {key: row["n"] for key, row in rows.items()} == {**kept, 1: 11, 2: 12, 4: 4, 5: 15}
    assert str(done.keys) == "2 inserted, 1 updated, 1 deleted, 1 late"
    assert str(again.keys) == "0 inserted, 0 updated, 0 deleted, 5 late"
    if "missing" in words:
        # Nothing of the deleted rows is kept.
        assert [rows[key]["more"] for key in (1, 2, 5)] == [None, None, 5]


def read(keyed: IcebergKeyed, kind: str) -> list[Any]:
    """Return the rows as PyIceberg reads them; it reads no table with equality deletes, which Widen does."""
    if kind == "position":
        found: list[Any] = keyed.iceberg.scan().to_arrow().to_pylist()
        return found
    done = run("read", NAME, "--catalog", str(keyed.words["catalog"]), "--json")
    return [json.loads(line) for line in done.stdout.splitlines()]


def place_of(table: Table, key: int) -> tuple[Path, int]:
    """Return the file of the row of a key, and its position."""
    for file in table.inspect.files().to_pylist():
        path = Path(file["file_path"].removeprefix("file://"))
        found = pq.read_table(path, columns=["id"])["id"].to_pylist() if file["content"] == 0 else []
        if key in found:
            return path, found.index(key)
    raise KeyError(key)


def test_two_ingestions_at_once_never_leave_two_rows_of_a_key(keyed: IcebergKeyed) -> None:
    keyed.load([record(0, 0, 0)])
    sources = [keyed.batch([record(key, writer, 10 * writer + key) for key in range(5)]) for writer in (1, 2, 3)]

    def load(source: str) -> None:
        widen.ingest(source, NAME, spark=keyed.spark, **keyed.words)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(load, sources))
    assert keyed.numbers() == [30, 31, 32, 33, 34]


def test_generated_histories_end_as_the_model_says(spark: SparkSession, tmp_path: Path) -> None:
    dice, model, number = random.Random("iceberg"), Model("h", "id"), itertools.count()
    keyed = IcebergKeyed(spark, tmp_path, "h", "id")
    for batch in range(4):
        records = drifting_records(dice, HISTORIES, batch, number)
        expected, result = model.add(records), keyed.load(records)
        assert result.keys is not None
        counts = result.keys.to_value()
        assert [counts[name] for name in ("inserted", "updated", "deleted")] == [
            expected[name] for name in ("inserted", "updated", "deleted")
        ]
        assert keyed.numbers() == sorted(model.rows().values())


def test_generated_histories_have_every_version(spark: SparkSession, tmp_path: Path) -> None:
    dice, model, number = random.Random("iceberg versions"), Versions("h", "id"), itertools.count()
    keyed = IcebergKeyed(spark, tmp_path, "h", "id", history=True)
    for batch in range(4):
        records = drifting_records(dice, HISTORIES, batch, number)
        new, result = model.add(records), keyed.load(records)
        assert result.keys is not None
        assert result.keys.late == result.records - new
        assert keyed.rows("n", *TIMES) == sorted(model.rows(), key=repr)


def test_generated_partial_records_end_as_the_model_says(spark: SparkSession, tmp_path: Path) -> None:
    dice, model, number = random.Random("iceberg partial"), Merged(), itertools.count()
    keyed = IcebergKeyed(spark, tmp_path, "id", missing="keep")
    for batch in range(4):
        records = partial_records(dice, HISTORIES, batch, number)
        model.add(records)
        keyed.load(records)
        assert rows_by_key(keyed.iceberg.scan().to_arrow().to_pylist()) == model.rows()
