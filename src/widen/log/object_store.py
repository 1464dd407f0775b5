"""Files in an object store: S3 and compatible stores, Google Cloud Storage, Azure.

Every object store goes through obstore, and its errors are translated here.
"""

from __future__ import annotations

import contextlib
import io
import re
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, BinaryIO, cast
from urllib.parse import urlsplit

import obstore
from obstore import exceptions
from obstore import store as stores

from widen.errors import FileMissing, InvalidOption, StorageError, StorageRefused, UnsafeStore
from widen.errors.requests import ensure_without_credentials
from widen.errors.tables import first_line
from widen.log.local_files import FileEntry, FileStore

if TYPE_CHECKING:
    from obstore import ObjectMeta


_READ_AHEAD = 32
"""How many files are read at a time. A request takes tens of milliseconds for a small log file of any size, so
replaying a long log one file at a time would only wait for the network."""

_DELETED_AT_ONCE = 1000
"""How many files are deleted at a time: the most that one request to S3 can name."""

_CLIENT_KEYS = frozenset(
    {
        "allow_http",
        "allow_invalid_certificates",
        "connect_timeout",
        "default_content_type",
        "http1_only",
        "http2_only",
        "pool_idle_timeout",
        "pool_max_idle_per_host",
        "proxy_url",
        "timeout",
        "user_agent",
    }
)
_PUT = "conditional_put"
_UNSAFE_RENAME = "s3_allow_unsafe_rename"
"""A setting of deltalake that is ignored: nothing is renamed here."""

_LOCKS = ("lock", "dynamo")
"""Parts of the names of settings that ask for an external lock provider."""

_WITHOUT_LOCKS = "Remove it: commits rely on conditional writes of the store, and other writers must do so, too."

_PROVEN: set[tuple[str, ...]] = set()
"""The stores that this process has seen refuse to overwrite an existing file."""

_FAMILIES = ("aws_", "google_", "azure_")
_VALID = "Give valid credentials (storage_options or environment)."
_REASONS: tuple[tuple[type[Exception] | tuple[type[Exception], ...], str, str], ...] = (
    (
        (exceptions.PermissionDeniedError, PermissionError),
        "permission denied",
        "Give credentials that may read and write there (storage_options or environment).",
    ),
    (
        exceptions.UnauthenticatedError,
        "the credentials were not accepted",
        _VALID,
    ),
)
_DENIED = re.compile("ExpiredToken|InvalidToken|InvalidAccessKeyId|SignatureDoesNotMatch|AccessDenied|403 Forbidden")
"""What answers say that obstore reports as errors of any kind: S3 answers an expired token with the status 400, and
the errors of a listing have one class."""

OBSTORE_ERRORS = (exceptions.BaseError, OSError, ValueError)
"""What obstore raises: its own errors and some built-in ones."""


class ObjectStoreFiles(FileStore):
    """The files below one URL.

    Args:
        url: ``s3://bucket/prefix``, or the URL of another store.
        options: Settings and credentials, keys as in object_store, in any case, e.g. ``AWS_ENDPOINT_URL``.

    Raises:
        InvalidOption: the URL or an option cannot be used.
    """

    def __init__(self, url: str, options: Mapping[str, str]) -> None:
        ensure_without_credentials("location", url)
        self._url = url
        # Whether writes are conditional depends on the endpoint and the bucket, not on the path or the credentials.
        self._key = (*urlsplit(url)[:2], *sorted(f"{k}={v}" for k, v in options.items() if "endpoint" in k.lower()))
        config, client = _split_options(options)
        try:
            self._store = stores.from_url(url, config=cast(Any, config), client_options=cast(Any, client) or None)
        except OBSTORE_ERRORS as error:
            expected = f"Check the location and the storage options: {first_line(error)}"
            raise InvalidOption(option="location", value=url, expected=expected) from error

    def read(self, path: str) -> bytes:
        try:
            return obstore.get(self._store, path).bytes().to_bytes()
        except OBSTORE_ERRORS as error:
            raise self._translate(path, error) from error

    def read_many(self, paths: Iterable[str]) -> Iterator[bytes]:
        pending: deque[Future[bytes]] = deque()
        with ThreadPoolExecutor(_READ_AHEAD, "widen-read") as pool:
            try:
                for path in paths:
                    pending.append(pool.submit(self.read, path))
                    if len(pending) >= _READ_AHEAD:
                        yield pending.popleft().result()
                while pending:
                    yield pending.popleft().result()
            finally:
                for future in pending:
                    future.cancel()

    def open(self, path: str) -> BinaryIO:
        try:
            size_bytes = obstore.head(self._store, path)["size"]
        except OBSTORE_ERRORS as error:
            raise self._translate(path, error) from error
        return cast(BinaryIO, _RemoteFile(self, path, size_bytes))

    def read_range(self, path: str, start: int, end: int) -> bytes:
        """Return the bytes of a file from ``start`` up to, but not including, ``end``."""
        try:
            return obstore.get_range(self._store, path, start=start, end=end).to_bytes()
        except OBSTORE_ERRORS as error:
            raise self._translate(path, error) from error

    def create(self, path: str) -> BinaryIO:
        writer = obstore.open_writer(self._store, path)
        return cast(BinaryIO, _NewFile(writer, partial(self._translate, path)))

    def put(self, path: str, data: bytes) -> None:
        try:
            obstore.put(self._store, path, data)
        except OBSTORE_ERRORS as error:
            raise self._translate(path, error) from error

    def put_if_absent(self, path: str, data: bytes) -> bool:
        self._ensure_safe()
        return self._put_new(path, data)

    def _ensure_safe(self) -> None:
        """Check, once per store and process, that the store honours create-only writes.

        Some S3-compatible stores ignore ``If-None-Match`` and overwrite silently. Two writers could then both commit
        the same version, and one commit would be lost. So a probe file is created twice before the first commit: a safe
        store rejects the second write.

        Raises:
            UnsafeStore: the store overwrote the probe.
            StorageRefused: the probe failed; the file itself was not written.

        Source: PROTOCOL.md#delta-log-entries (a version is written by one writer only)
        """
        if self._key in _PROVEN:
            return
        probe = f"_delta_log/.widen-{uuid.uuid4().hex}.probe"
        try:
            is_safe = self._put_new(probe, b"1") and not self._put_new(probe, b"2")
        except StorageError as error:
            fix = "Check the store and the storage options, and repeat the call."
            raise StorageRefused(location=self._url, reason=error.message, fix=fix) from error
        finally:
            with contextlib.suppress(StorageError):  # readers ignore a probe that stays behind
                self.delete([probe])
        if not is_safe:
            raise UnsafeStore(location=self._url)
        _PROVEN.add(self._key)

    def _put_new(self, path: str, data: bytes) -> bool:
        try:
            # Only a single request can be conditional, not an upload in parts.
            obstore.put(self._store, path, data, mode="create", use_multipart=False)
        except (exceptions.AlreadyExistsError, exceptions.PreconditionError, FileExistsError):
            return False
        except FileNotFoundError as error:
            fix = "Create the bucket or container, or check the location."
            reason = "the bucket or container does not exist"
            raise StorageRefused(location=self._url, reason=reason, fix=fix) from error
        except OBSTORE_ERRORS as error:
            raise self._translate(path, error) from error
        return True

    def find(self, path: str) -> FileEntry | None:
        try:
            return _to_entry(obstore.head(self._store, path))
        except FileNotFoundError:
            return None
        except OBSTORE_ERRORS as error:
            raise self._translate(path, error) from error

    def list(self, folder: str, *, deep: bool, start: str = "") -> list[FileEntry]:
        """Return the files in a folder in name order, those after a path if one is given; a missing folder is empty."""
        folder = folder.rstrip("/")
        entries = self._entries(folder, start)
        depth = folder.count("/") + 1 if folder else 0
        return sorted((e for e in entries if deep or e.path.count("/") == depth), key=lambda entry: entry.path)

    def list_range(self, after: str, last: str) -> Iterator[FileEntry]:
        """Yield the files whose paths come after one path, up to another one; an empty text means no bound."""
        return takewhile(lambda entry: not last or entry.path <= last, self._entries("", after))

    def _entries(self, folder: str, start: str) -> Iterator[FileEntry]:
        try:
            for page in obstore.list(self._store, folder or None, offset=start or None, chunk_size=1000):
                yield from map(_to_entry, page)
        except OBSTORE_ERRORS as error:
            raise self._translate(folder, error) from error

    def delete(self, paths: Iterable[str]) -> None:
        remaining = iter(paths)
        while some := list(islice(remaining, _DELETED_AT_ONCE)):
            try:
                obstore.delete(self._store, some)
            except FileNotFoundError:  # of some stores only: they delete one file per request
                self.delete_in_order(some)
            except OBSTORE_ERRORS as error:
                raise self._translate("", error) from error

    def delete_in_order(self, paths: Iterable[str]) -> None:
        for path in paths:
            try:
                obstore.delete(self._store, path)
            except FileNotFoundError:
                continue
            except OBSTORE_ERRORS as error:
                raise self._translate(path, error) from error

    def _translate(self, path: str, error: Exception) -> StorageError:
        location = f"{self._url}/{path}" if path else self._url
        if isinstance(error, FileNotFoundError):
            return FileMissing(location=location, reason="the file does not exist", fix="Check the path.")
        for kinds, reason, fix in _REASONS:
            if isinstance(error, kinds):
                return StorageRefused(location=location, reason=reason, fix=fix)
        denied = _DENIED.search(str(error))
        if denied:
            reason, fix = f"the credentials were not accepted ({denied[0]})", _VALID
            return StorageError(location=location, reason=reason, fix=fix)
        fix = "Check the network, the endpoint and the storage options, and repeat the call."
        return StorageError(location=location, reason=first_line(error), fix=fix)


class _RemoteFile(io.RawIOBase):
    """A file of a store, readable at any position; each read is one request."""

    def __init__(self, files: ObjectStoreFiles, path: str, size_bytes: int) -> None:
        super().__init__()
        self._files, self._path, self._size_bytes = files, path, size_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        origin = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        self._position = origin + offset
        return self._position

    def readinto(self, target: Any) -> int:
        end = min(self._position + len(target), self._size_bytes)
        if end <= self._position:
            return 0
        data = self._files.read_range(self._path, self._position, end)
        target[: len(data)] = data
        self._position += len(data)
        return len(data)


class _NewFile(io.RawIOBase):
    """A file of a store, written sequentially."""

    def __init__(self, writer: Any, translate: Callable[[Exception], StorageError]) -> None:
        super().__init__()
        self._writer, self._translate = writer, translate
        self._size_bytes = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size_bytes

    def write(self, data: Any) -> int:
        try:
            self._writer.write(data)
        except OBSTORE_ERRORS as error:
            raise self._translate(error) from error
        self._size_bytes += len(data)
        return len(data)

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        try:
            self._writer.close()
        except OBSTORE_ERRORS as error:
            raise self._translate(error) from error


def _to_entry(item: ObjectMeta) -> FileEntry:
    return FileEntry(item["path"], item["size"], int(item["last_modified"].timestamp() * 1000))


def _split_options(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str | bool]]:
    """Split options into options of the store and options of its HTTP client: callers give both in one mapping.

    Raises:
        InvalidOption: a setting asks for an external lock, or switches conditional writes off.
    """
    config: dict[str, str] = {}
    client: dict[str, str | bool] = {}
    for key, value in options.items():
        name = key.lower()
        for family in _FAMILIES:
            name = name.removeprefix(family)
        if name in _CLIENT_KEYS:
            client[name] = value.lower() == "true" if value.lower() in ("true", "false") else value
        elif any(word in name for word in _LOCKS) or (name == _PUT and value.lower() != "etag"):
            raise InvalidOption(option=key, value=value, expected=_WITHOUT_LOCKS)
        elif name != _UNSAFE_RENAME:
            config[key.lower()] = value
    return config, client
