"""What the classes of Delta and Iceberg tables have in common."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from os import PathLike
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from widen.evolution.plan import PlannedReader
from widen.evolution.unify import build_contract, view_sql
from widen.log.commit import Committed, Outcome, commit
from widen.log.commit_files import to_ms
from widen.log.commit_outcome import after_commit
from widen.log.load_segments import Load
from widen.log.loads import read_loads
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot, open_snapshot
from widen.model.acknowledgement import acknowledgement_properties
from widen.model.argument_types import check_arguments, ensure_not_negative
from widen.model.column_path import Path
from widen.model.display import html_table, shorten
from widen.model.schema_json import to_identifier
from widen.model.types import DataType, StructType
from widen.protocol.actions import CommitInfo, Metadata, Protocol
from widen.protocol.column_metadata import parse_columns, visible_schema
from widen.protocol.type_widening import TypeChange, all_type_changes
from widen.report.delta_traits import readers_made_wrong
from widen.report.reader_predictions import Prediction, Trait, choose_readers, predict, warn_wrong_readers
from widen.schema import alter
from widen.schema.alter import AnyPath, ByPath, NewColumn
from widen.schema.feature_removal import warn_readers
from widen.schema.operations import Operation
from widen.schema.table_definition import plan_set_properties
from widen.schema.table_state import MetadataChange, TableState, to_table_state
from widen.table.results import History, HistoryEntry, Loads, SchemaDiff, diff_versions

if sys.version_info >= (3, 11):
    from typing import Self as Self
else:
    from typing_extensions import Self as Self


if TYPE_CHECKING:
    from widen.spark.spark_types import SchemaLike


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
        """The number of the version; for an Iceberg table the id of its snapshot, None if it has no snapshot yet."""

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

        For an Iceberg table these are the ancestors of the current snapshot that have not expired.

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
    def readers(self, *names: str) -> list[Prediction]:
        """Return what other readers do with this version: which read it, refuse it, or return something wrong.

        Predicted from what tested versions of the readers did with tables that have the same traits, e.g. a table
        feature or inexact bounds. No reader runs, and at most the footers of a few files are read.

        Args:
            names: The readers, e.g. ``polars``; by default all that were tested with the format of the table.

        Raises:
            InvalidOption: a reader was not tested with the format of the table.
            TableError: the log, the metadata or a footer cannot be read.

        Source: docs/guide/readers.md
        """
        table_format, traits = self._read_traits()
        return predict(traits, choose_readers(table_format, names))

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
            rows: The table of the view, as written in SQL; by default ``delta.`<location>```, which needs Delta Lake on
                Spark, or the name of the Iceberg table, in a catalog of the engine.
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
    def _read_traits(self) -> tuple[str, list[Trait]]:
        """Return the format of the table, and what of this version matters to other readers."""

    @abstractmethod
    def _read_loads(self) -> Iterable[Load]:
        """Return the loads that this version has, oldest first."""


class ColumnMethodsMixin(OpenTable):
    """Methods that add, rename and drop columns without rewriting files."""

    @property
    def _changeable_schema(self) -> StructType:
        """All columns of this version, also those that cannot be read."""
        return self._full_schema

    @abstractmethod
    def change_columns(self, operations: Sequence[Operation]) -> Self:
        """Apply operations in one commit, all or nothing, and return the table at its new version."""

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
        return self.change_columns(alter.parse_rename(self.refresh()._changeable_schema, column, name))

    @check_arguments
    def add_columns(self, columns: ByPath[DataType | str | NewColumn]) -> Self:
        """Add columns or nested fields in one commit, and return the table; existing rows have null or the default.

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
        return self.change_columns(alter.parse_new_columns(self.refresh()._changeable_schema, columns))

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
        return self.change_columns(alter.parse_drops(self.refresh()._changeable_schema, columns, if_exists=if_exists))


# The base class of `Table`: one version of a table, and its properties from the log.


class TableVersion(OpenTable):
    """The part of `Table` that needs no Spark: opens a table and returns what its log says of a version."""

    _added_features: tuple[str, ...] = ()
    _wrong_readers: tuple[PlannedReader, ...] = ()

    @check_arguments
    def __init__(self, location: str | PathLike[str], storage_options: Mapping[str, str] | None = None) -> None:
        self._store = LogStore(location, storage_options)
        self._snapshot = open_snapshot(self._store)

    @classmethod
    def _of(cls, outcome: Committed) -> Self:
        table = cls.__new__(cls)
        table._store, table._snapshot = outcome.store, outcome.snapshot
        return table

    @property
    def location(self) -> str:
        """The path or URL of the table."""
        return self._store.location

    @property
    def store(self) -> LogStore:
        """The files of the table."""
        return self._store

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot of this version."""
        return self._snapshot

    @property
    def version(self) -> int:
        """The number of the version."""
        return self._snapshot.version

    @property
    def metadata(self) -> Metadata:
        """The metadata action, with the schema as the log has it."""
        return self._snapshot.metadata

    @property
    def protocol(self) -> Protocol:
        """The protocol action."""
        return self._snapshot.protocol

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the table."""
        return dict(self._snapshot.properties)

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The partition columns."""
        return tuple(self._snapshot.partition_columns)

    @property
    def added_features(self) -> tuple[str, ...]:
        """The table features that changes by this object have added, and that readers must support from then on."""
        return self._added_features

    @property
    def wrong_readers(self) -> tuple[PlannedReader, ...]:
        """The readers that read the table before changes by this object, and return something wrong from then on."""
        return self._wrong_readers

    @property
    def type_changes(self) -> list[tuple[Path, TypeChange]]:
        """Every recorded type change, with the full column path."""
        return list(all_type_changes(self._snapshot.schema))

    def files(self) -> pa.Table:
        """Return the live files: a row for each, with the columns of `widen.log.file_list.FILES`; in no order.

        Raises:
            CorruptLog: the log is damaged.
            StorageError: the storage returned an error.
        """
        return self._snapshot.files()

    def refresh(self) -> Self:
        self._snapshot = open_snapshot(self._store)
        return self

    @property
    def _label(self) -> str:
        return self.location

    @property
    def _sql_name(self) -> str:
        return f"delta.{to_identifier(self.location)}"

    @property
    def _full_schema(self) -> StructType:
        return self._snapshot.schema

    def _schema_of(self, version: int | None) -> StructType:
        return self._past(version, None).schema

    def _diff(self, old: int, new: int | None) -> SchemaDiff:
        return diff_versions(self._past(old, None), self._past(new, None))

    def _commits(self, limit: int | None) -> Iterable[tuple[int, int, CommitInfo]]:
        return self._snapshot.history(limit)

    def _acknowledge(self, subjects: Sequence[str], by: str | None) -> Self:
        properties = acknowledgement_properties(subjects, by, self.refresh()._snapshot.timestamp_ms)
        return self._change(plan_set_properties(self._state, properties))

    def _read_loads(self) -> Iterator[Load]:
        return (load for load in read_loads(self._snapshot) if load.version <= self.version)

    def _read_traits(self) -> tuple[str, list[Trait]]:
        from widen.report.delta_traits import delta_traits

        return "delta", delta_traits(self._snapshot)

    @property
    def _state(self) -> TableState:
        return to_table_state(self._snapshot)

    def _past(self, version: int | None, timestamp: datetime | str | None) -> Snapshot:
        """Return the version with that number or timestamp; without either, this version."""
        if version is None and timestamp is None:
            return self._snapshot
        return open_snapshot(self._store, version, None if timestamp is None else to_ms(timestamp))

    def _change(self, change: MetadataChange | None) -> Self:
        if change is None:
            return self
        return self._at(commit(self._store, self._snapshot, change.actions, change.operation, change.parameters))

    def _at(self, outcome: Outcome) -> Self:
        before, self._snapshot = self._snapshot, outcome.or_raise().snapshot
        with after_commit(self.location, self.version):
            self._added_features += warn_readers(self.location, before.protocol, self._snapshot.protocol)
            wrong = readers_made_wrong(before, self._snapshot.configuration)
            warn_wrong_readers(self.location, wrong)
            self._wrong_readers += wrong
        return self


def to_table_schema(schema: SchemaLike) -> StructType:
    """Return a schema in any of its forms as a schema of the model; only a schema of Spark's needs Spark."""
    if isinstance(schema, StructType):
        return schema
    if isinstance(schema, str):
        return parse_columns(schema)
    from widen.spark.spark_types import from_spark

    return from_spark(schema)
