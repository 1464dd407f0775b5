"""The clustering columns of a table.

Source: PROTOCOL.md#clustered-table
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from widen.errors import CorruptLog
from widen.model.column_path import Path
from widen.protocol.actions import DomainMetadata

DOMAIN = "delta.clustering"


class _Clustering(msgspec.Struct, rename="camel"):
    clustering_columns: tuple[tuple[str, ...], ...]


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
