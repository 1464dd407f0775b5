"""What a newcomer asks for: examples that can be typed, the version, completion of three shells."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from importlib.util import find_spec

import pytest
from typer.main import get_command

import widen
from support.command_line import run
from widen.cli import app
from widen.cli.app import EXAMPLES

COMMANDS = get_command(app.app).commands  # type: ignore[attr-defined]


def test_every_command_has_an_example_in_its_help() -> None:
    assert EXAMPLES.keys() == COMMANDS.keys()
    for name, examples in EXAMPLES.items():
        text = run(name, "--help").stdout
        assert [example for example in examples if f"  {example}\n" not in text] == []


@pytest.mark.parametrize("example", [example for examples in EXAMPLES.values() for example in examples])
def test_every_example_can_be_typed(example: str) -> None:
    widen_word, name, *words = shlex.split(example)
    assert widen_word == "widen"
    context = COMMANDS[name].make_context(name, words)
    assert context.params
    assert len(f"  {example}") + 2 <= 80


def test_the_version_says_whether_the_native_kernel_is_there() -> None:
    here = "native kernel" if find_spec("widen._kernel") is not None else "no native kernel"
    assert run("--version").stdout == f"widen {widen.__version__} ({here})\n"


def complete(**variables: str) -> str:
    """Call the command line as a shell does to complete a line."""
    environment = {**os.environ, **variables}
    command = [sys.executable, "-m", "widen"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("shell", "line"),
    [
        ("bash", {"COMP_WORDS": "widen re", "COMP_CWORD": "1"}),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "widen re"}),
        ("fish", {"_TYPER_COMPLETE_ARGS": "widen re", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
    ],
)
def test_a_shell_completes_commands(shell: str, line: dict[str, str]) -> None:
    assert "widen" in complete(_WIDEN_COMPLETE=f"source_{shell}")
    completed = complete(_WIDEN_COMPLETE=f"complete_{shell}", **line)
    assert [name for name in ("report", "read", "rewrite", "restore", "replay") if name not in completed] == []
    assert "ingest" not in completed


def test_a_shell_completes_the_clients_of_a_handover() -> None:
    line = {"COMP_WORDS": "widen handover t --to po", "COMP_CWORD": "4"}
    assert complete(_WIDEN_COMPLETE="complete_bash", **line).split() == ["polars"]
