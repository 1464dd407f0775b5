"""The files that a batch writes: what it requires of a table format, and how Delta and Iceberg tables do it."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any
from typing import Protocol as Interface  # in this module, Protocol is the log action
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from widen.errors import InvalidOption
from widen.files.arrow_types import to_arrow_schema
from widen.files.data_reader import read_in_tasks
from widen.files.data_writer import (
    PARTS,
    PartFile,
    PartSink,
    Sink,
    codec_of,
    find_part_sink,
    to_arrow_with_ids,
    to_partitioned_add,
)
from widen.files.footers import open_data_file
from widen.files.parquet_encoding import read_size, to_encoding
from widen.frames.parquet_writer import find_obstacle, table_sink, write_parquet
from widen.frames.physical_layout import (
    ICEBERG,
    constant_defaults,
    fill_computed_columns,
    first_violated_rule,
    has_value_rules,
)
from widen.frames.scan import read_snapshot
from widen.log.commit_outcome import discard, discard_folder
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot
from widen.model.column_path import format_path
from widen.model.types import BINARY, STRING, StructType, is_fully_nullable, quote_name
from widen.model.value_classes import dataclass
from widen.protocol.actions import Add
from widen.protocol.column_mapping import physical_name
from widen.protocol.column_metadata import DEFAULT, find_generation, is_computed
from widen.protocol.file_statistics import count_written_rows, private_columns
from widen.protocol.partition_values import partition_limits
from widen.protocol.table_configuration import TableConfiguration
from widen.protocol.table_features import default_columns, is_supported, supported_features
from widen.rows.row_builder import RowCondition
from widen.schema.table_state import row_conditions
from widen.sources.listing import as_literal
from widen.spark.engine import (
    LocalFrame,
    LocalSession,
    Rows,
    Session,
    Unsupported,
    is_local,
    run_on_engine,
    start_tasks,
)
from widen.spark.errors import translate_spark_errors
from widen.spark.session import READ_OPTIONS, hadoop_options, with_own_client
from widen.spark.spark_types import Column, DataFrame, F, SparkSession, as_nullable, to_spark, type_to_spark

if TYPE_CHECKING:
    from widen.files.iceberg_writer import IcebergLayout
    from widen.iceberg.file_metrics import IcebergFile
    from widen.iceberg.partitions import PartitionField, SortKey

# What a batch requires of a table format: to write rows, and to read them again.


class WrittenFile(Interface):
    """A written but uncommitted file. The format of the table adds more facts."""

    @property
    def path(self) -> str:
        """The path; its first folder belongs to the job that wrote the file."""

    @property
    def size(self) -> int:
        """The size in bytes."""


class TableWriter(Interface):
    """Writes rows as files of a table. Nothing is committed."""

    def find_sink(self, spark: Session, *, in_tasks: bool = False) -> Sink | None:
        """Return where Python tasks can write files themselves; None if rows have to pass through `write`.

        Args:
            in_tasks: Whether Spark's tasks also split rows by partition, and leave out those that no partition holds,
                as tasks of this process do.
        """

    def find_obstacle(self) -> str:
        """Return why tasks of this process cannot write the rows, if they cannot."""

    def from_parts(self, parts: Sequence[PartFile]) -> Sequence[WrittenFile]:
        """Return the files that tasks have written to the sink."""

    @property
    def defaults(self) -> frozenset[str]:
        """The columns with a default."""

    def constant_defaults(self) -> Mapping[str, pa.Array]:
        """Return the defaults of these columns, each as an array of one value.

        Raises:
            Unsupported: only Spark evaluates one of them, so that the writer has no sink.
        """

    def fill(self, rows: DataFrame, is_missing: Callable[[str], Column]) -> DataFrame:
        """Return rows with a value in the columns that the table computes; they may have further columns.

        Args:
            is_missing: Returns of a column with a default whether a record has no field for it.
        """

    @property
    def has_rules(self) -> bool:
        """Whether the table has rules on rows, beside the rules of its generated columns. Needs no Spark."""

    @property
    def generated(self) -> frozenset[str]:
        """The columns whose given values must equal those that the table computes."""

    def violated_rule(self) -> Column | None:
        """Return the message of the first rule that a row violates, or null; None if the table has no rules.

        NOT NULL columns and struct fields are not included: the fixed columns of an ingestion cover them.
        """

    def find_text_partitions(self) -> Sequence[str] | None:
        """Return the partition columns of strings, if rows violate rules only by texts in them; else None."""

    def write(self, rows: Rows) -> Sequence[WrittenFile]:
        """Write rows in the columns of the table. On failure, the files are deleted where the store allows it."""

    def count_rows(self, files: Sequence[Any]) -> int:
        """Return the number of rows in files of this writer."""

    def discard(self, files: Sequence[Any]) -> None:
        """Delete files of this writer where the store allows it."""


@dataclass(frozen=True, slots=True)
class TaskFiles:
    """Parquet files that Python tasks can read themselves: their columns have the names and types of the table."""

    store: LogStore
    paths: tuple[str, ...]


def read_file(files: TaskFiles, path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows of one of these files in the types of the table."""
    with open_data_file(files.store, path) as source:
        # Spark 4.0 writes timestamps as INT96, which Arrow reads as nanoseconds by default; these end in the year 2262.
        opened = pa.PythonFile(source, mode="r")
        file = pq.ParquetFile(opened, coerce_int96_timestamp_unit="us", page_checksum_verification=True)
        for rows in file.iter_batches(BATCH_ROWS):
            columns = [cast_array(rows.column(field.name), field.type) for field in schema]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


BATCH_ROWS = 10_000
"""How many rows of a Parquet file a task reads at a time."""


def cast_array(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Return values in a type; the same values if they have it already."""
    return values if values.type == data_type else values.cast(data_type)


def _read_numbered(files: TaskFiles, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for number in (number for batch in batches for number in batch.column(0).to_pylist()):
        yield from read_file(files, files.paths[number], schema)


class TableRows(Interface):
    """The rows of one version of a table."""

    @property
    def schema(self) -> StructType:
        """The schema of the version, with all metadata."""

    @property
    def conditions(self) -> tuple[str, ...]:
        """The conditions on every row, in Spark SQL."""

    def read(self, spark: Session, paths: Collection[str]) -> Rows:
        """Return the rows of some files."""

    def task_files(self, spark: Session, paths: Collection[str]) -> TaskFiles | None:
        """Return the given files that the version has; None if only Spark can read them."""


def _default_obstacle(writer: TableWriter) -> str:
    """Return why only Spark fills columns with a default, if it does."""
    try:
        writer.constant_defaults()
    except Unsupported as error:
        return f"of the default of a column: {error}"
    return ""


@dataclass(frozen=True, slots=True)
class DeltaWriter(TableWriter):
    """Writes rows as files of a Delta table.

    Args:
        rule: The message of a rule of the ingestion that a row violates, or null; None without rules.
        condition: The same rule for tasks of this process.
        fills_defaults: Whether a missing field takes the default of its column.
        in_tasks: Whether Spark's tasks also write rows that they split or check, as tasks of this process do.
    """

    store: LogStore
    table: TableConfiguration
    rule: Column | None = None
    condition: RowCondition | None = None
    fills_defaults: bool = True
    in_tasks: bool = False

    def find_sink(self, spark: Session, *, in_tasks: bool = False) -> Sink | None:
        if self.rule is not None:
            return None
        sink = None if self.condition is not None else find_part_sink(spark, self.store, self.table)
        if sink is not None or not (in_tasks or self.in_tasks or is_local(spark)) or self.find_obstacle():
            return sink
        return replace(table_sink(self.store, self.table, uuid.uuid4().hex, codec_of(spark)), condition=self.condition)

    def find_obstacle(self) -> str:
        return (
            find_obstacle(self.table, checks_rows=True)
            or _default_obstacle(self)
            or ("some of its rows have no key" if self.rule is not None else "")
        )

    def from_parts(self, parts: Sequence[PartFile]) -> list[Add]:
        by_name = {field.name: field for field in self.table.schema}
        names = [physical_name(by_name[name], self.table.mapping) for name in self.table.partition_columns]
        return [to_partitioned_add(names, part) if part.partition else part.to_add() for part in parts]

    @property
    def defaults(self) -> frozenset[str]:
        return default_columns(self.table.schema, self.table.protocol) if self.fills_defaults else frozenset()

    def constant_defaults(self) -> Mapping[str, pa.Array]:
        return constant_defaults(self.table.schema, self.table.protocol) if self.fills_defaults else {}

    def fill(self, rows: DataFrame, is_missing: Callable[[str], Column]) -> DataFrame:
        """Return rows with defaults, generated values and identities."""
        fills = is_missing if self.fills_defaults else lambda _: F.lit(False)
        return fill_computed_columns(rows, self.table.schema, self.table.protocol, fills)

    @property
    def has_rules(self) -> bool:
        table = self.table
        limits = partition_limits(table.schema, table.partition_columns)
        conditions = row_conditions(table.schema, table.protocol, table.properties)
        return self.rule is not None or bool(limits) or has_value_rules(table.schema) or any(True for _ in conditions)

    @property
    def generated(self) -> frozenset[str]:
        table = self.table
        is_used = is_supported(table.protocol, "generatedColumns")
        return frozenset(field.name for field in table.schema if is_used and find_generation(field) is not None)

    def violated_rule(self) -> Column | None:
        """Return the message of the first rule that a row violates, or of the first value that no partition holds."""
        table = self.table
        limits = partition_limits(table.schema, table.partition_columns)
        violated = first_violated_rule(table.schema, table.protocol, table.properties, limits)
        if self.rule is None:
            return violated
        return self.rule if violated is None else F.coalesce(violated, self.rule)

    def find_text_partitions(self) -> Sequence[str] | None:
        if self.rule is not None:
            return None
        table = self.table
        columns = [field for field in table.schema if field.name in table.partition_columns]
        # The table computes values after the tasks have decided which rows carry their texts.
        if any(field.type == BINARY or is_computed(field) for field in columns):
            return None
        if first_violated_rule(table.schema, table.protocol, table.properties) is not None:
            return None
        return [field.name for field in columns if field.type == STRING]

    def write(self, rows: Rows) -> list[Add]:
        return write_parquet(rows, self.store, self.table)

    def count_rows(self, files: Sequence[Add]) -> int:
        return count_written_rows(files)

    def discard(self, files: Sequence[Add]) -> None:
        discard(self.store, files)


@dataclass(frozen=True, slots=True)
class DeltaRows(TableRows):
    """The rows of one version of a Delta table."""

    store: LogStore
    snapshot: Snapshot

    @property
    def schema(self) -> StructType:
        # Without the feature, no writer applies the defaults of a schema.
        schema, is_used = self.snapshot.schema, "allowColumnDefaults" in supported_features(self.snapshot.protocol)
        return schema if is_used else StructType(tuple(field.without_metadata(DEFAULT) for field in schema))

    @property
    def conditions(self) -> tuple[str, ...]:
        snapshot = self.snapshot
        return tuple(text for _, text in row_conditions(snapshot.schema, snapshot.protocol, snapshot.properties))

    @property
    def size_bytes(self) -> int:
        """The size of the files of the version."""
        return int(pc.sum(self.snapshot.files()["size_bytes"]).as_py() or 0)

    def read(self, spark: Session, paths: Collection[str] | None = None) -> Rows:
        """Return the rows of some files; by default of all of the version."""
        return run_on_engine(
            spark,
            lambda here: read_in_tasks(here, self.snapshot, paths),
            lambda session: read_snapshot(session, self.store, self.snapshot, only=paths),
        )

    def task_files(self, spark: Session, paths: Collection[str]) -> TaskFiles | None:
        if find_part_sink(spark, self.store, self.snapshot.configuration) is None:
            return None
        files = self.snapshot.files()
        files = files.filter(pc.is_in(files["path"], value_set=pa.array(paths, pa.string())))
        # Another writer may have deleted rows since the commit, and tasks do not read deletion vectors.
        if files["deletion_vector"].null_count < len(files):
            return None
        return TaskFiles(self.store, tuple(files["path"].to_pylist()))


# Iceberg tables


CODEC = "write.parquet.compression-codec"
"""Table property: the compression of data files."""

_CODECS: Mapping[str, str] = MappingProxyType(
    {name: name for name in ("snappy", "gzip", "zstd", "brotli")}
    | {"uncompressed": "none", "none": "none", "lz4": "zstd"}
)
"""The codecs of Iceberg by Arrow's names; zstd, Iceberg's default, replaces the one that Arrow does not write."""

FILE_SIZE = "write.target-file-size-bytes"
"""Table property: a task starts another file after this size."""

FILE_BYTES = 512 * 2**20
"""Iceberg's default of `FILE_SIZE`."""


@dataclass(frozen=True, slots=True)
class IcebergWriter(TableWriter):
    """Writes rows as files of an Iceberg table.

    Args:
        folder: How the name of their folder begins.
        keeps_calendar: Whether rows violate a rule whose dates and times PyIceberg cannot commit as partitions. Every
            record of such an ingestion carries its origin, so the rule is for batches that have such a row.
        rule: The message of a rule of the ingestion that a row violates, or null; None without rules.
        condition: The same rule for tasks of this process.
        fills_defaults: Whether a missing field takes the default of its column.
        in_tasks: Whether Spark's tasks also write rows that they split or check, as tasks of this process do.
    """

    store: LogStore
    schema: StructType
    partition_by: tuple[PartitionField, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    footer: Mapping[str, str] = field(default_factory=dict)
    folder: str = ""
    keeps_calendar: bool = False
    sort_by: tuple[SortKey, ...] = ()
    rule: Column | None = None
    condition: RowCondition | None = None
    fills_defaults: bool = True
    in_tasks: bool = False

    def find_sink(self, spark: Session, *, in_tasks: bool = False) -> Sink | None:
        from widen.files.iceberg_writer import IcebergLayout

        if self.find_obstacle():
            return None
        if not self.partition_by and is_fully_nullable(self.schema) and self.condition is None:
            return self._new_sink()
        is_split = in_tasks or self.in_tasks or is_local(spark)
        return IcebergLayout(self._new_sink(), self.partition_by, self.condition) if is_split else None

    def find_obstacle(self) -> str:
        # Tasks that write their own files do not sort, and check no rules but that columns must not be null.
        from widen.iceberg.partitions import truncation_limits

        rules = {
            _default_obstacle(self): True,
            "some of its rows have no key": self.rule is not None,
            "it has a sort order": self.sort_by,
            "its columns have rules for what is in a value": has_value_rules(self.schema),
            "its partitions cannot hold each value": truncation_limits(self.partition_by, self.schema),
            "its partitions cannot hold the dates of the batch": self.keeps_calendar,
        }
        return next((text for text, is_broken in rules.items() if text and is_broken), "")

    def from_parts(self, parts: Sequence[PartFile]) -> list[IcebergFile]:
        from widen.iceberg.file_metrics import IcebergFile

        is_sorted = bool(self.sort_by)
        return [IcebergFile(part.path, part.size_bytes, part.stats, part.partition, is_sorted) for part in parts]

    @property
    def defaults(self) -> frozenset[str]:
        return default_columns(self.schema, ICEBERG) if self.fills_defaults else frozenset()

    def constant_defaults(self) -> Mapping[str, pa.Array]:
        return constant_defaults(self.schema, ICEBERG) if self.fills_defaults else {}

    def fill(self, rows: DataFrame, is_missing: Callable[[str], Column]) -> DataFrame:
        """Return rows with defaults."""
        return fill_computed_columns(rows, self.schema, ICEBERG, is_missing) if self.defaults else rows

    @property
    def has_rules(self) -> bool:
        return self.rule is not None or bool(self._limits) or has_value_rules(self.schema)

    @property
    def generated(self) -> frozenset[str]:
        return frozenset()

    @property
    def _limits(self) -> Mapping[str, str]:
        from widen.iceberg.partitions import truncation_limits, value_limits

        limits = value_limits if self.keeps_calendar else truncation_limits
        return limits(self.partition_by, self.schema)

    def violated_rule(self) -> Column | None:
        """Return the message of the first value that no file can hold, or no partition."""
        violated = first_violated_rule(self.schema, ICEBERG, {}, self._limits)
        if self.rule is None:
            return violated
        return self.rule if violated is None else F.coalesce(violated, self.rule)

    def find_text_partitions(self) -> None:
        """Return None: which values a partition cannot hold depends on its transform."""

    def write(self, rows: Rows) -> list[IcebergFile]:
        from widen.files.iceberg_writer import IcebergLayout, write_task
        from widen.iceberg.file_metrics import IcebergFile

        sink = self._new_sink()
        if isinstance(rows, LocalFrame):
            return self._write_here(rows, sink)
        columns = [F.col(quote_name(each.name)).cast(type_to_spark(each.type)) for each in as_nullable(self.schema)]
        # Tasks take the columns by position: mapInArrow of PySpark does not find a name with a dot.
        ordered = rows.sortWithinPartitions(*map(to_order, self.sort_by)) if self.sort_by else rows
        frame = ordered.select(*(column.alias(f"c{number}") for number, column in enumerate(columns)))
        with ExitStack() as undo:
            undo.callback(discard_folder, self.store, sink.job)
            with translate_spark_errors():
                layout = IcebergLayout(sink, self.partition_by)
                written = frame.mapInArrow(partial(write_task, layout), PARTS).collect()
            undo.pop_all()
        # The files of failed attempts of tasks are not in the list.
        discard_folder(self.store, sink.job, but=[row.path for row in written])
        is_sorted = bool(self.sort_by)
        return [IcebergFile(row.path, row.size_bytes, row.stats, row.partition, is_sorted) for row in written]

    def _write_here(self, rows: LocalFrame, sink: PartSink) -> list[IcebergFile]:
        from widen.files.iceberg_writer import IcebergLayout, write_task
        from widen.iceberg.file_metrics import IcebergFile

        with ExitStack() as undo:
            undo.callback(discard_folder, self.store, sink.job)
            named = rows.mapInArrow(partial(_select, self.schema.names), None)
            written = named.mapInArrow(partial(write_task, IcebergLayout(sink, self.partition_by)), None).toArrow()
            undo.pop_all()
        return [
            IcebergFile(row["path"], row["size_bytes"], row["stats"], row["partition"]) for row in written.to_pylist()
        ]

    def count_rows(self, files: Sequence[IcebergFile]) -> int:
        return sum(file.metrics.rows for file in files)

    def discard(self, files: Sequence[IcebergFile]) -> None:
        for job in {file.path.partition("/")[0] for file in files}:
            discard_folder(self.store, job)

    def with_lineage(self) -> IcebergWriter:
        """Return the writer of rows that also have the columns of `LINEAGE`."""
        from widen.files.iceberg_columns import LINEAGE

        if LINEAGE.fields[0] in self.schema.fields:
            return self
        return replace(self, schema=StructType((*self.schema, *LINEAGE)))

    def new_layout(self) -> IcebergLayout:
        """Return the layout of files in a new folder."""
        from widen.files.iceberg_writer import IcebergLayout

        return IcebergLayout(self._new_sink(), self.partition_by)

    def _new_sink(self) -> PartSink:
        from widen.files.iceberg_writer import describe_metrics
        from widen.iceberg.file_metrics import metrics_modes

        name = self.properties.get(CODEC, "zstd")
        codec = _CODECS.get(name.lower())
        if codec is None:
            raise InvalidOption(option=CODEC, value=name, expected=f"Must be one of {', '.join(sorted(_CODECS))}.")
        size = read_size(self.properties, FILE_SIZE)
        modes = metrics_modes(self.schema, self.properties)
        return PartSink(
            self.store,
            self.folder + uuid.uuid4().hex,
            codec,
            describe_metrics(self.schema, modes),
            to_arrow_with_ids(self.schema).with_metadata(self.footer),
            file_bytes=FILE_BYTES if size is None else size,
            encoding=to_encoding(self.properties, codec),
            private=private_columns(self.schema, self.properties),
        )


def _select(names: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.select(list(names))


def to_order(key: SortKey) -> Column:
    """Return a key of a sort order as a column to sort by."""
    column = F.col(format_path(key.source))
    if key.is_descending:
        return column.desc_nulls_first() if key.is_null_first else column.desc_nulls_last()
    return column.asc_nulls_first() if key.is_null_first else column.asc_nulls_last()


def read_footer_entries(store: LogStore, path: str) -> Mapping[str, str]:
    """Return the entries that a writer has put into the footer of a file; see `IcebergWriter`."""
    entries = pq.read_metadata(pa.BufferReader(store.read(path))).metadata or {}
    return {key.decode(): value.decode() for key, value in entries.items()}


@dataclass(frozen=True, slots=True)
class IcebergRows:
    """The rows of one snapshot of an Iceberg table that an ingestion has just written.

    Their files have the names and types of the columns of that snapshot.

    Args:
        paths: The files that the snapshot added, below the data location.
    """

    store: LogStore
    schema: StructType
    paths: frozenset[str]
    conditions: tuple[str, ...] = ()

    def read(self, spark: Session, paths: Collection[str]) -> Rows:
        """Return the rows of the given files that the snapshot has."""
        return run_on_engine(spark, partial(self._read_here, paths), partial(self._read_on_spark, paths))

    def _read_here(self, paths: Collection[str], session: LocalSession) -> Rows:
        files = TaskFiles(self.store, tuple(path for path in paths if path in self.paths))
        numbers: LocalFrame = start_tasks(session, len(files.paths))
        return numbers.mapInArrow(partial(_read_numbered, files, to_arrow_schema(self.schema)), None)

    def _read_on_spark(self, paths: Collection[str], spark: SparkSession) -> DataFrame:
        schema = to_spark(as_nullable(self.schema))
        uris = [self.store.uri(path) for path in paths if path in self.paths]
        if not uris:
            return spark.createDataFrame([], schema)
        uris, options = with_own_client(uris, hadoop_options(self.store))
        reader = spark.read.schema(schema).options(**READ_OPTIONS, **options)
        with translate_spark_errors():  # the classic session looks a few files up already here
            # Spark reads each text as a path pattern, and %20 is not a space there.
            return reader.parquet(*(as_literal(unquote(uri)) for uri in uris))

    def task_files(self, spark: Session, paths: Collection[str]) -> TaskFiles | None:
        """Return the given files that the snapshot has."""
        return TaskFiles(self.store, tuple(path for path in paths if path in self.paths))
