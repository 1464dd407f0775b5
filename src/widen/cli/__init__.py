"""The command line: parse, call, show."""

from __future__ import annotations

from widen.cli.app import main

__all__ = ["main"]
