"""The store of a table: its files by their paths, wherever the table lies.

Source: PROTOCOL.md#delta-log-entries (a version is written once); house rule: storage errors are translated here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import BinaryIO
from urllib.parse import quote, unquote, urlsplit

from widen.errors import InvalidOption
from widen.log.store.file_entry import FileEntry
from widen.log.store.local_files import LocalFiles
from widen.log.store.object_store import ObjectStoreFiles

__all__ = ["FileEntry", "LogStore"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_SPELLED = {"s3": "s3a", "gcs": "gs", "azure": "abfss", "az": "abfss", "adl": "abfss", "abfs": "abfss"}
_REMOTE = frozenset({"s3", "s3a", "gs", "gcs", "az", "azure", "adl", "abfs", "abfss"})
_KEPT = "/!$&'()*+,;=:@-._~"
_ACCOUNT_KEYS = ("azure_storage_account_name", "account_name")


class LogStore:
    """The files of one table. Picklable; a connection is made when it is first used.

    Every path is relative to the table and plain (not percent-encoded), or else absolute: a URI or a local path.

    Args:
        location: A local path, a ``file:`` URL, or a URL of S3 (s3, s3a), Google (gs) or Azure (az, abfs, abfss).
        storage_options: Settings and credentials, keys as in object_store and deltalake, in any case.

    Raises:
        InvalidOption: the scheme of the location is not known.
    """

    def __init__(self, location: str, storage_options: Mapping[str, str] | None = None) -> None:
        self.location = _normalize_location(location)
        self.storage_options = dict(storage_options or {})

    def __reduce__(self) -> tuple[type[LogStore], tuple[str, dict[str, str]]]:
        return LogStore, (self.location, self.storage_options)

    def __repr__(self) -> str:
        return f"LogStore({self.location!r})"

    @cached_property
    def _files(self) -> LocalFiles | ObjectStoreFiles:
        if self.is_local:
            return LocalFiles(self.location)
        return ObjectStoreFiles(self.location, self.storage_options)

    @property
    def is_local(self) -> bool:
        """Tell whether the table lies on a local disk."""
        return not _SCHEME.match(self.location)

    def _resolved(self, path: str) -> tuple[LocalFiles | ObjectStoreFiles, str]:
        if not path.startswith("/") and not _SCHEME.match(path):
            return self._files, path
        absolute = _normalize_location(path)
        if absolute.startswith(self.location + "/"):
            return self._files, absolute[len(self.location) + 1 :]
        folder, _, name = absolute.rpartition("/")
        return LogStore(folder or "/", self.storage_options)._files, name

    def read(self, path: str) -> bytes:
        """Return the content of a file.

        Raises:
            FileMissing: there is none.
            StorageError: the store refused.
        """
        files, at = self._resolved(path)
        return files.read(at)

    def read_many(self, paths: Iterable[str]) -> Iterator[bytes]:
        """Yield the contents of files of the table, in the order asked for, some of them read ahead.

        Raises:
            FileMissing: there is no such file.
            StorageError: the store refused.
        """
        return self._files.read_many(paths)

    def open(self, path: str) -> BinaryIO:
        """Return a file opened for reading at any position; the caller closes it.

        Raises:
            FileMissing: there is none.
            StorageError: the store refused.
        """
        files, at = self._resolved(path)
        return files.open(at)

    def create(self, path: str) -> BinaryIO:
        """Return a new file of the table opened for writing; it is complete when the caller has closed it.

        Raises:
            StorageError: the store refused; writing and closing may raise it, too.
        """
        return self._files.create(path)

    def put(self, path: str, data: bytes) -> None:
        """Write a file, over what may be there; readers see the old one or the new one.

        Raises:
            StorageError: the store refused: permission, space, network.
        """
        self._files.put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write a file unless somebody has; no reader ever sees half of it.

        Returns:
            True if it was written, False if there is such a file.

        Raises:
            StorageRefused: the store refused; the file was not written.
            StorageError: the store did not answer, or said nothing clear: the file may be there now or later.

        Source: PROTOCOL.md#delta-log-entries
        """
        return self._files.put_if_absent(path, data)

    def exists(self, path: str) -> bool:
        """Tell whether there is a file of that path.

        Raises:
            StorageError: the store refused.
        """
        files, at = self._resolved(path)
        return files.exists(at)

    def list(self, folder: str) -> Iterator[FileEntry]:
        """Yield every file in a folder of the table and below it, in name order.

        Args:
            folder: Its path; empty for the whole table. A folder that is not there is empty.

        Raises:
            StorageError: the store refused.
        """
        return iter(self._files.list(folder, deep=True))

    def list_from(self, path: str) -> Iterator[FileEntry]:
        """Yield the files beside that path whose names are the same or later, in name order; nothing below.

        Raises:
            StorageError: the store refused.
        """
        folder = path.rpartition("/")[0]
        if isinstance(self._files, ObjectStoreFiles):
            found = self._files.list(folder, deep=False, start=_path_before(path))
        else:
            found = self._files.list(folder, deep=False)
        return (entry for entry in found if entry.path >= path)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files of the table; one that is gone already is no error.

        Raises:
            StorageError: the store refused.
        """
        self._files.delete(paths)

    def uri(self, path: str) -> str:
        """Return the absolute URI of a file as Spark and Hadoop spell it.

        Args:
            path: The percent-encoded path of an add action, relative or absolute.

        Source: PROTOCOL.md#add-file-and-remove-file
        """
        if path.startswith("/"):
            return f"file://{path}"
        found = _SCHEME.match(path)
        if not found:
            return f"{self._root_uri}/{path}"
        scheme = found[1].lower()
        if scheme == "file":
            return "file:///" + path[len("file:") :].lstrip("/")
        return f"{_SPELLED.get(scheme, scheme)}:{path.partition(':')[2]}" if scheme in ("s3", "gcs") else path

    @cached_property
    def _root_uri(self) -> str:
        if self.is_local:
            return f"file://{_quote_path(self.location)}".rstrip("/")
        parts = urlsplit(self.location)
        scheme, host = _SPELLED.get(parts.scheme, parts.scheme), parts.netloc
        if scheme == "abfss" and "@" not in host:
            lower = {key.lower(): value for key, value in self.storage_options.items()}
            account = next((lower[key] for key in _ACCOUNT_KEYS if key in lower), None)
            host = f"{host}@{account}.dfs.core.windows.net" if account else host
        return f"{scheme}://{host}{_quote_path(parts.path)}"

    def plain(self, path: str) -> str:
        """Return the path by which this store knows the file of an add action.

        Args:
            path: The percent-encoded path of the action, relative or absolute.

        Source: PROTOCOL.md#add-file-and-remove-file (the path is a URI, to be decoded)
        """
        found = _SCHEME.match(path)
        return path if found and found[1].lower() == "file" else unquote(path)


def percent_encode(path: str) -> str:
    """Return a plain path as an add action has it: percent-encoded.

    Source: PROTOCOL.md#add-file-and-remove-file
    """
    return quote(path, safe=_KEPT)


def _normalize_location(location: str) -> str:
    found = _SCHEME.match(location)
    if not found:
        return os.path.abspath(location)
    scheme = found[1].lower()
    if scheme == "file":
        return os.path.abspath("/" + unquote(location[len("file:") :]).lstrip("/"))
    if scheme not in _REMOTE:
        expected = "Give a local path or a URL of s3, s3a, gs, az, abfs or abfss."
        raise InvalidOption(option="location", value=location, expected=expected)
    scheme = {"s3a": "s3", "gcs": "gs"}.get(scheme, scheme)
    return f"{scheme}:{location[len(found[1]) + 1 :]}".rstrip("/")


def _quote_path(path: str) -> str:
    """Quote what Java's URIs quote: what is not allowed in ASCII; other letters stay."""
    return "".join(c if ord(c) > 127 else quote(c, safe=_KEPT) for c in path)


def _path_before(path: str) -> str:
    """Return a path that is not after that one and close to it: object stores list what comes after an offset."""
    return path[:-1].rstrip("/")
