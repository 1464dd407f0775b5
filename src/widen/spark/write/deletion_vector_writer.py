"""Writing deletion vectors: tasks gather the words of files and write bitmaps; the driver gets only the descriptors.

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
from pyspark.sql import functions as F

from widen.log.store.log_store import LogStore
from widen.protocol.actions import DeletionVector
from widen.protocol.deletion_vector_format import pack_vectors, vector_file_path
from widen.spark.read.deleted_rows import FILE, MASK, WORD, load_vector, marked_rows
from widen.spark.spark_errors import translate_spark_errors
from widen.spark.worker_memory import freeze_imports

FILES_PER_TASK = 16
"""The number of vectors that one task writes into one file."""

_MOST_TASKS = 200
_TEXT = "__widen_text"
_WRITTEN = pa.schema([(FILE, pa.string()), ("vector", pa.string())])
_decoder = msgspec.json.Decoder(DeletionVector)


def write_vectors(
    spark: SparkSession, store: LogStore, deleted: DataFrame, current: Mapping[str, DeletionVector | None], folder: str
) -> dict[str, DeletionVector]:
    """Write a deletion vector for every file with deleted rows; return the vectors by the keys of the files.

    Args:
        store: The store of the table; the executors reopen it.
        deleted: The words of the newly deleted rows.
        current: The files that get a vector, with their current one, whose rows stay deleted.
        folder: The folder to write to, relative to the table.

    Raises:
        CorruptFile: the current vector of a file cannot be read.

    Source: PROTOCOL.md#deletion-vectors
    """
    texts = {key: "" if old is None else msgspec.json.encode(old).decode() for key, old in current.items()}
    spread = spread_words(spark, deleted, texts, min(1 + len(current) // FILES_PER_TASK, _MOST_TASKS))
    with translate_spark_errors():
        written = spread.mapInArrow(
            partial(_write_vector_file, store, folder), f"{FILE} string, vector string"
        ).collect()
    return {row[FILE]: _decoder.decode(row.vector) for row in written}


def spread_words(spark: SparkSession, words: DataFrame, texts: Mapping[str, str], tasks: int) -> DataFrame:
    """Return words by task, all of a file in one, with a text for each file; `gather_words` reads them there."""
    described = spark.createDataFrame(list(texts.items()), f"{FILE} string, {_TEXT} string")
    rows = words.select(FILE, F.lit(None).cast("string"), WORD, MASK)
    return described.selectExpr("*", f"0L AS {WORD}", f"0L AS {MASK}").unionAll(rows).repartition(tasks, FILE)


def gather_words(batches: Iterable[pa.RecordBatch]) -> tuple[dict[str, str], Mapping[str, BitMap64]]:
    """Return the text of each file of a task, and the rows that its words mark."""
    texts: dict[str, str] = {}
    bitmaps: defaultdict[str, BitMap64] = defaultdict(BitMap64)
    for batch in batches:
        is_word = batch.column(1).is_null()
        keys, values = batch.filter(pc.invert(is_word)).columns[:2]
        texts.update(zip(keys.to_pylist(), values.to_pylist(), strict=True))
        keys, _, words, masks = batch.filter(is_word).columns
        for key, of_file in _rows_by_file(keys):
            bitmaps[key] |= BitMap64(_row_numbers(marked_rows(words.filter(of_file), masks.filter(of_file))))
    return texts, bitmaps


def add_positions(bitmaps: defaultdict[str, BitMap64], files: pa.Array, positions: pa.Array) -> None:
    """Add rows to bitmaps.

    Args:
        bitmaps: The rows of each file, which are changed.
        files: The key of the file of each row.
        positions: The position of each row in its file.
    """
    for key, of_file in _rows_by_file(files):
        bitmaps[key] |= BitMap64(_row_numbers(positions.filter(of_file)))


def _rows_by_file(keys: pa.Array) -> Iterator[tuple[str, pa.Array]]:
    """Yield each file, with whether each row belongs to it."""
    files = keys.dictionary_encode()
    for code, key in enumerate(files.dictionary.to_pylist()):
        yield key, pc.equal(files.indices, pa.scalar(code, files.indices.type))


def _write_vector_file(store: LogStore, folder: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Merge the words of each file with its current vector, whose text may be empty, and write the results."""
    freeze_imports()
    current, bitmaps = gather_words(batches)
    # More tasks than files: some have none.
    if not current:
        return
    whole = [_with_current(store, bitmaps[key], old) for key, old in current.items()]
    name = uuid.uuid4()
    content, written = pack_vectors(folder, name, [(bitmap.serialize(), len(bitmap)) for bitmap in whole])
    store.put(vector_file_path(folder, name), content)
    texts = [msgspec.json.encode(vector).decode() for vector in written]
    yield pa.RecordBatch.from_arrays([pa.array(list(current)), pa.array(texts)], schema=_WRITTEN)


def _row_numbers(rows: pa.Array) -> array[int]:
    width = array("Q").itemsize
    data = memoryview(rows.buffers()[1])[rows.offset * width : (rows.offset + len(rows)) * width]
    return array("Q", data.tobytes())


def _with_current(store: LogStore, bitmap: BitMap64, old: str) -> BitMap64:
    return bitmap | load_vector(store, _decoder.decode(old)) if old else bitmap
