"""Statements as values.

Source: Spark's ALTER TABLE, CREATE TABLE and DESCRIBE; Delta Lake's constraints, features, DETAIL, HISTORY and RESTORE.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from widen.model.column_path import Path
from widen.model.schema_json import to_literal
from widen.model.types import StructType
from widen.model.value_classes import dataclass

if TYPE_CHECKING:
    from widen.changes.merge import MergeClause
    from widen.schema.alter import ColumnChanges, NewColumn
    from widen.spark.spark_types import DataFrame, SparkSession
    from widen.table import IcebergTable, Table


@dataclass(frozen=True, slots=True)
class TableReference:
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


@dataclass(frozen=True, slots=True)
class TableStatement:
    """The base of statements about one table."""

    table: TableReference


# ---- columns ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AlterColumns(TableStatement):
    """Change columns."""

    changes: Mapping[Path, ColumnChanges]


@dataclass(frozen=True, slots=True)
class RenameColumnStatement(TableStatement):
    """Rename a column or a nested field."""

    column: Path
    name: str


@dataclass(frozen=True, slots=True)
class AddColumns(TableStatement):
    """Add columns or nested fields."""

    columns: Mapping[Path, NewColumn]


@dataclass(frozen=True, slots=True)
class DropColumns(TableStatement):
    """Drop columns or nested fields."""

    columns: tuple[Path, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ReplaceColumnsStatement(TableStatement):
    """Replace the columns of a table."""

    schema: StructType


@dataclass(frozen=True, slots=True)
class SyncIdentityStatement(TableStatement):
    """Set the high-water mark of an identity column past its values."""

    column: Path


# ---- constraints, properties, features -------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AddConstraintStatement(TableStatement):
    """Add a CHECK constraint."""

    name: str
    condition: str


@dataclass(frozen=True, slots=True)
class DropConstraintStatement(TableStatement):
    """Drop a CHECK constraint; ``if_exists`` ignores a missing one."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class SetProperties(TableStatement):
    """Set properties of a table."""

    properties: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class UnsetProperties(TableStatement):
    """Unset properties of a table; those that are not set are ignored, with or without ``if_exists``."""

    keys: tuple[str, ...]
    if_exists: bool = False


@dataclass(frozen=True, slots=True)
class ClusterBy(TableStatement):
    """Cluster a table by columns, or no longer."""

    columns: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class DropFeature(TableStatement):
    """Drop a feature; ``truncate_history`` deletes the older versions that use it."""

    name: str
    truncate_history: bool = False


# ---- Iceberg tables ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ChangePartitioning(TableStatement):
    """Drop and add partition fields; each is a column, or a call of a transform."""

    add: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WriteOrder(TableStatement):
    """Replace the sort order; none for no order."""

    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateReference(TableStatement):
    """Create a branch or a tag.

    Args:
        kind: ``branch`` or ``tag``.
        version: The id of its snapshot; None for the current one.
        days: How long it is kept; None for ever.
    """

    kind: str
    name: str
    version: int | None = None
    days: int | None = None


@dataclass(frozen=True, slots=True)
class DropReference(TableStatement):
    """Drop a branch or a tag."""

    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class FastForward(TableStatement):
    """Move a branch to the newest snapshot of another one."""

    branch: str
    source: str


# ---- whole tables ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CreateTableStatement(TableStatement):
    """Create an empty table.

    Args:
        using: The format, ``delta`` or ``iceberg``; None without a USING clause.
        location: The location; None without a LOCATION clause.
        comment: The description; None without a COMMENT clause.
        if_not_exists: Whether to keep an existing table instead of raising an error.
    """

    schema: StructType
    partition_by: tuple[str, ...] = ()
    location: str | None = None
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    if_not_exists: bool = False
    using: str | None = None
    cluster_by: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Restore(TableStatement):
    """Restore a table to a version (an integer) or a timestamp (a string)."""

    moment: int | str


@dataclass(frozen=True, slots=True)
class Vacuum(TableStatement):
    """Delete the files that no version needs.

    Args:
        hours: The retention in hours; None for the table's retention.
        dry_run: Whether only to list the files.
    """

    hours: float | None = None
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Optimize(TableStatement):
    """Write small files together.

    Args:
        where: The condition on partition columns; None for the whole table.
    """

    where: str | None = None
    zorder_by: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Rewrite(TableStatement):
    """Write the files again that have old types, or older partitions."""


# ---- queries ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DescribeDetail(TableStatement):
    """Describe the table as a whole."""


@dataclass(frozen=True, slots=True)
class DescribeHistory(TableStatement):
    """List the commits of a table, newest first: at most ``limit``, or all."""

    limit: int | None = None


@dataclass(frozen=True, slots=True)
class DescribeTable(TableStatement):
    """Describe the columns of a table; if ``extended``, also its location, properties and defaults."""

    extended: bool = False


@dataclass(frozen=True, slots=True)
class ShowProperties(TableStatement):
    """List the properties of a table, or only one of them."""

    key: str | None = None


Alteration: TypeAlias = (
    AlterColumns
    | RenameColumnStatement
    | AddColumns
    | DropColumns
    | ReplaceColumnsStatement
    | SyncIdentityStatement
    | AddConstraintStatement
    | DropConstraintStatement
    | SetProperties
    | UnsetProperties
    | ClusterBy
    | DropFeature
)
"""A statement that begins with ALTER TABLE."""

IcebergAlteration: TypeAlias = ChangePartitioning | WriteOrder | CreateReference | DropReference | FastForward
"""A statement that begins with ALTER TABLE and is for Iceberg tables only."""

Command: TypeAlias = Alteration | IcebergAlteration | Restore
"""A statement that changes a table."""

Question: TypeAlias = DescribeDetail | DescribeHistory | DescribeTable | ShowProperties
"""A statement that reads from a table."""

Upkeep: TypeAlias = Vacuum | Optimize | Rewrite
"""A statement that changes the files of a table, but not its rows."""

Statement: TypeAlias = Command | CreateTableStatement | Question | Upkeep
"""Any of the statements."""


# Statements about rows, as values.
#
# Source: Spark's INSERT, TRUNCATE and SELECT; Delta Lake's UPDATE, DELETE and MERGE.


@dataclass(frozen=True, slots=True)
class Query:
    """Read rows.

    Args:
        text: The query in Spark SQL; its tables may be paths, versions and changes.
    """

    text: str


@dataclass(frozen=True, slots=True)
class Insert(TableStatement):
    """Append rows, or overwrite with them.

    Args:
        columns: The columns that the values of a row go to, in order; None for all columns of the table.
        by_name: Whether columns are matched by name instead.
        where: The condition on the rows to replace; None to replace all.
        partition: Partition columns, with the values that the rows do not have. An overwrite replaces the rows with
            these values, or in the mode dynamic the partitions that it writes.
    """

    query: str
    columns: tuple[str, ...] | None = None
    by_name: bool = False
    overwrites: bool = False
    where: str | None = None
    evolves: bool = False
    partition: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Update(TableStatement):
    """Update rows."""

    assignments: Mapping[str, str]
    where: str | None = None


@dataclass(frozen=True, slots=True)
class Delete(TableStatement):
    """Delete rows."""

    where: str | None = None


@dataclass(frozen=True, slots=True)
class Merge(TableStatement):
    """Merge a source into a table.

    Args:
        source: The source, as in a FROM clause: a table, or a query in parentheses.
    """

    source: str
    on: str
    clauses: tuple[MergeClause, ...]
    target_alias: str
    source_alias: str
    evolves: bool = False


@dataclass(frozen=True, slots=True)
class CreateTableAs(TableStatement):
    """Create a table with rows.

    Args:
        using: The format, ``delta`` or ``iceberg``; None without a USING clause.
        location: The location; None without a LOCATION clause.
        comment: The description; None without a COMMENT clause.
    """

    query: str = ""
    partition_by: tuple[str, ...] = ()
    location: str | None = None
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    if_not_exists: bool = False
    using: str | None = None
    cluster_by: tuple[Path, ...] = ()


RowStatement: TypeAlias = Query | Insert | Update | Delete | Merge | CreateTableAs
"""Any statement that contains a query or an expression in Spark SQL."""

ROW_FORMS: Mapping[str, str] = {
    "select": "SELECT values FROM table ... (or any other query)\n"
    "    table: name | delta.`path`, with [VERSION AS OF number | TIMESTAMP AS OF time], or delta.`path@vnumber`\n"
    "        | table_changes('table', first [, last])",
    "insert": "INSERT [WITH SCHEMA EVOLUTION] (INTO | OVERWRITE) [TABLE] table [PARTITION (column [= value], ...)]"
    " [BY NAME | (column, ...)] query",
    "replace_where": "INSERT INTO [TABLE] table REPLACE WHERE condition query",
    "update": "UPDATE table [[AS] alias] SET column = value, ... [WHERE condition]",
    "delete": "DELETE FROM table [[AS] alias] [WHERE condition]",
    "truncate": "TRUNCATE TABLE table",
    "merge": "MERGE [WITH SCHEMA EVOLUTION] INTO table [[AS] alias] USING (table | (query)) [[AS] alias] ON condition"
    " clause ...\n"
    "    clause: WHEN MATCHED [AND condition] THEN (UPDATE SET (* | column = value, ...) | DELETE)\n"
    "        | WHEN NOT MATCHED [BY TARGET] [AND condition] THEN INSERT (* | (column, ...) VALUES (value, ...))\n"
    "        | WHEN NOT MATCHED BY SOURCE [AND condition] THEN (UPDATE SET column = value, ... | DELETE)",
}
"""The form of every statement about rows, formatted for messages."""


@dataclass(frozen=True, slots=True)
class ChangedTable:
    """The result of a statement that changes a table.

    Args:
        table: The table at its version after the statement.
        before: The version before the statement, of an Iceberg table its snapshot; -1 if it created the table.
    """

    table: Table | IcebergTable
    before: int


@dataclass(frozen=True, slots=True)
class QueryResult:
    """Rows with their columns.

    Args:
        columns: The names and the Spark SQL types of the columns.
        rows: The rows, with a JSON value for every column; timestamps are strings in UTC.
    """

    columns: Sequence[tuple[str, str]]
    rows: Sequence[Sequence[Any]]

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [name for name, _ in self.columns]

    def to_values(self) -> list[dict[str, Any]]:
        """Return every row as a JSON object."""
        return [dict(zip(self.names, row, strict=True)) for row in self.rows]

    def to_frame(self, spark: SparkSession) -> DataFrame:
        """Return the rows as a DataFrame."""
        schema = ", ".join(f"{name} {data_type}" for name, data_type in self.columns)
        lines = [(json.dumps(value),) for value in self.to_values()]
        read = f"from_json(line, {to_literal(schema)}) as row"
        return spark.createDataFrame(lines, "line string").selectExpr(read).select("row.*")
