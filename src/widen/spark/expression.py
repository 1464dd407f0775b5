"""Conditions and expressions of the caller, as Spark SQL or columns, checked before any job runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from widen.errors import InvalidCondition, NotDeterministic
from widen.errors.tables import first_line
from widen.spark.spark_types import Column, DataFrame, F, PySparkException, spark_errors

Expression: TypeAlias = str | Column
"""A value or a condition, in Spark SQL or as a column."""

_NOT_DETERMINISTIC = "INVALID_NON_DETERMINISTIC_EXPRESSIONS"
_SHOWN = re.compile(r"Column<'(.*)'>", re.DOTALL)
_CODE = re.compile(r"^\[[\w.]+\]\s*")
_OWN_COLUMN = re.compile(r", `__widen_\w+`")


def to_column(expression: Expression) -> Column:
    """Return an expression as a column."""
    return F.expr(expression) if isinstance(expression, str) else expression


def expression_text(expression: Expression) -> str:
    """Return an expression as readable text, e.g. for the history."""
    if isinstance(expression, str):
        return expression
    shown = _SHOWN.fullmatch(str(expression))
    return shown[1] if shown else str(expression)


def join_columns(join: Callable[[Column, Column], Column], columns: Sequence[Column]) -> Column:
    """Return columns joined in their order, as a balanced expression tree.

    Spark walks expressions recursively, so a chain of a thousand operators overflows its stack.
    """
    middle = len(columns) // 2
    return join(join_columns(join, columns[:middle]), join_columns(join, columns[middle:])) if middle else columns[0]


def filter_frame(rows: DataFrame, condition: Expression | None) -> DataFrame:
    """Return the rows that fulfil a condition; all rows without one."""
    if condition is None:
        return rows
    with translate_analysis_errors(condition):
        filtered = rows.filter(condition)
        _ = filtered.schema  # Spark Connect analyses only now
    return filtered


def ensure_deterministic_condition(rows: DataFrame, condition: Expression) -> None:
    """Check that a condition can be evaluated on rows and is deterministic.

    A DML command evaluates its condition more than once; if the results differed, rows could be lost or duplicated.

    Source: Delta Lake: DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED.
    """
    # Spark accepts only deterministic conditions in joins. The join is analysed but never runs.
    with translate_analysis_errors(condition):
        _ = rows.join(rows.sparkSession.range(1).select(F.lit(1).alias("__widen_one")), to_column(condition)).schema


@contextmanager
def translate_analysis_errors(expression: Expression) -> Iterator[None]:
    """Translate the errors that Spark raises while it analyses an expression.

    Raises:
        NotDeterministic: the expression may give different results for the same row.
        InvalidCondition: Spark cannot use it.
    """
    try:
        yield
    except spark_errors() as error:
        if not isinstance(error, PySparkException):
            raise
        if (error.getCondition() or "").startswith(_NOT_DETERMINISTIC):
            raise NotDeterministic(condition=expression_text(expression)) from error
        reason = _OWN_COLUMN.sub("", _CODE.sub("", first_line(error))).partition(" SQLSTATE")[0].rstrip(". ")
        text = expression_text(expression)
        date = _BARE_DATE.search(_QUOTED.sub("", text))
        if date is not None:
            reason += f". {date[0]} without quotes is a subtraction: write DATE '{date[0]}'"
        raise InvalidCondition(condition=text, reason=reason) from error


_BARE_DATE = re.compile(r"(?<![\w.-])\d{4}-\d{1,2}-\d{1,2}(?![\w.-])")
_QUOTED = re.compile(r"""'[^']*'|"[^"]*"|`[^`]*`""")
