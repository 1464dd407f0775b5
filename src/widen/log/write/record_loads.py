"""Record loads: write the record file of a commit, and the transaction identifier that names it.

The record file is written before the commit. If the commit is not made, nothing names the file.

Source: PROTOCOL.md#transaction-identifiers; docs/guide/files.md#record
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial

import msgspec

from widen.errors import AttemptsExhausted, ConcurrentTransaction, CorruptLog, FileMissing, InternalError, StorageError
from widen.log.read.commit_timestamps import current_ms
from widen.log.read.loads import (
    APP_ID,
    FOLDER,
    NONCE_BITS,
    Load,
    Record,
    RecordFolder,
    encode_record,
    find_head,
    read_loads,
    record_file,
)
from widen.log.read.snapshot import Snapshot, open_snapshot
from widen.log.store.log_store import LogStore
from widen.log.write.commit_outcome import Conflicted, Outcome
from widen.log.write.staged_files import StagedFiles
from widen.protocol.actions import Txn

MAX_INLINE_FILES, MAX_SEGMENTS = 256, 16
"""From how many files on a record becomes a segment, and from how many segments on they become one."""

CLEANUP_EVERY, KEPT_MS = 64, 24 * 3600 * 1000
"""After how many records old ones are deleted, and how long a record that is not needed any more is kept: another
process may still read it."""

MAX_RACES = 1_000


def commit_with_loads(
    store: LogStore,
    base: Snapshot | None,
    load: Load,
    commit_on: Callable[[Snapshot | None, Txn], Outcome],
    *,
    staged: StagedFiles,
    is_exclusive: bool,
    interval: Txn | None = None,
) -> Outcome:
    """Commit together with the record of a load.

    The record names the loads before it, and the version. So each attempt to win a version needs its own record;
    the data files stay as they are.

    Args:
        base: The version that the commit is based on; None to create the table.
        load: The load; its version and time are replaced.
        commit_on: Makes one attempt to commit the version after a base, together with a transaction identifier. It
            must not depend on anything but the metadata of the base.
        staged: Deletes the record file if the commit is not made.
        is_exclusive: Whether the load depends on which files are loaded. Then another load is a conflict.
        interval: The identifier of the interval of a stream that the commit is, if any.
    """
    outcome: Outcome
    for _ in range(MAX_RACES):
        txn = _write_record(store, base, load, staged)
        outcome = commit_on(base, txn)
        if not isinstance(outcome, Conflicted) or base is None:
            return outcome
        with suppress(StorageError):
            store.delete([f"{FOLDER}/{record_file(txn.version)}"])
        # Each attempt is a single one, so a lost race reads as exhausted attempts, with the version of the winner.
        is_race = isinstance(outcome.error, AttemptsExhausted)
        is_other_load = isinstance(outcome.error, ConcurrentTransaction) and not is_exclusive
        if not (is_race or is_other_load):
            return outcome
        winner = outcome.error.fields["version"]
        assert isinstance(winner, int)
        base = open_snapshot(store, winner)
        # The winner is another attempt to commit the same interval.
        if interval is not None and base.has_written(interval):
            return outcome
    return outcome


def restore_loads(now: Snapshot, then: Snapshot, version: int) -> tuple[Txn, ...]:
    """Return the transaction identifier that makes the loads of an earlier version those of a new one.

    Args:
        then: The version whose loads count.
    """
    if find_head(now) == find_head(then):
        return ()
    try:
        loads = read_loads(then)
    except CorruptLog:  # record files that are not needed any more are deleted after a while
        loads = tuple(load for load in read_loads(now) if load.version <= then.version)
    return (_to_txn(put_record(RecordFolder(now.store), version, Record(loads=loads), StagedFiles())),)


def _write_record(store: LogStore, base: Snapshot | None, load: Load, staged: StagedFiles) -> Txn:
    version = 0 if base is None else base.version + 1
    load = msgspec.structs.replace(load, version=version, loaded_ms=current_ms())
    return _to_txn(write_record(RecordFolder(store), find_head(base), load, version, staged))


def _to_txn(head: int) -> Txn:
    return Txn(app_id=APP_ID, version=head, last_updated=current_ms())


def write_record(folder: RecordFolder, head: str | None, load: Load, version: int, staged: StagedFiles) -> int:
    """Write a record file with one more load, and return the number that names it; see `record_file`.

    Args:
        head: The newest record file; None if there is none.
        load: The load, with its version and time.
        version: A number that grows with each commit to the table.
        staged: Deletes the file if the commit is not made.
    """
    return put_record(folder, version, _with_load(folder, head, load, version, staged), staged)


def _with_load(folder: RecordFolder, head: str | None, load: Load, version: int, staged: StagedFiles) -> Record:
    """Return a record with one more load."""
    if head is None:
        return Record(loads=(load,))
    try:
        record = folder.read(head)
    except FileMissing:  # a copy of a table without its hidden files: a new record begins
        return Record(loads=(load,))
    number = record.number + 1
    if number % CLEANUP_EVERY == 0:
        _delete_old_records(folder, {head, *record.segments})
    if sum(len(each.files) + len(each.bad_files) for each in record.loads) < MAX_INLINE_FILES:
        return Record(number=number, loads=(*record.loads, load), segments=record.segments)
    segments: tuple[str, ...] = (*record.segments, head)
    if len(segments) > MAX_SEGMENTS:
        merged = put_record(folder, version, Record(number=number, loads=folder.read_loads(head)), staged)
        segments = (record_file(merged),)
    return Record(number=number, loads=(load,), segments=segments)


def put_record(folder: RecordFolder, version: int, record: Record, staged: StagedFiles) -> int:
    """Write a record file under a name that no other writer uses, and return the number that names it.

    Args:
        version: A number that grows with each commit to the table.
        staged: Deletes the file if the commit is not made.

    Raises:
        InternalError: every name is taken, which should not happen.
    """
    data = encode_record(record)
    for _ in range(MAX_RACES):
        # Never 0, which stands for no record.
        head = version << NONCE_BITS | (secrets.randbits(NONCE_BITS) or 1)
        path = folder.file(record_file(head))
        if folder.store.put_if_absent(path, data):
            staged.add_undo(partial(folder.store.delete, [path]))
            return head
    raise InternalError(reason=f"{MAX_RACES} names of records in {folder.store.location} are taken")


def _delete_old_records(folder: RecordFolder, needed: Collection[str]) -> None:
    """Delete record files that no version needs any more; storage errors are ignored, since files only cost space."""
    before_ms = current_ms() - KEPT_MS
    with suppress(StorageError):
        entries = [entry for entry in folder.store.list(folder.path) if entry.path.rpartition("/")[2] not in needed]
        folder.store.delete([entry.path for entry in entries if entry.modified_ms < before_ms])
