"""CSV rows and plain lines that Spark reads, as JSON texts: they take the same path as JSON, one record per row.

Source: docs/evolution-rules.md#d11, #d16
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from widen.spark.source.csv_dialect import CsvDialect, ensure_splittable, to_utf8
from widen.spark.source.csv_rows import FieldGroup, parse_rows, to_json_record
from widen.spark.source.csv_scan import RowScanner, RowStyle, has_breaks, read_head, read_header
from widen.spark.source.file_format import SNIFFED_BYTES
from widen.spark.source.file_ranges import HEAD_BYTES, ensure_readable
from widen.spark.source.json_texts import is_small, keep_file_order, text_lines, whole_files
from widen.spark.source.raw_batch import RAW_SCHEMA, RefusedTexts, TextGroup, as_raw_records, split_groups
from widen.spark.source.source_files import SourceFiles, as_literal

LINE_FIELD = "value"
"""The field of the record of a plain line."""

_HEAD_LINES, _HEAD_PIECES = 2_000, 5_000


def read_csv(spark: SparkSession, source: SourceFiles, dialect: CsvDialect) -> DataFrame:
    """Return the raw batch of CSV files.

    Tasks read a large file in parallel, unless one of its fields has a line break; then one task reads it.

    Raises:
        SourceError: a large file has an encoding in which a line break is not a single byte.
    """
    small = [file for file in source.files if is_small(file)]
    frames = [_read_texts(whole_files(spark, source, small), partial(_texts_of_files, dialect))] if small else []
    frames += [_read_large(spark, file.path, dialect) for file in source.files if not is_small(file)]
    return reduce(DataFrame.unionAll, frames)


def read_lines(spark: SparkSession, source: SourceFiles, *, detects: str = "") -> DataFrame:
    """Return the raw batch of plain text files: one record per line, with the field `LINE_FIELD`."""
    return _read_texts(text_lines(spark, [file.path for file in source.files]), partial(_texts_of_plain_lines, detects))


def _read_texts(texts: DataFrame, make: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> DataFrame:
    return texts.mapInArrow(make, RAW_SCHEMA)


def _read_large(spark: SparkSession, path: str, dialect: CsvDialect) -> DataFrame:
    ensure_splittable(path, dialect)
    # Spark would also end a line at a carriage return, which may stand in a quoted field; some files have no other end.
    pieces = spark.read.text(as_literal(path), lineSep=dialect.separator).select(F.col("value").cast("binary"))
    sample = b"".join(bytes(row[0]) for row in pieces.limit(_HEAD_PIECES).collect())
    line_end = "\r" if b"\r" in sample and b"\n" not in sample else "\n"
    lines = spark.read.text(as_literal(path), lineSep=line_end)
    collected = lines.select(F.col("value").cast("binary")).limit(_HEAD_LINES).collect()
    data = b"".join(bytes(row[0]) + line_end.encode() for row in collected)[:HEAD_BYTES]
    ensure_readable(data[:SNIFFED_BYTES], path, dialect.encoding)
    header, style = read_head(data, dialect, path)
    is_ordered = dialect.quote is not None and dialect.multi_line is not False
    if is_ordered:
        quoted = lines.where(F.contains("value", F.lit(dialect.quote))).select(F.col("value").cast("binary"))
        is_ordered = bool(quoted.mapInArrow(partial(_find_breaks, dialect), "found boolean").limit(1).collect())
    rows = text_lines(spark, [path], line_end)
    reader = _LineReader(dialect, header.names, style, line_end.encode(), is_ordered)
    return _read_texts(keep_file_order(rows) if is_ordered else rows, reader.read)


# ---- on the executors ------------------------------------------------------------------------------


def _find_breaks(dialect: CsvDialect, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield a row if a quoted field goes on after the end of its line."""
    for batch in batches:
        if any(has_breaks(line + b"\n", dialect) for line in batch.column(0).to_pylist()):
            yield pa.RecordBatch.from_pylist([{"found": True}])


def _texts_of_files(dialect: CsvDialect, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for group in _groups(batches):
        for content in group.texts:
            ensure_readable(content[:SNIFFED_BYTES], group.file, dialect.encoding)
            text = to_utf8(content, dialect)
            if text is None:
                refused = RefusedTexts(0, [content], [1], [f"it is not {dialect.encoding.upper()}"])
                yield refused.to_raw(group.file)
                continue
            # As in files that tasks read, only the first bytes tell how rows look.
            header, style = read_head(text[:HEAD_BYTES], dialect, group.file)
            rows = read_header(text, dialect, group.file).rows
            scanned = RowScanner(dialect, style, group.file, header.line).scan(rows, is_end=True)
            yield from _to_raw(parse_rows(scanned, header.names, dialect, group.file))


@dataclass(frozen=True)
class _LineReader:
    """Reads the records of the lines of one file.

    Args:
        line_end: What ended the lines.
        is_ordered: Whether one task gets all lines in order, because rows take several lines.
    """

    dialect: CsvDialect
    names: list[str]
    style: RowStyle
    line_end: bytes
    is_ordered: bool

    def read(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the records. In a file with rows over several lines, a row waits for its next lines."""
        scanner, place = None, ("", -1)
        for group in _groups(batches):
            if scanner is None or (place != (group.file, group.part) and not self.is_ordered):
                if scanner is not None:
                    yield from self._parse(scanner, b"", *place, is_end=True)
                scanner, place = RowScanner(self.dialect, self.style, group.file), (group.file, group.part)
                is_start = group.part == 0
            data = b"".join(line + self.line_end for line in group.texts)
            rows = to_utf8(data, self.dialect) or data
            if is_start:
                header, is_start = read_header(rows, self.dialect, group.file), False
                rows, scanner = header.rows, RowScanner(self.dialect, self.style, group.file, header.line)
            yield from self._parse(scanner, rows, *place)
        if scanner is not None:
            yield from self._parse(scanner, b"", *place, is_end=True)

    def _parse(
        self, scanner: RowScanner, rows: bytes, file: str, part: int, *, is_end: bool = False
    ) -> Iterator[pa.RecordBatch]:
        return _to_raw(parse_rows(scanner.scan(rows, is_end=is_end), self.names, self.dialect, file, part))


def _to_raw(groups: Iterable[FieldGroup]) -> Iterator[pa.RecordBatch]:
    return chain.from_iterable(group.to_raw() for group in groups)


def _texts_of_plain_lines(detects: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for group in _groups(batches):
        yield as_raw_records([_line_to_json(line, detects=detects) for line in group.texts], group.file, group.part)


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[TextGroup]:
    return chain.from_iterable(map(split_groups, batches))


def _line_to_json(line: bytes, *, detects: str) -> bytes:
    """Return the record of a plain line; the line itself if it is not UTF-8."""
    try:
        return to_json_record({LINE_FIELD: line.decode()}, detects=detects)
    except UnicodeDecodeError:
        return line
