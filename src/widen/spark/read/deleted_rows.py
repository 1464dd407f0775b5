"""Deleted rows: bitmaps loaded and opened on the executors, so that the driver never holds a position.

Source: PROTOCOL.md#deletion-vectors
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import BinaryIO

import msgspec
import pyarrow as pa
from pyroaring import BitMap, BitMap64
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from widen.errors import CorruptFile, FileMissing
from widen.log.store.log_store import LogStore
from widen.protocol.actions import DeletionVector
from widen.protocol.deletion_vector_format import (
    BitmapLayout,
    VectorSlice,
    decode_inline_vector,
    locate_vector,
    read_bitmap_layout,
    verify_framed_vector,
)

FILE, ROW = "__widen_file", "__widen_row"
BROADCAST_ROWS = 1_000_000
"""Up to how many deleted rows every executor gets all of them."""

_SCHEMA = pa.schema([pa.field(FILE, pa.string()), pa.field(ROW, pa.int64())])
_BATCH_ROWS = 65_536
_AT_ONCE_ROWS = 1 << 24
"""Up to how many deleted rows of one file are held in memory at once."""


def deleted_positions(spark: SparkSession, store: LogStore, vectors: list[tuple[str, DeletionVector]]) -> DataFrame:
    """Return the deleted rows of files, one row each: the file's key and the position in it, from 0.

    Args:
        spark: The session.
        store: The store of the table; the executors open it again.
        vectors: The key of each file, with its vector.
    """
    rows = [(key, msgspec.json.encode(vector).decode()) for key, vector in vectors]
    described = spark.createDataFrame(rows, f"{FILE} string, vector string")
    spread = described.repartition(min(len(rows), 200)) if len(rows) > 1 else described
    opened = spread.mapInArrow(partial(_explode_bitmaps, store), f"{FILE} string, {ROW} bigint")
    deleted = sum(vector.cardinality for _, vector in vectors)
    return F.broadcast(opened) if deleted <= BROADCAST_ROWS else opened


def _explode_bitmaps(store: LogStore, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for key, text in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            vector = msgspec.json.decode(text, type=DeletionVector)
            yield from _rows(key, load_vector(store, vector))


def _rows(key: str, bitmap: BitMap64) -> Iterator[pa.RecordBatch]:
    for part in _parts(bitmap):
        yield pa.RecordBatch.from_arrays([pa.array([key] * len(part), pa.string()), part], schema=_SCHEMA)


def _parts(bitmap: BitMap64) -> Iterator[pa.Array]:
    """Yield the positions in columns of `_BATCH_ROWS`; a few bytes may stand for so many that memory would not do."""
    if len(bitmap) > _AT_ONCE_ROWS:
        rest = iter(bitmap)
        while part := list(islice(rest, _BATCH_ROWS)):
            yield pa.array(part, pa.int64())
        return
    values = bitmap.to_array()
    rows = pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])
    for at in range(0, len(rows), _BATCH_ROWS):
        yield rows.slice(at, _BATCH_ROWS)


def load_vector(store: LogStore, vector: DeletionVector) -> BitMap64:
    """Return the positions of the deleted rows of one file.

    Raises:
        CorruptFile: the vector is missing, cut or altered, or counts other rows than the log says.
        StorageError: the store refused.

    Source: PROTOCOL.md#deletion-vector-format
    """
    at = locate_vector(vector)
    path = at.path if at else vector.path_or_inline_dv
    if at is None:
        data = decode_inline_vector(vector)
    else:
        try:
            with store.open(store.plain(at.path) if vector.storage_type == "p" else at.path) as file:
                data = verify_framed_vector(_framed(file, at), at)
        except FileMissing as error:
            raise CorruptFile(path=path, reason="there is no such deletion vector", fix=_FIX) from error
    bitmap = _decode_bitmap(data, path)
    if len(bitmap) != vector.cardinality:
        reason = f"it deletes {len(bitmap)} rows where the log says {vector.cardinality}"
        raise CorruptFile(path=path, reason=reason, fix=_FIX)
    return bitmap


def _framed(file: BinaryIO, at: VectorSlice) -> bytes:
    """Return the bytes of a vector with its size and checksum; no memory is taken for more than the file has.

    Raises:
        CorruptFile: the file is too short, or it says another size than the log.
    """
    has_bytes = file.seek(0, io.SEEK_END)
    if at.end > has_bytes:
        reason = f"the log says that it ends at byte {at.end}, and the file has {has_bytes}"
        raise CorruptFile(path=at.path, reason=reason, fix=_FIX)
    file.seek(at.offset)
    said = file.read(4)
    if struct.unpack(">i", said)[0] != at.size_bytes:
        reason = f"it says {struct.unpack('>i', said)[0]} bytes where the log says {at.size_bytes}"
        raise CorruptFile(path=at.path, reason=reason, fix=_FIX)
    return said + file.read(at.end - at.offset - 4)


_FIX = "Restore it from a backup; without it deleted rows would reappear."


def _decode_bitmap(data: bytes, path: str) -> BitMap64:
    layout, rest = read_bitmap_layout(data, path)
    try:
        return _READERS[layout](rest)
    except (ValueError, struct.error, OverflowError, MemoryError) as error:
        raise CorruptFile(path=path, reason=f"its bitmap cannot be read ({error})", fix=_FIX) from error


def _portable(data: bytes) -> BitMap64:
    return BitMap64.deserialize(data)


def _native(order: str, data: bytes) -> BitMap64:
    number = struct.Struct(order + "i")
    result, at = BitMap64(), number.size
    for high in range(number.unpack_from(data)[0]):
        size = number.unpack_from(data, at)[0]
        at += number.size
        result |= BitMap64((high << 32) | row for row in BitMap.deserialize(data[at : at + size]))
        at += size
    return result


_READERS: Mapping[BitmapLayout, Callable[[bytes], BitMap64]] = {
    BitmapLayout.PORTABLE: _portable,
    BitmapLayout.NATIVE: partial(_native, "<"),
    BitmapLayout.NATIVE_BIG_ENDIAN: partial(_native, ">"),
}
