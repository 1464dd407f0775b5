"""Follow a source: ingest one interval after another until an interrupt.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
import typer

from widen.cli import lazy_imports, spark_session
from widen.cli.output import note, writing
from widen.cli.step_display import progress
from widen.errors import InvalidOption

if TYPE_CHECKING:
    from widen.ingestion import IngestResult, IntervalEvent
    from widen.log.store.log_store import LogStore

Follow: TypeAlias = Annotated[
    bool, typer.Option("--follow", help="Keep ingesting new files until interrupted; needs --checkpoint.")
]
Once: TypeAlias = Annotated[
    bool, typer.Option("--once", help="Like --follow, but stop after the files that exist now.")
]
Checkpoint: TypeAlias = Annotated[
    str | None,
    typer.Option("--checkpoint", metavar="DIR", help="The directory that records the progress of the stream."),
]
Every: TypeAlias = Annotated[float, typer.Option("--every", min=0, help="Seconds between two checks for new files.")]
MaxFiles: TypeAlias = Annotated[
    int | None, typer.Option("--max-files", min=1, help="The maximum number of files in an interval.")
]
MaxBytes: TypeAlias = Annotated[
    int | None, typer.Option("--max-bytes", min=1, help="The size of an interval in bytes; it has at least one file.")
]


@dataclass(frozen=True)
class EventFile:
    """A file that gets each event as a line of JSON."""

    path: Path

    def ensure_writable(self) -> EventFile:
        """Create the file if it does not exist, before anything is loaded, and return this.

        Raises:
            StorageError: it cannot be written.
        """
        with writing(self.path):
            # Without waiting: a pipe that no process reads would block the commit that comes before the first event.
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_NONBLOCK", 0), 0o666))
        return self

    def __call__(self, event: IntervalEvent) -> None:
        """Append an event."""
        with writing(self.path), self.path.open("ab") as file:
            file.write(msgspec.json.encode(event.to_value()) + b"\n")


def to_event_file(path: Path | None) -> EventFile | None:
    """Return the file for events, which can be written.

    Raises:
        StorageError: it cannot be written.
    """
    return None if path is None else EventFile(path).ensure_writable()


def ensure_options_apply(alone: Mapping[str, object], followed: Mapping[str, object], *, follows: bool) -> None:
    """Check that every option that is given applies.

    Args:
        alone: The options of a single ingestion, with their values.
        followed: The options of a source that is followed, with their values.

    Raises:
        InvalidOption: one does not apply.
    """
    for options, reason in (
        (alone, "Does not apply to --follow and --once."),
        (followed, "Applies to --follow and --once only."),
    ):
        for option, value in options.items():
            if value is not None and follows is (options is alone):
                raise InvalidOption(option=option, value=value, expected=reason)


def follow_source(
    source: Sequence[str],
    into: str,
    checkpoint: str,
    on_interval: Callable[[IngestResult], object],
    options: Mapping[str, Any],
) -> None:
    """Ingest what arrives at a source until an interrupt, or once all that exists now is ingested.

    Args:
        source: Directories and patterns.
        checkpoint: The directory that records the progress of the stream.
        options: Keyword arguments of `widen.ingest_stream`.

    Raises:
        WidenError: an interval has failed.
    """
    with progress("starting Spark") as update:
        spark = update.watch(spark_session.spark_session())
        reports: _LocalReports | _ServerReports
        if lazy_imports.is_driver(spark):
            reports, words = _LocalReports(on_interval), {**options, "progress": update}
        else:
            store = lazy_imports.LogStore(checkpoint, options["storage_options"])
            reports, words = _ServerReports(on_interval, store), dict(options)
        reports.show()
        with stop_requested() as stop:
            words |= {"checkpoint": checkpoint, "spark": spark, "on_interval": reports}
            stream = lazy_imports.ingest_stream(source, into, **words)
            count = 0
            while not stream.wait(1):
                if stop.is_set():
                    update("finishing the interval")
                    stream.stop()
                count += reports.show()
            count += reports.show()
    if not count:
        note("nothing to load: no new file has records.")
    if stop.is_set():
        note("stopped; run it again with this checkpoint to continue.")


@dataclass
class _LocalReports:
    """Shows the result of each interval at once.

    Args:
        count: The number of results since the last call of `show`.
    """

    report: Callable[[IngestResult], object]
    count: int = 0

    def __call__(self, result: IngestResult) -> None:
        self.report(result)
        self.count += 1

    def show(self) -> int:
        """Return how many results have been shown since the last call."""
        count, self.count = self.count, 0
        return count


@dataclass(frozen=True)
class _ServerReports:
    """Brings reports from a server of Spark Connect, where the intervals run, to the client.

    Args:
        checkpoint: The checkpoint location, which both can reach.
    """

    report: Callable[[IngestResult], object]
    checkpoint: LogStore

    def __call__(self, result: IngestResult) -> None:
        """Keep a report; this runs on the server."""
        out, err = StringIO(), StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            self.report(result)
        report = msgspec.json.encode((out.getvalue(), err.getvalue()))
        self.checkpoint.put(f"{_REPORTS}/{result.interval:020}.json", report)

    def show(self) -> int:
        """Show the reports that have arrived since the last call, and return their number."""
        paths = [file.path for file in self.checkpoint.list(_REPORTS) if file.path.endswith(".json")]
        for path in paths:
            out, err = msgspec.json.decode(self.checkpoint.read(path), type=tuple[str, str])
            sys.stdout.write(out)
            sys.stderr.write(err)
        self.checkpoint.delete(paths)
        return len(paths)


_REPORTS = "_widen_reports"


@contextmanager
def stop_requested() -> Iterator[Event]:
    """Yield an event that is set by the first SIGINT or SIGTERM; a second one ends the process at once."""
    stop = Event()
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def restore() -> None:
        for number, handler in handlers.items():
            signal.signal(number, handler)

    def request(number: int, frame: object) -> None:
        stop.set()
        restore()

    for number in handlers:
        signal.signal(number, request)
    try:
        yield stop
    finally:
        restore()
