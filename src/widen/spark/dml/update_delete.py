"""UPDATE and DELETE by a condition.

Source: Delta Lake's UPDATE and DELETE
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from widen.log.read.snapshot import Snapshot
from widen.model.column_path import as_nullable
from widen.model.types import quote_name
from widen.planning.write.assigned_columns import Relation, assigned_paths, overlay_types
from widen.planning.write.schema_merge import SchemaChangeOptions, merge_schema
from widen.protocol.actions import Metadata
from widen.protocol.skipping.predicate import UnknownPredicate
from widen.spark.dml.assignment import assign_columns, to_assigned_values, translate_overflow
from widen.spark.dml.change_context import ChangeContext, ChangeResult, remove_whole_files
from widen.spark.dml.change_in_place import change_in_place
from widen.spark.dml.row_decision import ChangeKind
from widen.spark.expression import Expression, ensure_deterministic_condition, to_column
from widen.spark.read.partition_filter import files_in_partitions
from widen.spark.read.scan import select_files
from widen.spark.read.sql_predicate import parse_predicate
from widen.spark.spark_types import to_spark, visible_schema


def delete(
    spark: SparkSession, snapshot: Snapshot, where: Expression | None, metadata: Metadata | None = None
) -> ChangeResult:
    """Delete rows, and return the result. Nothing is committed.

    If the condition refers to partition columns only, whole files are removed, and no file is read.

    Args:
        where: The condition on the rows; None for all rows.
        metadata: The metadata that files are written with; by default that of the version.

    Raises:
        NotDeterministic: the condition may give different results for the same row.
        InvalidCondition: the condition cannot be used.
        UnsupportedFeatureForWrite: row tracking is enabled, but the properties do not name its columns.
    """
    context = _change_context(spark, snapshot, where, metadata or snapshot.metadata)
    files = context.candidates
    if where is not None:
        matching = files_in_partitions(spark, snapshot, files, where)
        if matching is None:
            return change_in_place(context, to_column(where), {}, ChangeKind.DELETE)
        files = matching
    return remove_whole_files(files, context.reads)


def update(
    spark: SparkSession, snapshot: Snapshot, assignments: Mapping[str, Expression], where: Expression | None
) -> ChangeResult:
    """Update rows, and return the result. Nothing is committed.

    Args:
        assignments: The new values by column path; they refer to the row before the update.
        where: The condition on the rows; None for all rows.

    Raises:
        InvalidPath: a path cannot be read.
        ColumnNotFound: the column does not exist.
        AssignmentConflict: two assignments go to the same column.
        ItemAssignmentRefused: a path leads into an array or a map.
        SchemaMismatch: a value does not fit its column.
        NotDeterministic: the condition may give different results for the same row.
        InvalidCondition: the condition or a value cannot be used.
        RowRefused: a row violates a column rule or a constraint.
        UnsupportedFeatureForWrite: row tracking is enabled, but the properties do not name its columns.
    """
    paths = assigned_paths(Relation(snapshot.schema), assignments)
    values = to_assigned_values(
        _empty_result(spark, snapshot), {path: assignments[text] for text, path in paths.items()}
    )
    incoming = overlay_types(snapshot.schema, {path: value.type for path, value in values.items()})
    merge_schema(snapshot.schema, incoming, SchemaChangeOptions(casts=True, fills=False))
    context = _change_context(spark, snapshot, where, snapshot.metadata)
    new = assign_columns(snapshot.schema, values, lambda name: F.col(quote_name(name)))
    with translate_overflow():
        return change_in_place(context, F.lit(True) if where is None else to_column(where), new, ChangeKind.UPDATE)


def _change_context(
    spark: SparkSession, snapshot: Snapshot, where: Expression | None, metadata: Metadata
) -> ChangeContext:
    if where is not None:
        ensure_deterministic_condition(_empty_result(spark, snapshot), where)
    predicate = parse_predicate(where, snapshot.schema) if isinstance(where, str) else UnknownPredicate()
    return ChangeContext(spark, snapshot, metadata, select_files(snapshot, predicate))


def _empty_result(spark: SparkSession, snapshot: Snapshot) -> DataFrame:
    return spark.createDataFrame([], to_spark(as_nullable(visible_schema(snapshot.schema))))
