"""The record of loads: the source files that a table has loaded, and their versions.

A transaction identifier of the application `APP_ID` names the newest record file, so that the record is atomic with the
commit, survives checkpoints and log cleanup, and is carried along by every other writer. The record files are in
`FOLDER`, a subfolder of the log, which every VACUUM leaves alone. A record file holds the newest loads itself and names
segments for the rest; so a commit writes one small file, and a segment for many files. Segments of about the same size
become one, up to `MAX_SEGMENT_FILES`: a file is written again some ten times at most. In older records, segments have
the form of record files; the next segment takes them in.

Source: PROTOCOL.md#transaction-identifiers; docs/guide/files.md#record
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from widen.errors import AttemptsExhausted, ConcurrentTransaction, CorruptLog, FileMissing, InternalError, StorageError
from widen.log.commit_files import current_ms
from widen.log.commit_outcome import Conflicted, Outcome, StagedFiles
from widen.log.load_segments import (
    MAX_SEGMENT_FILES,
    ROWS,
    Audits,
    Load,
    LoadedFile,
    LoadedFiles,
    RowFilter,
    Segment,
    SegmentFile,
    describe_segment,
    encode_segment,
    read_segment,
    sort_segment,
    split_rows,
    to_loads,
    to_rows,
)
from widen.log.log_store import LogStore
from widen.log.snapshot import Snapshot, open_snapshot
from widen.model.value_classes import dataclass
from widen.protocol.actions import Txn

APP_ID = "widen.loads"
FOLDER = "_delta_log/_widen/loads"

NONCE_BITS = 20
"""The low bits of the transaction version. They distinguish writers that race for the same table version."""


class Replaced(msgspec.Struct, frozen=True, array_like=True):
    """A record that a restore has replaced. The table may be restored to a version that needs it.

    Args:
        version: The version of a Delta table that no longer has it.
        versions: The loads of an Iceberg table that only it has.
    """

    head: str
    version: int = 0
    versions: tuple[int, ...] = ()


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """The content of a record file.

    Args:
        number: The number of its newest load; those before it count down.
        loads: The newest loads, oldest first.
        segments: Files with older loads, oldest first, in the same folder; those of older records by name.
        replaced: The records that restores have replaced, oldest first.
        audits: When each source was last listed as a whole, by its `path_key`, in ms since 1970 UTC.
    """

    number: int = 0
    loads: tuple[Load, ...] = ()
    segments: tuple[Segment | str, ...] = ()
    replaced: tuple[Replaced, ...] = ()
    audits: Mapping[str, int] = msgspec.field(default_factory=dict)


def record_file(head: int) -> str:
    """Return the name of a record file.

    Args:
        head: The version of the transaction identifier that names it.
    """
    return f"loads.{head >> NONCE_BITS:020}.{head & ((1 << NONCE_BITS) - 1):05x}.json.z"


def segment_file(head: int) -> str:
    """Return the name of a segment; see `record_file`."""
    return record_file(head).replace("loads.", "files.", 1).replace(".json.z", ".parquet")


_OLD_NUMBERS = 1 << 40
"""The numbers of loads in segments of older records begin so much below their versions: before those of newer ones."""


def segment_name(segment: Segment | str) -> str:
    """Return the name of the file of a segment."""
    return segment if isinstance(segment, str) else segment.name


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
        """Return the loads of a record file and of its segments, oldest first."""
        record = self._read_head(head)
        rows = [self.read_rows(segment) for segment in record.segments if not isinstance(segment, str)]
        return (*self._read_older(record), *(to_loads(pa.concat_tables(rows)) if rows else ()), *record.loads)

    def open_loads(self, head: str, counts: RowFilter | None = None) -> LoadedFiles:
        """Return which files a record file and its segments have, without reading the segments."""
        record = self._read_head(head)
        segments = [segment for segment in record.segments if not isinstance(segment, str)]
        loads = (*self._read_older(record), *record.loads)
        audits = Audits(record.audits, partial(self.note_audit, head))
        return LoadedFiles(self.open_segment, segments, to_rows(loads, record.number), counts, audits)

    def note_audit(self, head: str, sources: Mapping[str, int]) -> None:
        """Note in a record file when sources were listed as a whole; see `Record.audits`.

        The file is replaced, so that a listing that finds nothing needs no commit. Its loads stay as they are.
        """
        record = self._read_head(head)
        noted = msgspec.structs.replace(record, audits={**record.audits, **sources})
        self.store.put(self.file(head), encode_record(noted))

    def add_rows(
        self, segments: Sequence[Segment | str], rows: pa.Table, version: int, staged: StagedFiles
    ) -> tuple[Segment | str, ...]:
        """Write rows as a segment, together with the last segments that are not larger, and return all segments."""
        kept = list(segments)
        while kept and _takes_in(rows, kept[-1]):
            try:
                older = self.read_rows(kept[-1])
            except CorruptLog:  # who asks for its files is told
                break
            kept.pop()
            rows = sort_segment(pa.concat_tables([older, rows]))
        for part in split_rows(rows):
            content = encode_segment(part)
            name = segment_file(_put(self, version, segment_file, content, staged))
            kept.append(describe_segment(name, part, content))
        return tuple(kept)

    def copy(self, head: str) -> Record:
        """Return a record that has the loads of a record file and names the same segments."""
        record = self._read_head(head)
        for path in (self.file(segment_name(segment)) for segment in record.segments):
            if self.store.find(path) is None:
                raise _missing_part(path)
        return record

    def filtered(self, head: str, counts: RowFilter, version: int, staged: StagedFiles) -> Record:
        """Return a record with some of the loads of a record file, which it replaces.

        Args:
            counts: Tells which loads stay.
        """
        record = self._read_head(head)
        segments: tuple[Segment | str, ...] = ()
        dropped = set[int]()
        for segment in record.segments:
            rows = self.read_rows(segment)
            kept = rows.filter(counts(rows))
            dropped |= _versions(rows) - _versions(kept)
            if kept.num_rows < rows.num_rows or isinstance(segment, str):
                segments = self.add_rows(segments, kept, version, staged) if kept.num_rows else segments
            else:
                segments = (*segments, segment)
        rows = to_rows(record.loads, record.number)
        kept = rows.filter(counts(rows))
        dropped |= _versions(rows) - _versions(kept)
        replaced = (*record.replaced, Replaced(head, version, tuple(sorted(dropped))))
        return Record(number=record.number, loads=to_loads(kept), segments=segments, replaced=replaced)

    def recover(self, record: Record, has: Callable[[int], bool]) -> tuple[pa.Table, tuple[Replaced, ...]]:
        """Return the rows of loads that restores have dropped and that count again, and the other replaced records."""
        found, others = [ROWS.empty_table()], list[Replaced]()
        for each in record.replaced:
            wanted = pa.array(filter(has, each.versions), pa.int64())
            if not len(wanted):
                others.append(each)
                continue
            old = self._read_head(each.head)
            for rows in (*map(self.read_rows, old.segments), to_rows(old.loads, old.number)):
                found.append(rows.filter(pc.is_in(rows["version"], value_set=wanted)))
        return pa.concat_tables(found), tuple(others)

    def find_needed(self, record: Record) -> set[str]:
        """Return the names of the files that a record, and those that it has replaced, consist of."""
        needed = set(map(segment_name, record.segments))
        for each in record.replaced:
            needed.add(each.head)
            with suppress(FileMissing, CorruptLog):
                needed.update(map(segment_name, self.read(each.head).segments))
        return needed

    def open_segment(self, segment: Segment) -> SegmentFile:
        """Return a segment for questions."""
        return SegmentFile(self._read_file(segment), partial(_corrupt_segment, self.file(segment.name)))

    def read_rows(self, segment: Segment | str) -> pa.Table:
        if isinstance(segment, str):
            return to_rows(self._read_head(segment).loads, int(segment.split(".")[1]) - _OLD_NUMBERS)
        try:
            return read_segment(self._read_file(segment))
        except (pa.ArrowException, OSError) as error:
            raise _corrupt_segment(self.file(segment.name), error) from error

    def _read_file(self, segment: Segment) -> bytes:
        path = self.file(segment.name)
        try:
            data = self.store.read(path)
        except FileMissing as error:
            raise _missing_part(path) from error
        if segment.crc32 is not None and zlib.crc32(data) != segment.crc32:
            raise CorruptLog(path=path, reason="it is not as it was written", fix=_NO_BACKUP)
        return data

    def _read_older(self, record: Record) -> tuple[Load, ...]:
        paths = [self.file(name) for name in record.segments if isinstance(name, str)]
        try:
            older = [_decode(path, data).loads for path, data in zip(paths, self.store.read_many(paths), strict=True)]
        except FileMissing as error:
            raise _corrupt_segment(paths[0], error) from error
        return tuple(chain.from_iterable(older))

    def _read_head(self, head: str) -> Record:
        try:
            return self.read(head)
        except FileMissing as error:
            raise _corrupt_segment(self.file(head), error) from error


def _versions(rows: pa.Table) -> set[int]:
    return set(rows["version"].unique().to_pylist())


def _takes_in(rows: pa.Table, segment: Segment | str) -> bool:
    if isinstance(segment, str):
        return True
    files: int = rows.num_rows
    return segment.files <= files <= MAX_SEGMENT_FILES - segment.files


def _missing_part(path: str) -> CorruptLog:
    fix = f"{_NO_BACKUP} If you copy a table, copy its whole log."
    return CorruptLog(path=path, reason="a part of the record of loads is missing", fix=fix)


def _corrupt_segment(path: str, error: Exception) -> CorruptLog:
    if isinstance(error, FileMissing):
        return _missing_part(path)
    return CorruptLog(path=path, reason="it is not a record of loads", fix=_NO_BACKUP)


_NO_BACKUP = (
    "Restore the file from a backup. Without a backup, delete all files in its folder, and load files by name, "
    "without new; that starts a new record, which does not know the files that were loaded before."
)


def parked_files(loads: Sequence[Load]) -> list[LoadedFile]:
    """Return the files that are parked and have not been loaded since."""
    parked: dict[str, LoadedFile] = {}
    for load in loads:
        for file in load.files:
            parked.pop(file.key, None)
        parked.update((file.key, file) for file in load.bad_files if file.parked)
    return list(parked.values())


def read_loads(snapshot: Snapshot | None) -> tuple[Load, ...]:
    """Return the loads of a version of a table, oldest first."""
    head = find_head(snapshot)
    return () if snapshot is None or head is None else RecordFolder(snapshot.store).read_loads(head)


def open_loads(snapshot: Snapshot | None) -> LoadedFiles:
    """Return which files a version of a table has loaded."""
    head = find_head(snapshot)
    return LoadedFiles() if snapshot is None or head is None else RecordFolder(snapshot.store).open_loads(head)


def encode_record(record: Record) -> bytes:
    """Return a record as the content of a file."""
    loads = [_to_wire(load) for load in record.loads]
    wire = _RecordWire(record.number, loads, record.segments, record.replaced, record.audits)
    return zlib.compress(_encoder.encode(wire), 6)


def _decode(path: str, data: bytes) -> Record:
    try:
        wire = _decoder.decode(zlib.decompress(data))
    except (zlib.error, msgspec.DecodeError) as error:
        raise CorruptLog(path=path, reason="it is not a record of loads", fix=_NO_BACKUP) from error
    loads = tuple(_from_wire(load) for load in wire.loads)
    return Record(number=wire.number, loads=loads, segments=wire.segments, replaced=wire.replaced, audits=wire.audits)


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
    segments: tuple[Segment | str, ...] = ()
    replaced: tuple[Replaced, ...] = ()
    audits: Mapping[str, int] = msgspec.field(default_factory=dict)


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


MAX_INLINE_FILES = 64
"""Loads with this many files become a segment. Each load writes the others again, so that more of them cost more."""

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
        commit_on: Makes one attempt to commit the version after a base, together with a transaction identifier. It
            must not depend on anything but the metadata of the base.
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
    """Return the transaction identifier that gives a new version the loads of an earlier version."""
    head = find_head(then)
    if find_head(now) == head:
        return ()
    folder, staged, newest, replaced = RecordFolder(now.store), StagedFiles(), find_head(now), tuple[Replaced, ...]()
    if newest is not None:
        with suppress(CorruptLog, FileMissing):
            replaced = folder.read(newest).replaced
    try:
        record = Record() if head is None else folder.copy(head)
    except CorruptLog:  # record files that are not needed any more are deleted after a while
        # Until the next restore, a record only grows: its last state has all loads of the version.
        source = next((each.head for each in replaced if each.version > then.version), newest)
        kept = partial(_is_until, then.version)
        record = Record() if source is None else folder.filtered(source, kept, version, staged)
    if newest is not None:
        replaced = (*replaced, Replaced(newest, version))
    record = msgspec.structs.replace(record, replaced=replaced)
    return (_to_txn(put_record(folder, version, record, staged)),)


def _is_until(version: int, rows: pa.Table) -> pa.Array:
    return pc.less_equal(rows["version"], version)


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
    """
    return put_record(folder, version, _with_load(folder, head, load, version, staged), staged)


def _with_load(folder: RecordFolder, head: str | None, load: Load, version: int, staged: StagedFiles) -> Record:
    """Return a record with one more load."""
    try:
        record = Record() if head is None else folder.read(head)
    except FileMissing:  # a copy of a table without its hidden files: a new record begins
        return Record(loads=(load,))
    number, loads = record.number + 1, (*record.loads, load)
    if number % CLEANUP_EVERY == 0:
        _delete_old_records(folder, {head or "", *folder.find_needed(record)})
    if sum(len(each.files) + len(each.bad_files) for each in loads) < MAX_INLINE_FILES:
        return msgspec.structs.replace(record, number=number, loads=loads)
    segments = folder.add_rows(record.segments, to_rows(loads, number), version, staged)
    return msgspec.structs.replace(record, number=number, loads=(), segments=segments)


def put_record(folder: RecordFolder, version: int, record: Record, staged: StagedFiles) -> int:
    """Write a record file under a name that no other writer uses, and return the number that names it."""
    return _put(folder, version, record_file, encode_record(record), staged)


def _put(folder: RecordFolder, version: int, name_of: Callable[[int], str], data: bytes, staged: StagedFiles) -> int:
    for _ in range(MAX_RACES):
        # Never 0, which stands for no record.
        head = version << NONCE_BITS | (secrets.randbits(NONCE_BITS) or 1)
        path = folder.file(name_of(head))
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
