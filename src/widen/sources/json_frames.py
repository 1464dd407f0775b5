"""Raw batches: the records of files as a DataFrame of JSON texts.

The executors read a small file as a whole and split it, regardless of its form. They read a large file line by line and
in parallel if it has a record on each line. Otherwise one task reads it from beginning to end and never holds more than
a record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial, reduce
from itertools import chain
from math import ceil
from typing import Any

import msgspec
import pyarrow as pa

from widen.errors import InvalidOption, SourceError
from widen.json.document import BOM, MAX_RECORD_BYTES, RecordSplitter
from widen.json.record_path import RecordFinder, RecordPath
from widen.model.types import quote_name
from widen.model.value_classes import dataclass
from widen.proof.proof_files import FileTasks, ProofFile
from widen.sources.file_ranges import (
    FILE,
    FOUND_PART,
    PART,
    RANGES_PART,
    RAW_SCHEMA,
    TEXT,
    WHOLE,
    FileRange,
    RawTexts,
    are_few,
    as_raw_records,
    begins_with_line,
    can_read,
    check_heads,
    find_sample_ranges,
    is_small,
    range_batch,
    read_here,
    read_ranges,
    task_bytes,
    to_frame,
)
from widen.sources.listing import (
    COMPRESSION_ENDINGS,
    FILE_SOURCES,
    SourceFile,
    SourceFiles,
    as_literal,
    count_partitions,
)
from widen.spark.engine import Session, find_started, is_local, require_spark
from widen.spark.session import SKIP_NO_FILE, is_driver
from widen.spark.spark_types import Column, DataFrame, DataFrameReader, F, SparkSession

MULTI_LINE = "multiLine"
"""The option for records that take several lines, named as in Spark. One task then reads each large file."""

MAX_LISTED_FILES = 1_000
"""Maximum number of files that are listed by name, so that no pass reads a file that came later."""

_SIZE, _VALUE = "size", "value"
_FEW_CHUNKS, _HEAD_CHUNKS, _PARALLEL_CHECKS = 50, 5_000, 8


@dataclass(frozen=True)
class JsonFiles:
    """JSON files. The beginnings of large files are read once, to detect their forms."""

    spark: Session
    source: SourceFiles
    limit: int = MAX_RECORD_BYTES
    path: RecordPath | None = None

    def read(self) -> RawTexts:
        """Return the raw batch of the files. The tasks read plain local files themselves."""
        spark, source = self.spark, self.source
        if not can_read(spark, source.files):
            return read_json_by_spark(spark, source, self.limit, self.path)
        small, lined, streamed = self._forms
        if is_local(spark) or self.path is not None:  # a task here reads a file of any form, record by record
            small, streamed = [*small, *streamed], []
        partitions = count_partitions(spark, source)
        multi = is_multi_line(source)
        ranges = None
        if small or lined:
            ranges = read_ranges(spark, small, lined, partitions, self.limit, is_multi_line=multi)
        if ranges is not None and not streamed:
            return ranges
        frames = [] if ranges is None else [to_frame(ranges)]
        frames += [_stream_records(require_spark(spark, SPLITS), file.path, self.limit) for file in streamed]
        return reduce(DataFrame.unionAll, frames)

    def find_tasks(self) -> FileTasks | None:
        """Return the files for the tasks of the proof; None if Spark has to read them."""
        spark, source = self.spark, self.source
        if not (is_driver(spark) and can_read(spark, source.files)):
            return None
        small, lined, streamed = self._forms
        if self.path is not None:  # the proof finds the records below a path in a file of any form
            small, streamed = [*small, *streamed], []
        elif any(file.is_compressed for file in source.files):
            return None
        files = [ProofFile(file.uri, file.size_bytes, True) for file in small]
        files += [ProofFile(file.uri, file.size_bytes, False) for file in lined]
        limit = task_bytes(source.files, count_partitions(spark, source))
        count = ceil(source.text_bytes / limit) or 1
        return None if streamed else FileTasks(tuple(files), count, are_few(spark, source.files))

    def find_sample(self) -> pa.RecordBatch | None:
        """Return a sample as a raw batch of one row, for a task in this process; see `find_sample_ranges`.

        Returns:
            None also if a file does not begin with a line.
        """
        spark, source = self.spark, self.source
        ranges = None if is_multi_line(source) else find_sample_ranges(spark, source, self.limit)
        if ranges is None:
            return None
        _, lined, streamed = self._forms
        sampled = {part.uri for part in ranges} - {file.uri for file in lined}
        unknown = [file for file in source.files if file.uri in sampled]
        if any(file in streamed for file in unknown) or not all(check_heads(spark, unknown, begins_with_line)):
            return None
        return range_batch(msgspec.json.encode(ranges), RANGES_PART)

    @cached_property
    def _forms(self) -> tuple[list[SourceFile], list[SourceFile], list[SourceFile]]:
        """The small files, the large ones with a record on each line, and the other large ones."""
        # A task finds the form of a compressed file while it reads.
        small = [file for file in self.source.files if is_small(file) or file.is_compressed]
        large = [file for file in self.source.files if not (is_small(file) or file.is_compressed)]
        if is_multi_line(self.source):
            return small, [], large
        heads = list(zip(large, check_heads(self.spark, large, begins_with_line), strict=True))
        return small, [file for file, has_line in heads if has_line], [file for file, has_line in heads if not has_line]


SPLITS = "only it splits these files"
"""Why the texts of a source are read by Spark."""


def read_json_by_spark(
    session: Session,
    source: SourceFiles,
    limit: int = MAX_RECORD_BYTES,
    path: RecordPath | None = None,
    *,
    finds: bool = True,
) -> DataFrame:
    """Return the raw batch of JSON files; Spark reads the large ones.

    Args:
        finds: Whether these may be found here; otherwise documents have to be small or on lines.

    Raises:
        InvalidOption: a document is large.
    """
    small = [file for file in source.files if is_small(file)]
    frames = [whole_files(session, source, small)] if small else []
    large = [file.path for file in source.files if not is_small(file)]
    if not large:
        return reduce(DataFrame.unionAll, frames)
    spark = require_spark(session, SPLITS)
    is_lined_by_path = dict.fromkeys(large, False)
    if not is_multi_line(source):
        with ThreadPoolExecutor(_PARALLEL_CHECKS) as pool:
            is_lined_by_path = dict(zip(large, pool.map(partial(has_lines, spark), large), strict=True))
    lines = [file for file, is_lined in is_lined_by_path.items() if is_lined]
    frames += [text_lines(spark, lines)] if lines else []
    streamed = [file for file in large if not is_lined_by_path[file]]
    if streamed and path is not None and not finds:
        expected = (
            "Spark reads these documents, and it cannot read them again to verify the records below a path. Verify "
            "them with engine=local (--engine local), or write a document on each line."
        )
        raise InvalidOption(option="verify", value=streamed[0], expected=expected)
    frames += [_stream_records(spark, file, limit, path) for file in streamed]
    return reduce(DataFrame.unionAll, frames)


def ensure_json_options(options: Mapping[str, str]) -> None:
    """Raise for options other than `MULTI_LINE`, which is ``true`` or ``false``.

    Raises:
        InvalidOption: an option does not exist, or has another value.
    """
    if any(name.lower() != MULTI_LINE.lower() for name in options):
        expected = f"The only option of JSON is {MULTI_LINE}: whether records of large files may span several lines."
        raise InvalidOption(option="options", value=dict(options), expected=expected)
    for value in options.values():
        if value.lower() not in ("true", "false"):
            raise InvalidOption(option=MULTI_LINE, value=value, expected="Must be true or false.")


def is_multi_line(source: SourceFiles) -> bool:
    """Return whether the records of files may take several lines."""
    return any(value.lower() == "true" for value in source.options.values())


def read_column(rows: DataFrame) -> DataFrame:
    """Return the raw batch of rows with JSON in a column: ``value``, or the only column.

    Raises:
        InvalidOption: the column does not exist, or it does not hold strings or bytes.
    """
    name = _VALUE if _VALUE in rows.columns else rows.columns[0]
    kinds = dict(rows.dtypes)
    if (name != _VALUE and len(kinds) > 1) or kinds[name] not in ("string", "binary"):
        columns = ", ".join(f"{column} {kind}" for column, kind in rows.dtypes)
        raise InvalidOption(
            option="the DataFrame", value=columns, expected="Must have JSON in its only column or in a column `value`."
        )
    text = F.col(quote_name(name)).cast("binary").alias(TEXT)
    no_file = (F.lit("").alias(FILE), F.lit(0).cast("bigint").alias(PART), F.lit(False).alias(WHOLE))
    return rows.where(F.col(quote_name(name)).isNotNull()).select(text, *no_file)


def whole_files(spark: Session, source: SourceFiles, files: Sequence[SourceFile]) -> DataFrame:
    """Return files as a raw batch with one row per file."""
    started = find_started(spark)
    if started is None:
        ranges = [FileRange(file.uri, 0, file.size_bytes, True) for file in files]
        return read_here(spark, ranges, prefix="file:///")
    is_all = len(files) == len(source.files) and not source.left_out
    if len(files) > MAX_LISTED_FILES and is_all and source.roots:
        paths = list(source.roots)
    else:
        paths = [as_literal(file.path) for file in files]
    reader = _text_reader(started)
    return _raw(reader.options(wholetext=True, recursiveFileLookup=True).load(paths), is_whole=True)


def text_lines(spark: SparkSession, paths: Sequence[str], separator: str | None = None) -> DataFrame:
    """Return the lines of files as a raw batch.

    Args:
        separator: End of a line; None for any line break.
    """
    return _raw(_lines(spark, [*map(as_literal, paths)], separator), is_whole=False)


def _text_reader(spark: SparkSession) -> DataFrameReader:
    return spark.read.format(FILE_SOURCES["text"]).options(**SKIP_NO_FILE)


def _lines(spark: SparkSession, paths: list[str], separator: str | None) -> DataFrame:
    reader = _text_reader(spark)
    return (reader if separator is None else reader.option("lineSep", separator)).load(paths)


def keep_file_order(rows: DataFrame) -> DataFrame:
    """Return rows for one task, which gets the rows of a file in order."""
    return rows.coalesce(1)


def has_lines(spark: SparkSession, path: str) -> bool:
    """Return whether a large file has one JSON value per line, from its beginning alone.

    If the first line does not end there, the file may be a single line, and the answer is no.
    """
    # Spark holds a whole line in memory, and the file may be a single line. So it is read in the pieces between commas,
    # and first in few of them: they may be long.
    pieces, head = spark.read.text(as_literal(path), lineSep=","), b""
    for count in (_FEW_CHUNKS, _HEAD_CHUNKS):
        head = ",".join(row["value"] for row in pieces.limit(count).collect()).encode("utf-8", "replace")
        if b"\n" in head.removeprefix(BOM).lstrip():
            break
    return begins_with_line(head)


def _raw(texts: DataFrame, *, is_whole: bool) -> DataFrame:
    return texts.select(_text(), _file(), F.col("_metadata.file_block_start").alias(PART), F.lit(is_whole).alias(WHOLE))


def _text() -> Column:
    return F.col(_VALUE).cast("binary").alias(TEXT)


def _file() -> Column:
    return F.col("_metadata.file_path").alias(FILE)


def _stream_records(spark: SparkSession, file: str, limit: int, path: RecordPath | None = None) -> DataFrame:
    """Return the records of a large file without one record per line, as a raw batch."""
    start, size = F.col("_metadata.file_block_start").alias(PART), F.col("_metadata.file_size").alias(_SIZE)
    # Every record ends with a brace, so no piece is longer than a record.
    pieces = keep_file_order(_lines(spark, [as_literal(file)], "}").select(_text(), _file(), start, size))
    is_compressed = file.lower().endswith(COMPRESSION_ENDINGS[1:])
    read = partial(_records, is_compressed, limit) if path is None else partial(_found, path, is_compressed, limit)
    return pieces.mapInArrow(read, RAW_SCHEMA)


def _records(is_compressed: bool, limit: int, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    splitter, path, size = RecordSplitter(limit=limit), "", 0
    for pieces, path, size in _read_pieces(batches):  # noqa: B007
        splitter.source = path
        yield as_raw_records([text for piece in pieces for text in splitter.records(piece)], path)
    # The size of a compressed file does not say where its text ends.
    yield as_raw_records(list(splitter.rest(None if is_compressed else size)), path)


def _read_pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[list[bytes], str, int]]:
    """Yield the pieces of a file, with its path and its size."""
    last_start = 0
    for batch in batches:
        pieces, paths, starts, sizes = (column.to_pylist() for column in batch.columns)
        # Spark does not promise the order of the splits in a task, and a record cut in two would be lost silently.
        if starts != sorted(starts) or starts[0] < last_start:
            raise SourceError(
                source=paths[0], reason=_OUT_OF_ORDER, fix="Write the file as JSON lines, with one record per line."
            )
        last_start = starts[-1]
        yield pieces, paths[-1], sizes[-1]


_OUT_OF_ORDER = "Spark does not read the parts of the large file in order, and a record may span two parts"


def _found(
    path: RecordPath, is_compressed: bool, limit: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Yield the records below a path."""
    parts = _read_pieces(batches)
    first = next(parts, None)
    if first is None:
        return
    _, name, size = first
    joined: Any = _JoinedPieces(chain([first], parts), None if is_compressed else size)
    for found in RecordFinder(path, limit).stream(joined, name):
        row = {TEXT: msgspec.msgpack.encode(found), FILE: name, PART: FOUND_PART, WHOLE: False}
        yield pa.RecordBatch.from_pylist([row])


class _JoinedPieces:
    """The text of a file from its pieces; each piece ended with a brace.

    Args:
        size_bytes: The size of the text; None if it is unknown.
    """

    def __init__(self, parts: Iterator[tuple[list[bytes], str, int]], size_bytes: int | None) -> None:
        self._pieces = (piece for pieces, _, _ in parts for piece in pieces)
        self._last, self._size, self._read = next(self._pieces, None), size_bytes, 0

    def read(self, size: int) -> bytes:
        """Return at least so many bytes; nothing at the end."""
        blocks, count = [], 0
        while self._last is not None and count < size:
            piece, self._last = self._last, next(self._pieces, None)
            self._read += len(piece) + 1
            # The last piece is what follows the last brace, or ends with it.
            is_end = self._last is None and not self._ends_with_brace(piece)
            blocks.append(piece if is_end else piece + b"}")
            count += len(blocks[-1])
        return b"".join(blocks)

    def _ends_with_brace(self, piece: bytes) -> bool:
        if self._size is None:
            return bool(piece.strip(b" \t\r\n,]"))
        return self._read in (self._size, self._size - len(BOM))
