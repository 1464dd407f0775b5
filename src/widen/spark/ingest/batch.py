"""The batch of one interval on Spark: its records are observed, and written as files of the table.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Protocol as Interface

import pyarrow as pa

from widen.errors import JobFailed
from widen.evolution.plan import BadFile
from widen.evolution.policy import Policy
from widen.json.field_rules import FileFields
from widen.json.observation import Observation
from widen.json.split import MAX_RECORD_BYTES
from widen.log.commit_outcome import discard_folder
from widen.model.types import StructType
from widen.proof.source_reader import FileTasks, FileValueReader
from widen.rows.row_builder import OriginColumn
from widen.spark.engine import Rows, is_local, require_spark
from widen.spark.errors import is_out_of_memory, translate_spark_errors
from widen.spark.ingest.contract_check import ContractReport, check_texts
from widen.spark.ingest.quarantined_rows import BatchResult, keep_refused, write_fitting
from widen.spark.ingest.text_tasks import ORIGIN, BatchWriteSpec, TaskNote, collect_notes, merge_notes
from widen.spark.ingest.verification import (
    Side,
    TextSource,
    build_row_side,
    build_text_side,
)
from widen.spark.ingest.write_files import TableRows, TableWriter
from widen.spark.source.file_ranges import RawTexts, is_small, to_frame
from widen.spark.source.source_files import SourceFile, unusable_source
from widen.spark.spark_types import DataFrame, SparkSession
from widen.spark.write.arrow_writer import Sink


class Batch(Interface):
    """The records of one interval, from any source."""

    @property
    def name(self) -> str:
        """The name of the source in errors."""

    @property
    def spark(self) -> SparkSession:
        """The session that reads the records."""

    @property
    def left_out(self) -> tuple[str, ...]:
        """The names of the files that are not read."""

    @property
    def has_types(self) -> bool:
        """Whether the source has types, so that no task reads texts."""

    @property
    def names(self) -> frozenset[str]:
        """The names of the fields that records get from their files."""

    @property
    def files(self) -> tuple[SourceFile, ...]:
        """The files that are read; empty if the records are not from files."""

    @property
    def bad_files(self) -> tuple[BadFile, ...]:
        """The files that cannot be read and are skipped."""

    @property
    def source_table(self) -> str:
        """The version of a table whose rows these are; empty if the source is not a table."""

    def prior_observation(self, base: StructType | None, policy: Policy) -> Observation:
        """Return what is known about the records before a full pass over them.

        Args:
            base: The schema of the table; None if the table does not exist yet.
        """

    def observe(self, attempt: BatchWriteSpec) -> Observation:
        """Return what the records contain beyond what the columns of the attempt say; writes nothing.

        Args:
            attempt: The columns, and what is known already.

        Raises:
            CorruptFile: a file cannot be read.
        """

    def write(self, attempt: BatchWriteSpec, writer: TableWriter) -> BatchResult:
        """Write the records as files; return the files and what the records contain beyond what the columns say.

        Nothing is committed. If the observation does not fit the attempt, the caller must discard the files.

        Args:
            attempt: The columns, and what is known already.

        Raises:
            RowRefused: a row violates a rule of the table that quarantine does not cover.
            CorruptFile: a file cannot be read.
        """

    def check_contract(self, contract: object) -> ContractReport:
        """Return where the records break a contract.

        Raises:
            CorruptFile: a file cannot be read.
        """

    def prepare_proof(self) -> None:
        """Get ready for the proof, before anything is written."""

    def source_digests(self, schema: StructType, policy: Policy) -> Side:
        """Return the digests of the records, for the proof.

        Args:
            policy: The policy of the ingestion, with the field rules and the fixed columns.
        """

    def table_digests(
        self, table: TableRows, paths: Collection[str], policy: Policy, quarantined_records: Callable[[], Rows] | None
    ) -> Side:
        """Return the digests of the rows of the table and of the quarantined records, for the proof.

        Args:
            quarantined_records: Returns the texts of the quarantined records, in a column `TEXT`.
        """


@dataclass(frozen=True, slots=True)
class TextReaders:
    """The ways to read the texts of a batch.

    Args:
        read: Returns the raw batch.
        read_again: Returns the same texts, read in another way, for the proof; None to prove with `read`.
        ranges: The same texts for a task in this process, if they are few.
        find_tasks: Returns the files for the proof if its tasks can read them.
        find_sample: Returns some of the texts for a task in this process, if they have one record on each line.
    """

    read: Callable[[], RawTexts]
    read_again: Callable[[], DataFrame] | None = None
    ranges: pa.RecordBatch | None = None
    find_tasks: Callable[[], FileTasks | None] | None = None
    find_sample: Callable[[], pa.RecordBatch | None] | None = None


@dataclass(frozen=True)
class TextBatch:
    """A batch of records as JSON texts."""

    spark: SparkSession
    readers: TextReaders
    name: str
    left_out: tuple[str, ...] = ()
    file_fields: FileFields | None = None
    names: frozenset[str] = frozenset()
    files: tuple[SourceFile, ...] = ()
    bad_files: tuple[BadFile, ...] = ()
    source_table: str = ""
    max_record_bytes: int = MAX_RECORD_BYTES

    has_types = False

    @property
    def texts(self) -> RawTexts:
        """The raw batch, for the engine that does the work now."""
        return self._texts_here if is_local(self.spark) else self._texts_on_spark

    @cached_property
    def _texts_here(self) -> RawTexts:
        return self.readers.read()

    @cached_property
    def _texts_on_spark(self) -> RawTexts:
        return self.readers.read()

    def prior_observation(self, base: StructType | None, policy: Policy) -> Observation:
        """Return nothing, because texts have no schema; see `Batch`."""
        return Observation()

    def observe(self, attempt: BatchWriteSpec) -> Observation:
        """Return the observation of the texts; see `Batch`."""
        attempt = self._with_file_fields(attempt)
        with _name_largest_file(self.files), translate_spark_errors():
            return self._observe_sample(attempt) or merge_notes(self._collect_notes(attempt))

    def write(self, attempt: BatchWriteSpec, writer: TableWriter) -> BatchResult:
        """Write the records; see `Batch`. The tasks write the files themselves if the table allows it."""
        attempt = self._with_file_fields(attempt)
        sink = writer.find_sink(self.spark)
        with _name_largest_file(self.files):
            if sink is None:
                require_spark(self.spark, f"of the table: {writer.find_obstacle()}")
                return write_fitting(self.texts, attempt, writer)
            refused = sink.refused_texts
            origin = OriginColumn(ORIGIN, values=refused) if refused or attempt.policy.fixed_columns else None
            return self._write_in_tasks(replace(attempt, sink=sink, origin=origin), sink, writer)

    def prepare_proof(self) -> None:
        """Start Spark if this process cannot read the records again; see `Batch`."""
        if not is_local(self.spark) or self.readers.read_again is None or all(map(is_small, self.files)):
            return
        if self.readers.find_tasks is None or self.readers.find_tasks() is None:
            require_spark(self.spark, "it reads large files of this form again, to verify them")

    def check_contract(self, contract: object) -> ContractReport:
        """Return where the records break a contract; see `Batch`."""
        return check_texts(self.texts, contract)

    def source_digests(self, schema: StructType, policy: Policy) -> Side:
        """Return the digests of the records; see `Batch`."""
        file_fields, readers = self.file_fields, self.readers
        source = TextSource(
            self.spark,
            readers.read_again or (lambda: to_frame(self.texts)),
            readers.find_tasks() if readers.find_tasks is not None else None,
            FileValueReader(file_fields.has_folders, file_fields.loaded_at) if file_fields else None,
        )
        return build_text_side(source, schema, policy)

    def table_digests(
        self, table: TableRows, paths: Collection[str], policy: Policy, quarantined_records: Callable[[], Rows] | None
    ) -> Side:
        """Return the digests of the rows; see `Batch`."""
        rows = partial(table.read, self.spark, paths)
        return build_row_side(
            self.spark, rows, table.schema, policy, quarantined_records, table.task_files(self.spark, paths)
        )

    def _with_file_fields(self, attempt: BatchWriteSpec) -> BatchWriteSpec:
        return replace(attempt, file_fields=self.file_fields, max_record_bytes=self.max_record_bytes)

    def _observe_sample(self, attempt: BatchWriteSpec) -> Observation | None:
        """Return the observation of a sample if it leads to the first columns, so that another pass follows."""
        # A new table always takes a second pass, so the first may look at a sample: what that lacks, the second pass
        # finds.
        is_first, find_sample = not (attempt.schema.fields or attempt.is_exhaustive), self.readers.find_sample
        sample = find_sample() if is_first and find_sample and self.readers.ranges is None else None
        if sample is None:
            return None
        seen = merge_notes(collect_notes(sample, replace(attempt, is_exhaustive=True)))
        # A line that is not a record may be a part of one.
        is_lined = not (seen.corrupt or seen.not_objects)
        return seen if is_lined and attempt.next_schema(seen).fields else None

    def _collect_notes(self, attempt: BatchWriteSpec) -> list[TaskNote]:
        ranges = self.readers.ranges
        return collect_notes(self.texts if ranges is None else ranges, attempt)

    def _write_in_tasks(self, attempt: BatchWriteSpec, sink: Sink, writer: TableWriter) -> BatchResult:
        with ExitStack() as undo:
            # A job that fails leaves the files of the tasks that succeeded.
            undo.callback(discard_folder, sink.store, sink.job)
            with translate_spark_errors():
                notes = self._collect_notes(attempt)
            undo.pop_all()
        parts = [part for note in notes for part in note.parts]
        if self.readers.ranges is None:  # Spark may have run a task twice
            discard_folder(sink.store, sink.job, but=[part.path for part in parts])
        seen = merge_notes(notes)
        refused = keep_refused(self.texts, attempt) if attempt.origin is not None and seen.quarantined else None
        return BatchResult(writer.from_parts(parts), seen, refused)


@contextmanager
def _name_largest_file(files: Sequence[SourceFile]) -> Iterator[None]:
    """If Java runs out of memory, raise an error with the largest file: Spark reads a line or a record as a whole."""
    try:
        yield
    except JobFailed as error:
        if not files or not is_out_of_memory(error):
            raise
        file = max(files, key=lambda file: file.size_bytes)
        reason = f"Java ran out of memory; the largest file is {file.path} ({file.size_bytes / 2**20:,.0f} MB)"
        raise unusable_source(", ".join(each.path for each in files[:3]), reason, _SMALLER) from error


_SMALLER = "Give Spark more memory (spark.driver.memory, spark.executor.memory), or split records of more than 50 MB."
