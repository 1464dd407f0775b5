"""Statements as values, and the forms that are understood.

Source: Spark's ALTER TABLE; Delta Lake's DESCRIBE HISTORY.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

from widen.model.path import Path
from widen.model.type import DataType

UNDERSTOOD = (
    "ALTER TABLE delta.`path` ALTER|CHANGE [COLUMN] c TYPE t | COMMENT 'text' | DROP NOT NULL | FIRST | AFTER d",
    "ALTER TABLE delta.`path` ADD COLUMN[S] (c type, ...)",
    "ALTER TABLE delta.`path` SET TBLPROPERTIES ('key' = 'value', ...)",
    "ALTER TABLE delta.`path` UNSET TBLPROPERTIES [IF EXISTS] ('key', ...)",
    "DESCRIBE HISTORY delta.`path` [LIMIT n]",
)
"""Every statement that is understood, as it is shown to people."""


@dataclass(frozen=True, slots=True)
class AlterColumn:
    """Change one column.

    Args:
        location: Of the table.
        path: The column.
        type: The new type; None leaves it.
        comment: The new comment, likewise.
        nullable: Whether it may be null, likewise.
        first: Whether it becomes the first of its struct.
        after: The column that it is to follow; None leaves it where it is.
    """

    location: str
    path: Path
    type: DataType | None = None
    comment: str | None = None
    nullable: bool | None = None
    first: bool = False
    after: str | None = None


@dataclass(frozen=True, slots=True)
class AddColumns:
    """Add columns or nested fields.

    Args:
        location: Of the table.
        columns: The type of each by its path.
    """

    location: str
    columns: Mapping[str, DataType]


@dataclass(frozen=True, slots=True)
class SetProperties:
    """Set properties of the table at a location."""

    location: str
    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class UnsetProperties:
    """Remove properties of the table at a location.

    Args:
        location: Of the table.
        keys: The properties.
        if_exists: Whether one that is not set is none to complain of.
    """

    location: str
    keys: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class DescribeHistory:
    """Tell the commits of the table at a location, newest first.

    Args:
        location: Of the table.
        limit: How many at most; None for all.
    """

    location: str
    limit: int | None = None


Statement: TypeAlias = AlterColumn | AddColumns | SetProperties | UnsetProperties | DescribeHistory
"""Any of the statements."""
