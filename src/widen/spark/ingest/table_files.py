"""What a batch requires of the files of a table, whatever its format: to write rows, and to read them again.

`widen.spark.ingest.write_files` and `widen.spark.ingest.write_files` implement it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pyspark.sql import Column, DataFrame, SparkSession

from widen.log.log_store import LogStore
from widen.model.types import StructType
from widen.spark.write.arrow_writer import PartFile, PartSink


class WrittenFile(Protocol):
    """A file that is written but not committed. The format of the table knows more about it."""

    @property
    def path(self) -> str:
        """The path; its first folder belongs to the job that wrote the file."""

    @property
    def size(self) -> int:
        """The size in bytes."""


class TableWriter(Protocol):
    """Writes rows as files of a table. Nothing is committed."""

    def find_sink(self, spark: SparkSession) -> PartSink | None:
        """Return where Python tasks can write files themselves; None if rows have to pass through `write`."""

    def from_parts(self, parts: Sequence[PartFile]) -> Sequence[WrittenFile]:
        """Return the files that tasks have written to the sink."""

    def fill(self, rows: DataFrame) -> DataFrame:
        """Return rows with a value in the null columns that the table computes; they may have further columns."""

    def violated_rule(self) -> Column | None:
        """Return the message of the first rule that a row violates, or null; None if the table has no rules.

        NOT NULL columns and struct fields are not included: the fixed columns of an ingestion cover them.
        """

    def refused_values(self) -> Mapping[str, Collection[str]] | None:
        """Return the texts by column of which every row that violates a rule has one; None if others may, too."""

    def write(self, rows: DataFrame) -> Sequence[WrittenFile]:
        """Write rows in the columns of the table. If that fails, the files are deleted as far as the store allows.

        Raises:
            RowRefused: a row violates a rule of the table.
        """

    def count_rows(self, files: Sequence[Any]) -> int:
        """Return the number of rows in files of this writer."""

    def discard(self, files: Sequence[Any]) -> None:
        """Delete files of this writer as far as the store allows."""


@dataclass(frozen=True, slots=True)
class TaskFiles:
    """Parquet files that Python tasks can read themselves: their columns have the names and types of the table."""

    store: LogStore
    paths: tuple[str, ...]


class TableRows(Protocol):
    """The rows of one version of a table."""

    @property
    def schema(self) -> StructType:
        """The schema of the version, with all metadata."""

    def read(self, spark: SparkSession, paths: Collection[str]) -> DataFrame:
        """Return the rows of some files.

        Args:
            paths: The paths of the files, as in `WrittenFile`.

        Raises:
            TableError: the files cannot be read.
        """

    def task_files(self, spark: SparkSession, paths: Collection[str]) -> TaskFiles | None:
        """Return those of some files that the version has; None if only Spark can read them.

        Args:
            paths: The paths of the files, as in `WrittenFile`.
        """
