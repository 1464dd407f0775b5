"""Mistakes, and what the command line answers to each of them. The transcript is in mistakes.txt; Spark never starts.

FOLDER stands for the current folder. Every answer says what is wrong and where, and what to do.
"""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from support.command_line import run
from support.drift_log import write_drift
from widen.cli import output

FILES = {
    "a.json": '{"id": 1}\n',
    "nan.json": '{"a": NaN}\n{"a": Infinity}\n',
    "bad.toml": 'evolve = "grow"\n',
    "bad2.toml": 'evolve "widen"\n',
    "bad3.toml": 'evolv = "widen"\n',
    "bad5.toml": '[[step]]\nsource = "orders"\n',
    "bad4.toml": '[pins]\ntotal = "decmal(3)"\n',
    "keys.toml": '[keys]\nkey = "id"\n',
    "keys2.toml": '[keys]\nkeys = ["id"]\n',
    "run.toml": '[[load]]\nsources = "a.json"\ninto = "t"\n',
    "run2.toml": '[[load]]\nsource = "a.json"\ninto = "t"\nenigne = "local"\n',
}
TRANSCRIPT = Path(__file__).with_name("mistakes.txt").read_text(encoding="utf-8")
MISTAKES = dict(part.split("\n", 1) for part in TRANSCRIPT.rstrip("\n").removeprefix("$ ").split("\n\n$ "))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mistakes")
    write_drift(folder / "orders")
    for name in ("empty", "pipes", "lake/metadata", "loop"):
        (folder / name).mkdir(parents=True)
    for name in ("fifo.json", "fifo.db"):
        os.mkfifo(folder / name)
    (folder / "device").symlink_to("/dev/null")
    (folder / "lake" / "metadata" / "00000-a.metadata.json").touch()
    (folder / "loop" / "itself").symlink_to(folder / "loop")
    for name, text in FILES.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


@pytest.mark.parametrize("command", MISTAKES)
def test_what_the_command_line_answers(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(output, "spark_session", lambda *_: pytest.fail("Spark starts before the mistake is told"))
    done = run(*shlex.split(command)[1:])
    answer = done.stderr.rstrip("\n").replace(str(folder), "FOLDER")
    assert (answer, done.stdout, done.exit_code) == (MISTAKES[command], "", 1)


def test_there_are_many_mistakes() -> None:
    assert len(MISTAKES) >= 60
