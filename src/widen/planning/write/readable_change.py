"""Whether the rows of one version of a table can be read in the schema of a later one.

Source: PROTOCOL.md#reader-requirements-for-type-widening, #column-mapping
"""

from __future__ import annotations

from widen.model.types import VOID, ArrayType, DataType, MapType, StructType
from widen.protocol.column_mapping import COLUMN_ID, PHYSICAL_NAME
from widen.protocol.type_widening import is_widening


def is_readable_in(old: DataType, new: DataType) -> bool:
    """Tell whether the old type has grown into the new one: every field is there, with a type that is not narrower.

    A field that was renamed, dropped, or dropped and added again, is not there any more.

    Args:
        old: The schema or type of the rows.
        new: The schema or type to read them in.
    """
    match old, new:
        case StructType(), StructType():
            pairs = [(field, new.find(field.name)) for field in old]
            return all(
                other is not None
                and field.name == other.name
                and all(field.metadata.get(key) == other.metadata.get(key) for key in (COLUMN_ID, PHYSICAL_NAME))
                and is_readable_in(field.type, other.type)
                for field, other in pairs
            )
        case ArrayType(), ArrayType():
            return is_readable_in(old.element, new.element)
        case MapType(), MapType():
            return is_readable_in(old.key, new.key) and is_readable_in(old.value, new.value)
    return old in (VOID, new) or is_widening(old, new)
