"""The progress of a stream of files, in the format that Spark's Structured Streaming keeps in a checkpoint.

A stream that began without Spark goes on with it, and the reverse. Source path I is the one at that place, from 0 on.

| file | what it has | written |
|---|---|---|
| ``metadata`` | ``{"id": …}``, the id of the stream | at the first start |
| ``sources/I/K`` | ``v1``, and for each file ``{"path": URI, "timestamp": ms, "batchId": K}`` | before ``offsets/N`` |
| ``sources/I/K.compact`` | the same for all files up to K, where K is 9, 19, … | instead of ``sources/I/K`` |
| ``offsets/N`` | ``v1``, settings, and for each path its last K: ``{"logOffset": K}`` or ``-`` | before interval N |
| ``commits/N`` | ``v1``, and ``{"nextBatchWatermarkMs":0}`` | after interval N |

Interval N has the files of each path after its K in ``offsets/N-1``, up to its K in ``offsets/N``. So it has the same
files when it is repeated, and files whose interval did not begin belong to the next one. No file is ever replaced: a
file that exists already is from another process that runs the same stream.

Source: Spark's OffsetSeqLog, CommitLog, FileStreamSourceLog and CompactibleFileStreamLog
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec

from widen.errors import CorruptFile, FileMissing, SourceError, StreamTaken
from widen.log.log_store import LogStore
from widen.log.vacuum import COMMITS, METADATA, OFFSETS, SOURCES
from widen.model.value_classes import dataclass
from widen.sources.find_files import FileTable, SeenFiles
from widen.sources.listing import SourceFile, source_file_key

_VERSION, _NONE_YET, _COMPACT = b"v1", b"-", ".compact"
_COMMIT = b'{"nextBatchWatermarkMs":0}'
_COMPACT_EVERY = 10
"""Spark's default of spark.sql.streaming.fileSource.log.compactInterval."""

_KEPT_INTERVALS, _KEPT_MS = 100, 10 * 60 * 1000
"""How many intervals stay in a checkpoint, and for how long what a compact file has replaced: Spark's defaults."""

_ANY_VERSION = re.compile(rb"v\d+")
_NUMBERED = re.compile(rf"(\d+)(?:{re.escape(_COMPACT)})?")
_FIX = "Restore the file from a copy, or name a new checkpoint: a stream with a new one loads all files again."

_Value = TypeVar("_Value")


class _LoggedFile(msgspec.Struct, frozen=True, rename="camel"):
    path: str
    timestamp: int
    batch_id: int


class _LogOffset(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    log_offset: int


class _StreamId(msgspec.Struct, frozen=True):
    id: str


@dataclass(frozen=True, slots=True)
class StreamCheckpoint:
    """The files of a checkpoint on a local disk.

    Args:
        paths: The number of source paths of the stream.
    """

    store: LogStore
    paths: int

    @classmethod
    def at(cls, place: str, paths: int) -> StreamCheckpoint:
        """Return the checkpoint at a local place."""
        return cls(LogStore(place), paths)

    def find_obstacle(self) -> str | None:
        """Return why only Spark can go on with the stream; None if this module can."""
        logs = [_log_folder(at) for at in range(self.paths)]
        for folder in (OFFSETS, COMMITS, *logs):
            names = self.numbered(folder)
            if folder in logs and any(name != _log_name(number) for number, name in names.items()):
                return f"the checkpoint is not compacted every {_COMPACT_EVERY} intervals"
            version = next((self.lines(folder, names[last])[0] for last in reversed(names)), _VERSION)
            if version != _VERSION:
                return f"the checkpoint has files of the version {version.decode()}"
        last = self.last(OFFSETS)
        ends = [] if last is None else self.lines(OFFSETS, str(last))[2:]
        if any(b"logOffset" not in end for end in ends if end != _NONE_YET):
            return "the checkpoint is one of another kind of source"
        if last is not None and len(ends) != self.paths:
            return f"the checkpoint is one of another number of source paths, {len(ends)}"
        return None

    def open_id(self) -> str:
        """Return the id of the stream, which stays the same for the life of the checkpoint."""
        self.store.put_if_absent(METADATA, msgspec.json.encode(_StreamId(str(uuid.uuid4()))))
        return self.decode(METADATA, self.store.read(METADATA), _StreamId).id

    def open(self) -> StreamProgress:
        """Return how far the stream is."""
        logs = [_FileLog(self, _log_folder(at)) for at in range(self.paths)]
        last, committed = self.last(OFFSETS), self.last(COMMITS)
        if committed is not None and (last is None or committed > last):
            raise self.corrupt(f"{OFFSETS}/{committed}", "it is missing")
        none = (-1,) * self.paths
        if last is None:
            return StreamProgress(self, logs, {"batchWatermarkMs": 0, "batchTimestampMs": 0, "conf": {}}, 0, none)
        metadata, ends = self._read_offsets(last)
        for log, end in zip(logs, ends, strict=True):
            if end > log.last:
                raise self.corrupt(f"{log.folder}/{_log_name(end)}", "it is missing")
        if committed == last:
            return StreamProgress(self, logs, metadata, last + 1, ends)
        return StreamProgress(self, logs, metadata, last, self._read_offsets(last - 1)[1] if last else none, ends)

    def _read_offsets(self, number: int) -> tuple[dict[str, Any], tuple[int, ...]]:
        lines = self.lines(OFFSETS, str(number))
        path = f"{OFFSETS}/{number}"
        metadata: dict[str, Any] = self.decode(path, b"".join(lines[1:2]), dict)
        ends = [-1 if line == _NONE_YET else self.decode(path, line, _LogOffset).log_offset for line in lines[2:]]
        if len(ends) != self.paths:
            raise self.corrupt(path, f"it has the offsets of {len(ends)} source paths, and the stream has {self.paths}")
        return metadata, tuple(ends)

    def numbered(self, folder: str) -> dict[int, str]:
        """Return the names of the files of a folder by their numbers, in order."""
        names = (entry.name for entry in self.store.list(folder))
        return dict(sorted((int(match[1]), match[0]) for match in map(_NUMBERED.fullmatch, names) if match))

    def last(self, folder: str) -> int | None:
        """Return the largest number of a file of a folder; None without files."""
        return next(reversed(self.numbered(folder)), None)

    def lines(self, folder: str, name: str) -> list[bytes]:
        """Return the lines of a file; the first one is a version."""
        path = f"{folder}/{name}"
        try:
            lines = self.store.read(path).splitlines()
        except FileMissing as error:
            raise self.corrupt(path, "it is missing") from error
        if not lines or not _ANY_VERSION.fullmatch(lines[0]):
            raise self.corrupt(path, "it does not begin with a version" if lines else "it is empty")
        return lines

    def decode(self, path: str, text: bytes, kind: type[_Value]) -> _Value:
        """Return a JSON text of a file as a value."""
        try:
            return msgspec.json.decode(text, type=kind)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise self.corrupt(path, f"it is damaged ({error})") from error

    def corrupt(self, path: str, reason: str) -> CorruptFile:
        """Return the error for a file that cannot be used."""
        return CorruptFile(path=f"{self.store.location}/{path}", reason=reason, fix=_FIX)

    def create(self, path: str, *lines: bytes) -> None:
        """Write a file that does not exist yet.

        Raises:
            StreamTaken: it exists.
        """
        if not self.store.put_if_absent(path, b"\n".join([_VERSION, *lines])):
            raise StreamTaken(checkpoint=self.store.location, file=path)


@dataclass
class _FileLog:
    """The files that the stream has found in one source path.

    Args:
        last: The offset of the newest files; -1 without files.
    """

    checkpoint: StreamCheckpoint
    folder: str
    last: int = field(init=False)
    seen: SeenFiles = field(init=False)

    def __post_init__(self) -> None:
        last = self.checkpoint.last(self.folder)
        self.last = -1 if last is None else last
        offsets = range(_last_compact(self.last), self.last + 1)
        keys = (source_file_key(unquote(file.path)) for offset in offsets for file in self._decoded(offset))
        self.seen = SeenFiles(keys)

    def read(self, offset: int) -> list[str]:
        """Return the URIs of the files of an offset."""
        return [file.path for file in self._decoded(offset) if file.batch_id == offset]

    def add(self, files: Sequence[SourceFile]) -> None:
        """Record new files under the next offset."""
        offset = self.last + 1
        lines = [self._encode(file, offset) for file in files]
        if _is_compact(offset):
            before = range(_last_compact(offset - 1), offset)
            lines = [*(line for each in before for line in self._lines(each)), *lines]
        self.checkpoint.create(f"{self.folder}/{_log_name(offset)}", *lines)
        self.last = offset
        self.seen.add([source_file_key(file.path) for file in files])

    def purge(self) -> None:
        """Delete what a compact file has replaced, if it and that file are old enough.

        Source: Spark's CompactibleFileStreamLog.deleteExpiredLog
        """
        kept, before_ms = _last_compact(self.last - _KEPT_INTERVALS), time.time_ns() // 1_000_000 - _KEPT_MS
        entries = self.checkpoint.store.list(self.folder) if _is_compact(self.last) and kept else ()
        old = [entry.path for entry in entries if _is_older(entry.name, kept) and entry.modified_ms < before_ms]
        self.checkpoint.store.delete(old)

    def _decoded(self, offset: int) -> Iterator[_LoggedFile]:
        path = f"{self.folder}/{_log_name(offset)}"
        return (self.checkpoint.decode(path, line, _LoggedFile) for line in self._lines(offset))

    def _lines(self, offset: int) -> list[bytes]:
        return self.checkpoint.lines(self.folder, _log_name(offset))[1:]

    def _encode(self, file: SourceFile, offset: int) -> bytes:
        try:
            # Spark identifies files by the text of these URIs, which have an empty host.
            uri = f"file://{file.uri.removeprefix('file:')}"
            return msgspec.json.encode(_LoggedFile(uri, file.modified_ms, offset))
        except UnicodeEncodeError as error:
            fix = "Rename the file."
            raise SourceError(source=ascii(file.path), reason="its name is not in UTF-8", fix=fix) from error


@dataclass
class StreamProgress:
    """How far a stream is.

    Args:
        metadata: What ``offsets`` has beside the offsets. Spark keeps settings there, which stay as they are.
        number: The number of the interval that is to be written.
        starts: The last offset before the files of the interval, for each source path.
        ends: The offset of the last of them; None as long as the interval has not begun.
    """

    checkpoint: StreamCheckpoint
    logs: Sequence[_FileLog]
    metadata: dict[str, Any]
    number: int
    starts: tuple[int, ...]
    ends: tuple[int, ...] | None = None

    def new_files(self, at: int, files: FileTable) -> list[SourceFile]:
        """Return the files of a source path that the stream has not found yet."""
        return self.logs[at].seen.find_new(files)

    def begin(self, find_new: Callable[[int], Sequence[SourceFile]]) -> list[str] | None:
        """Return the URIs of the files of the interval, and record them first if it has not begun.

        Args:
            find_new: Finds new files of a source path, given the path's index; see `new_files`.

        Returns:
            None if there are no new files.
        """
        if self.ends is None:
            for at, log in enumerate(self.logs):
                new = find_new(at)
                if new:
                    log.add(new)
            ends = tuple(log.last for log in self.logs)
            if ends == self.starts:
                return None
            self.metadata["batchTimestampMs"] = time.time_ns() // 1_000_000
            lines = [_NONE_YET if end < 0 else msgspec.json.encode(_LogOffset(end)) for end in ends]
            self.checkpoint.create(f"{OFFSETS}/{self.number}", msgspec.json.encode(self.metadata), *lines)
            self.ends = ends
        spans = zip(self.logs, self.starts, self.ends, strict=True)
        return [uri for log, start, end in spans for offset in range(start + 1, end + 1) for uri in log.read(offset)]

    def finish(self) -> None:
        """Record that the table has the interval."""
        assert self.ends is not None
        self.checkpoint.create(f"{COMMITS}/{self.number}", _COMMIT)
        self.number, self.starts, self.ends = self.number + 1, self.ends, None
        for folder in (OFFSETS, COMMITS):
            names = self.checkpoint.numbered(folder)
            old = [name for number, name in names.items() if number < self.number - _KEPT_INTERVALS]
            self.checkpoint.store.delete(f"{folder}/{name}" for name in old)
        for log in self.logs:
            log.purge()


def _log_folder(at: int) -> str:
    return f"{SOURCES}/{at}"


def _log_name(offset: int) -> str:
    return f"{offset}{_COMPACT}" if _is_compact(offset) else str(offset)


def _is_compact(offset: int) -> bool:
    return (offset + 1) % _COMPACT_EVERY == 0


def _last_compact(offset: int) -> int:
    """Return the last offset with a compact file, up to one; 0 without compact files."""
    return max((offset + 1) // _COMPACT_EVERY * _COMPACT_EVERY - 1, 0)


def _is_older(name: str, offset: int) -> bool:
    match = _NUMBERED.fullmatch(name)
    return match is not None and int(match[1]) < offset
