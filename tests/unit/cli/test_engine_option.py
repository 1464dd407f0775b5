"""Which engine binds a command: the option, a file, or the variable. See `test_engine_everywhere`, too."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

import widen
from support.command_line import run
from widen.spark import engine, session

NEEDS = ("report T --scan", "read T --where 'hash(v) = 1'", "sql 'SELECT max(id) FROM delta.`T`'")
"""Commands that need Spark."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "_start_session", lambda: pytest.fail("Spark starts"))
    for module in (session, engine):  # tests before these may have a session
        monkeypatch.setattr(module, "find_active", lambda: None)
    for number, text in enumerate(('{"id": 1, "v": 1}\n', '{"id": 2, "v": "a"}\n')):
        (tmp_path / "a.json").write_text(text)
        widen.ingest(tmp_path / "a.json", tmp_path / "T", engine="local")
        assert number == widen.Table(tmp_path / "T").version
    return tmp_path


@pytest.mark.parametrize("command", NEEDS)
def test_the_option_wins_over_the_variable(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIDEN_ENGINE", "spark")
    done = run(*shlex.split(command), "--engine", "local")
    assert done.exit_code == 1
    assert "WIDEN_ENGINE_UNSUITABLE" in done.stderr


@pytest.mark.parametrize(("variable", "setting"), [("local", "auto"), ("auto", "local")])
def test_the_engine_of_a_file_wins_over_the_variable(
    variable: str, setting: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIDEN_ENGINE", variable)
    (folder / "p.toml").write_text(f'[[load]]\nsource = "a.json"\ninto = "new"\nengine = "{setting}"\n')
    done = run("run", "p.toml")
    assert done.exit_code == 0, done.stderr
    assert widen.Table(folder / "new").version == 0
