"""The keys that a table has deleted, read by the proof itself: the writer may have missed one.

Source: docs/guide/keys.md#deletes
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import NamedTuple, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from widen.errors import CorruptLog, FileMissing
from widen.limits import KEY_LIST_BYTES

KEY, NUMBER, TEXT = "__widen_key_0", "__widen_number", "__widen_text"
"""The columns of a file with deleted keys: the key, and the number or the text that orders its deletion."""


class TableFiles(Protocol):
    """The files of a table, by the paths that its lists name."""

    def read(self, path: str, /) -> bytes: ...

    def plain(self, path: str, /) -> str: ...


class DeletionListing(NamedTuple):
    """Where a table lists its deleted keys.

    Args:
        store: The files of the table.
        path: The list, a JSON file that names the files with the keys and their sizes.
        every: Whether each deletion of a key counts, and not only the newest.
    """

    store: TableFiles
    path: str
    every: bool


class Deletion(NamedTuple):
    """A deleted key with the order of its deletion, which is a number or a text."""

    key: str
    number: Decimal | None
    text: str | None


def read_deletions(listing: DeletionListing) -> list[Deletion] | None:
    """Return the deletions in a list; None if its files have more than `KEY_LIST_BYTES`.

    Raises:
        CorruptLog: a file is missing or damaged.
    """
    store, path, every = listing
    try:
        files: Mapping[str, int] = dict(json.loads(store.read(path))["files"])
        if sum(files.values()) > KEY_LIST_BYTES:
            return None
        found = [each for file in files for each in _read_file(store.read(store.plain(file)))]
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
