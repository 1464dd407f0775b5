"""A first file of loads for `widen run`, from a folder of source files.

Source: docs/guide/pipelines.md#init
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import field
from os import PathLike, fspath
from pathlib import Path

from widen.errors import SourceError, WidenError
from widen.evolution.plan import Plan
from widen.ingestion.interval import plan
from widen.model.value_classes import dataclass
from widen.report.text_format import count_noun, type_text
from widen.sources.listing import FILE_ENDINGS, FileFormat, as_literal, format_of

READ_BYTES = 16 * 2**20
"""A file up to this size is read to name the columns of a load."""

MAX_COLUMNS = 30
LONGEST_TYPE = 40
_KEYS = ("id", "_id", "uuid", "key")
_ENVELOPE = {"op", "after"}
_SERIES = re.compile(r"(.*?)([\W_]*)\d.*")
"""A name: its fixed part, the separator before a number, and the rest."""


@dataclass
class SourceGroup:
    """The files of one load."""

    name: str
    source: str
    files: list[tuple[str, int]] = field(default_factory=list)

    @property
    def formats(self) -> Counter[FileFormat]:
        return Counter(found for path, _ in self.files if (found := format_of(path)) is not None)


def draft_pipelines(folder: str | PathLike[str], lake: str = "lake") -> str:
    """Return the text of a file with a load for each subfolder and for each series of files in a folder.

    A series is what has the same name but for numbers, e.g. ``orders-2024-01-29.json``. Of each load one file is read,
    to name its columns in a comment.

    Raises:
        SourceError: the folder does not exist, or has no files that can be loaded.
    """
    place = fspath(folder)
    if not Path(place).is_dir():
        raise SourceError(source=place, reason="it is not a local folder", fix="Name the folder of the source files.")
    groups = sorted(_find_groups(Path(place)), key=lambda group: (group.name, -len(group.files)))
    if not groups:
        endings = ", ".join(ending for endings in FILE_ENDINGS.values() for ending in endings)
        raise SourceError(source=place, reason="no file in it has a known ending", fix=f"Known are {endings}.")
    names = set[str]()
    for group in groups:
        if group.name in names:  # a folder and a series beside it, or series with several endings
            group.name = re.sub(r"\W+", "_", group.source.removeprefix(place)).strip("_")
        names.add(group.name)
    head = ("[defaults]", "new = true  # only files that the table has not loaded", "")
    return "\n".join((*head, *_loads(groups, lake)))


def _find_groups(folder: Path) -> Iterator[SourceGroup]:
    series: dict[str, SourceGroup] = {}
    for entry in sorted(os.scandir(folder), key=lambda entry: entry.name):
        if entry.name.startswith((".", "_")):
            continue
        if entry.is_dir():
            files = [(str(path), path.stat().st_size) for path in _walk(Path(entry.path))]
            group = SourceGroup(_table_name(entry.name), f"{as_literal(entry.path)}/", files)
            if group.formats:
                yield group
        elif format_of(entry.name) is not None:
            stem, _, ending = entry.name.partition(".")
            found = _SERIES.fullmatch(stem)
            start, fixed = (found[1], found[1] + found[2]) if found else (stem, stem)
            pattern = f"{as_literal(str(folder / fixed))}{'*' if found else ''}.{ending}"
            group = series.setdefault(pattern, SourceGroup(_table_name(start or folder.name), pattern))
            group.files.append((entry.path, entry.stat().st_size))
    yield from series.values()


def _walk(folder: Path) -> Iterator[Path]:
    for path, folders, names in os.walk(folder):
        folders[:] = sorted(each for each in folders if not each.startswith((".", "_")))
        for name in sorted(names):
            if not name.startswith((".", "_")) and format_of(name) is not None:
                yield Path(path) / name


def _table_name(name: str) -> str:
    return re.sub(r"\W+", "_", name).strip("_").lower() or "table"


def _loads(groups: list[SourceGroup], lake: str) -> Iterator[str]:
    for group in groups:
        formats = group.formats.most_common()
        size = sum(size for path, size in group.files if format_of(path) is formats[0][0])
        counted = count_noun(formats[0][1], "file")
        yield f"# {counted} of {formats[0][0].value}, {size:,} bytes"
        if len(formats) > 1:
            others = ", ".join(f"{count} of {other.value}" for other, count in formats[1:])
            yield f"# the folder also has {others}: give them a load of their own"
        columns = list(_columns(group, formats[0][0]))
        yield from columns[:1]
        yield "[[load]]"
        yield f"source = {_text(group.source)}"
        yield f"into = {_text(f'{lake}/{group.name}')}"
        if len(formats) > 1:
            yield f"format = {_text(formats[0][0].value)}"
        yield from columns[1:]
        yield ""


def _columns(group: SourceGroup, wanted: FileFormat) -> Iterator[str]:
    """Yield a comment with the columns of one file, then settings to think about."""
    files = [(size, path) for path, size in group.files if format_of(path) is wanted and 0 < size <= READ_BYTES]
    if not files:
        yield "# no file is small enough to look at its columns"
        return
    path = max(files)[1]
    try:
        planned = plan([as_literal(path)], Path(path).parent / "_widen_no_table", engine="local")
    except WidenError as error:
        yield f"# {_one_line(f'{Path(path).name} could not be read here: {error.message}')}"
        return
    yield f"# {Path(path).name}: {_one_line(_describe(planned))}"
    names = {column.name for column in planned.schema}
    if names >= _ENVELOPE:
        yield '# envelope = "debezium"  # the records have op and after; name the key of the table, too'
    for key in _KEYS:
        if key in names:
            yield f"# key = [{_text(key)}]  # one row for each {key}, the last one wins"
            break


def _describe(planned: Plan) -> str:
    columns = [f"{column.name} {type_text(column.type.sql, LONGEST_TYPE)}" for column in planned.schema]
    more = len(columns) - MAX_COLUMNS
    return ", ".join(columns[:MAX_COLUMNS]) + (f" and {count_noun(more, 'more column')}" if more > 0 else "")


def _one_line(text: str) -> str:
    return "".join(each if each.isprintable() else "?" for each in text)


def _text(text: str) -> str:
    """Return a text as TOML; a variable of the environment is not meant."""
    return json.dumps(text.replace("${", "$${"), ensure_ascii=False).replace("\x7f", "\\u007f")
