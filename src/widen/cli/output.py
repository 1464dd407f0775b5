"""What goes out: the result on stdout, progress and errors on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from widen.errors import StorageError, WidenError
from widen.model.printable import printable_json, printable_lines

WIDE = 4096
"""The width of tables where no terminal folds them: lines stay whole for other programs."""


def show(parts: Iterable[RenderableType]) -> None:
    """Write parts to stdout, one below the other; without a terminal no line ends in spaces."""
    console = _console(sys.stdout)
    for part in parts:
        if console.is_terminal:
            console.print(part)
            continue
        with console.capture() as captured:
            console.print(part)
        show_line("\n".join(line.rstrip() for line in captured.get().splitlines()))


def show_json(value: object) -> None:
    """Write a value to stdout as JSON: indented on a terminal, else on one line."""
    text = msgspec.json.encode(value)
    show_json_line((msgspec.json.format(text) if sys.stdout.isatty() else text).decode())


def show_json_line(text: str) -> None:
    """Write JSON to stdout; what does not print stands there as an escape of JSON."""
    _write(printable_json(text))


def show_line(line: str) -> None:
    """Write one line to stdout; what does not print stands there as an escape."""
    _write(printable_lines(line))


def _write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def show_error(error: Exception) -> None:
    """Write an error to stderr: the message, its code, and what to do."""
    console = _console(sys.stderr)
    if isinstance(error, WidenError):
        head = Text.assemble(("error: ", "bold red"), error.message)
        console.print(head, soft_wrap=True)
        if error.advice:
            console.print(Text.assemble(("hint: ", "bold cyan"), error.advice), soft_wrap=True)
        console.print(Text(error.code, "dim"), soft_wrap=True)
        return
    message: Callable[[], str] = getattr(error, "format_message", lambda: str(error))
    console.print(Text.assemble(("error: ", "bold red"), message()), soft_wrap=True)
    path = getattr(getattr(error, "ctx", None), "command_path", "widen")
    console.print(Text.assemble(("hint: ", "bold cyan"), f"`{path} --help` lists what can be said."), soft_wrap=True)


def note(text: str, style: str = "dim") -> None:
    """Write a remark to stderr: what a person should know, but no program that reads the result."""
    _console(sys.stderr).print(Text(text, style), soft_wrap=True)


@contextmanager
def writing(file: Path) -> Iterator[None]:
    """Let a file be written that somebody has named.

    Raises:
        StorageError: it cannot be.
    """
    try:
        yield
    except OSError as error:
        fix = "Name a file in a folder that exists and may be written."
        raise StorageError(location=str(file), reason=error.strerror or str(error), fix=fix) from error


@contextmanager
def progress(first: str) -> Iterator[Callable[[str], None]]:
    """Show on stderr what is going on; give the function that is told of it. Nothing is shown without a terminal."""
    console = _console(sys.stderr)
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status(Text(f"{first} …")) as status:
        yield lambda text: status.update(Text(f"{text} …"))


def _console(stream: Any) -> Console:
    is_terminal = stream.isatty()
    width = None if is_terminal or "COLUMNS" in os.environ else WIDE
    return _Console(file=stream, width=width, highlight=False, emoji=False, markup=False)


class _Console(Console):
    """A console that shows no control character, and lets its caller decide what happens when nobody reads it."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the parts of what is shown; texts cannot hold escape sequences, whoever made them."""
        for part in super().render(renderable, options):
            yield part if part.control else Segment(printable_lines(part.text), part.style)

    def on_broken_pipe(self) -> None:
        """Go on with the error that is being handled, where the console itself would end the program."""
        raise
