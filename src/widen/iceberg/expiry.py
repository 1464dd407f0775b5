"""Vacuum of an Iceberg table: snapshots expire, and files that no snapshot needs are deleted.

A snapshot stays if it is younger than the retention, among the newest ones of a branch, or the one of a branch or a
tag. A file is deleted only if it is older than the retention and no snapshot names it that is left in the newest
metadata. Files outside of the location of the table are deleted only if an expired snapshot named them.

Source: Iceberg's table specification, "Snapshot Retention Policy"
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote

from widen.errors import InvalidOption, RetentionTooShort, UnsupportedFeatureForWrite
from widen.errors.tables import add_note
from widen.iceberg.catalog import TableName, open_store
from widen.iceberg.metadata_files import read_manifests
from widen.iceberg.mirror import MIRROR_OF
from widen.iceberg.snapshots import ancestors
from widen.iceberg.table_commit import commit_metadata, ensure_table_writable
from widen.log.commit_files import current_ms
from widen.log.log_segment import LOG
from widen.log.vacuum import CLOCK_SKEW_MS, HOUR_MS, in_checkpoints
from widen.model.lazy_module import import_lazily
from widen.model.value_classes import dataclass

if TYPE_CHECKING:
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.refs import SnapshotRef

    from widen.log.local_files import FileEntry

ice_update = import_lazily("pyiceberg.table.update")

MAX_AGE, MIN_COUNT = "history.expire.max-snapshot-age-ms", "history.expire.min-snapshots-to-keep"
MAX_REF_AGE = "history.expire.max-ref-age-ms"
"""Table properties: the age of snapshots that expire, how many of a branch stay, and the age of branches and tags."""

_FIVE_DAYS_MS = 5 * 24 * HOUR_MS
"""Iceberg's default of `MAX_AGE`."""

_GARBAGE_COLLECTION = "gc.enabled"
_SHARED = "files that others use, too: its property gc.enabled is false"
_MIRRORED = "the files of a Delta table, which it mirrors: vacuum that one"
_DELTA_LOG = f"the folder {LOG} of a Delta table in its location: vacuum that one"
_OTHER_NAMES = "files that its store lists under other names than its metadata"


@dataclass(frozen=True, slots=True)
class ExpiryRequest:
    """What to expire.

    Args:
        retention_ms: The age; None for the table's age.
        keep_last: How many snapshots of each branch stay, however old they are; None for the number of the table.
        force: Whether the age may be less than the table's age.
    """

    retention_ms: int | None = None
    keep_last: int | None = None
    force: bool = False


@dataclass(frozen=True, slots=True)
class ExpiryPlan:
    """What a vacuum removes.

    Args:
        cutoff_ms: Snapshots and files since this time stay, in ms since the epoch.
        files: The files in the location of the table, with their paths in it.
        outside: The locations of files of these snapshots that are not in it.
    """

    table: Table
    cutoff_ms: int
    snapshots: frozenset[int] = frozenset()
    references: tuple[str, ...] = ()
    files: tuple[FileEntry, ...] = ()
    outside: tuple[str, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """The files, those outside of the table by their locations."""
        return (*(entry.path for entry in self.files), *self.outside)

    @property
    def size_bytes(self) -> int:
        """The size of the files in the location of the table."""
        return sum(entry.size_bytes for entry in self.files)


def plan_expiry(name: TableName, request: ExpiryRequest) -> ExpiryPlan:
    """Return which snapshots expire and which files no other snapshot needs; removes nothing.

    Raises:
        RetentionTooShort: the age is less than the table's age.
        InvalidOption: a property of the table is not a number, or the number to keep is not positive.
    """
    table = name.load()
    ensure_table_writable(name, table)
    _ensure_own_files(table)
    retention_ms = own_ms if (own_ms := _integer(table.properties, MAX_AGE)) is not None else _FIVE_DAYS_MS
    if request.retention_ms is not None and request.retention_ms < retention_ms and not request.force:
        hours, least = f"{request.retention_ms / HOUR_MS:g}", f"{retention_ms / HOUR_MS:g}"
        raise RetentionTooShort(location=str(name), hours=hours, least=least)
    if request.keep_last is not None and request.keep_last < 1:
        raise InvalidOption(option="keep_last", value=request.keep_last, expected="Must be an integer >= 1.")
    kept_ms = retention_ms if request.retention_ms is None else request.retention_ms
    cutoff_ms = max(0, current_ms() - kept_ms - (CLOCK_SKEW_MS if kept_ms else 0))
    # The listing comes before the metadata: a file that is committed in between is then known to be needed.
    store = open_store(table.location(), table.io)
    visible = _VisibleFiles()
    entries = list(store.walk(visible.skips))
    table = name.load()
    _ensure_listed(table, entries)
    kept, references = _kept_snapshots(table.metadata, cutoff_ms, request)
    expired = {each.snapshot_id for each in table.metadata.snapshots} - kept
    needed = _NeededFiles.of(table, kept)
    old = (entry for entry in entries if entry.modified_ms < cutoff_ms and visible.may_delete(entry.path))
    progress = in_checkpoints([entry.path for entry in entries])
    files = [entry for entry in old if not needed.has(entry) and entry.path not in progress]
    names = needed.names
    outside = (path for path in _files_of(table, expired, with_table=False) if not names.is_below(path))
    return ExpiryPlan(
        table,
        cutoff_ms,
        frozenset(expired),
        references,
        tuple(sorted(files, key=lambda entry: entry.path)),
        tuple(sorted({path for path in outside if names.key(path) not in needed.keys})),
    )


def run_expiry(name: TableName, plan: ExpiryPlan) -> ExpiryPlan:
    """Expire the snapshots of a plan in one commit, delete its files, and return what was done.

    Files that are needed by what others have committed since the plan stay. If a deletion fails, the table is still
    valid, and another vacuum deletes the rest.
    """
    table = plan.table
    if plan.snapshots or plan.references:
        table = commit_metadata(name, table, partial(_expire, plan), partial(_is_done, plan))
    try:
        files, outside = _delete_files(name, plan)
    except BaseException as error:
        add_note(error, f"The snapshots of {name} have expired. Another vacuum deletes what is left of their files.")
        raise
    return ExpiryPlan(table, plan.cutoff_ms, plan.snapshots, plan.references, files, outside)


def _delete_files(name: TableName, plan: ExpiryPlan) -> tuple[tuple[FileEntry, ...], tuple[str, ...]]:
    """Delete the files of a plan that nobody needs, and return them: those in the location of the table, and others."""
    newest = name.load()
    needed = _NeededFiles.of(newest, {each.snapshot_id for each in newest.metadata.snapshots})
    files = tuple(entry for entry in plan.files if not needed.has(entry))
    outside = tuple(path for path in plan.outside if needed.names.key(path) not in needed.keys)
    open_store(newest.location(), newest.io).delete([entry.path for entry in files])
    for path in outside:
        newest.io.delete(path)
    return files, outside


def _expire(plan: ExpiryPlan, transaction: Transaction) -> None:
    metadata = transaction.table_metadata
    # A rollback or a branch of another writer could need a snapshot that expires.
    unchanged = tuple(
        ice_update.AssertRefSnapshotId(ref=ref, snapshot_id=each.snapshot_id) for ref, each in metadata.refs.items()
    )
    updates = [ice_update.RemoveSnapshotRefUpdate(ref_name=each) for each in plan.references]
    if plan.snapshots:
        updates.append(ice_update.RemoveSnapshotsUpdate(snapshot_ids=sorted(plan.snapshots)))
    transaction._stage(tuple(updates), unchanged)


def _is_done(plan: ExpiryPlan, metadata: TableMetadata) -> bool:
    left = {each.snapshot_id for each in metadata.snapshots}
    return left.isdisjoint(plan.snapshots) and metadata.refs.keys().isdisjoint(plan.references)


# ---- which snapshots stay -------------------------------------------------------------------------


def _kept_snapshots(
    metadata: TableMetadata, cutoff_ms: int, request: ExpiryRequest
) -> tuple[set[int], tuple[str, ...]]:
    """Return the ids of the snapshots that stay, and the branches and tags that expire.

    Source: Iceberg's table specification, "Snapshot Retention Policy"
    """
    properties, now_ms = metadata.properties, current_ms()
    ref_age_ms = _integer(properties, MAX_REF_AGE)
    count = request.keep_last or _integer(properties, MIN_COUNT) or 1
    kept: set[int] = set()
    expired: list[str] = []
    referenced: set[int] = set()
    for label, reference in metadata.refs.items():
        head = metadata.snapshot_by_id(reference.snapshot_id)
        if head is None:
            continue
        line = [each.snapshot_id for each in ancestors(metadata, head)]
        age_ms = reference.max_ref_age_ms if reference.max_ref_age_ms is not None else ref_age_ms
        if label != "main" and age_ms is not None and head.timestamp_ms < now_ms - age_ms:
            expired.append(label)
            continue
        referenced.update(line)
        kept.add(head.snapshot_id)
        if reference.snapshot_ref_type.value == "branch":
            kept |= _kept_of_branch(metadata, reference, cutoff_ms, request, count)
    # A snapshot that no branch has, e.g. one that was rolled back, stays until it is old enough.
    kept |= {
        each.snapshot_id
        for each in metadata.snapshots
        if each.snapshot_id not in referenced and each.timestamp_ms >= cutoff_ms
    }
    return kept, tuple(sorted(expired))


def _kept_of_branch(
    metadata: TableMetadata, reference: SnapshotRef, cutoff_ms: int, request: ExpiryRequest, count: int
) -> set[int]:
    since_ms, least = cutoff_ms, count
    # What a branch says of itself counts unless the caller says otherwise.
    if request.retention_ms is None and reference.max_snapshot_age_ms is not None:
        since_ms = current_ms() - reference.max_snapshot_age_ms
    if request.keep_last is None and reference.min_snapshots_to_keep is not None:
        least = reference.min_snapshots_to_keep
    kept: set[int] = set()
    for at, each in enumerate(ancestors(metadata, metadata.snapshot_by_id(reference.snapshot_id))):
        if at >= least and each.timestamp_ms < since_ms:
            break
        kept.add(each.snapshot_id)
    return kept


def _integer(properties: Mapping[str, str], name: str) -> int | None:
    text = properties.get(name)
    if text is None:
        return None
    if not text.isdecimal():
        raise InvalidOption(option=name, value=text, expected="Must be an integer >= 0. Set it to one, or remove it.")
    return int(text)


# ---- which files are needed -----------------------------------------------------------------------


def _files_of(table: Table, snapshots: Iterable[int], *, with_table: bool = True) -> Iterator[str]:
    """Yield the locations of all files that snapshots and the table itself need.

    Args:
        with_table: Whether to yield the metadata files and the statistics of the table as well.
    """
    metadata, wanted, seen = table.metadata, set(snapshots), set[str]()
    if with_table:
        yield table.metadata_location
        yield from (entry.metadata_file for entry in metadata.metadata_log)
        statistics = (*metadata.statistics, *metadata.partition_statistics)
        yield from (each.statistics_path for each in statistics if each.snapshot_id in wanted)
    for snapshot in metadata.snapshots:
        if snapshot.snapshot_id not in wanted:
            continue
        yield snapshot.manifest_list
        for manifest in read_manifests(metadata, table.io, snapshot):
            if manifest.manifest_path in seen:
                continue
            seen.add(manifest.manifest_path)
            yield manifest.manifest_path
            yield from (entry.data_file.file_path for entry in manifest.fetch_manifest_entry())


@dataclass(frozen=True)
class _Refs:
    """The names of files, in a form that makes names in the metadata and names in the store equal.

    Schemes have aliases (s3 and s3a), and some writers encode what others do not. Where two files have one form, both
    stay if one of them is needed.
    """

    location: str

    def key(self, location: str) -> str:
        return unquote(_SLASHES.sub("/", _SCHEME.sub("", location))).strip("/")

    def of(self, entry: FileEntry) -> str:
        return f"{self.key(self.location)}/{unquote(entry.path)}"

    def is_below(self, location: str) -> bool:
        return self.key(location).startswith(f"{self.key(self.location)}/")


_SCHEME, _SLASHES = re.compile("^[A-Za-z][A-Za-z0-9+.-]*:"), re.compile("/+")


@dataclass(frozen=True)
class _NeededFiles:
    """The files that snapshots need.

    Args:
        keys: Their names, in the form of `_Refs`.
        other: The last parts of the names of those that are not in the location of the table. The location may have
            another spelling, e.g. an alias of a bucket, so a file of the same last part stays.
    """

    names: _Refs
    keys: frozenset[str]
    other: frozenset[str]

    @classmethod
    def of(cls, table: Table, snapshots: Iterable[int]) -> _NeededFiles:
        names = _Refs(table.location())
        paths = list(_files_of(table, snapshots))
        other = {_last(path) for path in paths if not names.is_below(path)}
        return cls(names, frozenset(map(names.key, paths)), frozenset(other))

    def has(self, entry: FileEntry) -> bool:
        """Return whether a file in the location of the table may be needed."""
        return self.names.of(entry) in self.keys or _last(entry.path) in self.other


def _last(path: str) -> str:
    return unquote(path).rpartition("/")[2]


def _ensure_listed(table: Table, entries: Sequence[FileEntry]) -> None:
    """Check that the store lists the newest metadata file under its name; else every file would seem unneeded.

    Raises:
        UnsupportedFeatureForWrite: it does not.
    """
    names, newest = _Refs(table.location()), table.metadata_location
    if names.is_below(newest) and names.key(newest) not in map(names.of, entries):
        raise UnsupportedFeatureForWrite(verb="vacuum", location=table.location(), features=_OTHER_NAMES)


def _ensure_own_files(table: Table) -> None:
    """Check that nobody else needs the files of a table.

    Raises:
        UnsupportedFeatureForWrite: somebody may.
    """
    properties = table.properties
    is_shared = properties.get(_GARBAGE_COLLECTION, "true").lower() == "false"
    reason = _SHARED if is_shared else _MIRRORED if MIRROR_OF in properties else None
    if reason is None and next(iter(open_store(table.location(), table.io).list(LOG)), None) is not None:
        reason = _DELTA_LOG
    if reason is not None:
        raise UnsupportedFeatureForWrite(verb="vacuum", location=table.location(), features=reason)


_METADATA = "metadata"
_OWN_METADATA = re.compile(r"metadata/[^/]+\.(?:avro|metadata\.json(?:\.gz)?|gz\.metadata\.json|puffin|stats)")


@dataclass
class _VisibleFiles:
    """Which files of a listing may be deleted: not hidden ones, and none of a table in a folder of this one."""

    folders: set[str] = field(default_factory=set)

    def skips(self, folder: str) -> bool:
        """Return whether nothing in a folder can be deleted."""
        last = folder.rpartition("/")[2]
        if last in (_METADATA, LOG) and folder != last:
            self.folders.add(folder.removesuffix(last))
        return any(part.startswith((".", "_")) and "=" not in part for part in folder.split("/"))

    def may_delete(self, path: str) -> bool:
        """Return whether a file may be deleted if no snapshot needs it; asked after the listing."""
        if any(map(path.startswith, self.folders)) or path.rpartition("/")[2].startswith((".", "_")):
            return False
        return not path.startswith(f"{_METADATA}/") or _OWN_METADATA.fullmatch(path) is not None
