"""What an ingestion requires of a table, whatever its format.

A `TableLocation` opens as an `IngestTarget`. A plan turns the target into a `TableDraft`; files are written under the
draft and committed with it. A `Quarantine` keeps the records that the table cannot hold. `widen.formats.delta_target`
and `widen.formats.delta_quarantine` implement these protocols for Delta; another format is a module beside them.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

from widen.errors import TableNotFound
from widen.log.read.loads import Load, LoadedFile
from widen.log.write.commit_outcome import (
    Conflicted,
    after_commit,
    reason_of,
    retry_conflicts,
    run_logged,
    several_commits,
)
from widen.log.write.staged_files import StagedFiles
from widen.model.types import StructType
from widen.planning.evolution.plan import Plan
from widen.planning.evolution.policy import Policy
from widen.spark.dml.replaced_rows import ReplacedRows
from widen.spark.ingest.batch import Batch
from widen.spark.ingest.table_files import TableRows
from widen.spark.source.raw_batch import TEXT
from widen.spark.spark_types import DataFrame, SparkSession
from widen.spark.text.quarantined_rows import BatchResult
from widen.spark.text.text_tasks import BatchWriteSpec
from widen.spark.text.verification import Verification, verify

__all__ = [
    "CommitResult",
    "Conflicted",
    "IngestTarget",
    "Load",
    "LoadRecord",
    "LoadedFile",
    "NewFiles",
    "Quarantine",
    "QuarantineContent",
    "QuarantineWrite",
    "ReplacedRows",
    "RowReplacingDraft",
    "StagedFiles",
    "StreamInterval",
    "TableDraft",
    "TableLocation",
    "after_commit",
    "reason_of",
    "retry_conflicts",
    "run_logged",
    "several_commits",
    "verify_rows",
]

CommitResult: TypeAlias = int | Conflicted
"""The new version of the table, or the commit of another writer that contradicts ours."""

NO_PARAMETERS: Mapping[str, object] = {}


@dataclass(frozen=True, slots=True)
class StreamInterval:
    """An interval of a stream. The table records the last one that it has.

    Args:
        number: The number of the interval; it grows.
    """

    app_id: str
    number: int


@dataclass(frozen=True, slots=True)
class NewFiles:
    """The source files of a batch, none of which the table has loaded."""

    table: str
    files: tuple[LoadedFile, ...]


@dataclass(frozen=True, slots=True)
class LoadRecord:
    """The source files of a batch, to be recorded with its commit.

    Args:
        load: The files and the counts; the commit sets its version and time.
        is_exclusive: Whether the batch depends on which files are loaded. Then a concurrent load is a conflict.
    """

    load: Load
    is_exclusive: bool = False


class TableLocation(Protocol):
    """Where a table is or will be. Picklable; nothing is read until it is opened."""

    @property
    def location(self) -> str:
        """The path or URL."""

    @property
    def keeps_types(self) -> bool:
        """Whether a new table can have every type of Spark."""

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
            location: Of the quarantine; by default beside the table.

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

    def draft(self, plan: Plan) -> TableDraft:
        """Return the table as a plan changes it.

        Raises:
            RequestError: the table does not allow a change.
        """

    def has_interval(self, interval: StreamInterval) -> bool:
        """Tell whether the table has an interval, or a later one of the same stream."""

    def last_interval(self, app_id: str) -> StreamInterval | None:
        """Return the last interval of a stream that the table has, if any."""

    def loads(self, *, is_required: bool = False) -> tuple[Load, ...]:
        """Return which source files the table has loaded, oldest load first.

        Args:
            is_required: Whether files that the table has loaded must be known: only new ones are to be loaded.

        Raises:
            InvalidOption: they are required, and the table does not know them.
            TableError: the record of loads cannot be read.
        """

    def interval_parameters(self, interval: StreamInterval) -> Mapping[str, Any] | None:
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


class TableDraft(Protocol):
    """A table as a plan changes it. Files are written under it and committed with it."""

    def check(self) -> None:
        """Check that a new table can be made as planned, once the plan knows all columns.

        Raises:
            InvalidOption: it cannot be partitioned as the caller wants.
        """

    def write(self, batch: Batch, spec: BatchWriteSpec) -> BatchResult:
        """Write a batch as files; nothing is committed.

        Raises:
            RequestError: the table does not allow a change.
            TableError: the files cannot be written.
        """

    def discard(self, result: BatchResult) -> None:
        """Delete files that were written and will not be committed, as far as the store allows."""

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


class Quarantine(Protocol):
    """A table with the records that another table could not hold. It may not exist yet."""

    @property
    def location(self) -> str:
        """The path or URL."""

    def write(
        self,
        kept_out: DataFrame | None,
        table_version: int,
        interval: StreamInterval | None,
        new_files: NewFiles | None = None,
    ) -> QuarantineWrite | None:
        """Append records in one commit; the quarantine is created if it does not exist.

        Args:
            kept_out: The records; see `widen.spark.text.quarantined_rows.BatchResult`. None if there are none.
            table_version: The version of the table that cannot hold them; -1 if the table does not exist yet.
            new_files: The source files, if the table has loaded none of them. Records that an interrupted load of them
                has left in the quarantine are removed in the same commit.

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

    def rows(self, spark: SparkSession) -> DataFrame:
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
    def interval(self) -> StreamInterval:
        """The interval that a replay of this version is, for the table and the quarantine alike."""

    @property
    def is_empty(self) -> bool:
        """Whether it has no records."""

    def rows(self, spark: SparkSession) -> DataFrame:
        """Return the records.

        Raises:
            TableError: the quarantine cannot be read.
        """

    def write_remaining(
        self, kept_out: DataFrame | None, table_version: int, staged: StagedFiles
    ) -> Mapping[str, object]:
        """Write the records that stay, as files that will replace those of this version.

        Args:
            staged: Deletes the files if the replay is not committed.

        Returns:
            Parameters for the commit to the table, from which `Quarantine.finish_replay` finds the files again.

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
) -> Verification:
    """Compare the records of a batch with the rows of a table; see `IngestTarget.verify`.

    Raises:
        TableError: the table cannot be read.
    """
    source, texts = batch.source_digests(rows.schema, policy), None
    if quarantine:
        # Rows that name a file which cannot be read have no text.
        texts = quarantine.rows(source.digests().sparkSession).select(TEXT).where(f"{TEXT} IS NOT NULL")
    paths = [file.path for file in result.files]
    return verify(source, batch.table_digests(rows, paths, policy, texts), share)
