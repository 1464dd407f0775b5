"""Writing: a Spark job writes Parquet files into its own directory, and its files become add actions.

Jobs do not share a directory, because Spark's committer deletes the shared `_temporary` folder when the first of them
ends. Readers do not see the files before the actions are committed.

Source: PROTOCOL.md#add-file-and-remove-file; docs/spark-facts.md#writing-parquet
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from urllib.parse import unquote

import msgspec
import pyarrow as pa

from widen.errors import InvalidOption
from widen.files.arrow_types import to_arrow
from widen.files.data_writer import (
    PARTS,
    ArrowLayout,
    PartFile,
    PartSink,
    PartWriter,
    TableSink,
    cast_batch,
    codec_of,
    describe_columns,
    open_writer,
    to_arrow_with_ids,
    to_part_rows,
    to_partitioned_add,
    write_rows,
)
from widen.files.footers import Footer, read_footers
from widen.files.row_rules import row_rules
from widen.frames.physical_layout import partition_text, to_checked_rows, to_physical_layout
from widen.log.commit_outcome import discard_folder
from widen.log.log_store import FileEntry, LogStore, percent_encode
from widen.model.column_path import Path, as_nullable, children, fields, format_path, leaves, map_fields
from widen.model.types import (
    VOID,
    ArrayType,
    DataType,
    DecimalType,
    Field,
    MapType,
    StructType,
    is_fully_nullable,
    quote_name,
)
from widen.protocol.actions import Add
from widen.protocol.column_mapping import PHYSICAL_NAME, physical_name, to_physical, to_physical_path
from widen.protocol.column_metadata import GENERATION, INVARIANT, START, TEXT_LIMIT, find_identity
from widen.protocol.file_statistics import indexed_leaves, is_private, private_columns
from widen.protocol.iceberg_compat import enabled_compat, stores_partition_columns
from widen.protocol.parquet_files import LEAF_COUNTS, ensure_storable, without_void
from widen.protocol.partition_values import directory_values
from widen.protocol.table_configuration import TableConfiguration
from widen.schema.table_state import check_constraints
from widen.spark.engine import LocalFrame, Unsupported, fail_if_unsupported
from widen.spark.errors import translate_spark_errors
from widen.spark.session import hadoop_options, proleptic_writes, with_own_client
from widen.spark.spark_types import DataFrame, F, ensure_distinct_names, type_to_spark

_OPTIONS = {
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.fieldId.write.enabled": "true",
    "spark.sql.parquet.writeLegacyFormat": "false",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
    # Variants are written whole: that is right in every table, and shredded ones only in some.
    "spark.sql.variant.inferShreddingSchema": "false",
}
"""The options of every write, regardless of the session's settings. Spark 4.0 ignores the option for timestamps; its
default writes them as INT96, which has no bounds."""


def write_parquet(
    frame: DataFrame | LocalFrame, store: LogStore, table: TableConfiguration, folder: str | None = None
) -> list[Add]:
    """Write rows as files of a table and return them as add actions with statistics; commits nothing.

    If the write fails, its files are deleted where the store allows it.

    Args:
        frame: The rows. They must fit the schema of the table: missing columns are filled, narrower types are cast.

    Source: PROTOCOL.md#add-file-and-remove-file
    """
    schema, mode = table.schema, table.mapping
    ensure_storable(schema, table.partition_columns)
    if isinstance(frame, LocalFrame):
        return _write_here(frame, store, table, folder or uuid.uuid4().hex)
    ensure_distinct_names(frame.sparkSession, store.location, schema, mode)
    by_name = {field.name: field for field in schema}
    partition_names = [physical_name(by_name[name], mode) for name in table.partition_columns]
    job = folder or uuid.uuid4().hex
    (target,), options = with_own_client([store.uri(job)], hadoop_options(store))
    with contextlib.ExitStack() as undo:
        undo.callback(discard_folder, store, job)
        indexed, private = indexed_columns(table), _private_columns(table)
        with translate_spark_errors():
            # Spark's own writer leaves partition columns out of the files, so tasks write files that must have them.
            if enabled_compat(table.properties) or stores_partition_columns(table):
                rows = to_checked_rows(frame, table)
                describe, codec = describe_columns(indexed, partition_names), codec_of(frame.sparkSession)
                sink = PartSink(store, job, codec, describe, private=private)
                adds = write_with_partition_columns(rows, sink, without_void(schema), mode, table.partition_columns)
            else:
                options |= _without_statistics(table.physical_schema, private)
                writer = to_physical_layout(frame, table).write.options(**_OPTIONS, **options)
                # Spark takes a path here and not a URI: it would look for a folder with %20 in its name.
                with proleptic_writes(frame.sparkSession):
                    writer.partitionBy(*partition_names).parquet(unquote(target))
                adds = _adds(frame, store, job, indexed)
        undo.pop_all()
    return adds


def _write_here(frame: LocalFrame, store: LogStore, table: TableConfiguration, job: str) -> list[Add]:
    sink = table_sink(store, table, job, codec_of(frame.session))
    with contextlib.ExitStack() as undo:
        undo.callback(discard_folder, store, job)
        written = frame.mapInArrow(partial(write_rows, sink), PARTS).toArrow().to_pylist()
        undo.pop_all()
    return [to_partitioned_add(sink.layout.split, PartFile(**row)) for row in written]


def arrow_layout(store: LogStore, table: TableConfiguration, job: str, codec: str) -> ArrowLayout:
    """Return how tasks write files with Arrow. Partition columns come last, in files that have them."""
    physical = {field.name: field for field in as_nullable(without_void(table.physical_schema))}
    names = dict(zip(table.schema.names, table.physical_schema.names, strict=True))
    partitions = tuple(names[name] for name in table.partition_columns)
    stored = [field for name, field in physical.items() if name not in partitions]
    if stores_partition_columns(table):
        stored += [physical[name] for name in partitions]
    describe = describe_columns(indexed_columns(table), partitions if stores_partition_columns(table) else ())
    sink = PartSink(store, job, codec, describe, private=_private_columns(table))
    return ArrowLayout(sink, to_arrow_with_ids(StructType(tuple(stored))), partitions)


def stored_columns(table: TableConfiguration) -> dict[str, Field]:
    """Return the columns in files by their names in the table.

    Fields have the names in files; their physical names are the names in the table, before renaming.
    """
    schema = table.schema
    renamed = map_fields(schema, lambda _, field: replace(field, metadata={PHYSICAL_NAME: field.name}))
    return dict(zip(schema.names, _with_names(renamed, table.physical_schema).fields, strict=True))


def _with_names(schema: StructType, named: StructType) -> StructType:
    """Return a schema with the names of another one of the same shape."""
    names = iter([field.name for _, field in fields(named)])
    order = {path: next(names) for path, _ in fields(schema)}
    return map_fields(schema, lambda path, field: replace(field, name=order[path]))


def table_sink(store: LogStore, table: TableConfiguration, job: str, codec: str) -> TableSink:
    """Return how tasks write rows with the columns of a table; the arguments are the same as for `arrow_layout`.

    Raises:
        EngineUnsuitable: only Spark checks the conditions on the rows of the table.
    """
    with fail_if_unsupported("of the table: "):
        rules = row_rules(table)
    layout = arrow_layout(store, table, job, codec)
    return TableSink(layout, stored_columns(table), tuple(table.partition_columns), rules)


def find_obstacle(table: TableConfiguration, *, checks_rows: bool = False) -> str | None:
    """Return why only Spark writes the rows of a table as its rules demand; None if tasks can do so with Arrow.

    Args:
        checks_rows: Whether the tasks check the conditions that `row_rules` returns.
    """
    # Expressions are written in Spark's SQL, and nothing else evaluates them exactly as Spark does.
    if checks_rows:
        try:
            row_rules(table)
        except Unsupported as error:
            return str(error)
    elif check_constraints(table.properties):
        return "it has CHECK constraints"
    if enabled_compat(table.properties):
        return "it is compatible with Iceberg"
    if stores_partition_columns(table):
        return "its files also contain the partition columns"
    rules = {key: text for key, text in _RULES.items() if not (checks_rows and key == INVARIANT)}
    return next(filter(None, (_column_obstacle(field, table.partition_columns, rules) for field in table.schema)), None)


def _column_obstacle(field: Field, partition_by: Collection[str], rules: Mapping[str, str]) -> str | None:
    for path, inner in fields(StructType((field,))):
        rule = next((text for key, text in rules.items() if key in inner.metadata), None)
        if rule is not None:
            return f"the column {format_path(path)} {rule}"
    try:
        to_arrow(field.type)
    except InvalidOption:
        return f"the column {field.name} is {field.type.sql}"
    if any(leaf == VOID for _, leaf in leaves(field.type)):
        return f"the column {field.name} has the type void"
    if not is_fully_nullable(field.type):
        return f"a field inside of {field.name} must not be null"
    if field.name in partition_by and not _has_plain_text(field.type):
        return f"{field.name} is a partition column of the type {field.type.sql}"
    return None


_RULES: Mapping[str, str] = {
    INVARIANT: "has an invariant",
    GENERATION: "is generated",
    START: "is an identity column",
    TEXT_LIMIT: "has a maximum length",
}


def _has_plain_text(data_type: DataType) -> bool:
    """Return whether Arrow and Spark write the values of a partition column as the same texts."""
    if isinstance(data_type, DecimalType):
        return data_type.scale <= _MAX_PLAIN_SCALE
    return str(data_type) not in ("float", "double", "binary")


_MAX_PLAIN_SCALE = 6
"""Arrow writes smaller fractions with an exponent."""


def indexed_columns(table: TableConfiguration) -> frozenset[Path]:
    """Return the physical paths of the leaf columns that get statistics."""
    # The commit reads the new high water mark of an identity column from its bounds, so it always has statistics.
    leaves = indexed_leaves(table.schema, table.properties, table.partition_columns)
    identities = {(field.name,) for field in table.schema if find_identity(field)}
    return frozenset(to_physical_path(table.schema, path, table.mapping) for path in leaves | identities)


def _private_columns(table: TableConfiguration) -> frozenset[Path]:
    """Return the physical paths of the columns that get no statistics in footers."""
    private = private_columns(table.schema, table.properties)
    return frozenset(to_physical_path(table.schema, path, table.mapping) for path in private)


def _without_statistics(stored: StructType, private: frozenset[Path]) -> dict[str, str]:
    """Return the options that keep Spark from writing statistics of some columns to footers.

    Source: the Parquet format
    """
    if not private:
        return {}
    names = (name for leaf, name in _stored_leaves(stored, (), ()) if is_private(leaf, private))
    return {f"parquet.column.statistics.enabled#{'.'.join(name)}": "false" for name in names}


def _stored_leaves(data_type: DataType, path: Path, name: Path) -> Iterator[tuple[Path, Path]]:
    """Yield the path of every leaf, and its path in the notation of Parquet."""
    inner = children(data_type)
    if not inner:
        yield path, name
    for step, child in inner:
        around = {ArrayType: ("list",), MapType: ("key_value",)}.get(type(data_type), ())
        yield from _stored_leaves(child, (*path, step), (*name, *around, step))


def _adds(frame: DataFrame, store: LogStore, job: str, columns: frozenset[Path]) -> list[Add]:
    # Spark does not say what it has written. Its committer leaves files beside, whose names begin with . or _.
    entries = [entry for entry in store.list(job) if entry.name.endswith(".parquet") and entry.name[0] not in "._"]
    footers = read_footers(frame.sparkSession, store, [entry.path for entry in entries], columns)
    empty = [entry.path for entry, footer in zip(entries, footers, strict=True) if not footer.rows]
    store.delete(empty)
    return [_add(entry, footer) for entry, footer in zip(entries, footers, strict=True) if footer.rows]


def _add(entry: FileEntry, footer: Footer) -> Add:
    path = percent_encode(entry.path)
    return Add(
        path=path,
        partition_values=dict(directory_values(path)),
        size=entry.size_bytes,
        modification_time=entry.modified_ms,
        data_change=True,
        stats=footer.stats,
        tags={LEAF_COUNTS: footer.counts} if footer.counts else None,
    )


_TEXT = "__widen_text_"


def write_with_partition_columns(
    rows: DataFrame, sink: PartSink, schema: StructType, mode: str, partition_by: Sequence[str]
) -> list[Add]:
    """Write rows with their partition columns, and return the files as add actions with statistics; commits nothing.

    Files of failed task attempts are deleted.

    Args:
        schema: The schema of the table, in logical names and without void columns. Its ids become field ids.

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
    written = frame.mapInArrow(partial(_write_task, layout), PARTS).collect()
    discard_folder(sink.store, sink.job, but={row.path for row in written})
    return [to_partitioned_add(layout.split, PartFile(*row)) for row in written]


def _write_task(layout: ArrowLayout, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of one task, which are sorted by partition, and yield the written files."""
    files: list[PartFile] = []
    writer, current = None, None
    for batch in batches:
        for texts, rows in _partition_runs(batch, len(layout.split)):
            if writer is None or texts != current:
                files += _close_writer(writer, current)
                writer, current = open_writer(layout, texts), texts
            writer.write(_with_partition_nulls(cast_batch(rows, layout.schema), layout, texts))
    files += _close_writer(writer, current)
    if files:
        yield to_part_rows(files)


def _with_partition_nulls(rows: pa.RecordBatch, layout: ArrowLayout, texts: Sequence[str | None]) -> pa.RecordBatch:
    """Return rows of one partition with null in the columns where the log has null: also for an empty string."""
    for name, text in zip(layout.split, texts, strict=True):
        at = rows.schema.get_field_index(name)
        if text is None and rows.column(at).null_count < len(rows):
            field = rows.schema.field(at)
            rows = rows.set_column(at, field, pa.nulls(len(rows), field.type))
    return rows


def _close_writer(writer: PartWriter | None, texts: Sequence[str | None] | None) -> list[PartFile]:
    if writer is None or texts is None:
        return []
    return [msgspec.structs.replace(part, partition=json.dumps(texts)) for part in writer.close()]


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
