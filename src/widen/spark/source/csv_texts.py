"""CSV rows and plain lines that Spark reads, as JSON texts: they take the same path as JSON, one record per row.

Source: docs/evolution-rules.md#d11, #d16
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, reduce
from itertools import chain

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from widen.spark.source.csv_dialect import CsvDialect, ensure_splittable, read_header, split_whole_rows, to_utf8
from widen.spark.source.csv_rows import FieldGroup, parse_rows, to_json_record
from widen.spark.source.json_texts import is_small, keep_file_order, text_lines, whole_files
from widen.spark.source.raw_batch import RAW_SCHEMA, TextGroup, as_raw_records, split_groups
from widen.spark.source.source_files import SourceFiles, as_literal

LINE_FIELD = "value"
"""The field of the record of a plain line."""

_HEAD_LINES = 100


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
    # Spark would also end a line at a carriage return, which may stand in a quoted field.
    lines = spark.read.text(as_literal(path), lineSep="\n")
    head = lines.select(F.col("value").cast("binary")).limit(_HEAD_LINES).collect()
    data = b"".join(bytes(row[0]) + b"\n" for row in head)
    names, _ = read_header(to_utf8(data, dialect) or data, dialect, path)
    quotes = F.length("value") - F.length(F.replace("value", F.lit(dialect.quote or "\0")))
    has_breaks = bool(lines.where(quotes % 2 == 1).limit(1).count())
    rows = text_lines(spark, [path], "\n")
    return _read_texts(keep_file_order(rows) if has_breaks else rows, partial(_texts_of_lines, dialect, names))


# ---- on the executors ------------------------------------------------------------------------------


def _texts_of_files(dialect: CsvDialect, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for group in _groups(batches):
        for content in group.texts:
            text = to_utf8(content, dialect)
            names, rows = ([], b"") if text is None else read_header(text, dialect, group.file)
            yield as_raw_records([content] if text is None else _to_json_texts(rows, names, dialect), group.file)


def _texts_of_lines(
    dialect: CsvDialect, names: Sequence[str], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the records of the lines of one file; a row that continues in the next lines waits for them."""
    last_split: tuple[str, int] = ("", -1)
    incomplete_row = b""
    for group in _groups(batches):
        data, split = b"".join(line + b"\n" for line in group.texts), (group.file, group.part)
        rows = to_utf8(data, dialect) or data
        is_start, last_split = split != last_split and group.part == 0, split
        rows, incomplete_row = split_whole_rows(
            incomplete_row + (read_header(rows, dialect, group.file)[1] if is_start else rows), dialect
        )
        yield as_raw_records(_to_json_texts(rows, names, dialect), *last_split)
    yield as_raw_records(_to_json_texts(incomplete_row, names, dialect), *last_split)


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


def _to_json_texts(rows: bytes, names: Sequence[str], dialect: CsvDialect) -> list[bytes]:
    """Return the JSON texts of rows in order; a row that is not a record stays as it is."""
    group = parse_rows(rows, names, dialect)
    return group.to_json_texts() if isinstance(group, FieldGroup) else group.texts
