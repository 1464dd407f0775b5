"""Operations: every kind of change to a table's columns, one frozen class each.

A plan is a tuple of them; several readers interpret the same objects: apply, explain, print, check, tell. Paths have
the steps of element, key and value that lead to a field, and are spelled as in the schema.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from widen.model.column_path import Path, format_path
from widen.model.schema_json import field_to_value, type_to_value
from widen.model.types import DataType, Field, StructType
from widen.planning.table.field_position import AfterField, FieldPosition, StructEnd

KIND = "operation"
"""The key that says which operation a JSON value holds."""


class _JsonOperation:
    """What all operations have in common: their form in JSON."""

    __slots__ = ()

    def to_value(self) -> dict[str, Any]:
        """Return the operation as a JSON object."""
        parts = {item.name: getattr(self, item.name) for item in fields(self)}  # type: ignore[arg-type]
        return {KIND: type(self).__name__, **{_key(name): _to_value(part) for name, part in parts.items()}}


@dataclass(frozen=True, slots=True)
class CreateTable(_JsonOperation):
    """Make the table.

    Args:
        schema: All its columns.
        partition_by: The names of the columns that its files are split by.
    """

    schema: StructType
    partition_by: tuple[str, ...] = ()

    def __str__(self) -> str:
        split = f", partitioned by {', '.join(self.partition_by)}" if self.partition_by else ""
        return f"create the table with {len(self.schema)} columns{split}"


@dataclass(frozen=True, slots=True)
class AddColumn(_JsonOperation):
    """Add one more field to a struct; rows written before have null in it.

    Args:
        parent: The struct; empty for the table itself.
        field: The new field, with everything inside it.
        place: Where in the struct.
    """

    parent: Path
    field: Field
    place: FieldPosition = StructEnd.LAST

    @property
    def path(self) -> Path:
        """Where the new field stands."""
        return (*self.parent, self.field.name)

    def __str__(self) -> str:
        place = "" if self.place is StructEnd.LAST else f" {self.place}"
        return f"add {format_path(self.path)} {self.field.type.sql}{place}"


@dataclass(frozen=True, slots=True)
class WidenType(_JsonOperation):
    """Change the type of one leaf to a wider one, in place; the files stay as they are.

    Args:
        path: The leaf.
        old: The type it has.
        new: The type it gets.
    """

    path: Path
    old: DataType
    new: DataType

    def __str__(self) -> str:
        return f"widen {format_path(self.path)} from {self.old.sql} to {self.new.sql}"


@dataclass(frozen=True, slots=True)
class LoosenText(_JsonOperation):
    """Let a text column hold longer texts.

    Args:
        path: The column.
        limit: What it becomes: varchar(n), or string for any length.
    """

    path: Path
    limit: str

    def __str__(self) -> str:
        return f"let {format_path(self.path)} be {self.limit}"


@dataclass(frozen=True, slots=True)
class RenameColumn(_JsonOperation):
    """Give a field another name; what is in the files keeps its own.

    Args:
        path: The field.
        name: Its new name.
    """

    path: Path
    name: str

    @property
    def new_path(self) -> Path:
        """Where the field is found afterwards."""
        return (*self.path[:-1], self.name)

    def __str__(self) -> str:
        return f"rename {format_path(self.path)} to {format_path((self.name,))}"


@dataclass(frozen=True, slots=True)
class DropColumn(_JsonOperation):
    """Take a field away with everything inside it; the files keep what they hold."""

    path: Path

    def __str__(self) -> str:
        return f"drop {format_path(self.path)}"


@dataclass(frozen=True, slots=True)
class MoveColumn(_JsonOperation):
    """Put a field at another place of its struct."""

    path: Path
    place: FieldPosition

    def __str__(self) -> str:
        return f"move {format_path(self.path)} {self.place}"


@dataclass(frozen=True, slots=True)
class SetComment(_JsonOperation):
    """Say something of a field; an empty comment is one too."""

    path: Path
    comment: str

    def __str__(self) -> str:
        return f"comment on {format_path(self.path)}: {self.comment!r}"


@dataclass(frozen=True, slots=True)
class DropNotNull(_JsonOperation):
    """Let a field be null."""

    path: Path

    def __str__(self) -> str:
        return f"let {format_path(self.path)} be null"


@dataclass(frozen=True, slots=True)
class SetNotNull(_JsonOperation):
    """Forbid a field to be null; all rows must have shown that it never is."""

    path: Path

    def __str__(self) -> str:
        return f"forbid {format_path(self.path)} to be null"


@dataclass(frozen=True, slots=True)
class SetDefault(_JsonOperation):
    """Let rows that say nothing of a column have a value there.

    Args:
        path: The column.
        expression: The value, in SQL.
    """

    path: Path
    expression: str

    def __str__(self) -> str:
        return f"let {format_path(self.path)} be {self.expression} by default"


@dataclass(frozen=True, slots=True)
class DropDefault(_JsonOperation):
    """Let rows that say nothing of a column have null there."""

    path: Path

    def __str__(self) -> str:
        return f"let {format_path(self.path)} have no default"


@dataclass(frozen=True, slots=True)
class SyncIdentity(_JsonOperation):
    """Let an identity column go on behind the values that it has.

    Args:
        path: The column.
        high_water_mark: The value to go on from.
    """

    path: Path
    high_water_mark: int

    def __str__(self) -> str:
        return f"let {format_path(self.path)} go on from {self.high_water_mark}"


@dataclass(frozen=True, slots=True)
class ReplaceColumns(_JsonOperation):
    """Let the columns be those given, in that order; those that stay keep what is known of them.

    Args:
        schema: The columns, as they were given.
    """

    schema: StructType

    def __str__(self) -> str:
        return f"replace the columns by {', '.join(field.sql for field in self.schema)}"


@dataclass(frozen=True, slots=True)
class AddConstraint(_JsonOperation):
    """Forbid rows that do not fulfil a condition; all rows must have shown that they do.

    Args:
        name: What it is called.
        expression: The condition, in SQL.
    """

    name: str
    expression: str

    def __str__(self) -> str:
        return f"add the constraint {self.name}: {self.expression}"


@dataclass(frozen=True, slots=True)
class DropConstraint(_JsonOperation):
    """Allow what a constraint forbade."""

    name: str

    def __str__(self) -> str:
        return f"drop the constraint {self.name}"


ColumnOperation: TypeAlias = (
    WidenType
    | LoosenText
    | MoveColumn
    | SetComment
    | DropNotNull
    | SetNotNull
    | SetDefault
    | DropDefault
    | SyncIdentity
)
"""What changes a column that stays and keeps its name."""

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
"""Any of the changes."""


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
