"""The formats of files of records, and how the name of a file tells its format.

Source: docs/evolution-rules.md#d16
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType

from widen.errors import InvalidOption


class FileFormat(str, Enum):
    """What files hold."""

    JSON = "json"
    """Lines, arrays of records, or one document a file."""
    CSV = "csv"
    """Records of texts, named by the first line."""
    TEXT = "text"
    """A record for each line, with the field ``value``."""
    PARQUET = "parquet"
    AVRO = "avro"
    ORC = "orc"

    @property
    def is_typed(self) -> bool:
        """Whether the files say the types of what is in them."""
        return self in (FileFormat.PARQUET, FileFormat.AVRO, FileFormat.ORC)


NAMES: Mapping[FileFormat, tuple[str, ...]] = MappingProxyType(
    {
        FileFormat.JSON: (".json", ".jsonl", ".ndjson"),
        FileFormat.CSV: (".csv", ".tsv"),
        FileFormat.PARQUET: (".parquet",),
        FileFormat.AVRO: (".avro",),
        FileFormat.ORC: (".orc",),
    }
)
"""How names of files end. No name says that a file is plain text: that has to be said."""

PACKED_NAMES = ("", ".gz", ".bz2", ".zst", ".deflate", ".lz4", ".snappy")
"""What may follow where a file is packed as a whole."""


def format_of(path: str) -> FileFormat | None:
    """Return the format that the name of a file tells, if it tells one.

    Args:
        path: A path or a URI.
    """
    name = path.rsplit("/", 1)[-1].lower()
    for found, endings in NAMES.items():
        packed = ("",) if found.is_typed else PACKED_NAMES
        if any(name.endswith(ending + pack) for ending in endings for pack in packed):
            return found
    return None


def parse_format(text: str | None) -> FileFormat | None:
    """Return the format that a caller names; None where it is to be told by the files.

    Raises:
        InvalidOption: there is no such format.
    """
    if text is None:
        return None
    if text not in {each.value for each in FileFormat}:
        formats = ", ".join(each.value for each in FileFormat)
        raise InvalidOption(option="format", value=text, expected=f"It is one of {formats}.")
    return FileFormat(text)
