"""Append rows to an Iceberg table: new columns, wider types and files become visible in one commit.

Source: Delta Lake's schema enforcement and evolution, where Iceberg allows it
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from widen.changes.copy_files import Arrange, CopyGroup, FileCopier, all_or_none, copy_groups
from widen.changes.keyed_files import RowPart
from widen.files.data_reader import FileScan
from widen.files.data_writer import struct_leaf
from widen.files.iceberg_columns import IcebergFileScan, Lineage, read_unmarked, with_new_lineage
from widen.files.iceberg_writer import IcebergLayout, IcebergWriters
from widen.frames.iceberg_scan import (
    IcebergSource,
    are_few_positions,
    columns_by_file,
    deleted_positions,
    file_scan,
    to_uris,
)
from widen.frames.physical_layout import ICEBERG, check_rows, fill_missing_columns
from widen.frames.scan import location_key
from widen.frames.table_writers import IcebergWriter
from widen.iceberg.catalog import TableName, open_store
from widen.iceberg.file_metrics import IcebergFile, data_location
from widen.iceberg.metadata_files import first_row_ids, has_row_lineage
from widen.iceberg.partitions import PartitionField, SortKey, value_limits
from widen.iceberg.properties import APPEND, OPERATION, read_sources
from widen.iceberg.scan_plan import IcebergScan, ScannedFile, plan_scan
from widen.iceberg.schema_conversion import ensure_names_distinct, find_unreadable, to_readable
from widen.iceberg.table_commit import (
    CommitResult,
    IcebergTransaction,
    ensure_can_be_null,
    ensure_table_writable,
    open_transaction,
)
from widen.limits import BROADCAST_ROWS, CHANGE_TASK_BYTES, CHANGE_THREADS, COPIED_BYTES
from widen.log.commit_outcome import StagedFiles
from widen.model.types import StructType
from widen.model.value_classes import dataclass
from widen.protocol.actions import Add
from widen.protocol.parquet_files import without_void
from widen.schema.growth import SchemaChangeOptions, merge_schema
from widen.spark.engine import LocalFrame, Unsupported, start_tasks
from widen.spark.spark_types import DataFrame, from_spark

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from widen.iceberg.snapshots import DataFile


def append_rows(
    name: TableName, frame: DataFrame, options: SchemaChangeOptions, branch: str | None = None
) -> CommitResult:
    """Append rows to the newest version of a table, in one commit.

    Args:
        frame: The rows. Columns are matched by name, not case-sensitive; columns that they lack become null.
    """
    table = name.load()
    ensure_table_writable(name, table)
    sources = read_sources(table.properties, str(name))
    ensure_can_be_null(table)
    current = to_readable(table.schema(), sources)
    ensure_names_distinct(current, str(name))
    incoming = from_spark(frame.schema)
    find_unreadable(table.schema()).ensure_not_given(incoming, current)
    operations = merge_schema(current, incoming, options)
    transaction = open_transaction(name, table, operations, branch=branch)
    schema = to_readable(transaction.schema, sources)
    filled = fill_missing_columns(frame, schema, ICEBERG)
    rows = check_iceberg_rows(filled, schema, transaction.partition_fields)
    with StagedFiles() as staged:
        writer = open_iceberg_writer(transaction, schema)
        files = writer.write(rows)
        staged.add_undo(lambda: writer.discard(files))
        transaction.add_snapshot(files, {OPERATION: APPEND})
        return transaction.commit(staged)


def check_iceberg_rows(rows: DataFrame, schema: StructType, fields: Sequence[PartitionField]) -> DataFrame:
    """Return rows that fail the job if one of them violates a rule of the table."""
    return check_rows(rows, schema, ICEBERG, {}, limits=value_limits(fields, schema))


def open_iceberg_writer(transaction: IcebergTransaction, schema: StructType) -> IcebergWriter:
    """Return what writes files for a transaction.

    Args:
        schema: The columns of the table, with field ids. Columns of the type unknown are not in files.
    """
    metadata = transaction.metadata
    store = open_store(data_location(metadata), transaction.table.io)
    return IcebergWriter(
        store, without_void(schema), transaction.partition_fields, metadata.properties, sort_by=transaction.sort_keys
    )


@dataclass(frozen=True, slots=True)
class ReplacedFiles:
    """The files with rows that a change removes.

    Args:
        written: The files that replace them, with the rows that stay and new ones.
        rows: The number of rows that each clause of the change decided, by its number.
        vectors: The new deletion vectors of files that stay.
    """

    removed: Sequence[DataFile] = ()
    written: Sequence[IcebergFile] = ()
    rows: Counter[int] = field(default_factory=Counter)
    vectors: Sequence[DataFile] = ()

    @property
    def is_empty(self) -> bool:
        """Whether no row of an old file is removed."""
        return not self.removed and not self.vectors


# Files of a snapshot as Arrow reads them.


def to_plain_adds(source: IcebergSource, scan: IcebergScan, schema: StructType) -> list[Add]:
    """Return the files of a scan for `IcebergFileScan`.

    Raises:
        Unsupported: rows have values that are not in the files.
    """
    if columns_by_file(source, schema, scan) is None:
        raise Unsupported("its files lack values of its rows")
    return [to_add(file.path, file.size_bytes) for file in scan.files]


def open_snapshot_files(
    source: IcebergSource, schema: StructType
) -> tuple[Callable[[StructType], IcebergFileScan], Sequence[Add]]:
    """Return how columns of a snapshot are read, and its files."""
    scan = plan_scan(source.point, source.io)
    deleted = find_deleted(source, scan)
    return lambda columns: file_scan(source, columns, deleted), to_plain_adds(source, scan, schema)


def read_snapshot_here(source: IcebergSource, schema: StructType) -> LocalFrame:
    """Return the rows of a snapshot, as tasks of this process read them."""
    open_scan, files = open_snapshot_files(source, schema)
    numbers: LocalFrame = start_tasks(source.session(), len(files))
    return numbers.mapInArrow(partial(_read_numbered, open_scan(schema), files), None)


def _read_numbered(scan: FileScan, files: Sequence[Add], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for number in (number for batch in batches for number in batch.column(0).to_pylist()):
        for _, rows in scan.read_located(files[number]):
            yield from rows.to_batches()


def find_deleted(source: IcebergSource, scan: IcebergScan) -> Mapping[str, BitMap64]:
    """Return the deleted rows of the files of a scan for `IcebergFileScan`.

    Raises:
        Unsupported: there are too many, or equality deletes remove them.
    """
    found = deleted_positions(source, scan) if scan.deletes else {}
    if found is None:
        raise Unsupported("the table has equality deletes, or too many deleted rows")
    return found


def to_add(path: str, size_bytes: int) -> Add:
    """Return a file for `IcebergFileScan`."""
    return Add(path=path, partition_values={}, size=size_bytes, modification_time=0, data_change=True)


# Copies of files without some of their rows: Arrow reads and writes them, and the other rows never reach Spark.
#
# The rows were checked when they were written. Spark has to copy what Arrow does not read exactly.
#
# Source: Iceberg's table specification, "Column Projection"; copy-on-write


def are_few_words(scan: IcebergScan) -> bool:
    """Return whether this process can hold a word for every 64 rows of a scan."""
    return sum(1 + file.rows // 64 for file in scan.files) <= BROADCAST_ROWS


def by_path(scan: IcebergScan, marked: Mapping[str, BitMap64]) -> dict[str, BitMap64]:
    """Return rows of the files of a scan by the path of each file, instead of its key."""
    uris = to_uris(file.path for file in scan.files)
    return {file.path: marked[location_key(uri)] for file, uri in zip(scan.files, uris, strict=True)}


def with_keys(scan: IcebergScan, keys: Collection[str]) -> IcebergScan:
    """Return the files of a scan whose rows have one of these values of `FILE`."""
    uris = to_uris(file.path for file in scan.files)
    wanted = (file for file, uri in zip(scan.files, uris, strict=True) if location_key(uri) in keys)
    return replace(scan, files=tuple(wanted))


def can_copy_here(source: IcebergSource, writer: IcebergWriter, scan: IcebergScan) -> bool:
    """Return whether this process may copy all files of a scan with `copy_unmarked`, judging by their footers."""
    if sum(file.size_bytes for file in scan.files) > COPIED_BYTES or not _can_sort(writer, scan):
        return False
    if not are_few_positions(scan):
        return False
    return columns_by_file(source, writer.schema, scan) is not None


def copy_unmarked(
    source: IcebergSource,
    writer: IcebergWriter,
    scan: IcebergScan,
    marked: Mapping[str, BitMap64],
    writers: int | None = None,
    changed: ChangedRows | None = None,
    deleted: Mapping[str, BitMap64] | None = None,
    arrange: Arrange | None = None,
) -> list[IcebergFile] | None:
    """Copy the files of a scan without some of their rows: in this process, unless they are large.

    Args:
        writers: The number of threads or tasks that write files of their own; by default it depends on the size.
        changed: What the copies have instead of other rows and beside them; only for copies in this process.
        arrange: Sorts the rows of a partition, as for `FileCopier`; by default the rows of each file are sorted by the
            sort order of the table.

    Returns:
        None if only Spark can copy them.
    """
    if arrange is None and not _can_sort(writer, scan):
        return None
    deleted = deleted_positions(source, scan) if deleted is None else deleted
    if deleted is None:
        return None
    gone = {file.path: marked[file.path] | deleted.get(file.path, BitMap64()) for file in scan.files}
    has_ids = has_row_lineage(source.point.metadata)
    if has_ids:
        writer = writer.with_lineage()
        ensure_names_distinct(writer.schema, source.point.metadata.location)
    # Do not read files that lose all of their rows.
    files = [file for file in scan.files if len(gone[file.path]) < file.rows]
    columns = columns_by_file(source, writer.schema, replace(scan, files=tuple(files)))
    if columns is None:
        return None
    changed = changed or ChangedRows({})
    lineage = dict[str, Lineage]()
    if has_ids:
        first = first_row_ids(source.point.metadata, source.io, source.point.snapshot, [file.path for file in files])
        lineage = {file.path: Lineage(first.get(file.path), file.sequence) for file in files}
    arrange, together = _order_of(source, writer, arrange)
    copied = [
        _CopiedFile(
            file.path,
            file.size_bytes,
            columns[file.path],
            gone[file.path],
            changed.replaced.get(file.path),
            lineage=lineage.get(file.path),
            together=together(file),
        )
        for file in sorted(files, key=together)
    ]
    added = [
        _CopiedFile("", size, writer.schema, BitMap64(), added=partial(_read_with_lineage, read) if has_ids else read)
        for read, size in changed.added
    ]
    return _copy_shares(source, writer, _share_out(copied, added, writers), arrange)


def _order_of(
    source: IcebergSource, writer: IcebergWriter, arrange: Arrange | None
) -> tuple[Arrange | None, Callable[[ScannedFile], str]]:
    """Return how rows are sorted, and what is equal for files whose rows are sorted, and written, together."""
    if arrange is not None:
        return arrange, partial(_partition_of, f"{source.point.metadata.default_spec_id}:")
    if writer.sort_by:
        return partial(_sort_file, writer.sort_by), attrgetter("path")
    return None, _all


def _share_out(
    copied: Sequence[_CopiedFile], added: Sequence[_CopiedFile], writers: int | None
) -> list[list[_CopiedFile]]:
    """Return the files that each thread or task writes; large parts of new rows are written side by side."""
    size_bytes = sum(file.size_bytes for file in copied)
    tasks = writers or max(1, min(len(copied), 1 + size_bytes // CHANGE_TASK_BYTES))
    shares = [[*copied[at::tasks]] for at in range(tasks)]
    for at, each in enumerate(added):
        shares += [[]] if at and len(shares) <= at else []
        shares[at % len(shares)].append(each)
    return shares


def _copy_shares(
    source: IcebergSource, writer: IcebergWriter, shares: Sequence[Sequence[_CopiedFile]], arrange: Arrange | None
) -> list[IcebergFile] | None:
    """Copy shares of files, and return the copies; None if only Spark can make them, and then no copy is left."""
    copier = FileCopier(
        writer.store,
        partial(_read_copied, source.io, writer.new_layout().schema),
        partial(_open_copies, writer.new_layout()),
        attrgetter("together"),
        attrgetter("size_bytes"),
        arrange,
    )
    groups = [CopyGroup(writer.new_layout().job, share) for share in shares]
    found = copy_groups(copier, groups, lambda: source.spark, CHANGE_THREADS)
    parts = all_or_none(writer.store, groups, found)
    return None if parts is None else writer.from_parts(parts)


@dataclass(frozen=True, slots=True)
class ChangedRows:
    """Rows that replace old rows in copies of files, and rows that are added to them.

    Args:
        replaced: New values of some columns by the path of each file, with their positions as `ROW`, in their order.
    """

    replaced: Mapping[str, pa.RecordBatch]
    added: Sequence[RowPart] = ()


@dataclass(frozen=True, slots=True)
class _CopiedFile:
    """A file to copy, or rows to write beside the copies.

    Args:
        columns: Its columns; see `widen.files.iceberg_columns.read_unmarked`.
        gone: The positions of the rows that the copy lacks.
        added: Returns rows to write instead of a file's rows.
        together: Equal for files whose rows are sorted, and written, together.
    """

    path: str
    size_bytes: int
    columns: StructType
    gone: BitMap64
    replaced: pa.RecordBatch | None = None
    added: Callable[[], Iterable[pa.Table]] | None = None
    lineage: Lineage | None = None
    together: str = ""


def _all(_: ScannedFile) -> str:
    return ""


def _partition_of(current: str, file: ScannedFile) -> str:
    """Return the partition of a file; the same for all files that the table would now partition in another way."""
    return file.partition if file.partition.startswith(current) else ""


def _read_copied(io: FileIO, schema: pa.Schema, file: _CopiedFile) -> Iterator[pa.Table]:
    if file.added is not None:
        return (rows.cast(schema) for rows in file.added())
    tables = read_unmarked(io, file.columns, file.path, file.gone, file.replaced, file.lineage)
    return (rows.cast(schema) for rows in tables)


def _read_with_lineage(read: Callable[[], Iterable[pa.Table]]) -> Iterator[pa.Table]:
    return map(with_new_lineage, read())


def _open_copies(layout: IcebergLayout, _: _CopiedFile, job: str) -> IcebergWriters:
    return IcebergWriters(replace(layout, sink=replace(layout.sink, job=job)))


def _sort_file(keys: Sequence[SortKey], _: int, rows: pa.Table) -> list[pa.Table]:
    return [sort_rows(keys, rows)]


def sort_rows(keys: Sequence[SortKey], rows: pa.Table) -> pa.Table:
    """Return rows in a sort order."""
    return rows.take(pc.sort_indices(*_sort_columns(rows, keys)))


def _can_sort(writer: IcebergWriter, scan: IcebergScan) -> bool:
    """Return whether this process may hold each file of a scan to sort its rows; it does not without an order."""
    return not writer.sort_by or all(file.size_bytes <= CHANGE_TASK_BYTES for file in scan.files)


def _sort_columns(rows: pa.Table, keys: Sequence[SortKey]) -> tuple[pa.Table, list[tuple[str, str]]]:
    """Return sort columns and directions: Arrow cannot place nulls per column, and cannot place NaN at all."""
    columns, orders = dict[str, pa.ChunkedArray](), list[tuple[str, str]]()
    for key in keys:
        values, order = struct_leaf(rows, key.source), "descending" if key.is_descending else "ascending"
        of_key = [(pc.is_null(values), "descending" if key.is_null_first else "ascending")]
        if pa.types.is_floating(values.type):
            of_key.append((pc.fill_null(pc.is_nan(values), False), order))
        for column, each in (*of_key, (values, order)):
            name = str(len(columns))
            columns[name] = column
            orders.append((name, each))
    return pa.table(columns), orders
