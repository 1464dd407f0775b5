"""The columns of files as the columns of their table: other names, newer types, partition texts.

A struct is changed field by field where that can be, so that Spark still reads only the fields that are asked for.

Source: PROTOCOL.md#column-mapping, #partition-value-serialization, #reader-requirements-for-type-widening
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from pyspark.sql import Column
from pyspark.sql import functions as F

from widen.model.column_path import Path, fields, map_fields, replace_type
from widen.model.types import STRING, VOID, DataType, Field, StructType, quote_name
from widen.protocol.column_mapping import physical_name, to_physical_path
from widen.spark.read.old_decimals import unsafe_decimals
from widen.spark.read.scan_groups import ScanGroup, ScanPlan
from widen.spark.spark_types import as_nullable, type_to_spark, visible_schema

VALUE = "__widen_value_"
"""What the names of joined partition texts begin with."""


@dataclass(frozen=True)
class DataColumn:
    """A column of the table that stands in files.

    Args:
        read: As it is read from them: its name there, and the old type where the files are known to hold it.
        shown: As the table shows it.
        guarded: The leaves below it, in the names of the files, that filters must not reach.
    """

    read: Field
    shown: Field
    guarded: tuple[Path, ...]

    @property
    def is_rebuilt(self) -> bool:
        """Whether the table shows another value than is read."""
        return bool(self.guarded) or self.read.type != self.shown.type


def data_columns(scan: ScanPlan, group: ScanGroup) -> dict[str, DataColumn]:
    """Return the columns that stand in the files of a group, by logical name and in the order of the schema."""
    schema = scan.schema
    for path, old in group.types.items():
        schema = replace_type(schema, path, old)
    named = map_fields(schema, lambda at, f: replace(f, name=group.renamed.get(at) or physical_name(f, scan.mode)))
    read = as_nullable(visible_schema(named))
    unsafe = unsafe_decimals(scan.schema, scan.partition_by) if group.stored is None else ()
    guarded = [path_in_files(scan, group, path) for path in unsafe]
    return {
        shown.name: DataColumn(before, shown, tuple(path[1:] for path in guarded if path[0] == before.name))
        for before, shown in zip(read, as_nullable(visible_schema(scan.schema)), strict=True)
        if shown.name not in scan.partition_by and shown.type != VOID
    }


def path_in_files(scan: ScanPlan, group: ScanGroup, path: Path) -> Path:
    """Return a logical path in the names that the files of a group have.

    Raises:
        CorruptLog: a field on the way lacks its physical name.
    """
    physical = to_physical_path(scan.schema, path, scan.mode)
    return tuple(group.renamed.get(path[: at + 1]) or step for at, step in enumerate(physical))


def projection(scan: ScanPlan, group: ScanGroup) -> list[Column]:
    """Return the columns of the table, made of what is read from the files of a group."""
    stored = data_columns(scan, group)
    columns = []
    for field in visible_schema(scan.schema):
        if field.name in stored:
            column = _convert_data_column(stored[field.name])
        elif field.name in scan.partition_by:
            column = _partition_column(scan, group, field)
        else:
            column = F.lit(None)
        columns.append(column.alias(field.name, metadata=dict(field.metadata)))
    return columns


def from_partition_text(text: Column, data_type: DataType) -> Column:
    """Return what partition texts stand for in a type.

    Source: PROTOCOL.md#partition-value-serialization; Delta Spark: a text that is no value of the type is null.
    """
    return text if data_type == STRING else text.try_cast(type_to_spark(data_type))


def _partition_column(scan: ScanPlan, group: ScanGroup, field: Field) -> Column:
    name = dict(zip(scan.partition_by, scan.physical_partitions, strict=True))[field.name]
    if group.is_hive:
        text = F.col(quote_name(name))
    elif group.values is None:
        text = F.col(quote_name(VALUE + name))
    else:
        text = F.lit(group.values.get(name) or None).cast("string")
    return from_partition_text(text, field.type)


def _convert_data_column(column: DataColumn) -> Column:
    wanted = column.shown.type
    shown = _convert_column(F.col(quote_name(column.read.name)), column.read.type, wanted, column.guarded)
    has_comments = any(field.metadata for _, field in fields(wanted))
    return shown.cast(type_to_spark(wanted)) if column.is_rebuilt and has_comments else shown


def _convert_column(column: Column, have: DataType, want: DataType, guarded: Collection[Path]) -> Column:
    """Return a column of one shape as one of the same shape with other names and types.

    Args:
        column: What is read.
        have: Its type.
        want: The type to return; struct fields correspond by position.
        guarded: The leaves below it, in the names that it has, that filters must not reach.
    """
    if () in guarded:
        return F.greatest(column, column)
    if have == want and not guarded:
        return column
    if not isinstance(have, StructType) or not isinstance(want, StructType) or _is_tangled(have, want):
        return column.cast(type_to_spark(want))
    result, keeps_names = column, have.names == want.names
    for before, after in zip(have, want, strict=True):
        below = [path[1:] for path in guarded if path[0] == before.name]
        if not keeps_names or below or before.type != after.type:
            part = _convert_column(column.getField(before.name), before.type, after.type, below)
            result = result.withField(quote_name(after.name), part)
    return result if keeps_names else result.dropFields(*map(quote_name, have.names))


def _is_tangled(have: StructType, want: StructType) -> bool:
    """Tell whether some names of two structs are the same and others are not, so that no order of changes is right."""
    before, after = ({name.casefold() for name in struct.names} for struct in (have, want))
    return have.names != want.names and bool(before & after)
