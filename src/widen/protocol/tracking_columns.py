"""Row tracking: the file columns with the ids and the last commit versions of rows that were rewritten.

Source: PROTOCOL.md#row-tracking
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from widen.errors import UnsupportedFeatureForWrite
from widen.model.types import LONG, Field, StructType
from widen.protocol.actions import Protocol
from widen.protocol.column_mapping import PHYSICAL_NAME
from widen.protocol.table_features import is_enabled

FEATURE = "rowTracking"
ENABLE, SUSPENDED = "delta.enableRowTracking", "delta.rowTrackingSuspended"
ID_COLUMN = "delta.rowTracking.materializedRowIdColumnName"
VERSION_COLUMN = "delta.rowTracking.materializedRowCommitVersionColumnName"


@dataclass(frozen=True, slots=True)
class TrackingColumns:
    """The materialized columns of row tracking, which are not in the schema of the table.

    Args:
        row_id: The name of the row id column; null where the id follows from the position of the row in its file.
        version: The name of the row commit version column; null where it is the commit version of the file.
    """

    row_id: str
    version: str

    def add_to(self, schema: StructType) -> StructType:
        """Return a schema with these columns appended, so that they are read and written like the others."""
        names = (self.row_id, self.version)
        return StructType((*schema, *(Field(name, LONG, metadata={PHYSICAL_NAME: name}) for name in names)))


def tracking_columns(protocol: Protocol, properties: Mapping[str, str], location: str) -> TrackingColumns | None:
    """Return the row tracking columns of a table, or None if row tracking is not enabled.

    Raises:
        UnsupportedFeatureForWrite: row tracking is enabled, but the properties lack the names of its columns.

    Source: PROTOCOL.md#writer-requirements-for-row-tracking
    """
    if not is_enabled(protocol, properties, FEATURE):
        return None
    row_id, version = properties.get(ID_COLUMN), properties.get(VERSION_COLUMN)
    if not row_id or not version:
        raise UnsupportedFeatureForWrite(location=location, features=f"{FEATURE} without {ID_COLUMN}", verb="write")
    return TrackingColumns(row_id, version)
