"""The columns by which the rows of a table are clustered.

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
    """Return the columns by which the rows are clustered, in the names that they have in files.

    Args:
        domains: The metadata domains of the table.

    Raises:
        CorruptLog: they cannot be read.

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
