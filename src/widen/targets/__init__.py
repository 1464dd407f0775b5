"""Table formats: what an ingestion requires of a table, and one module for each format that answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from typing import TYPE_CHECKING

from widen.errors import InvalidOption
from widen.log.log_store import LogStore
from widen.sources.listing import to_place
from widen.targets.delta import DeltaLocation
from widen.targets.delta_flow_source import DeltaFlowSource
from widen.targets.table_format import FlowSource, TableLocation

if TYPE_CHECKING:
    from widen.iceberg.catalog import CatalogSource

DELTA, ICEBERG = "delta", "iceberg"
FORMATS = (DELTA, ICEBERG)

DEFAULT_CATALOG = "default"
"""The name of PyIceberg's default catalog."""

_FOR_ICEBERG = "Only ingestions into Iceberg have this option."
_CREATE_FIRST = (
    f"{_FOR_ICEBERG} Create a Delta table with partitions first: widen.create_table(..., partition_by=[...])."
)


def find_table(
    into: str | PathLike[str],
    storage_options: Mapping[str, str] | None = None,
    *,
    to: str | None = None,
    catalog: CatalogSource | None = None,
    partition_by: Iterable[str] | None = None,
    format_version: int | None = None,
    branch: str | None = None,
) -> TableLocation:
    """Return the location of a table, in the format that it has or will have. Nothing is read yet.

    Args:
        into: A local path or a URL; the name of an Iceberg table in its catalog.
        catalog: The catalog of an Iceberg table; by default PyIceberg's default catalog.

    Raises:
        InvalidOption: the format is unknown, the name or the scheme of the URL is not supported, or an option is not
            for this format.
    """
    if to not in (None, *FORMATS):
        raise InvalidOption(option="to", value=to, expected=f"Must be one of {', '.join(FORMATS)}.")
    if to == ICEBERG or (to is None and catalog is not None):
        from widen.iceberg.catalog import to_table_name
        from widen.iceberg.partitions import parse_partition_by
        from widen.iceberg.properties import FORMAT_VERSIONS
        from widen.iceberg.snapshots import MAIN_BRANCH
        from widen.targets.iceberg import IcebergLocation

        name = to_table_name(fspath(into), DEFAULT_CATALOG if catalog is None else catalog)
        fields = parse_partition_by(tuple(partition_by or ()))
        if format_version not in (None, *FORMAT_VERSIONS):
            expected = "Must be 1, 2 or 3, the format versions that Widen writes."
            raise InvalidOption(option="format_version", value=format_version, expected=expected)
        branch = None if branch == MAIN_BRANCH else branch
        return IcebergLocation(name, dict(storage_options or {}), fields, branch, format_version)
    delta_fixes = (
        ("catalog", catalog, _FOR_ICEBERG),
        ("partition_by", partition_by, _CREATE_FIRST),
        ("format_version", format_version, _FOR_ICEBERG),
        ("branch", branch, _FOR_ICEBERG),
    )
    for option, value, fix in delta_fixes:
        if value:
            raise InvalidOption(option=option, value=value, expected=fix)
    return DeltaLocation(LogStore(into, storage_options))


def find_flow_source(
    location: str | PathLike[str],
    storage_options: Mapping[str, str] | None = None,
    catalog: CatalogSource | None = None,
) -> FlowSource:
    """Return a table as the source of a flow. Nothing is read yet.

    Args:
        location: A local path or a URL; the name of an Iceberg table in its catalog.
    """
    from widen.iceberg.catalog import to_table_name

    if catalog is not None:
        from widen.targets.iceberg_flow_source import IcebergFlowSource

        return IcebergFlowSource(to_table_name(fspath(location), catalog))
    return DeltaFlowSource(LogStore(to_place(location), storage_options))
