"""Writes of the data source: the tasks write files, and one commit makes them visible.

Source: Spark's Python Data Source API, with streams in Arrow from Spark 4.1 on; Delta Lake's streaming sink
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql import datasource
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage

from widen.errors import InternalError, MetadataChanged
from widen.log.read.commit_timestamps import current_ms
from widen.log.read.file_list import to_adds, to_remove
from widen.log.read.log_segment import list_log
from widen.log.read.snapshot import Snapshot, open_snapshot
from widen.log.write.commit import ReadSet, StagedFiles, commit, write_metrics
from widen.log.write.staged_files import discard_folder
from widen.protocol.actions import Action, Add, Txn
from widen.spark.data_source.write_plan import WritePlan, plan_write
from widen.spark.data_source.write_task import WrittenFiles, write_task
from widen.spark.write.iceberg_writer import to_add

_StreamArrowWriter: Any = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceStreamWriter)
HAS_STREAM_WRITER = _StreamArrowWriter is not DataSourceStreamWriter
"""Whether this Spark passes the rows of streams to a data source in Arrow."""


class BatchWriter(DataSourceArrowWriter):
    """Writes the rows of a batch in one commit."""

    def __init__(self, plan: WritePlan) -> None:
        self._plan = plan

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WrittenFiles:
        """Write the rows of a task."""
        return write_task(self._plan, iterator)

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
        return write_task(self._plan, iterator)

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
    """Tell whether a job was aborted before its commit.

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
        if base is not None and not adds and not plan.is_overwrite and now.metadata == base.metadata:
            return
        actions = _actions(now, base, adds, txn)
        mode = "Overwrite" if plan.is_overwrite else "Append"
        parameters = {"mode": mode, "partitionBy": list(now.metadata.partition_columns)}
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
    if newest.protocol == plan.protocol and newest.metadata in (plan.base_metadata, plan.metadata):
        return replace(plan, read_version=newest.version)
    options, job = plan.options, plan.layout.sink.job
    now = plan_write(options, plan.incoming, is_overwrite=plan.is_overwrite, job=job)
    if now.metadata.id != plan.metadata.id or not _fits(plan, now):
        reason = "it changed the columns, their types or their rules while the rows were being written"
        raise MetadataChanged(version=newest.version, location=plan.store.location, reason=reason)
    return now


def _fits(plan: WritePlan, now: WritePlan) -> bool:
    """Tell whether files that were written by one plan are right for another one."""
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
        return [plan.protocol, plan.metadata, *actions]
    if plan.metadata != base.metadata:
        actions.insert(0, plan.metadata)
    if plan.is_overwrite:
        now_ms = current_ms()
        actions += [to_remove(file, now_ms, data_change=True) for file in to_adds(base.files())]
    return actions
