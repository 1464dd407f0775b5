"""The search for old files: few footers are read here, many of them by the executors, which tell of old files only.

Source: PROTOCOL.md#writer-requirements-for-type-widening
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa

from widen.log.snapshot import Snapshot
from widen.spark.failure import translated
from widen.spark.old_file import Look, OldFile, look_at, look_here, looking, opened
from widen.spark.schema import SparkSession

HERE_FILES = 256
"""Up to how many footers are read in this process."""


def find_old_files(session: Callable[[], SparkSession], snapshot: Snapshot, files: pa.Table) -> list[OldFile]:
    """Return those of some files that hold an old type, in the order of the list.

    Args:
        session: Gives the session to work in; only asked where the files are many.
        snapshot: The version whose types are compared.
        files: Rows of its list of files.

    Raises:
        CorruptFile: a file is no Parquet.
        JobFailed: Spark could not finish the job.
        StorageError: the store refused.
    """
    if files.num_rows <= HERE_FILES:
        return look_here(snapshot, files)
    spark = session()
    with translated():
        listed = spark.createDataFrame(pa.table(files.select(["path", "size_bytes"])))
        parts = min(files.num_rows // 64 + 1, 400)
        told = listed.repartition(parts).mapInArrow(partial(_look_at_batches, looking(snapshot)), _COLUMNS).collect()
    order = {path: number for number, path in enumerate(files["path"].to_pylist())}
    return sorted(opened((row.found, row.failed) for row in told), key=lambda file: order[file.path])


_COLUMNS = "found string, failed string"


def _look_at_batches(look: Look, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        listed = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        told = [one for one in look_at(look, listed) if any(one)]
        columns = [pa.array([one[at] for one in told], pa.string()) for at in (0, 1)]
        yield pa.RecordBatch.from_arrays(columns, names=["found", "failed"])
