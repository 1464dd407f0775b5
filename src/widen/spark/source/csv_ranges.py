"""CSV files that the tasks read themselves, as columns of texts; see `widen.spark.source.file_ranges`.

Source: docs/evolution-rules.md#d16
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, BinaryIO

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from widen.spark.source import csv_scan
from widen.spark.source.csv_dialect import CsvDialect, ensure_splittable, is_splittable, to_utf8
from widen.spark.source.csv_rows import FieldGroup, parse_rows
from widen.spark.source.csv_scan import LINE_END, RowScanner, read_head
from widen.spark.source.file_format import SNIFFED_BYTES
from widen.spark.source.file_ranges import (
    HEAD_BYTES,
    FileRange,
    JoinedFile,
    RangeTasks,
    are_few,
    check_ranges,
    ensure_readable,
    open_file,
    pack_ranges,
    range_batch,
    split_file,
    task_bytes,
)
from widen.spark.source.json_texts import is_small
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
    large = [file for file in source.files if not (is_small(file) or file.is_compressed)]
    for file in large:
        ensure_splittable(file.path, dialect)
    limit = task_bytes(source.files, count_partitions(spark, source))
    parts = {file.uri: split_file(file, limit) for file in large}
    split = [part for each in parts.values() for part in each if len(each) > 1]
    # A task that begins within a quoted field would take its rest for rows, so such a file is not split.
    can_break = dialect.quote is not None and dialect.multi_line is not False
    checked = check_ranges(spark, split, partial(has_breaks, dialect)) if can_break else [False] * len(split)
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


def has_breaks(dialect: CsvDialect, file: BinaryIO, part: FileRange) -> bool:
    """Tell whether a field in a range may have a line break."""
    blocks = read_line_blocks(file, part.start, part.end, limit=dialect.max_record_bytes, path=part.uri)
    return any(csv_scan.has_breaks(block, dialect) for block in blocks)


def read_csv_groups(text: bytes) -> Iterator[FieldGroup | TextGroup]:
    """Yield the rows of the ranges of a task.

    Args:
        text: `CsvRanges` as JSON.

    Raises:
        CorruptFile: a quote is not closed, a row is too long, or the file is not CSV.
    """
    task = msgspec.json.decode(text, type=CsvRanges)
    for part in task.ranges:
        with open_file(part.uri) as file:
            yield from _read_range(file, part, task.dialect)


def _read_range(file: BinaryIO, part: FileRange, dialect: CsvDialect) -> Iterator[FieldGroup | TextGroup]:
    if not is_splittable(dialect):
        yield from _read_file(file, part, dialect)
        return
    head = file.read(HEAD_BYTES)
    ensure_readable(head[:SNIFFED_BYTES], part.uri, dialect.encoding)
    header, style = read_head(head, dialect, part.uri)
    # A task that begins at the header, or in blank lines before it, begins after them.
    begin = _skip_lines(head, header.line - 1)
    start, end = max(part.start, begin), part.end
    source: Any = file
    if part.is_whole:
        source, start, end = JoinedFile(head[begin:], file), 0, sys.maxsize
    scanner = RowScanner(dialect, style, part.uri, header.line if part.start <= begin else 1)
    for block in read_line_blocks(source, start, end, limit=dialect.max_record_bytes, path=part.uri):
        scanned = scanner.scan(to_utf8(block, dialect) or block, is_end=False)
        yield from parse_rows(scanned, header.names, dialect, part.uri, part.start)
    yield from parse_rows(scanner.scan(b"", is_end=True), header.names, dialect, part.uri, part.start)


def _skip_lines(data: bytes, count: int) -> int:
    """Return where the line begins after some lines."""
    ends = LINE_END.finditer(data)
    end = next(islice(ends, count - 1, None), None) if count else None
    return len(data) if count and end is None else end.end() if end else 0


def _read_file(file: BinaryIO, part: FileRange, dialect: CsvDialect) -> Iterator[FieldGroup | TextGroup]:
    """Yield the rows of a file whose encoding has no line breaks of one byte."""
    content = file.read(dialect.max_record_bytes + 1)
    if len(content) > dialect.max_record_bytes:
        ensure_splittable(part.uri, dialect)
    ensure_readable(content[:SNIFFED_BYTES], part.uri, dialect.encoding)
    text = to_utf8(content, dialect)
    if text is None:
        yield TextGroup(part.uri, 0, False, [content], [1], [f"it is not {dialect.encoding.upper()}"])
        return
    header, style = read_head(text, dialect, part.uri)
    scanned = RowScanner(dialect, style, part.uri, header.line).scan(header.rows, is_end=True)
    yield from parse_rows(scanned, header.names, dialect, part.uri)
