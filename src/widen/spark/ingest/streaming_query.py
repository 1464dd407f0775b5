"""Streams: a query of Spark that calls for one interval after the other, and remembers how far it has come.

Source: Spark's Structured Streaming: every batch has a number, and after a crash the same batch comes again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TypeAlias

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.utils import is_remote

from widen.errors import InternalError, InvalidOption, JobFailed, WidenError
from widen.spark.source.source_files import LENGTH, PATH, as_literal, source_error_reason, unusable_source
from widen.spark.spark_errors import SPARK_ERRORS, translate_spark_errors

IntervalWork: TypeAlias = Callable[[DataFrame, int], None]
"""Takes the rows of a batch and its number."""

_FILES = f"{PATH} string, modificationTime timestamp, {LENGTH} bigint, content binary"
_FOREVER = "36500d"
"""By default a file that comes late is passed over if it is a week older than the newest."""


def file_stream(
    spark: SparkSession, paths: Sequence[str], max_files: int | None = None, max_bytes: int | None = None
) -> DataFrame:
    """Return the stream of files that come to some places: columns `PATH` and `LENGTH`; nothing of them is read yet.

    Args:
        spark: The session.
        paths: Directories (with all below them) and glob patterns.
        max_files: How many files a batch has at most.
        max_bytes: From which size on a batch is full; it has at least one file.

    Raises:
        InvalidOption: both limits are given.
        SourceError: a place does not exist or cannot be listed.
    """
    if max_files and max_bytes:
        raise InvalidOption(option="max_bytes", value=max_bytes, expected="Give this or max_files, not both.")
    limits = {"maxFilesPerTrigger": max_files, "maxBytesPerTrigger": max_bytes}
    reader = spark.readStream.format("binaryFile").schema(_FILES).option("recursiveFileLookup", "true")
    reader = reader.options(maxFileAge=_FOREVER, **{key: str(value) for key, value in limits.items() if value})
    try:
        return reduce(DataFrame.unionAll, (reader.load(path).select(PATH, LENGTH) for path in paths))
    except PySparkException as error:
        fix = "Name a directory or a pattern, of which files can be read."
        raise unusable_source(", ".join(paths), source_error_reason(error), fix) from error


def query_id(spark: SparkSession, checkpoint: str) -> str:
    """Return the id of the query that a checkpoint is of; it stays the same as long as the checkpoint.

    Raises:
        InternalError: Spark has not written it where it does.
    """
    with translate_spark_errors():
        lines = [row[0] for row in spark.read.text(as_literal(f"{checkpoint.rstrip('/')}/metadata")).collect()]
    found = json.loads("".join(lines)).get("id") if lines else None
    if not found:
        raise InternalError(reason=f"the checkpoint {checkpoint} does not say the id of its query")
    return str(found)


class IngestStream:
    """Intervals that are written one after the other, as long as nobody stops them.

    Args:
        query: The query of Spark.
        turn: What writes the intervals; None where that happens in another process.
    """

    def __init__(self, query: StreamingQuery, turn: _IntervalLoop | None) -> None:
        self._query, self._turn = query, turn

    @property
    def id(self) -> str:
        """The id of the query; it stays the same as long as the checkpoint."""
        return str(self._query.id)

    @property
    def is_active(self) -> bool:
        """Whether further intervals may come."""
        return self._query.isActive

    def wait(self, timeout_seconds: int | None = None) -> bool:
        """Wait until the stream has ended, and tell whether it has.

        Args:
            timeout_seconds: How long at most; by default as long as it takes.

        Raises:
            WidenError: an interval has failed; those before it stand. Started again, the stream begins with it.
        """
        try:
            return self._query.awaitTermination(timeout_seconds) is not False
        except SPARK_ERRORS as error:
            self._fail(error)
        return True

    def stop(self, timeout_seconds: float = 60) -> None:
        """End the stream after the interval that is being written.

        Args:
            timeout_seconds: How long that interval may take; then it is given up, and comes again another time.
        """
        if self._turn is not None:
            self._turn.end(timeout_seconds)
        self._query.stop()

    def _fail(self, error: Exception) -> None:
        if self._turn is not None and self._turn.is_ended:
            return
        if self._turn is not None and self._turn.failure is not None:
            raise self._turn.failure from error
        with translate_spark_errors():
            raise error


class _IntervalLoop:
    """Calls for the intervals of a stream in this process, and knows whether one is being written.

    Args:
        work: Writes an interval.
    """

    def __init__(self, work: IntervalWork) -> None:
        self._work, self._lock = work, threading.Lock()
        self.failure: WidenError | None = None
        self.is_ended = False

    def __call__(self, rows: DataFrame, number: int) -> None:
        with self._lock:
            if self.is_ended:
                raise JobFailed(reason="the stream is stopped")
            try:
                self._work(rows, number)
            except WidenError as error:
                self.failure = error
                raise

    def end(self, timeout_seconds: float) -> None:
        """Let no further interval begin, and wait for the one that has."""
        self.is_ended = True
        if self._lock.acquire(timeout=timeout_seconds):
            self._lock.release()


def start_stream(
    rows: DataFrame, work: IntervalWork, checkpoint: str, *, once: bool = False, every_seconds: float = 0
) -> IngestStream:
    """Start a stream.

    Args:
        rows: Streaming rows.
        work: Writes an interval. With Spark Connect it runs beside the server and must be picklable.
        checkpoint: Where the stream remembers how far it has come; of one stream only.
        once: Whether it ends when it has taken in all that is there now.
        every_seconds: How often it looks for something new at most.

    Raises:
        JobFailed: Spark does not start it.
    """
    turn = None if is_remote() else _IntervalLoop(work)
    writer = rows.writeStream.foreachBatch(turn or work).option("checkpointLocation", checkpoint)
    trigger: Mapping[str, object] = {"availableNow": True} if once else {"processingTime": f"{every_seconds} seconds"}
    with translate_spark_errors():
        return IngestStream(writer.trigger(**trigger).start(), turn)  # type: ignore[call-overload]
