"""Pages of the documentation: their blocks, what the blocks print, and the page with that output.

A block of ``sh`` or ``python`` is run. A block with a title is a file of that name. A block with
the title *Output* is what the block before it prints; blocks inside of ``<details>`` prepare a page, and show none.
"""

from __future__ import annotations

import ast
import io
import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from support.command_line import run

OUTPUT = "Output"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```\n', re.MULTILINE | re.DOTALL)
RUN = ("sh", "python")
FOLDER = "/data"
"""What pages show instead of the folder in which their blocks ran."""

VOLATILE = (
    (r"last load on \d{4}-\d\d-\d\d", "last load on TIME"),
    (r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d(\.\d+)?)?( ?(UTC|Z|[+-]\d\d:?\d\d))?", "TIME"),
    (r"\b\d+(\.\d+)? ?(B|kB|KB|MB|GB|bytes)\b", "SIZE"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "ID"),
    (r"\b[0-9a-f]{32,64}\b", "ID"),
    (r"\b\d{17,19}\b", "ID"),
    (r"widen\.loads +\w+", "widen.loads ID"),
    (r"\b\d+(\.\d+)? (ms|s|seconds|minutes|hours)\b", "DURATION"),
    (r"\b\d+\.\d+\.\d+\b", "VERSION"),
    (r"[ ─━-]{2,}", " "),
    (r" +$", ""),
)
"""What differs from run to run, and what it is compared as."""


@dataclass(frozen=True)
class Block:
    """A block of a page.

    Args:
        start: Where its text begins in the page; ``end`` is after its last line.
        shown: The output that the page shows below it; None if it shows none.
        until: Where that output ends, or else the block.
    """

    language: str
    title: str
    text: str
    start: int
    end: int
    prepares: bool
    shown: str | None
    until: int


@dataclass(frozen=True)
class Exceptions:
    """Commands of the pages that are special.

    Args:
        codes: Exit codes other than 0, by command.
        not_run: What is in commands and snippets that are not run, and why.
    """

    codes: Mapping[str, int]
    not_run: Mapping[str, str]

    def leave_out(self, text: str) -> bool:
        """Return whether a command or a snippet is not run."""
        return any(words in text for words in self.not_run)


def blocks(page: str) -> Iterator[Block]:
    """The blocks of a page in their order, each with its output."""
    found = [each for each in BLOCK.finditer(page) if each[2] != OUTPUT]
    outputs = {each.start(): each for each in BLOCK.finditer(page) if each[2] == OUTPUT}
    for each in found:
        before = page[: each.start()]
        prepares = before.count("<details") > before.count("</details>")
        output = outputs.get(each.end() + 1)
        yield Block(
            *(each[1], each[2] or "", each[3], each.start(3), each.end(), prepares),
            output[3] if output else None,
            output.end() if output else each.end(),
        )


def run_block(block: Block, names: dict[str, object], exceptions: Exceptions) -> str:
    """Run a block in the current folder, and return what it prints."""
    printed = "".join(_run_block(block, names, exceptions)).replace(str(Path.cwd()), FOLDER)
    lines = (line.rstrip() for line in printed.strip("\n").splitlines())
    return "".join(f"{line}\n" for line in lines)


def _run_block(block: Block, names: dict[str, object], exceptions: Exceptions) -> Iterator[str]:
    if block.title:
        Path(block.title).write_text(block.text, encoding="utf-8")
    elif block.language == "python":
        if not exceptions.leave_out(block.text):
            yield _run_python(block.text, names)
    elif block.language == "sh":
        every = list(_commands(block.text))
        done = [(each, run_command(each, exceptions)) for each in every if not exceptions.leave_out(each)]
        printing = [(command, text) for command, text in done if text]
        for number, (command, text) in enumerate(printing):
            yield f"{chr(10) * (number > 0)}$ {command}\n{text}" if len(every) > 1 else text


def _run_python(text: str, names: dict[str, object]) -> str:
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed):
        exec(compile(ast.parse(text), "page", "exec"), names)
    return printed.getvalue()


def _commands(text: str) -> Iterator[str]:
    """The commands of a block, without comments."""
    for line in text.replace("\\\n", "").splitlines():
        if shlex.split(line, comments=True):
            yield " ".join(line.partition("  #")[0].split())


def run_command(command: str, exceptions: Exceptions) -> str:
    """Run a command and return what it prints; those of Widen run in this process, so that they share its session."""
    name, *words = shlex.split(command)
    if name != "widen":
        done = subprocess.run(["sh", "-ec", command], check=True, capture_output=True, text=True)
        return done.stdout + done.stderr
    words, output = _cut(words, ">")
    words, source = _cut(words, "<")
    called = run(*words, input=Path(source).read_text(encoding="utf-8") if source else None)
    code = exceptions.codes.get(command, 0)
    assert called.exit_code == code, f"{command}: {called.exit_code}\n{called.output}"
    if output:
        Path(output).write_text(called.stdout, encoding="utf-8")
        return called.stderr
    return called.output + (f"(exit code {code})\n" if code else "")


def _cut(words: list[str], sign: str) -> tuple[list[str], str]:
    at = words.index(sign) if sign in words else len(words)
    return words[:at], "".join(words[at + 1 :])


def comparable(text: str) -> str:
    """Return output without what differs from run to run."""
    for pattern, word in VOLATILE:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return text


def with_outputs(page: str, printed: Mapping[int, str]) -> str:
    """Return a page with the output of its blocks, by their starts. Output that differs only from run to run stays."""
    parts, at = [], 0
    for block in blocks(page):
        if block.start not in printed:
            continue
        text = printed[block.start]
        if comparable(text) == comparable(block.shown or ""):
            continue
        shown = f'\n```text title="{OUTPUT}"\n{text}```\n' if text else ""
        parts += [page[at : block.end], shown]
        at = block.until
    return "".join([*parts, page[at:]])
