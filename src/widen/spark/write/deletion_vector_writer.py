"""Writing deletion vectors: tasks gather row positions and write bitmaps; the driver gets only the descriptors.

Source: PROTOCOL.md#deletion-vectors
"""

from __future__ import annotations

import uuid
from array import array
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.sql import DataFrame, SparkSession

from widen.log.store.log_store import LogStore
from widen.protocol.actions import DeletionVector
from widen.protocol.deletion_vector_format import pack_vectors, vector_file_path
from widen.spark.read.deleted_rows import FILE, ROW, load_vector
from widen.spark.spark_errors import translate_spark_errors

FILES_PER_TASK = 16
"""The number of vectors that one task writes into one file."""

_MOST_TASKS = 200
_GATHERED = pa.schema([(FILE, pa.string()), ("bitmap", pa.binary())])
_WRITTEN = pa.schema([(FILE, pa.string()), ("vector", pa.string())])
_decoder = msgspec.json.Decoder(DeletionVector)


def write_vectors(
    spark: SparkSession, store: LogStore, deleted: DataFrame, current: Mapping[str, DeletionVector | None], folder: str
) -> dict[str, DeletionVector]:
    """Write a deletion vector for every file with deleted rows; return the vectors by the keys of the files.

    Args:
        spark: The session.
        store: The store of the table; the executors reopen it.
        deleted: The locations of the newly deleted rows, in the columns `FILE` and `ROW`.
        current: The current vector of each of these files; its rows stay deleted.
        folder: The folder to write to, relative to the table.

    Raises:
        CorruptFile: the current vector of a file cannot be read.
        JobFailed: the Spark job failed.
        StorageError: the store cannot be written.

    Source: PROTOCOL.md#deletion-vectors
    """
    gathered = deleted.select(FILE, ROW).mapInArrow(_gather_bitmaps, f"{FILE} string, bitmap binary")
    rows = [(key, None if old is None else msgspec.json.encode(old).decode()) for key, old in current.items()]
    described = gathered.join(spark.createDataFrame(rows, f"{FILE} string, vector string"), FILE)
    tasks = min(1 + len(current) // FILES_PER_TASK, _MOST_TASKS)
    spread = described.select(FILE, "bitmap", "vector").repartition(tasks, FILE)
    with translate_spark_errors():
        written = spread.mapInArrow(
            partial(_write_vector_file, store, folder), f"{FILE} string, vector string"
        ).collect()
    return {row[FILE]: _decoder.decode(row.vector) for row in written}


def _gather_bitmaps(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield one bitmap for each file of which a task has rows."""
    bitmaps: defaultdict[str, BitMap64] = defaultdict(BitMap64)
    for batch in batches:
        files, rows = batch.column(0).dictionary_encode(), batch.column(1)
        for code, key in enumerate(files.dictionary.to_pylist()):
            file_rows = rows.filter(pc.equal(files.indices, pa.scalar(code, files.indices.type)))
            bitmaps[key] |= BitMap64(_row_numbers(file_rows))
    yield pa.RecordBatch.from_arrays(
        [pa.array(list(bitmaps), pa.string()), pa.array([b.serialize() for b in bitmaps.values()], pa.binary())],
        schema=_GATHERED,
    )


def _row_numbers(rows: pa.Array) -> array[int]:
    width = array("Q").itemsize
    data = memoryview(rows.buffers()[1])[rows.offset * width : (rows.offset + len(rows)) * width]
    return array("Q", data.tobytes())


def _write_vector_file(store: LogStore, folder: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Merge the bitmaps of each file with its current vector, and write the results into one file."""
    bitmaps: dict[str, BitMap64] = {}
    for batch in batches:
        for key, bitmap, old in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if key not in bitmaps:
                bitmaps[key] = BitMap64() if old is None else load_vector(store, _decoder.decode(old))
            bitmaps[key] |= BitMap64.deserialize(bitmap)
    if not bitmaps:
        return
    name = uuid.uuid4()
    content, vectors = pack_vectors(folder, name, [(bitmap.serialize(), len(bitmap)) for bitmap in bitmaps.values()])
    store.put(vector_file_path(folder, name), content)
    texts = [msgspec.json.encode(vector).decode() for vector in vectors]
    yield pa.RecordBatch.from_arrays([pa.array(list(bitmaps)), pa.array(texts)], schema=_WRITTEN)
