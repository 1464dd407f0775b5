"""Whether the type of a column may change.

Source: PROTOCOL.md#writer-requirements-for-type-widening; Delta Lake's ALTER TABLE for the order of the checks.
"""

from __future__ import annotations

from collections.abc import Iterator

from widen.errors import EnabledWithoutFeature, GeneratedColumnTypeFixed, NestedTypeChangeRefused, TypeChangeRefused
from widen.model.column_path import Path, format_path, nearest_field, resolve
from widen.model.type_parser import parse_type
from widen.model.types import STRING, VOID, ArrayType, DataType, MapType, StructType, is_atomic
from widen.planning.evolution.format_capability import TableFormat
from widen.planning.table.dependent_expressions import ensure_independent
from widen.planning.table.operation import LoosenText
from widen.planning.table.table_state import TableState
from widen.protocol import iceberg_compat
from widen.protocol.column_metadata import find_generation
from widen.protocol.iceberg_compat import type_change_compat
from widen.protocol.table_features import TYPE_WIDENING, TYPE_WIDENING_PREVIEW, is_supported
from widen.protocol.table_properties import ENABLE_TYPE_WIDENING, is_on
from widen.protocol.text_limits import declared_schema, text_limit
from widen.protocol.type_widening import is_iceberg_compatible, is_widening

_NEW_COLUMN = "Write the values to a new column instead."


def is_type_widening_enabled(state: TableState) -> bool:
    """Tell whether type widening is enabled.

    Raises:
        EnabledWithoutFeature: the property enables it, but the protocol does not list the feature.

    Source: PROTOCOL.md#writer-requirements-for-type-widening
    """
    ensure_type_widening_supported(state)
    return is_on(state.properties, ENABLE_TYPE_WIDENING)


def ensure_type_widening_supported(state: TableState) -> None:
    """Check that a table whose property enables type widening supports the feature, or its preview.

    Raises:
        EnabledWithoutFeature: it supports neither.

    Source: PROTOCOL.md#writer-requirements-for-type-widening
    """
    is_there = any(is_supported(state.protocol, name) for name in (TYPE_WIDENING, TYPE_WIDENING_PREVIEW))
    if is_on(state.properties, ENABLE_TYPE_WIDENING) and not is_there:
        raise EnabledWithoutFeature(property=ENABLE_TYPE_WIDENING, feature=TYPE_WIDENING)


def table_format_of(state: TableState) -> TableFormat:
    """Return the format that decides which types of a table can widen.

    Raises:
        EnabledWithoutFeature: widening is enabled, but the protocol does not list the feature.

    Source: PROTOCOL.md#writer-requirements-for-type-widening
    """
    if not is_type_widening_enabled(state):
        return TableFormat.DELTA_FIXED
    is_guarded = iceberg_compat.type_change_compat(state.protocol, state.properties) is not None
    return TableFormat.DELTA_ICEBERG_COMPAT if is_guarded else TableFormat.DELTA


def ensure_type_change(state: TableState, path: Path, old: DataType, new: DataType) -> None:
    """Check that the type of a column may change.

    Raises:
        NestedTypeChangeRefused: a struct, an array or a map would change as a whole.
        TypeChangeRefused: the change is not a widening, or the table does not support it.
        GeneratedColumnTypeFixed: it is a generated column, which has the type of its expression.
        ConstraintDependsOnColumn: a CHECK constraint references it.
        GeneratedColumnDependsOnColumn: a generated column references it.
        EnabledWithoutFeature: widening is enabled, but the protocol does not list the feature.

    Source: Delta Lake's ALTER COLUMN. Differs: a void column may also get a nested type, which Spark refuses.
    """
    column, before, after = format_path(path), old.sql.upper(), new.sql.upper()
    if not is_atomic(old) or (old != VOID and not is_atomic(new)):
        fix = ", ".join(f"alter_column({format_path((*path, step))!r}, …)" for step in _child_steps(old)) or _NEW_COLUMN
        raise NestedTypeChangeRefused(column=column, old=before, new=after, reason="it is a nested type", fix=fix)
    for reason, fix in type_change_objections(state, old, new):
        raise TypeChangeRefused(column=column, old=before, new=after, reason=reason, fix=fix)
    ensure_independent(state, path)
    if find_generation(nearest_field(state.schema, path)) is not None:
        reason = "it has the type of the expression that generates it"
        raise GeneratedColumnTypeFixed(column=column, old=before, new=after, reason=reason, fix=_NEW_COLUMN)


def _child_steps(data_type: DataType) -> tuple[str, ...]:
    match data_type:
        case StructType():
            return data_type.names[:2]
        case ArrayType():
            return ("element",)
        case MapType():
            return ("key", "value")
    return ()


def type_change_objections(state: TableState, old: DataType, new: DataType) -> Iterator[tuple[str, str]]:
    """Yield why a leaf may not change from one type to another, and what to do, in the order of the checks.

    A void column may get any type, which is not type widening.

    Raises:
        EnabledWithoutFeature: widening is enabled, but the protocol does not list the feature.
    """
    if old == VOID:
        return
    if not is_widening(old, new):
        yield "type widening does not support this change", _NEW_COLUMN
    if not is_type_widening_enabled(state):
        fix = (
            f"Enable it with set_properties({{{ENABLE_TYPE_WIDENING!r}: 'true'}}); other clients must then support it."
        )
        yield "type widening is not enabled for this table", fix
    compat = type_change_compat(state.protocol, state.properties)
    if compat is not None and not is_iceberg_compatible(old, new):
        yield f"Iceberg does not support it, and the table has {compat.feature}", _NEW_COLUMN


def ensure_looser_text(state: TableState, operation: LoosenText) -> None:
    """Check that the limit of a string column does not shrink: char and varchar may become a longer varchar, or string.

    Raises:
        TypeChangeRefused: the limit would shrink, or the column is not a string column.

    Source: Spark's ALTER TABLE for char and varchar; this is not type widening.
    """
    path, new = operation.path, parse_type(operation.limit, allow_limits=True)
    current = resolve(declared_schema(state.schema), path)[1]
    old_limit, new_limit = text_limit(current), text_limit(new)
    is_longer = old_limit and new_limit and new_limit[0] == "varchar" and old_limit[1] <= new_limit[1]
    if not (new == current or is_longer or (old_limit and new == STRING)):
        raise TypeChangeRefused(
            column=format_path(path),
            old=current.sql.upper(),
            new=operation.limit.upper(),
            reason="the limit would shrink" if old_limit or current == STRING else "it is not a string column",
            fix="char(n) and varchar(n) can change to a longer varchar or to string.",
        )
