"""Calls of the command line in this process."""

from __future__ import annotations

import json
from typing import Any

from typer.testing import CliRunner, Result

from support.json_schema import SCHEMAS, breaches
from widen.cli.app import app


def run(*words: str, input: str | None = None) -> Result:
    return CliRunner().invoke(app, list(words), input=input)


def run_json(*words: str, code: int = 0) -> Any:
    """Return what a call says as JSON, which must be as its schema in the documentation says.

    Args:
        code: Its exit code.
    """
    done = run(*words, "--json")
    assert done.exit_code == code, done.stderr
    value = json.loads(done.stdout)
    found = list(breaches(SCHEMAS[words[0]], value))
    assert not found, found
    return value
