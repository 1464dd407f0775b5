"""Conflict rules: whether our transaction may be committed after the commit of another writer. One table of rules.

Source: PROTOCOL.md#delta-log-entries (one writer wins a version); Delta Spark's conflict checker for the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, TypeAlias

import msgspec

from widen.errors import (
    ConcurrentAppend,
    ConcurrentDelete,
    ConcurrentDeleteDelete,
    ConcurrentTransaction,
    ContentionError,
    MetadataChanged,
    ProtocolChanged,
)
from widen.log.checkpoint_writer import DAY_MS
from widen.log.file_list import canonical_path
from widen.model.value_classes import dataclass
from widen.protocol import column_mapping
from widen.protocol.actions import (
    Action,
    Add,
    AddCdc,
    CommitInfo,
    DomainMetadata,
    Line,
    Metadata,
    Protocol,
    Remove,
    Txn,
)
from widen.protocol.column_mapping import COLUMN_ID, MAX_COLUMN_ID, MODE, PHYSICAL_NAME, ROW_TRACKING_DOMAIN
from widen.protocol.column_metadata import HIGH_WATER_MARK
from widen.protocol.data_skipping import FileSelection
from widen.protocol.table_configuration import TableConfiguration
from widen.protocol.table_features import blocking_features, supported_features
from widen.protocol.table_properties import (
    CHECKPOINT_POLICY,
    ENABLE_DELETION_VECTORS,
    ENABLE_IN_COMMIT_TIMESTAMPS,
    TIMESTAMPS_SINCE_MS,
    TIMESTAMPS_SINCE_VERSION,
)

ISOLATION_LEVEL = "delta.isolationLevel"
VACUUM_START = "VACUUM START"
"""The operation of the commit that comes before a vacuum deletes files, after it has listed them."""

_MIN_RETENTION_MS = DAY_MS
"""A vacuum with a shorter retention may delete files of writers that have not committed them yet."""


@dataclass(frozen=True, slots=True)
class ReadSet:
    """What a transaction has read, and therefore depends on.

    Args:
        files: Whether the result depends on all files of the table.
        app_ids: The applications whose transaction versions were read.
        selection: The part of the table that was searched, if not all of it; files added there conflict.
        paths: The files that were read in that search.
    """

    NOTHING: ClassVar[ReadSet]
    EVERYTHING: ClassVar[ReadSet]

    files: bool = False
    app_ids: frozenset[str] = frozenset()
    selection: FileSelection | None = None
    paths: frozenset[str] = frozenset()

    @property
    def is_nothing(self) -> bool:
        """Whether the result does not depend on the files of the table."""
        return not self.files and self.selection is None

    def is_affected_by(self, add: Add) -> bool:
        """Return whether an added file may change the result."""
        if self.selection is None:
            return self.files
        return self.files or self.selection.can_match(add.partition_values, add.stats)

    def has_read(self, remove: Remove) -> bool:
        """Return whether the transaction has read a removed file."""
        return self.files or remove.path in self.paths or canonical_path(remove.path) in _to_canonical(self.paths)


# Asked again for each file that a commit removes.
@lru_cache(1)
def _to_canonical(paths: frozenset[str]) -> frozenset[str]:
    """Return the canonical form of each path."""
    return frozenset(map(canonical_path, paths))


ReadSet.NOTHING = ReadSet()
ReadSet.EVERYTHING = ReadSet(files=True)


@dataclass(frozen=True, slots=True)
class Transaction:
    """Our side: what it has read, and the actions it wants to commit."""

    table: TableConfiguration
    actions: tuple[Action, ...]
    reads: ReadSet

    def of(self, kind: type[Any]) -> list[Any]:
        """Return our actions of one kind."""
        return [action for action in self.actions if isinstance(action, kind)]

    @property
    def is_rearrangement(self) -> bool:
        """Whether it only rewrites existing rows; then rows added meanwhile do not matter."""
        files = [*self.of(Add), *self.of(Remove)]
        return bool(files) and not any(action.data_change for action in files) and not self.of(Metadata)


@dataclass(frozen=True, slots=True)
class WinningCommit:
    """A commit that another writer made first."""

    version: int
    lines: tuple[Line, ...]

    @property
    def info(self) -> CommitInfo:
        """Its provenance; empty if it has no provenance."""
        return next((line.commit_info for line in self.lines if line.commit_info is not None), {})

    @property
    def author(self) -> str:
        """The operation and the engine of the commit, where its commitInfo names them."""
        return f"{self.info.get('operation', 'a commit')} by {self.info.get('engineInfo', 'an unknown engine')}"

    @property
    def is_short_vacuum(self) -> bool:
        """Whether a vacuum begins that may delete files that are not committed yet."""
        if self.info.get("operation") != VACUUM_START:
            return False
        parameters: Mapping[str, object] = self.info.get("operationParameters") or {}
        retention = parameters.get("specifiedRetentionMillis", parameters.get("defaultRetentionMillis"))
        return not str(retention).isdecimal() or int(str(retention)) < _MIN_RETENTION_MS

    @property
    def protocol(self) -> Protocol | None:
        """The protocol action, if there is one."""
        return next((line.protocol for line in self.lines if line.protocol is not None), None)

    @property
    def metadata(self) -> Metadata | None:
        """The metadata action, if there is one."""
        return next((line.meta_data for line in self.lines if line.meta_data is not None), None)

    @property
    def domains(self) -> dict[str, DomainMetadata]:
        """The metadata domains of the commit, by name."""
        return {d.domain: d for line in self.lines if (d := line.domain_metadata) is not None}

    @property
    def app_ids(self) -> set[str]:
        """The applications with a transaction version in the commit."""
        return {line.txn.app_id for line in self.lines if line.txn is not None}

    @property
    def adds(self) -> list[Add]:
        """The added files with new rows."""
        return [line.add for line in self.lines if line.add is not None and line.add.data_change]

    @property
    def removes(self) -> list[Remove]:
        """The removed files."""
        return [line.remove for line in self.lines if line.remove is not None]

    @property
    def is_blind(self) -> bool:
        """Whether it is marked as a blind append: it adds rows without reading any."""
        return any((line.commit_info or {}).get("isBlindAppend") is True for line in self.lines)


def _both_change_protocol(ours: Transaction, theirs: WinningCommit) -> str | None:
    return "both change the protocol" if theirs.protocol is not None and ours.of(Protocol) else None


def _feature_dropped(ours: Transaction, theirs: WinningCommit) -> str | None:
    if theirs.protocol is None:
        return None
    dropped = sorted(supported_features(ours.table.protocol) - supported_features(theirs.protocol))
    return f"it dropped the table features {', '.join(dropped)}" if dropped else None


def _feature_gained(ours: Transaction, theirs: WinningCommit) -> str | None:
    gained = [] if theirs.protocol is None else blocking_features(ours.table.protocol, theirs.protocol)
    return f"it added the table features {', '.join(gained)}, which the transaction does not follow" if gained else None


def _both_change_metadata(ours: Transaction, theirs: WinningCommit) -> str | None:
    return "both change schema or properties" if theirs.metadata is not None and ours.of(Metadata) else None


def _metadata_differs(ours: Transaction, theirs: WinningCommit) -> str | None:
    if theirs.metadata is None:
        return None
    changed = sorted(_metadata_changes(ours.table.metadata, theirs.metadata))
    return f"it changed {', '.join(changed)}" if changed else None


def _same_domain(ours: Transaction, theirs: WinningCommit) -> str | None:
    # Each attempt writes the domain of row tracking anew, based on the winner's domain.
    our_domains = {action.domain for action in ours.of(DomainMetadata)} - {ROW_TRACKING_DOMAIN}
    both = sorted(our_domains & theirs.domains.keys())
    return f"both change the metadata domains {', '.join(both)}" if both else None


def _same_application(ours: Transaction, theirs: WinningCommit) -> str | None:
    our_apps = ours.reads.app_ids | {action.app_id for action in ours.of(Txn)}
    both = sorted(our_apps & theirs.app_ids)
    return f"both record transactions of the applications {', '.join(both)}" if both else None


def _append_to_read_files(ours: Transaction, theirs: WinningCommit) -> str | None:
    if ours.is_rearrangement or (theirs.is_blind and _allows_blind_appends(ours)):
        return None
    count = sum(map(ours.reads.is_affected_by, theirs.adds))
    return f"it added {count} files that the transaction would have read" if count else None


def _allows_blind_appends(ours: Transaction) -> bool:
    """Return whether the isolation level allows blind appends to be ordered after our reads."""
    return ours.table.properties.get(ISOLATION_LEVEL) == "WriteSerializable" and not ours.of(Metadata)


def _delete_of_read_files(ours: Transaction, theirs: WinningCommit) -> str | None:
    count = sum(remove.data_change and ours.reads.has_read(remove) for remove in theirs.removes)
    return f"it removed {count} files that the transaction read" if count and not ours.is_rearrangement else None


def _vacuum_of_new_files(ours: Transaction, theirs: WinningCommit) -> str | None:
    has_files = bool(ours.of(Add) or ours.of(AddCdc))
    return "it may delete files that the transaction has written" if has_files and theirs.is_short_vacuum else None


def _delete_of_removed_files(ours: Transaction, theirs: WinningCommit) -> str | None:
    both = _removed_paths(ours.of(Remove)) & _removed_paths(theirs.removes)
    return f"both remove {min(both)}" if both else None


def _removed_paths(removes: Iterable[Remove]) -> set[str]:
    return {canonical_path(remove.path) for remove in removes}


ConflictRule: TypeAlias = tuple[Callable[[Transaction, WinningCommit], str | None], type[ContentionError]]

RULES: tuple[ConflictRule, ...] = (
    (_both_change_protocol, ProtocolChanged),
    (_feature_dropped, ProtocolChanged),
    (_feature_gained, ProtocolChanged),
    (_both_change_metadata, MetadataChanged),
    (_metadata_differs, MetadataChanged),
    (_same_domain, MetadataChanged),
    (_same_application, ConcurrentTransaction),
    (_append_to_read_files, ConcurrentAppend),
    (_delete_of_read_files, ConcurrentDelete),
    (_vacuum_of_new_files, ConcurrentDelete),
    (_delete_of_removed_files, ConcurrentDeleteDelete),
)
"""When two commits conflict, in the order of the checks. Everything else is compatible.

Delta Spark lacks the rule for vacuum: there, such a commit names files that are gone.
"""

HARMLESS_PROPERTIES: frozenset[str] = frozenset(
    {
        CHECKPOINT_POLICY,
        MAX_COLUMN_ID,
        MODE,
        ENABLE_DELETION_VECTORS,
        ENABLE_IN_COMMIT_TIMESTAMPS,
        column_mapping.ENABLE,
        TIMESTAMPS_SINCE_MS,
        TIMESTAMPS_SINCE_VERSION,
        column_mapping.VERSION_COLUMN,
        column_mapping.ID_COLUMN,
    }
)
"""Properties that another writer may set meanwhile without affecting the files of our transaction."""

_HARMLESS_COLUMN_KEYS = (COLUMN_ID, PHYSICAL_NAME, HIGH_WATER_MARK)
"""Metadata keys of columns that are also harmless: column ids, and high water marks of identity columns."""


def find_conflict(ours: Transaction, theirs: WinningCommit, location: str) -> ContentionError | None:
    """Return why our transaction must not be committed after theirs, or None if it may be committed.

    Source: Delta Spark's conflict checker, in its order.
    """
    for rule, error in RULES:
        reason = rule(ours, theirs)
        if reason is not None:
            return error(version=theirs.version, location=location, reason=f"{reason} ({theirs.author})")
    return None


def _metadata_changes(old: Metadata, new: Metadata) -> Iterable[str]:
    """Yield the names of the changed parts of the metadata, except harmless ones."""
    before, after = msgspec.to_builtins(old), msgspec.to_builtins(new)
    for key in ("id", "name", "description", "format", "partitionColumns"):
        if before.get(key) != after.get(key):
            yield key
    if _plain_schema(old.schema_string) != _plain_schema(new.schema_string):
        yield "the schema"
    yield from _changed_properties(old.configuration, new.configuration)


def _changed_properties(old: Mapping[str, str], new: Mapping[str, str]) -> Iterable[str]:
    for key in old.keys() | new.keys():
        # Setting such a property asks nothing of files that are written already. Unsetting it may: with column mapping
        # off, for example, their physical names would be wrong.
        if old.get(key) != new.get(key) and (key not in HARMLESS_PROPERTIES or _is_disabled(new.get(key))):
            yield key


def _is_disabled(value: str | None) -> bool:
    return value is None or value.lower() in ("false", "none")


def _plain_schema(text: str) -> Any:
    return _without_harmless(msgspec.json.decode(text))


def _without_harmless(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_harmless(item) for key, item in value.items() if key not in _HARMLESS_COLUMN_KEYS}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_without_harmless(item) for item in value]
    return value
