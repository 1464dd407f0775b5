"""Following a source: one interval after the other until somebody says stop.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

import msgspec
import typer

from widen.cli import lazy_imports, spark_session
from widen.cli.output import note, progress, writing
from widen.errors import InvalidOption

if TYPE_CHECKING:
    from widen.ingestion import IngestResult, IntervalEvent

Follow: TypeAlias = Annotated[
    bool, typer.Option("--follow", help="Go on with what comes to the source, until interrupted; needs --checkpoint.")
]
Once: TypeAlias = Annotated[
    bool, typer.Option("--once", help="As --follow, but end when all that is there now is taken in.")
]
Checkpoint: TypeAlias = Annotated[
    str | None,
    typer.Option("--checkpoint", metavar="DIR", help="Where to remember how far it has come.", show_default=False),
]
Every: TypeAlias = Annotated[float, typer.Option("--every", min=0, help="How many seconds between two looks.")]
MaxFiles: TypeAlias = Annotated[
    int | None, typer.Option("--max-files", min=1, help="How many files an interval has at most.", show_default=False)
]
MaxBytes: TypeAlias = Annotated[
    int | None,
    typer.Option("--max-bytes", min=1, help="From which size on an interval is full.", show_default=False),
]


@dataclass(frozen=True)
class EventFile:
    """A file to which every event is added as a line of JSON."""

    path: Path

    def __call__(self, event: IntervalEvent) -> None:
        """Add an event.

        Raises:
            StorageError: the file cannot be written.
        """
        with writing(self.path), self.path.open("ab") as file:
            file.write(msgspec.json.encode(event.to_value()) + b"\n")


def ensure_options_apply(alone: Mapping[str, object], followed: Mapping[str, object], *, follows: bool) -> None:
    """Check that no option is given that says nothing here.

    Args:
        alone: Options of a single interval, with what is given.
        followed: Options of a source that is followed, likewise.
        follows: Whether the source is followed.

    Raises:
        InvalidOption: one is given.
    """
    for options, reason in ((alone, "It is not for a source that is followed."), (followed, "It is for --follow.")):
        for option, value in options.items():
            if value is not None and follows is (options is alone):
                raise InvalidOption(option=option, value=value, expected=reason)


def follow_source(
    source: Sequence[str],
    into: str,
    checkpoint: str | None,
    tell: Callable[[IngestResult], object],
    words: Mapping[str, Any],
) -> None:
    """Take in what comes to a source until an interrupt, or until nothing is left where that is asked for.

    Args:
        source: Directories and patterns.
        into: The table.
        checkpoint: Where the stream remembers how far it has come.
        tell: Says what an interval did.
        words: Keyword arguments of an ingestion.

    Raises:
        InvalidOption: there is no checkpoint.
        WidenError: an interval has failed.
    """
    if checkpoint is None:
        raise InvalidOption(option="--checkpoint", value=checkpoint, expected="Name a place that outlives the process.")
    with progress("starting Spark") as told:
        spark = spark_session.spark_session()
        with _asked_to_end() as asked:
            stream = lazy_imports.ingest_stream(
                source, into, checkpoint=checkpoint, spark=spark, progress=told, on_interval=tell, **words
            )
            while not stream.wait(1):
                if asked.is_set():
                    told("finishing the interval")
                    stream.stop()
    if asked.is_set():
        note("stopped; started again with this checkpoint it goes on here.")


@contextmanager
def _asked_to_end() -> Iterator[Event]:
    """Give what tells that somebody wants the program to end; one who says it twice means it."""
    asked = Event()
    usual = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def give_back() -> None:
        for number, handler in usual.items():
            signal.signal(number, handler)

    def ask(number: int, frame: object) -> None:
        asked.set()
        give_back()

    for number in usual:
        signal.signal(number, ask)
    try:
        yield asked
    finally:
        give_back()
