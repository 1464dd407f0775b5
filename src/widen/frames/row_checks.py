"""Checks of rows: over all rows of a table with Spark, and of new rows with Arrow where a condition is plain enough.

Source: Delta Lake's ADD CONSTRAINT and SYNC IDENTITY, which read every row. Delta Lake supports SET NOT NULL only for
new tables; Widen checks the rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from widen.errors import (
    ConstraintNotBoolean,
    ConstraintViolated,
    InvalidCondition,
    InvalidConstraint,
    InvalidDefault,
    InvalidGeneration,
    NotDeterministic,
    NullsInColumn,
    WidenError,
)
from widen.frames.scan import read_snapshot
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot
from widen.model.column_path import Path, format_path, resolve
from widen.model.types import VOID, Field, StructType
from widen.protocol.column_metadata import (
    DEFAULT,
    GENERATION,
    declared_schema,
    find_default,
    find_generation,
    text_limit,
)
from widen.schema.alter import apply_operations
from widen.schema.growth import can_assign
from widen.schema.operations import AddConstraint, Operation, SetDefault, SetNotNull, row_checks
from widen.schema.table_state import is_constant
from widen.spark.errors import translate_spark_errors
from widen.spark.expression import ensure_deterministic_condition, to_column, translate_analysis_errors
from widen.spark.spark_types import Column, DataFrame, F, SparkSession, as_nullable, from_spark, to_spark

CHECKED_ROWS = "numCheckedRows"
"""The metric of a commit that says how many rows were read to check its operations."""


def check_operations(
    spark: SparkSession, store: LogStore, snapshot: Snapshot, operations: Sequence[Operation]
) -> dict[str, int]:
    """Check operations with Spark: that it accepts the defaults, and that all rows allow the rest.

    Args:
        snapshot: The version whose rows are read, in one job; none starts if no operation requires it.
        operations: The operations to commit. They are allowed by the schema.

    Returns:
        The metrics of the check for the commit; empty if no rows were read.
    """
    defaults = [operation for operation in operations if isinstance(operation, SetDefault)]
    if defaults:
        ensure_defaults(spark, defaults, apply_operations(snapshot.schema, operations))
    checked = row_checks(operations)
    if not checked:
        return {}
    rows = read_snapshot(spark, store, snapshot)
    checks = [_ROW_CHECKS[type(operation)](rows, operation) for operation in checked]
    with translate_spark_errors():
        total, *counts = rows.agg(F.count("*"), *(F.count_if(check.violation) for check in checks)).collect()[0]
    for check, count in zip(checks, counts, strict=True):
        if count:
            raise check.error(count)
    return {CHECKED_ROWS: int(total)}


@dataclass(frozen=True, slots=True)
class _RowCheck:
    """A check of every row.

    Args:
        violation: The condition of rows that do not allow the operation.
        error: The error to raise, given how many rows do not.
    """

    violation: Column
    error: Callable[[int], WidenError]


def _check_no_nulls(_: DataFrame, operation: SetNotNull) -> _RowCheck:
    column = format_path(operation.path)
    return _RowCheck(F.col(column).isNull(), lambda count: NullsInColumn(column=column, rows=count))


def _check_constraint(rows: DataFrame, operation: AddConstraint) -> _RowCheck:
    name, expression = operation.name, operation.expression
    _ensure_condition(rows, operation)
    # The next write would refuse a row where the condition is null, so it is also a violation here.
    holds = F.coalesce(to_column(expression), F.lit(0) == F.lit(1))
    return _RowCheck(~holds, lambda count: ConstraintViolated(name=name, expression=expression, rows=count))


_ROW_CHECKS: Mapping[type[Operation], Callable[[DataFrame, Any], _RowCheck]] = {
    SetNotNull: _check_no_nulls,
    AddConstraint: _check_constraint,
}
"""How rows are checked for each operation that requires it, see `widen.schema.operations`."""


def _ensure_condition(rows: DataFrame, operation: AddConstraint) -> None:
    """Check that the condition of a constraint can be analysed and is deterministic."""
    name, expression = operation.name, operation.expression
    try:
        ensure_deterministic_condition(rows, expression)
    except (InvalidCondition, NotDeterministic) as error:
        reason = error.message.rstrip(".")
        if "NOT_BOOLEAN" in str(error.__cause__):
            raise ConstraintNotBoolean(name=name, expression=expression, reason=reason) from error
        raise InvalidConstraint(name=name, expression=expression, reason=reason) from error


def ensure_defaults(spark: SparkSession, defaults: Sequence[SetDefault], schema: StructType) -> None:
    """Check that defaults are constants of a type that their columns accept, without running a job.

    Args:
        schema: The schema of the table afterwards.

    Raises:
        InvalidDefault: a default is not a constant, its type cannot be assigned to the column, or it is too long.

    Source: Spark's DEFAULT clause, which allows what can be assigned without an explicit cast.
    """
    for default in defaults:
        column_type, expression = resolve(schema, default.path)[1], default.expression
        try:
            ensure_deterministic_condition(spark.range(1), F.expr(expression).isNull())
            with translate_analysis_errors(expression):
                default_type = from_spark(spark.range(1).select(F.expr(expression).alias("it")).schema).fields[0].type
        except (InvalidCondition, NotDeterministic) as error:
            reason = error.message.rstrip(".")
            raise InvalidDefault(column=format_path(default.path), expression=expression, reason=reason) from error
        if (
            default_type not in (column_type, VOID)
            and str(default_type) != str(column_type)
            and not can_assign(default_type, column_type)
        ):
            reason = f"its type is {default_type.sql}, but the column is {column_type.sql}"
            raise InvalidDefault(column=format_path(default.path), expression=expression, reason=reason)
        _ensure_short_enough(spark, default, schema)


def _ensure_short_enough(spark: SparkSession, default: SetDefault, schema: StructType) -> None:
    """Check that a default is not too long for its column: no row that takes it could be written.

    Source: Spark's CREATE TABLE; it accepts such a default in ALTER COLUMN, and with spaces at the end.
    """
    column_type = resolve(declared_schema(schema), default.path)[1]
    limit = text_limit(column_type)
    if limit is None:
        return
    with translate_spark_errors():  # one row without a table is computed without a job
        length = spark.sql("SELECT 1").select(F.length(F.expr(default.expression))).collect()[0][0]
    if length is not None and length > limit[1]:
        reason = f"its value has {length} characters, but the column is {column_type.sql}"
        raise InvalidDefault(column=format_path(default.path), expression=default.expression, reason=reason)


def column_bound(
    spark: SparkSession, store: LogStore, snapshot: Snapshot, path: Path, *, is_lowest: bool
) -> int | None:
    """Return the highest or the lowest value of an integer column; None if the column has no values.

    Args:
        is_lowest: Whether to return the lowest value.
    """
    column = F.col(format_path(path))
    with translate_spark_errors():
        bound = read_snapshot(spark, store, snapshot).agg(F.min(column) if is_lowest else F.max(column)).collect()[0][0]
    return None if bound is None else int(bound)


# Check the expressions of defaults and generated columns of a new table.
#
# Source: PROTOCOL.md#generated-columns, #default-columns; Delta Lake's CREATE TABLE.


def ensure_expressions_valid(spark: SparkSession, schema: StructType) -> None:
    """Check the defaults and the generated columns of a new table, without running a job.

    Raises:
        InvalidDefault: a default is not a constant, or its type cannot be assigned to the column.

    Source: PROTOCOL.md#generated-columns (the value of every row must equal the value of the expression)
    """
    for field in schema:
        default = find_default(field)
        if default is not None and not is_constant(default):
            reason = "it is not a constant: it cannot be parsed, or it uses columns or tables"
            raise InvalidDefault(column=field.name, expression=default, reason=reason)
    defaults = [SetDefault((field.name,), field.metadata[DEFAULT]) for field in schema if DEFAULT in field.metadata]
    ensure_defaults(spark, defaults, schema)
    base_columns = StructType(tuple(field for field in schema if GENERATION not in field.metadata))
    rows = spark.createDataFrame([], to_spark(as_nullable(base_columns)))
    for field in schema:
        if GENERATION in field.metadata:
            _ensure_generation(rows, field)


_QUOTED = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`(?:[^`]|``)*`", re.DOTALL)
_SUBQUERY = re.compile(r"\bSELECT\b", re.IGNORECASE)
_OF_THE_MOMENT = re.compile(
    r"\b(?:current_\w+|now|localtimestamp|curdate|user|session_user)\b(?:\s*\(\s*\))?|\bunix_timestamp\s*\(\s*\)",
    re.IGNORECASE,
)
"""Functions that Spark calls deterministic, since they have one value in one query."""


def _ensure_generation(rows: DataFrame, field: Field) -> None:
    expression = find_generation(field) or ""

    def refusal(reason: object) -> InvalidGeneration:
        return InvalidGeneration(column=field.name, expression=expression, reason=reason)

    words = _QUOTED.sub(" ", expression)
    if _SUBQUERY.search(words):
        raise refusal("it has a subquery")
    columns = {name.lower() for name in rows.columns}
    for moment in _OF_THE_MOMENT.findall(words):
        if moment.lower() not in columns:
            raise refusal(f"{moment} has another value at another time or for another user")
    try:
        ensure_deterministic_condition(rows, F.expr(expression).isNull())
        with translate_analysis_errors(expression):
            result = from_spark(rows.select(F.expr(expression).alias("it")).schema).fields[0].type
    except NotDeterministic as error:
        raise refusal("it may give different results for the same row") from error
    except InvalidCondition as error:
        raise refusal(error.fields["reason"]) from error
    if result.sql != field.type.sql:
        raise refusal(f"its type is {result.sql}, but the column is {field.type.sql}")


# Conditions on new rows that tasks check with Arrow: comparisons of columns with constants.
#
# Source: PROTOCOL.md#check-constraints, #column-invariants; Delta Lake, which refuses a row where one is null
