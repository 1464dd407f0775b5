"""Which files make up a version: one checkpoint, and the commits after it.

Source: PROTOCOL.md#delta-log-entries, #checkpoints, #log-compaction-files, #last-checkpoint-file
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from widen.errors import CorruptLog, FileMissing, TableNotFound, VersionNotFound
from widen.log.store import Entry, LogStore

LOG = "_delta_log"
LAST_CHECKPOINT = f"{LOG}/_last_checkpoint"
SIDECARS = f"{LOG}/_sidecars"

_COMMIT = re.compile(r"(\d{20})\.json")
_COMPACTED = re.compile(r"(\d{20})\.(\d{20})\.compacted\.json")
_CHECKSUM = re.compile(r"(\d{20})\.crc")
_CLASSIC = re.compile(r"(\d{20})\.checkpoint\.parquet")
_MULTIPART = re.compile(r"(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet")
_UUID = re.compile(r"(\d{20})\.checkpoint\.[0-9a-fA-F-]{36}\.(?:json|parquet)")


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
    entry: Entry


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A complete checkpoint, in one file or in parts."""

    version: int
    files: tuple[Entry, ...]


@dataclass(frozen=True, slots=True)
class Segment:
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


def find_segment(store: LogStore, version: int | None = None) -> Segment:
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
        listing = _Listing(store.list_from(f"{LOG}/{start:020d}"))
        if listing.checkpoint(version) and listing.commits and listing.newest >= start:
            return listing.segment(store, version)
    return _Listing(store.list_from(f"{LOG}/{0:020d}")).segment(store, version)


def find_versions(store: LogStore) -> tuple[LogFile, ...]:
    """Return every commit file there is, oldest first.

    Raises:
        TableNotFound: there is no log.
        StorageError: the store refused.
    """
    listing = _Listing(store.list_from(f"{LOG}/{0:020d}"))
    listing.ensure_table(store)
    return tuple(listing.commits[v] for v in sorted(listing.commits))


def _hint(store: LogStore) -> int:
    try:
        return msgspec.json.decode(store.read(LAST_CHECKPOINT), type=_LastCheckpoint).version
    except (FileMissing, msgspec.DecodeError):
        return 0


class _LastCheckpoint(msgspec.Struct):
    version: int


class _Listing:
    """The files of a log by what their names say; other names are ignored."""

    def __init__(self, entries: Iterable[Entry]) -> None:
        self.commits: dict[int, LogFile] = {}
        self._compacted: dict[int, list[LogFile]] = {}
        self._checksums: set[int] = set()
        self._checkpoints: dict[int, Checkpoint] = {}
        self._parts: dict[tuple[int, int], dict[int, Entry]] = {}
        for entry in entries:
            self._sort_in(entry)
        for (version, count), parts in self._parts.items():
            if len(parts) == count:
                files = tuple(parts[i] for i in sorted(parts))
                self._checkpoints.setdefault(version, Checkpoint(version, files))

    def _sort_in(self, entry: Entry) -> None:
        name = entry.name
        if found := _COMMIT.fullmatch(name):
            self.commits[int(found[1])] = LogFile(int(found[1]), int(found[1]), entry)
        elif found := _CHECKSUM.fullmatch(name):
            self._checksums.add(int(found[1]))
        elif found := _COMPACTED.fullmatch(name):
            self._compacted.setdefault(int(found[1]), []).append(LogFile(int(found[1]), int(found[2]), entry))
        elif found := _CLASSIC.fullmatch(name) or _UUID.fullmatch(name):
            self._checkpoints[int(found[1])] = Checkpoint(int(found[1]), (entry,))
        elif found := _MULTIPART.fullmatch(name):
            self._parts.setdefault((int(found[1]), int(found[3])), {})[int(found[2])] = entry

    @property
    def newest(self) -> int:
        return max((*self.commits, *self._checkpoints), default=-1)

    def checkpoint(self, version: int | None) -> Checkpoint | None:
        known = [v for v in self._checkpoints if version is None or v <= version]
        return self._checkpoints[max(known)] if known else None

    def ensure_table(self, store: LogStore) -> None:
        if self.newest < 0:
            raise TableNotFound(location=store.location, reason=f"there is no folder {LOG} with commits")

    def segment(self, store: LogStore, version: int | None) -> Segment:
        self.ensure_table(store)
        wanted = self.newest if version is None else version
        if not 0 <= wanted <= self.newest:
            raise _no_version(store, wanted, f"the versions are {self._oldest()} to {self.newest}")
        checkpoint = self.checkpoint(wanted)
        first = checkpoint.version + 1 if checkpoint else 0
        tail = tuple(self._tail(store, first, wanted))
        commits = tuple(self.commits[v] for v in sorted(self.commits) if v <= wanted)
        checksums = frozenset(v for v in self._checksums if first - 1 <= v <= wanted)
        return Segment(wanted, checkpoint, tail, commits, checksums)

    def _oldest(self) -> int:
        """Return the oldest version that can be reconstructed."""
        return 0 if 0 in self.commits else min(self._checkpoints, default=0)

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


def _no_version(store: LogStore, version: int, reason: str) -> VersionNotFound:
    return VersionNotFound(
        location=store.location, wanted=f"version {version}", reason=reason, fix="Ask for one of these."
    )
