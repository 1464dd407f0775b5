"""How this process opens files of a source, on the local disk and in an object store; it also lists object stores.

Spark's tasks leave other stores to its file systems, because its workers have no credentials. Tasks of this process
take the storage options of the call, or the settings of the environment.

Source: docs/guide/engine.md
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatchcase
from functools import lru_cache
from itertools import islice
from typing import Any, BinaryIO, NamedTuple, TypeVar, cast
from urllib.parse import unquote

from widen.errors import StorageError
from widen.log.log_store import LogStore
from widen.spark.engine import SOURCE_OPTIONS
from widen.spark.errors import may_pass

_REQUESTS_AT_ONCE, _LISTED_AT_ONCE = 32, 1_000
_STORE = re.compile(r"((?:s3a?|gs|abfss?)://[^/]+)/*(.*)", re.IGNORECASE | re.DOTALL)
_SPECIAL, _ONLY_SPARK = re.compile(r"[*?\[{\\]"), re.compile(r"[{}\\]")
_FIRST_READ, _LONGEST_READ = 2**16, 2**23
"""The number of bytes of the first request, and the maximum; the number doubles from request to request."""

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


class StoreFile(NamedTuple):
    """A file of an object store, with the URL as the caller spells it."""

    url: str
    size_bytes: int
    modified_ms: int


def is_store_url(path: str) -> bool:
    """Return whether a path, URL or pattern names files of an object store that this process can list."""
    return _STORE.fullmatch(path) is not None and not _ONLY_SPARK.search(path)


def is_store_folder(path: str) -> bool:
    """Return whether a path names one place in an object store that this process can list."""
    return is_store_url(path) and not _SPECIAL.search(_split(path)[1])


def list_store_files(path: str, is_hidden: Callable[[str], bool], *, after: str = "") -> list[StoreFile] | None:
    """Return the files that a URL or a pattern names, with those below them; None if there is nothing.

    Args:
        is_hidden: Tells by the name of a file or folder whether it is left out below what the URL names.
        after: The URL after whose name the listing of a folder begins; empty to list everything.
    """
    root, key = _split(path)
    store = _open_store(root)
    special = _SPECIAL.search(key)
    if special is None:
        key = key.rstrip("/")
        found = store.find(key) if key and not path.endswith("/") else None
        entries = [found] if found is not None else [*store.list(key, start=_split(after)[1] if after else "")]
        depth = key.count("/") + 1 if key else 0
    else:
        entries = [*store.list(key[: special.start()].rpartition("/")[0])]
        parts = key.rstrip("/").split("/")
        depth = len(parts)
        entries = [entry for entry in entries if _matches(entry.path.split("/"), parts)]
    # Spark reads the files of a URL even in a hidden folder, but no hidden files.
    visible = [each for each in entries if not any(map(is_hidden, [*each.path.split("/")[depth:], each.name]))]
    files = [StoreFile(f"{root}/{each.path}", each.size_bytes, each.modified_ms) for each in visible if each.size_bytes]
    return files if entries or after else None


def _matches(names: Sequence[str], parts: Sequence[str]) -> bool:
    pairs = zip(names, parts, strict=False)
    return len(names) >= len(parts) and all(matches_part(name, part) for name, part in pairs)


def matches_part(name: str, part: str) -> bool:
    """Return whether the name of a file or folder matches one part of a pattern, as Hadoop writes it."""
    return fnmatchcase(name, part.replace("[^", "[!"))


@lru_cache(maxsize=16)
def _open_known(root: str, options: tuple[tuple[str, str], ...]) -> LogStore:
    return LogStore(root, dict(options))


def _open_store(root: str) -> LogStore:
    return _open_known(root, tuple(sorted(SOURCE_OPTIONS.get().items())))


def _split(url: str) -> tuple[str, str]:
    match = _STORE.fullmatch(url)
    assert match is not None
    return match[1], match[2]


def open_local_file(path: str) -> BinaryIO:
    """Open a local file. After a transient error, open it again, or read it again from the same position."""
    return io.BufferedReader(_LocalFile(path))


class _LocalFile(io.RawIOBase):
    """A local file that is opened again after a transient error, e.g. in a network file system."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path
        self._file = self._open()

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def readinto(self, target: Any) -> int | None:
        return self._retry(lambda: self._file.readinto(target))

    def readall(self) -> bytes:
        return self._retry(lambda: self._file.readall())

    def close(self) -> None:
        self._file.close()
        super().close()

    def _open(self) -> io.FileIO:
        try:
            return open(self._path, "rb", buffering=0)
        except OSError as error:
            if not may_pass(error):
                raise
            return open(self._path, "rb", buffering=0)

    def _retry(self, read: Callable[[], Answer]) -> Answer:
        at = self._file.tell()
        try:
            return read()
        except OSError as error:
            if not may_pass(error):
                raise
            self._file.close()
            self._file = self._open()
            self._file.seek(at)
            return read()


def open_store_file(uri: str) -> BinaryIO:
    """Open a file by its URI, with escapes."""
    root, key = _split(uri)
    return cast(BinaryIO, io.BufferedReader(_ReadAhead(_open_store(root).open(unquote(key))), _FIRST_READ))


class _ReadAhead(io.RawIOBase):
    """A file that requests more bytes at a time the longer it is read sequentially."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__()
        self._file, self._ahead, self._step = file, memoryview(b""), _FIRST_READ

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._file.tell() - len(self._ahead)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_CUR:
            offset, whence = self.tell() + offset, io.SEEK_SET
        self._ahead = memoryview(b"")
        return self._file.seek(offset, whence)

    def readinto(self, target: Any) -> int:
        if not self._ahead:
            self._ahead = memoryview(self._file.read(max(self._step, len(target))))
            self._step = min(2 * self._step, _LONGEST_READ)
        count = min(len(target), len(self._ahead))
        target[:count] = self._ahead[:count]
        self._ahead = self._ahead[count:]
        return count


def find_states(urls: Sequence[str]) -> Mapping[str, tuple[int, int]]:
    """Return sizes and times of modification of the files that exist, by their URLs."""
    named = [(_open_store(root), key) for root, key in map(_split, urls)]
    found = zip(urls, _ask_all(lambda each: each[0].find(each[1]), named), strict=True)
    return {url: (entry.size_bytes, entry.modified_ms) for url, entry in found if entry is not None}


def find_folders(folders: Sequence[str], ending: str) -> list[str]:
    """Return the folders that have a file with this suffix among their first 1,000 (one request per folder).

    A folder that the caller may not list counts as one without it: credentials may be for the source alone.
    """
    options = SOURCE_OPTIONS.get()

    def has_file(folder: str) -> bool:
        listed = islice(LogStore(folder, options).list_range("", ""), _LISTED_AT_ONCE)
        try:
            return any(entry.path.endswith(ending) for entry in listed)
        except StorageError:
            return False

    return [folder for folder, found in zip(folders, _ask_all(has_file, folders), strict=True) if found]


def _ask_all(ask: Callable[[Asked], Answer], items: Sequence[Asked]) -> list[Answer]:
    with ThreadPoolExecutor(_REQUESTS_AT_ONCE, "widen-source") as pool:
        return list(pool.map(ask, items))
