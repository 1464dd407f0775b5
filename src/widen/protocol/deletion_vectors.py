"""Deletion vectors: their location, and the file format around the bitmaps.

The bitmaps themselves are decoded elsewhere, because that needs a Roaring library.

Source: PROTOCOL.md#deletion-vectors
"""

from __future__ import annotations

import re
import struct
import uuid
import zlib
from collections.abc import Mapping, Sequence
from enum import Enum

from widen.errors import CorruptFile
from widen.model.value_classes import dataclass
from widen.protocol.actions import DeletionVector

PORTABLE_MAGIC, NATIVE_MAGIC = 1681511377, 1681511376
_FORMAT_VERSION = b"\x01"
_UUID_CHARS = 20
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_MAGIC_BYTES = 4
_FILE_NAME = re.compile(r"(?:^|/)deletion_vector_[^/]*\.bin$")
"""The end of the path of a deletion vector file. A malicious log must not make us open any other file."""

_OUTSIDE = re.compile(r"^/|:|\\|(?:^|/)\.\.?(?:/|$)|\x00")
"""Patterns that the folder of a relative path must not contain, because it could lead out of the table."""

_DIGIT = {char: value for value, char in enumerate(_ALPHABET)}


@dataclass(frozen=True, slots=True)
class VectorSlice:
    """The position of one vector in a file.

    Args:
        path: The path relative to the table, or an absolute URI.
        offset: The position of the size field before the vector, in bytes.
        size_bytes: The length of the vector, without the size field and the checksum.
    """

    path: str
    offset: int
    size_bytes: int

    @property
    def end(self) -> int:
        """The end of the checksum, in bytes."""
        return self.offset + 4 + self.size_bytes + 4


def decode_z85(text: str) -> bytes:
    """Return the bytes of a Z85 text.

    Source: PROTOCOL.md#deletion-vector-descriptor-schema; ZeroMQ RFC 32.
    """
    if len(text) % 5:
        raise _corrupt(text, "its text is not valid Z85: the length is not divisible by five")
    try:
        words = [_word(text[i : i + 5]) for i in range(0, len(text), 5)]
        return struct.pack(f">{len(words)}I", *words)
    except (KeyError, struct.error) as error:
        raise _corrupt(text, "its text is not valid Z85") from error


def encode_z85(data: bytes) -> str:
    """Return bytes as Z85 text; their number must be divisible by four."""
    words = struct.unpack(f">{len(data) // 4}I", data)
    return "".join(_ALPHABET[word // 85**power % 85] for word in words for power in (4, 3, 2, 1, 0))


def _word(part: str) -> int:
    value = 0
    for char in part:
        value = value * 85 + _DIGIT[char]
    return value


def locate_vector(vector: DeletionVector) -> VectorSlice | None:
    """Return the position of the vector in its file, or None if it is stored in the log.

    Source: PROTOCOL.md#deletion-vector-descriptor-schema

    Example:
        >>> path = "ab^-aqEH.-t@S}K{vb[*k^"
        >>> vector = DeletionVector(storage_type="u", path_or_inline_dv=path, size_in_bytes=40, cardinality=6)
        >>> locate_vector(vector).path
        'ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin'
    """
    text = vector.path_or_inline_dv
    match vector.storage_type:
        case "i":
            return None
        case "p" if _FILE_NAME.search(text):
            return _to_slice(vector, text)
        case "u" if len(text) >= _UUID_CHARS and not _OUTSIDE.search(text[:-_UUID_CHARS]):
            name = uuid.UUID(bytes=decode_z85(text[-_UUID_CHARS:]))
            return _to_slice(vector, vector_file_path(text[:-_UUID_CHARS], name))
    raise _corrupt(text, f"its storage type {vector.storage_type!r} or its path is invalid")


def _to_slice(vector: DeletionVector, path: str) -> VectorSlice:
    if vector.size_in_bytes < _MAGIC_BYTES or (vector.offset or 0) < 0:
        raise _corrupt(path, f"its size {vector.size_in_bytes} or its offset {vector.offset} is invalid")
    return VectorSlice(path, vector.offset or 0, vector.size_in_bytes)


def vector_file_path(folder: str, name: uuid.UUID) -> str:
    """Return the path of a deletion vector file, relative to the table.

    Source: PROTOCOL.md#deletion-vector-descriptor-schema
    """
    return f"{folder}/deletion_vector_{name}.bin" if folder else f"deletion_vector_{name}.bin"


def pack_vectors(
    folder: str, name: uuid.UUID, bitmaps: Sequence[tuple[bytes, int]]
) -> tuple[bytes, list[DeletionVector]]:
    """Return the content of one deletion vector file, and the descriptors of its vectors.

    Args:
        bitmaps: Bitmaps in the portable 64-bit format of Roaring, each with the number of its rows.

    Source: PROTOCOL.md#deletion-vector-file-storage-format
    """
    content, vectors = bytearray(_FORMAT_VERSION), []
    for bitmap, rows in bitmaps:
        path = folder + encode_z85(name.bytes)
        vectors.append(
            DeletionVector(
                storage_type="u",
                path_or_inline_dv=path,
                offset=len(content),
                size_in_bytes=_MAGIC_BYTES + len(bitmap),
                cardinality=rows,
            )
        )
        content += frame_bitmap(bitmap)
    return bytes(content), vectors


def frame_bitmap(bitmap: bytes) -> bytes:
    """Return a vector between its size field and its checksum, as files of Delta and of Iceberg tables have it.

    Args:
        bitmap: A bitmap in the portable 64-bit format of Roaring.
    """
    data = struct.pack("<i", PORTABLE_MAGIC) + bitmap
    return struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))


def decode_inline_vector(vector: DeletionVector) -> bytes:
    """Return the bytes of a vector that is stored in the log."""
    return decode_z85(vector.path_or_inline_dv)[: vector.size_in_bytes]


def verify_framed_vector(framed: bytes, position: VectorSlice) -> bytes:
    """Return the bytes of a vector after checking its size field and its checksum.

    Args:
        framed: The bytes from the size field to the checksum, both included.

    Source: PROTOCOL.md#deletion-vector-file-storage-format
    """
    if len(framed) != position.end - position.offset:
        raise _corrupt(position.path, "the file ends too early")
    size, data = struct.unpack_from(">i", framed)[0], framed[4:-4]
    if size != position.size_bytes:
        raise _corrupt(position.path, f"its size is {size} bytes, but the log has {position.size_bytes}")
    if struct.unpack(">I", framed[-4:])[0] != zlib.crc32(data):
        raise _corrupt(position.path, "its checksum does not match")
    return data


class BitmapLayout(Enum):
    """The layout of the 32-bit bitmaps in a vector."""

    PORTABLE = "little-endian: u64 count, then u32 high half and bitmap for each"
    NATIVE = "little-endian: i32 count, then i32 size and bitmap for each high half in order"
    NATIVE_BIG_ENDIAN = "the native layout with big-endian numbers, as in the example of the protocol"


_MAGIC: Mapping[bytes, BitmapLayout] = {
    struct.pack("<i", PORTABLE_MAGIC): BitmapLayout.PORTABLE,
    struct.pack("<i", NATIVE_MAGIC): BitmapLayout.NATIVE,
    struct.pack(">i", NATIVE_MAGIC): BitmapLayout.NATIVE_BIG_ENDIAN,
}


def read_bitmap_layout(data: bytes, path: str) -> tuple[BitmapLayout, bytes]:
    """Return the layout of a vector, and the bytes after its magic number.

    Source: PROTOCOL.md#deletion-vector-format; Delta Spark for the native layout.
    """
    layout = _MAGIC.get(data[:4])
    if layout is None:
        raise _corrupt(path, f"its magic number {data[:4].hex()} is unknown")
    return layout, data[4:]


# Reading on without the vector would show deleted rows again.
_FIX = "Restore it from a backup: without it, deleted rows would reappear."


def _corrupt(path: str, reason: str) -> CorruptFile:
    return CorruptFile(path=path, reason=f"it is not a valid deletion vector: {reason}", fix=_FIX)
