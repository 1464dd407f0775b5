"""Puffin files with deletion vectors: their content, and the vectors in it.

Source: the Puffin specification, ``deletion-vector-v1``
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping

import msgspec
from pyroaring import BitMap64

from widen.errors import CorruptFile
from widen.protocol.deletion_vectors import frame_bitmap

_VECTOR_MAGIC = bytes.fromhex("d1d33964")
_PUFFIN_MAGIC = b"PFA1"
_VECTOR = "deletion-vector-v1"
_POSITION_ID = 2147483645
"""The reserved id of the position of a row."""

_INHERITED = -1
"""What stands for the snapshot and the sequence number of a vector, which come from the manifest."""

DELETES_FIX = "Restore it from a backup. Without it, deleted rows would reappear."


class _Blob(msgspec.Struct, frozen=True):
    type: str
    offset: int
    length: int
    properties: dict[str, str] = {}


class _Footer(msgspec.Struct, frozen=True):
    blobs: list[_Blob]


def read_vectors(content: bytes, path: str) -> Iterator[tuple[str, BitMap64]]:
    """Yield the data file and the deleted rows of every deletion vector in a Puffin file.

    Raises:
        CorruptFile: the file is not Puffin, or a vector is truncated or altered.

    Source: the Puffin specification
    """
    for blob in _read_footer(content, path).blobs:
        if blob.type != _VECTOR:
            continue
        file = blob.properties.get("referenced-data-file")
        if file is None or not 0 <= blob.offset <= blob.offset + blob.length <= len(content):
            raise CorruptFile(
                path=path, reason="its footer names no data file, or bytes beyond its end", fix=DELETES_FIX
            )
        yield file, _decode_vector(content[blob.offset : blob.offset + blob.length], path)


def _read_footer(content: bytes, path: str) -> _Footer:
    if len(content) < 16 or content[:4] != _PUFFIN_MAGIC or content[-4:] != _PUFFIN_MAGIC:
        raise CorruptFile(path=path, reason="it is not a complete Puffin file", fix=DELETES_FIX)
    size, flags = struct.unpack("<iI", content[-12:-4])
    if flags & 1:
        raise CorruptFile(path=path, reason="its footer is compressed, which Widen does not support", fix=DELETES_FIX)
    if not 0 <= size <= len(content) - 16:
        raise CorruptFile(path=path, reason="its footer has a wrong size", fix=DELETES_FIX)
    try:
        return msgspec.json.decode(content[-12 - size : -12], type=_Footer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise CorruptFile(path=path, reason=f"its footer cannot be read ({error})", fix=DELETES_FIX) from error


def _decode_vector(data: bytes, path: str) -> BitMap64:
    size = struct.unpack(">I", data[:4])[0] if len(data) >= 12 else -1
    if size != len(data) - 8 or data[4:8] != _VECTOR_MAGIC:
        raise CorruptFile(path=path, reason="a deletion vector has a wrong size or magic number", fix=DELETES_FIX)
    if struct.unpack(">I", data[-4:])[0] != zlib.crc32(data[4:-4]):
        raise CorruptFile(path=path, reason="the checksum of a deletion vector does not match", fix=DELETES_FIX)
    try:
        return BitMap64.deserialize(data[8:-4])
    except ValueError as error:
        raise CorruptFile(path=path, reason=f"a deletion vector cannot be read ({error})", fix=DELETES_FIX) from error


def pack_puffin(deleted: Mapping[str, BitMap64]) -> tuple[bytes, list[tuple[int, int]]]:
    """Return the content of a Puffin file, and where each vector is in it: its offset and its length in bytes."""
    content, places, blobs = bytearray(_PUFFIN_MAGIC), list[tuple[int, int]](), list[dict[str, object]]()
    for file, rows in deleted.items():
        vector = frame_bitmap(rows.serialize())
        places.append((len(content), len(vector)))
        blobs.append(_describe(file, len(rows), *places[-1]))
        content += vector
    footer = msgspec.json.encode({"blobs": blobs, "properties": {"created-by": "Widen"}})
    content += _PUFFIN_MAGIC + footer + struct.pack("<iI", len(footer), 0) + _PUFFIN_MAGIC
    return bytes(content), places


def _describe(file: str, rows: int, offset: int, length: int) -> dict[str, object]:
    return {
        "type": _VECTOR,
        "fields": [_POSITION_ID],
        "snapshot-id": _INHERITED,
        "sequence-number": _INHERITED,
        "offset": offset,
        "length": length,
        "properties": {"referenced-data-file": file, "cardinality": str(rows)},
    }
