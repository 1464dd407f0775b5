"""Loads of new files that take a part of them, the oldest first, and leave the rest to the next load."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import widen
from support.command_line import run, run_json
from widen.errors import InvalidOption, OptionConflict, OptionMissing
from widen.sources.find_files import BatchSize
from widen.sources.listing import SourceFile


@pytest.fixture
def landing(tmp_path: Path) -> Path:
    """Six files of 10 bytes; those with the last names are the oldest."""
    place = tmp_path / "landing"
    place.mkdir()
    for number in range(6):
        file = place / f"{number}.json"
        file.write_text(f'{{"id": {number}}}\n')
        os.utime(file, (1_700_000_000 - number, 1_700_000_000 - number))
    return place


def loaded(table: Path) -> list[list[str]]:
    return [[Path(file.path).stem for file in load.files] for load in widen.Table(table).loads()]


def test_a_load_takes_the_oldest_files_and_the_next_one_goes_on(landing: Path, tmp_path: Path) -> None:
    table = tmp_path / "t"
    done = widen.ingest(landing, table, new=True, max_files=4, engine="local")
    assert (done.records, done.compared.waiting.count, len(done.compared.waiting.first)) == (4, 2, 2)
    assert widen.ingest(landing, table, new=True, max_files=4, engine="local").compared.waiting.count == 0
    assert widen.ingest(landing, table, new=True, max_files=4, engine="local").is_unchanged
    assert loaded(table) == [["2", "3", "4", "5"], ["0", "1"]]


def test_a_load_is_full_at_a_size_and_takes_one_file_at_least(landing: Path, tmp_path: Path) -> None:
    table = tmp_path / "t"
    for _ in range(2):
        widen.ingest(landing, table, new=True, max_bytes=25, engine="local")
    widen.ingest(landing, table, new=True, max_bytes=1, engine="local")
    assert loaded(table) == [["4", "5"], ["2", "3"], ["1"]]


def test_the_command_says_how_many_files_it_leaves(landing: Path, tmp_path: Path) -> None:
    words = ["ingest", str(landing), "--into", str(tmp_path / "t"), "--engine", "local", "--max-files", "5"]
    done = run(*words, "--new")
    assert done.exit_code == 0, done.stderr
    assert f"left to the next load, because this one is full 1 file: file:{landing}/0.json" in done.stderr
    assert run_json(*words, "--new")["sourceFiles"]["counts"]["known"] == 5
    assert "--max-files needs it, or --follow or --once." in run(*words).stderr


def test_the_size_of_a_load_needs_new_files_and_one_limit(landing: Path, tmp_path: Path) -> None:
    with pytest.raises(OptionMissing, match="need new=True"):
        widen.ingest(landing, tmp_path / "t", max_files=4)
    with pytest.raises(OptionConflict, match="Give only one of them"):
        widen.ingest(landing, tmp_path / "t", new=True, max_files=4, max_bytes=4)
    with pytest.raises(InvalidOption, match="max_files cannot be 0"):
        widen.ingest(landing, tmp_path / "t", new=True, max_files=0)


def test_files_of_one_time_are_taken_by_name() -> None:
    files = [SourceFile(f"/{name}", 1, 7) for name in "cab"]
    assert [file.path for file in BatchSize(max_files=2).take(files)] == ["/a", "/b"]
