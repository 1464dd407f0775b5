"""Bringing values of a column that evolved back: what they come to, and the change of rows.

Source: spec of evolution, U3; Delta Lake's UPDATE
"""

from __future__ import annotations

from functools import partial
from typing import Any

from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType
from pyspark.sql.types import StructType as SparkStruct

from widen.log.snapshot import Snapshot
from widen.model.path import Path, format_path
from widen.model.type import ArrayType, DataType, quoted
from widen.planning.fold import Fold, Folding, Rest
from widen.routing.fold import FITS, HELD, STAYS, judge
from widen.spark.assign import Value, assigned
from widen.spark.change import change_in_place
from widen.spark.decision import Kind
from widen.spark.failure import translated
from widen.spark.ground import Ground, Outcome
from widen.spark.predicate import parse_predicate
from widen.spark.scan import read, select
from widen.spark.schema import type_to_spark

SAMPLES = 5
"""How many values that cannot go back are shown."""

_FINDING, _VALUE = "finding", "value"


def look(spark: SparkSession, snapshot: Snapshot, fold: Fold) -> Folding:
    """Return what a fold comes to; nothing is written.

    Args:
        spark: The session.
        snapshot: The version.
        fold: What goes where.

    Raises:
        CorruptFile: a data file or a deletion vector cannot be read.
        JobFailed: Spark could not finish the job.
        StorageError: the store refused.
    """
    rows = read(spark, snapshot.store, snapshot, _has_value(fold))
    judged = rows.select(_judged(fold).getField(_FINDING).alias(_FINDING), _text(fold).alias(_VALUE))
    with translated():
        counts = {row[_FINDING]: row["count"] for row in judged.groupBy(_FINDING).count().collect()}
        stays = judged.where(F.col(_FINDING) == STAYS).select(_VALUE)
        samples = tuple(row[_VALUE] for row in stays.limit(SAMPLES).collect()) if counts.get(STAYS) else ()
    return Folding(fold, sum(counts.values()), counts.get(FITS, 0), counts.get(HELD, 0), samples)


def bring_back(spark: SparkSession, snapshot: Snapshot, fold: Fold, rest: Rest) -> Outcome:
    """Write the files anew that have values in the column, and return what it comes to. Nothing is committed.

    Args:
        spark: The session.
        snapshot: The version.
        fold: What goes where.
        rest: What becomes of values that do not convert exactly.

    Raises:
        UnsupportedFeatureForWrite: the table keeps track of each row.
        RowRefused: a row would be one that the table may not hold.
        CorruptFile: a data file or a deletion vector cannot be read.
        JobFailed: Spark could not finish the job, or the data were not the same when they were read again.
        StorageError: the store refused.
    """
    where = F.expr(_has_value(fold))
    if rest is not Rest.LOSE:
        where &= _judged(fold).getField(_FINDING) != STAYS
    selection = select(snapshot, parse_predicate(_has_value(fold), snapshot.schema))
    ground = Ground(spark, snapshot, snapshot.metadata, selection)
    nothing = F.lit(None).cast(type_to_spark(fold.type))
    values = {
        fold.into: Value(_judged(fold).getField(_VALUE), fold.into_type),
        fold.column: Value(nothing, fold.type),
    }
    new = assigned(snapshot.schema, values, lambda name: F.col(quoted(name)))
    return change_in_place(ground, where, new, Kind.UPDATE)


def _has_value(fold: Fold) -> str:
    return f"{format_path(fold.column)} IS NOT NULL"


def _judged(fold: Fold) -> Column:
    """Return what is found of the value in each row that has one, and what the other column is to hold."""
    result = SparkStruct().add(_FINDING, StringType()).add(_VALUE, type_to_spark(fold.into_type))
    # Without Arrow, which would take timestamps as they are in the time zone of the session.
    judged = F.udf(partial(_judge, fold.type, fold.into_type), result, useArrow=False)
    return judged(_column(fold.column), _column(fold.into))


def _judge(type: DataType, into: DataType, value: Any, old: Any) -> tuple[str, Any] | None:
    return None if value is None else judge(value, type, old, into)


def _text(fold: Fold) -> Column:
    column = _column(fold.column)
    return F.to_json(column) if isinstance(fold.type, ArrayType) else column.cast("string")


def _column(path: Path) -> Column:
    return F.col(format_path(path))
