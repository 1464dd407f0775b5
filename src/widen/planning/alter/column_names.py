"""Whether a column may be called so: when the table is made, and when columns come or get other names.

Source: Delta Lake's checks of column names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from widen.errors import ColumnAlreadyExists, InvalidColumnName, ItemRenameRefused, RenameRefused
from widen.model.column_path import Path, fields, find_field, format_path, resolve
from widen.model.types import Field, StructType
from widen.planning.evolution.source_metadata import FORBIDDEN
from widen.planning.table.dependent_expressions import ensure_independent
from widen.planning.table.operation import RenameColumn
from widen.planning.table.table_state import TableState
from widen.protocol.change_data_files import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from widen.protocol.column_mapping import MODE, NONE, mapping_mode
from widen.protocol.table_properties import ENABLE_CHANGE_DATA_FEED, is_on

_KEPT_NAMES = frozenset({CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP})
"""What the change data feed keeps for itself."""


def ensure_names_allowed(new: Iterable[Field], properties: Mapping[str, str], parent: Path = ()) -> None:
    """Check that columns may be called so, with all that is in them, and that no struct has a name twice.

    Args:
        new: The columns.
        properties: Of the table.
        parent: Where they are to be; empty for the table itself.

    Raises:
        InvalidColumnName: a name is empty, is kept for something else, or has a character that files cannot have.
        ColumnAlreadyExists: a name is there twice.

    Source: Delta Spark: DELTA_INVALID_CHARACTERS_IN_COLUMN_NAMES.
    """
    taken: set[Path] = set()
    for path, field in fields(StructType(tuple(new))):
        folded = (*path[:-1], field.name.casefold())
        if folded in taken:
            raise ColumnAlreadyExists(column=format_path((*parent, *path)))
        taken.add(folded)
        _ensure_name((*parent, *path), properties)


def _ensure_name(path: Path, properties: Mapping[str, str]) -> None:
    name = path[-1]
    if not name:
        raise InvalidColumnName(name=name, reason="it is empty", fix="Choose a name.")
    if properties.get(MODE, NONE) == NONE and any(char in FORBIDDEN for char in name):
        fix = f"Choose another name, or let the table map its columns: set_properties({{{MODE!r}: 'name'}})."
        raise InvalidColumnName(name=name, reason=f"files have none of {FORBIDDEN!r} in names", fix=fix)
    reserved = len(path) == 1 and name.lower() in _KEPT_NAMES
    if reserved and is_on(properties, ENABLE_CHANGE_DATA_FEED):
        raise InvalidColumnName(name=name, reason="the change data feed keeps it", fix="Choose another name.")


def ensure_renamable(state: TableState, operation: RenameColumn) -> None:
    """Check that a column may get another name. Only another case of its letters is another name too.

    Raises:
        ItemRenameRefused: it is an element, a key or a value.
        ColumnAlreadyExists: there is a column of that name beside it.
        ConstraintDependsOnColumn: a CHECK constraint looks at it.
        GeneratedColumnDependsOnColumn: a generated column is made of it.
        RenameRefused: the table does not map its columns.
        InvalidColumnName: the name cannot be used.

    Source: Delta Lake's RENAME COLUMN, which does not even allow another case.
    """
    path, name = operation.path, operation.name
    _, parent = resolve(state.schema, path[:-1])
    field = find_field(state.schema, path)
    if not isinstance(parent, StructType) or field is None:
        raise ItemRenameRefused(column=format_path(path), verb="renamed")
    found = parent.find(name)
    if found is not None and found is not field:
        raise ColumnAlreadyExists(column=format_path((*path[:-1], found.name)))
    ensure_independent(state, path)
    if mapping_mode(state.properties, state.protocol) == NONE:
        raise RenameRefused(column=format_path(path))
    _ensure_name(operation.new_path, state.properties)
