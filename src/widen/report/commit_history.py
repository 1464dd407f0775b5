"""The commits of the log in order, each with the schema before and after it.

Source: PROTOCOL.md#delta-log-entries
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from widen.errors import CorruptLog, VersionNotFound
from widen.log.read.commit_lines import METADATA, decode_commit, read_non_file_actions
from widen.log.read.log_segment import commit_path
from widen.log.read.snapshot import Snapshot, open_snapshot
from widen.model.schema_json import from_json
from widen.model.types import StructType
from widen.planning.evolution.plan import CORRUPT_TEXTS, QUARANTINED, ROUNDED
from widen.planning.table.column_change import ColumnChange
from widen.planning.table.schema_changes import recorded_reasons, schema_changes
from widen.protocol.actions import Add, CommitInfo, Metadata
from widen.report.report_model import IntervalRecord, VersionTime


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """One commit.

    Args:
        before: The schema before it; None if the table did not exist or the log no longer has that schema.
        after: The schema after it; None if the log does not have it.
        adds: The files that it added; empty unless read with files.
    """

    moment: VersionTime
    info: CommitInfo
    before: StructType | None
    after: StructType | None
    adds: tuple[Add, ...] = ()

    @property
    def operation(self) -> str:
        """The operation name in the commit info."""
        return str(self.info.get("operation") or "")

    @property
    def quarantined(self) -> int | None:
        """How many records its ingestion quarantined; None if the commit does not record it."""
        return self._metric(QUARANTINED)

    @property
    def corrupt(self) -> int | None:
        """How many strings its ingestion stored as corrupt records; None if the commit does not record it."""
        return self._metric(CORRUPT_TEXTS)

    @property
    def rounded(self) -> int:
        """How many numbers its ingestion rounded to doubles."""
        return self._metric(ROUNDED) or 0

    @property
    def changed_rows(self) -> dict[str, int]:
        """How many rows it inserted, updated and deleted, as far as the commit records it; none of them is 0."""
        counts = {word: next(filter(None, map(self._metric, names)), 0) for word, names in _ROW_METRICS.items()}
        return {word: count for word, count in counts.items() if count}

    def _metric(self, name: str) -> int | None:
        metrics = self.info.get("operationMetrics")
        return _number(metrics.get(name)) if isinstance(metrics, dict) else None

    @property
    def is_first(self) -> bool:
        """Whether it created the table."""
        return self.moment.version == 0

    @property
    def changes(self) -> tuple[ColumnChange, ...]:
        """Its column changes; empty if the schema before it is not known."""
        if self.after is None or (self.before is None and not self.is_first):
            return ()
        return schema_changes(self.before or StructType(), self.after, recorded_reasons(self.info))


def read_commits(snapshot: Snapshot, limit: int | None = None, *, with_files: bool = False) -> Iterator[CommitRecord]:
    """Yield the commits up to a version of a table, oldest first.

    Args:
        limit: The most commits to return, counted from the newest.
        with_files: Whether to read the added files too, which is slower.
    """
    history = snapshot.history(limit)[::-1]
    paths = [commit_path(version) for version, _, _ in history]
    schema = _schema_before(snapshot, history[0][0]) if history else None
    for (version, time_ms, info), path, data in zip(history, paths, snapshot.store.read_many(paths), strict=True):
        metadata, adds = _read_with_files(path, data) if with_files else (_read_metadata(path, data), ())
        after = from_json(metadata.schema_string) if metadata else schema
        yield CommitRecord(VersionTime(version, time_ms), info, schema, after, adds)
        schema = after


def read_history(snapshot: Snapshot, limit: int | None = None) -> list[IntervalRecord]:
    """Return the commits up to a version of a table, newest first, with the metrics that they record."""
    return [to_interval(record) for record in read_commits(snapshot, limit)][::-1]


def to_interval(record: CommitRecord) -> IntervalRecord:
    """Return a commit as a history shows it, with the metrics that it records."""
    metrics, parameters = (record.info.get(key) for key in ("operationMetrics", "operationParameters"))
    numbers = metrics if isinstance(metrics, dict) else {}
    return IntervalRecord(
        record.moment,
        record.operation,
        _number(numbers.get("numOutputRows")),
        record.corrupt,
        _number(numbers.get("numFiles")) or _number(numbers.get("numAddedFiles")) or 0,
        _number(numbers.get("numOutputBytes")) or 0,
        record.changes,
        parameters if isinstance(parameters, dict) else {},
        is_first=record.is_first,
        quarantined=record.quarantined,
        changed_rows=record.changed_rows,
        rounded=record.rounded,
    )


_ROW_METRICS: Mapping[str, tuple[str, ...]] = {
    "inserted": ("numTargetRowsInserted",),
    "updated": ("numUpdatedRows", "numTargetRowsUpdated"),
    "deleted": ("numDeletedRows", "numTargetRowsDeleted"),
}
"""The metrics of commits that count changed rows, as Delta Lake names them."""


def _number(text: object) -> int | None:
    return int(text) if isinstance(text, (str, int)) and str(text).isdecimal() else None


def _schema_before(snapshot: Snapshot, version: int) -> StructType | None:
    if version == 0:
        return None
    try:
        return open_snapshot(snapshot.store, version - 1).schema
    except (VersionNotFound, CorruptLog):
        return None


def _read_metadata(path: str, data: bytes) -> Metadata | None:
    return _last(line.meta_data for line in read_non_file_actions(path, data, METADATA))


def _read_with_files(path: str, data: bytes) -> tuple[Metadata | None, tuple[Add, ...]]:
    lines = decode_commit(path, data)
    return _last(line.meta_data for line in lines), tuple(line.add for line in lines if line.add is not None)


def _last(candidates: Iterable[Metadata | None]) -> Metadata | None:
    return next((metadata for metadata in reversed(list(candidates)) if metadata is not None), None)
