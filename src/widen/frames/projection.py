"""The columns of the table, made of the columns of files: other names, newer types, partition texts.

A struct is changed field by field where possible, so that Spark still reads only the fields that a query uses.

Source: PROTOCOL.md#column-mapping, #partition-value-serialization, #reader-requirements-for-type-widening
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from widen.files.scan_groups import ScanGroup, ScanPlan
from widen.model.column_path import Path, fields, is_struct_path, leaves, map_fields, replace_type
from widen.model.types import DOUBLE, FLOAT, STRING, VOID, DataType, Field, StructType, quote_name, similarity_key
from widen.model.value_classes import dataclass
from widen.protocol.column_mapping import physical_name
from widen.protocol.column_metadata import COLLATIONS, char_lengths, respell_declared
from widen.spark.spark_types import Column, F, as_nullable, to_spark, type_to_spark, visible_schema

VALUE = "__widen_value_"
"""The prefix of the columns with joined partition texts."""


@dataclass(frozen=True)
class DataColumn:
    """A column of the table that the files contain.

    Args:
        read: The column in the files: its name there, and the old type if the files are known to have it.
        guarded: The leaves below the column, by their names in the files, that must not get pushed filters.
    """

    read: Field
    shown: Field
    guarded: tuple[Path, ...]

    @property
    def is_rebuilt(self) -> bool:
        """Whether the value in the table differs from the one in the files."""
        return bool(self.guarded) or self.read.type != self.shown.type


def data_columns(scan: ScanPlan, group: ScanGroup) -> dict[str, DataColumn]:
    """Return the columns that the files of a group contain, by logical name and in the order of the schema."""
    schema = scan.schema
    for path, old in group.types.items():
        schema = replace_type(schema, path, old)
    named = map_fields(schema, lambda at, f: replace(f, name=group.renamed.get(at) or physical_name(f, scan.mode)))
    read = as_nullable(visible_schema(respell_declared(named)))
    paths = [*floating_leaves(scan.schema), *(scan.unsafe if group.stored is None else ())]
    guarded = [path_in_files(scan, group, path) for path in paths if path[0] not in scan.partition_by]
    return {
        shown.name: DataColumn(in_file, shown, tuple(path[1:] for path in guarded if path[0] == in_file.name))
        for in_file, shown in zip(read, as_nullable(visible_schema(scan.schema)), strict=True)
        if shown.name not in scan.partition_by and shown.type != VOID
    }


def floating_leaves(schema: StructType) -> list[Path]:
    """Return the paths of the leaves outside lists and maps that may be NaN, which some statistics leave out.

    Source: docs/spark-facts.md#signed-zeros
    """
    return [path for path, leaf in leaves(schema) if leaf in (FLOAT, DOUBLE) and is_struct_path(schema, path)]


def path_in_files(scan: ScanPlan, group: ScanGroup, path: Path) -> Path:
    """Return a logical path in the names of the files of a group."""
    return tuple(group.renamed.get(path[: at + 1]) or step for at, step in enumerate(scan.to_physical(path)))


def projection(scan: ScanPlan, group: ScanGroup) -> list[Column]:
    """Return the columns of the table, made of the columns in the files of a group."""
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


def from_partition_text(text: Column, field: Field) -> Column:
    """Return partition texts as values of a column.

    Source: PROTOCOL.md#partition-value-serialization; Delta Spark: a text that is not a value of the type is null.
    """
    if field.type != STRING:
        return text.try_cast(type_to_spark(field.type))
    length = char_lengths(StructType((field,))).get((field.name,))
    return text if length is None else F.rpad(text, F.greatest(F.length(text), F.lit(length)), F.lit(" "))


def _partition_column(scan: ScanPlan, group: ScanGroup, field: Field) -> Column:
    name = dict(zip(scan.partition_by, scan.physical_partitions, strict=True))[field.name]
    if group.is_hive:
        text = F.col(quote_name(name))
    elif group.values is None:
        text = F.col(quote_name(VALUE + name))
    else:
        text = F.lit(group.values.get(name) or None).cast("string")
    if COLLATIONS in field.metadata:
        return text.cast(to_spark(StructType((field,)))[0].dataType)
    return from_partition_text(text, field)


def _convert_data_column(column: DataColumn) -> Column:
    wanted = column.shown.type
    shown = _convert_column(F.col(quote_name(column.read.name)), column.read.type, wanted, column.guarded)
    # A struct that is rebuilt has lost the metadata of its fields; a cast to its own type brings it back.
    has_comments = any(field.metadata for _, field in fields(wanted))
    return shown.cast(type_to_spark(wanted)) if column.is_rebuilt and has_comments else shown


def _convert_column(column: Column, have: DataType, want: DataType, guarded: Collection[Path]) -> Column:
    """Return a column of one shape as one of the same shape with other names and types.

    Args:
        want: The type to return; struct fields correspond by position.
        guarded: The leaves below the column, by their names in the files, that must not get pushed filters.
    """
    if () in guarded:  # Spark does not push filters through a function, and this one returns its argument
        column, guarded = F.greatest(column, column), ()
    if have == want and not guarded:
        return column
    if not isinstance(have, StructType) or not isinstance(want, StructType) or _is_tangled(have, want):
        return column.cast(type_to_spark(want))
    result, keeps_names = column, have.names == want.names
    for in_file, in_table in zip(have, want, strict=True):
        below = [path[1:] for path in guarded if path[0] == in_file.name]
        if not keeps_names or below or in_file.type != in_table.type:
            part = _convert_column(column.getField(in_file.name), in_file.type, in_table.type, below)
            result = result.withField(quote_name(in_table.name), part)
    return result if keeps_names else result.dropFields(*map(quote_name, have.names))


def _is_tangled(have: StructType, want: StructType) -> bool:
    """Return whether two structs share some names but not all.

    Fields are renamed one after the other, so a new name could collide with an old one that is still there.
    """
    old_names, new_names = ({similarity_key(name) for name in struct.names} for struct in (have, want))
    return have.names != want.names and bool(old_names & new_names)


# Groups: the files of a scan, split by how they have to be read; no engine is involved.
#
# Source: PROTOCOL.md#partition-value-serialization, #deletion-vectors


# Widened columns whose old types a scan has to know file by file.
#
# Spark's Parquet reader converts every old type to the new one. But it pushes the literal of a filter on a widened
# decimal to an old file in the type of that file, without a range check: rows are lost, or the read fails. Of a list
# of integers it checks the first one only, so that NOT IN loses rows of a column that was widened to bigint. And the
# reader takes several times as long as a cast to make a decimal of more than 18 digits. So Widen reads files with
# such a column in the old type and casts, which also lets filters through, and reads all other files directly.
#
# The old types come from the footers and are cached for as long as the schema stays the same. If too many footers
# would have to be opened, the files are read in the new type, and filters on these columns are not pushed to them.
#
# Source: Spark's ParquetFilters and ParquetVectorUpdaterFactory
