"""The steps of long work, as callers see them."""

from __future__ import annotations

from collections.abc import Callable
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
