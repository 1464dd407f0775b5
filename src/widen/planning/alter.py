"""ALTER TABLE: operations, judged one after the other, become one commit.

Source: spec of ALTER TABLE in Delta Lake: the order of the checks, the errors and the provenance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from widen.planning.check import ensure_allowed
from widen.planning.command import with_operations
from widen.planning.operation import AddConstraint, Operation, SetNotNull
from widen.planning.provenance import provenance
from widen.planning.retype import ensure_supported
from widen.planning.state import Change, State
from widen.protocol.action import Metadata, Protocol
from widen.protocol.feature import features, upgraded


def altered(state: State, operations: Sequence[Operation]) -> Change | None:
    """Return the commit that applies operations, all or none of them, or None if nothing changes.

    Each is judged by what those before it leave.

    Args:
        state: What was read.
        operations: Of one kind, as `widen.planning.provenance` can tell them.

    Raises:
        ColumnRefused: one of its kinds: the reason is in the error.
        ConstraintRefused: likewise.
        FeatureRequired: a new type needs a feature that the table does not have.
        EnabledWithoutFeature: widening is enabled, but the protocol does not list the feature.

    Source: Delta Lake's ALTER TABLE.
    """
    now, done = state, list[Operation]()
    for operation in operations:
        ensure_allowed(now, operation)
        after = replace(now, metadata=with_operations(now, [operation]))
        if not _is_same(now, after):
            now = after
            done.append(operation)
    if not done:
        return None
    ensure_supported(state)
    protocol = upgraded(state.protocol, _features(done))
    actions: tuple[Metadata | Protocol, ...] = (now.metadata,)
    if features(protocol) != features(state.protocol):
        actions = (now.metadata, protocol)
    name, parameters = provenance(state, done)
    return Change(actions, name, parameters, tuple(done))


def _is_same(one: State, other: State) -> bool:
    """Tell whether two states say the same; the text of a schema may differ in what means nothing."""
    rest = (msgspec.structs.replace(state.metadata, schema_string="") for state in (one, other))
    return one.schema == other.schema and next(rest) == next(rest)


def _features(operations: Sequence[Operation]) -> set[str]:
    """Return the features that operations bring with them.

    Source: PROTOCOL.md#check-constraints, #column-invariants (for columns that must not be null)
    """
    asked = {AddConstraint: "checkConstraints", SetNotNull: "invariants"}
    return {feature for kind, feature in asked.items() if any(isinstance(one, kind) for one in operations)}
