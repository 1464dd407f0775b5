"""Row ids: every new file gets a range of numbers that no other file has.

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


def high_water_mark(domain: DomainMetadata | None, otherwise: int) -> int:
    """Return the highest row id that is given away.

    Raises:
        CorruptLog: the domain cannot be read.

    Source: PROTOCOL.md#row-tracking (domain delta.rowTracking)
    """
    if domain is None:
        return otherwise
    try:
        return msgspec.json.decode(domain.configuration, type=_HighWaterMark).row_id_high_water_mark
    except msgspec.DecodeError as error:
        fix = "Repair the domain with the client that wrote it."
        raise CorruptLog(path="_delta_log", reason=f"its domain {ROW_TRACKING_DOMAIN} ({error})", fix=fix) from error


def with_row_ids(actions: Sequence[Action], properties: Mapping[str, str], highest: int, version: int) -> list[Action]:
    """Return the actions with row ids for every added file that has none, and with the new highest one.

    Args:
        actions: Of one commit.
        properties: The configuration of the table.
        highest: The highest row id that is given away.
        version: The version to be written.

    Raises:
        InternalError: a file does not say how many rows it has.

    Source: PROTOCOL.md#writer-requirements-for-row-tracking
    """
    if is_on(properties, SUSPENDED):
        return list(actions)
    given: list[Action] = []
    mark = highest
    for action in actions:
        if isinstance(action, Add):
            first = mark + 1 if action.base_row_id is None else action.base_row_id
            mark = mark + _rows(action) if action.base_row_id is None else mark
            known = action.default_row_commit_version
            action = msgspec.structs.replace(
                action, base_row_id=first, default_row_commit_version=version if known is None else known
            )
        given.append(action)
    if mark > highest:
        text = msgspec.json.encode(_HighWaterMark(mark)).decode()
        given.append(DomainMetadata(domain=ROW_TRACKING_DOMAIN, configuration=text, removed=False))
    return given


def _rows(add: Add) -> int:
    try:
        return msgspec.json.decode(add.stats or "{}", type=_RowCount).num_records
    except msgspec.DecodeError as error:
        reason = f"The file {add.path} has no count of its rows, which row tracking needs"
        raise InternalError(reason=reason) from error
