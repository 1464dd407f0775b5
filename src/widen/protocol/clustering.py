"""The clustering columns of a table.

Source: PROTOCOL.md#clustered-table
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from widen.errors import CorruptLog
from widen.model.column_path import Path
from widen.protocol.actions import DomainMetadata

DOMAIN = "delta.clustering"


class _Clustering(msgspec.Struct, rename="camel"):
    clustering_columns: tuple[tuple[str, ...], ...]


def to_domain(columns: tuple[Path, ...]) -> DomainMetadata:
    """Return the action that records clustering columns by their physical paths."""
    configuration = msgspec.json.encode(_Clustering(columns)).decode()
    return DomainMetadata(domain=DOMAIN, configuration=configuration, removed=False)


def clustering_domain(columns: Iterable[Path]) -> DomainMetadata:
    """Return the domain of a table that is clustered by columns, given by their physical paths.

    Source: PROTOCOL.md#clustered-table
    """
    value = {"clusteringColumns": list(columns), "domainName": DOMAIN}
    return DomainMetadata(domain=DOMAIN, configuration=msgspec.json.encode(value).decode(), removed=False)


def clustering_columns(domains: Mapping[str, DomainMetadata]) -> tuple[Path, ...]:
    """Return the physical paths of the clustering columns.

    Raises:
        CorruptLog: the domain cannot be decoded.

    Source: PROTOCOL.md#clustered-table
    """
    if DOMAIN not in domains:
        return ()
    try:
        return msgspec.json.decode(domains[DOMAIN].configuration, type=_Clustering).clustering_columns
    except msgspec.DecodeError as error:
        raise CorruptLog(
            path="_delta_log",
            reason=f"its metadata domain {DOMAIN} cannot be read ({error})",
            fix="Repair it with the client that wrote it.",
        ) from error
