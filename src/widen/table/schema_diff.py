"""The difference between the schemas of two versions, with the reasons that the commits between them recorded.

Source: docs/guide/gate.md
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from widen.iceberg.snapshot_history import reasons_between
from widen.log.read.snapshot import Snapshot
from widen.model.column_path import Path, format_path
from widen.model.notebook import html_table, list_lines, shorten
from widen.model.types import StructType
from widen.planning.table.column_change import ROUTED, ChangeReason, ColumnChange
from widen.planning.table.schema_changes import recorded_reasons, schema_changes

if TYPE_CHECKING:
    from widen.iceberg.snapshots import ReadPoint


@dataclass(frozen=True, slots=True)
class SchemaDiff:
    """How the schema of a table changed between two versions.

    Args:
        old: The number of the version that is compared, or the id of the snapshot.
        new: The number of the version that it is compared with, or the id of the snapshot.
        changes: The changes from one to the other: columns of the new schema in its order, then removed columns.
    """

    old: int
    new: int
    changes: tuple[ColumnChange, ...]

    def __repr__(self) -> str:
        head = f"SchemaDiff({self.old} → {self.new}, {len(self.changes)} changes)"
        return list_lines(head, ("  ".join(filter(None, row)) for row in self._rows()))

    def _repr_html_(self) -> str:
        title = f"Version {self.old} → {self.new}: {len(self.changes)} changes"
        return html_table(title, ("change", "column", "from", "to"), self._rows())

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for change in self.changes:
            yield change.what, format_path(change.column), shorten(change.old), shorten(change.new)

    def to_value(self) -> dict[str, Any]:
        """Return the difference as a JSON object."""
        return {"from": self.old, "to": self.new, "changes": [change.to_value() for change in self.changes]}


def diff_versions(old: Snapshot, new: Snapshot) -> SchemaDiff:
    """Return how the schema changed between two versions of a table; either may be the later one."""
    commits = new.history(new.version - old.version) if new.version > old.version else []
    reasons = (reason for _, _, info in reversed(commits) for reason in recorded_reasons(info))
    return _diff_schemas((old.version, old.schema), (new.version, new.schema), reasons)


def diff_snapshots(old: ReadPoint, new: ReadPoint, before: StructType, after: StructType) -> SchemaDiff:
    """Return how the schema changed between two snapshots of an Iceberg table; either may be the later one.

    Args:
        before: The columns of the old snapshot with their metadata.
        after: The columns of the new one.
    """
    first, last = (0 if point.snapshot is None else point.snapshot.snapshot_id for point in (old, new))
    return _diff_schemas((first, before), (last, after), reasons_between(new.metadata, old.snapshot, new.snapshot))


def _diff_schemas(
    old: tuple[int, StructType], new: tuple[int, StructType], reasons: Iterable[tuple[Path, ChangeReason]]
) -> SchemaDiff:
    changes = schema_changes(old[1], new[1], list(reasons))
    return SchemaDiff(old[0], new[0], tuple(change for change in changes if change.what != ROUTED))
