"""What a caller gives, as the batch of an interval: files by their paths, or a DataFrame.

Source: docs/evolution-rules.md#d16
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TypeAlias, TypeVar
from urllib.parse import quote

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from widen.errors import InvalidOption
from widen.observe.file_fields import LOADED_AT, SIGN, FileFields
from widen.spark.ingest.batch import Batch, TextBatch
from widen.spark.ingest.typed_batch import TypedBatch
from widen.spark.source.csv_texts import parse_dialect, read_csv, read_lines
from widen.spark.source.file_format import FileFormat, parse_format
from widen.spark.source.json_texts import read_column, read_json
from widen.spark.source.source_files import SourceFiles, choose_files, find_source, to_paths, to_source_files
from widen.spark.typed.typed_records import read_columnar, to_typed_records

IngestSource: TypeAlias = str | Sequence[str] | DataFrame
"""Files, directories and patterns, or rows."""

_Given = TypeVar("_Given", bound=IngestSource)


@dataclass(frozen=True, slots=True)
class SourceReader:
    """How records are taken in.

    Args:
        format: What files hold; by default their names tell. Of a DataFrame: ``json``, if it has JSON in one column.
        options: How to read them, by the names that Spark gives the options of its readers.
        detects: Whether texts of CSV and lines that look as numbers and booleans are taken for that.
        has_folders: Whether ``key=value`` folders on the way to a file give fields to its records.
        has_source_columns: Whether records get the URI of their file and the time of the load as fields.
    """

    format: FileFormat | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    detects: bool = False
    has_folders: bool = True
    has_source_columns: bool = False

    def of(self, spark: SparkSession, given: IngestSource) -> Batch:
        """Return the batch of what a caller gives.

        Args:
            spark: The session.
            given: Paths or rows.

        Raises:
            SourceError: the source cannot be used.
            InvalidOption: an option is none.
        """
        if not isinstance(given, DataFrame):
            return self._of_files(spark, find_source(spark, to_paths(given), self.format, self.options))
        return self._of_rows(given)

    def of_listed(self, spark: SparkSession, files: DataFrame) -> Batch | None:
        """Return the batch of some files, or None if there is nothing to read among them.

        Args:
            spark: The session.
            files: Columns ``path`` and ``length``.

        Raises:
            SourceError: their names tell several formats.
        """
        found = to_source_files(files)
        source = choose_files(found, self.format, self.options) or SourceFiles((), tuple(found))
        return self._of_files(spark, source) if any(file.size_bytes for file in source.files) else None

    def _of_files(self, spark: SparkSession, source: SourceFiles) -> Batch:
        told = self._file_fields()
        names = told.names([quote(file.path) for file in source.files])
        if source.format.is_typed:
            return TypedBatch(read_columnar(spark, source, told), source.name, source.left_out, names)
        if source.format is FileFormat.CSV:
            is_tabbed = all(".tsv" in file.path.lower() for file in source.files)
            texts = read_csv(spark, source, parse_dialect(self.options, detects=self.detects, is_tabbed=is_tabbed))
        elif self.options:
            raise InvalidOption(option="options", value=dict(self.options), expected=f"{source.format.value} has none.")
        elif source.format is FileFormat.TEXT:
            texts = read_lines(spark, source, detects=self.detects)
        else:
            texts = read_json(spark, source)
        return TextBatch(texts, source.name, source.left_out, told if names else None, names)

    def _file_fields(self) -> FileFields:
        loaded_at = datetime.now(timezone.utc).strftime(_MOMENT) if self.has_source_columns else None
        return FileFields(self.has_folders, loaded_at)

    def _of_rows(self, rows: DataFrame) -> Batch:
        if rows.isStreaming:
            raise InvalidOption(option="source", value="a streaming DataFrame", expected="Give it to ingest_stream.")
        if self.format is FileFormat.JSON:
            told = FileFields(False, self._file_fields().loaded_at)
            names = told.names([""])
            return TextBatch(read_column(rows), _DATA_FRAME, (), told if names else None, names)
        if self.format is not None or self.options:
            expected = "A DataFrame has types; only JSON in a column of it is a format."
            raise InvalidOption(option="format or options", value=str(self.format or self.options), expected=expected)
        loaded_at = self._file_fields().loaded_at
        if loaded_at is None:
            return TypedBatch([to_typed_records(rows, _DATA_FRAME)], _DATA_FRAME)
        rows = rows.withColumn(f"{LOADED_AT}{SIGN}", F.lit(loaded_at).cast("timestamp"))
        return TypedBatch([to_typed_records(rows, _DATA_FRAME)], _DATA_FRAME, (), frozenset([LOADED_AT]))


@contextmanager
def persist_source(given: _Given) -> Iterator[_Given]:
    """Keep what a DataFrame says: it may say other values when it is evaluated again, such as the current time.

    Args:
        given: Files are left alone, and so are rows that somebody keeps already.
    """
    if not isinstance(given, DataFrame) or given.isStreaming or given.storageLevel != StorageLevel.NONE:
        yield given
        return
    given.persist(StorageLevel.MEMORY_AND_DISK)
    try:
        yield given
    finally:
        given.unpersist()


_DATA_FRAME, _MOMENT = "the DataFrame", "%Y-%m-%dT%H:%M:%S.%fZ"


def to_source_reader(
    format: str | None,
    options: Mapping[str, str] | None,
    *,
    detects: bool,
    has_folders: bool = True,
    has_source_columns: bool = False,
) -> SourceReader:
    """Return how records are taken in, as callers say it.

    Args:
        format: By its name.
        options: As in `SourceReader`.
        detects: Likewise.
        has_folders: Likewise.
        has_source_columns: Likewise.

    Raises:
        InvalidOption: there is no such format.
    """
    return SourceReader(parse_format(format), dict(options or {}), detects, has_folders, has_source_columns)
