"""Whether a column may change its type.

Source: PROTOCOL.md#writer-requirements-for-type-widening; Delta Lake's ALTER TABLE for the order of the checks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from widen.errors import EnabledWithoutFeature, GeneratedColumnTypeFixed, NestedTypeChangeRefused, TypeChangeRefused
from widen.model.column_path import Path, find_field, format_path, nearest_field, resolve
from widen.model.types import STRING, VOID, ArrayType, DataType, MapType, StructType, is_atomic
from widen.planning.evolution.format_capability import TableFormat
from widen.planning.table.dependent_expressions import ensure_independent
from widen.planning.table.operation import LoosenText
from widen.planning.table.table_state import TableState
from widen.protocol import iceberg_compat
from widen.protocol.column_metadata import TEXT_LIMIT, find_generation
from widen.protocol.iceberg_compat import type_change_compat
from widen.protocol.table_features import TYPE_WIDENING, TYPE_WIDENING_PREVIEW, is_supported
from widen.protocol.table_properties import ENABLE_TYPE_WIDENING, is_on
from widen.protocol.type_widening import is_iceberg_compatible, is_widening

_ELSEWHERE = "Write the values to a new column instead."
_TEXT = re.compile(r"(char|varchar)\((\d+)\)")


def is_type_widening_enabled(state: TableState) -> bool:
    """Tell whether types of the table may become wider.

    Raises:
        EnabledWithoutFeature: the property says so, but the protocol does not list the feature.

    Source: PROTOCOL.md#writer-requirements-for-type-widening
    """
    ensure_type_widening_supported(state)
    return is_on(state.properties, ENABLE_TYPE_WIDENING)


def ensure_type_widening_supported(state: TableState) -> None:
    """Check that a table whose property enables type widening has the feature, or its preview.

    Raises:
        EnabledWithoutFeature: it has neither.

    Source: PROTOCOL.md#writer-requirements-for-type-widening
    """
    is_there = any(is_supported(state.protocol, name) for name in (TYPE_WIDENING, TYPE_WIDENING_PREVIEW))
    if is_on(state.properties, ENABLE_TYPE_WIDENING) and not is_there:
        raise EnabledWithoutFeature(property=ENABLE_TYPE_WIDENING, feature=TYPE_WIDENING)


def table_format_of(state: TableState) -> TableFormat:
    """Return what a table has to satisfy when its types change.

    Raises:
        EnabledWithoutFeature: widening is enabled, but the protocol does not list the feature.

    Source: PROTOCOL.md#writer-requirements-for-type-widening
    """
    if not is_type_widening_enabled(state):
        return TableFormat.DELTA_FIXED
    is_guarded = iceberg_compat.type_change_compat(state.protocol, state.properties) is not None
    return TableFormat.DELTA_ICEBERG_COMPAT if is_guarded else TableFormat.DELTA


def ensure_type_change(state: TableState, path: Path, old: DataType, new: DataType) -> None:
    """Check that a column may change its type.

    Raises:
        NestedTypeChangeRefused: a struct, an array or a map would change as a whole.
        TypeChangeRefused: the reason is in the error.
        GeneratedColumnTypeFixed: the column has the type of its expression.
        ConstraintDependsOnColumn: a CHECK constraint looks at it.
        GeneratedColumnDependsOnColumn: a generated column is made of it.
        EnabledWithoutFeature: widening is enabled, but the protocol does not list the feature.

    Source: Delta Lake's ALTER COLUMN. Differs: from void a column may also come to have parts, which Spark refuses.
    """
    column, before, after = format_path(path), old.sql.upper(), new.sql.upper()
    if not is_atomic(old) or (old != VOID and not is_atomic(new)):
        fix = ", ".join(f"alter_column({format_path((*path, step))!r}, …)" for step in _steps(old)) or _ELSEWHERE
        raise NestedTypeChangeRefused(column=column, old=before, new=after, reason="it has parts", fix=fix)
    for reason, fix in type_change_objections(state, old, new):
        raise TypeChangeRefused(column=column, old=before, new=after, reason=reason, fix=fix)
    ensure_independent(state, path)
    if find_generation(nearest_field(state.schema, path)) is not None:
        reason = "it has the type of the expression that generates it"
        raise GeneratedColumnTypeFixed(column=column, old=before, new=after, reason=reason, fix=_ELSEWHERE)


def _steps(data_type: DataType) -> tuple[str, ...]:
    match data_type:
        case StructType():
            return data_type.names[:2]
        case ArrayType():
            return ("element",)
        case MapType():
            return ("key", "value")
    return ()


def type_change_objections(state: TableState, old: DataType, new: DataType) -> Iterator[tuple[str, str]]:
    """Yield why a leaf may not change from one type to another, and what to do about it, in the order of the checks.

    From void everything may come, and nothing asks for type widening.

    Raises:
        EnabledWithoutFeature: widening is enabled, but the protocol does not list the feature.
    """
    if old == VOID:
        return
    if not is_widening(old, new):
        yield "the matrix of type widening has no such pair", _ELSEWHERE
    if not is_type_widening_enabled(state):
        fix = f"Enable it with set_properties({{{ENABLE_TYPE_WIDENING!r}: 'true'}}); other clients must know it then."
        yield "type widening is not enabled for this table", fix
    compat = type_change_compat(state.protocol, state.properties)
    if compat is not None and not is_iceberg_compatible(old, new):
        yield f"Iceberg does not know it, and the table has {compat.feature}", _ELSEWHERE


def ensure_looser_text(state: TableState, operation: LoosenText) -> None:
    """Check that a text column loses no room: char and varchar grow to a longer varchar, or to any length.

    Raises:
        TypeChangeRefused: it would have less room, or the column is no text.

    Source: Spark's ALTER TABLE for char and varchar; neither is type widening.
    """
    path, limit = operation.path, operation.limit
    field = find_field(state.schema, path)
    said = "none" if field is None or field.type != STRING else str(field.metadata.get(TEXT_LIMIT, "string")).lower()
    old, new = _TEXT.fullmatch(said), _TEXT.fullmatch(limit)
    is_longer = old is not None and new is not None and new[1] == "varchar" and int(old[2]) <= int(new[2])
    if not (limit == said or is_longer or (old is not None and limit == "string")):
        raise TypeChangeRefused(
            column=format_path(path),
            old=resolve(state.schema, path)[1].sql.upper() if old is None else said.upper(),
            new=limit.upper(),
            reason="it is no text" if said == "none" else "texts would have less room",
            fix="char(n) and varchar(n) grow to a longer varchar or to string, outside of arrays and maps.",
        )
