"""Shared building blocks of the terminal output."""

from __future__ import annotations

from collections.abc import Iterable

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from widen.report.report_model import VersionTime
from widen.report.text_format import moment_text, printable


def table_of(*names: str) -> Table:
    """Return an empty table with the named columns."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="dim", padding=(0, 1), show_edge=False)
    for name in names:
        table.add_column(name, overflow="fold")
    return table


def title_part(location: str) -> RenderableType:
    """Return the name of a table with its location below."""
    name = location.rstrip("/").rpartition("/")[2] or location
    title = Text(printable(name), "bold")
    # The name of an Iceberg table is all that there is to say.
    return title if name == location else Group(title, Text(printable(location), "dim"))


def heading_part(text: str) -> Text:
    """Return the heading of a part."""
    return Text(f"\n{text}", "bold")


def version_text(moment: VersionTime) -> str:
    """Return a version with its time."""
    return f"version {moment.version}, {moment_text(moment.time_ms)} UTC"


def facts_line(*facts: str) -> Text:
    """Return facts as one line."""
    return Text(" · ".join(facts))


def pairs_table(pairs: Iterable[tuple[str, str | Text]]) -> Table:
    """Return keys and values as a table."""
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column()
    table.add_column(overflow="fold")
    for key, value in pairs:
        table.add_row(Text(f"  {printable(key)}", "dim"), Text(printable(value)) if isinstance(value, str) else value)
    return table
