"""The rows of a change and its change data, in one pass: tasks write both with Arrow.

Spark would need one job for the rows and one for the changes, and write each updated row three times. For deletion
vectors, the tasks also return which rows they replace.

Source: PROTOCOL.md#add-cdc-file, #change-data-files, #deletion-vectors
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64
from pyspark.sql import Column, DataFrame, Row
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
from widen.spark.read.deleted_rows import FILE, MASK, ROW, WORD, word_batches
from widen.spark.spark_errors import translate_spark_errors, unpersist
from widen.spark.spark_types import type_to_spark
from widen.spark.worker_memory import freeze_imports
from widen.spark.write.deletion_vector_writer import add_positions
from widen.spark.write.iceberg_writer import ArrowLayout, cast_batch, open_writer, to_add
from widen.spark.write.parquet_writer import arrow_layout
from widen.spark.write.part_file import PartFile, codec_of, describe_columns
from widen.spark.write.row_constraints import check_rows

_CHANGE = "__widen_change"
_PART_FIELDS = ("path", "size_bytes", "stats", "counts")
_PART = "is_change boolean, path string, size_bytes bigint, stats string, counts string"
_PART_OR_WORD = f"{_PART}, {FILE} string, {WORD} bigint, {MASK} bigint"
_PARTS_AND_WORDS = pa.schema(
    {
        "is_change": pa.bool_(),
        "path": pa.string(),
        "size_bytes": pa.int64(),
        "stats": pa.string(),
        "counts": pa.string(),
        FILE: pa.string(),
        WORD: pa.int64(),
        MASK: pa.int64(),
    }
)


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


@dataclass(frozen=True, slots=True)
class _Layouts:
    """How the tasks write the rows and the change data of a change."""

    rows: ArrowLayout
    changes: ArrowLayout

    def to_actions(self, context: ChangeContext, written: Iterable[Row]) -> tuple[list[Add], list[AddCdc]]:
        """Return the written files as actions, and delete those of task attempts that do not count."""
        parts = [(row.is_change, PartFile(*(row[name] for name in _PART_FIELDS))) for row in written]
        for layout in (self.rows, self.changes):  # Spark may have run a task twice
            discard_folder(context.store, layout.sink.job, but={part.path for _, part in parts})
        fresh = [to_add(self.rows, part, ()) for is_change, part in parts if not is_change]
        return fresh, [_to_cdc(part.path, part.size_bytes) for is_change, part in parts if is_change]


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
    layouts = _new_layouts(files)
    with translate_spark_errors():
        checked = _to_file_columns(files.context, rows, change)
        parts = checked.mapInArrow(partial(_write_parts, layouts), _PART).collect()
    return layouts.to_actions(files.context, parts)


@dataclass(frozen=True, slots=True)
class ReplacedRows:
    """Rows that replace others in their files.

    Args:
        words: The words of the old rows.
        lost: The number of old rows by the key of their file.
    """

    fresh: list[Add]
    recorded: list[AddCdc]
    words: DataFrame
    lost: Counter[str]


@contextmanager
def write_replaced_rows(files: ChangeFiles, rows: DataFrame, change: Column) -> Iterator[ReplacedRows]:
    """Write rows like `write_rows_and_changes`, and yield them with the words of the old rows, persisted meanwhile.

    Args:
        rows: The same, with `FILE` and `ROW` of each old row.
        change: The same; null for rows without change data.

    Raises:
        RowRefused: a row violates a rule of the table.
        JobFailed: the Spark job failed.
    """
    layouts = _new_layouts(files)
    checked = _to_file_columns(files.context, rows, change, F.col(FILE), F.col(ROW))
    written = checked.mapInArrow(partial(_write_parts_and_words, layouts), _PART_OR_WORD).persist()
    try:
        with translate_spark_errors():
            total = F.sum(F.bit_count(MASK)).alias("rows")
            found = written.groupBy("is_change", *_PART_FIELDS, FILE).agg(total).collect()
        fresh, recorded = layouts.to_actions(files.context, [row for row in found if row[FILE] is None])
        words = written.select(FILE, WORD, MASK).where(F.col(FILE).isNotNull())
        yield ReplacedRows(fresh, recorded, words, Counter({row[FILE]: row.rows for row in found if row[FILE]}))
    finally:
        unpersist(written)


def _new_layouts(files: ChangeFiles) -> _Layouts:
    context, job = files.context, files.new_folder()
    rows = _find_layout(context, job)
    assert rows is not None
    sink = replace(rows.sink, job=files.new_folder(f"{CHANGE_FOLDER}/"), describe=describe_columns(frozenset()))
    return _Layouts(rows, ArrowLayout(sink, rows.schema.append(pa.field(CHANGE_TYPE, pa.string())), ()))


def _to_cdc(path: str, size_bytes: int) -> AddCdc:
    return AddCdc(path=percent_encode(path), partition_values={}, size=size_bytes, data_change=False)


def _to_file_columns(context: ChangeContext, rows: DataFrame, change: Column, *other: Column) -> DataFrame:
    """Return checked rows in the names and types of files, the old values of updated rows, `_CHANGE`, and others."""
    schema, properties = context.schema, context.metadata.configuration
    stored = as_nullable(to_physical(schema, mapping_mode(properties, context.protocol)))
    before = F.when(change == ChangeKind.UPDATE.value, F.col(BEFORE).cast(type_to_spark(stored)))
    checked = check_rows(
        rows, schema, context.protocol, properties, [before.alias(BEFORE), change.alias(_CHANGE), *other]
    )
    columns = [
        F.col(quote_name(field.name)).cast(type_to_spark(file_field.type)).alias(file_field.name)
        for field, file_field in zip(schema, stored, strict=True)
    ]
    return checked.select(F.struct(*columns).alias("new"), F.col(BEFORE), F.col(_CHANGE), *other)


# ---- on the executors ------------------------------------------------------------------------------


def _write_parts(layouts: _Layouts, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows and the changes of one task, and yield the written files."""
    freeze_imports()
    writers = [open_writer(layouts.rows, ()), open_writer(layouts.changes, ())]
    schema = layouts.rows.schema
    for new, before, change, *_ in (batch.columns for batch in batches):
        writers[0].write(_cast_structs(new, schema))
        is_update = pc.fill_null(pc.equal(change, ChangeKind.UPDATE.value), False)
        after = pc.if_else(is_update, "update_postimage", change)
        for structs, types in ((before, pc.if_else(is_update, "update_preimage", None)), (new, after)):
            recorded = types.is_valid()
            if recorded.true_count:
                rows = _cast_structs(structs.filter(recorded), schema)
                columns = [*rows.columns, types.filter(recorded)]
                writers[1].write(pa.RecordBatch.from_arrays(columns, schema=layouts.changes.schema))
    parts = [(is_change, part) for is_change, writer in enumerate(writers) for part in writer.close()]
    if parts:
        rows = [{"is_change": bool(is_change), **msgspec.structs.asdict(part)} for is_change, part in parts]
        yield pa.RecordBatch.from_pylist(rows)


def _write_parts_and_words(layouts: _Layouts, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows and the changes of one task, and yield the written files, and the words of the old rows."""
    replaced: defaultdict[str, BitMap64] = defaultdict(BitMap64)

    def note_positions() -> Iterator[pa.RecordBatch]:
        for batch in batches:
            add_positions(replaced, *batch.columns[-2:])
            yield batch

    for parts in _write_parts(layouts, note_positions()):
        yield _complete(parts)
    for key, bitmap in replaced.items():
        yield from map(_complete, word_batches(key, bitmap))


def _complete(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return rows of `_PART` or of words with all columns of `_PART_OR_WORD`."""
    columns = [
        rows.column(field.name) if field.name in rows.schema.names else pa.nulls(rows.num_rows, field.type)
        for field in _PARTS_AND_WORDS
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_PARTS_AND_WORDS)


def _cast_structs(structs: pa.StructArray, schema: pa.Schema) -> pa.RecordBatch:
    return cast_batch(pa.RecordBatch.from_struct_array(structs), schema)
