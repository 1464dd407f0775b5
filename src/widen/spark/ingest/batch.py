"""One interval on Spark: its records, observed, and written as files of the table.

Source: docs/evolution-rules.md#one-interval
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Protocol as Shape

from pyspark.sql import DataFrame

from widen.log.read.snapshot import Snapshot
from widen.log.store.log_store import LogStore
from widen.log.write.staged_files import discard_folder
from widen.model.types import StructType
from widen.observe.file_fields import FileFields
from widen.observe.observation import Observation
from widen.planning.evolution.policy import Policy
from widen.proof.file_values import FileValueReader
from widen.protocol.actions import Metadata, Protocol
from widen.spark.read.scan import read_snapshot
from widen.spark.spark_errors import translate_spark_errors
from widen.spark.text.quarantined_rows import BatchResult, write_fitting
from widen.spark.text.text_tasks import BatchWriteSpec, collect_notes, merge_notes
from widen.spark.text.verification import Side, build_row_side, build_text_side
from widen.spark.write.part_file import PartSink, find_part_sink


class Batch(Shape):
    """The records of one interval, wherever they are from."""

    @property
    def name(self) -> str:
        """What errors call it."""

    @property
    def left_out(self) -> tuple[str, ...]:
        """Files that are not read, by their names."""

    @property
    def names(self) -> frozenset[str]:
        """What the fields are called that the records get from their files."""

    def foreseen(self, base: StructType | None, policy: Policy) -> Observation:
        """Return what is known of the records before anybody looks at them all.

        Args:
            base: The schema of the table; None if there is none yet.
            policy: What may be done to it.
        """

    def observe(self, attempt: BatchWriteSpec) -> Observation:
        """Return what the records hold beyond what the columns of the attempt say; nothing is written.

        Args:
            attempt: The columns, and what is known already.

        Raises:
            CorruptFile: a file cannot be read.
        """

    def write(self, attempt: BatchWriteSpec, store: LogStore, protocol: Protocol, metadata: Metadata) -> BatchResult:
        """Write the records as files; return them with what the records hold beyond what the columns say.

        Nothing is committed. If the observation does not fit the attempt, the files are to be discarded.

        Args:
            attempt: The columns, and what is known already.
            store: Of the table.
            protocol: That the table will have when the files are committed.
            metadata: Likewise.

        Raises:
            RowRefused: a row is one that the table may not hold, and nobody had foreseen it.
            CorruptFile: a file cannot be read.
            StorageError: the store refused.
        """

    def said(self, schema: StructType, policy: Policy) -> Side:
        """Return the records for the proof.

        Args:
            schema: Of the table that holds them.
            policy: How their values were taken, and which columns cannot yield.
        """

    def found(
        self, store: LogStore, snapshot: Snapshot, paths: Collection[str], policy: Policy, kept_out: DataFrame | None
    ) -> Side:
        """Return for the proof the rows of the table, and the records that are kept out of it.

        Args:
            store: Of the table.
            snapshot: The version that holds them.
            paths: The files that they were written to, by their paths in the log.
            policy: As for `said`.
            kept_out: The texts of what is kept out of the table, in a column `TEXT`.
        """


@dataclass(frozen=True)
class TextBatch:
    """Records that come as JSON texts.

    Args:
        texts: A raw batch.
        name: What errors call it.
        left_out: Files that are not read, by their names.
        file_fields: Which fields the records get from their files.
        names: What those are called.
    """

    texts: DataFrame
    name: str
    left_out: tuple[str, ...] = ()
    file_fields: FileFields | None = None
    names: frozenset[str] = frozenset()

    def foreseen(self, base: StructType | None, policy: Policy) -> Observation:
        """Return nothing: texts have to be looked at; see `Batch`."""
        return Observation()

    def observe(self, attempt: BatchWriteSpec) -> Observation:
        """Return what the texts hold; see `Batch`."""
        with translate_spark_errors():
            return merge_notes(collect_notes(self.texts, self._told(attempt)))

    def write(self, attempt: BatchWriteSpec, store: LogStore, protocol: Protocol, metadata: Metadata) -> BatchResult:
        """Write the records; see `Batch`. Where a file is all that a row needs, the tasks write them themselves."""
        attempt = self._told(attempt)
        sink = find_part_sink(self.texts.sparkSession, store, protocol, metadata)
        if sink is not None:
            return self._written_by_tasks(replace(attempt, sink=sink), sink)
        return write_fitting(self.texts, attempt, store, protocol, metadata)

    def said(self, schema: StructType, policy: Policy) -> Side:
        """Return the records for the proof; see `Batch`."""
        told = self.file_fields
        return build_text_side(
            self.texts, schema, policy, FileValueReader(told.has_folders, told.loaded_at) if told else None
        )

    def found(
        self, store: LogStore, snapshot: Snapshot, paths: Collection[str], policy: Policy, kept_out: DataFrame | None
    ) -> Side:
        """Return the rows for the proof; see `Batch`."""
        rows = read_snapshot(self.texts.sparkSession, store, snapshot, only=paths)
        return build_row_side(rows, snapshot.schema, policy, kept_out)

    def _told(self, attempt: BatchWriteSpec) -> BatchWriteSpec:
        return replace(attempt, file_fields=self.file_fields)

    def _written_by_tasks(self, attempt: BatchWriteSpec, sink: PartSink) -> BatchResult:
        with ExitStack() as undo:
            undo.callback(discard_folder, sink.store, sink.job)
            with translate_spark_errors():
                found = collect_notes(self.texts, attempt)
            undo.pop_all()
        parts = [part for note in found for part in note.parts]
        discard_folder(sink.store, sink.job, but=[part.path for part in parts])
        return BatchResult([part.to_add() for part in parts], merge_notes(found))
