"""Folders that cannot be listed, and entries that cannot be looked at: never taken for places without files."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import widen
from widen.errors import StorageError

ERRORS = (errno.EACCES, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.ETIMEDOUT, errno.ENOMEM)


def failing(call: Callable[..., Any], place: Path, number: int) -> Callable[..., Any]:
    def wrapper(path: Any = ".", *words: Any, **options: Any) -> Any:
        named = os.readlink(f"/proc/self/fd/{path}") if isinstance(path, int) else os.fspath(path)
        if options.get("dir_fd") is not None:
            named = os.path.join(os.readlink(f"/proc/self/fd/{options['dir_fd']}"), named)
        if named == str(place):
            raise OSError(number, os.strerror(number), path)
        return call(path, *words, **options)

    return wrapper


@pytest.mark.parametrize("call", ["scandir", "stat"])
@pytest.mark.parametrize("number", ERRORS)
@pytest.mark.parametrize("source", ["landing", "landing/*", "landing/*.json", "landing/*/*"])
def test_an_error_of_the_system_fails_the_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, source: str
) -> None:
    landing = tmp_path / "landing"
    (landing / "more").mkdir(parents=True)
    for file in (landing / "a.json", landing / "more" / "b.json"):
        file.write_text('{"id": 1}\n')
    is_above = call == "stat" or source == "landing/*.json"
    place = landing / "a.json" if call == "stat" else landing if is_above else landing / "more"
    if (call, source) == ("stat", "landing/*/*"):
        place = landing / "more" / "b.json"
    monkeypatch.setattr(os, call, failing(getattr(os, call), place, number))
    with pytest.raises(StorageError, match=os.strerror(number)) as refused:
        widen.ingest(tmp_path / source, tmp_path / "t", engine="local", new=True)
    assert refused.value.fields["location"] == f"file:{place}"
    monkeypatch.undo()
    assert not (tmp_path / "t").exists()
    expected = {"landing": 2, "landing/*": 2, "landing/*.json": 1, "landing/*/*": 1}[source]
    assert widen.ingest(tmp_path / source, tmp_path / "t", engine="local", new=True).records == expected


def test_what_is_gone_meanwhile_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "landing" / "more").mkdir(parents=True)
    (tmp_path / "landing" / "a.json").write_text('{"id": 1}\n')
    (tmp_path / "landing" / "loop").symlink_to(tmp_path / "landing" / "loop")
    monkeypatch.setattr(os, "scandir", failing(os.scandir, tmp_path / "landing" / "more", errno.ENOENT))
    assert widen.ingest(tmp_path / "landing", tmp_path / "t", engine="local").records == 1
