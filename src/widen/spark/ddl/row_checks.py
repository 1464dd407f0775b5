"""What all rows of a table show: that a column is never null, that they fulfil a condition, how far a column goes.

Source: Delta Lake, which looks at every row for ADD CONSTRAINT and SYNC IDENTITY; null it forbids only in new tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from widen.errors import (
    ConditionRefused,
    ConstraintNotBoolean,
    ConstraintViolated,
    InvalidConstraint,
    InvalidDefault,
    NotDeterministic,
    NullsInColumn,
)
from widen.log.read.snapshot import Snapshot
from widen.log.store.log_store import LogStore
from widen.model.column_path import Path, format_path, resolve
from widen.model.types import VOID, StructType
from widen.planning.table.operation import AddConstraint, SetDefault, SetNotNull
from widen.planning.write.store_assignment import can_assign
from widen.spark.expression import ensure_deterministic_condition, to_column, translate_analysis_errors
from widen.spark.read.scan import read_snapshot
from widen.spark.spark_errors import translate_spark_errors
from widen.spark.spark_types import from_spark

RowOperation: TypeAlias = SetNotNull | AddConstraint
"""The operations that rows can forbid."""


def check_rows_allow(
    spark: SparkSession, store: LogStore, snapshot: Snapshot, operations: Sequence[RowOperation]
) -> int:
    """Check in one job that no row of a table forbids operations, and return how many rows were looked at.

    Args:
        spark: The session.
        store: Of the table.
        snapshot: The version to look at.
        operations: What is to be done.

    Raises:
        NullsInColumn: a column that is to be never null is null.
        ConstraintViolated: rows do not fulfil a condition; where it is null they do not.
        InvalidConstraint: a condition cannot be used.
        JobFailed: Spark could not finish the job.
        CorruptFile: a file cannot be read.
    """
    rows = read_snapshot(spark, store, snapshot)
    wrong = [_wrong(rows, operation) for operation in operations]
    with translate_spark_errors():
        total, *counts = rows.agg(F.count("*"), *map(F.count_if, wrong)).collect()[0]
    for operation, count in zip(operations, counts, strict=True):
        match operation:
            case SetNotNull(path) if count:
                raise NullsInColumn(column=format_path(path), rows=count)
            case AddConstraint(name, expression) if count:
                raise ConstraintViolated(name=name, expression=expression, rows=count)
    return int(total)


def _wrong(rows: DataFrame, operation: RowOperation) -> Column:
    """Return the condition under which a row forbids an operation."""
    match operation:
        case SetNotNull(path):
            return _column(path).isNull()
        case AddConstraint():
            _ensure_condition(rows, operation)
            return ~F.coalesce(to_column(operation.expression), F.lit(0) == F.lit(1))


def _ensure_condition(rows: DataFrame, operation: AddConstraint) -> None:
    """Check that Spark can use a condition, and that it is the same for the same row each time."""
    name, expression = operation.name, operation.expression
    try:
        ensure_deterministic_condition(rows, expression)
    except (ConditionRefused, NotDeterministic) as error:
        reason = error.message.rstrip(".")
        if "NOT_BOOLEAN" in str(error.__cause__):
            raise ConstraintNotBoolean(name=name, expression=expression, reason=reason) from error
        raise InvalidConstraint(name=name, expression=expression, reason=reason) from error


def ensure_defaults(spark: SparkSession, defaults: Sequence[SetDefault], schema: StructType) -> None:
    """Check that defaults are constants that their columns can take; nothing runs.

    Args:
        spark: The session.
        defaults: What is to be set.
        schema: Of the table afterwards.

    Raises:
        InvalidDefault: one is no constant, or of a type that the column cannot take.

    Source: Spark's DEFAULT clause: what may be assigned without a cast of the caller's.
    """
    for default in defaults:
        wanted, expression = resolve(schema, default.path)[1], default.expression
        try:
            ensure_deterministic_condition(spark.range(1), F.expr(expression).isNull())
            with translate_analysis_errors(expression):
                found = from_spark(spark.range(1).select(F.expr(expression).alias("it")).schema).fields[0].type
        except (ConditionRefused, NotDeterministic) as error:
            reason = error.message.rstrip(".")
            raise InvalidDefault(column=format_path(default.path), expression=expression, reason=reason) from error
        if found not in (wanted, VOID) and str(found) != str(wanted) and not can_assign(found, wanted):
            reason = f"it is {found.sql}, and the column {wanted.sql}"
            raise InvalidDefault(column=format_path(default.path), expression=expression, reason=reason)


def column_bound(
    spark: SparkSession, store: LogStore, snapshot: Snapshot, path: Path, *, is_lowest: bool
) -> int | None:
    """Return the highest value of a column of whole numbers, or the lowest; None if there is none.

    Args:
        spark: The session.
        store: Of the table.
        snapshot: The version to look at.
        path: The column.
        is_lowest: Whether to look for the lowest.

    Raises:
        JobFailed: Spark could not finish the job.
        CorruptFile: a file cannot be read.
    """
    column = _column(path)
    with translate_spark_errors():
        found = read_snapshot(spark, store, snapshot).agg(F.min(column) if is_lowest else F.max(column)).collect()[0][0]
    return None if found is None else int(found)


def _column(path: Path) -> Column:
    return F.col(format_path(path))
