"""What follows a commit fails: the error names the version that is committed, and a retry loads nothing twice."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from pyspark.sql import SparkSession
from typer.testing import Result

import widen
from support.command_line import run
from support.json_schema import SCHEMAS, breaches
from support.receiver import listening
from widen import replay
from widen.cli import output
from widen.errors import PostCommitFailed, StorageError, UnmatchedFields, WidenError
from widen.log.log_store import LogStore
from widen.table import IcebergTable, Table, create_table

FORMATS = ("delta", "iceberg")


class Shop:
    """A source and a table in a folder."""

    def __init__(self, spark: SparkSession, place: Path, format: str) -> None:
        self.spark, self.place, self.is_delta = spark, place, format == "delta"
        self.into = str(place / "orders") if self.is_delta else "shop.orders"
        self.words: dict[str, Any] = {} if self.is_delta else {"catalog": str(place / "c.db")}
        self.source = place / "landing"
        self.source.mkdir()
        self.add(1)

    def add(self, *numbers: int) -> None:
        for number in numbers:
            (self.source / f"{number}.jsonl").write_text(json.dumps({"id": number}) + "\n")

    def ingest(self, **words: Any) -> widen.IngestResult:
        return widen.ingest(str(self.source), self.into, spark=self.spark, **self.words, **words)

    def stream(self, **words: Any) -> None:
        place = str(self.place / "_checkpoint")
        words = {"checkpoint": place, "once": True, "spark": self.spark, **self.words, **words}
        widen.ingest_stream(str(self.source), self.into, **words).wait()

    @property
    def table(self) -> Any:
        return Table(self.into) if self.is_delta else IcebergTable(self.into, self.words["catalog"])

    def ids(self) -> list[int]:
        return sorted(row["id"] for row in self.table.read(spark=self.spark).collect())


@pytest.fixture(params=FORMATS)
def shop(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Shop:
    return Shop(spark, tmp_path, request.param)


def fail(*_: object) -> None:
    raise OSError("the sink is gone")


def fail_at(step: str) -> Callable[[str], None]:
    def progress(text: str) -> None:
        if text == step:
            raise OSError("the terminal is gone")

    return progress


def ensure_said(caught: pytest.ExceptionInfo[BaseException], shop: Shop) -> None:
    assert f"ersion {shop.table.version} of " in str(caught.value)
    assert "is committed" in str(caught.value)


@pytest.mark.parametrize(
    "words", [{"on_event": fail}, {"verify": True, "progress": fail_at("verifying")}], ids=["on_event", "progress"]
)
def test_a_sink_that_fails_after_the_commit(shop: Shop, words: dict[str, Any]) -> None:
    with pytest.raises(PostCommitFailed) as caught:
        shop.ingest(new=True, **words)
    ensure_said(caught, shop)
    assert shop.ingest(new=True).is_unchanged
    assert shop.ids() == [1]
    shop.add(2)
    with pytest.raises(PostCommitFailed) as caught:
        shop.ingest(txn=("loader", 1), **words)
    ensure_said(caught, shop)
    assert shop.ingest(txn=("loader", 1)).is_repeated
    assert shop.ids() == [1, 1, 2]


def test_a_verification_that_fails(shop: Shop) -> None:
    target = "widen.targets.delta.verify_rows" if shop.is_delta else "widen.targets.iceberg.verify_rows"
    with mock.patch(target, side_effect=fail), pytest.raises(PostCommitFailed) as caught:
        shop.ingest(new=True, verify=True)
    ensure_said(caught, shop)
    assert shop.ingest(new=True).is_unchanged


@pytest.mark.parametrize("sink", ["on_event", "on_interval"])
def test_a_sink_of_a_stream_that_fails(shop: Shop, sink: str) -> None:
    with pytest.raises(PostCommitFailed) as caught:
        shop.stream(**{sink: fail})
    ensure_said(caught, shop)
    events: list[widen.IntervalEvent] = []
    shop.stream(on_event=events.append)
    assert shop.ids() == [1]
    assert [(event.kind, event.to_value().get("isRepeated")) for event in events] == [("load", True)]


@pytest.mark.parametrize("sink", ["on_event", "on_batch", "checkpoint"])
def test_a_sink_of_a_flow_that_fails(shop: Shop, sink: str) -> None:
    shop.ingest()
    name = str(shop.place / "silver") if shop.is_delta else "shop.silver"
    more = {} if shop.is_delta else {"source_catalog": shop.words["catalog"]}
    words = {"checkpoint": str(shop.place / "_flow"), "once": True, "spark": shop.spark, **shop.words, **more}
    silver = lambda: Table(name) if shop.is_delta else IcebergTable(name, shop.words["catalog"])  # noqa: E731

    def put(store: LogStore, path: str, data: bytes) -> None:
        if b'"committed":null' in data:
            original(store, path, data)
        else:
            fail()

    original = LogStore.put
    broken = mock.patch.object(LogStore, "put", put) if sink == "checkpoint" else mock.patch("os.getpid")
    sinks = {} if sink == "checkpoint" else {sink: fail}
    with broken, pytest.raises(PostCommitFailed, match=r"ersion .* of .*silver is committed") as caught:
        widen.flow(shop.into, name, **words, **sinks)
    assert f"ersion {silver().version} of" in str(caught.value)
    widen.flow(shop.into, name, **words)
    assert [row["id"] for row in silver().read(spark=shop.spark).collect()] == [1]


def test_each_load_has_one_event_with_a_time(shop: Shop) -> None:
    events: list[widen.IntervalEvent] = []
    began = datetime.now(timezone.utc)
    done = shop.ingest(new=True, on_event=events.append)
    assert [event.kind for event in events] == ["change", "load"]
    (load,) = (event.to_value() for event in events[-1:])
    time = datetime.fromisoformat(load.pop("time").replace("Z", "+00:00"))
    assert (began - time).total_seconds() < 1
    assert abs((events[-1].time - time).total_seconds()) < 1
    assert 0 < load.pop("durationMs") < 600_000
    assert load == {
        "event": "load",
        "table": shop.table._label,
        "version": done.version,
        "interval": None,
        "records": 1,
        "corrupt": 0,
        "quarantined": 0,
        "files": 1,
        "bytes": done.size_bytes,
        "isRepeated": False,
    }
    shop.add(2)
    events.clear()
    shop.ingest(new=True, on_event=events.append)  # without drift
    assert [event.kind for event in events] == ["load"]
    events.clear()
    assert shop.ingest(new=True, on_event=events.append).is_unchanged
    assert events == []
    with pytest.raises(UnmatchedFields):
        shop.ingest(exclude=["nothing"], strict=True, on_event=events.append)
    (failure,) = (event.to_value() for event in events)
    assert (failure["event"], failure["version"], failure["code"]) == ("failure", None, UnmatchedFields.code)
    assert "nothing" in failure["message"]
    events.clear()
    with pytest.raises(PostCommitFailed):
        shop.ingest(on_event=events.append, verify=True, progress=fail_at("verifying"))
    assert [(event.kind, event.version) for event in events] == [
        ("load", shop.table.version),
        ("failure", shop.table.version),
    ]


def test_a_file_for_events_is_opened_before_the_load(shop: Shop) -> None:
    words = ["ingest", str(shop.source), "--into", shop.into, "--new"]
    words += [] if shop.is_delta else ["--catalog", shop.words["catalog"]]
    for path in (shop.place / "no" / "events.jsonl", shop.source):
        done = run(*words, "--events", str(path))
        assert (done.exit_code, "WIDEN_STORAGE" in done.stderr) == (1, True), done.stderr
        with pytest.raises(WidenError):
            _ = shop.table
    path = shop.place / "events.jsonl"
    done = run(*words, "--events", str(path), "--json")
    assert done.exit_code == 0, done.stderr
    events = [json.loads(line) for line in path.read_text().splitlines()]
    assert [event["event"] for event in events] == ["change", "load"]
    assert [wrong for event in events for wrong in breaches(SCHEMAS["events"], event)] == []
    shop.add(2)
    done = run(*words, "--events", "/dev/full")  # it can be opened, but not written
    ensure_shown(done, 1, shop)
    assert run(*words).exit_code == 0
    assert shop.ids() == [1, 2]
    os.mkfifo(shop.place / "pipe")
    done = run(*words, "--events", str(shop.place / "pipe"))  # a pipe that nobody reads
    assert (done.exit_code, "WIDEN_STORAGE" in done.stderr) == (1, True), done.stderr


def test_events_go_to_a_url_and_what_it_refuses_to_a_file(shop: Shop) -> None:
    words = ["ingest", str(shop.source), "--into", shop.into, "--new", "--events-from", "all"]
    words += [] if shop.is_delta else ["--catalog", shop.words["catalog"]]
    letters = shop.place / "letters.jsonl"
    with listening() as receiver:
        words += ["--events", receiver.url, "--dead-letter", str(letters)]
        done = run(*words)
        assert done.exit_code == 0, done.stderr
        assert receiver.types() == ["widen.change.additive", "widen.load"]
        shop.add(2)
        receiver.answers = [410]
        assert run(*words).exit_code == 0  # a receiver does not fail a load
        shop.add(3)
        receiver.answers = [410]
        ensure_shown(run(*words, "--events-required"), 1, shop)
    kept = [json.loads(line) for line in letters.read_text().splitlines()]
    assert [event["event"] for event in kept] == ["load", "load", "failure"]  # the last one says that it must deliver
    assert [wrong for event in kept for wrong in breaches(SCHEMAS["events"], event)] == []
    assert run(*words).exit_code == 0  # nothing is new: nothing is loaded twice, and there is nothing to send
    assert shop.ids() == [1, 2, 3]


def ensure_shown(done: Result, code: int, shop: Shop) -> None:
    assert done.exit_code == code, done.stderr
    assert f"ersion {shop.table.version} of " in done.stderr, done.stderr
    assert "is committed" in done.stderr, done.stderr


@pytest.mark.parametrize("error", [BrokenPipeError(), OSError(28, "No space left on device")], ids=["pipe", "space"])
def test_output_that_nobody_reads(shop: Shop, error: OSError, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["--into", shop.into] + ([] if shop.is_delta else ["--catalog", shop.words["catalog"]])
    code = 141 if isinstance(error, BrokenPipeError) else 1

    def write(_: str) -> None:
        with output.writing_output():
            raise error

    monkeypatch.setattr(output, "_write", write)
    monkeypatch.setattr(output, "discard_output", lambda: None)
    monkeypatch.setattr("widen.cli.app.discard_output", lambda: None)
    ensure_shown(run("ingest", str(shop.source), *words, "--new", "--json"), code, shop)
    shop.add(2)
    ensure_shown(run("ingest", str(shop.source), *words, "--new"), code, shop)
    shop.add(3)
    follow = ["--once", "--checkpoint", str(shop.place / "_checkpoint")]
    ensure_shown(run("ingest", str(shop.source / "3.jsonl"), *words, *follow), code, shop)
    if shop.is_delta:
        for command in ("optimize", "vacuum", "drop-feature", "alter", "properties", "restore"):
            more = {"drop-feature": ["typeWidening"], "alter": ["id", "--comment", "c"], "restore": ["--version", "1"]}
            more["properties"] = ["--set", "k=v"]
            before = shop.table.version
            done = run(command, shop.into, *more.get(command, []))
            assert shop.table.version > before, done.stderr
            ensure_shown(done, code, shop)
    else:
        done = run("alter", shop.into, "--catalog", shop.words["catalog"], "id", "--comment", "c")
        assert done.exit_code == code


def test_a_replay_whose_second_commit_fails(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    create_table(place, "n int").add_constraint("positive", "n > 0", spark=spark)
    (tmp_path / "s.jsonl").write_text('{"n": 1}\n{"n": -1}\n')
    widen.ingest(str(tmp_path / "s.jsonl"), place, spark=spark)
    Table(place).drop_constraint("positive")
    with (
        mock.patch(
            "widen.targets.delta_quarantine.DeltaQuarantine.finish_replay",
            side_effect=[None, StorageError(location="there", reason="gone", fix="")],
        ),
        pytest.raises(PostCommitFailed) as caught,
    ):
        replay(f"{place}_quarantine", place, spark=spark)
    assert f"ersion {Table(place).version} of" in str(caught.value)
    assert replay(f"{place}_quarantine", place, spark=spark).replayed == 0
    assert sorted(row["n"] for row in Table(place).read(spark=spark).collect()) == [-1, 1]


def test_an_iceberg_table_that_cannot_be_read_after_its_commit(spark: SparkSession, tmp_path: Path) -> None:
    shop = Shop(spark, tmp_path, "iceberg")
    shop.ingest()
    table = shop.table
    with mock.patch.object(IcebergTable, "history", side_effect=fail), pytest.raises(PostCommitFailed) as caught:
        table.append(spark.createDataFrame([(2,)], "id int"))
    ensure_said(caught, shop)
    assert shop.ids() == [1, 2]


def test_a_flow_with_nothing_new_says_so(shop: Shop) -> None:
    shop.ingest()
    name = str(shop.place / "silver") if shop.is_delta else "shop.silver"
    words = ["flow", shop.into, "--into", name, "--checkpoint", str(shop.place / "_flow"), "--once"]
    if not shop.is_delta:
        words += ["--source-catalog", shop.words["catalog"], "--catalog", shop.words["catalog"]]
    assert "nothing to do" not in run(*words).stderr
    done = run(*words)
    assert (done.exit_code, done.stdout) == (0, "")
    assert "nothing to do" in done.stderr
