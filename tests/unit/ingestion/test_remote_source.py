"""Sources in an object store, which this process lists and reads without Spark."""

from __future__ import annotations

import bz2
import gzip
import io
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import widen
from support.log_server import BUCKET, s3_server
from widen.errors import EngineUnsuitable, InvalidOption, OptionMissing, SourceChanged, SourceError, StorageError
from widen.sources import places, remote_files
from widen.sources.find_files import list_local_files
from widen.sources.places import expand_local, is_hidden
from widen.sources.remote_files import list_store_files, open_store_file
from widen.spark import engine
from widen.spark.engine import SOURCE_OPTIONS, LocalSession

URL = f"s3://{BUCKET}"
LINES = b'{"id": 1, "v": 2}\n{"id": 2, "v": "x"}\n'


@pytest.fixture(scope="module")
def options() -> Iterator[dict[str, str]]:
    with s3_server() as storage_options:
        yield storage_options


@pytest.fixture(scope="module")
def store(options: dict[str, str]) -> obstore.store.S3Store:
    return obstore.store.S3Store(BUCKET, config=options, client_options={"allow_http": True})


def rows(table: Path) -> list[dict[str, Any]]:
    return sorted(widen.Table(str(table)).to_arrow().to_pylist(), key=repr)


def test_a_folder_of_a_store_is_loaded_as_one_of_the_disk(
    store: obstore.store.S3Store, options: dict[str, str], tmp_path: Path
) -> None:
    files = {
        "day=1/a b.json": LINES,
        "day=1/ü%20#.json": b'{"id": 3}\n',
        "day=2/c.json.gz": gzip.compress(LINES, mtime=0),
        "day=2/d.jsonl.bz2": bz2.compress(LINES),
        "day=2/damaged.json": b'{"id": 4}\n{"id": \n',
        "_hidden/e.json": LINES,
        "day=2/.f.json": LINES,
        "day=2/g.json": b"",
    }
    for name, content in files.items():
        obstore.put(store, f"landing/{name}", content)
        path = tmp_path / "landing" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    words: dict[str, Any] = {"engine": "local", "verify": True, "new": True, "new_by": "content"}
    done = widen.ingest(f"{URL}/landing", tmp_path / "remote", storage_options=options, **words)
    same = widen.ingest(tmp_path / "landing", tmp_path / "local", **words)
    assert (done.records, done.corrupt, done.quarantined) == (same.records, same.corrupt, same.quarantined) == (8, 1, 0)
    assert done.verification is not None
    assert done.verification.is_clean
    assert [{**row, "_corrupt_at": None} for row in rows(tmp_path / "remote")] == [
        {**row, "_corrupt_at": None} for row in rows(tmp_path / "local")
    ]
    again = widen.ingest(f"{URL}/landing/", tmp_path / "remote", storage_options=options, **words)
    assert again.is_unchanged
    obstore.put(store, "landing/day=3/h.json", LINES.replace(b"1", b"5"))
    assert widen.ingest(f"{URL}/landing", tmp_path / "remote", storage_options=options, **words).records == 2


def test_parquet_of_a_store_is_loaded_as_that_of_the_disk(
    store: obstore.store.S3Store, options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By several processes, each of which opens the files itself."""
    monkeypatch.setattr(engine, "POOL_BYTES", 1)
    monkeypatch.setattr(engine.os, "cpu_count", lambda: 2)
    chance = random.Random(7)
    for name, data_type in (("day=1/a b.parquet", pa.int32()), ("day=2/ü.parquet", pa.int64())):
        texts = [chance.randbytes(60).hex() for _ in range(60_000)]
        sink = io.BytesIO()
        columns = {"id": pa.array(range(60_000), data_type), "text": texts}
        pq.write_table(pa.table(columns), sink, row_group_size=20_000)
        obstore.put(store, f"columns/{name}", sink.getvalue())
        (tmp_path / "columns" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "columns" / name).write_bytes(sink.getvalue())
    words: dict[str, Any] = {"engine": "local", "verify": True, "new": True}
    done = widen.ingest(f"{URL}/columns", tmp_path / "remote", storage_options=options, **words)
    assert done.records == 120_000
    assert done.verification is not None
    assert done.verification.is_clean
    widen.ingest(tmp_path / "columns", tmp_path / "local", **words)
    assert rows(tmp_path / "remote") == rows(tmp_path / "local")
    assert widen.ingest(f"{URL}/columns", tmp_path / "remote", storage_options=options, **words).is_unchanged


@pytest.mark.parametrize(
    "pattern",
    [
        *("l/day=1/a.json", "l/day=1", "l/day=1/", "l/day=?/", "l/*/*.json", "l/day=[^1]/*", "l/_x", "l/day=1/_only"),
        *("l/nothing", "l/day=1/a", "*/none*", "l/*[", "l/day=1/a.json/"),
    ],
)
def test_a_url_names_what_a_path_does(
    store: obstore.store.S3Store, options: dict[str, str], tmp_path: Path, pattern: str
) -> None:
    for name in ("day=1/a.json", "day=1/deep/b.json", "day=2/c.json", "_x/d.json", "day=1/.hidden", "day=1/_only/_e"):
        obstore.put(store, f"l/{name}", LINES)
        (tmp_path / "l" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "l" / name).write_bytes(LINES)
    SOURCE_OPTIONS.set(options)
    found = list_store_files(f"{URL}/{pattern}", is_hidden)
    places = expand_local(f"{tmp_path}/{pattern}")
    assert places is not None
    names = [each.path.removeprefix(f"file:{tmp_path}/") for each in list_local_files(places)]
    assert [each.url.removeprefix(f"{URL}/") for each in found or ()] == names
    assert (found is None) == (not places)


def test_a_load_looks_once_whether_a_folder_is_in_a_table(
    store: obstore.store.S3Store, options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def find_folders(folders: list[str], ending: str) -> list[str]:
        asked.extend(folders)
        return remote_files.find_folders(folders, ending)

    monkeypatch.setattr(places, "find_folders", find_folders)
    for name in ("a.json", "deep/b.json"):
        obstore.put(store, f"once/in/{name}", LINES)
    widen.ingest(f"{URL}/once/in", tmp_path / "t", engine="local", new=True, storage_options=options)
    folders = [URL, f"{URL}/once", f"{URL}/once/in", f"{URL}/once/in/deep"]
    marks = ("_delta_log", "metadata", ".hoodie")
    assert sorted(asked) == sorted(f"{folder}/{mark}" for folder in folders for mark in marks)


def test_a_file_is_read_at_any_position(store: obstore.store.S3Store, options: dict[str, str]) -> None:
    content = random.Random(5).randbytes(700_000)
    obstore.put(store, "any/ü b.bin", content)
    SOURCE_OPTIONS.set(options)
    chance = random.Random(6)
    with open_store_file(f"{URL}/any/ü%20b.bin") as file:
        for _ in range(60):
            start, size = chance.randrange(800_000), chance.choice([0, 1, 100, 70_000, 300_000])
            if chance.random() < 0.5:
                file.seek(start)
            at = file.tell()
            assert file.read(size) == content[at : at + size]
            assert file.tell() == min(at + size, max(at, len(content)))


def test_several_processes_read_a_large_file(
    store: obstore.store.S3Store, options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "POOL_BYTES", 1)
    monkeypatch.setattr(engine.os, "cpu_count", lambda: 3)
    monkeypatch.setattr(remote_files, "_FIRST_READ", 1_000)
    text = b"".join(b'{"id": %d, "text": "%s"}\n' % (number, b"x" * 90) for number in range(100_000))
    obstore.put(store, "large/a.json", text)
    done = widen.ingest(
        f"s3a://{BUCKET}/large/*.json", tmp_path / "t", storage_options=options, verify=True, engine="local"
    )
    assert done.records == 100_000
    assert done.verification is not None
    assert done.verification.is_clean


def test_what_is_refused(
    store: obstore.store.S3Store, options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    obstore.put(store, "shop/orders/_delta_log/00000000000000000000.json", b"{}\n")
    obstore.put(store, "shop/orders/day=1/a.json", LINES)
    obstore.put(store, "ice/t/metadata/00001-a.metadata.json", b"{}\n")
    obstore.put(store, "ice/t/data/a.json", LINES)
    words: dict[str, Any] = {"storage_options": options, "engine": "local"}
    for source, reason in (
        ("shop/orders/day=1", "is a Delta table"),
        ("ice/t/data/a.json", "is an Iceberg table"),
        ("nothing/here", "does not exist"),
    ):
        with pytest.raises(SourceError, match=reason):
            widen.ingest(f"{URL}/{source}", tmp_path / "t", **words)
    with pytest.raises(EngineUnsuitable, match="file systems"):
        widen.ingest(f"{URL}/{{l,ice}}", tmp_path / "t", **words)
    with pytest.raises(SourceError, match=r"bucket|not exist|NoSuchBucket"):
        widen.ingest("s3://no-such-bucket/a", tmp_path / "t", **words)
    with pytest.raises(InvalidOption, match="below the source"):
        widen.ingest(f"{URL}/l", f"s3a://{BUCKET}/l/t", **words)
    assert not (tmp_path / "t" / "_delta_log").exists()


def test_when_spark_starts_for_a_store(
    store: obstore.store.S3Store, options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its configuration may have credentials that this process does not."""
    obstore.put(store, "many/a.json", LINES)
    obstore.put(store, "many/b.json", LINES)
    monkeypatch.setattr("widen.batches.open_source.REMOTE_FILES", 1)
    asked = []

    def start(reason: str) -> Any:
        asked.append(reason)
        raise StorageError(location="", reason="stop", fix="")

    for source in (f"{URL}/many", "s3://no-such-bucket/many", f"{URL}/{{many}}"):
        session: Any = LocalSession(engine.Engine.AUTO, start)
        with pytest.raises(StorageError, match="stop"):
            widen.ingest(source, tmp_path / "t", storage_options=options, spark=session)
    assert asked == [
        "the source has 2 files in another store, more than 1",
        "only its file systems find the source",
        "its file systems read sources in other stores",
    ]


def test_a_file_that_changes_is_noticed(
    store: obstore.store.S3Store, options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    obstore.put(store, "moving/a.json", LINES)
    opened = remote_files.open_store_file

    def change(uri: str) -> Any:
        obstore.put(store, "moving/a.json", LINES * 2)
        return opened(uri)

    monkeypatch.setattr("widen.sources.file_ranges.open_store_file", change)
    with pytest.raises(SourceChanged, match="has 76 bytes, not 38"):
        widen.ingest(f"{URL}/moving", tmp_path / "t", storage_options=options, engine="local")
    monkeypatch.setattr("widen.sources.file_ranges.open_store_file", opened)
    assert widen.ingest(f"{URL}/moving", tmp_path / "t", storage_options=options, engine="local").records == 4


def test_a_store_whose_names_grow_is_listed_from_the_last_loaded_name_on(
    store: obstore.store.S3Store, options: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A late name is found by a load without the option, and files of other folders do not count."""
    listed: list[int] = []
    plain = remote_files.list_store_files

    def note(*arguments: Any, **words: Any) -> Any:
        found = plain(*arguments, **words)
        listed.append(len(found or ()))
        return found

    monkeypatch.setattr("widen.sources.find_files.list_store_files", note)
    words: dict[str, Any] = {"engine": "local", "new": True, "storage_options": options}

    def load(**more: Any) -> tuple[int, int]:
        done = widen.ingest(f"{URL}/grow", tmp_path / "t", **words, **more)
        return done.records, done.compared.after.count

    obstore.put(store, "grown/z.json", LINES)
    widen.ingest(f"{URL}/grown", tmp_path / "t", **words)
    for number in range(20):
        obstore.put(store, f"grow/day=1/{number:03}.json", b'{"id": %d}' % number)
    assert load(order="name", max_files=15) == (15, 0)
    assert load(order="name") == (5, 1)
    obstore.put(store, "grow/day=2/000.json", LINES)
    assert load(order="name") == (2, 1)
    obstore.put(store, "grow/day=1/0005.json", LINES)
    assert load(order="name") == (0, 1)
    assert listed == [1, 20, 5, 1, 0]
    assert load() == (2, 0)
    assert load(order="name") == (0, 1)


@pytest.mark.parametrize(
    ("source", "more", "reason"),
    [
        (f"{URL}/grow/*", {}, "without patterns"),
        ("/usr/*", {}, "without patterns"),
        (f"{URL}/grow", {"new_by": "content"}, "compared by path"),
        (f"{URL}/grow", {"order": "time"}, "Must be any or name"),
        (f"{URL}/grow", {"new": False}, "needs new=True"),
    ],
)
def test_an_order_that_cannot_apply_is_refused(
    options: dict[str, str], tmp_path: Path, source: str, more: dict[str, Any], reason: str
) -> None:
    words: dict[str, Any] = {"engine": "local", "new": True, "order": "name", "storage_options": options, **more}
    with pytest.raises((InvalidOption, OptionMissing), match=reason):
        widen.ingest(source, tmp_path / "t", **words)
