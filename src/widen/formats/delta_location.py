"""The location of a Delta table that is the target of an ingestion.

Source: docs/evolution-rules.md#d1
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace

from widen.errors import InvalidOption, TableNotFound
from widen.formats.delta_quarantine import DeltaQuarantine, quarantine_store
from widen.formats.delta_target import DeltaTarget, to_state
from widen.formats.table_format import TableLocation
from widen.log.read.snapshot import open_snapshot
from widen.log.store.log_store import LogStore
from widen.log.write.commit import commit
from widen.planning.alter.set_properties import plan_add_feature
from widen.planning.alter.type_checks import table_format_of
from widen.planning.evolution.file_fields import for_file_fields
from widen.planning.evolution.fixed_columns import find_fixed_columns
from widen.planning.evolution.policy import Policy
from widen.planning.evolution.policy_field_rules import with_time_fields
from widen.protocol.skipping.file_statistics import HIDDEN_FIELDS, split_paths
from widen.protocol.table_features import ensure_writable
from widen.spark.source.source_files import to_place

_LEFTOVER = re.compile(r"[0-9a-f]{32}/|[._]|.*/[._]")
"""Files that a killed job leaves behind, and files that readers ignore."""


@dataclass(frozen=True, slots=True)
class DeltaLocation(TableLocation):
    """Where a Delta table is or will be."""

    store: LogStore

    @property
    def location(self) -> str:
        return self.store.location

    @property
    def keeps_types(self) -> bool:
        return True

    def add_features(self, names: Collection[str]) -> None:
        # Each feature is a commit of its own, so the next one needs the new version.
        for name in sorted(names):
            try:
                snapshot = open_snapshot(self.store)
            except TableNotFound:
                return
            change = plan_add_feature(to_state(snapshot), name)
            if change is not None:
                commit(self.store, snapshot, change.actions, change.operation, change.parameters).or_raise()

    def resolve(self, location: str) -> str:
        return to_place(location)

    def open(self, policy: Policy) -> DeltaTarget:
        try:
            snapshot = open_snapshot(self.store)
        except TableNotFound:
            _ensure_location_empty(self.store)
            return DeltaTarget(self.store, None, for_file_fields(policy))
        state = to_state(snapshot)
        ensure_writable(state.protocol, self.location)
        policy = replace(
            policy,
            table_format=table_format_of(state),
            fixed_columns=find_fixed_columns(state),
            known_fields=frozenset(split_paths(state.properties.get(HIDDEN_FIELDS, ""))),
        )
        # File fields come last: a field of a file gets the rules of the column of its name, also those that the schema
        # adds.
        return DeltaTarget(self.store, snapshot, for_file_fields(with_time_fields(policy, state.schema)))

    def not_found(self) -> TableNotFound:
        return TableNotFound(location=self.location, reason="there is no log")

    def quarantine(self, location: str | None) -> DeltaQuarantine:
        return DeltaQuarantine(quarantine_store(self.store, location))


def _ensure_location_empty(store: LogStore) -> None:
    other = next((entry for entry in store.list("") if not _LEFTOVER.match(entry.path)), None)
    if other is not None:
        raise InvalidOption(
            option="into",
            value=store.location,
            expected=f"Must be a table or an empty location; it has no table but other files, e.g. {other.path}.",
        )
