"""Row tracking: where files keep the ids of rows that were written before, and the versions that changed them last.

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
    """The columns in which files keep what is known of a row from before; they stand in no schema.

    Args:
        row_id: The name of the column of ids; null where the id follows from the place of the row.
        version: The name of the column of versions; likewise.
    """

    row_id: str
    version: str

    def added_to(self, schema: StructType) -> StructType:
        """Return a schema with these columns at its end, so that they are read and written like others."""
        names = (self.row_id, self.version)
        return StructType((*schema, *(Field(name, LONG, metadata={PHYSICAL_NAME: name}) for name in names)))


def tracking_columns(protocol: Protocol, properties: Mapping[str, str], location: str) -> TrackingColumns | None:
    """Return where the files of a table keep ids, or None if its rows have none that could be kept.

    Args:
        protocol: Of the table.
        properties: Of the table.
        location: Of the table, for the error.

    Raises:
        UnsupportedFeatureForWrite: row tracking is enabled, but the table does not say where to keep ids.

    Source: PROTOCOL.md#writer-requirements-for-row-tracking
    """
    if not is_enabled(protocol, properties, FEATURE):
        return None
    row_id, version = properties.get(ID_COLUMN), properties.get(VERSION_COLUMN)
    if not row_id or not version:
        raise UnsupportedFeatureForWrite(location=location, features=f"{FEATURE} without {ID_COLUMN}", verb="write")
    return TrackingColumns(row_id, version)
