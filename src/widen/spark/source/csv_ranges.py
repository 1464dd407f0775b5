"""CSV files that the tasks read themselves, as columns of texts; see `widen.spark.source.file_ranges`.

Source: docs/evolution-rules.md#d16
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import BinaryIO

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from widen.spark.source.csv_dialect import CsvDialect, ensure_splittable, read_header, split_whole_rows, to_utf8
from widen.spark.source.csv_rows import FieldGroup, parse_rows
from widen.spark.source.file_ranges import (
    HEAD_BYTES,
    FileRange,
    RangeTasks,
    are_few,
    check_ranges,
    open_file,
    pack_ranges,
    range_batch,
    split_file,
    task_bytes,
)
from widen.spark.source.json_texts import MAX_WHOLE_FILE_BYTES, is_small
from widen.spark.source.line_range import read_line_blocks
from widen.spark.source.raw_batch import CSV_RANGES_PART, TextGroup
from widen.spark.source.source_files import SourceFile, SourceFiles, count_partitions


class CsvRanges(msgspec.Struct, frozen=True):
    """What one task reads.

    Args:
        ranges: The bytes. A file that is read as a whole may have fields with line breaks.
    """

    ranges: list[FileRange]
    dialect: CsvDialect


def read_csv_ranges(spark: SparkSession, source: SourceFiles, dialect: CsvDialect) -> RangeTasks:
    """Return the raw batch of CSV files that `widen.spark.source.file_ranges.can_read` accepts.

    Several tasks read a large file, unless one of its fields has a line break; then one task reads it.

    Raises:
        SourceError: a large file has an encoding in which a line break is not a single byte.
    """
    large = [file for file in source.files if not is_small(file)]
    for file in large:
        ensure_splittable(file.path, dialect)
    limit = task_bytes(source.files, count_partitions(spark, source))
    parts = {file.uri: split_file(file, limit) for file in large}
    split = [part for each in parts.values() for part in each if len(each) > 1]
    # A task that begins within a quoted field would take its rest for rows, so such a file is not split.
    checked = check_ranges(spark, split, partial(has_breaks, dialect.quote)) if dialect.quote else [False] * len(split)
    for part, is_broken in zip(split, checked, strict=True):
        if is_broken:
            parts.pop(part.uri, None)
    whole = {file.uri: [FileRange(file.uri, 0, file.size_bytes, True)] for file in source.files}
    ranges = [part for each in (whole | parts).values() for part in each]
    tasks = [msgspec.json.encode(CsvRanges(each, dialect)) for each in pack_ranges(ranges, limit)]
    return RangeTasks(spark, tasks, CSV_RANGES_PART)


def small_csv_ranges(spark: SparkSession, files: Sequence[SourceFile], dialect: CsvDialect) -> pa.RecordBatch | None:
    """Return CSV files as a raw batch of one row, for a task in this process; None if Spark has to run the tasks."""
    if not are_few(spark, files):
        return None
    ranges = [FileRange(file.uri, 0, file.size_bytes, True) for file in files]
    return range_batch(msgspec.json.encode(CsvRanges(ranges, dialect)), CSV_RANGES_PART)


# ---- on the executors ------------------------------------------------------------------------------


def has_breaks(quote: str, file: BinaryIO, part: FileRange) -> bool:
    """Tell whether a field in a range may have a line break: a line then has an odd number of quotes.

    Args:
        quote: Character around quoted fields.
    """
    mark = quote.encode()
    return any(
        line.count(mark) % 2
        for block in read_line_blocks(file, part.start, part.end)
        if mark in block
        for line in block.split(b"\n")
    )


def read_csv_groups(text: bytes) -> Iterator[FieldGroup | TextGroup]:
    """Yield the rows of the ranges of a task.

    Args:
        text: `CsvRanges` as JSON.

    Raises:
        SourceError: a quoted field does not end.
    """
    task = msgspec.json.decode(text, type=CsvRanges)
    for part in task.ranges:
        with open_file(part.uri) as file:
            yield from _read_range(file, part, task.dialect)


def _read_range(file: BinaryIO, part: FileRange, dialect: CsvDialect) -> Iterator[FieldGroup | TextGroup]:
    if part.is_whole and part.end <= MAX_WHOLE_FILE_BYTES:
        yield _read_file(file, part, dialect)
        return
    names, incomplete_row, is_start = _read_names(file, dialect, part.uri), b"", part.start == 0
    for block in read_line_blocks(file, part.start, part.end):
        rows = to_utf8(block, dialect) or block
        if is_start:
            rows, is_start = read_header(rows, dialect, part.uri)[1], False
        if part.is_whole:
            rows, incomplete_row = split_whole_rows(incomplete_row + rows, dialect)
        yield parse_rows(rows, names, dialect, part.uri, part.start)
    yield parse_rows(incomplete_row, names, dialect, part.uri, part.start)


def _read_file(file: BinaryIO, part: FileRange, dialect: CsvDialect) -> FieldGroup | TextGroup:
    content = file.read()
    text = to_utf8(content, dialect)
    if text is None:
        return TextGroup(part.uri, 0, False, [content])
    names, rows = read_header(text, dialect, part.uri)
    return parse_rows(rows, names, dialect, part.uri)


def _read_names(file: BinaryIO, dialect: CsvDialect, path: str) -> list[str]:
    """Return the names of the fields of a large file."""
    file.seek(0)
    head = file.read(HEAD_BYTES)
    lines = head[: head.rfind(b"\n") + 1] or head
    return read_header(to_utf8(lines, dialect) or lines, dialect, path)[0]
