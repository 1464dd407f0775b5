"""Overwrite all rows, those that match a condition, or those in the same partitions.

Source: Delta Lake's overwrites: static, replaceWhere, dynamic partitions
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from widen.log.read.snapshot import Snapshot
from widen.log.write.commit import ReadSet
from widen.model.types import VOID, quote_name
from widen.planning.write.overwrite_schema import partition_predicate
from widen.protocol.actions import Metadata
from widen.protocol.change_data_files import CHANGE_TYPE
from widen.protocol.skipping.predicate import UnknownPredicate
from widen.spark.dml.change_context import ChangeContext, ChangeFiles, ChangeResult, remove_whole_files
from widen.spark.dml.update_delete import delete
from widen.spark.expression import Expression, to_column, to_text
from widen.spark.read.partition_filter import files_in_same_partitions
from widen.spark.read.scan import select_files
from widen.spark.spark_errors import raise_expression, translate_spark_errors, unpersist
from widen.spark.spark_types import type_to_spark
from widen.spark.write.missing_columns import fill_missing_columns


def overwrite_all(snapshot: Snapshot, frame: DataFrame, metadata: Metadata) -> ChangeResult:
    """Replace all rows, and return the result. Nothing is committed.

    Args:
        frame: The rows; they fit the schema.

    Raises:
        RowRefused: a row violates a column rule or a constraint.
        CorruptFile: a file that the frame reads cannot be read.
    """
    with ChangeFiles(_context(snapshot, frame, metadata)) as files:
        added = files.rows(frame)
    removal = remove_whole_files(snapshot.files(), ReadSet.EVERYTHING)
    return replace(removal, added=tuple(added), folders=files.folders)


def overwrite_partitions(snapshot: Snapshot, frame: DataFrame, metadata: Metadata) -> ChangeResult:
    """Replace the partitions of the new rows, and return the result. Nothing is committed.

    Partitions are compared by value, not by the text in the log.

    Args:
        frame: The rows; they fit the schema.

    Raises:
        RowRefused: a row violates a column rule or a constraint.
        CorruptFile: a file that the frame reads cannot be read.

    Source: Delta Lake's dynamic partition overwrite. Differs: it compares texts.
    """
    context, view = _context(snapshot, frame, metadata), snapshot.with_metadata(metadata)
    with ChangeFiles(context) as files:
        added = files.rows(frame)
        keys = view.partition_keys
        written = list(dict.fromkeys(tuple(add.partition_values.get(key) or None for key in keys) for add in added))
        replaced_files = files_in_same_partitions(frame.sparkSession, view, view.files(), written)
    predicate = partition_predicate(view.schema, view.partition_columns, written) if written else UnknownPredicate()
    reads = ReadSet(selection=select_files(view, predicate), paths=frozenset(replaced_files["path"].to_pylist()))
    return replace(remove_whole_files(replaced_files, reads), added=tuple(added), folders=files.folders)


def overwrite_where(snapshot: Snapshot, frame: DataFrame, metadata: Metadata, where: Expression) -> ChangeResult:
    """Replace the rows that match a condition, and return the result. Nothing is committed.

    Args:
        frame: The rows; they fit the schema, and each must match the condition.

    Raises:
        ReplaceWhereMismatch: a row does not match the condition.
        RowRefused: a row violates a column rule or a constraint.
        NotDeterministic: the condition may give different results for the same row.
        InvalidCondition: the condition cannot be used.
        UnsupportedFeatureForWrite: row tracking is enabled, but the properties do not name its columns.

    Source: Delta Lake's replaceWhere
    """
    removal = delete(frame.sparkSession, snapshot, where, metadata)
    with ExitStack() as undo, ExitStack() as kept, ChangeFiles(_context(snapshot, frame, metadata)) as files:
        undo.callback(removal.discard, snapshot.store)
        rows = _within(fill_missing_columns(frame, files.context.schema, snapshot.protocol), files.context, where)
        if removal.recorded:
            with translate_spark_errors():
                # The rows are written twice, as data and as change data.
                rows = rows.persist()
            kept.callback(unpersist, rows)
        added = files.rows(rows)
        inserted = files.changes(rows.withColumn(CHANGE_TYPE, F.lit("insert"))) if removal.recorded else []
        undo.pop_all()
    return replace(
        removal,
        added=(*removal.added, *added),
        recorded=(*removal.recorded, *inserted),
        folders=(*removal.folders, *files.folders),
    )


def _context(snapshot: Snapshot, frame: DataFrame, metadata: Metadata) -> ChangeContext:
    return ChangeContext(frame.sparkSession, snapshot, metadata, select_files(snapshot, UnknownPredicate()))


def _within(rows: DataFrame, context: ChangeContext, where: Expression) -> DataFrame:
    """Return the rows with a check that fails the write if a row does not match the condition."""
    anchor = next(field for field in context.schema if field.type != VOID)
    column, is_true = F.col(quote_name(anchor.name)), F.coalesce(to_column(where), F.lit(False))
    outside = raise_expression("OUTSIDE", {"where": to_text(where)}).cast(type_to_spark(anchor.type))
    return rows.withColumn(anchor.name, F.when(is_true, column).otherwise(outside))
