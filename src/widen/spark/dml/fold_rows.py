"""Fold a column into another column of the same field: the preview, and the change of rows.

Source: docs/evolution-rules.md#u3; Delta Lake's UPDATE
"""

from __future__ import annotations

from functools import partial
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType
from pyspark.sql.types import StructType as SparkStruct

from widen.log.read.snapshot import Snapshot
from widen.model.column_path import Path, format_path
from widen.model.types import ArrayType, DataType, StructType, quote_name
from widen.planning.unify.fold_plan import FoldPlan, FoldResult, Rest
from widen.routing.fold_value import DUPLICATE, FITS, STAYS, judge_fold
from widen.spark.dml.assignment import AssignedValue, assign_columns
from widen.spark.dml.change_context import ChangeContext, ChangeResult
from widen.spark.dml.change_in_place import change_in_place
from widen.spark.dml.row_decision import ChangeKind
from widen.spark.read.scan import read_snapshot, select_files
from widen.spark.read.sql_predicate import parse_predicate
from widen.spark.spark_errors import translate_spark_errors
from widen.spark.spark_types import type_to_spark

SAMPLES = 5
"""The number of sample values that cannot be folded."""

_FINDING, _VALUE = "finding", "value"


def preview_fold(spark: SparkSession, snapshot: Snapshot, fold: FoldPlan) -> FoldResult:
    """Return what a fold would do; nothing is written."""
    return judge_values(read_snapshot(spark, snapshot.store, snapshot, has_value(fold)), fold)


def judge_values(rows: DataFrame, fold: FoldPlan) -> FoldResult:
    """Return how many values of a column can be folded."""
    judged = rows.select(_judge_rows(fold).getField(_FINDING).alias(_FINDING), _text(fold).alias(_VALUE))
    with translate_spark_errors():
        counts = {row[_FINDING]: row["count"] for row in judged.groupBy(_FINDING).count().collect()}
        stays = judged.where(F.col(_FINDING) == STAYS).select(_VALUE)
        samples = tuple(row[_VALUE] for row in stays.limit(SAMPLES).collect()) if counts.get(STAYS) else ()
    return FoldResult(
        fold=fold,
        values=sum(counts.values()),
        fits=counts.get(FITS, 0),
        duplicates=counts.get(DUPLICATE, 0),
        samples=samples,
    )


def fold_rows(spark: SparkSession, snapshot: Snapshot, fold: FoldPlan, rest: Rest) -> ChangeResult:
    """Rewrite the files that have values in the column, and return the result. Nothing is committed.

    Raises:
        UnsupportedFeatureForWrite: row tracking is enabled, but the properties do not name its columns.
        RowRefused: a row violates a column rule or a constraint.
        JobFailed: the Spark job failed, or the data changed between two reads.
    """
    selection = select_files(snapshot, parse_predicate(has_value(fold), snapshot.schema))
    context = ChangeContext(spark, snapshot, snapshot.metadata, selection)
    return change_in_place(
        context, change_condition(fold, rest), folded_columns(snapshot.schema, fold), ChangeKind.UPDATE
    )


def change_condition(fold: FoldPlan, rest: Rest) -> Column:
    """Return the condition on the rows that a fold changes."""
    where = F.expr(has_value(fold))
    return where if rest is Rest.LOSE else where & (_judge_rows(fold).getField(_FINDING) != STAYS)


def folded_columns(schema: StructType, fold: FoldPlan) -> dict[str, Column]:
    """Return the new values of the changed columns, by name, in the rows that a fold changes."""
    nothing = F.lit(None).cast(type_to_spark(fold.type))
    values = {
        fold.into: AssignedValue(_judge_rows(fold).getField(_VALUE), fold.into_type),
        fold.column: AssignedValue(nothing, fold.type),
    }
    return assign_columns(schema, values, lambda name: F.col(quote_name(name)))


def has_value(fold: FoldPlan) -> str:
    """Return the condition on the rows that have a value in the column to fold."""
    return f"{format_path(fold.column)} IS NOT NULL"


def _judge_rows(fold: FoldPlan) -> Column:
    """Return a struct of the finding for the value of each row and the new value of the target column."""
    result = SparkStruct().add(_FINDING, StringType()).add(_VALUE, type_to_spark(fold.into_type))
    # Without Arrow, which would convert timestamps to the time zone of the session.
    judged = F.udf(partial(_judge, fold.type, fold.into_type), result, useArrow=False)
    return judged(_column(fold.column), _column(fold.into))


def _judge(type: DataType, into: DataType, value: Any, old: Any) -> tuple[str, Any] | None:
    return None if value is None else judge_fold(value, type, old, into)


def _text(fold: FoldPlan) -> Column:
    column = _column(fold.column)
    return F.to_json(column) if isinstance(fold.type, ArrayType) else column.cast("string")


def _column(path: Path) -> Column:
    return F.col(format_path(path))
