"""The expressions of a table that reference its columns: CHECK constraints, invariants and generated columns.

Source: Delta Lake's check of dependent expressions, which runs before a column is renamed, dropped or retyped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from widen.errors import ConstraintDependsOnColumn, GeneratedColumnDependsOnColumn
from widen.model.column_path import Path, fields, format_path
from widen.model.types import StructType
from widen.planning.table.expression_columns import is_referenced, referenced_columns
from widen.planning.table.table_state import TableState
from widen.protocol.actions import Protocol
from widen.protocol.column_metadata import find_generation, find_invariant
from widen.protocol.table_features import is_supported, supported_features
from widen.protocol.table_properties import CONSTRAINT_PREFIX


def ensure_independent(state: TableState, path: Path) -> None:
    """Check that no expression of the table references a column, a field inside it, or a struct around it.

    Raises:
        ConstraintDependsOnColumn: a CHECK constraint references it.
        GeneratedColumnDependsOnColumn: a generated column references it.

    Source: Delta Lake's check of dependent expressions: constraints first; the error lists names and expressions.
    """
    dependents = dependent_expressions(path, state.schema, check_constraints(state.properties))
    if dependents:
        raise ConstraintDependsOnColumn(column=format_path(path), constraints=format_expressions(dependents))
    dependents = dependent_expressions(path, state.schema, generated_columns(state))
    if dependents:
        raise GeneratedColumnDependsOnColumn(column=format_path(path), columns=format_expressions(dependents))


def dependent_expressions(path: Path, schema: StructType, expressions: Mapping[str, str]) -> Mapping[str, str]:
    """Return the expressions that reference a column, a field inside it, or a struct around it."""
    return {name: text for name, text in expressions.items() if is_referenced(path, referenced_columns(text, schema))}


def check_constraints(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return the CHECK constraints of a table, by property key."""
    return {key: text for key, text in properties.items() if key.lower().startswith(CONSTRAINT_PREFIX)}


def constraint_key(name: str) -> str:
    """Return the property key of a constraint. Names of constraints are case-insensitive."""
    return CONSTRAINT_PREFIX + name.lower()


def find_constraint(state: TableState, name: str) -> str | None:
    """Return the property key of a constraint as the table spells it; None if it does not exist."""
    lower_key = constraint_key(name)
    return next((key for key in state.properties if key.lower() == lower_key), None)


def generated_columns(state: TableState) -> Mapping[str, str]:
    """Return the expressions of the generated columns, by column name; empty if the protocol does not support them.

    Source: PROTOCOL.md#generated-columns
    """
    if not is_supported(state.protocol, "generatedColumns"):
        return {}
    generations = {format_path(path): find_generation(field) for path, field in fields(state.schema)}
    return {name: text for name, text in generations.items() if text is not None}


def row_conditions(schema: StructType, protocol: Protocol, properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the conditions that every row must satisfy: a label, e.g. ``constraint positive``, and the expression.

    Args:
        protocol: The protocol of the table. A condition applies only if its feature is supported.

    Raises:
        CorruptLog: an invariant cannot be parsed.

    Source: PROTOCOL.md#column-invariants, #check-constraints
    """
    supported = supported_features(protocol)
    for path, field in fields(schema) if "invariants" in supported else ():
        text = find_invariant(field)
        if text is not None:
            yield f"invariant of column {format_path(path)}", text
    for key, text in check_constraints(properties).items() if "checkConstraints" in supported else ():
        yield f"constraint {key[len(CONSTRAINT_PREFIX) :]}", text


def format_expressions(expressions: Mapping[str, str]) -> str:
    """Format expressions for an error message, one ``name -> expression`` per line."""
    return "\n".join(f"{name} -> {text}" for name, text in expressions.items())
