"""The configuration of a table: protocol and metadata of one version, and what follows from the two together.

A property counts only where the protocol supports its feature, and the names of columns in files depend on both. So the
two travel as one value, whose schema is parsed once.
"""

from __future__ import annotations

from functools import cached_property

from widen.errors import UnsupportedFeatureForWrite
from widen.model.schema_json import from_json
from widen.model.types import StructType
from widen.model.value_classes import dataclass
from widen.protocol.actions import Metadata, Protocol
from widen.protocol.column_mapping import (
    FEATURE,
    ID_COLUMN,
    MODE,
    NONE,
    ROW_TRACKING,
    VERSION_COLUMN,
    TrackingColumns,
    ensure_mode,
    to_physical,
)
from widen.protocol.table_features import PROTECTED_BEFORE, PROTECTION, is_enabled, is_supported


@dataclass(frozen=True)
class TableConfiguration:
    """What a version of a table says of its rows."""

    protocol: Protocol
    metadata: Metadata

    @cached_property
    def schema(self) -> StructType:
        """The schema with all metadata of its columns."""
        return from_json(self.metadata.schema_string)

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the table, by key."""
        return self.metadata.configuration

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The logical names of the partition columns, in order."""
        return self.metadata.partition_columns

    @cached_property
    def mapping(self) -> str:
        """The mode of column mapping: ``none``, ``name`` or ``id``.

        The property counts only where the protocol supports column mapping.

        Source: PROTOCOL.md#reader-requirements-for-column-mapping
        """
        ensure_mode(self.properties)
        return self.properties.get(MODE, NONE) if self.supports(FEATURE) else NONE

    @cached_property
    def physical_schema(self) -> StructType:
        """The schema with the names that the columns have in files."""
        return to_physical(self.schema, self.mapping)

    def with_schema(self, schema: StructType) -> TableConfiguration:
        """Return the same configuration with another schema."""
        return TableConfiguration(self.protocol, self.metadata.with_schema(schema))

    def supports(self, feature: str) -> bool:
        """Return whether the protocol supports a feature, listed or implied by an old version number."""
        return is_supported(self.protocol, feature)

    def enables(self, feature: str) -> bool:
        """Return whether a feature is supported and enabled by its property.

        Source: PROTOCOL.md#active-features
        """
        return is_enabled(self.protocol, self.properties, feature)


def tracking_columns(configuration: TableConfiguration, location: str) -> TrackingColumns | None:
    """Return the row tracking columns of a table, or None if row tracking is not enabled.

    Raises:
        UnsupportedFeatureForWrite: row tracking is enabled, but the properties lack the names of its columns.

    Source: PROTOCOL.md#writer-requirements-for-row-tracking
    """
    if not configuration.enables(ROW_TRACKING):
        return None
    properties = configuration.properties
    row_id, version = properties.get(ID_COLUMN), properties.get(VERSION_COLUMN)
    if not row_id or not version:
        raise UnsupportedFeatureForWrite(
            location=location, features=f"{ROW_TRACKING} without {ID_COLUMN}", verb="write"
        )
    return TrackingColumns(row_id, version)


def protected_before(configuration: TableConfiguration) -> int:
    """Return the version that protects all earlier checkpoints; 0 without checkpoint protection.

    Older versions may still use a feature that was dropped. They must be cleaned up all at once or not at all: because
    the checkpoints after them are kept, clients that do not support the feature never need to read those versions.

    Source: protocol_rfcs/checkpoint-protection.md#writer-requirements-for-checkpoint-protection
    """
    text = configuration.properties.get(PROTECTED_BEFORE, "")
    return int(text) if text.isdecimal() and configuration.supports(PROTECTION) else 0
