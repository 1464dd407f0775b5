"""What goes out: the result on stdout, progress and errors on stderr.

Source: house rule: stdout carries the result and nothing else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console, RenderableType
from rich.text import Text

from widen.errors import StorageError, WidenError

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
    show_line((msgspec.json.format(text) if sys.stdout.isatty() else text).decode())


def show_line(line: str) -> None:
    """Write one line to stdout as it is, for whoever reads along."""
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
    with console.status(f"{first} …") as status:
        yield lambda text: status.update(f"{text} …")


def _console(stream: Any) -> Console:
    is_terminal = stream.isatty()
    width = None if is_terminal or "COLUMNS" in os.environ else WIDE
    return _Console(file=stream, width=width, highlight=False, emoji=False, markup=False)


class _Console(Console):
    """A console that leaves it to its caller what happens when nobody reads the output any more."""

    def on_broken_pipe(self) -> None:
        """Go on with the error that is being handled, where the console itself would end the program."""
        raise
