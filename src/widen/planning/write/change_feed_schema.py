"""Changes between versions: whether they can be told in the columns of one version.

A change of type is never bridged, not even a widening: whoever follows the changes must see that it happened.

Source: Delta Spark's change data feed
"""

from __future__ import annotations

from collections.abc import Callable

from widen.model.types import VOID, ArrayType, DataType, Field, MapType, StructType
from widen.protocol.column_mapping import COLUMN_ID, PHYSICAL_NAME


def is_representable_in(schema: StructType, version: int, shown: StructType, shown_version: int) -> bool:
    """Tell whether rows of one version can stand in the columns of another one.

    Only new columns may have come in the later of the two.

    Args:
        schema: Of the version that the rows are from.
        version: Its number.
        shown: The columns in which they are to be told.
        shown_version: The version that has those.
    """
    if version <= shown_version:
        return _has_grown(schema, shown, lambda old, new: new or not old)
    return _has_grown(shown, schema, lambda old, new: old or not new)


def _has_grown(old: DataType, new: DataType, may_be: Callable[[bool, bool], bool]) -> bool:
    """Tell whether a type has become another one by nothing but new fields, and fields that may be null."""
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
    same = all(old.metadata.get(key) == new.metadata.get(key) for key in (COLUMN_ID, PHYSICAL_NAME))
    return same and _has_grown(old.type, new.type, may_be)
