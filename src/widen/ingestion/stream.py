"""Streaming ingestion: each interval is one commit, and each record is written exactly once.

Each commit has a txn action with the stream id and the number of the interval. After a crash the last interval runs
again; if the table already has its txn, nothing is written.

Source: docs/evolution-rules.md#one-interval; PROTOCOL.md#transaction-identifiers
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from os import PathLike

from widen.batches.open_source import AnySource, BatchReader
from widen.errors import InvalidOption
from widen.ingestion.commit_batch import (
    AfterCommit,
    BatchRequest,
    commit_batch,
    commit_good_files,
    parse_share,
    persist_if_reread,
)
from widen.ingestion.ingest_options import StreamOptions
from widen.ingestion.options import check_options, parse_limits
from widen.ingestion.result import OnInterval
from widen.model.argument_types import check_arguments
from widen.model.keyword_options import Unpack
from widen.model.value_classes import dataclass
from widen.sources.find_files import BatchSize
from widen.sources.listing import to_paths, to_place
from widen.sources.memory_source import is_paths
from widen.sources.places import expand_local, find_table_source, is_elsewhere, to_local
from widen.spark.engine import READS, Session, is_local, open_session, require_spark
from widen.spark.session import with_store_settings
from widen.spark.spark_types import DataFrame
from widen.streams.checkpoint import StreamCheckpoint
from widen.streams.query import (
    FoundFiles,
    IngestStream,
    StreamPace,
    file_stream,
    query_id,
    start_local_stream,
    start_stream,
)
from widen.targets.table_format import TransactionId, after_commit


@check_arguments
def ingest_stream(
    source: AnySource,
    into: str | PathLike[str],
    *,
    checkpoint: str | PathLike[str],
    **options: Unpack[StreamOptions],
) -> IngestStream:
    """Start a stream that writes new records of a source to a table, and evolves its schema where needed.

    Each record is written exactly once, also if the process is killed and started again with the same checkpoint. A
    file is read once; data that is appended to it later is ignored.

    With Spark Connect the intervals and the callbacks run on the server, where this package must be installed.

    An interval over a limit, such as ``max_corrupt``, is not committed and ends the stream with `LimitExceeded`. Repair
    the source or raise the limit, and start the stream again: it repeats the interval, then goes on.

    A streaming DataFrame and its checkpoint use the settings of their session, not ``storage_options``.

    Args:
        source: Directories and patterns that receive files; or a streaming DataFrame.
        into: The table; the first interval creates it if it does not exist.
        checkpoint: The checkpoint location of the stream; use a separate one for each stream and table.

    Returns:
        The running stream. It raises the error of a failed interval when it is awaited.

    Raises:
        SourceError: the source cannot be used.
        InvalidOption: an argument cannot be used, or ``into`` exists and is not a table.
        TableError: the table cannot be read or written.

    Source: docs/evolution-rules.md#one-interval
    """
    if not (isinstance(source, DataFrame) or is_paths(source)):
        expected = "A stream follows files or a streaming DataFrame. Load data in memory with widen.ingest."
        raise InvalidOption(option="source", value=type(source).__name__, expected=expected)
    once, every_seconds, on_interval = options["once"], options["every_seconds"], options["on_interval"]
    max_files, max_bytes = options["max_files"], options["max_bytes"]
    if every_seconds < 0:
        raise InvalidOption(option="every_seconds", value=every_seconds, expected="Must be a number >= 0.")
    size = BatchSize.of(max_files, max_bytes)
    checkpoint = to_place(checkpoint)
    checked = check_options(source, into, options, checkpoint=checkpoint)
    given = source.sparkSession if isinstance(source, DataFrame) and options["spark"] is None else options["spark"]
    session = open_session(given, options["engine"])
    request = BatchRequest(
        table=checked.table,
        policy=checked.policy,
        may_be_empty=True,
        progress=options["progress"],
        quarantine=checked.quarantine,
        is_strict=options["strict"],
        keys=checked.keys,
        limits=parse_limits(options["max_corrupt"], options["max_quarantined"], options["fail_on"]),
    )
    after, lists_files = (
        AfterCommit(parse_share(options["verify"]), options["on_event"]),
        not isinstance(source, DataFrame),
    )
    work = _StreamWork(checked.reader, checkpoint, request, after, on_interval, lists_files)
    local: StreamCheckpoint | None = None
    if isinstance(source, DataFrame):
        _ensure_streaming(source, max_files or max_bytes)
        rows = source
    else:
        paths = to_paths(source)
        if is_local(session):
            local = _open_checkpoint(session, paths, checkpoint)
        if local is None:
            stores = (*paths, checkpoint)
            session = with_store_settings(require_spark(session, READS), stores, options["storage_options"])
        find_table_source(session, paths, follows=True)
        if local is None:
            rows = file_stream(require_spark(session, READS), paths, max_files, max_bytes)
    request.open_target()  # a table that cannot be written must fail here, not in the first interval
    if local is not None:
        pace = StreamPace(size, once, every_seconds)
        return start_local_stream(session, paths, work, local, pace)
    return start_stream(rows, work, checkpoint, once=once, every_seconds=every_seconds)


def _open_checkpoint(session: Session, paths: Sequence[str], place: str) -> StreamCheckpoint | None:
    """Return the checkpoint of a stream that this process can run; None after Spark has started for it."""
    reason, checkpoint = None, None
    if any(is_elsewhere(path) or expand_local(path) is None for path in paths):
        reason = "only its file systems find the source"
    elif is_elsewhere(place) or to_local(place) is None:
        reason = "only its file systems reach the checkpoint"
    else:
        checkpoint = StreamCheckpoint.at(place, len(paths))
        reason = checkpoint.find_obstacle()
    if reason is None:
        return checkpoint
    require_spark(session, reason)
    return None


@dataclass
class _StreamWork:
    """Write the intervals of one stream.

    Args:
        lists_files: Whether the rows of the stream are only the names of the files to read.
    """

    reader: BatchReader
    checkpoint: str
    request: BatchRequest
    after: AfterCommit
    on_interval: OnInterval | None
    lists_files: bool
    stream_id: str | None = None

    def __call__(self, rows: DataFrame | FoundFiles, number: int) -> None:
        self.request.progress("looking at the source")
        source: DataFrame | Sequence[str]
        if isinstance(rows, FoundFiles):
            spark, source, self.stream_id = rows.spark, rows.uris, rows.stream_id
        else:
            spark, source = rows.sparkSession, rows
            self.stream_id = self.stream_id or query_id(spark, self.checkpoint)
        request = replace(self.request, interval=TransactionId(self.stream_id, number))
        with self.after.publish_failure(request.table.location, number):
            self._write(spark, source, request)

    def _write(self, spark: Session, rows: DataFrame | Sequence[str], request: BatchRequest) -> None:
        target = request.open_target()
        with nullcontext(rows) if self.lists_files else persist_if_reread(rows, target, self.after) as source:
            reader = self.reader.for_table(target.schema)
            batch = reader.open_new_files(spark, source) if self.lists_files else reader.open(spark, source)
            if reader.skips_bad_files and batch is not None and batch.files:
                open_some = partial(reader.open_some, spark)
                result = commit_good_files(lambda _: batch, open_some, request, target, self.after, parks=False)
            else:
                result = commit_batch(lambda _: batch, request, target, self.after)
            if self.on_interval and result is not None and result.version is not None:
                with after_commit(request.table.location, result.version):
                    self.on_interval(result)


def _ensure_streaming(rows: DataFrame, limit: int | None) -> None:
    if not rows.isStreaming:
        raise InvalidOption(option="source", value="a batch DataFrame", expected="Pass it to ingest.")
    if limit:
        expected = "Limits apply to files only; set those of a DataFrame in its own source."
        raise InvalidOption(option="max_files or max_bytes", value=limit, expected=expected)
