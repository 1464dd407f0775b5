"""Overwrites: rows that come in place of all others, of those with a condition, or of those in the same partitions.

Source: Delta Lake's overwrites: static, replaceWhere, dynamic partitions
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from widen.log.commit import Reads
from widen.log.snapshot import Snapshot
from widen.model.type import VOID, quoted
from widen.planning.overwrite import partition_predicate
from widen.protocol.action import Metadata
from widen.protocol.change_data import CHANGE_TYPE
from widen.protocol.predicate import Anything
from widen.spark.complete import completed
from widen.spark.condition import Expression, to_column, to_text
from widen.spark.edit import delete
from widen.spark.failure import refusal, translated
from widen.spark.ground import Files, Ground, Outcome, whole_files
from widen.spark.partition import files_in_same_partitions
from widen.spark.scan import select
from widen.spark.schema import type_to_spark


def overwrite_all(snapshot: Snapshot, frame: DataFrame, metadata: Metadata) -> Outcome:
    """Write rows in place of all that there are, and return what it comes to. Nothing is committed.

    Args:
        snapshot: The version.
        frame: The rows; they fit the schema.
        metadata: That they are written under.

    Raises:
        RowRefused: a row is one that the table may not hold.
        CorruptFile: a file that the frame reads cannot be read.
        JobFailed: Spark could not finish the job.
        StorageError: the store refused.
    """
    with Files(_ground(snapshot, frame, metadata)) as files:
        added = files.rows(frame)
    gone = whole_files(snapshot.files(), Reads.EVERYTHING)
    return replace(gone, added=tuple(added), folders=files.folders)


def overwrite_partitions(snapshot: Snapshot, frame: DataFrame, metadata: Metadata) -> Outcome:
    """Write rows in place of those in the same partitions, and return what it comes to. Nothing is committed.

    Partitions are the same if their values are, however their texts are written.

    Args:
        snapshot: The version.
        frame: The rows; they fit the schema.
        metadata: That they are written under.

    Raises:
        RowRefused: a row is one that the table may not hold.
        CorruptFile: a file that the frame reads cannot be read.
        JobFailed: Spark could not finish a job.
        StorageError: the store refused.

    Source: Delta Lake's dynamic partition overwrite. Differs: it compares texts.
    """
    ground, view = _ground(snapshot, frame, metadata), snapshot.seen_with(metadata)
    with Files(ground) as files:
        added = files.rows(frame)
        keys = view.partition_keys
        written = list(dict.fromkeys(tuple(add.partition_values.get(key) or None for key in keys) for add in added))
        gone = files_in_same_partitions(frame.sparkSession, view, view.files(), written)
    predicate = partition_predicate(view.schema, view.partition_columns, written) if written else Anything()
    reads = Reads(selection=select(view, predicate), paths=frozenset(gone["path"].to_pylist()))
    return replace(whole_files(gone, reads), added=tuple(added), folders=files.folders)


def overwrite_where(snapshot: Snapshot, frame: DataFrame, metadata: Metadata, where: Expression) -> Outcome:
    """Write rows in place of those with a condition, and return what it comes to. Nothing is committed.

    Args:
        snapshot: The version.
        frame: The rows; they fit the schema, and each must fulfil the condition.
        metadata: That they are written under.
        where: The condition.

    Raises:
        OutsideReplaceWhere: a row does not fulfil the condition.
        RowRefused: a row is one that the table may not hold.
        NotDeterministic: the condition may say something else the next time.
        ConditionRefused: the condition cannot be used.
        UnsupportedFeatureForWrite: the table keeps track of each row and does not say where.
        CorruptFile: a file cannot be read.
        JobFailed: Spark could not finish a job.
        StorageError: the store refused.

    Source: Delta Lake's replaceWhere
    """
    gone = delete(frame.sparkSession, snapshot, where, metadata)
    with ExitStack() as undo, ExitStack() as kept, Files(_ground(snapshot, frame, metadata)) as files:
        undo.callback(gone.discard, snapshot.store)
        rows = _within(completed(frame, files.ground.schema, snapshot.protocol), files.ground, where)
        if gone.recorded:
            with translated():
                rows = rows.persist()
            kept.callback(rows.unpersist)
        added = files.rows(rows)
        told = files.changes(rows.withColumn(CHANGE_TYPE, F.lit("insert"))) if gone.recorded else []
        undo.pop_all()
    return replace(
        gone,
        added=(*gone.added, *added),
        recorded=(*gone.recorded, *told),
        folders=(*gone.folders, *files.folders),
    )


def _ground(snapshot: Snapshot, frame: DataFrame, metadata: Metadata) -> Ground:
    return Ground(frame.sparkSession, snapshot, metadata, select(snapshot, Anything()))


def _within(rows: DataFrame, ground: Ground, where: Expression) -> DataFrame:
    """Return rows that fail the job which writes them if one of them does not fulfil the condition."""
    anchor = next(field for field in ground.schema if field.type != VOID)
    column, is_true = F.col(quoted(anchor.name)), F.coalesce(to_column(where), F.lit(False))
    outside = refusal("OUTSIDE", {"where": to_text(where)}).cast(type_to_spark(anchor.type))
    return rows.withColumn(anchor.name, F.when(is_true, column).otherwise(outside))
