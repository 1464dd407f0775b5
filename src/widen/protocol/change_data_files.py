"""Change data files, and the columns that the change data feed adds to rows.

Source: PROTOCOL.md#change-data-files
"""

from __future__ import annotations

from widen.model.types import STRING, Field, StructType
from widen.protocol.column_mapping import PHYSICAL_NAME

CHANGE_FOLDER = "_change_data"
"""The folder of these files in a table."""

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
"""The columns of the change data feed beside those of the table; only the first one is stored in files."""


def with_change_type(schema: StructType) -> StructType:
    """Return the schema of the change data files of a table: with `CHANGE_TYPE` as the last column.

    Source: PROTOCOL.md#change-data-files
    """
    return StructType((*schema, Field(CHANGE_TYPE, STRING, metadata={PHYSICAL_NAME: CHANGE_TYPE})))
