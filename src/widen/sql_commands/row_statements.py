"""Statements about rows, as values.

Source: Spark's INSERT, TRUNCATE and SELECT; Delta Lake's UPDATE, DELETE and MERGE.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from widen.sql_commands.statements import TableStatement

if TYPE_CHECKING:  # the forms of statements are read without Spark
    from widen.spark.dml.merge_clause import MergeClause


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
    """Update rows.

    Args:
        where: The condition; None for all rows.
    """

    assignments: Mapping[str, str]
    where: str | None = None


@dataclass(frozen=True, slots=True)
class Delete(TableStatement):
    """Delete rows.

    Args:
        where: The condition; None for all rows.
    """

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
        location: The location; None without a LOCATION clause.
        comment: The description; None without a COMMENT clause.
    """

    query: str = ""
    partition_by: tuple[str, ...] = ()
    location: str | None = None
    comment: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    if_not_exists: bool = False


RowStatement: TypeAlias = Query | Insert | Update | Delete | Merge | CreateTableAs
"""Any statement that has a query or an expression of Spark SQL in it."""

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
