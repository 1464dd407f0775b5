"""What a program reads of our output, whatever the width, the encoding and the state of its streams."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.text import Text

from support.command_line import run
from widen import create_table
from widen.cli import alter_commands
from widen.cli.output import show
from widen.errors import StorageError
from widen.report.terminal import table_of


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("tables")
    return create_table(str(folder / "größe"), "`größe` int").location


def call(words: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a line of a shell in which $W is the command line."""
    line = f"{sys.executable} -m widen"
    paths = os.pathsep.join(map(os.path.abspath, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))))
    variables = {**os.environ, "W": line, "PYTHONPATH": paths, **environment}
    return subprocess.run(["sh", "-c", words], cwd=cwd, env=variables, capture_output=True, text=True, check=False)


def test_a_sentence_is_not_wrapped_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    table = table_of("field", "reason")
    table.add_row("id", "a reason of more than twenty columns")
    place = "/a/folder/with/a/long/name/bad.jsonl:2: id is a string"
    show([Text(f"  {place}  "), table])
    first, *rows = capsys.readouterr().out.splitlines()
    assert first == f"  {place}"
    assert len(rows) > 3
    assert max(map(len, rows)) <= 20


def test_a_stream_gets_escapes_for_what_it_cannot_encode(table: str) -> None:
    shown = call(f"$W show {table}; $W show {table} --json; $W show {table}-no", PYTHONIOENCODING="ascii")
    text, _, rest = shown.stdout.partition("{")
    assert "gr\\xf6\\xdfe" in text
    assert json.loads("{" + rest)["columns"][0]["column"] == "`größe`"
    assert "gr\\xf6\\xdfe-no" in shown.stderr
    assert "Traceback" not in shown.stderr


def test_streams_that_are_closed_or_full(table: str) -> None:
    closed = call(
        f"$W show {table} <&- >&- 2>&-; echo $?; $W show {table} 2>&- | tail -1; $W show {table}-no >&- 2>&-; echo $?"
    )
    assert closed.stdout.splitlines() == ["0", "`größe`   int    yes", "1"]
    full = call(f"$W show {table} > /dev/full")
    assert (full.returncode, full.stderr.splitlines()[0]) == (1, "error: stdout: No space left on device.")


def test_a_deleted_current_directory(table: str, tmp_path: Path) -> None:
    folder = tmp_path / "deleted"
    folder.mkdir()
    done = call(f"rmdir {folder}; $W show {table} > /dev/null && $W show t; $W plan x.json --into {table}", cwd=folder)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    reason = "the path is relative, and the current directory has been deleted."
    assert errors == [f"error: t: {reason}", f"error: .: {reason}"]


def test_a_change_whose_report_fails_is_said_to_be_committed(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise StorageError(location=f"{table}/_delta_log/1.json", reason="stale file handle", fix="Repeat the call.")

    monkeypatch.setattr(alter_commands, "report_change", fail)
    done = run("sql", f"COMMENT ON TABLE delta.`{table}` IS 'said'")
    assert done.exit_code == 1
    assert "WIDEN_AFTER_COMMIT_FAILED" in done.stderr
    assert "Version 1 of" in done.stderr
