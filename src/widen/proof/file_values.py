"""The fields that records get from their file, read from its URI: the proof's own code, not that of the writer.

Source: docs/evolution-rules.md#d9, #d21
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias
from urllib.parse import unquote

FileValues: TypeAlias = Sequence[tuple[str, str | None]]
"""Names of fields with the value that every record of a file has there."""

_FOLDER = re.compile(r"(?:^|(?<=/))([^/=]+)=([^/]*)(?=/)")
_PART = re.compile(r" from byte [0-9]+$")
_NULLS = ("", "__HIVE_DEFAULT_PARTITION__")


@dataclass(frozen=True, slots=True)
class FileValueReader:
    """Reads the fields that records get from their file.

    Args:
        has_folders: Whether folders like ``day=1`` give fields.
        loaded_at: Time of the load; None to add neither the time nor the path.
    """

    has_folders: bool = True
    loaded_at: str | None = None

    def read(self, file: str) -> FileValues:
        """Return the fields that the records of a file get.

        Args:
            file: URI of the file, for a split followed by the byte where it begins.
        """
        values: list[tuple[str, str | None]] = []
        for key, value in _FOLDER.findall(file) if self.has_folders else ():
            name, text = (_hive(unquote(each)) for each in (key, value))
            values.append((f"{name}=", None if text in _NULLS else text))
        if self.loaded_at is not None:
            values.append(("_source_file=", _PART.sub("", file) or None))
            values.append(("_loaded_at=", self.loaded_at))
        return values


def add_file_values(record: Mapping[str, Any], values: FileValues) -> dict[str, Any]:
    """Return a record with the fields of its file; a name that the record has already gets more ``=`` at its end."""
    completed = dict(record)
    for key, value in values:
        name = key + next("=" * signs for signs in count() if key + "=" * signs not in completed)
        completed[name] = value
    return completed


def _hive(text: str) -> str:
    # A name that is not UTF-8 stays as it is.
    decoded = unquote(text)
    return text if "\ufffd" in decoded and "\ufffd" not in text else decoded
