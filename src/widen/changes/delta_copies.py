"""Copies of rows of a Delta table in new files: rewrites and compactions copy all rows of a file, changes those that
stay.

Arrow copies rows as they were checked when they were written. New files have the current types, partition values keep
their texts, and rows keep their row ids if the table tracks them.

Source: PROTOCOL.md#add-file-and-remove-file, #writer-requirements-for-row-tracking
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from widen.changes.change_context import ChangeContext
from widen.changes.copy_files import Arrange, CopyGroup, FileCopier, all_or_none, copy_groups, split_by_size
from widen.errors import InvalidOption
from widen.files.data_reader import LocalScan, RowSlice
from widen.files.data_writer import ArrowLayout, PartFile, PartWriter, codec_of, open_writer, to_partitioned_add
from widen.frames.parquet_writer import arrow_layout
from widen.limits import CHANGE_TASK_BYTES, CHANGE_THREADS
from widen.log.snapshot import Snapshot
from widen.model.column_path import Path, map_fields
from widen.model.schema_json import to_json
from widen.model.types import STRING, Field, StructType
from widen.model.value_classes import dataclass
from widen.protocol.actions import Add, Metadata
from widen.protocol.column_mapping import (
    COLUMN_ID,
    ID,
    NAME,
    PHYSICAL_NAME,
    TrackingColumns,
    physical_name,
    without_mapping,
)
from widen.protocol.column_metadata import ROLE, SOURCE
from widen.protocol.file_statistics import HIDDEN_FIELDS, INDEXED_COLUMNS, NO_STATS, indexed_leaves
from widen.protocol.iceberg_compat import stores_partition_columns
from widen.protocol.parquet_files import without_void
from widen.protocol.table_configuration import TableConfiguration, tracking_columns
from widen.protocol.type_widening import TYPE_CHANGES, ensure_changes_readable
from widen.schema.table_state import check_constraints
from widen.spark.engine import Session, Unsupported, as_unsupported
from widen.spark.spark_types import as_nullable

_KEPT_KEYS = ("delta.columnMapping.", TYPE_CHANGES, SOURCE, ROLE)


@dataclass(frozen=True)
class DeltaCopies:
    """How rows of files of a version are copied to new files in the current types. Nothing is committed.

    Args:
        unmapped: Whether the new files use the logical names of the columns, not the physical names of column mapping.
    """

    session: Callable[[], Session]
    snapshot: Snapshot
    unmapped: bool = False
    file_bytes: int | None = None

    @cached_property
    def tracking(self) -> TrackingColumns | None:
        """The columns of row ids and row commit versions, if row tracking is enabled."""
        return tracking_columns(self.snapshot.configuration, self.snapshot.location)

    @cached_property
    def stored(self) -> Metadata:
        """Metadata for reading and writing rows unchanged."""
        return _as_stored(self.snapshot, self.tracking)

    @cached_property
    def target(self) -> TableConfiguration:
        """The configuration of the new files."""
        metadata = without_mapping(self.stored) if self.unmapped else self.stored
        return TableConfiguration(self.snapshot.protocol, metadata)

    def copy(
        self, groups: Sequence[CopyGroup[RowSlice]], arrange: Arrange | None = None
    ) -> list[list[Add] | Unsupported]:
        """Copy groups with Arrow, and return the new files of each, or why only Spark can copy them.

        Raises:
            Unsupported: only Spark reads or writes the table.
        """
        snapshot = self.snapshot
        ensure_changes_readable(snapshot.schema)
        source = TableConfiguration(snapshot.protocol, self.stored)
        with as_unsupported(InvalidOption):
            layout = arrow_layout(snapshot.store, self.target, "", codec_of(self.session()))
            if self.file_bytes is not None:
                layout = replace(layout, sink=replace(layout.sink, file_bytes=self.file_bytes))
            columns = _columns_in_files(source, layout, unmapped=self.unmapped)
            keys = dict(zip(layout.split, snapshot.partition_keys, strict=True))
            scan = LocalScan(snapshot.store, columns, ID if source.mapping == ID else NAME, keys)
            _ = scan.arrow_schema
        texts = partial(_partition_texts, snapshot.partition_keys)
        copier = FileCopier(
            snapshot.store,
            partial(_read_rows, scan, self.tracking),
            partial(_open_partition, layout, texts),
            texts,
            _size_of,
            arrange,
        )
        ordered = [replace(group, files=_in_order(group.files, texts)) for group in groups]
        done = copy_groups(copier, ordered, self.session, 1 if arrange else CHANGE_THREADS)
        return [
            each if isinstance(each, Unsupported) else [to_partitioned_add(layout.split, part) for part in each]
            for each in done
        ]


def copy_without_positions(
    context: ChangeContext, marked: Mapping[str, BitMap64], new_folder: Callable[[], str]
) -> list[Add] | None:
    """Copy files without some rows: in this process, or in tasks if they are large.

    Returns:
        None if Arrow cannot copy all of them; then no copy is left.
    """
    slices = [RowSlice(context.adds[key], marked=rows) for key, rows in marked.items()]
    shares = split_by_size(slices, _size_of, 1 + sum(map(_size_of, slices)) // CHANGE_TASK_BYTES)
    groups = [CopyGroup(new_folder(), share) for share in shares]
    copies = DeltaCopies(lambda: context.session, context.snapshot.with_metadata(context.metadata))
    try:
        found = copies.copy(groups)
    except Unsupported:
        return None
    return all_or_none(context.store, groups, found)


def _size_of(rows: RowSlice) -> int:
    return rows.file.size


def _columns_in_files(source: TableConfiguration, layout: ArrowLayout, *, unmapped: bool) -> StructType:
    """Return the columns of new files, with the names that old files have for them as physical names."""

    def copied(_: Path, field: Field) -> Field:
        name = physical_name(field, source.mapping)
        ids = {COLUMN_ID: field.metadata[COLUMN_ID]} if COLUMN_ID in field.metadata else {}
        return Field(field.name if unmapped else name, field.type, metadata={PHYSICAL_NAME: name, **ids})

    columns = {field.name: field for field in map_fields(without_void(source.schema), copied)}
    return StructType(tuple(columns[name] for name in layout.schema.names))


Texts = tuple[str | None, ...]
"""The partition values of a file, as in the log."""


def _partition_texts(keys: Sequence[str], rows: RowSlice) -> Texts:
    return tuple(rows.file.partition_values.get(key) or None for key in keys)


def _in_order(files: Iterable[RowSlice], texts: Callable[[RowSlice], Texts]) -> list[RowSlice]:
    """Return files without what tasks do not need, sorted by partition."""
    bare = (replace(rows, file=msgspec.structs.replace(rows.file, stats=None, tags=None)) for rows in files)
    return sorted(bare, key=lambda rows: [text or "" for text in texts(rows)])


@dataclass(frozen=True, slots=True)
class _PartitionWriter:
    """Writes rows of one partition.

    Args:
        schema: The schema of the files, with field ids.
    """

    files: PartWriter
    schema: pa.Schema
    texts: Texts

    def write(self, batch: pa.RecordBatch) -> None:
        self.files.write(pa.RecordBatch.from_arrays(batch.columns, schema=self.schema))

    def close(self) -> list[PartFile]:
        partition = json.dumps(self.texts)
        return [msgspec.structs.replace(part, partition=partition) for part in self.files.close()]

    def discard(self) -> None:
        self.files.discard()


def _open_partition(
    layout: ArrowLayout, texts: Callable[[RowSlice], Texts], rows: RowSlice, job: str
) -> _PartitionWriter:
    in_job, values = replace(layout, sink=replace(layout.sink, job=job)), texts(rows)
    return _PartitionWriter(open_writer(in_job, values), layout.schema, values)


def _read_rows(scan: LocalScan, tracking: TrackingColumns | None, slice: RowSlice) -> Iterator[pa.Table]:
    """Yield the rows of a file in the columns of new files, with their row ids."""
    for positions, rows in scan.read_numbered(slice):
        yield rows if tracking is None else _with_row_ids(rows, tracking, slice.file, positions)


def _with_row_ids(rows: pa.Table, columns: TrackingColumns, add: Add, positions: pa.Array) -> pa.Table:
    """Return rows whose row ids and commit versions are materialized.

    Source: PROTOCOL.md#reader-requirements-for-row-tracking
    """
    base, version = pa.scalar(add.base_row_id, pa.int64()), pa.scalar(add.default_row_commit_version, pa.int64())
    defaults = {columns.row_id: pc.add(positions.cast(pa.int64()), base), columns.version: version}
    for name, default in defaults.items():
        at = rows.column_names.index(name)
        rows = rows.set_column(at, rows.schema.field(at), pc.coalesce(rows.column(at), default))
    return rows


def _as_stored(snapshot: Snapshot, columns: TrackingColumns | None) -> Metadata:
    """Return metadata for reading and writing rows unchanged.

    No rules are checked and no values are generated, and materialized row ids are ordinary columns. Partition values
    are strings, so that their texts do not change, except in files that also contain the partition columns.
    """
    text_columns = () if stores_partition_columns(snapshot.configuration) else snapshot.partition_columns
    schema = map_fields(as_nullable(snapshot.schema), lambda _, field: _without_rules(field))
    schema = StructType(tuple(_as_text(field) if field.name in text_columns else field for field in schema))
    rules = check_constraints(snapshot.properties)
    kept = {key: value for key, value in snapshot.properties.items() if key not in rules}
    if columns:
        # The materialized row ids come after these columns, and get no statistics.
        counted = {key: value for key, value in kept.items() if key not in (HIDDEN_FIELDS, NO_STATS)}
        kept[INDEXED_COLUMNS] = str(len(indexed_leaves(schema, counted, snapshot.partition_columns)))
        schema = columns.add_to(schema)
    return msgspec.structs.replace(snapshot.metadata, schema_string=to_json(schema), configuration=kept)


def _without_rules(field: Field) -> Field:
    return replace(field, metadata={k: value for k, value in field.metadata.items() if k.startswith(_KEPT_KEYS)})


def _as_text(field: Field) -> Field:
    return replace(field, type=STRING).without_metadata(TYPE_CHANGES)
