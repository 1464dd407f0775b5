"""Typed records that tasks copy from Parquet files, column by column with Arrow: no value passes through Spark's JVM.

Columns that hold the values of their fields in the same type or a wider one are copied. In this process
`widen.batches.column_values` converts the others. On Spark the tasks of `widen.batches.frame_conversion`
convert them, and read files that Arrow does not read as Spark does.

Source: docs/evolution-rules.md#d16
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from contextvars import copy_context
from dataclasses import field
from datetime import datetime
from functools import partial, reduce
from itertools import accumulate, chain, zip_longest
from typing import TypeAlias, TypeVar

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from widen.batches.column_values import QuarantinedRecord, RowConversion, fit
from widen.batches.corrupt_texts import ensure_utf8, find_corrupt_rows
from widen.errors import CorruptFile
from widen.errors.tables import first_line
from widen.files.arrow_types import stored_type, to_arrow, to_arrow_schema
from widen.files.data_writer import PartFile, Sink
from widen.files.footers import count_non_null, leaf_paths
from widen.json.field_rules import FileFields
from widen.json.observation import TemporalString, type_facts
from widen.limits import DRIVER_FOOTERS
from widen.log.commit_outcome import discard_folder
from widen.log.parquet_footers import ensure_chunks_readable
from widen.model.column_path import Path, leaves
from widen.model.types import STRING, TIMESTAMP, ArrayType, DataType, DecimalType, MapType, StructType
from widen.model.value_classes import dataclass
from widen.protocol.parquet_files import is_legacy, is_legacy_int96
from widen.protocol.type_widening import is_widening
from widen.rows.row import ColumnSlot, RecordRoute, is_excluded_kind
from widen.sources.file_ranges import are_few, open_file, task_bytes
from widen.sources.listing import SourceFile, SourceFiles, count_partitions
from widen.spark.engine import Session, fail_if_unsupported, find_started, start_tasks, translate_os_errors
from widen.spark.errors import RESTORE_FILE, environment_error, translate_spark_errors
from widen.spark.ship import without_garbage_collection
from widen.spark.spark_types import DataFrame

_T = TypeVar("_T")

_THREADS = 16
READ_ROWS = 16_384
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
    """Rows of a file that a task copies.

    Args:
        first: The number of the first of them in the file, from 0.
        left_out: The rows that are not read, as indexes in the group.
    """

    uri: str
    number: int
    first: int = 0
    left_out: tuple[int, ...] = ()


class CopiedRows(msgspec.Struct, frozen=True):
    """What tasks have made of the records of a source.

    Args:
        counts: How many of these have each violation; see `RowConversion.convert`.
        unlisted: How many more there are, which are not in the list.
    """

    parts: list[PartFile] = []
    quarantined: list[QuarantinedRecord] = []
    counts: list[int] = []
    unlisted: int = 0

    def merged(self, other: CopiedRows) -> CopiedRows:
        """Return both."""
        counts = [one + more for one, more in zip_longest(self.counts, other.counts, fillvalue=0)]
        return CopiedRows(
            self.parts + other.parts, self.quarantined + other.quarantined, counts, self.unlisted + other.unlisted
        )

    def limited(self, most: int) -> CopiedRows:
        """Return the same with an empty list, if the quarantined records have more bytes than that."""
        if sum(len(each.text) for each in self.quarantined) <= most:
            return self
        return CopiedRows(self.parts, [], self.counts, self.unlisted + len(self.quarantined))


@dataclass(frozen=True, slots=True)
class PathFields:
    """The fields that records get from their files.

    Args:
        schema: Their keys and types: strings and timestamps.
        fields: Gives the values of a file.
    """

    schema: StructType = field(default_factory=StructType)
    fields: FileFields = field(default_factory=FileFields)

    def values_of(self, uri: str) -> Mapping[str, pa.Scalar]:
        """Return the values for a file, by key."""
        given = self.fields.of(uri) if self.schema.fields else {}
        return {each.name: _to_scalar(given.get(each.name), each.type) for each in self.schema}


def _to_scalar(text: str | None, data_type: DataType) -> pa.Scalar:
    value = None if text is None else datetime.fromisoformat(text) if data_type == TIMESTAMP else text
    return pa.scalar(value, to_arrow(data_type))


@dataclass(frozen=True, slots=True)
class ColumnCopy:
    """Files whose columns go to a table as they are.

    Args:
        tasks: The row groups that each task copies.
        copied: The columns that the files have; the others are null.
        constants: What all rows of a file have in some columns, by the URI of the file and the column; with a
            conversion in some fields.
    """

    spark: Session
    tasks: Sequence[Sequence[RowGroup]]
    schema: pa.Schema
    copied: frozenset[str]
    sink: Sink
    is_few: bool
    constants: Mapping[str, Mapping[str, pa.Scalar]] = field(default_factory=dict)
    conversion: RowConversion | None = None

    def run(self) -> CopiedRows:
        """Write the files of the table, and return them. On failure, they are deleted where the store allows it."""
        if not self.is_few:
            with translate_spark_errors():
                numbers = start_tasks(self.spark, len(self.tasks))
            return write_in_tasks(numbers, partial(_run_tasks, self._for_tasks()), self.sink)
        with ExitStack() as undo, translate_os_errors():
            undo.callback(discard_folder, self.sink.store, self.sink.job)
            copied = _merge(self._for_tasks().copy(groups) for groups in self.tasks)
            undo.pop_all()
        return copied

    def _for_tasks(self) -> _TaskCopy:
        return _TaskCopy(self.tasks, self.schema, self.copied, self.sink, self.constants, self.conversion)


def _merge(results: Iterable[CopiedRows]) -> CopiedRows:
    return reduce(CopiedRows.merged, results, CopiedRows())


def write_in_tasks(
    rows: DataFrame, write: Callable[[Iterable[pa.RecordBatch]], Iterator[CopiedRows]], sink: Sink
) -> CopiedRows:
    """Let tasks of Spark write files, and return them. If that fails, delete them where the store allows it."""
    with ExitStack() as undo:
        undo.callback(discard_folder, sink.store, sink.job)
        with translate_spark_errors():
            written = rows.mapInArrow(partial(_encode, write), f"{_PART} binary").toArrow()
        copied = _merge(msgspec.json.decode(part, type=CopiedRows) for part in written.column(_PART).to_pylist())
        undo.pop_all()
    # Spark may run a task twice.
    discard_folder(sink.store, sink.job, but=[part.path for part in copied.parts])
    return copied


def _encode(
    write: Callable[[Iterable[pa.RecordBatch]], Iterator[CopiedRows]], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for copied in write(batches):
        yield pa.RecordBatch.from_arrays([pa.array([msgspec.json.encode(copied)], pa.binary())], names=[_PART])


def find_column_copy(
    spark: Session,
    files: Sequence[SourceFile],
    source: StructType,
    schema: StructType,
    route: RecordRoute,
    sink: Sink,
    path_fields: PathFields | None = None,
    conversion: RowConversion | None = None,
    footers: Sequence[SourceFooter] | None = None,
) -> ColumnCopy | None:
    """Return how tasks copy files into a table; None if some of them, or a column, need Spark.

    Args:
        path_fields: The fields that records get from their files; by default they get none.
        footers: The footers of the files, if Arrow reads these as Spark does; by default they are read.
    """
    from_files = path_fields or PathFields()
    if conversion is None and not is_copied(source, route, from_files.schema):
        return None
    is_timed, started = any(str(data_type) in _TEMPORAL for _, data_type in leaves(source)), find_started(spark)
    if (
        is_timed
        and started is not None
        and any(str(started.conf.get(mode, _PROLEPTIC)).upper() != _PROLEPTIC for mode in _REBASE_MODES)
    ):
        return None
    if footers is None:
        footers = read_source_footers(files, source)
    if footers is None:
        return None
    if conversion is None:
        names = frozenset(field.name for field in source if route.get(field.name))
        constants = {file.uri: _constants(from_files.values_of(file.uri), route) for file in files}
    else:
        names = frozenset(source.names)
        constants = {file.uri: from_files.values_of(file.uri) for file in files}
    return ColumnCopy(
        spark,
        pack_row_groups(spark, files, footers),
        to_arrow_schema(schema) if sink.schema is None else sink.schema,
        names,
        sink,
        are_few(spark, files),
        constants if from_files.schema.fields else {},
        conversion,
    )


def _constants(values: Mapping[str, pa.Scalar], route: RecordRoute) -> Mapping[str, pa.Scalar]:
    return {slot.name: value for key, value in values.items() for slot in route[key]}


# ---- which columns and files -----------------------------------------------------------------------


def is_copied(source: StructType, route: RecordRoute, given: StructType) -> bool:
    """Return whether the columns hold all values of records as they are, also those that these get from their files."""
    return _is_copied(source, route) and all(_is_constant(each.type, route.get(each.name, ())) for each in given)


def _is_copied(source: StructType, route: RecordRoute) -> bool:
    """Return whether the columns of records hold all values as they are, each in one column with the name of its field.

    A field without a column is left to the code that explains losses, and a column of another kind may also take
    values.
    """
    slots = [route.get(field.name, ()) for field in source]
    return all(
        len(each) == 1 and each[0].name == field.name and _holds(each[0], field.type, each[0].dim)
        for field, each in zip(source, slots, strict=True)
    )


def _is_constant(data_type: DataType, slots: Sequence[ColumnSlot]) -> bool:
    """Return whether one column holds the values that a field gets from files."""
    return len(slots) == 1 and not slots[0].dim and slots[0].type == data_type and _holds(slots[0], data_type, 0)


def _holds(slot: ColumnSlot, data_type: DataType, dim: int) -> bool:
    """Return whether a column inside of arrays holds every value of a type without a change but to a wider type."""
    if isinstance(data_type, ArrayType):
        return dim > 0 and _holds(slot, data_type.element, dim - 1)
    if dim or (slot.guard is not None and not slot.guard.takes_values):
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
        values: The number of values of each leaf; None if it is not known.
    """

    groups: Sequence[tuple[RowGroup, int]]
    rows: int
    values: Mapping[Path, int | None]

    def without_rows(self, left_out: Sequence[int]) -> SourceFooter:
        """Return a footer for a file that is read in part. It does not know the number of values."""
        if not left_out:
            return self
        ends = [*(group.first for group, _ in self.groups[1:]), self.rows]
        groups = [
            (
                msgspec.structs.replace(
                    group, left_out=tuple(at - group.first for at in left_out if group.first <= at < end)
                ),
                size,
            )
            for (group, size), end in zip(self.groups, ends, strict=True)
        ]
        return SourceFooter(groups, self.rows, dict.fromkeys(self.values))


def read_source_footers(files: Sequence[SourceFile], source: StructType) -> list[SourceFooter] | None:
    """Return the footers of files; None if these are many, or Arrow may not read one of them as Spark does."""
    if not 0 < len(files) <= DRIVER_FOOTERS:
        return None
    footers = map_files(partial(_read_footer, source), files)
    return None if any(each is None for each in footers) else [each for each in footers if each is not None]


def map_files(function: Callable[[SourceFile], _T], files: Sequence[SourceFile]) -> list[_T]:
    """Apply a function to each file, in threads that open files of a store like this one."""
    with ThreadPoolExecutor(_THREADS, "widen-copy") as pool:
        return [each.result() for each in [pool.submit(copy_context().run, function, file) for file in files]]


def find_fills(
    defaults: Mapping[str, pa.Array],
    route: RecordRoute,
    kept: Collection[str],
    given: Collection[str],
    files: Sequence[SourceFile],
    footers: Sequence[SourceFooter],
) -> dict[str, dict[str, pa.Array]]:
    """Return the defaults of the columns that the records of each file have no field for, by the URI of the file.

    Args:
        defaults: The defaults of columns, as arrays of one value.
        kept: The fields that the field rules keep.
        given: The fields that records get from their files.
    """
    fills: dict[str, dict[str, pa.Array]] = {}
    for file, footer in zip(files, footers, strict=True) if defaults else ():
        names = {*kept} & {*(path[0] for path in footer.values), *given}
        found = {slot.name for name in names for slot in route.get(name, ())}
        fills[file.uri] = {name: value for name, value in defaults.items() if name not in found}
    return fills


RowReader: TypeAlias = Callable[[SourceFile, StructType, int], Iterator[tuple[int, pa.RecordBatch]]]
"""Reads the rows of a file, as `read_rows` does."""


def read_first_rows(file: SourceFile, source: StructType, rows: int, reader: RowReader | None = None) -> pa.RecordBatch:
    """Return up to this many first rows of a file, with all columns of a source."""
    batches, count = [], 0
    for _, batch in (reader or read_rows)(file, source, rows):
        batches.append(batch)
        count += batch.num_rows
        if count >= rows:
            break
    whole = pa.Table.from_batches(batches).slice(0, rows).combine_chunks()
    return whole.to_batches()[0] if whole.num_rows else batches[0]


def read_rows(file: SourceFile, source: StructType, rows: int = READ_ROWS) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of a file, with some or all columns of a source; a file without rows yields a batch without any.

    Each batch comes with the index of its first row in the file.
    """
    schema = to_arrow_schema(source)
    is_empty = True
    names = frozenset(source.names)
    for first, batch in _read_batches(file.uri, None, schema, names, rows=rows, left_out=file.left_out):
        is_empty = False
        yield first, batch
    if is_empty:
        yield 0, pa.RecordBatch.from_arrays([pa.nulls(0, each.type) for each in schema], schema=schema)


def read_group(
    group: RowGroup, schema: pa.Schema, given: Mapping[str, pa.Scalar]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of a row group as records, each batch with the index of its first row in the file.

    Args:
        given: Those that they get from their file.
    """
    names = frozenset(schema.names)
    for start, rows in _read_batches(group.uri, [group.number], schema, names, given, left_out=group.left_out):
        yield group.first + start, rows


def find_corrupt(file: SourceFile, source: StructType) -> list[tuple[int, bytes]]:
    """Return the rows of a file with a text that is not UTF-8: their indexes, and the records as texts."""
    schema, found = to_arrow_schema(source), []
    names = frozenset(schema.names)
    for start, rows in _read_batches(file.uri, None, schema, names, is_checked=False):
        found += [(start + at, text) for at, text in find_corrupt_rows(rows.columns, schema.names)]
    return found


def _read_footer(source: StructType, file: SourceFile) -> SourceFooter | None:
    try:
        with open_file(file.uri) as content:
            parquet = pq.ParquetFile(content, coerce_int96_timestamp_unit="us")
            ensure_chunks_readable(parquet.metadata)
            footer, columns = parquet.metadata, parquet.schema_arrow
    except (CorruptFile, pa.ArrowException) as error:
        failure = environment_error(file.path, error)
        if failure is not None:
            raise failure from error
        return None  # Spark says what is wrong with it
    paths = list(leaf_paths(columns))
    physical = [footer.schema.column(at).physical_type for at in range(footer.num_columns)]
    int96 = {path for path, each in zip(paths, physical, strict=True) if each == _INT96}
    types = {field.name: field.type for field in source}
    is_legacy_file = is_legacy(footer.metadata) or is_legacy_int96(footer.metadata)
    # Times in INT96 from Spark are whole microseconds; other writers may store nanoseconds.
    is_foreign = bool(int96) and _SPARK not in (footer.metadata or {})
    if (
        is_legacy_file
        or is_foreign
        or len(set(columns.names)) < len(columns.names)
        or not set(columns.names) <= types.keys()
    ):
        return None
    if not all(_is_read_as(stored_type(each.type), types[each.name], (each.name,), int96) for each in columns):
        return None
    return to_source_footer(file.uri, footer, columns)


def to_source_footer(uri: str, footer: pq.FileMetaData, columns: pa.Schema) -> SourceFooter:
    """Return the facts of a footer, given the columns as Arrow reads them."""
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    sizes = [sum(group.column(at).total_compressed_size for at in range(group.num_columns)) for group in groups]
    firsts = accumulate((group.num_rows for group in groups), initial=0)
    return SourceFooter(
        [(RowGroup(uri, at, first), size) for at, (size, first) in enumerate(zip(sizes, firsts, strict=False))],
        footer.num_rows,
        {path: count_non_null(footer, at) for at, path in enumerate(leaf_paths(columns))},
    )


def _is_read_as(found: pa.DataType, data_type: DataType, path: Path, int96: set[Path]) -> bool:
    """Return whether Arrow reads values of a type as Spark does."""
    if pa.types.is_null(found):
        return True
    match data_type:
        case StructType(fields):
            types = {each.name: each.type for each in fields}
            if not pa.types.is_struct(found) or not {each.name for each in found} <= types.keys():
                return False
            return all(_is_read_as(each.type, types[each.name], (*path, each.name), int96) for each in found)
        case ArrayType(element):
            return pa.types.is_list(found) and _is_read_as(found.value_type, element, (*path, "element"), int96)
        case MapType(key, value):
            if not pa.types.is_map(found) or not _is_read_as(found.key_type, key, (*path, "key"), int96):
                return False
            return _is_read_as(found.item_type, value, (*path, "value"), int96)
    if pa.types.is_timestamp(found):
        is_instant = found.tz is not None or path in int96
        return found.unit in ("ms", "us") and str(data_type) == ("timestamp" if is_instant else "timestamp_ntz")
    if isinstance(data_type, DecimalType) and pa.types.is_decimal128(found):
        return bool(found.scale == data_type.scale and found.precision <= data_type.precision)
    return bool(found == to_arrow(data_type))


def pack_row_groups(
    spark: Session, files: Sequence[SourceFile], footers: Sequence[SourceFooter]
) -> list[list[RowGroup]]:
    """Return the row groups of each task, each about as large as the bytes of a task."""
    limit = task_bytes(files, count_partitions(spark, SourceFiles((), tuple(files))))
    return _pack((group for footer in footers for group in footer.groups), limit)


def _pack(groups: Iterable[tuple[RowGroup, int]], limit: int) -> list[list[RowGroup]]:
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


def write_typed_rows(
    sink: Sink, schema: pa.Schema, found: Iterable[tuple[pa.RecordBatch, CopiedRows]], listed_bytes: int | None = None
) -> CopiedRows:
    """Write rows to files of a sink, and return the files.

    Args:
        listed_bytes: How many bytes of those records are kept at most; of more, they are only counted.
    """
    writer, left = sink.open(schema), CopiedRows()
    with without_garbage_collection(), ExitStack() as undo:
        undo.callback(writer.discard)
        for rows, others in found:
            if rows.num_rows:
                writer.write(rows)
            left = left.merged(others)
            left = left if listed_bytes is None else left.limited(listed_bytes)
        parts = writer.close()
        undo.pop_all()
    return CopiedRows(parts, left.quarantined, left.counts, left.unlisted)


@dataclass(frozen=True, slots=True)
class _TaskCopy:
    tasks: Sequence[Sequence[RowGroup]]
    schema: pa.Schema
    copied: frozenset[str]
    sink: Sink
    constants: Mapping[str, Mapping[str, pa.Scalar]]
    conversion: RowConversion | None

    def copy(self, groups: Sequence[RowGroup]) -> CopiedRows:
        """Write the rows of some row groups, and return the files."""
        return write_typed_rows(self.sink, self.schema, chain.from_iterable(map(self._rows, groups)))

    def _rows(self, group: RowGroup) -> Iterator[tuple[pa.RecordBatch, CopiedRows]]:
        """Yield the rows of a row group, and the records that do not fit the table."""
        constants, conversion = self.constants.get(group.uri), self.conversion
        schema = self.schema if conversion is None else to_arrow_schema(conversion.source)
        read = _read_batches(group.uri, [group.number], schema, self.copied, constants, left_out=group.left_out)
        for start, batch in read:
            if conversion is None:
                yield batch, CopiedRows()
                continue
            rows, quarantined, counts = conversion.convert(batch, self.schema, group.uri, group.first + start)
            yield rows, CopiedRows([], quarantined, counts)


def _run_tasks(copy: _TaskCopy, batches: Iterable[pa.RecordBatch]) -> Iterator[CopiedRows]:
    for batch in batches:
        for task in batch.column(0).to_pylist():
            with fail_if_unsupported():
                yield copy.copy(copy.tasks[task])


def _read_batches(
    uri: str,
    groups: list[int] | None,
    schema: pa.Schema,
    copied: frozenset[str],
    constants: Mapping[str, pa.Scalar] | None = None,
    rows: int = READ_ROWS,
    left_out: Sequence[int] = (),
    *,
    is_checked: bool = True,
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield batches of rows, each with the index of its first row among the rows of the row groups."""
    same, start = constants or {}, 0
    try:
        with open_file(uri) as content:
            file = pq.ParquetFile(content, coerce_int96_timestamp_unit="us")
            for batch in file.iter_batches(rows, groups, _names_to_read(file, schema, copied), use_threads=False):
                found = dict(zip(batch.schema.names, map(_without_width, batch.columns), strict=True))
                if is_checked and not left_out:
                    ensure_utf8((values for name, values in found.items() if name in copied), uri)
                found = {name: pa.repeat(value, len(batch)) for name, value in same.items()} | {
                    name: values for name, values in found.items() if name in copied
                }
                columns = [fit(found.get(each.name), each.type, len(batch)) for each in schema]
                whole = pa.RecordBatch.from_arrays(columns, schema=schema)
                yield from without_rows(whole, start, left_out) if left_out else ((start, whole),)
                start += len(batch)
    except pa.ArrowException as error:
        damage = CorruptFile(path=uri, reason=first_line(error), fix=RESTORE_FILE)
        raise environment_error(uri, error) or damage from error


def without_rows(batch: pa.RecordBatch, start: int, left_out: Sequence[int]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows between those that are left out, each batch with the index of its first one."""
    end = start + batch.num_rows
    begin = start
    for stop in [*(at for at in left_out if start <= at < end), end]:
        if begin < stop:
            # Copies: a slice would still have the bytes of the other rows.
            yield begin, batch.take(pa.array(range(begin - start, stop - start), pa.int64()))
        begin = stop + 1


def _names_to_read(file: pq.ParquetFile, schema: pa.Schema, copied: frozenset[str]) -> list[str] | None:
    """Return the columns to read; None for all: PyArrow takes a dot for a path, or the file lacks these columns."""
    stored = file.schema_arrow.names
    names = [name for name in stored if name in copied and name in schema.names]
    return None if not names or any("." in name for name in stored) else names


def _without_width(values: pa.Array) -> pa.Array:
    wanted = stored_type(values.type)
    return values if values.type == wanted else values.cast(wanted)
