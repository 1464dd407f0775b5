"""The current step of a command on stderr: how far it is, and how long it takes; nothing without a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.text import Text

from widen.cli import lazy_imports
from widen.cli.output import console_of

if TYPE_CHECKING:
    from rich.status import Status

    from widen.spark.job_progress import JobProgress
    from widen.spark.spark_types import SparkSession

FIRST_ESTIMATE_SECONDS, FIRST_ESTIMATE_SHARE = 2.0, 0.03
"""The time and the share of a step before which no rate and no time left are shown: they would jump."""


@dataclass
class StepDisplay:
    """Shows the current step; call it with the next one.

    Args:
        show: Shows a text, or None without a terminal.
        resources: Holds what must end with the display.
        clock: Returns the time in seconds.
    """

    show: Callable[[str], object] | None
    resources: ExitStack = field(default_factory=ExitStack)
    clock: Callable[[], float] = time.monotonic
    step: str = ""
    started: float = 0.0

    def __call__(self, step: str) -> None:
        """Show the next step."""
        self.step, self.started = step, self.clock()
        self._show(f"{step} …")

    def _show(self, text: str) -> None:
        """Show a text. A terminal that is gone does not end the command, whose change may be committed already."""
        with suppress(OSError):
            if self.show is not None:
                self.show(text)

    def watch(self, spark: SparkSession) -> SparkSession:
        """Show the progress of the jobs of a session too; return the session."""
        if self.show is not None:
            self.resources.enter_context(lazy_imports.watch_jobs(spark, self.add_jobs))
        return spark

    def add_jobs(self, jobs: JobProgress) -> None:
        """Show how far the running jobs are."""
        self._show(f"{self.step} … {', '.join(self._facts(jobs))}")

    def _facts(self, jobs: JobProgress) -> Iterator[str]:
        share, elapsed = jobs.done_tasks / jobs.tasks, self.clock() - self.started
        size_bytes, records = (getattr(self.step, name, 0) for name in ("size_bytes", "records"))
        is_estimate = elapsed >= FIRST_ESTIMATE_SECONDS and share >= FIRST_ESTIMATE_SHARE
        text = lazy_imports.text_format
        yield f"{share:.0%}".replace("%", " %")
        if size_bytes:
            yield f"{text.size_text(int(size_bytes * share))} of {text.size_text(size_bytes)}"
        if records:
            yield f"about {text.count_text(int(records * share))} of {text.count_noun(records, 'record')}"
        if size_bytes and is_estimate:
            yield f"{text.size_text(int(size_bytes * share / elapsed))}/s"
        if not size_bytes:
            yield f"{jobs.done_tasks} of {text.count_noun(jobs.tasks, 'task')}"
        if is_estimate and share < 1:
            yield f"{duration_text(elapsed / share - elapsed)} left"


def duration_text(seconds: float) -> str:
    """Return a duration as text.

    Example:
        >>> duration_text(7.2), duration_text(125), duration_text(7260)
        ('7 s', '2 min 5 s', '2 h 1 min')
    """
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, hours = whole // 60, whole // 3600
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min {whole % 60} s"


@contextmanager
def progress(first: str) -> Iterator[StepDisplay]:
    """Show the current step on stderr; yield the display that takes the next one. Without a terminal, show nothing."""
    console = console_of(sys.stderr)
    if not console.is_terminal:
        yield StepDisplay(None)
        return
    status = console.status(Text(f"{first} …"))
    with ExitStack() as resources:
        with suppress(OSError):
            status.start()
        resources.callback(_stop, status)
        display = StepDisplay(lambda text: status.update(Text(text)), resources)
        display(first)
        yield display


def _stop(status: Status) -> None:
    with suppress(OSError):
        status.stop()
