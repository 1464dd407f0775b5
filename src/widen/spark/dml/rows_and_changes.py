"""The rows of a change and its change data, in one pass: tasks write both with Arrow.

Spark would need one job for the rows and one for the changes, and write each updated row three times.

Source: PROTOCOL.md#add-cdc-file, #change-data-files
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from widen.errors import InvalidOption
from widen.log.store.log_store import percent_encode
from widen.log.write.staged_files import discard_folder
from widen.model.column_path import as_nullable
from widen.model.types import quote_name
from widen.protocol.actions import Add, AddCdc
from widen.protocol.change_data_files import CHANGE_FOLDER, CHANGE_TYPE
from widen.protocol.column_mapping import mapping_mode, to_physical
from widen.spark.dml.change_context import ChangeContext, ChangeFiles
from widen.spark.dml.row_decision import BEFORE, ChangeKind
from widen.spark.spark_errors import translate_spark_errors
from widen.spark.spark_types import type_to_spark
from widen.spark.write.iceberg_writer import ArrowLayout, cast_batch, open_writer, to_add
from widen.spark.write.parquet_writer import arrow_layout
from widen.spark.write.part_file import PartFile, PartSink, codec_of, describe_columns
from widen.spark.write.row_constraints import check_rows

_CHANGE = "__widen_change"
_WRITTEN = "is_change boolean, path string, size_bytes bigint, stats string, counts string"


def can_write_rows_and_changes(context: ChangeContext) -> bool:
    """Tell whether tasks may write the rows of a change; else Spark has to."""
    return not context.metadata.partition_columns and _find_layout(context) is not None


def _find_layout(context: ChangeContext, job: str = "") -> ArrowLayout | None:
    if not context.has_arrow_layout:
        return None
    try:
        return arrow_layout(context.store, context.protocol, context.metadata, job, codec_of(context.spark))
    except InvalidOption:  # a type that Arrow does not have
        return None


def write_rows_and_changes(files: ChangeFiles, rows: DataFrame, change: Column) -> tuple[list[Add], list[AddCdc]]:
    """Write rows, and the change data of those that change, if `can_write_rows_and_changes`.

    Args:
        rows: The columns of the table with their new values, and the struct `BEFORE`.
        change: The value of `ChangeKind.UPDATE` or `ChangeKind.INSERT`, or null for a row that stays as it is. An
            updated row has two rows in the change data.

    Raises:
        RowRefused: a row violates a rule of the table.
        JobFailed: the Spark job failed.
    """
    context, job = files.context, files.new_folder()
    layout = _find_layout(context, job)
    assert layout is not None
    sink = replace(layout.sink, job=files.new_folder(f"{CHANGE_FOLDER}/"), describe=describe_columns(frozenset()))
    with translate_spark_errors():
        checked = _to_file_columns(context, rows, change)
        written = checked.mapInArrow(partial(_write_task, layout, sink), _WRITTEN).collect()
    for folder in (job, sink.job):  # Spark may have run a task twice
        discard_folder(context.store, folder, but={row.path for row in written})
    fresh = [to_add(layout, PartFile(*row[1:]), ()) for row in written if not row.is_change]
    return fresh, [_to_cdc(row.path, row.size_bytes) for row in written if row.is_change]


def _to_cdc(path: str, size_bytes: int) -> AddCdc:
    return AddCdc(path=percent_encode(path), partition_values={}, size=size_bytes, data_change=False)


def _to_file_columns(context: ChangeContext, rows: DataFrame, change: Column) -> DataFrame:
    """Return checked rows in the names and types of files, the old values of updated rows, and `_CHANGE`."""
    schema, properties = context.schema, context.metadata.configuration
    stored = as_nullable(to_physical(schema, mapping_mode(properties, context.protocol)))
    before = F.when(change == ChangeKind.UPDATE.value, F.col(BEFORE).cast(type_to_spark(stored)))
    checked = check_rows(rows, schema, context.protocol, properties, [before.alias(BEFORE), change.alias(_CHANGE)])
    columns = [
        F.col(quote_name(field.name)).cast(type_to_spark(file_field.type)).alias(file_field.name)
        for field, file_field in zip(schema, stored, strict=True)
    ]
    return checked.select(F.struct(*columns).alias("new"), BEFORE, _CHANGE)


# ---- on the executors ------------------------------------------------------------------------------


def _write_task(layout: ArrowLayout, sink: PartSink, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows and the changes of one task, and yield the written files."""
    recorded_schema = layout.schema.append(pa.field(CHANGE_TYPE, pa.string()))
    writers = [open_writer(layout, ()), open_writer(ArrowLayout(sink, recorded_schema, ()), ())]
    for new, before, change in (batch.columns for batch in batches):
        writers[0].write(_cast_structs(new, layout.schema))
        is_update = pc.fill_null(pc.equal(change, ChangeKind.UPDATE.value), False)
        after = pc.if_else(is_update, "update_postimage", change)
        for structs, types in ((before, pc.if_else(is_update, "update_preimage", None)), (new, after)):
            recorded = types.is_valid()
            if recorded.true_count:
                rows = _cast_structs(structs.filter(recorded), layout.schema)
                columns = [*rows.columns, types.filter(recorded)]
                writers[1].write(pa.RecordBatch.from_arrays(columns, schema=recorded_schema))
    parts = [(is_change, part) for is_change, writer in enumerate(writers) for part in writer.close()]
    if parts:
        rows = [{"is_change": bool(is_change), **msgspec.structs.asdict(part)} for is_change, part in parts]
        yield pa.RecordBatch.from_pylist(rows)


def _cast_structs(structs: pa.StructArray, schema: pa.Schema) -> pa.RecordBatch:
    return cast_batch(pa.RecordBatch.from_struct_array(structs), schema)
