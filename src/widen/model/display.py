"""Values for notebooks and consoles: a title, and the first rows below it, as HTML or as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from difflib import get_close_matches
from html import escape
from itertools import islice
from typing import TypeAlias

MAX_ROWS = 20
"""The number of rows that fit one screen."""
READERS_LOG = "widen.readers"
"""The logger that says who refuses a table from a change on. Commands say it in their output instead."""


def html_table(title: str, header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table as HTML; an ellipsis replaces rows after the first `MAX_ROWS`."""
    shown = list(islice(rows, MAX_ROWS + 1))
    lines = [_row("td", row) for row in shown[:MAX_ROWS]]
    more = "<p>…</p>" if len(shown) > MAX_ROWS else ""
    return f"<p><b>{escape(title)}</b></p><table>{_row('th', header)}{''.join(lines)}</table>{more}"


def _row(tag: str, values: Iterable[object]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(str(value))}</{tag}>' for value in values)}</tr>"


def shorten(text: str, length: int = 100) -> str:
    """Return a text of at most ``length`` characters; an ellipsis stands for the rest."""
    return text if len(text) <= length else f"{text[: length - 1]}…"


def size_text(size_bytes: int) -> str:
    """Return a size with a suitable unit.

    Example:
        >>> size_text(900), size_text(4_300), size_text(23_456_789)
        ('900 B', '4.3 kB', '23.5 MB')
    """
    size, unit = float(size_bytes), "B"
    for next_unit in ("kB", "MB", "GB", "TB", "PB"):
        if size < 999.95:
            break
        size, unit = size / 1000, next_unit
    return f"{size_bytes} B" if unit == "B" else f"{size:.1f} {unit}"


STDIN_NAME, STDIN_FILE, STAGING_PREFIX = "standard input", "stdin", "widen-memory-"
"""The name of standard input for users, and the file and the beginning of the temporary folder that have its bytes."""


def name_file(uri: str) -> str:
    """Return a source file as users know it: standard input was staged in a file.

    Example:
        >>> name_file("file:/tmp/widen-memory-x1/stdin"), name_file("file:/data/stdin")
        ('standard input', 'file:/data/stdin')
    """
    is_staged = uri.endswith(f"/{STDIN_FILE}") and uri.rsplit("/", 2)[-2].startswith(STAGING_PREFIX)
    return STDIN_NAME if is_staged else uri


def list_lines(head: str, lines: Iterable[str]) -> str:
    """Return a heading and the first `MAX_ROWS` lines below it, indented; an ellipsis stands for the rest."""
    shown = list(islice(lines, MAX_ROWS + 1))
    return "\n  ".join([head, *shown[:MAX_ROWS], *(["…"] if len(shown) > MAX_ROWS else [])])


# The steps of long work, as callers see them.


class Step(str):
    """The description of a step, e.g. ``writing``, with the size of its work if it is known.

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
    """Notify all open `recorded_commits` of a commit; called as soon as it is known to be visible."""
    for made in _recorders.get():
        made.append((location, version))


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a question with the nearest of the known words, and a space after it; empty if no word is near.

    Example:
        >>> did_you_mean("evolv", ["evolve", "mask"])
        'Did you mean evolve? '
    """
    nearest = get_close_matches(word, list(known), 1, 0.7)
    return f"Did you mean {nearest[0]}? " if nearest else ""
