"""The files of a Delta table for a batch; see `widen.spark.ingest.table_files`."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame, SparkSession

from widen.log.read.snapshot import Snapshot
from widen.log.store.log_store import LogStore
from widen.log.write.staged_files import discard
from widen.model.schema_json import from_json
from widen.model.types import BINARY, STRING, StructType
from widen.protocol.actions import Add, Metadata, Protocol
from widen.protocol.column_metadata import is_computed
from widen.protocol.partition_values import NULL_TEXTS, partition_limits
from widen.spark.dml.change_context import count_written_rows
from widen.spark.ingest.table_files import TableRows, TableWriter, TaskFiles
from widen.spark.read.scan import read_snapshot
from widen.spark.write.missing_columns import fill_computed_columns
from widen.spark.write.parquet_writer import write_parquet
from widen.spark.write.part_file import PartFile, PartSink, find_part_sink
from widen.spark.write.row_constraints import first_violated_rule


@dataclass(frozen=True, slots=True)
class DeltaWriter(TableWriter):
    """Writes rows as files of a Delta table.

    Args:
        protocol: The protocol of the table when the files are committed.
        metadata: The metadata of the table when the files are committed.
    """

    store: LogStore
    protocol: Protocol
    metadata: Metadata

    def find_sink(self, spark: SparkSession) -> PartSink | None:
        return find_part_sink(spark, self.store, self.protocol, self.metadata)

    def from_parts(self, parts: Sequence[PartFile]) -> list[Add]:
        return [part.to_add() for part in parts]

    def fill(self, rows: DataFrame) -> DataFrame:
        """Return rows with defaults, generated values and identities."""
        return fill_computed_columns(rows, from_json(self.metadata.schema_string), self.protocol)

    def violated_rule(self) -> Column | None:
        """Return the message of the first rule that a row violates, or of the first value that no partition holds.

        Raises:
            CorruptLog: an invariant cannot be parsed.
        """
        schema = from_json(self.metadata.schema_string)
        limits = partition_limits(schema, self.metadata.partition_columns)
        return first_violated_rule(schema, self.protocol, self.metadata.configuration, limits)

    def refused_values(self) -> Mapping[str, Collection[str]] | None:
        schema = from_json(self.metadata.schema_string)
        columns = [field for field in schema if field.name in self.metadata.partition_columns]
        # The table computes values after the tasks have decided which rows carry their texts.
        if any(field.type == BINARY or is_computed(field) for field in columns):
            return None
        if first_violated_rule(schema, self.protocol, self.metadata.configuration) is not None:
            return None
        return {field.name: NULL_TEXTS for field in columns if field.type == STRING}

    def write(self, rows: DataFrame) -> list[Add]:
        return write_parquet(rows, self.store, self.protocol, self.metadata)

    def count_rows(self, files: Sequence[Add]) -> int:
        return count_written_rows(files)

    def discard(self, files: Sequence[Add]) -> None:
        discard(self.store, files)


@dataclass(frozen=True, slots=True)
class DeltaRows(TableRows):
    """The rows of one version of a Delta table."""

    store: LogStore
    snapshot: Snapshot

    @property
    def schema(self) -> StructType:
        return self.snapshot.schema

    def read(self, spark: SparkSession, paths: Collection[str]) -> DataFrame:
        return read_snapshot(spark, self.store, self.snapshot, only=paths)

    def task_files(self, spark: SparkSession, paths: Collection[str]) -> TaskFiles | None:
        if find_part_sink(spark, self.store, self.snapshot.protocol, self.snapshot.metadata) is None:
            return None
        files = self.snapshot.files()
        files = files.filter(pc.is_in(files["path"], value_set=pa.array(paths, pa.string())))
        # Another writer may have deleted rows since the commit, and tasks do not read deletion vectors.
        if files["deletion_vector"].null_count < len(files):
            return None
        return TaskFiles(self.store, tuple(files["path"].to_pylist()))
