"""The fixed columns of a Delta table, which ingestion must not reroute: partition, NOT NULL, and CHECK columns.

Source: docs/evolution-rules.md#d12; PROTOCOL.md#column-invariants, #check-constraints
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from widen.evolution.policy import FixedColumn
from widen.model.column_path import Path, fields, find_field, format_path, is_struct_path
from widen.model.types import StructType
from widen.protocol.column_metadata import find_generation, find_identity, is_computed
from widen.protocol.table_features import default_columns
from widen.schema.table_state import TableState, referenced_columns, row_conditions


def find_fixed_columns(state: TableState) -> Mapping[Path, FixedColumn]:
    """Return the fixed columns with the reason, by path with steps into arrays and maps.

    A column that a CHECK constraint or an invariant references keeps its type too, since the condition was written for
    values of that type.
    """
    columns: dict[Path, FixedColumn] = {}
    for path, new in _reasons(state):
        # A column may be fixed for several reasons, and the strictest of each applies.
        old = columns.get(path, FixedColumn(path[-1], ""))
        columns[path] = FixedColumn(
            path[-1],
            f"{old.reason} and {new.reason}" if old.reason else new.reason,
            old.can_widen and new.can_widen,
            old.is_required or new.is_required,
            old.is_filled or new.is_filled,
            old.takes_values and new.takes_values,
        )
    return columns


def find_kept_types(schema: StructType) -> frozenset[Path]:
    """Return the columns that generated columns are computed from: Delta Lake refuses to change their types.

    Source: PROTOCOL.md#generated-columns; docs/evolution-rules.md#d1
    """
    generations = filter(None, (find_generation(column) for column in schema))
    return frozenset(path for text in generations for path in referenced_columns(text, schema))


def _nullable_parents(schema: StructType, path: Path) -> Iterator[Path]:
    """Yield the structs around a field, outside lists and maps, that the schema allows to be null."""
    for end in range(1, len(path)):
        parent = find_field(schema, path[:end])
        if is_struct_path(schema, path) and parent is not None and parent.nullable:
            yield path[:end]


def _reasons(state: TableState) -> Iterator[tuple[Path, FixedColumn]]:
    for name in state.metadata.partition_columns:
        yield (name,), FixedColumn(name, "a partition column")
    for path, column in fields(state.schema):
        if not column.nullable:
            # The table fills a computed column itself, so a record need not have it; of a default it may not say null.
            has_default = path == (column.name,) and column.name in default_columns(state.schema, state.protocol)
            is_required = has_default or not is_computed(column)
            yield path, FixedColumn(column.name, "NOT NULL", is_required=is_required, is_filled=has_default)
            for parent in _nullable_parents(state.schema, path):
                # Delta Lake takes a null struct for a null in each of its fields.
                yield parent, FixedColumn(parent[-1], f"{format_path(path)} is NOT NULL", is_required=True)
        identity = find_identity(column)
        if identity is not None:
            takes_values = identity.allows_explicit
            reason = "an identity column" if takes_values else "GENERATED ALWAYS AS IDENTITY"
            yield path, FixedColumn(column.name, reason, can_widen=False, takes_values=takes_values)
    for name, text in row_conditions(state.schema, state.protocol, state.properties):
        for path in sorted(referenced_columns(text, state.schema)):
            if find_field(state.schema, path) is not None:
                yield path, FixedColumn(path[-1], f"referenced by the {name}", can_widen=False)
