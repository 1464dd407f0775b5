"""Streams: every record once, whatever happens in between."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from queue import Queue
from threading import Timer
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import widen
from conftest import ENGINE
from widen.errors import EvolutionRefused, InvalidOption, SourceChanged
from widen.spark.engine import Engine, LocalSession
from widen.table import Table

ROOT = Path(__file__).resolve().parents[2]


CLOCK = count(1_700_000_000)


def put(place: Path, name: str, *records: Any) -> None:
    """Let a file appear all at once, later than all others."""
    place.mkdir(parents=True, exist_ok=True)
    hidden = place / f".{name}"
    hidden.write_text("".join(f"{record if isinstance(record, str) else json.dumps(record)}\n" for record in records))
    now = next(CLOCK)
    os.utime(hidden, (now, now))
    hidden.rename(place / name)


def stream(spark: SparkSession | LocalSession, place: Path, **words: Any) -> list[widen.IngestResult]:
    """Take in all that is there; return what each interval did."""
    done: list[widen.IngestResult] = []
    source = words.pop("source", str(place / "in"))
    table, checkpoint = str(place / "table"), str(place / "checkpoint")
    words = {"once": True, "verify": True, **words}
    running = widen.ingest_stream(source, table, checkpoint=checkpoint, spark=spark, on_interval=done.append, **words)
    assert running.wait()
    assert all(each.verification is None or each.verification.is_clean for each in done)
    return done


def numbers(spark: SparkSession, place: Path) -> Counter[Any]:
    return Counter(row["n"] for row in Table(str(place / "table")).read(spark=spark).select("n").collect())


def test_a_table_grows_in_the_middle_of_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in", "1.json", {"n": 1, "a": 1})
    put(tmp_path / "in", "2.json", {"n": 2, "a": "x"}, "no record")
    events: list[widen.IntervalEvent] = []
    default = "spark.databricks.delta.properties.defaults.enableChangeDataFeed"
    spark.conf.set(default, "true")
    try:
        done = stream(spark, tmp_path, max_files=1, on_event=events.append)
    finally:
        spark.conf.unset(default)
    assert Table(str(tmp_path / "table")).properties["delta.enableChangeDataFeed"] == "true"
    assert [(each.version, each.interval, each.records, each.corrupt) for each in done] == [(0, 0, 1, 0), (1, 1, 1, 1)]
    changes = [each for each in events if (each.interval, each.kind) == (1, "change")]
    assert {(each.interval, each.version, each.event.column, each.grade.value) for each in changes} == {
        (1, 1, ("a_string",), "conflict"),
        (1, 1, ("_corrupt_record",), "additive"),
        (1, 1, ("_corrupt_at",), "additive"),
    }
    put(tmp_path / "in", "3.json", {"n": 3, "b": True})
    put(tmp_path / "in", "4.json", "  ")
    put(tmp_path / "in", "notes.md", "nothing")
    assert [each.records for each in stream(spark, tmp_path)] == [1]
    assert stream(spark, tmp_path) == []
    assert numbers(spark, tmp_path) == {None: 1, 1: 1, 2: 1, 3: 1}
    said = [info["operationParameters"]["epochId"] for _, _, info in Table(str(tmp_path / "table")).history()]
    assert said == ["2", "1", "0"]


def test_an_interval_that_the_table_has_is_not_written_again(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in", "1.json", {"n": 1})
    stream(spark, tmp_path)
    last = max((tmp_path / "checkpoint" / "commits").iterdir())
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    again = stream(spark, tmp_path)
    assert [(each.is_repeated, each.version, each.records) for each in again] == [(True, 0, 0)]
    assert numbers(spark, tmp_path) == {1: 1}


def test_a_stream_that_fails_says_why_and_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in", "1.json", {"n": 1})
    stream(spark, tmp_path)
    put(tmp_path / "in", "2.json", {"n": 2, "new": 1})
    with pytest.raises(EvolutionRefused, match="new"):
        stream(spark, tmp_path, evolve="fail")
    stream(spark, tmp_path)
    assert numbers(spark, tmp_path) == {1: 1, 2: 1}


def test_a_file_that_is_deleted_before_it_is_read_is_not_passed_over(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in", "1.json", {"n": 1})
    put(tmp_path / "in", "2.json", {"n": 2})
    gone = tmp_path / "in" / "1.json"
    with pytest.raises(SourceChanged, match=r"1\.json changed after it was listed: it was deleted"):
        stream(spark, tmp_path, progress=lambda _: gone.unlink(missing_ok=True))
    gone.touch()
    assert [each.records for each in stream(spark, tmp_path)] == [1]
    assert numbers(spark, tmp_path) == Counter([2])


def test_a_stream_that_may_change_nothing_passes_nothing_over(spark: SparkSession, tmp_path: Path) -> None:
    """Nor does it make a table."""
    put(tmp_path / "in", "1.json", {"n": 1})
    with pytest.raises(EvolutionRefused, match="add n int"):
        stream(spark, tmp_path, evolve="fail")
    with pytest.raises(EvolutionRefused, match="add n int"):
        widen.ingest(str(tmp_path / "in"), str(tmp_path / "table"), evolve="fail", spark=spark)
    stream(spark, tmp_path)
    assert numbers(spark, tmp_path) == {1: 1}


def test_what_is_no_record_does_not_end_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    """Not even an interval of nothing else, nor the first one."""
    put(tmp_path / "in", "1.json", "no record")
    assert [(each.records, each.corrupt) for each in stream(spark, tmp_path)] == [(0, 1)]
    put(tmp_path / "in", "2.json", {"n": 2})
    stream(spark, tmp_path)
    assert numbers(spark, tmp_path) == {None: 1, 2: 1}


def test_files_whose_names_tell_nothing_are_read_as_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in", "part-00000", {"n": 1})
    put(tmp_path / "in", "empty.json")
    stream(spark, tmp_path, max_files=1)
    assert numbers(spark, tmp_path) == {1: 1}


def test_a_stream_runs_until_it_is_stopped(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in", "1.json", {"n": 1})
    done: Queue[widen.IngestResult] = Queue()
    running = widen.ingest_stream(
        str(tmp_path / "in"),
        str(tmp_path / "table"),
        checkpoint=str(tmp_path / "checkpoint"),
        spark=spark,
        on_interval=done.put,
    )
    try:
        for number in (2, 3):
            done.get(timeout=300)
            assert running.is_active
            put(tmp_path / "in", f"{number}.json", {"n": number})
    finally:
        running.stop()
    assert not running.is_active
    assert running.wait()
    stream(spark, tmp_path)
    assert numbers(spark, tmp_path) == {1: 1, 2: 1, 3: 1}


def test_a_stream_of_json_in_a_column(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "in", "1.txt", {"n": 1}, {"n": 2, "a": 2.5})
    rows = spark.readStream.text(str(tmp_path / "in"))
    assert [each.records for each in stream(spark, tmp_path, source=rows, format="json")] == [2]
    assert numbers(spark, tmp_path) == {1: 1, 2: 1}


def test_two_streams_into_one_table(spark: SparkSession, tmp_path: Path) -> None:
    """Their intervals bring the same new fields and drifts at the same time."""
    for name in ("one", "two"):
        for number in range(3):
            value = [number, f"text {number}", {"b": number}][number]
            put(tmp_path / name, f"{number}.json", {"n": f"{name} {number}", "a": value, f"f{number}": 1})
    table = str(tmp_path / "table")

    def run(name: str) -> None:
        words = {"checkpoint": str(tmp_path / f"checkpoint-{name}"), "once": True, "max_files": 1}
        widen.ingest_stream(str(tmp_path / name), table, spark=spark, **words).wait()

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(run, ("one", "two")))
    assert numbers(spark, tmp_path) == {f"{name} {number}": 1 for name in ("one", "two") for number in range(3)}
    assert sorted(Table(table).schema.names) == ["a", "a_record", "a_string", "f0", "f1", "f2", "n"]


BAD: dict[str, dict[str, Any]] = {
    "the checkpoint is in the source": {"checkpoint": "in/checkpoint"},
    "the table is in the source": {"table": "in/table"},
    "two limits": {"max_files": 1, "max_bytes": 1},
    "a limit that lets nothing through": {"max_files": 0},
    "a time before now": {"every_seconds": -1},
}


@pytest.mark.parametrize("words", BAD.values(), ids=BAD)
def test_what_no_stream_can_be(spark: SparkSession, tmp_path: Path, words: dict[str, Any]) -> None:
    put(tmp_path / "in", "1.json", {"n": 1})
    places = {key: str(tmp_path / words.get(key, key)) for key in ("table", "checkpoint")}
    limits = {key: value for key, value in words.items() if key not in places}
    with pytest.raises(InvalidOption):
        widen.ingest_stream(
            str(tmp_path / "in"), places["table"], checkpoint=places["checkpoint"], spark=spark, **limits
        )


@pytest.mark.parametrize("first", ["local", "spark"])
def test_a_checkpoint_goes_from_engine_to_engine(spark: SparkSession, tmp_path: Path, first: str) -> None:
    """In both directions, between two intervals and in one, before and after the log of files is compacted."""
    engines = {"local": LocalSession(Engine.LOCAL, lambda _: spark), "spark": spark}
    sources = [str(tmp_path / "in"), f"{tmp_path}/more/*/"]
    names = ["in", "more/a [1]+%41 é\u00a0\u2003", "in/day=1"]
    done: list[tuple[int | None, int, bool]] = []
    # The numbers of files that are there when an engine starts; an interval has at most one file of each source.
    turns = [2, 5, 11, 14, 17, 20, 26, 38, 41, 65, 68]
    for turn, number in enumerate(turns):
        for each in range(turns[turn - 1] if turn else 0, number):
            put(tmp_path / names[each % 3], f"{each} ü.json", {"n": each, f"f{each % 5}": each, f"t{turn}": turn})
        engine = engines[first if turn % 2 == 0 else {"local": "spark", "spark": "local"}[first]]
        if turn % 3 == 2:  # the interval has begun, and then the other engine repeats it
            with pytest.raises(EvolutionRefused):
                stream(engine, tmp_path, source=sources, max_files=1, evolve="fail")
            engine = engines["local" if engine is spark else "spark"]
        results = stream(engine, tmp_path, source=sources, max_files=1)
        done += [(each.interval, each.records, each.is_repeated) for each in results]
    # The last interval of each engine is repeated by the other one, which finds it in the table.
    for engine in (engines["local"], spark):
        last = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
        last.unlink()
        (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
        assert [each.is_repeated for each in stream(engine, tmp_path, source=sources)] == [True]
    assert [interval for interval, _, _ in done] == list(range(len(done)))
    assert numbers(spark, tmp_path) == Counter(range(68))
    rows = Table(str(tmp_path / "table")).read(spark=spark).collect()
    assert all(row[f"f{row['n'] % 5}"] == row["n"] for row in rows)
    [one] = {
        widen.ingest_stream(sources, f"{tmp_path}/table", checkpoint=f"{tmp_path}/checkpoint", once=True, spark=each).id
        for each in engines.values()
    }
    assert one == json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]


def test_an_interval_that_needs_spark_starts_it(spark: SparkSession, tmp_path: Path) -> None:
    """The stream itself goes on as it is."""
    put(tmp_path / "in", "1.json", {"n": 1})
    orc.write_table(pa.table({"n": pa.array([2], pa.int32())}), tmp_path / "in" / "2.orc")
    os.utime(tmp_path / "in" / "2.orc", (1_900_000_000, 1_900_000_000))
    session = LocalSession(Engine.AUTO, lambda _: spark)
    assert [each.interval for each in stream(session, tmp_path, max_files=1)] == [0, 1]
    assert session.explanation == "on Spark, because its readers read orc files"
    put(tmp_path / "in", "3.json", {"n": 3})
    for each in (session, spark):
        stream(each, tmp_path)
    assert numbers(spark, tmp_path) == Counter([1, 2, 3])


# ---- kill -9 and an orderly end --------------------------------------------------------------------

CHILD = """
import os, signal, sys
import widen
from widen.ingestion import commit_batch
from widen.targets.delta import DeltaDraft

place, where, engine = sys.argv[1:]

def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)

commit = DeltaDraft.commit
if where == "before the files":
    commit_batch.write_until_plan_is_stable = die
elif where == "before the commit":
    DeltaDraft.commit = die
elif where == "after the commit":
    DeltaDraft.commit = lambda *words, **more: (commit(*words, **more), die())

spark = None
if engine == "spark":
    from pyspark.sql import SparkSession
    spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
words = {"checkpoint": f"{place}/checkpoint", "once": True, "max_files": 1, "spark": spark, "engine": engine}
widen.ingest_stream(f"{place}/in", f"{place}/table", **words).wait()
"""
KILLED = {"before the files": "local", "before the commit": "spark", "after the commit": "local"}
"""Where streams are killed, and what runs them: each repeats the interval of the one before. With
WIDEN_TEST_ENGINE=spark, Spark runs all of them."""
FOLLOW = ("-c", "from widen.cli.app import main; main()", "ingest", "--follow", "--max-files", "1", "--every", "0")


def child(*words: str, on_spark: bool = True) -> subprocess.Popen[str]:
    places = {"PYTHONPATH": str(ROOT / "src"), "SPARK_LOCAL_IP": "127.0.0.1"}
    places |= {"MASTER": "local[1]"} if on_spark else {}
    places["PYTHONUNBUFFERED"] = ""  # lines have to come by themselves
    return subprocess.Popen(
        [sys.executable, *words],
        env={**os.environ, **places},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def follow(place: Path, *words: str, on_spark: bool = True) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Run a stream on the command line, stop it after two intervals, and return what it said of them and its events."""
    events = place / "events.jsonl"
    words = (str(place / "in"), *words, "--checkpoint", str(place / "checkpoint"), "--events", str(events), "--json")
    with child(*FOLLOW, *words, on_spark=on_spark) as following:
        assert following.stdout is not None
        watchdog = Timer(300, following.kill)
        watchdog.start()
        told = [json.loads(following.stdout.readline()) for _ in range(2)]
        following.send_signal(signal.SIGTERM)
        _, said = following.communicate()
        watchdog.cancel()
    assert (following.returncode, "run it again with this checkpoint to continue" in said) == (0, True), said
    return told, [json.loads(line) for line in events.read_text().splitlines()]


def test_every_record_is_there_once_after_a_kill_at_any_point(spark: SparkSession, tmp_path: Path) -> None:
    for number in range(2):
        put(tmp_path / "in", f"{number}.json", {"n": number, "a": [1, "x"][number]})
    for where, engine in KILLED.items():
        with child("-c", CHILD, str(tmp_path), where, ENGINE or engine) as killed:
            said = killed.communicate()
        assert killed.returncode == -signal.SIGKILL, said
    told, events = follow(tmp_path, "--into", str(tmp_path / "table"))
    assert [(each["interval"], each["isRepeated"], each["records"]) for each in told] == [(0, True, 0), (1, False, 1)]
    assert numbers(spark, tmp_path) == {0: 1, 1: 1}
    assert Table(str(tmp_path / "table")).version == 1
    [event] = [each for each in events if each["event"] == "change"]
    assert (event["interval"], event["version"], event["column"], event["grade"]) == (1, 1, ["a_string"], "conflict")


def test_a_stream_into_iceberg_is_followed_until_it_is_stopped(tmp_path: Path) -> None:
    for number in range(2):
        put(tmp_path / "in", f"{number}.json", {"n": number, "a": [1, "x"][number]})
    catalog = str(tmp_path / "catalog.db")
    into = ("--into", "shop.orders", "--to", "iceberg", "--catalog", catalog)
    told, events = follow(tmp_path, *into, on_spark=ENGINE == "spark")
    assert [(each["interval"], each["records"]) for each in told] == [(0, 1), (1, 1)]
    table = SqlCatalog("default", uri=f"sqlite:///{catalog}").load_table("shop.orders")
    versions = [each.snapshot_id for each in table.snapshots()]
    assert [(each["version"], each["column"]) for each in events if each["event"] == "change"] == [
        (versions[0], ["a"]),
        (versions[0], ["n"]),
        (versions[1], ["a_string"]),
    ]
    assert sorted(row["n"] for row in table.scan().to_arrow().to_pylist()) == [0, 1]
