"""The streaming reads of the data source.

Source: Spark's Python Data Source API, which passes limits from Spark 4.2 on
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from widen.data_source.batch_reader import SourceOptions, TableColumns, plan_tasks, read_task
from widen.errors import (
    ChangeFeedNotRecorded,
    DataSourceRefused,
    InternalError,
    InvalidOption,
    StreamColumnsChanged,
    StreamRowsChanged,
)
from widen.log.commit_files import to_ms
from widen.log.file_list import to_adds
from widen.log.log_segment import find_versions, list_log
from widen.log.snapshot import Snapshot, first_version_from, open_snapshot
from widen.log.version_changes import INSERT, ChangeSlice, VersionChanges, change_slices, version_changes
from widen.model.schema_json import from_json
from widen.model.types import StructType
from widen.model.value_classes import dataclass
from widen.protocol.column_metadata import visible_schema
from widen.protocol.table_features import ensure_readable
from widen.protocol.table_properties import ENABLE_CHANGE_DATA_FEED, is_on
from widen.schema.growth import has_same_columns, is_readable_in

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles, SupportsTriggerAvailableNow

    HAS_LIMITS = True
except ImportError:  # Spark 4.0 and 4.1 take all that is there as one batch
    HAS_LIMITS = False
    ReadAllAvailable = ReadMaxFiles = SupportsTriggerAvailableNow = object  # type: ignore[misc,assignment]

_NEWEST = "latest"


def plan_stream(options: SourceOptions, snapshot: Snapshot, *, is_outdated: bool) -> StreamPlan:
    """Return what a stream reads.

    Raises:
        InvalidOption: an option cannot be used in a stream.
    """
    for name in ("versionAsOf", "timestampAsOf", "endingVersion", "endingTimestamp"):
        if options.text(name) is not None:
            expected = "A stream begins at startingVersion or startingTimestamp, and has no end."
            raise InvalidOption(option=name, value=options.text(name), expected=expected)
    reads_changes = options.flag("readChangeFeed")
    return StreamPlan(
        snapshot,
        is_outdated=is_outdated,
        reads_changes=reads_changes,
        ignores_deletes=options.flag("ignoreDeletes"),
        skips_changes=options.flag("skipChangeCommits"),
    )


def find_earlier_version(snapshot: Snapshot, has_columns: Callable[[Snapshot], bool]) -> Snapshot | None:
    """Return the version before the last changes of the columns that has the columns of a query.

    A query gets its columns when it is planned, and starts later: in a pipeline by minutes.
    """
    store = snapshot.store
    first = max(find_versions(store)[0].first, snapshot.version - _VERSIONS_BACK) + 1
    changed = [each.version for each in version_changes(store, first, snapshot.version) if each.metadata is not None]
    earlier = (open_snapshot(store, version - 1) for version in reversed(changed))
    return next(filter(has_columns, earlier), None)


_VERSIONS_BACK = 100
"""How many versions a table may get between the plan of a stream and its start, if they change the columns."""


def parse_stream_limits(options: SourceOptions) -> StreamLimits:
    """Return how much a batch of a stream reads.

    Raises:
        InvalidOption: a limit is not an integer >= 1, or this Spark has no limits for Python data sources.
    """
    limits = StreamLimits(options.number("maxFilesPerTrigger", 1), options.number("maxBytesPerTrigger", 1))
    if limits != StreamLimits() and not HAS_LIMITS:
        value = limits.files or limits.size_bytes
        expected = f"Needs Spark 4.2 or later; this is {pyspark.__version__}. Remove it, or read files with fewer rows."
        raise InvalidOption(option="maxFilesPerTrigger or maxBytesPerTrigger", value=value, expected=expected)
    return limits


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads new rows of a table, or all its changes, batch by batch."""

    def __init__(self, options: SourceOptions, plan: StreamPlan, columns: TableColumns) -> None:
        self._options, self._plan, self._columns = options, plan, columns
        self._limits = parse_stream_limits(options)
        self._newest: int | None = None
        self._has_reported = False
        self._last: StreamOffset | None = None

    @cached_property
    def _initial(self) -> StreamOffset:
        version, time = self._options.text("startingVersion"), self._options.text("startingTimestamp")
        if time is not None:
            first = first_version_from(self._plan.snapshot.store, to_ms(time))
            return self._plan.start(first, is_next=first > self._plan.snapshot.version)
        if version is not None and version.lower() == _NEWEST:
            return self._plan.start(self._plan.newest_version() + 1, is_next=True)
        return self._plan.start(self._options.number("startingVersion"))

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new stream begins."""
        return self._initial.to_json()

    def latestOffset(self, start: Mapping[str, Any] | None = None, limit: object = None) -> dict[str, Any]:
        """Return where the next batch ends.

        Args:
            start: Where it begins; Spark 4.0 and 4.1 do not say.
            limit: No limit, or a limit that stands for the limits in the options.
        """
        limits = StreamLimits() if isinstance(limit, ReadAllAvailable) else self._limits
        began = (self._last or self._initial) if start is None else StreamOffset.from_json(start)
        end = self._plan.find_end(began, limits, self._newest)
        if end == began and self._newest is not None and not self._has_reported:
            self._has_reported = True
            self._plan.report_change(self._newest)
        return end.to_json()

    def getDefaultReadLimit(self) -> Any:
        """Return a limit that makes Spark ask for limited batches, if the options have one."""
        return ReadAllAvailable() if self._limits == StreamLimits() else ReadMaxFiles(self._limits.files or 1)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read no version after the one whose columns the rows get: later ones may change them."""
        self._newest = self._plan.snapshot.version

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch. Spark also calls this when it continues a stream, with the same offset twice."""
        self._last = StreamOffset.from_json(end)
        slices = self._plan.slices(StreamOffset.from_json(start), self._last)
        return plan_tasks(slices, is_local=self._plan.snapshot.store.is_local)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        return read_task(self._columns, partition)


_log = logging.getLogger(__name__)


# Where a stream of a table stands, and which files its next batch reads.
#
# A stream begins with the rows of one version and continues with those that later versions add, or with all their
# changes. It ends a batch before a version that changes the columns, because Spark fixes the columns of a query
# when it starts: all earlier rows are processed, then the stream fails, and starts again in the new columns.
#
# Source: Delta Lake's streaming source


@dataclass(frozen=True)
class StreamOffset:
    """A place in a table: everything before it is processed.

    Args:
        index: How many files of the version are processed.
        is_initial: Whether all rows of the version are read, and not only its changes.
        first: Where the stream began; None in offsets that earlier versions of Widen have written.
    """

    table_id: str
    version: int
    index: int = 0
    is_initial: bool = False
    first: FirstVersion | None = field(default=None, compare=False)

    def to_json(self) -> dict[str, Any]:
        """Return the offset as Spark keeps it in the checkpoint."""
        keys = {"tableId": self.table_id, "version": self.version, "index": self.index, "isInitial": self.is_initial}
        first = self.first
        return keys if first is None else {**keys, "first": {"version": first.version, "isInitial": first.is_initial}}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> StreamOffset:
        """Return an offset from the checkpoint."""
        first = value.get("first")
        parsed = None if first is None else FirstVersion(first["version"], first["isInitial"])
        return cls(value["tableId"], value["version"], value["index"], value["isInitial"], parsed)

    def next_version(self) -> StreamOffset:
        """Return the place after all of the version."""
        return self.at_version(self.version + 1)

    def at_version(self, version: int) -> StreamOffset:
        """Return the place before the changes of a version."""
        return replace(self, version=version, index=0, is_initial=False)

    @property
    def is_first(self) -> bool:
        """Whether a stream begins here."""
        return self.index == 0 and self.first == FirstVersion(self.version, self.is_initial)


@dataclass(frozen=True)
class FirstVersion:
    """The version where a stream began.

    Spark stores where the first batch ends, but not where it begins. If it repeats this batch, it asks for the initial
    offset again, although the table may have new versions by then. So every offset carries the first version.

    Args:
        is_initial: Whether the stream began with all rows of the version, and not only with its changes.
    """

    version: int
    is_initial: bool


@dataclass(frozen=True)
class StreamLimits:
    """How much a batch reads; at least one file, or one version of the change feed."""

    files: int | None = None
    size_bytes: int | None = None

    def is_reached(self, files: int, size_bytes: int) -> bool:
        """Return whether a batch of that size is full."""
        too_many = self.files is not None and files >= self.files
        return too_many or (self.size_bytes is not None and size_bytes >= self.size_bytes)


@dataclass(frozen=True)
class StreamPlan:
    """What a stream reads.

    Args:
        reads_changes: Whether the stream returns all changes; else it returns new rows.
        ignores_deletes: Whether versions that only delete rows are skipped.
        skips_changes: Whether versions that update or delete rows are skipped.
    """

    snapshot: Snapshot
    is_outdated: bool = False
    reads_changes: bool = False
    ignores_deletes: bool = False
    skips_changes: bool = False

    def start(self, version: int | None = None, *, is_next: bool = False) -> StreamOffset:
        """Return where a new stream begins.

        Args:
            version: The first version whose changes are read; by default, all rows of the newest version come first.
            is_next: Whether that version may be the next one, which does not exist yet.

        Raises:
            ChangeFeedNotRecorded: the change data feed is disabled in that version.
        """
        snapshot, is_initial = self.snapshot, version is None
        first = FirstVersion(snapshot.version if version is None else version, is_initial)
        offset = StreamOffset(snapshot.metadata.id, first.version, is_initial=is_initial, first=first)
        if version is not None:
            # After the newest version a stream begins only where its caller asks for what comes next.
            snapshot = snapshot if is_next else open_snapshot(snapshot.store, version)
        if self.reads_changes and not is_on(snapshot.properties, ENABLE_CHANGE_DATA_FEED):
            raise ChangeFeedNotRecorded(first=offset.version, last=snapshot.version, version=offset.version)
        return offset

    def find_end(self, start: StreamOffset, limits: StreamLimits, newest: int | None = None) -> StreamOffset:
        """Return where the batch after an offset ends; the offset itself if there is nothing to read."""
        files, size_bytes, end = 0, 0, start
        try:
            for part, after in self._walk(start, newest):
                end = after
                files, size_bytes = files + (part is not None), size_bytes + (part.file.size if part else 0)
                splits_changes = self.reads_changes and after.index > 0 and not after.is_initial
                if limits.is_reached(files, size_bytes) and not splits_changes:
                    break
        except (StreamColumnsChanged, StreamRowsChanged, ChangeFeedNotRecorded, DataSourceRefused):
            if end == start:
                raise
        return end

    def slices(self, start: StreamOffset, end: StreamOffset) -> Iterator[ChangeSlice]:
        """Yield what a batch reads: the same slices each time.

        Raises:
            DataSourceRefused: Spark repeats the first batch, and an earlier version of Widen has not stored its start.
            InternalError: the end is before the start.
        """
        start = _find_stored_start(start, end)
        if start == end:
            return
        if (end.version, end.is_initial, end.index) < (start.version, start.is_initial, start.index):
            if start.is_first:
                reason = "the checkpoint, of an earlier version of Widen, does not say where its first batch begins"
                fix = "Start a new stream with a new checkpoint location. Check first which rows the sink has already."
                raise DataSourceRefused(verb="stream", location=self.snapshot.location, reason=reason, fix=fix)
            raise InternalError(reason=f"a batch would go back from {start} to {end}")
        for part, after in self._walk(start, end.version if end.index else end.version - 1):
            if part is not None:
                yield part
            if after == end:
                return

    def newest_version(self) -> int:
        """Return the newest version of the table."""
        return list_log(self.snapshot.store).newest

    def find_change(self, after: int) -> VersionChanges | None:
        """Return the first version after another one that has other columns than the stream, if any."""
        newest = self.newest_version()
        later = version_changes(self.snapshot.store, after + 1, newest) if newest > after else ()
        return next((each for each in later if self._changed_columns(each) is not None), None)

    def report_change(self, after: int) -> None:
        """Log that a version after another one changes the columns; the next run of the stream reads it."""
        change = self.find_change(after)
        if change is not None:
            _log.warning("%s", self._changed_columns(change))

    def _walk(self, start: StreamOffset, newest: int | None) -> Iterator[tuple[ChangeSlice | None, StreamOffset]]:
        """Yield each slice with the offset after it, and for a version without slices only the offset after it."""
        self._ensure_same_table(start.table_id)
        if start.is_initial:
            yield from _with_offsets(list(self._initial_slices(start.version)), start)
            start = start.next_version()
        newest = self.newest_version() if newest is None else newest
        self._ensure_columns_at(start.version)
        if start.version > newest:
            return
        schema: StructType | None = None
        for changes in version_changes(self.snapshot.store, start.version, newest):
            self._ensure_alike(changes)
            if changes.version <= self.snapshot.version:
                schema = self._ensure_rows_fit(changes, schema)
            at = start if changes.version == start.version else start.at_version(changes.version)
            yield from _with_offsets(self._slices_of(changes), at)

    def _initial_slices(self, version: int) -> Iterator[ChangeSlice]:
        snapshot = self.snapshot if version == self.snapshot.version else open_snapshot(self.snapshot.store, version)
        self._ensure_fits(snapshot.schema, version)
        files = sorted(to_adds(snapshot.files()), key=lambda file: (file.modification_time, file.path))
        return (ChangeSlice(version, snapshot.timestamp_ms, INSERT, file) for file in files)

    def _slices_of(self, changes: VersionChanges) -> list[ChangeSlice]:
        if self.reads_changes:
            return list(change_slices(changes))
        if changes.removed and self.skips_changes:
            return []
        if changes.removed and not (self.ignores_deletes and not changes.added):
            raise StreamRowsChanged(version=changes.version, location=self.snapshot.location)
        return [ChangeSlice(changes.version, changes.time_ms, INSERT, file) for file in changes.added]

    def _ensure_alike(self, changes: VersionChanges) -> None:
        """Check that a version has the columns of the stream. Those up to the version of the stream may have others."""
        if changes.protocol is not None:
            ensure_readable(changes.protocol, self.snapshot.location)
        if changes.metadata is None:
            return
        if self.reads_changes and not is_on(changes.metadata.configuration, ENABLE_CHANGE_DATA_FEED):
            raise ChangeFeedNotRecorded(first=changes.version, last=changes.version, version=changes.version)
        if changes.version > self.snapshot.version:
            self._ensure_same_table(changes.metadata.id)
            change = self._changed_columns(changes)
            if change is not None:
                raise change

    def _ensure_rows_fit(self, changes: VersionChanges, before: StructType | None) -> StructType:
        """Check that the rows of a version fit the columns of the stream, and return the schema of the version.

        A later restore or overwrite can have gone back to narrower types. After the version of the stream this cannot
        be, as its columns then stay the same.

        Args:
            before: The schema of the version before; None if it is not known yet.
        """
        store, metadata = self.snapshot.store, changes.metadata
        after = from_json(metadata.schema_string) if metadata is not None else before
        after = open_snapshot(store, changes.version).schema if after is None else after
        if self.reads_changes and changes.removed and not changes.change_files:
            is_known = before is not None or metadata is None
            removed = (before or after) if is_known else open_snapshot(store, changes.version - 1).schema
            self._ensure_fits(removed, changes.version - 1)
        if changes.added or changes.change_files:
            self._ensure_fits(after, changes.version)
        return after

    def _ensure_fits(self, schema: StructType, version: int) -> None:
        if schema is not self.snapshot.schema and not is_readable_in(schema, self.snapshot.schema, may_drop=True):
            old, new = (visible_schema(each).sql for each in (schema, self.snapshot.schema))
            reason = (
                f"the rows of version {version}, {old}, have wider types than the columns that it reads now, {new}, or "
                "a column that another one of the same name has replaced"
            )
            fix = "Start a new stream after that version, with a new checkpoint location."
            raise DataSourceRefused(verb="stream", location=self.snapshot.location, reason=reason, fix=fix)

    def _ensure_columns_at(self, version: int) -> None:
        """Check that an offset is not after the version that has changed the columns of the query."""
        change = self.find_change(self.snapshot.version) if self.is_outdated else None
        if change is not None and version > change.version:
            reason = (
                f"the DataFrame has the columns of version {self.snapshot.version}, and the checkpoint is after "
                f"version {change.version}, which changed them"
            )
            fix = "Load the DataFrame again, and start the stream with the same checkpoint."
            raise DataSourceRefused(verb="stream", location=self.snapshot.location, reason=reason, fix=fix)

    def _changed_columns(self, changes: VersionChanges) -> StreamColumnsChanged | None:
        """Return the error for a version that has other columns than the stream."""
        schema = None if changes.metadata is None else from_json(changes.metadata.schema_string)
        if schema is None or has_same_columns(schema, self.snapshot.schema):
            return None
        old, new = (visible_schema(each).sql for each in (self.snapshot.schema, schema))
        return StreamColumnsChanged(version=changes.version, location=self.snapshot.location, old=old, new=new)

    def _ensure_same_table(self, table_id: str) -> None:
        if table_id != self.snapshot.metadata.id:
            reason, fix = "it was replaced by another table", "Start a new stream with a new checkpoint location."
            raise DataSourceRefused(verb="stream", location=self.snapshot.location, reason=reason, fix=fix)


def _find_stored_start(start: StreamOffset, end: StreamOffset) -> StreamOffset:
    """Return where a batch begins: the first batch, which Spark may repeat, where it began at first."""
    if end.first is None or not start.is_first:
        return start
    return replace(end, version=end.first.version, index=0, is_initial=end.first.is_initial)


def _with_offsets(parts: list[ChangeSlice], at: StreamOffset) -> Iterator[tuple[ChangeSlice | None, StreamOffset]]:
    """Yield the slices of a version that come after an offset, each with the offset after it."""
    for index, part in enumerate(parts[at.index :], at.index + 1):
        yield part, replace(at, index=index) if index < len(parts) else at.next_version()
    if at.index >= len(parts):
        yield None, at.next_version()
