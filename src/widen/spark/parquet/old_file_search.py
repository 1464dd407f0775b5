"""The search for old files: the driver reads few footers, the executors read many and return only the old files.

Source: PROTOCOL.md#writer-requirements-for-type-widening
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pyarrow as pa

from widen.log.read.snapshot import Snapshot
from widen.spark.parquet.old_type_files import (
    FooterReader,
    OldFile,
    find_old_files_locally,
    footer_reader,
    read_footer_findings,
    unpack_findings,
)
from widen.spark.spark_errors import translate_spark_errors
from widen.spark.spark_types import SparkSession

DRIVER_FILES = 256
"""The number of footers up to which the driver reads them."""


def find_old_files(session: Callable[[], SparkSession], snapshot: Snapshot, files: pa.Table) -> list[OldFile]:
    """Return the files that hold an old type, in the order of the list.

    Args:
        session: Returns the session; called only for many files.
        snapshot: The version whose types are compared.
        files: Rows of its list of files.

    Raises:
        CorruptFile: a file is not Parquet.
    """
    if files.num_rows <= DRIVER_FILES:
        return find_old_files_locally(snapshot, files)
    spark = session()
    with translate_spark_errors():
        listed = spark.createDataFrame(pa.table(files.select(["path", "size_bytes"])))
        parts = min(files.num_rows // 64 + 1, 400)
        findings = (
            listed.repartition(parts).mapInArrow(partial(_search_batches, footer_reader(snapshot)), _COLUMNS).collect()
        )
    order = {path: number for number, path in enumerate(files["path"].to_pylist())}
    return sorted(unpack_findings((row.found, row.failed) for row in findings), key=lambda file: order[file.path])


_COLUMNS = "found string, failed string"


def _search_batches(read: FooterReader, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        listed = list(zip(*(column.to_pylist() for column in batch.columns), strict=True))
        findings = [finding for finding in read_footer_findings(read, listed) if any(finding)]
        columns = [pa.array([finding[at] for finding in findings], pa.string()) for at in (0, 1)]
        yield pa.RecordBatch.from_arrays(columns, names=["found", "failed"])
