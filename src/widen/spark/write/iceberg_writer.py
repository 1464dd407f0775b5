"""Data files for IcebergCompat: with partition columns, and with field ids for elements, keys and values.

Spark's own writer omits partition columns, and writes ids for struct fields only. So tasks write with Arrow, whose
timestamps are always 64-bit integers.

Source: PROTOCOL.md#writer-requirements-for-icebergcompatv1, #writer-requirements-for-icebergcompatv2
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from widen.iceberg.schema_conversion import FIXED_LENGTHS
from widen.log.store.log_store import percent_encode
from widen.log.write.staged_files import discard_folder
from widen.model.column_path import ELEMENT, KEY, VALUE, Path, as_nullable
from widen.model.types import ArrayType, DataType, Field, MapType, StructType, quote_name
from widen.protocol.actions import Add
from widen.protocol.column_mapping import COLUMN_ID, nested_ids, to_physical
from widen.protocol.partition_values import directory_name
from widen.spark.arrow_types import to_arrow
from widen.spark.spark_types import type_to_spark
from widen.spark.write.part_file import PartFile, PartSink, PartWriter
from widen.spark.write.physical_layout import partition_text

_TEXT = "__widen_text_"
_ID = b"PARQUET:field_id"
_WRITTEN = "path string, size_bytes bigint, stats string, counts string, texts string"


@dataclass(frozen=True, slots=True)
class ArrowLayout:
    """The layout of files that tasks write with Arrow.

    Args:
        schema: The Arrow schema of the files, with field ids.
        split: The physical names of the partition columns.
    """

    sink: PartSink
    schema: pa.Schema
    split: tuple[str, ...]


def write_for_iceberg(
    rows: DataFrame, sink: PartSink, schema: StructType, mode: str, partition_by: Sequence[str]
) -> list[Add]:
    """Write rows as files that Iceberg can read, and return them as add actions with statistics; commits nothing.

    Files of failed task attempts are deleted.

    Args:
        rows: All columns of the table, in its types and names.
        schema: The schema of the table, in logical names, with ids and without void columns.
        partition_by: The logical names of the partition columns.

    Source: PROTOCOL.md#writer-requirements-for-icebergcompatv1 (partition columns come after the others)
    """
    by_name = {f.name: stored for f, stored in zip(schema, as_nullable(to_physical(schema, mode)), strict=True)}
    names = [field.name for field in schema if field.name not in partition_by] + list(partition_by)
    types = {field.name: field.type for field in schema}
    # Tasks take the columns by position: mapInArrow of PySpark does not find a name with a dot.
    columns = [
        F.col(quote_name(name)).cast(type_to_spark(by_name[name].type)).alias(f"c{at}") for at, name in enumerate(names)
    ]
    texts = [f"{_TEXT}{path}" for path in range(len(partition_by))]
    columns += [
        partition_text(F.col(quote_name(n)), types[n]).alias(t) for n, t in zip(partition_by, texts, strict=True)
    ]
    frame = rows.select(*columns)
    if texts:
        # Sorted, a task has one file open at a time.
        frame = frame.sortWithinPartitions(*texts)
    arrow = to_arrow_with_ids(StructType(tuple(by_name[name] for name in names)))
    layout = ArrowLayout(sink, arrow, tuple(by_name[name].name for name in partition_by))
    written = frame.mapInArrow(partial(_write_task, layout), _WRITTEN).collect()
    discard_folder(sink.store, sink.job, but={row.path for row in written})
    return [to_add(layout, PartFile(*row[:4]), json.loads(row.texts)) for row in written]


def to_add(layout: ArrowLayout, part: PartFile, texts: Sequence[str | None]) -> Add:
    """Return a file as an add action.

    Args:
        texts: Its partition values, as in the log.
    """
    values = dict(zip(layout.split, texts, strict=True))
    return msgspec.structs.replace(part.to_add(), path=percent_encode(part.path), partition_values=values)


# ---- on the executors ------------------------------------------------------------------------------


def _write_task(layout: ArrowLayout, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of one task, which are sorted by partition, and yield the written files."""
    files: list[tuple[PartFile, list[str | None]]] = []
    writer, current = None, None
    for batch in batches:
        for texts, rows in _partition_runs(batch, len(layout.split)):
            if writer is None or texts != current:
                files += _close_writer(writer, current)
                writer, current = open_writer(layout, texts), texts
            writer.write(cast_batch(rows, layout.schema))
    files += _close_writer(writer, current)
    if files:
        rows = [{**msgspec.structs.asdict(part), "texts": json.dumps(texts)} for part, texts in files]
        yield pa.RecordBatch.from_pylist(rows)


def _close_writer(writer: PartWriter | None, texts: list[str | None] | None) -> list[tuple[PartFile, list[str | None]]]:
    return [] if writer is None or texts is None else [(part, texts) for part in writer.close()]


def open_writer(layout: ArrowLayout, texts: Sequence[str | None]) -> PartWriter:
    """Return a writer of the files of one partition.

    Args:
        texts: The partition values, as in the log.
    """
    folders = [layout.sink.job, *map(directory_name, layout.split, texts)]
    return PartWriter(replace(layout.sink, job="/".join(folders)), layout.schema)


def _partition_runs(batch: pa.RecordBatch, splits: int) -> Iterator[tuple[list[str | None], pa.RecordBatch]]:
    """Yield the rows of a batch by partition; rows of one partition are adjacent."""
    width = batch.num_columns - splits
    rows = batch.select(list(range(width)))
    if not splits:
        yield [], rows
        return
    keys = zip(*(batch.column(width + path).to_pylist() for path in range(splits)), strict=True)
    first = 0
    for key, run in groupby(keys):
        length = sum(1 for _ in run)
        # In the log an empty string stands for null (PROTOCOL.md#partition-value-serialization).
        yield [text or None for text in key], rows.slice(first, length)
        first += length


def cast_batch(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows in the names and types of a schema, column by column."""
    table = pa.Table.from_batches([rows]).rename_columns(schema.names).cast(schema)
    (batch,) = table.combine_chunks().to_batches() or [rows]
    return batch


# ---- ids -------------------------------------------------------------------------------------------


def to_arrow_with_ids(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of files, with the field ids of fields, elements, keys and values.

    Args:
        schema: The columns, with ids as Delta's column mapping has them.
    """
    return pa.schema([_arrow_field(field) for field in schema])


def _arrow_field(field: Field) -> pa.Field:
    ids = {(): field.metadata.get(COLUMN_ID), **nested_ids(field)}
    return _item(field.name, field.type, _Ids(ids, field.metadata.get(FIXED_LENGTHS, {})), ())


@dataclass(frozen=True, slots=True)
class _Ids:
    """The ids of a field and of the elements, keys and values in it, and the lengths of fixed values by id."""

    numbers: Mapping[Path, int | None]
    lengths: Mapping[str, int]


def _item(name: str, data_type: DataType, ids: _Ids, path: Path) -> pa.Field:
    number = ids.numbers.get(path)
    length = ids.lengths.get(str(number))
    return pa.field(name, pa.binary(length) if length else _arrow_type(data_type, ids, path), metadata=_id(number))


def _arrow_type(data_type: DataType, ids: _Ids, path: Path) -> pa.DataType:
    match data_type:
        case StructType(fields):
            return pa.struct([_arrow_field(field) for field in fields])
        case ArrayType(element):
            return pa.list_(_item(ELEMENT, element, ids, (*path, ELEMENT)))
        case MapType(key, value):
            keys = _item(KEY, key, ids, (*path, KEY)).with_nullable(False)
            return pa.map_(keys, _item(VALUE, value, ids, (*path, VALUE)))
    return to_arrow(data_type)


def _id(number: Any) -> dict[bytes, bytes] | None:
    return None if number is None else {_ID: str(number).encode()}
