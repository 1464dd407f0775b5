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
    """What a statement calls a table: ``delta.`/data/orders```, or a name in the catalog of Spark.

    Args:
        parts: Of the name, as they are without quotes.
    """

    DELTA: ClassVar[str] = "delta"
    """What comes before the path where a table is named by that."""

    parts: Path

    @property
    def location(self) -> str | None:
        """The path or URL that the name consists of; None for a name in the catalog."""
        return self.parts[1] if len(self.parts) == 2 and self.parts[0] == self.DELTA else None


# ---- columns ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AlterColumns:
    """Change columns.

    Args:
        table: Whose.
        changes: What is to become of each, by its path.
    """

    table: TableName
    changes: Mapping[Path, ColumnChanges]


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Give a column or a nested field another name."""

    table: TableName
    column: Path
    name: str


@dataclass(frozen=True, slots=True)
class AddColumns:
    """Add columns or nested fields.

    Args:
        table: To which.
        columns: What each is, by its path.
    """

    table: TableName
    columns: Mapping[Path, NewColumn]


@dataclass(frozen=True, slots=True)
class DropColumns:
    """Remove columns or nested fields.

    Args:
        table: Whose.
        columns: Their paths.
        if_exists: Whether one that is not there is none to complain of.
    """

    table: TableName
    columns: tuple[Path, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ReplaceColumns:
    """Let the table have these columns and no others."""

    table: TableName
    schema: StructType


@dataclass(frozen=True, slots=True)
class SyncIdentity:
    """Let the high-water mark of an identity column follow its values."""

    table: TableName
    column: Path


# ---- constraints, properties, features -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddConstraint:
    """Let every row fulfil a condition."""

    table: TableName
    name: str
    condition: str


@dataclass(frozen=True, slots=True)
class DropConstraint:
    """Forget a condition; ``if_exists`` says that one that is not there is none to complain of."""

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
    """Remove properties of a table; ``if_exists`` says that one that is not set is none to complain of."""

    table: TableName
    keys: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class DropFeature:
    """Let a table no longer need a feature; ``truncate_history`` says that older versions are given up for it."""

    table: TableName
    name: str
    truncate_history: bool = False


# ---- whole tables ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateTable:
    """Make an empty table.

    Args:
        table: How it is called.
        schema: Its columns, with the metadata that they get.
        partition_by: The columns that its files are split by.
        location: Where it is to lie; None if the name says it.
        comment: What it is; None if nothing is said of it.
        properties: Its properties.
        if_not_exists: Whether a table that is there is none to complain of.
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
    """Let a table be as it was: at a version, or at a time if that is a text."""

    table: TableName
    moment: int | str


# ---- questions -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DescribeDetail:
    """Tell what is known of a table as a whole."""

    table: TableName


@dataclass(frozen=True, slots=True)
class DescribeHistory:
    """Tell the commits of a table, newest first: ``limit`` at most, or all."""

    table: TableName
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class DescribeTable:
    """Tell the columns of a table; if ``extended``, the rest too."""

    table: TableName
    extended: bool = False


@dataclass(frozen=True, slots=True)
class ShowProperties:
    """Tell the properties of a table, or only one of them."""

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
"""A statement that asks."""

Statement: TypeAlias = Command | CreateTable | Question
"""Any of the statements."""
