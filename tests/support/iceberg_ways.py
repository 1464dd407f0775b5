"""The ways to change rows of an Iceberg table: what Arrow does not do is left to Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NoReturn

import pytest

from widen.changes.iceberg_copies import RowSearch
from widen.spark.engine import Unsupported

WAYS: Mapping[str, Sequence[str]] = {
    "with Arrow": (),
    "found by Spark": ("find",),
    "written by Spark": ("find", "hold"),
    "many rows": ("find", "hold", "mark"),
    "copied by Spark": ("find", "hold", "copy"),
    "everything by Spark": ("find", "hold", "mark", "copy"),
}
"""What Arrow does not do: find the rows, hold their new values, hold which rows change, and copy the other rows."""


def leave_to_spark(monkeypatch: pytest.MonkeyPatch, *steps: str) -> None:
    """Leave steps to Spark; see `WAYS`."""

    def refuse(*_: object) -> NoReturn:
        raise Unsupported("a test")

    if "find" in steps:
        monkeypatch.setattr(RowSearch, "matching", refuse)
    if "hold" in steps:
        monkeypatch.setattr("widen.changes.iceberg_copies.HELD_BYTES", 0)
    if "mark" in steps:
        monkeypatch.setattr("widen.changes.iceberg_apply.are_few_words", lambda _: False)
    if "copy" in steps:
        monkeypatch.setattr("widen.changes.iceberg_write.columns_by_file", lambda *_: None)
