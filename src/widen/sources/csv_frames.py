"""CSV rows and plain lines that Spark reads, as JSON texts: they take the same path as JSON, one record per row.

Source: docs/evolution-rules.md#d11, #d16
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, reduce
from itertools import chain, islice
from math import ceil
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec
import pyarrow as pa

from widen.json.document import not_a_record
from widen.limits import CSV_PROOF_BYTES, CSV_SCAN_BYTES
from widen.model.value_classes import dataclass
from widen.proof.proof_files import FileTasks, ProofFile
from widen.sources.csv_detection import CsvDialects
from widen.sources.csv_dialect import (
    EXACT_VALUES,
    LINE_END,
    WRITTEN_VALUES,
    CsvDialect,
    FieldGroup,
    RowScanner,
    RowStyle,
    ensure_splittable,
    has_breaks,
    is_splittable,
    look_at_head,
    parse_rows,
    read_head,
    read_header,
    to_json_record,
    to_utf8,
)
from widen.sources.file_ranges import (
    CSV_RANGES_PART,
    HEAD_BYTES,
    RAW_SCHEMA,
    FileRange,
    JoinedFile,
    RangeTasks,
    RefusedTexts,
    TextGroup,
    are_few,
    as_raw_records,
    can_read,
    check_range,
    check_ranges,
    ensure_file_readable,
    find_sample_ranges,
    is_small,
    open_file,
    pack_ranges,
    range_batch,
    read_here,
    read_line_blocks,
    split_file,
    split_groups,
    task_bytes,
)
from widen.sources.json_frames import SPLITS, keep_file_order, text_lines, whole_files
from widen.sources.listing import SNIFFED_BYTES, SourceFile, SourceFiles, as_literal, count_partitions
from widen.spark.engine import Session, find_started, require_spark
from widen.spark.session import is_driver
from widen.spark.spark_types import DataFrame, F, SparkSession

if TYPE_CHECKING:
    from widen.proof.csv_reader import CsvForm, CsvHead, CsvText

LINE_FIELD = "value"
"""The field of the record of a plain line."""


_HEAD_LINES, _HEAD_PIECES, _PROOF_ROWS = 2_000, 5_000, 10_000


def read_csv(session: Session, source: SourceFiles, dialects: CsvDialects) -> DataFrame:
    """Return the raw batch of CSV files.

    Tasks read a large file in parallel, unless one of its fields has a line break; then one task reads it.
    """
    spark, frames = require_spark(session, SPLITS), []
    for dialect, files in dialects.group(source.files, _uri_of):
        small = [file for file in files if is_small(file)]
        if small:
            frames.append(_read_texts(whole_files(spark, source, small), partial(_texts_of_files, dialect)))
        frames += [_read_large(spark, file.path, dialect) for file in files if not is_small(file)]
    return reduce(DataFrame.unionAll, frames)


def _uri_of(file: SourceFile) -> str:
    return file.uri


def read_csv_lines(spark: Session, source: SourceFiles, *, detects: str = "") -> DataFrame:
    """Return the raw batch of plain text files: one record per line, with the field `LINE_FIELD`."""
    make = partial(_texts_of_plain_lines, detects)
    started = find_started(spark)
    if started is not None:
        return _read_texts(text_lines(started, [file.path for file in source.files]), make)
    limit = task_bytes(source.files, count_partitions(spark, source))
    whole = [FileRange(file.uri, 0, sys.maxsize) for file in source.files if file.is_compressed]
    split = [part for file in source.files if not file.is_compressed for part in split_file(file, limit)]
    return _read_texts(read_here(spark, [*whole, *split]), make)


def _read_texts(texts: DataFrame, make: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]) -> DataFrame:
    return texts.mapInArrow(make, RAW_SCHEMA)


def _read_large(spark: SparkSession, path: str, dialect: CsvDialect) -> DataFrame:
    ensure_splittable(path, dialect)
    line_end, data = _read_beginning(spark, path, dialect)
    header, style = read_head(data, dialect, path)
    is_ordered = _may_break(spark, path, line_end, dialect, partial(_find_breaks, dialect))
    rows = text_lines(spark, [path], line_end)
    reader = _LineReader(dialect, header.names, style, line_end.encode(), is_ordered)
    return _read_texts(keep_file_order(rows) if is_ordered else rows, reader.read)


def _read_beginning(spark: SparkSession, path: str, dialect: CsvDialect) -> tuple[str, bytes]:
    """Return what ends the lines of a large file, and its first lines."""
    # Spark would also end a line at a carriage return, which may stand in a quoted field; some files have no other end.
    pieces = spark.read.text(as_literal(path), lineSep=dialect.separator).select(F.col("value").cast("binary"))
    sample = b"".join(bytes(row[0]) for row in pieces.limit(_HEAD_PIECES).collect())
    line_end = "\r" if b"\r" in sample and b"\n" not in sample else "\n"
    lines = spark.read.text(as_literal(path), lineSep=line_end)
    collected = lines.select(F.col("value").cast("binary")).limit(_HEAD_LINES).collect()
    data = b"".join(bytes(row[0]) + line_end.encode() for row in collected)[:HEAD_BYTES]
    ensure_file_readable(data[:SNIFFED_BYTES], path, dialect.encoding)
    return line_end, data


def _may_break(
    spark: SparkSession,
    path: str,
    line_end: str,
    dialect: CsvDialect,
    find: Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]],
) -> bool:
    """Return whether quoted fields of a large file may go on after the end of a line.

    Args:
        find: Yields a row for lines where that is so.
    """
    if dialect.quote is None or dialect.multi_line is False:
        return False
    lines = spark.read.text(as_literal(path), lineSep=line_end)
    quoted = lines.where(F.contains("value", F.lit(dialect.quote))).select(F.col("value").cast("binary"))
    return bool(quoted.mapInArrow(find, "found boolean").limit(1).collect())


def read_csv_for_proof(spark: Session, source: SourceFiles, dialects: CsvDialects) -> DataFrame:
    """Return the raw batch like `read_csv`, but cut into rows by the proof's own reader."""
    frames = []
    for dialect, files in dialects.group(source.files, _uri_of):
        form, small = _proof_form(dialect), [file for file in files if is_small(file)]
        if small:
            frames.append(_read_texts(whole_files(spark, source, small), partial(_prove_files, form)))
        large = [file.path for file in files if not is_small(file)]
        frames += [_read_large_for_proof(require_spark(spark, SPLITS), path, dialect, form) for path in large]
    return reduce(DataFrame.unionAll, frames)


def find_csv_tasks(spark: Session, source: SourceFiles, dialects: CsvDialects) -> FileTasks | None:
    """Return the files for the tasks of the proof; None if Spark has to read them: one task reads a file, which takes
    long if it is large and has to be decoded or read in Python.
    """
    from widen.proof.record_digests import find_native_readers

    if not (is_driver(spark) and can_read(spark, source.files)):
        return None
    files = []
    for file in source.files:
        form = _proof_form(dialects.of(file.uri))
        most_bytes = CSV_PROOF_BYTES if form.is_native and find_native_readers() is not None else 0
        if not (is_small(file) or (file.size_bytes <= most_bytes and not file.is_compressed)):
            return None
        files.append(ProofFile(file.uri, file.size_bytes, True, form))
    count = ceil(source.text_bytes / task_bytes(source.files, count_partitions(spark, source))) or 1
    return FileTasks(tuple(files), count, are_few(spark, source.files))


def _proof_form(dialect: CsvDialect) -> CsvForm:
    from widen.proof.csv_reader import CsvForm

    return CsvForm(
        separator=dialect.separator.encode(),
        quote=(dialect.quote or "").encode(),
        escape=b"" if dialect.escape in (None, dialect.quote) else dialect.escape.encode(),
        has_header=dialect.header,
        null=dialect.null.encode(),
        encoding=dialect.encoding,
        is_multi_line=dialect.multi_line,
        values=dialect.detects,
        spelling=_SPELLINGS.get(dialect.detects, "") if dialect.decimal == "." else "",
        decimal=dialect.decimal,
        skips_first_line=dialect.has_separator_line,
    )


_SPELLINGS = {EXACT_VALUES: "exact", WRITTEN_VALUES: "written"}


def _read_large_for_proof(spark: SparkSession, path: str, dialect: CsvDialect, form: CsvForm) -> DataFrame:
    from widen.proof.csv_reader import read_csv_head
    from widen.proof.csv_reader import recode as proof_text

    line_end, data = _read_beginning(spark, path, dialect)
    head = read_csv_head(proof_text(data, form) or data, form)
    is_ordered = _may_break(spark, path, line_end, dialect, partial(_find_open_lines, form))
    rows = text_lines(spark, [path], line_end)
    read = partial(_prove_lines, form, head, line_end.encode())
    return _read_texts(keep_file_order(rows) if is_ordered else rows, read)


# ---- on the executors ------------------------------------------------------------------------------


def _find_breaks(dialect: CsvDialect, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield a row if a quoted field goes on after the end of its line."""
    for batch in batches:
        if any(has_breaks(line + b"\n", dialect) for line in batch.column(0).to_pylist()):
            yield pa.RecordBatch.from_pylist([{"found": True}])


def _texts_of_files(dialect: CsvDialect, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for group in _groups(batches):
        for content in group.texts:
            ensure_file_readable(content[:SNIFFED_BYTES], group.file, dialect.encoding)
            text = to_utf8(content, dialect)
            if text is None:
                reason = not_a_record("CSV", f"it is not {dialect.encoding.upper()}")
                refused = RefusedTexts(0, [content], [1], [reason])
                yield refused.to_raw(group.file)
                continue
            yield from _to_raw(_rows_of_text(text, dialect, group.file))


def _find_open_lines(form: CsvForm, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield a row if a line is not a row by itself, for the proof."""
    from widen.proof.csv_reader import is_one_row

    for batch in batches:
        if not all(is_one_row(line + b"\n", form) for line in batch.column(0).to_pylist()):
            yield pa.RecordBatch.from_pylist([{"found": True}])


def _prove_files(form: CsvForm, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from widen.proof.csv_reader import read_csv_file

    for group in _groups(batches):
        for content in group.texts:
            yield from _proof_texts_to_raw(read_csv_file(content, form), group.file, 0)


def _prove_lines(
    form: CsvForm, head: CsvHead, line_end: bytes, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the texts of the lines of one file. Spark gives its splits in order if rows take several lines."""
    from widen.proof.csv_reader import CsvReader, read_csv_head
    from widen.proof.csv_reader import recode as proof_text

    reader, last = CsvReader(form, head), ("", -1)
    for group in _groups(batches):
        data = b"".join(line + line_end for line in group.texts)
        text = proof_text(data, form) or data
        if group.part == 0 and last != (group.file, 0):
            text = text[read_csv_head(text, form).size :]
        last = group.file, group.part
        yield from _proof_texts_to_raw(reader.read(text.splitlines(keepends=True)), *last)
    yield from _proof_texts_to_raw(reader.read((), is_end=True), *last)


def _proof_texts_to_raw(texts: Iterable[CsvText], file: str, part: int) -> Iterator[pa.RecordBatch]:
    rows = iter(texts)
    while some := list(islice(rows, _PROOF_ROWS)):
        yield as_raw_records([each.text for each in some if each.is_record], file, part)
        refused = [each.text for each in some if not each.is_record]
        if refused:
            yield RefusedTexts(part, refused, [0] * len(refused), [""] * len(refused)).to_raw(file)


@dataclass(frozen=True)
class _LineReader:
    """Reads the records of the lines of one file.

    Args:
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


def _to_raw(groups: Iterable[FieldGroup | TextGroup]) -> Iterator[pa.RecordBatch]:
    for group in groups:
        if isinstance(group, FieldGroup):
            yield from group.to_raw()
        else:
            yield as_raw_records(group.texts, group.file, group.part)


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


# CSV files that the tasks read themselves, as columns of texts; see `widen.sources.file_ranges`.
#
# Source: docs/evolution-rules.md#d16


class CsvRanges(msgspec.Struct, frozen=True):
    """What one task reads.

    Args:
        ranges: The bytes. A file that is read as a whole may have fields with line breaks.
        others: The dialects of the files that have another one, by their URIs.
    """

    ranges: list[FileRange]
    dialect: CsvDialect
    others: dict[str, CsvDialect] = {}


def read_csv_ranges(spark: Session, source: SourceFiles, dialects: CsvDialects) -> RangeTasks:
    """Return the raw batch of CSV files that `widen.sources.file_ranges.can_read` accepts.

    Several tasks read a large file, unless one of its fields has a line break; then one task reads it.
    """
    limit = task_bytes(source.files, count_partitions(spark, source))
    whole = {file.uri: [FileRange(file.uri, 0, file.size_bytes, True)] for file in source.files}
    for dialect, files in dialects.group(source.files, _uri_of):
        whole |= _split_files(spark, files, dialect, limit)
    ranges = [part for each in whole.values() for part in each]
    tasks = [_encode_ranges(each, dialects) for each in pack_ranges(ranges, limit)]
    return RangeTasks(spark, tasks, CSV_RANGES_PART)


def _encode_ranges(ranges: list[FileRange], dialects: CsvDialects) -> bytes:
    others = {part.uri: dialects.others[part.uri] for part in ranges if part.uri in dialects.others}
    return msgspec.json.encode(CsvRanges(ranges, dialects.default, others))


def _split_files(
    spark: Session, files: Sequence[SourceFile], dialect: CsvDialect, limit: int
) -> dict[str, list[FileRange]]:
    """Return the parts of the files that several tasks can read."""
    large = [file for file in files if not (is_small(file) or file.is_compressed)]
    for file in large:
        ensure_splittable(file.path, dialect)
    parts = {file.uri: split_file(file, limit) for file in large}
    split = [part for each in parts.values() for part in each if len(each) > 1]
    # A task that begins within a quoted field would read the rest of the field as rows, so do not split such a file.
    can_break = dialect.quote is not None and dialect.multi_line is not False
    if can_break and is_driver(spark) and sum(file.size_bytes for file in large) <= CSV_SCAN_BYTES:
        can_break = any(_has_quotes(file, dialect) for file in large)
    checked = check_ranges(spark, split, partial(starts_in_quotes, dialect)) if can_break else [False] * len(split)
    for part, is_broken in zip(split, checked, strict=True):
        if is_broken:
            parts.pop(part.uri, None)
    return parts


def _has_quotes(file: SourceFile, dialect: CsvDialect) -> bool:
    quote = (dialect.quote or "").encode()
    with open_file(file.uri) as opened:
        return len(quote) != 1 or any(quote in block for block in iter(partial(opened.read, 2**20), b""))


def small_csv_ranges(spark: Session, files: Sequence[SourceFile], dialects: CsvDialects) -> pa.RecordBatch | None:
    """Return CSV files as a raw batch of one row, for a task in this process; None if Spark has to run the tasks."""
    if not are_few(spark, files):
        return None
    ranges = [FileRange(file.uri, 0, file.size_bytes, True) for file in files]
    return range_batch(_encode_ranges(ranges, dialects), CSV_RANGES_PART)


def find_csv_sample(spark: Session, source: SourceFiles, dialects: CsvDialects) -> pa.RecordBatch | None:
    """Return a sample as a raw batch of one row, for a task in this process; see `find_sample_ranges`.

    Returns:
        None also if a field may have a line break, since the sample could end within it.
    """
    is_divisible = all(map(is_splittable, (dialects.default, *dialects.others.values())))
    ranges = find_sample_ranges(spark, source) if is_divisible else None
    if ranges is None or any(check_range(partial(starts_in_quotes, dialects.of(part.uri)), part) for part in ranges):
        return None
    return range_batch(_encode_ranges(ranges, dialects), CSV_RANGES_PART)


# ---- on the executors ------------------------------------------------------------------------------


def starts_in_quotes(dialect: CsvDialect, file: BinaryIO, part: FileRange) -> bool:
    """Return whether a field in a range may have a line break."""
    blocks = read_line_blocks(file, part.start, part.end, limit=dialect.max_record_bytes, path=part.uri)
    return any(has_breaks(block, dialect) for block in blocks)


def read_csv_groups(text: bytes) -> Iterator[FieldGroup | TextGroup]:
    """Yield the rows of the ranges of a task."""
    task = msgspec.json.decode(text, type=CsvRanges)
    for part in task.ranges:
        with open_file(part.uri) as file:
            yield from _read_range(file, part, task.others.get(part.uri, task.dialect))


def _read_range(file: BinaryIO, part: FileRange, dialect: CsvDialect) -> Iterator[FieldGroup | TextGroup]:
    if not is_splittable(dialect):
        yield from _read_file(file, part, dialect)
        return
    head = file.read(HEAD_BYTES)
    ensure_file_readable(head[:SNIFFED_BYTES], part.uri, dialect.encoding)
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
        yield from parse_rows(scanned, header.names, dialect, part.name, part.start)
    yield from parse_rows(scanner.scan(b"", is_end=True), header.names, dialect, part.name, part.start)


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
    ensure_file_readable(content[:SNIFFED_BYTES], part.uri, dialect.encoding)
    text = to_utf8(content, dialect)
    if text is None:
        yield TextGroup(part.name, 0, False, [content], [1], [f"it is not {dialect.encoding.upper()}"])
        return
    yield from _rows_of_text(text, dialect, part.uri)


def _rows_of_text(text: bytes, dialect: CsvDialect, path: str) -> Iterator[FieldGroup | TextGroup]:
    """Yield the rows of a whole file in UTF-8."""
    # As in files that tasks read in parts, only the first bytes tell how rows look.
    _, style = look_at_head(text[:HEAD_BYTES], dialect, path)
    header = read_header(text, dialect, path)
    scanned = RowScanner(dialect, style, path, header.line).scan(header.rows, is_end=True)
    yield from parse_rows(scanned, header.names, dialect, path)
