"""The table that an interval goes to: one that exists, or the one that it will make.

Source: docs/evolution-rules.md#d1
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from widen.errors import InvalidOption, TableNotFound, UnsupportedFeatureForWrite
from widen.log.read.commit_timestamps import current_ms
from widen.log.read.snapshot import Snapshot, open_snapshot
from widen.log.store.log_store import LogStore
from widen.log.write.commit import Outcome, StagedFiles, commit
from widen.model.schema_json import from_json
from widen.model.types import StructType
from widen.planning.alter.create_table import plan_create_table
from widen.planning.alter.metadata_change import with_operations
from widen.planning.alter.type_checks import table_format_of
from widen.planning.evolution.file_fields import for_file_fields
from widen.planning.evolution.fixed_columns import find_fixed_columns
from widen.planning.evolution.plan import CORRUPT_TEXTS, QUARANTINED, Plan
from widen.planning.evolution.policy import Mode, Policy
from widen.planning.evolution.source_metadata import CORRUPT, role_field, with_sources
from widen.planning.table.table_state import TableState
from widen.planning.write.schema_growth import ensure_types_unreferenced
from widen.protocol.actions import Action, Add, Metadata, Protocol, Txn
from widen.protocol.skipping.file_statistics import FileStatistics
from widen.protocol.table_features import ensure_writable, required_features, supported_features
from widen.protocol.table_properties import ENABLE_TYPE_WIDENING

_LEFTOVER = re.compile(r"[0-9a-f]{32}/|[._]|.*/[._]")
"""What a job that was killed leaves behind, and what no reader looks at."""

NEW_PROPERTIES: Mapping[Mode, Mapping[str, str]] = MappingProxyType(
    {mode: {} for mode in Mode} | {Mode.WIDEN: {ENABLE_TYPE_WIDENING: "true"}}
)
"""The properties of a table that an ingestion makes, by the mode of its first interval."""


@dataclass(frozen=True, slots=True)
class TableDraft:
    """What a plan makes of the table: its protocol and metadata, and the actions that say so.

    Args:
        protocol: That the files are written under.
        metadata: Likewise.
        actions: What has to be committed with the files: nothing if neither of the two changes.
    """

    protocol: Protocol
    metadata: Metadata
    actions: tuple[Action, ...]


@dataclass(frozen=True, slots=True)
class DeltaTarget:
    """Where an interval goes, as it was when it was opened.

    Args:
        store: Of the table.
        snapshot: The table; None if there is none yet.
        policy: What may be done, restricted to what this table can do.
    """

    store: LogStore
    snapshot: Snapshot | None
    policy: Policy

    @property
    def schema(self) -> StructType | None:
        """The schema before the interval, with all metadata; None if there is no table yet."""
        return None if self.snapshot is None else self.snapshot.schema

    def draft(self, plan: Plan) -> TableDraft:
        """Return what a plan makes of the table. Every draft of a table that maps its columns gives new ones new names.

        Raises:
            FeatureRequired: a new type needs a feature that the table does not have.
            SchemaMismatch: a constraint or a generated column keeps a type from widening.
            InvalidOption: a column name cannot be used.
        """
        if self.snapshot is None:
            now_ms = current_ms()
            actions = plan_create_table(plan.schema, (), NEW_PROPERTIES[self.policy.mode], now_ms).actions
            metadata, protocol = actions
            assert isinstance(metadata, Metadata)
            assert isinstance(protocol, Protocol)
            return TableDraft(protocol, metadata, actions)
        state = _state(self.snapshot)
        metadata = state.metadata
        if plan.operations:
            ensure_types_unreferenced(state, plan.operations)
            metadata = with_operations(state, plan.operations)
        metadata = _with_sources(metadata, plan.schema)
        return TableDraft(state.protocol, metadata, () if metadata == state.metadata else (metadata,))

    def has(self, txn: Txn) -> bool:
        """Tell whether an application has written so far already.

        Source: PROTOCOL.md#transaction-identifiers
        """
        return self.snapshot is not None and self.snapshot.has_written(txn)

    def commit(
        self,
        plan: Plan,
        draft: TableDraft,
        adds: Sequence[Add],
        txn: Txn | None = None,
        quarantined: int = 0,
        more: Mapping[str, object] = MappingProxyType({}),
        *,
        corrupt: int = 0,
        staged: StagedFiles | None = None,
    ) -> Outcome:
        """Commit the files of an interval together with the changes of its plan.

        Args:
            plan: The changes.
            draft: What they make of the table: the one that the files were written under.
            adds: The files.
            txn: How far the application has written that the interval is of, if it is of one.
            quarantined: How many records are kept out of the table.
            more: What else the history is to say of it.
            corrupt: How many texts that are not records are in the files.
            staged: The files, as `widen.log.write.commit.commit` takes them.

        Raises:
            StorageError: the store refused; nothing is visible.
        """
        mode = {"mode": "Append", "partitionBy": list(draft.metadata.partition_columns)}
        parameters = {**mode, "evolve": self.policy.mode.value, "events": plan.to_value()["events"]}
        if txn is None:
            actions, operation = [*draft.actions, *adds], "WRITE"
        else:
            actions, operation = [*draft.actions, txn, *adds], "STREAMING UPDATE"
            parameters |= {"queryId": txn.app_id, "epochId": str(txn.version)}
        numbers = write_metrics(adds) | ({QUARANTINED: quarantined} if quarantined else {})
        numbers |= {CORRUPT_TEXTS: corrupt} if role_field(plan.schema, CORRUPT) else {}
        said = {**parameters, **more}
        return commit(self.store, self.snapshot, actions, operation, said, metrics=numbers, staged=staged)


def open_target(store: LogStore, policy: Policy) -> DeltaTarget:
    """Return the table at a location as the target of an interval, or the place for a new one.

    Raises:
        InvalidOption: there is no table but there are other files.
        UnsupportedFeatureForWrite: the table has a feature that this version cannot obey.
        TableError: the table cannot be read.
    """
    try:
        snapshot = open_snapshot(store)
    except TableNotFound:
        _ensure_location_empty(store)
        return DeltaTarget(store, None, for_file_fields(policy))
    state = _state(snapshot)
    ensure_writable(state.protocol, store.location)
    _ensure_no_generated_columns(state, store.location)
    policy = replace(policy, table_format=table_format_of(state), guards=find_fixed_columns(state))
    return DeltaTarget(store, snapshot, for_file_fields(policy))


def write_metrics(adds: Sequence[Add]) -> dict[str, int]:
    """Return the numbers that the history shows of a write."""
    rows = sum(FileStatistics(add.stats).rows or 0 for add in adds)
    return {"numFiles": len(adds), "numOutputRows": rows, "numOutputBytes": sum(add.size for add in adds)}


def _with_sources(metadata: Metadata, planned: StructType) -> Metadata:
    """Return the metadata with the source path of every column; see `widen.planning.evolution.source_metadata`."""
    schema = from_json(metadata.schema_string)
    known = with_sources(schema, planned)
    return metadata if known == schema else metadata.with_schema(known)


def _state(snapshot: Snapshot) -> TableState:
    return TableState(snapshot.version, snapshot.protocol, snapshot.metadata)


_MADE_BY_TABLE = frozenset({"allowColumnDefaults", "generatedColumns", "identityColumns"})


def _ensure_no_generated_columns(state: TableState, location: str) -> None:
    """Check that no column is made by the table itself: what a record lacks is null in the rows of an interval."""
    used = _MADE_BY_TABLE & required_features({}, state.schema) & supported_features(state.protocol)
    if used:
        raise UnsupportedFeatureForWrite(location=location, features=", ".join(sorted(used)), verb="ingest into")


def _ensure_location_empty(store: LogStore) -> None:
    there = next((entry for entry in store.list("") if not _LEFTOVER.match(entry.path)), None)
    if there is not None:
        raise InvalidOption(
            option="into",
            value=store.location,
            expected=f"There is no table but there are other files, e.g. {there.path}. Name an empty place or a table.",
        )
