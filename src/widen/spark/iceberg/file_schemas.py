"""The columns of data files, from their footers: names, types and field ids.

Iceberg never changes a file, so what a footer says is kept for as long as the process lives.

Source: Iceberg's table specification, "Column Projection"
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from widen.errors import CorruptFile
from widen.errors.foreign import first_line
from widen.spark.spark_errors import translate_spark_errors

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

DRIVER_FILES = 256
"""The number of footers up to which the driver reads them; the executors read more."""

CACHED_FILES = 100_000
"""How many files the cache of schemas keeps."""

_THREADS = 16
_COLUMNS = "path string, fields binary, reason string"
_cache: dict[str, pa.Schema] = {}
_schemas: dict[bytes, pa.Schema] = {}
_FIX = "Restore the file from a backup, or check that its store can be reached."


def read_schemas(spark: SparkSession, io: FileIO, paths: Sequence[str]) -> list[pa.Schema]:
    """Return the columns of Parquet files, in the order of the paths; files with equal columns share one object.

    Args:
        spark: The session, whose executors read the footers of many files.
        io: Opens the files; executors get a copy of it.

    Raises:
        CorruptFile: a file is missing, cannot be read or is not Parquet.
    """
    new = [path for path in dict.fromkeys(paths) if path not in _cache]
    if len(_cache) + len(new) > CACHED_FILES:
        _cache.clear()
        _schemas.clear()
        new = list(dict.fromkeys(paths))
    footers = _read_on_driver(io, new) if len(new) <= DRIVER_FILES else _read_on_executors(spark, io, new)
    for path, fields, reason in footers:
        if reason is not None or fields is None:
            raise CorruptFile(path=path, reason=reason, fix=_FIX)
        if fields not in _schemas:
            _schemas[fields] = pa.ipc.read_schema(pa.py_buffer(fields))
        _cache[path] = _schemas[fields]
    return [_cache[path] for path in paths]


def _read_on_driver(io: FileIO, paths: Sequence[str]) -> list[tuple[str, bytes | None, str | None]]:
    with ThreadPoolExecutor(_THREADS, "widen-footer") as pool:
        return list(pool.map(partial(_read, io), paths))


def _read_on_executors(
    spark: SparkSession, io: FileIO, paths: Sequence[str]
) -> Iterator[tuple[str, bytes | None, str | None]]:
    """Yield what the executors read. A task sends each set of columns once, and then refers to its first file."""
    with translate_spark_errors():
        frame = spark.createDataFrame(pa.table({"path": list(paths)})).repartition(min(len(paths) // 64 + 1, 400))
        rows = frame.mapInArrow(partial(_read_batches, io), _COLUMNS).collect()
    by_file = {row.path: bytes(row.fields) for row in rows if row.fields is not None and not row.reason}
    for row in rows:
        shares = row.fields is None and row.reason.startswith(_AS)
        fields = by_file[row.reason.removeprefix(_AS)] if shares else by_file.get(row.path)
        yield row.path, fields, None if shares else row.reason


_AS = "as "


def _read_batches(io: FileIO, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    first: dict[bytes, str] = {}
    for batch in batches:
        with ThreadPoolExecutor(_THREADS, "widen-footer") as pool:
            results = list(pool.map(partial(_read, io), batch.column(0).to_pylist()))
        rows = []
        for path, fields, reason in results:
            first_path = first.setdefault(fields, path) if fields is not None else path
            rows.append((path, fields, reason) if first_path == path else (path, None, _AS + first_path))
        types = (pa.string(), pa.binary(), pa.string())
        columns = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(types)]
        yield pa.RecordBatch.from_arrays(columns, names=["path", "fields", "reason"])


def _read(io: FileIO, path: str) -> tuple[str, bytes | None, str | None]:
    """Return the path, and either the columns of the file or the reason why they cannot be read."""
    try:
        with io.new_input(path).open() as stream:
            columns = pq.read_schema(stream)
    except FileNotFoundError:
        return path, None, "the file does not exist"
    except (pa.ArrowException, OSError) as error:
        return path, None, first_line(error)
    return path, columns.remove_metadata().serialize().to_pybytes(), None
