"""Output: the result on stdout; progress, notes and errors on stderr; and Spark, whose own messages are kept out."""

from __future__ import annotations

import errno
import logging
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import field
from io import TextIOWrapper
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from widen.errors import SparkUnavailable, StorageError, WidenError
from widen.errors.family import printable_json, printable_lines
from widen.files.pandas_import import skip_pandas
from widen.model.value_classes import dataclass

if TYPE_CHECKING:
    from rich.status import Status

    from widen.spark.session import JobProgress
    from widen.spark.spark_types import SparkSession

STDOUT = "stdout"
WIDE = 4096
"""The width of tables without a terminal, so that other programs get whole lines."""


_state = {"quiet": False}


@contextmanager
def quiet_output() -> Iterator[None]:
    """Write no results, no progress, and no notes but warnings."""
    _state["quiet"] = True
    try:
        yield
    finally:
        _state["quiet"] = False


def show(parts: Iterable[RenderableType]) -> None:
    """Write parts to stdout, one below another; without a terminal, sentences stay on one line and end without spaces.

    ``COLUMNS`` sets the width of tables there, but a program that looks for ``FILE:LINE`` needs the whole sentence.
    """
    if _state["quiet"]:
        return
    console = console_of(sys.stdout)
    for part in parts:
        with writing_output():
            if console.is_terminal:
                console.print(part)
                continue
            with console.capture() as captured:
                console.print(part, soft_wrap=isinstance(part, Text))
        show_line("\n".join(line.rstrip() for line in captured.get().splitlines()))


def show_json(value: object) -> None:
    """Write a value to stdout as JSON: indented on a terminal, else on one line."""
    text = msgspec.json.encode(value)
    show_json_line((msgspec.json.format(text) if sys.stdout.isatty() else text).decode())


def show_json_line(text: str) -> None:
    """Write JSON to stdout; characters that do not print, or that stdout cannot encode, become escapes of JSON."""
    _write(printable_json(text, only_ascii=not _encoding_of(sys.stdout).startswith("utf")))


def show_line(line: str) -> None:
    """Write a line to stdout; characters that do not print become escapes."""
    _write(printable_lines(line))


def _write(line: str) -> None:
    with writing_output():
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _encoding_of(stream: Any) -> str:
    return str(getattr(stream, "encoding", None) or "utf-8").lower()


@contextmanager
def writing_output() -> Iterator[None]:
    """Translate the errors of writing to stdout; a broken pipe stays one.

    Raises:
        StorageError: stdout cannot be written.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        discard_output()
        fix = "Free some space or send the output elsewhere. Do not repeat a change of a table: it has ended."
        raise StorageError(location=STDOUT, reason=error.strerror or str(error), fix=fix) from error


def discard_output() -> None:
    """Send the rest of the output to the null device, so that Python reports no error when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def prepare_streams() -> None:
    """Make stdout and stderr take every text: escape what they cannot encode, discard all if they are closed."""
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:  # a process below us would take a file of ours for its own
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            setattr(sys, name, os.fdopen(number, mode, encoding="utf-8"))
    for stream in (sys.stdout, sys.stderr):
        if not _encoding_of(stream).startswith("utf") and isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def show_error(error: Exception) -> None:
    """Write an error to stderr: the message, the hint and the code."""
    console = console_of(sys.stderr)
    if isinstance(error, WidenError):
        head = Text.assemble(("error: ", "bold red"), error.message)
        console.print(head, soft_wrap=True)
        if error.advice:
            console.print(Text.assemble(("hint: ", "bold cyan"), error.advice), soft_wrap=True)
        console.print(Text(error.code, "dim"), soft_wrap=True)
        return
    console.print(Text.assemble(("error: ", "bold red"), _usage_message(error)), soft_wrap=True)
    path = getattr(getattr(error, "ctx", None), "command_path", "widen")
    listed = "commands" if path == "widen" else "options"
    console.print(Text.assemble(("hint: ", "bold cyan"), f"`{path} --help` lists the {listed}."), soft_wrap=True)


_CLEARER = (
    ("Invalid value: ", ""),
    (": Value error, ", ": "),
    (": Input should be ", ": must be "),
    (", unable to parse string as an integer", ""),
    (", unable to parse string as a number", ""),
)
"""Parts of typer's messages, and what we say instead; typer does not tell the value."""


def _usage_message(error: Exception) -> str:
    """Return the message of a usage error, as a sentence."""
    message: Callable[[], str] = getattr(error, "format_message", lambda: str(error))
    text = message()
    for theirs, ours in _CLEARER:
        text = text.replace(theirs, ours)
    return text if text.endswith((".", ")", "?")) else f"{text}."


def note(text: str, style: str = "dim") -> None:
    """Write a note to stderr, for people and not for programs that read the result.

    If nobody can read it, that does not end the command: what the note is about has happened.
    """
    if _state["quiet"] and style == "dim":
        return
    with suppress(OSError):
        console_of(sys.stderr).print(Text(text, style), soft_wrap=True)


@contextmanager
def writing(file: Path) -> Iterator[None]:
    """Translate the errors of writing a file that the caller has named.

    Raises:
        StorageError: the file cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise StorageError(location=str(file), reason=error.strerror or str(error), fix=_WRITABLE) from error


_WRITABLE = "Name a file in a directory that exists and is writable."


def ensure_output_writable(file: Path | None) -> None:
    """Check that a file that the caller has named can be written, before the work for it.

    Raises:
        StorageError: it cannot.
    """
    if file is None:
        return
    number = 0
    if file.is_dir():
        number = errno.EISDIR
    elif not file.parent.is_dir():
        number = errno.ENOTDIR if file.parent.exists() else errno.ENOENT
    elif not os.access(file if file.exists() else file.parent, os.W_OK):
        number = errno.EACCES
    if number:
        raise StorageError(location=str(file), reason=os.strerror(number), fix=_WRITABLE)


def console_of(stream: Any) -> Console:
    """Return a console for stdout or stderr; without a terminal its lines are not cut."""
    is_terminal = stream.isatty()
    width = None if is_terminal or "COLUMNS" in os.environ else WIDE
    return _Console(file=stream, width=width, highlight=False, emoji=False, markup=False)


class _Console(Console):
    """A console that escapes control characters and leaves a broken pipe to its caller."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments, with escape sequences in texts made visible."""
        for part in super().render(renderable, options):
            is_safe = part.control or part.text.isprintable()
            yield part if is_safe else Segment(printable_lines(part.text), part.style)

    def on_broken_pipe(self) -> None:
        """Raise the error again; the base class would exit."""
        raise


# The current step of a command on stderr: how far it is, and how long it takes; nothing without a terminal.


FIRST_ESTIMATE_SECONDS, FIRST_ESTIMATE_SHARE = 2.0, 0.03
"""The minimum time and share of a step before its rate and the time left are shown: earlier they would jump."""


@dataclass
class StepDisplay:
    """Shows the current step; call it with the next one.

    Args:
        resources: Holds what must end with the display.
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
        from widen.spark.session import watch_jobs

        if self.show is not None:
            self.resources.enter_context(watch_jobs(spark, self.add_jobs))
        return spark

    def add_jobs(self, jobs: JobProgress) -> None:
        """Show how far the running jobs are."""
        self._show(f"{self.step} … {', '.join(self._facts(jobs))}")

    def _facts(self, jobs: JobProgress) -> Iterator[str]:
        from widen.report import text_format

        share, elapsed = jobs.done_tasks / jobs.tasks, self.clock() - self.started
        size_bytes, records = (getattr(self.step, name, 0) for name in ("size_bytes", "records"))
        is_estimate = elapsed >= FIRST_ESTIMATE_SECONDS and share >= FIRST_ESTIMATE_SHARE
        text = text_format
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
            yield f"{elapsed_text(elapsed / share - elapsed)} left"


def elapsed_text(seconds: float) -> str:
    """Return a duration as text.

    Example:
        >>> elapsed_text(7.2), elapsed_text(125), elapsed_text(7260)
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
    if not console.is_terminal or _state["quiet"]:
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


# Spark, started on first use, with its own messages kept out of the output.


_java_log: list[IO[bytes]] = []


def redirect_stderr() -> None:
    """Redirect the stderr of other programs to a file for the rest of this process; our own messages stay visible.

    Java and its loggers use the file descriptor as it is when they start.
    """
    log = tempfile.TemporaryFile()  # noqa: SIM115 (it stays open as long as the process)
    sys.stderr = os.fdopen(os.dup(2), "w", encoding=sys.stderr.encoding, errors="backslashreplace", buffering=1)
    os.dup2(log.fileno(), 2)
    _java_log.append(log)
    logging.disable()
    warnings.filterwarnings("ignore", module=r"pyspark\.")


def spark_session(reason: str) -> SparkSession:
    """Return the session.

    Args:
        reason: Why Spark is needed; the end of a sentence that begins with "This call needs Spark, because".
    """
    from widen.spark.engine import find_session

    with explain_start():
        return find_session(None, reason)


@contextmanager
def explain_start() -> Iterator[None]:
    """Add what Java has said to the error if Spark does not start."""
    try:
        yield
    except SparkUnavailable as error:
        raise SparkUnavailable(
            reason=f"{error.fields['reason']}{_last_java_line()}", fix=error.fields["fix"]
        ) from error


def choose_session(engine: str | None, update: StepDisplay) -> SparkSession:
    """Return the session for an ingestion, which may need no Spark; see `widen.spark.engine.open_session`."""
    from widen.spark.engine import LocalSession, as_given, open_session
    from widen.spark.session import find_active, start_spark

    def start(reason: str) -> SparkSession:
        update(f"starting Spark, because {reason}")
        with explain_start():
            return update.watch(start_spark(find_active()))

    session = open_session(None, engine, start)
    if isinstance(session, LocalSession):
        if update.show is not None:
            session.on_task = update.add_jobs
        skip_pandas()
        return as_given(session)
    return update.watch(session)


def note_engine(spark: SparkSession, *, says_local: bool = True) -> None:
    """Tell where the work was done and why, unless a session was there already or Spark was asked for.

    Args:
        says_local: Whether to tell that this process did it.
    """
    from widen.spark.engine import explain_engine, find_started

    explanation = explain_engine(spark)
    if explanation and (says_local or find_started(spark) is not None):
        note(explanation)


def _last_java_line() -> str:
    """Return the last line that Java wrote before it exited."""
    if not _java_log:
        return ""
    _java_log[0].seek(0)
    lines = _java_log[0].read().decode(errors="replace").split("\n")
    return next((f" ({line.strip()})" for line in reversed(lines) if line.strip()), "")
