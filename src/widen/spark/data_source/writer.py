"""Writes of the data source: the tasks write files, and one commit makes them visible.

Source: Spark's Python Data Source API, with streams in Arrow from Spark 4.1 on; Delta Lake's streaming sink
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from widen.errors import DataSourceRefused, InternalError, InvalidOption, MetadataChanged, NotNullViolated, StorageError
from widen.log.commit import ReadSet, StagedFiles, commit, write_metrics
from widen.log.commit_files import current_ms
from widen.log.commit_outcome import discard_folder
from widen.log.file_list import to_adds, to_remove
from widen.log.log_segment import list_log
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot, open_snapshot
from widen.model.column_path import as_nullable, fields, format_path, map_fields
from widen.model.types import ArrayType, DataType, Field, MapType, StructType, find_name, name_key
from widen.protocol.actions import Action, Add, Metadata, Txn
from widen.protocol.column_mapping import NAME, PHYSICAL_NAME
from widen.protocol.column_metadata import DEFAULT, GENERATION, INVARIANT, START, TEXT_LIMIT
from widen.protocol.iceberg_compat import enabled_compat, stores_partition_columns
from widen.protocol.table_configuration import TableConfiguration
from widen.protocol.table_features import ensure_writable
from widen.protocol.table_properties import FEATURE_PREFIX, canonical_properties
from widen.schema.growth import grow_schema, schema_change_options
from widen.schema.source_metadata import parse_automatic_widening
from widen.schema.table_definition import plan_create_table
from widen.schema.table_state import check_constraints, to_table_state
from widen.spark.arrow_types import to_arrow, to_utc
from widen.spark.data_source.batch_reader import SourceOptions
from widen.spark.read.local_rows import NotLocal, convert_column
from widen.spark.write.arrow_writer import ArrowLayout, PartFile, PartWriter, open_writer, to_add
from widen.spark.write.parquet_writer import arrow_layout
from widen.spark.write.physical_layout import is_fully_nullable

_StreamArrowWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)
HAS_STREAM_WRITER = _StreamArrowWriter is not DataSourceStreamWriter
"""Whether this Spark passes the rows of streams to a data source in Arrow."""


class BatchWriter(DataSourceArrowWriter):
    """Writes the rows of a batch in one commit."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        """Write the rows of a task."""
        return write_partition(self._plan, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make the files of all tasks visible."""
        written = _written_files(messages)
        commit_files(_find_plan(written) or self._plan, written, None)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the files of all tasks, unless the commit was tried."""
        if _has_failed_task(messages):
            discard_folder(self._plan.store, self._plan.layout.sink.job)


class StreamWriter(_StreamArrowWriter):  # type: ignore[misc]
    """Writes each batch of a stream in one commit, and a batch that Spark repeats only once.

    Spark makes one writer for the tasks and another one for the commits. Physical names of new columns are random, so
    a commit uses the plan that the tasks have used.
    """

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        """Write the rows of a task."""
        return write_partition(self._plan, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Make the files of a batch visible, unless they are already.

        Raises:
            InternalError: Spark did not pass the id of the query to its tasks.
            ContentionError: another writer changed the table so that the files do not fit, or kept winning.
        """
        written = _written_files(messages)
        plan = _find_plan(written)
        if plan is None:
            return
        if written[0].query_id is None:
            raise InternalError(reason="Spark did not pass the id of the streaming query to its tasks")
        commit_files(plan, written, Txn(written[0].query_id, batchId, current_ms()))

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Delete the files of a batch, unless the commit was tried."""
        if _has_failed_task(messages):
            self._plan.store.delete([part.path for message in _written_files(messages) for part, _ in message.files])


def _has_failed_task(messages: Sequence[WriterCommitMessage | None]) -> bool:
    """Return whether a job was aborted before its commit.

    Spark also aborts after a commit that raised an error or whose process died, and that may still be visible. Then
    the files must stay; a commit that failed for certain has deleted them itself.
    """
    return None in messages


def _written_files(messages: Sequence[WriterCommitMessage | None]) -> list[WrittenFiles]:
    return [message for message in messages if isinstance(message, WrittenFiles)]


def _find_plan(written: Sequence[WrittenFiles]) -> WritePlan | None:
    """Return the plan by which the tasks have written; None if there was no task."""
    if len({message.plan.layout.sink.job for message in written}) > 1:
        raise InternalError(reason="the tasks of one write had different plans")
    return written[0].plan if written else None


def commit_files(plan: WritePlan, written: Sequence[WrittenFiles], txn: Txn | None) -> None:
    """Commit the files that the tasks of a write have written.

    Args:
        plan: The write, as it was planned before the first row.
        txn: The batch of a stream; if the table already has it, nothing is committed.

    Raises:
        MetadataChanged: another writer changed the table in a way that the files do not fit.
        ContentionError: concurrent commits kept conflicting.
    """
    adds = [to_add(plan.layout, part, texts) for message in written for part, texts in message.files]
    with StagedFiles() as staged:
        staged.add_undo(lambda: plan.store.delete([plan.store.plain(add.path) for add in adds]))
        now = _replan(plan)
        base = now.open_base()
        if base is not None and txn is not None and base.has_written(txn):
            return
        if base is not None and not adds and not plan.is_overwrite and now.table.metadata == base.metadata:
            return
        actions = _actions(now, base, adds, txn)
        mode = "Overwrite" if plan.is_overwrite else "Append"
        parameters = {"mode": mode, "partitionBy": list(now.table.partition_columns)}
        app_ids = frozenset({txn.app_id} if txn else ())
        reads = ReadSet(files=plan.is_overwrite and base is not None, app_ids=app_ids)
        numbers = write_metrics(adds)
        operation = "WRITE" if txn is None else "STREAMING UPDATE"
        outcome = commit(plan.store, base, actions, operation, parameters, reads=reads, metrics=numbers, staged=staged)
        outcome.or_raise()


def _replan(plan: WritePlan) -> WritePlan:
    """Return the write for the newest version of the table, which must fit the files."""
    if list_log(plan.store).newest < 0:
        return plan
    newest = open_snapshot(plan.store)
    if newest.protocol == plan.table.protocol and newest.metadata in (plan.base_metadata, plan.table.metadata):
        return replace(plan, read_version=newest.version)
    options, job = plan.options, plan.layout.sink.job
    now = plan_write(options, plan.incoming, is_overwrite=plan.is_overwrite, job=job)
    if now.table.metadata.id != plan.table.metadata.id or not _fits(plan, now):
        reason = "it changed the columns, their types or their rules while the rows were being written"
        raise MetadataChanged(version=newest.version, location=plan.store.location, reason=reason)
    return now


def _fits(plan: WritePlan, now: WritePlan) -> bool:
    """Return whether files that were written by one plan are right for another one."""
    after = {field.name: field for field in now.layout.schema}
    new_rules = [field for field in now.schema if not field.nullable and field != plan.schema.find(field.name)]
    return (
        not new_rules
        and now.layout.split == plan.layout.split
        and all(
            field.name in after and field.equals(after[field.name], check_metadata=True) for field in plan.layout.schema
        )
    )


def _actions(plan: WritePlan, base: Snapshot | None, adds: Sequence[Add], txn: Txn | None) -> list[Action]:
    actions: list[Action] = [*adds] if txn is None else [txn, *adds]
    if base is None:
        return [plan.table.protocol, plan.table.metadata, *actions]
    if plan.table.metadata != base.metadata:
        actions.insert(0, plan.table.metadata)
    if plan.is_overwrite:
        now_ms = current_ms()
        actions += [to_remove(file, now_ms, data_change=True) for file in to_adds(base.files())]
    return actions


# What a write of the data source does to a table, planned before the first row and again at the commit.
#
# Tasks write files with Arrow, so a table whose rules only Spark can evaluate is refused before anything is
# written.
#
# Source: PROTOCOL.md#add-file-and-remove-file; Delta Lake's schema enforcement and evolution


_CODEC = "snappy"
_RULES: Mapping[str, str] = {
    INVARIANT: "has an invariant",
    GENERATION: "is generated",
    START: "is an identity column",
    TEXT_LIMIT: "has a maximum length",
}
_UNSORTED = ("float", "double", "binary")
"""Types of partition columns that Arrow and Spark write differently as text."""


@dataclass(frozen=True, kw_only=True)
class WritePlan:
    """What a write does to a table. Picklable.

    Args:
        read_version: The version that the plan is based on; None if the write creates the table.
    """

    options: SourceOptions
    incoming: StructType
    is_overwrite: bool
    store: LogStore
    read_version: int | None
    base_metadata: Metadata | None
    table: TableConfiguration
    layout: ArrowLayout

    @property
    def stored(self) -> dict[str, Field]:
        """The columns in files by their names in the table.

        Fields have the names in files, and as physical names those in the table, from which they are renamed.
        """
        schema = self.schema
        renamed = map_fields(schema, lambda _, field: replace(field, metadata={PHYSICAL_NAME: field.name}))
        return dict(zip(schema.names, _with_names(renamed, self.table.physical_schema).fields, strict=True))

    @property
    def schema(self) -> StructType:
        """The columns of the table."""
        return self.table.schema

    def open_base(self) -> Snapshot | None:
        """Return the version that the plan is based on; None if the write creates the table."""
        return None if self.read_version is None else open_snapshot(self.store, self.read_version)


def _with_names(schema: StructType, named: StructType) -> StructType:
    """Return a schema with the names of another one of the same shape."""
    names = iter([field.name for _, field in fields(named)])
    order = {path: next(names) for path, _ in fields(schema)}
    return map_fields(schema, lambda path, field: replace(field, name=order[path]))


def plan_write(
    options: SourceOptions, incoming: StructType, *, is_overwrite: bool, job: str | None = None
) -> WritePlan:
    """Return what a write does to the newest version of a table, or to a new table.

    Args:
        job: The folder of the files, if it is known already.

    Raises:
        DataSourceRefused: the table has rules that only Spark can evaluate.
        SchemaMismatch: the rows do not fit the table.
        InvalidOption: an option cannot be used.

    Source: Delta Lake's schema enforcement and evolution
    """
    store = options.open_store()
    snapshot = open_snapshot(store) if list_log(store).newest >= 0 else None
    if snapshot is None:
        properties = canonical_properties(options.properties)
        change = plan_create_table(as_nullable(incoming), options.partition_by, properties, current_ms(), None)
        table = change.table
    else:
        ensure_writable(snapshot.protocol, store.location)
        _ensure_same_layout(options, snapshot)
        table = TableConfiguration(snapshot.protocol, _grow(options, incoming, snapshot))
    _ensure_writes_exactly(store.location, table, incoming)
    layout = arrow_layout(store, table, job or uuid.uuid4().hex, _CODEC)
    return WritePlan(
        options=options,
        incoming=incoming,
        is_overwrite=is_overwrite,
        store=store,
        read_version=None if snapshot is None else snapshot.version,
        base_metadata=None if snapshot is None else snapshot.metadata,
        table=table,
        layout=layout,
    )


def _grow(options: SourceOptions, incoming: StructType, snapshot: Snapshot) -> Metadata:
    state = to_table_state(snapshot)
    widening = parse_automatic_widening(options.text("widening") or "always")
    merges = options.flag("mergeSchema")
    return grow_schema(
        state, incoming, schema_change_options(state, merge_schema=merges, widening=widening, cast=False)
    ).metadata


def _ensure_same_layout(options: SourceOptions, snapshot: Snapshot) -> None:
    given = [name_key(name) for name in options.partition_by]
    if given and given != [name_key(name) for name in snapshot.partition_columns]:
        expected = (
            f"The table is partitioned by {', '.join(snapshot.partition_columns) or 'nothing'}. Remove the option."
        )
        raise InvalidOption(option="partitionBy", value=options.text("partitionBy"), expected=expected)
    other = [key for key, value in canonical_properties(options.properties).items() if _differs(snapshot, key, value)]
    if other:
        expected = "A write sets properties only when it creates the table. Use Table.set_properties."
        raise InvalidOption(option="properties", value=other, expected=expected)


def _differs(snapshot: Snapshot, key: str, value: str) -> bool:
    # A feature that was asked for is in the protocol, not among the properties.
    return not key.startswith(FEATURE_PREFIX) and snapshot.properties.get(key) != value


# ---- what is refused -------------------------------------------------------------------------------


def _ensure_writes_exactly(location: str, table: TableConfiguration, incoming: StructType) -> None:
    """Check that Arrow writes the rows as the rules of the table demand."""
    reason = _find_obstacle(table, incoming)
    if reason is not None:
        fix = "Use Table.append or Table.overwrite of Widen, for which Spark checks and writes the rows."
        raise DataSourceRefused(verb="write", location=location, reason=reason, fix=fix)


def _find_obstacle(table: TableConfiguration, incoming: StructType) -> str | None:
    if check_constraints(table.properties):
        return "it has CHECK constraints"
    if enabled_compat(table.properties):
        return "it is compatible with Iceberg"
    if stores_partition_columns(table):
        return "its files also contain the partition columns"
    reasons = (_column_obstacle(field, incoming, table.partition_columns) for field in table.schema)
    return next((reason for reason in reasons if reason), None)


def _column_obstacle(field: Field, incoming: StructType, partition_by: tuple[str, ...]) -> str | None:
    for path, inner in fields(StructType((field,))):
        rule = next((text for key, text in _RULES.items() if key in inner.metadata), None)
        if rule is not None:
            return f"the column {format_path(path)} {rule}"
    try:
        to_arrow(field.type)
    except InvalidOption:
        return f"the column {field.name} is {field.type.sql}"
    given = incoming.find(field.name)
    if DEFAULT in field.metadata and given is None:
        return f"the rows lack the column {field.name}, which has a default"
    if not is_fully_nullable(field.type):
        return f"a field inside of {field.name} must not be null"
    if field.name in partition_by and str(field.type) in _UNSORTED:
        return f"{field.name} is a partition column of the type {field.type.sql}"
    return None if given is None else _conversion_obstacle(given, field)


def _conversion_obstacle(given: Field, field: Field) -> str | None:
    try:
        convert_column(pa.array([], to_arrow(given.type)), field.type)
    except (NotLocal, InvalidOption) as error:
        return f"the column {field.name} is {given.type.sql} in the rows ({error})"
    odd = _differently_spelled(given.type, field.type)
    return odd and f"the rows spell the field {odd} of {field.name} differently"


def _differently_spelled(given: DataType, table: DataType) -> str | None:
    """Return the name of a nested field that the rows spell differently from the table."""
    match given, table:
        case StructType(), StructType():
            for inner in given:
                table_field = table.find(inner.name)
                if table_field is None or table_field.name != inner.name:
                    return inner.name
                odd = _differently_spelled(inner.type, table_field.type)
                if odd:
                    return odd
        case ArrayType(), ArrayType():
            return _differently_spelled(given.element, table.element)
        case MapType(), MapType():
            return _differently_spelled(given.key, table.key) or _differently_spelled(given.value, table.value)
    return None


# What a task of the data source writes: files of the table, apart for each partition.
#
# Source: PROTOCOL.md#add-file-and-remove-file, #partition-value-serialization


_OPEN_PARTITIONS = 64
"""How many partitions a task writes at a time; each one keeps a row group in memory."""

_QUERY_ID = "sql.streaming.queryId"
"""The property of a task in which Spark passes the id of the streaming query."""


@dataclass(frozen=True)
class WrittenFiles(WriterCommitMessage):
    """The files that a task has written.

    Args:
        files: The files, each with its partition values as in the log.
        query_id: The id of the streaming query, if the task belongs to one.
    """

    plan: WritePlan
    files: tuple[tuple[PartFile, tuple[str | None, ...]], ...]
    query_id: str | None


def write_partition(plan: WritePlan, batches: Iterable[pa.RecordBatch]) -> WrittenFiles:
    """Write the rows of a task.

    Raises:
        NotNullViolated: a column that must not be null has a null.
    """
    writer = _PartitionedWriter(plan)
    try:
        for batch in batches:
            writer.write(batch)
        files = tuple(writer.close())
    except BaseException:
        writer.discard()
        raise
    context = TaskContext.get()
    return WrittenFiles(plan, files, context.getLocalProperty(_QUERY_ID) if context else None)


class _PartitionedWriter:
    """Writes rows to one file after the other for each partition."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan
        partition_by = plan.table.partition_columns
        self._stored = [(name, field) for name, field in plan.stored.items() if name not in partition_by]
        self._partitions = [(name, plan.stored[name]) for name in partition_by]
        self._open: dict[tuple[str | None, ...], PartWriter] = {}
        self._files: list[tuple[PartFile, tuple[str | None, ...]]] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Write the rows of a batch, each to the file of its partition."""
        names = batch.schema.names
        given = {name: batch.column(found) for name in self._plan.stored if (found := find_name(names, name))}
        columns, values = (
            [_to_table_type(name, field, given.get(name), batch.num_rows) for name, field in chosen]
            for chosen in (self._stored, self._partitions)
        )
        types = [field.type for _, field in self._partitions]
        texts = [_partition_texts(column, data_type) for column, data_type in zip(values, types, strict=True)]
        rows = pa.Table.from_arrays(columns, schema=self._plan.layout.schema)
        for key, part in _by_partition(rows, texts):
            self._writer(key).write(part)

    def close(self) -> list[tuple[PartFile, tuple[str | None, ...]]]:
        """Finish all files, and return them."""
        for key, writer in self._open.items():
            self._files += [(part, key) for part in writer.close()]
        self._open = {}
        return self._files

    def discard(self) -> None:
        """Delete what is written; storage errors are ignored, because a vacuum deletes such files later."""
        with suppress(StorageError):
            for writer in self._open.values():
                writer.discard()
            self._plan.store.delete([part.path for part, _ in self._files])

    def _writer(self, key: tuple[str | None, ...]) -> PartWriter:
        if key not in self._open:
            if len(self._open) >= _OPEN_PARTITIONS:
                self.close()
            self._open[key] = open_writer(self._plan.layout, key)
        return self._open[key]


def _to_table_type(name: str, field: Field, values: pa.Array | None, count: int) -> pa.Array:
    if values is None:
        return pa.nulls(count, to_arrow(field.type))
    if values.null_count and not field.nullable:
        raise NotNullViolated(column=name)
    return convert_column(to_utc(values), field.type, NAME)


def _partition_texts(values: pa.Array, data_type: DataType) -> pa.Array:
    """Return partition values as texts for the log; the empty string is null."""
    pattern = _PATTERNS.get(str(data_type))
    texts = pc.strftime(values, pattern) if pattern else values.cast(pa.string())
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


# Arrow's %S has the fraction of the second.
_PATTERNS = {"timestamp": "%Y-%m-%dT%H:%M:%SZ", "timestamp_ntz": "%Y-%m-%d %H:%M:%S", "date": "%Y-%m-%d"}


def _by_partition(rows: pa.Table, texts: list[pa.Array]) -> Iterator[tuple[tuple[str | None, ...], pa.RecordBatch]]:
    """Yield the rows of each partition."""
    keys = list(zip(*(column.to_pylist() for column in texts), strict=True)) if texts else [()] * rows.num_rows
    places: dict[tuple[str | None, ...], list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, []).append(place)
    for key, chosen in places.items():
        part = rows if len(places) == 1 else rows.take(pa.array(chosen, pa.int64()))
        for batch in part.combine_chunks().to_batches():
            yield key, batch
