"""Column mapping by id: the names of columns in files, resolved by field id.

Spark resolves by field id only for a whole session, and still matches pushed filters by name. So Widen reads the
footers of a table in the mode ``id`` before its rows, and reads each file by the names that it has. The names are
cached for as long as the schema stays the same.

Source: PROTOCOL.md#reader-requirements-for-column-mapping
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, TypeAlias

import msgspec
import pyarrow as pa
from pyspark.sql import SparkSession

from widen import errors
from widen.errors import CorruptFile, StorageError
from widen.log.read.snapshot import Snapshot
from widen.log.store.log_store import LogStore
from widen.model.types import StructType
from widen.spark.parquet.physical_types import Names, names_in_file
from widen.spark.read.scan_groups import ScanGroup
from widen.spark.spark_errors import translate_spark_errors

DRIVER_FILES = 256
"""The number of footers up to which the driver reads them; the executors read more."""

CACHED_FILES, CACHED_SCHEMAS = 100_000, 32
"""How many files, and how many pairs of table and schema, the cache of names keeps."""

_THREADS = 16
_COLUMNS = "path string, names string, kind string, fields string"
_decoder = msgspec.json.Decoder(tuple[tuple[tuple[str, ...], str], ...])
_Key: TypeAlias = tuple[str, int, int]
_Read: TypeAlias = Callable[[str], Names]


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
    found = _read_on_driver(read, new) if len(new) <= DRIVER_FILES else _read_on_executors(spark, read, new)
    for key, names in zip(new, found, strict=True):
        cache[key] = layouts.setdefault(names, names)
    return [cache[key] for key in keys]


_KEY = ("path", "size_bytes", "modification_time_ms")


@lru_cache(CACHED_SCHEMAS)
def _cache(location: str, schema_string: str) -> dict[_Key, Names]:
    """Return the mutable cache of names for the files of a table under a schema."""
    return {}


def _read(store: LogStore, columns: StructType, path: str) -> Names:
    return names_in_file(store, columns, store.plain(path))


def _read_on_driver(read: _Read, new: Sequence[_Key]) -> list[Names]:
    with ThreadPoolExecutor(_THREADS, "widen-footer") as pool:
        return list(pool.map(read, [path for path, _, _ in new]))


def _read_on_executors(spark: SparkSession, read: _Read, new: Sequence[_Key]) -> list[Names]:
    paths = [path for path, _, _ in new]
    with translate_spark_errors():
        frame = spark.createDataFrame(pa.table({"path": paths})).repartition(min(len(paths) // 64 + 1, 400))
        rows = frame.mapInArrow(partial(_read_batches, read), _COLUMNS).collect()
    for row in rows:
        if row.kind is not None:
            raise getattr(errors, row.kind)(**msgspec.json.decode(row.fields))
    found = {row.path: _decoder.decode(row.names) for row in rows}
    return [found.get(path, ()) for path in paths]


def _read_batches(read: _Read, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the files with other names and the files with errors; most files are neither."""
    for batch in batches:
        paths = batch.column(0).to_pylist()
        with ThreadPoolExecutor(_THREADS, "widen-footer") as pool:
            results = [row for row in pool.map(partial(_read_names, read), paths) if row is not None]
        columns: list[Any] = [pa.array([row[at] for row in results], pa.string()) for at in range(4)]
        yield pa.RecordBatch.from_arrays(columns, names=["path", "names", "kind", "fields"])


def _read_names(read: _Read, path: str) -> tuple[str, str, str | None, str | None] | None:
    try:
        names: Names = read(path)
    except (CorruptFile, StorageError) as error:
        fields = {key: str(value) for key, value in error.fields.items()}
        return path, "[]", type(error).__name__, msgspec.json.encode(fields).decode()
    return (path, msgspec.json.encode(names).decode(), None, None) if names else None
