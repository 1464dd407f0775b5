"""Table formats: what an ingestion asks of a table, and one module for each format that answers."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike

from widen.formats.delta_target import DeltaLocation
from widen.formats.table_format import TableLocation
from widen.log.store.log_store import LogStore


def find_table(into: str | PathLike[str], storage_options: Mapping[str, str] | None = None) -> TableLocation:
    """Return the location of a table, in the format that it has or will have. Nothing is read yet.

    Args:
        into: A local path or a URL.
        storage_options: Settings and credentials of its store.

    Raises:
        InvalidOption: the scheme of the URL is not supported.
    """
    return DeltaLocation(LogStore(into, storage_options))
