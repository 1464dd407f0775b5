"""Convert assigned expressions to columns in the types of the table, whole or field by field.

Source: Delta Lake's UPDATE and MERGE; Spark's ANSI store assignment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import TypeAlias

from widen.errors import AssignedOverflow, CastOverflow
from widen.files.deleted_rows import FILE
from widen.files.expressions import find_types
from widen.frames.physical_layout import cast_to_table_type
from widen.model.column_path import Path
from widen.model.types import DataType, StructType, quote_name
from widen.model.value_classes import dataclass
from widen.protocol.actions import Protocol
from widen.protocol.column_metadata import find_generation
from widen.protocol.table_features import is_supported
from widen.spark.engine import Unsupported
from widen.spark.errors import translate_spark_errors
from widen.spark.expression import Expression, to_column, translate_analysis_errors
from widen.spark.spark_types import Column, DataFrame, F, from_spark, spark_errors, type_to_spark


@dataclass(frozen=True)
class AssignedValue:
    """The value that is assigned to a column.

    Args:
        is_patch: Whether fields that the value lacks keep their old values; otherwise they become null.
    """

    column: Column
    type: DataType
    is_patch: bool = False


def texts_of_columns(given: Mapping[Path, Expression]) -> dict[str, str] | None:
    """Return what Arrow may compute: new values of whole columns in SQL; None if some are not."""
    texts = {path[0]: text for path, text in given.items() if len(path) == 1 and isinstance(text, str)}
    return texts if len(texts) == len(given) else None


def find_assigned_types(schema: StructType, texts: dict[str, str] | None) -> tuple[dict[str, str], dict[str, DataType]]:
    """Return new values of columns, with the types that Spark gives them.

    Raises:
        Unsupported: only Spark computes them.
    """
    if texts is None:
        raise Unsupported("it assigns fields of structs, or columns of Spark")
    return texts, find_types(schema, texts)


def to_assigned_values(rows: DataFrame, expressions: Mapping[Path, Expression]) -> dict[Path, AssignedValue]:
    """Return expressions with their types."""
    columns = {path: to_column(expression) for path, expression in expressions.items()}
    try:
        schema = rows.select(*(column.alias(str(at)) for at, column in enumerate(columns.values()))).schema
    except spark_errors():
        # All expressions are analysed together. Only after a failure each is analysed alone, so that the error names
        # it.
        for expression in expressions.values():
            with translate_analysis_errors(expression):
                _ = rows.select(to_column(expression)).schema
        raise
    types = (field.type for field in from_spark(schema))
    return {
        path: AssignedValue(column, data_type) for (path, column), data_type in zip(columns.items(), types, strict=True)
    }


@contextmanager
def translate_overflow() -> Iterator[None]:
    """Raise the error of an assignment for a value that is out of range.

    Raises:
        AssignedOverflow: instead of CastOverflow.

    Source: Delta Lake: UPDATE and MERGE have their own error.
    """
    try:
        yield
    except CastOverflow as error:
        fields = error.fields
        raise AssignedOverflow(
            column=fields["column"], old=fields["old"], new=fields["new"], value=fields["value"]
        ) from error


def assign_columns(
    schema: StructType, values: Mapping[Path, AssignedValue], old: Callable[[str], Column]
) -> dict[str, Column]:
    """Return the new values of the columns that are assigned, whole or in part.

    Returns:
        The columns by name, without those that have no assignment.
    """
    names = {path[0] for path in values}
    return {
        field.name: _assign_type(field.type, (field.name,), values, old(field.name))
        for field in schema
        if field.name in names
    }


def _assign_type(data_type: DataType, path: Path, values: Mapping[Path, AssignedValue], old: Column) -> Column:
    value = values.get(path)
    if value is not None:
        if value.is_patch:
            return _patch_struct(value, data_type, path, old)
        return cast_to_table_type(value.column, value.type, data_type, path)
    if not isinstance(data_type, StructType) or not any(other[: len(path)] == path for other in values):
        return old
    parts = (_assign_type(f.type, (*path, f.name), values, old.getField(f.name)).alias(f.name) for f in data_type)
    return F.struct(*parts)


def _patch_struct(value: AssignedValue, data_type: DataType, path: Path, old: Column) -> Column:
    """Return a value completed with the old fields that it lacks; null if both values are null.

    Source: Delta Lake's UPDATE SET *
    """
    have = value.type
    if not isinstance(have, StructType) or not isinstance(data_type, StructType) or not _lacks(have, data_type):
        return cast_to_table_type(value.column, have, data_type, path)
    parts = []
    for field in data_type:
        given, before = have.find(field.name), old.getField(field.name)
        if given is not None:
            inner = AssignedValue(value.column.getField(given.name), given.type, is_patch=True)
            before = _patch_struct(inner, field.type, (*path, field.name), before)
        parts.append(before.alias(field.name))
    return F.when(value.column.isNotNull() | old.isNotNull(), F.struct(*parts))


def _lacks(have: StructType, want: StructType) -> bool:
    """Return whether a struct lacks a field of another one, also within nested structs."""
    for field in want:
        given = have.find(field.name)
        if given is None:
            return True
        if isinstance(given.type, StructType) and isinstance(field.type, StructType) and _lacks(given.type, field.type):
            return True
    return False


def recompute_generated_columns(
    rows: DataFrame, schema: StructType, protocol: Protocol, given: Sequence[Collection[str]]
) -> DataFrame:
    """Recompute generated columns in the rows whose clause does not assign them.

    Source: PROTOCOL.md#generated-columns
    """
    generated = {field.name: text for field in schema if (text := find_generation(field))}
    if not generated or not is_supported(protocol, "generatedColumns"):
        return rows
    columns = {}
    for field in schema:
        clauses = [clause for clause, names in enumerate(given) if field.name not in names]
        if field.name in generated and clauses:
            new = F.expr(generated[field.name]).cast(type_to_spark(field.type))
            columns[field.name] = F.when(F.col(CLAUSE).isin(clauses), new).otherwise(F.col(quote_name(field.name)))
    return rows.withColumns(columns) if columns else rows


# Row decisions: additional columns with the change of each row.


CLAUSE, BEFORE = "__widen_clause", "__widen_before"
"""The columns that a decision adds: the number of the clause that changes the row, and the old row."""

RowDecision: TypeAlias = Callable[[DataFrame], DataFrame]
"""Decides the change of each row of `ChangeContext.located`. The result has the new values of the columns, `FILE`
and `ROW` (null for an inserted row), `CLAUSE` (null for an unchanged row), and the struct `BEFORE`."""

ChangeCounts: TypeAlias = dict[str | None, Counter[int]]
"""The number of rows of each clause, by their file; None for inserted rows."""


class ChangeKind(Enum):
    """The kind of change that a clause makes."""

    UPDATE = "update"
    DELETE = "delete"
    INSERT = "insert"


def keep_decided_rows(judged: DataFrame) -> DataFrame:
    """Return the rows that a clause changes."""
    return judged.where(F.col(CLAUSE).isNotNull())


def count_changes(changed: DataFrame) -> ChangeCounts:
    """Count the changed rows by file and clause."""
    counts: ChangeCounts = {}
    with translate_spark_errors():
        for key, clause, count in changed.groupBy(FILE, CLAUSE).count().collect():
            counts.setdefault(key, Counter())[clause] += count
    return counts
