"""What a file tells of its records, read off its URI anew: nothing here is shared with what makes rows.

Source: docs/evolution-rules.md#d9, #d21
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, TypeAlias
from urllib.parse import unquote

Told: TypeAlias = Sequence[tuple[str, str | None]]
"""The keys of fields, with what they are for every record of a file."""

_FOLDER = re.compile(r"(?:^|(?<=/))([^/=]+)=([^/]*)(?=/)")
_PART = re.compile(r" from byte [0-9]+$")
_NULLS = ("", "__HIVE_DEFAULT_PARTITION__")


@dataclass(frozen=True, slots=True)
class FileReader:
    """Tells which fields records get from their file.

    Args:
        has_folders: Whether the folders of the file give fields.
        loaded_at: When the interval was loaded; None for neither this nor the path.
    """

    has_folders: bool = True
    loaded_at: str | None = None

    def of(self, file: str) -> Told:
        """Return the fields of the records of a file.

        Args:
            file: Its URI, and maybe the byte from which on a part of it is read.
        """
        found: list[tuple[str, str | None]] = []
        for key, value in _FOLDER.findall(file) if self.has_folders else ():
            name, text = (_hive(unquote(each)) for each in (key, value))
            found.append((f"{name}=", None if text in _NULLS else text))
        if self.loaded_at is not None:
            found.append(("_source_file=", _PART.sub("", file) or None))
            found.append(("_loaded_at=", self.loaded_at))
        return found


def with_told(record: Mapping[str, Any], told: Told) -> dict[str, Any]:
    """Return a record with the fields of its file; where it has such a key itself, that of the file gets another."""
    found = dict(record)
    for key, value in told:
        found[key + next("=" * signs for signs in count() if key + "=" * signs not in found)] = value
    return found


def _hive(text: str) -> str:
    found = unquote(text)
    return text if "\ufffd" in found and "\ufffd" not in text else found
