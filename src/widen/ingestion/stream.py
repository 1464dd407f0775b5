"""One interval after the other: what comes to a source is in the table once, whatever happens in between.

Every interval is a commit that says which stream it is of and which number it has. After a crash Spark asks for the
last one again; if the table says that it has it, nothing is written.

Source: docs/evolution-rules.md#one-interval; PROTOCOL.md#transaction-identifiers
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from os import PathLike
from typing import TypeAlias

from widen.errors import InvalidOption
from widen.formats import find_table
from widen.formats.table_format import StreamInterval
from widen.ingestion.commit_batch import BatchRequest, Progress, commit_batch, no_progress
from widen.ingestion.interval import IntervalWatch, OnEvent, parse_share, persist_if_reread, to_result
from widen.ingestion.options import IngestOptions, parse_options, to_quarantine
from widen.ingestion.result import IngestResult
from widen.model.argument_types import check_arguments
from widen.spark.ingest.batch import Batch
from widen.spark.ingest.open_source import IngestSource
from widen.spark.ingest.streaming_query import IngestStream, file_stream, query_id, start_stream
from widen.spark.session import find_session
from widen.spark.source.source_files import to_paths, to_place
from widen.spark.spark_types import DataFrame, SparkSession

OnInterval: TypeAlias = Callable[[IngestResult], object]
"""Is told of every interval when it is committed."""


@check_arguments
def ingest_stream(
    source: IngestSource,
    into: str,
    *,
    checkpoint: str,
    once: bool = False,
    every_seconds: float = 0,
    max_files: int | None = None,
    max_bytes: int | None = None,
    verify: bool | float = False,
    storage_options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    progress: Progress = no_progress,
    on_event: OnEvent | None = None,
    on_interval: OnInterval | None = None,
    format: str | None = None,
    options: Mapping[str, str] | None = None,
    detect_types: bool = False,
    partition_folders: bool = True,
    source_columns: bool = False,
    evolve: str | None = None,
    pins: Mapping[str, str] | None = None,
    config: str | PathLike[str] | None = None,
    exclude: Iterable[str] | None = None,
    mask: Iterable[str] | None = None,
    detect_dates: bool | Iterable[str] | None = None,
    epoch_unit: Mapping[str, str] | None = None,
    max_columns: int | None = None,
    quarantine: str | None = None,
    samples: str | None = None,
    strict: bool = False,
) -> IngestStream:
    """Start to write what comes to a source, interval by interval, to a table that grows where it must.

    Every record is in the table once, also if the process is killed at any moment and started again with the same
    checkpoint. A file is read when it is seen first; what is added to it later is not.

    With Spark Connect the intervals are written beside the server, where this package must be, and so do the
    functions that are told of them run there.

    Args:
        source: Directories and patterns to which files come; or a streaming DataFrame.
        into: The table; it is made by the first interval if it does not exist.
        checkpoint: Where the stream remembers how far it has come; of this stream and this table only.
        once: Whether it ends when it has taken in all that is there now.
        every_seconds: How often it looks for something new at most.
        max_files: How many files an interval has at most.
        max_bytes: From which size on an interval is full; it has at least one file.
        verify: Whether to rebuild every leaf of every interval from the table, and compare; or for what share of the
            records, between 0 and 1.
        storage_options: Settings and credentials of the store of the table.
        spark: The session to work in; by default the active one, else a local one.
        progress: Is told what is going on.
        on_event: Is told each thing that a plan has done, once it is committed.
        on_interval: Is told what each interval did.
        format: See `ingest`.
        options: See `ingest`.
        detect_types: See `ingest`.
        partition_folders: See `ingest`.
        source_columns: See `ingest`.
        evolve: See `ingest`.
        pins: See `ingest`.
        config: See `ingest`.
        exclude: See `ingest`.
        mask: See `ingest`.
        detect_dates: See `ingest`.
        epoch_unit: See `ingest`.
        max_columns: See `ingest`.
        quarantine: See `ingest`.
        samples: See `ingest`.
        strict: See `ingest`.

    Returns:
        The stream that was started. It says of an interval that fails when somebody waits for it.

    Raises:
        SourceError: the source cannot be used.
        InvalidOption: an argument cannot be used, or ``into`` is neither a table nor free.
        TableError: the table cannot be read or written.

    Source: docs/evolution-rules.md#one-interval
    """
    words = IngestOptions(
        format=format,
        options=options,
        detect_types=detect_types,
        partition_folders=partition_folders,
        source_columns=source_columns,
        evolve=evolve,
        pins=pins,
        config=config,
        exclude=exclude,
        mask=mask,
        detect_dates=detect_dates,
        epoch_unit=epoch_unit,
        max_columns=max_columns,
        quarantine=quarantine,
        samples=samples,
        strict=strict,
    )
    _ensure_limits({"max_files": (max_files, 1), "max_bytes": (max_bytes, 1), "every_seconds": (every_seconds, 0)})
    session, (reader, policy) = find_session(spark), parse_options(words)
    checkpoint = to_place(checkpoint)
    request = BatchRequest(
        table=find_table(into, storage_options),
        policy=policy,
        may_be_empty=True,
        progress=progress,
        quarantine=to_quarantine(words),
        is_strict=words.get("strict", False),
    )
    read: Callable[[SparkSession, DataFrame], Batch | None] = reader.open
    if isinstance(source, DataFrame):
        _ensure_streaming(source, max_files or max_bytes)
        rows = source
    else:
        paths = to_paths(source)
        _ensure_separate(paths, {"into": into, "checkpoint": checkpoint})
        rows, read = file_stream(session, paths, max_files, max_bytes), reader.open_files
    request.open_target()  # so that a table that cannot be written fails here and not in the first interval
    watch, lists_files = IntervalWatch(parse_share(verify), on_event), not isinstance(source, DataFrame)
    work = _StreamWork(read, checkpoint, request, watch, on_interval, lists_files)
    return start_stream(rows, work, checkpoint, once=once, every_seconds=every_seconds)


@dataclass
class _StreamWork:
    """Writes the intervals of one stream.

    Args:
        read: Makes the batch of an interval from the rows of the stream; None if there is nothing to read.
        checkpoint: Of the stream.
        request: The table, and the conditions.
        watch: What the caller wants to know about each interval.
        on_interval: Called with the result of each interval.
        lists_files: Whether the rows of the stream are only the names of the files to read.
        stream_id: The id of the stream, once it is known.
    """

    read: Callable[[SparkSession, DataFrame], Batch | None]
    checkpoint: str
    request: BatchRequest
    watch: IntervalWatch
    on_interval: OnInterval | None
    lists_files: bool
    stream_id: str | None = None

    def __call__(self, rows: DataFrame, number: int) -> None:
        self.request.progress("looking at the source")
        spark = rows.sparkSession
        self.stream_id = self.stream_id or query_id(spark, self.checkpoint)
        request = replace(self.request, interval=StreamInterval(self.stream_id, number))
        target = request.open_target()
        with nullcontext(rows) if self.lists_files else persist_if_reread(rows, target, self.watch) as given:
            batch = self.read(spark, given)
            written = None if batch is None else commit_batch(batch, request, target)
            if batch is not None and written is not None:
                result = to_result(batch, request, written, self.watch)
                if self.on_interval:
                    self.on_interval(result)


def _ensure_limits(limits: Mapping[str, tuple[float | None, int]]) -> None:
    for option, (value, least) in limits.items():
        if value is not None and value < least:
            raise InvalidOption(option=option, value=value, expected=f"Must be a number >= {least}.")


def _ensure_streaming(rows: DataFrame, limit: int | None) -> None:
    if not rows.isStreaming:
        raise InvalidOption(option="source", value="a batch DataFrame", expected="Pass it to ingest.")
    if limit:
        expected = "Limits apply to files only; set those of a DataFrame in its own source."
        raise InvalidOption(option="max_files or max_bytes", value=limit, expected=expected)


def _ensure_separate(paths: Sequence[str], places: Mapping[str, str]) -> None:
    """Check that the stream does not read what it writes."""
    for path in paths:
        for option, place in places.items():
            root = f"{_to_local_path(path).rstrip('/')}/"
            below = f"{_to_local_path(place)}/".removeprefix(root)
            if f"{_to_local_path(place)}/".startswith(root) and not below.startswith((".", "_")):
                raise InvalidOption(option=option, value=place, expected=f"Must not be below the source {path}.")


def _to_local_path(path: str) -> str:
    return path.removeprefix("file://").removeprefix("file:") if path.startswith("file:") else to_place(path)
