"""ALTER COLUMN: the type, the comment, the nullability and the place of one column.

Source: spec of ALTER TABLE in Delta Lake: the order of the checks, the errors and the provenance.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from widen.errors import (
    ColumnNotFound,
    EnabledWithoutFeature,
    InvalidOption,
    NestedTypeChangeRefused,
    TypeChangeRefused,
)
from widen.model.path import KEY, Path, format_path, replace_type, resolve
from widen.model.schema import field_to_value
from widen.model.type import VOID, ArrayType, DataType, Field, MapType, StructType, is_atomic
from widen.planning.command import ENABLE_TYPE_WIDENING, PREVIEW, TYPE_WIDENING, Change, State, with_operations
from widen.planning.operation import WidenType
from widen.protocol.feature import CONSTRAINT_PREFIX, is_supported
from widen.protocol.widening import is_iceberg_compatible, is_widening

FIRST = "FIRST"
COMMENT, IDENTITY, GENERATION = "comment", "delta.identity.start", "delta.generationExpression"
_ICEBERG = ("icebergCompatV1", "icebergCompatV2", "icebergCompatV3")


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """What is to become of a column; None leaves it as it is.

    Args:
        type: The new type.
        comment: The new comment.
        nullable: Whether it may be null.
        after: The column that it is to follow; `FIRST` puts it first.
    """

    type: DataType | None = None
    comment: str | None = None
    nullable: bool | None = None
    after: str | None = None


def alter_column(state: State, path: Path, wanted: ColumnChange) -> Change | None:
    """Return the commit that changes one column, or None if nothing changes.

    Args:
        state: What was read.
        path: The column; names are matched exactly first, then without case.
        wanted: What is to become of it.

    Raises:
        ColumnNotFound: no such column.
        NestedTypeChangeRefused: a struct, an array or a map would change as a whole.
        TypeChangeRefused: widening is not enabled, the pair is not in the matrix, or something depends on the column.
        EnabledWithoutFeature: widening is enabled, but the protocol does not list the feature.
        FeatureRequired: the new type needs a feature that the table does not have.
        InvalidOption: a comment, a nullability or a place that cannot be.

    Source: Delta Lake's ALTER TABLE … ALTER COLUMN.
    """
    path, old = resolve(state.schema, path)
    operations = []
    if wanted.type is not None and wanted.type != old:
        ensure_type_change(state, path, old, wanted.type)
        operations.append(WidenType(path, old, wanted.type))
    altered = replace_state(state, _with_details(state.schema, path, wanted))
    if not operations and altered is state:
        return None
    metadata = with_operations(altered, operations) if operations else altered.metadata
    return Change((metadata,), "CHANGE COLUMN", _parameters(altered.schema, path, wanted))


def replace_state(state: State, schema: StructType) -> State:
    """Return the state with another schema; the same one if that is what it has."""
    return state if _same(schema, state.schema) else state.with_schema(schema)


def _same(one: StructType, other: StructType) -> bool:
    return field_to_value(Field("", one)) == field_to_value(Field("", other))


# ---- type ------------------------------------------------------------------------------------------


def ensure_type_change(state: State, path: Path, old: DataType, new: DataType) -> None:
    """Check that a column may change its type.

    Raises:
        NestedTypeChangeRefused: a struct, an array or a map would change as a whole.
        TypeChangeRefused: the reason is in the error.
        EnabledWithoutFeature: widening is enabled, but the protocol does not list the feature.

    Source: PROTOCOL.md#writer-requirements-for-type-widening; Delta Lake's ALTER TABLE
    """
    column, before, after = format_path(path), old.sql.upper(), new.sql.upper()
    if not is_atomic(old) or not is_atomic(new):
        leaf = f"alter_column('{column}.…', type=…)"
        raise NestedTypeChangeRefused(column=column, old=before, new=after, reason="it has parts", fix=leaf)
    for reason, fix in _objections(state, path, old, new):
        raise TypeChangeRefused(column=column, old=before, new=after, reason=reason, fix=fix)


def _objections(state: State, path: Path, old: DataType, new: DataType) -> Iterator[tuple[str, str]]:
    """Yield why a leaf may not change its type, and what to do about it, in the order of the checks."""
    if IDENTITY in _field(state.schema, path).metadata:
        yield "it is an identity column", "Its type is fixed."
    if old == VOID:
        return
    if not is_widening(old, new):
        yield "the matrix of type widening has no such pair", "Write the values to a new column instead."
    if not is_enabled(state):
        fix = f"Enable it with set_properties({{{ENABLE_TYPE_WIDENING!r}: 'true'}}); other clients must know it then."
        yield "type widening is not enabled for this table", fix
    for name in _ICEBERG:
        if is_supported(state.protocol, name) and not is_iceberg_compatible(old, new):
            yield f"Iceberg does not know it, and the table has {name}", "Write the values to a new column instead."
    for text in _dependents(state, path):
        yield f"the expression {text!r} of the table refers to it", "Drop the constraint or generated column first."


def is_enabled(state: State) -> bool:
    """Tell whether types of the table may become wider.

    Raises:
        EnabledWithoutFeature: the property says so, but the protocol does not list the feature.

    Source: PROTOCOL.md#writer-requirements-for-type-widening
    """
    if state.properties.get(ENABLE_TYPE_WIDENING, "false").lower() != "true":
        return False
    if not any(is_supported(state.protocol, name) for name in (TYPE_WIDENING, PREVIEW)):
        raise EnabledWithoutFeature(property=ENABLE_TYPE_WIDENING, feature=TYPE_WIDENING)
    return True


def _dependents(state: State, path: Path) -> list[str]:
    """Return the constraints and generated columns that mention the top-level column, wherever in it they look."""
    texts = [value for key, value in state.properties.items() if key.lower().startswith(CONSTRAINT_PREFIX)]
    texts += [str(f.metadata[GENERATION]) for f in state.schema if GENERATION in f.metadata]
    return [text for text in texts if path[0].casefold() in _words(text)]


def _words(text: str) -> set[str]:
    return {(quoted or plain).casefold() for quoted, plain in re.findall(r"`([^`]+)`|(\w+)", text)}


# ---- comment, nullability, place -------------------------------------------------------------------


def _field(schema: StructType, path: Path) -> Field:
    """Return the nearest struct field that encloses a column."""
    found = None
    current: DataType = schema
    for step in path:
        if isinstance(current, StructType):
            found = next(f for f in current if f.name == step)
            current = found.type
        else:
            current = resolve(StructType((Field(step, current),)), (step, step))[1]
    if found is None:
        raise ColumnNotFound(column=format_path(path), available=", ".join(schema.names))
    return found


def _with_details(schema: StructType, path: Path, wanted: ColumnChange) -> StructType:
    _, parent = resolve(schema, path[:-1])
    if not isinstance(parent, StructType):
        return _item_details(schema, path, wanted, parent)
    field = next(f for f in parent if f.name == path[-1])
    if wanted.comment is not None:
        field = field.with_metadata(comment=wanted.comment)
    if wanted.nullable is not None:
        if field.nullable and not wanted.nullable:
            expected = "A column that may be null cannot be forbidden to; old rows may have null in it."
            raise InvalidOption(option="nullable", value=False, expected=expected)
        field = replace(field, nullable=wanted.nullable)
    moved = _moved(parent.with_field(field), field.name, wanted.after)
    result = replace_type(schema, path[:-1], moved)
    assert isinstance(result, StructType)
    return result


def _item_details(schema: StructType, path: Path, wanted: ColumnChange, parent: DataType) -> StructType:
    """Return the schema as it is: items of arrays and maps have a type and nothing else that could change."""
    same = wanted.nullable in (None, _item_nullable(parent, path))
    if wanted.comment is not None or wanted.after is not None or not same:
        expected = "Elements, keys and values have a type, but no comment, no nullability and no place of their own."
        raise InvalidOption(option="alter_column", value=format_path(path), expected=expected)
    return schema


def _item_nullable(parent: DataType, path: Path) -> bool:
    """Tell whether an element or a value may be null; a key never may."""
    match parent:
        case ArrayType(_, contains_null):
            return contains_null
        case MapType(_, _, contains_null):
            return contains_null and path[-1] != KEY
    return True


def _moved(struct: StructType, name: str, after: str | None) -> StructType:
    if after is None or after == name:
        return struct
    field = next(f for f in struct if f.name == name)
    others = [f for f in struct if f.name != name]
    if after == FIRST:
        return StructType((field, *others))
    anchor = StructType(tuple(others)).find(after)
    if anchor is None:
        raise ColumnNotFound(column=after, available=", ".join(f.name for f in others))
    at = others.index(anchor) + 1
    return StructType((*others[:at], field, *others[at:]))


def _parameters(schema: StructType, path: Path, wanted: ColumnChange) -> Mapping[str, object]:
    """Return what the history says: the column with its new type, but without what is recorded of the change."""
    _, data_type = resolve(schema, path)
    parent = resolve(schema, path[:-1])[1]
    if isinstance(parent, StructType):
        field = next(f for f in parent if f.name == path[-1])
    else:
        field = Field("", data_type, _item_nullable(parent, path))
    shown = replace(field, name=format_path(path), type=wanted.type or data_type)
    shown = shown.without_metadata(*(key for key in shown.metadata if key.startswith("delta.")))
    parameters: dict[str, object] = {"column": field_to_value(shown)}
    if wanted.after is not None:
        parameters["position"] = FIRST if wanted.after == FIRST else f"AFTER {wanted.after}"
    return parameters
