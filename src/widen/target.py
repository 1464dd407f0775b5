"""The table that an interval goes to: one that exists, or the one that it will make.

Source: spec of evolution, D1: one capability table says what each format can do.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from widen.errors import InvalidOption, TableNotFound
from widen.log.commit import Outcome, commit
from widen.log.snapshot import Snapshot, open_snapshot
from widen.log.store import LogStore
from widen.model.type import StructType
from widen.planning import command
from widen.planning.capability import TableFormat
from widen.planning.plan import Plan
from widen.planning.policy import Mode, Policy
from widen.planning.retype import is_enabled
from widen.protocol.action import Action, Add, Metadata, Protocol
from widen.protocol.feature import ensure_writable, is_supported
from widen.protocol.statistics import FileStatistics

_LEFTOVER = re.compile(r"[0-9a-f]{32}/|[._]|.*/[._]")
"""What a job that was killed leaves behind, and what no reader looks at."""

NEW_PROPERTIES: Mapping[Mode, Mapping[str, str]] = MappingProxyType(
    {mode: {} for mode in Mode} | {Mode.WIDEN: {command.ENABLE_TYPE_WIDENING: "true"}}
)
"""The properties of a table that an ingestion makes, by the mode of its first interval."""


@dataclass(frozen=True, slots=True)
class Draft:
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
class Target:
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

    def draft(self, plan: Plan) -> Draft:
        """Return what a plan makes of the table.

        Raises:
            FeatureRequired: a new type needs a feature that the table does not have.
            InvalidOption: a column name cannot be used.
        """
        if self.snapshot is None:
            now_ms = time.time_ns() // 1_000_000
            actions = command.create(plan.schema, (), NEW_PROPERTIES[self.policy.mode], now_ms).actions
            metadata, protocol = actions
            assert isinstance(metadata, Metadata)
            assert isinstance(protocol, Protocol)
            return Draft(protocol, metadata, actions)
        state = _state(self.snapshot)
        if not plan.operations:
            return Draft(state.protocol, state.metadata, ())
        metadata = command.with_operations(state, plan.operations)
        return Draft(state.protocol, metadata, (metadata,))

    def commit(self, plan: Plan, adds: Sequence[Add]) -> Outcome:
        """Commit the files of an interval together with the changes of its plan.

        Raises:
            StorageError: the store refused; nothing is visible.
        """
        draft = self.draft(plan)
        said = {"mode": "Append", "partitionBy": list(draft.metadata.partition_columns)}
        parameters = {**said, "evolve": self.policy.mode.value, "events": plan.to_value()["events"]}
        return commit(self.store, self.snapshot, [*draft.actions, *adds], "WRITE", parameters, metrics=metrics(adds))


def open_target(store: LogStore, policy: Policy) -> Target:
    """Return the table at a location as the target of an interval, or the place for a new one.

    Raises:
        InvalidOption: there is no table but there are other files.
        UnsupportedFeatureForWrite: the table has a feature that this version cannot obey.
        TableError: the table cannot be read.
    """
    try:
        snapshot = open_snapshot(store)
    except TableNotFound:
        _ensure_free(store)
        return Target(store, None, policy)
    state = _state(snapshot)
    ensure_writable(state.protocol, store.location)
    return Target(store, snapshot, replace(policy, table_format=_format(state)))


def metrics(adds: Sequence[Add]) -> dict[str, int]:
    """Return the numbers that the history shows of a write."""
    rows = sum(FileStatistics(add.stats).rows or 0 for add in adds)
    return {"numFiles": len(adds), "numOutputRows": rows, "numOutputBytes": sum(add.size for add in adds)}


def _state(snapshot: Snapshot) -> command.State:
    return command.State(snapshot.version, snapshot.protocol, snapshot.metadata)


def _format(state: command.State) -> TableFormat:
    if not is_enabled(state):
        return TableFormat.DELTA_FIXED
    is_iceberg = any(is_supported(state.protocol, name) for name in ("icebergCompatV1", "icebergCompatV2"))
    return TableFormat.DELTA_ICEBERG_COMPAT if is_iceberg else TableFormat.DELTA


def _ensure_free(store: LogStore) -> None:
    there = next((entry for entry in store.list("") if not _LEFTOVER.match(entry.path)), None)
    if there is not None:
        raise InvalidOption(
            option="into",
            value=store.location,
            expected=f"There is no table but there are other files, e.g. {there.path}. Name an empty place or a table.",
        )
