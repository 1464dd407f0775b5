"""Old types that a scan has to know file by file: those of widened decimals.

Spark's Parquet reader makes of every old type the new one. But the literal of a filter on a widened decimal reaches an
old file in the type of that file and without a check of its range: rows are lost, or the read fails. And a decimal of
more than 18 digits takes several times as long to make there as by a cast. So files that hold such a column in an
old type are read in that type and cast, which also lets filters through, and all others as they are.

What is known comes from footers, and is kept as long as the schema is the same. Where too many of them would have to
be opened, the files are read in the new type, and filters on widened decimals stay away from them.

Source: Spark's ParquetFilters and ParquetVectorUpdaterFactory; house rule: a read never loses a row.
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
from widen.spark.parquet.old_file_search import find_old_files
from widen.spark.spark_types import SparkSession

LOOKED_AT_FILES = 4096
"""Up to how many footers one read opens."""

KEPT_FILES = 100_000
"""Of how many files at most it is kept how they store the columns of one schema."""

KEPT_SCHEMAS = 32
"""For how many tables and schemas."""

LONG_DIGITS = 18
"""How many digits a decimal may have that Spark holds as a long."""

StoredTypes: TypeAlias = tuple[tuple[Path, DataType], ...]
"""The leaves of a file that stand in an old type, by logical path and in its order; empty if all are new."""


def unsafe_decimals(schema: StructType, partition_by: tuple[str, ...]) -> frozenset[Path]:
    """Return the widened decimals that Spark pushes filters on, by logical path.

    Source: Spark's ParquetFilters, which compares the literal in the type of the file; of what is in arrays and maps it
        pushes nothing.
    """
    return frozenset(
        path
        for path, (old, _) in _widened_to_decimals(schema, partition_by).items()
        if any(isinstance(one, DecimalType) for one in old) and is_struct_path(schema, path)
    )


def decimals_to_know(schema: StructType, partition_by: tuple[str, ...]) -> frozenset[Path]:
    """Return the leaves whose old types a scan has to know: what is unsafe, and what is slow to read as a new type."""
    widened = _widened_to_decimals(schema, partition_by)
    slow = frozenset(path for path, (_, new) in widened.items() if new.precision > LONG_DIGITS)
    return slow | unsafe_decimals(schema, partition_by)


def _widened_to_decimals(
    schema: StructType, partition_by: tuple[str, ...]
) -> Mapping[Path, tuple[list[DataType], DecimalType]]:
    """Return the leaves that were widened and are decimals now, with their old types and the new one."""
    now = dict(leaves(schema))
    found: dict[Path, tuple[list[DataType], DecimalType]] = {}
    for path, change in all_type_changes(schema):
        new = now.get(path)
        if isinstance(new, DecimalType) and path[0] not in partition_by:
            found.setdefault(path, ([], new))[0].append(change.old)
    return found


def stored_types(
    spark: SparkSession, snapshot: Snapshot, files: pa.Table, wanted: frozenset[Path]
) -> list[StoredTypes | None]:
    """Return which of some leaves each file holds in an old type; None for a file of which that is not known.

    Args:
        spark: The session; where the files are many, its executors read the footers.
        snapshot: The version.
        files: Rows of its list of files.
        wanted: The leaves, as `decimals_to_know` gives them.
    """
    known = _cached_types(snapshot.location, snapshot.metadata.schema_string)
    keys = list(zip(files["path"].to_pylist(), files["modification_time_ms"].to_pylist(), strict=True))
    new = files.filter(pa.array([key not in known for key in keys], pa.bool_()))
    if 0 < new.num_rows <= LOOKED_AT_FILES:
        if len(known) + new.num_rows > KEPT_FILES:
            known.clear()
        found = _find_stored_types(spark, snapshot, new, wanted)
        known.update({key: found.get(key[0], ()) for key in keys if key not in known} if found is not None else {})
    return [known.get(key) for key in keys]


@lru_cache(KEPT_SCHEMAS)
def _cached_types(location: str, schema_string: str) -> dict[tuple[str, int], StoredTypes]:
    """Return what is kept of the files of a table under a schema, by path and time; whoever learns more adds it."""
    return {}


def _find_stored_types(
    spark: SparkSession, snapshot: Snapshot, files: pa.Table, wanted: frozenset[Path]
) -> dict[str, StoredTypes] | None:
    """Return what the files hold in old types, those apart that hold none; None if they cannot be looked into.

    That is no error here: Spark, which may reach them by other ways, will tell.
    """
    try:
        old_files = find_old_files(lambda: spark, snapshot, files)
    except (CorruptFile, JobFailed, StorageError):
        return None
    layouts: dict[StoredTypes, StoredTypes] = {}
    found = {}
    for file in old_files:
        types = {path: _read_as(parse_type(text)) for path, text in file.types.items() if path in wanted}
        layout = tuple((path, types[path]) for path in sorted(types))
        found[file.path] = layouts.setdefault(layout, layout)
    return found


def _read_as(stored: DataType) -> DataType:
    """Return the type to read a stored one in: small whole numbers stand in files as int."""
    return INTEGER if stored in (BYTE, SHORT) else stored
