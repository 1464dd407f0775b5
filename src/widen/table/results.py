"""The results of table methods: `TableChange`, `Vacuumed`, `History` and `Loads`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from widen.evolution.schema_changes import ROUTED, ChangeReason, ColumnChange, recorded_reasons, schema_changes
from widen.iceberg.snapshots import reasons_between
from widen.log.load_segments import Load, LoadedFile
from widen.log.snapshot import Snapshot
from widen.model.column_path import Path, format_path
from widen.model.display import html_table, list_lines, shorten
from widen.model.types import StructType
from widen.model.value_classes import dataclass
from widen.protocol.actions import CommitInfo

if TYPE_CHECKING:
    from widen.iceberg.snapshots import ReadPoint
    from widen.log.log_store import LogStore

_Table = TypeVar("_Table")


@dataclass(frozen=True, slots=True)
class TableChange(Generic[_Table]):
    """The result of an operation that changes rows or files.

    Args:
        table: The table, at its version after the change.
        operation: The operation as the history names it.
        version: The version of the table after the change.
        metrics: The metrics of the operation as the history has them, e.g. ``numDeletedRows``; empty if nothing was
            committed.
    """

    table: _Table
    operation: str
    version: int
    metrics: Mapping[str, int]

    def _repr_html_(self) -> str:
        return html_table(f"{self.operation}: version {self.version}", ("metric", "value"), self.metrics.items())


@dataclass(frozen=True, slots=True)
class Vacuumed(Generic[_Table]):
    """The result of a vacuum.

    Args:
        table: The table, at its version after the vacuum.
        version: The version of the table.
        files: The paths in the table of the files that were deleted, or would be; in order.
        size_bytes: Their total size.
        kept_since: All versions since this time can still be read.
        is_dry_run: Whether the files were only listed.
        expired: The ids of the snapshots that have expired, or would, for an Iceberg table.
    """

    table: _Table
    version: int
    files: tuple[str, ...]
    size_bytes: int
    kept_since: datetime
    is_dry_run: bool
    expired: tuple[int, ...] = ()

    def __repr__(self) -> str:
        done = "would delete" if self.is_dry_run else "deleted"
        return f"Vacuumed: {done} {len(self.files)} files, {self.size_bytes} bytes"

    def _repr_html_(self) -> str:
        return html_table(repr(self), ("file",), ((path,) for path in self.files))


class HistoryEntry(NamedTuple):
    """One commit of a table.

    Args:
        timestamp_ms: The time of the commit, in milliseconds since 1970 UTC.
        info: The commitInfo action, as in the log.
    """

    version: int
    timestamp_ms: int
    info: CommitInfo

    @property
    def timestamp(self) -> datetime:
        """The time of the commit, in UTC."""
        return to_datetime(self.timestamp_ms)

    @property
    def operation(self) -> str:
        """The operation; empty if the commit does not name one."""
        return str(self.info.get("operation", ""))

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters of the operation."""
        return dict(self.info.get("operationParameters") or {})

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics of the operation."""
        return dict(self.info.get("operationMetrics") or {})

    def __repr__(self) -> str:
        return f"HistoryEntry({self.version}, {self.timestamp:%Y-%m-%d %H:%M:%SZ}, {self.operation!r})"


class History(list[HistoryEntry]):
    """The commits of a table, newest first."""

    def __repr__(self) -> str:
        lines = (f"{e.version}  {e.timestamp:%Y-%m-%d %H:%M:%SZ}  {shorten(e.operation, 60)}" for e in self)
        return list_lines(f"History of {len(self)} versions", lines)

    def _repr_html_(self) -> str:
        rows = ((each.version, f"{each.timestamp:%Y-%m-%d %H:%M:%SZ}", each.operation, each.metrics) for each in self)
        return html_table(f"{len(self)} versions", ("version", "time", "operation", "metrics"), rows)


class Loads(list[Load]):
    """The loads of a table, oldest first: which source files each of them took."""

    def __repr__(self) -> str:
        head = f"Loads of {sum(len(load.files) for load in self)} files in {len(self)} commits"
        return list_lines(head, ("  ".join(map(str, row)) for row in self._rows()))

    def _repr_html_(self) -> str:
        header = ("version", "time", "files", "records", "quarantined", "skipped", "first file")
        return html_table(f"{len(self)} loads", header, self._rows())

    def _rows(self) -> Iterator[tuple[object, ...]]:
        for load in self:
            time = f"{to_datetime(load.loaded_ms):%Y-%m-%d %H:%M:%SZ}"
            first = next((shorten(file.path, 60) for file in (*load.files, *load.bad_files)), "")
            yield (
                load.version,
                time,
                len(load.files),
                load.records,
                load.quarantined_records,
                len(load.bad_files),
                first,
            )

    def to_value(self) -> list[dict[str, Any]]:
        """Return the loads as a JSON value."""
        return [
            {
                "version": load.version,
                "loadedMs": load.loaded_ms,
                "records": load.records,
                "corrupt": load.corrupt,
                "quarantined": load.quarantined_records,
                "files": list(map(_file_value, load.files)),
                "badFiles": list(map(_file_value, load.bad_files)),
            }
            for load in self
        ]


def _file_value(file: LoadedFile) -> dict[str, Any]:
    value = {"path": file.path, "size": file.size_bytes, "modifiedMs": file.modified_ms}
    known = {"content": file.content, "parked": file.parked}
    return value | {name: text for name, text in known.items() if text}


def to_datetime(time_ms: int) -> datetime:
    """Return a time in milliseconds since the epoch as a datetime in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, timezone.utc)


# The difference between the schemas of two versions, with the reasons that the commits between them recorded.
#
# Source: docs/guide/gate.md


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


def diff_snapshots(
    old: ReadPoint, new: ReadPoint, before: StructType, after: StructType, store: LogStore
) -> SchemaDiff:
    """Return how the schema changed between two snapshots of an Iceberg table; either may be the later one."""
    first, last = (0 if point.snapshot is None else point.snapshot.snapshot_id for point in (old, new))
    reasons = reasons_between(new.metadata, old.snapshot, new.snapshot, store)
    return _diff_schemas((first, before), (last, after), reasons)


def _diff_schemas(
    old: tuple[int, StructType], new: tuple[int, StructType], reasons: Iterable[tuple[Path, ChangeReason]]
) -> SchemaDiff:
    changes = schema_changes(old[1], new[1], list(reasons))
    return SchemaDiff(old[0], new[0], tuple(change for change in changes if change.what != ROUTED))
