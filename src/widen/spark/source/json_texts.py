"""Raw batches: the records of files as a DataFrame of JSON texts.

A small file is read whole and taken apart on the executors, whatever form it has. A large one is read line by line
where it holds a record on each, so that its parts can be read in parallel; where it does not, one task reads it from
its beginning to its end, and no more of it than a record is ever held at once.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial, reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from widen.errors import InvalidOption, SourceError
from widen.model.types import quote_name
from widen.observe.json_stream_split import RecordSplitter
from widen.spark.source.file_format import PACKED_NAMES
from widen.spark.source.source_files import SourceFile, SourceFiles, as_literal

WHOLE_BYTES = 8 * 2**20
"""Files up to this size are read whole; packed ones, which grow, up to an eighth of it."""

NAMED_FILES = 1_000
"""Up to how many files are named one by one, so that no pass over the batch sees one that came later."""

TEXT, FILE, PART, WHOLE = "text", "file", "part", "whole"
"""The columns of a raw batch: the bytes, the file they are from, where in the file the split of a large file begins
(in bytes), and whether the bytes are a whole file or one record of it."""

RAW_SCHEMA = f"{TEXT} binary, {FILE} string, {PART} bigint, {WHOLE} boolean"

_SIZE, _VALUE = "size", "value"
_HEAD_CHUNKS, _LOOKS_AT_ONCE = 5_000, 8


def read_json(spark: SparkSession, source: SourceFiles) -> DataFrame:
    """Return the raw batch of files of JSON: the columns `TEXT`, `FILE`, `PART` and `WHOLE`."""
    small = [file for file in source.files if is_small(file)]
    large = [file.path for file in source.files if not is_small(file)]
    with ThreadPoolExecutor(_LOOKS_AT_ONCE) as pool:
        parted = dict(zip(large, pool.map(partial(has_lines, spark), large), strict=True))
    lines = [path for path, is_lined in parted.items() if is_lined]
    frames = [whole_files(spark, source, small)] if small else []
    frames += [text_lines(spark, lines)] if lines else []
    frames += [_stream_records(spark, path) for path in large if not parted[path]]
    return reduce(DataFrame.unionAll, frames)


def read_column(rows: DataFrame) -> DataFrame:
    """Return the raw batch of rows with JSON in a column: ``value``, or the only one there is.

    Raises:
        InvalidOption: there is no such column, or it has neither texts nor bytes.
    """
    name = _VALUE if _VALUE in rows.columns else rows.columns[0]
    kinds = dict(rows.dtypes)
    if (name != _VALUE and len(kinds) > 1) or kinds[name] not in ("string", "binary"):
        said = ", ".join(f"{column} {kind}" for column, kind in rows.dtypes)
        raise InvalidOption(option="the DataFrame", value=said, expected="JSON is in the one column, or in `value`.")
    text = F.col(quote_name(name)).cast("binary").alias(TEXT)
    nowhere = (F.lit("").alias(FILE), F.lit(0).cast("bigint").alias(PART), F.lit(False).alias(WHOLE))
    return rows.where(F.col(quote_name(name)).isNotNull()).select(text, *nowhere)


def is_small(file: SourceFile) -> bool:
    """Tell whether a file may be read whole."""
    is_packed = file.path.lower().endswith(PACKED_NAMES[1:])
    return file.size_bytes <= (WHOLE_BYTES // 8 if is_packed else WHOLE_BYTES)


def whole_files(spark: SparkSession, source: SourceFiles, files: Sequence[SourceFile]) -> DataFrame:
    """Return files as a raw batch with one row each."""
    is_all = len(files) == len(source.files) and not source.left_out
    if len(files) > NAMED_FILES and is_all and source.roots:
        paths = list(source.roots)
    else:
        paths = [as_literal(file.path) for file in files]
    return _raw(spark.read.text(paths, wholetext=True, recursiveFileLookup=True), is_whole=True)


def text_lines(spark: SparkSession, paths: Sequence[str], separator: str | None = None) -> DataFrame:
    """Return the lines of files as a raw batch.

    Args:
        spark: The session.
        paths: The files.
        separator: What ends a line; by default any line break does.
    """
    return _raw(spark.read.text([*map(as_literal, paths)], lineSep=separator), is_whole=False)


def keep_file_order(rows: DataFrame) -> DataFrame:
    """Return rows so that one task gets all of them, those of a file in the order in which they stand there."""
    return rows.coalesce(1)


def has_lines(spark: SparkSession, path: str) -> bool:
    """Tell whether a large file holds one JSON value a line, from its first commas, without reading on.

    One whose first line has no end there may be a single line: that is for those to tell who read it piece by piece.
    """
    chunks = spark.read.text(as_literal(path), lineSep=",").limit(_HEAD_CHUNKS).collect()
    head = ",".join(row["value"] for row in chunks).lstrip("\ufeff \t\r\n")
    line, newline, _ = head.partition("\n")
    return bool(newline) and not head.startswith("[") and _is_json(line)


def _is_json(line: str) -> bool:
    try:
        json.loads(line)
    except json.JSONDecodeError:
        return False
    return True


def _raw(texts: DataFrame, *, is_whole: bool) -> DataFrame:
    return texts.select(_text(), _file(), F.col("_metadata.file_block_start").alias(PART), F.lit(is_whole).alias(WHOLE))


def _text() -> Column:
    return F.col(_VALUE).cast("binary").alias(TEXT)


def _file() -> Column:
    return F.col("_metadata.file_path").alias(FILE)


def _stream_records(spark: SparkSession, path: str) -> DataFrame:
    """Return the records of a large file that are not on lines of their own, as a raw batch."""
    start, size = F.col("_metadata.file_block_start").alias(PART), F.col("_metadata.file_size").alias(_SIZE)
    pieces = keep_file_order(spark.read.text(as_literal(path), lineSep="}").select(_text(), _file(), start, size))
    is_packed = path.lower().endswith(PACKED_NAMES[1:])
    return pieces.mapInArrow(partial(_records, is_packed), RAW_SCHEMA)


def _records(is_packed: bool, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    splitter, last, path, size = RecordSplitter(), 0, "", 0
    for batch in batches:
        pieces, paths, starts, sizes = (column.to_pylist() for column in batch.columns)
        if starts != sorted(starts) or starts[0] < last:
            raise SourceError(source=paths[0], reason=_SHUFFLED, fix="Give JSON lines: one record on each.")
        last, path, size = starts[-1], paths[-1], sizes[-1]
        yield as_raw_records([text for piece in pieces for text in splitter.records(piece)], path)
    yield as_raw_records(list(splitter.rest(None if is_packed else size)), path)


_SHUFFLED = "this Spark does not read the parts of a large file in their order, and a record may span them"


def as_raw_records(texts: Sequence[bytes], path: str, part: int = 0) -> pa.RecordBatch:
    """Return JSON texts as a part of a raw batch, each of them a record.

    Args:
        texts: In the order in which they stand in the file.
        path: The URI of the file.
        part: Where in the file the split begins that they are from.
    """
    count = len(texts)
    columns = [pa.array(texts, pa.binary()), pa.array([path] * count, pa.string())]
    columns += [pa.array([part] * count, pa.int64()), pa.array([False] * count, pa.bool_())]
    return pa.RecordBatch.from_arrays(columns, names=[TEXT, FILE, PART, WHOLE])
