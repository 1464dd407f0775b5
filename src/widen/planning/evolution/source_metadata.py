"""The names of columns that ingestion makes, and the metadata that says which source field each one holds.

Routing never goes by a name: the source path stands in the metadata of the column, and stays there whoever renames it.
Only a column without it, which was declared and has not been ingested into yet, holds the key that it is called.

Source: docs/evolution-rules.md#u12, #u13, #u18, #d9, #d14
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from widen.model.column_path import Path, format_path
from widen.model.types import STRING, ArrayType, DataType, Field, MapType, StructType
from widen.observe.file_fields import SIGN
from widen.planning.evolution.format_capability import TableFormat
from widen.protocol.change_data_files import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION

SOURCE = "widen.source"
"""Metadata key: the path of the source field, from the root, as a list of keys without array steps."""

EVOLVED_FROM = "widen.evolvedFrom"
"""Metadata key: the same path as text, on columns that stand beside the one with the plain name."""

FORM = "widen.form"
"""Metadata key: that a column of texts holds all values of its field, ``text`` or ``json``."""

FILE_METADATA = "_metadata"
"""The column under which Spark tells of the file of a row, unless a column of the table hides it."""

ROLE = "widen.role"
"""Metadata key: that the column holds no source field but what is named by one of `ROLES`."""

COMMENT = "comment"
"""Metadata key: what people read about a column."""

RESCUED, CORRUPT, CORRUPT_AT = "_rescued", "_corrupt_record", "_corrupt_at"
ROLES = (RESCUED, CORRUPT, CORRUPT_AT)
"""The columns for what found no other column, for lines that are no record, and for where those stand. Their names are
kept for them."""

RESERVED = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP, FILE_METADATA)
"""The names that a new column at the top of a table must not have: change data and Spark use them."""

_RESERVED_BY_ICEBERG = (
    *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"),
    *("_change_ordinal", "_commit_snapshot_id"),
)
"""The names of Iceberg's metadata columns.

Source: Iceberg's table specification, "Reserved Field IDs".
"""

_ICEBERG = frozenset({TableFormat.DELTA_ICEBERG_COMPAT, TableFormat.ICEBERG_V2, TableFormat.ICEBERG_V3})

FORBIDDEN = " ,;{}()\n\t="
"""Characters that Delta allows in no name unless columns are mapped."""

_TO_UNDERSCORE = str.maketrans(dict.fromkeys(FORBIDDEN, "_"))


def reserved_names(table_format: TableFormat) -> tuple[str, ...]:
    """Return the names that a new column at the top of a table must not have.

    Source: docs/evolution-rules.md#d22
    """
    return (*ROLES, *RESERVED, *(_RESERVED_BY_ICEBERG if table_format in _ICEBERG else ()))


def column_suffix(word: str, dim: int) -> str:
    """Return what is put behind the name of a field for one of its types.

    Source: docs/evolution-rules.md#u12

    Example:
        >>> suffix("long", 0), suffix("string", 1), suffix("long", 3)
        ('_long', '_array_string', '_array3_long')
    """
    array = "" if dim == 0 else "_array" if dim == 1 else f"_array{dim}"
    return f"{array}_{word}"


def sanitize_name(key: str) -> str:
    """Return the key as a column may be called: forbidden characters and the empty name become underscores.

    The sign at the end of keys that are from the file is left out.

    Example:
        >>> allowed_name("unit price"), allowed_name(""), allowed_name("region=")
        ('unit_price', '_', 'region')
    """
    return key.rstrip(SIGN).translate(_TO_UNDERSCORE) or "_"


def source_key(field: Field) -> str:
    """Return the key of the source field that a column holds."""
    source = field.metadata.get(SOURCE)
    return str(source[-1]) if source else field.name


def source_field(name: str, data_type: DataType, source: Path, *, is_evolved: bool) -> Field:
    """Return the field for a new column, with what says where its values come from.

    Args:
        name: The name it got.
        data_type: Its type.
        source: The path of the source field, from the root.
        is_evolved: Whether it stands beside the column with the plain name.

    Source: docs/evolution-rules.md#u13, #d9, #d14
    """
    text = format_path(source)
    metadata: dict[str, Any] = {SOURCE: list(source)}
    if is_evolved:
        metadata |= {COMMENT: f"evolved_from:{text}", EVOLVED_FROM: text}
    elif name != source[-1]:
        metadata |= {COMMENT: f"source_path:{text}"}
    return Field(name, data_type, metadata=metadata)


def with_sources(schema: StructType, planned: StructType) -> StructType:
    """Return the schema of a table with the source path written down for every column that holds a source field.

    Declared columns get it with the first interval, so that they keep their field when somebody renames them.

    Args:
        schema: The columns of the table.
        planned: The same as the plan has them, which says if a column holds a field of the file.

    Source: docs/evolution-rules.md#d9
    """
    return StructType(tuple(item if role_of(item) else _with_source(_planned(item, planned), ()) for item in schema))


def _planned(item: Field, planned: StructType) -> Field:
    found = planned.find(item.name)
    if found is None or SOURCE in item.metadata or SOURCE not in found.metadata:
        return item
    return item.with_metadata(**{SOURCE: found.metadata[SOURCE]})


def _with_source(item: Field, above: Path) -> Field:
    source = (*above, source_key(item))
    item = replace(item, type=_with_sources(item.type, source))
    return item if SOURCE in item.metadata else item.with_metadata(**{SOURCE: list(source)})


def _with_sources(data_type: DataType, source: Path) -> DataType:
    match data_type:
        case StructType(items):
            return StructType(tuple(_with_source(item, source) for item in items))
        case ArrayType(element):
            return replace(data_type, element=_with_sources(element, source))
        case MapType(_, value):
            return replace(data_type, value=_with_sources(value, source))
    return data_type


def role_field(schema: StructType, role: str) -> Field | None:
    """Return the column of the table that has a role, if it has one."""
    return next((field for field in schema if role_of(field) == role), None)


def role_of(field: Field) -> str | None:
    """Return the role of a top-level column; None for those that hold source fields."""
    if ROLE in field.metadata:
        return str(field.metadata[ROLE])
    is_plain = field.name in ROLES and field.type == STRING and SOURCE not in field.metadata
    return field.name if is_plain else None


def new_role_field(schema: StructType, role: str) -> Field:
    """Return the column to add for a role."""
    name = NameAllocator(schema.names).take(role)
    return Field(name, STRING, metadata={COMMENT: _ABOUT[role], ROLE: role})


_ABOUT = {
    RESCUED: "What no other column of this row holds, as JSON.",
    CORRUPT: "The source text, where it is no record; bytes that are not UTF-8 as Python writes them: b'...'.",
    CORRUPT_AT: "The file of that line and its number there.",
}


class NameAllocator:
    """The names in use in one struct; two that differ only in case are one.

    Args:
        taken: The names that are there already, or that nobody may have.
    """

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = {name.casefold() for name in taken}

    def is_free(self, name: str) -> bool:
        """Tell whether nobody has the name."""
        return name.casefold() not in self._taken

    def take(self, wanted: str) -> str:
        """Return the name, with the first number from 2 behind it that is free if the name is not, and keep it.

        Source: docs/evolution-rules.md#d9
        """
        name, number = wanted, 2
        while not self.is_free(name):
            name, number = f"{wanted}_{number}", number + 1
        self._taken.add(name.casefold())
        return name


def naming_order(key: str) -> tuple[str, str]:
    """Return what to sort keys by before they get names: without case first, then lower case before upper."""
    return key.casefold(), key.swapcase()
