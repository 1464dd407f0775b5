"""Commits as the log holds them, one after the other, with the schemas between which they stand.

Source: PROTOCOL.md#delta-log-entries
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from widen.errors import CorruptLog, VersionNotFound
from widen.log.read.commit_lines import METADATA, decode_commit, read_non_file_actions
from widen.log.read.log_segment import commit_path
from widen.log.read.snapshot import Snapshot, open_snapshot
from widen.model.schema_json import from_json
from widen.model.types import StructType
from widen.planning.evolution.plan import CORRUPT_TEXTS, QUARANTINED
from widen.protocol.actions import Add, CommitInfo, Metadata
from widen.report.report_model import ColumnChange, IntervalRecord, VersionTime
from widen.report.schema_changes import recorded_reasons, schema_changes


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """One commit.

    Args:
        moment: When.
        info: Its provenance.
        before: The schema before it; None if there was none, or it cannot be told any more.
        after: The schema after it; None if it cannot be told.
        adds: The files that it added, if they were asked for.
    """

    moment: VersionTime
    info: CommitInfo
    before: StructType | None
    after: StructType | None
    adds: tuple[Add, ...] = ()

    @property
    def operation(self) -> str:
        """What the history calls it."""
        return str(self.info.get("operation") or "")

    @property
    def quarantined(self) -> int | None:
        """How many records its ingestion kept out of the table; None if it does not say."""
        return self._metric(QUARANTINED)

    @property
    def corrupt(self) -> int | None:
        """How many texts of its ingestion are not records; None if it does not say."""
        return self._metric(CORRUPT_TEXTS)

    def _metric(self, name: str) -> int | None:
        metrics = self.info.get("operationMetrics")
        return _number(metrics.get(name)) if isinstance(metrics, dict) else None

    @property
    def is_first(self) -> bool:
        """Whether it made the table."""
        return self.moment.version == 0

    @property
    def changes(self) -> tuple[ColumnChange, ...]:
        """What it changed; none if the schema before it is not known."""
        if self.after is None or (self.before is None and not self.is_first):
            return ()
        return schema_changes(self.before or StructType(), self.after, recorded_reasons(self.info))


def read_commits(snapshot: Snapshot, limit: int | None = None, *, with_files: bool = False) -> Iterator[CommitRecord]:
    """Yield the commits up to a version of a table, oldest first.

    Args:
        snapshot: The version.
        limit: How many at most, of the newest.
        with_files: Whether their file actions are wanted, which makes it slower.

    Raises:
        CorruptLog: a commit is damaged.
        StorageError: the store refused.
    """
    told = snapshot.history(limit)[::-1]
    paths = [commit_path(version) for version, _, _ in told]
    schema = _schema_before(snapshot, told[0][0]) if told else None
    for (version, time_ms, info), path, data in zip(told, paths, snapshot.store.read_many(paths), strict=True):
        metadata, adds = _whole(path, data) if with_files else (_head(path, data), ())
        after = from_json(metadata.schema_string) if metadata else schema
        yield CommitRecord(VersionTime(version, time_ms), info, schema, after, adds)
        schema = after


def read_history(snapshot: Snapshot, limit: int | None = None) -> list[IntervalRecord]:
    """Return what the commits up to a version of a table did, newest first; numbers are those that they say.

    Args:
        snapshot: The version.
        limit: How many at most.

    Raises:
        CorruptLog: a commit is damaged.
        StorageError: the store refused.
    """
    return [_to_interval(record) for record in read_commits(snapshot, limit)][::-1]


def _to_interval(record: CommitRecord) -> IntervalRecord:
    metrics, parameters = (record.info.get(key) for key in ("operationMetrics", "operationParameters"))
    said = metrics if isinstance(metrics, dict) else {}
    return IntervalRecord(
        record.moment,
        record.operation,
        _number(said.get("numOutputRows")),
        record.corrupt,
        _number(said.get("numFiles")) or _number(said.get("numAddedFiles")) or 0,
        _number(said.get("numOutputBytes")) or 0,
        record.changes,
        parameters if isinstance(parameters, dict) else {},
        is_first=record.is_first,
        quarantined=record.quarantined,
    )


def _number(text: object) -> int | None:
    return int(text) if isinstance(text, (str, int)) and str(text).isdecimal() else None


def _schema_before(snapshot: Snapshot, version: int) -> StructType | None:
    if version == 0:
        return None
    try:
        return open_snapshot(snapshot.store, version - 1).schema
    except (VersionNotFound, CorruptLog):
        return None


def _head(path: str, data: bytes) -> Metadata | None:
    return _last(line.meta_data for line in read_non_file_actions(path, data, METADATA))


def _whole(path: str, data: bytes) -> tuple[Metadata | None, tuple[Add, ...]]:
    lines = decode_commit(path, data)
    return _last(line.meta_data for line in lines), tuple(line.add for line in lines if line.add is not None)


def _last(found: Iterable[Metadata | None]) -> Metadata | None:
    return next((metadata for metadata in reversed(list(found)) if metadata is not None), None)
