"""Changes of columns between two schemas, with the reasons that an ingestion recorded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from widen.model.column_path import Path, format_path

ADDED, WIDENED, RETYPED, RENAMED, REMOVED, ROUTED = "added", "widened", "retyped", "renamed", "removed", "routed"
MOVED, CHANGED = "moved", "changed"
"""The kinds of column changes. `RETYPED` is a change of type that is not a widening. `ROUTED` means that a column
receives values of a new kind without a schema change. `CHANGED` is a new comment, nullability or default."""


@dataclass(frozen=True, slots=True)
class ChangeReason:
    """Why a batch needed a change, as the ingestion recorded it.

    Args:
        grade: The effect on readers: additive, widening, conflict or structural.
        file: The file of the first such value; empty if not known.
        position: The line or record number in that file, from 1; 0 if not known.
        sample: The beginning of the first such value.
        at_least: Whether there may be more such values.
    """

    rules: tuple[str, ...]
    source: Path
    kinds: tuple[str, ...]
    count: int
    grade: str
    file: str = ""
    position: int = 0
    sample: str = ""
    at_least: bool = False

    def to_value(self) -> dict[str, Any]:
        """Return the reason as a JSON object."""
        reason = {"rules": list(self.rules), "source": format_path(self.source), "kinds": list(self.kinds)}
        first_seen = {"file": self.file, "position": self.position, "sample": self.sample} if self.file else {}
        more = {"atLeast": True} if self.at_least else {}
        return {**reason, "count": self.count, **more, "grade": self.grade, **first_seen}


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """One change of one column.

    Args:
        what: `ADDED`, `WIDENED`, `RETYPED`, `RENAMED`, `REMOVED`, `ROUTED`, `MOVED` or `CHANGED`.
        old: The old type; for `RENAMED` the old path, for `CHANGED` the old value in words. Empty if there is none.
        new: The new type; for `RENAMED` the new path, for `CHANGED` the new value, for `MOVED` the new position.
        reasons: Why an ingestion made it; empty for a manual change.
    """

    what: str
    column: Path
    old: str = ""
    new: str = ""
    reasons: tuple[ChangeReason, ...] = ()

    @property
    def grade(self) -> str:
        """The most severe grade of the reasons; without reasons the default grade of this kind of change."""
        grades = [reason.grade for reason in self.reasons]
        return max(grades, key=_severity) if grades else _GRADES.get(self.what, "structural")

    def to_value(self) -> dict[str, Any]:
        """Return the change as a JSON object."""
        change = {"change": self.what, "column": format_path(self.column), "grade": self.grade}
        types = {key: text for key, text in (("from", self.old), ("to", self.new)) if text}
        return {**change, **types, "reasons": [reason.to_value() for reason in self.reasons]}


GRADES = ("additive", "widening", "conflict", "structural")
"""The grades of changes by their effect on readers, least severe first."""

_GRADES = {ADDED: "additive", ROUTED: "additive", CHANGED: "additive", MOVED: "additive", WIDENED: "widening"}


def _severity(grade: str) -> int:
    return GRADES.index(grade) if grade in GRADES else len(GRADES)
