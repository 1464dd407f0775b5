"""A command `widen` that ends as a test wants it to."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def widen_ends_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that sets the exit code of `widen`, and what it prints."""

    def set_up(code: int, output: str = "") -> None:
        command = tmp_path / "widen"
        command.write_text(f"#!/bin/sh\necho '{output}'\necho 'error: said why' >&2\nexit {code}\n")
        command.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return set_up
