"""The formats of source files, and how file names tell them.

Source: docs/evolution-rules.md#d16
"""

from __future__ import annotations

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
