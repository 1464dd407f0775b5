"""The high-water mark of identity columns after rows are written, and after SYNC IDENTITY.

Source: PROTOCOL.md#identity-columns; Delta Lake's SYNC IDENTITY.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from widen.model.schema_json import from_json
from widen.model.types import LONG, Field, StructType
from widen.protocol.actions import Add, Metadata
from widen.protocol.column_mapping import physical_name
from widen.protocol.column_metadata import HIGH_WATER_MARK, Identity, find_identity
from widen.protocol.skipping.file_statistics import FileStatistics


def synchronize_high_water_mark(identity: Identity, extreme: int | None) -> int | None:
    """Return the new high-water mark for the values of a column, or None if it does not change.

    Args:
        extreme: The highest value of the column, or the lowest if the step is negative; None if it has no values.

    Example:
        >>> synchronize_high_water_mark(Identity(1, 10, None, True), 25)
        31
        >>> synchronize_high_water_mark(Identity(1, 10, 41, True), 25) is None
        True
    """
    if extreme is None or (extreme - identity.start) * identity.step < 0:
        return None
    steps = -(-(extreme - identity.start) // identity.step)
    mark = identity.advance(identity.start + steps * identity.step)
    return None if mark == identity.high_water_mark else mark


def advance_identities(metadata: Metadata, names: Collection[str], mode: str, adds: Iterable[Add]) -> Metadata:
    """Return the metadata after rows with generated identity values are written.

    Args:
        names: The identity columns with generated values.
        adds: The new files, with statistics of these columns.

    Source: PROTOCOL.md#identity-columns
    """
    written = [FileStatistics(add.stats) for add in adds]
    if not names or not written:
        return metadata
    fields = [field for field in from_json(metadata.schema_string) if field.name in names]
    return with_used_values(metadata, {field.name: _bounds(field, mode, written) for field in fields})


def with_used_values(metadata: Metadata, values: Mapping[str, Collection[int]]) -> Metadata:
    """Return the metadata after identity values were used.

    Args:
        values: The values, or their bounds, by the name of the identity column.

    Source: PROTOCOL.md#identity-columns
    """
    used = {name: some for name, some in values.items() if some}
    if not used:
        return metadata
    fields = [_advance(field, used.get(field.name, ())) for field in from_json(metadata.schema_string)]
    return metadata.with_schema(StructType(tuple(fields)))


def _bounds(field: Field, mode: str, written: Iterable[FileStatistics]) -> list[int]:
    columns = [statistics.column((physical_name(field, mode),), LONG) for statistics in written]
    return [value for each in columns for value in (each.low, each.high) if isinstance(value, int)]


def _advance(field: Field, values: Collection[int]) -> Field:
    identity = find_identity(field)
    if identity is None or not values:
        return field
    mark = identity.advance(max(values) if identity.step > 0 else min(values))
    return field.with_metadata(**{HIGH_WATER_MARK: mark})
