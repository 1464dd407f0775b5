"""The record of loads: the source files that a table has loaded, and their versions.

A transaction identifier of the application `APP_ID` names the newest record file, so that the record is atomic with the
commit, survives checkpoints and log cleanup, and is carried along by every other writer. The record files are in
`FOLDER`, a subfolder of the log, which every VACUUM leaves alone. A record file holds the newest loads itself and names
older files, the segments, for the rest; so a commit writes one small file.

Source: PROTOCOL.md#transaction-identifiers; docs/guide/files.md#record
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain

import msgspec

from widen.errors import AttemptsExhausted, ConcurrentTransaction, CorruptLog, FileMissing, InternalError, StorageError
from widen.log.commit_files import current_ms
from widen.log.commit_outcome import Conflicted, Outcome, StagedFiles
from widen.log.file_list import canonical_path
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot, open_snapshot
from widen.protocol.actions import Txn

APP_ID = "widen.loads"
FOLDER = "_delta_log/_widen/loads"

NONCE_BITS = 20
"""The low bits of the transaction version. They distinguish writers that race for the same table version."""


class LoadedFile(msgspec.Struct, frozen=True, array_like=True):
    """A source file as it was when it was loaded.

    Args:
        modified_ms: The time of its last modification, in ms since 1970 UTC.
        content: A hash of its content; empty if it was not computed.
        parked: Why the file was not loaded: the limit that a batch with it is over; empty for other files.
    """

    path: str
    size_bytes: int
    modified_ms: int
    content: str = ""
    parked: str = ""

    @property
    def key(self) -> str:
        """The same text for every spelling of the path."""
        return canonical_path(self.path)

    @property
    def stamp(self) -> tuple[int, int]:
        """What changes when the file is written again: its size and its time."""
        return self.size_bytes, self.modified_ms


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """One commit that loaded source files.

    Args:
        loaded_ms: The time of the load, in ms since 1970 UTC.
        corrupt: The number of lines that are not records, kept in the corrupt-record column.
        quarantined_records: The number of records in the quarantine instead.
        bad_files: The files that could not be read and were skipped, and those that are parked.
    """

    version: int
    loaded_ms: int
    files: tuple[LoadedFile, ...]
    records: int = 0
    corrupt: int = 0
    quarantined_records: int = 0
    bad_files: tuple[LoadedFile, ...] = ()


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a record file.

    Args:
        loads: The newest loads, oldest first.
        segments: Files with older loads, oldest first, in the same folder.
    """

    number: int = 0
    loads: tuple[Load, ...] = ()
    segments: tuple[str, ...] = ()


def record_file(head: int) -> str:
    """Return the name of a record file.

    Args:
        head: The version of the transaction identifier that names it.
    """
    return f"loads.{head >> NONCE_BITS:020}.{head & ((1 << NONCE_BITS) - 1):05x}.json.z"


def find_head(snapshot: Snapshot | None) -> str | None:
    """Return the name of the record file of a version; None if no load is recorded."""
    txn = None if snapshot is None else snapshot.transactions.get(APP_ID)
    return record_file(txn.version) if txn is not None and txn.version > 0 else None


@dataclass(frozen=True, slots=True)
class RecordFolder:
    """The folder with the record files of a table."""

    store: LogStore
    path: str = FOLDER

    def file(self, name: str) -> str:
        """Return the path of a record file in the table."""
        return f"{self.path}/{name}"

    def read(self, name: str) -> Record:
        """Return the content of a record file."""
        return _decode(self.file(name), self.store.read(self.file(name)))

    def read_loads(self, head: str) -> tuple[Load, ...]:
        """Return the loads of a record file and of its segments, oldest first.

        Raises:
            CorruptLog: a record file is missing or damaged.
        """
        try:
            record = self.read(head)
            paths = [self.file(name) for name in record.segments]
            older = [_decode(path, data).loads for path, data in zip(paths, self.store.read_many(paths), strict=True)]
        except FileMissing as error:
            fix = "Load files by name, without new; that starts a new record. If you copy a table, copy its whole log."
            reason = "a part of the record of loads is missing"
            raise CorruptLog(path=self.file(head), reason=reason, fix=fix) from error
        return (*chain.from_iterable(older), *record.loads)


def parked_files(loads: Sequence[Load]) -> list[LoadedFile]:
    """Return the files that are parked and have not been loaded since."""
    parked: dict[str, LoadedFile] = {}
    for load in loads:
        for file in load.files:
            parked.pop(file.key, None)
        parked.update((file.key, file) for file in load.bad_files if file.parked)
    return list(parked.values())


def read_loads(snapshot: Snapshot | None) -> tuple[Load, ...]:
    """Return the loads of a version of a table, oldest first.

    Args:
        snapshot: The version; None if the table does not exist yet.
    """
    head = find_head(snapshot)
    return () if snapshot is None or head is None else RecordFolder(snapshot.store).read_loads(head)


def encode_record(record: Record) -> bytes:
    """Return a record as the content of a file."""
    loads = [_to_wire(load) for load in record.loads]
    return zlib.compress(_encoder.encode(_RecordWire(record.number, loads, record.segments)), 6)


def _decode(path: str, data: bytes) -> Record:
    try:
        wire = _decoder.decode(zlib.decompress(data))
    except (zlib.error, msgspec.DecodeError) as error:
        fix = "Restore the file from a backup."
        raise CorruptLog(path=path, reason="it is not a record of loads", fix=fix) from error
    loads = tuple(_from_wire(load) for load in wire.loads)
    return Record(number=wire.number, loads=loads, segments=wire.segments)


class _LoadWire(msgspec.Struct, array_like=True):
    """A `Load` column by column, which is small after compression."""

    version: int
    loaded_ms: int
    records: int
    corrupt: int
    quarantined_records: int
    paths: Sequence[str]
    sizes: Sequence[int]
    times: Sequence[int]
    contents: Sequence[str] = ()  # empty where no hash is known, and in records of older versions
    bad_files: tuple[LoadedFile, ...] = ()


class _RecordWire(msgspec.Struct):
    number: int
    loads: list[_LoadWire]
    segments: tuple[str, ...] = ()


def _to_wire(load: Load) -> _LoadWire:
    return _LoadWire(
        load.version,
        load.loaded_ms,
        load.records,
        load.corrupt,
        load.quarantined_records,
        [file.path for file in load.files],
        [file.size_bytes for file in load.files],
        [file.modified_ms for file in load.files],
        [file.content for file in load.files] if any(file.content for file in load.files) else (),
        load.bad_files,
    )


def _from_wire(wire: _LoadWire) -> Load:
    contents = wire.contents or [""] * len(wire.paths)
    columns: Iterable[tuple[str, int, int, str]] = zip(wire.paths, wire.sizes, wire.times, contents, strict=True)
    return Load(
        version=wire.version,
        loaded_ms=wire.loaded_ms,
        files=tuple(LoadedFile(*values) for values in columns),
        records=wire.records,
        corrupt=wire.corrupt,
        quarantined_records=wire.quarantined_records,
        bad_files=wire.bad_files,
    )


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_RecordWire)


# Record loads: write the record file of a commit, and the transaction identifier that names it.
#
# The record file is written before the commit. If the commit is not made, nothing names the file.
#
# Source: PROTOCOL.md#transaction-identifiers; docs/guide/files.md#record


MAX_INLINE_FILES, MAX_SEGMENTS = 256, 16
"""A record with this many files becomes a segment, and this many segments become one."""

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
        is_exclusive: Whether the load depends on the files that are already loaded. Then another load is a conflict.
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
    """Return the transaction identifier that gives a new version the loads of an earlier version.

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
        head: The newest record file; None if there is no record file.
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
