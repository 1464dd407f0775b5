"""Check the expressions of defaults and generated columns of a new table.

Source: PROTOCOL.md#generated-columns, #default-columns; Delta Lake's CREATE TABLE.
"""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from widen.errors import InvalidCondition, InvalidDefault, InvalidGeneration, NotDeterministic
from widen.model.types import Field, StructType
from widen.planning.table.expression_columns import is_constant
from widen.planning.table.operation import SetDefault
from widen.protocol.column_metadata import DEFAULT, GENERATION, find_default, find_generation
from widen.spark.ddl.row_checks import ensure_defaults
from widen.spark.expression import ensure_deterministic_condition, translate_analysis_errors
from widen.spark.spark_types import as_nullable, from_spark, to_spark


def has_expressions(schema: StructType) -> bool:
    """Tell whether a column has a default or is generated."""
    return any(key in field.metadata for field in schema for key in (DEFAULT, GENERATION))


def ensure_expressions_valid(spark: SparkSession, schema: StructType) -> None:
    """Check the defaults and the generated columns of a new table, without running a job.

    Raises:
        InvalidDefault: a default is not a constant, or its type cannot be assigned to the column.
        InvalidGeneration: a generation expression cannot be analysed, is not deterministic, or has another type than
            its column.

    Source: PROTOCOL.md#generated-columns (the value of every row must equal that of the expression)
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


def _ensure_generation(rows: DataFrame, field: Field) -> None:
    expression = find_generation(field) or ""

    def refusal(reason: object) -> InvalidGeneration:
        return InvalidGeneration(column=field.name, expression=expression, reason=reason)

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
