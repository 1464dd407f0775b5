"""What the classes of Delta and Iceberg tables have in common."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Any

from widen.log.read.loads import Load
from widen.model.argument_types import check_arguments, ensure_not_negative
from widen.model.notebook import html_table, shorten
from widen.model.types import DataType, StructType
from widen.planning.alter import alter_request
from widen.planning.alter.alter_request import AnyPath, ByPath, NewColumn
from widen.planning.table.operation import Operation
from widen.planning.unify.contract import build_contract
from widen.planning.unify.unified_columns import view_sql
from widen.protocol.actions import CommitInfo
from widen.protocol.column_metadata import visible_schema
from widen.table.results import History, HistoryEntry, Loads
from widen.table.schema_diff import SchemaDiff

if sys.version_info >= (3, 11):
    from typing import Self as Self
else:
    from typing_extensions import Self as Self


class OpenTable(ABC):
    """A table at one version: the newest when it was opened, and after each change made through it."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._label!r}, version={self.version})"

    def _repr_html_(self) -> str:
        rows = ((field.name, shorten(field.type.sql), field.nullable) for field in self.schema.fields)
        return html_table(f"{self._label}, version {self.version}", ("column", "type", "nullable"), rows)

    @property
    @abstractmethod
    def version(self) -> int | None:
        """The number of the version; of an Iceberg table the id of its snapshot, None if it has none yet."""

    @property
    def schema(self) -> StructType:
        """The columns without internal metadata."""
        return visible_schema(self._full_schema)

    @abstractmethod
    def refresh(self) -> Self:
        """Load the newest version, and return the table.

        Raises:
            UnsupportedFeatureForRead: the table now requires a feature that this version does not support.
            TableError: the table no longer exists, or it cannot be read.
        """

    @check_arguments
    def history(self, limit: int | None = None) -> History:
        """Return the commits of the table, newest first: version, time and provenance of each.

        Of an Iceberg table these are the snapshots before the current one, as far as they have not expired.

        Args:
            limit: The maximum number of commits.

        Raises:
            InvalidOption: the limit is negative.
            CorruptLog: a commit is damaged.
            StorageError: the storage returned an error.
        """
        ensure_not_negative(limit=limit)
        return History(HistoryEntry(*entry) for entry in self._commits(limit))

    def loads(self) -> Loads:
        """Return which source files were loaded into this version, oldest load first.

        Raises:
            CorruptLog: the record of loads is missing or damaged; of an Iceberg table it is `CorruptMetadata`.
            StorageError: the storage returned an error.

        Source: docs/guide/files.md
        """
        return Loads(self._read_loads())

    @check_arguments
    def acknowledge(self, *subjects: str, by: str | None = None) -> Self:
        """Record that decisions of the report are made, in one commit, and return the table.

        The report of every user then leaves them out, and its health does not count them. What happens after the newest
        version, e.g. another conflict in the same field, is a new decision.

        Args:
            subjects: What the decisions are about, as the report names it, e.g. ``tags`` or ``Quarantine``.
            by: Who has decided; by default the user of this process.

        Raises:
            ContentionError: a concurrent commit changed the table, or the outcome is unknown.
            TableError: the table cannot be read or written.

        Source: docs/evolution-rules.md#report
        """
        return self._acknowledge(subjects, by)

    @check_arguments
    def contract(self, version: int | None = None) -> dict[str, Any]:
        """Return what the table has learned about its source, as a JSON Schema (draft 2020-12).

        `widen.check_contract` checks a batch against it.

        Args:
            version: The version, of an Iceberg table the id of a snapshot; by default this one.

        Raises:
            VersionNotFound: the version does not exist, or has expired.
        """
        return build_contract(self._schema_of(version), self._label.rstrip("/").rpartition("/")[2])

    @check_arguments
    def diff(self, old: int, new: int | None = None) -> SchemaDiff:
        """Return how the schema changed between two versions, of an Iceberg table two snapshots.

        Args:
            old: The version to compare.
            new: The version to compare it with; by default this one.

        Raises:
            VersionNotFound: a version does not exist, or the log no longer has it.
            CorruptLog: a log file is damaged.
            StorageError: the storage returned an error.

        Source: docs/guide/gate.md
        """
        return self._diff(old, new)

    @check_arguments
    def view_sql(self, name: str, rows: str | None = None, *, temporary: bool = False) -> str:
        """Return the statement that creates a view with one column for each source field, like ``read(unified=True)``.

        Args:
            name: The name of the view, as written in SQL.
            rows: The table of the view, as written in SQL; by default ``delta.`<location>```, for which Spark needs
                Delta Lake, or the name of the Iceberg table, in a catalog of the engine.
            temporary: Whether to create a temporary view.

        Source: docs/evolution-rules.md#one-logical-field
        """
        return view_sql(self._full_schema, name, rows or self._sql_name, is_temporary=temporary)

    @property
    @abstractmethod
    def _label(self) -> str:
        """What names the table for a reader."""

    @property
    @abstractmethod
    def _sql_name(self) -> str:
        """The table as Spark SQL names it."""

    @property
    @abstractmethod
    def _full_schema(self) -> StructType:
        """The columns of this version with all their metadata."""

    @abstractmethod
    def _schema_of(self, version: int | None) -> StructType:
        """Return the columns of a version with all their metadata; None for this version."""

    @abstractmethod
    def _diff(self, old: int, new: int | None) -> SchemaDiff:
        """Return how the schema changed between two versions; None for this version."""

    @abstractmethod
    def _commits(self, limit: int | None) -> Iterable[tuple[int, int, CommitInfo]]:
        """Return version, time and provenance of the commits, newest first."""

    @abstractmethod
    def _acknowledge(self, subjects: Sequence[str], by: str | None) -> Self:
        """Record that decisions of the report are made."""

    @abstractmethod
    def _read_loads(self) -> Iterable[Load]:
        """Return the loads that this version has, oldest first."""


class ColumnMethodsMixin(OpenTable):
    """Methods that add, rename and drop columns without rewriting files."""

    @abstractmethod
    def change_columns(self, operations: Sequence[Operation]) -> Self:
        """Apply operations in one commit, all of them or none, and return the table at its new version."""

    @check_arguments
    def rename_column(self, column: AnyPath, name: str) -> Self:
        """Rename a column in one commit, and return the table. In a Delta table, column mapping must be enabled.

        Args:
            column: The column.
            name: The new name, without the path of its parent.

        Raises:
            ColumnRefused: a subclass: the column does not exist, the name exists already, or something depends on it.
            InvalidPath: the path cannot be read.
            ContentionError: a concurrent commit changed the schema or the properties.
            TableError: the table cannot be read or written.

        Source: PROTOCOL.md#column-mapping; Delta Lake's RENAME COLUMN.
        """
        return self.change_columns(alter_request.parse_rename(self.refresh()._full_schema, column, name))

    @check_arguments
    def add_columns(self, columns: ByPath[DataType | str | NewColumn]) -> Self:
        """Add columns or nested fields in one commit, and return the table; existing rows have null in them.

        Args:
            columns: The type of each by its path, or more settings, e.g. ``{"items.element.price": "decimal(10,2)",
                "note": {"type": "string", "comment": "by hand", "after": "id"}}``.

        Raises:
            ColumnRefused: a subclass: the column exists, its parent is not a struct, or it cannot be added.
            InvalidPath: a path cannot be read.
            InvalidType: a type cannot be read.
            FeatureRequired: a type requires a feature that the table does not support.
            InvalidOption: two options contradict each other.
            ContentionError: a concurrent commit changed the schema or the properties.
            TableError: the table cannot be read or written, or its format does not have a type.

        Source: PROTOCOL.md#change-metadata; Delta Lake's ADD COLUMNS.
        """
        return self.change_columns(alter_request.parse_new_columns(self.refresh()._full_schema, columns))

    @check_arguments
    def drop_columns(self, *columns: AnyPath, if_exists: bool = False) -> Self:
        """Drop columns or nested fields in one commit, and return the table.

        In a Delta table, column mapping must be enabled.

        Args:
            columns: The columns; a struct is dropped with all its fields.
            if_exists: Whether to ignore a missing one.

        Raises:
            ColumnRefused: a subclass: the column does not exist, or something depends on it.
            InvalidPath: a path cannot be read.
            ContentionError: a concurrent commit changed the schema or the properties.
            TableError: the table cannot be read or written.

        Source: PROTOCOL.md#column-mapping; Delta Lake's DROP COLUMNS.
        """
        return self.change_columns(alter_request.parse_drops(self.refresh()._full_schema, columns, if_exists=if_exists))
