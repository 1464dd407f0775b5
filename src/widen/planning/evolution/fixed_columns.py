"""Which columns of a table cannot yield to what comes: those that files are split by, that must not be null, and that
its rules look at.

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
    """Return the columns that cannot yield, by their paths with steps into arrays and maps, and why they cannot.

    A column that a rule looks at keeps its type too, for the rule is about values of that type.

    Raises:
        CorruptLog: an invariant cannot be read.
    """
    found: dict[Path, FixedColumn] = {}
    for path, reason, can_widen, is_required in _reasons(state):
        known = found.get(path, FixedColumn(path[-1], ""))
        reason = f"{known.reason} and {reason}" if known.reason else reason
        found[path] = FixedColumn(path[-1], reason, known.can_widen and can_widen, known.is_required or is_required)
    return found


def _reasons(state: TableState) -> Iterator[tuple[Path, str, bool, bool]]:
    for name in state.metadata.partition_columns:
        yield (name,), "a partition column", True, False
    for path, field in fields(state.schema):
        if not field.nullable:
            yield path, "NOT NULL", True, True
    for name, text in row_conditions(state.schema, state.protocol, state.properties):
        for path in sorted(referenced_columns(text, state.schema)):
            if find_field(state.schema, path) is not None:
                yield path, f"looked at by the {name}", False, False
