"""The base class of `Table`: one version of a table, and its properties from the log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from os import PathLike

import pyarrow as pa

from widen.log.read.commit_timestamps import to_ms
from widen.log.read.loads import Load, read_loads
from widen.log.read.snapshot import Snapshot, open_snapshot
from widen.log.store.log_store import LogStore
from widen.log.write.commit import Committed, Outcome, commit
from widen.model.acknowledgement import to_properties
from widen.model.argument_types import check_arguments
from widen.model.column_path import Path
from widen.model.sql_literal import to_identifier
from widen.model.types import StructType
from widen.planning.alter.set_properties import plan_set_properties
from widen.planning.table.table_state import MetadataChange, TableState, to_table_state
from widen.protocol.actions import CommitInfo, Metadata, Protocol
from widen.protocol.type_changes import TypeChange, all_type_changes
from widen.table.open_table import OpenTable, Self
from widen.table.schema_diff import SchemaDiff, diff_versions


class TableVersion(OpenTable):
    """The part of `Table` that needs no Spark: opens a table and returns what its log says of a version."""

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
    def type_changes(self) -> list[tuple[Path, TypeChange]]:
        """Every recorded type change, with the full column path."""
        return list(all_type_changes(self._snapshot.schema))

    def files(self) -> pa.Table:
        """Return the live files: a row for each, with the columns of `widen.log.read.file_list.FILES`; in no order.

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
        properties = to_properties(subjects, by, self.refresh()._snapshot.timestamp_ms)
        return self._change(plan_set_properties(self._state, properties))

    def _read_loads(self) -> Iterator[Load]:
        return (load for load in read_loads(self._snapshot) if load.version <= self.version)

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
