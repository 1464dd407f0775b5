"""Snapshot: one version of a table as a value. Metadata is cheap to read; the file list is read on first use.

Source: PROTOCOL.md#action-reconciliation
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

from widen.errors import CorruptLog, FileMissing, OptionConflict, TableNotFound, VersionNotFound, WidenError
from widen.log.commit_files import (
    DOMAIN,
    IN_COMMIT_TIMESTAMP,
    METADATA,
    PROTOCOL,
    TXN,
    NonFileAction,
    commit_times_ms,
    corrupt_log,
    decode_commit,
    decode_commit_info,
    file_times_ms,
    find_version,
    first_version_with_timestamps,
    read_non_file_actions,
)
from widen.log.log_segment import (
    Checkpoint,
    LogFile,
    LogSegment,
    VersionChecksum,
    checksum_path,
    commit_path,
    find_segment,
    find_versions,
    read_checksum,
)
from widen.log.log_store import LogStore
from widen.model.lazy_module import import_lazily
from widen.model.schema_json import from_json
from widen.model.types import StructType
from widen.model.value_classes import dataclass
from widen.protocol.actions import CommitInfo, DomainMetadata, Metadata, Protocol, Remove, Txn
from widen.protocol.column_mapping import MODE, NONE, PHYSICAL_NAME
from widen.protocol.data_skipping import FileSelection, Predicate
from widen.protocol.table_configuration import TableConfiguration
from widen.protocol.table_features import ensure_readable, ensure_valid_protocol

if TYPE_CHECKING:
    import pyarrow as pa

    from widen.log import checkpoint_reader as checkpoints
    from widen.log import file_list, log_replay
else:
    file_list = import_lazily("widen.log.file_list")
    log_replay = import_lazily("widen.log.log_replay")
    checkpoints = import_lazily("widen.log.checkpoint_reader")


def open_snapshot(store: LogStore, version: int | None = None, timestamp_ms: int | None = None) -> Snapshot:
    """Open a version of a table, by default the newest one.

    Only the protocol and the metadata are read; file actions are not decoded.

    Raises:
        TableNotFound: the log does not exist.

    Source: PROTOCOL.md#supported-features
    """
    if timestamp_ms is not None:
        if version is not None:
            raise OptionConflict(option="version", other_option="timestamp", expected="Give only one of them.")
        commits = find_versions(store)
        if not commits:
            raise TableNotFound(
                location=store.location, reason="its log has no commits, so the times of versions are unknown"
            )
        properties = Snapshot(store, find_segment(store)).properties
        version = find_version(store, commits, timestamp_ms, properties)
    snapshot = Snapshot(store, find_segment(store, version))
    ensure_readable(snapshot.protocol, store.location)
    return snapshot


def first_version_from(store: LogStore, timestamp_ms: int) -> int:
    """Return the first version that was committed at or after a time; the next one if all are earlier."""
    try:
        return open_snapshot(store, timestamp_ms=timestamp_ms - 1).version + 1
    except VersionNotFound:
        return find_versions(store)[0].first


@lru_cache(maxsize=16)
def _read_checkpoint_head(store: LogStore, checkpoint: Checkpoint) -> tuple[NonFileAction, ...]:
    """Return the protocol and the metadata of a checkpoint, which a change of a table opens three times.

    Other writers put them anywhere, so that a million rows may have to be searched.
    """
    return tuple(checkpoints.checkpoint_non_file_actions(store, checkpoint, PROTOCOL, METADATA))


def _ensure_valid(metadata: Metadata, location: str) -> None:
    """Check what the codec of actions leaves open: distinct partition columns, and options that are texts.

    Source: PROTOCOL.md#change-metadata, #format-specification
    """
    path, columns = f"{location}/_delta_log", metadata.partition_columns
    options = metadata.format.get("options") or {}
    if len({*columns}) < len(columns):
        raise corrupt_log(path, f"its metaData lists a partition column twice: {', '.join(columns)}")
    if not isinstance(options, dict) or not all(isinstance(each, str) for each in options.values()):
        raise corrupt_log(path, "the format.options of its metaData are not an object of texts")


def new_snapshot(store: LogStore, configuration: TableConfiguration) -> Snapshot:
    """Return a version that no log has: how the files of a table are read before it exists. It has no files itself."""
    made = Snapshot(store, LogSegment(-1, None, (), (), frozenset()))
    vars(made).update({"configuration": configuration})
    return made


def _is_usable(checksum: VersionChecksum, location: str) -> bool:
    """Return whether the protocol and the metadata of a checksum are valid; if not, readers ignore the checksum."""
    try:
        ensure_valid_protocol(checksum.protocol, location)
        _ensure_valid(checksum.metadata, location)
        from_json(checksum.metadata.schema_string)
    except WidenError:
        return False
    return True


@dataclass(frozen=True)
class _Checked:
    """The newest checksum of a table that agreed with the log."""

    version: int
    protocol: Protocol
    metadata: Metadata


_checked: dict[str, _Checked] = {}
"""By table, so that a series of commits reads only what was committed since the last one."""


def _differences(checksum: VersionChecksum, protocol: Protocol, metadata: Metadata) -> list[str]:
    """Return the parts of a checksum that differ from the log."""
    told, logged = checksum.metadata, metadata
    parts = {
        "protocol": _comparable(checksum.protocol) == _comparable(protocol),
        "id": told.id == logged.id,
        "schema": told.schema_string == logged.schema_string
        or from_json(told.schema_string) == from_json(logged.schema_string),
        "partition columns": told.partition_columns == logged.partition_columns,
        "properties": told.configuration == logged.configuration,
    }
    return [name for name, is_equal in parts.items() if not is_equal]


def _newer_differences(checksum: VersionChecksum, logged: Iterable[NonFileAction]) -> list[str]:
    """Return whether transactions and domains differ in commits that a checksum includes.

    Args:
        logged: Actions of the newest commits, newest first.
    """
    told_txns = {txn.app_id: txn.version for txn in checksum.set_transactions or ()}
    told_domains = {domain.domain: domain.configuration for domain in checksum.domain_metadata or ()}
    txns: dict[str, int] = {}
    domains: dict[str, str | None] = {}
    for line in logged:
        if line.txn is not None:
            txns.setdefault(line.txn.app_id, line.txn.version)
        if (domain := line.domain_metadata) is not None:
            domains.setdefault(domain.domain, None if domain.removed else domain.configuration)
    parts = {
        "transactions": checksum.set_transactions is None
        or all(told_txns.get(app_id) == version for app_id, version in txns.items()),
        "domains": checksum.domain_metadata is None
        or all(told_domains.get(name) == text for name, text in domains.items()),
    }
    return [name for name, is_equal in parts.items() if not is_equal]


def _comparable(protocol: Protocol) -> tuple[int, int, frozenset[str], frozenset[str]]:
    features = (frozenset(each or ()) for each in (protocol.reader_features, protocol.writer_features))
    return protocol.min_reader_version, protocol.min_writer_version, *features  # type: ignore[return-value]


@dataclass(frozen=True)
class Snapshot:
    """One version of a table. Immutable; its parts are read on first use and cached."""

    store: LogStore
    segment: LogSegment

    def __reduce__(self) -> tuple[type[Snapshot], tuple[LogStore, LogSegment]]:
        return Snapshot, (self.store, self.segment)

    def with_metadata(self, metadata: Metadata) -> Snapshot:
        """Return the same version with other metadata, so that its files are read with that schema.

        Args:
            metadata: The metadata to use. Its columns must have the same physical names.
        """
        other = Snapshot(self.store, self.segment)
        # The log is replayed once: a cached property of a frozen dataclass is an entry of its `__dict__`.
        vars(other).update({"configuration": TableConfiguration(self.protocol, metadata), "_files": self._files})
        return other

    @property
    def version(self) -> int:
        """The number of the version."""
        return self.segment.version

    @property
    def location(self) -> str:
        """The location of the table."""
        return self.store.location

    @cached_property
    def _checksum(self) -> VersionChecksum | None:
        return read_checksum(self.store, self.version) if self.version in self.segment.checksums else None

    @cached_property
    def configuration(self) -> TableConfiguration:
        """The protocol and the metadata of the version, with the schema in them."""
        protocol: Protocol | None = None
        metadata: Metadata | None = None
        for line in self._head_actions():
            protocol, metadata = protocol or line.protocol, metadata or line.meta_data
            if protocol and metadata:
                _ensure_valid(metadata, self.location)
                return TableConfiguration(protocol, metadata)
        missing = "protocol" if protocol is None else "metaData"
        path = f"{self.location}/{commit_path(0)}"
        raise corrupt_log(path, f"no log file up to version {self.version} has a {missing} action")

    def _head_actions(self) -> Iterator[NonFileAction]:
        """Yield lines with protocol or metadata, newest first, back to the newest checksum if it is usable."""
        contents = self._newest_first(until_checksum=True)
        for file, data in contents:
            yield from read_non_file_actions(file.entry.path, data, PROTOCOL, METADATA)
        if self.segment.checksums:
            # Only the newest checksum counts: the commits after an older one have not been read here.
            checksum = read_checksum(self.store, max(self.segment.checksums))
            if checksum is not None and _is_usable(checksum, self.location):
                yield NonFileAction(protocol=checksum.protocol, meta_data=checksum.metadata)
                return
            for file, data in self._newest_first():
                yield from read_non_file_actions(file.entry.path, data, PROTOCOL, METADATA)
        if self.segment.checkpoint:
            yield from _read_checkpoint_head(self.store, self.segment.checkpoint)

    def _newest_first(self, *, until_checksum: bool = False) -> Iterator[tuple[LogFile, bytes]]:
        newest = max(self.segment.checksums, default=-1) if until_checksum else -1
        files = [file for file in reversed(self.segment.tail) if file.last > newest]
        return zip(files, self.store.read_many([file.entry.path for file in files]), strict=True)

    def ensure_checksum_agrees(self) -> None:
        """Check that the checksum that told the protocol and the metadata tells what the log says.

        Reads believe a checksum, since it saves reading the log. A commit would make permanent what it says.

        Source: PROTOCOL.md#version-checksum-file (its content must match the version)
        """
        try:
            self._compare_checksum()
        except FileMissing:  # a cleanup deleted commits meanwhile, and there is nothing to compare with
            return

    def _compare_checksum(self) -> None:
        version = max(self.segment.checksums, default=None)
        checksum = None if version is None else read_checksum(self.store, version)
        if version is None or checksum is None or not _is_usable(checksum, self.location):
            return
        checked = _checked.get(self.location)
        if checked is not None and checked.version <= version:
            new = self._logged(checked.version + 1, version)
            is_unchanged = not any(line.protocol or line.meta_data for line in new)
            wrong = _differences(checksum, checked.protocol, checked.metadata) + _newer_differences(checksum, new)
            if is_unchanged and not wrong:
                _checked[self.location] = replace(checked, version=version)
                return
        logged = self._logged(0, version)
        wrong = _newer_differences(checksum, logged)
        if self.segment.checkpoint:
            logged += _read_checkpoint_head(self.store, self.segment.checkpoint)
        protocol = next((line.protocol for line in logged if line.protocol), None)
        metadata = next((line.meta_data for line in logged if line.meta_data), None)
        if protocol is None or metadata is None:
            return
        if wrong := [*_differences(checksum, protocol, metadata), *wrong]:
            reason = f"it contradicts the log ({', '.join(wrong)}), and the log is right"
            fix = "Delete this file: tables can be read without it."
            raise CorruptLog(path=f"{self.location}/{checksum_path(version)}", reason=reason, fix=fix)
        _checked[self.location] = _Checked(version, protocol, metadata)

    def _logged(self, first: int, last: int) -> list[NonFileAction]:
        """Return the actions, without file actions, of the commits between two versions, newest first."""
        files = [file for file in reversed(self.segment.tail) if file.last >= first and file.first <= last]
        contents = zip(files, self.store.read_many([file.entry.path for file in files]), strict=True)
        keys = PROTOCOL, METADATA, TXN, DOMAIN
        return [line for file, data in contents for line in read_non_file_actions(file.entry.path, data, *keys)]

    @property
    def protocol(self) -> Protocol:
        """The protocol of the version."""
        return self.configuration.protocol

    @property
    def metadata(self) -> Metadata:
        """The metadata of the version."""
        return self.configuration.metadata

    @property
    def schema(self) -> StructType:
        """The schema with all metadata of its columns."""
        return self.configuration.schema

    @property
    def properties(self) -> dict[str, str]:
        """The configuration of the table."""
        return self.metadata.configuration

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The logical names of the partition columns, in order."""
        return self.metadata.partition_columns

    @cached_property
    def timestamp_ms(self) -> int:
        """When the version was committed, in ms since the epoch.

        Source: PROTOCOL.md#in-commit-timestamps
        """
        in_commit_ms = self._in_commit_ms()
        if in_commit_ms is not None:
            return in_commit_ms
        if not self.segment.commits:
            checkpoint = self.segment.checkpoint
            return max(entry.modified_ms for entry in checkpoint.files) if checkpoint else 0
        return file_times_ms(self.segment.commits)[-1]

    def _in_commit_ms(self) -> int | None:
        first = first_version_with_timestamps(self.properties)
        if first is None or self.version < first:
            return None
        if self._checksum is not None and self._checksum.in_commit_timestamp is not None:
            return self._checksum.in_commit_timestamp
        paths = [file.entry.path for file in self.segment.commits if file.first == self.version]
        info = decode_commit_info(paths[0], self.store.read(paths[0])) if paths else {}
        time_ms = info.get(IN_COMMIT_TIMESTAMP)
        return time_ms if isinstance(time_ms, int) else None

    def has_written(self, txn: Txn) -> bool:
        """Return whether the application has already committed this transaction version or a later one.

        Source: PROTOCOL.md#transaction-identifiers
        """
        newest = self.transactions.get(txn.app_id)
        return newest is not None and newest.version >= txn.version

    @cached_property
    def transactions(self) -> dict[str, Txn]:
        """The newest transaction of every application, by its id.

        Source: PROTOCOL.md#transaction-identifiers
        """
        if self._checksum is not None and self._checksum.set_transactions is not None:
            return {txn.app_id: txn for txn in self._checksum.set_transactions}
        transactions: dict[str, Txn] = {}
        for line in self._non_file_actions(TXN):
            if line.txn is not None:
                transactions.setdefault(line.txn.app_id, line.txn)
        return transactions

    @cached_property
    def domains(self) -> dict[str, DomainMetadata]:
        """The metadata domains, by name; removed ones are left out.

        Source: PROTOCOL.md#domain-metadata
        """
        if self._checksum is not None and self._checksum.domain_metadata is not None:
            return {domain.domain: domain for domain in self._checksum.domain_metadata}
        domains: dict[str, DomainMetadata] = {}
        for line in self._non_file_actions(DOMAIN):
            if line.domain_metadata is not None:
                domains.setdefault(line.domain_metadata.domain, line.domain_metadata)
        return {name: domain for name, domain in domains.items() if not domain.removed}

    def _non_file_actions(self, key: str) -> Iterator[NonFileAction]:
        for file, data in self._newest_first():
            yield from read_non_file_actions(file.entry.path, data, key)
        if self.segment.checkpoint:
            yield from checkpoints.checkpoint_non_file_actions(self.store, self.segment.checkpoint, key)

    @property
    def partition_keys(self) -> tuple[str, ...]:
        """The keys of partition values in file actions: the physical names of the partition columns.

        Source: PROTOCOL.md#column-mapping
        """
        if self.properties.get(MODE, NONE).lower() == NONE:
            return self.partition_columns
        columns = {field.name: field.metadata.get(PHYSICAL_NAME, field.name) for field in self.schema}
        return tuple(columns.get(name, name) for name in self.partition_columns)

    def files(self) -> pa.Table:
        """Return the live files.

        Returns:
            One row per file, with the columns of `widen.log.file_list.FILES`; their order is not promised.

        Source: PROTOCOL.md#action-reconciliation
        """
        return self._files

    @cached_property
    def _files(self) -> pa.Table:
        commits = (log_replay.LogPiece(file.entry.path, data) for file, data in self._newest_first())
        checkpoint = self.segment.checkpoint
        batches = checkpoints.read_live_files(self.store, checkpoint, self.partition_keys) if checkpoint else None
        return log_replay.replay_live_files(commits, batches, self.partition_keys, self.location)

    def count_files(self) -> tuple[int, int]:
        """Return the number of live files and their total size in bytes, from the checksum if there is one.

        Source: PROTOCOL.md#version-checksum-file
        """
        if self._checksum is not None:
            return self._checksum.num_files, self._checksum.table_size_bytes
        return self._files.num_rows, sum(self._files["size_bytes"].to_pylist())

    def removed_files(self) -> Iterable[Remove]:
        """Return the newest remove action of each file that the log still remembers as removed.

        Source: PROTOCOL.md#action-reconciliation
        """
        removes: dict[str, Remove | None] = {}
        for file, data in self._newest_first():
            for line in decode_commit(file.entry.path, data):
                action = line.remove or line.add
                if action is not None:
                    key = file_list.file_key(action.path, action.deletion_vector, self.location)
                    # An add is remembered as None: a file that was added again after its removal is not removed.
                    removes.setdefault(key, line.remove)
        for remove in checkpoints.read_removes(self.store, self.segment.checkpoint) if self.segment.checkpoint else ():
            removes.setdefault(file_list.file_key(remove.path, remove.deletion_vector, self.location), remove)
        return [remove for remove in removes.values() if remove is not None]

    def history(self, limit: int | None = None) -> list[tuple[int, int, CommitInfo]]:
        """Return the version, the time in ms and the commitInfo of each commit up to this version, newest first.

        Source: PROTOCOL.md#commit-provenance-information
        """
        commits = [commit for commit in find_versions(self.store) if commit.first <= self.version]
        first = 0 if limit is None else max(0, len(commits) - limit)
        paths = [commit.entry.path for commit in commits[first:]]
        infos = [decode_commit_info(path, data) for path, data in zip(paths, self.store.read_many(paths), strict=True)]
        times = commit_times_ms(commits, [{}] * first + infos, self.properties)
        rows = zip(commits[first:], times[first:], infos, strict=True)
        return [(commit.first, time, info) for commit, time, info in rows][::-1]

    def metadata_history(self, limit: int) -> Iterator[tuple[int, Metadata]]:
        """Yield the metadata of this version and of the last commits before it that have some, newest first."""
        commits = [commit for commit in find_versions(self.store) if commit.first <= self.version][-limit:][::-1]
        for start in range(0, len(commits), _COMMITS_PER_READ):
            paths = [commit.entry.path for commit in commits[start : start + _COMMITS_PER_READ]]
            for commit, data in zip(commits[start:], self.store.read_many(paths), strict=False):
                lines = read_non_file_actions(commit.entry.path, data, METADATA)
                yield from ((commit.first, line.meta_data) for line in lines if line.meta_data is not None)


_COMMITS_PER_READ = 32
"""How many commits are read at once where the first of them may be enough."""


def select_files(snapshot: Snapshot, predicate: Predicate) -> FileSelection:
    """Return which files of a version may have rows that fulfil a predicate."""
    mode = snapshot.configuration.mapping
    return FileSelection(predicate, snapshot.schema, mode, tuple(snapshot.partition_columns))
