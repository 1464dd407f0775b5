"""Rows that change: the newest record of each key, whatever order they arrive in and whatever the schema becomes.

The model of these tests is written from the promise alone: a dict from key to the newest record.
"""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import widen
from support.command_line import run
from support.fault import FULL
from widen.errors import InvalidCondition, InvalidOption, KeyRepeated, OptionMissing, SequenceRepeated, UnmatchedFields
from widen.spark.engine import Unsupported, require_spark
from widen.table import Table, create_table
from widen.verification.keyed_proof_frames import KeyedProof
from widen.verification.records import Side, Verification

Record = dict[str, Any]


def model_key(value: object) -> tuple[str, object]:
    """A key by kind and value: numbers are equal by value, texts by their characters, and no text is a number."""
    if isinstance(value, bool):
        return "boolean", value
    if isinstance(value, (int, float, Decimal)):
        return "number", Fraction(str(value))
    return type(value).__name__, value


class Model:
    """What a table by key must hold: for each key the newest record, unless that one deletes."""

    def __init__(self, *fields: str) -> None:
        self.fields, self.newest = fields, dict[Any, Record]()
        self.kept_out = 0

    def key(self, record: Record) -> Any:
        return tuple(model_key(record.get(field)) for field in self.fields)

    def add(self, records: Iterable[Record]) -> dict[str, int]:
        """Take a batch, and return what it does: rows before and after, compared by key."""
        before = self.rows()
        taken = 0
        for record in records:
            if any(record.get(field) is None for field in (*self.fields, "at")):
                self.kept_out += 1
                continue
            taken += 1
            known = self.newest.get(self.key(record))
            if known is None or record["at"] > known["at"]:
                self.newest[self.key(record)] = record
        after = self.rows()
        counts = {
            "inserted": len(after.keys() - before.keys()),
            "updated": sum(after[key] != before[key] for key in after.keys() & before.keys()),
            "deleted": len(before.keys() - after.keys()),
        }
        return {**counts, "records": taken}

    def rows(self) -> dict[Any, int]:
        """The number of the newest record of each key that has a row."""
        return {key: record["n"] for key, record in self.newest.items() if record["op"] != "d"}


class Keyed:
    """A table by key, and a folder for its batches."""

    def __init__(self, spark: SparkSession, place: Path, *key: str, **words: Any) -> None:
        self.spark, self.place, self.number = spark, place, itertools.count()
        self.location = str(place / "t")
        defaults = {"key": [*key], "sequence_by": "at", "delete_when": "op = 'd'"}
        self.words = {name: value for name, value in (defaults | words).items() if value is not None}

    def batch(self, records: Iterable[Record | str], files: int = 1) -> str:
        folder = self.place / f"batch{next(self.number)}"
        folder.mkdir()
        lines = [each if isinstance(each, str) else json.dumps(each) for each in records]
        for part in range(files):
            (folder / f"{part}.json").write_text("".join(f"{line}\n" for line in lines[part::files]))
        return str(folder)

    def ingest(self, records: Iterable[Record | str], files: int = 1, **words: Any) -> widen.IngestResult:
        return widen.ingest(self.batch(records, files), self.location, spark=self.spark, **{**self.words, **words})

    @property
    def table(self) -> Table:
        return Table(self.location)

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        return sorted((tuple(row) for row in self.table.read(spark=self.spark).select(*columns).collect()), key=repr)

    def numbers(self) -> list[int]:
        return sorted(row[0] for row in self.rows("n"))


@pytest.fixture
def keyed(spark: SparkSession, tmp_path: Path) -> Keyed:
    return Keyed(spark, tmp_path, "id")


def record(key: object, at: object, n: int, op: str = "u", **more: object) -> Record:
    return {"id": key, "at": at, "n": n, "op": op, **more}


def test_the_newest_record_of_a_key_wins(keyed: Keyed) -> None:
    first = keyed.ingest([record(1, 5, 1), record(1, 7, 2), record(2, 1, 3), record(1, 6, 4)], files=2)
    assert first.keys is not None
    assert first.keys.to_value() == {"inserted": 2, "updated": 0, "deleted": 0, "unknownDeletes": 0, "late": 2}
    assert keyed.rows("id", "n") == [(1, 2), (2, 3)]
    second = keyed.ingest([record(1, 6, 5), record(2, 2, 6), record(3, 1, 7)])
    assert str(second.keys) == "1 inserted, 1 updated, 0 deleted, 1 late"
    assert keyed.rows("id", "n") == [(1, 2), (2, 6), (3, 7)]
    (merge, *_) = keyed.table.history()
    assert merge.operation == "MERGE"


def test_a_key_is_the_field_that_the_first_records_have_in_any_case(keyed: Keyed) -> None:
    keyed.ingest([record(1, 1, 1), record(2, 1, 2)], key=["ID"], sequence_by="At")
    other = keyed.ingest([{"ID": 1, "at": 2, "n": 3, "op": "u"}], key=["ID"], sequence_by="AT")
    assert (other.records, other.quarantined) == (1, 0)
    same = keyed.ingest([record(1, 3, 4)], key=["Id"])
    assert str(same.keys) == "0 inserted, 1 updated, 0 deleted, 0 late"
    assert keyed.rows("id", "n") == [(1, 4), (2, 2)]
    assert json.loads(keyed.table.properties["widen.keys"])["key"] == ["id"]
    with pytest.raises(InvalidOption, match="one row for each id"):
        keyed.ingest([record(1, 4, 5)], key=["n"])


def test_a_late_record_does_not_bring_a_deleted_row_back(keyed: Keyed) -> None:
    keyed.ingest([record(1, 1, 1), record(2, 1, 2)])
    deletes = keyed.ingest([record(1, 5, 3, "d"), record(9, 5, 4, "d")])
    assert deletes.keys is not None
    assert (deletes.keys.deleted, deletes.keys.unknown_deletes) == (1, 1)
    late = keyed.ingest([record(1, 4, 5), record(9, 4, 6), record(1, 5, 7)])
    assert late.keys is not None
    assert (late.keys.inserted, late.keys.late) == (0, 3)
    assert keyed.numbers() == [2]
    keyed.ingest([record(1, 6, 8), record(9, 3, 9)])
    assert keyed.numbers() == [2, 8]
    # A restore brings the row back, and does not forget the deletion.
    keyed.table.restore(0)
    keyed.ingest([record(1, 5, 10), record(9, 5, 11)])
    assert keyed.numbers() == [1, 2]
    keyed.ingest([record(1, 7, 12)])
    assert keyed.numbers() == [2, 12]


def test_deletions_are_remembered_through_many_batches_and_checkpoints(
    keyed: Keyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("widen.changes.deleted_keys.MAX_LISTS", 2)
    create_table(keyed.location, "id bigint", properties={"delta.checkpointInterval": "2"})
    for number in range(5):
        keyed.ingest([record(number, 5, number, "d"), record(100, number, number)])
    keyed.ingest([record(number, 4, 100 + number) for number in range(5)])
    assert keyed.numbers() == [4]
    lists = [*(keyed.place / "t" / "_delta_log" / "_widen" / "keys").glob("*/*.parquet")]
    assert len(lists) >= 5
    keyed.table.vacuum(retention_hours=0, force=True)
    keyed.ingest([record(number, 5, 200 + number) for number in range(5)])
    assert keyed.numbers() == [4]


def test_equal_sequences_have_one_winner_in_every_order(spark: SparkSession, tmp_path: Path) -> None:
    records = [record(1, 5, n) for n in (3, 10, 7)]
    winners = set()
    for number, order in enumerate(itertools.permutations(records)):
        place = tmp_path / str(number)
        place.mkdir()
        keyed = Keyed(spark, place, "id")
        if number % 2:
            keyed.ingest(order, files=3)
        else:
            keyed.ingest(order[:1])
            keyed.ingest(order[1:])
        winners.add(tuple(keyed.numbers()))
    assert winners == {(7,)}  # the largest text of the three
    keyed.ingest([record(1, 5, 9), record(1, 5, 1, "d"), record(2, 5, 9), record(2, 5, 1, "d")])
    assert keyed.numbers() == []


def leave_to_spark(*_: object) -> None:
    """Have Spark read the files of a load, as if Arrow could not."""
    raise Unsupported("Arrow cannot read them")


def refused_strictly(keyed: Keyed, *records: Record) -> bool:
    """Whether a strict ingestion refuses a batch because of equal sequences, and then has changed nothing."""
    before = keyed.table.version
    try:
        keyed.ingest(records, strict=True)
    except SequenceRepeated:
        assert keyed.table.version == before
        return True
    return False


@pytest.mark.parametrize("decides", ["arrow", "spark"])
def test_a_strict_ingestion_refuses_equal_sequences(
    keyed: Keyed, monkeypatch: pytest.MonkeyPatch, decides: str
) -> None:
    if decides == "spark":  # Spark reads the files
        monkeypatch.setattr("widen.changes.keyed_load._decide", leave_to_spark)
    keyed.ingest([record(1, 5, 1), record(2, 5, 2), record(3, 5, 3)])
    keyed.ingest([record(3, 6, 4, "d")])
    # Two newest records, one beside the row, beside its deletion; a deletion beside a row.
    assert refused_strictly(keyed, record(4, 1, 5), record(4, 1, 6))
    assert refused_strictly(keyed, record(1, 5, 7))
    assert refused_strictly(keyed, record(3, 6, 8))
    assert refused_strictly(keyed, record(2, 5, 9, "d"))
    assert refused_strictly(keyed, record(4, 1, 5, "d"), record(4, 1, 6))
    # The same records once more, deletions of one time, and equal sequences that are both too old.
    assert not refused_strictly(
        keyed, record(1, 5, 1), record(3, 6, 10, "d"), record(5, 1, 1, "d"), record(5, 1, 2, "d")
    )
    assert not refused_strictly(keyed, record(1, 4, 11), record(1, 4, 12), record(6, 1, 13), record(6, 2, 14))
    assert keyed.numbers() == [1, 2, 14]


@pytest.mark.parametrize(
    ("words", "decides"),
    [({"history": True}, "arrow"), ({"history": True}, "spark"), ({"missing": "keep"}, "arrow")],
)
def test_every_equal_sequence_counts_where_every_record_does(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: dict[str, Any], decides: str
) -> None:
    if decides == "spark":
        monkeypatch.setattr("widen.changes.keyed_load._decide", leave_to_spark)
    keyed = Keyed(spark, tmp_path, "id", **words)
    keyed.ingest([record(1, 5, 1)])
    assert refused_strictly(keyed, record(1, 7, 2), record(1, 7, 3), record(1, 8, 4))
    assert refused_strictly(keyed, record(1, 5, 5)) == ("history" in words)
    assert not refused_strictly(keyed, record(1, 7, 2), record(1, 7, 2), record(1, 5, 1))


def test_without_a_sequence_the_last_batch_wins(spark: SparkSession, tmp_path: Path) -> None:
    keyed = Keyed(spark, tmp_path, "id", sequence_by=None)
    keyed.ingest([record(1, 9, 1), record(1, 9, 1), record(2, 9, 2)])
    assert keyed.numbers() == [1, 2]
    keyed.ingest([record(1, 1, 3), record(2, 1, 4, "d")])
    assert keyed.numbers() == [3]
    with pytest.raises(KeyRepeated, match="1 keys") as refused:
        keyed.ingest([record(1, 1, 5), record(1, 2, 6), record(2, 1, 7)])
    assert "sequence_by" in str(refused.value)
    assert keyed.numbers() == [3]
    assert keyed.table.version == 1


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_times_that_differ_by_a_microsecond_are_different(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """Also where Spark compares records: only it has doubles as keys."""
    properties = {"delta.feature.timestampNtz": "supported"} if kind == "timestamp_ntz" else {}
    create_table(str(tmp_path / "t"), f"id double, at {kind}", properties=properties)
    zone = "Z" if kind == "timestamp" else ""
    for number in (1, 2):
        (tmp_path / "a.json").write_text(f'{{"id": 1.5, "at": "2024-01-01T00:00:00.00000{number}{zone}"}}\n')
        result = widen.ingest(tmp_path / "a.json", tmp_path / "t", key=["id"], spark=spark)
    assert str(result.keys) == "0 inserted, 1 updated, 0 deleted, 0 late"
    (at,) = Table(tmp_path / "t").to_arrow()["at"].cast("timestamp[us]").to_pylist()
    assert at.microsecond == 2


def test_records_that_have_no_key_or_no_order_are_quarantined(keyed: Keyed) -> None:
    nested = [record([1], 1, 5), record({"x": 1}, 1, 6)]
    result = keyed.ingest(
        [record(1, 1, 1), record(None, 1, 2), {"at": 1, "n": 3, "op": "u"}, record(4, None, 4), "oops", *nested]
    )
    assert (result.records, result.quarantined) == (1, 6)
    assert keyed.numbers() == [1]
    quarantine = Table(f"{keyed.location}_quarantine").read(spark=keyed.spark)
    reasons = sorted(row.reason for row in quarantine.collect())
    assert reasons == [
        "at has no value that tells which record is newer",
        "not a JSON record: expecting value at character 1",
        *["the key id is missing, null or not a scalar"] * 4,
    ]


def test_a_replayed_older_record_does_not_win(keyed: Keyed) -> None:
    create_table(keyed.location, "id bigint, at bigint, n int, op string").add_constraint(
        "small", "n < 100", spark=keyed.spark
    )
    keyed.ingest([record(1, 1, 200), record(2, 1, 300), record(3, 1, 1)])
    keyed.ingest([record(1, 5, 2)])
    keyed.table.drop_constraint("small")
    done = widen.replay(f"{keyed.location}_quarantine", keyed.location, spark=keyed.spark)
    assert done.left == 0
    assert keyed.rows("id", "n") == [(1, 2), (2, 300), (3, 1)]


KINDS: tuple[object, ...] = (1, "1", True, 1.5, "1.5", 2**40, 10**25, "", "true", "n:1", 1e300)


def test_keys_are_compared_by_kind_and_value(keyed: Keyed) -> None:
    model = Model("id")
    for at, kinds in enumerate((KINDS, KINDS[3:5], KINDS[:2], KINDS[::-1])):
        records = [record(kind, at, 100 * at + number) for number, kind in enumerate(kinds)]
        model.add(records)
        keyed.ingest(records)
        assert keyed.numbers() == sorted(model.rows().values())


def test_a_number_that_only_a_column_of_texts_holds_is_its_text(keyed: Keyed) -> None:
    for at, key in enumerate((1, "1", "1.5", 1.5, 1, "1")):
        keyed.ingest([record(key, at, at)])
    assert keyed.rows("id", "id_string", "n") == [(1, "1", 4), (None, "1", 5), (None, "1.5", 3)]


def test_decimals_are_compared_by_value(keyed: Keyed) -> None:
    for at, text in enumerate(("1.50", "1.5", "1.500", "2", "2.00", "0.10", "0.1", "0.0000001", "1e-7")):
        line = f'{{"id": {text}, "at": {at}, "n": {at}, "op": "u"}}'
        keyed.ingest([line], numbers="decimal")
    assert keyed.numbers() == [2, 4, 6, 8]


def test_a_key_can_be_nested_and_have_several_fields(spark: SparkSession, tmp_path: Path) -> None:
    keyed = Keyed(spark, tmp_path, "shop.id", "day")
    keys = [("a", "b"), ('a","s:b', ""), ("a", "b "), (1, "b"), ("1", "b")]

    def batch(at: int) -> list[Record]:
        return [
            {"shop": {"id": shop, "name": at}, "day": day, "at": at, "n": 10 * at + number, "op": "u"}
            for number, (shop, day) in enumerate(keys)
        ]

    keyed.ingest(batch(1))
    keyed.ingest(batch(2)[:3])
    assert keyed.numbers() == [13, 14, 20, 21, 22]


def test_times_and_texts_order_records(spark: SparkSession, tmp_path: Path) -> None:
    for name, detects in (("text", False), ("time", True)):
        (tmp_path / name).mkdir()
        keyed = Keyed(spark, tmp_path / name, "id", detect_dates=detects)
        keyed.ingest([record(1, "2026-01-02T10:00:00Z", 1), record(1, "2026-01-02T09:59:59Z", 2)])
        keyed.ingest([record(1, "2026-01-02T10:00:01Z", 3), record(2, "2025-01-02T10:00:01Z", 4)])
        keyed.ingest([record(1, "2026-01-02T10:00:00Z", 5), record(2, 7, 6)])
        # A column of texts takes the number as one; beside times it is an old one.
        assert keyed.numbers() == [3, 4 if detects else 6], name


PROPERTIES: Mapping[str, Mapping[str, str]] = {
    "plain": {},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "feed": {"delta.enableChangeDataFeed": "true"},
    "feed_and_vectors": {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"},
    "mapping": {"delta.columnMapping.mode": "name"},
    "tracking": {"delta.enableRowTracking": "true"},
}


def drifting_records(
    dice: random.Random, histories: int, batch: int, number: itertools.count[int], *, is_plain: bool = False
) -> list[Record]:
    """A batch of many histories at once: each has keys of its own, and its kinds of keys and values drift.

    Args:
        is_plain: Whether keys are integers and no record comes twice, so that no Spark job decides.
    """
    ids: list[object] = [1, 2, 3, 2**40, 1.5, 2.0, "1", "2", "x"][: 3 + 2 * batch]
    ids = ids[:4] if is_plain else ids
    values: list[object] = [1, 2**35, 0.5, "text", [1], {"a": 1}][: 1 + batch]
    records = []
    for history in range(histories):
        for _ in range(dice.randrange(4)):
            key = None if dice.random() < 0.03 and not is_plain else dice.choice(ids)
            n = next(number)
            # Sequences of one key are unique, and come in any order.
            at = dice.randrange(10_000) * 100_000 + n
            made = record(key, at, n, "d" if dice.random() < 0.25 else "u", h=history, value=dice.choice(values))
            records += [made] * (2 if dice.random() < 0.1 and not is_plain else 1)
    dice.shuffle(records)
    return records


HISTORIES = 1_000 if FULL in os.environ else 40
"""The number of generated histories in a table, each with keys of its own: more than 10,000 in all tests together."""


@pytest.mark.parametrize("kind", PROPERTIES if FULL in os.environ else ["feed_and_vectors", "mapping", "tracking"])
def test_histories_end_as_the_model_says(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    dice, model, number = random.Random(kind), Model("h", "id"), itertools.count()
    keyed = Keyed(spark, tmp_path, "h", "id")
    if PROPERTIES[kind]:
        create_table(keyed.location, "h int", properties=PROPERTIES[kind])
    for batch in range(4):
        records = drifting_records(dice, HISTORIES, batch, number)
        expected, result = model.add(records), keyed.ingest(records, files=2)
        assert result.keys is not None
        counts = result.keys.to_value()
        assert {name: counts[name] for name in ("inserted", "updated", "deleted")} == {
            name: expected[name] for name in ("inserted", "updated", "deleted")
        }
        assert sum(counts.values()) == expected["records"]
        assert keyed.numbers() == sorted(model.rows().values())
    if "feed" in kind:
        ensure_feed_leads_to_table(keyed)


@pytest.mark.parametrize("kind", ["plain", "vectors", "feed", "feed_and_vectors", "mapping"])
def test_plain_histories_need_no_job_to_decide(
    spark: SparkSession, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same model, where this process decides with Arrow; Spark must not be asked."""

    def refuse(*_: object) -> None:
        raise AssertionError("Spark was asked")

    monkeypatch.setattr("widen.changes.keyed_files.DeltaFiles.locate", refuse)
    monkeypatch.setattr("widen.changes.key_columns.KeyCondition.to_rule", refuse)
    dice, model, number = random.Random(kind), Model("h", "id"), itertools.count()
    keyed = Keyed(spark, tmp_path, "id", delete_when="op = 'd' OR op IS NULL")
    model.fields = ("id",)
    partitions = ["part"] if kind == "feed" else []
    columns = "id bigint, part int" if partitions else "id bigint"
    create_table(keyed.location, columns, properties=PROPERTIES[kind], partition_by=partitions)
    for batch in range(5):
        records = drifting_records(dice, 25, batch, number, is_plain=True)
        for each in records:
            each["id"] = each["id"] * 100 + each["h"]
            each |= {"part": each["n"] % 3} if partitions else {}
        expected, result = model.add(records), keyed.ingest(records, files=2)
        assert result.keys is not None
        counts = result.keys.to_value()
        assert {name: counts[name] for name in ("inserted", "updated", "deleted")} == {
            name: expected[name] for name in ("inserted", "updated", "deleted")
        }
        assert sum(counts.values()) == expected["records"]
        assert keyed.numbers() == sorted(model.rows().values())
    if "feed" in kind:
        ensure_feed_leads_to_table(keyed)


def ensure_feed_leads_to_table(keyed: Keyed) -> None:
    """The recorded changes, one after another, give the rows of the table."""
    rows: dict[int, int] = {}
    changes = keyed.table.changes(1, spark=keyed.spark).select("_commit_version", "_change_type", "n").collect()
    for change in changes:
        sign = {"insert": 1, "delete": -1}[change["_change_type"]]
        rows[change["n"]] = rows.get(change["n"], 0) + sign
    assert sorted(n for n, count in rows.items() if count) == keyed.numbers()
    assert set(rows.values()) <= {0, 1}


def test_typed_records_change_rows_by_key_but_have_no_proof(keyed: Keyed) -> None:
    keyed.ingest([record(1, 1, 1), record(2, 1, 2)])
    frame = keyed.spark.createDataFrame([(1, 2, 3, "u"), (2, 2, 4, "d")], "id int, at int, n int, op string")
    with pytest.raises(InvalidOption, match="verify"):
        widen.ingest(frame, keyed.location, spark=keyed.spark, verify=True, **keyed.words)
    done = widen.ingest(frame, keyed.location, spark=keyed.spark, **keyed.words)
    assert str(done.keys) == "0 inserted, 1 updated, 1 deleted, 0 late"
    assert keyed.numbers() == [3]


def test_a_key_may_move_to_another_partition(keyed: Keyed) -> None:
    create_table(keyed.location, "id bigint, at bigint, n int, op string, day string", partition_by=["day"])
    keyed.ingest([record(1, 1, 1, day="mon"), record(2, 1, 2, day="mon")])
    keyed.ingest([record(1, 2, 3, day="tue"), record(2, 2, 4, "d", day="wed")])
    assert keyed.rows("id", "n", "day") == [(1, 3, "tue")]


def test_two_ingestions_at_once_never_leave_two_rows_of_a_key(keyed: Keyed) -> None:
    keyed.ingest([record(0, 0, 0)])
    sources = [keyed.batch([record(key, writer, 10 * writer + key) for key in range(5)]) for writer in (1, 2, 3)]

    def load(source: str) -> None:
        widen.ingest(source, keyed.location, spark=keyed.spark, **keyed.words)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(load, sources))
    assert keyed.numbers() == [30, 31, 32, 33, 34]


def test_new_files_and_intervals_are_loaded_once(keyed: Keyed) -> None:
    landing = keyed.place / "landing"
    landing.mkdir()
    for number in (1, 2):
        (landing / f"{number}.json").write_text(json.dumps(record(1, number, number)) + "\n")
        loaded = widen.ingest(str(landing), keyed.location, new=True, spark=keyed.spark, **keyed.words)
        assert loaded.records == 1
    assert widen.ingest(str(landing), keyed.location, new=True, spark=keyed.spark, **keyed.words).is_unchanged
    source = keyed.batch([record(1, 3, 3)])
    for is_repeated in (False, True):
        result = widen.ingest(source, keyed.location, txn=("app", 1), spark=keyed.spark, **keyed.words)
        assert result.is_repeated is is_repeated
    assert keyed.numbers() == [3]


def test_a_stream_changes_rows_by_key(keyed: Keyed) -> None:
    landing = keyed.place / "landing"
    landing.mkdir()
    for number in (2, 1, 3):
        (landing / f"{number}.json").write_text(json.dumps(record(1, number % 3, number)) + "\n")
        stream = widen.ingest_stream(
            str(landing),
            keyed.location,
            checkpoint=str(keyed.place / "checkpoint"),
            once=True,
            spark=keyed.spark,
            **keyed.words,
        )
        stream.wait()
    assert keyed.numbers() == [2]


def test_a_table_by_key_refuses_other_keys_and_bare_records(keyed: Keyed) -> None:
    keyed.ingest([record(1, 1, 1)])
    with pytest.raises(OptionMissing, match="one row for each id"):
        widen.ingest(keyed.batch([record(1, 1, 1)]), keyed.location, spark=keyed.spark)
    for words in ({"key": ["n"]}, {"sequence_by": "n"}, {"sequence_by": None}):
        with pytest.raises(InvalidOption, match=r"widen\.keys"):
            keyed.ingest([record(1, 1, 1)], **words)
    assert keyed.table.version == 0


def test_the_proof_agrees_with_what_keys_do(spark: SparkSession, tmp_path: Path) -> None:
    dice, model, number = random.Random("proof"), Model("h", "id"), itertools.count()
    keyed = Keyed(spark, tmp_path, "h", "id", verify=True)
    for batch in range(4):
        records = drifting_records(dice, 40, batch, number)
        model.add(records)
        proof = keyed.ingest(records, files=2).verification
        assert proof is not None
        assert proof.is_clean, (str(proof), proof.places)
        assert proof.records == len(records)
        assert keyed.numbers() == sorted(model.rows().values())


def with_row(rows: DataFrame, *values: object) -> DataFrame:
    return rows.unionAll(rows.sparkSession.createDataFrame([values], rows.schema))


FAULTS: Mapping[str, Callable[[DataFrame], DataFrame]] = {
    "a lost row": lambda rows: rows.where("id <> 2"),
    "another value": lambda rows: rows.selectExpr("id", "at", "if(id = 2, 99L, n) AS n", "op"),
    "the row before": lambda rows: with_row(rows.where("id <> 1"), 1, 1, 1, "u"),
    "two rows of a key": lambda rows: with_row(rows, 2, 6, 6, "u"),
    "another key changes": lambda rows: rows.selectExpr("id", "at", "if(id = 4, 99L, n) AS n", "op"),
    "a late record wins": lambda rows: with_row(rows.where("id <> 6"), 6, 1, 66, "u"),
}


def test_the_proof_finds_what_a_writer_gets_wrong(keyed: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The proof on Spark reads other rows than those that the writer has committed."""
    require_spark(keyed.spark, "its proof is the subject")
    monkeypatch.setattr("widen.spark.engine.SESSION_WINS", True)
    create_table(keyed.location, "id bigint, at bigint, n bigint, op string")
    keyed.ingest([record(1, 1, 1), record(3, 1, 3), record(4, 1, 4), record(6, 5, 6)])
    batch = [record(1, 2, 5), record(2, 7, 7), record(2, 6, 6), record(3, 2, 8, "d"), record(6, 1, 66)]
    wrong: dict[str, bool] = {}
    verify = KeyedProof.verify

    def verify_damaged(proof: KeyedProof, source: Side, share: float = 1.0) -> Verification:
        for fault, damage in FAULTS.items():
            wrong[fault] = not verify(replace(proof, after=damage(proof.after)), source, share).is_clean
        return verify(proof, source, share)

    monkeypatch.setattr(KeyedProof, "verify", verify_damaged)
    proof = keyed.ingest(batch, verify=True).verification
    assert proof is not None
    assert proof.is_clean
    assert wrong == dict.fromkeys(FAULTS, True)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ({"key": []}, InvalidOption),
        ({"key": ["id", "id"]}, InvalidOption),
        ({"key": ["idd"]}, InvalidOption),
        ({"sequence_by": "id"}, InvalidOption),
        ({"sequence_by": "att"}, InvalidOption),
        ({"sequence_by": "flag"}, InvalidOption),
        ({"delete_when": ""}, InvalidOption),
        ({"delete_when": "opp IS MISSING"}, InvalidCondition),
        ({"delete_when": "opp = 'd'", "strict": True}, UnmatchedFields),
        ({"delete_when": "rand() < 0.5"}, widen.WidenError),
        ({"mask": ["id"]}, InvalidOption),
        ({"mask": ["op"]}, InvalidOption),
        ({"exclude": ["at"]}, InvalidOption),
        ({"key": None}, OptionMissing),
    ],
)
def test_rules_that_cannot_apply_are_refused(keyed: Keyed, words: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        keyed.ingest([record(1, 1, 1, flag=True)], **words)
    assert not (keyed.place / "t" / "_delta_log" / f"{0:020}.json").exists()


@pytest.mark.parametrize("condition", ["op2 = 'D'", "META.op IN ('D', 'T') OR gone", "upper(op2) = 'D'", "deleted"])
def test_frames_take_a_field_that_no_record_has_yet_for_null(
    keyed: Keyed, condition: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("widen.changes.keyed_load.KEYED_RECORDS", 0)
    words = {"delete_when": condition, "verify": True}
    first = keyed.ingest([record(1, 1, 1), record(2, 1, 2)], **words)
    assert str(first.keys) == "2 inserted, 0 updated, 0 deleted, 0 late"
    second = keyed.ingest([record(1, 2, 3, op2="D", meta={"op": "D"}, deleted=True), record(2, 2, 4)], **words)
    assert str(second.keys) == "0 inserted, 1 updated, 1 deleted, 0 late"
    assert all(each.verification is not None and each.verification.is_clean for each in (first, second))


@pytest.mark.parametrize(
    ("kind", "most", "words"),
    [
        ("delta", 0, {}),
        ("delta", 4_000_000, {"missing": "keep"}),
        ("partitions", 4_000_000, {"history": True}),
        ("iceberg", 0, {"history": True}),
    ],
)
def test_an_excluded_field_deletes(
    keyed: Keyed, words: dict[str, Any], kind: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("widen.changes.keyed_load.KEYED_RECORDS", most)
    words = {**words, "exclude": ["op", "meta"], "delete_when": "op = 'd' AND meta.op <> 'U' OR n = 9", "verify": True}
    if kind == "partitions":
        create_table(keyed.location, "id int, day string", partition_by=["day"])
    if kind == "iceberg":
        words["catalog"], keyed.location = f"{keyed.place}/c.db", "shop.t"
    kept, gone = {"op": "confidential"}, {"op": "D"}
    first = keyed.ingest([record(1, 1, 1, "u", meta=kept), record(2, 1, 2, day="x"), record(3, 1, 9)], **words)
    assert str(first.keys) == "2 inserted, 0 updated, 0 deleted, 0 late, 1 deletion of an unknown key"
    broken = {"at": 3, "op": "d", "meta": kept}
    second = keyed.ingest([record(1, 2, 3, "d", meta=gone), record(2, 2, 4, "d", meta={"op": "U"}), broken], **words)
    assert (str(second.keys), second.quarantined) == ("0 inserted, 1 updated, 1 deleted, 0 late", 1)
    assert all(each.verification is not None and each.verification.is_clean for each in (first, second))
    sources = set(keyed.place.glob("batch*/*"))
    own = [each for each in keyed.place.rglob("*") if each.is_file() and each not in sources]
    assert not [each for each in own if b"confidential" in each.read_bytes()]


def test_the_command_line_and_a_file_take_the_rules(keyed: Keyed) -> None:
    source = keyed.batch([record(1, 1, 1), record(1, 2, 2), record(2, 1, 3, "d")])
    config = keyed.place / "keys.toml"
    config.write_text('[keys]\nkey = ["id"]\nsequence_by = "at"\ndelete_when = "op = \'d\'"\n')
    words = ("--key", "id", "--sequence-by", "at", "--delete-when", "op = 'd'")
    planned = run("plan", source, "--into", keyed.location, *words)
    assert "one row for each id, the newest by at, deleted when op = 'd'" in planned.stdout
    done = run("ingest", source, "--into", keyed.location, *words)
    assert "1 inserted, 0 updated, 0 deleted, 1 late, 1 deletion of an unknown key" in done.stdout
    again = run("ingest", source, "--into", keyed.location, "--config", str(config), "--json")
    late = {"inserted": 0, "updated": 0, "deleted": 0, "unknownDeletes": 0, "late": 3}
    assert json.loads(again.stdout)["keys"] == late
