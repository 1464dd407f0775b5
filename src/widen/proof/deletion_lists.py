"""The keys that a table has deleted, read by the proof itself: the writer may have missed one.

Source: docs/guide/keys.md#deletes
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from widen.errors import CorruptLog, FileMissing

KEY, NUMBER, TEXT = "__widen_key_0", "__widen_number", "__widen_text"
"""The columns of a file with deleted keys: the key, and the number or the text that orders its deletion."""


class Deletion(NamedTuple):
    """A deleted key with the order of its deletion, which is a number or a text."""

    key: str
    number: Decimal | None
    text: str | None


def read_deletions(path: str, read: Callable[[str], bytes], max_bytes: int, *, every: bool) -> list[Deletion] | None:
    """Return the deletions in a list; None if its files have more bytes.

    Args:
        path: The list, a JSON file that names the files with the keys and their sizes.
        read: Returns the content of a file of the table.
        every: Whether each deletion of a key counts, and not only the newest.

    Raises:
        CorruptLog: a file is missing or damaged.
    """
    try:
        files: Mapping[str, int] = dict(json.loads(read(path))["files"])
        if sum(files.values()) > max_bytes:
            return None
        found = [each for file in files for each in _read_file(read(file))]
    except (FileMissing, ValueError, KeyError, TypeError, pa.ArrowException) as error:
        reason = "the list of deleted keys is missing or damaged"
        fix = "Copy a table with its whole log. Without the list, late records could bring deleted rows back."
        raise CorruptLog(path=path, reason=reason, fix=fix) from error
    if every:
        return list(dict.fromkeys(found))
    newest: dict[str, Deletion] = {}
    for each in found:
        if each.key not in newest or _order(newest[each.key]) < _order(each):
            newest[each.key] = each
    return list(newest.values())


def _read_file(content: bytes) -> list[Deletion]:
    rows = pq.ParquetFile(pa.BufferReader(content)).read(columns=[KEY, NUMBER, TEXT])
    return [Deletion(*row) for row in zip(*(rows[name].to_pylist() for name in (KEY, NUMBER, TEXT)), strict=True)]


def _order(deletion: Deletion) -> tuple[bool, Decimal, bytes]:
    number = deletion.number
    return number is not None, Decimal(0) if number is None else number, (deletion.text or "").encode()
