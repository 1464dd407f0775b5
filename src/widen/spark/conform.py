"""Columns of a DataFrame in the shape, the types and the names in which a table writes them.

Source: PROTOCOL.md#column-mapping, #column-invariants (nullability)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from widen.model.path import ELEMENT, VALUE, Path, format_path
from widen.model.type import VOID, ArrayType, DataType, MapType, StructType, quoted
from widen.protocol.action import Metadata, Protocol
from widen.protocol.mapping import NONE, mapping_mode, to_physical
from widen.spark.failure import NULL_REFUSED
from widen.spark.schema import from_spark, relaxed, type_to_spark, with_field_ids

Check: TypeAlias = Callable[[Column], Column]


def conformed(frame: DataFrame, schema: StructType, protocol: Protocol, metadata: Metadata) -> DataFrame:
    """Return the rows as they go to files: physical names, the types of the table, partition columns as text.

    The frame must fit the schema, as `widen.planning.merge.merge` judges it; what it lacks is null. A row that has null
    where the table forbids it fails the job.

    Args:
        frame: Columns in any order, names in any case.
        schema: Of the table, in logical names, with all metadata.
        protocol: Of the table.
        metadata: Of the table; its schema string is not looked at.

    Raises:
        CorruptLog: the schema breaks the rules of column mapping.
    """
    mode = mapping_mode(metadata.configuration, protocol)
    incoming = from_spark(frame.schema)
    physical = relaxed(with_field_ids(to_physical(schema, mode)))
    columns = []
    for field, stored in zip(schema.fields, physical.fields, strict=True):
        if field.type == VOID:
            continue
        known = incoming.find(field.name)
        have = known.type if known else VOID
        column = _shaped(F.col(quoted(known.name)) if known else F.lit(None), have, field.type)
        if not (field.nullable and is_open(field.type)):
            column = _checked(column, field.name, field.type, nullable=field.nullable)
        if field.name in metadata.partition_columns:
            column = partition_text(column, field.type)
        elif mode != NONE:
            column = column.cast(type_to_spark(stored.type))
        columns.append(column.alias(stored.name, metadata=dict(stored.metadata)))
    return frame.select(*columns)


def _shaped(column: Column, have: DataType, want: DataType) -> Column:
    """Return a column of one shape and type in another one: fields by name, what is missing as null."""
    if _is_same(have, want):
        return column
    match have, want:
        case StructType(), StructType():
            return _reshaped_struct(column, have, want)
        case ArrayType(), ArrayType():
            return F.transform(column, lambda item: _shaped(item, have.element, want.element))
        case MapType(), MapType():
            keyed = column
            if not _is_same(have.key, want.key):
                keyed = F.transform_keys(column, lambda key, _: _shaped(key, have.key, want.key))
            return F.transform_values(keyed, lambda _, value: _shaped(value, have.value, want.value))
    return column.cast(type_to_spark(want))


def _reshaped_struct(column: Column, have: StructType, want: StructType) -> Column:
    parts = []
    for field in want:
        known = have.find(field.name)
        if known is None:
            part = F.lit(None).cast(type_to_spark(field.type))
        else:
            part = _shaped(column.getField(known.name), known.type, field.type)
        parts.append(part.alias(field.name))
    return F.when(column.isNotNull(), F.struct(*parts))


def _is_same(have: DataType, want: DataType) -> bool:
    """Tell whether two types are equal but for nullability and metadata."""
    return str(have) == str(want)


def is_open(data_type: DataType) -> bool:
    """Tell whether everything inside a type may be null."""
    match data_type:
        case StructType(fields):
            return all(field.nullable and is_open(field.type) for field in fields)
        case ArrayType(element, contains_null):
            return contains_null and is_open(element)
        case MapType(_, value, contains_null):
            return contains_null and is_open(value)
    return True


def _checked(column: Column, name: str, data_type: DataType, *, nullable: bool) -> Column:
    """Return a column that fails the job where it is null against the schema."""
    spark_type = type_to_spark(data_type)
    if not nullable:
        column = F.coalesce(column, _refusal((name,)).cast(spark_type))
    for path, broken in _violations(data_type, (name,)):
        column = F.when(broken(column), _refusal(path).cast(spark_type)).otherwise(column)
    return column


def _refusal(path: Path) -> Column:
    return F.raise_error(F.lit(f"{NULL_REFUSED}:{format_path(path)}:END"))


def _violations(data_type: DataType, at: Path) -> Iterator[tuple[Path, Check]]:
    """Yield for everything inside a type that must not be null where it stands, and how to see that it is."""
    match data_type:
        case StructType(fields):
            for field in fields:
                path, inside = (*at, field.name), partial(_field, field.name)
                if not field.nullable:
                    yield path, partial(_lacks, inside)
                for below, broken in _violations(field.type, path):
                    yield below, partial(_within, inside, broken)
        case ArrayType(element, contains_null):
            yield from _item_violations(_itself, element, (*at, ELEMENT), nullable=contains_null)
        case MapType(_, value, contains_null):
            yield from _item_violations(F.map_values, value, (*at, VALUE), nullable=contains_null)


def _item_violations(items: Check, data_type: DataType, at: Path, *, nullable: bool) -> Iterator[tuple[Path, Check]]:
    if not nullable:
        yield at, lambda column: F.exists(items(column), F.isnull)
    for path, broken in _violations(data_type, at):
        yield path, partial(_some, items, broken)


def _field(name: str, column: Column) -> Column:
    return column.getField(name)


def _itself(column: Column) -> Column:
    return column


def _lacks(inside: Check, column: Column) -> Column:
    return column.isNotNull() & inside(column).isNull()


def _within(inside: Check, broken: Check, column: Column) -> Column:
    return broken(inside(column))


def _some(items: Check, broken: Check, column: Column) -> Column:
    return F.exists(items(column), lambda item: broken(item))


def partition_text(column: Column, data_type: DataType) -> Column:
    """Return the values of a partition column as the log writes them; a timestamp in UTC, so that no zone matters.

    Source: PROTOCOL.md#partition-value-serialization
    """
    if str(data_type) != "timestamp":
        return column.cast("string")
    micros = F.unix_micros(column).cast("decimal(20,0)") / F.lit(1_000_000).cast("decimal(7,0)")
    moment = F.lit("1970-01-01 00:00:00").cast("timestamp_ntz") + F.make_dt_interval(secs=micros.cast("decimal(18,6)"))
    return F.concat(F.replace(moment.cast("string"), F.lit(" "), F.lit("T")), F.lit("Z"))
