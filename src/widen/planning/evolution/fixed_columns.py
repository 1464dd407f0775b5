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
from widen.protocol.column_metadata import find_identity, is_computed


def find_fixed_columns(state: TableState) -> Mapping[Path, FixedColumn]:
    """Return the fixed columns with the reason, by path with steps into arrays and maps.

    A column that a CHECK constraint or an invariant references keeps its type too, since the condition was written for
    values of that type.

    Raises:
        CorruptLog: an invariant cannot be parsed.
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
            old.takes_values and new.takes_values,
        )
    return columns


def _reasons(state: TableState) -> Iterator[tuple[Path, FixedColumn]]:
    for name in state.metadata.partition_columns:
        yield (name,), FixedColumn(name, "a partition column")
    for path, field in fields(state.schema):
        if not field.nullable:
            # The table fills a computed column itself, so a record need not have it.
            yield path, FixedColumn(field.name, "NOT NULL", is_required=not is_computed(field))
        identity = find_identity(field)
        if identity is not None:
            takes_values = identity.allows_explicit
            reason = "an identity column" if takes_values else "GENERATED ALWAYS AS IDENTITY"
            yield path, FixedColumn(field.name, reason, can_widen=False, takes_values=takes_values)
    for name, text in row_conditions(state.schema, state.protocol, state.properties):
        for path in sorted(referenced_columns(text, state.schema)):
            if find_field(state.schema, path) is not None:
                yield path, FixedColumn(path[-1], f"referenced by the {name}", can_widen=False)
