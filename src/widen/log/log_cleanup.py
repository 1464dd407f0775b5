"""Log cleanup: delete expired versions, up to a checkpoint that replaces them.

Source: PROTOCOL.md#metadata-cleanup; protocol_rfcs/checkpoint-protection.md
"""

from __future__ import annotations

from widen.log.checkpoint_reader import read_sidecars
from widen.log.commit_files import current_ms, file_times_ms
from widen.log.log_segment import SIDECARS, LogListing, list_log
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot
from widen.protocol.table_configuration import protected_before
from widen.protocol.table_properties import DEFAULTS, LOG_RETENTION, parse_duration_ms

ENABLE = "delta.enableExpiredLogCleanup"
MINUTE_MS, DAY_MS = 60_000, 86_400_000


def clean_up_if_enabled(snapshot: Snapshot) -> int:
    """Delete expired log files, unless the table disables that or its retention is invalid.

    Returns:
        The number of deleted files.

    Source: Delta Spark: delta.enableExpiredLogCleanup, true by default.
    """
    properties = snapshot.properties
    retention_ms = parse_duration_ms(properties.get(LOG_RETENTION, DEFAULTS[LOG_RETENTION]))
    if retention_ms is None or properties.get(ENABLE, "true").lower() == "false":
        return 0
    return clean_up(snapshot, retention_ms)


def clean_up(snapshot: Snapshot, retention_ms: int, unit_ms: int = DAY_MS, now_ms: int | None = None) -> int:
    """Delete the versions before the newest checkpoint that is older than the retention.

    Every version within the retention can still be opened. If checkpoints are protected, all protected versions are
    deleted together, or none.

    Args:
        unit_ms: The start of the retention is rounded down to a multiple of this, in ms.

    Returns:
        The number of deleted files.

    Source: PROTOCOL.md#metadata-cleanup
    """
    now_ms = current_ms() if now_ms is None else now_ms
    listing = list_log(snapshot.store)
    first = _first_to_keep(listing, (now_ms - retention_ms) // unit_ms * unit_ms)
    if first is None or first < protected_before(snapshot.configuration):
        return 0
    expired, checksums = ([entry.path for entry in entries] for entries in listing.before(first))
    # A writer with an old base takes the commit of that base for a sign that no later one is deleted.
    snapshot.store.delete_in_order(expired)
    snapshot.store.delete(checksums)
    # Sidecars go last: until then, a checkpoint that is still listed may name them.
    unused = _unused_sidecars(snapshot.store, list_log(snapshot.store), now_ms) if expired else []
    snapshot.store.delete(unused)
    return len(expired) + len(checksums) + len(unused)


def is_truncated(snapshot: Snapshot) -> bool:
    """Return whether no commit of the protected versions is left, and a later checkpoint replaces them."""
    listing, first = list_log(snapshot.store), protected_before(snapshot.configuration)
    checkpoint = earliest_reliable_checkpoint(listing)
    return not first or (checkpoint is not None and checkpoint >= first and min(listing.commits) >= first)


def earliest_reliable_checkpoint(listing: LogListing) -> int | None:
    """Return the version of the oldest checkpoint from which all later versions can be reconstructed; None if none.

    The commit of that version must exist, too, and no later commit may be missing.

    Source: Delta Spark.
    """
    reliable = None
    for version in sorted(listing.commits, reverse=True):
        if version < listing.newest and version + 1 not in listing.commits:
            break
        reliable = version if version in listing.checkpoints else reliable
    return reliable


def _first_to_keep(listing: LogListing, cutoff_ms: int) -> int | None:
    """Return the version of the newest checkpoint at or before the newest commit that is older than the cutoff."""
    commits = listing.versions
    old = [c.first for c, time_ms in zip(commits, file_times_ms(commits), strict=True) if time_ms <= cutoff_ms]
    checkpoint = listing.checkpoint(old[-1]) if old else None
    # An empty file, e.g. of a writer that crashed, replaces nothing.
    is_complete = checkpoint is not None and all(entry.size_bytes for entry in checkpoint.files)
    return checkpoint.version if checkpoint and is_complete and checkpoint.version in listing.commits else None


def _unused_sidecars(store: LogStore, listing: LogListing, now_ms: int) -> list[str]:
    """Return the sidecars that no checkpoint names.

    Sidecars of the last day are kept: a writer creates them before the checkpoint that names them.
    """
    since_ms = now_ms // DAY_MS * DAY_MS - DAY_MS
    old = [entry for entry in store.list(SIDECARS) if entry.modified_ms < since_ms]
    if not old:
        return []
    used = {s.path.rpartition("/")[2] for entry in listing.checkpoint_files for s in read_sidecars(store, entry)}
    return [entry.path for entry in old if entry.name not in used]
