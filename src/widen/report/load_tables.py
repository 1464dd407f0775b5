"""The loads of a table for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from widen.log.read.loads import Load
from widen.report.text_format import count_noun, count_text, moment_text, printable, size_text
from widen.report.widgets import facts_line, table_of, title_part


def loads_parts(location: str, loads: Sequence[Load], *, lists_files: bool) -> Iterator[RenderableType]:
    """Yield the loads of a table, one row per load, or one per file."""
    yield title_part(location)
    files = [file for load in loads for file in load.files]
    size = size_text(sum(file.size_bytes for file in files))
    skipped = sum(len(load.bad_files) for load in loads)
    facts = [count_noun(len(loads), "load"), count_noun(len(files), "file"), size]
    yield facts_line(*facts, *([f"{count_noun(skipped, 'file')} skipped"] if skipped else []))
    yield _file_table(loads) if lists_files else _load_table(loads)


def _load_table(loads: Sequence[Load]) -> Table:
    table = table_of("version", "time (UTC)", "files", "records", "corrupt", "kept out", "skipped", "first file")
    for index in (0, 2, 3, 4, 5, 6):
        table.columns[index].justify = "right"
    for load in loads:
        numbers = (len(load.files), load.records, load.corrupt, load.kept_out, len(load.bad_files))
        table.add_row(
            Text(str(load.version), "bold"),
            Text(moment_text(load.loaded_ms), "dim"),
            *(Text(count_text(number)) for number in numbers),
            Text(next((printable(file.path) for file in (*load.files, *load.bad_files)), "")),
        )
    return table


def _file_table(loads: Sequence[Load]) -> Table:
    table = table_of("version", "file", "size", "modified (UTC)")
    table.columns[0].justify = table.columns[2].justify = "right"
    for load in loads:
        for file in (*load.files, *load.bad_files):
            path = Text(printable(file.path))
            if file in load.bad_files:
                path.append("  skipped: it could not be read", "bold red")
            size, modified = Text(size_text(file.size_bytes)), Text(moment_text(file.modified_ms), "dim")
            table.add_row(Text(str(load.version), "bold"), path, size, modified)
    return table
