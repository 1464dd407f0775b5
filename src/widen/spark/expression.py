"""Conditions and expressions of the caller: texts in Spark SQL or columns, checked before any job runs.

Source: house rule: a condition must say the same of a row whenever it is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from widen.errors import ConditionRefused, NotDeterministic
from widen.errors.foreign import first_line

Expression: TypeAlias = str | Column
"""A value or a condition, in Spark SQL or as a column."""

_NOT_DETERMINISTIC = "INVALID_NON_DETERMINISTIC_EXPRESSIONS"
_SHOWN = re.compile(r"Column<'(.*)'>", re.DOTALL)
_CODE = re.compile(r"^\[[\w.]+\]\s*")


def to_column(expression: Expression) -> Column:
    """Return an expression as a column."""
    return F.expr(expression) if isinstance(expression, str) else expression


def to_text(expression: Expression) -> str:
    """Return an expression as people read it, e.g. in the history."""
    if isinstance(expression, str):
        return expression
    shown = _SHOWN.fullmatch(str(expression))
    return shown[1] if shown else str(expression)


def ensure_deterministic_condition(rows: DataFrame, condition: Expression) -> None:
    """Check that a condition can be asked of rows, and always says the same of the same row.

    Args:
        rows: With the columns that it may name.
        condition: The condition.

    Raises:
        NotDeterministic: it may say something else the next time.
        ConditionRefused: it names a column that is not there, is not true or false, or is no condition at all.

    Source: Delta Lake: DELTA_NON_DETERMINISTIC_FUNCTION_NOT_SUPPORTED.
    """
    # In joins Spark takes no other conditions; nothing runs, the join is only analysed.
    with translate_analysis_errors(condition):
        _ = rows.join(rows.sparkSession.range(1).select(F.lit(1).alias("__widen_one")), to_column(condition)).schema


@contextmanager
def translate_analysis_errors(expression: Expression) -> Iterator[None]:
    """Raise an error of ours in place of what Spark raises when it looks at an expression.

    Raises:
        NotDeterministic: it may say something else the next time.
        ConditionRefused: Spark cannot use it.
    """
    try:
        yield
    except PySparkException as error:
        if (error.getCondition() or "").startswith(_NOT_DETERMINISTIC):
            raise NotDeterministic(condition=to_text(expression)) from error
        reason = _CODE.sub("", first_line(error)).partition(" SQLSTATE")[0].rstrip(". ")
        raise ConditionRefused(condition=to_text(expression), reason=reason) from error
