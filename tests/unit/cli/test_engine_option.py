"""``--engine local`` and ``WIDEN_ENGINE=local``: work without Spark, or a sentence that says why that cannot be."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import widen
from support.command_line import run
from widen.errors import EngineUnsuitable
from widen.spark import engine, session

NEEDS: dict[str, str] = {
    "report T --scan": "it counts values in all rows",
    'read T --where "hash(id) = 1"': "",
    "optimize T": "the files are rewritten",
    "fold T v_string": "it converts the values of a column",
    "flow T --into new --checkpoint cp --once": "flows run on it",
    "alter T v --not-null": "it evaluates a rule or a default on the rows",
    "alter T added --type int --add --default 1": "it evaluates a rule or a default on the rows",
    "sql 'SELECT id, count(*) FROM delta.`T` GROUP BY id'": "the query is more than a SELECT from one table",
    "sql 'SELECT * FROM names'": "its catalog knows where the table is",
    "sql 'INSERT INTO delta.`T` VALUES (1, 2, \"a\")'": "it writes the rows of a query, or joins rows",
    "sql 'ALTER TABLE delta.`T` ADD CONSTRAINT c CHECK (id > 0)'": "it evaluates a rule or a default on the rows",
}
"""Commands that need Spark, and why."""

WORKS = (
    *("show T", "report T", "read T", "rewrite T", "restore T --version 0", "sql 'DELETE FROM delta.`T` WHERE id = 1'"),
    "sql 'CREATE TABLE n.new (id int) USING iceberg' --catalog c.db",
    *("alter T id --type bigint", "ingest a.json --into T", "plan a.json --into T", "vacuum T --dry-run"),
)
"""Commands that need none."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(session, "start_spark", lambda *_: pytest.fail("Spark starts"))
    for module in (session, engine):  # tests before these may have a session
        monkeypatch.setattr(module, "find_active", lambda: None)
    for number, text in enumerate(('{"id": 1, "v": 1}\n', '{"id": 2, "v": "a"}\n')):
        (tmp_path / "a.json").write_text(text)
        widen.ingest(tmp_path / "a.json", tmp_path / "T", engine="local")
        assert number == widen.Table(tmp_path / "T").version
    return tmp_path


@pytest.mark.parametrize("by_variable", [True, False])
@pytest.mark.parametrize("command", NEEDS)
def test_a_command_says_why_it_needs_spark(
    command: str, by_variable: bool, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = widen.Table(folder / "T").version
    words = shlex.split(command.replace("delta.`T`", f"delta.`{folder}/T`"))
    if by_variable:
        monkeypatch.setenv("WIDEN_ENGINE", "local")
    else:
        monkeypatch.setenv("WIDEN_ENGINE", "spark")  # the option wins
        words += ["--engine", "local"]
    done = run(*words)
    assert done.exit_code == 1
    assert "WIDEN_ENGINE_UNSUITABLE" in done.stderr
    assert f"This call needs Spark, because {NEEDS[command]}" in done.stderr
    assert widen.Table(folder / "T").version == version


@pytest.mark.parametrize("command", WORKS)
def test_a_command_works_without_spark(command: str, folder: Path) -> None:
    words = shlex.split(command.replace("delta.`T`", f"delta.`{folder}/T`"))
    takes = "--engine" in run(words[0], "--help").output
    done = run(*words, *(("--engine", "local") if takes else ()))
    assert done.exit_code in (0, 2), done.stderr


METHODS: dict[str, Callable[[widen.Table], Any]] = {
    "read": lambda table: table.read(),
    "optimize": lambda table: table.optimize(),
    "fold": lambda table: table.fold("v_string"),
    "add_constraint": lambda table: table.add_constraint("c", "id > 0"),
    "alter_column": lambda table: table.alter_column("id", nullable=False),
    "changes": lambda table: table.changes(0),
    "sql": lambda table: widen.sql(f"SELECT max(id) FROM delta.`{table.location}`"),
}


@pytest.mark.parametrize("method", METHODS)
def test_a_method_is_bound_by_the_variable(method: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIDEN_ENGINE", "local")
    table = widen.Table(folder / "T")
    with pytest.raises(EngineUnsuitable):
        METHODS[method](table)
    assert table.refresh().version == 1


@pytest.mark.parametrize(("variable", "setting"), [("local", "auto"), ("auto", "local")])
def test_the_engine_of_a_file_wins_over_the_variable(
    variable: str, setting: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIDEN_ENGINE", variable)
    (folder / "p.toml").write_text(f'[[load]]\nsource = "a.json"\ninto = "new"\nengine = "{setting}"\n')
    done = run("run", "p.toml")
    assert done.exit_code == 0, done.stderr
    assert widen.Table(folder / "new").version == 0
