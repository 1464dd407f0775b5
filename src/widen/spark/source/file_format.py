"""The formats of source files, and how file names tell them.

Source: docs/evolution-rules.md#d16
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from widen.errors import InvalidOption


class FileFormat(str, Enum):
    """The format of a source file."""

    JSON = "json"
    """JSON lines, arrays of records, or one document in a file."""
    CSV = "csv"
    """Records of strings; the first line has the names."""
    TEXT = "text"
    """A record for each line, with the field ``value``."""
    PARQUET = "parquet"
    AVRO = "avro"
    ORC = "orc"

    @property
    def is_typed(self) -> bool:
        """Whether the files have types."""
        return self in (FileFormat.PARQUET, FileFormat.AVRO, FileFormat.ORC)


FILE_ENDINGS: Mapping[FileFormat, tuple[str, ...]] = MappingProxyType(
    {
        FileFormat.JSON: (".json", ".jsonl", ".ndjson"),
        FileFormat.CSV: (".csv", ".tsv"),
        FileFormat.PARQUET: (".parquet",),
        FileFormat.AVRO: (".avro",),
        FileFormat.ORC: (".orc",),
    }
)
"""Endings of file names. No ending means plain text, so plain text must be requested."""

COMPRESSION_ENDINGS = ("", ".gz", ".bz2", ".zst", ".deflate", ".lz4", ".snappy")
"""Endings of compressed files, which follow the ending of the format."""


def format_of(path: str) -> FileFormat | None:
    """Return the format that a file name tells, or None."""
    name = path.rsplit("/", 1)[-1].lower()
    for file_format, endings in FILE_ENDINGS.items():
        compressions = ("",) if file_format.is_typed else COMPRESSION_ENDINGS
        if any(name.endswith(ending + compression) for ending in endings for compression in compressions):
            return file_format
    return None


def parse_format(text: str | None) -> FileFormat | None:
    """Return the format that a caller names; None leaves it to the file names.

    Raises:
        InvalidOption: the format does not exist.
    """
    if text is None:
        return None
    if text not in {file_format.value for file_format in FileFormat}:
        formats = ", ".join(file_format.value for file_format in FileFormat)
        raise InvalidOption(option="format", value=text, expected=f"Must be one of: {formats}.")
    return FileFormat(text)


SNIFFED_BYTES = 4_096
"""Number of bytes at the beginning of a file that tell a format that is not text."""

_MAGIC: tuple[tuple[bytes, str], ...] = (
    (b"\x1f\x8b", "it is gzip; give its name the ending .gz"),
    (b"BZh", "it is bzip2; give its name the ending .bz2"),
    (b"\x28\xb5\x2f\xfd", "it is zstd; give its name the ending .zst"),
    (b"PAR1", "it is Parquet; give its name the ending .parquet, or set the format"),
    (b"Obj\x01", "it is Avro; give its name the ending .avro, or set the format"),
    (b"ORC", "it is ORC; give its name the ending .orc, or set the format"),
    (b"%PDF-", "it is PDF; export the table in it as CSV"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "it is an old Excel workbook (xls); save the sheet as CSV in UTF-8"),
    (b"SQLite format 3\0", "it is a SQLite database; export the table as CSV"),
    (b"7z\xbc\xaf\x27\x1c", "it is a 7z archive; unpack it"),
    (b"\xfd7zXZ\0", "it is xz; decompress it, e.g. with: xz -d FILE"),
    (b"\x89PNG\r\n\x1a\n", "it is an image (PNG)"),
    (b"\xff\xd8\xff", "it is an image (JPEG)"),
)
"""How files begin that are not text, and what to do about them."""

_UTF_16_AND_32: tuple[tuple[bytes, str], ...] = (
    (b"\xff\xfe\0\0", "UTF-32"),
    (b"\0\0\xfe\xff", "UTF-32"),
    (b"\xff\xfe", "UTF-16"),
    (b"\xfe\xff", "UTF-16"),
)
_MARKUP = re.compile(rb"\s*(?:<!doctype html|<html|<head>|<\?xml)", re.IGNORECASE)


def find_other_format(head: bytes, encoding: str = "utf-8") -> str | None:
    """Return what a file is that should be JSON or CSV, and what to do; None if its first bytes may be text.

    Args:
        encoding: The encoding that the caller names.
    """
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        if b"xl/" in head or b"[Content_Types].xml" in head:
            return "it is an Excel workbook (xlsx); save the sheet as CSV in UTF-8"
        return "it is a zip archive; unpack it"
    for magic, found in _MAGIC:
        if head.startswith(magic):
            return found
    markup = _MARKUP.match(head.removeprefix(b"\xef\xbb\xbf"))
    if markup is not None:
        name = "XML" if b"?xml" in markup[0].lower() else "HTML"
        return f"it is a page of {name}, perhaps an error of the server that it came from; get it again"
    if len("\n".encode(encoding)) > 1:
        return None
    wide = next((name for mark, name in _UTF_16_AND_32 if head.startswith(mark)), None) or _guess_wide(head)
    if wide is None:
        return None
    return f"it is {wide}; convert it to UTF-8, or for CSV set the option encoding to {wide.lower()}"


def _guess_wide(head: bytes) -> str | None:
    """Return the encoding of a text without a mark in which most characters are ASCII; None if it has one byte each."""
    sample = head[:256]
    sample = sample[: len(sample) // 4 * 4]
    if len(sample) < _MIN_WIDE_BYTES:
        return None
    zeros = [sample[at::4].count(0) * 4 / len(sample) for at in range(4)]
    if sorted(zeros)[1] > _MOSTLY and min(zeros) < 1 - _MOSTLY:
        return "UTF-32" + ("LE" if zeros[0] < _MOSTLY else "BE")
    if min(zeros[1], zeros[3]) > _MOSTLY and max(zeros[0], zeros[2]) < 1 - _MOSTLY:
        return "UTF-16LE"
    return "UTF-16BE" if min(zeros[0], zeros[2]) > _MOSTLY and max(zeros[1], zeros[3]) < 1 - _MOSTLY else None


_MIN_WIDE_BYTES, _MOSTLY = 8, 0.7
