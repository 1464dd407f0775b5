"""The record of loads: which source files a table has loaded, in which version.

A transaction identifier of the application `APP_ID` names the newest record file, so that the record is atomic with the
commit, survives checkpoints and log cleanup, and is carried along by every other writer. The record files are in
`FOLDER`, a subfolder of the log, which every VACUUM leaves alone. A record file holds the newest loads itself and names
older files, the segments, for the rest; so a commit writes one small file.

Source: PROTOCOL.md#transaction-identifiers; docs/guide/files.md#record
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

import msgspec

from widen.errors import CorruptLog, FileMissing
from widen.log.read.canonical_path import canonical_path
from widen.log.read.snapshot import Snapshot
from widen.log.store.log_store import LogStore

APP_ID = "widen.loads"
FOLDER = "_delta_log/_widen/loads"

NONCE_BITS = 20
"""The low bits of the transaction version. They tell writers apart that race for the same table version."""


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
        kept_out: The number of records in the quarantine instead.
        bad_files: The files that could not be read and were skipped, and those that are parked.
    """

    version: int
    loaded_ms: int
    files: tuple[LoadedFile, ...]
    records: int = 0
    corrupt: int = 0
    kept_out: int = 0
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
        """Return the content of a record file.

        Raises:
            FileMissing: the file does not exist.
            CorruptLog: the file is damaged.
        """
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
            fix = "Load files by name, without new; that begins a new record. Copy a table with its whole log."
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
    kept_out: int
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
        load.kept_out,
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
        kept_out=wire.kept_out,
        bad_files=wire.bad_files,
    )


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(_RecordWire)
