"""The base class of `Table`: one version of a table, and its properties from the log."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from os import PathLike
from typing import Any

import pyarrow as pa

from widen.log.read.commit_timestamps import to_ms
from widen.log.read.loads import read_loads
from widen.log.read.snapshot import Snapshot, open_snapshot
from widen.log.store.log_store import LogStore
from widen.log.write.commit import Committed, Outcome, commit
from widen.model.argument_types import check_arguments
from widen.model.column_path import Path
from widen.model.notebook import html_table, shortened
from widen.model.types import StructType
from widen.planning.table.table_state import MetadataChange, TableState, to_table_state
from widen.planning.unify.contract import build_contract
from widen.protocol.actions import Metadata, Protocol
from widen.protocol.column_metadata import visible_schema
from widen.protocol.type_changes import TypeChange, all_type_changes
from widen.table.results import History, HistoryEntry, Loads
from widen.table.schema_diff import SchemaDiff, diff_versions

if sys.version_info >= (3, 11):
    from typing import Self as Self
else:
    from typing_extensions import Self as Self


class TableVersion:
    """A Delta table at one version: the newest when it was opened, and after each change made through it.

    Args:
        location: A local path or a URL of an object store.
        storage_options: Settings and credentials of the store.

    Raises:
        TableNotFound: there is no table.
        CorruptLog: its log is damaged.
        UnsupportedFeatureForRead: it requires a feature that this version does not support.
        StorageError: the storage returned an error.
    """

    @check_arguments
    def __init__(self, location: str | PathLike[str], storage_options: Mapping[str, str] | None = None) -> None:
        self._store = LogStore(location, storage_options)
        self._snapshot = open_snapshot(self._store)

    @classmethod
    def _of(cls, outcome: Committed) -> Self:
        table = cls.__new__(cls)
        table._store, table._snapshot = outcome.store, outcome.snapshot
        return table

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.location!r}, version={self.version})"

    def _repr_html_(self) -> str:
        rows = ((field.name, shortened(field.type.sql), field.nullable) for field in self.schema.fields)
        return html_table(f"{self.location}, version {self.version}", ("column", "type", "nullable"), rows)

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
    def schema(self) -> StructType:
        """The columns without internal metadata, which is in `metadata`."""
        return visible_schema(self._snapshot.schema)

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
    def type_changes(self) -> list[tuple[Path, TypeChange]]:
        """Every recorded type change, with the full column path."""
        return list(all_type_changes(self._snapshot.schema))

    @check_arguments
    def history(self, limit: int | None = None) -> History:
        """Return the commits of the table, newest first: version, time and provenance of each.

        Args:
            limit: The maximum number of commits.

        Raises:
            CorruptLog: a commit is damaged.
            StorageError: the storage returned an error.
        """
        return History(HistoryEntry(*entry) for entry in self._snapshot.history(limit))

    def contract(self) -> dict[str, Any]:
        """Return what the table has learned about its source, as a JSON Schema (draft 2020-12).

        `widen.check_contract` holds a batch against it.
        """
        return build_contract(self._snapshot.schema, self.location.rstrip("/").rpartition("/")[2])

    @check_arguments
    def diff(self, old: int, new: int | None = None) -> SchemaDiff:
        """Return how the schema changed between two versions.

        Args:
            old: The version to compare.
            new: The version to compare it with; by default this one.

        Raises:
            VersionNotFound: a version does not exist, or the log no longer has it.
            CorruptLog: a log file is damaged.
            StorageError: the storage returned an error.
        """
        return diff_versions(self._past(old, None), self._past(new, None))

    def loads(self) -> Loads:
        """Return which source files were loaded into this version, oldest load first.

        Raises:
            CorruptLog: the record of loads is missing or damaged.
            StorageError: the storage returned an error.

        Source: docs/guide/files.md
        """
        return Loads(load for load in read_loads(self._snapshot) if load.version <= self.version)

    def files(self) -> pa.Table:
        """Return the live files: a row for each, with the columns of `widen.log.read.file_list.FILES`; in no order.

        Raises:
            CorruptLog: the log is damaged.
            StorageError: the storage returned an error.
        """
        return self._snapshot.files()

    def refresh(self) -> Self:
        """Load the newest version, and return the table.

        Raises:
            CorruptLog: the log is damaged.
            UnsupportedFeatureForRead: the table now requires a feature that this version does not support.
            StorageError: the storage returned an error.
        """
        self._snapshot = open_snapshot(self._store)
        return self

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
        self._snapshot = outcome.or_raise().snapshot
        return self
