"""The schema changes that a write makes so that its data fit the table.

Source: Delta Lake's schema evolution on write
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from widen.errors import (
    ConstraintTypeMismatch,
    GeneratedColumnTypeFixed,
    GeneratedColumnTypeMismatch,
    IdentityColumnFixed,
)
from widen.model.column_path import Path, format_path, nearest_field
from widen.model.types import VOID, StructType
from widen.planning.alter.column_checks import ensure_names_allowed
from widen.planning.alter.metadata_change import with_operations
from widen.planning.alter.type_checks import table_format_of
from widen.planning.evolution.format_capability import AutomaticWidening, can_widen_automatically
from widen.planning.table.dependent_expressions import (
    check_constraints,
    dependent_expressions,
    format_expressions,
    generated_columns,
)
from widen.planning.table.operation import AddColumn, Operation, WidenType
from widen.planning.table.table_state import TableState
from widen.planning.write.schema_merge import SchemaChangeOptions, merge_schema, never
from widen.protocol.actions import Metadata
from widen.protocol.column_metadata import find_generation, find_identity


@dataclass(frozen=True, slots=True)
class SchemaGrowth:
    """The schema changes of a write.

    Args:
        metadata: The metadata after the operations, with which the data are written.
        operations: The changes of columns; usually empty.
    """

    metadata: Metadata
    operations: tuple[Operation, ...] = ()

    @property
    def added(self) -> frozenset[Path]:
        """The paths of new columns and fields."""
        return frozenset(operation.path for operation in self.operations if isinstance(operation, AddColumn))


def schema_change_options(
    state: TableState, *, merge_schema: bool, widening: AutomaticWidening, cast: bool
) -> SchemaChangeOptions:
    """Return the schema changes that a write may make, as far as the table supports them.

    Args:
        cast: Whether values may be cast even if a cast can fail.

    Raises:
        EnabledWithoutFeature: type widening is enabled, but the protocol does not list the feature.
    """
    table_format = table_format_of(state)
    widens = partial(can_widen_automatically, table_format, widening) if merge_schema else never
    return SchemaChangeOptions(merge_schema, widens, cast)


def grow_schema(state: TableState, incoming: StructType, options: SchemaChangeOptions) -> SchemaGrowth:
    """Return the schema changes after which data fit a table.

    Raises:
        SchemaMismatch: the data do not fit, or a constraint or a generated column prevents a widening.
        IdentityColumnGiven: the data have values for an identity column that is GENERATED ALWAYS.
        GeneratedColumnTypeFixed: a generated column would widen.
        IdentityColumnFixed: an identity column would widen.
        InvalidColumnName: the name of a new column is not allowed.
        FeatureRequired: a new type needs a feature that the table does not support.

    Source: Delta Lake's schema evolution on write: the checks and their order
    """
    operations = merge_schema(state.schema, incoming, options)
    if not operations:
        return SchemaGrowth(state.metadata)
    ensure_types_unreferenced(state, operations)
    for operation in operations:
        if isinstance(operation, AddColumn):
            ensure_names_allowed([operation.field], state.properties, operation.parent)
    return SchemaGrowth(with_operations(state, operations), operations)


def ensure_types_unreferenced(state: TableState, operations: Iterable[Operation]) -> None:
    """Check that no expression of the table depends on the type of a column that would widen automatically.

    Raises:
        ConstraintTypeMismatch: a CHECK constraint references such a column.
        GeneratedColumnTypeMismatch: a generated column references one.
        GeneratedColumnTypeFixed: such a column is a generated column.
        IdentityColumnFixed: such a column is an identity column.

    Source: Delta Lake's check of dependent expressions on write
    """
    for operation in operations:
        if isinstance(operation, WidenType) and operation.old != VOID:
            _ensure_type_unreferenced(state, operation)


def _ensure_type_unreferenced(state: TableState, operation: WidenType) -> None:
    column, old, new = format_path(operation.path), operation.old.sql.upper(), operation.new.sql.upper()
    field = nearest_field(state.schema, operation.path)
    if find_identity(field) is not None:
        raise IdentityColumnFixed(column=column)
    dependents = dependent_expressions(operation.path, state.schema, check_constraints(state.properties))
    if dependents:
        raise ConstraintTypeMismatch(column=column, old=old, new=new, constraints=format_expressions(dependents))
    dependents = dependent_expressions(operation.path, state.schema, generated_columns(state))
    if dependents:
        raise GeneratedColumnTypeMismatch(column=column, old=old, new=new, columns=format_expressions(dependents))
    if find_generation(field) is not None:
        reason = "it has the type of the expression that generates it"
        raise GeneratedColumnTypeFixed(column=column, old=old, new=new, reason=reason, fix="Cast the data.")


def can_retry_write(before: TableState, first: SchemaGrowth, now: TableState, again: SchemaGrowth) -> bool:
    """Tell whether a write may be retried with a new plan after a conflict.

    It may not if it would add back a column that was dropped or renamed meanwhile, or if the table was replaced.

    Args:
        before: The table when the write started.
        now: The table after the conflicting commits.
    """
    return before.metadata.id == now.metadata.id and again.added <= first.added
