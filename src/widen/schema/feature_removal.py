"""DROP FEATURE: the features that can be dropped, the traces to remove before, and the commits that remove them.

Source: Delta Spark's DROP FEATURE; PROTOCOL.md#writer-requirements-for-type-widening for what may be left behind
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from enum import Enum, auto

import msgspec

from widen.errors import (
    ConstraintsRemain,
    FeatureIsProperty,
    FeatureNotPresent,
    FeatureNotRemovable,
    FeatureStillNeeded,
    InvalidColumnName,
    InvalidOption,
    TruncationNotAllowed,
    TruncationRequired,
    UnknownFeature,
)
from widen.model.column_path import fields, format_path
from widen.model.display import READERS_LOG
from widen.model.schema_json import from_json
from widen.model.types import Field, is_atomic
from widen.model.value_classes import dataclass
from widen.protocol.actions import DomainMetadata, Metadata, Protocol, to_domain
from widen.protocol.column_mapping import (
    ENABLE,
    FEATURE,
    ID_COLUMN,
    MODE,
    NONE,
    ROW_TRACKING,
    ROW_TRACKING_DOMAIN,
    SUSPENDED,
    VERSION_COLUMN,
    to_physical,
    without_mapping,
)
from widen.protocol.table_features import (
    COLUMN_MAPPING,
    DELETION_VECTORS,
    MATERIALIZED_PARTITIONS,
    PROTECTED_BEFORE,
    PROTECTION,
    TYPE_WIDENING,
    TYPE_WIDENING_PREVIEW,
    V2_CHECKPOINT,
    added_reader_features,
    dependent_features,
    find_feature,
    supported_features,
    without_feature,
)
from widen.protocol.table_properties import (
    CHECKPOINT_POLICY,
    CLASSIC,
    ENABLE_DELETION_VECTORS,
    ENABLE_IN_COMMIT_TIMESTAMPS,
    ENABLE_TYPE_WIDENING,
    MATERIALIZE_PARTITIONS,
    TIMESTAMPS_SINCE_MS,
    TIMESTAMPS_SINCE_VERSION,
    TYPE_WIDENING_INTENT,
    V2,
    is_on,
    is_property,
    widens_when_needed,
)
from widen.protocol.type_widening import TYPE_CHANGES, has_type_changes, strip_type_changes
from widen.schema.source_metadata import FORBIDDEN
from widen.schema.table_definition import plan_set_properties, plan_unset_properties
from widen.schema.table_state import MetadataChange, TableState, check_constraints

OPERATION = "DROP FEATURE"


def _never(_: Metadata) -> bool:
    return False


class Stored(Enum):
    """What a feature leaves in files and in their entries of the log."""

    COLUMN_NAMES = auto()
    OLD_TYPES = auto()
    DELETION_VECTORS = auto()
    ROW_IDS = auto()
    SIDECARS = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovableFeature:
    """A feature that can be dropped.

    Args:
        unset: The properties to remove before anything else.
        settings: The properties to set before anything else, so that no writer uses the feature again.
        unset_last: The properties to remove together with the feature, since writers use them until then.
        domain: The metadata domain to remove together with the feature.
        stored: What to remove from the files as well.
        keeps_history: Whether older versions need it, so that they must be truncated or protected before.
        is_trace: Whether a metadata action in the history uses the feature.
    """

    name: str
    unset: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    unset_last: tuple[str, ...] = ()
    domain: str | None = None
    stored: Stored | None = None
    keeps_history: bool = False
    is_trace: Callable[[Metadata], bool] = _never

    def is_clean(self, state: TableState) -> bool:
        """Return whether the metadata of a version list the feature without using it."""
        is_set = any(key in state.properties for key in self.unset)
        is_settled = self.settings.items() <= state.properties.items()
        is_mapped = self.stored is Stored.COLUMN_NAMES and state.mapping != NONE
        has_history = self.stored is Stored.OLD_TYPES and has_type_changes(state.schema)
        return is_settled and not is_set and not is_mapped and not has_history


def _has_type_changes(metadata: Metadata) -> bool:
    return has_type_changes(from_json(metadata.schema_string))


def _is_mapped(metadata: Metadata) -> bool:
    return metadata.configuration.get(MODE, NONE) != NONE


def _writes_vectors(metadata: Metadata) -> bool:
    return is_on(metadata.configuration, ENABLE_DELETION_VECTORS)


def _writes_sidecars(metadata: Metadata) -> bool:
    return metadata.configuration.get(CHECKPOINT_POLICY) == V2


def _widening(name: str) -> RemovableFeature:
    return RemovableFeature(
        name=name,
        unset=(ENABLE_TYPE_WIDENING, TYPE_WIDENING_INTENT),
        stored=Stored.OLD_TYPES,
        keeps_history=True,
        is_trace=_has_type_changes,
    )


REMOVABLE_FEATURES: Mapping[str, RemovableFeature] = {
    row.name: row
    for row in (
        RemovableFeature(name="checkConstraints"),
        RemovableFeature(
            name=FEATURE, unset=(MODE,), stored=Stored.COLUMN_NAMES, keeps_history=True, is_trace=_is_mapped
        ),
        RemovableFeature(name=PROTECTION, unset=(PROTECTED_BEFORE,)),
        RemovableFeature(
            name=DELETION_VECTORS,
            unset=(ENABLE_DELETION_VECTORS,),
            stored=Stored.DELETION_VECTORS,
            keeps_history=True,
            is_trace=_writes_vectors,
        ),
        RemovableFeature(
            name="inCommitTimestamp",
            unset=(ENABLE_IN_COMMIT_TIMESTAMPS, TIMESTAMPS_SINCE_VERSION, TIMESTAMPS_SINCE_MS),
        ),
        RemovableFeature(name=MATERIALIZED_PARTITIONS, unset=(MATERIALIZE_PARTITIONS,)),
        RemovableFeature(
            name=ROW_TRACKING,
            settings={ENABLE: "false", SUSPENDED: "true"},
            unset_last=(ENABLE, SUSPENDED, ID_COLUMN, VERSION_COLUMN),
            domain=ROW_TRACKING_DOMAIN,
            stored=Stored.ROW_IDS,
        ),
        _widening(TYPE_WIDENING),
        _widening(TYPE_WIDENING_PREVIEW),
        RemovableFeature(
            name=V2_CHECKPOINT,
            settings={CHECKPOINT_POLICY: CLASSIC},
            stored=Stored.SIDECARS,
            keeps_history=True,
            is_trace=_writes_sidecars,
        ),
        RemovableFeature(name="vacuumProtocolCheck", keeps_history=True),
    )
}
"""The features that can be dropped, by name."""


def find_removable_feature(state: TableState, name: str, *, truncates: bool) -> RemovableFeature:
    """Return the feature to drop, after checking that it can be dropped.

    Raises:
        FeatureIsProperty: the name belongs to a property.
        FeatureNotPresent: the table does not support the feature.
        FeatureNotRemovable: the feature cannot be dropped, or this version of Widen cannot remove its traces.
        UnknownFeature: the feature does not exist.
        TruncationNotAllowed: the feature leaves no traces in the history.
        TruncationRequired: the feature can be dropped only together with the history that it protects.
        FeatureStillNeeded: other features of the table depend on it.
        ConstraintsRemain: the table has CHECK constraints.

    Source: Delta Spark's DROP FEATURE: the checks and their order.
    """
    present, removable = supported_features(state.protocol), ", ".join(REMOVABLE_FEATURES)
    if name not in present and is_property(name):
        raise FeatureIsProperty(property=name)
    if name not in present and find_feature(name) is None:
        raise UnknownFeature(feature=name, removable=removable)
    if name not in present:
        raise FeatureNotPresent(feature=name, supported=", ".join(sorted(present)) or "none")
    row = REMOVABLE_FEATURES.get(name)
    if row is None:
        raise FeatureNotRemovable(feature=name, removable=removable)
    if truncates and not row.keeps_history and name != PROTECTION:
        raise TruncationNotAllowed(feature=name)
    if name == PROTECTION and not truncates:
        raise TruncationRequired(feature=name)
    if needed := dependent_features(state.protocol, name):
        raise FeatureStillNeeded(feature=name, dependents=", ".join(needed))
    if name == "checkConstraints" and (left := check_constraints(state.properties)):
        raise ConstraintsRemain(feature=name, constraints=", ".join(sorted(left)))
    return row


def plan_mapping_removal(state: TableState, *, explicit: bool = False) -> tuple[Metadata | DomainMetadata, ...]:
    """Return the actions that end column mapping, beside actions of rewritten files; empty without column mapping.

    Args:
        explicit: Whether to set the mode to none, instead of leaving it out.

    Raises:
        InvalidColumnName: a column has a name that files without column mapping cannot have.
        FeatureStillNeeded: Iceberg compatibility is enabled.

    Source: Delta Spark's ALTER TABLE SET TBLPROPERTIES ('delta.columnMapping.mode' = 'none')
    """
    mode = state.mapping
    if mode == NONE:
        return ()
    if needed := dependent_features(state.protocol, FEATURE):
        raise FeatureStillNeeded(feature=FEATURE, dependents=", ".join(needed))
    for path, column in fields(state.schema):
        if any(char in FORBIDDEN for char in column.name):
            reason = f"without column mapping a name cannot contain any of {FORBIDDEN!r}"
            fix = f"Rename it first: rename_column({format_path(path)!r}, ...)."
            raise InvalidColumnName(name=format_path(path), reason=reason, fix=fix)
    metadata = without_mapping(state.metadata)
    if explicit:
        metadata = msgspec.structs.replace(metadata, configuration={**metadata.configuration, MODE: NONE})
    actions: tuple[Metadata | DomainMetadata, ...] = (metadata,)
    if state.clustered_by:
        logical = {
            physical: path
            for (physical, _), (path, _) in zip(
                fields(to_physical(state.schema, mode)), fields(state.schema), strict=True
            )
        }
        actions += (to_domain(tuple(logical[path] for path in state.clustered_by)),)
    return actions


def disable_feature(state: TableState, row: RemovableFeature) -> MetadataChange | None:
    """Return a commit that lets no later writer use a feature; None if it changes nothing.

    Properties to unset are removed regardless of their values.

    Source: PROTOCOL.md#writer-requirements-for-type-widening: the property must not be set. Delta Spark leaves an
    explicit ``false`` behind.
    """
    if row.settings:
        return plan_set_properties(state, row.settings)
    return plan_unset_properties(state, [key for key in row.unset if key in state.properties])


def without_intent(state: TableState) -> MetadataChange | None:
    """Return the commit that keeps later type changes from turning on type widening; None if they would not anyway."""
    is_there = widens_when_needed(state.properties) and not state.supports(TYPE_WIDENING)
    return plan_unset_properties(state, [TYPE_WIDENING_INTENT]) if is_there else None


def without_type_changes(state: TableState, operation: str) -> MetadataChange | None:
    """Return the commit that removes the type history from the schema; None without a type history.

    Source: PROTOCOL.md#writer-requirements-for-type-widening
    """
    if not has_type_changes(state.schema):
        return None
    changed = [
        _describe_field(replace(field, name=format_path(path)))
        for path, field in fields(state.schema)
        if TYPE_CHANGES in field.metadata
    ]
    metadata = state.metadata.with_schema(strip_type_changes(state.schema))
    return MetadataChange((metadata,), operation, {"columns": changed})


def downgrade_protocol(state: TableState, row: RemovableFeature, *, truncates: bool, protects: bool) -> MetadataChange:
    """Return the commit that removes a feature from the protocol.

    Args:
        state: A version that does not use it. The commit must become the next version.
        protects: Whether older versions use it and stay, behind checkpoints that are protected from now on.

    Source: Delta Spark's DROP FEATURE; protocol_rfcs/checkpoint-protection.md
    """
    configuration = {key: text for key, text in state.properties.items() if key not in row.unset_last}
    if protects:
        configuration[PROTECTED_BEFORE] = str(state.version + 1)
    metadata = msgspec.structs.replace(state.metadata, configuration=configuration)
    protocol = without_feature(state.protocol, row.name, (PROTECTION,) if protects else ())
    domains = () if row.domain is None else (DomainMetadata(domain=row.domain, configuration="{}", removed=True),)
    actions = (metadata, protocol, *domains)
    return MetadataChange(actions, OPERATION, {"featureName": row.name, "truncateHistory": truncates})


def _describe_field(field: Field) -> dict[str, object]:
    """Describe a field for the history; a nested type only by its name."""
    name = str(field.type) if is_atomic(field.type) else str(field.type).partition("<")[0]
    return {"name": field.name, "type": name, "nullable": field.nullable, "metadata": dict(field.metadata)}


# Hand a table over to another client: what it cannot read or write, and which features can be dropped for it.
#
# Source: docs/type-widening.md


DELTALAKE, POLARS = "deltalake", "polars"
_WIDENING = frozenset({TYPE_WIDENING, TYPE_WIDENING_PREVIEW})
_NOT_WRITTEN = frozenset(
    {
        *("allowColumnDefaults", "clustering", "domainMetadata", "identityColumns", "inCommitTimestamp"),
        *("icebergCompatV1", "icebergCompatV2", "icebergCompatV3", MATERIALIZED_PARTITIONS, "rowTracking"),
        PROTECTION,
    }
)


@dataclass(frozen=True, slots=True)
class Client:
    """Another client of Delta tables.

    Args:
        unreadable: The features that keep it from reading a table.
        unwritable: The features that keep it from appending to a table, beside these.
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


def readers_without(feature: str) -> tuple[str, ...]:
    """Return the tested clients that refuse a table with a feature."""
    return tuple(name for name, client in CLIENTS.items() if feature in client.unreadable)


def feature_refusal(feature: str) -> str:
    """Return the sentence that says who refuses a table from the commit on that adds a feature."""
    known = ", ".join(readers_without(feature))
    who = f"{known} and other readers" if known else "Readers"
    do = "refuse or misread" if feature == COLUMN_MAPPING else "refuse"
    return f"{who} that do not support the table feature {feature} {do} the table from then on."


_log = logging.getLogger(READERS_LOG)


def warn_readers(location: str, before: Protocol, after: Protocol) -> tuple[str, ...]:
    """Log who refuses a table after a change of its protocol, and return the added features that readers need."""
    added = added_reader_features(before, after)
    for feature in added:
        _log.warning("%s: %s", location, feature_refusal(feature))
    return added


@dataclass(frozen=True, slots=True)
class HandoverPlan:
    """What a handover does.

    Args:
        drops: The features to drop, in order.
        unwritable: The remaining features that keep the client from appending.
        unset: The properties to remove because a later load would use them to add such a feature.
    """

    client: str
    drops: tuple[str, ...]
    unwritable: tuple[str, ...]
    losses: tuple[str, ...]
    unset: tuple[str, ...] = ()

    def until(self, feature: str) -> HandoverPlan:
        """Return what was done of the plan if it had to stop before a feature."""
        drops = self.drops[: self.drops.index(feature)]
        return replace(self, drops=drops, losses=tuple(_losses(drops)), unwritable=(*self.unwritable, feature))


def plan_handover(state: TableState, client: str, *, appends: bool) -> HandoverPlan:
    """Return what to do so that a client reads a table.

    Raises:
        InvalidOption: the client is unknown, or the table has a feature that it does not read or, with ``appends``,
            write, and that cannot be dropped.
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
    is_next = TYPE_WIDENING in limits.unreadable and widens_when_needed(state.properties)
    unset = (TYPE_WIDENING_INTENT,) if is_next else ()
    return HandoverPlan(client, tuple(drops), tuple(sorted(left)), tuple(_losses(drops)), unset)


def _is_needed(state: TableState, name: str, disturbing: frozenset[str]) -> bool:
    """Return whether a feature that stays needs another one."""
    return not disturbing.issuperset(dependent_features(state.protocol, name))


def _losses(drops: Iterable[str]) -> list[str]:
    return [_LOSSES[name] for name in drops if name in _LOSSES]


_LOSSES: Mapping[str, str] = {
    COLUMN_MAPPING: "column mapping: columns can no longer be renamed or dropped; all files are rewritten",
    DELETION_VECTORS: "deletion vectors: files with deleted rows are rewritten",
    ROW_TRACKING: "the ids of rows and the versions in which they changed",
    TYPE_WIDENING: "the record of type changes; files in old types are rewritten",
    TYPE_WIDENING_PREVIEW: "the record of type changes; files in old types are rewritten",
    "inCommitTimestamp": "timestamps in commits; the times of files count instead",
    PROTECTION: "the older versions: they can no longer be read",
}
