"""Operations: every kind of change to the columns of a table, one frozen class each.

A plan is a tuple of operations. The same objects are checked, applied, explained, and written to the history. Paths
contain the steps ``element``, ``key`` and ``value``, and are spelled as in the schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from enum import Enum
from typing import Any, TypeAlias

from widen.errors import AmbiguousReplacement, ColumnNotFound
from widen.model.column_path import ELEMENT, KEY, VALUE, Path, format_path
from widen.model.schema_json import field_to_value, type_to_value
from widen.model.types import VOID, ArrayType, DataType, Field, MapType, StructType, name_key, quote_name
from widen.model.value_classes import dataclass
from widen.protocol.column_metadata import find_default

# The position of a field in its struct: first, last, or after another field.
#
# Source: Spark's ALTER TABLE … FIRST | AFTER.


class StructEnd(Enum):
    """The beginning or the end of a struct."""

    FIRST = "FIRST"
    LAST = "LAST"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class AfterField:
    """After another field of the struct."""

    name: str

    def __str__(self) -> str:
        return f"AFTER {quote_name(self.name)}"


FieldPosition: TypeAlias = StructEnd | AfterField


def find_anchor(struct: StructType, place: AfterField) -> Field:
    """Return the field of a struct that another is to be inserted after.

    Raises:
        ColumnNotFound: the struct has no field of this name.
    """
    anchor = struct.find(place.name)
    if anchor is None:
        available = ", ".join(map(quote_name, struct.names))
        raise ColumnNotFound(column=quote_name(place.name), available=available)
    return anchor


def insert_field(struct: StructType, field: Field, place: FieldPosition) -> StructType:
    """Return the struct with a field added or moved to a position. A field that is to follow itself stays in place."""
    others = StructType(tuple([other for other in struct.fields if other.name != field.name]))
    match place:
        case StructEnd.FIRST:
            index = 0
        case StructEnd.LAST:
            index = len(others)
        case AfterField(name) if struct.find(name) == struct.find(field.name) is not None:
            return struct.with_field(field)
        case AfterField():
            index = others.names.index(find_anchor(others, place).name) + 1
    return StructType((*others.fields[:index], field, *others.fields[index:]))


KIND = "operation"
"""The JSON key for the kind of an operation."""


class _JsonOperation:
    """The JSON form that all operations share."""

    __slots__ = ()

    def to_value(self) -> dict[str, Any]:
        """Return the operation as a JSON object."""
        parts = {item.name: getattr(self, item.name) for item in fields(self)}  # type: ignore[arg-type]
        return {KIND: type(self).__name__, **{_key(name): _to_value(part) for name, part in parts.items()}}


@dataclass(frozen=True, slots=True)
class CreateTable(_JsonOperation):
    """Create the table."""

    schema: StructType
    partition_by: tuple[str, ...] = ()

    def __str__(self) -> str:
        split = f", partitioned by {', '.join(self.partition_by)}" if self.partition_by else ""
        return f"create the table with {len(self.schema)} columns{split}"


@dataclass(frozen=True, slots=True)
class AddColumn(_JsonOperation):
    """Add a field to a struct. It is null in rows written before, unless the format gives them its default.

    Args:
        parent: The path of the struct; empty for the table itself.
    """

    parent: Path
    field: Field
    place: FieldPosition = StructEnd.LAST

    @property
    def path(self) -> Path:
        """The path of the new field."""
        return (*self.parent, self.field.name)

    def __str__(self) -> str:
        place = "" if self.place is StructEnd.LAST else f" {self.place}"
        default = find_default(self.field)
        filled = "" if default is None else f" with the default {default}"
        return f"add {format_path(self.path)} {self.field.type.sql}{filled}{place}"


@dataclass(frozen=True, slots=True)
class WidenType(_JsonOperation):
    """Change the type of a leaf to a wider one in place. No file is rewritten."""

    path: Path
    old: DataType
    new: DataType

    def __str__(self) -> str:
        return f"widen {format_path(self.path)} from {self.old.sql} to {self.new.sql}"


@dataclass(frozen=True, slots=True)
class RelaxLength(_JsonOperation):
    """Raise or remove the length limit of a string column.

    Args:
        limit: The new limit: ``varchar(n)``, or ``string`` for any length.
    """

    path: Path
    limit: str

    def __str__(self) -> str:
        return f"change the limit of {format_path(self.path)} to {self.limit}"


@dataclass(frozen=True, slots=True)
class RenameColumn(_JsonOperation):
    """Rename a field. Files keep its physical name.

    Args:
        name: Its new name, without the parent.
    """

    path: Path
    name: str

    @property
    def new_path(self) -> Path:
        """The path of the field after the rename."""
        return (*self.path[:-1], self.name)

    def __str__(self) -> str:
        return f"rename {format_path(self.path)} to {format_path((self.name,))}"


@dataclass(frozen=True, slots=True)
class DropColumn(_JsonOperation):
    """Drop a field with everything inside it. Its values stay in the files, unread."""

    path: Path

    def __str__(self) -> str:
        return f"drop {format_path(self.path)}"


@dataclass(frozen=True, slots=True)
class MoveColumn(_JsonOperation):
    """Move a field to another position in its struct."""

    path: Path
    place: FieldPosition

    def __str__(self) -> str:
        return f"move {format_path(self.path)} {self.place}"


@dataclass(frozen=True, slots=True)
class SetComment(_JsonOperation):
    """Set the comment of a field. It may be empty."""

    path: Path
    comment: str

    def __str__(self) -> str:
        return f"comment on {format_path(self.path)}: {self.comment!r}"


@dataclass(frozen=True, slots=True)
class DropNotNull(_JsonOperation):
    """Make a field nullable."""

    path: Path

    def __str__(self) -> str:
        return f"allow null in {format_path(self.path)}"


@dataclass(frozen=True, slots=True)
class SetNotNull(_JsonOperation):
    """Make a field NOT NULL. All rows must have been checked before."""

    path: Path

    def __str__(self) -> str:
        return f"forbid null in {format_path(self.path)}"


@dataclass(frozen=True, slots=True)
class SetDefault(_JsonOperation):
    """Set the default of a column, for rows written without a value for it.

    Args:
        expression: The default, an SQL expression.
    """

    path: Path
    expression: str

    def __str__(self) -> str:
        return f"set the default of {format_path(self.path)} to {self.expression}"


@dataclass(frozen=True, slots=True)
class DropDefault(_JsonOperation):
    """Drop the default of a column: rows written without a value for it get null."""

    path: Path

    def __str__(self) -> str:
        return f"drop the default of {format_path(self.path)}"


@dataclass(frozen=True, slots=True)
class SetSources(_JsonOperation):
    """Set which fields of records fill a column, and the columns beside it for other types of the same field.

    Args:
        names: The keys in the object of the column. The first one is the field that plans and settings name.
    """

    path: Path
    names: tuple[str, ...]

    def __str__(self) -> str:
        fields = " or ".join(map(quote_name, self.names))
        return f"fill {format_path(self.path)} from the field {fields}"


@dataclass(frozen=True, slots=True)
class SyncIdentity(_JsonOperation):
    """Let an identity column continue after the values that it has.

    Args:
        high_water_mark: The last value; new values come after it.
    """

    path: Path
    high_water_mark: int

    def __str__(self) -> str:
        return f"continue {format_path(self.path)} after {self.high_water_mark}"


@dataclass(frozen=True, slots=True)
class ReplaceColumns(_JsonOperation):
    """Replace all columns. Those that stay keep their metadata.

    Args:
        schema: The new columns in their order, as the caller wrote them.
    """

    schema: StructType

    def __str__(self) -> str:
        return f"replace the columns with {', '.join(field.sql for field in self.schema)}"


@dataclass(frozen=True, slots=True)
class AddConstraint(_JsonOperation):
    """Add a CHECK constraint. All rows must have been checked before.

    Args:
        expression: The condition, in SQL.
    """

    name: str
    expression: str

    def __str__(self) -> str:
        return f"add the constraint {self.name}: {self.expression}"


@dataclass(frozen=True, slots=True)
class DropConstraint(_JsonOperation):
    """Drop a CHECK constraint."""

    name: str

    def __str__(self) -> str:
        return f"drop the constraint {self.name}"


ColumnOperation: TypeAlias = (
    WidenType
    | RelaxLength
    | MoveColumn
    | SetComment
    | DropNotNull
    | SetNotNull
    | SetDefault
    | DropDefault
    | SetSources
    | SyncIdentity
)
"""A change of a column that keeps its name."""

Operation: TypeAlias = (
    ColumnOperation
    | CreateTable
    | AddColumn
    | RenameColumn
    | DropColumn
    | ReplaceColumns
    | AddConstraint
    | DropConstraint
)
"""Any operation."""


def _key(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.title() for word in others)


def _to_value(part: object) -> object:
    match part:
        case tuple():
            return list(part)
        case Field():
            return field_to_value(part)
        case StructEnd():
            return part.value
        case AfterField(name):
            return {"after": name}
        case str() | int():
            return part
    return type_to_value(part)  # type: ignore[arg-type]


# What each kind of operation requires beyond the schema: a table feature, a Spark session, a check of all rows.
#
# Code that commits operations reads this table instead of testing for their classes.
#
# Source: Delta Lake's ALTER TABLE; PROTOCOL.md#check-constraints, #column-invariants


class RowAccess(Enum):
    """What an operation has to do with the rows of the table."""

    NONE = "none"
    """It holds for any rows."""
    READ = "read"
    """It was computed from the rows, so the commit must conflict with rows that arrive meanwhile."""
    CHECKED = "checked"
    """Every row must allow it, including rows that arrive meanwhile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """What one kind of operation requires.

    Args:
        feature: The table feature that the commit adds if the table does not support it.
        has_expression: Whether it brings an expression that Spark must accept, independent of the rows.
    """

    feature: str | None = None
    rows: RowAccess = RowAccess.NONE
    has_expression: bool = False


_NOTHING = Requirement()

REQUIREMENTS: Mapping[type[Operation], Requirement] = {
    AddColumn: _NOTHING,
    AddConstraint: Requirement(feature="checkConstraints", rows=RowAccess.CHECKED),
    CreateTable: _NOTHING,
    DropColumn: _NOTHING,
    DropConstraint: _NOTHING,
    DropDefault: _NOTHING,
    DropNotNull: _NOTHING,
    RelaxLength: _NOTHING,
    MoveColumn: _NOTHING,
    RenameColumn: _NOTHING,
    ReplaceColumns: _NOTHING,
    SetComment: _NOTHING,
    SetDefault: Requirement(has_expression=True),
    SetNotNull: Requirement(feature="invariants", rows=RowAccess.CHECKED),
    SetSources: _NOTHING,
    SyncIdentity: Requirement(rows=RowAccess.READ),
    WidenType: _NOTHING,
}
"""What each kind of operation requires."""


def added_features(operations: Iterable[Operation]) -> set[str]:
    """Return the table features that operations add to the protocol."""
    features = (REQUIREMENTS[type(operation)].feature for operation in operations)
    return {feature for feature in features if feature is not None}


def is_type_change(operation: Operation) -> bool:
    """Return whether an operation is a type widening. A void column that gets a type is not."""
    return isinstance(operation, WidenType) and operation.old != VOID


def row_checks(operations: Iterable[Operation]) -> list[Operation]:
    """Return the operations that every row of the table must allow."""
    return [operation for operation in operations if REQUIREMENTS[type(operation)].rows is RowAccess.CHECKED]


def needs_spark(operations: Iterable[Operation]) -> bool:
    """Return whether a Spark session must check any of the operations before they are committed."""
    needs = (REQUIREMENTS[type(operation)] for operation in operations)
    return any(need.has_expression or need.rows is RowAccess.CHECKED for need in needs)


def depends_on_rows(operations: Iterable[Operation]) -> bool:
    """Return whether rows that arrive before the commit may make any of the operations wrong."""
    return any(REQUIREMENTS[type(operation)].rows is not RowAccess.NONE for operation in operations)


# REPLACE COLUMNS: how the new columns differ from the old ones, as operations.
#
# Fields are matched by name, case-insensitively; elements, keys and values by position.


Difference: TypeAlias = AddColumn | DropColumn | SetNotNull | WidenType


def schema_differences(old: StructType, given: StructType, parent: Path = ()) -> Iterator[Difference]:
    """Yield the difference between two schemas as operations: columns added, dropped, retyped, or made NOT NULL.

    Args:
        parent: The path of the struct that contains both; empty for the table itself.

    Raises:
        AmbiguousReplacement: fields of one struct would be added and others dropped, which might be a rename.

    Source: Delta Lake's REPLACE COLUMNS: adding and dropping in one struct is ambiguous.
    """
    names = {name_key(field.name) for field in given}
    dropped = [field.name for field in old if name_key(field.name) not in names]
    added = [field for field in given if old.find(field.name) is None]
    if dropped and added:
        raise AmbiguousReplacement(
            place=format_path(parent) or "the table",
            dropped=", ".join(dropped),
            added=", ".join(field.name for field in added),
        )
    for name in dropped:
        yield DropColumn((*parent, name))
    for field in given:
        current, path = old.find(field.name), (*parent, field.name)
        if current is None:
            yield AddColumn(parent, field)
            continue
        path = (*parent, current.name)
        if current.nullable and not field.nullable:
            yield SetNotNull(path)
        yield from _below(current.type, field.type, path)


def _below(old: DataType, given: DataType, parent: Path) -> Iterator[Difference]:
    match old, given:
        case StructType(), StructType():
            yield from schema_differences(old, given, parent)
        case ArrayType(), ArrayType():
            if old.contains_null and not given.contains_null:
                yield SetNotNull((*parent, ELEMENT))
            yield from _below(old.element, given.element, (*parent, ELEMENT))
        case MapType(), MapType():
            yield from _below(old.key, given.key, (*parent, KEY))
            if old.value_contains_null and not given.value_contains_null:
                yield SetNotNull((*parent, VALUE))
            yield from _below(old.value, given.value, (*parent, VALUE))
        case _ if old != given:
            yield WidenType(parent, old, given)
