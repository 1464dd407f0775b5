"""Envelopes of Debezium into a table by key, and as an appended log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import widen
from support.command_line import run
from support.debezium import MONGODB, MYSQL, POSTGRES, TOMBSTONES, truncation
from widen.errors import InvalidOption, OptionMissing, SourceError
from widen.table import Table


def source(place: Path, name: str, events: Iterable[object]) -> str:
    file = place / f"{name}.json"
    file.write_text("".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in events))
    return str(file)


def rows(table: str, spark: SparkSession, *columns: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in Table(table).read(spark=spark).select(*columns).collect()), key=repr)


def other(event: dict[str, Any], key: int) -> dict[str, Any]:
    """Return the event of another row."""
    changed = {name: event[name] and {**event[name], "id": key} for name in ("before", "after")}
    return {**event, **changed}


@pytest.mark.parametrize("events", [POSTGRES, MYSQL], ids=["postgres", "mysql"])
@pytest.mark.parametrize("is_wrapped", [False, True])
def test_events_end_as_the_rows_of_the_source(
    spark: SparkSession, tmp_path: Path, events: list[dict[str, Any]], *, is_wrapped: bool
) -> None:
    created, updated, deleted = events
    table = str(tmp_path / "t")

    def load(name: str, *some: object) -> widen.IngestResult:
        wrapped = [
            each if isinstance(each, str) or not is_wrapped else {"schema": {}, "payload": each} for each in some
        ]
        return widen.ingest(
            source(tmp_path, name, wrapped), table, envelope="debezium", key=["id"], verify=True, spark=spark
        )

    # In any order: the position in the log of the database tells what is newer.
    first = load("1", other(updated, 2), other(created, 2), created, other(created, 3))
    assert str(first.keys) == "3 inserted, 0 updated, 0 deleted, 1 late"
    assert first.verification is not None
    assert first.verification.is_clean, first.verification.places
    assert rows(table, spark, "id", "first_name", "_op") == [(1, "Ada", "c"), (2, "Ada Maria", "u"), (3, "Ada", "c")]
    second = load("2", updated, deleted, TOMBSTONES[0], other(deleted, 3), *TOMBSTONES)
    assert str(second.keys) == "0 inserted, 0 updated, 2 deleted, 1 late"
    assert second.verification is not None
    assert second.verification.is_clean, second.verification.places
    assert rows(table, spark, "id") == [(2,)]
    late = load("3", created, other(created, 4))
    assert str(late.keys) == "1 inserted, 0 updated, 0 deleted, 1 late"


READ = {"snapshot": "incremental", "ts_ms": 1_559_033_904_863}
SNAPSHOTS = {
    "sqlserver": (
        {"commit_lsn": None},
        {"commit_lsn": "00000025:00000d98:000a"},
        {"commit_lsn": "00000025:00000d98:0012"},
    ),
    "oracle": ({"scn": None}, {"scn": "99"}, {"scn": "100"}),
    "db2": ({}, {"commit_lsn": "00000000:0000000f:00000a12"}, {"commit_lsn": "00000000:0000000f:00000a1f"}),
    "postgresql": ({"lsn": None}, {"lsn": 99}, {"lsn": 100}),
    "mysql": ({"file": "", "pos": 0}, {"file": "binlog.000009", "pos": 7}, {"file": "binlog.000010", "pos": 4}),
}


@pytest.mark.parametrize("engine", ["local", "spark"])
@pytest.mark.parametrize("order", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
def test_a_change_wins_over_the_snapshot_in_any_order(
    spark: SparkSession, tmp_path: Path, engine: str, order: list[int]
) -> None:
    events: list[list[Any]] = [[], [], []]
    for key, (connector, sources) in enumerate(SNAPSHOTS.items()):
        read, *changes = ({"connector": connector, **each} for each in sources)
        events[0].append({"op": "r", "after": {"id": key, "v": "read"}, "source": {**READ, **read}})
        events[1].append({"op": "u", "after": {"id": key, "v": "old"}, "source": changes[0]})
        events[2].append({"op": "u", "after": {"id": key, "v": "new"}, "source": changes[1]})
        events[2].append({"op": "d", "before": {"id": -key - 1}, "source": changes[1]})
        events[0].append({"op": "r", "after": {"id": -key - 1, "v": "read"}, "source": {**READ, **read}})
    words: dict[str, Any] = {"envelope": "debezium", "key": ["id"], "verify": True, "engine": engine}
    words["spark"] = spark if engine == "spark" else None
    for number, at in enumerate(order):
        loaded = widen.ingest(source(tmp_path, str(number), events[at]), str(tmp_path / "t"), **words)
        assert loaded.verification is not None
        assert loaded.verification.is_clean, loaded.verification.places
        assert not loaded.quarantined
    loaded = widen.ingest(
        source(tmp_path, "all", [each for at in order for each in events[at]]), str(tmp_path / "u"), **words
    )
    for table in (tmp_path / "t", tmp_path / "u"):
        found = {row["id"]: row["v"] for row in Table(str(table)).to_arrow().to_pylist()}
        assert found == dict.fromkeys(range(len(SNAPSHOTS)), "new")


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([{"op": "c", "after": {"id": 1}}], "The events have no field source, which says where in its log"),
        (
            [{"op": "u", "after": {"id": 1}, "source": {"connector": "postgresql", "lsn": 1.5, "xmin": 7, "ts_ms": 7}}],
            "source has only connector string, lsn double, ts_ms int",
        ),
        ([{"op": "u", "after": {"id": 1}, "source": {"db": "shop"}}], "source has no such field"),
        (
            [{"op": "u", "after": {"id": 1}, "source": "shop"}],
            "source of the events must be an object, but it is string",
        ),
    ],
)
@pytest.mark.parametrize("call", [widen.ingest, widen.plan])
def test_events_without_a_position_say_what_is_missing(
    tmp_path: Path, events: list[object], said: str, call: Callable[..., object]
) -> None:
    words: dict[str, Any] = {"envelope": "debezium", "key": ["id"], "engine": "local"}
    with pytest.raises(OptionMissing) as raised:
        call(source(tmp_path, "1", events), str(tmp_path / "t"), **words)
    assert said in str(raised.value)
    assert "--sequence-by _ts_ms" in str(raised.value)
    assert "_position" not in str(raised.value)
    good = {"op": "u", "after": {"id": 2}, "source": {"connector": "mysql", "file": "binlog.000001", "pos": 7}}
    loaded = widen.ingest(source(tmp_path, "2", [*events, good]), str(tmp_path / "t"), verify=True, **words)
    assert (loaded.records, loaded.quarantined) == (1, 1)
    (kept,) = Table(str(tmp_path / "t_quarantine")).to_arrow().to_pylist()
    assert kept["reason"].startswith("the event has no position: the fields of its source that order it")


OPERATIONS: dict[str, tuple[str, Any, Any]] = {
    "metadata.operation": ("metadata.operation", "insert", "delete"),
    "change_type": ("change_type", "insert", "delete"),
    "op type": ("op type", "i", "it's gone"),
    "m.op type": ("m.`op type`", "i", "d"),
    "file_metadata.a;b": ("metadata.`a;b`.`c d`", "i", "d"),
    "integers": ("op", 1, 3),
    "integers below": ("commit_version.op", 1, -3),
}


ON_SPARK = ("metadata.operation", "m.op type", "integers")
"""The others are spelled by the same function."""


NAMED = [*((each, "local") for each in OPERATIONS), *((each, "spark") for each in ON_SPARK)]


@pytest.mark.parametrize(
    ("case", "engine", "format"), [(*each, ("delta", "iceberg")[at % 2]) for at, each in enumerate(NAMED)]
)
def test_operations_below_any_name(spark: SparkSession, tmp_path: Path, case: str, format: str, engine: str) -> None:
    op, writes, deletes = OPERATIONS[case]
    into, catalog = ("s.t", str(tmp_path / "c.db")) if format == "iceberg" else (str(tmp_path / "t"), None)

    def event(at: int, key: int, operation: Any) -> dict[str, Any]:
        found: dict[str, Any] = {"data": {"id": key, "at": at}}
        *above, last = (name.strip("`") for name in op.split("."))
        inner = found
        for name in above:
            inner = inner.setdefault(name, {})
        return found if inner.setdefault(last, operation) else {}

    words: dict[str, Any] = {"key": ["id"], "sequence_by": "at", "verify": True, "engine": engine, "catalog": catalog}
    words |= {
        "envelope": {"after": "data", "op": op, "deletes": [deletes]},
        "spark": spark if engine == "spark" else None,
    }
    first = widen.ingest(source(tmp_path, "1", [event(1, key, writes) for key in (1, 2, 3)]), into, **words)
    second = widen.ingest(
        source(tmp_path, "2", [event(2, 1, deletes), event(2, 3, writes), event(0, 2, deletes)]), into, **words
    )
    for done, counts in (
        (first, "3 inserted, 0 updated, 0 deleted, 0 late"),
        (second, "0 inserted, 1 updated, 1 deleted, 1 late"),
    ):
        assert str(done.keys) == counts
        assert done.verification is not None
        assert done.verification.is_clean, done.verification


def test_operations_are_of_one_type(tmp_path: Path) -> None:
    envelope = {"after": "data", "op": "op", "upserts": ["i"], "deletes": [3]}
    with pytest.raises(InvalidOption, match="all texts, or all integers"):
        widen.ingest(source(tmp_path, "1", []), str(tmp_path / "t"), envelope=envelope, key=["id"])
    words: dict[str, Any] = {"envelope": {**envelope, "upserts": [1]}, "key": ["id"], "engine": "local"}
    with pytest.raises(SourceError, match="it has no integer in op"):
        widen.ingest(source(tmp_path, "2", [{"op": "3", "data": {"id": 1}}]), str(tmp_path / "t"), **words)


def test_documents_of_mongodb_and_their_deletions(spark: SparkSession, tmp_path: Path) -> None:
    table, words = str(tmp_path / "t"), {"envelope": "debezium", "key": ["_id"], "spark": spark}
    loaded = widen.ingest(source(tmp_path, "1", MONGODB), table, verify=True, **words)
    assert str(loaded.keys) == "1 inserted, 0 updated, 0 deleted, 1 late"
    assert loaded.verification is not None
    assert loaded.verification.is_clean, loaded.verification.places
    assert loaded.quarantined == 1
    kept = Table(f"{table}_quarantine").read(spark=spark).collect()
    assert [json.loads(row.text)["op"] for row in kept] == ["d"]
    with_image = {**MONGODB[2], "before": MONGODB[1]["after"]}
    widen.ingest(source(tmp_path, "2", [with_image]), table, **words)
    assert rows(table, spark, "first_name") == []


def test_values_drift_like_all_others_and_a_replay_needs_no_envelope(spark: SparkSession, tmp_path: Path) -> None:
    table, words = str(tmp_path / "t"), {"envelope": "debezium", "key": ["id"], "spark": spark, "verify": True}
    created, updated, _ = POSTGRES
    widen.ingest(source(tmp_path, "1", [created]), table, **words)
    drifted = other(updated, 2)
    drifted["after"] |= {"id": 2**40, "last_name": 7, "address": {"city": "Graz"}}
    keyless = other(updated, 3)
    del keyless["after"]["id"]
    loaded = widen.ingest(source(tmp_path, "2", [drifted, keyless]), table, **words)
    assert loaded.verification is not None
    assert loaded.verification.is_clean, loaded.verification.places
    assert (loaded.records, loaded.quarantined) == (1, 1)
    replayed = widen.replay(f"{table}_quarantine", table, spark=spark)
    assert (replayed.replayed, replayed.left) == (0, 1)
    (text,) = [row.text for row in Table(f"{table}_quarantine").read(spark=spark).collect()]
    assert json.loads(text)["_op"] == "u"


def test_a_log_of_changes_keeps_every_event(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    loaded = widen.ingest(
        source(tmp_path, "1", [*POSTGRES, *TOMBSTONES, {"other": 1}]),
        table,
        envelope="debezium",
        verify=True,
        spark=spark,
    )
    assert loaded.verification is not None
    assert loaded.verification.is_clean, loaded.verification.places
    assert (loaded.records, loaded.corrupt) == (3, 1)
    assert rows(table, spark, "_op") == [("c",), ("d",), ("u",), (None,)]


def test_a_truncation_and_sources_that_are_not_json_refuse_the_batch(spark: SparkSession, tmp_path: Path) -> None:
    table, words = str(tmp_path / "t"), {"envelope": "debezium", "key": ["id"], "spark": spark}
    with pytest.raises(SourceError, match="truncates"):
        widen.ingest(source(tmp_path, "1", [POSTGRES[0], truncation()]), table, **words)
    texts = spark.createDataFrame([(json.dumps(truncation()),), (json.dumps(POSTGRES[0]),), (None,)], "value string")
    with pytest.raises(SourceError, match="truncates"):
        widen.ingest(texts, table, format="json", **words)
    (tmp_path / "rows.csv").write_text("id,op\n1,c\n")
    with pytest.raises(InvalidOption, match="csv"):
        widen.ingest(str(tmp_path / "rows.csv"), table, **words)
    with pytest.raises(InvalidOption, match="rows with types"):
        widen.ingest(spark.createDataFrame([(1, "c")], "id int, op string"), table, **words)
    for wrong in (
        "debezum",
        {"after": "a"},
        {"after": "a.b", "op": "op", "deletes": ["d"]},
        {"after": 1, "op": "o", "deletes": []},
    ):
        with pytest.raises(InvalidOption, match="envelope"):
            widen.ingest(source(tmp_path, "2", POSTGRES), table, envelope=wrong, key=["id"], spark=spark)
    assert not (tmp_path / "t" / "_delta_log").exists()
    widen.ingest(texts.where("value NOT LIKE '%\"t\"%' OR value IS NULL"), table, format="json", **words)
    assert rows(table, spark, "id") == [(1,)]


def test_a_stream_takes_envelopes(spark: SparkSession, tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    for number, event in enumerate(POSTGRES[:2]):
        source(landing, str(number), [event])
    stream = widen.ingest_stream(
        str(landing), str(tmp_path / "t"), checkpoint=str(tmp_path / "c"), once=True, envelope="debezium", key=["id"],
        spark=spark,
    )  # fmt: skip
    stream.wait()
    assert rows(str(tmp_path / "t"), spark, "first_name") == [("Ada Maria",)]


def test_the_command_line_and_other_shapes_in_a_file(tmp_path: Path) -> None:
    table = str(tmp_path / "t")
    done = run("ingest", source(tmp_path, "1", POSTGRES[:2]), "--into", table, "--envelope", "debezium", "--key", "id")
    assert "1 inserted, 0 updated, 0 deleted, 1 late" in done.stdout
    config = tmp_path / "maxwell.toml"
    config.write_text(
        '[envelope]\nafter = "data"\nop = "type"\ndeletes = ["delete"]\n\n[keys]\nkey = ["id"]\nsequence_by = "_ts"\n'
    )
    events = [
        {"type": "insert", "ts": 1, "data": {"id": 1, "n": 1}},
        {"type": "update", "ts": 2, "data": {"id": 1, "n": 2}, "old": {"n": 1}},
        {"type": "insert", "ts": 1, "data": {"id": 2, "n": 1}},
        {"type": "delete", "ts": 3, "data": {"id": 2, "n": 1}},
    ]
    done = run("ingest", source(tmp_path, "2", events), "--into", f"{table}2", "--config", str(config), "--verify")
    assert "1 inserted, 0 updated, 0 deleted, 2 late, 1 deletion of an unknown key" in done.stdout


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_the_schema_part_gives_columns_their_types(spark: SparkSession, tmp_path: Path, engine: str) -> None:
    def event(key: int, lsn: int, literal: str, precision: int) -> dict[str, Any]:
        kafka = "org.apache.kafka.connect.data.Decimal"
        parameters = {"scale": "2", "connect.decimal.precision": str(precision)}
        row = [
            {"type": literal, "field": "id"},
            {"type": "bytes", "name": kafka, "parameters": parameters, "field": "total"},
            {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "field": "at"},
        ]
        states = [{"type": "struct", "fields": row, "field": each} for each in ("before", "after")]
        after = {"id": key, "total": "BNI=", "at": 1529507596945104}
        said = {"before": None, "after": after, "source": {"connector": "postgresql", "lsn": lsn}, "op": "c"}
        return {"schema": {"type": "struct", "fields": states}, "payload": said}

    words: dict[str, Any] = {"envelope": "debezium", "key": ["id"], "verify": True, "engine": engine}
    words["spark"] = spark if engine == "spark" else None
    for number, types in enumerate((("int32", 10), ("int64", 12))):
        loaded = widen.ingest(
            source(tmp_path, str(number), [event(number, number + 1, *types)]), str(tmp_path / "t"), **words
        )
        assert loaded.verification is not None
        assert loaded.verification.is_clean, loaded.verification
    table = Table(str(tmp_path / "t")).to_arrow().select(["id", "total", "at"])
    assert [str(field.type) for field in table.schema] == ["int64", "decimal128(12, 2)", "timestamp[us, tz=UTC]"]
    assert {str(row["total"]) for row in table.to_pylist()} == {"12.34"}


def test_messages_of_a_registry_in_a_frame(spark: SparkSession, tmp_path: Path) -> None:
    """Tasks of Spark ask the registry themselves; the bytes have zeros, line ends, and no end of a text."""
    schema = {"type": "record", "name": "R", "fields": [{"name": "id", "type": "int"}, {"name": "at", "type": "bytes"}]}
    (tmp_path / "7.avsc").write_text(json.dumps(schema))
    texts = [bytes([0, 0, 0, 0, 7, 2 * number, 4, 10, 255]) for number in range(64)]
    frame = spark.createDataFrame([(bytearray(each),) for each in [*texts, b"\0\0\0\0\x08"]], "value binary")
    table = str(tmp_path / "t")
    result = widen.ingest(frame, table, format="json", dialect=f"registry:{tmp_path}", verify=True, spark=spark)
    assert result.verification is not None
    assert result.verification.is_clean
    assert (result.records, result.corrupt) == (64, 1)
    assert rows(table, spark, "id", "at")[3] == (11, "Cv8=")
