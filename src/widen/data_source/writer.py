"""Writes of the data source: the tasks write files, and one commit makes them visible.

Source: Spark's Python Data Source API, with streams in Arrow from Spark 4.1 on; Delta Lake's streaming sink
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from widen.data_source.batch_reader import SourceOptions, ensure_no_iceberg
from widen.data_source.sink_writers import StreamArrowWriter
from widen.errors import DataSourceRefused, InternalError, InvalidOption, MetadataChanged
from widen.files.arrow_types import to_arrow
from widen.files.data_reader import convert_column
from widen.files.data_writer import ArrowLayout, PartFile, PartitionedWriter, TableSink, to_partitioned_add
from widen.frames.parquet_writer import find_obstacle, table_sink
from widen.log.commit import ReadSet, StagedFiles, commit, write_metrics
from widen.log.commit_files import current_ms
from widen.log.commit_outcome import discard_folder
from widen.log.file_list import to_adds, to_remove
from widen.log.log_segment import list_log
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot, open_snapshot
from widen.model.column_path import as_nullable
from widen.model.types import ArrayType, DataType, Field, MapType, StructType, name_key
from widen.model.value_classes import dataclass
from widen.protocol.actions import Action, Add, Metadata, Txn
from widen.protocol.column_metadata import DEFAULT
from widen.protocol.table_configuration import TableConfiguration
from widen.protocol.table_features import ensure_writable
from widen.protocol.table_properties import FEATURE_PREFIX, canonical_properties
from widen.schema.alter import changed_configuration, protocol_with
from widen.schema.growth import grow_schema, schema_change_options
from widen.schema.source_metadata import parse_automatic_widening
from widen.schema.table_definition import plan_create_table
from widen.schema.table_state import to_table_state
from widen.spark.engine import Unsupported


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
        given = self._plan.options.transaction()
        commit_files(_find_plan(written) or self._plan, written, Txn(*given, current_ms()) if given else None)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Delete the files of all tasks, unless the commit was tried."""
        if _has_failed_task(messages):
            discard_folder(self._plan.store, self._plan.layout.sink.job)


class StreamWriter(StreamArrowWriter):  # type: ignore[misc]
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
        """
        written = _written_files(messages)
        plan = _find_plan(written)
        if plan is None:
            return
        if written[0].query_id is None:
            raise InternalError(reason="Spark did not pass the id of the streaming query to its tasks")
        commit_files(plan, written, Txn(written[0].query_id, batchId, current_ms()), is_stream=True)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """Delete the files of a batch, unless the commit was tried."""
        if _has_failed_task(messages):
            self._plan.store.delete([part.path for message in _written_files(messages) for part in message.files])


def _has_failed_task(messages: Sequence[WriterCommitMessage | None]) -> bool:
    """Return whether a job was aborted before its commit.

    Spark also aborts after a commit that raised an error or whose process died, and that may still be visible. Then
    the files must stay; a commit that failed for certain has deleted them itself.
    """
    return None in messages


def _written_files(messages: Sequence[WriterCommitMessage | None]) -> list[WrittenFiles]:
    return [message for message in messages if isinstance(message, WrittenFiles)]


def _find_plan(written: Sequence[WrittenFiles]) -> WritePlan | None:
    """Return the plan that the tasks have used to write; None without tasks."""
    if len({message.plan.layout.sink.job for message in written}) > 1:
        raise InternalError(reason="the tasks of one write had different plans")
    return written[0].plan if written else None


def commit_files(plan: WritePlan, written: Sequence[WrittenFiles], txn: Txn | None, *, is_stream: bool = False) -> None:
    """Commit the files that the tasks of a write have written.

    Args:
        txn: The batch of a stream or of an application; if the table already has it, nothing is committed.
    """
    adds = [to_partitioned_add(plan.layout.split, part) for message in written for part in message.files]
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
        operation = "STREAMING UPDATE" if is_stream else "WRITE"
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
    actions[:0] = changed_configuration(base.configuration, plan.table.metadata)
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


@dataclass(frozen=True, kw_only=True)
class WritePlan:
    """What a write does to a table. Picklable."""

    options: SourceOptions
    incoming: StructType
    is_overwrite: bool
    store: LogStore
    read_version: int | None
    base_metadata: Metadata | None
    table: TableConfiguration
    sink: TableSink

    @property
    def layout(self) -> ArrowLayout:
        """The layout of the files."""
        return self.sink.layout

    @property
    def schema(self) -> StructType:
        """The columns of the table."""
        return self.table.schema

    def open_base(self) -> Snapshot | None:
        """Return the version that the plan is based on; None if the write creates the table."""
        return None if self.read_version is None else open_snapshot(self.store, self.read_version)


def plan_write(
    options: SourceOptions, incoming: StructType, *, is_overwrite: bool, job: str | None = None
) -> WritePlan:
    """Return what a write does to the newest version of a table, or to a new table.

    Source: Delta Lake's schema enforcement and evolution
    """
    store = options.open_store()
    options.transaction()  # for its errors
    snapshot = open_snapshot(store) if list_log(store).newest >= 0 else None
    if snapshot is None:
        ensure_no_iceberg(store, "write")
        properties = canonical_properties(options.properties)
        change = plan_create_table(as_nullable(incoming), options.partition_by, properties, current_ms(), None)
        table = change.table
    else:
        ensure_writable(snapshot.protocol, store.location)
        _ensure_same_layout(options, snapshot)
        grown = _grow(options, incoming, snapshot)
        table = TableConfiguration(protocol_with(snapshot.configuration, grown), grown)
    _ensure_writes_exactly(store.location, table, incoming)
    return WritePlan(
        options=options,
        incoming=incoming,
        is_overwrite=is_overwrite,
        store=store,
        read_version=None if snapshot is None else snapshot.version,
        base_metadata=None if snapshot is None else snapshot.metadata,
        table=table,
        sink=table_sink(store, table, job or uuid.uuid4().hex, _CODEC),
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
    of_columns = (_column_obstacle(field, incoming) for field in table.schema)
    return find_obstacle(table) or next(filter(None, of_columns), None)


def _column_obstacle(field: Field, incoming: StructType) -> str | None:
    given = incoming.find(field.name)
    if given is not None:
        return _conversion_obstacle(given, field)
    if DEFAULT in field.metadata:
        return f"the rows lack the column {field.name}, which has a default"
    return None


def _conversion_obstacle(given: Field, field: Field) -> str | None:
    try:
        convert_column(pa.array([], to_arrow(given.type)), field.type)
    except (Unsupported, InvalidOption) as error:
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


_QUERY_ID = "sql.streaming.queryId"
"""The property of a task that Spark uses to pass the id of the streaming query."""


@dataclass(frozen=True)
class WrittenFiles(WriterCommitMessage):
    """The files that a task has written."""

    plan: WritePlan
    files: tuple[PartFile, ...]
    query_id: str | None


def write_partition(plan: WritePlan, batches: Iterable[pa.RecordBatch]) -> WrittenFiles:
    """Write the rows of a task."""
    writer = PartitionedWriter(plan.sink)
    try:
        for batch in batches:
            writer.write(batch)
        files = tuple(writer.close())
    except BaseException:
        writer.discard()
        raise
    context = TaskContext.get()
    return WrittenFiles(plan, files, context.getLocalProperty(_QUERY_ID) if context else None)
