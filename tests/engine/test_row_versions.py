"""Tables with every version of a row, and partial records: generated histories end as models say."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import SparkSession

import widen
from engine.test_keys import (
    HISTORIES,
    PROPERTIES,
    Keyed,
    Record,
    drifting_records,
    leave_to_spark,
    model_key,
    record,
)
from support.fault import FULL
from widen.errors import InvalidOption
from widen.files.data_reader import LocalScan
from widen.model.types import STRING, TIMESTAMP
from widen.spark.engine import Unsupported
from widen.table import Table, create_table

TIMES = ("_valid_from", "_valid_to", "_is_current")


class Versions:
    """What a table with history must hold: for each key its events in their order."""

    def __init__(self, *fields: str) -> None:
        self.fields = fields
        self.events: dict[Any, dict[int, Record]] = {}

    def add(self, records: Iterable[Record]) -> int:
        """Take a batch, and return how many of its records are new events; the others are late."""
        new = 0
        for each in records:
            key = tuple(model_key(each.get(field)) for field in self.fields)
            if any(each.get(field) is None for field in (*self.fields, "at")):
                continue
            new += each["at"] not in self.events.setdefault(key, {})
            self.events[key][each["at"]] = each
        return new

    def rows(self) -> list[tuple[Any, ...]]:
        """The number, the start and the end of each version, and whether it is current."""
        found = []
        for events in self.events.values():
            times = [*sorted(events), None]
            for at, until in itertools.pairwise(times):
                if events[at]["op"] != "d":
                    found.append((events[at]["n"], at, until, until is None))
        return sorted(found)


class Merged:
    """What a table of partial records must hold: each field as the newest record that has it says."""

    def __init__(self) -> None:
        self.newest: dict[Any, tuple[int, Record | None]] = {}

    def add(self, records: Iterable[Record]) -> None:
        for each in sorted(records, key=lambda each: each["at"]):
            key = model_key(each["id"])
            at, row = self.newest.get(key, (-1, None))
            if each["at"] > at:
                self.newest[key] = (each["at"], None if each["op"] == "d" else patch(row, each))

    def rows(self) -> dict[Any, Record]:
        return {key: without_nulls(row) for key, (_, row) in self.newest.items() if row is not None}


def patch(old: Any, new: Any) -> Any:
    if not isinstance(old, dict) or not isinstance(new, dict):
        return new
    return {**old, **{name: patch(old.get(name), value) for name, value in new.items() if value is not None}}


def refuse(*_: object) -> None:
    raise AssertionError("Spark was asked")


@pytest.fixture
def history(spark: SparkSession, tmp_path: Path) -> Keyed:
    return Keyed(spark, tmp_path, "id", history=True, verify=True)


def load(keyed: Keyed, records: list[Record], **words: Any) -> widen.IngestResult:
    """Ingest a batch; the proof must agree."""
    result = keyed.ingest(records, files=2, **words)
    proof = result.verification
    assert proof is not None
    assert proof.is_clean, (str(proof), proof.places)
    return result


def test_each_version_is_valid_until_the_next(history: Keyed) -> None:
    first = load(history, [record(1, 10, 1), record(1, 20, 2), record(2, 10, 3)])
    assert str(first.keys) == "2 inserted, 1 updated, 0 deleted, 0 late"
    assert history.rows("id", "n", *TIMES) == [
        (1, 1, 10, 20, False),
        (1, 2, 20, None, True),
        (2, 3, 10, None, True),
    ]
    # A late record is inserted between the versions; a deletion closes the newest one.
    second = load(history, [record(1, 15, 4), record(2, 30, 5, "d"), record(9, 30, 6, "d")])
    assert str(second.keys) == "0 inserted, 1 updated, 1 deleted, 0 late, 1 deletion of an unknown key"
    assert history.rows("id", "n", *TIMES) == [
        (1, 1, 10, 15, False),
        (1, 2, 20, None, True),
        (1, 4, 15, 20, False),
        (2, 3, 10, 30, False),
    ]
    # Deletions are remembered, and end what comes late before them.
    third = load(history, [record(9, 7, 7), record(2, 40, 8), record(2, 10, 3)])
    assert str(third.keys) == "1 inserted, 1 updated, 0 deleted, 1 late"
    assert history.rows("id", "n", *TIMES)[-3:] == [(2, 3, 10, 30, False), (2, 8, 40, None, True), (9, 7, 7, 30, False)]
    late = load(history, [record(2, 20, 9, "d")])
    assert str(late.keys) == "0 inserted, 0 updated, 1 deleted, 0 late"
    assert (2, 3, 10, 20, False) in history.rows("id", "n", *TIMES)


def test_the_times_of_a_version_have_the_type_of_their_order(history: Keyed) -> None:
    load(history, [record(1, 10, 1)])
    load(history, [record(1, 2**40, 2), record(1, 1.5, 3)])
    types = {field.name: field.type for field in history.table.schema}
    assert types["_valid_from"] == types["at"]
    assert [row[1:] for row in history.rows("n", *TIMES)] == [(10, 2**40, False), (2**40, None, True), (1.5, 10, False)]
    for name, words in (("times", {"detect_dates": ["at"]}), ("texts", {})):
        place = history.place / name
        place.mkdir()
        dated = Keyed(history.spark, place, "id", history=True, verify=True, **words)
        load(dated, [record(1, "2026-01-02T10:00:00Z", 1), record(1, "2026-01-02T09:59:59.5Z", 2)])
        load(dated, [record(1, "2026-01-02T11:00:00Z", 3, "d"), record(1, "2025-12-31T23:00:00Z", 4)])
        types = {field.name: field.type for field in dated.table.schema}
        assert types["_valid_to"] == (TIMESTAMP if words else STRING)
        found = dated.table.to_arrow()
        texts = [str(each).partition("+")[0].replace("T", " ").rstrip("Z") for each in found["_valid_to"].to_pylist()]
        ends = dict(zip(found["n"].to_pylist(), (re.sub(r"(\.\d+?)0+$", r"\1", text) for text in texts), strict=True))
        assert ends == {1: "2026-01-02 11:00:00", 2: "2026-01-02 10:00:00", 4: "2026-01-02 09:59:59.5"}


def test_a_replay_goes_into_the_history(history: Keyed) -> None:
    create_table(history.location, "id bigint, at bigint, n int NOT NULL, op string")
    load(history, [record(1, 10, 1), record(1, 30, 3), {"id": 1, "at": 20, "op": "u"}])
    quarantine = f"{history.location}_quarantine"
    (text,) = [row.text for row in Table(quarantine).read(spark=history.spark).collect()]
    assert json.loads(text) == {"id": 1, "at": 20, "op": "u"}
    history.table.alter_column("n", nullable=True)
    widen.replay(quarantine, history.location, spark=history.spark)
    assert history.rows("n", *TIMES)[0] == (1, 10, 20, False)
    assert len(history.rows("n")) == 3


def test_rules_that_do_not_fit_are_refused(history: Keyed) -> None:
    load(history, [record(1, 1, 1)])
    for words in ({"history": None}, {"missing": "keep"}, {"missing": "x", "history": None}, {"sequence_by": None}):
        with pytest.raises(InvalidOption):
            history.ingest([record(1, 1, 1)], **words)
    frame = history.spark.createDataFrame([(1, 1)], "id int, at int")
    with pytest.raises(InvalidOption, match="history"):
        widen.ingest(frame, history.location, spark=history.spark, **{**history.words, "verify": False})
    taken = history.ingest([record(1, 5, 5, _valid_from=3)], verify=True)
    assert (taken.quarantined, taken.records) == (1, 0)


@pytest.mark.parametrize("decides", ["arrow", "spark"])
def test_a_version_that_another_writer_has_added_again_is_there_once(
    history: Keyed, monkeypatch: pytest.MonkeyPatch, decides: str
) -> None:
    if decides == "spark":
        monkeypatch.setattr("widen.changes.keyed_load._decide", leave_to_spark)
    load(history, [record(1, 10, 1), record(1, 20, 2), record(2, 10, 3)])
    again = [
        {name: value for name, value in row.items() if value is not None}
        for row in history.table.to_arrow().to_pylist()
    ]
    rules = history.table.properties["widen.keys"]
    history.table.unset_properties(["widen.keys"])
    widen.ingest(history.batch(again), history.location, spark=history.spark)
    history.table.set_properties({"widen.keys": rules})
    done = history.ingest([record(1, 30, 4), record(2, 5, 5)])
    assert str(done.keys) == "0 inserted, 2 updated, 0 deleted, 0 late"
    assert history.rows("n", *TIMES) == [
        (1, 10, 20, False),
        (2, 20, 30, False),
        (3, 10, None, True),
        (4, 30, None, True),
        (5, 5, 10, False),
    ]


def test_missing_fields_keep_their_values(spark: SparkSession, tmp_path: Path) -> None:
    keyed = Keyed(spark, tmp_path, "id", missing="keep", verify=True)
    load(keyed, [record(1, 1, 1, a={"x": 1, "y": [1, 2]}, s="one", k=5)])
    second = load(
        keyed,
        [
            {"id": 1, "at": 2, "a": {"x": 2}, "op": "u"},
            {"id": 1, "at": 3, "a": {"y": [3]}, "op": "u"},
            {"id": 1, "at": 0, "s": "late", "op": "u"},
            {"id": 1, "at": 4, "s": None, "k": "text", "op": "u"},
        ],
    )
    assert str(second.keys) == "0 inserted, 1 updated, 0 deleted, 1 late, 2 merged"
    (row,) = [each.asDict(True) for each in keyed.table.read(spark=spark).collect()]
    assert row == {
        "id": 1,
        "at": 4,
        "n": 1,
        "op": "u",
        "a": {"x": 2, "y": [3]},
        "s": "one",
        "k": None,
        "k_string": "text",
    }
    # A deletion in between leaves nothing to keep.
    load(keyed, [record(1, 5, 5, "d"), {"id": 1, "at": 6, "k": 7, "op": "u"}])
    (row,) = [each.asDict(True) for each in keyed.table.read(spark=spark).collect()]
    assert as_fields(without_nulls(row), "k") == {"id": 1, "at": 6, "k": 7, "op": "u"}


def test_partial_records_without_a_sequence(spark: SparkSession, tmp_path: Path) -> None:
    keyed = Keyed(spark, tmp_path, "id", missing="keep", sequence_by=None, verify=True)
    load(keyed, [record(1, 1, 1, a=1), record(2, 1, 2, a=1)])
    load(keyed, [{"id": 1, "b": 2, "op": "u"}, {"id": 2, "op": "d"}])
    assert keyed.rows("id", "n", "a", "b") == [(1, 1, 1, 2)]


SPARK = ["spark", "spark_feed"]
"""Tables whose files Spark reads for the decision, plain and with a change data feed."""

ARROW = [*PROPERTIES] if FULL in os.environ else ["plain", "feed", "feed_and_vectors"]


@pytest.mark.parametrize("kind", [*ARROW, "buckets", *(SPARK if FULL in os.environ else SPARK[:1])])
def test_generated_histories_have_every_version(
    spark: SparkSession, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind in SPARK:
        monkeypatch.setattr("widen.changes.keyed_load._decide", leave_to_spark)
    elif kind == "buckets":
        monkeypatch.setattr("widen.changes.keyed_load.KEYED_RECORDS", 0)
        monkeypatch.setattr("widen.changes.keyed_buckets.BUCKET_RECORDS", HISTORIES)
    else:
        monkeypatch.setattr("widen.changes.keyed_files.DeltaFiles.locate", refuse)
    # test_key_columns compares what both do with many more kinds of records.
    batches = range(1, 4, 2) if kind in (*SPARK, "buckets") else range(4)
    kind = {"spark": "plain", "spark_feed": "feed", "buckets": "plain"}.get(kind, kind)
    dice, model, number = random.Random(f"versions {kind}"), Versions("h", "id"), itertools.count()
    keyed = Keyed(spark, tmp_path, "h", "id", history=True, verify=True)
    if PROPERTIES[kind]:
        create_table(keyed.location, "h int", properties=PROPERTIES[kind])
    for batch in batches:
        records = drifting_records(dice, HISTORIES, batch, number)
        new, result = model.add(records), load(keyed, records)
        assert result.keys is not None
        counts = result.keys.to_value()
        assert sum(counts.values()) == result.records
        assert counts["late"] == result.records - new
        assert keyed.rows("n", *TIMES) == sorted(model.rows(), key=repr)
    if "feed" in kind:
        names = ("n", "_valid_from", "_valid_to")
        changes = keyed.table.changes(1, spark=spark).select("_change_type", *names).collect()
        versions = Counter[tuple[Any, ...]]()
        for change, *version in changes:
            versions[tuple(version)] += {"insert": 1, "delete": -1}[change]
        assert Counter(keyed.rows(*names)) == +versions
        assert not -versions


def partial_records(dice: random.Random, histories: int, batch: int, number: itertools.count[int]) -> list[Record]:
    """A batch of partial records in any order; most of them are newer than those of the batches before."""
    records = []
    for history in range(histories):
        for _ in range(dice.randrange(4)):
            n = next(number)
            at = ((0 if dice.random() < 0.1 else batch) * 100_000 + dice.randrange(100_000)) * 100_000 + n
            key = dice.choice([history, history + 10_000, history + 0.5, f"{history}"][: 2 + batch])
            made: Record = {"id": key, "at": at, "op": "d" if dice.random() < 0.2 else "u"}
            values: dict[str, Any] = {
                "n": n,
                "a": dice.choice([1, 2**35, "text", {"x": n}, {"y": {"z": n}}, {"y": {"w": n}}]),
                "b": {name: n for name in "xyz" if dice.random() < 0.5} or None,
                "c": [n] * dice.randrange(1, 3),
            }
            made |= {name: value for name, value in values.items() if dice.random() < 0.5}
            records.append(made)
    dice.shuffle(records)
    return records


@pytest.mark.parametrize("kind", PROPERTIES if FULL in os.environ else ["mapping"])
def test_generated_partial_records_end_as_the_model_says(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    dice, model, number = random.Random(f"partial {kind}"), Merged(), itertools.count()
    keyed = Keyed(spark, tmp_path, "id", missing="keep", verify=True)
    if PROPERTIES[kind]:
        create_table(keyed.location, "id int", properties=PROPERTIES[kind])
    for batch in range(4):
        records = partial_records(dice, HISTORIES, batch, number)
        model.add(records)
        result = load(keyed, records)
        assert result.keys is not None
        assert sum(result.keys.to_value().values()) == len(records)
        assert rows_by_key(row.asDict(True) for row in keyed.table.read(spark=spark).collect()) == model.rows()


@pytest.mark.parametrize("kind", ["plain", "vectors", "feed_and_vectors", "mapping"])
def test_plain_partial_records_need_no_job_to_decide(
    spark: SparkSession, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same model, where this process puts records on top of rows with Arrow; Spark must not be asked."""
    monkeypatch.setattr("widen.changes.keyed_files.DeltaFiles.locate", refuse)
    dice, model, number = random.Random(f"plain partial {kind}"), Merged(), itertools.count()
    keyed = Keyed(spark, tmp_path, "id", missing="keep", verify=True)
    create_table(keyed.location, "id bigint, at bigint, op string", properties=PROPERTIES[kind])
    merged = 0
    for batch in range(5):
        records = [each for each in partial_records(dice, 40, batch, number) if isinstance(each["id"], int)]
        for each in records:
            each["id"] %= 50
        model.add(records)
        result = load(keyed, records)
        assert result.keys is not None
        assert sum(result.keys.to_value().values()) == len(records)
        merged += result.keys.merged
        assert rows_by_key(row.asDict(True) for row in keyed.table.read(spark=spark).collect()) == model.rows()
    assert merged > 20
    if "feed" in kind:
        changes = keyed.table.changes(1, spark=spark).select("_change_type", "at").collect()
        counts = Counter({at: 0 for _, at in changes})
        for change, at in changes:
            counts[at] += 1 if change == "insert" else -1
        assert sorted(at for at, count in counts.items() if count) == sorted(row["at"] for row in model.rows().values())


def rows_by_key(rows: Iterable[Record]) -> dict[Any, Record]:
    """Return the rows of partial records by their key, without nulls, and the columns of a field as one."""
    found = [as_fields(as_fields(without_nulls(row)), "id") for row in rows]
    assert len(found) == len({model_key(row["id"]) for row in found})
    return {model_key(row["id"]): row for row in found}


def as_fields(row: Record, field: str = "a") -> Record:
    """Return a row with the columns of a field as that field; a column of texts also has what the others hold."""
    others = {name: value for name, value in row.items() if name.partition("_")[0] != field}
    values = [value for name, value in sorted(row.items()) if name.partition("_")[0] == field]
    values = [each for each in values if type(each) is not str] or values
    # A column of doubles also has the integers that another one holds.
    assert all(each == values[0] for each in values), row
    return {**others, **({field: values[0]} if values else {})}


def without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return value


def rescued_records(dice: random.Random, keys: int, batch: int, number: itertools.count[int]) -> list[Record]:
    """A batch of partial records, many of whose values no column of a frozen table holds."""
    records = []
    for _ in range(keys):
        made = record(dice.randrange(keys), batch * 10_000 + next(number), 0, "d" if dice.random() < 0.1 else "u")
        made["n"] = made["at"] if dice.random() < 0.5 else None
        values: dict[str, Any] = {
            "n": dice.choice([made["at"], "no number", {"x": 1}, {"y": 2}]),
            "r": dice.choice([{"x": made["at"]}, {"x": "text"}, {"y": made["at"]}, {"x": None, "z": {"u": 1}}, 7, []]),
            "new": dice.choice([1.10, "text", {"x": made["at"]}, {"y": [made["at"]]}]),
            "other": dice.choice([made["at"], None, ""]),
            "m": dice.choice([{"k": made["at"]}, {"l": 1}, {"k": "text"}, {"l": {"x": 1}}, "no map"]),
        }
        records.append(made | {name: value for name, value in values.items() if dice.random() < 0.4})
    dice.shuffle(records)
    return records


def test_rescued_values_of_partial_records_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    """What no column holds is kept field by field, and goes when a newer record has the field."""
    dice, model, number = random.Random("rescued"), Merged(), itertools.count(1)
    keyed = Keyed(spark, tmp_path, "id", missing="keep", verify=True, evolve="freeze")
    columns = "id bigint, at bigint, op string, n bigint, r struct<x: bigint>, m map<string, bigint>"
    create_table(keyed.location, f"{columns}, _rescued string")
    own = [
        {"id": -1, "at": 1, "op": "u", "lost": 1, "r": {"y": 1.5}, "n": "one", "other": 10**24 + 1},
        {"id": -1, "at": 2, "op": "u", "r": {"z": 2, "x": 5}, "n": 7, "other": None},
        record(-1, 3, 0, "d"),
    ]
    for batch, mine in enumerate(own):
        records = rescued_records(dice, HISTORIES, batch, number)
        model.add(records)
        load(keyed, [*records, mine])
        rows = [whole_record(row.asDict(True)) for row in keyed.table.read("id >= 0", spark=spark).collect()]
        found = {model_key(row["id"]): row for row in rows}
        assert len(found) == len(rows)
        assert found == {key: whole_record(row) for key, row in model.rows().items()}
        if batch == 1:
            (row,) = keyed.table.read("id = -1", spark=spark).select("n", "r", "_rescued").collect()
            rescued = {"lost": 1, "other": 10**24 + 1, "r": {"y": 1.5, "z": 2}}
            assert (row[0], row[1].x, json.loads(row[2])) == (7, 5, rescued)
    assert keyed.table.read("id = -1", spark=spark).collect() == []


def whole_record(row: Record) -> Record:
    """Return a row without nulls, and with what its rescue column has; a rescued map has all entries."""
    rescued = json.loads(row.pop("_rescued", None) or "{}")
    return without_empties(deep_union(without_nulls(row), rescued))


def deep_union(one: Any, two: Any) -> Any:
    if not isinstance(one, dict) or not isinstance(two, dict):
        return two
    return {**one, **{name: deep_union(one.get(name), value) for name, value in two.items()}}


def without_empties(value: Any) -> Any:
    if isinstance(value, dict):
        inner = {name: without_empties(each) for name, each in value.items()}
        return {name: each for name, each in inner.items() if each not in (None, {})}
    return value


def test_spark_finds_the_versions_of_a_key_where_this_process_cannot(history: Keyed) -> None:
    for at, op in ((1, "u"), (5, "d"), (8, "u")):
        load(history, [record("a", at, 1, op), record("b", at, 1, op)])
    history.table.delete("id = 'a'", spark=history.spark)
    with mock.patch.object(LocalScan, "read_located", side_effect=Unsupported("a test says so")):
        with pytest.raises(InvalidOption, match="versions of 1 of these keys"):
            history.table.forget([{"id": "a"}, {"id": "b"}])
        assert history.table.forget([{"id": "a"}]).metrics["numForgottenKeys"] == 1
