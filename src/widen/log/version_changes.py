"""The changes in a range of versions: the file actions, and the rows of each file that changed.

Source: PROTOCOL.md#add-cdc-file, #reader-requirements-for-addcdcfile
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa

from widen.errors import VersionNotFound
from widen.log.commit_files import IN_COMMIT_TIMESTAMP, decode_commit, file_times_ms
from widen.log.file_list import file_keys, to_adds
from widen.log.log_segment import list_log
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot
from widen.model.value_classes import dataclass
from widen.protocol.actions import Add, AddCdc, CommitInfo, Metadata, Protocol, Remove
from widen.protocol.deletion_vectors import locate_vector


@dataclass(frozen=True, slots=True)
class VersionChanges:
    """The changes of one version.

    Args:
        change_files: The change data files. If there are any, they hold all row changes of the version.
        changed_no_row: Whether it is a merge that only wrote files again, with the rows that they had.
    """

    version: int
    time_ms: int
    metadata: Metadata | None
    change_files: tuple[AddCdc, ...]
    added: tuple[Add, ...]
    removed: tuple[Remove, ...]
    protocol: Protocol | None = None
    changed_no_row: bool = False


def version_changes(store: LogStore, first: int, last: int) -> Iterator[VersionChanges]:
    """Yield the changes of each version in a range, oldest first.

    Raises:
        VersionNotFound: a commit in the range was cleaned up or never existed.

    Source: PROTOCOL.md#reader-requirements-for-addcdcfile
    """
    commits = list_log(store).versions
    times = dict(zip((commit.first for commit in commits), file_times_ms(commits), strict=True))
    entries = {commit.first: commit.entry for commit in commits if first <= commit.first <= last}
    for version in range(first, last + 1):
        if version not in entries:
            reason = f"the available commits are {min(times)} to {max(times)}"
            fix = "Ask for changes in this range."
            raise VersionNotFound(location=store.location, wanted=f"version {version}", reason=reason, fix=fix)
    paths = [entries[version].path for version in range(first, last + 1)]
    for version, path, data in zip(range(first, last + 1), paths, store.read_many(paths), strict=True):
        lines = decode_commit(path, data)
        info = next((line.commit_info for line in lines if line.commit_info is not None), {})
        yield VersionChanges(
            version,
            info.get(IN_COMMIT_TIMESTAMP, times[version]),
            next((line.meta_data for line in lines if line.meta_data is not None), None),
            tuple(line.cdc for line in lines if line.cdc is not None),
            tuple(line.add for line in lines if line.add is not None and line.add.data_change),
            tuple(line.remove for line in lines if line.remove is not None and line.remove.data_change),
            next((line.protocol for line in lines if line.protocol is not None), None),
            _has_changed_no_row(info),
        )


def _has_changed_no_row(info: CommitInfo) -> bool:
    """Return whether a commit is a merge whose metrics say that no row changed.

    Source: Delta Lake's change data feed; its merge may write files again, without change data files
    """
    metrics = info.get("operationMetrics")
    if info.get("operation") != "MERGE" or not isinstance(metrics, dict):
        return False
    return all(str(metrics.get(f"numTargetRows{each}")) == "0" for each in ("Inserted", "Updated", "Deleted"))


INSERT, DELETE = "insert", "delete"


@dataclass(frozen=True, slots=True)
class ChangeSlice:
    """A file with rows that one version changed in one way.

    Args:
        change_type: How the rows changed; None if each row of the file says so.
        without: The same file with only the unchanged rows, if there are any.
    """

    version: int
    time_ms: int
    change_type: str | None
    file: Add
    without: Add | None = None


def change_slices(changes: VersionChanges) -> Iterator[ChangeSlice]:
    """Yield the slices of a version, in the order of its log entry.

    If the version has change data files, they have all its changes. Otherwise these follow from its data files.

    Source: PROTOCOL.md#reader-requirements-for-addcdcfile
    """
    version, time_ms = changes.version, changes.time_ms
    if changes.change_files:
        yield from (ChangeSlice(version, time_ms, None, _as_add(cdc)) for cdc in changes.change_files)
        return
    if changes.changed_no_row:
        return
    before = {remove.path: removed_file(remove) for remove in changes.removed}
    after = {add.path: add for add in changes.added}
    for add in changes.added:
        yield ChangeSlice(version, time_ms, INSERT, add, before.get(add.path))
    for path, file in before.items():
        yield ChangeSlice(version, time_ms, DELETE, file, after.get(path))


def removed_file(remove: Remove) -> Add:
    """Return a removed file as it was before, to read its rows again."""
    return Add(
        path=remove.path,
        partition_values=remove.partition_values or {},
        size=remove.size or 0,
        modification_time=0,
        data_change=False,
        deletion_vector=remove.deletion_vector,
    )


def _as_add(cdc: AddCdc) -> Add:
    values = cdc.partition_values
    return Add(path=cdc.path, partition_values=values, size=cdc.size, modification_time=0, data_change=False)


# Compare versions of a table: files that only one of them has, and files that are missing from the store.
#
# Source: PROTOCOL.md#action-reconciliation (path and deletion vector identify a file)


_THREADS = 32


def files_only_in(snapshot: Snapshot, other: Snapshot) -> list[Add]:
    """Return the files of a version that another one does not have with the same deletion vector."""
    other_keys = set(_keys(other))
    return to_adds(snapshot.files().filter(pa.array([key not in other_keys for key in _keys(snapshot)], pa.bool_())))


def _keys(snapshot: Snapshot) -> list[str]:
    keys: list[str] = []
    for batch in snapshot.files().to_batches():
        keys += file_keys(batch.column("path"), batch.column("deletion_vector"), snapshot.location)
    return keys


def missing_files(store: LogStore, adds: Sequence[Add]) -> list[str]:
    """Return the paths of the missing data files and deletion vector files, in the order of the add actions."""
    paths = list(dict.fromkeys(path for add in adds for path in _stored_paths(store, add)))
    with ThreadPoolExecutor(_THREADS, "widen-exists") as pool:
        return [path for path, entry in zip(paths, pool.map(store.find, paths), strict=True) if entry is None]


def _stored_paths(store: LogStore, add: Add) -> list[str]:
    vector = add.deletion_vector
    slice_ = locate_vector(vector) if vector else None
    if vector is None or slice_ is None:
        return [store.plain(add.path)]
    return [store.plain(add.path), store.plain(slice_.path) if vector.storage_type == "p" else slice_.path]
