"""An Iceberg table as the target of an ingestion.

Source: docs/evolution-rules.md#d1
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from widen.errors import IcebergTableNotFound, InvalidOption
from widen.formats.iceberg_quarantine import IcebergQuarantine
from widen.formats.table_format import (
    NO_PARAMETERS,
    CommitResult,
    IngestTarget,
    Load,
    LoadRecord,
    QuarantineWrite,
    ReplacedRows,
    RowReplacingDraft,
    StreamInterval,
    TableLocation,
    verify_rows,
)
from widen.iceberg import properties as names
from widen.iceberg.catalog import TableName
from widen.iceberg.commit import IcebergTransaction, NewTable, ensure_writable, open_transaction
from widen.iceberg.data_file import IcebergFile, data_location
from widen.iceberg.loads import read_loads, record_load
from widen.iceberg.partition_limits import are_in_calendar
from widen.iceberg.partitions import (
    PartitionField,
    partition_columns,
    read_partition_fields,
    resolve_partition_fields,
)
from widen.iceberg.scan_plan import added_by
from widen.iceberg.schema_conversion import ensure_names_distinct, to_model, with_field_ids
from widen.iceberg.snapshot_history import summary_of
from widen.iceberg.snapshots import ReadPoint, SnapshotReference, find_read_point
from widen.iceberg.storage_options import open_store
from widen.log.store.log_store import LogStore
from widen.log.write.staged_files import StagedFiles
from widen.model.column_path import Path, fields
from widen.model.types import StructType
from widen.planning.evolution.file_fields import for_file_fields
from widen.planning.evolution.format_capability import TableFormat
from widen.planning.evolution.plan import Plan
from widen.planning.evolution.policy import FixedColumn, Policy
from widen.planning.evolution.policy_field_rules import privacy_properties, with_time_fields
from widen.planning.evolution.source_metadata import CORRUPT, role_field, with_sources
from widen.protocol.skipping.file_statistics import HIDDEN_FIELDS, split_paths
from widen.spark.iceberg.replaced_rows import RemovedRows, remove_replaced_rows
from widen.spark.ingest.batch import Batch
from widen.spark.ingest.iceberg_files import IcebergRows, IcebergWriter
from widen.spark.text.quarantined_rows import BatchResult
from widen.spark.text.text_tasks import BatchWriteSpec
from widen.spark.text.verification import Verification

if TYPE_CHECKING:
    from widen.iceberg.catalog import Table

NO_SNAPSHOT = 0
"""The version of a table that has no snapshot yet."""


@dataclass(frozen=True, slots=True)
class IcebergLocation(TableLocation):
    """The name of an Iceberg table in a catalog.

    Args:
        storage_options: Settings and credentials of the store of its files; by default those of the catalog.
    """

    name: TableName
    storage_options: Mapping[str, str] = field(default_factory=dict, hash=False)
    partition_by: tuple[PartitionField, ...] = ()

    @property
    def location(self) -> str:
        return str(self.name)

    @property
    def keeps_types(self) -> bool:
        return False

    def add_features(self, names: Collection[str]) -> None:
        """Do nothing: the format has no features."""

    def resolve(self, location: str) -> str:
        """Return the name of another table, which is a name in the same catalog."""
        return location

    def open(self, policy: Policy) -> IcebergTarget:
        table = self.name.find()
        policy = replace(policy, table_format=TableFormat.ICEBERG_V2)
        if table is None:
            return IcebergTarget(self, None, None, for_file_fields(policy))
        ensure_writable(self.name, table)
        sources = names.read_sources(table.properties, self.location)
        schema = to_model(table.schema(), sources)
        ensure_names_distinct(schema, self.location)
        partition_fields = read_partition_fields(table.metadata)
        self._ensure_partitions(partition_fields)
        # A column must not have the name of a partition field, also not of one of an older specification.
        reserved = frozenset(each.name for spec in table.specs().values() for each in spec.fields)
        policy = replace(
            policy,
            fixed_columns=_fixed_columns(schema, partition_fields),
            reserved_names=reserved,
            known_fields=frozenset(split_paths(table.properties.get(HIDDEN_FIELDS, ""))),
        )
        return IcebergTarget(self, table, schema, for_file_fields(with_time_fields(policy, schema)))

    def not_found(self) -> IcebergTableNotFound:
        return self.name.not_found()

    def quarantine(self, location: str | None) -> IcebergQuarantine:
        return IcebergQuarantine.beside(self.name, location, self.storage_options)

    def store(self, location: str, properties: Mapping[str, str]) -> LogStore:
        """Return the store of the files of a table.

        Raises:
            InvalidOption: its scheme is not supported.
        """
        return open_store(location, properties, self.storage_options)

    def _ensure_partitions(self, actual: tuple[PartitionField, ...]) -> None:
        if self.partition_by and [each.key for each in self.partition_by] != [each.key for each in actual]:
            text = ", ".join(map(str, actual)) or "nothing"
            expected = f"The table exists and is partitioned by {text}; an ingestion does not change that."
            raise InvalidOption(option="partition_by", value=", ".join(map(str, self.partition_by)), expected=expected)


def _fixed_columns(schema: StructType, partition_fields: tuple[PartitionField, ...]) -> dict[Path, FixedColumn]:
    """Return the columns that ingestion must not reroute: those of partitions, and required ones."""
    columns = partition_columns(partition_fields)
    for path, column in fields(schema):
        if not column.nullable:
            partition = columns.get(path)
            reason = f"{partition.reason} and NOT NULL" if partition else "NOT NULL"
            columns[path] = FixedColumn(path[-1], reason, is_required=True)
    return columns


@dataclass(frozen=True, slots=True)
class IcebergTarget(IngestTarget):
    """One version of an Iceberg table.

    Args:
        table: The version; None if the table does not exist yet.
    """

    place: IcebergLocation
    table: Table | None
    schema: StructType | None = field()
    policy: Policy = field()

    @property
    def location(self) -> str:
        return self.place.location

    @property
    def version(self) -> int | None:
        """The id of the newest snapshot; `NO_SNAPSHOT` if there is none, None if the table does not exist yet."""
        if self.table is None:
            return None
        snapshot = self.table.current_snapshot()
        return NO_SNAPSHOT if snapshot is None else snapshot.snapshot_id

    def with_file_fields(self, names: frozenset[str]) -> IcebergTarget:
        return replace(self, policy=for_file_fields(replace(self.policy, file_fields=names)))

    def draft(self, plan: Plan) -> IcebergDraft:
        """Return the table as a plan changes it. Nothing is opened before the draft is written to."""
        return IcebergDraft(self, plan)

    def has_interval(self, interval: StreamInterval) -> bool:
        last = self.last_interval(interval.app_id)
        return last is not None and last.number >= interval.number

    def last_interval(self, app_id: str) -> StreamInterval | None:
        number = None if self.table is None else names.last_interval(self.table.properties, app_id)
        return None if number is None else StreamInterval(app_id, number)

    def loads(self, *, is_required: bool = False) -> tuple[Load, ...]:
        """Return which source files the table has loaded, oldest load first; Iceberg tables do not forget them.

        Raises:
            CorruptMetadata: the record of loads is missing or damaged.
        """
        table = self.table
        if table is None:
            return ()
        return read_loads(table, self.place.store(table.location(), table.io.properties))

    def interval_parameters(self, interval: StreamInterval) -> Mapping[str, Any] | None:
        """Return the parameters in the summary of the snapshot of an interval; None if it has expired."""
        wanted = {names.APP_ID: interval.app_id, names.INTERVAL: str(interval.number)}
        for snapshot in reversed(self.table.snapshots() if self.table else []):
            summary = summary_of(snapshot)
            if all(summary.get(key) == value for key, value in wanted.items()):
                return msgspec.json.decode(summary.get(names.PARAMETERS, "{}"))  # type: ignore[no-any-return]
        return None

    def verify(
        self, batch: Batch, result: BatchResult, version: int, quarantine: QuarantineWrite | None, share: float
    ) -> Verification:
        # The snapshot is read from the catalog, so that the comparison also covers what the commit says.
        rows = _read_rows(self.place, version)
        return verify_rows(rows, self.policy, batch, result, quarantine, share)


def _read_rows(place: IcebergLocation, version: int) -> IcebergRows:
    """Return the rows that a snapshot added."""
    table = place.name.load()
    # Files have the names of their own snapshot; others may have renamed or replaced a column since.
    point = find_read_point(table.metadata, SnapshotReference(version))
    schema = to_model(point.schema, names.read_sources(table.properties, place.location))
    root = data_location(table.metadata)
    snapshot = point.snapshot
    files = added_by(table.metadata, table.io, snapshot) if snapshot else ()
    below = frozenset(file.path.removeprefix(f"{root}/") for file in files)
    return IcebergRows(place.store(root, table.io.properties), schema, below)


@dataclass(slots=True)
class IcebergDraft(RowReplacingDraft):
    """An Iceberg table as a plan changes it."""

    target: IcebergTarget
    plan: Plan
    replaced: ReplacedRows | None = None
    _transaction: IcebergTransaction | None = field(default=None, init=False)

    def with_replaced_rows(self, rows: ReplacedRows) -> IcebergDraft:
        """Return the draft, whose commit now also removes rows; its files have the field ids of its transaction."""
        self.replaced = rows
        return self

    @property
    def partition_by(self) -> tuple[PartitionField, ...]:
        """The partition fields of a new table.

        Raises:
            InvalidOption: the table would not have such a column, or its type cannot be transformed.
        """
        return resolve_partition_fields(self.target.place.partition_by, self.plan.schema)

    def check(self) -> None:
        if self.target.table is None:
            _ = self.partition_by

    @property
    def transaction(self) -> IcebergTransaction:
        """The open transaction with the changes of the columns.

        Raises:
            RequestError: the table does not allow a change.
        """
        if self._transaction is None:
            target, schema = self.target, self.plan.schema
            new_table = NewTable(schema, self.partition_by) if target.table is None else None
            self._transaction = open_transaction(target.place.name, target.table, self.plan.operations, new_table)
        return self._transaction

    @property
    def schema(self) -> StructType:
        """The columns with their field ids and source fields."""
        return with_sources(with_field_ids(self.plan.schema, self.transaction.schema), self.plan.schema)

    @property
    def writer(self) -> IcebergWriter:
        """Writes files under the draft."""
        transaction = self.transaction
        metadata = transaction.metadata
        store = self.target.place.store(data_location(metadata), transaction.table.io.properties)
        # Only the plan of the whole batch says which fields it has: files are written as if it had all.
        hidden = privacy_properties(self.target.policy, self.plan, metadata.properties)
        properties = {**metadata.properties, **hidden}
        return IcebergWriter(store, self.schema, transaction.partition_fields, properties)

    def write(self, batch: Batch, spec: BatchWriteSpec) -> BatchResult:
        try:
            self.check()
        except InvalidOption:  # the next pass may know the column, or its type
            return BatchResult([], batch.observe(spec))
        writer = self.writer
        result = batch.write(spec, writer)
        if not are_in_calendar((file.partition for file in _files(result)), self.transaction.metadata):
            self.discard(result)
            writer = replace(writer, keeps_calendar=True)
            result = batch.write(spec, writer)
        rows = writer.count_rows(_files(result))
        return replace(result, is_complete=rows == result.seen.records + result.seen.corrupt)

    def discard(self, result: BatchResult) -> None:
        if result.files:
            self.writer.discard(_files(result))

    def commit(
        self,
        plan: Plan,
        result: BatchResult,
        *,
        staged: StagedFiles,
        interval: StreamInterval | None = None,
        parameters: Mapping[str, object] = NO_PARAMETERS,
        loaded: LoadRecord | None = None,
    ) -> CommitResult:
        transaction, marks = self.transaction, {}
        summary = self._summary(plan, result)
        if interval is not None:
            marks = names.stream_mark(interval.app_id, interval.number)
            summary |= {names.APP_ID: interval.app_id, names.INTERVAL: str(interval.number)}
        if parameters:
            summary[names.PARAMETERS] = msgspec.json.encode(dict(parameters)).decode()
        rewrite = self._remove_rows(staged)
        transaction.add_snapshot([*_files(result), *rewrite.written], summary, rewrite.removed)
        if loaded is not None:
            marks |= self._record(loaded.load, staged)
        hidden = privacy_properties(self.target.policy, plan, transaction.metadata.properties)
        transaction.set_properties({names.SOURCES: names.encode_sources(self.schema), **marks, **hidden})
        return transaction.commit(staged)

    def _remove_rows(self, staged: StagedFiles) -> RemovedRows:
        table = self.target.table
        if self.replaced is None or table is None:
            return RemovedRows()
        point, writer = ReadPoint(self.transaction.metadata, table.current_snapshot()), self.writer
        rewrite = remove_replaced_rows(self.replaced, table.io, point, self.schema, writer)
        staged.add_undo(partial(writer.discard, rewrite.written))
        return rewrite

    def _record(self, load: Load, staged: StagedFiles) -> dict[str, str]:
        """Write the record of a load, and return the table property that names it."""
        transaction, before = self.transaction, self.target.table
        snapshot = transaction.metadata.snapshot_by_id(transaction.snapshot_id or 0)
        assert snapshot is not None
        store = self.target.place.store(transaction.metadata.location, transaction.table.io.properties)
        return record_load(before, snapshot, store, load, staged)

    def _summary(self, plan: Plan, result: BatchResult) -> dict[str, str]:
        seen, mode = result.seen, self.target.policy.mode.value
        corrupt = seen.corrupt if role_field(plan.schema, CORRUPT) else 0
        return names.report_summary(
            mode,
            plan.hash,
            plan.logged_events(),
            records=seen.records,
            quarantined=seen.quarantined,
            corrupt=corrupt,
            rounded=plan.rounded_values,
        )


def _files(result: BatchResult) -> list[IcebergFile]:
    """Return the files of a batch, which `IcebergWriter` has written."""
    return [file for file in result.files if isinstance(file, IcebergFile)]
