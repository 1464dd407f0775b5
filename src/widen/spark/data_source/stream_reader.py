"""The streaming reads of the data source.

Source: Spark's Python Data Source API, which passes limits from Spark 4.2 on
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from widen.errors import InvalidOption
from widen.log.read.commit_timestamps import to_ms
from widen.log.read.snapshot import Snapshot, first_version_from
from widen.spark.data_source.source_options import SourceOptions
from widen.spark.data_source.source_tasks import TableColumns, plan_tasks, read_task
from widen.spark.data_source.stream_plan import BatchLimits, StreamOffset, StreamPlan

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles, SupportsTriggerAvailableNow

    HAS_LIMITS = True
except ImportError:  # Spark 4.0 and 4.1 take all that is there as one batch
    HAS_LIMITS = False
    ReadAllAvailable = ReadMaxFiles = SupportsTriggerAvailableNow = object  # type: ignore[misc,assignment]

_NEWEST = "latest"


def plan_stream(options: SourceOptions, snapshot: Snapshot) -> StreamPlan:
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
        reads_changes=reads_changes,
        ignores_deletes=options.flag("ignoreDeletes"),
        skips_changes=options.flag("skipChangeCommits"),
    )


def parse_limits(options: SourceOptions) -> BatchLimits:
    """Return how much a batch of a stream reads.

    Raises:
        InvalidOption: a limit is not an integer >= 1, or this Spark has no limits for Python data sources.
    """
    limits = BatchLimits(options.number("maxFilesPerTrigger", 1), options.number("maxBytesPerTrigger", 1))
    if limits != BatchLimits() and not HAS_LIMITS:
        value = limits.files or limits.size_bytes
        expected = f"Needs Spark 4.2 or later; this is {pyspark.__version__}. Remove it, or read files with fewer rows."
        raise InvalidOption(option="maxFilesPerTrigger or maxBytesPerTrigger", value=value, expected=expected)
    return limits


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads new rows of a table, or all its changes, batch by batch."""

    def __init__(self, options: SourceOptions, plan: StreamPlan, columns: TableColumns) -> None:
        self._options, self._plan, self._columns = options, plan, columns
        self._limits = parse_limits(options)
        self._newest: int | None = None
        self._last: StreamOffset | None = None

    @cached_property
    def _initial(self) -> StreamOffset:
        version, time = self._options.text("startingVersion"), self._options.text("startingTimestamp")
        if time is not None:
            return self._plan.start(first_version_from(self._plan.snapshot.store, to_ms(time)))
        if version is not None and version.lower() == _NEWEST:
            return self._plan.start(self._plan.newest_version() + 1)
        return self._plan.start(self._options.number("startingVersion"))

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new stream begins."""
        return self._initial.to_json()

    def latestOffset(self, start: Mapping[str, Any] | None = None, limit: object = None) -> dict[str, Any]:
        """Return where the next batch ends.

        Args:
            start: Where it begins; Spark 4.0 and 4.1 do not say.
            limit: No limit, or a limit that stands for those in the options.
        """
        limits = BatchLimits() if isinstance(limit, ReadAllAvailable) else self._limits
        began = (self._last or self._initial) if start is None else StreamOffset.from_json(start)
        return self._plan.find_end(began, limits, self._newest).to_json()

    def getDefaultReadLimit(self) -> Any:
        """Return a limit that makes Spark ask for limited batches, if the options have one."""
        return ReadAllAvailable() if self._limits == BatchLimits() else ReadMaxFiles(self._limits.files or 1)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read no version that is newer than now."""
        self._newest = self._plan.newest_version()

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch. Spark also calls this when it continues a stream, with the same offset twice."""
        self._last = StreamOffset.from_json(end)
        slices = self._plan.slices(StreamOffset.from_json(start), self._last)
        return plan_tasks(slices, is_local=self._plan.snapshot.store.is_local)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a task."""
        return read_task(self._columns, partition)
