"""Operations: every kind of change to the columns of a table, one frozen class each.

A plan is a tuple of operations. The same objects are checked, applied, explained, and written to the history. Paths
contain the steps ``element``, ``key`` and ``value``, and are spelled as in the schema.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TypeAlias

from widen.model.column_path import Path, format_path
from widen.model.schema_json import field_to_value, type_to_value
from widen.model.types import DataType, Field, StructType
from widen.planning.table.field_position import AfterField, FieldPosition, StructEnd

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
    """Add a field to a struct. It is null in rows written before.

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
        return f"add {format_path(self.path)} {self.field.type.sql}{place}"


@dataclass(frozen=True, slots=True)
class WidenType(_JsonOperation):
    """Change the type of a leaf to a wider one in place. No file is rewritten."""

    path: Path
    old: DataType
    new: DataType

    def __str__(self) -> str:
        return f"widen {format_path(self.path)} from {self.old.sql} to {self.new.sql}"


@dataclass(frozen=True, slots=True)
class LoosenText(_JsonOperation):
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
    | LoosenText
    | MoveColumn
    | SetComment
    | DropNotNull
    | SetNotNull
    | SetDefault
    | DropDefault
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
