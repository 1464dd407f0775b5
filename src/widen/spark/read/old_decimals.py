"""Widened decimals, whose old types a scan has to know file by file.

Spark's Parquet reader converts every old type to the new one. But it pushes the literal of a filter on a widened
decimal to an old file in the type of that file, without a range check: rows are lost, or the read fails. And the
reader takes several times as long as a cast to make a decimal of more than 18 digits. So Widen reads files with such a
column in the old type and casts, which also lets filters through, and reads all other files directly.

The old types come from the footers and are cached for as long as the schema stays the same. If too many footers would
have to be opened, the files are read in the new type, and filters on widened decimals are not pushed to them.

Source: Spark's ParquetFilters and ParquetVectorUpdaterFactory
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias

import pyarrow as pa

from widen.errors import CorruptFile, JobFailed, StorageError
from widen.log.read.snapshot import Snapshot
from widen.model.column_path import Path, is_struct_path, leaves
from widen.model.type_parser import parse_type
from widen.model.types import BYTE, INTEGER, SHORT, DataType, DecimalType, StructType
from widen.protocol.type_changes import all_type_changes
from widen.spark.parquet.old_type_files import find_old_files
from widen.spark.spark_types import SparkSession

MOST_FOOTERS = 4096
"""The most footers that one read opens."""

CACHED_FILES = 100_000
"""The most files per schema in the cache of old types."""

CACHED_SCHEMAS = 32
"""The most pairs of table and schema in the cache of old types."""

LONG_DIGITS = 18
"""The most digits of a decimal that Spark stores as a long."""

StoredTypes: TypeAlias = tuple[tuple[Path, DataType], ...]
"""The leaves that a file stores in an old type, sorted by logical path; empty if all are new."""


def unsafe_decimals(schema: StructType, partition_by: tuple[str, ...]) -> frozenset[Path]:
    """Return the logical paths of the widened decimals on which Spark pushes filters.

    Source: Spark's ParquetFilters, which compares the literal in the type of the file and pushes no filters on values
        inside arrays and maps.
    """
    return frozenset(
        path
        for path, (old, _) in _widened_to_decimals(schema, partition_by).items()
        if any(isinstance(data_type, DecimalType) for data_type in old) and is_struct_path(schema, path)
    )


def decimals_to_know(schema: StructType, partition_by: tuple[str, ...]) -> frozenset[Path]:
    """Return the leaves whose old types a scan has to know: unsafe decimals, and those slow to read as a new type."""
    widened = _widened_to_decimals(schema, partition_by)
    slow = frozenset(path for path, (_, new) in widened.items() if new.precision > LONG_DIGITS)
    return slow | unsafe_decimals(schema, partition_by)


def _widened_to_decimals(
    schema: StructType, partition_by: tuple[str, ...]
) -> Mapping[Path, tuple[list[DataType], DecimalType]]:
    """Return the leaves that were widened to a decimal, with their old types and the new one."""
    current = dict(leaves(schema))
    widened: dict[Path, tuple[list[DataType], DecimalType]] = {}
    for path, change in all_type_changes(schema):
        new = current.get(path)
        if isinstance(new, DecimalType) and path[0] not in partition_by:
            widened.setdefault(path, ([], new))[0].append(change.old)
    return widened


def stored_types(
    spark: SparkSession, snapshot: Snapshot, files: pa.Table, wanted: frozenset[Path]
) -> list[StoredTypes | None]:
    """Return for each file which of the wanted leaves it stores in an old type; None where that is unknown.

    Args:
        spark: The session, whose executors read the footers of many files.
        files: Rows of its list of files.
        wanted: The leaves, as `decimals_to_know` returns them.
    """
    cache = _cached_types(snapshot.location, snapshot.metadata.schema_string)
    keys = list(zip(files["path"].to_pylist(), files["modification_time_ms"].to_pylist(), strict=True))
    new = files.filter(pa.array([key not in cache for key in keys], pa.bool_()))
    if 0 < new.num_rows <= MOST_FOOTERS:
        if len(cache) + new.num_rows > CACHED_FILES:
            cache.clear()
        old_types = _find_stored_types(spark, snapshot, new, wanted)
        cache.update(
            {key: old_types.get(key[0], ()) for key in keys if key not in cache} if old_types is not None else {}
        )
    return [cache.get(key) for key in keys]


@lru_cache(CACHED_SCHEMAS)
def _cached_types(location: str, schema_string: str) -> dict[tuple[str, int], StoredTypes]:
    """Return the mutable cache of old types for the files of a table under a schema, by path and modification time."""
    return {}


def _find_stored_types(
    spark: SparkSession, snapshot: Snapshot, files: pa.Table, wanted: frozenset[Path]
) -> dict[str, StoredTypes] | None:
    """Return the old types of the files that have any, or None if the footers cannot be read.

    Unreadable footers are not an error here: Spark may have credentials that this process lacks, and reports
    unreadable files itself.
    """
    try:
        old_files = find_old_files(lambda: spark, snapshot, files)
    except (CorruptFile, JobFailed, StorageError):
        return None
    layouts: dict[StoredTypes, StoredTypes] = {}
    by_path = {}
    for file in old_files:
        types = {path: _read_as(parse_type(text)) for path, text in file.types.items() if path in wanted}
        layout = tuple((path, types[path]) for path in sorted(types))
        by_path[file.path] = layouts.setdefault(layout, layout)
    return by_path


def _read_as(stored: DataType) -> DataType:
    """Return the type in which Spark reads a stored type: Parquet stores byte and short as int."""
    return INTEGER if stored in (BYTE, SHORT) else stored
