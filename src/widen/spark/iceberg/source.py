"""How Spark opens files of an Iceberg table that call the columns alike.

Source: Iceberg's table specification, "Column Projection"
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeAlias

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from widen.log.store.log_store import LogStore, percent_encode
from widen.model.types import StructType
from widen.protocol.column_mapping import NONE
from widen.protocol.skipping.predicate import Predicate
from widen.spark.hadoop_options import options_of_files
from widen.spark.iceberg.arrow_files import PLACE, POSITION, open_with_arrow
from widen.spark.iceberg.file_columns import FileColumns
from widen.spark.read.projection import projection
from widen.spark.read.pushdown import filter_stored_rows
from widen.spark.read.scan import file_key, key_of, list_files, open_files
from widen.spark.read.scan_groups import ScanGroup, ScanPlan
from widen.spark.stored_names import compares_names_exactly

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from widen.iceberg.scan_plan import DeleteFile, ScannedFile
    from widen.iceberg.snapshots import ReadPoint


@dataclass(frozen=True)
class IcebergSource:
    """A table as a scan reads it.

    Args:
        io: Opens footers and delete files; executors get a copy of it.
    """

    spark: SparkSession
    io: FileIO
    point: ReadPoint

    def open(
        self, schema: StructType, predicate: Predicate, columns: FileColumns, files: Sequence[FileEntry]
    ) -> FileRows:
        """Return files that call the columns alike, as Spark reads them, with what a projection of them needs.

        Args:
            schema: The columns to read, with field ids.
            predicate: The condition on rows that may be pushed to the files.
        """
        listed = _to_file_list(files)
        group = ScanGroup(
            listed, is_hive=False, has_vectors=False, values={}, stored=columns.stored, names=columns.names
        )
        scan = ScanPlan(predicate, schema, NONE, (), (group,))
        uris = to_uris(file.path for file in files)
        if columns.has_similar_names and not compares_names_exactly(self.spark):
            keys = {file.path: key_of(uri) for file, uri in zip(files, uris, strict=True)}
            frame = open_with_arrow(self.spark, self.io, schema, columns.names, keys)
            in_table = projection(scan, replace(group, stored=(), names=()))
            return FileRows(frame, in_table, F.col(PLACE), F.col(POSITION))
        if all(uri.startswith("file:") for uri in uris):
            uris = list_files(self.spark, LogStore(self.point.metadata.location), listed, uris)
        frame = open_files(self.spark, scan, group, uris, store_options=options_of_files(uris, self.io.properties))
        frame = filter_stored_rows(frame, scan, group)
        return FileRows(frame, projection(scan, group), file_key(), F.col("_metadata.row_index"))


FileEntry: TypeAlias = "ScannedFile | DeleteFile"


@dataclass(frozen=True)
class FileRows:
    """The rows of files with the columns of the files, and the columns of the table made of these.

    Args:
        file: The key of the file of a row.
        position: The position of a row in its file.
    """

    frame: DataFrame
    columns: list[Column]
    file: Column
    position: Column


def to_uris(paths: Iterable[str]) -> Sequence[str]:
    """Return the locations of files as Spark spells them."""
    return [_ROOT.uri(percent_encode(path)) for path in paths]


_ROOT = LogStore("/")


def _to_file_list(files: Sequence[FileEntry]) -> pa.Table:
    sizes = pa.array([file.size_bytes for file in files], pa.int64())
    paths = pa.array([file.path for file in files], pa.string())
    return pa.table(
        {"path": paths, "size_bytes": sizes, "modification_time_ms": pa.array([0] * len(files), pa.int64())}
    )
