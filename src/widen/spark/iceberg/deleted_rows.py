"""Deleted rows of an Iceberg snapshot: position deletes, deletion vectors and equality deletes as rows to leave out.

Executors read the delete files; neither positions nor values reach the driver.

Source: Iceberg's table specification, "Row-level Deletes"; the Puffin specification, ``deletion-vector-v1``
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyroaring import BitMap64
from pyspark.sql import SparkSession

from widen.errors import CorruptFile
from widen.iceberg.metadata_files import ensure_regular, translate_file_errors
from widen.model.types import LONG, STRING, Field, StructType
from widen.protocol.column_mapping import COLUMN_ID
from widen.spark.read.deleted_rows import FILE, ROW, bitmap_batches
from widen.spark.spark_types import DataFrame

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

SEQUENCE = "__widen_sequence"
"""The column with the data sequence number of a file."""

_VECTOR_MAGIC = bytes.fromhex("d1d33964")
_PUFFIN_MAGIC = b"PFA1"
_FIX = "Restore it from a backup. Without it, deleted rows would reappear."


class _Blob(msgspec.Struct, frozen=True):
    type: str
    offset: int
    length: int
    properties: dict[str, str] = {}


class _Footer(msgspec.Struct, frozen=True):
    blobs: list[_Blob]


def vector_positions(spark: SparkSession, io: FileIO, sequences: Mapping[str, int]) -> DataFrame:
    """Return the rows that deletion vectors delete: the location of the data file as `FILE`, `ROW` and `SEQUENCE`.

    Args:
        io: Opens the Puffin files; executors get a copy of it.
        sequences: Their locations, each with its data sequence number.
    """
    described = spark.createDataFrame(pa.table({"path": list(sequences), SEQUENCE: list(sequences.values())}))
    spread = described.repartition(min(len(sequences), 200)) if len(sequences) > 1 else described
    return spread.mapInArrow(partial(_expand, io), f"{FILE} string, {ROW} bigint, {SEQUENCE} bigint")


def _expand(io: FileIO, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for path, sequence in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            for data_file, bitmap in read_vectors(_read(io, path), path):
                for rows in bitmap_batches(data_file, bitmap):
                    yield rows.append_column(SEQUENCE, pa.array([sequence] * len(rows), pa.int64()))


def _read(io: FileIO, path: str) -> bytes:
    with translate_file_errors(path, _FIX):
        ensure_regular(path)
        with io.new_input(path).open() as stream:
            return bytes(stream.read())


def read_vectors(content: bytes, path: str) -> Iterator[tuple[str, BitMap64]]:
    """Yield the data file and the deleted rows of every deletion vector in a Puffin file.

    Raises:
        CorruptFile: the file is not Puffin, or a vector is truncated or altered.

    Source: the Puffin specification
    """
    for blob in _read_footer(content, path).blobs:
        if blob.type != "deletion-vector-v1":
            continue
        file = blob.properties.get("referenced-data-file")
        if file is None or not 0 <= blob.offset <= blob.offset + blob.length <= len(content):
            raise CorruptFile(path=path, reason="its footer names no data file, or bytes beyond its end", fix=_FIX)
        yield file, _decode_vector(content[blob.offset : blob.offset + blob.length], path)


def _read_footer(content: bytes, path: str) -> _Footer:
    if len(content) < 16 or content[:4] != _PUFFIN_MAGIC or content[-4:] != _PUFFIN_MAGIC:
        raise CorruptFile(path=path, reason="it is not a complete Puffin file", fix=_FIX)
    size, flags = struct.unpack("<iI", content[-12:-4])
    if flags & 1:
        raise CorruptFile(path=path, reason="its footer is compressed, which Widen does not support", fix=_FIX)
    if not 0 <= size <= len(content) - 16:
        raise CorruptFile(path=path, reason="its footer has a wrong size", fix=_FIX)
    try:
        return msgspec.json.decode(content[-12 - size : -12], type=_Footer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptFile(path=path, reason=f"its footer cannot be read ({error})", fix=_FIX) from error


def _decode_vector(data: bytes, path: str) -> BitMap64:
    size = struct.unpack(">I", data[:4])[0] if len(data) >= 12 else -1
    if size != len(data) - 8 or data[4:8] != _VECTOR_MAGIC:
        raise CorruptFile(path=path, reason="a deletion vector has a wrong size or magic number", fix=_FIX)
    if struct.unpack(">I", data[-4:])[0] != zlib.crc32(data[4:-4]):
        raise CorruptFile(path=path, reason="the checksum of a deletion vector does not match", fix=_FIX)
    try:
        return BitMap64.deserialize(data[8:-4])
    except ValueError as error:
        raise CorruptFile(path=path, reason=f"a deletion vector cannot be read ({error})", fix=_FIX) from error


POSITION_DELETES = StructType(
    (
        Field("file_path", STRING, metadata={COLUMN_ID: 2147483546}),
        Field("pos", LONG, metadata={COLUMN_ID: 2147483545}),
    )
)
"""The columns of position deletes that matter; the deleted rows themselves, which may be beside them, do not.

Source: Iceberg's table specification, "Position Delete Files" and "Reserved Field IDs"
"""
