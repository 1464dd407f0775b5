"""Files that the tasks read themselves: Spark only says which bytes, so no text passes through its JVM.

A row of a raw batch then stands for some ranges of files. That needs local files, since the tasks have no credentials
for another store, and their plain bytes.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

import re
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
from widen.spark.session import is_driver
from widen.spark.source.line_range import read_lines
from widen.spark.source.raw_batch import FILE, PART, RANGES_PART, RAW_SCHEMA, TEXT, WHOLE, TextGroup
from widen.spark.source.source_files import SourceFile
from widen.spark.spark_errors import RESTORE_FILE

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
MAX_RANGED_FILES = 10_000
"""Maximum number of files that are listed in the plan of a query."""

ArrowFunction: TypeAlias = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


class FileRange(msgspec.Struct, frozen=True, array_like=True):
    """Bytes of a file that one task reads.

    Args:
        uri: URI of the file, as in the column `FILE`.
        end: The byte after the last.
        is_whole: Whether the bytes are the whole file, in any form; else they are lines.
    """

    uri: str
    start: int
    end: int
    is_whole: bool = False


def can_read(files: Sequence[SourceFile]) -> bool:
    """Tell whether the tasks can read files themselves."""
    return len(files) <= MAX_RANGED_FILES and all(
        _PLAIN_URI.fullmatch(file.uri) is not None and _COMPRESSED.search(file.uri) is None for file in files
    )


def small_ranges(spark: SparkSession, files: Sequence[SourceFile]) -> pa.RecordBatch | None:
    """Return files as a raw batch of one row, for a task in this process; None if Spark has to run the tasks.

    A Spark job takes longer than such a task.
    """
    if not are_few(spark, files):
        return None
    ranges = [FileRange(file.uri, 0, file.size_bytes, True) for file in files]
    return range_batch(msgspec.json.encode(ranges), RANGES_PART)


def are_few(spark: SparkSession, files: Sequence[SourceFile]) -> bool:
    """Tell whether this process reads files faster than a Spark job."""
    size_bytes = sum(file.size_bytes for file in files)
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
    spark: SparkSession, whole: Sequence[SourceFile], lined: Sequence[SourceFile], partitions: int
) -> RangeTasks:
    """Return a raw batch of ranges.

    Args:
        whole: Files that are read as a whole.
        lined: Files with a record on each line.
        partitions: Number of partitions, if there are so many bytes.
    """
    limit = task_bytes((*whole, *lined), partitions)
    ranges = [FileRange(file.uri, 0, file.size_bytes, True) for file in whole]
    ranges += [part for file in lined for part in split_file(file, limit)]
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


def _read_range(part: FileRange) -> Iterator[TextGroup]:
    with open_file(part.uri) as file:
        if part.is_whole:
            yield TextGroup(part.uri, 0, True, [file.read()])
            return
        for lines in read_lines(file, part.start, part.end):
            yield TextGroup(part.uri, part.start, False, lines)


@contextmanager
def open_file(uri: str) -> Iterator[BinaryIO]:
    """Open a local file.

    Raises:
        CorruptFile: it cannot be read.
    """
    try:
        with open(_LOCAL.sub("/", uri), "rb") as file:
            yield file
    except OSError as error:
        reason = error.strerror or str(error)
        raise CorruptFile(path=uri, reason=reason, fix=RESTORE_FILE) from error


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
