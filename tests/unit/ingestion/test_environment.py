"""Errors of the environment while files are read: they fail the load, are tried once more, and mark no file as bad."""

from __future__ import annotations

import errno
import gzip
import io
import os
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import widen
from support.bad_files import csv_lines, json_lines, parquet_good
from support.covering import covering
from widen.errors import StorageError
from widen.sources import remote_files
from widen.spark.errors import environment_error, find_known_failure

LASTING = {errno.EACCES: "permission", errno.EMFILE: "ulimit", errno.ENOMEM: "memory"}
PASSING = {errno.EIO: "disk", errno.ESTALE: "network", errno.ETIMEDOUT: "network", errno.EHOSTDOWN: "network"}
FORMATS: dict[str, Callable[[int], bytes]] = {
    "json": json_lines,
    "csv": csv_lines,
    "parquet": parquet_good,
    "json.gz": lambda first: gzip.compress(json_lines(first)),
}
WHEN = ("open", "read")
OPTIONS = {"skip": {"skip_bad_files": True}, "park": {"park_over_limit": True}, "neither": {}}


class Faulty:
    """Opens files; those named b fail with an error of the system.

    Args:
        number: Of the error.
        in_read: Whether it comes with the second read; else when the file is opened.
        count: How many calls fail.
    """

    def __init__(self, number: int, *, in_read: bool, count: int = 10**9) -> None:
        self.number, self.in_read, self.left = number, in_read, count

    def fail(self) -> None:
        if self.left:
            self.left -= 1
            raise OSError(self.number, os.strerror(self.number))

    def open(self, path: str, mode: str, buffering: int = -1) -> Any:
        if not os.path.basename(path).startswith("b."):
            return open(path, mode, buffering)
        if not self.in_read:
            self.fail()
        return FaultyFile(path, self)


class FaultyFile(io.FileIO):
    def __init__(self, path: str, faulty: Faulty) -> None:
        super().__init__(path)
        self.faulty = faulty

    def readinto(self, target: Any) -> int:
        if self.faulty.in_read and self.tell():
            self.faulty.fail()
        return super().readinto(memoryview(target)[:20])

    def readall(self) -> bytes:
        if self.faulty.in_read:
            self.faulty.fail()
        return super().readall()


def fill(folder: Path, kind: str, *names: str) -> None:
    folder.mkdir(exist_ok=True)
    for at, name in enumerate(names):
        (folder / f"{name}.{kind}").write_bytes(FORMATS[kind](10 * at))


@pytest.mark.parametrize(("number", "layout"), covering([*LASTING, *PASSING], product(FORMATS, OPTIONS, WHEN)))
def test_no_file_is_bad_for_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, layout: tuple[str, str, str]
) -> None:
    kind, options, when = layout
    table, source = str(tmp_path / "t"), tmp_path / "in"
    words: dict[str, Any] = {"engine": "local", "new": True, **OPTIONS[options]}
    fill(source, kind, "a")
    widen.ingest(source, table, **words)
    fill(source, kind, "a", "b", "c")
    for name in ("b", "c"):
        os.utime(source / f"{name}.{kind}", (2_000_000_000, 2_000_000_000))
    monkeypatch.setattr(remote_files, "open", Faulty(number, in_read=when == "read").open, raising=False)
    with pytest.raises(StorageError, match=rf"b\.{kind}: {os.strerror(number)}") as found:
        widen.ingest(source, table, changed="skip", **words)
    assert (LASTING | PASSING)[number] in found.value.advice
    assert widen.Table(table).version == 0
    assert not (tmp_path / "t_quarantine").exists()
    monkeypatch.undo()
    done = widen.ingest(source, table, changed="skip", **words)
    assert (done.records, done.bad_files) == (6, ())


@pytest.mark.parametrize(("number", "layout"), covering(PASSING, product(FORMATS, WHEN)))
def test_an_error_that_passes_is_not_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, layout: tuple[str, str]
) -> None:
    kind, when = layout
    fill(tmp_path / "in", kind, "a", "b")
    monkeypatch.setattr(remote_files, "open", Faulty(number, in_read=when == "read", count=1).open, raising=False)
    done = widen.ingest(tmp_path / "in", tmp_path / "t", engine="local", skip_bad_files=True, verify=True)
    assert (done.records, done.bad_files) == (6, ())
    assert done.verification is not None
    assert done.verification.is_clean


@pytest.mark.parametrize("number", LASTING, ids=errno.errorcode.get)
def test_a_file_is_not_opened_again_in_vain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    fill(tmp_path / "in", "json", "a", "b")
    faulty = Faulty(number, in_read=False, count=1)
    monkeypatch.setattr(remote_files, "open", faulty.open, raising=False)
    with pytest.raises(StorageError):
        widen.ingest(tmp_path / "in", tmp_path / "t", engine="local", skip_bad_files=True)
    assert faulty.left == 0


def test_a_file_whose_state_is_unknown_was_not_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(tmp_path / "in", "json", "a", "b")
    stat, calls = os.stat, 0

    def fail(path: Any, **words: Any) -> os.stat_result:
        nonlocal calls
        if str(path).endswith("b.json"):
            calls += 1
            if calls > 2:  # the listing has seen it
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return stat(path, **words)

    monkeypatch.setattr(os, "stat", fail)
    with pytest.raises(StorageError, match=r"b\.json: Stale file handle"):
        widen.ingest(tmp_path / "in", tmp_path / "t", engine="local", skip_bad_files=True)


def test_memory_that_no_file_needs_is_damage() -> None:
    assert environment_error("a", MemoryError("malloc of size 9223372036854775744 failed")) is None
    found = environment_error("a", MemoryError("malloc of size 64000 failed"))
    assert found is not None
    assert found.message == "a: Cannot allocate memory."


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///in/b.orc.  SQLSTATE: KD001\n"
            "Caused by: java.io.IOException: Input/output error",
            "file:///in/b.orc: Input/output error.",
        ),
        (
            "[FAILED_READ_FILE.FILE_NOT_EXIST] Encountered error while reading file file:///in/b.avro. File does not "
            "exist.\nCaused by: java.io.FileNotFoundException: /in/b.avro (Too many open files)",
            "file:///in/b.avro: Too many open files.",
        ),
        (
            "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///in/b.orc.\n"
            "Caused by: java.io.FileNotFoundException: /in/b.orc (Permission denied)",
            "file:///in/b.orc: Permission denied.",
        ),
        (
            "PythonException: widen.errors.tables.StorageError: [WIDEN_STORAGE] file:/in/b c.json: Stale file handle. "
            "Check the disk or the network, and repeat the call.",
            "file:/in/b c.json: Stale file handle.",
        ),
    ],
)
def test_spark_says_the_same(text: str, told: str) -> None:
    failure = find_known_failure(Exception(text))
    assert isinstance(failure, StorageError)
    assert failure.message == told
    assert failure.advice
