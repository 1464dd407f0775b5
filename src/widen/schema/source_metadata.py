"""The names of columns that ingestion creates, and the metadata with the source field of each column.

Values are routed by the source path in the metadata, never by column name, so a rename does not break an ingestion.
Only a column without that metadata, which was declared and never ingested into, is matched by name. A field may have
other names in records; the metadata of its columns has them as well.

Source: docs/evolution-rules.md#u12, #u13, #u18, #d9, #d14
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from enum import Enum
from typing import Any

from widen.errors import InvalidOption
from widen.json.field_rules import SIGN
from widen.model.column_path import KEY, Path, as_nullable, fields, find_field, format_path, map_children, map_fields
from widen.model.types import (
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    Field,
    StructType,
    similarity_key,
)
from widen.protocol.column_mapping import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from widen.protocol.column_metadata import ALIASES as ALIASES
from widen.protocol.column_metadata import ROLE as ROLE
from widen.protocol.column_metadata import SOURCE as SOURCE
from widen.protocol.type_widening import is_iceberg_compatible, is_same_family, is_widening

# What each table format can widen in place, as one table.
#
# Source: PROTOCOL.md#type-widening; Iceberg's table specification, "Schema Evolution".


class TableFormat(str, Enum):
    """A table format, with the compatibility that it must keep."""

    DELTA = "delta"
    DELTA_FIXED = "delta-without-type-widening"
    DELTA_ICEBERG_COMPAT = "delta-iceberg-compat"
    ICEBERG_V2 = "iceberg-v2"
    ICEBERG_V3 = "iceberg-v3"


class AutomaticWidening(str, Enum):
    """Which types a write may widen automatically."""

    ALWAYS = "always"
    SAME_FAMILY = "same_family"
    NEVER = "never"


ICEBERG_V2_PROMOTIONS = frozenset({(INTEGER, LONG), (FLOAT, DOUBLE)})
"""Iceberg's promotions in every version. The precision of decimals may also grow."""

ICEBERG_V3_PROMOTIONS = ICEBERG_V2_PROMOTIONS | {(DATE, TIMESTAMP_NTZ)}
"""Iceberg's promotions in version 3. Its ``timestamp`` has no time zone."""


def _in_iceberg_v2(old: DataType, new: DataType) -> bool:
    return (old, new) in ICEBERG_V2_PROMOTIONS or _is_longer_decimal(old, new)


def _in_iceberg_v3(old: DataType, new: DataType) -> bool:
    return (old, new) in ICEBERG_V3_PROMOTIONS or _is_longer_decimal(old, new)


def _is_longer_decimal(old: DataType, new: DataType) -> bool:
    both = isinstance(old, DecimalType) and isinstance(new, DecimalType)
    return both and old.scale == new.scale and old.precision < new.precision  # type: ignore[union-attr]


def _never(old: DataType, new: DataType) -> bool:
    return False


CAPABILITIES: Mapping[TableFormat, Callable[[DataType, DataType], bool]] = {
    TableFormat.DELTA: is_widening,
    TableFormat.DELTA_FIXED: _never,
    TableFormat.DELTA_ICEBERG_COMPAT: is_iceberg_compatible,
    TableFormat.ICEBERG_V2: _in_iceberg_v2,
    TableFormat.ICEBERG_V3: _in_iceberg_v3,
}
"""For each format, whether it can widen a leaf from one type to another without rewriting files."""


def can_widen(table_format: TableFormat, old: DataType, new: DataType) -> bool:
    """Return whether a table of the format can widen a leaf from one type to another in place."""
    return CAPABILITIES[table_format](old, new)


AUTOMATIC: Mapping[AutomaticWidening, Callable[[DataType, DataType], bool]] = {
    AutomaticWidening.ALWAYS: is_widening,
    AutomaticWidening.SAME_FAMILY: is_same_family,
    AutomaticWidening.NEVER: _never,
}
"""For each mode, whether a write may widen a leaf automatically, provided that the format can."""


def can_widen_automatically(table_format: TableFormat, mode: AutomaticWidening, old: DataType, new: DataType) -> bool:
    """Return whether a write may automatically widen a leaf of a table of the format.

    Source: Delta Spark's modes of automatic widening
    """
    return AUTOMATIC[mode](old, new) and can_widen(table_format, old, new)


def parse_automatic_widening(text: str) -> AutomaticWidening:
    """Parse a mode, case-insensitively; Delta Spark's ``SAME_FAMILY_TYPE`` is also accepted.

    Raises:
        InvalidOption: the text is not a mode.
    """
    name = text.strip().lower().removesuffix("_type")
    modes = {mode.value: mode for mode in AutomaticWidening}
    if name not in modes:
        raise InvalidOption(option="widening", value=text, expected=f"Must be one of {', '.join(modes)}.")
    return modes[name]


EVOLVED_FROM = "widen.evolvedFrom"
"""Metadata key: the same path as text, on columns beside the one with the plain name."""

FORM = "widen.form"
"""Metadata key: the text form (``text`` or ``json``) of a string column that holds all values of its field."""

FILE_METADATA = "_metadata"
"""The column that Spark uses to describe the file of a row, unless a column of the table hides it."""

_OURS = "widen."

COMMENT = "comment"
"""Metadata key: the comment of a column."""

RESCUED, CORRUPT, CORRUPT_AT = "_rescued", "_corrupt_record", "_corrupt_at"
ROLES = (RESCUED, CORRUPT, CORRUPT_AT)
"""The rescue column, the column for corrupt records, and the column for their positions. The names are reserved."""

RESERVED = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP, FILE_METADATA)
"""Names that a new top-level column must not have, since the change data feed and Spark use them."""

_RESERVED_BY_ICEBERG = (
    *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"),
    *("_change_ordinal", "_commit_snapshot_id"),
)
"""The names of Iceberg's metadata columns.

Source: Iceberg's table specification, "Reserved Field IDs".
"""

_ICEBERG = frozenset({TableFormat.DELTA_ICEBERG_COMPAT, TableFormat.ICEBERG_V2, TableFormat.ICEBERG_V3})

_ICEBERG_TABLES = frozenset({TableFormat.ICEBERG_V2, TableFormat.ICEBERG_V3})

FORBIDDEN = " ,;{}()\n\t="
"""Characters that Delta does not allow in column names without column mapping."""

# Arrow ends a column name in a file at a NUL, so that Spark would not find the column.
_TO_UNDERSCORE = str.maketrans(dict.fromkeys(FORBIDDEN + "\0", "_"))


def reserved_names(table_format: TableFormat) -> tuple[str, ...]:
    """Return the names that a new top-level column must not have.

    Source: docs/evolution-rules.md#d22
    """
    return (*ROLES, *RESERVED, *(_RESERVED_BY_ICEBERG if table_format in _ICEBERG else ()))


def to_layout(schema: StructType) -> StructType:
    """Return the columns of a table for a new table: names, types, comments and the source fields of the columns.

    What belongs to the files of the old table (physical names, the history of types) and its constraints are left out.
    """

    def keep_layout(_: Path, field: Field) -> Field:
        metadata = {key: value for key, value in field.metadata.items() if key == COMMENT or key.startswith(_OURS)}
        return replace(field, metadata=metadata)

    return as_nullable(map_fields(schema, keep_layout))


def column_suffix(word: str, dim: int) -> str:
    """Return the suffix of a column for one kind of a field.

    Source: docs/evolution-rules.md#u12

    Example:
        >>> column_suffix("long", 0), column_suffix("string", 1), column_suffix("long", 3)
        ('_long', '_array_string', '_array3_long')
    """
    array = "" if dim == 0 else "_array" if dim == 1 else f"_array{dim}"
    return f"{array}_{word}"


def sanitize_name(key: str, table_format: TableFormat = TableFormat.DELTA) -> str:
    """Return a valid column name for a key: forbidden characters and the empty name become underscores.

    The sign at the end of the keys of file fields is removed. In Iceberg tables dots are replaced too, because clients
    find nested columns by names with dots: ``a.b`` could be a column, or ``b`` in ``a``.

    Example:
        >>> sanitize_name("unit price"), sanitize_name(""), sanitize_name("region="), sanitize_name("a.b")
        ('unit_price', '_', 'region', 'a.b')
        >>> sanitize_name("a.b", TableFormat.ICEBERG_V2)
        'a_b'
    """
    name = key.rstrip(SIGN).translate(_TO_UNDERSCORE)
    return (name.replace(".", "_") if table_format in _ICEBERG_TABLES else name) or "_"


def source_key(field: Field) -> str:
    """Return the key of the source field that a column holds."""
    source = field.metadata.get(SOURCE)
    return str(source[-1]) if source else field.name


def source_path(schema: StructType, path: Path) -> Path:
    """Return the path of the source field that a column holds, given the path of the column."""
    found: Path = ()
    for length in range(1, len(path) + 1):
        if (field := find_field(schema, path[:length])) is not None:
            found = tuple(field.metadata.get(SOURCE) or (*found, field.name))
    return found


def source_keys(field: Field) -> tuple[str, ...]:
    """Return the record keys whose values a column holds: the key of its source field, then its other names."""
    return (source_key(field), *map(str, field.metadata.get(ALIASES) or ()))


def shared_source_keys(field: Field) -> tuple[str, ...]:
    """Return the keys of records whose values a column holds if there are several; none otherwise."""
    return source_keys(field) if ALIASES in field.metadata else ()


def with_source_keys(struct: StructType, column: Field, above: Path, names: tuple[str, ...]) -> StructType:
    """Return a struct after giving other record keys to all columns of the field that a column belongs to.

    Args:
        above: The path of the source field around it.
        names: The key of the source field, and the other names of it.
    """
    key = source_key(column)
    changed = (_with_source_keys(each, above, names) if source_key(each) == key else each for each in struct)
    return StructType(tuple(changed))


def _with_source_keys(field: Field, above: Path, names: tuple[str, ...]) -> Field:
    old, new = (*above, source_key(field)), (*above, names[0])
    if old != new:
        # The columns inside, and those beside, name the field by its path.
        field = map_fields(StructType((field,)), lambda _, item: _with_prefix(item, old, new)).fields[0]
    field = field.without_metadata(ALIASES)
    changed = {ALIASES: list(names[1:])} if names[1:] else {}
    return field.with_metadata(**(changed if old == new and SOURCE in field.metadata else {SOURCE: [*new]} | changed))


def _with_prefix(item: Field, old: Path, new: Path) -> Field:
    source = tuple(item.metadata.get(SOURCE) or ())
    if source[: len(old)] != old:
        return item
    moved = (*new, *source[len(old) :])
    evolved = {EVOLVED_FROM: format_path(moved)} if item.metadata.get(EVOLVED_FROM) == format_path(source) else {}
    return item.with_metadata(**{SOURCE: [*moved]}, **evolved)


def fields_by_source(fields: Iterable[Field]) -> dict[str, list[Field]]:
    """Return the fields of a struct by the key of the source field that they hold, in the order of the schema."""
    groups: dict[str, list[Field]] = {}
    for field in fields:
        groups.setdefault(source_key(field), []).append(field)
    return groups


def source_field(name: str, data_type: DataType, source: Path, *, is_evolved: bool) -> Field:
    """Return a new column with the metadata and the comment that name its source field.

    Args:
        is_evolved: Whether it is beside the column with the plain name.

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
    """Return the schema of a table with the source path in the metadata of every column that holds a source field.

    Declared columns get it with the first interval, so that a later rename does not change their source field.

    Args:
        planned: The columns in the plan, which say whether a column holds a file field.

    Source: docs/evolution-rules.md#d9
    """
    return StructType(
        tuple(item if role_of(item) else _with_source(_with_planned_source(item, planned), ()) for item in schema)
    )


def _with_planned_source(item: Field, planned: StructType) -> Field:
    column = planned.find(item.name)
    if column is None or SOURCE in item.metadata or SOURCE not in column.metadata:
        return item
    return item.with_metadata(**{SOURCE: column.metadata[SOURCE]})


def _with_source(item: Field, above: Path) -> Field:
    source = (*above, source_key(item))
    item = replace(item, type=_with_sources(item.type, source))
    return item if SOURCE in item.metadata else item.with_metadata(**{SOURCE: list(source)})


def _with_sources(data_type: DataType, source: Path) -> DataType:
    if isinstance(data_type, StructType):
        return StructType(tuple(_with_source(item, source) for item in data_type))
    return map_children(data_type, lambda step, child: child if step == KEY else _with_sources(child, source))


def has_sources(schema: StructType) -> bool:
    """Return whether any column has the path of its source field."""
    return any(SOURCE in field.metadata for _, field in fields(schema))


def restore_sources(schema: StructType, earlier: StructType) -> StructType:
    """Return columns that have lost their sources with those that columns of the same names had.

    A client that writes a whole new schema keeps the names of columns, but not their metadata.
    """
    before = dict(fields(earlier))

    def restore(path: Path, field: Field) -> Field:
        old = before.get(path)
        if old is None:
            return field
        kept = {key: value for key, value in old.metadata.items() if key.startswith(_OURS)}
        if field.type != STRING:
            kept.pop(FORM, None)
        if COMMENT not in field.metadata and str(old.metadata.get(COMMENT, "")).startswith(_COMMENTS):
            kept[COMMENT] = old.metadata[COMMENT]
        return field.with_metadata(**kept)

    return map_fields(schema, restore)


_COMMENTS = ("evolved_from:", "source_path:")
"""How the comments begin that `source_field` writes."""


def role_field(schema: StructType, role: str) -> Field | None:
    """Return the column with a role; None if the table has no such column."""
    return next((field for field in schema if role_of(field) == role), None)


def role_of(field: Field) -> str | None:
    """Return the role of a top-level column; None if it holds a source field."""
    if ROLE in field.metadata:
        return str(field.metadata[ROLE])
    # A user may declare the column in advance, e.g. `_rescued STRING`; it then has no metadata of ours.
    is_plain = field.name in ROLES and field.type == STRING and SOURCE not in field.metadata
    return field.name if is_plain else None


def new_role_field(schema: StructType, role: str) -> Field:
    """Return the column to add for a role."""
    name = NameAllocator(schema.names).take(role)
    return Field(name, STRING, metadata={COMMENT: _ROLE_COMMENTS[role], ROLE: role})


_ROLE_COMMENTS = {
    RESCUED: "Values of this row that no other column holds, as JSON.",
    CORRUPT: "The source text, if it is not a record; if it is not UTF-8, its bytes in the notation of Python: b'...'.",
    CORRUPT_AT: "The file and the position of that text.",
}


class NameAllocator:
    """Allocates unique names in one struct, case-insensitively."""

    def __init__(self, used: Iterable[str]) -> None:
        # Stricter than the lower case of Spark and Iceberg clients, so that no engine takes two names for one.
        self._used = {similarity_key(name) for name in used}

    def is_free(self, name: str) -> bool:
        return similarity_key(name) not in self._used

    def take(self, base: str) -> str:
        """Reserve a name. If it is not free, the first free one of ``name_2``, ``name_3``… is reserved and returned.

        Source: docs/evolution-rules.md#d9
        """
        name, number = base, 2
        while not self.is_free(name):
            name, number = f"{base}_{number}", number + 1
        self._used.add(similarity_key(name))
        return name


def naming_order(key: str) -> tuple[str, str]:
    """Return the sort key for keys before they get names: case-insensitive, then lower case before upper case."""
    return key.casefold(), key.swapcase()
