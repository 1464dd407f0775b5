"""Typed records that tasks copy from Parquet files, column by column with Arrow: no value passes through Spark's JVM.

This is for columns that hold the values of their fields in the same type or a wider one. All other columns, and files
that Arrow does not read as Spark does, are for the expressions of `widen.spark.typed.column_expressions`.

Source: docs/evolution-rules.md#d16
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from widen.errors import CorruptFile
from widen.errors.tables import first_line
from widen.json.observation import TemporalString, type_facts
from widen.log.commit_outcome import discard_folder
from widen.model.column_path import Path, leaves
from widen.model.types import STRING, ArrayType, DataType, DecimalType, MapType, StructType
from widen.protocol.parquet_files import is_legacy, is_legacy_int96
from widen.protocol.type_widening import is_widening
from widen.rows.row import ColumnSlot, RecordRoute, is_excluded_kind
from widen.spark.arrow_types import to_arrow, to_arrow_schema
from widen.spark.engine import is_local, translate_os_errors
from widen.spark.errors import RESTORE_FILE, translate_spark_errors
from widen.spark.read.physical_types import DRIVER_FILES, count_non_null, leaf_paths
from widen.spark.ship import without_garbage_collection
from widen.spark.source.file_ranges import are_few, open_file, task_bytes
from widen.spark.source.source_files import SourceFile, SourceFiles, count_partitions
from widen.spark.spark_types import SparkSession
from widen.spark.write.arrow_writer import PartFile, PartSink, PartWriter

_THREADS = 16
_ROWS = 16_384
_PART = "part"
_INT96 = "INT96"
_SPARK = b"org.apache.spark.version"
_TEMPORAL = frozenset({"date", "timestamp", "timestamp_ntz"})
_REBASE_MODES = ("spark.sql.parquet.datetimeRebaseModeInRead", "spark.sql.parquet.int96RebaseModeInRead")
_PROLEPTIC = "CORRECTED"

_COPIED = frozenset(
    ("boolean", "byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz")
    + ("string", "binary")
)
"""The types besides decimals whose values Arrow reads and writes as Spark does."""


class RowGroup(msgspec.Struct, frozen=True, array_like=True):
    """Rows of a file that a task copies."""

    uri: str
    number: int


@dataclass(frozen=True, slots=True)
class ColumnCopy:
    """Files whose columns go to a table as they are.

    Args:
        tasks: The row groups that each task copies.
        schema: The columns of the table, with a field id where files have them.
        copied: The columns that the files have; the others are null.
    """

    spark: SparkSession
    tasks: Sequence[Sequence[RowGroup]]
    schema: pa.Schema
    copied: frozenset[str]
    sink: PartSink
    is_few: bool

    def run(self) -> list[PartFile]:
        """Write the files of the table, and return them. If that fails, they are deleted as far as the store allows.

        Raises:
            CorruptFile: a file of the source cannot be read.
            StorageError: a file of the table cannot be written.
        """
        with ExitStack() as undo:
            undo.callback(discard_folder, self.sink.store, self.sink.job)
            if self.is_few:
                with translate_os_errors():
                    parts = [part for groups in self.tasks for part in self._for_tasks().copy(groups)]
                undo.pop_all()
                return parts
            with translate_spark_errors():
                numbers = self.spark.range(0, len(self.tasks), 1, len(self.tasks))
                rows = numbers.mapInArrow(partial(_run_tasks, self._for_tasks()), f"{_PART} binary").toArrow()
            parts = [msgspec.json.decode(part, type=PartFile) for part in rows.column(_PART).to_pylist()]
            undo.pop_all()
        discard_folder(self.sink.store, self.sink.job, but=[part.path for part in parts])  # Spark may run a task twice
        return parts

    def _for_tasks(self) -> _TaskCopy:
        return _TaskCopy(self.tasks, self.schema, self.copied, self.sink)


def find_column_copy(
    spark: SparkSession,
    files: Sequence[SourceFile],
    source: StructType,
    schema: StructType,
    route: RecordRoute,
    sink: PartSink,
) -> ColumnCopy | None:
    """Return how tasks copy files into a table; None if some of them, or a column, need Spark.

    Args:
        files: Parquet files that tasks can read.
        source: The columns of the files, as Spark reads them.
        route: The columns of each field of the source.
    """
    if not _is_copied(source, route):
        return None
    is_timed = any(str(data_type) in _TEMPORAL for _, data_type in leaves(source))
    if (
        is_timed
        and not is_local(spark)
        and any(str(spark.conf.get(mode, _PROLEPTIC)).upper() != _PROLEPTIC for mode in _REBASE_MODES)
    ):
        return None
    footers = read_source_footers(files, source)
    if footers is None:
        return None
    limit = task_bytes(files, count_partitions(spark, SourceFiles((), tuple(files))))
    names = frozenset(field.name for field in source if route.get(field.name))
    return ColumnCopy(
        spark,
        _pack((group for footer in footers for group in footer.groups), limit),
        to_arrow_schema(schema) if sink.schema is None else sink.schema,
        names,
        sink,
        is_few=are_few(spark, files),
    )


# ---- which columns and files -----------------------------------------------------------------------


def _is_copied(source: StructType, route: RecordRoute) -> bool:
    """Return whether the columns of records hold all values as they are, each in one column with the name of its field.

    A field without a column is for those who explain what is lost, and a column of another kind may take values, too.
    """
    slots = [route.get(field.name, ()) for field in source]
    return all(
        len(each) == 1 and each[0].name == field.name and _holds(each[0], field.type, each[0].dim)
        for field, each in zip(source, slots, strict=True)
    )


def _holds(slot: ColumnSlot, data_type: DataType, dim: int) -> bool:
    """Return whether a column inside of arrays holds every value of a type without a change but to a wider type."""
    if isinstance(data_type, ArrayType):
        return dim > 0 and _holds(slot, data_type.element, dim - 1)
    if dim or slot.guard is not None:
        return False
    if isinstance(data_type, StructType):
        return slot.record is not None and _is_copied(data_type, slot.record)
    if isinstance(data_type, MapType):
        is_text = slot.entries is not None and data_type.key == STRING
        return is_text and slot.entries is not None and _holds(slot.entries, data_type.value, slot.entries.dim)
    facts = type_facts(data_type)
    if slot.record is not None or slot.entries is not None or facts is None or is_excluded_kind(slot, facts[0]):
        return False
    if isinstance(data_type, TemporalString) or not (isinstance(data_type, DecimalType) or str(data_type) in _COPIED):
        return False
    is_wider = is_widening(data_type, slot.type) and str(slot.type) not in _TEMPORAL
    return slot.type == data_type or is_wider


@dataclass(frozen=True, slots=True)
class SourceFooter:
    """What the footer of a file says.

    Args:
        groups: The row groups with their sizes.
        values: The number of values of each leaf; None if it is not known.
    """

    groups: Sequence[tuple[RowGroup, int]]
    rows: int
    values: Mapping[Path, int | None]


def read_source_footers(files: Sequence[SourceFile], source: StructType) -> list[SourceFooter] | None:
    """Return the footers of files; None if these are many, or Arrow may not read one of them as Spark does."""
    if not 0 < len(files) <= DRIVER_FILES:
        return None
    with ThreadPoolExecutor(_THREADS, "widen-copy") as pool:
        footers = list(pool.map(partial(_read_footer, source), files))
    return None if any(each is None for each in footers) else [each for each in footers if each is not None]


def read_first_rows(file: SourceFile, source: StructType, rows: int) -> pa.RecordBatch:
    """Return the first rows of a file, as far as it has them, with all columns of a source.

    Raises:
        CorruptFile: the file cannot be read.
    """
    return next(_read_batches(file.uri, None, to_arrow_schema(source), frozenset(source.names), rows))


def _read_footer(source: StructType, file: SourceFile) -> SourceFooter | None:
    try:
        with open_file(file.uri) as content:
            parquet = pq.ParquetFile(content, coerce_int96_timestamp_unit="us")
            footer, columns = parquet.metadata, parquet.schema_arrow
    except (CorruptFile, pa.ArrowException):
        return None  # Spark says what is wrong with it
    paths = list(leaf_paths(columns))
    physical = [footer.schema.column(at).physical_type for at in range(footer.num_columns)]
    int96 = {path for path, each in zip(paths, physical, strict=True) if each == _INT96}
    types = {field.name: field.type for field in source}
    is_legacy_file = is_legacy(footer.metadata) or is_legacy_int96(footer.metadata)
    # Spark writes times in INT96 that are whole microseconds; those of others may have nanoseconds.
    is_foreign = bool(int96) and _SPARK not in (footer.metadata or {})
    if (
        is_legacy_file
        or is_foreign
        or len(set(columns.names)) < len(columns.names)
        or not set(columns.names) <= types.keys()
    ):
        return None
    if not all(_is_read_as(field.type, types[field.name], (field.name,), int96) for field in columns):
        return None
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    sizes = [sum(group.column(at).total_compressed_size for at in range(group.num_columns)) for group in groups]
    return SourceFooter(
        [(RowGroup(file.uri, number), size) for number, size in enumerate(sizes)],
        footer.num_rows,
        {path: count_non_null(footer, at) for at, path in enumerate(paths)},
    )


def _is_read_as(found: pa.DataType, data_type: DataType, path: Path, int96: set[Path]) -> bool:
    """Return whether Arrow reads values of a type as Spark does."""
    match data_type:
        case StructType(fields):
            if not pa.types.is_struct(found) or [each.name for each in found] != [each.name for each in fields]:
                return False
            pairs = zip(found, fields, strict=True)
            return all(_is_read_as(one.type, each.type, (*path, each.name), int96) for one, each in pairs)
        case ArrayType(element):
            return pa.types.is_list(found) and _is_read_as(found.value_type, element, (*path, "element"), int96)
        case MapType(key, value):
            if not pa.types.is_map(found) or not _is_read_as(found.key_type, key, (*path, "key"), int96):
                return False
            return _is_read_as(found.item_type, value, (*path, "value"), int96)
    if pa.types.is_timestamp(found):
        is_instant = found.tz is not None or path in int96
        return found.unit in ("ms", "us") and str(data_type) == ("timestamp" if is_instant else "timestamp_ntz")
    return bool(found == to_arrow(data_type))


def _pack(groups: Iterable[tuple[RowGroup, int]], limit: int) -> list[list[RowGroup]]:
    """Return the row groups of each task, each about as large as the bytes of a task."""
    tasks: list[list[RowGroup]] = [[]]
    free = limit
    for group, size in groups:
        if tasks[-1] and size // 2 > free:
            tasks.append([])
            free = limit
        tasks[-1].append(group)
        free -= size
    return tasks


# ---- tasks -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _TaskCopy:
    tasks: Sequence[Sequence[RowGroup]]
    schema: pa.Schema
    copied: frozenset[str]
    sink: PartSink

    def copy(self, groups: Sequence[RowGroup]) -> list[PartFile]:
        """Write the rows of some row groups, and return the files."""
        writer = PartWriter(self.sink, self.schema)
        with without_garbage_collection(), ExitStack() as undo:
            undo.callback(writer.discard)
            for group in groups:
                for rows in _read_batches(group.uri, [group.number], self.schema, self.copied):
                    writer.write(rows)
            parts = writer.close()
            undo.pop_all()
        return parts


def _run_tasks(copy: _TaskCopy, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for task in batch.column(0).to_pylist():
            parts = [msgspec.json.encode(part) for part in copy.copy(copy.tasks[task])]
            yield pa.RecordBatch.from_arrays([pa.array(parts, pa.binary())], names=[_PART])


def _read_batches(
    uri: str, groups: list[int] | None, schema: pa.Schema, copied: frozenset[str], rows: int = _ROWS
) -> Iterator[pa.RecordBatch]:
    try:
        with open_file(uri) as content:
            file = pq.ParquetFile(content, coerce_int96_timestamp_unit="us")
            for batch in file.iter_batches(rows, groups, use_threads=False):
                found = dict(zip(batch.schema.names, batch.columns, strict=True))
                held = (found.get(name) if name in copied else None for name in schema.names)
                columns = [_fit(values, each.type, len(batch)) for values, each in zip(held, schema, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)
    except pa.ArrowException as error:
        raise CorruptFile(path=uri, reason=first_line(error), fix=RESTORE_FILE) from error


def _fit(values: pa.Array | None, wanted: pa.DataType, rows: int) -> pa.Array:
    """Return values in the type of a column, which may be wider and have more fields; null if there are none."""
    if values is None:
        return pa.nulls(rows, wanted)
    if values.type == wanted:
        return values
    is_null = values.is_null() if values.null_count else None
    if pa.types.is_struct(wanted):
        found = {field.name: values.field(at) for at, field in enumerate(values.type)}
        children = [_fit(found.get(field.name), field.type, rows) for field in wanted]
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=is_null)
    if pa.types.is_list(wanted):
        items = _fit(values.values, wanted.value_type, len(values.values))
        return pa.ListArray.from_arrays(_unsliced(values.offsets), items, type=wanted, mask=is_null)
    if pa.types.is_map(wanted):
        keys, items = (
            _fit(part, inner, len(part))
            for part, inner in ((values.keys, wanted.key_type), (values.items, wanted.item_type))
        )
        return pa.MapArray.from_arrays(_unsliced(values.offsets), keys, items, type=wanted, mask=is_null)
    return values.cast(wanted)


def _unsliced(offsets: pa.Array) -> pa.Array:
    # A slice of offsets cannot have a mask.
    return pa.concat_arrays([offsets, offsets[:0]]) if offsets.offset else offsets
