"""The store on a local disk and on an S3 server."""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import obstore
import pytest

from support.log_server import BUCKET, s3_server
from widen.errors import FileMissing, InvalidOption, StorageError, StorageRefused, UnsafeStore
from widen.log import local_files, object_store, vacuum
from widen.log.commit import Committed, Conflicted, commit
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.log.vacuum import plan_vacuum, run_vacuum
from widen.protocol.actions import Add, Metadata, Protocol

SCHEMA = '{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}'


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, str]]:
    with s3_server() as options:
        yield options


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> LogStore:
    if request.param == "local":
        return LogStore(str(tmp_path / "a table"))
    return LogStore(f"s3a://{BUCKET}/{tmp_path.name}/a table", request.getfixturevalue("s3"))


def test_a_file_is_written_once(store: LogStore) -> None:
    assert store.put_if_absent("_delta_log/0.json", b"first")
    assert not store.put_if_absent("_delta_log/0.json", b"second")
    assert store.read("_delta_log/0.json") == b"first"


def test_a_path_with_nul_names_no_file(tmp_path: Path) -> None:
    assert LogStore(str(tmp_path)).find("a\0b") is None


@pytest.mark.parametrize("failing", ["makedirs", "link"])
def test_a_read_only_disk_says_that_nothing_was_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    """There, to delete a file that was never written fails like the write: its error must not replace the first."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    store = LogStore(str(tmp_path / "t"))
    protocol, metadata = Protocol(1, 2), Metadata(id="a", schema_string=SCHEMA, partition_columns=(), configuration={})
    commit(store, None, [protocol, metadata], "CREATE TABLE", {}).or_raise()
    for name in (failing, "unlink"):
        monkeypatch.setattr(local_files.os, name, refuse)
    with pytest.raises(StorageRefused, match="the file system is read-only"):
        commit(store, open_snapshot(store), [], "WRITE", {}).or_raise()
    monkeypatch.undo()
    assert open_snapshot(store).version == 0


def test_hadoop_verifies_no_other_content_of_a_file(tmp_path: Path) -> None:
    for name in ("put", "new", "deleted"):
        (tmp_path / f".{name}.crc").write_bytes(b"of the content before")
    (tmp_path / "deleted").touch()
    store = LogStore(str(tmp_path))
    store.put("put", b"a")
    assert store.put_if_absent("new", b"b")
    store.delete(["deleted"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new", "put"]


def test_put_replaces(store: LogStore) -> None:
    store.put("_delta_log/_last_checkpoint", b"1")
    store.put("_delta_log/_last_checkpoint", b"22")
    assert store.read("_delta_log/_last_checkpoint") == b"22"


def test_a_listing_is_in_name_order_and_can_start_at_a_name(store: LogStore) -> None:
    for path in ("_delta_log/03", "_delta_log/01", "_delta_log/02", "_delta_log/_sidecars/x", "data/a b=1%20/f", "z"):
        store.put(path, path.encode())
    expected = ["_delta_log/01", "_delta_log/02", "_delta_log/03", "_delta_log/_sidecars/x", "data/a b=1%20/f", "z"]
    assert [entry.path for entry in store.list("")] == expected
    assert [entry.path for entry in store.list_from("_delta_log/02")] == ["_delta_log/02", "_delta_log/03"]
    assert [entry.path for entry in store.list_from("_delta_log/00")] == expected[:3]
    assert [entry.path for entry in store.list("_delta_log/_sidecars")] == ["_delta_log/_sidecars/x"]
    sizes = {entry.path: entry.size_bytes for entry in store.list("data")}
    assert sizes == {"data/a b=1%20/f": 15}
    assert all(entry.modified_ms > 1_500_000_000_000 for entry in store.list(""))


def test_a_missing_folder_is_empty(store: LogStore) -> None:
    assert list(store.list("nothing")) == []
    assert list(store.list_from("_delta_log/0")) == []
    assert not store.find("_delta_log/0")


def test_read_many_returns_files_in_the_given_order(store: LogStore) -> None:
    paths = [f"f/{number:03d}" for number in range(100)]
    for path in paths[:60]:
        store.put(path, path.encode())
    asked = paths[:60][::-1]
    assert list(store.read_many(asked)) == [path.encode() for path in asked]


def test_an_error_names_the_missing_file(store: LogStore) -> None:
    with pytest.raises(FileMissing, match="nope"):
        store.read("nope")
    with pytest.raises(FileMissing, match="nope"):
        list(store.read_many(["nope"]))


def test_deleting_a_missing_file_is_not_an_error(store: LogStore) -> None:
    store.put("x", b"1")
    [listed] = store.list("")
    found = store.find("x")
    assert found is not None
    assert (found.path, found.size_bytes, found.modified_ms // 1000) == ("x", 1, listed.modified_ms // 1000)
    store.delete(["x", "y"])
    assert store.find("x") is None
    store.put("x", b"1")
    store.delete_in_order(["y", "x"])
    assert not list(store.list(""))


def test_a_walk_skips_folders_and_many_files_are_deleted_at_once(store: LogStore) -> None:
    for path in ("a/b/1", "a/2", "_h/x/3", "_h/4", "5"):
        store.put(path, b"1")
    seen: list[str] = []

    def skips(folder: str) -> bool:
        seen.append(folder)
        return folder == "_h"

    assert sorted(entry.path for entry in store.walk(skips)) == ["5", "a/2", "a/b/1"]
    assert sorted(seen) == ["_h", "a", "a/b"] if store.is_local else {"_h", "a", "a/b"} <= {*seen}
    store.delete(["a/2", *(f"missing/{number}" for number in range(1500)), "5"])
    assert [entry.path for entry in store.list("")] == ["_h/4", "_h/x/3", "a/b/1"]
    if not store.is_local:
        assert [entry.path for entry in store.list_range("_h/4", "a/b/1")] == ["_h/x/3", "a/b/1"]
        assert [entry.path for entry in store.list_range("", "_h/4")] == ["_h/4"]
        assert [entry.path for entry in store.list_range("_h/x/3", "")] == ["a/b/1"]


def test_a_vacuum_deletes_what_no_version_needs(store: LogStore, monkeypatch: pytest.MonkeyPatch) -> None:
    metadata = Metadata(id="i", schema_string=SCHEMA, partition_columns=())
    head = [Protocol(min_reader_version=1, min_writer_version=2), metadata]
    kept = Add(path="live%20file", partition_values={}, size=1, modification_time=1, data_change=True)
    done = commit(store, None, [*head, kept], "CREATE TABLE", {})
    assert isinstance(done, Committed)
    for path in ("live file", "orphan", "_widen/scans/a/_spark_metadata/0", "_hidden"):
        store.put(path, b"1")
    soon = vacuum.current_ms() + 1_100
    monkeypatch.setattr(vacuum, "current_ms", lambda: soon)
    vacuumed = run_vacuum(plan_vacuum(store, 0, force=True))
    assert isinstance(vacuumed, tuple)
    assert [entry.path for entry in vacuumed[0].files] == ["_widen/scans/a/_spark_metadata/0", "orphan"]
    assert [entry.path for entry in store.list("") if "_delta_log" not in entry.path] == ["_hidden", "live file"]
    assert open_snapshot(store).version == 2


def test_an_absolute_path_below_the_table_finds_its_file(store: LogStore) -> None:
    store.put("a b", b"1")
    assert store.read(f"{store.location}/a b") == b"1"


def test_a_pickled_copy_reads_the_same_files(store: LogStore) -> None:
    store.put("x", b"1")
    copy = pickle.loads(pickle.dumps(store))
    assert copy.location == store.location
    assert copy.read("x") == b"1"


def test_one_of_many_racing_writers_wins(store: LogStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda n: store.put_if_absent("_delta_log/race", str(n).encode()), range(8)))
    assert won.count(True) == 1
    assert store.read("_delta_log/race") == str(won.index(True)).encode()


def test_a_table_is_created_read_and_checkpointed(store: LogStore) -> None:
    metadata = Metadata(
        id="x",
        schema_string='{"type":"struct","fields":[{"name":"a","type":"long","nullable":true,"metadata":{}}]}',
        partition_columns=(),
        configuration={"delta.checkpointInterval": "2"},
    )
    first = [Protocol(min_reader_version=1, min_writer_version=2), metadata]
    assert isinstance(commit(store, None, first, "CREATE TABLE", {}), Committed)
    assert isinstance(commit(store, None, first, "CREATE TABLE", {}), Conflicted)
    base = open_snapshot(store)
    for number in range(3):
        new = Add(path=f"f{number}", partition_values={}, size=1, modification_time=1, data_change=True)
        assert commit(store, base, [new], "WRITE", {}) == Committed(number + 1, store)
    reopened = open_snapshot(store)
    assert reopened.segment.checkpoint is not None
    assert sorted(reopened.files()["path"].to_pylist()) == ["f0", "f1", "f2"]


@pytest.mark.parametrize(
    ("location", "normal", "uri"),
    [
        ("s3a://b/p q/", "s3://b/p q", "s3a://b/p%20q/k=1/f%20g"),
        ("S3://b/p", "s3://b/p", "s3a://b/p/k=1/f%20g"),
        ("gs://b/p", "gs://b/p", "gs://b/p/k=1/f%20g"),
        ("abfss://c@a.dfs.core.windows.net/t", "abfss://c@a.dfs.core.windows.net/t", None),
        ("az://c/t", "az://c/t", "abfss://c@acc.dfs.core.windows.net/t/k=1/f%20g"),
        ("/t/ä b", "/t/ä b", "file:///t/ä%20b/k=1/f%20g"),
        ("file:///t/a%20b/", "/t/a b", "file:///t/a%20b/k=1/f%20g"),
        ("file:/t/x", "/t/x", "file:///t/x/k=1/f%20g"),
        ("file://localhost/t/x", "/t/x", "file:///t/x/k=1/f%20g"),
    ],
)
def test_locations_are_normalised_and_written_as_hadoop_does(location: str, normal: str, uri: str | None) -> None:
    store = LogStore(location, {"AZURE_STORAGE_ACCOUNT_NAME": "acc"})
    assert store.location == normal
    assert store.uri("k=1/f%20g") == (uri or f"{normal}/k=1/f%20g")


def test_absolute_paths_of_actions_are_written_as_hadoop_does() -> None:
    store = LogStore("/t")
    assert store.uri("s3://b/f%20g") == "s3a://b/f%20g"
    assert store.uri("file:/x/f%20g") == "file:///x/f%20g"
    assert store.uri("/x/f%20g") == "file:///x/f%20g"
    assert store.plain("k=a%20b/f") == "k=a b/f"


def test_a_file_on_another_host_is_refused_by_name() -> None:
    for refused in (
        lambda: LogStore("file://other/t"),
        lambda: LogStore("/t").uri("file://other/x"),
        lambda: LogStore("/t").read("file://other/x"),
    ):
        with pytest.raises(InvalidOption, match=r"file://other/\w.* is on another host"):
            refused()
    assert LogStore("/t").uri("file://localhost/x%20y") == "file:///x%20y"


def test_a_relative_location_becomes_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert LogStore("t").location == str(tmp_path / "t")


@pytest.fixture(scope="module")
def unsafe_server() -> Iterator[dict[str, str]]:
    with s3_server(obeys_conditions=False) as options:
        yield options


def test_a_store_that_overwrites_is_refused_before_the_first_commit(unsafe_server: dict[str, str]) -> None:
    store = LogStore(f"s3://{BUCKET}/unsafe", unsafe_server)
    protocol = Protocol(min_reader_version=1, min_writer_version=2)
    metadata = Metadata(id="m", schema_string='{"type":"struct","fields":[]}', partition_columns=())
    for _ in range(2):
        with pytest.raises(UnsafeStore, match="If-None-Match"):
            commit(store, None, [protocol, metadata], "CREATE TABLE", {})
    assert list(store.list("")) == []


def test_a_store_is_probed_once_and_the_probe_is_deleted(s3: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_store, "_PROVEN", set())
    written: list[str] = []
    put = obstore.put

    def counting_put(store: object, path: str, *args: object, **options: object) -> object:
        written.append(path)
        return put(store, path, *args, **options)

    monkeypatch.setattr(obstore, "put", counting_put)
    for number in range(3):
        store = LogStore(f"s3://{BUCKET}/probed", s3)
        assert store.put_if_absent(f"_delta_log/{number}.json", b"x")
    assert [path.endswith(".probe") for path in written] == [True, True, False, False, False]
    assert [entry.path for entry in store.list("")] == [f"_delta_log/{number}.json" for number in range(3)]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("aws_s3_locking_provider", "dynamodb"),
        ("AWS_S3_LOCKING_PROVIDER", "zookeeper"),
        ("delta_dynamo_table_name", "t"),
        ("dynamo_lock_owner_name", "me"),
        ("aws_conditional_put", "disabled"),
        ("conditional_put", "dynamo:t"),
    ],
)
def test_external_locks_are_refused(key: str, value: str) -> None:
    with pytest.raises(InvalidOption, match=key):
        LogStore("s3://b/t", {key: value}).read("x")


def test_unknown_schemes_and_options_are_refused() -> None:
    with pytest.raises(InvalidOption, match="hdfs"):
        LogStore("hdfs://host/t")
    with pytest.raises(InvalidOption, match="nonsense"):
        LogStore("s3://b/t", {"nonsense": "1"}).read("x")


@pytest.mark.parametrize(
    ("number", "reason"),
    [(errno.EACCES, "permission denied"), (errno.ENOSPC, "no space left"), (errno.EROFS, "read-only")],
)
def test_a_system_error_is_reported_and_leaves_no_file(
    number: int, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    store = LogStore(str(tmp_path))
    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(StorageError, match=reason) as caught:
        store.put_if_absent("_delta_log/0.json", b"x" * 1000)
    assert caught.value.advice
    assert os.listdir(tmp_path / "_delta_log") == []


def test_an_unreachable_endpoint_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {
        "aws_access_key_id": "a",
        "aws_secret_access_key": "b",
        "aws_endpoint_url": "http://127.0.0.1:9",
        "aws_allow_http": "true",
        "aws_region": "us-east-1",
    }
    few = partial(object_store.stores.from_url, retry_config={"max_retries": 1})  # by default ten, in ten seconds
    monkeypatch.setattr(object_store.stores, "from_url", few)
    with pytest.raises(StorageError, match="network") as caught:
        LogStore("s3://b/t", options).read("x")
    assert not isinstance(caught.value, FileMissing)


class _Denial(BaseHTTPRequestHandler):
    """Answers like S3 to a request with an expired token."""

    def do_GET(self) -> None:
        self._answer(b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>")

    def do_HEAD(self) -> None:
        self._answer(b"")

    def _answer(self, body: bytes) -> None:
        self.send_response(403 if "list-type" in self.path else 400)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Do not print the requests."""


def test_credentials_that_expire_are_named() -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Denial) as server:
        Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        options = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "a",
            "AWS_SECRET_ACCESS_KEY": "b",
        }
        store = LogStore(f"s3://{BUCKET}/t", options)
        for call in (lambda: store.read("a"), lambda: list(store.list("_delta_log"))):
            with pytest.raises(StorageError, match=r"were not accepted \((ExpiredToken|403 Forbidden)\)\. Give"):
                call()
        server.shutdown()
