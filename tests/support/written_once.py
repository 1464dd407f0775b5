"""Tables that Spark writes once, and that each test gets a copy of: to copy a folder takes a hundredth of the time."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import cache, wraps
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from widen.table import Table

Write = Callable[..., Table]
"""Writes a table, given the session, its place, and what else it depends on."""


@cache
def _folder() -> TemporaryDirectory[str]:
    """Return the folder of the originals, which goes when the process ends."""
    return TemporaryDirectory(prefix="widen-originals-")


def written_once(write: Write) -> Write:
    """Let a function that writes a table return a copy of what it has written for the same arguments before."""
    originals: dict[str, Path] = {}

    @wraps(write)
    def copy(spark: Any, place: Path, *arguments: Any, **words: Any) -> Table:
        key = repr((arguments, sorted(words.items())))
        if key not in originals:
            original = Path(_folder().name) / f"{write.__module__}.{write.__qualname__}.{len(originals)}"
            write(spark, original, *arguments, **words)
            originals[key] = original
        shutil.copytree(originals[key], place, dirs_exist_ok=True)
        return Table(str(place))

    return copy
