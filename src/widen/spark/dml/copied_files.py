"""Copies of files without some of their rows: tasks read and write with Arrow, and the other rows never reach Spark.

Rows are copied as they were checked when they were written; only their types become those of the table. Spark has to
copy what Arrow does not read or write exactly.

Source: PROTOCOL.md#add-file-and-remove-file
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import TypeAlias

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame

from widen.errors import CorruptFile, InvalidOption
from widen.log.store.log_store import percent_encode
from widen.log.write.staged_files import discard_folder
from widen.model.schema_json import from_json
from widen.model.types import StructType
from widen.protocol.actions import Add
from widen.protocol.column_mapping import NONE, mapping_mode, to_physical
from widen.protocol.type_changes import ensure_readable
from widen.spark.dml.change_context import ChangeContext
from widen.spark.read.local_rows import LocalScan, NotLocal, RowSlice
from widen.spark.spark_errors import translate_spark_errors
from widen.spark.worker_memory import freeze_imports
from widen.spark.write.deletion_vector_writer import gather_words, spread_words
from widen.spark.write.iceberg_writer import ArrowLayout, open_writer
from widen.spark.write.parquet_writer import arrow_layout
from widen.spark.write.part_file import PartFile, codec_of

Texts: TypeAlias = tuple[str | None, ...]

TASK_BYTES = 32 * 2**20
"""The number of bytes of files that a task copies on average; a task copies whole files."""

_COPIES = "key string, path string, size_bytes bigint, stats string, counts string"
_COPY_BATCH = pa.schema(
    {"key": pa.string(), "path": pa.string(), "size_bytes": pa.int64(), "stats": pa.string(), "counts": pa.string()}
)
_decoder = msgspec.json.Decoder(Add)


def copy_without_marked(
    context: ChangeContext, keys: Iterable[str], words: DataFrame, job: str
) -> tuple[list[Add], set[str]]:
    """Copy files without the rows that words mark, and return the copies and the keys of the copied files.

    Args:
        keys: The files to copy.
        job: The folder of the copies.
    """
    files = {key: context.adds[key] for key in keys}
    plan = _plan(context, job)
    if plan is None:
        return [], set()
    # Without statistics, which tasks do not need and which may be larger than everything else.
    texts = {key: msgspec.json.encode(msgspec.structs.replace(add, stats=None)).decode() for key, add in files.items()}
    tasks = min(len(files), 1 + sum(add.size for add in files.values()) // TASK_BYTES)
    spread = spread_words(context.spark, words, texts, tasks)
    with translate_spark_errors():
        rows = spread.mapInArrow(partial(copy_files, *plan), _COPIES).collect()
    refused = {row.key for row in rows if row.path is None}
    copies = [_to_add(PartFile(*row[1:]), files[row.key]) for row in rows if row.path is not None]
    discard_folder(context.store, job, but={row.path for row in rows})  # Spark may have run a task twice
    return copies, files.keys() - refused


def _to_add(part: PartFile, old: Add) -> Add:
    return msgspec.structs.replace(part.to_add(), path=percent_encode(part.path), partition_values=old.partition_values)


def _plan(context: ChangeContext, job: str) -> tuple[LocalScan, ArrowLayout] | None:
    """Return how tasks read and write files, both by the names of columns in files; None if Arrow cannot."""
    metadata, protocol = context.metadata, context.protocol
    schema, mode = from_json(metadata.schema_string), mapping_mode(metadata.configuration, protocol)
    if not context.has_arrow_layout:
        return None
    ensure_readable(schema)
    stored = StructType(tuple(field for field in schema if field.name not in metadata.partition_columns))
    scan = LocalScan(context.store, to_physical(stored, mode), NONE, {})
    try:
        _ = scan.arrow_schema
        return scan, arrow_layout(context.store, protocol, metadata, job, codec_of(context.spark))
    except InvalidOption:  # a type that Arrow does not have
        return None


# ---- on the executors ------------------------------------------------------------------------------


def copy_files(scan: LocalScan, layout: ArrowLayout, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Copy the files of a task, those of a partition together, and yield each copy with the key of one of its files.

    Files that Spark has to copy are yielded without a path.
    """
    freeze_imports()
    texts, marked = gather_words(batches)
    partitions: dict[Texts, dict[str, Add]] = {}
    for key, text in texts.items():
        add = _decoder.decode(text)
        values = tuple(add.partition_values.get(name) for name in layout.split)
        partitions.setdefault(values, {})[key] = add
    for values, files in partitions.items():
        slices = [RowSlice(add, marked=marked[key]) for key, add in files.items()]
        parts = _copy_partition(scan, layout, values, slices)
        copied = [{"key": next(iter(files)), **msgspec.structs.asdict(part)} for part in parts or ()]
        refused = [{"key": key} for key in files if parts is None]
        yield pa.RecordBatch.from_pylist(copied + refused, schema=_COPY_BATCH)


def _copy_partition(
    scan: LocalScan, layout: ArrowLayout, values: Texts, slices: Iterable[RowSlice]
) -> list[PartFile] | None:
    """Return the copies of files of one partition; None if Spark has to copy them."""
    writer = open_writer(layout, values)
    try:
        for rows in (rows for part in slices for rows in scan.read(part)):
            for batch in pa.Table.from_arrays(rows.columns, schema=layout.schema).to_batches():
                writer.write(batch)
        return writer.close()
    except (NotLocal, CorruptFile, OSError, pa.ArrowException):  # Spark may read the file, or says what is wrong
        writer.discard()
        return None
