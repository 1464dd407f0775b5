"""Rows in the shape and the types of a table, with missing columns filled in.

Source: PROTOCOL.md#default-columns, #generated-columns, #identity-columns; Spark's ANSI store assignment
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from widen.model.column_path import ELEMENT, KEY, VALUE, Path, format_path
from widen.model.types import VOID, ArrayType, DataType, Field, MapType, StructType, quote_name
from widen.protocol.actions import Protocol
from widen.protocol.column_metadata import Identity, find_default, find_generation, find_identity, is_computed
from widen.protocol.table_features import supported_features
from widen.protocol.type_widening import is_widening
from widen.spark.masked_values import show_values
from widen.spark.spark_errors import raise_expression
from widen.spark.spark_types import SparkSession, from_spark, type_to_spark

LANES = "spark.sql.shuffle.partitions"
"""The setting for the number of lanes of identity values, one for each task."""

_ROW_BITS = 33
"""The bits of Spark's monotonically increasing ids that count the rows of one task."""


def fill_missing_columns(frame: DataFrame, schema: StructType, protocol: Protocol) -> DataFrame:
    """Return rows with all columns of a table, in its types, names and order.

    A missing column gets its default, the result of its generation expression, its next identity value, or null. A
    value that is out of range for its column fails the job.

    Args:
        frame: Columns in any order, with names in any case, which `schema_merge.merge_schema` has accepted.
        schema: The schema of the table, in logical names, with all metadata.
        protocol: The protocol of the table: a rule of a column applies only if its feature is supported.

    Source: PROTOCOL.md#default-columns, #generated-columns, #identity-columns
    """
    incoming = from_spark(frame.schema)
    filler = _ColumnFiller(protocol, frame.sparkSession)
    columns, generated = [], {}
    for field in schema:
        source = incoming.find(field.name)
        if source is not None:
            column = cast_to_table_type(F.col(quote_name(source.name)), source.type, field.type, (field.name,))
        else:
            column = filler.fill(field)
            generated.update(filler.generation(field))
        columns.append(column.alias(field.name))
    rows = frame.select(*columns)
    return _with_generated(rows, schema, generated) if generated else rows


def fill_computed_columns(rows: DataFrame, schema: StructType, protocol: Protocol) -> DataFrame:
    """Return rows with a value where a column with a default, an identity or a generated column is null.

    In the records of an ingestion, null and a missing field are the same.

    Args:
        rows: All columns of the table, and maybe others.
        schema: The schema of the table, in logical names, with all metadata.
        protocol: The protocol of the table: a rule of a column applies only if its feature is supported.

    Source: PROTOCOL.md#default-columns, #generated-columns, #identity-columns
    """
    filler = _ColumnFiller(protocol, rows.sparkSession)
    computed = [field for field in schema if is_computed(field)]
    values = {field.name: filler.fill(field) for field in computed}
    expressions = [filler.generation(field) for field in computed]
    generated = {
        field.name: F.expr(text).cast(type_to_spark(field.type))
        for field, texts in zip(computed, expressions, strict=True)
        for text in texts.values()
    }
    for step in filter(None, (values, generated)):  # Spark Connect refuses an empty step
        rows = rows.withColumns({name: F.coalesce(F.col(quote_name(name)), value) for name, value in step.items()})
    return rows


def next_identity_values(
    schema: StructType, protocol: Protocol, spark: SparkSession, names: Collection[str]
) -> dict[str, Column]:
    """Return the next values of some identity columns, unique for each row.

    Source: PROTOCOL.md#identity-columns
    """
    filler = _ColumnFiller(protocol, spark)
    return {field.name: filler.fill(field) for field in schema if field.name in names}


def missing_identities(frame: DataFrame, schema: StructType) -> list[Field]:
    """Return the identity columns that rows lack, so that the table generates their values."""
    incoming = from_spark(frame.schema)
    return [field for field in schema if find_identity(field) and incoming.find(field.name) is None]


class _ColumnFiller:
    """Fills the columns of a table that the data lacks."""

    def __init__(self, protocol: Protocol, spark: SparkSession) -> None:
        self._supported = supported_features(protocol)
        self.lanes = int(str(spark.conf.get(LANES, "200")))

    def generation(self, field: Field) -> dict[str, str]:
        text = find_generation(field) if "generatedColumns" in self._supported else None
        return {} if text is None else {field.name: text}

    def identity(self, field: Field) -> Identity | None:
        return find_identity(field) if "identityColumns" in self._supported else None

    def fill(self, field: Field) -> Column:
        identity = self.identity(field)
        if identity is not None:
            return _identity_values(field, identity, self.lanes)
        return default_value(field, self._supported)


def default_value(field: Field, supported: Collection[str]) -> Column:
    """Return the value of a missing column: its default, or null.

    Source: PROTOCOL.md#default-columns
    """
    default = find_default(field) if "allowColumnDefaults" in supported else None
    value = F.lit(None) if default is None else F.expr(default)
    return value.cast(type_to_spark(field.type))


def _identity_values(field: Field, identity: Identity, lanes: int) -> Column:
    """Return identity values, unique for each row.

    Tasks know nothing of each other, so every task takes the values of its own lane, interleaved with the other lanes
    to leave few gaps. Tasks beyond the number of lanes use values above all lanes.
    """
    task, number = F.spark_partition_id(), F.monotonically_increasing_id()
    row = number.bitwiseAND(F.lit((1 << _ROW_BITS) - 1))
    position = F.when(task < lanes, row * lanes + task).otherwise(number + (lanes << _ROW_BITS))
    high_water_mark = identity.high_water_mark
    last, steps = (identity.start, position) if high_water_mark is None else (high_water_mark, position + 1)
    # An overflow must not wrap around to values that are used already.
    value = F.try_add(F.try_multiply(steps, F.lit(identity.step).cast("bigint")), F.lit(last).cast("bigint"))
    return F.coalesce(value, raise_expression("IDENTITY", {"column": field.name}).cast("bigint"))


def _with_generated(rows: DataFrame, schema: StructType, expressions: Mapping[str, str]) -> DataFrame:
    columns = [
        F.expr(expressions[field.name]).cast(type_to_spark(field.type)).alias(field.name)
        if field.name in expressions
        else F.col(quote_name(field.name))
        for field in schema
    ]
    return rows.select(*columns)


# ---- shape and type --------------------------------------------------------------------------------


def cast_to_table_type(column: Column, have: DataType, want: DataType, path: Path) -> Column:
    """Return a column cast to the type of a table column: struct fields by name, missing fields as null.

    Args:
        want: The type of the table column; a value that it cannot hold fails the job.

    Source: Delta Lake's INSERT, which casts in ANSI mode
    """
    if _is_same(have, want):
        return column
    match have, want:
        case StructType(), StructType():
            return _reshape_struct(column, have, want, path)
        case ArrayType(), ArrayType():
            return F.transform(
                column, lambda item: cast_to_table_type(item, have.element, want.element, (*path, ELEMENT))
            )
        case MapType(), MapType():
            keyed = column
            if not _is_same(have.key, want.key):
                keyed = F.transform_keys(
                    column, lambda key, _: cast_to_table_type(key, have.key, want.key, (*path, KEY))
                )
            return F.transform_values(
                keyed, lambda _, value: cast_to_table_type(value, have.value, want.value, (*path, VALUE))
            )
    if have == VOID or is_widening(have, want):
        return column.cast(type_to_spark(want))
    return _cast_with_check(column, have, want, path)


def _reshape_struct(column: Column, have: StructType, want: StructType, path: Path) -> Column:
    parts = []
    for field in want:
        source = have.find(field.name)
        if source is None:
            part = F.lit(None).cast(type_to_spark(field.type))
        else:
            part = cast_to_table_type(column.getField(source.name), source.type, field.type, (*path, field.name))
        parts.append(part.alias(field.name))
    return F.when(column.isNotNull(), F.struct(*parts))


def _cast_with_check(column: Column, have: DataType, want: DataType, path: Path) -> Column:
    """Return a column cast to another type; a value that it cannot hold fails the job."""
    spark_type = type_to_spark(want)
    result = column.try_cast(spark_type)
    facts = {"column": format_path(path), "old": have.sql, "new": want.sql}
    overflow = raise_expression("CAST", facts, show_values(column, have).cast("string"))
    return F.when(column.isNotNull() & result.isNull(), overflow.cast(spark_type)).otherwise(result)


def _is_same(have: DataType, want: DataType) -> bool:
    """Tell whether two types are equal except for nullability and metadata."""
    return str(have) == str(want)
