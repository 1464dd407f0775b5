"""The source files of an interval and their format."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from math import ceil
from typing import TypeAlias
from urllib.parse import quote, unquote

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from widen.errors import SourceError
from widen.log.store.local_files import absolute_path
from widen.spark.session import is_driver
from widen.spark.source.file_format import COMPRESSION_ENDINGS, FileFormat, format_of
from widen.spark.source.source_places import ensure_no_table, expand_local, has_linked_folder, to_local, walk_files
from widen.spark.spark_errors import (
    ADD_STORE,
    NO_CREDENTIALS,
    SET_CREDENTIALS,
    SPARK_ERRORS,
    lacks_credentials,
    missing_store,
)

FilePath: TypeAlias = str | os.PathLike[str]
"""A path, URL or pattern from a caller."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A source file.

    Args:
        path: Its URI, without escapes.
        uri: Its URI as Spark writes it.
        content: A hash of its content; empty if it was not computed.
    """

    path: str
    size_bytes: int
    modified_ms: int = 0
    uri: str = ""
    content: str = ""

    @property
    def is_compressed(self) -> bool:
        """Whether the name says so."""
        return self.path.lower().endswith(COMPRESSION_ENDINGS[1:])


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """The files of one interval.

    Args:
        roots: Files, directories and patterns from the caller; empty if exactly these files are meant.
        files: Files to read, by name.
        left_out: Files beside them whose names tell no known format.
    """

    roots: tuple[str, ...]
    files: tuple[SourceFile, ...]
    left_out: tuple[str, ...] = ()
    format: FileFormat = FileFormat.JSON
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The name of the source in errors."""
        return ", ".join(self.roots or [file.path for file in self.files[:_MAX_NAMED]])

    @property
    def text_bytes(self) -> int:
        """About the size of the files without compression."""
        return sum(file.size_bytes * (_GROWTH if file.is_compressed else 1) for file in self.files)

    @property
    def paths(self) -> list[str]:
        """The files as paths in which no character is part of a pattern."""
        return [as_literal(file.path) for file in self.files]


_MAX_NAMED = 3
_GROWTH = 8
"""How much larger compressed files become, about."""

_PARTITION_BYTES = "spark.sql.files.maxPartitionBytes"
_SIZE = re.compile(r"(\d+)([bkmg]?)b?", re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30}
_UNKNOWN_PARALLELISM = 16


def count_partitions(spark: SparkSession, source: SourceFiles) -> int:
    """Return into how many partitions a source is read at most: as many as its bytes fill, but one for each core.

    Spark counts every file as 4 MB at least, so 20,000 files of one line each would become 625 files of the table.
    """
    # A session of Connect does not tell its cores.
    cores = getattr(getattr(spark, "sparkContext", None), "defaultParallelism", _UNKNOWN_PARALLELISM)
    size = _SIZE.fullmatch(str(spark.conf.get(_PARTITION_BYTES, "128m")))
    partition_bytes = int(size[1]) * _UNITS[size[2].lower()] if size else 0
    return max(cores, ceil(source.text_bytes / (partition_bytes or 128 * 2**20)))


def find_source(
    spark: SparkSession,
    paths: Sequence[str],
    format: FileFormat | None = None,
    options: Mapping[str, str] | None = None,
    *,
    may_be_empty: bool = False,
) -> SourceFiles:
    """Return the files that paths name. A file that two paths or links name is listed once.

    Args:
        paths: Files, directories (with everything below) and glob patterns. Of a directory only files whose names tell
            a format count, if there are any.
        format: Format of the files; None to infer it from their names, with JSON as the default.
        options: How to read the files.
        may_be_empty: Whether no file, or only empty ones, are a source, too.

    Raises:
        SourceError: a path does not exist or cannot be listed, a file is part of a table, there is no file, all files
            are empty, or their names tell several formats.
    """
    try:
        found = list_linked_files(paths) if is_driver(spark) else None
        listed = _list_paths(spark, paths) if found is None else found
    except SPARK_ERRORS as error:
        raise to_source_error(", ".join(paths), error, "Check the path and the permission to read it.") from error
    ensure_no_table(spark, ", ".join(paths), [file.path for file in listed])
    files = drop_repeated(listed)
    # Without roots Spark reads exactly these files; a root would bring back the others.
    roots = tuple(paths) if found is None and len(files) == len(listed) else ()
    source = choose_files(files, format, options or {}, roots=roots) or SourceFiles(roots, tuple(files))
    if not may_be_empty and not any(file.size_bytes for file in source.files):
        raise unusable_source(
            source.name, "the files are empty" if listed else "there is no file", "Name files with records."
        )
    return source


def _list_paths(spark: SparkSession, paths: Sequence[str]) -> list[SourceFile]:
    """Return the files that paths name. A path that matches nothing as a pattern may be the name of a file."""
    reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
    named = _list_local_files(spark, paths)
    if named is not None:
        return named
    try:
        return to_source_files(list_files(reader.load(list(paths))))
    except PySparkException:
        if [*map(as_literal, paths)] == [*paths]:
            raise
    if len(paths) > 1:
        return sorted((file for path in paths for file in _list_paths(spark, [path])), key=lambda file: file.path)
    return to_source_files(list_files(reader.load([*map(as_literal, paths)])))


def list_linked_files(paths: Sequence[str]) -> list[SourceFile] | None:
    """Return the files of local folders with links to folders, each once: Spark follows a link to a parent for ever.

    Returns:
        None if the paths name no folder with such a link, and Spark can list them.
    """
    named = [expand_local(path) for path in paths]
    if None in named or not any(has_linked_folder(each) for some in named for each in some or ()):
        return None
    listed = []
    for path in walk_files(each for some in named for each in some or ()):
        state = os.stat(path)
        if state.st_size:
            uri = f"file:{quote(path, safe=_UNQUOTED)}"
            listed.append(SourceFile(f"file:{path}", state.st_size, state.st_mtime_ns // 1_000_000, uri))
    return sorted(listed, key=lambda file: file.path)


_UNQUOTED = "/._=,@+-~!$&'()*;:"


def drop_repeated(files: Sequence[SourceFile]) -> list[SourceFile]:
    """Return files without those that another path or a link has named before, the ones that are no link first."""
    folders: dict[str, str] = {}
    kept: dict[str, SourceFile] = {}
    for file, real in sorted(
        ((file, _real_path(file.path, folders)) for file in files),
        key=lambda each: (each[0].path != each[1], each[0].path),
    ):
        kept.setdefault(real, file)
    return sorted(kept.values(), key=lambda file: file.path)


def _real_path(path: str, folders: dict[str, str]) -> str:
    """Return the path of a file without links.

    Args:
        folders: The real paths of folders, which this extends.
    """
    plain = to_local(path)
    if plain is None:
        return path
    folder, _, name = plain.rpartition("/")
    if folder not in folders:
        folders[folder] = os.path.realpath(folder)
    real = f"{folders[folder]}/{name}"
    return f"file:{os.path.realpath(real) if os.path.islink(real) else real}"


def _list_local_files(spark: SparkSession, paths: Sequence[str]) -> list[SourceFile] | None:
    """Return the files of the local disk that plain paths name, or one directory, without a Spark job.

    Spark decides whether a path without a scheme is local, and whether a file is hidden. A job leaves out empty files.

    Returns:
        None if Spark has to list them.
    """
    plain = ["/" + path.removeprefix("file:").lstrip("/") for path in paths]
    if not all(map(_PLAIN_PATH.fullmatch, paths)) or not is_driver(spark) or not _are_few(plain):
        return None
    uris = spark.read.option("recursiveFileLookup", "true").text(list(paths)).inputFiles()
    listed = [match[1] for match in map(_PLAIN_URI.fullmatch, uris) if match]
    if len(listed) < len(uris) or (any(map(os.path.isfile, plain)) and sorted(listed) != sorted(plain)):
        return None
    try:
        stats = [(path, os.stat(path)) for path in sorted(listed)]
    except FileNotFoundError:  # deleted meanwhile
        return None
    return [
        SourceFile(f"file:{path}", stat.st_size, stat.st_mtime_ns // 1_000_000, f"file:{path}")
        for path, stat in stats
        if stat.st_size
    ]


def _are_few(paths: Sequence[str]) -> bool:
    """Tell whether local paths are a few files, or a directory with not many below it."""
    if len(paths) != 1 or not os.path.isdir(paths[0]):
        return len(paths) <= MAX_NAMED_FILES and all(map(os.path.isfile, paths))
    below = chain.from_iterable(names for _, _, names in os.walk(paths[0]))
    return next(islice(below, MAX_LISTED_FILES, None), None) is None


MAX_NAMED_FILES, MAX_LISTED_FILES = 32, 1_000
"""Maximum number of paths, and of files below a directory, that are listed without a Spark job: Spark looks at each
path in turn, and passes on one name after the other."""

_PLAIN_PATH = re.compile(r"(?:file:)?/[A-Za-z0-9/._=,@+-]+")
"""Local paths in which no character is escaped in a URI, or part of a pattern."""

_PLAIN_URI = re.compile(r"file://(/[A-Za-z0-9/._=,@+-]+)")


def list_files(files: DataFrame) -> DataFrame:
    """Return the columns of a `SourceFile` for each file that Spark's source ``binaryFile`` reads.

    Args:
        files: Columns ``path``, ``length`` and ``modificationTime``.
    """
    uri = F.col("_metadata.file_path").alias("uri")
    return files.select("path", "length", F.unix_millis("modificationTime").alias("modified_ms"), uri)


def to_source_files(files: DataFrame) -> list[SourceFile]:
    """Return a list of files as values, sorted by name.

    Args:
        files: The columns of `list_files`.
    """
    rows = zip(*(column.to_pylist() for column in files.toArrow().columns), strict=True)
    return sorted((SourceFile(*row) for row in rows), key=lambda file: file.path)


HASH_DIGITS = 32
"""The digits of a hash that are kept: 128 bits tell any number of files apart."""


def hash_files(spark: SparkSession, source: SourceFiles) -> SourceFiles:
    """Return files with hashes of their contents; Spark reads them all.

    Raises:
        SourceError: a file cannot be read, or is larger than the 2 GB that Spark hashes.
    """
    if not source.files:
        return source
    files = spark.read.format("binaryFile").load(source.paths)
    hashed = files.select("path", F.substring(F.sha2("content", 256), 1, HASH_DIGITS))
    try:
        contents = {file_key(path): content for path, content in hashed.collect()}
    except SPARK_ERRORS as error:
        fix = "Files up to 2 GB can be compared by content; use new_by='path' (--new-by path) for larger ones."
        raise to_source_error(source.name, error, fix) from error
    hashes = (contents.get(file_key(file.path), "") for file in source.files)
    return replace(
        source, files=tuple(replace(file, content=each) for file, each in zip(source.files, hashes, strict=True))
    )


def choose_files(
    files: Sequence[SourceFile], format: FileFormat | None, options: Mapping[str, str], roots: Sequence[str] = ()
) -> SourceFiles | None:
    """Return the files to read: those of the requested format, or of the one format that their names tell.

    Args:
        format: Requested format; None to infer it from the names.
        options: How to read the files.

    Returns:
        None if no name tells a format.

    Raises:
        SourceError: the names tell several formats.
    """
    formats = {file.path: format_of(file.path) for file in files}
    known_formats = {file_format for file_format in formats.values() if file_format is not None}
    if format is None and len(known_formats) > 1:
        first = {file_format.value: path for path, file_format in reversed(formats.items()) if file_format is not None}
        names = " and ".join(f"{file_format} ({path})" for file_format, path in sorted(first.items()))
        reason = f"the files have several formats: {names}"
        raise unusable_source(", ".join(roots) or "the new files", reason, "Name the format or the files.")
    chosen = format or next(iter(known_formats), None)
    if chosen is None:
        return None
    chosen_files = tuple(file for file in files if formats[file.path] is chosen)
    left_out = tuple(file.path for file in files if chosen_files and formats[file.path] is not chosen)
    return SourceFiles(tuple(roots), chosen_files or tuple(files), left_out, chosen, options)


def to_paths(paths: FilePath | Sequence[FilePath]) -> list[str]:
    """Return the paths from a caller; relative ones start at the current directory of this process.

    Spark would start at the directory of its JVM, but tables are found from this one.

    Args:
        paths: One path or several. URLs and absolute paths stay unchanged.
    """
    return [_absolute(os.fspath(path)) for path in ([paths] if isinstance(paths, (str, os.PathLike)) else paths)]


def to_place(path: FilePath) -> str:
    """Return the location of a directory from a caller; see `to_paths`. No character is part of a pattern."""
    path = os.fspath(path)
    return path if _URL.match(path) else absolute_path(path)


def _absolute(path: str) -> str:
    # A pattern may begin with a brace around absolute paths.
    if not path or path.startswith(("/", "{/")) or _URL.match(path):
        return path
    return os.path.normpath(f"{as_literal(absolute_path(os.curdir))}/{path}")


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


def as_literal(path: str) -> str:
    """Return a path in which no character is part of a pattern."""
    return "".join("\\" + c if c in "*?[]{}\\" else c for c in path)


def decode_uri(uri: Column) -> Column:
    """Return URIs of files from Spark without escapes; a text that is not escaped stays unchanged."""
    # Decoding would turn a plus sign into a space, as in a query of a URL.
    return F.coalesce(F.try_url_decode(F.replace(uri, F.lit("+"), F.lit("%2B"))), uri)


def file_key(path: str) -> str:
    """Return the text that tells a `SourceFile` apart; `file_key_column` gives the same for its URI."""
    return _SCHEME.sub(r"\1:/", path)


def decode_file_key(uri: str) -> str:
    """Return the text of `file_key` for the URI of a file in an error of Spark, which may have escapes."""
    return file_key(unquote(uri))


def file_key_column(uri: Column) -> Column:
    """Return the texts of `file_key` for ``_metadata.file_path``, which has escapes, and slashes by Spark's version."""
    return F.regexp_replace(decode_uri(uri), F.lit(_SCHEME.pattern), F.lit("$1:/"))


_SCHEME = re.compile("^([A-Za-z][A-Za-z0-9+.-]*):/+")


def source_error_reason(error: Exception) -> str:
    """Return the first line of an error from Spark about a source that says something."""
    text = _CALL.sub("", str(error))
    return text.strip().partition("\n")[0].rstrip(".")[:300]


_CALL = re.compile(r"^An error occurred while calling \S+\n:")
"""What py4j says before an error of Java that Spark does not translate."""


def to_source_error(source: str, error: Exception, fix: str) -> SourceError:
    """Return the error for a source that Spark cannot list or read."""
    if lacks_credentials(error):
        return unusable_source(source, NO_CREDENTIALS, SET_CREDENTIALS)
    store = missing_store(error)
    if store:
        return unusable_source(source, f"this Spark cannot read from {store}", ADD_STORE)
    return unusable_source(source, source_error_reason(error), fix)


def unusable_source(source: str, reason: str, fix: str) -> SourceError:
    """Return the error for a source that cannot be used."""
    return SourceError(source=source, reason=reason.rstrip("."), fix=fix)
