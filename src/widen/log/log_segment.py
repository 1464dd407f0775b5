"""List the log, and find the files that make up a version: a checkpoint and the commits after it.

Source: PROTOCOL.md#delta-log-entries, #checkpoints, #log-compaction-files, #last-checkpoint-file
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from widen.errors import CorruptLog, StorageError, TableNotFound, VersionNotFound
from widen.log.log_store import FileEntry, LogStore
from widen.model.value_classes import dataclass
from widen.protocol.actions import Action, Add, DomainMetadata, Metadata, Protocol, Remove, Txn

UNUSABLE = (StorageError, RecursionError, msgspec.DecodeError, UnicodeDecodeError)
"""What reading a small JSON file raises: it is missing, has another shape, is not UTF-8, or is nested too deeply."""

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


def is_classic_name(name: str) -> bool:
    """Return whether a checkpoint file has the name of a classic or multi-part checkpoint."""
    return any(kind.fullmatch(name) for kind in (_CLASSIC, _MULTIPART))


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
        checkpoint: The newest complete checkpoint at or before the version, if there is one.
        tail: The commits and log compactions after the checkpoint, oldest first, without gaps.
        commits: All listed commits up to the version, oldest first.
        checksums: The versions from the checkpoint to this one that have a checksum file.
    """

    version: int
    checkpoint: Checkpoint | None
    tail: tuple[LogFile, ...]
    commits: tuple[LogFile, ...]
    checksums: frozenset[int]


def find_segment(store: LogStore, version: int | None = None) -> LogSegment:
    """Return the files that make up a version, by default the newest one.

    ``_last_checkpoint`` only decides where the listing starts. It may be stale or damaged, so the whole log is listed
    if the files from there on do not suffice.

    Source: PROTOCOL.md#last-checkpoint-file (a hint), PROTOCOL.md#delta-log-entries (contiguous versions)
    """
    start = read_last_checkpoint(store).version
    if start > 0 and (version is None or start <= version):
        listing = LogListing(store.list_from(f"{LOG}/{start:020d}"))
        has_version = listing.newest >= (start if version is None else version)
        if listing.checkpoint(version) and listing.commits and has_version:
            return listing.segment(store, version)
    return list_log(store).segment(store, version)


def find_versions(store: LogStore) -> tuple[LogFile, ...]:
    """Return all existing commit files, oldest first."""
    listing = list_log(store)
    listing.ensure_table(store)
    return listing.versions


def list_log(store: LogStore) -> LogListing:
    """List a log and classify its files by name."""
    return LogListing(store.list_from(f"{LOG}/{0:020d}"))


class LastCheckpoint(msgspec.Struct):
    """The version and the number of actions of the newest checkpoint, if ``_last_checkpoint`` has them."""

    version: int = -1
    size: int = 0


def read_last_checkpoint(store: LogStore) -> LastCheckpoint:
    """Read ``_last_checkpoint``; a file that is missing or unusable tells nothing, for it is only a hint."""
    try:
        return msgspec.json.decode(store.read(LAST_CHECKPOINT), type=LastCheckpoint)
    except UNUSABLE:
        return LastCheckpoint()


class LogListing:
    """The files of a log, classified by name; unknown names are ignored.

    Args:
        entries: The files. Commits go into `commits` and complete checkpoints into `checkpoints`, by version.
    """

    def __init__(self, entries: Iterable[FileEntry]) -> None:
        self.commits: dict[int, LogFile] = {}
        self.checkpoints: dict[int, Checkpoint] = {}
        self._entries = tuple(entries)
        self._compacted: dict[int, list[LogFile]] = {}
        self._checksums: set[int] = set()
        self._parts: dict[tuple[int, int], dict[int, FileEntry]] = {}
        for entry in self._entries:
            self._classify(entry)
        for (version, count), parts in self._parts.items():
            if len(parts) == count:
                files = tuple(parts[i] for i in sorted(parts))
                self.checkpoints.setdefault(version, Checkpoint(version, files))

    def _classify(self, entry: FileEntry) -> None:
        name = entry.name
        if match := _COMMIT.fullmatch(name):
            self.commits[int(match[1])] = LogFile(int(match[1]), int(match[1]), entry)
        elif match := _CHECKSUM.fullmatch(name):
            self._checksums.add(int(match[1]))
        elif match := _COMPACTED.fullmatch(name):
            self._compacted.setdefault(int(match[1]), []).append(LogFile(int(match[1]), int(match[2]), entry))
        elif match := _CLASSIC.fullmatch(name) or _UUID.fullmatch(name):
            self.checkpoints[int(match[1])] = Checkpoint(int(match[1]), (entry,))
        elif match := _MULTIPART.fullmatch(name):
            self._parts.setdefault((int(match[1]), int(match[3])), {})[int(match[2])] = entry

    @property
    def newest(self) -> int:
        """The newest version; -1 without versions."""
        return max((*self.commits, *self.checkpoints), default=-1)

    @property
    def versions(self) -> tuple[LogFile, ...]:
        """The commits, oldest first."""
        return tuple(self.commits[version] for version in sorted(self.commits))

    def checkpoint(self, version: int | None) -> Checkpoint | None:
        """Return the newest complete checkpoint at or before a version; None without one."""
        versions = [v for v in self.checkpoints if version is None or v <= version]
        return self.checkpoints[max(versions)] if versions else None

    @property
    def checkpoint_files(self) -> list[FileEntry]:
        """All checkpoint files that may name sidecars, also several of one version; multi-part ones never do."""
        return [entry for entry in self._entries if _CLASSIC.fullmatch(entry.name) or _UUID.fullmatch(entry.name)]

    def before(self, version: int) -> tuple[list[FileEntry], list[FileEntry]]:
        """Return the files that a checkpoint of a version replaces, and apart from them the checksums.

        The files are sorted as they must be deleted: by version, and the commit of a version before its checkpoint. An
        interrupted deletion must not leave a commit without the checkpoint of its version. It must also not leave
        anything before a commit that is gone: a late writer can create that commit again, and readers that start at an
        older checkpoint would see it.

        Source: PROTOCOL.md#metadata-cleanup; protocol_rfcs/checkpoint-protection.md for commit and checkpoint
        """
        ranked = [(int(match[1]), rank, entry) for entry in self._entries for rank, match in _find_ranks(entry.name)]
        last = {rank: version if pattern is _COMPACTED else version - 1 for rank, pattern in enumerate(_KINDS)}
        expired = sorted((item for item in ranked if item[0] <= last[item[1]]), key=lambda item: item[:2])
        checksums = [entry for _, rank, entry in expired if _KINDS[rank] is _CHECKSUM]
        return [entry for _, rank, entry in expired if _KINDS[rank] is not _CHECKSUM], checksums

    def ensure_table(self, store: LogStore) -> None:
        """Check that the log has a version.

        Raises:
            TableNotFound: the log has no version.
        """
        if self.newest < 0:
            raise TableNotFound(location=store.location, reason=f"it has no {LOG} directory with commits")

    def segment(self, store: LogStore, version: int | None) -> LogSegment:
        """Return the files that make up a version, as `find_segment` does."""
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
        version = first
        while version <= last:
            compacted = [file for file in self._compacted.get(version, ()) if version < file.last <= last]
            # The longest compaction replaces the most commits, so fewer files are read.
            file = max(compacted, key=lambda file: file.last, default=None) or self.commits.get(version)
            if file is None:
                raise self._missing_error(store, version, last)
            yield file
            version = file.last + 1

    def _missing_error(self, store: LogStore, version: int, last: int) -> Exception:
        if last < self._oldest():
            return _no_version(store, last, f"it was cleaned up; the versions are {self._oldest()} to {self.newest}")
        return CorruptLog(
            path=f"{store.location}/{commit_path(version)}",
            reason=f"version {version} is missing, but version {last} needs it",
            fix="Restore the file, or a checkpoint of that version or a later one, from a backup.",
        )


def _find_ranks(name: str) -> Iterator[tuple[int, re.Match[str]]]:
    return ((rank, match) for rank, pattern in enumerate(_KINDS) if (match := pattern.fullmatch(name)))


def _no_version(store: LogStore, version: int, reason: str) -> VersionNotFound:
    return VersionNotFound(
        location=store.location, wanted=f"version {version}", reason=reason, fix="Ask for a version in this range."
    )


# Version checksums: a summary of a version in a small file beside its commit.
#
# Source: PROTOCOL.md#version-checksum-file


class VersionChecksum(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The content of a checksum file; optional fields that are unknown are None.

    Source: PROTOCOL.md#version-checksum-file-schema
    """

    table_size_bytes: int
    num_files: int
    metadata: Metadata
    protocol: Protocol
    num_metadata: int = msgspec.field(
        default_factory=lambda: 1
    )  # a factory, since plain defaults are omitted and these must be written
    num_protocol: int = msgspec.field(default_factory=lambda: 1)
    txn_id: str | None = None
    in_commit_timestamp: int | None = msgspec.field(default=None, name="inCommitTimestampOpt")
    set_transactions: tuple[Txn, ...] | None = None
    domain_metadata: tuple[DomainMetadata, ...] | None = None


_T = TypeVar("_T", Metadata, Protocol)
_decoder = msgspec.json.Decoder(VersionChecksum)


def read_checksum(store: LogStore, version: int) -> VersionChecksum | None:
    """Return the checksum of a version, or None if it is missing or unusable: readers must work without it.

    Source: PROTOCOL.md#version-checksum-file (optional for readers)
    """
    try:
        # As text: of bytes, the decoder checks only the values that it keeps, and ignores a key with a wrong byte.
        return _decoder.decode(store.read(checksum_path(version)).decode())
    except UNUSABLE:
        return None


def write_checksum(store: LogStore, version: int, checksum: VersionChecksum) -> None:
    """Write the checksum of a version unless it exists: a checksum never changes.

    Source: PROTOCOL.md#version-checksum-file
    """
    store.put_if_absent(checksum_path(version), msgspec.json.encode(checksum))


def next_checksum(
    previous: VersionChecksum | None, actions: Sequence[Action], *, txn_id: str, in_commit_timestamp: int | None
) -> VersionChecksum | None:
    """Return the checksum after a commit, computed from the previous one; None if it cannot be computed for certain.

    Readers take the protocol and the metadata from a checksum, so a missing one is better than a wrong one.

    Source: PROTOCOL.md#version-checksum-file
    """
    metadata = _newest(actions, Metadata) or (previous.metadata if previous else None)
    protocol = _newest(actions, Protocol) or (previous.protocol if previous else None)
    change = _size_change(actions)
    if metadata is None or protocol is None or change is None:
        return None
    files, size_bytes = change
    return VersionChecksum(
        table_size_bytes=(previous.table_size_bytes if previous else 0) + size_bytes,
        num_files=(previous.num_files if previous else 0) + files,
        metadata=metadata,
        protocol=protocol,
        txn_id=txn_id,
        in_commit_timestamp=in_commit_timestamp,
        set_transactions=_merge_transactions(previous, actions),
        domain_metadata=_merge_domains(previous, actions),
    )


def _newest(actions: Iterable[Action], kind: type[_T]) -> _T | None:
    matching = [action for action in actions if isinstance(action, kind)]
    return matching[-1] if matching else None


def _size_change(actions: Sequence[Action]) -> tuple[int, int] | None:
    """Return the growth of the table in files and bytes; None if an add may only update the metadata of a file."""
    adds = [action for action in actions if isinstance(action, Add)]
    removes = [action for action in actions if isinstance(action, Remove)]
    removed = {action.path for action in removes}
    if any(not add.data_change and not removed for add in adds) or any(r.size is None for r in removes):
        return None
    size_bytes = sum(add.size for add in adds) - sum(remove.size or 0 for remove in removes)
    return len(adds) - len(removes), size_bytes


def _merge_transactions(previous: VersionChecksum | None, actions: Sequence[Action]) -> tuple[Txn, ...] | None:
    if previous is not None and previous.set_transactions is None:
        return None
    merged = {txn.app_id: txn for txn in (previous.set_transactions or () if previous else ())}
    merged.update({action.app_id: action for action in actions if isinstance(action, Txn)})
    return tuple(merged.values())


def _merge_domains(previous: VersionChecksum | None, actions: Sequence[Action]) -> tuple[DomainMetadata, ...] | None:
    if previous is not None and previous.domain_metadata is None:
        return None
    merged = {domain.domain: domain for domain in (previous.domain_metadata or () if previous else ())}
    merged.update({action.domain: action for action in actions if isinstance(action, DomainMetadata)})
    return tuple(domain for domain in merged.values() if not domain.removed)
