"""What the commands call, imported when it is first used: help is there at once, and looking needs no Spark.

Source: house rule: optional extras are imported at a face.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from widen.table.engine import load

if TYPE_CHECKING:
    from widen.ingestion import ingest, ingest_stream, plan, replay
    from widen.log.snapshot import open_snapshot
    from widen.log.store import LogStore
    from widen.model.literal import to_identifier
    from widen.planning.request import additions, alterations, removals, renaming
    from widen.protocol.type_change import has_type_changes
    from widen.report import terminal, words
    from widen.report.build import build
    from widen.report.mask import shown, shown_as, shown_intervals
    from widen.report.outline import outline
    from widen.report.page import page
    from widen.report.record import history
    from widen.report.scan import scanned
    from widen.spark.failure import FAILURES, translated
    from widen.spark.old_file import look_here, summarise
    from widen.spark.rewrite import REWRITE
    from widen.spark.search import find_old_files
    from widen.spark.session import find_session
    from widen.statement.answer import Answer
    from widen.statement.parse import parse
    from widen.statement.run import run
    from widen.table import Table
    from widen.table.columns import Columns
    from widen.table.properties import Properties

__all__ = [
    "FAILURES",
    "REWRITE",
    "Answer",
    "Columns",
    "LogStore",
    "Properties",
    "Table",
    "additions",
    "alterations",
    "build",
    "find_old_files",
    "find_session",
    "has_type_changes",
    "history",
    "ingest",
    "ingest_stream",
    "look_here",
    "open_snapshot",
    "outline",
    "page",
    "parse",
    "plan",
    "removals",
    "renaming",
    "replay",
    "run",
    "scanned",
    "shown",
    "shown_as",
    "shown_intervals",
    "summarise",
    "terminal",
    "to_identifier",
    "translated",
    "words",
]

_NAMES: Mapping[str, tuple[str, ...]] = {
    "widen.ingestion": ("ingest", "ingest_stream", "plan", "replay"),
    "widen.log.snapshot": ("open_snapshot",),
    "widen.log.store": ("LogStore",),
    "widen.model.literal": ("to_identifier",),
    "widen.planning.request": ("additions", "alterations", "removals", "renaming"),
    "widen.protocol.type_change": ("has_type_changes",),
    "widen.report.build": ("build",),
    "widen.report.mask": ("shown", "shown_as", "shown_intervals"),
    "widen.report.outline": ("outline",),
    "widen.report.page": ("page",),
    "widen.report.record": ("history",),
    "widen.report": ("terminal", "words"),
    "widen.spark.failure": ("FAILURES", "translated"),
    "widen.spark.old_file": ("look_here", "summarise"),
    "widen.report.scan": ("scanned",),
    "widen.spark.rewrite": ("REWRITE",),
    "widen.spark.search": ("find_old_files",),
    "widen.spark.session": ("find_session",),
    "widen.statement.answer": ("Answer",),
    "widen.statement.parse": ("parse",),
    "widen.statement.run": ("run",),
    "widen.table": ("Table",),
    "widen.table.columns": ("Columns",),
    "widen.table.properties": ("Properties",),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> object:
    """Return a name of the layers below, imported now."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _HOMES[name]
    return load(f"{home}.{name}") if home == "widen.report" else load(home, name)
