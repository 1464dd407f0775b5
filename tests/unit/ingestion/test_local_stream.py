"""Streams without Spark: every record once whatever happens in between, and a checkpoint that Spark can go on with."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from itertools import count
from pathlib import Path
from queue import Empty, Queue
from threading import Timer
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog

import widen
from widen.errors import (
    CorruptFile,
    EngineUnsuitable,
    InvalidOption,
    LimitExceeded,
    OptionConflict,
    SourceChanged,
    SourceError,
    SparkUnavailable,
    StreamTaken,
)
from widen.ingestion import options
from widen.log.local_files import LocalFiles
from widen.log.log_store import LogStore
from widen.sources.find_files import BatchSize, to_batch
from widen.sources.listing import SourceFile
from widen.spark import engine
from widen.spark.engine import Engine, LocalSession
from widen.streams import query
from widen.streams.checkpoint import StreamCheckpoint

CLOCK = count(1_700_000_000)


def put(place: Path, name: str, *records: Any) -> Path:
    """Let a file appear, later than all others."""
    path = place / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in records))
    now = next(CLOCK)
    os.utime(path, (now, now))
    return path


def start(place: Path, **words: Any) -> widen.IngestStream:
    # The other engine that reads the table has no type widening.
    words = {"engine": "local", "once": True, "checkpoint": place / "checkpoint", "evolve": "split", **words}
    return widen.ingest_stream(words.pop("source", place / "in"), place / "table", **words)


def stream(place: Path, **words: Any) -> list[tuple[int | None, int]]:
    """Load all that is there; return the number and the records of each interval."""
    done: list[widen.IngestResult] = []
    assert start(place, on_interval=done.append, verify=True, **words).wait()
    assert all(each.verification is None or each.verification.is_clean for each in done)
    return [(each.interval, each.records) for each in done]


def numbers(place: Path) -> Counter[int]:
    """Return how often the table has each number, as another engine reads it."""
    return Counter(DeltaTable(str(place / "table")).to_pyarrow_table(columns=["n"])["n"].to_pylist())


def read(place: Path, name: str) -> str:
    return (place / "checkpoint" / name).read_text(encoding="utf-8")


# ---- the files of a checkpoint ---------------------------------------------------------------------


def test_a_checkpoint_has_the_files_of_spark(tmp_path: Path) -> None:
    """The lines are those that Spark 4.2 wrote for such files."""
    first = put(tmp_path / "in", "a [1]+%41 é\u00a0.json", {"n": 1})
    second = put(tmp_path / "more" / "sub", "b.json", {"n": 2})
    sources = [tmp_path / "in", tmp_path / "more"]
    assert stream(tmp_path, source=[tmp_path / "in", tmp_path / "more"], max_files=1) == [(0, 2)]
    third = put(tmp_path / "in", "c.json", {"n": 3})
    running = start(tmp_path, source=[f"{tmp_path}//in/", sources[1]])
    assert running.wait()
    folder = f"file://{tmp_path}"
    times = [each.stat().st_mtime_ns // 1_000_000 for each in (first, second, third)]
    assert read(tmp_path, "metadata") == f'{{"id":"{running.id}"}}'
    assert read(tmp_path, "sources/0/0") == (
        f'v1\n{{"path":"{folder}/in/a%20%5B1%5D+%2541%20é%C2%A0.json","timestamp":{times[0]},"batchId":0}}'
    )
    assert read(tmp_path, "sources/1/0") == (
        f'v1\n{{"path":"{folder}/more/sub/b.json","timestamp":{times[1]},"batchId":0}}'
    )
    assert read(tmp_path, "sources/0/1") == f'v1\n{{"path":"{folder}/in/c.json","timestamp":{times[2]},"batchId":1}}'
    version, metadata, *offsets = read(tmp_path, "offsets/1").split("\n")
    assert (version, offsets) == ("v1", ['{"logOffset":1}', '{"logOffset":0}'])
    assert json.loads(metadata).keys() == {"batchWatermarkMs", "batchTimestampMs", "conf"}
    assert read(tmp_path, "commits/1") == 'v1\n{"nextBatchWatermarkMs":0}'
    assert {str(each.relative_to(tmp_path / "checkpoint")) for each in (tmp_path / "checkpoint").rglob("*.*")} == set()
    assert numbers(tmp_path) == Counter([1, 2, 3])


def test_every_tenth_file_of_the_log_has_all_before(tmp_path: Path) -> None:
    for number in range(25):
        put(tmp_path / "in", f"{number}.json", {"n": number})
        if number % 4 == 3:  # new starts before, at and after a compaction
            stream(tmp_path, max_files=1)
    stream(tmp_path, max_files=1)
    assert numbers(tmp_path) == Counter(range(25))
    assert [each for each in range(25) if not (tmp_path / "checkpoint/sources/0" / f"{each}").exists()] == [9, 19]
    version, *lines = read(tmp_path, "sources/0/19.compact").split("\n")
    entries = [json.loads(line) for line in lines]
    assert version == "v1"
    assert [(each["path"], each["batchId"]) for each in entries] == [
        (f"file://{tmp_path}/in/{number}.json", number) for number in range(20)
    ]


def test_files_of_intervals_that_are_long_over_are_deleted(tmp_path: Path) -> None:
    checkpoint = StreamCheckpoint(LogStore(tmp_path), 1)
    progress = checkpoint.open()
    for number in range(125):
        for file in (tmp_path / "sources/0").glob("*"):
            os.utime(file, (0, 0))
        assert progress.begin(lambda _, number=number: [SourceFile(f"file:/{number}", 1, 0, f"file:/{number}")])
        progress.finish()
    assert checkpoint.numbered("offsets").keys() == checkpoint.numbered("commits").keys() == set(range(25, 125))
    assert checkpoint.numbered("sources/0").keys() == set(range(19, 125))
    listed = pa.Table.from_batches([to_batch([SourceFile(f"file:/{number}", 1) for number in range(126)])])
    assert [file.path for file in checkpoint.open().new_files(0, listed)] == ["file:/125"]


DAMAGED: dict[str, tuple[str, bytes | None, str]] = {
    "an id that is cut off": ("metadata", b'{"id":"a', "metadata cannot be read: it is damaged"),
    "no offsets": ("offsets/2", b"", "offsets/2 cannot be read: it is empty"),
    "offsets without a version": ("offsets/2", b'{"logOffset":1}', "it does not begin with a version"),
    "offsets that are cut off": ("offsets/2", b'v1\n{}\n{"logOffset"', "offsets/2 cannot be read: it is damaged"),
    "missing offsets": ("offsets/2", None, "offsets/2 cannot be read: it is missing"),
    "missing offsets before": ("offsets/1", None, "offsets/1 cannot be read: it is missing"),
    "a file of the log that is cut off": ("sources/0/1", b'v1\n{"path":"fi', "sources/0/1 cannot be read: it is dam"),
    "a missing file of the log": ("sources/0/1", None, "sources/0/1 cannot be read: it is missing"),
    "the missing last file of the log": ("sources/0/2", None, "sources/0/2 cannot be read: it is missing"),
    "an empty commit": ("commits/2", b"", "commits/2 cannot be read: it is empty"),
}


@pytest.mark.parametrize(("name", "content", "reason"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_checkpoint_is_an_error(tmp_path: Path, name: str, content: bytes | None, reason: str) -> None:
    for number in range(3):
        put(tmp_path / "in", f"{number}.json", {"n": number})
    stream(tmp_path, max_files=1)
    damaged = tmp_path / "checkpoint" / name
    damaged.unlink() if content is None else damaged.write_bytes(content)
    if name.startswith("offsets/1"):
        (tmp_path / "checkpoint/commits/2").unlink()  # the interval before is only read to repeat the last one
    with pytest.raises(CorruptFile, match=reason):
        stream(tmp_path)
    assert numbers(tmp_path) == Counter(range(3))


UNKNOWN: dict[str, tuple[str, str | None, str]] = {
    "another version": ("offsets/0", "v2\n{}\n0:{}", "the checkpoint has files of the version v2"),
    "another version of the log": ("sources/0/0", "v9\n{}", "the checkpoint has files of the version v9"),
    "Kafka": ("offsets/0", 'v1\n{}\n{"topic":{"0":7}}', "the checkpoint is one of another kind of source"),
    "two paths": ("offsets/0", 'v1\n{}\n{"logOffset":0}\n-', "another number of source paths, 2"),
    "another interval of compaction": ("sources/0/4.compact", "v1", "is not compacted every 10 intervals"),
}


@pytest.mark.parametrize(("name", "content", "reason"), UNKNOWN.values(), ids=UNKNOWN)
def test_what_only_spark_can_go_on_with(tmp_path: Path, name: str, content: str, reason: str) -> None:
    put(tmp_path / "in", "1.json", {"n": 1})
    stream(tmp_path)
    (tmp_path / "checkpoint" / name).write_text(content)
    with pytest.raises(EngineUnsuitable, match=reason):
        stream(tmp_path)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"checkpoint": "s3://bucket/checkpoint"}, "only its file systems reach the checkpoint"),
        ({"source": "s3://bucket/in"}, "only its file systems find the source"),
        ({"source": "{here}/{{in,more}}"}, "only its file systems find the source"),
    ],
)
def test_other_stores_need_spark(tmp_path: Path, words: dict[str, str], reason: str) -> None:
    put(tmp_path / "in", "1.json", {"n": 1})
    with pytest.raises(EngineUnsuitable, match=reason):
        start(tmp_path, **{key: value.format(here=tmp_path) for key, value in words.items()})


def test_a_name_that_is_not_utf_8_is_an_error(tmp_path: Path) -> None:
    put(tmp_path / "in", "1\udcff.json", {"n": 1})
    with pytest.raises(SourceError, match="its name is not in UTF-8"):
        stream(tmp_path)


# ---- exactly once ----------------------------------------------------------------------------------


class Crash(BaseException):
    """The end of the process, as far as one of its threads can see."""


@pytest.mark.parametrize("is_written", [False, True], ids=["before", "after"])
def test_every_record_is_there_once_after_a_crash_at_any_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    """Writes of the checkpoint and of the table alike. Another file arrives before the stream starts again."""
    whole, names = LocalFiles.put_if_absent, set[str]()
    for crash_at in count():
        place, writes = tmp_path / str(crash_at), count()

        def put_if_absent(
            self: LocalFiles, path: str, data: bytes, *, writes: count[int] = writes, crash_at: int = crash_at
        ) -> bool:
            if next(writes) != crash_at:
                return whole(self, path, data)
            names.add(path.partition("/")[0])
            if is_written:
                whole(self, path, data)
            raise Crash

        for number in range(2):
            put(place / "in", f"{number}.json", {"n": number})
        monkeypatch.setattr(LocalFiles, "put_if_absent", put_if_absent)
        try:
            start(place, max_files=1).wait()
        except Crash:
            pass
        else:
            break
        finally:
            monkeypatch.setattr(LocalFiles, "put_if_absent", whole)
        put(place / "in", "2.json", {"n": 2})
        stream(place, max_files=1)
        assert numbers(place) == Counter(range(3)), crash_at
    assert names == {"metadata", "sources", "offsets", "commits", "_delta_log"}


def test_an_interval_over_a_limit_is_repeated_with_its_files(tmp_path: Path) -> None:
    put(tmp_path / "in", "1.json", {"n": 1}, "no record")
    for _ in range(2):
        with pytest.raises(LimitExceeded, match="1 of 2 lines are not records"):
            stream(tmp_path, max_corrupt=0)
        put(tmp_path / "in", "2.json", {"n": 2})
    put(tmp_path / "in", "1.json", {"n": 1})
    assert stream(tmp_path, max_corrupt=0) == [(0, 1), (1, 1)]
    assert stream(tmp_path) == []
    assert numbers(tmp_path) == Counter([1, 2])


def test_a_file_that_is_deleted_before_it_is_read_is_not_passed_over(tmp_path: Path) -> None:
    gone = put(tmp_path / "in", "1.json", {"n": 1})
    put(tmp_path / "in", "2.json", {"n": 2})
    for _ in range(2):
        with pytest.raises(SourceChanged, match=r"1\.json changed after it was listed: it was deleted"):
            stream(tmp_path, progress=lambda _: gone.unlink(missing_ok=True))
    gone.touch()
    assert stream(tmp_path) == [(0, 1)]
    assert numbers(tmp_path) == Counter([2])


def test_what_is_loaded_is_not_loaded_again(tmp_path: Path) -> None:
    """Neither after it has changed, nor under another spelling; a link is a file of its own, once in an interval."""
    loaded = put(tmp_path / "in", "1.json", {"n": 1})
    (tmp_path / "in" / "link.json").symlink_to(loaded)
    (tmp_path / "in" / "empty.json").touch()
    put(tmp_path / "in", ".hidden.json", {"n": 7})
    put(tmp_path / "in", "_private/1.json", {"n": 7})
    assert stream(tmp_path) == [(0, 1)]
    put(tmp_path / "in", "1.json", {"n": 1}, {"n": 7})
    assert stream(tmp_path, source=f"{tmp_path}/in/..//in/") == []
    assert len(read(tmp_path, "sources/0/0").split("\n")) == 3


def test_an_iceberg_table_has_every_record_once(tmp_path: Path) -> None:
    catalog = str(tmp_path / "lake.db")
    done: list[tuple[int | None, int, bool]] = []
    words: dict[str, Any] = {"engine": "local", "once": True, "max_files": 1, "catalog": catalog}
    words |= {"on_interval": lambda each: done.append((each.interval, each.records, each.is_repeated))}
    for number in range(3):
        put(tmp_path / "in", f"{number}.json", {"n": number, f"f{number}": 1})
        if number:
            widen.ingest_stream(tmp_path / "in", "shop.orders", checkpoint=tmp_path / "checkpoint", **words).wait()
    (tmp_path / "checkpoint" / "commits" / "2").unlink()
    widen.ingest_stream(tmp_path / "in", "shop.orders", checkpoint=tmp_path / "checkpoint", **words).wait()
    assert done == [(0, 1, False), (1, 1, False), (2, 1, False), (2, 0, True)]
    table = SqlCatalog("default", uri=f"sqlite:///{catalog}").load_table("shop.orders")
    assert sorted(table.scan().to_arrow()["n"].to_pylist()) == [0, 1, 2]


def test_two_processes_cannot_write_one_interval(tmp_path: Path) -> None:
    put(tmp_path / "in", "1.json", {"n": 1})
    stream(tmp_path)
    checkpoint = StreamCheckpoint(LogStore(tmp_path / "checkpoint"), 1)
    one, other = checkpoint.open(), checkpoint.open()
    file = SourceFile("file:/2.json", 1, 0, "file:/2.json")
    assert one.begin(lambda _: [file]) == ["file:///2.json"]
    with pytest.raises(StreamTaken, match=r"it has written sources/0/1\. "):
        other.begin(lambda _: [file])
    late = checkpoint.open()
    assert late.begin(lambda _: []) == ["file:///2.json"]
    one.finish()
    with pytest.raises(StreamTaken, match=r"it has written commits/1\. "):
        late.finish()


# ---- how much, how long ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limits", "taken"),
    [
        (BatchSize(), 4),
        (BatchSize(max_files=3), 3),
        (BatchSize(max_files=9), 4),
        (BatchSize(max_bytes=1), 1),
        (BatchSize(max_bytes=29), 1),
        (BatchSize(max_bytes=30), 2),
        (BatchSize(max_bytes=1000), 4),
    ],
)
def test_an_interval_takes_files_up_to_a_limit(limits: BatchSize, taken: int) -> None:
    files = [SourceFile(f"file:/{size}", size) for size in (10, 20, 30, 40)]
    assert limits.take(files) == files[:taken]
    assert limits.take([]) == []


def test_there_is_one_limit(tmp_path: Path) -> None:
    put(tmp_path / "in", "1.json", {"n": 1})
    with pytest.raises(OptionConflict):
        start(tmp_path, max_files=1, max_bytes=1)


def test_a_stream_runs_until_it_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "_POLL_SECONDS", 0.05)
    put(tmp_path / "in", "1.json", {"n": 1})
    done: Queue[widen.IngestResult] = Queue()
    running = start(tmp_path, once=False, on_interval=done.put)
    try:
        for number in (2, 3):
            done.get(timeout=60)
            put(tmp_path / "in", f"{number}.json", {"n": number})
        done.get(timeout=60)
        assert running.is_active
    finally:
        running.stop()
    assert not running.is_active
    assert running.wait()
    again = start(tmp_path)
    assert (again.wait(), again.id) == (True, running.id)
    assert numbers(tmp_path) == Counter([1, 2, 3])


def test_intervals_are_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(query, "_POLL_SECONDS", 0.05)
    for number in range(2):
        put(tmp_path / "in", f"{number}.json", {"n": number})
    done: Queue[widen.IngestResult] = Queue()
    running = start(tmp_path, once=False, max_files=1, every_seconds=3600, on_interval=done.put)
    done.get(timeout=60)
    with pytest.raises(Empty):
        done.get(timeout=0.5)
    assert running.is_active
    running.stop()
    assert (done.qsize(), running.wait()) == (0, True)
    assert numbers(tmp_path) == Counter([0])


def test_a_backlog_that_is_too_large_starts_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For its interval, which the session repeats if Spark cannot start."""
    reasons: list[str] = []

    def refuse(reason: str) -> Any:
        reasons.append(reason)
        raise SparkUnavailable(reason="there is none", fix="")

    put(tmp_path / "in", "1.json", {"n": 1})
    session: Any = LocalSession(Engine.AUTO, refuse)
    assert start(tmp_path, spark=session, engine=None).wait()
    for number in range(2, 5):
        put(tmp_path / "in", f"{number}.json", {"n": number})
    monkeypatch.setattr(engine, "_most_bytes", lambda: 20)
    with pytest.raises(SparkUnavailable, match="there is none"):
        start(tmp_path, spark=session, engine=None).wait()
    (reason,) = reasons
    assert reason.startswith("the source has 27 B, more than 20 B")  # without the kernel, also how much it allows
    assert stream(tmp_path, engine="local") == [(1, 3)]
    assert numbers(tmp_path) == Counter(range(1, 5))


def run(place: Path, *words: str) -> subprocess.Popen[str]:
    where = ("in", "--into", "table", "--checkpoint", "checkpoint")
    return subprocess.Popen(
        [sys.executable, "-c", "from widen.cli.app import main; main()", "ingest", *where, "--evolve", "split", *words],
        cwd=place,
        env={**os.environ, "PYTHONUNBUFFERED": "", "WIDEN_ENGINE": "local"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_stream_after_its_interval(tmp_path: Path, number: int) -> None:
    for each in range(2):
        put(tmp_path / "in", f"{each}.json", {"n": each})
    with run(tmp_path, "--follow", "--max-files", "1", "--every", "0", "--json") as following:
        assert following.stdout is not None
        watchdog = Timer(120, following.kill)
        watchdog.start()
        shown = [json.loads(following.stdout.readline()) for _ in range(2)]
        following.send_signal(number)
        _, said = following.communicate()
        watchdog.cancel()
    assert [(each["interval"], each["records"]) for each in shown] == [(0, 1), (1, 1)]
    assert following.returncode == 0, said
    assert "run it again with this checkpoint to continue" in said
    put(tmp_path / "in", "2.json", {"n": 2})
    with run(tmp_path, "--once") as again:
        _, said = again.communicate()
    assert (again.returncode, "without Spark: the source has" in said) == (0, True), said
    assert numbers(tmp_path) == Counter(range(3))


def test_a_kill_loses_nothing(tmp_path: Path) -> None:
    for number in range(40):
        put(tmp_path / "in", f"{number}.json", {"n": number})
    for _ in range(3):
        with run(tmp_path, "--once", "--max-files", "1", "--json") as killed:
            assert killed.stdout is not None
            killed.stdout.readline()
            killed.kill()
    stream(tmp_path)
    assert numbers(tmp_path) == Counter(range(40))


# ---- a checkpoint in the folder of the table -------------------------------------------------------

OLD = 1_700_000_000
"""A time before every retention."""


def begin_inside(place: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Start a stream as before such places were refused, and load one file."""
    put(place / "in", "a.json", {"n": 1})
    with monkeypatch.context() as patch:
        patch.setattr(options, "ensure_outlives_vacuum", lambda *_: None)
        assert stream(place, checkpoint=checkpoint) == [(0, 1)]


INSIDE = [".", "cp", "a/cp", "_delta_log/cp", "_change_data/cp", "_x=1/cp"]


@pytest.mark.parametrize("inside", [*INSIDE, "../table_quarantine/cp"])
@pytest.mark.parametrize("exists", [False, True])
def test_a_new_checkpoint_in_the_table_is_refused(tmp_path: Path, inside: str, exists: bool) -> None:
    put(tmp_path / "in", "a.json", {"n": 1})
    if exists:
        assert stream(tmp_path) == [(0, 1)]
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InvalidOption, match="a vacuum deletes"):
        start(tmp_path, checkpoint=tmp_path / "table" / inside)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("beside", ["table/_checkpoint", "table/.cp/a", "table/a/_b", "table_checkpoint", "."])
def test_a_checkpoint_that_no_vacuum_deletes(tmp_path: Path, beside: str) -> None:
    put(tmp_path / "in", "a.json", {"n": 1})
    place = tmp_path / beside if beside != "." else tmp_path / "x"
    assert stream(tmp_path, checkpoint=place) == [(0, 1)]
    assert stream(tmp_path, checkpoint=place) == []


def test_a_link_to_the_table_is_the_table(tmp_path: Path) -> None:
    put(tmp_path / "in", "a.json", {"n": 1})
    (tmp_path / "table").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "table")
    with pytest.raises(InvalidOption, match="a vacuum deletes"):
        start(tmp_path, checkpoint=tmp_path / "link" / "cp")


@pytest.mark.parametrize("inside", [".", "cp", "a/cp"])
def test_a_checkpoint_in_the_table_goes_on_and_is_not_vacuumed(
    tmp_path: Path, inside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = (tmp_path / "table" / inside).resolve()
    begin_inside(tmp_path, checkpoint, monkeypatch)
    stray = put(tmp_path / "table", "stray.parquet", "x")
    for path in (tmp_path / "table").rglob("*"):
        os.utime(path, (OLD, OLD))
    kept = {path for path in checkpoint.rglob("*") if path.is_file()} - {stray}
    widen.Table(tmp_path / "table").vacuum(0, force=True)
    assert not stray.exists()
    assert all(path.exists() for path in kept)
    assert stream(tmp_path, checkpoint=checkpoint) == []
    put(tmp_path / "in", "b.json", {"n": 2})
    assert stream(tmp_path, checkpoint=checkpoint) == [(1, 1)]
    assert numbers(tmp_path) == {1: 1, 2: 1}


WRITTEN = {
    "metadata": ("metadata",),
    "sources": ("metadata", "sources"),
    "offsets": ("metadata", "sources", "offsets"),
}


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("inside", [".", "cp"])
def test_a_stream_that_was_killed_before_its_table_exists(
    tmp_path: Path, inside: str, written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = (tmp_path / "table" / inside).resolve()
    begin_inside(tmp_path / "other", tmp_path / "other" / "table" / inside, monkeypatch)
    for path in sorted((tmp_path / "other" / "table" / inside).resolve().rglob("*")):
        name = str(path.relative_to((tmp_path / "other" / "table" / inside).resolve()))
        if path.is_file() and name.startswith(WRITTEN[written]):
            (checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
            (checkpoint / name).write_bytes(path.read_bytes())
    assert start(tmp_path, source=tmp_path / "other" / "in", checkpoint=checkpoint).wait()
    assert numbers(tmp_path) == {1: 1}


def test_other_files_at_the_place_of_a_new_table_are_refused(tmp_path: Path) -> None:
    put(tmp_path / "in", "a.json", {"n": 1})
    put(tmp_path / "table", "notes.txt", "x")
    with pytest.raises(InvalidOption, match=r"no table but other files, e\.g\. notes\.txt"):
        start(tmp_path)


def test_a_checkpoint_in_an_iceberg_table(tmp_path: Path) -> None:
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path / 'c.db'}", warehouse=f"file://{tmp_path / 'w'}")
    put(tmp_path / "in", "a.json", {"n": 1})
    words: dict[str, Any] = {"catalog": catalog, "engine": "local", "once": True}
    assert widen.ingest_stream(tmp_path / "in", "shop.t", checkpoint=tmp_path / "cp", **words).wait()
    table = Path(catalog.load_table("shop.t").location().removeprefix("file://"))
    with pytest.raises(InvalidOption, match="a vacuum deletes"):
        widen.ingest_stream(tmp_path / "in", "shop.t", checkpoint=table / "cp", **words)
    (tmp_path / "cp").rename(table / "cp")
    stray = put(table, "data/stray.parquet", "x")
    for path in table.rglob("*"):
        os.utime(path, (OLD, OLD))
    widen.IcebergTable("shop.t", catalog).vacuum(0, force=True)
    assert not stray.exists()
    assert widen.ingest_stream(tmp_path / "in", "shop.t", checkpoint=table / "cp", **words).wait()
    assert catalog.load_table("shop.t").scan().to_arrow().num_rows == 1
