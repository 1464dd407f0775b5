"""Column mapping by id: under which names files have the columns that their field ids tell.

Spark can switch to field ids only for a whole session, and compares filters by name all the same. So the footers of a
table in the mode ``id`` are read before its rows, and files that have other names than the physical ones are read by
their own. What was learnt of a file is kept as long as the schema is the same.

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

HERE_FILES = 256
"""Up to how many footers are read in this process; the executors read more of them."""

KEPT_FILES, KEPT_SCHEMAS = 100_000, 32
"""Of how many files of how many tables and schemas their names are kept."""

_THREADS = 16
_COLUMNS = "path string, names string, kind string, fields string"
_decoder = msgspec.json.Decoder(tuple[tuple[tuple[str, ...], str], ...])
_Key: TypeAlias = tuple[str, int, int]
_Read: TypeAlias = Callable[[str], Names]


def divided_by_names(spark: SparkSession, snapshot: Snapshot, groups: Sequence[ScanGroup]) -> Iterator[ScanGroup]:
    """Yield the files of groups by the names that they have for columns.

    Args:
        spark: The session; where the files are many, its executors read the footers.
        snapshot: The version; the mode of its column mapping is ``id``.
        groups: Of its files.

    Raises:
        CorruptFile: a file is no Parquet, or has no field ids.
        JobFailed: Spark could not finish the job.
        StorageError: the store refused.
    """
    if not groups:
        return
    files = pa.concat_tables(group.files for group in groups)
    found = iter(_names(spark, snapshot, files))
    for group in groups:
        names = [next(found) for _ in range(group.files.num_rows)]
        for one in dict.fromkeys(names):
            yield replace(group, files=group.files.filter(pa.array([name == one for name in names])), names=one)


def _names(spark: SparkSession, snapshot: Snapshot, files: pa.Table) -> list[Names]:
    known = _known(snapshot.location, snapshot.metadata.schema_string)
    keys = list(zip(*(files[name].to_pylist() for name in _KEY), strict=True))
    new = [key for key in dict.fromkeys(keys) if key not in known]
    if len(known) + len(new) > KEPT_FILES:
        known.clear()
        new = list(dict.fromkeys(keys))
    columns = StructType(tuple(f for f in snapshot.schema if f.name not in snapshot.partition_columns))
    read = partial(_read, snapshot.store, columns)
    layouts: dict[Names, Names] = {}
    found = _read_here(read, new) if len(new) <= HERE_FILES else _read_there(spark, read, new)
    for key, names in zip(new, found, strict=True):
        known[key] = layouts.setdefault(names, names)
    return [known[key] for key in keys]


_KEY = ("path", "size_bytes", "modification_time_ms")


@lru_cache(KEPT_SCHEMAS)
def _known(location: str, schema_string: str) -> dict[_Key, Names]:
    """Return what is kept of the files of a table under a schema; whoever learns more adds it."""
    return {}


def _read(store: LogStore, columns: StructType, path: str) -> Names:
    return names_in_file(store, columns, store.plain(path))


def _read_here(read: _Read, new: Sequence[_Key]) -> list[Names]:
    with ThreadPoolExecutor(_THREADS, "widen-footer") as pool:
        return list(pool.map(read, [path for path, _, _ in new]))


def _read_there(spark: SparkSession, read: _Read, new: Sequence[_Key]) -> list[Names]:
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
    """Yield what files have other names for, and what is wrong with files; nothing of the others."""
    for batch in batches:
        paths = batch.column(0).to_pylist()
        with ThreadPoolExecutor(_THREADS, "widen-footer") as pool:
            told = [one for one in pool.map(partial(_told, read), paths) if one is not None]
        columns: list[Any] = [pa.array([one[at] for one in told], pa.string()) for at in range(4)]
        yield pa.RecordBatch.from_arrays(columns, names=["path", "names", "kind", "fields"])


def _told(read: _Read, path: str) -> tuple[str, str, str | None, str | None] | None:
    try:
        names: Names = read(path)
    except (CorruptFile, StorageError) as error:
        fields = {key: str(value) for key, value in error.fields.items()}
        return path, "[]", type(error).__name__, msgspec.json.encode(fields).decode()
    return (path, msgspec.json.encode(names).decode(), None, None) if names else None
