"""Public documents that we did not make, fetched by `make real-data`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).resolve().parents[2] / ".work" / "data"
WIDEN = [sys.executable, "-c", "from widen.cli import main; main()"]


@pytest.fixture(scope="session")
def documents() -> Path:
    """The folder of the documents; without them every test fails, for a test that did not run has not passed."""
    if not (DATA / "movies.json").exists():
        pytest.fail("The public documents are not here: run `make real-data`.")
    return DATA


def widen(*words: str, exit_code: int = 0) -> Any:
    """What the command line answers, as JSON; the test fails with its message if the exit code is another one."""
    return lines(*words, exit_code=exit_code)[-1]


def lines(*words: str, exit_code: int = 0) -> list[Any]:
    """Likewise of a command that answers more than once."""
    environment = {**os.environ, "PYTHONPATH": str(DATA.parents[1] / "src"), "PYSPARK_PYTHON": sys.executable}
    done = subprocess.run([*WIDEN, *words, "--json"], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == exit_code, done.stdout[-2000:] + done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines()]
