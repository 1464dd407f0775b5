"""Which commands need Spark: those that the page Production names work where it is not installed, and no others."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from support.drift_log import PROTOCOL, data, field, info, schema, write_drift
from support.log_table import write_commit
from widen.cli.app import EXAMPLES

PAGE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "production.md"
PROGRAM = """
import json, os, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())

from typer.testing import CliRunner
from widen.cli.app import app

said = {}
for command, (place, words) in json.load(sys.stdin).items():
    os.chdir(place)
    said[command] = CliRunner().invoke(app, [command, *words]).stderr
assert not {"pyspark", "py4j"} & set(sys.modules)
print(json.dumps(said))
"""
"""A process without PySpark, which runs each command in a folder and says what it writes to stderr."""

CALLS = {
    "ingest": "a.json --into t",
    "plan": "a.json --into t",
    "flow": "t --into u --checkpoint c --once",
    "run": "r.toml",
    "init": ". --file first.toml",
    "show": "t",
    "history": "t",
    "contract": "t",
    "diff": "t --from 0",
    "loads": "t",
    "report": "t",
    "readers": "t",
    "read": "t",
    "explain": "U8",
    "alter": "t total --comment x",
    "properties": "t --set a.b=c",
    "rewrite": "t",
    "optimize": "t",
    "vacuum": "t",
    "forget": "t --key id=1",
    "restore": "t --version 0",
    "drop-feature": "t typeWidening",
    "handover": "t --to deltalake --dry-run",
    "mirror": "t --catalog c.db --identifier a.b",
    "branch": "a.b --catalog c.db",
    "layout": "a.b --catalog c.db",
    "sql": "'SELECT * FROM delta.`t`'",
    "view": "t --name v",
    "fold": "t tags_array_string",
    "replay": "t_quarantine --into t",
}


QUARANTINE = {
    "text": "string",
    "file": "string",
    "position": "long",
    "reason": "string",
    "kept_at": "timestamp",
    "table_version": "long",
}
"""The columns of a quarantine, and their types."""


def documented() -> set[str]:
    text = PAGE.read_text(encoding="utf-8").partition('<a id="without-spark">')[2].partition("\n## ")[2]
    rows = re.findall(r"^\| (`[^|]+) \|", text.partition("\n## ")[0], re.MULTILINE)
    return {name for row in rows for name in re.findall(r"`([a-z-]+)`", row)}


def test_every_command_is_called() -> None:
    assert set(CALLS) == set(EXAMPLES)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """What each command says where PySpark is not installed; all in one process, each in a folder of its own."""
    calls = {}
    for command, words in CALLS.items():
        place = tmp_path_factory.mktemp(command)
        write_drift(place / "t")
        columns = schema(*(field(name, kind) for name, kind in QUARANTINE.items()))
        write_commit(place / "t_quarantine", 0, info("WRITE", 0), PROTOCOL, columns, data("a.parquet", 1, 1000))
        (place / "a.json").write_text('{"total": 1}\n')
        (place / "r.toml").write_text('[[load]]\nsource = "a.json"\ninto = "t"\n')
        calls[command] = (str(place), shlex.split(words))
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=json.dumps(calls), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    answers: Mapping[str, str] = json.loads(done.stdout)
    return answers


@pytest.mark.parametrize("command", CALLS)
def test_a_command_needs_spark_unless_the_page_names_it(command: str, said: Mapping[str, str]) -> None:
    needs = "pip install 'widen[spark]'" in said[command]
    assert needs is (command not in documented()), said[command]


def test_rows_of_an_iceberg_table_are_shown_where_spark_is_not_installed(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"id": 1, "v": 1}\n{"id": 2, "v": "x"}\n')
    code = """
runner = CliRunner()
place = json.load(sys.stdin)
os.chdir(place)
loaded = runner.invoke(app, ["ingest", "a.json", "--into", "ns.t", "--catalog", "c.db"])
words = ["read", "ns.t", "--catalog", "c.db", "--unified", "--where", "id > 1", "--json"]
print(json.dumps([loaded.exit_code, runner.invoke(app, words).stdout]))
assert not {"pyspark", "py4j"} & set(sys.modules)
"""
    program = PROGRAM.partition("said = {}")[0] + code
    done = subprocess.run(
        [sys.executable, "-c", program], input=json.dumps(str(tmp_path)), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [0, '{"id":2,"v":"x"}\n']
