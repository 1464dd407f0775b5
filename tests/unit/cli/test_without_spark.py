"""Which commands need Spark: those that the page Production names work where it is not installed, and no others."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from support.drift_log import PROTOCOL, data, field, info, schema, write_drift
from support.log_table import write_commit
from widen.cli.app import EXAMPLES

PAGE = Path(__file__).resolve().parents[3] / "docs" / "guide" / "production.md"
PROGRAM = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())

from widen.cli import main

main()
"""
CALLS = {
    "ingest": "a.json --into t",
    "plan": "a.json --into t",
    "flow": "t --into u --checkpoint c --once",
    "run": "r.toml",
    "show": "t",
    "history": "t",
    "contract": "t",
    "diff": "t --from 0",
    "loads": "t",
    "report": "t",
    "read": "t",
    "explain": "U8",
    "alter": "t total --comment x",
    "properties": "t --set a.b=c",
    "rewrite": "t",
    "optimize": "t",
    "vacuum": "t",
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


@pytest.mark.parametrize("command", CALLS)
def test_a_command_needs_spark_unless_the_page_names_it(command: str, tmp_path: Path) -> None:
    write_drift(tmp_path / "t")
    columns = schema(*(field(name, kind) for name, kind in QUARANTINE.items()))
    write_commit(tmp_path / "t_quarantine", 0, info("WRITE", 0), PROTOCOL, columns, data("a.parquet", 1, 1000))
    (tmp_path / "a.json").write_text('{"total": 1}\n')
    (tmp_path / "r.toml").write_text('[[load]]\nsource = "a.json"\ninto = "t"\n')
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, command, *shlex.split(CALLS[command])],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    needs = "pip install 'widen[spark]'" in done.stderr
    assert needs is (command not in documented()), done.stderr
