"""A Delta table as the target of an ingestion.

Source: docs/evolution-rules.md#d1; PROTOCOL.md#transaction-identifiers
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from widen.errors import InvalidOption
from widen.formats.table_format import (
    NO_PARAMETERS,
    CommitResult,
    IngestTarget,
    LoadRecord,
    QuarantineWrite,
    RowReplacingDraft,
    StreamInterval,
    verify_rows,
)
from widen.log.read.commit_timestamps import current_ms
from widen.log.read.loads import Load, find_head, read_loads
from widen.log.read.snapshot import Snapshot, open_snapshot
from widen.log.store.log_store import LogStore
from widen.log.write.commit import MAX_ATTEMPTS, Conflicted, Outcome, StagedFiles, commit, write_metrics
from widen.log.write.record_loads import commit_with_loads
from widen.log.write.staged_files import discard
from widen.model.schema_json import from_json
from widen.model.types import StructType
from widen.planning.alter.create_table import plan_create_table
from widen.planning.alter.identity_columns import advance_identities
from widen.planning.alter.metadata_change import with_operations
from widen.planning.evolution.file_fields import for_file_fields
from widen.planning.evolution.plan import BAD_FILES, CORRUPT_TEXTS, QUARANTINED, ROUNDED, Plan
from widen.planning.evolution.policy import Mode, Policy
from widen.planning.evolution.policy_field_rules import privacy_properties
from widen.planning.evolution.source_metadata import CORRUPT, role_field, with_sources
from widen.planning.table.table_state import TableState
from widen.planning.write.schema_growth import ensure_types_unreferenced
from widen.protocol.actions import Action, Add, Metadata, Protocol, Txn
from widen.protocol.column_mapping import mapping_mode
from widen.protocol.column_metadata import find_identity
from widen.protocol.skipping.file_statistics import HIDDEN_FIELDS, NO_STATS
from widen.protocol.table_properties import ENABLE_TYPE_WIDENING
from widen.spark.delta_settings import default_properties
from widen.spark.dml.change_context import ChangeResult
from widen.spark.dml.operation_metrics import delete_metrics
from widen.spark.dml.replaced_rows import ReplacedRows, remove_replaced_rows
from widen.spark.ingest.batch import Batch
from widen.spark.ingest.delta_files import DeltaRows, DeltaWriter
from widen.spark.spark_types import SparkSession
from widen.spark.text.quarantined_rows import BatchResult
from widen.spark.text.text_tasks import BatchWriteSpec
from widen.spark.text.verification import Verification

NEW_PROPERTIES: Mapping[Mode, Mapping[str, str]] = {mode: {} for mode in Mode} | {
    Mode.WIDEN: {ENABLE_TYPE_WIDENING: "true"}
}
"""The properties of a table that an ingestion creates, by the mode of its first interval; session defaults win."""

_TXN_RETENTION = "delta.setTransactionRetentionDuration"


@dataclass(frozen=True, slots=True)
class DeltaTarget(IngestTarget):
    """One version of a Delta table.

    Args:
        snapshot: The version; None if the table does not exist yet.
    """

    store: LogStore
    snapshot: Snapshot | None
    policy: Policy = field()

    @property
    def location(self) -> str:
        return self.store.location

    @property
    def version(self) -> int | None:
        return None if self.snapshot is None else self.snapshot.version

    @property
    def schema(self) -> StructType | None:
        return None if self.snapshot is None else self.snapshot.schema

    def with_file_fields(self, names: frozenset[str]) -> DeltaTarget:
        return replace(self, policy=for_file_fields(replace(self.policy, file_fields=names)))

    def draft(self, plan: Plan) -> DeltaDraft:
        """Return the table as a plan changes it. With column mapping each draft gives new columns new physical names.

        Raises:
            FeatureRequired: a new type needs a feature that the table does not have.
            SchemaMismatch: a constraint or a generated column prevents a type from widening.
            InvalidOption: a column name cannot be used.
        """
        if self.snapshot is None:
            now_ms = current_ms()
            properties = {**NEW_PROPERTIES[self.policy.mode], **default_properties(SparkSession.getActiveSession())}
            actions = plan_create_table(plan.schema, (), properties, now_ms).actions
            metadata, protocol = actions
            return DeltaDraft(self, protocol, self._with_privacy(metadata, plan), actions)
        state = to_state(self.snapshot)
        metadata = state.metadata
        if plan.operations:
            ensure_types_unreferenced(state, plan.operations)
            metadata = with_operations(state, plan.operations)
        metadata = self._with_privacy(_with_sources(metadata, plan.schema), plan)
        return DeltaDraft(self, state.protocol, metadata, () if metadata == state.metadata else (metadata,))

    def _with_privacy(self, metadata: Metadata, plan: Plan) -> Metadata:
        """Return the metadata with the fields that are hidden and those without statistics."""
        old = {} if self.snapshot is None else self.snapshot.properties
        recorded = {key: old[key] for key in (HIDDEN_FIELDS, NO_STATS) if key in old}
        recorded |= privacy_properties(self.policy, plan, old)
        others = {key: text for key, text in metadata.configuration.items() if key not in (HIDDEN_FIELDS, NO_STATS)}
        return msgspec.structs.replace(metadata, configuration={**others, **recorded})

    def has_interval(self, interval: StreamInterval) -> bool:
        return self.snapshot is not None and self.snapshot.has_written(_to_txn(interval))

    def last_interval(self, app_id: str) -> StreamInterval | None:
        txn = None if self.snapshot is None else self.snapshot.transactions.get(app_id)
        return None if txn is None else StreamInterval(txn.app_id, txn.version)

    def loads(self, *, is_required: bool = False) -> tuple[Load, ...]:
        if is_required:
            _ensure_remembers_loads(self.snapshot)
        return read_loads(self.snapshot)

    def interval_parameters(self, interval: StreamInterval) -> Mapping[str, Any] | None:
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
        return verify_rows(rows, self.policy, batch, result, quarantine, share)


@dataclass(frozen=True, slots=True)
class DeltaDraft(RowReplacingDraft):
    """A Delta table as a plan changes it.

    Args:
        actions: The actions to commit with the files; empty if neither protocol nor metadata changes.
    """

    target: DeltaTarget
    protocol: Protocol
    metadata: Metadata
    actions: tuple[Action, ...]
    replaced: ReplacedRows | None = None

    def check(self) -> None:
        """Do nothing: an ingestion does not choose the partitions of a new Delta table."""

    def with_replaced_rows(self, rows: ReplacedRows) -> DeltaDraft:
        return replace(self, replaced=rows)

    def write(self, batch: Batch, spec: BatchWriteSpec) -> BatchResult:
        writer = DeltaWriter(self.target.store, self.protocol, self.metadata)
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
        interval: StreamInterval | None = None,
        parameters: Mapping[str, object] = NO_PARAMETERS,
        loaded: LoadRecord | None = None,
    ) -> CommitResult:
        txns = [] if interval is None else [_to_txn(interval)]
        actions = [*self._actions_after(plan, result), *txns, *_adds(result)]
        operation, history = "WRITE", {**self._parameters(plan), **parameters}
        if interval is not None:
            stream = {"queryId": interval.app_id, "epochId": str(interval.number)}
            operation, history = "STREAMING UPDATE", {**self._parameters(plan), **stream, **parameters}
        metrics, target = _metrics(plan, result), self.target
        removal = self._remove_rows(result)
        staged.add_folders(target.store, removal.folders)
        if self.replaced is not None:
            # Of two counts with one name, that of the written rows counts.
            metrics |= {**delete_metrics(removal), **metrics}
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
                is_exclusive=loaded.is_exclusive,
                interval=None if interval is None else _to_txn(interval),
            )
        return outcome if isinstance(outcome, Conflicted) else outcome.or_raise().version

    def _remove_rows(self, result: BatchResult) -> ChangeResult:
        """Return the removal of the rows that the batch replaces."""
        snapshot = self.target.snapshot
        if self.replaced is None or snapshot is None:
            return ChangeResult()
        return remove_replaced_rows(snapshot, self.metadata, self.replaced, _adds(result))

    def _actions_after(self, plan: Plan, result: BatchResult) -> Sequence[Action]:
        """Return the actions with the values of identity columns that the rows have used up, and what is hidden."""
        schema = from_json(self.metadata.schema_string)
        identities = [field.name for field in schema if find_identity(field)]
        mode = mapping_mode(self.metadata.configuration, self.protocol)
        metadata = advance_identities(self.metadata, identities, mode, _adds(result))
        # Only the plan of the whole batch says which fields it has: files are written as if it had all.
        metadata = self.target._with_privacy(metadata, plan)
        others = [action for action in self.actions if not isinstance(action, Metadata)]
        snapshot = self.target.snapshot
        # A commit can have only one metadata action.
        return others if snapshot is not None and metadata == snapshot.metadata else [metadata, *others]

    def _parameters(self, plan: Plan) -> dict[str, object]:
        """Return the parameters of every interval, for the history."""
        mode: dict[str, object] = {"mode": "Append", "partitionBy": list(self.metadata.partition_columns)}
        skipped = {"badFiles": plan.to_value()["badFiles"]} if plan.bad_files else {}
        return {**mode, "evolve": self.target.policy.mode.value, "events": plan.logged_events(), **skipped}


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


def _to_txn(interval: StreamInterval) -> Txn:
    return Txn(app_id=interval.app_id, version=interval.number)


def _with_sources(metadata: Metadata, planned: StructType) -> Metadata:
    """Return the metadata with the source path of every column; see `widen.planning.evolution.source_metadata`."""
    schema = from_json(metadata.schema_string)
    with_paths = with_sources(schema, planned)
    return metadata if with_paths == schema else metadata.with_schema(with_paths)


def to_state(snapshot: Snapshot) -> TableState:
    """Return the state of a version that an ingestion plans with."""
    return TableState(snapshot.version, snapshot.protocol, snapshot.metadata)


def _ensure_remembers_loads(snapshot: Snapshot | None) -> None:
    """Raise if the record of loads may have expired with its transaction identifier: files would be loaded twice."""
    if snapshot is not None and _TXN_RETENTION in snapshot.properties and find_head(snapshot) is None:
        expected = (
            f"{_TXN_RETENTION} lets the table forget which files it has loaded, and there is no record now. Unset the "
            "property, or load the new files by name."
        )
        raise InvalidOption(option="new", value=True, expected=expected)
