"""Files that the tasks read themselves: Spark only says which bytes, so no text passes through its JVM.

A row of a raw batch then stands for some ranges of files. That needs local files, since the tasks have no credentials
for another store, and their plain bytes.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import pairwise
from math import ceil
from typing import BinaryIO

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from widen.errors import CorruptFile
from widen.spark.session import is_driver
from widen.spark.source.line_range import read_lines
from widen.spark.source.raw_batch import FILE, PART, RANGES_PART, TEXT, WHOLE, TextGroup, split_groups
from widen.spark.source.source_files import SourceFile
from widen.spark.spark_errors import RESTORE_FILE

MIN_TASK_BYTES = 4 * 2**20
"""Least bytes for which a task pays, as with Spark's own splits."""

MAX_LOCAL_BYTES = 2**20
"""Maximum number of bytes for which a task runs in this process."""

HEAD_BYTES = 2**20
"""Number of bytes at the beginning of a large file that tell whether it has a record on each line."""

_LOCAL = re.compile(r"file:/+(?=[^/])")
_PLAIN_URI = re.compile(r"file:/+[A-Za-z0-9/._=,@+-]+")
"""URIs without escapes, which are the same for Spark and for the tasks."""

_COMPRESSED = re.compile(r"\.(?:gz|bz2|zst|deflate|lz4|lzo|snappy|br|xz)(?:ip)?$", re.IGNORECASE)
MAX_RANGED_FILES = 10_000
"""Maximum number of files that are listed in the plan of a query."""

_SETTINGS = ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles")


class FileRange(msgspec.Struct, frozen=True, array_like=True):
    """Bytes of a file that one task reads.

    Args:
        uri: URI of the file, as in the column `FILE`.
        start: First byte.
        end: The byte after the last.
        is_whole: Whether the bytes are the whole file, in any form; else they are lines.
    """

    uri: str
    start: int
    end: int
    is_whole: bool = False


def can_read(spark: SparkSession, files: Sequence[SourceFile]) -> bool:
    """Tell whether the tasks can read files themselves.

    Args:
        spark: The session. If it skips missing or corrupt files, Spark has to read them.
        files: The files.
    """
    skips = any(str(spark.conf.get(name, "false")).lower() == "true" for name in _SETTINGS)
    return (
        not skips
        and len(files) <= MAX_RANGED_FILES
        and all(_PLAIN_URI.fullmatch(file.uri) is not None and _COMPRESSED.search(file.uri) is None for file in files)
    )


def small_ranges(spark: SparkSession, files: Sequence[SourceFile]) -> pa.RecordBatch | None:
    """Return files as a raw batch of one row, for a task in this process; None if Spark has to run the tasks.

    A Spark job takes longer than such a task.

    Args:
        spark: The session.
        files: The files.
    """
    if not is_driver(spark) or sum(file.size_bytes for file in files) > MAX_LOCAL_BYTES or not can_read(spark, files):
        return None
    ranges = [FileRange(file.uri, 0, file.size_bytes, True) for file in files]
    row = {TEXT: msgspec.json.encode(ranges), FILE: "", PART: RANGES_PART, WHOLE: False}
    return pa.RecordBatch.from_pylist([row])


def read_ranges(
    spark: SparkSession, whole: Sequence[SourceFile], lined: Sequence[SourceFile], partitions: int
) -> DataFrame:
    """Return a raw batch of ranges.

    Args:
        spark: The session.
        whole: Files that are read as a whole.
        lined: Files with a record on each line.
        partitions: Number of partitions, if there are so many bytes.
    """
    total = sum(file.size_bytes for file in (*whole, *lined))
    task_bytes = max(MIN_TASK_BYTES, ceil(total / partitions))
    ranges = [FileRange(file.uri, 0, file.size_bytes, True) for file in whole]
    ranges += [part for file in lined for part in _split(file, task_bytes)]
    lists = [msgspec.json.encode(each).decode() for each in _pack(ranges, task_bytes)]
    text = F.get(F.array(*map(F.lit, lists)), F.col("id").cast("int")).cast("binary")
    return spark.range(0, len(lists), 1, len(lists)).select(
        text.alias(TEXT),
        F.lit("").alias(FILE),
        F.lit(RANGES_PART).cast("bigint").alias(PART),
        F.lit(False).alias(WHOLE),
    )


def _split(file: SourceFile, task_bytes: int) -> list[FileRange]:
    """Return the ranges of a file with lines: as few and as equal as the bytes of a task allow."""
    count = max(1, round(file.size_bytes / task_bytes))
    cuts = [file.size_bytes * number // count for number in range(count + 1)]
    return [FileRange(file.uri, start, end) for start, end in pairwise(cuts)]


def _pack(ranges: Sequence[FileRange], task_bytes: int) -> list[list[FileRange]]:
    """Return the ranges for each task, in order, each about as large as the bytes of a task."""
    tasks: list[list[FileRange]] = []
    free = 0
    for each in ranges:
        size = each.end - each.start
        if not tasks or size // 2 > free:
            tasks.append([])
            free = task_bytes
        tasks[-1].append(each)
        free -= size
    return tasks


def read_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[TextGroup]:
    """Yield the texts of a raw batch in a task; the texts of ranges are read from their files.

    Raises:
        CorruptFile: a file cannot be read.
    """
    for batch in batches:
        for group in split_groups(batch):
            if group.part != RANGES_PART:
                yield group
                continue
            for each in group.texts:
                for part in msgspec.json.decode(each, type=list[FileRange]):
                    yield from _read_range(part)


def _read_range(part: FileRange) -> Iterator[TextGroup]:
    with _open(part.uri) as file:
        if part.is_whole:
            yield TextGroup(part.uri, 0, True, [file.read()])
            return
        for lines in read_lines(file, part.start, part.end):
            yield TextGroup(part.uri, part.start, False, lines)


@contextmanager
def _open(uri: str) -> Iterator[BinaryIO]:
    try:
        with open(_LOCAL.sub("/", uri), "rb") as file:
            yield file
    except OSError as error:
        reason = error.strerror or str(error)
        raise CorruptFile(path=uri, reason=reason, fix=RESTORE_FILE) from error


# ---- heads -----------------------------------------------------------------------------------------


def check_heads(spark: SparkSession, files: Sequence[SourceFile], check: Callable[[bytes], bool]) -> list[bool]:
    """Return what a check says of the first bytes of each file. One job reads them all.

    Args:
        spark: The session.
        files: Files that `can_read` accepts.
        check: The check; it runs in the tasks.
    """
    if not files:
        return []
    task = partial(_check_heads, [file.uri for file in files], check)
    rows = spark.range(len(files)).mapInArrow(task, "id bigint, found boolean").collect()
    return [row["found"] for row in sorted(rows)]


def _check_heads(
    uris: Sequence[str], check: Callable[[bytes], bool], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        found = []
        for number in batch.column(0).to_pylist():
            with _open(uris[number]) as file:
                found.append(check(file.read(HEAD_BYTES)))
        yield pa.RecordBatch.from_arrays([batch.column(0), pa.array(found, pa.bool_())], names=["id", "found"])
