"""Read data files of a table, many of them in parallel: the driver reads few of them, the executors read more."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import pyarrow as pa

from widen.errors import CorruptFile, FileMissing, WidenError
from widen.errors.foreign import first_line, missing_data_file
from widen.log.store.log_store import LogStore
from widen.model.lazy_module import import_lazily
from widen.spark.worker_memory import freeze_imports

if TYPE_CHECKING:
    from widen.spark import spark_errors
    from widen.spark.spark_types import SparkSession
else:
    spark_errors = import_lazily("widen.spark.spark_errors")

_THREADS = 16
_COLUMNS = "numbers array<bigint>, result binary"

T = TypeVar("T")


@contextmanager
def open_data_file(store: LogStore, path: str) -> Iterator[BinaryIO]:
    """Open a Parquet file of a table.

    Raises:
        CorruptFile: it does not exist, or the body found out that it is not Parquet.
    """
    try:
        with store.open(path) as file:
            yield file
    except FileMissing as error:
        raise missing_data_file(path) from error
    except pa.ArrowException as error:
        fix = "Restore the file from a backup; its content is unknown."
        raise CorruptFile(path=path, reason=first_line(error), fix=fix) from error


def read_files(
    session: Callable[[], SparkSession], read: Callable[[str], T], paths: Sequence[str], driver_files: int
) -> list[T]:
    """Return what a function reads from each file, in the order of the paths.

    Args:
        session: Returns the session; called only for more than ``driver_files`` files.
        read: Reads a file, given its path. It travels to the executors, and its results travel back.
        driver_files: The number of files up to which the driver reads them.

    Raises:
        WidenError: the function raised it.
    """
    if len(paths) <= driver_files:
        return _read_in_threads(read, paths)
    spark, results = session(), dict[int, T]()
    with spark_errors.translate_spark_errors():
        listed = pa.table({"number": pa.array(range(len(paths))), "path": list(paths)})
        frame = spark.createDataFrame(listed).repartition(min(len(paths) // 64 + 1, 400))
        rows = frame.mapInArrow(partial(_run_task, read), _COLUMNS).collect()
    for row in rows:
        result = pickle.loads(row.result)
        if isinstance(result, WidenError):
            raise result
        results.update(dict.fromkeys(row.numbers, result))
    return [results[number] for number in range(len(paths))]


def _run_task(read: Callable[[str], Any], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield each result once, with the numbers of all files that have it: most files of a table are alike."""
    freeze_imports()
    numbers: dict[bytes, list[int]] = {}
    for batch in batches:
        results = _read_in_threads(partial(_read_or_error, read), batch.column("path").to_pylist())
        for number, result in zip(batch.column("number").to_pylist(), results, strict=True):
            numbers.setdefault(pickle.dumps(result), []).append(number)
    columns = [pa.array(numbers.values(), pa.list_(pa.int64())), pa.array(numbers.keys(), pa.binary())]
    yield pa.RecordBatch.from_arrays(columns, names=["numbers", "result"])


def _read_or_error(read: Callable[[str], Any], path: str) -> Any:
    """Return an error as a result: raised in a task, it would be the error of a Spark job."""
    try:
        return read(path)
    except WidenError as error:
        return error


def _read_in_threads(read: Callable[[str], T], paths: Sequence[str]) -> list[T]:
    with ThreadPoolExecutor(_THREADS, "widen-footer") as pool:
        return list(pool.map(read, paths))
