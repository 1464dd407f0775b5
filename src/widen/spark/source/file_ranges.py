"""Files that the tasks read themselves: Spark only says which bytes, so no text passes through its JVM.

A row of a raw batch then stands for some ranges of files. That needs local files, since the tasks have no credentials
for another store, and their plain bytes.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

import bz2
import gzip
import json
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import ceil
from typing import Any, BinaryIO, TypeAlias

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from widen.errors import CorruptFile
from widen.observe.json_document import BOM
from widen.observe.json_split import split_records
from widen.observe.json_stream_split import MAX_RECORD_BYTES, RecordSplitter
from widen.spark.session import is_driver
from widen.spark.source.file_format import SNIFFED_BYTES, find_other_format
from widen.spark.source.line_range import BLOCK_BYTES, read_lines, record_too_long
from widen.spark.source.raw_batch import FILE, PART, RANGES_PART, RAW_SCHEMA, TEXT, WHOLE, TextGroup
from widen.spark.source.source_files import SourceFile
from widen.spark.spark_errors import CONVERT_FILE, RESTORE_FILE

MAX_WHOLE_FILE_BYTES = 8 * 2**20
"""Maximum size of a file that is read as a whole."""

MIN_TASK_BYTES = 4 * 2**20
"""Least bytes for which a task pays, as with Spark's own splits."""

MAX_LOCAL_BYTES = 2**20
"""Maximum number of bytes for which a task runs in this process."""

HEAD_BYTES = 2**20
"""Number of bytes at the beginning of a large file that tell whether it has a record on each line."""

MAX_LOCAL_HEADS = 64
"""Maximum number of files whose heads this process checks. A Spark job takes longer than to read so many."""

_LOCAL = re.compile(r"file:/+(?=[^/])")
_PLAIN_URI = re.compile(r"file:/+[A-Za-z0-9/._=,@+-]+")
"""URIs without escapes, which are the same for Spark and for the tasks."""

_COMPRESSED = re.compile(r"\.(?:gz|bz2|zst|deflate|lz4|lzo|snappy|br|xz)(?:ip)?$", re.IGNORECASE)
_GROWTH = 8
"""How much larger compressed files become, about."""

MAX_RANGED_FILES = 10_000
"""Maximum number of files that are listed in the plan of a query."""

ArrowFunction: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class FileRange(msgspec.Struct, frozen=True, array_like=True):
    """Bytes of a file that one task reads.

    Args:
        uri: URI of the file, as in the column `FILE`.
        end: The byte after the last.
        is_whole: Whether the bytes are the whole file, in any form; else they are lines.
        limit: Maximum size of a record or a line.
        is_multi_line: Whether records take several lines, in a compressed file of any size.
    """

    uri: str
    start: int
    end: int
    is_whole: bool = False
    limit: int = MAX_RECORD_BYTES
    is_multi_line: bool = False

    @property
    def is_compressed(self) -> bool:
        """Whether the name says so. Its end is then that of the compressed bytes."""
        return is_packed(self.uri)


def can_read(files: Sequence[SourceFile]) -> bool:
    """Tell whether the tasks can read files themselves."""
    return len(files) <= MAX_RANGED_FILES and all(
        _PLAIN_URI.fullmatch(file.uri) is not None and (_COMPRESSED.search(file.uri) is None or is_packed(file.uri))
        for file in files
    )


def is_packed(uri: str) -> bool:
    """Tell whether the tasks decompress a file while they read it."""
    return uri.lower().endswith((".gz", ".bz2", ".zst"))


def small_ranges(
    spark: SparkSession,
    files: Sequence[SourceFile],
    limit: int = MAX_RECORD_BYTES,
    *,
    is_multi_line: bool = False,
) -> pa.RecordBatch | None:
    """Return files as a raw batch of one row, for a task in this process; None if Spark has to run the tasks.

    A Spark job takes longer than such a task.
    """
    if not are_few(spark, files):
        return None
    ranges = [FileRange(file.uri, 0, file.size_bytes, True, limit, is_multi_line) for file in files]
    return range_batch(msgspec.json.encode(ranges), RANGES_PART)


def are_few(spark: SparkSession, files: Sequence[SourceFile]) -> bool:
    """Tell whether this process reads files faster than a Spark job."""
    size_bytes = sum(file.size_bytes * (_GROWTH if file.is_compressed else 1) for file in files)
    return is_driver(spark) and size_bytes <= MAX_LOCAL_BYTES and can_read(files)


def range_batch(text: bytes, part: int) -> pa.RecordBatch:
    """Return a raw batch of one row, for a task in this process.

    Args:
        text: What the task reads, as JSON.
        part: The value of `PART`.
    """
    return pa.RecordBatch.from_pylist([{TEXT: text, FILE: "", PART: part, WHOLE: False}])


@dataclass(frozen=True, slots=True)
class RangeTasks:
    """A raw batch whose tasks get their ranges with their code: Spark takes half as long for it as for a query of them.

    Args:
        texts: What each task reads, as JSON.
        part: The value of `PART` in all rows.
    """

    spark: SparkSession
    texts: Sequence[bytes]
    part: int

    def mapInArrow(self, function: ArrowFunction, schema: Any) -> DataFrame:
        """Return what a function makes of the raw batch."""
        numbers = self.spark.range(0, len(self.texts), 1, len(self.texts))
        return numbers.mapInArrow(partial(_map_ranges, function, self.texts, self.part), schema)


RawTexts: TypeAlias = "DataFrame | RangeTasks"
"""A raw batch; see `widen.spark.source.raw_batch`."""


def to_frame(texts: RawTexts) -> DataFrame:
    """Return a raw batch as a DataFrame."""
    return texts.mapInArrow(iter, RAW_SCHEMA) if isinstance(texts, RangeTasks) else texts


def _map_ranges(
    function: ArrowFunction, texts: Sequence[bytes], part: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    return function(range_batch(texts[number], part) for batch in batches for number in batch.column(0).to_pylist())


def read_ranges(
    spark: SparkSession,
    whole: Sequence[SourceFile],
    lined: Sequence[SourceFile],
    partitions: int,
    limit_bytes: int = MAX_RECORD_BYTES,
    *,
    is_multi_line: bool = False,
) -> RangeTasks:
    """Return a raw batch of ranges.

    Args:
        whole: Files that are read as a whole.
        lined: Files with a record on each line.
        partitions: Number of partitions, if there are so many bytes.
        limit_bytes: Maximum size of a record or a line.
        is_multi_line: Whether records take several lines, in compressed files of any size.
    """
    limit = task_bytes((*whole, *lined), partitions)
    ranges = [FileRange(file.uri, 0, file.size_bytes, True, limit_bytes, is_multi_line) for file in whole]
    ranges += [replace_limit(part, limit_bytes) for file in lined for part in split_file(file, limit)]
    return RangeTasks(spark, [msgspec.json.encode(each) for each in pack_ranges(ranges, limit)], RANGES_PART)


def task_bytes(files: Iterable[SourceFile], partitions: int) -> int:
    """Return how many bytes one task reads.

    Args:
        partitions: Number of partitions, if there are so many bytes.
    """
    return max(MIN_TASK_BYTES, ceil(sum(file.size_bytes for file in files) / partitions))


def split_file(file: SourceFile, limit: int) -> list[FileRange]:
    """Return the ranges of a file with lines: as few and as equal as the bytes of a task allow."""
    count = max(1, round(file.size_bytes / limit))
    cuts = [file.size_bytes * number // count for number in range(count + 1)]
    return [FileRange(file.uri, start, end) for start, end in pairwise(cuts)]


def pack_ranges(ranges: Sequence[FileRange], limit: int) -> list[list[FileRange]]:
    """Return the ranges for each task, in order, each about as large as the bytes of a task."""
    tasks: list[list[FileRange]] = []
    free = 0
    for each in ranges:
        size = each.end - each.start
        # At most half of a range exceeds the limit, so that the tasks are about equal without splitting it.
        if not tasks or size // 2 > free:
            tasks.append([])
            free = limit
        tasks[-1].append(each)
        free -= size
    return tasks


def read_range_groups(text: bytes) -> Iterator[TextGroup]:
    """Yield the texts of the ranges of a task.

    Args:
        text: The list of ranges as JSON.
    """
    for part in msgspec.json.decode(text, type=list[FileRange]):
        yield from _read_range(part)


def replace_limit(part: FileRange, limit: int) -> FileRange:
    """Return a range with another maximum size of a line."""
    return msgspec.structs.replace(part, limit=limit)


def _read_range(part: FileRange) -> Iterator[TextGroup]:
    with open_file(part.uri) as file:
        if part.is_whole:
            yield from _read_whole(file, part)
            return
        for lines in read_lines(file, part.start, part.end, limit=part.limit, path=part.uri):
            if not part.start:
                ensure_readable(lines[0][:SNIFFED_BYTES], part.uri)
            yield TextGroup(part.uri, part.start, False, lines)


def _read_whole(file: BinaryIO, part: FileRange) -> Iterator[TextGroup]:
    """Yield a file in any form. What is too large to be held is read by lines, or record by record."""
    content = file.read(MAX_WHOLE_FILE_BYTES + 1)
    ensure_readable(content[:SNIFFED_BYTES], part.uri)
    if len(content) <= MAX_WHOLE_FILE_BYTES:
        if len(content) > part.limit and any(len(text) > part.limit for text in split_records(content)):
            raise record_too_long(part.uri, 0, part.limit)
        yield TextGroup(part.uri, 0, True, [content])
        return
    joined: Any = JoinedFile(content, file)
    if begins_with_line(content[:HEAD_BYTES]) and not part.is_multi_line:
        for lines in read_lines(joined, 0, sys.maxsize, limit=part.limit, path=part.uri):
            yield TextGroup(part.uri, 0, False, lines)
        return
    splitter = RecordSplitter(part.uri, part.limit)
    rest, size = b"", 0
    while block := joined.read(BLOCK_BYTES):
        size += len(block)
        *pieces, rest = (rest + block).split(b"}")
        yield TextGroup(part.uri, 0, False, [text for piece in pieces for text in splitter.records(piece)])
        if len(rest) > part.limit:
            raise record_too_long(part.uri, size - len(rest), part.limit)
    last = [*(splitter.records(rest) if rest else ()), *splitter.rest(size)]
    yield TextGroup(part.uri, 0, False, last)


class JoinedFile:
    """A file whose beginning is read already."""

    def __init__(self, head: bytes, file: BinaryIO) -> None:
        self._head, self._file = head, file

    def read(self, size: int) -> bytes:
        """Return at most so many bytes; none at the end."""
        if self._head:
            block, self._head = self._head[:size], self._head[size:]
            return block
        return self._file.read(size)


def begins_with_line(head: bytes) -> bool:
    """Tell whether the beginning of a file has a line, and it is one JSON value but not an array.

    Args:
        head: The first bytes of the file.
    """
    line, newline, _ = head.removeprefix(BOM).lstrip().partition(b"\n")
    return bool(newline) and not line.startswith(b"[") and _is_json(line)


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def ensure_readable(head: bytes, path: str, encoding: str = "utf-8") -> None:
    """Check that a file is text in its encoding.

    Args:
        head: Its first bytes.

    Raises:
        CorruptFile: it has another format; the error names it.
    """
    found = find_other_format(head, encoding)
    if found is not None:
        raise CorruptFile(path=path, reason=found, fix=CONVERT_FILE)


@contextmanager
def open_file(uri: str) -> Iterator[BinaryIO]:
    """Open a local file; one with the ending of a compression is decompressed while it is read.

    Raises:
        CorruptFile: it cannot be read.
    """
    path = _LOCAL.sub("/", uri)
    try:
        with _open_packed(path) if is_packed(uri) else open(path, "rb") as file:
            yield file
    except (OSError, EOFError, zlib.error) as error:
        reason = (getattr(error, "strerror", None) or str(error)).partition("\n")[0].rstrip(".")
        raise CorruptFile(path=uri, reason=reason, fix=RESTORE_FILE) from error


def _open_packed(path: str) -> Any:
    if path.lower().endswith(".gz"):
        return gzip.open(path, "rb")
    return bz2.open(path, "rb") if path.lower().endswith(".bz2") else pa.input_stream(path, compression="zstd")


# ---- checks before the batch -----------------------------------------------------------------------


def check_heads(spark: SparkSession, files: Sequence[SourceFile], check: Callable[[bytes], bool]) -> list[bool]:
    """Return what a check says of the first bytes of each file. One job reads them all, unless they are few.

    Args:
        files: Files that `can_read` accepts.
        check: The check; it runs in the tasks, or in this process.
    """
    ranges, check_file = [FileRange(file.uri, 0, HEAD_BYTES) for file in files], partial(_check_head, check)
    if is_driver(spark) and len(ranges) <= MAX_LOCAL_HEADS:
        return [_check_range(check_file, part) for part in ranges]
    return check_ranges(spark, ranges, check_file)


def _check_head(check: Callable[[bytes], bool], file: BinaryIO, part: FileRange) -> bool:
    return check(file.read(part.end))


def check_ranges(
    spark: SparkSession, ranges: Sequence[FileRange], check: Callable[[BinaryIO, FileRange], bool]
) -> list[bool]:
    """Return what a check says of each range. One job reads them all.

    Args:
        ranges: Ranges of files that `can_read` accepts.
        check: The check; it runs in the tasks.
    """
    if not ranges:
        return []
    rows = spark.range(len(ranges)).mapInArrow(partial(_check, ranges, check), "id bigint, result boolean").collect()
    return [row["result"] for row in sorted(rows)]


def _check(
    ranges: Sequence[FileRange], check: Callable[[BinaryIO, FileRange], bool], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        results = [_check_range(check, ranges[number]) for number in batch.column(0).to_pylist()]
        yield pa.RecordBatch.from_arrays([batch.column(0), pa.array(results, pa.bool_())], names=["id", "result"])


def _check_range(check: Callable[[BinaryIO, FileRange], bool], part: FileRange) -> bool:
    with open_file(part.uri) as file:
        return check(file, part)
