"""ALTER TABLE: operations, judged one after the other, become one commit.

Source: spec of ALTER TABLE in Delta Lake: the order of the checks, the errors and the provenance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from widen.planning.alter.metadata_change import with_operations
from widen.planning.alter.operation_checks import ensure_operation_allowed
from widen.planning.alter.operation_parameters import operation_parameters
from widen.planning.alter.type_checks import ensure_type_widening_supported
from widen.planning.table.operation import AddConstraint, Operation, SetNotNull
from widen.planning.table.table_state import MetadataChange, TableState
from widen.protocol.actions import Metadata, Protocol
from widen.protocol.table_features import supported_features, with_features


def plan_alter(state: TableState, operations: Sequence[Operation]) -> MetadataChange | None:
    """Return the commit that applies operations, all or none of them, or None if nothing changes.

    Each is judged by what those before it leave.

    Args:
        state: What was read.
        operations: Of one kind, as `widen.planning.alter.operation_parameters` can tell them.

    Raises:
        ColumnRefused: one of its kinds: the reason is in the error.
        ConstraintRefused: likewise.
        FeatureRequired: a new type needs a feature that the table does not have.
        EnabledWithoutFeature: widening is enabled, but the protocol does not list the feature.

    Source: Delta Lake's ALTER TABLE.
    """
    now, done = state, list[Operation]()
    for operation in operations:
        ensure_operation_allowed(now, operation)
        after = replace(now, metadata=with_operations(now, [operation]))
        if not _is_same(now, after):
            now = after
            done.append(operation)
    if not done:
        return None
    ensure_type_widening_supported(state)
    protocol = with_features(state.protocol, _features(done))
    actions: tuple[Metadata | Protocol, ...] = (now.metadata,)
    if supported_features(protocol) != supported_features(state.protocol):
        actions = (now.metadata, protocol)
    name, parameters = operation_parameters(state, done)
    return MetadataChange(actions, name, parameters, tuple(done))


def _is_same(one: TableState, other: TableState) -> bool:
    """Tell whether two states say the same; the text of a schema may differ in what means nothing."""
    rest = (msgspec.structs.replace(state.metadata, schema_string="") for state in (one, other))
    return one.schema == other.schema and next(rest) == next(rest)


def _features(operations: Sequence[Operation]) -> set[str]:
    """Return the features that operations bring with them.

    Source: PROTOCOL.md#check-constraints, #column-invariants (for columns that must not be null)
    """
    asked = {AddConstraint: "checkConstraints", SetNotNull: "invariants"}
    return {feature for kind, feature in asked.items() if any(isinstance(one, kind) for one in operations)}
