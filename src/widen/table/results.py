"""The results of table methods: `TableChange`, `Vacuumed`, `History` and `Loads`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any, Generic, NamedTuple, TypeVar

from widen.log.read.loads import Load, LoadedFile
from widen.model.notebook import html_table, list_lines, shorten
from widen.protocol.actions import CommitInfo

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
    """

    table: _Table
    version: int
    files: tuple[str, ...]
    size_bytes: int
    kept_since: datetime
    is_dry_run: bool

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
        header = ("version", "time", "files", "records", "kept out", "skipped", "first file")
        return html_table(f"{len(self)} loads", header, self._rows())

    def _rows(self) -> Iterator[tuple[object, ...]]:
        for load in self:
            time = f"{to_datetime(load.loaded_ms):%Y-%m-%d %H:%M:%SZ}"
            first = next((shorten(file.path, 60) for file in (*load.files, *load.bad_files)), "")
            yield load.version, time, len(load.files), load.records, load.kept_out, len(load.bad_files), first

    def to_value(self) -> list[dict[str, Any]]:
        """Return the loads as a JSON value."""
        return [
            {
                "version": load.version,
                "loadedMs": load.loaded_ms,
                "records": load.records,
                "corrupt": load.corrupt,
                "keptOut": load.kept_out,
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
