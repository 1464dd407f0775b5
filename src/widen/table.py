"""Tables: create, open, read, append, alter.

Source: house rule: a change is planned as a value, then committed; this module only joins the stages.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta, timezone

import pyarrow as pa

from widen.errors import InvalidOption
from widen.log.commit import Committed, Conflicted, Outcome, commit
from widen.log.snapshot import Snapshot, open_snapshot
from widen.log.store import LogStore
from widen.model.path import Path, parse_path
from widen.model.text import parse_type
from widen.model.type import DataType, StructType
from widen.planning import alter, command
from widen.planning.merge import merge
from widen.protocol.action import Action, CommitInfo, Metadata, Protocol
from widen.protocol.feature import ensure_data_writable, ensure_writable
from widen.protocol.type_change import TypeChange, all_type_changes, strip
from widen.protocol.value import parse_timestamp
from widen.spark.scan import read
from widen.spark.schema import Column, DataFrame, Schema, SparkSession, from_spark, surfaced, to_schema
from widen.spark.write import discard, write
from widen.target import metrics


def create_table(
    location: str,
    schema: Schema,
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Table:
    """Make an empty table and return it.

    Args:
        location: A local path or a URL of an object store.
        schema: Its columns.
        partition_by: The columns that its files are split by.
        properties: Its properties, e.g. ``{"delta.enableTypeWidening": "true"}``.
        storage_options: Settings and credentials of the store.

    Raises:
        TableAlreadyExists: there is a table.
        InvalidOption: a name, a partition column or a property cannot be used.
        InvalidType: the text of the schema cannot be read.
        UnsupportedFeatureForWrite: a property asks for a feature that this version cannot obey.
        StorageError: the store refused.

    Source: PROTOCOL.md#change-metadata
    """
    store = LogStore(location, storage_options)
    now_ms = time.time_ns() // 1_000_000
    change = command.create(strip(to_schema(schema)), tuple(partition_by), dict(properties or {}), now_ms)
    return Table._of(commit(store, None, change.actions, change.operation, change.parameters).or_raise())


class Table:
    """A Delta table at one version: the newest when it was opened, and after each change made through it.

    Args:
        location: A local path or a URL of an object store.
        storage_options: Settings and credentials of the store.

    Raises:
        TableNotFound: there is no table.
        CorruptLog: its log is damaged.
        UnsupportedFeatureForRead: it needs a feature that this version does not know.
        StorageError: the store refused.
    """

    def __init__(self, location: str, storage_options: Mapping[str, str] | None = None) -> None:
        self._store = LogStore(location, storage_options)
        self._snapshot = open_snapshot(self._store)

    @classmethod
    def _of(cls, outcome: Committed) -> Table:
        table = cls.__new__(cls)
        table._store, table._snapshot = outcome.store, outcome.snapshot
        return table

    def __repr__(self) -> str:
        return f"Table({self.location!r}, version={self.version})"

    @property
    def location(self) -> str:
        """Where the table lies."""
        return self._store.location

    @property
    def store(self) -> LogStore:
        """The files of the table."""
        return self._store

    @property
    def snapshot(self) -> Snapshot:
        """The version of the table that this object shows."""
        return self._snapshot

    @property
    def version(self) -> int:
        """The number of the version."""
        return self._snapshot.version

    @property
    def schema(self) -> StructType:
        """The columns as readers see them; what only the log is concerned with is in `metadata`."""
        return surfaced(self._snapshot.schema)

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
        """The columns that the files are split by."""
        return tuple(self._snapshot.partition_columns)

    @property
    def type_changes(self) -> list[tuple[Path, TypeChange]]:
        """Every recorded change of type, with the full path of the column."""
        return list(all_type_changes(self._snapshot.schema))

    def history(self, limit: int | None = None) -> list[tuple[int, int, CommitInfo]]:
        """Return version, time in ms and provenance of the commits, newest first.

        Args:
            limit: How many at most.

        Raises:
            CorruptLog: a commit is damaged.
            StorageError: the store refused.
        """
        return self._snapshot.history(limit)

    def files(self) -> pa.Table:
        """Return the live files: a row for each, with the columns of `widen.log.listing.FILES`; in no order.

        Raises:
            CorruptLog: the log is damaged.
            StorageError: the store refused.
        """
        return self._snapshot.files()

    def refresh(self) -> Table:
        """Go to the newest version, and return the table.

        Raises:
            CorruptLog: the log is damaged.
            UnsupportedFeatureForRead: the table now needs a feature that this version does not know.
            StorageError: the store refused.
        """
        self._snapshot = open_snapshot(self._store)
        return self

    def read(
        self,
        spark: SparkSession,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        where: str | Column | None = None,
    ) -> DataFrame:
        """Return the rows as a DataFrame in the types of that version, columns in the order of the schema.

        Args:
            spark: The session, classic or Connect.
            version: Of the table; the one that this object shows if neither it nor a time is given.
            timestamp: The newest version not later than that; a text is ISO, in UTC unless it says otherwise.
            where: Which rows; a text in Spark SQL also skips files by partition values and statistics.

        Raises:
            VersionNotFound: there is no such version, or none so early.
            InvalidOption: both version and time are given, or the time cannot be read.
            UnsupportedTypeChange: the schema records a change that is not in the matrix.
            CorruptLog: the log is damaged.
            StorageError: the store refused.

        Source: PROTOCOL.md#reader-requirements-for-type-widening
        """
        snapshot = self._snapshot
        if version is not None or timestamp is not None:
            snapshot = open_snapshot(self._store, version, None if timestamp is None else _to_ms(timestamp))
        return read(spark, self._store, snapshot, where)

    def append(self, frame: DataFrame, *, merge_schema: bool = False) -> Table:
        """Add rows in one commit, and return the table at its new version.

        Columns are matched by name without case; what the data lack becomes null, what is narrower is cast.

        Args:
            frame: The rows.
            merge_schema: Whether the table gets new columns and, where type widening is enabled, wider types.

        Raises:
            SchemaMismatch: the data do not fit; the error names the columns and both types.
            FeatureRequired: a new type needs a feature that the table does not have.
            UnsupportedFeatureForWrite: the table has a feature that this version cannot obey.
            ContentionError: somebody changed the schema meanwhile; nothing is visible.
            CorruptFile: a file that the frame reads cannot be read.
            JobFailed: Spark could not finish the job; nothing is visible.
            StorageError: the store refused; nothing is visible.

        Source: PROTOCOL.md#add-file-and-remove-file
        """
        self.refresh()
        state = self._state
        ensure_writable(state.protocol, self.location)
        ensure_data_writable(state.protocol, state.properties, state.schema, self.location)
        widens = merge_schema and alter.is_enabled(state)
        operations = merge(state.schema, from_spark(frame.schema), adds=merge_schema, widens=widens)
        metadata = command.with_operations(state, operations) if operations else state.metadata
        adds = write(frame, self._store, state.protocol, metadata)
        actions: list[Action] = [*([metadata] if operations else []), *adds]
        parameters = {"mode": "Append", "partitionBy": list(self.partition_by)}
        outcome = commit(self._store, self._snapshot, actions, "WRITE", parameters, metrics=metrics(adds))
        if isinstance(outcome, Conflicted):
            discard(self._store, adds)
        return self._at(outcome)

    def alter_column(
        self,
        path: str | Path,
        *,
        type: DataType | str | None = None,
        comment: str | None = None,
        nullable: bool | None = None,
        first: bool = False,
        after: str | None = None,
    ) -> Table:
        """Change a column in one commit, and return the table at its new version; no file is rewritten.

        Args:
            path: The column, e.g. ``amount``, ``address.zip``, ``tags.element``, ``prices.value``.
            type: The wider type, e.g. ``"bigint"``; widening must be enabled.
            comment: The new comment.
            nullable: Whether it may be null; it can only be allowed.
            first: Whether it becomes the first of its struct.
            after: The column that it is to follow.

        Raises:
            ColumnNotFound: no such column.
            InvalidPath: the path cannot be read.
            InvalidType: the type cannot be read.
            NestedTypeChangeRefused: a struct, an array or a map would change as a whole.
            TypeChangeRefused: widening is not enabled, the pair is not in the matrix, or something depends on it.
            FeatureRequired: the new type needs a feature that the table does not have.
            InvalidOption: a comment, a nullability or a place that cannot be.
            ContentionError: somebody changed the schema or the properties meanwhile.
            StorageError: the store refused.

        Source: PROTOCOL.md#writer-requirements-for-type-widening
        """
        new = parse_type(type) if isinstance(type, str) else type
        wanted = alter.ColumnChange(new, comment, nullable, alter.FIRST if first else after)
        parts = parse_path(path) if isinstance(path, str) else tuple(path)
        return self._change(alter.alter_column(self.refresh()._state, parts, wanted))

    def add_columns(self, columns: Mapping[str, DataType | str]) -> Table:
        """Add columns or nested fields in one commit; rows written before have null in them.

        Args:
            columns: The type of each by its path, e.g. ``{"note": "string", "items.element.price": "decimal(10,2)"}``.

        Raises:
            InvalidOption: there is a column of that name, or the name cannot be used.
            InvalidPath: a path cannot be read.
            InvalidType: a type cannot be read.
            ColumnNotFound: the struct that a path names is not there.
            FeatureRequired: a type needs a feature that the table does not have.
            ContentionError: somebody changed the schema or the properties meanwhile.
            StorageError: the store refused.

        Source: PROTOCOL.md#change-metadata
        """
        types = {path: parse_type(one) if isinstance(one, str) else one for path, one in columns.items()}
        return self._change(command.add_columns(self.refresh()._state, types))

    def set_properties(self, properties: Mapping[str, str]) -> Table:
        """Set properties in one commit, with the table features that they ask for.

        Raises:
            InvalidOption: a value cannot be used.
            UnsupportedFeatureForWrite: a property asks for a feature that this version cannot obey.
            ContentionError: somebody changed the schema or the properties meanwhile.
            StorageError: the store refused.

        Source: PROTOCOL.md#table-features
        """
        return self._change(command.set_properties(self.refresh()._state, dict(properties)))

    def unset_properties(self, keys: Iterable[str]) -> Table:
        """Remove properties in one commit; the features that they asked for stay.

        Raises:
            InvalidOption: a property cannot be removed.
            ContentionError: somebody changed the schema or the properties meanwhile.
            StorageError: the store refused.
        """
        return self._change(command.unset_properties(self.refresh()._state, keys))

    def add_feature(self, name: str) -> Table:
        """Let the table support a feature, with what it requires, in one commit.

        Raises:
            InvalidOption: this version knows no such feature.
            UnsupportedFeatureForWrite: this version cannot obey it.
            ContentionError: somebody changed the schema or the properties meanwhile.
            StorageError: the store refused.

        Source: PROTOCOL.md#table-features
        """
        return self._change(command.add_feature(self.refresh()._state, name))

    @property
    def _state(self) -> command.State:
        return command.State(self.version, self.protocol, self.metadata)

    def _change(self, change: command.Change | None) -> Table:
        if change is None:
            return self
        return self._at(commit(self._store, self._snapshot, change.actions, change.operation, change.parameters))

    def _at(self, outcome: Outcome) -> Table:
        self._snapshot = outcome.or_raise().snapshot
        return self


def _to_ms(timestamp: datetime | str) -> int:
    moment = parse_timestamp(timestamp) if isinstance(timestamp, str) else timestamp
    if moment is None:
        raise InvalidOption(option="timestamp", value=timestamp, expected="Write 2024-01-31 12:00:00Z.")
    aware = moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
    return (aware - _EPOCH) // timedelta(milliseconds=1)


_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
