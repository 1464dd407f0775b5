"""What a change of a table is judged by, and what it becomes: both are values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from widen.model.column_path import Path
from widen.model.schema_json import from_json
from widen.model.types import StructType
from widen.planning.table.operation import Operation
from widen.protocol.actions import Metadata, Protocol


@dataclass(frozen=True)
class TableState:
    """What a command is judged by.

    Args:
        version: The version that was read.
        protocol: Of that version.
        metadata: Likewise.
        clustered_by: The columns by which its rows are clustered, in the names that they have in files.
    """

    version: int
    protocol: Protocol
    metadata: Metadata
    clustered_by: tuple[Path, ...] = ()

    @cached_property
    def schema(self) -> StructType:
        """The schema with all metadata of its columns."""
        return from_json(self.metadata.schema_string)

    @property
    def properties(self) -> Mapping[str, str]:
        """The configuration of the table."""
        return self.metadata.configuration

    def with_schema(self, schema: StructType) -> TableState:
        """Return the same state with another schema."""
        return replace(self, metadata=self.metadata.with_schema(schema))


@dataclass(frozen=True, slots=True)
class MetadataChange:
    """One commit that changes no data.

    Args:
        actions: What it says.
        operation: Its name in the history.
        parameters: What the history says of it.
        operations: What it does to the columns, in their order; none if it is about something else.
    """

    actions: tuple[Metadata | Protocol, ...]
    operation: str
    parameters: Mapping[str, object]
    operations: tuple[Operation, ...] = ()
