"""Whether a column may go.

Source: Delta Lake's DROP COLUMNS.
"""

from __future__ import annotations

from widen.errors import (
    ClusteringColumnDropRefused,
    DropRefused,
    ItemRenameRefused,
    LastColumnDropRefused,
    PartitionColumnDropRefused,
)
from widen.model.column_path import Path, format_path, resolve
from widen.model.types import StructType
from widen.planning.table.dependent_expressions import ensure_independent
from widen.planning.table.operation import DropColumn
from widen.planning.table.table_state import TableState
from widen.protocol.column_mapping import NONE, mapping_mode, to_physical_path


def ensure_droppable(state: TableState, operation: DropColumn) -> None:
    """Check that a column may be dropped.

    Raises:
        ItemRenameRefused: it is an element, a key or a value.
        DropRefused: the table does not map its columns.
        LastColumnDropRefused: nothing would be left beside it.
        PartitionColumnDropRefused: the files are split by it.
        ClusteringColumnDropRefused: the rows are clustered by it, or by something in it.
        ConstraintDependsOnColumn: a CHECK constraint looks at it.
        GeneratedColumnDependsOnColumn: a generated column is made of it.
    """
    path = operation.path
    _, parent = resolve(state.schema, path[:-1])
    if not isinstance(parent, StructType):
        raise ItemRenameRefused(column=format_path(path), verb="dropped")
    if mapping_mode(state.properties, state.protocol) == NONE:
        raise DropRefused(column=format_path(path))
    ensure_not_structural(state, path)
    left = {field.name for field in parent} - {path[-1]}
    if len(path) == 1:
        left -= set(state.metadata.partition_columns)
    if not left:
        place = format_path(path[:-1]) or "the files"
        raise LastColumnDropRefused(column=format_path(path), place=place)
    ensure_independent(state, path)


def ensure_not_structural(state: TableState, path: Path) -> None:
    """Check that the files are neither split nor clustered by a column.

    Raises:
        PartitionColumnDropRefused: the files are split by it.
        ClusteringColumnDropRefused: the rows are clustered by it, or by something in it.

    Source: Delta Lake, which sees only the column itself and not what is in it.
    """
    if len(path) == 1 and path[0] in state.metadata.partition_columns:
        raise PartitionColumnDropRefused(column=format_path(path))
    physical = to_physical_path(state.schema, path, mapping_mode(state.properties, state.protocol))
    if any(clustering[: len(physical)] == physical for clustering in state.clustered_by):
        raise ClusteringColumnDropRefused(column=format_path(path))
