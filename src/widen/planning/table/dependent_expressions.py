"""What of a table depends on its columns: constraints, invariants and generated columns.

Source: Delta Lake's check of dependent expressions, before types change and names change or go.
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
    """Check that no expression of the table looks at a column, at something in it or at what it is in.

    Raises:
        ConstraintDependsOnColumn: a CHECK constraint does.
        GeneratedColumnDependsOnColumn: a generated column does.

    Source: Delta Lake: constraints first; lines of name and expression.
    """
    found = dependent_expressions(path, state.schema, check_constraints(state.properties))
    if found:
        raise ConstraintDependsOnColumn(column=format_path(path), constraints=format_expressions(found))
    found = dependent_expressions(path, state.schema, generated_columns(state))
    if found:
        raise GeneratedColumnDependsOnColumn(column=format_path(path), columns=format_expressions(found))


def dependent_expressions(path: Path, schema: StructType, expressions: Mapping[str, str]) -> Mapping[str, str]:
    """Return those of the expressions that look at a column, at something in it or at what it is in.

    Args:
        path: The column.
        schema: Of the table.
        expressions: By what they are called.
    """
    return {name: text for name, text in expressions.items() if is_referenced(path, referenced_columns(text, schema))}


def check_constraints(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return the CHECK constraints of a table, by the properties that hold them."""
    return {key: text for key, text in properties.items() if key.lower().startswith(CONSTRAINT_PREFIX)}


def constraint_key(name: str) -> str:
    """Return the property that holds a constraint; case does not count in its name."""
    return CONSTRAINT_PREFIX + name.lower()


def find_constraint(state: TableState, name: str) -> str | None:
    """Return the property that holds a constraint, or None; case does not count."""
    wanted = constraint_key(name)
    return next((key for key in state.properties if key.lower() == wanted), None)


def generated_columns(state: TableState) -> Mapping[str, str]:
    """Return the expressions of the generated columns, by their names.

    Source: PROTOCOL.md#generated-columns (they count only where the protocol supports them)
    """
    if not is_supported(state.protocol, "generatedColumns"):
        return {}
    made = {format_path(path): find_generation(field) for path, field in fields(state.schema)}
    return {name: text for name, text in made.items() if text is not None}


def row_conditions(schema: StructType, protocol: Protocol, properties: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the conditions that every row must fulfil: what each is called, e.g. ``constraint positive``, and its text.

    Args:
        schema: Of the table, with all metadata.
        protocol: Of the table: a condition counts only where its feature is supported.
        properties: Of the table.

    Raises:
        CorruptLog: an invariant cannot be read.

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
    """Return expressions with what they are called, one on a line, as errors show them."""
    return "\n".join(f"{name} -> {text}" for name, text in expressions.items())
