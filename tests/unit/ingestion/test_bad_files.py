"""One bad file never blocks a folder: every kind of bad file, in this process."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import widen
from support.bad_files import KINDS, MODES, json_lines, load_folder_with
from support.covering import covering
from widen.errors import TooManyKeys
from widen.ingestion.result import IngestResult

HERE = [name for name, kind in KINDS.items() if kind.ending != "orc"]


@pytest.mark.parametrize(("name", "mode"), covering(HERE, MODES))
def test_a_bad_file_does_not_block_a_folder(tmp_path: Path, name: str, mode: str) -> None:
    for place, is_alone in (("alone", True), ("among", False)):
        load_folder_with(KINDS[name], mode, tmp_path / place, is_alone=is_alone, engine="local")


@pytest.mark.parametrize("name", ["half of gzip", "half of Parquet", "keys that are data"])
def test_without_a_table_there_is_none_after_bad_files(tmp_path: Path, name: str) -> None:
    kind = KINDS[name]
    source = tmp_path / f"b.{kind.ending}"
    source.write_bytes(kind.bad)
    with pytest.raises(widen.errors.WidenError, match=rf"/b\.{kind.ending}"):
        widen.ingest(source, tmp_path / "t", skip_bad_files=True, engine="local", **kind.limits)
    assert not (tmp_path / "t").exists()


def many_keys(first: int, count: int) -> bytes:
    return json.dumps({"n": first, "x": {f"user_{number}": 1 for number in range(first, first + count)}}).encode()


@pytest.mark.parametrize("mode", ["skip", "park"])
def test_files_that_have_too_many_keys_only_together_are_not_blamed(tmp_path: Path, mode: str) -> None:
    (tmp_path / "in").mkdir()
    for number in range(4):
        (tmp_path / "in" / f"{number}.json").write_bytes(many_keys(1_000 * number, 40))
    words = {"new": True, "engine": "local", "max_keys": 100, **MODES[mode]}
    with pytest.raises(TooManyKeys):
        widen.ingest(tmp_path / "in", tmp_path / "t", **words)
    assert not (tmp_path / "t").exists()


def test_a_stream_goes_on_without_a_file_whose_keys_are_data(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number, content in enumerate((json_lines(0), many_keys(0, 200), json_lines(10))):
        (tmp_path / "in" / f"{number}.json").write_bytes(content)
    done: list[IngestResult] = []
    places = tmp_path / "in", tmp_path / "t"
    words = {"engine": "local", "once": True, "skip_bad_files": True, "max_keys": 100, "on_interval": done.append}
    widen.ingest_stream(*places, checkpoint=tmp_path / "cp", **words).wait()
    [result] = done
    assert result.records == 6
    assert [Path(file.path).name for file in result.bad_files] == ["1.json"]


def test_many_bad_files_are_found_in_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in").mkdir()
    for number in range(20):
        path = tmp_path / "in" / f"{number:02}.parquet"
        pq.write_table(pa.table({"n": [number]}), path)
        if number % 2:
            path.write_bytes(path.read_bytes()[:-9])
    opened: list[str] = []
    real = widen.batches.parquet_batch.open_file
    monkeypatch.setattr("widen.batches.parquet_batch.open_file", lambda uri: opened.append(uri) or real(uri))
    done = widen.ingest(tmp_path / "in", tmp_path / "t", engine="local", skip_bad_files=True)
    assert (done.records, len(done.bad_files)) == (10, 10)
    assert len([uri for uri in opened if uri.endswith("01.parquet")]) == 1
