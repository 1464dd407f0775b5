"""Deletion vectors: PROTOCOL.md#deletion-vectors, with its examples."""

from __future__ import annotations

import struct
import uuid
import zlib

import pytest

from widen.errors import CorruptFile
from widen.protocol.actions import DeletionVector
from widen.protocol.deletion_vectors import (
    BitmapLayout,
    VectorSlice,
    decode_inline_vector,
    decode_z85,
    encode_z85,
    locate_vector,
    pack_vectors,
    read_bitmap_layout,
    vector_file_path,
    verify_framed_vector,
)


def vector(kind: str, text: str, size: int = 40, offset: int | None = None) -> DeletionVector:
    return DeletionVector(storage_type=kind, path_or_inline_dv=text, size_in_bytes=size, cardinality=6, offset=offset)


def test_z85_vector_of_zeromq() -> None:
    assert decode_z85("HelloWorld") == bytes.fromhex("864FD26FB559F75B")
    assert encode_z85(bytes.fromhex("864FD26FB559F75B")) == "HelloWorld"


@pytest.mark.parametrize("text", ["Hello1", "Hell~", "#####"])
def test_what_is_no_z85(text: str) -> None:
    with pytest.raises(CorruptFile):
        decode_z85(text)


def test_places() -> None:
    relative = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert locate_vector(vector("u", "ab^-aqEH.-t@S}K{vb[*k^", offset=4)) == VectorSlice(relative, 4, 40)
    assert locate_vector(vector("u", "^-aqEH.-t@S}K{vb[*k^")) == VectorSlice(relative[3:], 0, 40)
    assert locate_vector(vector("p", "s3://b/t/deletion_vector_x.bin", offset=1)) == VectorSlice(
        "s3://b/t/deletion_vector_x.bin", 1, 40
    )
    assert locate_vector(vector("i", "wi5b=")) is None
    for broken in (vector("x", "abc"), vector("u", "short")):
        with pytest.raises(CorruptFile):
            locate_vector(broken)


def test_the_example_of_the_protocol_has_the_native_layout() -> None:
    data = decode_inline_vector(vector("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"))
    assert len(data) == 40
    assert read_bitmap_layout(data, "x")[0] is BitmapLayout.NATIVE_BIG_ENDIAN
    portable = decode_inline_vector(vector("i", "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", 44))
    assert read_bitmap_layout(portable, "x")[0] is BitmapLayout.PORTABLE


def test_the_frame_is_checked() -> None:
    data = b"some bytes"
    at = VectorSlice("f.bin", 1, len(data))
    framed = struct.pack(">i", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    assert verify_framed_vector(framed, at) == data
    for broken in (framed[:-1], framed[:-1] + b"\0", struct.pack(">i", 9) + framed[4:], framed[:6] + b"X" + framed[7:]):
        with pytest.raises(CorruptFile, match=r"f\.bin"):
            verify_framed_vector(broken, at)


def test_an_unknown_magic_number() -> None:
    with pytest.raises(CorruptFile, match="magic number 00000000 is unknown"):
        read_bitmap_layout(b"\0" * 8, "f.bin")


def test_a_packed_file_is_what_readers_expect() -> None:
    name = uuid.UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")
    content, vectors = pack_vectors("ab", name, [(b"one", 1), (b"three", 3)])
    assert content[0] == 1
    assert [v.path_or_inline_dv for v in vectors] == ["ab^-aqEH.-t@S}K{vb[*k^"] * 2
    assert [(v.storage_type, v.offset, v.size_in_bytes, v.cardinality) for v in vectors] == [
        ("u", 1, 7, 1),
        ("u", 16, 9, 3),
    ]
    for found, bitmap in zip(vectors, (b"one", b"three"), strict=True):
        at = locate_vector(found)
        assert at is not None
        assert at.path == vector_file_path("ab", name)
        data = verify_framed_vector(content[at.offset : at.end], at)
        assert read_bitmap_layout(data, at.path) == (BitmapLayout.PORTABLE, bitmap)
