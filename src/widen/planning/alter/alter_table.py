"""ALTER TABLE: operations are checked one after the other and become one commit.

Source: Delta Lake's ALTER TABLE: the order of the checks, the errors and the commit provenance.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import msgspec

from widen.model.column_path import Path, children, nearest_field, resolve
from widen.model.types import StructType, name_key
from widen.planning.alter.metadata_change import with_operations
from widen.planning.alter.operation_checks import ensure_operation_allowed
from widen.planning.alter.operation_parameters import operation_parameters
from widen.planning.alter.type_checks import ensure_type_widening_supported
from widen.planning.table import operation as op
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
    for group in _independent_groups(operations):
        for operations_together in _singly(now, group):
            for operation in operations_together:
                ensure_operation_allowed(now, operation)
            after = replace(now, metadata=with_operations(now, operations_together))
            if not _is_same(now, after):
                done += [each for each in operations_together if _has_effect(each, now, after)]
                now = after
    if not done:
        return None
    ensure_type_widening_supported(state)
    protocol = with_features(state.protocol, added_features(done))
    actions: tuple[Metadata | Protocol, ...] = (now.metadata,)
    if supported_features(protocol) != supported_features(state.protocol):
        actions = (now.metadata, protocol)
    name, parameters = operation_parameters(state, done)
    return MetadataChange(actions, name, parameters, tuple(done))


_PARTS: Mapping[type[Operation], str] = {
    op.WidenType: "type",
    op.LoosenText: "type",
    op.SetComment: "comment",
    op.SetDefault: "default",
    op.DropDefault: "default",
    op.SetNotNull: "nullability",
    op.DropNotNull: "nullability",
    op.MoveColumn: "position",
}
"""What an operation changes of the one field that it changes."""


def _independent_groups(operations: Sequence[Operation]) -> Iterator[list[Operation]]:
    """Yield the operations in order, in groups that can be checked against one state and applied at once.

    None of a group changes what another one changes, or a field around or below it. A schema of n columns is then
    built once for a change of all of them, not n times.
    """
    group, changed, above = list[Operation](), dict[Path, set[str]](), set[Path]()
    for operation in operations:
        kind = _PARTS.get(type(operation), "")
        path = tuple(map(name_key, getattr(operation, "path", ())))
        parents = [path[:end] for end in range(1, len(path))]
        is_apart = path not in above and not any(map(changed.__contains__, parents))
        is_new = kind not in changed[path] if path in changed else True
        if group and not (is_apart and is_new and path and _are_alike(group[0], operation)):
            yield group
            group, changed, above = [], {}, set()
        group.append(operation)
        changed.setdefault(path, set()).add(kind)
        above.update(parents)
    if group:
        yield group


def _are_alike(first: Operation, other: Operation) -> bool:
    """Tell whether two operations only add columns, only drop them, or only change existing ones."""
    if type(first) in _PARTS:
        return type(other) in _PARTS
    return type(first) is type(other) and isinstance(first, (op.AddColumn, op.DropColumn))


def _singly(state: TableState, group: list[Operation]) -> Iterator[list[Operation]]:
    """Yield a group as it is; drops one by one if a struct may lose all its fields, which the last must refuse."""
    drops = Counter(each.path[:-1] for each in group if isinstance(each, op.DropColumn))
    for parent, count in drops.items():
        struct = resolve(state.schema, parent)[1]
        stored = [name for name, _ in children(struct) if parent or name not in state.metadata.partition_columns]
        if count >= len(stored):
            yield from ([each] for each in group)
            return
    yield group


def _has_effect(operation: Operation, before: TableState, after: TableState) -> bool:
    if type(operation) not in _PARTS or isinstance(operation, op.LoosenText):  # its limit is stored in the column
        return True
    path: Path = operation.path  # type: ignore[union-attr]
    if isinstance(operation, op.MoveColumn):
        old, new = (resolve(state.schema, path[:-1])[1] for state in (before, after))
        return not (isinstance(old, StructType) and isinstance(new, StructType) and old.names == new.names)
    return nearest_field(before.schema, path) != nearest_field(after.schema, path)


def _is_same(before: TableState, after: TableState) -> bool:
    """Tell whether two states are equal. Schemas are compared parsed: equal ones may be spelled differently in JSON."""
    rest = (msgspec.structs.replace(state.metadata, schema_string="") for state in (before, after))
    return before.schema == after.schema and next(rest) == next(rest)
