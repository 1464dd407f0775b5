"""Statements as values.

Source: Spark's ALTER TABLE, CREATE TABLE and DESCRIBE; Delta Lake's constraints, features, DETAIL, HISTORY and RESTORE.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, TypeAlias

from widen.model.column_path import Path
from widen.model.types import StructType

if TYPE_CHECKING:
    from widen.planning.alter.alter_request import ColumnChanges, NewColumn


@dataclass(frozen=True, slots=True)
class TableName:
    """The name of a table in a statement: ``delta.`/data/orders```, or a name in the catalog of Spark.

    Args:
        parts: The parts of the name, without quotes.
    """

    DELTA: ClassVar[str] = "delta"
    """The prefix of a name that is a path."""

    parts: Path

    @property
    def location(self) -> str | None:
        """The path or URL; None for a name in the catalog."""
        return self.parts[1] if len(self.parts) == 2 and self.parts[0] == self.DELTA else None


# ---- columns ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AlterColumns:
    """Change columns."""

    table: TableName
    changes: Mapping[Path, ColumnChanges]


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Rename a column or a nested field."""

    table: TableName
    column: Path
    name: str


@dataclass(frozen=True, slots=True)
class AddColumns:
    """Add columns or nested fields."""

    table: TableName
    columns: Mapping[Path, NewColumn]


@dataclass(frozen=True, slots=True)
class DropColumns:
    """Drop columns or nested fields."""

    table: TableName
    columns: tuple[Path, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ReplaceColumns:
    """Replace the columns of a table."""

    table: TableName
    schema: StructType


@dataclass(frozen=True, slots=True)
class SyncIdentity:
    """Set the high-water mark of an identity column past its values."""

    table: TableName
    column: Path


# ---- constraints, properties, features -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddConstraint:
    """Add a CHECK constraint."""

    table: TableName
    name: str
    condition: str


@dataclass(frozen=True, slots=True)
class DropConstraint:
    """Drop a CHECK constraint; ``if_exists`` ignores a missing one."""

    table: TableName
    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class SetProperties:
    """Set properties of a table."""

    table: TableName
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class UnsetProperties:
    """Unset properties of a table; ``if_exists`` ignores those that are not set."""

    table: TableName
    keys: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropFeature:
    """Drop a feature; ``truncate_history`` deletes the older versions that use it."""

    table: TableName
    name: str
    truncate_history: bool = False


# ---- whole tables ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateTable:
    """Create an empty table.

    Args:
        location: The location; None without a LOCATION clause.
        comment: The description; None without a COMMENT clause.
        if_not_exists: Whether to keep an existing table instead of raising an error.
    """

    table: TableName
    schema: StructType
    partition_by: tuple[str, ...] = ()
    location: str | None = None
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    if_not_exists: bool = False


@dataclass(frozen=True, slots=True)
class Restore:
    """Restore a table to a version (an integer) or a timestamp (a string)."""

    table: TableName
    moment: int | str


@dataclass(frozen=True, slots=True)
class Vacuum:
    """Delete the files that no version needs.

    Args:
        hours: The retention in hours; None for that of the table.
        dry_run: Whether only to list the files.
    """

    table: TableName
    hours: float | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Optimize:
    """Write small files together.

    Args:
        where: The condition on partition columns; None for the whole table.
    """

    table: TableName
    where: str | None = None
    zorder_by: tuple[Path, ...] = ()


# ---- queries ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DescribeDetail:
    """Describe the table as a whole."""

    table: TableName


@dataclass(frozen=True, slots=True)
class DescribeHistory:
    """List the commits of a table, newest first: at most ``limit``, or all."""

    table: TableName
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class DescribeTable:
    """Describe the columns of a table; if ``extended``, also its location, properties and defaults."""

    table: TableName
    extended: bool = False


@dataclass(frozen=True, slots=True)
class ShowProperties:
    """List the properties of a table, or only one of them."""

    table: TableName
    key: str | None = None


Alteration: TypeAlias = (
    AlterColumns
    | RenameColumn
    | AddColumns
    | DropColumns
    | ReplaceColumns
    | SyncIdentity
    | AddConstraint
    | DropConstraint
    | SetProperties
    | UnsetProperties
    | DropFeature
)
"""A statement that begins with ALTER TABLE."""

Command: TypeAlias = Alteration | Restore
"""A statement that changes a table."""

Question: TypeAlias = DescribeDetail | DescribeHistory | DescribeTable | ShowProperties
"""A statement that reads from a table."""

Upkeep: TypeAlias = Vacuum | Optimize
"""A statement that changes the files of a table, but not its rows."""

Statement: TypeAlias = Command | CreateTable | Question | Upkeep
"""Any of the statements."""
