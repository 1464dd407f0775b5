"""The source files of an interval and their format."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import field, replace
from enum import Enum
from math import ceil
from types import MappingProxyType
from typing import TypeAlias
from urllib.parse import quote, unquote

from widen.errors import InvalidOption, SourceChanged, SourceError, WidenError
from widen.errors.requests import ensure_without_credentials
from widen.log.local_files import absolute_path
from widen.model.value_classes import dataclass
from widen.sources.places import (
    LISTS,
    looking_at,
    to_local,
)
from widen.sources.remote_files import (
    find_states,
    is_store_url,
    open_local_file,
    open_store_file,
)
from widen.spark.engine import Session, find_started, is_local, require_spark
from widen.spark.errors import (
    ADD_STORE,
    NO_CREDENTIALS,
    SET_CREDENTIALS,
    environment_error,
    environment_error_of_java,
    lacks_credentials,
    missing_store,
)
from widen.spark.session import is_driver
from widen.spark.spark_types import Column, DataFrame, F, SparkSession, spark_errors

# The formats of source files, and the file names that show them.
#
# Source: docs/evolution-rules.md#d16


class FileFormat(str, Enum):
    """The format of a source file."""

    JSON = "json"
    """JSON lines, arrays of records, or one document in a file."""
    CSV = "csv"
    """Records of strings; the first line has the names."""
    TEXT = "text"
    """A record for each line, with the field ``value``."""
    PARQUET = "parquet"
    AVRO = "avro"
    ORC = "orc"
    XLSX = "xlsx"
    """A sheet of an Excel workbook."""

    @property
    def is_typed(self) -> bool:
        return self in (FileFormat.PARQUET, FileFormat.AVRO, FileFormat.ORC, FileFormat.XLSX)


FILE_ENDINGS: Mapping[FileFormat, tuple[str, ...]] = MappingProxyType(
    {
        FileFormat.JSON: (".json", ".jsonl", ".ndjson"),
        FileFormat.CSV: (".csv", ".tsv"),
        FileFormat.PARQUET: (".parquet",),
        FileFormat.AVRO: (".avro",),
        FileFormat.ORC: (".orc",),
        FileFormat.XLSX: (".xlsx", ".xlsm"),
    }
)
"""Endings of file names. No ending means plain text, so plain text must be requested."""

COMPRESSION_ENDINGS = ("", ".gz", ".bz2", ".zst", ".deflate", ".lz4", ".snappy")
"""Endings of compressed files, which follow the ending of the format."""


def format_of(path: str) -> FileFormat | None:
    """Return the format that a file name shows, or None."""
    return find_ending(path)[0]


def find_ending(path: str) -> tuple[FileFormat | None, str]:
    """Return the format that a file name shows, or None, and an ending: all names with it show the same."""
    name = path.rpartition("/")[2]
    lower = name.lower()
    for file_format, endings in FILE_ENDINGS.items():
        for compression in ("",) if file_format.is_typed else COMPRESSION_ENDINGS:
            for ending in endings:
                if lower.endswith(ending + compression):
                    return file_format, name[-len(ending + compression) :]
    dot, last = name.rpartition(".")[1:]
    # Before the ending of a compression stands the one of the format.
    return None, f".{last}" if dot and f".{last.lower()}" not in COMPRESSION_ENDINGS else path


def parse_format(text: str | None) -> FileFormat | None:
    """Return the format that a caller names; None leaves it to the file names.

    Raises:
        InvalidOption: the format does not exist.
    """
    if text is None:
        return None
    if text not in {file_format.value for file_format in FileFormat}:
        formats = ", ".join(file_format.value for file_format in FileFormat)
        raise InvalidOption(option="format", value=text, expected=f"Must be one of: {formats}.")
    return FileFormat(text)


SNIFFED_BYTES = 4_096
"""Number of bytes at the beginning of a file that show whether its format is not text."""

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b", "it is gzip; give its name the ending .gz"),
    (b"BZh", "it is bzip2; give its name the ending .bz2"),
    (b"\x28\xb5\x2f\xfd", "it is zstd; give its name the ending .zst"),
    (b"PAR1", "it is Parquet; give its name the ending .parquet, or set the format"),
    (b"Obj\x01", "it is Avro; give its name the ending .avro, or set the format"),
    (b"ORC", "it is ORC; give its name the ending .orc, or set the format"),
    (b"%PDF-", "it is PDF; export the table in it as CSV"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "it is an old Excel workbook (xls); save the sheet as CSV in UTF-8"),
    (b"SQLite format 3\0", "it is a SQLite database; export the table as CSV"),
    (b"7z\xbc\xaf\x27\x1c", "it is a 7z archive; unpack it"),
    (b"\xfd7zXZ\0", "it is xz; decompress it, e.g. with: xz -d FILE"),
    (b"\x89PNG\r\n\x1a\n", "it is an image (PNG)"),
    (b"\xff\xd8\xff", "it is an image (JPEG)"),
)
"""The first bytes of files that are not text, and what to do about them."""

_UTF_16_AND_32: tuple[tuple[bytes, str], ...] = (
    (b"\xff\xfe\0\0", "UTF-32"),
    (b"\0\0\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
_MARKUP = re.compile(rb"\s*(?:<!doctype html|<html|<head>|<\?xml)", re.IGNORECASE)


def find_other_format(head: bytes, encoding: str = "utf-8") -> str | None:
    """Return the real format of a file that should be JSON or CSV, and what to do; None if it may be text."""
    if head[:1] in _TEXT_STARTS and b"\0" not in head[:_WIDE_BYTES]:
        return None  # most files, and there may be millions
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        if b"xl/" in head or b"[Content_Types].xml" in head:
            return "it is an Excel workbook (xlsx); give its name the ending .xlsx, or set the format"
        return "it is a zip archive; unpack it"
    for magic, found in _MAGIC:
        if head.startswith(magic):
            return found
    markup = _MARKUP.match(head.removeprefix(b"\xef\xbb\xbf"))
    if markup is not None:
        name = "XML" if b"?xml" in markup[0].lower() else "HTML"
        return f"it is a page in {name}, perhaps an error page of its server; download it again"
    if len("\n".encode(encoding)) > 1:
        return None
    wide = guess_wide_encoding(head)
    if wide is None:
        return None
    return f"it is {wide}; convert it to UTF-8, or for CSV set the option encoding to {wide.lower()}"


def guess_wide_encoding(head: bytes) -> str | None:
    """Return UTF-16 or UTF-32 if a text has its mark, or else the zeros of it; None for encodings of one byte."""
    return next((name for mark, name in _UTF_16_AND_32 if head.startswith(mark)), None) or _guess_wide(head)


def _guess_wide(head: bytes) -> str | None:
    """Guess a UTF-16/32 encoding without BOM from mostly-ASCII text; None for single-byte encodings."""
    sample = head[:_WIDE_BYTES]
    sample = sample[: len(sample) // 4 * 4]
    if len(sample) < _MIN_WIDE_BYTES:
        return None
    zeros = [sample[at::4].count(0) * 4 / len(sample) for at in range(4)]
    if sorted(zeros)[1] > _MOSTLY and min(zeros) < 1 - _MOSTLY:
        return "UTF-32" + ("LE" if zeros[0] < _MOSTLY else "BE")
    if min(zeros[1], zeros[3]) > _MOSTLY and max(zeros[0], zeros[2]) < 1 - _MOSTLY:
        return "UTF-16LE"
    return "UTF-16BE" if min(zeros[0], zeros[2]) > _MOSTLY and max(zeros[1], zeros[3]) < 1 - _MOSTLY else None


_MIN_WIDE_BYTES, _WIDE_BYTES, _MOSTLY = 8, 256, 0.7

_TEXT_STARTS = (b"{", b"[", b'"')
"""What JSON begins with, and no other format."""


FilePath: TypeAlias = str | os.PathLike[str]
"""A path, URL or pattern from a caller."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A source file.

    Args:
        path: Its URI, without escapes.
        uri: Its URI as Spark writes it.
        content: A hash of its content; empty if it was not computed.
        left_out: The rows of a Parquet file that are not read, as indexes in it: they are corrupt.
    """

    path: str
    size_bytes: int
    modified_ms: int = 0
    uri: str = ""
    content: str = ""
    left_out: tuple[int, ...] = ()

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
        """The files as paths without pattern characters."""
        return [as_literal(file.path) for file in self.files]


_MAX_NAMED = 3
_GROWTH = 8
"""How much larger compressed files become, about."""

_PARTITION_BYTES = "spark.sql.files.maxPartitionBytes"
_SIZE = re.compile(r"(\d+)([bkmg]?)b?", re.IGNORECASE)
_UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30}
_UNKNOWN_PARALLELISM = 16


def count_partitions(spark: Session, source: SourceFiles) -> int:
    """Return into how many partitions a source is read at most: as many as its bytes fill, but one for each core.

    Spark counts every file as 4 MB at least, so 20,000 files of one line each would become 625 files of the table.
    """
    started = find_started(spark)
    if started is None:
        return max(os.cpu_count() or 1, ceil(source.text_bytes / (128 * 2**20)))
    # A session of Connect does not tell its cores.
    cores = getattr(getattr(started, "sparkContext", None), "defaultParallelism", _UNKNOWN_PARALLELISM)
    size = _SIZE.fullmatch(str(started.conf.get(_PARTITION_BYTES, "128m")))
    partition_bytes = int(size[1]) * _UNITS[size[2].lower()] if size else 0
    return max(cores, ceil(source.text_bytes / (partition_bytes or 128 * 2**20)))


def find_state(path: str) -> os.stat_result | None:
    """Return size and time of a local file; None if it does not exist, or no longer."""
    with looking_at(path):
        return os.stat(path)
    return None


_ESCAPED = re.compile("[\x00-\x7f\x80-\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")
"""The characters that Java may escape: beyond ASCII only controls and spaces."""


def escape_path(path: str) -> str:
    """Return a path as a part of a URI, as Spark writes it."""
    return _ESCAPED.sub(_escape, path)


def _escape(match: re.Match[str]) -> str:
    return quote(match[0], safe="/._=,@+-~!$&'()*;:")


def list_source_files(files: DataFrame) -> DataFrame:
    """Return the columns of a `SourceFile` for each file that Spark's source ``binaryFile`` reads.

    Args:
        files: Columns ``path``, ``length`` and ``modificationTime``.
    """
    uri = F.col("_metadata.file_path").alias("uri")
    return files.select("path", "length", F.unix_millis("modificationTime").alias("modified_ms"), uri)


def to_source_files(files: DataFrame) -> list[SourceFile]:
    """Return a list of files as values, sorted by name."""
    rows = zip(*(column.to_pylist() for column in files.toArrow().columns), strict=True)
    return sorted((SourceFile(*row) for row in rows), key=lambda file: file.path)


HASH_DIGITS = 32
"""The number of digits of a hash that are kept: 128 bits distinguish any number of files."""


def hash_files(spark: Session, source: SourceFiles) -> SourceFiles:
    """Return files with hashes of their contents; Spark reads them all."""
    if not source.files:
        return source
    started = find_started(spark)
    if started is None:
        return replace(source, files=tuple(replace(file, content=_hash_file(file)) for file in source.files))
    files = started.read.format("binaryFile").load(source.paths)
    hashed = files.select("path", F.substring(F.sha2("content", 256), 1, HASH_DIGITS))
    try:
        contents = {source_file_key(path): content for path, content in hashed.collect()}
    except spark_errors() as error:
        fix = "Files up to 2 GB can be compared by content; use new_by='path' (--new-by path) for larger ones."
        raise to_source_error(source.name, error, fix) from error
    hashes = (contents.get(source_file_key(file.path), "") for file in source.files)
    return replace(
        source, files=tuple(replace(file, content=each) for file, each in zip(source.files, hashes, strict=True))
    )


def _hash_file(file: SourceFile) -> str:
    path = to_local(file.path)
    hashed = hashlib.sha256()
    try:
        with open_store_file(file.uri) if path is None else open_local_file(path) as content:
            while block := content.read(_HASHED_BYTES):
                hashed.update(block)
    except OSError as error:
        failure = environment_error(file.path, error)
        if failure is not None:
            raise failure from error
        raise unusable_source(file.path, error.strerror or str(error), "Check the permission to read it.") from error
    return hashed.hexdigest()[:HASH_DIGITS]


_HASHED_BYTES = 2**20


def to_paths(paths: FilePath | Sequence[FilePath]) -> list[str]:
    """Return the paths from a caller; relative ones start at the current directory of this process.

    Spark would start at the directory of its JVM, but tables are found from this one.

    Args:
        paths: One path or several. URLs and absolute paths stay unchanged.
    """
    given = [os.fspath(path) for path in ([paths] if isinstance(paths, (str, os.PathLike)) else paths)]
    for path in given:
        ensure_without_credentials("source", path)
    return [_absolute(path) for path in given]


def to_place(path: FilePath) -> str:
    """Return the location of a directory from a caller; see `to_paths`. No character is part of a pattern."""
    path = os.fspath(path)
    ensure_without_credentials("location", path)
    return path if _URL.match(path) else absolute_path(path)


def _absolute(path: str) -> str:
    # A pattern may begin with a brace around absolute paths.
    if not path or path.startswith(("/", "{/")) or _URL.match(path):
        return path
    return os.path.normpath(f"{as_literal(absolute_path(os.curdir))}/{path}")


_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


def as_literal(path: str) -> str:
    """Return a path without pattern characters."""
    return "".join("\\" + c if c in "*?[]{}\\" else c for c in path)


def decode_uri(uri: Column) -> Column:
    """Return URIs of files from Spark without escapes; a text that is not escaped stays unchanged."""
    # Decoding would turn a plus sign into a space, as in a query of a URL.
    return F.coalesce(F.try_url_decode(F.replace(uri, F.lit("+"), F.lit("%2B"))), uri)


def source_file_key(path: str) -> str:
    """Return the text that identifies a `SourceFile`; `file_key_column` gives the same for its URI."""
    return _SCHEME.sub(r"\1:/", path)


def decode_file_key(uri: str) -> str:
    """Return the text of `source_file_key` for the URI of a file in a Spark error, which may have escapes."""
    return source_file_key(unquote(uri))


def file_key_column(uri: Column) -> Column:
    """Return `source_file_key` for ``_metadata.file_path``, which has escapes, and slashes by Spark's version."""
    return F.regexp_replace(decode_uri(uri), F.lit(_SCHEME.pattern), F.lit("$1:/"))


_SCHEME = re.compile("^([A-Za-z][A-Za-z0-9+.-]*):/+")


def source_error_reason(error: Exception) -> str:
    """Return the first informative line of a Spark error about a source."""
    text = _CLASS.sub("", _CALL.sub("", str(error)).strip())
    return text.strip().partition("\n")[0].strip().rstrip(".")[:300]


_CALL = re.compile(r"^An error occurred while calling \S+\n:")
"""The text of py4j before a Java error that Spark does not translate."""

_CLASS = re.compile(r"^[a-z]\w*(?:\.\w+)+(?:Exception|Error): ")
"""The class of a Java error, before its message."""


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


# Source files that change after they are listed: what was read may be half of a file, or a mix of two.


_LOCAL = re.compile(r"file:/+((?:[A-Za-z0-9/._=,@+~!$&'()*;:-]|%[0-9A-F]{2}|[^\x00-\x7f])+)")
"""URIs that escape every other character, so that their paths are the same for Spark and for the tasks."""


def local_path(uri: str) -> str | None:
    """Return the path of a local file; None if only Spark knows it."""
    match = _LOCAL.fullmatch(uri)
    return None if match is None else "/" + unquote(match[1])


_WAIT = (
    "What was read of it may be incomplete. Ingest again when it is complete. Give files that are being written names "
    "that begin with a dot or an underscore: those are not read."
)


@contextmanager
def unchanged_files(spark: Session, files: Sequence[SourceFile]) -> Iterator[None]:
    """Check after the body that has read files that they are still as they were listed, also if it failed."""
    with explain_changes(spark, files):
        yield
    ensure_unchanged(spark, files)


@contextmanager
def explain_changes(spark: Session, files: Sequence[SourceFile]) -> Iterator[None]:
    """Raise `SourceChanged` instead of an error of the body if files are no longer as they were listed.

    Raises:
        SourceChanged: a file was deleted, or has another size or time of modification.
    """
    try:
        yield
    except SourceChanged:
        raise
    except WidenError as error:
        for path, change in find_changes(spark, files).items():
            raise SourceChanged(path=path, change=change, fix=_WAIT) from error
        raise


def ensure_unchanged(spark: Session, files: Sequence[SourceFile]) -> None:
    """Check that files are still as they were listed.

    Raises:
        SourceChanged: a file was deleted, or has another size or time of modification.
    """
    for path, change in find_changes(spark, files).items():
        raise SourceChanged(path=path, change=change, fix=_WAIT)


def find_changes(spark: Session, files: Sequence[SourceFile]) -> Mapping[str, str]:
    """Return what happened to the files that are not as they were listed, by their paths."""
    states = _local_states(files, may_be_remote=is_local(spark)) if is_driver(spark) else None
    if states is None:
        states = _states(require_spark(spark, LISTS), [file for file in files if file.size_bytes])
    # An empty file may stay or go: it has no records, and a listing by a Spark job leaves it out.
    changes = ((file.path, _describe(file, states.get(file.path))) for file in files if file.size_bytes)
    return {path: change for path, change in changes if change}


def _describe(file: SourceFile, state: tuple[int, int] | None) -> str:
    if state is None:
        return "was deleted"
    size_bytes, modified_ms = state
    if size_bytes != file.size_bytes:
        return f"has {size_bytes:,} bytes, not {file.size_bytes:,}"
    return "was overwritten" if modified_ms != file.modified_ms else ""


def _local_states(files: Sequence[SourceFile], *, may_be_remote: bool) -> dict[str, tuple[int, int]] | None:
    """Return sizes and times of the files that exist; None if Spark has to list them."""
    remote = [file.path for file in files if may_be_remote and is_store_url(file.uri)]
    states = dict(find_states(remote))
    for file in files:
        path = local_path(file.uri)
        if path is None:
            if may_be_remote and is_store_url(file.uri):
                continue
            return None
        found = find_state(path)
        if found is not None:
            states[file.path] = found.st_size, found.st_mtime_ns // 1_000_000
    return states


def _states(spark: SparkSession, files: Sequence[SourceFile]) -> dict[str, tuple[int, int]]:
    """Return sizes and times of the files that exist, as Spark lists them."""
    paths = [as_literal(file.path) for file in files]
    try:
        listed = to_source_files(list_source_files(spark.read.format("binaryFile").load(paths))) if paths else []
    except spark_errors() as error:
        failure = environment_error_of_java(files[0].path if len(files) == 1 else "The source", str(error))
        if failure is not None:
            raise failure from error
        if len(files) <= 1:
            return {}
        middle = len(files) // 2  # the listing fails for a missing file
        return _states(spark, files[:middle]) | _states(spark, files[middle:])
    return {file.path: (file.size_bytes, file.modified_ms) for file in listed}


# Spark's file sources of the first version, by the names of their classes.
#
# Only they know the file of a row, in the column ``_metadata``. Short names would mean the sources of the second
# version in a session with an empty ``spark.sql.sources.useV1SourceList``.
#
# Source: Spark's configuration, spark.sql.sources.useV1SourceList


_PACKAGE = "org.apache.spark.sql.execution.datasources"
FILE_SOURCES: Mapping[str, str] = {
    "parquet": f"{_PACKAGE}.parquet.ParquetFileFormat",
    "orc": f"{_PACKAGE}.orc.OrcFileFormat",
    "text": f"{_PACKAGE}.text.TextFileFormat",
}
"""By their short names; other sources that we read have one version only."""
