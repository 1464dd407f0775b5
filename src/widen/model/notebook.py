"""Values for notebooks and consoles: a title, and the first rows below it, as HTML or as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice

MAX_ROWS = 20
"""The number of rows that fit one screen."""


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


def list_lines(head: str, lines: Iterable[str]) -> str:
    """Return a heading and the first `MAX_ROWS` lines below it, indented; an ellipsis stands for the rest."""
    shown = list(islice(lines, MAX_ROWS + 1))
    return "\n  ".join([head, *shown[:MAX_ROWS], *(["…"] if len(shown) > MAX_ROWS else [])])
