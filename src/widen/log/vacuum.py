"""Vacuum: delete the files of a table that no version within the retention needs.

A file stays if any version within the retention names it, if it was removed within the retention, or if it is younger
than the retention: a writer may be about to commit it. Nothing outside of the table is ever deleted.

Source: PROTOCOL.md#add-file-and-remove-file (tombstones), #vacuum-protocol-check; Delta Spark's VACUUM
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field, replace

import pyarrow.compute as pc

from widen.errors import InvalidOption, RetentionTooShort, VersionNotFound, WidenError
from widen.log.checkpoint_writer import DAY_MS
from widen.log.commit import Committed, Conflicted, commit, retry_conflicts
from widen.log.commit_files import current_ms, decode_commit, find_version
from widen.log.commit_outcome import SCANS, STAGED_ROWS
from widen.log.conflict import VACUUM_START
from widen.log.file_list import canonical_path
from widen.log.local_files import STAGED
from widen.log.log_segment import LOG, find_versions
from widen.log.log_store import FileEntry, LogStore
from widen.log.snapshot import Snapshot, open_snapshot
from widen.model.value_classes import dataclass
from widen.protocol.actions import DeletionVector
from widen.protocol.column_mapping import CHANGE_FOLDER
from widen.protocol.deletion_vectors import locate_vector
from widen.protocol.table_features import ensure_writable
from widen.protocol.table_properties import DELETED_FILE_RETENTION, duration_ms

VACUUM_END = "VACUUM END"
"""The operation in the history. It and `VACUUM_START` have Delta Lake's parameters and metrics."""

HOUR_MS = 3_600_000
MAX_HOURS = 1_000_000_000
"""A longer retention also keeps everything."""

CLOCK_SKEW_MS = 5 * 60_000
"""How much later than the clock of the store this clock may be. Without a retention there is no such margin: the caller
then says that no other writer is active."""

_JOB = r"(?:_change_data/)?[0-9a-f]{32}"
_OWN = rf"{SCANS}|{STAGED_ROWS}"
_LEFTOVERS = re.compile(
    rf"{LOG}/\.[^/]*(?:{re.escape(STAGED)}|\.probe)|(?:{_OWN})/.*|{_JOB}/_temporary/.*|(?:.*/)?[^/]*{re.escape(STAGED)}"
)
"""What Widen and its Spark jobs leave behind when they are killed, although the names are hidden."""

_LEFTOVER_FOLDERS = re.compile(rf"{LOG}|_widen|(?:{_OWN})(?:/.*)?|{_JOB}/_temporary(?:/.*)?")
_CHECKSUM = re.compile(r"(.*/|)\.([^/]+)\.crc")
"""The checksum file that Hadoop writes beside a file on a local disk."""

_METADATA_FOLDER = "metadata"
"""The folder of the metadata of Iceberg, which the log does not name."""


@dataclass(frozen=True, slots=True)
class VacuumPlan:
    """The files to delete.

    Args:
        cutoff_ms: Only files that are older, and not needed since then, are deleted; in ms since the epoch.
    """

    snapshot: Snapshot
    retention_ms: int
    requested_ms: int | None
    cutoff_ms: int
    files: tuple[FileEntry, ...]
    folders: int

    @property
    def size_bytes(self) -> int:
        """The total size of the files."""
        return sum(entry.size_bytes for entry in self.files)

    @property
    def metrics(self) -> dict[str, int]:
        """The metrics in the history, before anything is deleted."""
        return {"numFilesToDelete": len(self.files), "sizeOfDataToDelete": self.size_bytes}


Walk = Callable[[Callable[[str], bool]], Iterable[FileEntry]]


def plan_vacuum(
    store: LogStore, requested_ms: int | None = None, *, force: bool = False, walk: Walk | None = None
) -> VacuumPlan:
    """Return which files of a table can be deleted; deletes nothing.

    Source: Delta Spark's VACUUM
    """
    head = open_snapshot(store)
    ensure_writable(head.protocol, store.location)
    retention_ms = duration_ms(head.properties, DELETED_FILE_RETENTION)
    _ensure_safe(requested_ms, retention_ms, store.location, force=force)
    kept_ms = retention_ms if requested_ms is None else requested_ms
    now_ms = current_ms()
    cutoff_ms = max(0, now_ms - kept_ms - (CLOCK_SKEW_MS if kept_ms else 0))
    visible = _VisibleNames(tuple({*head.partition_columns, *head.partition_keys}))
    # The listing comes before the log: a file that is committed in between is then known to be needed.
    entries = list((walk or store.walk)(visible.skips))
    in_log_ms = min(cutoff_ms, now_ms - DAY_MS)  # a commit that is being written must not lose its staged file
    ages = ((entry, in_log_ms if entry.path.startswith(f"{LOG}/") else cutoff_ms) for entry in entries)
    old = [entry for entry, since_ms in ages if entry.modified_ms < since_ms and visible.may_delete(entry.path)]
    kept = in_checkpoints([entry.path for entry in entries])
    old = [entry for entry in old if entry.path not in kept]
    folders = {entry.path.rpartition("/")[0] for entry in entries} | {""}
    plan = VacuumPlan(head, retention_ms, requested_ms, cutoff_ms, tuple(old), len(folders))
    return _without_needed(plan, open_snapshot(store))


def run_vacuum(
    plan: VacuumPlan, delete: Callable[[list[str]], None] | None = None
) -> tuple[VacuumPlan, Committed] | Conflicted:
    """Delete the files of a plan, between two commits that record it in the history.

    Files that other commits need since the plan was made stay. If a deletion fails, the table is still valid, and
    another vacuum deletes the rest.

    Returns:
        The plan as it was done, and the last commit; `Conflicted` if another commit changed the table before anything
        was deleted.

    Source: Delta Spark's VACUUM
    """
    store = plan.snapshot.store
    started = commit(store, plan.snapshot, [], VACUUM_START, _start_parameters(plan), metrics=plan.metrics)
    if isinstance(started, Conflicted):
        return started
    version = started.or_raise().version
    # Commits between the plan and ours may need files of the plan, e.g. after a restore.
    if version > plan.snapshot.version + 1:
        plan = _without_needed(plan, open_snapshot(store, version))
    try:
        (delete or store.delete)([entry.path for entry in plan.files])
    except BaseException:
        with contextlib.suppress(WidenError):  # the first error matters more
            _commit_end(store, "FAILED", {})
        raise
    metrics = {"numDeletedFiles": len(plan.files), "numVacuumedDirectories": plan.folders}
    return plan, _commit_end(store, "COMPLETED", metrics)


def to_retention_ms(hours: float | None) -> int | None:
    """Return a retention in ms.

    Raises:
        InvalidOption: it is negative or not finite.
    """
    if hours is None:
        return None
    if not 0 <= hours < float("inf"):
        raise InvalidOption(option="retention_hours", value=hours, expected="Must be a number of hours >= 0.")
    return round(min(hours, MAX_HOURS) * HOUR_MS)


def _ensure_safe(requested_ms: int | None, retention_ms: int, location: str, *, force: bool) -> None:
    if requested_ms is not None and requested_ms < retention_ms and not force:
        hours, least = f"{requested_ms / HOUR_MS:g}", f"{retention_ms / HOUR_MS:g}"
        raise RetentionTooShort(location=location, hours=hours, least=least)


def _start_parameters(plan: VacuumPlan) -> Mapping[str, object]:
    is_short = plan.requested_ms is not None and plan.requested_ms < plan.retention_ms
    requested = {} if plan.requested_ms is None else {"specifiedRetentionMillis": plan.requested_ms}
    return {"retentionCheckEnabled": not is_short, "defaultRetentionMillis": plan.retention_ms, **requested}


def _commit_end(store: LogStore, status: str, metrics: Mapping[str, int]) -> Committed:
    def attempt(_: Conflicted | None) -> Committed | Conflicted:
        outcome = commit(store, open_snapshot(store), [], VACUUM_END, {"status": status}, metrics=metrics)
        return outcome if isinstance(outcome, Conflicted) else outcome.or_raise()

    return retry_conflicts(attempt)


# ---- which names a vacuum may delete ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _VisibleNames:
    """Which files may be deleted at all: not hidden ones, except partitions, change files and our own leftovers.

    Files of another table in a folder of this one also stay; Delta Spark would delete them.

    Args:
        partition_columns: The logical and the physical names of the partition columns.
        other_tables: The folders of other tables that the listing has found so far.

    Source: Delta Spark (DeltaTableUtils.isHiddenDirectory)
    """

    partition_columns: tuple[str, ...]
    other_tables: set[str] = field(default_factory=set)

    def skips(self, folder: str) -> bool:
        """Return whether nothing in a folder can be deleted."""
        if _LEFTOVER_FOLDERS.fullmatch(folder):
            return False
        if folder.endswith(f"/{LOG}"):
            self.other_tables.add(folder.removesuffix(LOG))
        return folder == _METADATA_FOLDER or any(map(self._is_hidden, folder.split("/")))

    def may_delete(self, path: str) -> bool:
        """Return whether the file may be deleted if no version needs it; asked after the listing."""
        if any(map(path.startswith, self.other_tables)):
            return False
        folder = path.rpartition("/")[0]
        is_visible = not any(map(self._is_hidden, _data_path(path).split("/"))) and folder != _METADATA_FOLDER
        return is_visible or _LEFTOVERS.fullmatch(path) is not None

    def _is_hidden(self, name: str) -> bool:
        if not name.startswith((".", "_")) or name.startswith(CHANGE_FOLDER):
            return False
        return not any(name.startswith(f"{column}=") for column in self.partition_columns)


def _data_path(path: str) -> str:
    """Return the path of the file that a checksum file of Hadoop belongs to; any other path unchanged."""
    match = _CHECKSUM.fullmatch(path)
    return f"{match[1]}{match[2]}" if match else path


# ---- checkpoints of streams and flows --------------------------------------------------------------


METADATA, OFFSETS, COMMITS, SOURCES, STATE = "metadata", "offsets", "commits", "sources", "state"
"""What Spark calls the file and the folders of a checkpoint."""

FLOW_FILE = "flow.json"
"""The file of the checkpoint of a flow."""

_PROGRESS = re.compile(
    rf"(?P<root>.*/|)(?:(?:{OFFSETS}|{COMMITS})/\d+|{SOURCES}/\d+/\d+(?:\.compact)?|{METADATA}|{FLOW_FILE})"
)
_OF_CHECKPOINT = re.compile(rf"(?:{METADATA}|{FLOW_FILE}|(?:{OFFSETS}|{COMMITS}|{SOURCES}|{STATE})/.*)")


def has_progress(paths: Iterable[str]) -> bool:
    """Return whether files belong to a checkpoint that has begun."""
    return any(match is not None and not match["root"] for match in map(_PROGRESS.fullmatch, paths))


def in_checkpoints(paths: Collection[str]) -> set[str]:
    """Return which files of a listing belong to checkpoints: without them a stream loads everything again."""
    plain = {path: _data_path(path) for path in paths}
    roots = {match["root"] for match in map(_PROGRESS.fullmatch, plain.values()) if match}
    return {
        path
        for root in roots
        for path, name in plain.items()
        if name.startswith(root) and _OF_CHECKPOINT.fullmatch(name, len(root))
    }


# ---- which files a version within the retention needs ----------------------------------------------


def _without_needed(plan: VacuumPlan, snapshot: Snapshot) -> VacuumPlan:
    """Return the plan at a later version, without the files that the versions up to it need."""
    needed = needed_paths(snapshot, plan.cutoff_ms)
    files = [entry for entry in plan.files if _data_path(entry.path) not in needed]
    return replace(plan, snapshot=snapshot, files=tuple(sorted(files, key=lambda entry: entry.path)))


def needed_paths(snapshot: Snapshot, cutoff_ms: int) -> set[str]:
    """Return the paths in the table of all files that versions since a time need: data, change files and vectors.

    Delta Lake decides by the time in each remove action. That time is from before the commit, so a file of a version
    within the retention could be deleted; therefore the files that the commits since then name are also needed.

    Source: PROTOCOL.md#add-file-and-remove-file, #deletion-vector-descriptor-schema
    """
    needed: set[str] = set()
    for path, vector in _references(snapshot, cutoff_ms):
        needed.update(_spellings(path, snapshot.location))
        position = locate_vector(vector) if vector else None
        if position is not None:
            needed.update(_spellings(position.path, snapshot.location))
    return needed


def _references(snapshot: Snapshot, cutoff_ms: int) -> Iterator[tuple[str, DeletionVector | None]]:
    """Yield the path and the deletion vector of every file action that matters."""
    files = snapshot.files()
    yield from ((path, None) for path in files["path"].to_pylist())
    vectors = files["deletion_vector"]
    yield from (("", DeletionVector(**vector)) for vector in vectors.filter(pc.is_valid(vectors)).to_pylist())
    for remove in snapshot.removed_files():
        if (remove.deletion_timestamp or 0) >= cutoff_ms:
            yield remove.path, remove.deletion_vector
    paths = _commits_since(snapshot, cutoff_ms)
    for path, data in zip(paths, snapshot.store.read_many(paths), strict=True):
        for line in decode_commit(path, data):
            if line.remove is not None:
                yield line.remove.path, line.remove.deletion_vector
            elif line.cdc is not None:
                yield line.cdc.path, None


def _commits_since(snapshot: Snapshot, cutoff_ms: int) -> list[str]:
    """Return the paths of the commits after a time; the version that was current at that time needs their removes."""
    commits = [file for file in find_versions(snapshot.store) if file.first <= snapshot.version]
    try:
        last = find_version(snapshot.store, commits, cutoff_ms, snapshot.properties) if commits else -1
    except VersionNotFound:  # all versions are newer
        last = -1
    return [file.entry.path for file in commits if file.first > last]


def _spellings(path: str, location: str) -> Iterator[str]:
    """Yield the paths in the table that the path of an action may mean; more than one only to keep more files.

    The location of the table can have other spellings (links, aliases of a scheme), so an absolute path may be in the
    table although it does not seem so. It keeps the file of the table that its last parts name. A path that some
    writer did not encode keeps the file of that name.
    """
    plain = canonical_path(path, location)
    yield plain
    if "%" in path:
        yield path
    if plain.startswith("/") or "://" in plain:
        parts = plain.split("/")
        yield from ("/".join(parts[at:]) for at in range(1, len(parts)))


_LEFTOVER = re.compile(r"[0-9a-f]{32}/|[._]|.*/[._]")
"""Files that a killed job leaves behind, and files that readers ignore."""


def ensure_location_empty(store: LogStore, option: str) -> None:
    """Check that a folder without a table is free for one.

    Args:
        option: The argument that names the folder.

    Raises:
        InvalidOption: it has files of something else.
    """
    paths = [entry.path for entry in store.list("")]
    progress = in_checkpoints(paths)
    other = next((path for path in paths if not _LEFTOVER.match(path) and path not in progress), None)
    if other is not None:
        expected = f"Must be a table or an empty location; it has no table but other files, e.g. {other}."
        raise InvalidOption(option=option, value=store.location, expected=expected)
