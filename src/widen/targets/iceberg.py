"""An Iceberg table as the target of an ingestion.

Source: docs/evolution-rules.md#d1
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import msgspec

from widen.batches.text_batch import Batch, BatchResult
from widen.batches.text_tasks import BatchWriteSpec
from widen.changes.deleted_keys import ICEBERG_FOLDER, ICEBERG_PROPERTY, KeyLists, iceberg_head
from widen.changes.iceberg_apply import remove_replaced_iceberg_rows
from widen.changes.iceberg_keys import IcebergFiles
from widen.changes.iceberg_write import ReplacedFiles, find_deleted, to_plain_adds
from widen.changes.key_columns import EXACT_ORDERS, KeyCondition
from widen.changes.overwrite import ReplacedRows
from widen.errors import IcebergTableNotFound, InvalidOption
from widen.evolution.key_rules import PROPERTY as KEYS
from widen.evolution.key_rules import find_places, match_recorded_keys, policy_of_keys
from widen.evolution.plan import Plan, PlannedReader, pending_columns, policy_properties
from widen.evolution.policy import FixedColumn, Mode, Policy, for_file_fields, match_names, read_names, with_time_fields
from widen.frames.iceberg_scan import IcebergSource, file_scan, read_iceberg_files
from widen.frames.table_writers import IcebergRows, IcebergWriter
from widen.iceberg import properties as names
from widen.iceberg.catalog import TableName, open_store
from widen.iceberg.file_metrics import IcebergFile, data_location
from widen.iceberg.metadata_files import ROW_IDS
from widen.iceberg.partitions import (
    PartitionField,
    are_in_calendar,
    partition_columns,
    read_partition_fields,
    resolve_partition_fields,
)
from widen.iceberg.properties import FORMAT_VERSION
from widen.iceberg.scan_plan import IcebergScan, added_by, plan_scan
from widen.iceberg.schema_conversion import (
    ensure_names_distinct,
    find_unreadable,
    from_model,
    to_readable,
    to_whole,
    with_iceberg_ids,
    without_unknown,
)
from widen.iceberg.snapshots import (
    ReadPoint,
    SnapshotReference,
    find_last_interval,
    find_read_point,
    find_sources,
    open_snapshot_loads,
    record_load,
    summary_of,
    write_events,
)
from widen.iceberg.table_commit import (
    IcebergTransaction,
    NewTable,
    ensure_can_be_null,
    ensure_table_writable,
    open_transaction,
)
from widen.log.commit_outcome import Conflicted, StagedFiles, discard_folder
from widen.log.load_segments import LoadedFiles
from widen.log.log_store import LogStore
from widen.model.column_path import Path, fields, find_field
from widen.model.types import StructType
from widen.model.value_classes import dataclass
from widen.proof.deletion_lists import DeletionListing
from widen.protocol.column_mapping import COLUMN_ID
from widen.protocol.column_metadata import DEFAULT
from widen.protocol.file_statistics import HIDDEN_FIELDS, split_paths
from widen.report.reader_predictions import TraitChange, warn_wrong_readers
from widen.report.stopped_field import StoppedField
from widen.schema.alter import apply_operation
from widen.schema.operations import AddColumn
from widen.schema.source_metadata import CORRUPT, TableFormat, role_field, with_sources
from widen.spark.engine import Rows, Session, is_local
from widen.spark.spark_types import Column, DataFrame, SparkSession
from widen.targets.delta_quarantine import SUFFIX
from widen.targets.iceberg_quarantine import IcebergQuarantine
from widen.targets.table_format import (
    NO_PARAMETERS,
    CommitResult,
    IngestTarget,
    KeyCounts,
    KeyedBatch,
    KeyedDraft,
    KeyedVersions,
    KeyRules,
    Load,
    LoadRecord,
    QuarantineWrite,
    RowReplacingDraft,
    TableLocation,
    TransactionId,
    verify_quarantine,
    verify_rows,
)
from widen.verification.key_reader import build_keyed_reasons
from widen.verification.records import Verification

if TYPE_CHECKING:
    from widen.changes.keyed_files import KeyedTable
    from widen.changes.keyed_load import LocalMerge
    from widen.iceberg.catalog import FileIO, Table
    from widen.iceberg.snapshots import Snapshot

NO_SNAPSHOT = 0
"""The version of a table that has no snapshot yet."""


@dataclass(frozen=True, slots=True)
class IcebergLocation(TableLocation):
    """The name of an Iceberg table in a catalog.

    Args:
        storage_options: Settings and credentials of the store of its files; by default the catalog's.
        branch: The branch that is written to; None for the main branch.
        format_version: The format version of a new table; None for the default.
    """

    name: TableName
    storage_options: Mapping[str, str] = field(default_factory=dict, hash=False)
    partition_by: tuple[PartitionField, ...] = ()
    branch: str | None = None
    format_version: int | None = None

    @property
    def location(self) -> str:
        return str(self.name)

    @property
    def format(self) -> str:
        return "iceberg"

    def folder(self) -> str | None:
        table = self.name.find()
        return None if table is None else table.location()

    def staging_stores(self, location: str | None = None) -> Sequence[LogStore]:
        table = self.name.find() if location is None else None
        properties = self.name.catalog.open().properties
        # The folder of a new table is known once it is created, which is the first commit.
        place = location or properties.get("warehouse", "")
        stores = [] if table is None else [self.store(table.location(), table.io)]
        if "/" in place:
            stores.append(open_store(place, properties, self.storage_options))
        if not stores:
            expected = "The table does not exist, and its catalog has no folder yet. Give one, or create the table."
            raise InvalidOption(option="stagingLocation", value=location, expected=expected)
        return stores

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
            if self.branch is not None:
                raise self.not_found()
            return IcebergTarget(self, None, None, for_file_fields(policy))
        ensure_table_writable(self.name, table)
        find_read_point(table.metadata, SnapshotReference(branch=self.branch))
        sources, lost_sources = find_sources(table.metadata, table.io, self.location)
        schema = without_unknown(table.schema(), sources)
        ensure_names_distinct(schema, self.location)
        partition_fields = read_partition_fields(table.metadata)
        ensure_can_be_null(table)
        self._ensure_partitions(partition_fields)
        self._ensure_format_version(table.format_version)
        # A column must not have the name of a partition field, also not of one of an older specification.
        reserved = frozenset(each.name for spec in table.specs().values() for each in spec.fields)
        policy = replace(
            policy,
            fixed_columns=_fixed_columns(schema, partition_fields),
            reserved_names=reserved,
            known_fields=frozenset(split_paths(table.properties.get(HIDDEN_FIELDS, ""))),
        )
        policy = match_names(read_names(policy, table.properties), schema)
        policy = for_file_fields(with_time_fields(policy, schema))
        return IcebergTarget(self, table, schema, policy, lost_sources=lost_sources)

    def not_found(self) -> IcebergTableNotFound:
        return self.name.not_found()

    def quarantine(self, location: str | None) -> IcebergQuarantine:
        # Records of a branch do not belong to other branches until the branch is published, if it ever is.
        if location is None and self.branch is not None:
            location = str(self.name.sibling(f"{SUFFIX}_{_NO_WORD.sub('_', self.branch)}"))
        return IcebergQuarantine.beside(self.name, location, self.storage_options)

    def store(self, location: str, io: FileIO) -> LogStore:
        """Return the store of the files of a table."""
        return open_store(location, io, self.storage_options)

    def _ensure_partitions(self, actual: tuple[PartitionField, ...]) -> None:
        if self.partition_by and [each.key for each in self.partition_by] != [each.key for each in actual]:
            text = ", ".join(map(str, actual)) or "nothing"
            expected = f"The table exists and is partitioned by {text}; an ingestion does not change that."
            raise InvalidOption(option="partition_by", value=", ".join(map(str, self.partition_by)), expected=expected)

    def _ensure_format_version(self, actual: int) -> None:
        if self.format_version not in (None, actual):
            expected = (
                f"The table exists and has format version {actual}; an ingestion does not change that. Raise it with "
                f"ALTER TABLE ... SET TBLPROPERTIES ('{FORMAT_VERSION}' = '...')."
            )
            raise InvalidOption(option="format_version", value=self.format_version, expected=expected)


def _fixed_columns(schema: StructType, partition_fields: tuple[PartitionField, ...]) -> dict[Path, FixedColumn]:
    """Return the columns that ingestion must not reroute: partition columns and required columns."""
    columns = partition_columns(partition_fields)
    for path, column in fields(schema):
        if not column.nullable:
            partition = columns.get(path)
            reason = f"{partition.reason} and NOT NULL" if partition else "NOT NULL"
            columns[path] = FixedColumn(path[-1], reason, is_required=True, is_filled=DEFAULT in column.metadata)
    return columns


@dataclass(frozen=True, slots=True)
class IcebergTarget(IngestTarget):
    """One version of an Iceberg table.

    Args:
        table: The version; None if the table does not exist yet.
        keys: The rules of an ingestion by key; None for one that only adds rows.
    """

    place: IcebergLocation
    table: Table | None
    schema: StructType | None = field()
    policy: Policy = field()
    keys: KeyRules | None = None
    lost_sources: str = ""

    @property
    def location(self) -> str:
        return self.place.location

    @property
    def version(self) -> int | None:
        """The id of the newest snapshot; `NO_SNAPSHOT` without snapshots, None if the table does not exist yet."""
        if self.table is None:
            return None
        snapshot = self.snapshot
        return NO_SNAPSHOT if snapshot is None else snapshot.snapshot_id

    @property
    def snapshot(self) -> Snapshot | None:
        """The newest snapshot of the branch; None without snapshots."""
        if self.table is None:
            return None
        return find_read_point(self.table.metadata, SnapshotReference(branch=self.place.branch)).snapshot

    def with_file_fields(self, names: frozenset[str]) -> IcebergTarget:
        return replace(self, policy=for_file_fields(replace(self.policy, file_fields=names)))

    def dropped_columns(self) -> Mapping[Path, str]:
        schemas = {} if self.table is None else self.table.schemas()
        dropped: dict[Path, str] = {}
        for before, after in pairwise(sorted(schemas)):
            kept = set(schemas[after].field_ids)
            if kept.issuperset(schemas[before].field_ids):
                continue
            columns = fields(to_readable(schemas[before]))
            gone = [path for path, column in columns if column.metadata.get(COLUMN_ID) not in kept]
            dropped |= dict.fromkeys(gone, f"schema {after}")
        return dropped

    def turns_on_widening(self, plan: Plan) -> bool:
        return False

    def with_widening(self) -> None:
        """Return None: in Iceberg every table can widen types."""

    def draft(self, plan: Plan) -> IcebergDraft:
        """Return the table as a plan changes it. Nothing is opened before the draft is written to."""
        return IcebergDraft(self, plan)

    def trait_change(self, plan: Plan) -> TraitChange:
        from widen.report.iceberg_traits import planned_iceberg_traits

        schema = None if plan.is_empty or plan.refused else plan.schema
        return planned_iceberg_traits(self.table, self.snapshot, schema, self.place.format_version or 0)

    def has_interval(self, interval: TransactionId) -> bool:
        last = self.last_interval(interval.app_id)
        return last is not None and last.number >= interval.number

    def last_interval(self, app_id: str) -> TransactionId | None:
        number = None if self.table is None else find_last_interval(self.table, app_id, self.place.branch)
        return None if number is None else TransactionId(app_id, number)

    def loaded_files(self, *, is_required: bool = False) -> LoadedFiles:
        """Return which source files the table has loaded; Iceberg tables do not forget them."""
        table = self.table
        if table is None:
            return LoadedFiles()
        return open_snapshot_loads(table, self.place.store(table.location(), table.io), self.snapshot)

    @property
    def key_rules(self) -> KeyRules | None:
        text = None if self.table is None else self.table.properties.get(KEYS)
        return None if text is None else KeyRules.from_property(text)

    def with_keys(self, rules: KeyRules | None) -> IcebergTarget:
        if rules is not None and self.place.branch is not None:
            raise InvalidOption(option="branch", value=self.place.branch, expected=_NO_KEYS_IN_BRANCH)
        rules = match_recorded_keys(rules, self.key_rules, self.schema, in_any_case=self.policy.matches_any_case)
        if rules is not None and self.table is not None:
            find_unreadable(self.table.schema()).ensure_kept()
        return replace(self, keys=rules, policy=policy_of_keys(self.policy, rules))

    def deleted_keys(self, store: LogStore) -> KeyLists:
        """Return the keys that were deleted until this version."""
        head = 0 if self.table is None else iceberg_head(self.table.properties, self.location)
        every = self.keys is not None and self.keys.history
        return KeyLists(store, head, ICEBERG_FOLDER, every=every)

    def interval_parameters(self, interval: TransactionId) -> Mapping[str, Any] | None:
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
        if self.keys is not None:
            return self._verify_keys(self.keys, batch, version, quarantine, share)
        rows = _read_rows(self.place, version)
        # Which values a partition takes depends on its transform, which the proof does not know.
        judges = quarantine is None or not read_partition_fields(self.place.name.load().metadata)
        return verify_rows(rows, self.policy, batch, result, quarantine, share, judges=judges)

    def find_stopped(self, version: int) -> list[StoppedField]:
        from widen.report.iceberg_report import find_just_stopped_in_iceberg

        table = self.place.name.load()
        snapshot = table.metadata.snapshot_by_id(version)
        return [] if snapshot is None else find_just_stopped_in_iceberg(table, self.location, snapshot)

    def _verify_keys(
        self, rules: KeyRules, batch: Batch, version: int, quarantine: QuarantineWrite | None, share: float
    ) -> Verification:
        from widen.verification.keyed_proof import TableVersions, VersionFiles

        # A commit is made on the version that this target has read, or it is planned again.
        table, spark = self.place.name.load(), batch.spark
        after = find_read_point(table.metadata, SnapshotReference(version))
        schema = without_unknown(after.schema, names.read_sources(table.properties, self.location))
        store = self.place.store(table.location(), table.io)
        old = {} if self.table is None else self.table.properties
        find_list = DeletionListing.of_iceberg if rules.sequence_by else lambda *_: None
        lists = (find_list(store, old), find_list(store, table.properties))

        def scan_of(snapshot: Snapshot) -> tuple[IcebergSource, IcebergScan]:
            point = replace(after, snapshot=snapshot)
            return IcebergSource(lambda: spark, table.io, point), plan_scan(point, table.io)

        def rows_at(snapshot: Snapshot) -> DataFrame:
            source, scan = scan_of(snapshot)
            return read_iceberg_files(source, schema, scan)

        def files_at(snapshot: Snapshot) -> VersionFiles:
            source, scan = scan_of(snapshot)
            gone = find_deleted(source, scan)
            adds = to_plain_adds(source, scan, schema)
            return VersionFiles(adds, lambda columns: file_scan(source, columns, gone), lambda add: gone.get(add.path))

        before, newest = self.snapshot, after.snapshot
        assert newest is not None

        def open_files() -> TableVersions:
            return TableVersions(None if before is None else files_at(before), files_at(newest))

        def open_rows(_: SparkSession) -> tuple[DataFrame | None, DataFrame]:
            return None if before is None else rows_at(before), rows_at(newest)

        found = KeyedVersions(rules, schema, self.policy, lists, open_files, open_rows).verify(batch, quarantine, share)
        if read_partition_fields(table.metadata):  # as in `verify`
            return found
        return verify_quarantine(found, batch, quarantine, build_keyed_reasons(rules, schema, self.policy))


def _read_rows(place: IcebergLocation, version: int) -> IcebergRows:
    """Return the rows that a snapshot added."""
    table = place.name.load()
    # Files have the names of their own snapshot; others may have renamed or replaced a column since.
    point = find_read_point(table.metadata, SnapshotReference(version))
    schema = without_unknown(point.schema, names.read_sources(table.properties, place.location))
    root = data_location(table.metadata)
    snapshot = point.snapshot
    files = added_by(table.metadata, table.io, snapshot) if snapshot else ()
    below = frozenset(file.path.removeprefix(f"{root}/") for file in files)
    return IcebergRows(place.store(root, table.io), schema, below)


_NO_KEYS_IN_BRANCH = "An ingestion by key writes to the main branch only: the table has one list of deleted keys."
_NO_WORD = re.compile(r"\W")


@dataclass(slots=True)
class IcebergDraft(RowReplacingDraft, KeyedDraft):
    """An Iceberg table as a plan changes it."""

    target: IcebergTarget
    plan: Plan
    replaced: ReplacedRows | None = None
    _keyed: tuple[ReplacedFiles, int, KeyCounts] | None = field(default=None, init=False)
    _transaction: IcebergTransaction | None = field(default=None, init=False)
    _schema: StructType | None = field(default=None, init=False)

    def with_replaced_rows(self, rows: ReplacedRows) -> IcebergDraft:
        """Return the draft, whose commit now also removes rows; its files have the field ids of its transaction."""
        if self.target.table is not None:
            find_unreadable(self.target.table.schema()).ensure_kept()
        self.replaced = rows
        return self

    @property
    def wrong_readers(self) -> tuple[PlannedReader, ...]:
        from widen.report.iceberg_traits import iceberg_readers_made_wrong

        return () if self.target.table is None else iceberg_readers_made_wrong(self.target.table, self.plan.schema)

    @property
    def partition_by(self) -> tuple[PartitionField, ...]:
        """The partition fields of a new table."""
        return resolve_partition_fields(self.target.place.partition_by, self.plan.schema)

    def check(self) -> None:
        if self.target.table is None:
            _ = self.partition_by

    @property
    def transaction(self) -> IcebergTransaction:
        """The open transaction with the changes of the columns."""
        if self._transaction is None:
            target, schema = self.target, self.plan.schema
            version = target.place.format_version
            properties = {} if version is None else {FORMAT_VERSION: str(version)}
            for each in self._pending_columns(self.plan) if target.table is None else ():
                schema = apply_operation(schema, each)
            new_table = NewTable(schema, self.partition_by, properties) if target.table is None else None
            name, branch = target.place.name, target.place.branch
            self._transaction = open_transaction(name, target.table, self.plan.operations, new_table, branch)
        return self._transaction

    def _pending_columns(self, plan: Plan) -> list[AddColumn]:
        """Return columns of the type unknown for the fields that have only been null.

        Source: docs/evolution-rules.md#d7
        """
        policy, transaction = self.target.policy, self._transaction
        version = self.target.place.format_version if transaction is None else transaction.metadata.format_version
        if (version or 0) < ROW_IDS or policy.mode not in (Mode.WIDEN, Mode.SPLIT):
            return []
        known = plan.schema if transaction is None else to_whole(transaction.schema)
        return pending_columns(plan, known, policy)

    @property
    def schema(self) -> StructType:
        """The columns with their field ids and source fields."""
        if self._schema is None:
            numbered = with_iceberg_ids(self.plan.schema, self.transaction.schema)
            self._schema = with_sources(numbered, self.plan.schema)
        return self._schema

    @property
    def writer(self) -> IcebergWriter:
        """Writes files under the draft."""
        transaction = self.transaction
        metadata = transaction.metadata
        store = self.target.place.store(data_location(metadata), transaction.table.io)
        # Only the plan of the whole batch says which fields it has: files are written as if it had all.
        hidden = policy_properties(self.target.policy, self.plan, metadata.properties)
        properties = {**metadata.properties, **hidden}
        in_tasks, order = self._writes_in_tasks, transaction.sort_keys
        partition_by = transaction.partition_fields
        keys = self.target.keys
        fills = keys is None or not keys.keeps_missing
        writer = IcebergWriter(store, self.schema, partition_by, properties, sort_by=order, in_tasks=in_tasks)
        return replace(writer, fills_defaults=fills)

    @property
    def _writes_in_tasks(self) -> bool:
        """Whether only tasks know which records delete."""
        return self.target.keys is not None and bool(self.target.keys.excluded)

    def write_files(
        self, batch: Batch, spec: BatchWriteSpec, rule: Column | None = None, condition: KeyCondition | None = None
    ) -> BatchResult:
        try:
            self.check()
        except InvalidOption:  # the next pass may know the column, or its type
            return BatchResult([], batch.observe(spec))
        writer = replace(self.writer, rule=rule, condition=condition)
        result = batch.write(spec, writer)
        if not are_in_calendar((file.partition for file in _files(result)), self.transaction.metadata):
            self.discard(result)
            writer = replace(writer, keeps_calendar=True)
            result = batch.write(spec, writer)
        rows = writer.count_rows(_files(result))
        return replace(result, is_complete=rows == result.seen.records + result.seen.corrupt)

    def find_broken(self, batch: Batch, spec: BatchWriteSpec, *, by_rules: bool = True) -> Rows | None:
        try:
            self.check()
        except InvalidOption:  # the partition columns of a new table are not known yet
            return None
        keys = self.target.keys
        if self.target.table is not None:
            schema, writer = self.schema, self.writer
        elif keys is None:
            return None
        else:  # nothing is written, so a plan needs no namespace for the table
            planned = self.plan.schema
            schema = with_sources(with_iceberg_ids(planned, from_model(planned)), planned)
            writer = IcebergWriter(LogStore(os.devnull), schema, ())
        rule, condition = self.plan_rule(batch, schema)
        keeps_calendar = bool(writer.partition_by) and not (is_local(batch.spark) or self._writes_in_tasks)
        writer = replace(writer, rule=rule, condition=condition, keeps_calendar=keeps_calendar)
        return batch.find_broken(spec, writer, by_rules=by_rules)

    @property
    def is_keyed(self) -> bool:
        return self.target.keys is not None

    def has_every_key(self, result: BatchResult) -> bool:
        rules, ids, schema = self.target.keys, [], self.schema
        assert rules is not None
        for path in rules.fields:
            columns = find_places(schema, path)
            field = find_field(schema, columns[0][1]) if len(columns) == 1 else None
            if field is None or (path in rules.sequence_by and field.type not in EXACT_ORDERS):
                return False
            ids.append(field.metadata[COLUMN_ID])
        known = [file.metrics.columns.get(number) for file in _files(result) for number in ids]
        return all(each is not None and each.nulls == 0 for each in known)

    def open_keyed_table(self, spark: Session) -> IcebergFiles:
        target, metadata, writer = self.target, self.transaction.metadata, self.writer
        io = self.transaction.table.io if target.table is None else target.table.io
        source = IcebergSource(lambda: spark, io, ReadPoint(metadata, target.snapshot))
        old = None if target.table is None else target.schema or StructType()
        lists = target.deleted_keys(target.place.store(metadata.location, self.transaction.table.io))
        return IcebergFiles(source, old, writer, data_location(metadata), lists)

    @property
    def key_rules(self) -> KeyRules | None:
        return self.target.keys

    def apply_merge(
        self, spark: Session, table: KeyedTable, result: BatchResult, merge: LocalMerge | None, staged: StagedFiles
    ) -> KeyedBatch:
        files = _files(result)
        number = int(getattr(self.transaction.metadata, "last_sequence_number", 0)) + 1  # version 1 lacks it
        if merge is None:
            self._keyed = ReplacedFiles(), table.lists.add(None, number, staged, spark), KeyCounts()
            return KeyedBatch(self, result, KeyCounts())
        added, removed = cast(IcebergFiles, table).apply(merge, files, staged)
        head = table.lists.add(merge.deleted, number, staged, spark)
        left = {file.path for file in added}
        for job in {file.path.partition("/")[0] for file in files if file.path not in left}:
            discard_folder(table.store, job, but=left)
        self._keyed = removed, head, merge.counts
        return KeyedBatch(self, replace(result, files=added), merge.counts)

    def discard(self, result: BatchResult) -> None:
        if result.files:
            self.writer.discard(_files(result))

    def commit(
        self,
        plan: Plan,
        result: BatchResult,
        *,
        staged: StagedFiles,
        interval: TransactionId | None = None,
        parameters: Mapping[str, object] = NO_PARAMETERS,
        loaded: LoadRecord | None = None,
    ) -> CommitResult:
        transaction, marks = self.transaction, {}
        transaction.change_columns(self._pending_columns(plan))
        summary = self._summary(plan, result)
        if names.is_cut(summary):
            summary |= write_events(self._own_store, plan.logged_events(), staged)
        if interval is not None:
            marks = names.stream_mark(interval.app_id, interval.number, transaction.branch)
            summary |= {names.APP_ID: interval.app_id, names.INTERVAL: str(interval.number)}
        if transaction.branch is not None:
            summary[names.BRANCH] = transaction.branch
        if parameters:
            summary[names.PARAMETERS] = msgspec.json.encode(dict(parameters)).decode()
        if self._keyed is not None:
            rewrite, head, counts = self._keyed
            assert self.target.keys is not None
            marks |= {ICEBERG_PROPERTY: str(head), KEYS: self.target.keys.to_property()}
            summary[names.KEYED] = msgspec.json.encode(counts.to_value()).decode()
        else:
            rewrite = self._remove_rows(staged)
        transaction.add_snapshot([*_files(result), *rewrite.written], summary, rewrite.removed, vectors=rewrite.vectors)
        if loaded is not None:
            marks |= self._record(loaded.load, staged)
        hidden = policy_properties(self.target.policy, plan, transaction.metadata.properties)
        transaction.set_properties({names.SOURCES: names.encode_sources(self.schema), **marks, **hidden})
        committed = transaction.commit(staged)
        if not isinstance(committed, Conflicted):
            warn_wrong_readers(self.target.location, plan.readers)
        return committed

    def _remove_rows(self, staged: StagedFiles) -> ReplacedFiles:
        table = self.target.table
        if self.replaced is None or table is None:
            return ReplacedFiles()
        point, writer = ReadPoint(self.transaction.metadata, self.target.snapshot), self.writer
        return remove_replaced_iceberg_rows(self.replaced, table.io, point, self.schema, writer, staged)

    def _record(self, load: Load, staged: StagedFiles) -> dict[str, str]:
        """Write the record of a load, and return the table property that names it."""
        transaction, before = self.transaction, self.target.table
        snapshot = transaction.metadata.snapshot_by_id(transaction.snapshot_id or 0)
        assert snapshot is not None
        return record_load(before, snapshot, self._own_store, load, staged)

    @property
    def _own_store(self) -> LogStore:
        """The store below the location of the table, which has what Widen records beside the metadata."""
        transaction = self.transaction
        return self.target.place.store(transaction.metadata.location, transaction.table.io)

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
            corrupt_reason=seen.corrupt_reason,
            rounded=plan.rounded_values,
        )


def _files(result: BatchResult) -> list[IcebergFile]:
    """Return the files of a batch, which `IcebergWriter` has written."""
    return [file for file in result.files if isinstance(file, IcebergFile)]
