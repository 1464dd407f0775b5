"""Fields that records get from their file: its ``key=value`` folders, its path and the time of the load.

The key of such a field is its name and ``=``, so ``region=`` never collides with a field ``region`` of the record. If
the record has a field of that very key, it keeps it, and the key of the file field gets another ``=``.

Source: docs/evolution-rules.md#d9, #d21
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar
from urllib.parse import unquote, unquote_to_bytes

from widen.protocol.partition_values import HIVE_NULL

_Value = TypeVar("_Value")

SIGN = "="
"""The end of the key of a file field."""

SOURCE_FILE, LOADED_AT = "_source_file", "_loaded_at"
"""The names of the fields with the URI of the file and the time of the load."""

_PART = re.compile(r" from byte \d+$")


@dataclass(frozen=True, slots=True)
class FileFields:
    """The fields that records get from their file.

    Args:
        has_folders: Whether the ``key=value`` folders become fields.
        loaded_at: The time of the load, in UTC as ISO 8601; None if neither it nor the path becomes a field.
    """

    has_folders: bool = True
    loaded_at: str | None = None

    def of(self, file: str) -> Mapping[str, str | None]:
        """Return the fields of the records of a file, by their keys.

        Args:
            file: The URI of the file, with ``from byte N`` at the end for a part of it.
        """
        folders = _fields_of(file.rpartition("/")[0]) if self.has_folders else {}
        if self.loaded_at is None:
            return folders
        uri = _PART.sub("", file) or None
        source_fields: dict[str, str | None] = {SOURCE_FILE + SIGN: uri, LOADED_AT + SIGN: self.loaded_at}
        return merge_file_fields(folders, source_fields)

    def names(self, files: Collection[str]) -> frozenset[str]:
        """Return the names of the fields of files, without `SIGN`."""
        keys = {key for folder in {file.rpartition("/")[0] for file in files} for key in self.of(f"{folder}/")}
        return frozenset(key.rstrip(SIGN) for key in keys)


def merge_file_fields(record: Mapping[str, _Value], fields: Mapping[str, _Value]) -> dict[str, _Value]:
    """Return a record with the fields of its file; a file field whose key the record has gets another key."""
    merged = dict(record)
    for key, value in fields.items():
        while key in merged:
            key += SIGN
        merged[key] = value
    return merged


def partition_folders(path: str) -> Iterator[tuple[str, str]]:
    """Yield the key and the value of each ``key=value`` folder in a path, from the root.

    Args:
        path: The path of the file; not percent-encoded as a URI.
    """
    for folder in path.split("/")[:-1]:
        key, equals, value = folder.partition("=")
        if equals and key:
            yield key, value


def unescape_folder(text: str) -> str:
    """Return a key or value of a folder name without the escapes that Hive writes; other percent signs stay.

    Source: Hive: ``FileUtils.unescapePathName``; Spark: ``ExternalCatalogUtils.unescapePathName``.

    Example:
        >>> unescape_folder("10%3A30"), unescape_folder("100%"), unescape_folder("a+b")
        ('10:30', '100%', 'a+b')
    """
    try:
        return unquote_to_bytes(text).decode()
    except UnicodeDecodeError:
        return text


@lru_cache(maxsize=1024)
def _fields_of(folder: str) -> Mapping[str, str | None]:
    fields: dict[str, str | None] = {}
    for key, value in partition_folders(f"{unquote(folder)}/"):
        text = None if value in ("", HIVE_NULL) else unescape_folder(value)
        fields = merge_file_fields(fields, {unescape_folder(key) + SIGN: text})
    return fields
