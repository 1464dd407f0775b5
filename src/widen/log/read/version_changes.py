"""The changes that versions made, as their commits tell them.

Source: PROTOCOL.md#add-cdc-file, #reader-requirements-for-addcdcfile
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from widen.errors import VersionNotFound
from widen.log.read.commit_lines import decode_commit
from widen.log.read.commit_timestamps import IN_COMMIT_TIMESTAMP, file_times_ms
from widen.log.read.log_segment import list_log
from widen.log.store.log_store import LogStore
from widen.protocol.actions import Add, AddCdc, Metadata, Remove


@dataclass(frozen=True, slots=True)
class VersionChanges:
    """What one version changed.

    Args:
        version: Its number.
        time_ms: When it was committed, in ms since the epoch.
        metadata: The one that it brought, if it did.
        told: The files that tell its changes; if there are any, they tell all of them.
        added: The files that came with rows.
        removed: The files that went with rows.
    """

    version: int
    time_ms: int
    metadata: Metadata | None
    told: tuple[AddCdc, ...]
    added: tuple[Add, ...]
    removed: tuple[Remove, ...]


def version_changes(store: LogStore, first: int, last: int) -> Iterator[VersionChanges]:
    """Yield what each of some versions changed, in their order.

    Args:
        store: Of the table.
        first: The first of the versions.
        last: The last of them.

    Raises:
        VersionNotFound: a commit of them has been cleaned up, or was never made.
        CorruptLog: a commit is damaged.
        StorageError: the store refused.

    Source: PROTOCOL.md#reader-requirements-for-addcdcfile
    """
    commits = list_log(store).versions
    times = dict(zip((commit.first for commit in commits), file_times_ms(commits), strict=True))
    entries = {commit.first: commit.entry for commit in commits if first <= commit.first <= last}
    for version in range(first, last + 1):
        if version not in entries:
            reason = f"the commits that are there are {min(times)} to {max(times)}"
            fix = "Ask for changes between these."
            raise VersionNotFound(location=store.location, wanted=f"version {version}", reason=reason, fix=fix)
    paths = [entries[version].path for version in range(first, last + 1)]
    for version, path, data in zip(range(first, last + 1), paths, store.read_many(paths), strict=True):
        lines = decode_commit(path, data)
        said = next((line.commit_info for line in lines if line.commit_info is not None), {})
        yield VersionChanges(
            version,
            said.get(IN_COMMIT_TIMESTAMP, times[version]),
            next((line.meta_data for line in lines if line.meta_data is not None), None),
            tuple(line.cdc for line in lines if line.cdc is not None),
            tuple(line.add for line in lines if line.add is not None and line.add.data_change),
            tuple(line.remove for line in lines if line.remove is not None and line.remove.data_change),
        )
