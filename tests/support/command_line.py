"""Calls of the command line in this process."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from widen.cli.app import app


def run(*words: str, input: str | None = None) -> Result:
    return CliRunner().invoke(app, list(words), input=input)


def told(*words: str) -> Any:
    """Return what a call that must succeed says as JSON."""
    done = run(*words, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)
