"""Files on a local disk: whole or not there, never half.

A file is written under a hidden name beside its place, flushed to the disk, and then linked or renamed to its name;
both steps are atomic on POSIX file systems and on NTFS.

Source: PROTOCOL.md#delta-log-entries (a version must be written by one writer only); house rule for crash safety.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import uuid
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from widen.errors import FileMissing, StorageError, StorageRefused
from widen.log.store.file_entry import FileEntry

_REASONS: dict[int, tuple[str, str]] = {
    errno.EACCES: ("permission denied", "Run as a user who may read and write there, or change the permissions."),
    errno.EPERM: ("operation not permitted", "Run as a user who may write there, on a file system with hard links."),
    errno.EROFS: ("the file system is read-only", "Choose a location that can be written."),
    errno.ENOSPC: ("no space left on the disk", "Free some space and repeat the call."),
    errno.EDQUOT: ("the disk quota is used up", "Free some space and repeat the call."),
    errno.ENOTDIR: ("a part of the path is a file", "Choose another location."),
    errno.EISDIR: ("it is a folder", "Choose another location."),
    errno.ENODEV: ("it is not a regular file", "Check the path; a table has files only, no pipes and devices."),
    errno.ENOTSUP: ("the file system has no hard links", "Choose a location on another file system."),
}


_FIX = "Check the disk and repeat the call."


class LocalFiles:
    """The files below one folder.

    Args:
        root: The absolute path of the folder; it need not exist yet.
    """

    def __init__(self, root: str) -> None:
        self._root = root

    def _at(self, path: str) -> str:
        return os.path.join(self._root, path) if path else self._root

    def read(self, path: str) -> bytes:
        """Return the content of a file.

        Raises:
            FileMissing: there is none.
            StorageError: the system refused.
        """
        at = self._at(path)
        try:
            with open(at, "rb", buffering=0, opener=_open_regular) as file:
                return file.read()
        except OSError as error:
            raise _translate(at, error) from error

    def read_many(self, paths: Iterable[str]) -> Iterator[bytes]:
        """Yield the contents in order; a local disk is quickest one by one.

        Raises:
            FileMissing: there is no such file.
            StorageError: the system refused.
        """
        return map(self.read, paths)

    def open(self, path: str) -> BinaryIO:
        """Return the file, opened for reading at any position.

        Raises:
            FileMissing: there is none.
            StorageError: the system refused.
        """
        at = self._at(path)
        try:
            return open(at, "rb", buffering=0, opener=_open_regular)
        except OSError as error:
            raise _translate(at, error) from error

    def create(self, path: str) -> BinaryIO:
        """Return a new file, opened for writing.

        Raises:
            StorageError: the system refused.
        """
        at = self._at(path)
        try:
            os.makedirs(os.path.dirname(at), exist_ok=True)
            return open(at, "xb")
        except OSError as error:
            raise _translate(at, error) from error

    def put(self, path: str, data: bytes) -> None:
        """Write a file, over what may be there.

        Raises:
            StorageError: the system refused; what was there is untouched.
        """
        at = self._at(path)
        with _staged_file(at, data) as staged:
            try:
                os.replace(staged, at)
            except OSError as error:
                raise _translate(at, error) from error

    def put_if_absent(self, path: str, data: bytes) -> bool:
        """Write a file unless there is one; return whether it was written.

        Raises:
            StorageRefused: the system refused; the file was not written.
            StorageError: the system said nothing clear; a file system in a network may have the file now or later.
        """
        at = self._at(path)
        if os.path.lexists(at):
            return False
        with _staged_file(at, data) as staged:
            try:
                os.link(staged, at)
            except FileExistsError:
                return False
            except OSError as error:
                raise _translate(at, error) from error
        return True

    def exists(self, path: str) -> bool:
        """Tell whether there is a file of that path."""
        return os.path.isfile(self._at(path))

    def list(self, folder: str, *, deep: bool) -> list[FileEntry]:
        """Return the files in a folder in name order; none if there is no such folder.

        Raises:
            StorageError: the system refused.
        """
        try:
            return sorted(self._entries(folder.rstrip("/"), deep=deep), key=lambda entry: entry.path)
        except OSError as error:
            raise _translate(self._at(folder), error) from error

    def _entries(self, folder: str, *, deep: bool) -> Iterator[FileEntry]:
        try:
            scan = os.scandir(self._at(folder))
        except FileNotFoundError:
            return
        with scan:
            for item in scan:
                path = f"{folder}/{item.name}" if folder else item.name
                if item.is_dir():
                    if deep:
                        yield from self._entries(path, deep=True)
                elif not item.name.endswith(_STAGED):
                    with contextlib.suppress(FileNotFoundError):  # deleted since the scan
                        status = item.stat()
                        yield FileEntry(path, status.st_size, status.st_mtime_ns // 1_000_000)

    def delete(self, paths: Iterable[str]) -> None:
        """Delete files, and the directories below the root that are empty then; what is gone already is no error.

        Raises:
            StorageError: the system refused.
        """
        for path in paths:
            at = self._at(path)
            try:
                os.unlink(at)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise _translate(at, error) from error
            self._prune(os.path.dirname(at))

    def _prune(self, folder: str) -> None:
        with contextlib.suppress(OSError):
            while len(folder) > len(self._root):
                os.rmdir(folder)
                folder = os.path.dirname(folder)


def _open_regular(path: str, flags: int) -> int:
    """Open a regular file: a damaged log must not make us wait for a pipe or read a device without end."""
    if not stat.S_ISREG(os.stat(path).st_mode):
        reason, fix = _REASONS[errno.EISDIR if os.path.isdir(path) else errno.ENODEV]
        raise StorageError(location=path, reason=reason, fix=fix)
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


_STAGED = ".widen-staged"


@contextlib.contextmanager
def _staged_file(at: str, data: bytes) -> Iterator[str]:
    """Write beside the place, let the caller move it there, and leave nothing behind."""
    folder, name = os.path.split(at)
    staged = os.path.join(folder, f".{name}.{uuid.uuid4().hex}{_STAGED}")
    try:
        try:
            _stage(at, staged, data)
            yield staged
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(staged)
        _flush_folder(folder)
    except OSError as error:  # the file may be at its place already
        raise StorageError(location=at, reason=_reason(error), fix=_FIX) from error


def _stage(at: str, staged: str, data: bytes) -> None:
    try:
        os.makedirs(os.path.dirname(staged), exist_ok=True)
        with open(staged, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:  # whatever the reason, nobody has moved the file to its place
        reason, fix = _REASONS.get(error.errno or 0, (_reason(error), _FIX))
        raise StorageRefused(location=at, reason=reason, fix=fix) from error


def _flush_folder(folder: str) -> None:
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _translate(at: str, error: OSError) -> StorageError:
    if isinstance(error, FileNotFoundError):
        return FileMissing(location=at, reason="there is no such file", fix="Check the path.")
    if error.errno in _REASONS:
        reason, fix = _REASONS[error.errno]
        return StorageRefused(location=at, reason=reason, fix=fix)
    return StorageError(location=at, reason=_reason(error), fix=_FIX)


def _reason(error: OSError) -> str:
    return str(error.strerror or error)
