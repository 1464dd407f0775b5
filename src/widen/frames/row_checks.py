"""Checks of the rows of a table, with Arrow where they are few and a condition is plain enough, else with Spark.

Source: Delta Lake's ADD CONSTRAINT and SYNC IDENTITY, which read every row. Delta Lake supports SET NOT NULL only for
new tables; Widen checks the rows.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

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
from widen.files.arrow_types import one_array
from widen.files.data_reader import find_leaf, plan_local_scan
from widen.files.expressions import find_types, plain_sql, plan_condition
from widen.frames.scan import read_snapshot
from widen.limits import CHANGED_BYTES
from widen.log.file_list import to_adds
from widen.log.snapshot import Snapshot
from widen.model.column_path import Path, format_path, resolve
from widen.model.types import VOID, DataType, Field, StructType
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
from widen.schema.table_state import is_constant, referenced_columns
from widen.spark.engine import (
    LocalSession,
    Session,
    Unsupported,
    as_unsupported,
    ensure_at_most,
    require_spark,
    run_on_engine,
)
from widen.spark.errors import translate_spark_errors
from widen.spark.expression import ensure_deterministic_condition, translate_analysis_errors
from widen.spark.spark_types import DataFrame, F, SparkSession, as_nullable, from_spark, to_spark

_T = TypeVar("_T")

CHECKED_ROWS = "numCheckedRows"
"""The metric of a commit that says how many rows were read to check its operations."""


def check_operations(session: Session, snapshot: Snapshot, operations: Sequence[Operation]) -> dict[str, int]:
    """Check operations: that Spark accepts the defaults, and that all rows allow the rest.

    Args:
        session: Reads the rows in this process, if they are few and Arrow evaluates the conditions, or in a Spark job.

    Returns:
        The metrics of the check for the commit; empty if no rows were read.
    """
    defaults = [operation for operation in operations if isinstance(operation, SetDefault)]
    if defaults:
        ensure_defaults(session, defaults, apply_operations(snapshot.schema, operations))
    checked = row_checks(operations)
    if not checked:
        return {}
    total, *counts = run_on_engine(
        session, lambda _: _count_here(snapshot, checked), lambda spark: _count_on_spark(spark, snapshot, checked)
    )
    for operation, count in zip(checked, counts, strict=True):
        if count:
            raise _violation(operation, count)
    return {CHECKED_ROWS: total}


def _condition(operation: Operation) -> str:
    """Return the condition that every row must fulfil, in SQL."""
    if isinstance(operation, AddConstraint):
        return operation.expression
    assert isinstance(operation, SetNotNull)
    return f"{format_path(operation.path)} IS NOT NULL"


def _violation(operation: Operation, rows: int) -> WidenError:
    if isinstance(operation, AddConstraint):
        return ConstraintViolated(name=operation.name, expression=operation.expression, rows=rows)
    assert isinstance(operation, SetNotNull)
    return NullsInColumn(column=format_path(operation.path), rows=rows)


# The next write would refuse a row where a condition is null, so such rows count as violations.


def _count_on_spark(spark: SparkSession, snapshot: Snapshot, operations: Sequence[Operation]) -> list[int]:
    """Return how many rows there are, and how many break each operation's condition."""
    rows = read_snapshot(spark, snapshot.store, snapshot)
    for operation in operations:
        if isinstance(operation, AddConstraint):
            _ensure_condition(rows, operation)
    broken = [~F.coalesce(F.expr(_condition(operation)), F.lit(0) == F.lit(1)) for operation in operations]
    with translate_spark_errors():
        return list(map(int, rows.agg(F.count("*"), *map(F.count_if, broken)).collect()[0]))


@as_unsupported(pa.ArrowException)
def _count_here(snapshot: Snapshot, operations: Sequence[Operation]) -> list[int]:
    """Return the same, counted with Arrow."""
    texts = [plain_sql(_condition(operation)) for operation in operations]
    tests = [plan_condition(text, snapshot.schema) for text in texts]
    counts = [0] * (1 + len(texts))
    names = {path[0] for text in texts for path in referenced_columns(text, snapshot.schema)}
    for positions, rows in _read_here(snapshot, names):
        counts[0] += len(positions)
        for number, test in enumerate(tests, 1):
            counts[number] += len(positions) - one_array(test(rows)).true_count
    return counts


def _read_here(snapshot: Snapshot, names: Collection[str]) -> Iterator[tuple[pa.Array, pa.Table]]:
    """Yield rows with some columns, and their positions in their file."""
    files = snapshot.files()
    ensure_at_most(pc.sum(files["size_bytes"]).as_py() or 0, CHANGED_BYTES)
    columns = StructType(tuple(field for field in snapshot.schema if field.name in names))
    scan = replace(plan_local_scan(snapshot), schema=columns)
    with as_unsupported(pa.ArrowException):
        for add in to_adds(files):
            yield from scan.read_located(add)


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


def ensure_defaults(session: Session, defaults: Sequence[SetDefault], schema: StructType) -> None:
    """Check that defaults are constants of a type that their columns accept, without running a job.

    Raises:
        InvalidDefault: a default is not a constant, its type cannot be assigned to the column, or it is too long.

    Source: Spark's DEFAULT clause, which allows what can be assigned without an explicit cast.
    """
    for default in defaults:
        column_type, expression = resolve(schema, default.path)[1], default.expression
        limit = text_limit(resolve(declared_schema(schema), default.path)[1])
        default_type, length = run_on_engine(
            session,
            partial(_evaluate_here, expression, has_limit=limit is not None),
            partial(_evaluate_on_spark, default, has_limit=limit is not None),
        )
        reason = None
        if (
            default_type not in (column_type, VOID)
            and str(default_type) != str(column_type)
            and not can_assign(default_type, column_type)
        ):
            reason = f"its type is {default_type.sql}, but the column is {column_type.sql}"
        # No row that takes a longer default could be written. Spark's CREATE TABLE refuses it; ALTER COLUMN does not.
        elif limit is not None and length is not None and length > limit[1]:
            declared = resolve(declared_schema(schema), default.path)[1]
            reason = f"its value has {length} characters, but the column is {declared.sql}"
        if reason is not None:
            raise InvalidDefault(column=format_path(default.path), expression=expression, reason=reason)


@as_unsupported(pa.ArrowException)
def _evaluate_here(expression: str, _: LocalSession, *, has_limit: bool) -> tuple[DataType, int | None]:
    """Return the type of a constant, and its length if its column has a limit.

    Raises:
        Unsupported: only Spark evaluates it.
    """
    if has_limit:
        raise Unsupported("it looks at the length of a default")
    return find_types(StructType(()), {"it": plain_sql(expression)})["it"], None


def _evaluate_on_spark(default: SetDefault, spark: SparkSession, *, has_limit: bool) -> tuple[DataType, int | None]:
    """Return the same; a default that is not a constant is refused."""
    expression = default.expression
    try:
        ensure_deterministic_condition(spark.range(1), F.expr(expression).isNull())
        with translate_analysis_errors(expression):
            found = from_spark(spark.range(1).select(F.expr(expression).alias("it")).schema).fields[0].type
    except (InvalidCondition, NotDeterministic) as error:
        reason = error.message.rstrip(".")
        raise InvalidDefault(column=format_path(default.path), expression=expression, reason=reason) from error
    if not has_limit:
        return found, None
    with translate_spark_errors():  # one row without a table is computed without a job
        return found, spark.sql("SELECT 1").select(F.length(F.expr(expression))).collect()[0][0]


def column_bound(session: Session, snapshot: Snapshot, path: Path, *, is_lowest: bool) -> int | None:
    """Return the highest or the lowest value of an integer column; None if the column has no values."""

    @as_unsupported(pa.ArrowException)
    def find_here(_: LocalSession) -> int | None:
        bounds = (pc.min_max(find_leaf(rows, path)).as_py() for _, rows in _read_here(snapshot, {path[0]}))
        found = [each["min" if is_lowest else "max"] for each in bounds if each["max"] is not None]
        return (min if is_lowest else max)(found, default=None)

    def find_on_spark(spark: SparkSession) -> int | None:
        column = F.col(format_path(path))
        rows = read_snapshot(spark, snapshot.store, snapshot)
        with translate_spark_errors():
            bound = rows.agg(F.min(column) if is_lowest else F.max(column)).collect()[0][0]
        return None if bound is None else int(bound)

    return run_on_engine(session, find_here, find_on_spark)


# Check the expressions of defaults and generated columns of a new table.
#
# Source: PROTOCOL.md#generated-columns, #default-columns; Delta Lake's CREATE TABLE.


def ensure_expressions_valid(session: Session, schema: StructType) -> None:
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
    ensure_defaults(session, defaults, schema)
    generated = [field for field in schema if GENERATION in field.metadata]
    if not generated:
        return
    spark = require_spark(session, "it checks the expression of a generated column")
    base_columns = StructType(tuple(field for field in schema if GENERATION not in field.metadata))
    rows = spark.createDataFrame([], to_spark(as_nullable(base_columns)))
    for field in generated:
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
