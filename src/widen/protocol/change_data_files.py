"""Change data: the files that tell what happened to rows, and the columns in which it is told.

Source: PROTOCOL.md#change-data-files
"""

from __future__ import annotations

from widen.model.types import STRING, Field, StructType
from widen.protocol.column_mapping import PHYSICAL_NAME

CHANGE_FOLDER = "_change_data"
"""Where such files lie in a table."""

CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
"""What readers are told beside the columns of a row; only the first of them stands in files."""


def with_change_type(schema: StructType) -> StructType:
    """Return the schema of a table as such files have it: with `CHANGE_TYPE` at its end, called so in files too.

    Source: PROTOCOL.md#change-data-files
    """
    return StructType((*schema, Field(CHANGE_TYPE, STRING, metadata={PHYSICAL_NAME: CHANGE_TYPE})))
