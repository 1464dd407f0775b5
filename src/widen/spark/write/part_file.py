"""Part files: a Python task writes its own rows, which is faster than to pass them to Spark.

This works only for plain tables. For tables with partition columns, column mapping, constraints or computed columns,
Spark writes the files.

Source: PROTOCOL.md#add-file-and-remove-file; the Parquet format.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from widen.log.read.commit_timestamps import current_ms
from widen.log.store.log_store import LogStore
from widen.model.column_path import Path, fields
from widen.model.schema_json import from_json
from widen.planning.table.dependent_expressions import check_constraints
from widen.protocol.actions import Add, Metadata, Protocol
from widen.protocol.column_mapping import NONE, mapping_mode
from widen.protocol.column_metadata import DEFAULT, GENERATION, INVARIANT, START
from widen.protocol.leaf_counts import LEAF_COUNTS
from widen.protocol.parquet_calendar import PROLEPTIC
from widen.protocol.skipping.file_statistics import indexed_leaves, is_private, private_columns
from widen.protocol.table_features import is_supported
from widen.protocol.text_limits import TEXT_LIMIT
from widen.spark.parquet.footer import footer_of, leaf_paths
from widen.spark.write.physical_layout import is_fully_nullable

ROW_GROUP_BYTES = 64 * 2**20
"""The number of bytes of Arrow data from which on a row group is written."""

FILE_BYTES = 2**30
"""The number of bytes from which on a task starts another file."""

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
        schema: The schema of the files; by default that of the rows.
        file_bytes: The number of bytes from which on a task starts another file.
        level: The compression level; None for that of Arrow.
        private: The columns that get no statistics in footers; see `private_columns`.
    """

    store: LogStore
    job: str
    codec: str
    describe: Callable[[pq.FileMetaData, Mapping[Path, int]], tuple[str, str]]
    schema: pa.Schema | None = None
    file_bytes: int = FILE_BYTES
    level: int | None = None
    private: frozenset[Path] = frozenset()


class PartFile(msgspec.Struct, frozen=True):
    """A file that a task has written.

    Args:
        stats: Its statistics, in the form of the table format.
        counts: How many values each leaf has, as a tag of Delta's log; empty if the statistics say so.
    """

    path: str
    size_bytes: int
    stats: str
    counts: str = ""

    def to_add(self) -> Add:
        """Return the file as an add action."""
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


def find_part_sink(spark: SparkSession, store: LogStore, protocol: Protocol, metadata: Metadata) -> PartSink | None:
    """Return the destination of part files, or None if Spark has to write the files.

    Args:
        spark: The session, whose settings define the compression.
        protocol: The protocol of the table when the files are committed.
        metadata: The metadata of the table when the files are committed.
    """
    schema = from_json(metadata.schema_string)
    is_mapped = mapping_mode(metadata.configuration, protocol) != NONE
    has_rules = bool(check_constraints(metadata.configuration)) or any(
        not _RULES.isdisjoint(field.metadata) for _, field in fields(schema)
    )
    is_iceberg = any(is_supported(protocol, name) for name in _ICEBERG)
    if metadata.partition_columns or is_mapped or has_rules or is_iceberg or not is_fully_nullable(schema):
        return None
    describe = describe_columns(indexed_leaves(schema, metadata.configuration, ()))
    private = private_columns(schema, metadata.configuration)
    return PartSink(store, uuid.uuid4().hex, codec_of(spark), describe, private=private)


def describe_columns(columns: frozenset[Path]) -> Callable[[pq.FileMetaData, Mapping[Path, int]], tuple[str, str]]:
    """Return a function that returns the statistics and the counts of a file in the form of Delta's log.

    Args:
        columns: The physical paths of the leaf columns that get statistics.
    """
    return partial(_describe, columns)


def _describe(columns: frozenset[Path], metadata: pq.FileMetaData, _: Mapping[Path, int]) -> tuple[str, str]:
    footer = footer_of(metadata, columns)
    return footer.stats, footer.counts


def codec_of(spark: SparkSession) -> str:
    """Return the session's compression codec, by Arrow's name."""
    return _CODECS.get(str(spark.conf.get(CODEC, "snappy")).lower(), "snappy")


class PartWriter:
    """Writes the files of one task."""

    def __init__(self, sink: PartSink, schema: pa.Schema) -> None:
        self._sink, self._schema = sink, schema
        self._floats = list(_floats(schema))
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_bytes = 0
        self._parts: list[PartFile] = []
        self._file: BinaryIO | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows, and write a row group when there are enough of them."""
        self._waiting.append(batch)
        self._waiting_bytes += batch.nbytes
        if self._waiting_bytes >= min(ROW_GROUP_BYTES, self._sink.file_bytes):
            self._write_group()

    def close(self) -> list[PartFile]:
        """Write the remaining rows, and return the files."""
        if self._waiting:
            self._write_group()
        self._finish()
        return self._parts

    def discard(self) -> None:
        """Delete the written files, also one that cannot be finished, e.g. on a full disk."""
        self._waiting = []
        paths = [part.path for part in self._parts]
        if self._file is not None:
            paths.append(self._path)
            with suppress(OSError, pa.ArrowException):
                self._finish()
            self._file = None
        self._sink.store.delete(paths)

    def _write_group(self) -> None:
        rows = pa.Table.from_batches(self._waiting, self._schema)
        self._waiting, self._waiting_bytes = [], 0
        nans = {path: pc.sum(pc.is_nan(struct_leaf(rows, path))).as_py() or 0 for path in self._floats}
        with_nan = {path for path, count in nans.items() if count}
        # Which columns have statistics is decided for a whole file, so the first NaN of a column starts another.
        if self._file is not None and not with_nan <= self._unbounded:
            self._finish()
        if self._file is None:
            self._begin(with_nan)
        assert self._file is not None
        self._nans.update(nans)
        self._writer.write_table(rows, row_group_size=rows.num_rows)
        if self._file.tell() >= self._sink.file_bytes:
            self._finish()

    def _begin(self, unbounded: set[Path]) -> None:
        """Start a file without statistics of some columns: those of Arrow leave NaN out, which is above every number
        for Spark, so that its readers would skip rows.
        """
        self._unbounded = unbounded
        self._path = f"{self._sink.job}/part-{uuid.uuid4().hex}.{self._sink.codec}.parquet"
        self._file = self._sink.store.create(self._path)
        self._footers: list[pq.FileMetaData] = []
        private = self._sink.private
        omitted = unbounded | {leaf for leaf in leaf_paths(self._schema) if private and is_private(leaf, private)}
        self._nans: Counter[Path] = Counter()
        self._writer = pq.ParquetWriter(
            self._file,
            self._schema,
            compression=self._sink.codec,
            compression_level=self._sink.level,
            # As Spark writes them; the default is a byte array of fixed length, which takes more space and time.
            store_decimal_as_integer=True,
            write_statistics=_columns_in_file(self._schema, omitted) if omitted else True,
            metadata_collector=self._footers,
        )
        self._writer.add_key_value_metadata(PROLEPTIC)

    def _finish(self) -> None:
        if self._file is None:
            return
        with self._file as file:
            self._writer.close()
            size_bytes = file.tell()
        self._file = None
        self._parts.append(PartFile(self._path, size_bytes, *self._sink.describe(self._footers[0], self._nans)))


def struct_leaf(rows: pa.Table, path: Path) -> pa.ChunkedArray:
    """Return a column, or a field of a struct; null where the struct is null."""
    values = rows.column(path[0])
    for step in path[1:]:
        values = pc.struct_field(values, step)
    return values


def _floats(columns: Iterable[pa.Field], path: Path = ()) -> Iterator[Path]:
    """Yield the columns and fields of structs with floating-point numbers; readers skip nothing by other leaves."""
    for field in columns:
        if pa.types.is_floating(field.type):
            yield (*path, field.name)
        elif pa.types.is_struct(field.type):
            yield from _floats(field.type, (*path, field.name))


def _columns_in_file(schema: pa.Schema, omitted: Collection[Path]) -> list[str] | bool:
    """Return the leaves of a Parquet file, in its own notation, without some; False if none is left."""
    # The notation depends on how Arrow writes lists and maps, so an empty file tells.
    sink = BytesIO()
    pq.ParquetWriter(sink, schema).close()
    stored = [column.path for column in pq.read_metadata(sink).schema]
    names = {name for leaf, name in zip(leaf_paths(schema), stored, strict=True) if leaf in omitted}
    return [name for name in stored if name not in names] or False
