"""What is shown of a step: share, size, rate and time left, as far as they are known; nothing without a terminal."""

from __future__ import annotations

import io
import sys

import pytest

from widen.cli.output import StepDisplay, progress
from widen.model.display import Step
from widen.spark.session import JobProgress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown_after(step: str, seconds: float, done: int, tasks: int) -> str:
    texts: list[str] = []
    clock = iter([100.0, 100.0 + seconds])
    display = StepDisplay(texts.append, clock=lambda: next(clock))
    display(step)
    display.add_jobs(JobProgress(done, tasks))
    return texts[-1]


def test_a_step_with_a_known_size() -> None:
    step = Step("verifying", size_bytes=2_000_000_000, records=10_000_000)
    assert shown_after(step, 10, 25, 100) == (
        "verifying … 25 %, 500.0 MB of 2.0 GB, about 2,500,000 of 10,000,000 records, 50.0 MB/s, 30 s left"
    )


def test_a_step_of_unknown_size() -> None:
    assert shown_after("observing", 90, 1, 4) == "observing … 25 %, 1 of 4 tasks, 4 min 30 s left"


def test_a_step_that_has_just_begun_makes_no_promise() -> None:
    assert shown_after(Step("writing", 1000), 1.0, 1, 2) == "writing … 50 %, 500 B of 1.0 kB"
    assert shown_after(Step("writing", 1_000_000), 60.0, 1, 100) == "writing … 1 %, 10.0 kB of 1.0 MB"
    assert shown_after(Step("writing", 1000), 4.0, 2, 2) == "writing … 100 %, 1.0 kB of 1.0 kB, 250 B/s"


def test_a_terminal_sees_the_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with progress("starting Spark") as update:
        update("writing")
        assert update.show is not None
    assert "writing …" in stream.getvalue()


def test_a_pipe_sees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    with progress("starting Spark") as update:
        update("writing")
        update.add_jobs(JobProgress(1, 2))
        session = object()
        assert update.watch(session) is session  # type: ignore[arg-type]
    assert stream.getvalue() == ""
