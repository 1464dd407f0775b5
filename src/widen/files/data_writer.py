"""Data files with partition columns, and for IcebergCompat with field ids for elements, keys and values.

Spark's own writer omits partition columns, and writes ids for struct fields only. So tasks write with Arrow, whose
timestamps are always 64-bit integers.

Source: PROTOCOL.md#writer-requirements-for-icebergcompatv1, #writer-requirements-for-icebergcompatv2;
protocol_rfcs/materialize-partition-columns.md#materialize-partition-columns
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field, replace
from functools import partial
from typing import Any, BinaryIO, ClassVar, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from widen.errors import NotNullViolated, StorageError
from widen.files.arrow_types import count_up, to_arrow, to_utc
from widen.files.data_reader import convert_column
from widen.files.footers import footer_of, leaf_paths
from widen.files.parquet_encoding import Encoding, columns_in_file
from widen.files.row_rules import RowRule, ensure_rules
from widen.iceberg.schema_conversion import FIXED_LENGTHS
from widen.log.commit_files import current_ms
from widen.log.log_store import LogStore, percent_encode
from widen.model.column_path import ELEMENT, KEY, VALUE, Path, fields, leaves
from widen.model.types import (
    STRING,
    VARIANT,
    VOID,
    ArrayType,
    DataType,
    Field,
    MapType,
    StructType,
    find_name,
    is_fully_nullable,
)
from widen.model.value_classes import dataclass
from widen.protocol.actions import Add
from widen.protocol.column_mapping import COLUMN_ID, NAME, NONE, nested_ids
from widen.protocol.column_metadata import DEFAULT, GENERATION, INVARIANT, START, TEXT_LIMIT
from widen.protocol.file_statistics import indexed_leaves, is_private, private_columns
from widen.protocol.parquet_files import LEAF_COUNTS, PROLEPTIC
from widen.protocol.partition_values import directory_name
from widen.protocol.table_configuration import TableConfiguration
from widen.rows.row_builder import RowCondition
from widen.schema.table_state import check_constraints
from widen.spark.engine import Session, find_started
from widen.spark.errors import find_impossible_folder

_ID = b"PARQUET:field_id"

PARTS = "path string, size_bytes bigint, stats string, counts string, partition string"
"""The rows of tasks that write files: the fields of `PartFile`."""

_PARTS_SCHEMA = pa.schema(
    {
        "path": pa.string(),
        "size_bytes": pa.int64(),
        "stats": pa.string(),
        "counts": pa.string(),
        "partition": pa.string(),
    }
)


@dataclass(frozen=True, slots=True)
class ArrowLayout:
    """The layout of files that tasks write with Arrow."""

    sink: PartSink
    schema: pa.Schema
    split: tuple[str, ...]


def to_partitioned_add(names: Sequence[str], part: PartFile) -> Add:
    """Return a file that names its partition as an add action."""
    values = dict(zip(names, json.loads(part.partition), strict=True))
    return msgspec.structs.replace(part.to_add(), path=percent_encode(part.path), partition_values=values)


def to_part_rows(parts: Iterable[PartFile]) -> pa.RecordBatch:
    """Return files as rows of `PARTS`."""
    return pa.RecordBatch.from_pylist([msgspec.structs.asdict(part) for part in parts], schema=_PARTS_SCHEMA)


# ---- on the executors ------------------------------------------------------------------------------


def open_writer(layout: ArrowLayout, texts: Sequence[str | None]) -> PartWriter:
    """Return a writer of the files of one partition."""
    folders = [layout.sink.job, *map(directory_name, layout.split, texts)]
    return PartWriter(replace(layout.sink, job="/".join(folders)), layout.schema)


def cast_batch(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows in the names and types of a schema, column by column."""
    columns = [_cast(column, field.type) for column, field in zip(rows.columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _cast(column: pa.Array, data_type: pa.DataType) -> pa.Array:
    # Arrow refuses to cast variants that are null to their own type, since what is in them cannot be null.
    is_variant = column.type == data_type and _has_variants(data_type)
    return _fill_null_variants(column) if is_variant else column.cast(data_type)


def _fill_null_variants(values: pa.Array) -> pa.Array:
    """Return values with bytes in variants that are null: Arrow writes no null where the bytes are required."""
    if not pa.types.is_struct(values.type):
        return values
    inner = [values.field(number) for number in range(values.type.num_fields)]
    is_own = values.type == _STORED_VARIANT
    filled = [pc.fill_null(each, b"") if is_own else _fill_null_variants(each) for each in inner]
    return pa.StructArray.from_arrays(filled, fields=list(values.type), mask=values.is_null())


def _has_variants(data_type: pa.DataType) -> bool:
    if data_type == _STORED_VARIANT:
        return True
    if pa.types.is_struct(data_type):
        return any(_has_variants(field.type) for field in data_type)
    if pa.types.is_map(data_type):
        return _has_variants(data_type.item_type)
    return pa.types.is_list(data_type) and _has_variants(data_type.value_type)


# ---- ids -------------------------------------------------------------------------------------------


def to_arrow_with_ids(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of files, with the field ids of fields, elements, keys and values."""
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
    return _STORED_VARIANT if data_type == VARIANT else to_arrow(data_type)


_STORED_VARIANT = pa.struct([pa.field(name, pa.binary(), nullable=False) for name in ("value", "metadata")])
"""A variant as Spark passes it to tasks and as files have it.

Source: PROTOCOL.md#variant-data-in-parquet
"""


def _id(number: Any) -> dict[bytes, bytes] | None:
    return None if number is None else {_ID: str(number).encode()}


# Part files: a Python task writes its own rows, which is faster than to pass them to Spark.
#
# Source: PROTOCOL.md#add-file-and-remove-file; the Parquet format.


ROW_GROUP_BYTES = 64 * 2**20
"""A row group is written once it has this many bytes of Arrow data."""

FILE_BYTES = 2**30
"""A task starts another file after this many bytes."""

CODEC = "spark.sql.parquet.compression.codec"
_CODECS: Mapping[str, str] = {name: name for name in ("snappy", "gzip", "zstd", "brotli")} | {
    "none": "none",
    "uncompressed": "none",
}
"""The codecs of Spark that Arrow supports, by Arrow's names; snappy replaces the others."""

_RULES = frozenset({INVARIANT, GENERATION, START, DEFAULT, TEXT_LIMIT})
_ICEBERG = ("icebergCompatV1", "icebergCompatV2", "icebergCompatV3")


@dataclass(frozen=True, slots=True)
class PartSink:
    """The destination of part files.

    Args:
        describe: Returns ``stats`` and ``counts`` of a `PartFile` from the footer of the file and the numbers of its
            NaN values, which no footer has, by the paths of the floating-point columns outside of lists and maps.
        schema: The schema of the files; by default the schema of the rows.
        file_bytes: A task starts another file after this many bytes.
        private: The columns that get no statistics in footers; see `private_columns`.
    """

    store: LogStore
    job: str
    codec: str
    describe: Callable[[pq.FileMetaData, Mapping[Path, int]], tuple[str, str]]
    schema: pa.Schema | None = None
    file_bytes: int = FILE_BYTES
    encoding: Encoding = field(default_factory=Encoding)
    private: frozenset[Path] = frozenset()

    text_partitions: ClassVar[Sequence[str]] = ()
    """See `TableSink.text_partitions`."""

    rules: ClassVar[Sequence[RowCondition]] = ()
    """See `TableSink.rules`."""

    def open(self, schema: pa.Schema) -> PartWriter:
        """Return a writer for the rows of a task.

        Args:
            schema: The schema of the rows, if the sink has no schema.
        """
        return PartWriter(self, schema if self.schema is None else self.schema)


@dataclass(frozen=True, slots=True)
class TableSink:
    """The destination of rows with the columns of a Delta table, which may have partitions and other names in files.

    Args:
        columns: See `widen.frames.parquet_writer.stored_columns`.
        condition: One of the ingestion, for tasks that quarantine records.
    """

    layout: ArrowLayout
    columns: Mapping[str, Field]
    partition_by: tuple[str, ...] = ()
    conditions: tuple[RowRule, ...] = ()
    condition: RowCondition | None = None

    schema: ClassVar[None] = None
    """The rows have the columns of the table, in any order."""

    @property
    def store(self) -> LogStore:
        return self.layout.sink.store

    @property
    def job(self) -> str:
        """The folder of the files."""
        return self.layout.sink.job

    @property
    def rules(self) -> Sequence[RowCondition]:
        """The conditions for tasks to quarantine records."""
        return (*self.conditions, *(() if self.condition is None else (self.condition,)))

    @property
    def text_partitions(self) -> Sequence[str]:
        """The partition columns of strings, which do not hold every text."""
        return [name for name in self.partition_by if self.columns[name].type == STRING]

    def open(self, _: pa.Schema) -> PartitionedWriter:
        """Return a writer for the rows of a task."""
        return PartitionedWriter(self)


class RowWriter(Protocol):
    """Writes the rows of a task."""

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""

    def close(self) -> list[PartFile]:
        """Write the remaining rows, and return all files."""

    def discard(self) -> None:
        """Delete what has been written."""


class Sink(Protocol):
    """Where tasks write rows."""

    @property
    def store(self) -> LogStore:
        """The store of the files."""

    @property
    def job(self) -> str:
        """The folder of the files."""

    @property
    def schema(self) -> pa.Schema | None:
        """The schema of the rows; None if they may come in any."""

    @property
    def rules(self) -> Sequence[RowCondition]:
        """The conditions for tasks to quarantine records."""

    @property
    def text_partitions(self) -> Sequence[str]:
        """The partition columns of strings, which do not hold every text."""

    def open(self, schema: pa.Schema, /) -> RowWriter:
        """Return a writer for the rows of a task."""


def write_rows(sink: Sink, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Write the rows of a task, and yield the files as rows of `PARTS`."""
    writer: RowWriter | None = None
    try:
        for batch in batches:
            writer = writer or sink.open(batch.schema)
            writer.write(batch)
        parts = writer.close() if writer else []
    except BaseException:
        if writer:
            writer.discard()
        raise
    yield to_part_rows(parts)


class PartFile(msgspec.Struct, frozen=True):
    """A file that a task has written.

    Args:
        counts: How many values each leaf has, as a tag of Delta's log; empty if the statistics say so.
        partition: The partition values: for Delta a JSON array of the texts in the log, for Iceberg see
            `widen.iceberg.partitions.encode_partition`; empty if there are no partitions.
    """

    path: str
    size_bytes: int
    stats: str
    counts: str = ""
    partition: str = ""

    def to_add(self) -> Add:
        """Return the file as an add action."""
        # The time of this process is good enough, and costs no request: a vacuum compares it with a retention of days.
        now_ms = current_ms()
        return Add(
            path=self.path,
            partition_values={},
            size=self.size_bytes,
            modification_time=now_ms,
            data_change=True,
            stats=self.stats,
            tags={LEAF_COUNTS: self.counts} if self.counts else None,
        )


def find_part_sink(spark: Session, store: LogStore, table: TableConfiguration) -> PartSink | None:
    """Return the destination of part files, or None if Spark has to write the files."""
    has_rules = bool(check_constraints(table.properties)) or any(
        not _RULES.isdisjoint(field.metadata) for _, field in fields(table.schema)
    )
    is_iceberg, is_mapped = any(map(table.supports, _ICEBERG)), table.mapping != NONE
    # What a task cannot do alone: split rows into folders, rename columns, evaluate SQL, or refuse a null in a NOT NULL
    # column.
    if table.partition_columns or is_mapped or has_rules or is_iceberg or not is_fully_nullable(table.schema):
        return None
    if any(leaf in (VARIANT, VOID) for _, leaf in leaves(table.schema)):
        return None
    describe = describe_columns(indexed_leaves(table.schema, table.properties, ()))
    private = private_columns(table.schema, table.properties)
    return PartSink(store, uuid.uuid4().hex, codec_of(spark), describe, private=private)


def describe_columns(
    columns: frozenset[Path], partition_by: Collection[str] = ()
) -> Callable[[pq.FileMetaData, Mapping[Path, int]], tuple[str, str]]:
    """Return a function that returns the statistics and the counts of a file in the form of Delta's log."""
    return partial(_describe_part, columns, partition_by)


def _describe_part(
    columns: frozenset[Path], partition_by: Collection[str], metadata: pq.FileMetaData, _: Mapping[Path, int]
) -> tuple[str, str]:
    footer = footer_of(metadata, columns, partition_by)
    return footer.stats, footer.counts


def codec_of(spark: Session) -> str:
    """Return the session's compression codec, by Arrow's name."""
    started = find_started(spark)
    codec = "snappy" if started is None else str(started.conf.get(CODEC, "snappy"))
    return _CODECS.get(codec.lower(), "snappy")


class PartWriter:
    """Writes the files of one task."""

    def __init__(self, sink: PartSink, schema: pa.Schema) -> None:
        self._sink, self._schema = sink, schema
        self._floats = list(_floats(schema))
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._parts: list[PartFile] = []
        self._file: BinaryIO | None = None
        self._writer: pq.ParquetWriter | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows, and write a row group when there are enough of them."""
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        # A file that is to be smaller than a row group ends after one, or it would never be looked at in time.
        if self._waiting_bytes >= min(self._sink.encoding.row_group_bytes or ROW_GROUP_BYTES, self._sink.file_bytes):
            self._write_group()

    @property
    def waiting_bytes(self) -> int:
        """The number of bytes of the rows that wait for more."""
        return self._waiting_bytes

    def flush(self) -> None:
        """Write the rows that wait, as a row group."""
        if self._waiting:
            self._write_group()

    def close(self) -> list[PartFile]:
        """Write the remaining rows, and return the files."""
        self.flush()
        self._finish()
        return self._parts

    def discard(self) -> None:
        """Delete the written files, also an unfinished one; storage errors are ignored: no commit names the files."""
        self._waiting = []
        # A task that fails is run again with other names, so what it has written would stay for ever.
        paths = [part.path for part in self._parts]
        if self._file is not None:
            paths.append(self._path)
            # On a full disk the writer fails again, or does not exist, because not even the first bytes were written.
            # A file whose close has failed is closed, so that it takes nothing more.
            with suppress(OSError, pa.ArrowException, ValueError), self._file:
                if self._writer is not None:
                    self._writer.close()
            self._file = None
        with suppress(StorageError):
            self._sink.store.delete(paths)

    def _write_group(self) -> None:
        # One row group from many small batches: readers skip by row group, and each one costs an entry in the footer.
        rows = pa.Table.from_batches(self._waiting, self._schema)
        self._waiting, self._waiting_bytes = [], 0
        nans = {path: pc.sum(pc.is_nan(struct_leaf(rows, path))).as_py() or 0 for path in self._floats}
        with_nan = {path for path, count in nans.items() if count}
        # Which columns have statistics is decided for a whole file, so the first NaN of a column starts another.
        if self._file is not None and not with_nan <= self._unbounded:
            self._finish()
        if self._file is None:
            self._begin(with_nan, rows)
        assert self._file is not None
        assert self._writer is not None
        self._nans.update(nans)
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        # Looked at after a row group only: what the writer has buffered has no size yet.
        if self._file.tell() >= self._sink.file_bytes:
            self._finish()

    def _begin(self, unbounded: set[Path], rows: pa.Table) -> None:
        """Start a file without statistics for some columns: Arrow's statistics omit NaN, which Spark ranks above every
        number, so Spark's readers would skip rows.
        """
        self._unbounded = unbounded
        self._path = f"{self._sink.job}/part-{uuid.uuid4().hex}.{self._sink.codec}.parquet"
        try:
            self._file = self._sink.store.create(self._path)
        except StorageError as error:
            impossible = find_impossible_folder(self._path)
            if impossible is None:
                raise
            raise impossible from error
        self._footers: list[pq.FileMetaData] = []
        private = self._sink.private
        omitted = unbounded | {leaf for leaf in leaf_paths(self._schema) if private and is_private(leaf, private)}
        self._nans: Counter[Path] = Counter()
        self._writer = pq.ParquetWriter(
            self._file,
            self._schema,
            compression=self._sink.codec,
            # As Spark writes them; the default is a byte array of fixed length, which takes more space and time.
            store_decimal_as_integer=True,
            write_page_checksum=True,
            write_statistics=columns_in_file(self._schema, omitted) if omitted else True,
            metadata_collector=self._footers,
            **self._sink.encoding.writer_options(rows),
        )
        self._writer.add_key_value_metadata(PROLEPTIC)

    def _finish(self) -> None:
        if self._file is None:
            return
        assert self._writer is not None
        with self._file as file:
            self._writer.close()
            size_bytes = file.tell()
        self._file = self._writer = None
        self._parts.append(PartFile(self._path, size_bytes, *self._sink.describe(self._footers[0], self._nans)))


_OPEN_PARTITIONS, _WAITING_PARTITIONS = 64, 10_000
"""How many partitions a task has files of open, and of how many rows wait until there are enough of them."""


class PartitionedWriter:
    """Writes rows to one file after the other for each partition of a table.

    Source: PROTOCOL.md#add-file-and-remove-file, #partition-value-serialization
    """

    def __init__(self, sink: TableSink) -> None:
        self._sink = sink
        self._stored = [(name, field) for name, field in sink.columns.items() if name not in sink.partition_by]
        self._partitions = [(name, sink.columns[name]) for name in sink.partition_by]
        self._open: dict[tuple[str | None, ...], PartWriter] = {}
        self._files: list[PartFile] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch, each to the file of its partition."""
        names = batch.schema.names
        given = {name: batch.column(found) for name in self._sink.columns if (found := find_name(names, name))}
        columns, values = (
            [_to_table_type(name, field, given.get(name), batch.num_rows) for name, field in chosen]
            for chosen in (self._stored, self._partitions)
        )
        ensure_rules(
            self._sink.conditions, [name for name, _ in (*self._stored, *self._partitions)], [*columns, *values]
        )
        types = [field.type for _, field in self._partitions]
        texts = [to_partition_texts(column, data_type) for column, data_type in zip(values, types, strict=True)]
        rows = pa.Table.from_arrays(columns, schema=self._sink.layout.schema)
        for key, part in rows_by_key(rows, texts):
            for each in part.combine_chunks().to_batches():
                self._writer(key).write(each)
        # Each partition waits for a row group of its own, and together they may be many.
        if len(self._open) > _WAITING_PARTITIONS or self._waiting_bytes >= ROW_GROUP_BYTES:
            if len(self._open) > _OPEN_PARTITIONS:
                self.close()
            for writer in self._open.values():
                writer.flush()

    def close(self) -> list[PartFile]:
        """Finish all files, and return them, each with its partition."""
        for key, writer in self._open.items():
            partition = json.dumps(key)
            self._files += [msgspec.structs.replace(part, partition=partition) for part in writer.close()]
        self._open = {}
        return self._files

    def discard(self) -> None:
        """Delete what is written; storage errors are ignored, because a vacuum deletes such files later."""
        with suppress(StorageError):
            for writer in self._open.values():
                writer.discard()
            self._sink.store.delete([part.path for part in self._files])

    @property
    def _waiting_bytes(self) -> int:
        return sum(writer.waiting_bytes for writer in self._open.values())

    def _writer(self, key: tuple[str | None, ...]) -> PartWriter:
        if key not in self._open:
            self._open[key] = open_writer(self._sink.layout, key)
        return self._open[key]


def _to_table_type(name: str, field: Field, values: pa.Array | None, count: int) -> pa.Array:
    if values is None:
        return pa.nulls(count, to_arrow(field.type))
    if values.null_count and not field.nullable:
        raise NotNullViolated(column=name)
    return convert_column(to_utc(values), field.type, NAME)


def to_partition_texts(values: pa.Array, data_type: DataType) -> pa.Array:
    """Return partition values as texts for the log, as Spark writes them; the empty string is null.

    Source: PROTOCOL.md#partition-value-serialization
    """
    pattern = _TEXT_PATTERNS.get(str(data_type))
    texts = pc.strftime(values, pattern) if pattern else values.cast(pa.string())
    if pattern and pa.types.is_timestamp(values.type):
        texts = pc.replace_substring_regex(texts, r"(\.\d*?)0+(Z?)$", r"\1\2")
        texts = pc.replace_substring_regex(texts, r"\.(Z?)$", r"\1")
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


# Arrow's %S has the fraction of the second.
_TEXT_PATTERNS = {"timestamp": "%Y-%m-%dT%H:%M:%SZ", "timestamp_ntz": "%Y-%m-%d %H:%M:%S", "date": "%Y-%m-%d"}


def rows_by_key(rows: pa.Table, keys: Sequence[pa.Array]) -> Iterator[tuple[tuple[Any, ...], pa.Table]]:
    """Yield the rows of each combination of keys, in the order of the first ones."""
    if not keys:
        if rows.num_rows:
            yield (), rows
        return
    table = pa.table({f"key{number}": values for number, values in enumerate(keys)})
    names = table.column_names
    # With threads, Arrow does not keep the order of rows.
    numbered = table.append_column("row", count_up(rows.num_rows))
    grouped = numbered.group_by(names, use_threads=False).aggregate([("row", "list")])
    columns = [grouped.column(name).to_pylist() for name in names]
    for number, values in enumerate(zip(*columns, strict=True)):
        yield values, rows.take(grouped.column("row_list")[number].values)


def struct_leaf(rows: pa.Table, path: Path) -> pa.ChunkedArray:
    """Return a column, or a field of a struct; null where the struct is null."""
    values = rows.column(path[0])
    for step in path[1:]:
        values = pc.struct_field(values, step)
    return values


def _floats(columns: Iterable[pa.Field], path: Path = ()) -> Iterator[Path]:
    """Yield the columns and fields of structs with floating-point numbers; readers skip nothing by other leaves."""
    for column in columns:
        if pa.types.is_floating(column.type):
            yield (*path, column.name)
        elif pa.types.is_struct(column.type):
            yield from _floats(column.type, (*path, column.name))
