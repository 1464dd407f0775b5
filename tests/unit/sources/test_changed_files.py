"""Files of a source that change after they are listed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from widen.errors import CorruptFile, EvolutionRefused, SourceChanged
from widen.sources.listing import SourceFile, explain_changes, find_changes, unchanged_files

DRIVER: Any = SimpleNamespace(sparkContext=object())


def listed(path: Path) -> SourceFile:
    found = path.stat()
    uri = f"file:{path}"
    return SourceFile(uri, found.st_size, found.st_mtime_ns // 1_000_000, uri)


def touch(path: Path) -> None:
    os.utime(path, (1, 1))


CHANGES: dict[str, Callable[[Path], object]] = {
    "was deleted": Path.unlink,
    "has 3 bytes, not 5": lambda path: os.truncate(path, 3),
    "has 1,007 bytes, not 5": lambda path: path.write_text("a" * 1007),
    "was overwritten": touch,
}


@pytest.mark.parametrize("told", CHANGES)
def test_what_has_changed_is_named(tmp_path: Path, told: str) -> None:
    files = [tmp_path / "a", tmp_path / "b"]
    for path in files:
        path.write_text("12345")
    source = [*map(listed, files)]
    with unchanged_files(DRIVER, source):
        assert find_changes(DRIVER, source) == {}
    CHANGES[told](files[1])
    assert find_changes(DRIVER, source) == {f"file:{files[1]}": told}
    with (
        pytest.raises(SourceChanged, match=rf"b changed after it was listed: it {told}\."),
        unchanged_files(DRIVER, source),
    ):
        pass


def test_an_error_of_the_reading_says_whether_a_file_has_changed(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("12345")
    source = [listed(path)]
    with pytest.raises(EvolutionRefused), explain_changes(DRIVER, source):
        raise EvolutionRefused(policy="fail", plan="-")
    path.unlink()
    with pytest.raises(SourceChanged, match="it was deleted") as caught, explain_changes(DRIVER, source):
        raise CorruptFile(path="a", reason="No such file", fix="")
    assert isinstance(caught.value.__cause__, CorruptFile)
