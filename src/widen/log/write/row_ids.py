"""Row ids: assign every new file a range of ids that no other file has.

Source: PROTOCOL.md#row-tracking
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from widen.errors import CorruptLog, InternalError
from widen.log.write.conflict import ROW_TRACKING_DOMAIN
from widen.protocol.actions import Action, Add, DomainMetadata
from widen.protocol.table_properties import is_on
from widen.protocol.tracking_columns import SUSPENDED


class _HighWaterMark(msgspec.Struct, rename="camel"):
    row_id_high_water_mark: int


class _RowCount(msgspec.Struct, rename="camel"):
    num_records: int


def high_water_mark(domain: DomainMetadata | None, default: int) -> int:
    """Return the highest assigned row id.

    Args:
        default: The value without a domain.

    Raises:
        CorruptLog: the domain is damaged.

    Source: PROTOCOL.md#row-tracking (domain delta.rowTracking)
    """
    if domain is None:
        return default
    try:
        return msgspec.json.decode(domain.configuration, type=_HighWaterMark).row_id_high_water_mark
    except msgspec.DecodeError as error:
        fix = "Repair the domain with the client that wrote it."
        raise CorruptLog(
            path="_delta_log", reason=f"damaged metadata domain {ROW_TRACKING_DOMAIN} ({error})", fix=fix
        ) from error


def with_row_ids(actions: Sequence[Action], properties: Mapping[str, str], highest: int, version: int) -> list[Action]:
    """Return the actions with row ids for every added file without them, and with the new high water mark.

    Args:
        highest: The highest assigned row id.

    Raises:
        InternalError: a file has no row count.

    Source: PROTOCOL.md#writer-requirements-for-row-tracking
    """
    if is_on(properties, SUSPENDED):
        return list(actions)
    result: list[Action] = []
    mark = highest
    for action in actions:
        if isinstance(action, Add):
            first = mark + 1 if action.base_row_id is None else action.base_row_id
            mark = mark + _rows(action) if action.base_row_id is None else mark
            commit_version = action.default_row_commit_version
            action = msgspec.structs.replace(
                action,
                base_row_id=first,
                default_row_commit_version=version if commit_version is None else commit_version,
            )
        result.append(action)
    if mark > highest:
        text = msgspec.json.encode(_HighWaterMark(mark)).decode()
        result.append(DomainMetadata(domain=ROW_TRACKING_DOMAIN, configuration=text, removed=False))
    return result


def _rows(add: Add) -> int:
    try:
        return msgspec.json.decode(add.stats or "{}", type=_RowCount).num_records
    except msgspec.DecodeError as error:
        reason = f"The file {add.path} has no row count, which row tracking requires"
        raise InternalError(reason=reason) from error
