"""Overwrites: the new schema of a table, and the partitions that a dynamic overwrite replaces.

Source: Delta Lake's overwrites: overwriteSchema, replaceWhere, dynamic partitions
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import msgspec

from widen.errors import (
    ColumnNotFound,
    ConstraintDependsOnColumn,
    NewSchemaInPartitions,
    OverwriteRefused,
    ReplaceWhereInPartitions,
)
from widen.model.column_path import Path, as_nullable, map_fields
from widen.model.column_path import fields as all_fields
from widen.model.types import Field, StructType, name_key
from widen.planning.alter.column_checks import ensure_names_allowed
from widen.planning.alter.metadata_change import ensure_types, with_schema
from widen.planning.evolution.source_metadata import COMMENT
from widen.planning.table.dependent_expressions import check_constraints, dependent_expressions, format_expressions
from widen.planning.table.table_state import TableState
from widen.protocol.actions import Metadata
from widen.protocol.column_mapping import COLUMN_ID, NONE, PHYSICAL_NAME, mapping_mode
from widen.protocol.partition_values import UnknownValue, parse_partition_value
from widen.protocol.skipping.predicate import And, Compare, IsNull, Or, Predicate, UnknownPredicate, to_comparable


def ensure_consistent(*, has_where: bool, has_new_schema: bool, is_dynamic: bool) -> None:
    """Check that the options of an overwrite can be combined.

    Args:
        has_where: Whether it replaces only the rows that satisfy a condition.
        is_dynamic: Whether it replaces only the partitions that the data have rows for.

    Raises:
        ReplaceWhereInPartitions: a condition is combined with dynamic partitions.
        NewSchemaInPartitions: a new schema is combined with dynamic partitions.
        OverwriteRefused: a new schema is combined with a condition.
    """
    if has_where and is_dynamic:
        raise ReplaceWhereInPartitions(
            option="where", other_option="partitions='dynamic'", reason="both select the rows to replace"
        )
    if has_new_schema and is_dynamic:
        reason = "the rows of other partitions stay as they are"
        raise NewSchemaInPartitions(option="overwrite_schema", other_option="partitions='dynamic'", reason=reason)
    if has_new_schema and has_where:
        raise OverwriteRefused(option="overwrite_schema", other_option="where", reason="other rows stay as they are")


def with_new_schema(state: TableState, incoming: StructType) -> Metadata:
    """Return the metadata of a table whose schema is replaced by that of the data.

    All columns become nullable, without type history: no file that was written before stays in the table. Columns that
    stay keep their ids and physical names, so that the change data feed still knows them.

    Raises:
        ColumnNotFound: the data lack a partition column.
        ConstraintDependsOnColumn: a constraint references a column that is dropped or gets another type.
        InvalidColumnName: the name of a column is not allowed.
        FeatureRequired: a type needs a feature that the table does not support.

    Source: Delta Lake's overwriteSchema; PROTOCOL.md#writer-requirements-for-column-mapping
    """
    schema = map_fields(as_nullable(incoming), partial(_new_field, _mapped_fields(state)))
    partition_names = []
    for name in state.metadata.partition_columns:
        column = schema.find(name)
        if column is None:
            raise ColumnNotFound(column=name, available=", ".join(schema.names))
        partition_names.append(column.name)
    for field in state.schema:
        current_field = schema.find(field.name)
        dependents = dependent_expressions((field.name,), state.schema, check_constraints(state.properties))
        if dependents and (current_field is None or str(current_field.type) != str(field.type)):
            raise ConstraintDependsOnColumn(column=field.name, constraints=format_expressions(dependents))
    ensure_names_allowed(schema.fields, state.properties)
    ensure_types(state, schema)
    return msgspec.structs.replace(with_schema(state, schema), partition_columns=tuple(partition_names))


def _mapped_fields(state: TableState) -> dict[Path, Field]:
    """Return the fields of a table with column mapping, by the keys of their paths."""
    is_mapped = mapping_mode(state.properties, state.protocol) != NONE
    return {tuple(map(name_key, path)): field for path, field in all_fields(state.schema)} if is_mapped else {}


def _new_field(known: Mapping[Path, Field], path: Path, field: Field) -> Field:
    old = known.get(tuple(map(name_key, path)))
    kept = {} if old is None else {key: old.metadata[key] for key in (COLUMN_ID, PHYSICAL_NAME) if key in old.metadata}
    return field.only_metadata(COMMENT).with_metadata(**kept)


def partition_predicate(
    schema: StructType, columns: Sequence[str], partitions: Iterable[Sequence[str | None]]
) -> Predicate:
    """Return the condition that holds for the rows of some partitions. Values that cannot be parsed match any value.

    Args:
        partitions: The partition values as text, in the order of the columns; at least one partition.

    Source: PROTOCOL.md#partition-value-serialization
    """
    fields = {field.name: field for field in schema}
    conditions = [
        _combine(And, [_equals(fields[name], text) for name, text in zip(columns, texts, strict=True)])
        for texts in partitions
    ]
    return _combine(Or, conditions)


def _equals(field: Field, text: str | None) -> Predicate:
    value = parse_partition_value(text, field.type)
    if value is None:
        return IsNull((field.name,), field.type)
    constant = value if isinstance(value, UnknownValue) else to_comparable(value, field.type)
    return (
        UnknownPredicate() if isinstance(constant, UnknownValue) else Compare((field.name,), field.type, "=", constant)
    )


def _combine(kind: type[And] | type[Or], parts: list[Predicate]) -> Predicate:
    """Combine conditions into a balanced tree, so that thousands of partitions do not exceed the recursion limit."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return kind(_combine(kind, parts[:middle]), _combine(kind, parts[middle:]))
