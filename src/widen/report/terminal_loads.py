"""The loads of a table for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from widen.log.read.loads import parked_files
from widen.report.terminal import Fitting
from widen.report.text_format import count_noun, count_text, moment_text, printable, size_text
from widen.report.widgets import facts_line, table_of, title_part

if TYPE_CHECKING:
    from widen.log.read.loads import Load, LoadedFile

PATH_LENGTHS = (1 << 16, 80, 60, 50, 40, 30, 20)
"""Maximum lengths of paths in a table, tried in order until the table fits."""


def loads_parts(location: str, loads: Sequence[Load], *, lists_files: bool) -> Iterator[RenderableType]:
    """Yield the loads of a table, one row per load, or one per file."""
    yield title_part(location)
    files = [file for load in loads for file in load.files]
    size = size_text(sum(file.size_bytes for file in files))
    skipped = sum(not file.parked for load in loads for file in load.bad_files)
    parked = len(parked_files(loads))
    facts = [count_noun(len(loads), "load"), count_noun(len(files), "file"), size]
    counts = ((skipped, "skipped"), (parked, "parked"))
    yield facts_line(*facts, *(f"{count_noun(count, 'file')} {words}" for count, words in counts if count))
    if lists_files:
        yield Fitting(lambda length: (_file_table if length else _file_list)(loads), (1, 0))
    else:
        yield Fitting(partial(_load_table, loads), PATH_LENGTHS)


def _load_table(loads: Sequence[Load], length: int) -> Table:
    counts = {
        "files": [len(load.files) for load in loads],
        "records": [load.records for load in loads],
        "corrupt": [load.corrupt for load in loads],
        "kept out": [load.kept_out for load in loads],
        "skipped": [len(load.bad_files) for load in loads],
    }
    shown = {name: numbers for name, numbers in counts.items() if name in ("files", "records") or any(numbers)}
    table = table_of("version", "time (UTC)", *shown, "first file")
    table.columns[1].min_width = len("2026-01-31")
    for column in (table.columns[0], *table.columns[2:-1]):
        column.justify = "right"
    for load, *numbers in zip(loads, *shown.values(), strict=True):
        table.add_row(
            Text(str(load.version), "bold"),
            Text(moment_text(load.loaded_ms), "dim"),
            *(Text(count_text(number)) for number in numbers),
            Text(next((_end_of(printable(file.path), length) for file in (*load.files, *load.bad_files)), "")),
        )
    return table


def _end_of(path: str, length: int) -> str:
    """Return at most that many characters from the end of a path, which tells files apart."""
    return path if len(path) <= length else f"…{path[1 - length :]}"


def _file_table(loads: Sequence[Load]) -> RenderableType:
    table = table_of("version", "file", "size", "modified (UTC)")
    table.columns[0].justify = table.columns[2].justify = "right"
    for load, file, path in _listed_files(loads):
        size, modified = Text(size_text(file.size_bytes)), Text(moment_text(file.modified_ms), "dim")
        table.add_row(Text(str(load.version), "bold"), path, size, modified)
    return table


def _file_list(loads: Sequence[Load]) -> RenderableType:
    """Return the files with their paths on lines of their own."""
    parts: list[RenderableType] = []
    for load, file, path in _listed_files(loads):
        facts = f"  {size_text(file.size_bytes)}, modified {moment_text(file.modified_ms)} UTC"
        parts += [Text.assemble((f"version {load.version}", "bold"), (facts, "dim")), path]
    return Group(*parts)


def _listed_files(loads: Sequence[Load]) -> Iterator[tuple[Load, LoadedFile, Text]]:
    for load in loads:
        for file in (*load.files, *load.bad_files):
            path = Text(printable(file.path))
            if file in load.bad_files:
                reason = f"parked: {printable(file.parked)}" if file.parked else "skipped: it could not be read"
                path.append(f"  {reason}", "bold red")
            yield load, file, path
