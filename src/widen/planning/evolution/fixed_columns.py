"""The fixed columns of a table, which ingestion must not reroute: partition, NOT NULL, and CHECK columns.

Source: docs/evolution-rules.md#d12; PROTOCOL.md#column-invariants, #check-constraints
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from widen.model.column_path import Path, fields, find_field
from widen.planning.evolution.policy import FixedColumn
from widen.planning.table.dependent_expressions import row_conditions
from widen.planning.table.expression_columns import referenced_columns
from widen.planning.table.table_state import TableState


def find_fixed_columns(state: TableState) -> Mapping[Path, FixedColumn]:
    """Return the fixed columns with the reason, by path with steps into arrays and maps.

    A column that a CHECK constraint or an invariant references keeps its type too, since the condition was written for
    values of that type.

    Raises:
        CorruptLog: an invariant cannot be parsed.
    """
    columns: dict[Path, FixedColumn] = {}
    for path, reason, can_widen, is_required in _reasons(state):
        previous = columns.get(path, FixedColumn(path[-1], ""))
        reason = f"{previous.reason} and {reason}" if previous.reason else reason
        columns[path] = FixedColumn(
            path[-1], reason, previous.can_widen and can_widen, previous.is_required or is_required
        )
    return columns


def _reasons(state: TableState) -> Iterator[tuple[Path, str, bool, bool]]:
    for name in state.metadata.partition_columns:
        yield (name,), "a partition column", True, False
    for path, field in fields(state.schema):
        if not field.nullable:
            yield path, "NOT NULL", True, True
    for name, text in row_conditions(state.schema, state.protocol, state.properties):
        for path in sorted(referenced_columns(text, state.schema)):
            if find_field(state.schema, path) is not None:
                yield path, f"referenced by the {name}", False, False
