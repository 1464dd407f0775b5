"""Rows of a DataFrame in the physical layout of a table's files.

Source: PROTOCOL.md#column-mapping, #partition-value-serialization
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from widen.model.column_path import as_nullable
from widen.model.types import ArrayType, DataType, MapType, StructType, quote_name
from widen.protocol.actions import Metadata, Protocol
from widen.protocol.column_mapping import NONE, mapping_mode, to_physical
from widen.protocol.void_columns import without_void
from widen.spark.spark_types import type_to_spark, with_field_ids
from widen.spark.write.missing_columns import cast_to_table_type, fill_missing_columns
from widen.spark.write.row_constraints import check_rows


def to_physical_layout(frame: DataFrame, schema: StructType, protocol: Protocol, metadata: Metadata) -> DataFrame:
    """Return rows in the layout of files: physical names, the types of the table, partition columns as text.

    Missing columns are filled in. A row that violates a rule of the table fails the job.

    Args:
        frame: Columns in any order, with names in any case, which `schema_merge.merge_schema` has accepted.
        schema: The schema of the table, in logical names, with all metadata.
        metadata: The metadata of the table; its schema string is not used.

    Raises:
        CorruptLog: the schema violates the rules of column mapping, or an invariant cannot be parsed.
    """
    mode = mapping_mode(metadata.configuration, protocol)
    rows = to_checked_rows(frame, schema, protocol, metadata)
    kept = without_void(schema)
    physical = as_nullable(with_field_ids(to_physical(kept, mode)))
    types = {field.name: field.type for field in schema}
    columns = []
    for field, stored in zip(kept, physical, strict=True):
        column = cast_to_table_type(F.col(quote_name(field.name)), types[field.name], field.type, (field.name,))
        if field.name in metadata.partition_columns:
            column = partition_text(column, field.type)
        elif mode != NONE:
            column = column.cast(type_to_spark(stored.type))
        columns.append(column.alias(stored.name, metadata=dict(stored.metadata)))
    return rows.select(*columns)


def to_checked_rows(frame: DataFrame, schema: StructType, protocol: Protocol, metadata: Metadata) -> DataFrame:
    """Return rows in the names and types of the table, with missing columns filled in and all rules checked.

    The arguments are those of `to_physical_layout`.

    Raises:
        CorruptLog: an invariant cannot be parsed.
    """
    return check_rows(fill_missing_columns(frame, schema, protocol), schema, protocol, metadata.configuration)


def is_fully_nullable(data_type: DataType) -> bool:
    """Tell whether everything inside a type is nullable."""
    match data_type:
        case StructType(fields):
            return all(field.nullable and is_fully_nullable(field.type) for field in fields)
        case ArrayType(element, contains_null):
            return contains_null and is_fully_nullable(element)
        case MapType(_, value, contains_null):
            return contains_null and is_fully_nullable(value)
    return True


def partition_text(column: Column, data_type: DataType) -> Column:
    """Return the values of a partition column as texts for the log; timestamps in UTC, independent of time zones.

    Source: PROTOCOL.md#partition-value-serialization
    """
    if str(data_type) != "timestamp":
        return column.cast("string")
    micros = F.unix_micros(column).cast("decimal(20,0)") / F.lit(1_000_000).cast("decimal(7,0)")
    moment = F.lit("1970-01-01 00:00:00").cast("timestamp_ntz") + F.make_dt_interval(secs=micros.cast("decimal(18,6)"))
    return F.concat(F.replace(moment.cast("string"), F.lit(" "), F.lit("T")), F.lit("Z"))
