"""The high-water mark of identity columns after rows are written, and after SYNC IDENTITY.

Source: PROTOCOL.md#identity-columns; Delta Lake's SYNC IDENTITY.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

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
    fields = [
        _advance(field, mode, written) if field.name in names else field for field in from_json(metadata.schema_string)
    ]
    return metadata.with_schema(StructType(tuple(fields)))


def _advance(field: Field, mode: str, written: Iterable[FileStatistics]) -> Field:
    identity, path = find_identity(field), (physical_name(field, mode),)
    columns = [statistics.column(path, LONG) for statistics in written]
    values = [value for each in columns for value in (each.low, each.high) if isinstance(value, int)]
    if identity is None or not values:
        return field
    mark = identity.advance(max(values) if identity.step > 0 else min(values))
    return field.with_metadata(**{HIGH_WATER_MARK: mark})
