"""Which files make up a version: one checkpoint, and the commits after it.

Source: PROTOCOL.md#delta-log-entries, #checkpoints, #log-compaction-files, #last-checkpoint-file
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from widen.errors import CorruptLog, StorageError, TableNotFound, VersionNotFound
from widen.log.store.log_store import FileEntry, LogStore

UNUSABLE = (StorageError, RecursionError, msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What reading a small JSON file raises: no file, another shape, other bytes than UTF-8, thousands of levels."""

LOG = "_delta_log"
LAST_CHECKPOINT = f"{LOG}/_last_checkpoint"
SIDECARS = f"{LOG}/_sidecars"

_COMMIT = re.compile(r"(\d{20})\.json")
_COMPACTED = re.compile(r"(\d{20})\.(\d{20})\.compacted\.json")
_CHECKSUM = re.compile(r"(\d{20})\.crc")
_CLASSIC = re.compile(r"(\d{20})\.checkpoint\.parquet")
_MULTIPART = re.compile(r"(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet")
_UUID = re.compile(r"(\d{20})\.checkpoint\.[0-9a-fA-F-]{36}\.(?:json|parquet)")
_KINDS = (_COMMIT, _COMPACTED, _CHECKSUM, _CLASSIC, _MULTIPART, _UUID)


def commit_path(version: int) -> str:
    """Return the path of a commit file."""
    return f"{LOG}/{version:020d}.json"


def checksum_path(version: int) -> str:
    """Return the path of a version checksum file."""
    return f"{LOG}/{version:020d}.crc"


def checkpoint_path(version: int) -> str:
    """Return the path of a classic checkpoint file."""
    return f"{LOG}/{version:020d}.checkpoint.parquet"


@dataclass(frozen=True, slots=True)
class LogFile:
    """A commit (``first`` = ``last``) or a log compaction file."""

    first: int
    last: int
    entry: FileEntry


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint, in one file or in parts."""

    version: int
    files: tuple[FileEntry, ...]


@dataclass(frozen=True, slots=True)
class LogSegment:
    """The files that make up one version.

    Args:
        version: The table version.
        checkpoint: The newest complete checkpoint that is not later, if there is one.
        tail: What comes after it, oldest first, without gaps: commits and log compactions.
        commits: The commits that were listed, up to the version, oldest first.
        checksums: The versions that have a checksum file: this one and those back to the checkpoint.
    """

    version: int
    checkpoint: Checkpoint | None
    tail: tuple[LogFile, ...]
    commits: tuple[LogFile, ...]
    checksums: frozenset[int]


def find_segment(store: LogStore, version: int | None = None) -> LogSegment:
    """Return the files that make up a version, the newest one if none is given.

    ``_last_checkpoint`` only says where to begin to list; what it says is never trusted.

    Raises:
        TableNotFound: there is no log.
        VersionNotFound: there is no such version, or what it needs has been cleaned up.
        CorruptLog: a version is missing between others.
        StorageError: the store refused.

    Source: PROTOCOL.md#last-checkpoint-file (a hint), PROTOCOL.md#delta-log-entries (contiguous versions)
    """
    start = _hint(store)
    if start and (version is None or start <= version):
        listing = LogListing(store.list_from(f"{LOG}/{start:020d}"))
        is_there = listing.newest >= (start if version is None else version)
        if listing.checkpoint(version) and listing.commits and is_there:
            return listing.segment(store, version)
    return list_log(store).segment(store, version)


def find_versions(store: LogStore) -> tuple[LogFile, ...]:
    """Return every commit file there is, oldest first.

    Raises:
        TableNotFound: there is no log.
        StorageError: the store refused.
    """
    listing = list_log(store)
    listing.ensure_table(store)
    return listing.versions


def list_log(store: LogStore) -> LogListing:
    """Return every file of a log, by what its name says.

    Raises:
        StorageError: the store refused.
    """
    return LogListing(store.list_from(f"{LOG}/{0:020d}"))


def _hint(store: LogStore) -> int:
    """Return the version that ``_last_checkpoint`` names; 0 if it cannot be used, for nothing depends on it."""
    try:
        return msgspec.json.decode(store.read(LAST_CHECKPOINT), type=_LastCheckpoint).version
    except UNUSABLE:
        return 0


class _LastCheckpoint(msgspec.Struct):
    version: int


class LogListing:
    """The files of a log by what their names say; other names are ignored.

    Args:
        entries: The files; those of commits become `commits`, whole checkpoints `checkpoints`, by version.
    """

    def __init__(self, entries: Iterable[FileEntry]) -> None:
        self.commits: dict[int, LogFile] = {}
        self.checkpoints: dict[int, Checkpoint] = {}
        self._entries = tuple(entries)
        self._compacted: dict[int, list[LogFile]] = {}
        self._checksums: set[int] = set()
        self._parts: dict[tuple[int, int], dict[int, FileEntry]] = {}
        for entry in self._entries:
            self._sort_in(entry)
        for (version, count), parts in self._parts.items():
            if len(parts) == count:
                files = tuple(parts[i] for i in sorted(parts))
                self.checkpoints.setdefault(version, Checkpoint(version, files))

    def _sort_in(self, entry: FileEntry) -> None:
        name = entry.name
        if found := _COMMIT.fullmatch(name):
            self.commits[int(found[1])] = LogFile(int(found[1]), int(found[1]), entry)
        elif found := _CHECKSUM.fullmatch(name):
            self._checksums.add(int(found[1]))
        elif found := _COMPACTED.fullmatch(name):
            self._compacted.setdefault(int(found[1]), []).append(LogFile(int(found[1]), int(found[2]), entry))
        elif found := _CLASSIC.fullmatch(name) or _UUID.fullmatch(name):
            self.checkpoints[int(found[1])] = Checkpoint(int(found[1]), (entry,))
        elif found := _MULTIPART.fullmatch(name):
            self._parts.setdefault((int(found[1]), int(found[3])), {})[int(found[2])] = entry

    @property
    def newest(self) -> int:
        """The newest version; -1 if there is none."""
        return max((*self.commits, *self.checkpoints), default=-1)

    @property
    def versions(self) -> tuple[LogFile, ...]:
        """The commits, oldest first."""
        return tuple(self.commits[version] for version in sorted(self.commits))

    def checkpoint(self, version: int | None) -> Checkpoint | None:
        """Return the newest whole checkpoint that is not later than a version; None if there is none."""
        known = [v for v in self.checkpoints if version is None or v <= version]
        return self.checkpoints[max(known)] if known else None

    @property
    def checkpoint_files(self) -> list[FileEntry]:
        """The files of checkpoints, also of several for one version; none of those in parts."""
        return [entry for entry in self._entries if _CLASSIC.fullmatch(entry.name) or _UUID.fullmatch(entry.name)]

    def before(self, version: int) -> list[FileEntry]:
        """Return the files that a checkpoint of a version stands for, in the order in which they may go.

        Commits go before the checkpoints that belong to them.

        Source: PROTOCOL.md#metadata-cleanup; protocol_rfcs/checkpoint-protection.md for the order
        """
        found = [(rank, int(match[1]), entry) for entry in self._entries for rank, match in _ranked(entry.name)]
        last = {rank: version if pattern is _COMPACTED else version - 1 for rank, pattern in enumerate(_KINDS)}
        return [entry for rank, first, entry in sorted(found, key=lambda item: item[:2]) if first <= last[rank]]

    def ensure_table(self, store: LogStore) -> None:
        """Check that there is a version.

        Raises:
            TableNotFound: there is none.
        """
        if self.newest < 0:
            raise TableNotFound(location=store.location, reason=f"there is no folder {LOG} with commits")

    def segment(self, store: LogStore, version: int | None) -> LogSegment:
        """Return the files that make up a version, as `find_segment` does.

        Raises:
            TableNotFound: there is no log.
            VersionNotFound: there is no such version, or what it needs has been cleaned up.
            CorruptLog: a version is missing between others.
        """
        self.ensure_table(store)
        wanted = self.newest if version is None else version
        if not 0 <= wanted <= self.newest:
            raise _no_version(store, wanted, f"the versions are {self._oldest()} to {self.newest}")
        checkpoint = self.checkpoint(wanted)
        first = checkpoint.version + 1 if checkpoint else 0
        tail = tuple(self._tail(store, first, wanted))
        commits = tuple(self.commits[v] for v in sorted(self.commits) if v <= wanted)
        checksums = frozenset(v for v in self._checksums if first - 1 <= v <= wanted)
        return LogSegment(wanted, checkpoint, tail, commits, checksums)

    def _oldest(self) -> int:
        """Return the oldest version that can be reconstructed."""
        return 0 if 0 in self.commits else min(self.checkpoints, default=0)

    def _tail(self, store: LogStore, first: int, last: int) -> Iterable[LogFile]:
        at = first
        while at <= last:
            compacted = [file for file in self._compacted.get(at, ()) if at < file.last <= last]
            found = max(compacted, key=lambda file: file.last, default=None) or self.commits.get(at)
            if found is None:
                raise self._missing(store, at, last)
            yield found
            at = found.last + 1

    def _missing(self, store: LogStore, at: int, last: int) -> Exception:
        if last < self._oldest():
            return _no_version(store, last, f"it was cleaned up; the versions are {self._oldest()} to {self.newest}")
        return CorruptLog(
            path=f"{store.location}/{commit_path(at)}",
            reason=f"version {at} is missing, though version {last} needs it",
            fix="Restore the file from a backup; a checkpoint of that version or a later one would do as well.",
        )


def _ranked(name: str) -> Iterator[tuple[int, re.Match[str]]]:
    return ((rank, found) for rank, pattern in enumerate(_KINDS) if (found := pattern.fullmatch(name)))


def _no_version(store: LogStore, version: int, reason: str) -> VersionNotFound:
    return VersionNotFound(
        location=store.location, wanted=f"version {version}", reason=reason, fix="Ask for one of these."
    )
