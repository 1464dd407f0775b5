"""Hand a table over to another client: what it cannot read or write, and which features can be dropped for it.

Source: docs/type-widening.md
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from widen.errors import InvalidOption
from widen.planning.alter.feature_removal import REMOVABLE_FEATURES, plan_mapping_removal
from widen.planning.table.table_state import TableState
from widen.protocol.table_features import (
    COLUMN_MAPPING,
    PROTECTION,
    TYPE_WIDENING,
    TYPE_WIDENING_PREVIEW,
    dependent_features,
    supported_features,
)

DELTALAKE, POLARS = "deltalake", "polars"
_WIDENING = frozenset({TYPE_WIDENING, TYPE_WIDENING_PREVIEW})
_NOT_WRITTEN = frozenset(
    {
        *("allowColumnDefaults", "clustering", "domainMetadata", "identityColumns", "inCommitTimestamp"),
        *("icebergCompatV1", "icebergCompatV2", "icebergCompatV3", "materializePartitionColumns", "rowTracking"),
        PROTECTION,
    }
)


@dataclass(frozen=True, slots=True)
class Client:
    """Another client of Delta tables.

    Args:
        unreadable: The features with which it does not read a table.
        unwritable: The features with which it does not append to a table, beside these.
    """

    unreadable: frozenset[str]
    unwritable: frozenset[str]


CLIENTS: Mapping[str, Client] = {
    DELTALAKE: Client(_WIDENING | {COLUMN_MAPPING, "deletionVectors", "vacuumProtocolCheck"}, _NOT_WRITTEN),
    POLARS: Client(_WIDENING | {COLUMN_MAPPING, "v2Checkpoint", "vacuumProtocolCheck"}, _NOT_WRITTEN),
}
"""The clients by name: each feature was tried on a table with it alone, with deltalake 1.6 and polars 2.1.

Not every reader of deltalake knows column mapping and deletion vectors: its query engine does; `to_pyarrow_dataset`,
and so `to_pandas`, refuses them, or, with the old protocol versions (2, 5), returns null for mapped columns.
"""


@dataclass(frozen=True, slots=True)
class HandoverPlan:
    """What a handover does.

    Args:
        drops: The features to drop, in order.
        unwritable: The features that remain and with which the client does not append.
    """

    client: str
    drops: tuple[str, ...]
    unwritable: tuple[str, ...]
    losses: tuple[str, ...]

    def until(self, feature: str) -> HandoverPlan:
        """Return what was done of the plan if it had to stop before a feature."""
        drops = self.drops[: self.drops.index(feature)]
        return replace(self, drops=drops, losses=tuple(_losses(drops)), unwritable=(*self.unwritable, feature))


def plan_handover(state: TableState, client: str, *, appends: bool) -> HandoverPlan:
    """Return what to do so that a client reads a table.

    Args:
        client: A name of `CLIENTS`.
        appends: Whether the client must also append.

    Raises:
        InvalidOption: the client is unknown, or the table has a feature that it does not read or, with ``appends``,
            write, and that cannot be dropped.
        InvalidColumnName: the name of a column is not possible without column mapping, which the client does not read.
    """
    limits = CLIENTS.get(client)
    if limits is None:
        expected = f"Must be {', '.join(CLIENTS)} or iceberg."
        raise InvalidOption(option="--to", value=client, expected=expected)
    present = supported_features(state.protocol)
    disturbing = present & (limits.unreadable | (limits.unwritable if appends else frozenset()))
    kept = sorted(
        {name for name in disturbing if name not in REMOVABLE_FEATURES or _is_needed(state, name, disturbing)}
    )
    if kept:
        verb = "write" if appends else "read"
        reason = (
            f"it does not {verb} tables with {', '.join(kept)}, which cannot be dropped. Write the rows to a new table"
        )
        raise InvalidOption(option="--to", value=client, expected=f"Must be another client: {reason}.")
    if COLUMN_MAPPING in disturbing:
        plan_mapping_removal(state)
    drops = sorted(disturbing - {PROTECTION})
    protects = any(REMOVABLE_FEATURES[name].keeps_history for name in drops) or PROTECTION in present
    drops += [PROTECTION] if appends and protects else []
    left = (present - set(drops)) & limits.unwritable | ({PROTECTION} if protects and not appends else set())
    return HandoverPlan(client, tuple(drops), tuple(sorted(left)), tuple(_losses(drops)))


def _is_needed(state: TableState, name: str, disturbing: frozenset[str]) -> bool:
    """Return whether a feature that stays needs another one."""
    return not disturbing.issuperset(dependent_features(state.protocol, name))


def _losses(drops: Iterable[str]) -> list[str]:
    return [_LOSSES[name] for name in drops if name in _LOSSES]


_LOSSES: Mapping[str, str] = {
    COLUMN_MAPPING: "column mapping: columns can no longer be renamed or dropped; all files are rewritten",
    TYPE_WIDENING: "the record of type changes; files in old types are rewritten",
    TYPE_WIDENING_PREVIEW: "the record of type changes; files in old types are rewritten",
    "inCommitTimestamp": "timestamps in commits; the times of files count instead",
    PROTECTION: "the older versions: they can no longer be read",
}
