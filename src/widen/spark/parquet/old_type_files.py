"""Old files: files that hold a type from before a widening, found by reading the footers of all files.

Source: PROTOCOL.md#writer-requirements-for-type-widening
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from widen.log.read.snapshot import Snapshot
from widen.log.store.log_store import LogStore
from widen.model.column_path import Path
from widen.model.types import StructType
from widen.protocol.column_mapping import mapping_mode
from widen.spark.parquet.physical_types import old_types
from widen.spark.parquet.read_files import read_files

if TYPE_CHECKING:
    from widen.spark.spark_types import SparkSession

DRIVER_FILES = 256
"""The number of footers up to which the driver reads them; the executors read more."""


@dataclass(frozen=True, slots=True)
class OldFile:
    """A file that holds an old type.

    Args:
        rows: The number of rows, deleted ones included.
        types: The old type of each leaf in Spark SQL, by logical path.
    """

    path: str
    size_bytes: int
    rows: int
    types: Mapping[Path, str]


@dataclass(frozen=True, slots=True)
class OldType:
    """How much of a column is still stored in an old type.

    Args:
        path: The logical path of the leaf.
        type: The old type in Spark SQL.
    """

    path: Path
    type: str
    files: int
    size_bytes: int


def find_old_files(
    session: Callable[[], SparkSession], snapshot: Snapshot, files: pa.Table, driver_files: int | None = None
) -> list[OldFile]:
    """Return the files that hold an old type, in the order of the list.

    Args:
        session: Returns the session; called only for many files.
        snapshot: The version whose types are compared.
        files: Rows of its list of files.
        driver_files: The number of files up to which the driver reads them; by default `DRIVER_FILES`.

    Raises:
        CorruptFile: a file is not Parquet.
    """
    mode = mapping_mode(snapshot.properties, snapshot.protocol)
    read = partial(_read_old_types, snapshot.store, snapshot.schema, mode)
    paths = files["path"].to_pylist()
    results = read_files(session, read, paths, DRIVER_FILES if driver_files is None else driver_files)
    listed = zip(paths, files["size_bytes"].to_pylist(), results, strict=True)
    return [OldFile(path, size_bytes, rows, types) for path, size_bytes, (rows, types) in listed if types]


def summarize_old_types(files: Iterable[OldFile]) -> list[OldType]:
    """Return how much of each column is stored in each old type, sorted by path and type."""
    totals: dict[tuple[Path, str], tuple[int, int]] = {}
    for file in files:
        for key in file.types.items():
            count, size_bytes = totals.get(key, (0, 0))
            totals[key] = (count + 1, size_bytes + file.size_bytes)
    return [OldType(*key, *totals[key]) for key in sorted(totals)]


def _read_old_types(store: LogStore, schema: StructType, mode: str, path: str) -> tuple[int, Mapping[Path, str]]:
    """Return the number of rows of a file, and the old types of its leaves in Spark SQL."""
    rows, types = old_types(store, schema, mode, store.plain(path))
    return rows, {leaf: old.sql for leaf, old in types.items()}
