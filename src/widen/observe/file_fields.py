"""Fields that records get from their file: its ``key=value`` folders, its path, and when it was loaded.

Such a field has a key of its own, its name with ``=`` behind it: ``region=`` is never the field ``region`` that a
record may have itself, whatever the columns are called. A record that has that very key, too, keeps it; the field of
the file gets one more ``=`` then.

Source: docs/evolution-rules.md#d9, #d21
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar
from urllib.parse import unquote, unquote_to_bytes

_Value = TypeVar("_Value")

SIGN = "="
"""Ends the key of a field that is from the file."""

SOURCE_FILE, LOADED_AT = "_source_file", "_loaded_at"
"""The names of the fields for the URI of the file and for the time of the load."""

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
"""What stands in the name of a folder for null."""

_PART = re.compile(r" from byte \d+$")


@dataclass(frozen=True, slots=True)
class FileFields:
    """Which fields records get from their file.

    Args:
        has_folders: Whether the folders of the file give fields.
        loaded_at: When the interval was loaded, in UTC as ISO-8601 has it; None for neither this nor the path.
    """

    has_folders: bool = True
    loaded_at: str | None = None

    def of(self, file: str) -> Mapping[str, str | None]:
        """Return the fields of the records of a file, by their keys.

        Args:
            file: Its URI, and maybe the byte from which on a part of it is read.
        """
        folders = _fields_of(file.rpartition("/")[0]) if self.has_folders else {}
        if self.loaded_at is None:
            return folders
        uri = _PART.sub("", file) or None
        told: dict[str, str | None] = {SOURCE_FILE + SIGN: uri, LOADED_AT + SIGN: self.loaded_at}
        return joined(folders, told)

    def names(self, files: Collection[str]) -> frozenset[str]:
        """Return what the fields of some files are called, without the sign at the end."""
        keys = {key for folder in {file.rpartition("/")[0] for file in files} for key in self.of(f"{folder}/")}
        return frozenset(key.rstrip(SIGN) for key in keys)


def joined(record: Mapping[str, _Value], fields: Mapping[str, _Value]) -> dict[str, _Value]:
    """Return a record with the fields of its file; where it has such a key itself, that of the file gets another."""
    found = dict(record)
    for key, value in fields.items():
        while key in found:
            key += SIGN
        found[key] = value
    return found


def folders_of(path: str) -> Iterator[tuple[str, str]]:
    """Yield the key and the value of each folder of the form ``key=value`` on the way to a file, from the root on.

    Args:
        path: Of the file, as the disk has it.
    """
    for part in path.split("/")[:-1]:
        key, equals, value = part.partition("=")
        if equals and key:
            yield key, value


def unescaped(text: str) -> str:
    """Return a text from the name of a folder, without the escapes that Hive writes; other per cent signs stay.

    Source: Hive: ``FileUtils.unescapePathName``; Spark: ``ExternalCatalogUtils.unescapePathName``.

    Example:
        >>> unescaped("10%3A30"), unescaped("100%"), unescaped("a+b")
        ('10:30', '100%', 'a+b')
    """
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        return text


@lru_cache(maxsize=1024)
def _fields_of(folder: str) -> Mapping[str, str | None]:
    found: dict[str, str | None] = {}
    for key, value in folders_of(f"{unquote(folder)}/"):
        text = None if value in ("", HIVE_NULL) else unescaped(value)
        found = joined(found, {unescaped(key) + SIGN: text})
    return found
