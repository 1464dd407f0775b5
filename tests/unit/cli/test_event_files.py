"""Files of events in the folder of a table, where a vacuum would delete them."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.command_line import run

URL = "--events=http://127.0.0.1:9/x"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.json").write_text('{"id": 1}\n')
    (tmp_path / "p.toml").write_text('[[load]]\nsource = "a.json"\ninto = "t"\n')
    (tmp_path / "t").mkdir()


@pytest.mark.parametrize("file", ["t/e.jsonl", "./t/../t/_delta_log/e.jsonl"])
@pytest.mark.parametrize("option", ["--events", "--dead-letter"])
@pytest.mark.parametrize("command", ["ingest a.json --into t", "run p.toml", "flow s --into t --checkpoint c"])
def test_a_file_in_the_table_is_refused(tmp_path: Path, command: str, option: str, file: str) -> None:
    more = [URL] if option == "--dead-letter" else []
    if command.startswith("flow"):
        assert run("ingest", "a.json", "--into", "s").exit_code == 0
    done = run(*command.split(), option, file, *more)
    assert done.exit_code == 1
    assert "a vacuum deletes" in done.stderr
    assert option in done.stderr
    assert not [*(tmp_path / "t").rglob("*")]


def test_a_file_in_an_iceberg_table_is_refused(tmp_path: Path) -> None:
    words = ("ingest", "a.json", "--into", "shop.t", "--catalog", "c.db")
    assert run(*words).exit_code == 0
    data = next(tmp_path.rglob("data/**/*.parquet"))
    assert "a vacuum deletes" in run(*words, "--events", str(data.with_name("e.jsonl"))).stderr


@pytest.mark.parametrize("file", ["e.jsonl", "t/_mine/e.jsonl", "t2/e.jsonl"])
def test_another_file_is_written(tmp_path: Path, file: str) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    assert run("ingest", "a.json", "--into", "t", "--events", file).exit_code == 0
    assert (tmp_path / file).read_text()
