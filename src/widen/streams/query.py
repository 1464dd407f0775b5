"""Streams: a query that ingests one interval per micro-batch and keeps its progress.

It is one of Structured Streaming, or for files that need no Spark a thread that does the same steps. Every micro-batch
has a number, and after a crash the query repeats the same batch.

Source: Spark's Structured Streaming
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, TypeAlias

from widen.errors import InternalError, JobFailed, WidenError
from widen.model.value_classes import dataclass
from widen.sources.find_files import ANY_SIZE, BatchSize, FileTable, list_local_table
from widen.sources.listing import SourceFile, as_literal, list_source_files, to_source_error
from widen.sources.places import expand_local
from widen.spark.engine import Session
from widen.spark.errors import to_error_text, translate_spark_errors
from widen.spark.spark_types import DataFrame, SparkSession, spark_errors
from widen.streams.checkpoint import StreamCheckpoint

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """The files of a micro-batch of a stream without Spark."""

    spark: Session
    stream_id: str
    uris: Sequence[str]


IntervalWork: TypeAlias = Callable[["DataFrame | FoundFiles", int], None]
"""Ingests the rows or files of a micro-batch, given its number."""

_FILES = "path string, modificationTime timestamp, length bigint, content binary"
_FOREVER = "36500d"
"""The maximum age of new files; by default Spark skips files that are a week older than the newest."""


def file_stream(
    spark: SparkSession, paths: Sequence[str], max_files: int | None = None, max_bytes: int | None = None
) -> DataFrame:
    """Return the stream of new files in locations, with the columns of `list_source_files`.

    Args:
        paths: Directories (with all below them) and glob patterns.
        max_bytes: A micro-batch is full at this size; it has at least one file.
    """
    limits = {"maxFilesPerTrigger": max_files, "maxBytesPerTrigger": max_bytes}
    # Spark tracks which files are new. `list_source_files` drops the content, so that it is not read here.
    reader = spark.readStream.format("binaryFile").schema(_FILES).option("recursiveFileLookup", "true")
    reader = reader.options(maxFileAge=_FOREVER, **{key: str(value) for key, value in limits.items() if value})
    try:
        return reduce(DataFrame.unionAll, (list_source_files(reader.load(path)) for path in paths))
    except spark_errors() as error:
        fix = "Use a directory or a pattern whose files can be read."
        raise to_source_error(", ".join(paths), error, fix) from error


def query_id(spark: SparkSession, checkpoint: str) -> str:
    """Return the id of the query of a checkpoint, which stays the same for the life of the checkpoint.

    Raises:
        InternalError: the checkpoint does not have the id where Spark writes it.
    """
    with translate_spark_errors():
        # `foreachBatch` does not pass the id of its query, and the first interval may run before `start` returns the
        # query.
        lines = [row[0] for row in spark.read.text(as_literal(f"{checkpoint.rstrip('/')}/metadata")).collect()]
    identifier = json.loads("".join(lines)).get("id") if lines else None
    if not identifier:
        raise InternalError(reason=f"the checkpoint {checkpoint} does not contain the id of its query")
    return str(identifier)


class IngestStream:
    """A stream that ingests one interval after the other until it is stopped.

    Args:
        query: The streaming query.
        loop: The writer of the intervals; None if it runs in another process.
    """

    def __init__(self, query: StreamingQuery | _LocalQuery, loop: _IntervalLoop | None) -> None:
        self._query, self._loop = query, loop

    @property
    def id(self) -> str:
        """The id of the query, which stays the same for the life of the checkpoint."""
        return str(self._query.id)

    @property
    def is_active(self) -> bool:
        """Whether the stream is still running."""
        return self._query.isActive

    def wait(self, timeout_seconds: int | None = None) -> bool:
        """Wait until the stream has ended, and return whether it has.

        Args:
            timeout_seconds: The longest time to wait; by default unlimited.

        Raises:
            WidenError: an interval has failed. Earlier intervals stay committed; a restarted stream repeats this one.
        """
        try:
            return self._query.awaitTermination(timeout_seconds) is not False
        except spark_errors() as error:
            self._fail(error)
        return True

    def stop(self, timeout_seconds: float = 60) -> None:
        """Stop the stream after the interval that is being written.

        Args:
            timeout_seconds: How long to wait for that interval. Then Spark aborts it, and a restarted stream repeats
                it; without Spark it ends in the background.
        """
        if self._loop is not None:
            self._loop.end(timeout_seconds)
        self._query.stop()

    def _fail(self, error: Exception) -> None:
        # The query failed because `stop` refused its next interval.
        if self._loop is not None and self._loop.is_ended:
            return
        if self._loop is not None and self._loop.failure is not None:
            raise self._loop.failure from self._loop.failure.__cause__ or error
        with translate_spark_errors():
            raise error


class _IntervalLoop:
    """Writes the intervals of a stream in this process, one at a time."""

    def __init__(self, work: IntervalWork) -> None:
        self._work, self._lock = work, threading.Lock()
        self.failure: WidenError | None = None
        self.is_ended = False

    def __call__(self, rows: DataFrame | FoundFiles, number: int) -> None:
        with self._lock:
            if self.is_ended:
                raise JobFailed(reason="the stream has been stopped")
            try:
                self._work(rows, number)
            except WidenError as error:
                self.failure = error
                raise

    def end(self, timeout_seconds: float) -> None:
        """Prevent further intervals, and wait for the current one."""
        # Set without the lock, which the current interval holds: no other may begin after it.
        self.is_ended = True
        if self._lock.acquire(timeout=timeout_seconds):
            self._lock.release()


@dataclass(frozen=True)
class _ServerWork:
    """Writes the intervals of a stream on a Connect server, which sends only the text of an error to its client."""

    work: IntervalWork

    def __call__(self, rows: DataFrame | FoundFiles, number: int) -> None:
        try:
            self.work(rows, number)
        except WidenError as error:
            raise JobFailed(reason=to_error_text(error)) from error


def start_stream(
    rows: DataFrame, work: IntervalWork, checkpoint: str, *, once: bool = False, every_seconds: float = 0
) -> IngestStream:
    """Start a stream.

    Args:
        work: Writes an interval. With Spark Connect it runs on the server and must be picklable.
        checkpoint: The location of the progress of this stream; no other stream may use it.
        once: Whether the stream ends after it has ingested everything that is available now.
    """
    from pyspark.sql.utils import is_remote

    loop = None if is_remote() else _IntervalLoop(work)
    writer = rows.writeStream.foreachBatch(loop or _ServerWork(work)).option("checkpointLocation", checkpoint)
    trigger: Mapping[str, object] = {"availableNow": True} if once else {"processingTime": f"{every_seconds} seconds"}
    with translate_spark_errors():
        return IngestStream(writer.trigger(**trigger).start(), loop)  # type: ignore[call-overload]


class _LocalQuery:
    """A query over local files that runs in a thread of this process.

    Implements the parts of Spark's StreamingQuery that `IngestStream` uses.

    Args:
        spark: The session for the work of the intervals.
        paths: Directories (with all below them) and glob patterns.
    """

    def __init__(
        self,
        spark: Session,
        paths: Sequence[str],
        checkpoint: StreamCheckpoint,
        loop: _IntervalLoop,
        pace: StreamPace,
    ) -> None:
        self.id = checkpoint.open_id()
        self._progress = checkpoint.open()
        self._spark, self._paths, self._loop, self._pace = spark, paths, loop, pace
        self._failure: BaseException | None = None
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="widen-stream", daemon=True)
        self._thread.start()

    @property
    def isActive(self) -> bool:
        return self._thread.is_alive()

    def awaitTermination(self, timeout: float | None = None) -> bool:
        self._thread.join(timeout)
        if self.isActive:
            return False
        if self._failure is not None:
            raise self._failure
        return True

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(_END_SECONDS)

    def _run(self) -> None:
        try:
            # With `once`, files that arrive from now on are left to the next stream, so that this one ends.
            listed = [self._list(path) for path in self._paths] if self._pace.once else None
            while not self._stopped.is_set():
                started = time.monotonic()
                has_run = self._run_interval(listed)
                if self._pace.once and not has_run:
                    break
                idle_seconds = 0 if has_run else _POLL_SECONDS
                if not self._pace.once:
                    self._stopped.wait(max(started + self._pace.every_seconds - time.monotonic(), idle_seconds))
        except BaseException as error:  # raised in the thread that waits for the stream
            if not self._loop.is_ended:
                self._failure = error

    def _run_interval(self, listed: Sequence[FileTable] | None) -> bool:
        progress = self._progress

        def find_new(at: int) -> list[SourceFile]:
            new = progress.new_files(at, self._list(self._paths[at]) if listed is None else listed[at])
            # Oldest first, as in Spark.
            return self._pace.size.take(sorted(new, key=lambda file: (file.modified_ms, file.path)))

        uris = progress.begin(find_new)
        if uris is None:
            return False
        self._loop(FoundFiles(self._spark, self.id, uris), progress.number)
        progress.finish()
        return True

    def _list(self, path: str) -> FileTable:
        # Spark identifies files by their paths in this form.
        places = [f"/{os.path.normpath(place).lstrip('/')}" for place in expand_local(path) or ()]
        return list_local_table(places)


_POLL_SECONDS = 1.0
"""How long a stream without Spark waits at least before it looks again for files."""

_END_SECONDS = 5.0
"""How long a stream that is being stopped has to record the interval that it has written."""


@dataclass(frozen=True, slots=True)
class StreamPace:
    """When the intervals of a stream of files begin, and how many files of a source path one takes."""

    size: BatchSize = ANY_SIZE
    once: bool = False
    every_seconds: float = 0


def start_local_stream(
    spark: Session,
    paths: Sequence[str],
    work: IntervalWork,
    checkpoint: StreamCheckpoint,
    pace: StreamPace,
) -> IngestStream:
    """Start a stream of local files in this process.

    Args:
        spark: The session for the work of the intervals.
        paths: Directories (with all below them) and glob patterns.
    """
    loop = _IntervalLoop(work)
    return IngestStream(_LocalQuery(spark, paths, checkpoint, loop, pace), loop)
