"""Values that a change has left as they were, and that Debezium does not send: the row keeps them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import widen
from widen import IngestResult, Table, ingest
from widen.errors import InvalidOption
from widen.iceberg.catalog import to_catalog

SAME = "__debezium_unavailable_value"


def event(lsn: int, op: str, **row: Any) -> dict[str, Any]:
    state = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return {**state, "op": op, "source": {"connector": "postgresql", "lsn": lsn}}


FIRST = [
    event(1, "c", id=1, big="one", tags=["a"], n=1),
    event(2, "c", id=2, big="two", tags=["b"], n=1),
    event(3, "c", id=3, big="three", tags=["c"], n=1),
    event(4, "c", id=4, big="four", tags=None, n=1),
]
SECOND = [
    event(10, "u", id=1, big=SAME, tags=[SAME], n=2),
    event(11, "u", id=2, big="deux", tags=[SAME], n=2),
    event(12, "u", id=2, big=SAME, tags=[SAME], n=3),
    event(13, "d", id=3),
    event(14, "c", id=3, big=SAME, tags=["z"], n=4),
    event(15, "u", id=4, big="quatre", tags=[], n=5),
    event(16, "c", id=5, big="five", tags=["e"], n=6),
    event(17, "u", id=5, big=SAME, tags=SAME, n=7),
    event(18, "u", id=6, big=SAME, tags=["f"], n=8),
]
EXPECTED = {
    1: ("one", ["a"], 2),
    2: ("deux", ["b"], 3),
    3: (None, ["z"], 4),
    4: ("quatre", [], 5),
    5: ("five", ["e"], 7),
    6: (None, ["f"], 8),
}


class Load:
    """Loads events into a table of one format, with one engine."""

    def __init__(self, place: Path, format: str, engine: str, spark: SparkSession) -> None:
        self.place, self.number = place, 0
        self.at = "s.t" if format == "iceberg" else str(place / "t")
        self.options: dict[str, Any] = {"engine": engine, "spark": spark if engine == "spark" else None}
        self.options["catalog"] = str(place / "c.db") if format == "iceberg" else None

    def __call__(self, events: list[Any], **options: Any) -> IngestResult:
        self.number += 1
        source = self.place / f"{self.number}.json"
        source.write_text("".join(json.dumps(each) + "\n" for each in events), encoding="utf-8")
        options = {"envelope": "debezium", "key": ["id"], "verify": True, **options}
        done = ingest(str(source), self.at, **self.options, **options)
        assert done.verification is None or done.verification.is_clean, done.verification
        return done

    def rows(self) -> list[dict[str, Any]]:
        catalog = self.options["catalog"]
        if catalog is None:
            return Table(self.at).to_arrow().to_pylist()
        return to_catalog(catalog).open().load_table(self.at).scan().to_arrow().to_pylist()

    def values(self) -> dict[int, Any]:
        found = {row["id"]: (row["big"], row["tags"], row["n"]) for row in self.rows()}
        assert len(found) == len(self.rows())
        return found


@pytest.fixture(params=["delta-local", "iceberg-local", "delta-spark", "iceberg-spark", "delta-buckets"])
def load(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    format, engine = request.param.split("-")
    if engine == "buckets":
        monkeypatch.setattr("widen.changes.keyed_load.KEYED_RECORDS", 0)
    return Load(tmp_path, format, "spark" if engine == "buckets" else engine, spark)


@pytest.mark.parametrize("missing", ["null", "keep"])
def test_a_row_keeps_what_its_change_left_as_it_was(load: Load, missing: str) -> None:
    load(FIRST, missing=missing)
    done = load(SECOND, missing=missing)
    assert load.values() == EXPECTED
    assert done.unavailable == {"big": 5, "tags": 4}
    assert done.to_value()["unavailableValues"] == {"big": 5, "tags": 4}
    assert "big_string" not in load.rows()[0]
    again = load(SECOND, missing=missing)
    assert load.values() == EXPECTED
    assert again.keys is not None
    assert (again.keys.inserted, again.keys.deleted) == (0, 0)


def test_a_batch_that_has_the_row_before_needs_no_table(load: Load) -> None:
    load([*SECOND, *FIRST])
    assert load.values() == EXPECTED


def test_rows_that_are_only_added_have_null(load: Load) -> None:
    done = load([*FIRST, *SECOND], key=None)
    assert done.unavailable == {"big": 5, "tags": 4}
    assert SAME not in json.dumps(load.rows())
    named = [(row["id"], row["_unchanged"]) for row in load.rows() if row["_unchanged"]]
    assert sorted(named) == [(1, ["big", "tags"]), (2, ["big", "tags"]), (2, ["tags"]), (3, ["big"])] + [
        (5, ["big", "tags"]),
        (6, ["big"]),
    ]


@pytest.mark.parametrize("order", [[0, 1], [1, 0]])
def test_every_version_has_what_its_change_left_as_it_was(load: Load, order: list[int]) -> None:
    if load.options["engine"] == "local":
        load.options |= {"engine": "auto"}
    events = [FIRST[:3], SECOND[:5]]
    for at in order:
        load(events[at], history=True)
    found = [(row["id"], row["n"], row["big"], row["tags"]) for row in load.rows()]
    assert sorted(found, key=lambda row: row[:2]) == [
        (1, 1, "one", ["a"]),
        (1, 2, "one", ["a"]),
        (2, 1, "two", ["b"]),
        (2, 2, "deux", ["b"]),
        (2, 3, "deux", ["b"]),
        (3, 1, "three", ["c"]),
        (3, 4, None, ["z"]),
    ]


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_versions_need_no_spark(format: str, tmp_path: Path, spark: SparkSession) -> None:
    load = Load(tmp_path, format, "auto", spark)
    load([*FIRST[:3], SECOND[0]], history=True)
    load.options["engine"] = "local"
    load([event(20, "u", id=2, big="new", tags=["n"], n=9), event(21, "d", id=3)], history=True)
    found = [(row["id"], row["n"], row["big"], row["_is_current"]) for row in load.rows()]
    assert sorted(found) == [
        (1, 1, "one", False),
        (1, 2, "one", True),
        (2, 1, "two", False),
        (2, 9, "new", True),
        (3, 1, "three", False),
    ]
    load([event(19, "u", id=1, big="late", tags=["n"], n=9)], history=True)
    found = [(row["id"], row["n"], row["big"], row["_is_current"]) for row in load.rows() if row["id"] == 1]
    assert sorted(found) == [(1, 1, "one", False), (1, 2, "one", False), (1, 9, "late", True)]


def test_a_mode_that_adds_no_columns_keeps_the_values(tmp_path: Path, spark: SparkSession) -> None:
    load = Load(tmp_path, "delta", "local", spark)
    load(FIRST)
    load([event(9, "u", id=1, big=SAME, tags=[SAME], n=2)], evolve="fail")
    assert load.values()[1] == ("one", ["a"], 2)


def test_what_a_row_keeps_cannot_be_excluded(tmp_path: Path, spark: SparkSession) -> None:
    with pytest.raises(InvalidOption, match="_unchanged"):
        Load(tmp_path, "delta", "local", spark)(FIRST, exclude=["_Unchanged"])


def test_another_source_has_its_own_placeholder(tmp_path: Path, spark: SparkSession) -> None:
    load = Load(tmp_path, "delta", "local", spark)
    envelope = {"after": "data", "op": "type", "deletes": ["delete"], "unavailable": ["(same)"]}
    for at, big in enumerate(["one", "(same)"]):
        record = {"type": "u", "data": {"id": 1, "big": big, "tags": ["(same)"] if at else ["x"], "n": at}, "at": at}
        load([record], envelope=envelope, sequence_by="_at")
    assert load.values() == {1: ("one", ["x"], 1)}


def test_a_replay_keeps_the_values(tmp_path: Path, spark: SparkSession) -> None:
    load = Load(tmp_path, "delta", "local", spark)
    load(FIRST)
    widen.sql(f"ALTER TABLE delta.`{load.at}` ADD CONSTRAINT a CHECK (n < 2)", spark=spark)
    assert load([event(9, "u", id=1, big=SAME, tags=[SAME], n=2)]).quarantined == 1
    widen.sql(f"ALTER TABLE delta.`{load.at}` DROP CONSTRAINT a", spark=spark)
    assert widen.replay(f"{load.at}_quarantine", load.at).replayed == 1
    assert load.values()[1] == ("one", ["a"], 2)
