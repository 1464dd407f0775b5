"""The rows of a change and its change data, in one pass: tasks write both with Arrow.

Spark would need one job for the rows and one for the changes, and write each updated row three times. For deletion
vectors, the tasks also return which rows they replace.

Source: PROTOCOL.md#add-cdc-file, #change-data-files, #deletion-vectors
"""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from widen.changes.assignment import BEFORE, ChangeKind
from widen.changes.change_context import ChangeContext, ChangeFiles, count_deleted_rows, ensure_same_count
from widen.errors import InvalidOption
from widen.files.data_writer import ArrowLayout, PartFile, cast_batch, codec_of, describe_columns, open_writer
from widen.files.deleted_rows import (
    FILE,
    MASK,
    ROW,
    WORD,
    add_positions,
    load_vector,
    marked_rows,
    rows_by_file,
    to_bitmap,
    word_batches,
)
from widen.frames.parquet_writer import arrow_layout
from widen.frames.physical_layout import check_rows
from widen.log.commit_outcome import discard_folder
from widen.log.log_store import LogStore, percent_encode
from widen.model.column_path import as_nullable
from widen.model.types import quote_name
from widen.model.value_classes import dataclass
from widen.protocol.actions import Add, AddCdc, DeletionVector
from widen.protocol.column_mapping import CHANGE_FOLDER, CHANGE_TYPE, to_physical
from widen.protocol.deletion_vectors import pack_vectors, vector_file_path
from widen.protocol.file_statistics import with_loose_bounds
from widen.spark.errors import translate_spark_errors, unpersist
from widen.spark.ship import freeze_imports
from widen.spark.spark_types import Column, DataFrame, F, Row, SparkSession, type_to_spark

_CHANGE = "__widen_change"
_PART_FIELDS = ("path", "size_bytes", "stats", "counts")
_PART = "is_change boolean, path string, size_bytes bigint, stats string, counts string"
_PART_OR_WORD = f"{_PART}, {FILE} string, {WORD} bigint, {MASK} bigint"
_PARTS = pa.schema(
    {
        "is_change": pa.bool_(),
        "path": pa.string(),
        "size_bytes": pa.int64(),
        "stats": pa.string(),
        "counts": pa.string(),
    }
)
_PARTS_AND_WORDS = pa.schema(
    [*_PARTS, pa.field(FILE, pa.string()), pa.field(WORD, pa.int64()), pa.field(MASK, pa.int64())]
)


def can_write_rows_and_changes(context: ChangeContext) -> bool:
    """Return whether tasks may write the rows of a change; else Spark has to."""
    return not context.metadata.partition_columns and _find_layout(context) is not None


def _find_layout(context: ChangeContext, job: str = "") -> ArrowLayout | None:
    if not context.has_arrow_layout:
        return None
    try:
        return arrow_layout(context.store, context.configuration, job, codec_of(context.session))
    except InvalidOption:  # a type that Arrow does not have
        return None


@dataclass(frozen=True, slots=True)
class _Layouts:
    """How the tasks write the rows and the change data of a change."""

    rows: ArrowLayout
    changes: ArrowLayout

    def to_actions(self, context: ChangeContext, written: Iterable[Row]) -> tuple[list[Add], list[AddCdc]]:
        """Return the written files as actions, and delete the files of task attempts that do not count."""
        parts = [(row.is_change, PartFile(*(row[name] for name in _PART_FIELDS))) for row in written]
        for layout in (self.rows, self.changes):  # Spark may have run a task twice
            discard_folder(context.store, layout.sink.job, but={part.path for _, part in parts})
        fresh = [part.to_add() for is_change, part in parts if not is_change]
        return fresh, [_to_cdc(part.path, part.size_bytes) for is_change, part in parts if is_change]


def write_rows_and_changes(files: ChangeFiles, rows: DataFrame, change: Column) -> tuple[list[Add], list[AddCdc]]:
    """Write rows, and the change data of those that change, if `can_write_rows_and_changes`.

    Args:
        change: The value of `ChangeKind.UPDATE` or `ChangeKind.INSERT`, or null for a row that stays as it is. An
            updated row has two rows in the change data.
    """
    layouts = _new_layouts(files)
    with translate_spark_errors():
        checked = _to_file_columns(files.context, rows, change)
        parts = checked.mapInArrow(partial(_write_parts, layouts), _PART).collect()
    return layouts.to_actions(files.context, parts)


@dataclass(frozen=True, slots=True)
class RowReplacements:
    """Rows that replace others in their files."""

    fresh: list[Add]
    recorded: list[AddCdc]
    words: DataFrame
    lost: Counter[str]


@contextmanager
def write_replaced_rows(files: ChangeFiles, rows: DataFrame, change: Column) -> Iterator[RowReplacements]:
    """Write rows like `write_rows_and_changes`; yield them with the bitmap words of the old rows, persisted meanwhile.

    Args:
        rows: The same, with `FILE` and `ROW` of each old row.
        change: The same; null for rows without change data.
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
        yield RowReplacements(fresh, recorded, words, Counter({row[FILE]: row.rows for row in found if row[FILE]}))
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
    stored = as_nullable(to_physical(schema, context.configuration.mapping))
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
        yield pa.RecordBatch.from_pylist(rows, schema=_PARTS)


def _write_parts_and_words(layouts: _Layouts, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows and the changes of one task; yield the written files and the bitmap words of the old rows."""
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


# Files whose deletion vectors mark the rows that a change has updated or deleted.
#
# Source: PROTOCOL.md#deletion-vectors, #add-file-and-remove-file


def revise_files(
    files: ChangeFiles, words: DataFrame | Mapping[str, BitMap64], lost: Mapping[str, int], rows: Mapping[str, int]
) -> list[Add]:
    """Write deletion vectors, and return the files with them; files that lose all rows are left out.

    Args:
        words: Bitmap words that mark the rows that files lose; or bitmaps of them, which this process then writes.
        rows: How many rows each file has, including deleted rows.
    """
    context = files.context
    gone = {key: count + count_deleted_rows(context.adds[key]) for key, count in lost.items()}
    old = {key: context.adds[key] for key, count in gone.items() if count < rows[key]}
    if not old:
        return []
    current = {key: add.deletion_vector for key, add in old.items()}
    folder = files.new_folder()
    if isinstance(words, DataFrame):
        vectors = write_vectors(context.spark, context.store, words, current, folder)
    else:
        vectors = _write_vectors_here(context.store, words, current, folder)
    for key in old:
        ensure_same_count(gone[key], vectors[key].cardinality)
    return [
        msgspec.structs.replace(
            add, deletion_vector=vectors[key], stats=with_loose_bounds(add.stats, rows[key]), data_change=True
        )
        for key, add in old.items()
    ]


# Writing deletion vectors: tasks gather bitmap words by file and write bitmaps; the driver gets only the descriptors.
#
# Source: PROTOCOL.md#deletion-vectors


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
        deleted: Bitmap words that mark the newly deleted rows.
        current: The files that get a vector, with their current one, whose rows stay deleted.

    Source: PROTOCOL.md#deletion-vectors
    """
    texts = {key: "" if old is None else msgspec.json.encode(old).decode() for key, old in current.items()}
    spread = spread_words(spark, deleted, texts, min(1 + len(current) // FILES_PER_TASK, _MOST_TASKS))
    with translate_spark_errors():
        written = spread.mapInArrow(
            partial(_write_vector_file, store, folder), f"{FILE} string, vector string"
        ).collect()
    return {row[FILE]: _decoder.decode(row.vector) for row in written}


def _write_vectors_here(
    store: LogStore, lost: Mapping[str, BitMap64], current: Mapping[str, DeletionVector | None], folder: str
) -> dict[str, DeletionVector]:
    """Write a deletion vector for every file in this process, like `write_vectors`."""
    keys, vectors = list(current), dict[str, DeletionVector]()
    for first in range(0, len(keys), FILES_PER_TASK):
        some = keys[first : first + FILES_PER_TASK]
        whole = [lost[key] if (old := current[key]) is None else lost[key] | load_vector(store, old) for key in some]
        vectors.update(zip(some, put_vectors(store, folder, whole), strict=True))
    return vectors


def spread_words(spark: SparkSession, words: DataFrame, texts: Mapping[str, str], tasks: int) -> DataFrame:
    """Return bitmap words grouped by file, with a text for each file; `gather_words` reads them in tasks."""
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
        for key, of_file in rows_by_file(keys):
            bitmaps[key] |= to_bitmap(marked_rows(words.filter(of_file), masks.filter(of_file)))
    return texts, bitmaps


def to_bitmaps(words: pa.Table) -> dict[str, BitMap64]:
    """Return the rows that words mark, by the key of their file."""
    marked = words.select([FILE, WORD, MASK]).filter(pc.and_(pc.is_valid(words[FILE]), pc.is_valid(words[MASK])))
    lists = marked.group_by(FILE).aggregate([(WORD, "list"), (MASK, "list")])
    files = zip(lists[FILE].to_pylist(), lists[f"{WORD}_list"], lists[f"{MASK}_list"], strict=True)
    rows = {key: marked_rows(words.values, masks.values) for key, words, masks in files}
    return {key: to_bitmap(each) for key, each in rows.items() if len(each)}


def _write_vector_file(store: LogStore, folder: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Merge the bitmap words of each file with its current vector (an empty text for a new one); write the results."""
    freeze_imports()
    current, bitmaps = gather_words(batches)
    # There may be more tasks than files, so some tasks have no file.
    if not current:
        return
    whole = [_with_current(store, bitmaps[key], old) for key, old in current.items()]
    texts = [msgspec.json.encode(vector).decode() for vector in put_vectors(store, folder, whole)]
    yield pa.RecordBatch.from_arrays([pa.array(list(current)), pa.array(texts)], schema=_WRITTEN)


def put_vectors(store: LogStore, folder: str, bitmaps: Sequence[BitMap64]) -> list[DeletionVector]:
    """Write deletion vectors into one file."""
    name = uuid.uuid4()
    content, written = pack_vectors(folder, name, [(bitmap.serialize(), len(bitmap)) for bitmap in bitmaps])
    store.put(vector_file_path(folder, name), content)
    return list(written)


def _with_current(store: LogStore, bitmap: BitMap64, old: str) -> BitMap64:
    return bitmap | load_vector(store, _decoder.decode(old)) if old else bitmap
