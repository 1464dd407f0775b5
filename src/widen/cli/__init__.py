"""The command line."""

from __future__ import annotations

from widen.cli.app import main

__all__ = ["main"]
