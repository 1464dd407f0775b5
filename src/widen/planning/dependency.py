"""What of a table depends on a column: constraints and generated columns.

Source: Delta Lake's check of dependent expressions, before types change and names change or go.
"""

from __future__ import annotations

from collections.abc import Mapping

from widen.errors import ConstraintDependsOnColumn, GeneratedColumnDependsOnColumn
from widen.model.path import Path, fields, format_path
from widen.model.type import StructType
from widen.planning.reference import references, touches
from widen.planning.state import State
from widen.protocol.column import find_generation
from widen.protocol.feature import is_supported
from widen.protocol.property import CONSTRAINT_PREFIX


def ensure_independent(state: State, path: Path) -> None:
    """Check that no expression of the table looks at a column, at something in it or at what it is in.

    Raises:
        ConstraintDependsOnColumn: a CHECK constraint does.
        GeneratedColumnDependsOnColumn: a generated column does.

    Source: Delta Lake: constraints first; lines of name and expression.
    """
    found = dependents(path, state.schema, constraints(state.properties))
    if found:
        raise ConstraintDependsOnColumn(column=format_path(path), constraints=_lines(found))
    found = dependents(path, state.schema, generated_columns(state))
    if found:
        raise GeneratedColumnDependsOnColumn(column=format_path(path), columns=_lines(found))


def dependents(path: Path, schema: StructType, expressions: Mapping[str, str]) -> Mapping[str, str]:
    """Return those of the expressions that look at a column, at something in it or at what it is in.

    Args:
        path: The column.
        schema: Of the table.
        expressions: By what they are called.
    """
    return {name: text for name, text in expressions.items() if touches(path, references(text, schema))}


def constraints(properties: Mapping[str, str]) -> Mapping[str, str]:
    """Return the CHECK constraints of a table, by the properties that hold them."""
    return {key: text for key, text in properties.items() if key.lower().startswith(CONSTRAINT_PREFIX)}


def generated_columns(state: State) -> Mapping[str, str]:
    """Return the expressions of the generated columns, by their names.

    Source: PROTOCOL.md#generated-columns (they count only where the protocol supports them)
    """
    if not is_supported(state.protocol, "generatedColumns"):
        return {}
    made = {format_path(path): find_generation(field) for path, field in fields(state.schema)}
    return {name: text for name, text in made.items() if text is not None}


def _lines(expressions: Mapping[str, str]) -> str:
    return "\n".join(f"{name} -> {text}" for name, text in expressions.items())
