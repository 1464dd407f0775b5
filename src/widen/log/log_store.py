"""The store of a table: one interface to its files, on a local disk or in an object store.

Source: PROTOCOL.md#delta-log-entries (a version is written once)
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, partial
from typing import BinaryIO
from urllib.parse import quote, unquote, urlsplit

from widen.errors import InvalidOption
from widen.log.local_files import FileEntry, FileStore, LocalFiles, absolute_path
from widen.log.object_store import ObjectStoreFiles

__all__ = ["FileEntry", "LogStore"]

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
HOST, LOCAL_HOST = re.compile("//[^/]+"), re.compile("^//localhost/", re.IGNORECASE)
"""The host of a ``file:`` URL after its scheme, and the one that means this host."""

_HADOOP_SCHEMES = {"s3": "s3a", "gcs": "gs", "azure": "abfss", "az": "abfss", "adl": "abfss", "abfs": "abfss"}
_REMOTE = frozenset({"s3", "s3a", "gs", "gcs", "az", "azure", "adl", "abfs", "abfss"})
_UNQUOTED = "/!$&'()*+,;=:@-._~"
_ACCOUNT_KEYS = ("azure_storage_account_name", "account_name")


class LogStore(FileStore):
    """The files of one table. Picklable; connects on first use.

    Paths are not percent-encoded. They are relative to the table, or absolute: a URI or a local path.

    Args:
        location: A local path, a ``file:`` URL, or a URL of S3 (s3, s3a), Google (gs) or Azure (az, abfs, abfss).
        storage_options: Settings and credentials, keys as in object_store and deltalake, in any case; for credentials
            that expire, a function that returns the current ones. A copy of the store keeps the ones that it was made
            with.
    """

    def __init__(
        self,
        location: str | os.PathLike[str],
        storage_options: Mapping[str, str] | Callable[[], Mapping[str, str]] | None = None,
    ) -> None:
        self.location = _normalize_location(os.fspath(location))
        self._read_options = storage_options if callable(storage_options) else partial(dict, storage_options or {})
        self._remote: tuple[Mapping[str, str], ObjectStoreFiles] | None = None

    def __reduce__(self) -> tuple[type[LogStore], tuple[str, dict[str, str]]]:
        return LogStore, (self.location, self.storage_options)

    def __repr__(self) -> str:
        return f"LogStore({self.location!r})"

    @property
    def storage_options(self) -> dict[str, str]:
        """Settings and credentials, as they are now."""
        return dict(self._read_options())

    @property
    def _files(self) -> LocalFiles | ObjectStoreFiles:
        return self._local if self.is_local else self._open_remote()

    @cached_property
    def _local(self) -> LocalFiles:
        return LocalFiles(self.location)

    def _open_remote(self) -> ObjectStoreFiles:
        options = self.storage_options
        if self._remote is None or self._remote[0] != options:
            self._remote = options, ObjectStoreFiles(self.location, options)
        return self._remote[1]

    @cached_property
    def is_local(self) -> bool:
        """Return whether the table is on a local disk."""
        return not _SCHEME.match(self.location)

    def _resolve(self, path: str) -> tuple[LocalFiles | ObjectStoreFiles, str]:
        if not path.startswith("/") and not _SCHEME.match(path):
            return self._files, path
        absolute = _normalize_location(path)
        if absolute.startswith(self.location + "/"):
            return self._files, absolute[len(self.location) + 1 :]
        folder, _, name = absolute.rpartition("/")
        return LogStore(folder or "/", self.storage_options)._files, name

    def read(self, path: str) -> bytes:
        files, inner_path = self._resolve(path)
        return files.read(inner_path)

    def read_many(self, paths: Iterable[str]) -> Iterator[bytes]:
        return self._files.read_many(paths)

    def open(self, path: str) -> BinaryIO:
        files, inner_path = self._resolve(path)
        return files.open(inner_path)

    def create(self, path: str) -> BinaryIO:
        return self._files.create(path)

    def put(self, path: str, data: bytes) -> None:
        self._files.put(path, data)

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return self._files.put_if_absent(path, data)

    def find(self, path: str) -> FileEntry | None:
        files, inner_path = self._resolve(path)
        return files.find(inner_path)

    def list(self, folder: str, start: str = "") -> Iterator[FileEntry]:
        """Yield every file in a folder of the table and below it, in name order.

        Args:
            folder: The path of the folder; an empty string for the whole table. A missing folder is empty.
            start: An object store begins after this path; empty to begin with the first file.
        """
        return iter(self._files.list(folder, deep=True, start=start))

    def walk(self, skips: Callable[[str], bool]) -> Iterator[FileEntry]:
        """Yield every file of the table in no order, also files of the local disk that are still being written.

        Links to folders are not followed: they may lead out of the table.

        Args:
            skips: Tells whether to skip a folder, by its path in the table.
        """
        if isinstance(self._files, LocalFiles):
            return self._files.walk(skips)
        return skip_folders(self.list(""), skips)

    def list_range(self, after: str, last: str) -> Iterator[FileEntry]:
        """Yield the files of a table in an object store whose paths come after one path, up to another one.

        Args:
            after: The path before the first one; empty to begin with the first file.
            last: The last path; empty to go on to the last file.
        """
        assert isinstance(self._files, ObjectStoreFiles)
        return self._files.list_range(after, last)

    def list_from(self, path: str) -> Iterator[FileEntry]:
        """Yield the files of a folder from this path on, in the order of their names, without subfolders."""
        folder = path.rpartition("/")[0]
        if isinstance(self._files, ObjectStoreFiles):
            entries = self._files.list(folder, deep=False, start=_path_before(path))
        else:
            entries = self._files.list(folder, deep=False, start=path)
        return (entry for entry in entries if entry.path >= path)

    def delete(self, paths: Iterable[str]) -> None:
        self._files.delete(paths)

    def delete_in_order(self, paths: Iterable[str]) -> None:
        self._files.delete_in_order(paths)

    def uri(self, path: str) -> str:
        """Return the absolute URI of a file as Spark and Hadoop spell it.

        Source: PROTOCOL.md#add-file-and-remove-file
        """
        if path.startswith("/"):
            return f"file://{path}"
        match = _SCHEME.match(path)
        if not match:
            return f"{self._root_uri}/{path}"
        scheme = match[1].lower()
        if scheme == "file":
            return f"file://{_local_path(path)}"
        return f"{_HADOOP_SCHEMES.get(scheme, scheme)}:{path.partition(':')[2]}" if scheme in ("s3", "gcs") else path

    @cached_property
    def _root_uri(self) -> str:
        if self.is_local:
            return f"file://{_quote_path(self.location)}".rstrip("/")
        parts = urlsplit(self.location)
        scheme, host = _HADOOP_SCHEMES.get(parts.scheme, parts.scheme), parts.netloc
        if scheme == "abfss" and "@" not in host:
            lower = {key.lower(): value for key, value in self.storage_options.items()}
            account = next((lower[key] for key in _ACCOUNT_KEYS if key in lower), None)
            # Hadoop needs the account in the host; obstore and deltalake get it from the options.
            host = f"{host}@{account}.dfs.core.windows.net" if account else host
        return f"{scheme}://{host}{_quote_path(parts.path)}"

    def plain(self, path: str) -> str:
        """Return the path that this store uses for the file of an add action.

        Source: PROTOCOL.md#add-file-and-remove-file (the path is a URI, to be decoded)
        """
        match = _SCHEME.match(path)
        return path if match and match[1].lower() == "file" else unquote(path)  # a file: URL is decoded on resolution


def skip_folders(entries: Iterable[FileEntry], skips: Callable[[str], bool]) -> Iterator[FileEntry]:
    """Yield the files that are not in a folder to skip.

    Args:
        skips: Tells whether to skip a folder, by its path; asked once for each.
    """
    skipped: dict[str, bool] = {"": False}

    def is_skipped(folder: str) -> bool:
        if folder not in skipped:
            skipped[folder] = is_skipped(folder.rpartition("/")[0]) or skips(folder)
        return skipped[folder]

    return (entry for entry in entries if not is_skipped(entry.path.rpartition("/")[0]))


def percent_encode(path: str) -> str:
    """Return a plain path in the form that add actions use: percent-encoded.

    Source: PROTOCOL.md#add-file-and-remove-file
    """
    return quote(path, safe=_UNQUOTED)


def _normalize_location(location: str) -> str:
    match = _SCHEME.match(location)
    if not match:
        return absolute_path(location)
    scheme = match[1].lower()
    if scheme == "file":
        return os.path.abspath(unquote(_local_path(location)))
    if scheme not in _REMOTE:
        expected = "Give a local path or a URL of s3, s3a, gs, az, abfs or abfss."
        raise InvalidOption(option="location", value=location, expected=expected)
    scheme = {"s3a": "s3", "gcs": "gs"}.get(scheme, scheme)
    return f"{scheme}:{location[len(match[1]) + 1 :]}".rstrip("/")


def _local_path(url: str) -> str:
    """Return the path of a ``file:`` URL, which stays percent-encoded.

    Raises:
        InvalidOption: it is on another host.

    Source: RFC 8089
    """
    path = LOCAL_HOST.sub("/", url[len("file:") :])
    if HOST.match(path):
        expected = "It is on another host. The URL of a file on this one begins with file:///"
        raise InvalidOption(option="location", value=url, expected=expected)
    return "/" + path.lstrip("/")


def _quote_path(path: str) -> str:
    """Quote a path as Java's URI class does: reserved ASCII characters only."""
    return "".join(c if ord(c) > 127 else quote(c, safe=_UNQUOTED) for c in path)


def _path_before(path: str) -> str:
    """Return a path at or just before that one: an object store lists only what comes after its offset."""
    return path[:-1].rstrip("/")
