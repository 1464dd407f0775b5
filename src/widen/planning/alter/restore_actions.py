"""RESTORE: an earlier version becomes the newest one again, except for what must never decrease.

Source: Delta Spark's RESTORE; PROTOCOL.md#protocol-evolution
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from widen.errors import AppendOnlyTable
from widen.model.schema_json import to_json
from widen.model.types import Field, StructType
from widen.planning.table.table_state import TableState
from widen.protocol.actions import Action, DomainMetadata, Metadata
from widen.protocol.clustering import DOMAIN as CLUSTERING
from widen.protocol.column_mapping import MAX_COLUMN_ID, PHYSICAL_NAME
from widen.protocol.column_metadata import HIGH_WATER_MARK, STEP
from widen.protocol.table_features import PROTECTED_BEFORE, is_enabled, merge_protocols
from widen.protocol.table_properties import (
    ENABLE_IN_COMMIT_TIMESTAMPS,
    TIMESTAMPS_SINCE_MS,
    TIMESTAMPS_SINCE_VERSION,
    is_on,
)

OPERATION = "RESTORE"
_TIMESTAMPS_SINCE = (TIMESTAMPS_SINCE_VERSION, TIMESTAMPS_SINCE_MS)


def restore_actions(
    now: TableState,
    then: TableState,
    now_domains: Mapping[str, DomainMetadata],
    then_domains: Mapping[str, DomainMetadata],
) -> tuple[Action, ...]:
    """Return the actions that restore schema, properties, protocol and clustering of an earlier version.

    Features that were added later stay supported. Numbers that must only grow (column ids, identity values) and the
    protection of checkpoints stay, and so do the metadata domains of other writers.

    Args:
        then: The version to restore.
    """
    protocol = merge_protocols(now.protocol, then.protocol)
    metadata = msgspec.structs.replace(
        then.metadata,
        schema_string=to_json(_with_marks(then.schema, now.schema)),
        configuration=_configuration(now.metadata, then.metadata),
    )
    changed = () if protocol == now.protocol else (protocol,)
    return (metadata, *changed, *_clustering(now_domains, then_domains))


def ensure_removable(now: TableState, location: str) -> None:
    """Check that files may be removed from the newest version.

    Raises:
        AppendOnlyTable: the table is append-only.

    Source: PROTOCOL.md#append-only-tables
    """
    if is_enabled(now.protocol, now.properties, "appendOnly"):
        raise AppendOnlyTable(location=location, operation=OPERATION)


def _configuration(now: Metadata, then: Metadata) -> dict[str, str]:
    before, kept = then.configuration, dict(then.configuration)
    for key in (MAX_COLUMN_ID, PROTECTED_BEFORE):
        values = [int(each[key]) for each in (now.configuration, before) if each.get(key, "").isdecimal()]
        if values:
            kept[key] = str(max(values))
    if all(is_on(each, ENABLE_IN_COMMIT_TIMESTAMPS) for each in (now.configuration, before)):
        kept = {key: value for key, value in kept.items() if key not in _TIMESTAMPS_SINCE}
        kept |= {key: now.configuration[key] for key in _TIMESTAMPS_SINCE if key in now.configuration}
    return kept


def _with_marks(schema: StructType, now: StructType) -> StructType:
    """Return the schema with the current high-water marks of identity columns, so that no value is generated twice.

    Source: PROTOCOL.md#identity-columns
    """
    newest = {_lasting_name(field): field for field in now}

    def advance_mark(field: Field) -> Field:
        stored = (each.metadata.get(HIGH_WATER_MARK) for each in (field, newest.get(_lasting_name(field), field)))
        marks = [int(mark) for mark in stored if mark is not None]
        if STEP not in field.metadata or not marks:
            return field
        furthest = max(marks) if int(field.metadata[STEP]) > 0 else min(marks)
        return field.with_metadata(**{HIGH_WATER_MARK: furthest})

    # Only a column at the top can be an identity column.
    return StructType(tuple(map(advance_mark, schema)))


def _lasting_name(field: Field) -> str:
    """Return the name that a renamed column keeps."""
    return str(field.metadata.get(PHYSICAL_NAME, field.name))


def _clustering(now: Mapping[str, DomainMetadata], then: Mapping[str, DomainMetadata]) -> tuple[DomainMetadata, ...]:
    """Return the clustering domain, if it changes.

    Source: Delta Spark, which says that a table is not clustered by an empty list of columns
    """
    before, after = now.get(CLUSTERING), then.get(CLUSTERING)
    if before is None and after is None:
        return ()
    text = '{"clusteringColumns":[]}' if after is None else after.configuration
    if before is not None and before.configuration == text:
        return ()
    return (DomainMetadata(domain=CLUSTERING, configuration=text, removed=False),)
