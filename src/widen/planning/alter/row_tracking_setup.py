"""Row tracking switched on: where files will keep the ids of rows, and what has to be done to the files before.

Source: PROTOCOL.md#writer-requirements-for-row-tracking
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from widen.errors import InvalidOption
from widen.planning.table.table_state import TableState
from widen.protocol.table_features import is_enabled
from widen.protocol.table_properties import canonical_properties, is_on
from widen.protocol.tracking_columns import ENABLE, FEATURE, ID_COLUMN, SUSPENDED, VERSION_COLUMN


def with_tracking_columns(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties that name the columns for ids and versions, if they switch row tracking on; else as they are.

    Raises:
        InvalidOption: they switch it on and suspend it.

    Source: PROTOCOL.md#writer-requirements-for-row-tracking; Delta Spark for the form of the names
    """
    if not is_on(properties, ENABLE):
        return dict(properties)
    if is_on(properties, SUSPENDED):
        raise InvalidOption(option=SUSPENDED, value="true", expected=f"It cannot be true together with {ENABLE}.")
    names = {ID_COLUMN: f"_row-id-col-{uuid.uuid4()}", VERSION_COLUMN: f"_row-commit-version-col-{uuid.uuid4()}"}
    return {**names, **properties}


def needs_backfill(state: TableState, properties: Mapping[str, str]) -> bool:
    """Tell whether properties switch row tracking on for a table that does not have it yet.

    Raises:
        InvalidOption: a value cannot be used.

    Source: PROTOCOL.md#row-ids (every file must have ids before)
    """
    return is_on(canonical_properties(properties), ENABLE) and not is_enabled(state.protocol, state.properties, FEATURE)
