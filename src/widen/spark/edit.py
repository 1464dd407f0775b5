"""Rows updated and deleted in place, by a condition.

Source: Delta Lake's UPDATE and DELETE
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from widen.log.snapshot import Snapshot
from widen.model.path import relaxed
from widen.model.type import quoted
from widen.planning.assignment import can_cast
from widen.planning.destination import Relation, assigned_paths, overlaid
from widen.planning.merge import Leeway, merge
from widen.protocol.action import Metadata
from widen.protocol.predicate import Anything
from widen.spark.assign import assigned, assigning, to_values
from widen.spark.change import change_in_place
from widen.spark.condition import Expression, ensure_usable, to_column
from widen.spark.decision import Kind
from widen.spark.ground import Ground, Outcome, whole_files
from widen.spark.partition import files_in_partitions
from widen.spark.predicate import parse_predicate
from widen.spark.scan import select
from widen.spark.schema import surfaced, to_spark


def delete(
    spark: SparkSession, snapshot: Snapshot, where: Expression | None, metadata: Metadata | None = None
) -> Outcome:
    """Delete rows, and return what it comes to. Nothing is committed.

    Where the condition looks at partition columns only, whole files go and none is read.

    Args:
        spark: The session.
        snapshot: The version.
        where: Which rows; all of them if it is None.
        metadata: That files are written under; by default that of the version.

    Raises:
        NotDeterministic: the condition may say something else the next time.
        ConditionRefused: the condition cannot be used.
        UnsupportedFeatureForWrite: the table keeps track of each row and does not say where.
        CorruptFile: a data file or a deletion vector cannot be read.
        JobFailed: Spark could not finish the job.
        StorageError: the store refused.
    """
    ground = _ground(spark, snapshot, where, metadata or snapshot.metadata)
    gone = ground.candidates
    if where is not None:
        found = files_in_partitions(spark, snapshot, gone, where)
        if found is None:
            return change_in_place(ground, to_column(where), {}, Kind.DELETE)
        gone = found
    return whole_files(gone, ground.reads)


def update(
    spark: SparkSession, snapshot: Snapshot, assignments: Mapping[str, Expression], where: Expression | None
) -> Outcome:
    """Update rows, and return what it comes to. Nothing is committed.

    Args:
        spark: The session.
        snapshot: The version.
        assignments: The new values by the paths of their columns; they see the row as it was before.
        where: Which rows; all of them if it is None.

    Raises:
        InvalidPath: a path cannot be read.
        ColumnNotFound: there is no such column.
        AssignmentConflict: two assignments go to the same column.
        ItemAssignmentRefused: a path leads into an array or a map.
        SchemaMismatch: a value does not fit its column.
        NotDeterministic: the condition may say something else the next time.
        ConditionRefused: the condition or a value cannot be used.
        RowRefused: a row would be one that the table may not hold.
        UnsupportedFeatureForWrite: the table keeps track of each row and does not say where.
        CorruptFile: a data file or a deletion vector cannot be read.
        JobFailed: Spark could not finish the job.
        StorageError: the store refused.
    """
    paths = assigned_paths(Relation(snapshot.schema), assignments)
    values = to_values(_no_rows(spark, snapshot), {path: assignments[text] for text, path in paths.items()})
    incoming = overlaid(snapshot.schema, {path: value.type for path, value in values.items()})
    merge(snapshot.schema, incoming, Leeway(casts=True, fills=False, can_cast=can_cast))
    ground = _ground(spark, snapshot, where, snapshot.metadata)
    new = assigned(snapshot.schema, values, lambda name: F.col(quoted(name)))
    with assigning():
        return change_in_place(ground, F.lit(True) if where is None else to_column(where), new, Kind.UPDATE)


def _ground(spark: SparkSession, snapshot: Snapshot, where: Expression | None, metadata: Metadata) -> Ground:
    if where is not None:
        ensure_usable(_no_rows(spark, snapshot), where)
    predicate = parse_predicate(where, snapshot.schema) if isinstance(where, str) else Anything()
    return Ground(spark, snapshot, metadata, select(snapshot, predicate))


def _no_rows(spark: SparkSession, snapshot: Snapshot) -> DataFrame:
    return spark.createDataFrame([], to_spark(relaxed(surfaced(snapshot.schema))))
