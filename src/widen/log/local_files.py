"""Files on a local disk, written atomically: a reader sees a whole file or no file.

A file is first written under a hidden name in the same folder and flushed to the disk. Then it is linked or renamed to
its final name; both steps are atomic on POSIX file systems and on NTFS.

Source: PROTOCOL.md#delta-log-entries (a version must be written by one writer only)
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, Protocol

from widen.errors import FileMissing, StorageError, StorageRefused
from widen.model.value_classes import dataclass

# The files of a table, as each kind of store gives them.
#
# Source: PROTOCOL.md#delta-log-entries (a version is written by one writer only)


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
            StorageError: the store reported an error; writing and closing may raise it as well.
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
        """Return the file at that path; None if it does not exist.

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


_REASONS: dict[int, tuple[str, str]] = {
    errno.EACCES: ("permission denied", "Run as a user who may read and write there, or change the permissions."),
    errno.EPERM: ("operation not permitted", "Run as a user who may write there, on a file system with hard links."),
    errno.EROFS: ("the file system is read-only", "Choose a location that can be written."),
    errno.ENOSPC: ("no space left on the disk", "Free some space and repeat the call."),
    errno.EDQUOT: ("the disk quota is used up", "Free some space and repeat the call."),
    errno.ENOTDIR: ("a part of the path is a file, not a directory", "Choose another location."),
    errno.EISDIR: ("it is a directory", "Choose another location."),
    errno.ENODEV: ("it is not a regular file", "Check the path; a table contains only files, not pipes or devices."),
    errno.ENOTSUP: ("the file system has no hard links", "Choose a location on another file system."),
}
_UNREADABLE = (OSError, ValueError)
"""What the operating system and Python raise; the second for a path that no file can have, e.g. with NUL."""

_FIX = "Check the disk and repeat the call."
STAGED = ".widen-staged"
"""The suffix of files that are still being written; listings skip them."""


def absolute_path(path: str) -> str:
    """Return a path from a caller with its directory, which is the current one if the path is relative.

    Raises:
        StorageError: the current directory has been deleted.
    """
    try:
        return os.path.abspath(path)
    except FileNotFoundError as error:
        reason = "the path is relative, and the current directory has been deleted"
        fix = "Change to a directory that exists, or give an absolute path."
        raise StorageError(location=path, reason=reason, fix=fix) from error


class LocalFiles(FileStore):
    """The files below one folder. A folder that a deletion leaves empty is also deleted."""

    def __init__(self, root: str) -> None:
        self._root = root

    def _absolute(self, path: str) -> str:
        return os.path.join(self._root, path) if path else self._root

    def read(self, path: str) -> bytes:
        target = self._absolute(path)
        try:
            with open(target, "rb", buffering=0, opener=_open_regular) as file:
                return file.read()
        except _UNREADABLE as error:
            raise _translate(target, error) from error

    def read_many(self, paths: Iterable[str]) -> Iterator[bytes]:
        return map(self.read, paths)  # threads do not make a local disk faster

    def open(self, path: str) -> BinaryIO:
        target = self._absolute(path)
        try:
            return open(target, "rb", buffering=0, opener=_open_regular)
        except _UNREADABLE as error:
            raise _translate(target, error) from error

    def create(self, path: str) -> BinaryIO:
        target = self._absolute(path)
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            return open(target, "xb")
        except OSError as error:
            raise _translate(target, error) from error

    def put(self, path: str, data: bytes) -> None:
        target = self._absolute(path)
        with _staged_file(target, data) as staged:
            try:
                os.replace(staged, target)
            except OSError as error:
                raise _translate(target, error) from error

    def put_if_absent(self, path: str, data: bytes) -> bool:
        target = self._absolute(path)
        if os.path.lexists(target):  # saves staging a file that would lose anyway; the link below decides
            return False
        with _staged_file(target, data) as staged:
            try:
                os.link(staged, target)
            except FileExistsError:
                return False
            except OSError as error:
                raise _translate(target, error) from error
        return True

    def find(self, path: str) -> FileEntry | None:
        try:
            status = os.stat(self._absolute(path))
        except (FileNotFoundError, NotADirectoryError, ValueError):  # a path with NUL names no file
            return None
        except OSError as error:
            raise _translate(self._absolute(path), error) from error
        return (
            FileEntry(path, status.st_size, status.st_mtime_ns // 1_000_000) if stat.S_ISREG(status.st_mode) else None
        )

    def list(self, folder: str, *, deep: bool, start: str = "") -> list[FileEntry]:
        """Return the files in a folder in name order, from a path on if one is given; a missing folder is empty."""
        try:
            return sorted(self._entries(folder.rstrip("/"), start, deep=deep), key=lambda entry: entry.path)
        except _UNREADABLE as error:
            raise _translate(self._absolute(folder), error) from error

    def _entries(self, folder: str, start: str, *, deep: bool) -> Iterator[FileEntry]:
        try:
            scan = os.scandir(self._absolute(folder))
        except FileNotFoundError:
            return
        with scan:
            for item in scan:
                path = f"{folder}/{item.name}" if folder else item.name
                if item.is_dir():
                    yield from self._entries(path, start, deep=True) if deep else ()
                elif path >= start and not item.name.endswith(STAGED):
                    yield from _to_entry(item, path)

    def walk(self, skips: Callable[[str], bool], folder: str = "") -> Iterator[FileEntry]:
        """Yield every file, also those that are still being written; links to folders are not followed."""
        try:
            for item in _scan(self._absolute(folder)):
                path = f"{folder}/{item.name}" if folder else item.name
                if item.is_dir(follow_symlinks=False):
                    yield from () if skips(path) else self.walk(skips, path)
                elif item.is_file():
                    yield from _to_entry(item, path)
        except OSError as error:
            raise _translate(self._absolute(folder), error) from error

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            target = self._absolute(path)
            try:
                os.unlink(target)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise _translate(target, error) from error
            with contextlib.suppress(OSError):
                _remove_checksum(target)
            self._prune(os.path.dirname(target))

    delete_in_order = delete

    def _prune(self, folder: str) -> None:
        with contextlib.suppress(OSError):
            # Removing a folder that is not empty fails, which ends the loop.
            while len(folder) > len(self._root):
                os.rmdir(folder)
                folder = os.path.dirname(folder)


def _scan(folder: str) -> list[os.DirEntry[str]]:
    """Return the entries of a folder; a folder that was deleted meanwhile is empty."""
    try:
        with os.scandir(folder) as scan:
            return list(scan)
    except FileNotFoundError:
        return []


def _open_regular(path: str, flags: int) -> int:
    """Open a regular file only: a damaged log must not make us block on a pipe or read a device forever."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        reason, fix = _REASONS[errno.EISDIR if os.path.isdir(path) else errno.ENODEV]
        raise StorageError(location=path, reason=reason, fix=fix)
    # The file may be replaced by a pipe after the check; opening it must not wait for a writer.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _remove_checksum(target: str) -> None:
    """Remove the checksum that Hadoop keeps beside a file: it would refuse to read other content of that name."""
    folder, name = os.path.split(target)
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, f".{name}.crc"))


@contextlib.contextmanager
def _staged_file(target: str, data: bytes) -> Iterator[str]:
    """Write a hidden file next to the target and let the caller move it there; the hidden file is always deleted."""
    folder, name = os.path.split(target)
    staged = os.path.join(folder, f".{name}.{uuid.uuid4().hex}{STAGED}")
    try:
        try:
            _stage(target, staged, data)
            yield staged
        finally:
            # On a read-only disk this also fails; the error of the write says whether the target can be there.
            with contextlib.suppress(OSError):
                os.unlink(staged)
        # The new name is durable only after the folder is flushed; before that, a crash can lose a committed version.
        _flush_folder(folder)
    except OSError as error:  # the target may exist already, so this must not read as "not written"
        raise StorageError(location=target, reason=_reason(error), fix=_FIX) from error


def _stage(target: str, staged: str, data: bytes) -> None:
    try:
        os.makedirs(os.path.dirname(staged), exist_ok=True)
        with open(staged, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        _remove_checksum(target)
    except OSError as error:  # nothing was moved yet, so the target is certainly not written
        reason, fix = _REASONS.get(error.errno or 0, (_reason(error), _FIX))
        raise StorageRefused(location=target, reason=reason, fix=f"Nothing was written. {fix}") from error


def _flush_folder(folder: str) -> None:
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _to_entry(item: os.DirEntry[str], path: str) -> Iterator[FileEntry]:
    with contextlib.suppress(FileNotFoundError):  # deleted after the scan listed it
        status = item.stat()
        yield FileEntry(path, status.st_size, status.st_mtime_ns // 1_000_000)


def _translate(target: str, error: OSError | ValueError) -> StorageError:
    if isinstance(error, (FileNotFoundError, ValueError)):
        return FileMissing(location=target, reason="the file does not exist", fix="Check the path.")
    if error.errno in _REASONS:
        reason, fix = _REASONS[error.errno]
        return StorageRefused(location=target, reason=reason, fix=fix)
    return StorageError(location=target, reason=_reason(error), fix=_FIX)


def _reason(error: OSError) -> str:
    return str(error.strerror or error)
