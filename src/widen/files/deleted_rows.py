"""Deleted rows: the executors load and expand the bitmaps, so that row positions never reach the driver.

Source: PROTOCOL.md#deletion-vectors
"""

from __future__ import annotations

import io
import struct
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap, BitMap64

from widen.errors import CorruptFile, FileMissing
from widen.limits import BROADCAST_ROWS
from widen.log.log_store import LogStore
from widen.model.lazy_module import import_lazily
from widen.protocol.actions import DeletionVector
from widen.protocol.deletion_vectors import (
    BitmapLayout,
    VectorSlice,
    decode_inline_vector,
    locate_vector,
    read_bitmap_layout,
    verify_framed_vector,
)
from widen.spark.ship import freeze_imports

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql import functions as F
else:
    F = import_lazily("pyspark.sql.functions")

FILE, ROW = "__widen_file", "__widen_row"

WORD, MASK = "__widen_word", "__widen_mask"
"""The columns of a bitmap word: 64 rows of a file, beginning at 64 times the number of the word, with a bit for each. A
join with words needs fewer rows than a join with positions, so more deleted rows can be broadcast."""

DISTINCT = "__widen_distinct"
"""The column with the number of rows of a word, each counted once."""

_MARKED_FILE, _MARKED_WORD = "__widen_marked_file", "__widen_marked_word"

_WORDS = pa.schema([pa.field(FILE, pa.string()), pa.field(WORD, pa.int64()), pa.field(MASK, pa.int64())])
_SCHEMA = pa.schema([pa.field(FILE, pa.string()), pa.field(ROW, pa.int64())])
_BATCH_ROWS = 65_536
_EXPANDED_ROWS = 1 << 24
"""Up to this many deleted rows of one file, all of them are expanded in memory at once."""


def deleted_words(spark: SparkSession, store: LogStore, vectors: list[tuple[str, DeletionVector]]) -> DataFrame:
    """Return the deleted rows of files as words for `without_marked`."""
    rows = [(key, msgspec.json.encode(vector).decode()) for key, vector in vectors]
    described = spark.createDataFrame(rows, f"{FILE} string, vector string")
    spread = described.repartition(min(len(rows), 200)) if len(rows) > 1 else described
    words = spread.mapInArrow(partial(_explode_bitmaps, store), f"{FILE} string, {WORD} bigint, {MASK} bigint")
    return F.broadcast(words) if sum(_most_words(vector) for _, vector in vectors) <= BROADCAST_ROWS else words


def _most_words(vector: DeletionVector) -> int:
    """Return how many words a vector may have: each row at most one, each run of rows at most two more than it fills.

    Source: PROTOCOL.md#deletion-vector-format
    """
    # A Roaring bitmap has two bytes for a single row, and four for a run.
    return min(vector.cardinality, vector.cardinality // 64 + vector.size_in_bytes // 2 + 1)


def mark_rows(rows: DataFrame, marked: Column, *aggregates: Column) -> DataFrame:
    """Return the bitmap words of rows that are given by `FILE` and `ROW`, with aggregates for each word.

    Args:
        rows: The rows. Those without a location make one word without a mark.

    Returns:
        The words for `without_marked`, `DISTINCT`, and the aggregates.
    """
    mask = F.expr(f"shiftleft(1L, CAST({ROW} & 63 AS INT))")
    columns = [F.bit_or(F.when(marked, mask)).alias(MASK), F.bit_count(F.bit_or(mask)).alias(DISTINCT), *aggregates]
    return rows.groupBy(FILE, F.shiftright(ROW, 6).alias(WORD)).agg(*columns)


def without_marked(rows: DataFrame, words: DataFrame) -> DataFrame:
    """Return the rows, given by `FILE` and `ROW`, that no word marks. Several words may be about the same 64 rows."""
    return _join_words(rows, words, "left_anti")


def only_marked(rows: DataFrame, words: DataFrame) -> DataFrame:
    """Return the rows that `without_marked` leaves out."""
    return _join_words(rows, words, "left_semi")


def _join_words(rows: DataFrame, words: DataFrame, how: str) -> DataFrame:
    marked = words.select(F.col(FILE).alias(_MARKED_FILE), F.col(WORD).alias(_MARKED_WORD), MASK)
    word = f"shiftright({ROW}, 6)"
    # Spark looks two integers up as one number, and so copies no text for a row. They may be equal by chance; then the
    # comparisons decide, which are not `=`, because Spark would take that for a third key.
    on = (
        f"hash({FILE}) = hash({_MARKED_FILE}) AND {_as_int(word)} = {_as_int(_MARKED_WORD)}"
        f" AND bit_get({MASK}, CAST({ROW} & 63 AS INT)) = 1"
        f" AND {word} >= {_MARKED_WORD} AND {word} <= {_MARKED_WORD}"
        f" AND {FILE} >= {_MARKED_FILE} AND {FILE} <= {_MARKED_FILE}"
    )
    return rows.join(marked, F.expr(on), how)


def _as_int(word: str) -> str:
    return f"CAST({word} & 2147483647 AS INT)"


def marked_rows(words: pa.Array, masks: pa.Array) -> pa.Array:
    """Return the rows that words mark, as unsigned integers."""
    bits = pa.Array.from_buffers(pa.bool_(), 64 * len(masks), [None, masks.buffers()[1]], offset=64 * masks.offset)
    at = pc.indices_nonzero(bits)
    first = pc.shift_left(words.cast(pa.uint64()).take(pc.shift_right(at, 6)), 6)
    return pc.add(first, pc.bit_wise_and(at, 63))


def _explode_bitmaps(store: LogStore, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    freeze_imports()
    for batch in batches:
        for key, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            vector = msgspec.json.decode(text, type=DeletionVector)
            yield from word_batches(key, load_vector(store, vector))


def word_batches(key: str, bitmap: BitMap64) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a bitmap as words; one word may appear in two batches."""
    for rows in _to_arrays(bitmap):
        # Arrow does not shift a signed number by 63.
        masks = pc.shift_left(pa.scalar(1, pa.uint64()), pc.bit_wise_and(rows, 63).cast(pa.uint64()))
        marked = pa.table({WORD: pc.shift_right(rows, 6), MASK: masks})
        # The bits are distinct, so their sum is their union.
        words = marked.group_by(WORD).aggregate([(MASK, "sum")])
        numbers, sums = (words[name].combine_chunks() for name in (WORD, f"{MASK}_sum"))
        columns = [pa.array([key] * words.num_rows, pa.string()), numbers, sums.view(pa.int64())]
        yield pa.RecordBatch.from_arrays(columns, schema=_WORDS)


def to_words(spark: SparkSession, marked: Mapping[str, BitMap64]) -> DataFrame:
    """Return rows as words for `without_marked`."""
    batches = [batch for key, rows in marked.items() for batch in word_batches(key, rows)]
    words = spark.createDataFrame(pa.Table.from_batches(batches, schema=_WORDS))
    return F.broadcast(words) if sum(map(len, batches)) <= BROADCAST_ROWS else words


def to_bitmap(rows: pa.Array) -> BitMap64:
    """Return positions, as 64-bit integers without nulls, as a bitmap."""
    width = array("Q").itemsize
    data = memoryview(rows.buffers()[1])[rows.offset * width : (rows.offset + len(rows)) * width]
    return BitMap64(array("Q", data.tobytes()))


def bitmap_batches(key: str, bitmap: BitMap64) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a bitmap in batches with the columns `FILE` and `ROW`."""
    for part in _to_arrays(bitmap):
        yield pa.RecordBatch.from_arrays([pa.array([key] * len(part), pa.string()), part], schema=_SCHEMA)


def _to_arrays(bitmap: BitMap64) -> Iterator[pa.Array]:
    """Yield the positions in arrays of `_BATCH_ROWS`.

    Run-length encoding lets a few bytes stand for billions of positions, so a large bitmap is expanded piece by piece.
    """
    if len(bitmap) > _EXPANDED_ROWS:
        rest = iter(bitmap)
        while part := list(islice(rest, _BATCH_ROWS)):
            yield pa.array(part, pa.int64())
        return
    values = bitmap.to_array()
    rows = pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])
    for start in range(0, len(rows), _BATCH_ROWS):
        yield rows.slice(start, _BATCH_ROWS)


def load_vector(store: LogStore, vector: DeletionVector) -> BitMap64:
    """Return the positions of the deleted rows of one file.

    Raises:
        CorruptFile: the vector is missing, truncated or altered, or its cardinality differs from the log's.

    Source: PROTOCOL.md#deletion-vector-format
    """
    location = locate_vector(vector)
    path = location.path if location else vector.path_or_inline_dv
    if location is None:
        data = decode_inline_vector(vector)
    else:
        try:
            with store.open(store.plain(location.path) if vector.storage_type == "p" else location.path) as file:
                data = verify_framed_vector(_read_framed(file, location), location)
        except FileMissing as error:
            raise CorruptFile(path=path, reason="the deletion vector does not exist", fix=_FIX) from error
    bitmap = _decode_bitmap(data, path)
    if len(bitmap) != vector.cardinality:
        reason = f"it deletes {len(bitmap)} rows, but the log says {vector.cardinality}"
        raise CorruptFile(path=path, reason=reason, fix=_FIX)
    return bitmap


def _read_framed(file: BinaryIO, location: VectorSlice) -> bytes:
    """Return the bytes of a vector with its size and checksum.

    The size is checked against the file first, so that a corrupt size does not allocate memory.
    """
    file_bytes = file.seek(0, io.SEEK_END)
    if location.end > file_bytes:
        reason = f"the log says that it ends at byte {location.end}, but the file has {file_bytes} bytes"
        raise CorruptFile(path=location.path, reason=reason, fix=_FIX)
    file.seek(location.offset)
    header = file.read(4)
    size = struct.unpack(">i", header)[0]
    if size != location.size_bytes:
        reason = f"its size is {size} bytes, but the log says {location.size_bytes}"
        raise CorruptFile(path=location.path, reason=reason, fix=_FIX)
    return header + file.read(location.end - location.offset - 4)


_FIX = "Restore it from a backup. Without it, deleted rows would reappear."


def _decode_bitmap(data: bytes, path: str) -> BitMap64:
    layout, rest = read_bitmap_layout(data, path)
    try:
        return _READERS[layout](rest)
    except (ValueError, IndexError, struct.error, OverflowError, MemoryError) as error:
        raise CorruptFile(path=path, reason=f"its bitmap cannot be read ({error})", fix=_FIX) from error


def _read_portable(data: bytes) -> BitMap64:
    return BitMap64.deserialize(data)


def _read_native(order: str, data: bytes) -> BitMap64:
    number = struct.Struct(order + "i")
    result, offset = BitMap64(), number.size
    for high in range(number.unpack_from(data)[0]):
        size = number.unpack_from(data, offset)[0]
        offset += number.size
        result |= BitMap64((high << 32) | row for row in BitMap.deserialize(data[offset : offset + size]))
        offset += size
    return result


_READERS: Mapping[BitmapLayout, Callable[[bytes], BitMap64]] = {
    BitmapLayout.PORTABLE: _read_portable,
    BitmapLayout.NATIVE: partial(_read_native, "<"),
    BitmapLayout.NATIVE_BIG_ENDIAN: partial(_read_native, ">"),
}


def add_positions(bitmaps: defaultdict[str, BitMap64], files: pa.Array, positions: pa.Array) -> None:
    """Add rows to bitmaps."""
    for key, of_file in rows_by_file(files):
        bitmaps[key] |= to_bitmap(positions.filter(of_file))


def rows_by_file(keys: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yield each file, with whether each row belongs to it."""
    files = keys.dictionary_encode()
    for code, key in enumerate(files.dictionary.to_pylist()):
        yield key, pc.equal(files.indices, pa.scalar(code, files.indices.type))
