"""What a write makes of a table, so that its data fit.

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
    """What becomes of a table.

    Args:
        metadata: After the operations: under it the data are written.
        operations: What happens to the columns; often nothing.
    """

    metadata: Metadata
    operations: tuple[Operation, ...] = ()

    @property
    def added(self) -> frozenset[Path]:
        """Where there are new columns and fields."""
        return frozenset(operation.path for operation in self.operations if isinstance(operation, AddColumn))


def schema_change_options(
    state: TableState, *, merge_schema: bool, widening: AutomaticWidening, cast: bool
) -> SchemaChangeOptions:
    """Return what a write may do, as far as the table can do it.

    Args:
        state: The table.
        merge_schema: Whether the table may get new columns and wider types.
        widening: Which types may widen.
        cast: Whether values may be cast where that can fail.

    Raises:
        EnabledWithoutFeature: widening is enabled, but the protocol does not list the feature.
    """
    table_format = table_format_of(state)
    widens = partial(can_widen_automatically, table_format, widening) if merge_schema else never
    return SchemaChangeOptions(merge_schema, widens, cast)


def grow_schema(state: TableState, incoming: StructType, leeway: SchemaChangeOptions) -> SchemaGrowth:
    """Return what becomes of a table so that data fit.

    Args:
        state: The table.
        incoming: The schema of the data.
        leeway: What may be done.

    Raises:
        SchemaMismatch: the data do not fit, or a constraint or a generated column keeps a type from widening.
        IdentityColumnGiven: the data have values for a column whose values only the table makes.
        GeneratedColumnTypeFixed: a generated column would widen.
        IdentityColumnFixed: an identity column would widen.
        InvalidColumnName: a new column cannot be called so.
        FeatureRequired: a new type needs a feature that the table does not have.

    Source: Delta Lake's schema evolution on write: the checks and their order
    """
    operations = merge_schema(state.schema, incoming, leeway)
    if not operations:
        return SchemaGrowth(state.metadata)
    ensure_types_unreferenced(state, operations)
    for operation in operations:
        if isinstance(operation, AddColumn):
            ensure_names_allowed([operation.field], state.properties, operation.parent)
    return SchemaGrowth(with_operations(state, operations), operations)


def ensure_types_unreferenced(state: TableState, operations: Iterable[Operation]) -> None:
    """Check that nothing of the table has to do with the types of columns that would widen by themselves.

    Args:
        state: The table.
        operations: What a write would do to its columns.

    Raises:
        ConstraintTypeMismatch: a CHECK constraint looks at one.
        GeneratedColumnTypeMismatch: a generated column is made of one.
        GeneratedColumnTypeFixed: one is a generated column.
        IdentityColumnFixed: one is an identity column.

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
    found = dependent_expressions(operation.path, state.schema, check_constraints(state.properties))
    if found:
        raise ConstraintTypeMismatch(column=column, old=old, new=new, constraints=format_expressions(found))
    found = dependent_expressions(operation.path, state.schema, generated_columns(state))
    if found:
        raise GeneratedColumnTypeMismatch(column=column, old=old, new=new, columns=format_expressions(found))
    if find_generation(field) is not None:
        reason = "it has the type of the expression that generates it"
        raise GeneratedColumnTypeFixed(column=column, old=old, new=new, reason=reason, fix="Cast the data.")


def can_retry_write(before: TableState, first: SchemaGrowth, now: TableState, again: SchemaGrowth) -> bool:
    """Tell whether a write that lost a race may be made again as planned anew, without asking.

    It may if it would not put back what somebody has dropped or renamed, or write to another table of that name.

    Args:
        before: The table when the write began.
        first: The first plan.
        now: The table after the winners.
        again: The plan for that.
    """
    return before.metadata.id == now.metadata.id and again.added <= first.added
