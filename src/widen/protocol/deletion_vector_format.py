"""Deletion vectors: where the positions of deleted rows stand, and the frame around them.

The bitmaps themselves are decoded by whoever has a Roaring library.

Source: PROTOCOL.md#deletion-vectors
"""

from __future__ import annotations

import re
import struct
import uuid
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from widen.errors import CorruptFile
from widen.protocol.actions import DeletionVector

PORTABLE_MAGIC, NATIVE_MAGIC = 1681511377, 1681511376
_FORMAT_VERSION = b"\x01"
_UUID_CHARS = 20
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_MAGIC_BYTES = 4
_FILE_NAME = re.compile(r"(?:^|/)deletion_vector_[^/]*\.bin$")
"""How the path of a file of vectors ends; nothing else is opened, whatever a log says."""

_LEAVES = re.compile(r"^/|:|\\|(?:^|/)\.\.?(?:/|$)|\x00")
"""What the folder of a relative path must not have, for it would lead out of the table."""

_DIGIT = {char: value for value, char in enumerate(_ALPHABET)}


@dataclass(frozen=True, slots=True)
class VectorSlice:
    """A stretch of a file that holds one vector.

    Args:
        path: Relative to the table, or an absolute URI.
        offset: Where the size that precedes the vector stands, in bytes.
        size_bytes: The length of the vector, without that size and the checksum.
    """

    path: str
    offset: int
    size_bytes: int

    @property
    def end(self) -> int:
        """Where the checksum ends, in bytes."""
        return self.offset + 4 + self.size_bytes + 4


def decode_z85(text: str) -> bytes:
    """Return the bytes that a Z85 text stands for.

    Raises:
        CorruptFile: the length is not divisible by five, or a character is none of Z85.

    Source: PROTOCOL.md#deletion-vector-descriptor-schema; ZeroMQ RFC 32.
    """
    if len(text) % 5:
        raise _corrupt(text, "its text is no Z85: the length is not divisible by five")
    try:
        words = [_word(text[at : at + 5]) for at in range(0, len(text), 5)]
        return struct.pack(f">{len(words)}I", *words)
    except (KeyError, struct.error) as error:
        raise _corrupt(text, "its text is no Z85") from error


def encode_z85(data: bytes) -> str:
    """Return bytes, four by four, as Z85 text."""
    words = struct.unpack(f">{len(data) // 4}I", data)
    return "".join(_ALPHABET[word // 85**power % 85] for word in words for power in (4, 3, 2, 1, 0))


def _word(part: str) -> int:
    value = 0
    for char in part:
        value = value * 85 + _DIGIT[char]
    return value


def locate_vector(vector: DeletionVector) -> VectorSlice | None:
    """Return where the vector stands, or None if it stands in the log itself.

    Raises:
        CorruptFile: the descriptor breaks the protocol.

    Source: PROTOCOL.md#deletion-vector-descriptor-schema

    Example:
        >>> text = "ab^-aqEH.-t@S}K{vb[*k^"
        >>> place(DeletionVector(storage_type="u", path_or_inline_dv=text, size_in_bytes=40, cardinality=6)).path
        'ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin'
    """
    text = vector.path_or_inline_dv
    match vector.storage_type:
        case "i":
            return None
        case "p" if _FILE_NAME.search(text):
            return _place(vector, text)
        case "u" if len(text) >= _UUID_CHARS and not _LEAVES.search(text[:-_UUID_CHARS]):
            name = uuid.UUID(bytes=decode_z85(text[-_UUID_CHARS:]))
            return _place(vector, vector_file_path(text[:-_UUID_CHARS], name))
    raise _corrupt(text, f"its storage type {vector.storage_type!r} or its text is not known")


def _place(vector: DeletionVector, path: str) -> VectorSlice:
    if vector.size_in_bytes < _MAGIC_BYTES or (vector.offset or 0) < 0:
        raise _corrupt(path, f"it cannot have {vector.size_in_bytes} bytes at {vector.offset}")
    return VectorSlice(path, vector.offset or 0, vector.size_in_bytes)


def vector_file_path(folder: str, name: uuid.UUID) -> str:
    """Return the path of a file of vectors, relative to the table.

    Source: PROTOCOL.md#deletion-vector-descriptor-schema
    """
    return f"{folder}/deletion_vector_{name}.bin" if folder else f"deletion_vector_{name}.bin"


def pack_vectors(
    folder: str, name: uuid.UUID, bitmaps: Sequence[tuple[bytes, int]]
) -> tuple[bytes, list[DeletionVector]]:
    """Return the content of one file of vectors, and the descriptor of each of them.

    Args:
        folder: Where the file will lie, relative to the table.
        name: What tells it from other files; never used before.
        bitmaps: Each in the portable 64-bit form of Roaring, with the number of its rows.

    Source: PROTOCOL.md#deletion-vector-file-storage-format
    """
    content, vectors = bytearray(_FORMAT_VERSION), []
    for bitmap, rows in bitmaps:
        data = struct.pack("<i", PORTABLE_MAGIC) + bitmap
        where = folder + encode_z85(name.bytes)
        vectors.append(
            DeletionVector(
                storage_type="u",
                path_or_inline_dv=where,
                offset=len(content),
                size_in_bytes=len(data),
                cardinality=rows,
            )
        )
        content += struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    return bytes(content), vectors


def decode_inline_vector(vector: DeletionVector) -> bytes:
    """Return the bytes of a vector that stands in the log.

    Raises:
        CorruptFile: the text is no Z85.
    """
    return decode_z85(vector.path_or_inline_dv)[: vector.size_in_bytes]


def verify_framed_vector(framed: bytes, at: VectorSlice) -> bytes:
    """Return the bytes of a vector from the stretch of file between its size and its checksum, both included.

    Raises:
        CorruptFile: the size is not the one of the descriptor, or the checksum does not fit.

    Source: PROTOCOL.md#deletion-vector-file-storage-format
    """
    if len(framed) != at.end - at.offset:
        raise _corrupt(at.path, "the file ends too early")
    size, data = struct.unpack_from(">i", framed)[0], framed[4:-4]
    if size != at.size_bytes:
        raise _corrupt(at.path, f"it says {size} bytes where the log says {at.size_bytes}")
    if struct.unpack(">I", framed[-4:])[0] != zlib.crc32(data):
        raise _corrupt(at.path, "its checksum does not fit")
    return data


class BitmapLayout(Enum):
    """How the 32-bit bitmaps of a vector follow each other."""

    PORTABLE = "little-endian: u64 count, then u32 high half and bitmap for each"
    NATIVE = "little-endian: i32 count, then i32 size and bitmap for every high half in turn"
    NATIVE_BIG_ENDIAN = "the native one with big-endian numbers, as in the example of the protocol"


_MAGIC: Mapping[bytes, BitmapLayout] = {
    struct.pack("<i", PORTABLE_MAGIC): BitmapLayout.PORTABLE,
    struct.pack("<i", NATIVE_MAGIC): BitmapLayout.NATIVE,
    struct.pack(">i", NATIVE_MAGIC): BitmapLayout.NATIVE_BIG_ENDIAN,
}


def read_bitmap_layout(data: bytes, path: str) -> tuple[BitmapLayout, bytes]:
    """Return the layout of a vector, and what follows the magic number.

    Args:
        data: The bytes of one vector.
        path: What to name in an error.

    Raises:
        CorruptFile: the magic number is not known.

    Source: PROTOCOL.md#deletion-vector-format; Delta Spark for the native layout.
    """
    layout = _MAGIC.get(data[:4])
    if layout is None:
        raise _corrupt(path, f"its magic number is {data[:4].hex()}")
    return layout, data[4:]


def _corrupt(path: str, reason: str) -> CorruptFile:
    return CorruptFile(
        path=path, reason=f"it is no deletion vector: {reason}", fix="Restore it from a backup; rows would reappear."
    )
