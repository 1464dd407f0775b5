"""The steps of long work, as callers see them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias


class Step(str):
    """The description of a step, e.g. ``writing``, with the size of its work as far as it is known.

    Attributes:
        size_bytes: How many bytes the step reads; 0 if not known.
        records: How many records it reads; 0 if not known.
    """

    size_bytes: int
    records: int

    def __new__(cls, text: str, size_bytes: int = 0, records: int = 0) -> Step:
        """Return a step."""
        step = super().__new__(cls, text)
        step.size_bytes, step.records = size_bytes, records
        return step


Progress: TypeAlias = Callable[[str], object]
"""Called with a few words, a `Step`, when the next step begins."""


def no_progress(_: str) -> None:
    """Ignore the step."""


_recorders: ContextVar[tuple[list[tuple[str, int]], ...]] = ContextVar("widen_commits", default=())


@contextmanager
def recorded_commits() -> Iterator[list[tuple[str, int]]]:
    """Yield a list that gets the location and the version of each commit that this thread makes meanwhile."""
    made: list[tuple[str, int]] = []
    token = _recorders.set((*_recorders.get(), made))
    try:
        yield made
    finally:
        _recorders.reset(token)


def record_commit(location: str, version: int) -> None:
    """Tell all open `recorded_commits` of a commit; called as soon as it is known to be visible."""
    for made in _recorders.get():
        made.append((location, version))
