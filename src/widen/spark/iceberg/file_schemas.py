"""The columns of data files, from their footers: names, types and field ids.

Iceberg never changes a file, so what a footer says is kept for as long as the process lives.

Source: Iceberg's table specification, "Column Projection"
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from widen.errors import CorruptFile
from widen.errors.foreign import first_line
from widen.spark.parquet.read_files import read_files

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

DRIVER_FILES = 256
"""The number of footers up to which the driver reads them; the executors read more."""

CACHED_FILES = 100_000
"""How many files the cache of schemas keeps."""

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
    for path, fields in zip(new, read_files(lambda: spark, partial(_read, io), new, DRIVER_FILES), strict=True):
        if fields not in _schemas:
            _schemas[fields] = pa.ipc.read_schema(pa.py_buffer(fields))
        _cache[path] = _schemas[fields]
    return [_cache[path] for path in paths]


def _read(io: FileIO, path: str) -> bytes:
    """Return the columns of a file in Arrow's form."""
    try:
        with io.new_input(path).open() as stream:
            columns = pq.read_schema(stream)
    except FileNotFoundError as error:
        raise CorruptFile(path=path, reason="the file does not exist", fix=_FIX) from error
    except (pa.ArrowException, OSError) as error:
        raise CorruptFile(path=path, reason=first_line(error), fix=_FIX) from error
    return columns.remove_metadata().serialize().to_pybytes()  # type: ignore[no-any-return]
