"""Races: something happens between the writing of files and their commit; no clock is involved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame

from widen.frames.parquet_writer import write_parquet


def interrupt(monkeypatch: pytest.MonkeyPatch, *meanwhile: Callable[[], Any]) -> None:
    """Let each of these happen once, in their order, before the next attempts of an append are committed."""
    waiting = list(meanwhile)

    def interrupted(frame: DataFrame, *others: Any) -> Any:
        adds = write_parquet(frame, *others)
        if waiting:
            happens = waiting.pop(0)
            happens()
        return adds

    monkeypatch.setattr("widen.frames.parquet_writer.write_parquet", interrupted)


def other_first(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str, other: Callable[[], Any], *, times: int = 1
) -> None:
    """Let another writer work before a method of a class, the first times that it is called."""
    original, left, is_inside = getattr(owner, name), [None] * times, False

    def called(self: Any, *words: Any, **more: Any) -> Any:
        nonlocal is_inside
        # What the other writer itself calls goes through.
        if left and not is_inside:
            left.pop()
            is_inside = True
            try:
                other()
            finally:
                is_inside = False
        return original(self, *words, **more)

    monkeypatch.setattr(owner, name, called)
