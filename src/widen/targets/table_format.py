"""What an ingestion requires of a table of any format.

A `TableLocation` opens as an `IngestTarget`. A plan turns the target into a `TableDraft`; files are written under the
draft and committed with it. A `Quarantine` keeps the records that the table cannot hold. `widen.targets.delta`
and the modules beside it implement these protocols for Delta; another format is a module beside them.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from widen.batches.text_batch import Batch, BatchResult, texts_of
from widen.batches.text_tasks import BatchWriteSpec
from widen.errors import TableNotFound, WidenError
from widen.evolution.key_rules import KeyCounts, KeyRules, ensure_condition_applies, ensure_rules_apply
from widen.evolution.plan import Plan, PlannedReader
from widen.evolution.policy import Policy
from widen.frames.table_writers import TableRows
from widen.log.commit_outcome import (
    Conflicted,
    StagedFiles,
    after_commit,
    reason_of,
    retry_conflicts,
    run_logged,
    several_commits,
)
from widen.log.load_segments import Load, LoadedFile, LoadedFiles
from widen.log.log_store import LogStore
from widen.model.column_path import Path
from widen.model.types import StructType
from widen.model.value_classes import dataclass
from widen.report.reader_predictions import TraitChange
from widen.report.stopped_field import StoppedField
from widen.spark.engine import LocalFrame, Rows, Session, find_started, is_local, run_on_engine
from widen.spark.spark_types import Column, DataFrame, SparkSession

if TYPE_CHECKING:
    from widen.changes.key_columns import KeyCondition
    from widen.changes.keyed_files import KeyedTable
    from widen.changes.keyed_load import LocalMerge
    from widen.changes.overwrite import ReplacedRows
    from widen.proof.deletion_lists import DeletionListing
    from widen.proof.quarantine_reasons import QuarantineReasons
    from widen.verification.keyed_proof import TableVersions
    from widen.verification.records import Side, Verification

__all__ = [
    "CommitResult",
    "Conflicted",
    "IngestTarget",
    "KeyCounts",
    "KeyRules",
    "KeyedBatch",
    "KeyedDraft",
    "Load",
    "LoadRecord",
    "LoadedFile",
    "LoadedFiles",
    "NewFiles",
    "Quarantine",
    "QuarantineContent",
    "QuarantineWrite",
    "RowReplacingDraft",
    "StagedFiles",
    "TableDraft",
    "TableLocation",
    "TransactionId",
    "after_commit",
    "ensure_condition_applies",
    "merge_if_keyed",
    "quarantined_texts_of",
    "reason_of",
    "retry_conflicts",
    "run_logged",
    "several_commits",
    "verify_quarantine",
    "verify_rows",
]

CommitResult: TypeAlias = int | Conflicted
"""The new version of the table, or the commit of another writer that contradicts ours."""

NO_PARAMETERS: Mapping[str, object] = {}


@dataclass(frozen=True, slots=True)
class TransactionId:
    """An interval of a stream. The table records the last one that it has."""

    app_id: str
    number: int


@dataclass(frozen=True, slots=True)
class NewFiles:
    """The source files of a batch; they identify the records of an interrupted load in a quarantine.

    Args:
        loads: How often the table has loaded each file already, as it is now; empty if it has loaded none.
    """

    table: str
    files: tuple[LoadedFile, ...]
    loads: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadRecord:
    """The source files of a batch, to be recorded with its commit.

    Args:
        load: The files and the counts; the commit sets its version and time.
        is_exclusive: Whether the batch depends on the files that are already loaded. Then a concurrent load is a
            conflict.
    """

    load: Load
    is_exclusive: bool = False


class TableLocation(Protocol):
    """Where a table is or will be. Picklable; nothing is read until it is opened."""

    @property
    def location(self) -> str:
        """The path or URL."""

    def folder(self) -> str | None:
        """Return the folder of the files of the table; None if it does not exist yet and its catalog chooses one."""

    def staging_stores(self, location: str | None = None) -> Sequence[LogStore]:
        """Return the stores that may have rows that no commit has ingested yet; new ones go to the first.

        Args:
            location: The only location; by default the folder of the table.

        Raises:
            InvalidOption: a location must be given, because the catalog has not chosen the folder of the table yet.
        """

    @property
    def format(self) -> str:
        """``delta`` or ``iceberg``."""

    @property
    def keeps_types(self) -> bool:
        """Whether a new table can have every Spark type."""

    def add_features(self, names: Collection[str]) -> None:
        """Add table features that the types of a source need, if there is a table and its format has features.

        Args:
            names: The features, by their names in Delta Lake.

        Raises:
            ContentionError: another writer changed the table first.
            TableError: the table cannot be read or written.
        """

    def resolve(self, location: str) -> str:
        """Return the location of another table from a caller so that it means the same in every process."""

    def open(self, policy: Policy) -> IngestTarget:
        """Return the newest version of the table, or the empty location of a new one.

        Raises:
            InvalidOption: the location has files but no table; or an Iceberg table is partitioned differently.
            TableError: the table cannot be read or written.
        """

    def not_found(self) -> TableNotFound:
        """Return the error for a table that does not exist."""

    def quarantine(self, location: str | None) -> Quarantine:
        """Return the quarantine of the table.

        Args:
            location: The location of the quarantine; by default beside the table.

        Raises:
            InvalidOption: it is the location of the table, or its scheme is not supported.
        """


class IngestTarget(Protocol):
    """One version of a table, as the ingestion has read it, or the empty location of a new table."""

    @property
    def location(self) -> str:
        """The path or URL."""

    @property
    def version(self) -> int | None:
        """The version; None if the table does not exist yet."""

    @property
    def schema(self) -> StructType | None:
        """The schema with all metadata; None if the table does not exist yet."""

    @property
    def policy(self) -> Policy:
        """What the ingestion may change, restricted to what the table supports."""

    def with_file_fields(self, names: frozenset[str]) -> IngestTarget:
        """Return the same target for records that get fields with these names from their files."""

    def dropped_columns(self) -> Mapping[Path, str]:
        """Return the columns that the history shows as dropped, and what dropped them last."""

    def turns_on_widening(self, plan: Plan) -> bool:
        """Return whether the commit of a plan turns on type widening."""

    @property
    def lost_sources(self) -> str:
        """What was done about columns that had lost their sources, as a sentence; empty if they have them."""

    def with_widening(self) -> IngestTarget | None:
        """Return the same target with type widening turned on; None if it is on, or the format needs no switch."""

    def draft(self, plan: Plan) -> TableDraft:
        """Return the table as a plan changes it.

        Raises:
            RequestError: the table does not allow a change.
        """

    def trait_change(self, plan: Plan) -> TraitChange:
        """Return what matters to other readers of the table before and after a plan.

        Raises:
            TableError: the table or a footer cannot be read.
        """

    def has_interval(self, interval: TransactionId) -> bool:
        """Return whether the table has an interval, or a later one of the same stream."""

    def last_interval(self, app_id: str) -> TransactionId | None:
        """Return the last interval of a stream that the table has, if any."""

    def loaded_files(self, *, is_required: bool = False) -> LoadedFiles:
        """Return which source files the table has loaded.

        Args:
            is_required: Whether files that the table has loaded must be known: only new ones are to be loaded.

        Raises:
            InvalidOption: they are required, and the table does not know them.
            TableError: the record of loads cannot be read.
        """

    @property
    def keys(self) -> KeyRules | None:
        """The rules of this ingestion by key; None if it only adds rows."""

    @property
    def key_rules(self) -> KeyRules | None:
        """The rules of writing the table by key, if it is written by key."""

    def with_keys(self, rules: KeyRules | None) -> IngestTarget:
        """Return the same target for an ingestion by key, or for one that only adds rows.

        Raises:
            InvalidOption: the table is written by other keys, or the format does not support keys yet.
        """

    def interval_parameters(self, interval: TransactionId) -> Mapping[str, Any] | None:
        """Return the parameters in the history of the commit of an interval; None if the history has lost it."""

    def verify(
        self, batch: Batch, result: BatchResult, version: int, quarantine: QuarantineWrite | None, share: float
    ) -> Verification:
        """Rebuild the records of a batch from the table and compare them with the source.

        Args:
            quarantine: The records that are in the quarantine instead, if any.
            share: The share of the records to compare, above 0 and at most 1.

        Raises:
            TableError: the table cannot be read.
        """

    def find_stopped(self, version: int) -> Sequence[StoppedField]:
        """Return the fields that have stopped arriving with the load that made a version, from the last commits."""


class TableDraft(Protocol):
    """A table as a plan changes it. Files are written under it and committed with it."""

    def check(self) -> None:
        """Check that a new table can be made as planned, once the plan knows all columns.

        Raises:
            InvalidOption: it cannot be partitioned as the caller wants.
        """

    @property
    def wrong_readers(self) -> tuple[PlannedReader, ...]:
        """The readers that read the table now, and return something wrong after the commit, by the columns alone."""

    def write(self, batch: Batch, spec: BatchWriteSpec) -> BatchResult:
        """Write a batch as files; nothing is committed.

        Raises:
            RequestError: the table does not allow a change.
            TableError: the files cannot be written.
        """

    def find_broken(self, batch: Batch, spec: BatchWriteSpec, *, by_rules: bool = True) -> Rows | None:
        """Return the records of a batch that violate a rule of the table; writes nothing.

        Args:
            by_rules: Whether to leave out those that do not fit a fixed column.

        Returns:
            None if there are no such rules, or if the types of the source decide what columns there are.
        """

    def discard(self, result: BatchResult) -> None:
        """Delete files that were written and will not be committed, where the store allows it."""

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
        """Commit the files of an interval together with the changes of its plan.

        Args:
            staged: Guards the files: they stay as soon as the commit may be visible.
            loaded: The source files to record as loaded, if any.

        Raises:
            CommitUnknown: the store did not say whether the commit was written.
            StorageError: the store refused; nothing is visible.
        """


@runtime_checkable
class RowReplacingDraft(TableDraft, Protocol):
    """A draft whose commit can remove rows and add others."""

    def with_replaced_rows(self, rows: ReplacedRows) -> TableDraft:
        """Return a draft whose commit also removes rows."""


@dataclass(frozen=True, slots=True)
class KeyedBatch:
    """A batch after the newest record of each key was found.

    Args:
        draft: The draft whose commit replaces the rows.
        result: The files with the rows that are inserted and the new rows of those that are updated.
    """

    draft: TableDraft
    result: BatchResult
    counts: KeyCounts


@runtime_checkable
class KeyedDraft(TableDraft, Protocol):
    """A draft that can change rows by key."""

    @property
    def is_keyed(self) -> bool:
        """Whether its target has keys."""

    @property
    def key_rules(self) -> KeyRules | None:
        """The rules; None if its target has no keys."""

    def open_keyed_table(self, spark: Session) -> KeyedTable:
        """Return the version that a batch by key changes."""

    def write_files(
        self, batch: Batch, spec: BatchWriteSpec, rule: Column | None = None, condition: KeyCondition | None = None
    ) -> BatchResult:
        """Write a batch as files, without records that break a rule or a condition.

        Args:
            rule: Null for records with a key and a sequence; Spark evaluates it.
            condition: The same, evaluated with Arrow.
        """

    def has_every_key(self, result: BatchResult) -> bool:
        """Return whether the statistics of the files say that every record has its key and its sequence."""

    def write(self, batch: Batch, spec: BatchWriteSpec) -> BatchResult:
        """Write a batch as files; once more without the records that lack a key or a sequence, if there are some."""
        rules, result = self.key_rules, self.write_files(batch, spec)
        # Records without a key are rare, and a rule keeps tasks from writing files themselves.
        if rules is None or not (result.is_complete and result.files) or self.has_every_key(result):
            return result
        from widen.changes.key_columns import key_condition
        from widen.changes.keyed_load import has_keyless

        table, started = self.open_keyed_table(batch.spark), find_started(batch.spark)
        try:
            ensure_rules_apply(table.schema, rules)
        except WidenError:
            self.discard(result)
            raise
        condition, rule, adds = key_condition(table.schema, rules), None, table.to_adds(result.files)
        if not has_keyless(table, adds, condition):
            return result
        if started is not None and not rules.excluded:
            rule = condition.to_rule()
            if table.locate(started, adds).where(rule.isNotNull()).isEmpty():
                return result
        self.discard(result)
        return self.write_files(batch, spec, rule, condition if rule is None else None)

    def plan_rule(self, batch: Batch, schema: StructType) -> tuple[Column | None, KeyCondition | None]:
        """Return what `find_broken` asks of keys and sequences: the rule for Spark, or the condition for Arrow."""
        from widen.changes.key_columns import key_condition

        rules = self.key_rules
        if rules is None:
            return None, None
        condition = key_condition(schema, rules)
        if is_local(batch.spark) or rules.excluded:
            return None, condition
        return (condition.to_rule() if condition.keys else None), None

    def apply_merge(
        self, spark: Session, table: KeyedTable, result: BatchResult, merge: LocalMerge | None, staged: StagedFiles
    ) -> KeyedBatch:
        """Write the rows that a batch leads to.

        Args:
            table: The result of `open_keyed_table`.
            result: The files with all records of the batch; they are deleted if others take their place.
            merge: What the batch does; None for a batch without records.
            staged: Deletes the files if the commit is not made.
        """

    def merge_by_key(self, spark: Session, result: BatchResult, staged: StagedFiles) -> KeyedBatch:
        """Find the newest record of each key, and write the rows that it leads to; the arguments are those of
        `apply_merge`.

        Raises:
            KeyRepeated: nothing tells which record of a key is the newest.
            SequenceRepeated: the rules are strict, and records of a key have the same sequence.
            InvalidOption: the records do not have the fields of the rules.
            InvalidCondition: the condition of deletions cannot be used.
            TableError: the table cannot be read or written.
        """
        from widen.changes.keyed_load import KeyedLoad

        table, rules = self.open_keyed_table(spark), self.key_rules
        assert rules is not None
        ensure_rules_apply(table.schema, rules)
        if not result.files:
            return self.apply_merge(spark, table, result, None, staged)
        adds = table.to_adds(result.files)
        deleting = {add.path for add, file in zip(adds, result.files, strict=True) if file.path in result.deleting}
        load = KeyedLoad(table, rules, adds, table.count_rows(result.files), deleting)
        with load.decide(spark) as merge:
            return self.apply_merge(spark, table, result, merge, staged)


def merge_if_keyed(
    draft: TableDraft, result: BatchResult, spark: Session, staged: StagedFiles
) -> tuple[TableDraft, BatchResult, KeyCounts | None]:
    """Return the draft and the files to commit, by key if the ingestion has keys."""
    if not isinstance(draft, KeyedDraft) or not draft.is_keyed:
        return draft, result, None
    merged = draft.merge_by_key(spark, result, staged)
    return merged.draft, merged.result, merged.counts


class Quarantine(Protocol):
    """A table with the records that another table could not hold. It may not exist yet."""

    @property
    def location(self) -> str:
        """The path or URL."""

    def write(
        self,
        quarantined_records: Rows | None,
        table_version: int,
        interval: TransactionId | None,
        new_files: NewFiles | None = None,
    ) -> QuarantineWrite | None:
        """Append records in one commit; the quarantine is created if it does not exist.

        Args:
            quarantined_records: The records; None without quarantined records. See
                `widen.batches.text_batch.BatchResult`.
            table_version: The version of the table that cannot hold them; -1 if the table does not exist yet.
            new_files: The source files. Records that an interrupted load of them has left in the quarantine are
                removed in the same commit.

        Returns:
            None if the quarantine has the interval already, or if there is nothing to write or to remove.

        Raises:
            InvalidOption: the table at that location is not a quarantine.
            ContentionError: other writers kept committing to the quarantine first.
            TableError: the quarantine cannot be written.
        """

    def open(self) -> QuarantineContent:
        """Return the records that are in the quarantine now.

        Raises:
            TableNotFound: the quarantine does not exist; in a catalog it is `IcebergTableNotFound`.
            InvalidOption: the table at that location is not a quarantine.
            TableError: the quarantine cannot be read.
        """

    def finish_replay(self, target: IngestTarget) -> None:
        """Remove the records that the last replay has committed to the table, unless they are removed already.

        Raises:
            TableNotFound: the quarantine does not exist.
            SourceError: the table does not record any more what its last replay did.
            ContentionError: another writer changed the quarantine first.
            TableError: the quarantine cannot be read or written.
        """


class QuarantineWrite(Protocol):
    """The records that one interval has added to a quarantine."""

    @property
    def location(self) -> str:
        """The location of the quarantine."""

    @property
    def version(self) -> int:
        """The version of the quarantine that has added them."""

    def rows(self, spark: Session) -> Rows:
        """Return the records as rows of the quarantine.

        Raises:
            TableError: the quarantine cannot be read.
        """

    def undo(self) -> None:
        """Remove the records from the quarantine again, and bring those back that they have replaced.

        What looked like an interrupted load may be one that still runs, and that was first to commit to the table.

        Raises:
            ContentionError: another writer removed them first, or the outcome is unknown.
            TableError: the quarantine cannot be read or written.
        """


class QuarantineContent(Protocol):
    """One version of a quarantine."""

    @property
    def interval(self) -> TransactionId:
        """The interval that a replay of this version is, for the table and the quarantine alike."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no records."""

    @property
    def size_bytes(self) -> int:
        """The size of its files."""

    def rows(self, spark: Session) -> Rows:
        """Return the records.

        Raises:
            TableError: the quarantine cannot be read.
        """

    def write_remaining(
        self, quarantined_records: Rows | None, table_version: int, staged: StagedFiles
    ) -> Mapping[str, object]:
        """Write the records that stay, as files that will replace the files of this version.

        Args:
            staged: Deletes the files if the replay is not committed.

        Returns:
            Parameters for the commit to the table. `Quarantine.finish_replay` uses them to find the files again.

        Raises:
            TableError: the files cannot be written.
        """


def verify_rows(
    rows: TableRows,
    policy: Policy,
    batch: Batch,
    result: BatchResult,
    quarantine: QuarantineWrite | None,
    share: float,
    *,
    judges: bool = True,
) -> Verification:
    """Compare the records of a batch with the rows of a table; see `IngestTarget.verify`.

    Args:
        judges: Whether the proof knows every reason why the table refuses records.
    """
    from widen.proof.quarantine_reasons import QuarantineReasons
    from widen.verification.records import verify

    source = batch.source_digests(rows.schema, policy)
    texts = None if quarantine is None else lambda: texts_of(quarantine.rows(batch.spark))
    paths = [file.path for file in result.files]
    found = verify(source, batch.table_digests(rows, paths, policy, texts), share, batch.spark)
    if quarantine is None or not judges:
        return found
    return verify_quarantine(found, batch, quarantine, QuarantineReasons(rows.schema, policy, rows.conditions))


def verify_quarantine(
    found: Verification, batch: Batch, quarantine: QuarantineWrite | None, reasons: QuarantineReasons
) -> Verification:
    """Return the result of the proof, which is not clean if a record is in the quarantine without a reason."""
    from widen.verification.quarantined import with_unfounded

    # Texts do not say which types records of a source with types have.
    texts = None if batch.has_types else quarantined_texts_of(quarantine, batch.spark)
    return with_unfounded(found, texts, reasons)


@dataclass(frozen=True, slots=True)
class KeyedVersions:
    """What the proof of an ingestion by key reads: the versions before and after the commit.

    Args:
        lists: Where to find the keys that were deleted before and after; None without such keys.
        open_files: Returns the versions as this process reads them. May raise `Unsupported`.
        open_rows: Returns the rows of both versions, given the session; None if there was no table.
    """

    rules: KeyRules
    schema: StructType
    policy: Policy
    lists: tuple[DeletionListing | None, DeletionListing | None]
    open_files: Callable[[], TableVersions]
    open_rows: Callable[[SparkSession], tuple[DataFrame | None, DataFrame]]

    def verify(self, batch: Batch, quarantine: QuarantineWrite | None, share: float) -> Verification:
        """Prove the batch in this process if it can, else on Spark; see `IngestTarget.verify`."""
        from widen.verification.key_reader import schema_of_records
        from widen.verification.keyed_proof import LocalKeyedProof, prove_here
        from widen.verification.keyed_proof_frames import KeyedProof

        words, records = (self.rules, self.schema, self.policy), schema_of_records(self.schema, self.rules)

        def build() -> LocalKeyedProof:
            versions, texts = self.open_files(), quarantined_texts_of(quarantine, batch.spark)
            return LocalKeyedProof(*words, versions, *self.lists, cast("LocalFrame | None", texts))

        def read_source() -> Side:
            return batch.source_digests(records, self.policy)

        def prove_on_spark(spark: SparkSession) -> Verification:
            texts = cast("DataFrame | None", quarantined_texts_of(quarantine, spark))
            return KeyedProof(*words, *self.open_rows(spark), *self.lists, texts).verify(read_source(), share)

        return run_on_engine(batch.spark, lambda _: prove_here(build, read_source, share), prove_on_spark)


def quarantined_texts_of(quarantine: QuarantineWrite | None, spark: Session) -> Rows | None:
    """Return the texts of quarantined records in a column `TEXT`; None without quarantined records."""
    return None if quarantine is None else texts_of(quarantine.rows(spark))


# What a flow requires of the table of any format that it reads.
#
# `widen.targets.delta` and `widen.targets.iceberg` implement these protocols.
#
# Source: docs/guide/flow.md


@dataclass(frozen=True, slots=True)
class SourceVersion:
    """One version of the source of a flow.

    Args:
        table_id: The id of the table, which another table at the same location does not have.
    """

    table_id: str
    version: int
    features: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RangeLimits:
    """Where a range of versions ends.

    Args:
        last: The last version that it may have.
        max_bytes: The range is full once the added files have this size; it has at least one version.
        is_pinned: Whether it must end at the last version, because an earlier attempt ended there.
        only_added: Whether only the added rows matter; versions that remove rows are then not read.
    """

    last: int
    max_bytes: int | None = None
    is_pinned: bool = False
    only_added: bool = False


class VersionRange(Protocol):
    """The changes of rows in a range of versions."""

    @property
    def last(self) -> int:
        """The last version."""

    @property
    def removing_versions(self) -> Sequence[int]:
        """The versions that remove rows, by an update, a deletion, a merge, an overwrite or a restore."""

    @property
    def is_empty(self) -> bool:
        """Whether no version changes rows or how existing rows are read."""

    def added_rows(self, spark: SparkSession) -> DataFrame:
        """Return the rows of the versions that only add rows, in the columns and types of the last version.

        Raises:
            SourceHistoryLost: a file was deleted.
            TableError: the table cannot be read.
        """

    def changed_rows(self, spark: SparkSession) -> Sequence[DataFrame]:
        """Return frames that together have every added and every removed row; they may also have others.

        Raises:
            SourceHistoryLost: a file or a version was deleted.
            TableError: the table cannot be read.
        """


def split_files(files: Iterable[tuple[str, int]], max_bytes: int | None) -> list[list[str]]:
    """Return the paths of files in parts.

    Args:
        max_bytes: A part is full at this size; it has at least one file.
    """
    parts: list[list[str]] = []
    size_bytes = 0
    for path, size in files:
        if not parts or (max_bytes is not None and size_bytes >= max_bytes):
            parts.append([])
            size_bytes = 0
        parts[-1].append(path)
        size_bytes += size
    return parts


Change = TypeVar("Change")


def take_until_full(
    schema: StructType, changes: Iterable[tuple[Change, StructType, int]], limits: RangeLimits
) -> Iterator[Change]:
    """Yield changes up to the limit; if only added rows matter, all of them can be read in the last schema."""
    from widen.schema.growth import is_readable_in

    size_bytes, is_first = 0, True
    for change, new, added_bytes in changes:
        is_full = limits.max_bytes is not None and size_bytes >= limits.max_bytes
        is_cut = is_full or (limits.only_added and not is_readable_in(schema, new))
        # A range with no version would never advance, and one that is repeated must end where it ended before.
        if is_cut and not is_first and not limits.is_pinned:
            return
        yield change
        size_bytes, schema, is_first = size_bytes + added_bytes, new, False


class FlowSource(Protocol):
    """The table that a flow reads."""

    @property
    def location(self) -> str:
        """The path or URL, or the name in a catalog."""

    def is_at(self, table: TableLocation) -> bool:
        """Return whether it is the table at a location."""

    def newest(self) -> SourceVersion:
        """Return the newest version.

        Raises:
            TableError: the table cannot be read.
        """

    def parts(self, version: int, max_bytes: int | None) -> Sequence[Sequence[str]]:
        """Return the files of a version in parts, the same at each call, oldest files first.

        Args:
            max_bytes: A part is full at this size; it has at least one file.

        Raises:
            SourceHistoryLost: the version was deleted.
            TableError: the table cannot be read.
        """

    def rows(self, spark: SparkSession, version: int, paths: Collection[str] | None = None) -> DataFrame:
        """Return the rows of a version.

        Args:
            paths: The files to read; by default all.

        Raises:
            SourceHistoryLost: the version was deleted.
            TableError: the table cannot be read.
        """

    def range_after(self, version: int, limits: RangeLimits) -> VersionRange:
        """Return the changes after a version.

        Raises:
            SourceHistoryLost: a version was deleted.
            TableError: the table cannot be read.
        """
