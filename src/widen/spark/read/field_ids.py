"""Column mapping by id: the names of columns in files, resolved by field id.

Spark resolves by field id only for a whole session, and still matches pushed filters by name. So Widen reads the
footers of a table in the mode ``id`` before its rows, and reads each file by the names that it has. The names are
cached for as long as the schema stays the same.

Source: PROTOCOL.md#reader-requirements-for-column-mapping
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import TypeAlias

import pyarrow as pa
from pyspark.sql import SparkSession

from widen.log.read.snapshot import Snapshot
from widen.log.store.log_store import LogStore
from widen.model.types import StructType
from widen.spark.parquet.physical_types import Names, names_in_file
from widen.spark.parquet.read_files import read_files
from widen.spark.read.scan_groups import ScanGroup

DRIVER_FILES = 256
"""The number of footers up to which the driver reads them; the executors read more."""

CACHED_FILES, CACHED_SCHEMAS = 100_000, 32
"""How many files, and how many pairs of table and schema, the cache of names keeps."""

_Key: TypeAlias = tuple[str, int, int]


def split_by_names(spark: SparkSession, snapshot: Snapshot, groups: Sequence[ScanGroup]) -> Iterator[ScanGroup]:
    """Yield the groups, split by the names that their files have for columns.

    Args:
        spark: The session, whose executors read the footers of many files.
        snapshot: The version, with column mapping by ``id``.

    Raises:
        CorruptFile: a file is not Parquet, or has no field ids.
    """
    if not groups:
        return
    files = pa.concat_tables(group.files for group in groups)
    names_by_file = iter(_cached_names(spark, snapshot, files))
    for group in groups:
        names = [next(names_by_file) for _ in range(group.files.num_rows)]
        for distinct in dict.fromkeys(names):
            mask = pa.array([name == distinct for name in names])
            yield replace(group, files=group.files.filter(mask), names=distinct)


def _cached_names(spark: SparkSession, snapshot: Snapshot, files: pa.Table) -> list[Names]:
    cache = _cache(snapshot.location, snapshot.metadata.schema_string)
    keys = list(zip(*(files[name].to_pylist() for name in _KEY), strict=True))
    new = [key for key in dict.fromkeys(keys) if key not in cache]
    if len(cache) + len(new) > CACHED_FILES:
        cache.clear()
        new = list(dict.fromkeys(keys))
    columns = StructType(tuple(f for f in snapshot.schema if f.name not in snapshot.partition_columns))
    read = partial(_read, snapshot.store, columns)
    layouts: dict[Names, Names] = {}
    paths = [path for path, _, _ in new]
    names_of_new = read_files(lambda: spark, read, paths, DRIVER_FILES)
    for key, names in zip(new, names_of_new, strict=True):
        cache[key] = layouts.setdefault(names, names)
    return [cache[key] for key in keys]


_KEY = ("path", "size_bytes", "modification_time_ms")


@lru_cache(CACHED_SCHEMAS)
def _cache(location: str, schema_string: str) -> dict[_Key, Names]:
    """Return the mutable cache of names for the files of a table under a schema."""
    return {}


def _read(store: LogStore, columns: StructType, path: str) -> Names:
    return names_in_file(store, columns, store.plain(path))
