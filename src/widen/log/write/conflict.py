"""What a commit that somebody else made first means for ours: a table of rules, walked in order.

Source: PROTOCOL.md#delta-log-entries (one writer wins a version); Delta Spark's conflict checker for the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
from widen.log.read.canonical_path import canonical_path
from widen.protocol import tracking_columns
from widen.protocol.actions import Action, Add, DomainMetadata, Line, Metadata, Protocol, Remove, Txn
from widen.protocol.column_mapping import COLUMN_ID, MAX_COLUMN_ID, MODE, PHYSICAL_NAME
from widen.protocol.column_metadata import HIGH_WATER_MARK
from widen.protocol.skipping.file_selection import FileSelection
from widen.protocol.table_features import blocking_features, supported_features
from widen.protocol.table_properties import ENABLE_IN_COMMIT_TIMESTAMPS, TIMESTAMPS_SINCE_MS, TIMESTAMPS_SINCE_VERSION

ROW_TRACKING_DOMAIN = "delta.rowTracking"
ISOLATION_LEVEL = "delta.isolationLevel"


@dataclass(frozen=True, slots=True)
class ReadSet:
    """What a transaction has read and therefore relies on.

    Args:
        files: Whether its result depends on all the files that were in the table.
        app_ids: The applications whose progress it has looked at.
        selection: Where it has looked for rows, if not everywhere: files that were added there contradict it.
        paths: The files that it has read in doing so.
    """

    NOTHING: ClassVar[ReadSet]
    EVERYTHING: ClassVar[ReadSet]

    files: bool = False
    app_ids: frozenset[str] = frozenset()
    selection: FileSelection | None = None
    paths: frozenset[str] = frozenset()

    @property
    def is_nothing(self) -> bool:
        """Whether the result would be the same whatever files were in the table."""
        return not self.files and self.selection is None

    def may_see(self, add: Add) -> bool:
        """Tell whether an added file might have changed the result."""
        if self.selection is None:
            return self.files
        return self.files or self.selection.can_match(add.partition_values, add.stats)

    def has_seen(self, remove: Remove) -> bool:
        """Tell whether a removed file has been read."""
        return self.files or remove.path in self.paths or canonical_path(remove.path) in _canonical(self.paths)


@lru_cache(1)
def _canonical(paths: frozenset[str]) -> frozenset[str]:
    """Return the one spelling of each path."""
    return frozenset(map(canonical_path, paths))


ReadSet.NOTHING = ReadSet()
ReadSet.EVERYTHING = ReadSet(files=True)


@dataclass(frozen=True, slots=True)
class Transaction:
    """What our side has read and wants to write."""

    protocol: Protocol
    metadata: Metadata
    actions: tuple[Action, ...]
    reads: ReadSet

    def of(self, kind: type[Any]) -> list[Any]:
        """Return our actions of one kind."""
        return [action for action in self.actions if isinstance(action, kind)]

    @property
    def is_rearrangement(self) -> bool:
        """Whether it only rewrites what is there: such a transaction needs no more than its own snapshot."""
        files = [*self.of(Add), *self.of(Remove)]
        return bool(files) and not any(action.data_change for action in files) and not self.of(Metadata)


@dataclass(frozen=True, slots=True)
class WinningCommit:
    """A commit that somebody else made first."""

    version: int
    lines: tuple[Line, ...]

    @property
    def author(self) -> str:
        """Its operation and who did it, as far as it says."""
        info = next((line.commit_info for line in self.lines if line.commit_info is not None), {})
        return f"{info.get('operation', 'a commit')} by {info.get('engineInfo', 'somebody who does not say')}"

    @property
    def protocol(self) -> Protocol | None:
        """Its protocol action."""
        return next((line.protocol for line in self.lines if line.protocol is not None), None)

    @property
    def metadata(self) -> Metadata | None:
        """Its metadata action."""
        return next((line.meta_data for line in self.lines if line.meta_data is not None), None)

    @property
    def domains(self) -> dict[str, DomainMetadata]:
        """Its metadata domains by name."""
        return {d.domain: d for line in self.lines if (d := line.domain_metadata) is not None}

    @property
    def app_ids(self) -> set[str]:
        """The applications whose progress it records."""
        return {line.txn.app_id for line in self.lines if line.txn is not None}

    @property
    def adds(self) -> list[Add]:
        """The files it adds with new rows."""
        return [line.add for line in self.lines if line.add is not None and line.add.data_change]

    @property
    def removes(self) -> list[Remove]:
        """The files it removes."""
        return [line.remove for line in self.lines if line.remove is not None]

    @property
    def is_blind(self) -> bool:
        """Whether it says that it adds rows without having read any."""
        return any((line.commit_info or {}).get("isBlindAppend") is True for line in self.lines)


def _both_change_protocol(ours: Transaction, theirs: WinningCommit) -> str | None:
    return "both change the protocol" if theirs.protocol is not None and ours.of(Protocol) else None


def _feature_dropped(ours: Transaction, theirs: WinningCommit) -> str | None:
    if theirs.protocol is None:
        return None
    dropped = sorted(supported_features(ours.protocol) - supported_features(theirs.protocol))
    return f"it dropped the table features {', '.join(dropped)}" if dropped else None


def _feature_gained(ours: Transaction, theirs: WinningCommit) -> str | None:
    gained = [] if theirs.protocol is None else blocking_features(ours.protocol, theirs.protocol)
    return f"it added the table features {', '.join(gained)}, whose rules were not known" if gained else None


def _both_change_metadata(ours: Transaction, theirs: WinningCommit) -> str | None:
    return "both change schema or properties" if theirs.metadata is not None and ours.of(Metadata) else None


def _metadata_differs(ours: Transaction, theirs: WinningCommit) -> str | None:
    if theirs.metadata is None:
        return None
    changed = sorted(_metadata_changes(ours.metadata, theirs.metadata))
    return f"it changed {', '.join(changed)}" if changed else None


def _same_domain(ours: Transaction, theirs: WinningCommit) -> str | None:
    own = {action.domain for action in ours.of(DomainMetadata)} - {ROW_TRACKING_DOMAIN}
    both = sorted(own & theirs.domains.keys())
    return f"both change the metadata domains {', '.join(both)}" if both else None


def _same_application(ours: Transaction, theirs: WinningCommit) -> str | None:
    own = ours.reads.app_ids | {action.app_id for action in ours.of(Txn)}
    both = sorted(own & theirs.app_ids)
    return f"it records progress of the applications {', '.join(both)} too" if both else None


def _append_to_what_was_read(ours: Transaction, theirs: WinningCommit) -> str | None:
    if ours.is_rearrangement or (theirs.is_blind and _ignores_blind(ours)):
        return None
    count = sum(map(ours.reads.may_see, theirs.adds))
    return f"it added {count} files that would have had to be read" if count else None


def _ignores_blind(ours: Transaction) -> bool:
    """Tell whether the table asks only that its writers could have come one after another, in any order."""
    return ours.metadata.configuration.get(ISOLATION_LEVEL) == "WriteSerializable" and not ours.of(Metadata)


def _delete_of_what_was_read(ours: Transaction, theirs: WinningCommit) -> str | None:
    gone = sum(remove.data_change and ours.reads.has_seen(remove) for remove in theirs.removes)
    return f"it removed {gone} files that have been read" if gone and not ours.is_rearrangement else None


def _delete_of_what_is_removed(ours: Transaction, theirs: WinningCommit) -> str | None:
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
    (_append_to_what_was_read, ConcurrentAppend),
    (_delete_of_what_was_read, ConcurrentDelete),
    (_delete_of_what_is_removed, ConcurrentDeleteDelete),
)
"""What makes two commits contradict each other, in the order of the checks; what no row names goes together."""

HARMLESS_PROPERTIES: frozenset[str] = frozenset(
    {
        "delta.checkpointPolicy",
        MAX_COLUMN_ID,
        MODE,
        "delta.enableDeletionVectors",
        ENABLE_IN_COMMIT_TIMESTAMPS,
        tracking_columns.ENABLE,
        TIMESTAMPS_SINCE_MS,
        TIMESTAMPS_SINCE_VERSION,
        tracking_columns.VERSION_COLUMN,
        tracking_columns.ID_COLUMN,
    }
)
"""Properties that somebody may set meanwhile without any harm to files that are about to be added."""

_HARMLESS_COLUMN_KEYS = (COLUMN_ID, PHYSICAL_NAME, HIGH_WATER_MARK)
"""Keys of columns likewise: they get ids, or rows whose identity values nobody else has."""


def find_conflict(ours: Transaction, theirs: WinningCommit, location: str) -> ContentionError | None:
    """Return why our transaction may not be committed after theirs, or None if it may.

    Source: Delta Spark's conflict checker, in its order.
    """
    for rule, error in RULES:
        reason = rule(ours, theirs)
        if reason is not None:
            return error(version=theirs.version, location=location, reason=f"{reason} ({theirs.author})")
    return None


def _metadata_changes(old: Metadata, new: Metadata) -> Iterable[str]:
    """Name what of the metadata is no longer the same, apart from what is harmless."""
    before, after = msgspec.to_builtins(old), msgspec.to_builtins(new)
    for key in ("id", "name", "description", "format", "partitionColumns"):
        if before.get(key) != after.get(key):
            yield key
    if _plain_schema(old.schema_string) != _plain_schema(new.schema_string):
        yield "the schema"
    yield from _changed_properties(old.configuration, new.configuration)


def _changed_properties(old: Mapping[str, str], new: Mapping[str, str]) -> Iterable[str]:
    for key in old.keys() | new.keys():
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
