"""The keys that a table has deleted, found and read by the proof itself: the writer may have missed one.

Source: docs/guide/keys.md#deletes
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Set
from decimal import Decimal
from typing import Any, NamedTuple, Protocol

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


_NONCE_BITS = 20
"""The low bits of the number of a list, which tell lists of one version apart; all are 0 before the first list."""


class DeletionListing(NamedTuple):
    """Where a table lists its deleted keys.

    Args:
        path: The list, a JSON file that names the files with the keys and their sizes.
    """

    store: TableFiles
    path: str

    @staticmethod
    def of_delta(store: TableFiles, transactions: Mapping[str, Any]) -> DeletionListing | None:
        """Return the list of a version of a Delta table; None if it has deleted no key."""
        named = transactions.get("widen.keys")
        return _find(store, "_delta_log/_widen/keys", 0 if named is None else named.version)

    @staticmethod
    def of_iceberg(store: TableFiles, properties: Mapping[str, str]) -> DeletionListing | None:
        """Return the list of an Iceberg table by its properties; None if it has deleted no key."""
        return _find(store, "_widen/keys", int(properties.get("widen.deleted-keys", "0")))

    def files(self) -> dict[str, int]:
        """Return the files with the keys, and their sizes."""
        try:
            return dict(json.loads(self.store.read(self.path))["files"])
        except (FileMissing, ValueError, KeyError, TypeError) as error:
            raise _damaged(self.path) from error

    def read(self, path: str) -> list[Deletion]:
        """Return the deletions in one of the files."""
        try:
            content = self.store.read(self.store.plain(path))
            rows = pq.ParquetFile(pa.BufferReader(content)).read(columns=[KEY, NUMBER, TEXT])
        except (FileMissing, ValueError, KeyError, pa.ArrowException) as error:
            raise _damaged(path) from error
        return [Deletion(*row) for row in zip(*(rows[name].to_pylist() for name in (KEY, NUMBER, TEXT)), strict=True)]


def _find(store: TableFiles, folder: str, number: int) -> DeletionListing | None:
    nonce = number % 2**_NONCE_BITS
    return DeletionListing(store, f"{folder}/keys.{number >> _NONCE_BITS:020}.{nonce:05x}.json") if nonce else None


def _damaged(path: str) -> CorruptLog:
    reason = "the list of deleted keys is missing or damaged"
    fix = "Copy a table with its whole log. Without the list, late records could bring deleted rows back."
    return CorruptLog(path=path, reason=reason, fix=fix)


class Deletion(NamedTuple):
    """A deleted key with the order of its deletion, which is a number or a text."""

    key: str
    number: Decimal | None
    text: str | None

    @property
    def order(self) -> str | None:
        """The sequence of the deletion as a text."""
        return self.text if self.number is None else str(self.number)


def are_kept(before: Set[Deletion], after: Set[Deletion], *, every: bool) -> bool:
    """Return whether a version lists the deletions of the version before, and no others."""
    missing = before - after
    if after - before or not missing or every:
        return not (after - before or missing)
    newest: dict[str, Deletion] = {}
    for each in before:
        newest[each.key] = max(newest.get(each.key, each), each, key=_age)
    return missing.isdisjoint(newest.values())


def _age(deletion: Deletion) -> tuple[Decimal, bytes]:
    return deletion.number or Decimal(0), (deletion.text or "").encode()


def read_deletions(listing: DeletionListing | None, limit: int | None = KEY_LIST_BYTES) -> Iterator[Deletion] | None:
    """Return the deletions in a list, where a key may occur more than once; None if its files are too large."""
    files = {} if listing is None else listing.files()
    if limit is not None and sum(files.values()) > limit:
        return None
    return (each for path in files if listing is not None for each in listing.read(path))
