"""A Delta table as the target of an ingestion.

Source: docs/evolution-rules.md#d1; PROTOCOL.md#transaction-identifiers
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

import msgspec

from widen.batches.text_batch import Batch, BatchResult
from widen.batches.text_tasks import BatchWriteSpec
from widen.errors import FeatureRequired, InvalidOption, InvalidPath, TableNotFound, UnsupportedColumnType
from widen.evolution.key_rules import PROPERTY as KEYS
from widen.evolution.key_rules import match_recorded_keys, policy_of_keys
from widen.evolution.plan import (
    BAD_FILES,
    CORRUPT_REASON,
    CORRUPT_TEXTS,
    QUARANTINED,
    ROUNDED,
    Plan,
    PlannedReader,
    policy_properties,
)
from widen.evolution.policy import Mode, Policy, for_file_fields, match_names, read_names, with_time_fields
from widen.files.data_reader import plan_local_scan
from widen.frames.scan import read_snapshot
from widen.frames.table_writers import DeltaRows, DeltaWriter
from widen.json.observation import Observation
from widen.log.commit import MAX_ATTEMPTS, Conflicted, Outcome, StagedFiles, commit, write_metrics
from widen.log.commit_files import current_ms
from widen.log.commit_outcome import discard, discard_folder
from widen.log.conflict import ReadSet
from widen.log.file_list import concat_files, from_adds, to_adds
from widen.log.load_segments import LoadedFiles
from widen.log.loads import APP_ID as LOADS_APP_ID
from widen.log.loads import commit_with_loads, find_head, open_loads
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot, new_snapshot, open_snapshot, select_files
from widen.model.column_path import Path, format_path, leaves, parse_path
from widen.model.schema_json import from_json, has_metadata_as_text
from widen.model.transaction_id import DELETED_KEYS_APP_ID
from widen.model.types import VARIANT, StructType
from widen.model.value_classes import dataclass
from widen.protocol.actions import Action, Add, Metadata, Protocol, Txn
from widen.protocol.column_metadata import find_identity
from widen.protocol.data_skipping import UnknownPredicate
from widen.protocol.file_statistics import HIDDEN_FIELDS, NO_STATS, count_written_rows, split_paths
from widen.protocol.table_configuration import TableConfiguration
from widen.protocol.table_features import ensure_writable, missing_type_features, supported_features
from widen.protocol.table_properties import (
    ENABLE_TYPE_WIDENING,
    TYPE_WIDENING_INTENT,
    WHEN_NEEDED,
    is_on,
    widens_when_needed,
)
from widen.report.delta_traits import planned_traits, readers_made_wrong
from widen.report.reader_predictions import TraitChange, warn_wrong_readers
from widen.report.stopped_field import StoppedField
from widen.schema.alter import DROP_COLUMNS, protocol_with, with_operations
from widen.schema.checks import table_format_of
from widen.schema.feature_removal import warn_readers
from widen.schema.growth import ensure_types_unreferenced
from widen.schema.operations import is_type_change
from widen.schema.source_metadata import CORRUPT, has_sources, restore_sources, role_field, with_sources
from widen.schema.table_definition import advance_identities, plan_add_feature, plan_create_table, plan_set_properties
from widen.schema.table_state import TableState, to_table_state
from widen.sources.listing import to_place
from widen.spark.engine import Rows, Session
from widen.spark.session import default_properties, find_active
from widen.spark.spark_types import Column, DataFrame, SparkSession
from widen.targets.delta_quarantine import DeltaQuarantine, quarantine_store
from widen.targets.fixed_columns import find_fixed_columns, find_kept_types
from widen.targets.table_format import (
    NO_PARAMETERS,
    CommitResult,
    IngestTarget,
    KeyCounts,
    KeyedBatch,
    KeyedDraft,
    KeyedVersions,
    KeyRules,
    LoadRecord,
    QuarantineWrite,
    RowReplacingDraft,
    TableLocation,
    TransactionId,
    verify_quarantine,
    verify_rows,
)

if TYPE_CHECKING:
    from widen.changes.change_context import ChangeContext, ChangeResult
    from widen.changes.key_columns import KeyCondition
    from widen.changes.keyed_files import DeltaFiles, KeyedTable
    from widen.changes.keyed_load import LocalMerge
    from widen.changes.overwrite import ReplacedRows
    from widen.verification.records import Verification

_ADD_FEATURE = (
    "Add it first: `widen properties {location} --set delta.feature.{name}=supported`; clients without it then refuse "
    "the table. Or pin the field to text: --pin FIELD=text."
)

NEW_PROPERTIES: Mapping[Mode, Mapping[str, str]] = {mode: {} for mode in Mode} | {
    Mode.WIDEN: {TYPE_WIDENING_INTENT: WHEN_NEEDED}
}
"""The properties of a table that an ingestion creates, by the mode of its first interval; session defaults win.

This and `plan_create_table` decide the protocol of a new table. It lists only features that the first rows use: every
feature keeps away readers that do not support it.
"""

_TXN_RETENTION = "delta.setTransactionRetentionDuration"


@dataclass(frozen=True, slots=True)
class DeltaTarget(IngestTarget):
    """One version of a Delta table.

    Args:
        snapshot: The version; None if the table does not exist yet.
        keys: The rules of an ingestion by key; None for one that only adds rows.
        widening: The state of the table with type widening turned on, if the commit turns it on.
        logged: The metadata as they are in the log, if the columns had lost their sources and have them again here.
    """

    store: LogStore
    snapshot: Snapshot | None
    policy: Policy = field()
    keys: KeyRules | None = None
    widening: TableState | None = None
    logged: Metadata | None = None
    lost_sources: str = ""

    @property
    def location(self) -> str:
        return self.store.location

    @property
    def version(self) -> int | None:
        return None if self.snapshot is None else self.snapshot.version

    @property
    def schema(self) -> StructType | None:
        return None if self.snapshot is None else self.snapshot.schema

    @property
    def logged_metadata(self) -> Metadata | None:
        """The metadata of the version in the log; None if the table does not exist yet."""
        return self.logged or (None if self.snapshot is None else self.snapshot.metadata)

    def with_file_fields(self, names: frozenset[str]) -> DeltaTarget:
        return replace(self, policy=for_file_fields(replace(self.policy, file_fields=names)))

    def dropped_columns(self) -> Mapping[Path, str]:
        return {} if self.snapshot is None else _dropped_columns(self.snapshot)

    def turns_on_widening(self, plan: Plan) -> bool:
        if self.snapshot is None or self.widening is not None:
            return self.widening is not None
        return widens_when_needed(self.snapshot.properties) and any(map(is_type_change, plan.operations))

    def with_widening(self) -> DeltaTarget | None:
        if self.snapshot is None or is_on(self.snapshot.properties, ENABLE_TYPE_WIDENING):
            return None
        state = to_table_state(self.snapshot)
        change = plan_set_properties(state, {ENABLE_TYPE_WIDENING: "true"})
        assert change is not None
        for action in change.actions:
            if isinstance(action, Protocol):
                state = replace(state, protocol=action)
            elif isinstance(action, Metadata):
                state = replace(state, metadata=action)
        return replace(self, widening=state, policy=replace(self.policy, table_format=table_format_of(state)))

    def draft(self, plan: Plan) -> DeltaDraft:
        """Return the table as a plan changes it. With column mapping, each draft creates new physical names."""
        if self.snapshot is None:
            now_ms = current_ms()
            wished = (
                {ENABLE_TYPE_WIDENING: "true"} if self.policy.enables_widening else NEW_PROPERTIES[self.policy.mode]
            )
            properties = {**wished, **default_properties(find_active())}
            created = plan_create_table(plan.schema, (), properties, now_ms)
            table = TableConfiguration(created.table.protocol, self._with_privacy(created.table.metadata, plan))
            return DeltaDraft(self, table, created.actions)
        before = to_table_state(self.snapshot)
        state = self.widening or before
        metadata = state.metadata
        if plan.operations:
            state = self._with_type_features(state, plan)
            metadata = state.metadata
            ensure_types_unreferenced(state, plan.operations)
            metadata = with_operations(state, plan.operations)
            state = replace(state, protocol=protocol_with(state, metadata))
        metadata = self._with_privacy(_with_sources(metadata, plan.schema), plan)
        pairs = ((metadata, self.logged_metadata), (state.protocol, before.protocol))
        actions = tuple(new for new, old in pairs if new != old)
        return DeltaDraft(self, TableConfiguration(state.protocol, metadata), actions)

    def trait_change(self, plan: Plan) -> TraitChange:
        is_kept = plan.is_empty or bool(plan.refused)
        return planned_traits(self.snapshot, None if is_kept else self.draft(plan).configuration)

    def _with_type_features(self, state: TableState, plan: Plan) -> TableState:
        """Return the state of the table with the features that new types need, if the caller or the table allows them.

        Raises:
            FeatureRequired: neither does.
        """
        is_allowed = self.policy.enables_widening or widens_when_needed(state.metadata.configuration)
        known = missing_type_features(state.protocol, state.schema)
        for name in missing_type_features(state.protocol, plan.schema):
            if name in known:
                continue
            if not is_allowed:
                supported = ", ".join(sorted(supported_features(state.protocol))) or "none"
                fix = _ADD_FEATURE.format(location=self.store.location, name=name)
                raise FeatureRequired(feature=name, supported=supported, fix=fix)
            change = plan_add_feature(state, name)
            for action in () if change is None else change.actions:
                state = replace(state, protocol=action) if isinstance(action, Protocol) else state
        return state

    def _with_privacy(self, metadata: Metadata, plan: Plan) -> Metadata:
        """Return the metadata with the fields that are hidden and those without statistics."""
        old = {} if self.snapshot is None else self.snapshot.properties
        recorded = {key: old[key] for key in (HIDDEN_FIELDS, NO_STATS) if key in old}
        recorded |= policy_properties(self.policy, plan, old)
        if self.keys is not None:
            recorded[KEYS] = self.keys.to_property()
        others = {key: text for key, text in metadata.configuration.items() if key not in (HIDDEN_FIELDS, NO_STATS)}
        return msgspec.structs.replace(metadata, configuration={**others, **recorded})

    def has_interval(self, interval: TransactionId) -> bool:
        return self.snapshot is not None and self.snapshot.has_written(_to_txn(interval))

    def last_interval(self, app_id: str) -> TransactionId | None:
        txn = None if self.snapshot is None else self.snapshot.transactions.get(app_id)
        return None if txn is None else TransactionId(txn.app_id, txn.version)

    def loaded_files(self, *, is_required: bool = False) -> LoadedFiles:
        if is_required:
            _ensure_remembers_loads(self.snapshot)
        return open_loads(self.snapshot)

    @property
    def key_rules(self) -> KeyRules | None:
        text = None if self.snapshot is None else self.snapshot.properties.get(KEYS)
        return None if text is None else KeyRules.from_property(text)

    def with_keys(self, rules: KeyRules | None) -> DeltaTarget:
        rules = match_recorded_keys(rules, self.key_rules, self.schema, in_any_case=self.policy.matches_any_case)
        return replace(self, keys=rules, policy=policy_of_keys(self.policy, rules))

    def interval_parameters(self, interval: TransactionId) -> Mapping[str, Any] | None:
        expected = (interval.app_id, str(interval.number))
        for _, _, info in self.snapshot.history() if self.snapshot else ():
            parameters = info.get("operationParameters")
            if isinstance(parameters, dict) and (parameters.get("queryId"), parameters.get("epochId")) == expected:
                return parameters
        return None

    def verify(
        self, batch: Batch, result: BatchResult, version: int, quarantine: QuarantineWrite | None, share: float
    ) -> Verification:
        # The committed version is read from the log, so that the comparison also covers what the commit says.
        rows = DeltaRows(self.store, open_snapshot(self.store, version))
        if self.keys is not None:
            from widen.verification.key_reader import build_keyed_reasons

            found = self._verify_keys(self.keys, batch, rows.snapshot, quarantine, share)
            reasons = build_keyed_reasons(self.keys, rows.schema, self.policy, rows.conditions)
            return verify_quarantine(found, batch, quarantine, reasons)
        return verify_rows(rows, self.policy, batch, result, quarantine, share)

    def find_stopped(self, version: int) -> list[StoppedField]:
        from widen.report.build_report import find_just_stopped

        return find_just_stopped(open_snapshot(self.store, version))

    def _verify_keys(
        self, rules: KeyRules, batch: Batch, snapshot: Snapshot, quarantine: QuarantineWrite | None, share: float
    ) -> Verification:
        from widen.changes.keyed_files import DeltaFiles
        from widen.proof.deletion_lists import DeletionListing
        from widen.verification.keyed_proof import TableVersions, VersionFiles

        # Other commits may lie between the version that was read and this one, so the proof looks at the one before.
        before = open_snapshot(self.store, snapshot.version - 1) if snapshot.version else None
        find_list = DeletionListing.of_delta if rules.sequence_by else lambda *_: None
        lists = (
            None if before is None else find_list(self.store, before.transactions),
            find_list(self.store, snapshot.transactions),
        )

        def open_files() -> TableVersions:
            plan_local_scan(snapshot)
            scan = DeltaFiles(snapshot, snapshot).scan
            old = None if before is None else VersionFiles(to_adds(before.files()), scan)
            return TableVersions(old, VersionFiles(to_adds(snapshot.files()), scan))

        def open_rows(spark: SparkSession) -> tuple[DataFrame | None, DataFrame]:
            view = None if before is None else before.with_metadata(snapshot.metadata)
            old = None if view is None else read_snapshot(spark, self.store, view)
            return old, read_snapshot(spark, self.store, snapshot)

        schema = DeltaRows(self.store, snapshot).schema
        versions = KeyedVersions(rules, schema, self.policy, lists, open_files, open_rows)
        return versions.verify(batch, quarantine, share)


@dataclass(frozen=True, slots=True)
class DeltaDraft(RowReplacingDraft, KeyedDraft):
    """A Delta table as a plan changes it.

    Args:
        actions: The actions to commit with the files; empty if neither protocol nor metadata changes.
        removal: The rows that an ingestion by key removes.
        deleted: The transaction identifier that names the keys that such an ingestion has deleted.
    """

    target: DeltaTarget
    configuration: TableConfiguration
    actions: tuple[Action, ...]
    replaced: ReplacedRows | None = None
    removal: ChangeResult | None = None
    deleted: tuple[Txn, ...] = ()
    counts: KeyCounts | None = None

    def check(self) -> None:
        """Do nothing: an ingestion does not choose the partitions of a new Delta table."""

    @property
    def wrong_readers(self) -> tuple[PlannedReader, ...]:
        snapshot = self.target.snapshot
        return () if snapshot is None else readers_made_wrong(snapshot, self.configuration)

    def with_replaced_rows(self, rows: ReplacedRows) -> DeltaDraft:
        return replace(self, replaced=rows)

    def has_every_key(self, result: BatchResult) -> bool:
        from widen.changes.keyed_load import has_every_key

        return self.target.keys is not None and has_every_key(_adds(result), self._view, self.target.keys)

    def find_broken(self, batch: Batch, spec: BatchWriteSpec, *, by_rules: bool = True) -> Rows | None:
        rule, condition = self.plan_rule(batch, self.configuration.schema)
        return batch.find_broken(spec, self._writer(rule, condition), by_rules=by_rules)

    @property
    def is_keyed(self) -> bool:
        return self.target.keys is not None

    def _writer(self, rule: Column | None, condition: KeyCondition | None) -> DeltaWriter:
        keys = self.target.keys
        return DeltaWriter(
            self.target.store,
            self.configuration,
            rule,
            condition,
            fills_defaults=keys is None or not keys.keeps_missing,
            in_tasks=keys is not None and bool(keys.excluded),
        )

    @property
    def _view(self) -> Snapshot:
        """The version that the draft is based on, with its columns; without files if there is no table yet."""
        snapshot = self.target.snapshot
        if snapshot is None:
            return new_snapshot(self.target.store, self.configuration)
        return snapshot.with_metadata(self.configuration.metadata)

    @property
    def key_rules(self) -> KeyRules | None:
        return self.target.keys

    def open_keyed_table(self, spark: Session) -> DeltaFiles:
        from widen.changes.keyed_files import DeltaFiles

        keys = self.target.keys
        return DeltaFiles(self._view, self.target.snapshot, keeps_versions=keys is not None and keys.history)

    def apply_merge(
        self, spark: Session, table: KeyedTable, result: BatchResult, merge: LocalMerge | None, staged: StagedFiles
    ) -> KeyedBatch:
        from widen.changes.arrow_changes import remove_beside
        from widen.changes.change_context import ChangeContext, ChangeResult
        from widen.changes.deleted_keys import record_deleted_keys

        snapshot, view, lists, adds = (
            self.target.snapshot,
            self._view,
            self.open_keyed_table(spark).lists,
            _adds(result),
        )
        if merge is None:
            txns = record_deleted_keys(lists, None, view, staged, spark)
            return KeyedBatch(replace(self, deleted=txns, counts=KeyCounts()), result, KeyCounts())
        selection = select_files(view, UnknownPredicate() if snapshot is None else merge.searched)
        own = ChangeContext(spark, view, self.configuration.metadata, selection, concat_files([from_adds(adds)]))
        merged = self._without_losers(own, result, merge, staged)
        removal = ChangeResult(reads=ReadSet.EVERYTHING)
        if snapshot is not None:
            context = ChangeContext(spark, view, self.configuration.metadata, selection)
            removal = remove_beside(context, merge.removed, _adds(merged))
            staged.add_folders(self.target.store, removal.folders)
        txns = record_deleted_keys(lists, merge.deleted, view, staged, spark)
        _discard_others(self.target.store, adds, _adds(merged))
        return KeyedBatch(replace(self, removal=removal, deleted=txns, counts=merge.counts), merged, merge.counts)

    def _without_losers(
        self, context: ChangeContext, result: BatchResult, merge: LocalMerge, staged: StagedFiles
    ) -> BatchResult:
        """Return the rows that a batch leads to.

        Files with records that do not become rows are copied without these, and other rows are written.
        """
        from widen.changes.change_context import ensure_same_count

        if not merge.losers:
            return result
        from widen.changes.spark_changes import copy_without, write_new_rows

        def new_folder() -> str:
            job = uuid.uuid4().hex
            staged.add_folders(self.target.store, [job])
            return job

        rows = context.all_rows(merge.losers)
        partial_files = {key: marked for key, marked in merge.losers.items() if len(marked) < rows[key]}
        copies: list[Add] = []
        if partial_files:
            copies = copy_without(context, partial_files, new_folder)
            left = sum(rows[key] - len(marked) for key, marked in partial_files.items())
            ensure_same_count(left, count_written_rows(copies))
        if merge.new_rows is not None:
            written = write_new_rows(context, merge.new_rows, new_folder)
            ensure_same_count(merge.new_rows.count, count_written_rows(written))
            copies += written
        kept = [add for key, add in context.adds.items() if key not in merge.losers]
        return replace(result, files=[*kept, *copies])

    def write_files(
        self, batch: Batch, spec: BatchWriteSpec, rule: Column | None = None, condition: KeyCondition | None = None
    ) -> BatchResult:
        writer = self._writer(rule, condition)
        result = batch.write(spec, writer)
        # The statistics of the files count rows independently of the observation.
        rows = writer.count_rows(_adds(result))
        return replace(result, is_complete=rows == result.seen.records + result.seen.corrupt)

    def discard(self, result: BatchResult) -> None:
        discard(self.target.store, _adds(result))

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
        txns = [] if interval is None else [_to_txn(interval)]
        actions = [*self._actions_after(plan, result), *txns, *self.deleted, *_adds(result)]
        operation, history = "WRITE", {**self._parameters(plan, result.seen), **parameters}
        if interval is not None:
            stream = {"queryId": interval.app_id, "epochId": str(interval.number)}
            operation, history = "STREAMING UPDATE", {**self._parameters(plan, result.seen), **stream, **parameters}
        metrics, target = _metrics(plan, result), self.target
        removal = self._remove_rows(result)
        staged.add_folders(target.store, removal.folders)
        if self.counts is not None:
            operation = "MERGE" if interval is None else operation
            history |= {"keys": str(self.target.keys)}
            metrics |= {**_delete_metrics(removal), **metrics, **_key_metrics(self.counts)}
        elif self.replaced is not None:
            # If two counts have one name, the count of the written rows wins.
            metrics |= {**_delete_metrics(removal), **metrics}
        actions += removal.actions

        def commit_on(base: Snapshot | None, *loads: Txn) -> Outcome:
            return commit(
                target.store,
                base,
                [*actions, *loads],
                operation,
                history,
                metrics=metrics,
                reads=removal.reads,
                staged=staged,
                # The record of a load names its version, so another attempt needs another record: `commit_with_loads`
                # repeats instead.
                max_attempts=1 if loads else MAX_ATTEMPTS,
            )

        if loaded is None:
            outcome = commit_on(target.snapshot)
        else:
            outcome = commit_with_loads(
                target.store,
                target.snapshot,
                loaded.load,
                commit_on,
                staged=staged,
                # A load meanwhile may have rows of the same keys.
                is_exclusive=loaded.is_exclusive or self.is_keyed or self.replaced is not None,
                interval=None if interval is None else _to_txn(interval),
            )
        if isinstance(outcome, Conflicted):
            return outcome
        if target.snapshot is not None:
            warn_readers(target.store.location, target.snapshot.protocol, self.configuration.protocol)
            warn_wrong_readers(target.store.location, plan.readers)
        return outcome.or_raise().version

    def _remove_rows(self, result: BatchResult) -> ChangeResult:
        """Return the removal of the rows that the batch replaces."""
        from widen.changes.change_context import ChangeResult

        snapshot = self.target.snapshot
        if self.removal is not None:
            return self.removal
        if self.replaced is None or snapshot is None:
            return ChangeResult()
        from widen.changes.overwrite import remove_replaced_rows

        return remove_replaced_rows(snapshot, self.configuration.metadata, self.replaced, _adds(result))

    def _actions_after(self, plan: Plan, result: BatchResult) -> Sequence[Action]:
        """Return the actions with the values of identity columns that the rows have used up, and what is hidden."""
        identities = [field.name for field in self.configuration.schema if find_identity(field)]
        metadata = advance_identities(self.configuration, identities, _adds(result))
        # Only the plan of the whole batch says which fields it has: files are written as if it had all.
        metadata = self.target._with_privacy(metadata, plan)
        others = [action for action in self.actions if not isinstance(action, Metadata)]
        # A commit can have only one metadata action.
        return others if metadata == self.target.logged_metadata else [metadata, *others]

    def _parameters(self, plan: Plan, seen: Observation) -> dict[str, object]:
        """Return the parameters of every interval, for the history."""
        mode: dict[str, object] = {"mode": "Append", "partitionBy": list(self.configuration.partition_columns)}
        skipped = {"badFiles": plan.to_value()["badFiles"]} if plan.bad_files else {}
        corrupt = {CORRUPT_REASON: seen.corrupt_reason} if seen.corrupt else {}
        return {**mode, "evolve": self.target.policy.mode.value, "events": plan.logged_events(), **skipped, **corrupt}


def _delete_metrics(removal: ChangeResult) -> dict[str, int]:
    from widen.changes.merge import delete_metrics

    return delete_metrics(removal)


def _key_metrics(counts: KeyCounts) -> dict[str, int]:
    return {
        "numTargetRowsInserted": counts.inserted,
        "numTargetRowsUpdated": counts.updated,
        "numTargetRowsDeleted": counts.deleted,
        LATE_RECORDS: counts.late + counts.unknown_deletes,
    }


LATE_RECORDS = "numLateRecords"
"""The metric of a commit with the records that changed no row, because a newer one of their key was known."""


def _metrics(plan: Plan, result: BatchResult) -> dict[str, int]:
    metrics, seen = write_metrics(_adds(result)), result.seen
    if seen.quarantined:
        metrics[QUARANTINED] = seen.quarantined
    if plan.bad_files:
        metrics[BAD_FILES] = len(plan.bad_files)
    if plan.rounded:
        metrics[ROUNDED] = plan.rounded_values
    if role_field(plan.schema, CORRUPT):
        metrics[CORRUPT_TEXTS] = seen.corrupt
    return metrics


def _adds(result: BatchResult) -> list[Add]:
    """Return the files of a batch, which `DeltaWriter` has written."""
    return [file for file in result.files if isinstance(file, Add)]


def _to_txn(interval: TransactionId) -> Txn:
    return Txn(app_id=interval.app_id, version=interval.number)


def _discard_others(store: LogStore, adds: Sequence[Add], kept: Sequence[Add]) -> None:
    """Delete uncommitted files that are not among others; both may be in one folder."""
    stay = {store.plain(add.path) for add in kept}
    for job in {add.path.partition("/")[0] for add in adds if store.plain(add.path) not in stay}:
        discard_folder(store, job, but=stay)


MOST_COMMITS = 1_000
"""The number of commits, newest first, that are searched for a dropped column."""


def _ensure_types_ingestible(schema: StructType) -> None:
    """Check that tasks can make rows of a table.

    Raises:
        UnsupportedColumnType: a column has a variant, which neither Arrow nor JSON has.
    """
    column = next((path for path, leaf in leaves(schema) if leaf == VARIANT), None)
    if column is not None:
        reason = "an ingestion makes no variants; write to this table with Table.append, Table.merge or SQL"
        raise UnsupportedColumnType(column=format_path(column), type=VARIANT.sql, reason=reason)


def _dropped_columns(snapshot: Snapshot) -> dict[Path, str]:
    """Return the columns that the history says were dropped, and the last version that dropped each.

    A history is free-form: what cannot be parsed is ignored.
    """
    dropped: dict[Path, str] = {}
    for version, _, info in snapshot.history(MOST_COMMITS):
        parameters = info.get("operationParameters")
        if info.get("operation") != DROP_COLUMNS or not isinstance(parameters, dict):
            continue
        with suppress(msgspec.DecodeError, InvalidPath):
            for name in msgspec.json.decode(str(parameters.get("columns")), type=list[str]):
                dropped.setdefault(parse_path(name), f"version {version}")
    return dropped


def _with_sources(metadata: Metadata, planned: StructType) -> Metadata:
    """Return the metadata with the source path of every column; see `widen.schema.source_metadata`."""
    schema = from_json(metadata.schema_string)
    with_paths = with_sources(schema, planned)
    is_right = with_paths == schema and not has_metadata_as_text(metadata.schema_string)
    return metadata if is_right else metadata.with_schema(with_paths)


def _find_lost_sources(snapshot: Snapshot) -> tuple[StructType, str]:
    """Return the schema of a table with the sources that its columns had before a client removed them, and what to say.

    The schema is as it is, and there is nothing to say, if no load had given the columns sources.
    """
    if has_sources(snapshot.schema):
        return snapshot.schema, ""
    removed = snapshot.version
    for version, metadata in snapshot.metadata_history(MOST_COMMITS):
        if has_sources(earlier := from_json(metadata.schema_string)):
            return restore_sources(snapshot.schema, earlier), _LOST.format(removed)
        removed = version
    is_known = KEYS in snapshot.properties or not snapshot.transactions.keys().isdisjoint(_APP_IDS)
    return snapshot.schema, _LOST_FOR_GOOD if is_known else ""


_LOST = (
    "Version {} removed it, as a client does that writes a whole new schema. Columns whose names are the same as "
    "before hold the same fields again; all others are matched by name."
)
_LOST_FOR_GOOD = "No version in the log has it, so fields are matched with columns by name."
_APP_IDS = {LOADS_APP_ID, DELETED_KEYS_APP_ID}


def _ensure_remembers_loads(snapshot: Snapshot | None) -> None:
    """Raise if the record of loads may have expired with its transaction identifier: files would be loaded twice."""
    if snapshot is not None and _TXN_RETENTION in snapshot.properties and find_head(snapshot) is None:
        expected = (
            f"{_TXN_RETENTION} lets the table forget which files it has loaded, and there is no record now. Unset the "
            "property, or load the new files by name."
        )
        raise InvalidOption(option="new", value=True, expected=expected)


# The location of a Delta table that is the target of an ingestion.
#
# Source: docs/evolution-rules.md#d1


@dataclass(frozen=True, slots=True)
class DeltaLocation(TableLocation):
    """Where a Delta table is or will be."""

    store: LogStore

    @property
    def location(self) -> str:
        return self.store.location

    @property
    def format(self) -> str:
        return "delta"

    def folder(self) -> str:
        return self.location

    def staging_stores(self, location: str | None = None) -> Sequence[LogStore]:
        return [self.store if location is None else LogStore(location, self.store.storage_options)]

    @property
    def keeps_types(self) -> bool:
        return True

    def add_features(self, names: Collection[str]) -> None:
        # Each feature is a commit of its own, so the next one needs the new version.
        for name in sorted(names):
            try:
                snapshot = open_snapshot(self.store)
            except TableNotFound:
                return
            change = plan_add_feature(to_table_state(snapshot), name)
            if change is not None:
                commit(self.store, snapshot, change.actions, change.operation, change.parameters).or_raise()

    def resolve(self, location: str) -> str:
        return to_place(location)

    def open(self, policy: Policy) -> DeltaTarget:
        try:
            snapshot = open_snapshot(self.store)
        except TableNotFound:
            from widen.log.vacuum import ensure_location_empty

            ensure_location_empty(self.store, "into")
            return DeltaTarget(self.store, None, for_file_fields(policy))
        ensure_writable(snapshot.protocol, self.location)
        _ensure_types_ingestible(snapshot.schema)
        snapshot.ensure_checksum_agrees()
        schema, lost_sources = _find_lost_sources(snapshot)
        logged = None if schema == snapshot.schema else snapshot.metadata
        if logged is not None:
            snapshot = snapshot.with_metadata(logged.with_schema(schema))
        state = to_table_state(snapshot)
        policy = replace(
            policy,
            table_format=table_format_of(state),
            fixed_columns=find_fixed_columns(state),
            kept_types=find_kept_types(state.schema),
            known_fields=frozenset(split_paths(state.properties.get(HIDDEN_FIELDS, ""))),
        )
        policy = match_names(read_names(policy, state.properties), state.schema)
        # File fields come last: a field of a file gets the rules of the column of its name, also those that the schema
        # adds.
        target = DeltaTarget(
            self.store,
            snapshot,
            for_file_fields(with_time_fields(policy, state.schema)),
            logged=logged,
            lost_sources=lost_sources,
        )
        return (target.with_widening() or target) if policy.enables_widening else target

    def not_found(self) -> TableNotFound:
        return TableNotFound(location=self.location, reason="there is no log")

    def quarantine(self, location: str | None) -> DeltaQuarantine:
        return DeltaQuarantine(quarantine_store(self.store, location))
