"""Whether the rows of one version of a table can be read in the schema of another.

The change data feed never converts across a change of type, not even a widening: its consumers must notice the change.

Source: PROTOCOL.md#reader-requirements-for-type-widening, #column-mapping; Delta Spark's change data feed
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from widen.model.types import VOID, ArrayType, DataType, Field, MapType, StructType
from widen.protocol.column_mapping import COLUMN_ID, PHYSICAL_NAME
from widen.protocol.type_widening import is_widening


def is_representable_in(schema: StructType, version: int, shown: StructType, shown_version: int) -> bool:
    """Tell whether the change data feed can return rows of one version in the schema of another.

    The later version may only have new columns, and columns that became nullable.
    """
    if version <= shown_version:
        return _has_grown(schema, shown, lambda old, new: new or not old)
    return _has_grown(shown, schema, lambda old, new: old or not new)


def has_same_columns(left: StructType, right: StructType) -> bool:
    """Tell whether two schemas differ only in nullability, order and comments."""
    return _has_grown(left, right, _any_nullability) and _has_grown(right, left, _any_nullability)


def _any_nullability(old: bool, new: bool) -> bool:
    return True


def _has_grown(old: DataType, new: DataType, may_be: Callable[[bool, bool], bool]) -> bool:
    """Tell whether two types differ only by new fields and by nullability."""
    match old, new:
        case StructType(), StructType():
            return all(_field_has_grown(field, new.find(field.name), may_be) for field in old)
        case ArrayType(), ArrayType():
            return may_be(old.contains_null, new.contains_null) and _has_grown(old.element, new.element, may_be)
        case MapType(), MapType():
            return (
                may_be(old.value_contains_null, new.value_contains_null)
                and _has_grown(old.key, new.key, may_be)
                and _has_grown(old.value, new.value, may_be)
            )
    return old in (VOID, new)


def _field_has_grown(old: Field, new: Field | None, may_be: Callable[[bool, bool], bool]) -> bool:
    if new is None or not may_be(old.nullable, new.nullable):
        return False
    return _is_same_column(old, new) and _has_grown(old.type, new.type, may_be)


def _is_same_column(old: Field, new: Field) -> bool:
    """Tell whether two fields of one name are one column.

    It stays the same when column mapping is enabled: its name becomes its physical name.
    """
    if PHYSICAL_NAME in old.metadata and PHYSICAL_NAME in new.metadata:
        return all(old.metadata.get(key) == new.metadata.get(key) for key in (COLUMN_ID, PHYSICAL_NAME))
    mapped = [field for field in (old, new) if PHYSICAL_NAME in field.metadata]
    ids = {field.metadata.get(COLUMN_ID) for field in (old, new)}
    return mapped[0].metadata[PHYSICAL_NAME] == mapped[0].name if mapped else len(ids) < 2


def is_readable_in(old: DataType, new: DataType, *, may_drop: bool = False) -> bool:
    """Tell whether the old type has grown into the new one: every field is there, with a type that is not narrower.

    A field that was renamed, dropped, or dropped and added again, is not there any more.

    Args:
        old: The schema or type of the rows.
        new: The schema or type to read them in.
        may_drop: Whether the new type may lack fields. One of the same name that was added again would hide the values.
    """
    is_readable = partial(is_readable_in, may_drop=may_drop)
    match old, new:
        case StructType(), StructType():
            pairs = [(field, new.find(field.name)) for field in old]
            return all(
                may_drop
                if other is None
                else field.name == other.name and _is_same_column(field, other) and is_readable(field.type, other.type)
                for field, other in pairs
            )
        case ArrayType(), ArrayType():
            return is_readable(old.element, new.element)
        case MapType(), MapType():
            return is_readable(old.key, new.key) and is_readable(old.value, new.value)
    return old in (VOID, new) or is_widening(old, new)
