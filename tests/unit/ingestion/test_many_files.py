"""Folders with many files: limits count what is read, and each reason to start Spark is the true one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import widen
from widen import limits
from widen.batches import open_source
from widen.errors import CorruptLog, EngineUnsuitable, SourceError
from widen.log.commit import commit
from widen.log.commit_outcome import Outcome, StagedFiles
from widen.log.load_segments import Load, LoadedFile
from widen.log.loads import FOLDER, MAX_INLINE_FILES, RecordFolder, commit_with_loads
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.protocol.actions import Txn
from widen.sources.find_files import list_local_files
from widen.sources.listing import FileFormat, SourceFile, SourceFiles
from widen.spark.engine import Engine, LocalSession


def no_spark(reason: str) -> None:
    raise AssertionError(f"Spark would start: {reason}")


def record(table: Path, files: tuple[LoadedFile, ...]) -> None:
    """Record files as loaded, as a load of them does."""
    store = LogStore(str(table))

    def attempt(base: object, txn: Txn) -> Outcome:
        return commit(store, base, [txn], "WRITE", {}, staged=staged, max_attempts=1)  # type: ignore[arg-type]

    load = Load(version=-1, loaded_ms=0, files=files)
    with StagedFiles() as staged:
        commit_with_loads(store, open_snapshot(store), load, attempt, staged=staged, is_exclusive=False)


@pytest.mark.parametrize("which", ["auto", "local"])
def test_loaded_files_do_not_count_for_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str) -> None:
    landing, table = tmp_path / "landing", tmp_path / "t"
    landing.mkdir()
    count = limits.RANGED_FILES + 10
    for number in range(count):
        (landing / f"{number:05}.json").write_bytes(b'{"id": %d}\n' % number)
    widen.create_table(str(table), "id bigint")
    listed = list_local_files([str(landing)])
    record(table, tuple(LoadedFile(file.path, file.size_bytes, file.modified_ms) for file in listed[:-10]))
    monkeypatch.setattr(LocalSession, "_start_once", lambda _, reason: no_spark(reason))
    done = widen.ingest(landing, table, new=True, engine=which)
    assert (done.records, done.compared.known.count, len(done.compared.known.first)) == (10, count - 10, 1_000)
    assert widen.ingest(landing, table, new=True, engine=which).is_unchanged


def source(*names: str, format: FileFormat = FileFormat.JSON, size_bytes: int = 10) -> SourceFiles:
    return SourceFiles((), tuple(SourceFile(name, size_bytes, 1, name) for name in names), format=format)


REMOTE = [f"s3://bucket/{number}.json" for number in range(limits.REMOTE_FILES + 1)]


@pytest.mark.parametrize(
    ("which", "files", "reason"),
    [
        (Engine.LOCAL, source("hdfs://host/a.json"), "its file systems read hdfs://host/a.json"),
        (Engine.LOCAL, source("file:/a.json.lz4"), "it decompresses .lz4 files"),
        (Engine.LOCAL, source("file:/a.orc", format=FileFormat.ORC), "its readers read orc files"),
        (Engine.AUTO, source(*REMOTE), "the source has 257 files in another store, more than 256"),
        (Engine.AUTO, source("file:/a.json", size_bytes=10**13), "the source has 10.0 TB, more than"),
        (Engine.LOCAL, source(*REMOTE), None),
        (Engine.AUTO, source(*REMOTE[:-1]), None),
        (Engine.AUTO, source(*(f"file:/{number}.json" for number in range(limits.RANGED_FILES + 1))), None),
    ],
    ids=lambda each: str(each)[:40],
)
def test_the_reason_to_start_spark_is_the_true_one(which: Engine, files: SourceFiles, reason: str | None) -> None:
    started: list[str] = []
    session = LocalSession(which, started.append)  # type: ignore[arg-type]
    try:
        open_source._choose_engine(session, files)
    except EngineUnsuitable as error:
        started.append(str(error.fields["reason"]))
    assert [each.startswith(reason or "") for each in started] == ([] if reason is None else [True]), started


def test_a_name_that_is_not_utf_8_is_refused_and_named(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    Path(str(tmp_path / "in").encode().decode(), b"\xff.json".decode(errors="surrogateescape")).write_text(
        '{"id": 1}\n'
    )
    with pytest.raises(SourceError, match="its name is not in UTF-8"):
        widen.ingest(tmp_path / "in", tmp_path / "t", engine="local")


def test_names_that_differ_in_an_escape_are_different_files(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number, name in enumerate(("a b", "a%20b", "a%2520b", "a+b", "a\nb", "ä", "a\u0308", "%", "%zz")):
        path = tmp_path / "in" / f"{name}.json"
        path.write_text(f'{{"id": {number}}}\n')
        os.utime(path, (1_700_000_000, 1_700_000_000))
        assert widen.ingest(tmp_path / "in", tmp_path / "t", new=True, engine="local", verify=True).records == 1
    assert widen.ingest(tmp_path / "in", tmp_path / "t", new=True, engine="local").is_unchanged


@pytest.mark.parametrize("content", [None, b"nonsense"])
def test_a_load_by_name_outlives_a_bad_segment_and_the_error_says_how_to_begin_again(
    tmp_path: Path, content: bytes | None
) -> None:
    source, table = tmp_path / "in", tmp_path / "t"
    source.mkdir()
    for number in range(MAX_INLINE_FILES):
        (source / f"{number}.json").write_text(f'{{"id": {number}}}\n')
    widen.ingest(source, table, new=True, engine="local")
    [segment] = (table / FOLDER).glob("*.parquet")
    segment.unlink() if content is None else segment.write_bytes(content)
    # One file is in the range of the segment; all of them would be merged with it.
    for some, count in ((source / "1.json", 1), (source, MAX_INLINE_FILES)):
        assert widen.ingest(some, table, engine="local").records == count
        with pytest.raises(CorruptLog, match="delete all files in its folder, and load files by name"):
            widen.ingest(source, table, new=True, engine="local")
    shutil.rmtree(table / FOLDER)
    widen.ingest(source / "1.json", table, engine="local")
    assert widen.ingest(source, table, new=True, engine="local").records == MAX_INLINE_FILES - 1


def test_a_load_opens_the_record_of_loads_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, opened, open_loads = tmp_path / "in", [], RecordFolder.open_loads
    source.mkdir()
    monkeypatch.setattr(RecordFolder, "open_loads", lambda *args: opened.append(args) or open_loads(*args))
    for number in range(3):
        (source / f"{number}.json").write_text(f'{{"id": {number}}}\n')
        widen.ingest(source, tmp_path / "t", new=True, engine="local")
    assert len(opened) == 2
