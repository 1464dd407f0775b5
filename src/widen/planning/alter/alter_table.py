"""ALTER TABLE: operations are checked one after the other and become one commit.

Source: Delta Lake's ALTER TABLE: the order of the checks, the errors and the commit provenance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from widen.planning.alter.metadata_change import with_operations
from widen.planning.alter.operation_checks import ensure_operation_allowed
from widen.planning.alter.operation_parameters import operation_parameters
from widen.planning.alter.type_checks import ensure_type_widening_supported
from widen.planning.table.operation import Operation
from widen.planning.table.operation_requirements import added_features
from widen.planning.table.table_state import MetadataChange, TableState
from widen.protocol.actions import Metadata, Protocol
from widen.protocol.table_features import supported_features, with_features


def plan_alter(state: TableState, operations: Sequence[Operation]) -> MetadataChange | None:
    """Return the commit that applies all operations, or None if nothing changes.

    Each operation is checked against the state that the ones before it leave.

    Args:
        operations: Operations that one history entry can describe, see `widen.planning.alter.operation_parameters`.

    Raises:
        ColumnRefused: an operation on a column is not allowed; a subclass says why.
        ConstraintRefused: an operation on a constraint is not allowed; a subclass says why.
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
    protocol = with_features(state.protocol, added_features(done))
    actions: tuple[Metadata | Protocol, ...] = (now.metadata,)
    if supported_features(protocol) != supported_features(state.protocol):
        actions = (now.metadata, protocol)
    name, parameters = operation_parameters(state, done)
    return MetadataChange(actions, name, parameters, tuple(done))


def _is_same(before: TableState, after: TableState) -> bool:
    """Tell whether two states are equal. Schemas are compared parsed: equal ones may be spelled differently in JSON."""
    rest = (msgspec.structs.replace(state.metadata, schema_string="") for state in (before, after))
    return before.schema == after.schema and next(rest) == next(rest)
