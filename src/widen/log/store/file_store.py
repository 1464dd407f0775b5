"""The files of a table, as each kind of store gives them.

Source: PROTOCOL.md#delta-log-entries (a version is written by one writer only)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO, Protocol


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file in a listing.

    Args:
        path: Relative to the table, as the store spells it (not percent-encoded).
        modified_ms: When the file was last written, in ms since the epoch.
    """

    path: str
    size_bytes: int
    modified_ms: int

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


class FileStore(Protocol):
    """Files by their paths, which are relative to the table and not percent-encoded."""

    def read(self, path: str) -> bytes:
        """Return the content of a file.

        Raises:
            FileMissing: the file does not exist.
            StorageError: the store reported an error.
        """

    def read_many(self, paths: Iterable[str]) -> Iterator[bytes]:
        """Yield the contents of files in the given order; an object store is read ahead.

        Raises:
            FileMissing: a file does not exist.
            StorageError: the store reported an error.
        """

    def open(self, path: str) -> BinaryIO:
        """Open a file for reading at any position; the caller closes it.

        Raises:
            FileMissing: the file does not exist.
            StorageError: the store reported an error.
        """

    def create(self, path: str) -> BinaryIO:
        """Create a file and open it for writing; it is complete once the caller closes it.

        Raises:
            StorageError: the store reported an error; writing and closing may raise it, too.
        """

    def put(self, path: str, data: bytes) -> None:
        """Write a file, replacing an existing one; readers see the old content or the new one.

        Raises:
            StorageError: the store reported an error.
        """

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write a file unless it exists; readers never see a part of it.

        Returns:
            True if the file was written, False if it exists already.

        Raises:
            UnsafeStore: the store would overwrite an existing file; nothing was written.
            StorageRefused: the store refused; the file was not written.
            StorageError: the outcome is unclear; the file may exist now or appear later.

        Source: PROTOCOL.md#delta-log-entries
        """

    def find(self, path: str) -> FileEntry | None:
        """Return the file at that path; None if there is none.

        Its time may be less precise than in a listing.

        Raises:
            StorageError: the store reported an error.
        """

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files in no certain order; missing files are not an error.

        Raises:
            StorageError: the store reported an error.
        """

    def delete_in_order(self, paths: Iterable[str]) -> None:
        """Delete files, each after the one before it is deleted; missing files are not an error.

        Raises:
            StorageError: the store reported an error; the files after the failed one are there.
        """
