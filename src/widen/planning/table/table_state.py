"""The state of a table that a command is planned against, and the metadata-only commit that it becomes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from widen.model.column_path import Path
from widen.model.schema_json import from_json
from widen.model.types import StructType
from widen.planning.table.operation import Operation
from widen.protocol.actions import DomainMetadata, Metadata, Protocol
from widen.protocol.clustering import clustering_columns
from widen.protocol.table_features import is_supported

if TYPE_CHECKING:
    from widen.log.read.snapshot import Snapshot


@dataclass(frozen=True)
class TableState:
    """The version of a table that a command is planned against.

    Args:
        clustered_by: The physical paths of its clustering columns.
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
    """A commit that changes no data.

    Args:
        operations: What it does to the columns, in order; empty for other changes.
    """

    actions: tuple[Metadata | Protocol | DomainMetadata, ...]
    operation: str
    parameters: Mapping[str, object]
    operations: tuple[Operation, ...] = ()


@dataclass(frozen=True, slots=True)
class TableCreation(MetadataChange):
    """The first commit of a table."""

    actions: tuple[Metadata, Protocol]


def to_table_state(snapshot: Snapshot) -> TableState:
    """Return the state of a version that table changes are planned with."""
    is_clustered = is_supported(snapshot.protocol, "clustering")
    clustered_by = clustering_columns(snapshot.domains) if is_clustered else ()
    return TableState(snapshot.version, snapshot.protocol, snapshot.metadata, clustered_by)
