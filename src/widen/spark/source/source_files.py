"""Sources: which files an interval has, and of what format they are."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from widen.errors import SourceError
from widen.errors.foreign import first_line
from widen.spark.source.file_format import FileFormat, format_of

PATH, LENGTH = "path", "length"
"""The columns of a list of files: the URI, and the size in bytes."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file of a source: its URI and its size in bytes."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """The files of one interval.

    Args:
        roots: What the caller named: files, directories and patterns; empty if the files are all that is meant.
        files: The files to read, by name.
        left_out: Files beside them that are of no known format by their names.
        format: What the files hold.
        options: How to read them, e.g. the separator of CSV.
    """

    roots: tuple[str, ...]
    files: tuple[SourceFile, ...]
    left_out: tuple[str, ...] = ()
    format: FileFormat = FileFormat.JSON
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What errors call it."""
        return ", ".join(self.roots or [file.path for file in self.files[:_NAMED]])

    @property
    def paths(self) -> list[str]:
        """The files, as paths in which no character is taken for a pattern."""
        return [as_literal(file.path) for file in self.files]


_NAMED = 3


def find_source(
    spark: SparkSession,
    paths: Sequence[str],
    format: FileFormat | None = None,
    options: Mapping[str, str] | None = None,
) -> SourceFiles:
    """Return the files that the paths name.

    Args:
        spark: The session that lists them.
        paths: Files, directories (with all below them) and glob patterns. In a directory only files count whose names
            tell a format, if there is any.
        format: What the files hold; by default their names tell, and JSON where they do not.
        options: How to read them.

    Raises:
        SourceError: a path does not exist or cannot be listed, or there is no file, or nothing in them, or their
            names tell several formats.
    """
    try:
        found = _list_paths(spark, paths)
    except PySparkException as error:
        raise unusable_source(
            ", ".join(paths), source_error_reason(error), "Check the path and that it may be read."
        ) from error
    source = choose_files(found, format, options or {}, roots=paths) or SourceFiles(tuple(paths), tuple(found))
    if not any(file.size_bytes for file in source.files):
        raise unusable_source(
            source.name, "there is nothing in it" if found else "there is no file", "Give it records."
        )
    return source


def _list_paths(spark: SparkSession, paths: Sequence[str]) -> list[SourceFile]:
    """Return the files that the paths name; one that is no pattern for anything may be the name of a file."""
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    try:
        return to_source_files(reader.load(list(paths)))
    except PySparkException:
        if [*map(as_literal, paths)] == [*paths]:
            raise
    if len(paths) > 1:
        return sorted((file for path in paths for file in _list_paths(spark, [path])), key=lambda file: file.path)
    return to_source_files(reader.load([*map(as_literal, paths)]))


def to_source_files(files: DataFrame) -> list[SourceFile]:
    """Return the files of a list as values, by name.

    Args:
        files: Columns `PATH` and `LENGTH`.
    """
    rows = files.select(PATH, LENGTH).collect()
    return sorted((SourceFile(row[PATH], row[LENGTH]) for row in rows), key=lambda file: file.path)


def choose_files(
    found: Sequence[SourceFile], format: FileFormat | None, options: Mapping[str, str], roots: Sequence[str] = ()
) -> SourceFiles | None:
    """Return the files to read: those of the format that is asked for, or of the one that their names tell.

    Args:
        found: All files.
        format: What they hold; by default their names tell.
        options: How to read them.
        roots: What the caller named.

    Returns:
        None where no name tells a format.

    Raises:
        SourceError: their names tell several formats.
    """
    formats = {file.path: format_of(file.path) for file in found}
    there = {told for told in formats.values() if told is not None}
    if format is None and len(there) > 1:
        first = {told.value: path for path, told in reversed(formats.items()) if told is not None}
        said = " and ".join(f"{told} ({path})" for told, path in sorted(first.items()))
        reason = f"there are files of several formats: {said}"
        raise unusable_source(", ".join(roots) or "what came to it", reason, "Name one of the formats, or the files.")
    wanted = format or next(iter(there), None)
    if wanted is None:
        return None
    files = [file for file in found if formats[file.path] is wanted]
    left_out = tuple(file.path for file in found if files and formats[file.path] is not wanted)
    return SourceFiles(tuple(roots), tuple(files or found), left_out, wanted, options)


def to_paths(given: str | Sequence[str]) -> list[str]:
    """Return the paths that a caller names, relative ones from the folder that this process works in now.

    Spark would take them from the folder that its JVM was started in, and tables are looked for from this one.

    Args:
        given: One path or several. URLs and absolute paths stay as they are.
    """
    return [_absolute(path) for path in ([given] if isinstance(given, str) else given)]


def to_place(path: str) -> str:
    """Return where one folder is that a caller names; see `to_paths`. No character of it makes a pattern."""
    return path if _URL.match(path) else os.path.abspath(path)


def _absolute(path: str) -> str:
    # A pattern may begin with a brace around absolute paths.
    if not path or path.startswith(("/", "{/")) or _URL.match(path):
        return path
    return os.path.normpath(f"{as_literal(os.getcwd())}/{path}")


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


def as_literal(path: str) -> str:
    """Return a path in which no character is taken for a pattern."""
    return "".join("\\" + c if c in "*?[]{}\\" else c for c in path)


def source_error_reason(error: Exception) -> str:
    """Return what Spark says of a source, in one line."""
    return first_line(error)[:300]


def unusable_source(source: str, reason: str, fix: str) -> SourceError:
    """Return the error that a source cannot be used."""
    return SourceError(source=source, reason=reason.rstrip("."), fix=fix)
