"""Files of Iceberg metadata as PyIceberg reads them: any defect becomes a Widen error that names the file.

PyIceberg raises errors of many libraries for damaged files, takes a truncated Avro file for a shorter one, and opens
devices and pipes if a path names one.

Source: Iceberg's table specification, "Manifests", "Manifest Lists" and "Table Metadata"
"""

from __future__ import annotations

import json
import os
import re
import stat
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache, partial
from io import BytesIO
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote, urlsplit

from widen.errors import CatalogRefused, CorruptFile, WidenError
from widen.errors.tables import first_line
from widen.model.lazy_module import import_lazily
from widen.model.value_classes import dataclass

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestEntry, ManifestFile
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

ice_codecs = import_lazily("pyiceberg.avro.codecs")
ice_avro = import_lazily("pyiceberg.avro.file")
ice_decoder = import_lazily("pyiceberg.avro.decoder")
ice_resolver = import_lazily("pyiceberg.avro.resolver")
ice_manifest = import_lazily("pyiceberg.manifest")
ice_types = import_lazily("pyiceberg.types")

_RESTORE = "Restore the file from a backup, or roll the table back to a snapshot whose files can be read."
_REACH = "Check the address and the state of the store, and repeat the call."
_PERMISSION = "Check the credentials of the store and what they allow."
_SYNC_BYTES = 16
_LONG, _LAST_MS = 2**63, 253_402_300_799_999
"""The end of the range of long, and the last millisecond of the year 9999."""


@contextmanager
def translate_file_errors(path: str, fix: str = _RESTORE) -> Iterator[None]:
    """Translate everything that a foreign reader of a file raises.

    Raises:
        CorruptFile: the file is missing or damaged.
        CatalogRefused: the store denies access.
    """
    try:
        yield
    except WidenError:
        raise
    except Exception as error:  # PyIceberg, its stores and codecs have no common class of errors
        if isinstance(error, PermissionError):
            raise CatalogRefused(location=path, reason=first_line(error), fix=_PERMISSION) from error
        is_store = isinstance(error, OSError) and not isinstance(error, FileNotFoundError)
        raise CorruptFile(path=path, reason=_reason(error), fix=_REACH if is_store else fix) from error


def _reason(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "the file does not exist"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, KeyError):
        return f"it has no {error.args[0]}" if error.args else "an entry is missing"
    details = getattr(error, "errors", None)  # pydantic's text begins with the number of errors and a class
    found = details() if callable(details) else None
    if found:
        return ": ".join(filter(None, (".".join(map(str, found[0]["loc"])), first_line(ValueError(found[0]["msg"])))))
    return first_line(error)[:500] or type(error).__name__


def ensure_regular(path: str) -> None:
    """Check that a local path is not a folder, a pipe or a device, which would be read without end.

    Raises:
        CorruptFile: the path is one of these.
    """
    parts = urlsplit(path)
    if parts.scheme not in ("", "file"):
        return
    for local in dict.fromkeys((path.removeprefix("file://"), unquote(parts.path))):
        try:
            mode = os.stat(local).st_mode
        except (OSError, ValueError):  # the reader says what is wrong
            continue
        if not stat.S_ISREG(mode):
            raise CorruptFile(path=path, reason="it is not a regular file", fix=_RESTORE)


# ---- manifest lists and manifests -----------------------------------------------------------------


def read_manifests(metadata: TableMetadata, io: FileIO, snapshot: Snapshot | None) -> list[Manifest]:
    """Return the manifests of a snapshot; none for no snapshot."""
    if snapshot is None:
        return []
    path, specs = snapshot.manifest_list, metadata.specs()
    with translate_file_errors(path):
        manifests: list[ManifestFile] = snapshot.manifests(_CompleteFiles(io))  # type: ignore[arg-type]
        _ensure_specs(metadata, manifests, path)
        dates = promoted_dates(metadata)
        return [Manifest(each, io, len(specs[each.partition_spec_id].fields), dates) for each in manifests]


def promoted_dates(metadata: TableMetadata) -> frozenset[int]:
    """Return the columns without a time zone that were dates in an older schema.

    Source: Iceberg's table specification, "Schema Evolution"
    """
    if metadata.format_version < ROW_IDS or len(metadata.schemas) == 1:
        return frozenset()
    schema = metadata.schema()
    times = {number for number in schema.field_ids if isinstance(schema.find_type(number), ice_types.TimestampType)}
    return frozenset(
        number
        for old in metadata.schemas
        for number in times.intersection(old.field_ids)
        if isinstance(old.find_type(number), ice_types.DateType)
    )


def live_entries(
    metadata: TableMetadata, io: FileIO, snapshot: Snapshot | None, paths: Collection[str] | None = None
) -> Iterator[ManifestEntry]:
    """Yield the manifest entries of the data files of a snapshot; nothing for no snapshot.

    Args:
        paths: The locations of the files; by default all.
    """
    data = (each for each in read_manifests(metadata, io, snapshot) if each.is_data)
    if paths is None:
        return chain.from_iterable(each.fetch_manifest_entry() for each in data)
    found = chain.from_iterable(each.fetch_manifest_entry() for each in data if may_list(io, each.manifest_path, paths))
    return (entry for entry in found if entry.data_file.file_path in paths)


_SEARCHED_PATHS = 50
"""The most locations that manifests are searched for; for more, their entries are read at once."""


def may_list(io: FileIO, path: str, paths: Collection[str]) -> bool:
    """Return whether a manifest may list some files. To search its bytes takes a tenth of the time to read entries.

    Args:
        path: The location of the manifest.
        paths: The locations of the files.

    Raises:
        CorruptFile: the manifest is missing or damaged.
    """
    if len(paths) > _SEARCHED_PATHS:
        return True
    names = [each.encode() for each in paths]
    ensure_regular(path)
    with translate_file_errors(path), io.new_input(path).open() as stream:
        _, _, blocks = _read_blocks(stream.read(), path)
        return any(name in data for _, data in blocks for name in names)


def first_row_ids(
    metadata: TableMetadata, io: FileIO, snapshot: Snapshot | None, paths: Collection[str]
) -> dict[str, int]:
    """Return the id of the first row of data files of a snapshot by its location, for the files that have one.

    Args:
        paths: The locations of the files; there may be others in the result.

    Source: Iceberg's table specification, "First Row ID Inheritance"
    """
    in_file, ids = position_of(ice_manifest.DATA_FILE_TYPE[ROW_IDS]), dict[str, int]()
    for manifest in read_listed_manifests(metadata, io, snapshot):
        if manifest.content == ice_manifest.ManifestContent.DATA and may_list(io, manifest.manifest_path, paths):
            files = (entry.data_file for entry in read_listed_entries(metadata, io, manifest) if _is_live(entry))
            ids |= {file.file_path: file[in_file] for file in files if file[in_file] is not None}
    return ids


def read_listed_manifests(metadata: TableMetadata, io: FileIO, snapshot: Snapshot | None) -> list[ManifestFile]:
    """Return the manifests of a snapshot with the ids of rows; none for no snapshot.

    PyIceberg reads manifests in the schema of format version 2, which does not have them.
    """
    if snapshot is None:
        return []
    types = {-1: ice_manifest.ManifestFile, 508: ice_manifest.PartitionFieldSummary}
    enums = {517: ice_manifest.ManifestContent}
    path, schema = snapshot.manifest_list, ice_manifest.MANIFEST_LIST_FILE_SCHEMAS[ROW_IDS]
    manifests: list[ManifestFile] = _read_avro(io, path, schema, types, enums)
    _ensure_specs(metadata, manifests, path)
    return manifests


def _ensure_specs(metadata: TableMetadata, manifests: Iterable[ManifestFile], path: str) -> None:
    specs = metadata.specs()
    for each in manifests:
        if each.partition_spec_id not in specs:
            reason = f"it names the partition spec {each.partition_spec_id}, which the table does not have"
            raise CorruptFile(path=path, reason=reason, fix=_RESTORE)


def read_listed_entries(metadata: TableMetadata, io: FileIO, manifest: ManifestFile) -> list[ManifestEntry]:
    """Return the entries of a manifest with all that they inherit from it: numbers, and the ids of first rows.

    Source: Iceberg's table specification, "Sequence Number Inheritance", "First Row ID Inheritance"
    """
    schema = ice_manifest.MANIFEST_ENTRY_SCHEMAS[ROW_IDS]
    entries = _read_avro(io, manifest.manifest_path, schema, *_entry_classes())
    _ensure_in_range(entries, manifest.manifest_path, len(metadata.specs()[manifest.partition_spec_id].fields))
    following = manifest[position_of(ice_manifest.MANIFEST_LIST_FILE_STRUCTS[ROW_IDS])]
    in_file = position_of(ice_manifest.DATA_FILE_TYPE[ROW_IDS])
    is_data = manifest.content == ice_manifest.ManifestContent.DATA
    for entry in entries:
        ice_manifest._inherit_from_manifest(entry, manifest)
        file = entry.data_file
        if is_data and following is not None and _is_live(entry) and file[in_file] is None:
            file[in_file] = following
            following += file.record_count
    return entries


def _entry_classes() -> tuple[dict[int, Any], dict[int, Any]]:
    """Return the classes of the records and of the values in manifests; see `_read_avro`."""
    enums = {0: ice_manifest.ManifestEntryStatus, 101: ice_manifest.FileFormat, 134: ice_manifest.DataFileContent}
    return {-1: ice_manifest.ManifestEntry, 2: ice_manifest.DataFile}, enums


def _is_live(entry: ManifestEntry) -> bool:
    return bool(entry.status != ice_manifest.ManifestEntryStatus.DELETED)


def has_row_lineage(metadata: TableMetadata) -> bool:
    """Return whether the rows of a table have ids."""
    return metadata.format_version >= ROW_IDS


ROW_IDS, _FIRST_ROW_ID = 3, "first_row_id"
"""The format version whose files have ids, and the name of the id of the first one."""


def position_of(struct: Any, name: str = _FIRST_ROW_ID) -> int:
    """Return where a record of a manifest or of a manifest list has a field."""
    return [field.name for field in struct.fields].index(name)


def _read_avro(io: FileIO, path: str, schema: Schema, types: Mapping[int, Any], enums: Mapping[int, Any]) -> list[Any]:
    """Return the records of a manifest or of a manifest list.

    Args:
        types: The classes of the records by the id of their field, -1 for the whole.
    """
    with translate_file_errors(path):
        file = _CompleteFiles(io).new_input(path)
        with _avro_file()(file, schema, read_types=types, read_enums=enums) as reader:
            return list(reader)


@cache
def _avro_file() -> type[Any]:
    class AvroFile(ice_avro.AvroFile):  # type: ignore[name-defined, misc]
        """An Avro file whose schema is only looked at if it is a new one: that takes longer than to read a manifest."""

        def __enter__(self) -> Any:
            with self.input_file.open() as content:
                self.decoder = ice_decoder.new_decoder(content.read())
            self.header = self._read_header()
            text = self.header.meta[_SCHEMA.decode()]
            key = text, id(self.read_schema)
            known = _READERS.get(key)
            if known is None:
                stored = self.header.get_schema()
                reader = ice_resolver.resolve_reader(stored, self.read_schema, self.read_types, self.read_enums)
                if len(_READERS) >= _MOST_READERS:
                    _READERS.clear()
                known = _READERS[key] = self.read_schema, reader
            self.reader = known[1]
            return self

    return AvroFile


_READERS: dict[tuple[str, int], tuple[Any, Any]] = {}
"""How the records of Avro files are read, by the schema of the file, and the schema to read it in, kept alive here."""

_MOST_READERS = 64


@dataclass(frozen=True, eq=False)
class Manifest:
    """A manifest of PyIceberg's whose entries are checked; PyIceberg's planner takes it for one of its own.

    Args:
        dates: The columns whose bounds may be dates; see `promoted_dates`.
    """

    manifest: ManifestFile
    io: FileIO
    fields: int
    dates: frozenset[int] = frozenset()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.manifest, name)

    @property
    def is_data(self) -> bool:
        """Whether it lists data files; else it lists delete files."""
        return bool(self.manifest.content == ice_manifest.ManifestContent.DATA)

    def fetch_manifest_entry(self, io: FileIO | None = None, discard_deleted: bool = True) -> list[ManifestEntry]:
        """Return its entries.

        Raises:
            CorruptFile: it is missing or damaged, or has fewer live entries than the manifest list says.
        """
        path = self.manifest.manifest_path
        with translate_file_errors(path):
            schema = ice_manifest.MANIFEST_ENTRY_SCHEMAS[ice_manifest.DEFAULT_READ_VERSION]
            entries: list[ManifestEntry] = [
                ice_manifest._inherit_from_manifest(entry, self.manifest)
                for entry in _read_avro(self.io, path, schema, *_entry_classes())
                if not discard_deleted or _is_live(entry)
            ]
            _ensure_in_range(entries, path, self.fields)
            listed = (self.manifest.added_files_count or 0) + (self.manifest.existing_files_count or 0)
            live = sum(entry.status != ice_manifest.ManifestEntryStatus.DELETED for entry in entries)
            if live < listed:
                reason = f"it has {live} files, and the manifest list says {listed}"
                raise CorruptFile(path=path, reason=reason, fix=_RESTORE)
            for file in (entry.data_file for entry in entries) if self.dates else ():
                for bounds in (file.lower_bounds, file.upper_bounds):
                    _bounds_as_times(bounds or {}, self.dates)
            return entries


def _bounds_as_times(bounds: dict[int, bytes], columns: Iterable[int]) -> None:
    """Replace 4-byte bounds of dates with bounds of the timestamps that the dates have become.

    Source: Iceberg's table specification, "Schema Evolution"
    """
    for number in columns:
        bound = bounds.get(number)
        if bound is None or len(bound) != _DAY_BYTES:
            continue
        micros = int.from_bytes(bound, "little", signed=True) * _DAY_MICROS
        if -_LONG <= micros < _LONG:
            bounds[number] = micros.to_bytes(8, "little", signed=True)
        else:  # its rows cannot be read
            del bounds[number]


_DAY_BYTES, _DAY_MICROS = 4, 86_400_000_000


def _ensure_in_range(entries: Iterable[ManifestEntry], path: str, fields: int) -> None:
    """Check the numbers of manifest entries."""
    problem = next(filter(None, (_find_problem(entry, fields) for entry in entries)), None)
    if problem:
        raise CorruptFile(path=path, reason=problem, fix=_RESTORE)


def _find_problem(entry: ManifestEntry, fields: int) -> str | None:
    file = entry.data_file
    numbers = (file.record_count, file.file_size_in_bytes, entry.sequence_number or 0)
    if not all(0 <= number < _LONG for number in numbers):
        return f"a number of the file {file.file_path} is out of range"
    if len(file.partition) != fields:
        return f"the file {file.file_path} has {len(file.partition)} partition values instead of {fields}"
    counts = chain.from_iterable((each or {}).values() for each in (file.value_counts, file.null_value_counts))
    return f"a count of the file {file.file_path} is out of range" if any(n >= _LONG for n in counts) else None


@dataclass(frozen=True)
class _CompleteFiles:
    """Avro files that are read whole and checked; all that PyIceberg's readers need of a store."""

    io: FileIO

    def new_input(self, path: str) -> _CheckedFile:
        ensure_regular(path)
        with self.io.new_input(path).open() as stream:
            return _CheckedFile(check_avro(stream.read(), path))


@dataclass(frozen=True)
class _CheckedFile:
    content: bytes

    def open(self, seekable: bool = True) -> BytesIO:
        return BytesIO(self.content)


# ---- Avro -----------------------------------------------------------------------------------------
# PyIceberg's decoder, which is compiled, follows any length: bytes that are damaged make it read outside of its memory
# and end the process. It also takes a truncated file for a shorter one. So the structure is checked first.

_MAGIC, _CODEC, _SCHEMA = b"Obj\x01", b"avro.codec", b"avro.schema"
_MAX_BLOCK_BYTES = 1 << 30


def check_avro(content: bytes, path: str) -> bytes:
    """Return an Avro file with the same records in one block that is not compressed.

    Raises:
        CorruptFile: something in the file has another length than its place allows, or the end is missing.

    The structure follows Avro's specification, "Object Container Files" and "Binary Encoding".
    """
    header, sync, found = _read_blocks(content, path)
    skip_record, total, blocks = _schema_skipper(header[_SCHEMA]), 0, []
    for count, data in found:
        block = _AvroWalker(path, data)
        for _ in range(count):
            skip_record(block)
        if block.at != len(block.data):
            raise block.damaged()
        total += count
        blocks.append(block.data)
    records = b"".join(blocks)
    plain = b"".join(_bytes(each) for entry in {**header, _CODEC: b"null"}.items() for each in entry)
    block_head = _varint(total) + _varint(len(records))
    content = b"".join((_MAGIC, _varint(len({**header, _CODEC: b""})), plain, b"\0", sync))
    return b"".join((content, block_head, records, sync)) if total else content


def _read_blocks(content: bytes, path: str) -> tuple[dict[bytes, bytes], bytes, list[tuple[int, bytes]]]:
    """Return the header of an Avro file, its marker, and the number of records and the bytes of each block."""
    walker = _AvroWalker(path, content)
    walker.skip(len(_MAGIC))
    header = walker.entries()
    sync = walker.take(_SYNC_BYTES)
    if content[: len(_MAGIC)] != _MAGIC or _SCHEMA not in header:
        raise CorruptFile(path=path, reason="it is not an Avro file", fix=_RESTORE)
    blocks = []
    while walker.at < len(content):
        count, packed = walker.count(), walker.take(walker.long())
        if walker.take(_SYNC_BYTES) != sync:
            raise walker.damaged()
        blocks.append((count, _unpack(packed, header.get(_CODEC, b"null").decode(), path)))
    return header, sync, blocks


@lru_cache(maxsize=64)
def _schema_skipper(schema: bytes) -> _Skipper:
    return _skipper(json.loads(schema))


def _unpack(block: bytes, codec: str, path: str) -> bytes:
    if codec == "deflate":
        unpacker = zlib.decompressobj(-15)
        unpacked = unpacker.decompress(block, _MAX_BLOCK_BYTES)
        if not unpacker.eof:
            raise CorruptFile(path=path, reason="a compressed block is damaged", fix=_RESTORE)
        return unpacked
    known = ice_codecs.KNOWN_CODECS[codec]
    return block if known is None else bytes(known.decompress(block))


def _bytes(value: bytes) -> bytes:
    return _varint(len(value)) + value


def _varint(number: int) -> bytes:
    number, result = number << 1, bytearray()
    while number > 127:
        result.append(number & 127 | 128)
        number >>= 7
    return bytes((*result, number))


@dataclass(slots=True)
class _AvroWalker:
    """A position in bytes, which cannot leave them."""

    path: str
    data: bytes
    at: int = 0

    def damaged(self) -> CorruptFile:
        """Return the error for the current position."""
        return CorruptFile(
            path=self.path, reason=f"it is damaged, or its end is missing (byte {self.at})", fix=_RESTORE
        )

    def skip(self, size: int) -> None:
        if not 0 <= size <= len(self.data) - self.at:
            raise self.damaged()
        self.at += size

    def take(self, size: int) -> bytes:
        self.skip(size)
        return self.data[self.at - size : self.at]

    def long(self) -> int:
        result = shift = 0
        for byte in self.data[self.at : self.at + 10]:
            self.at += 1
            result |= (byte & 127) << shift
            if byte < 128:
                return (result >> 1) ^ -(result & 1)
            shift += 7
        raise self.damaged()

    def count(self) -> int:
        """Return a number of things that follow; each has at least a byte."""
        count = self.long()
        if not 0 <= count <= len(self.data):
            raise self.damaged()
        return count

    def items(self) -> Iterator[int]:
        """Yield the number of items of each block of an array or a map; the caller skips them."""
        while number := self.long():
            size = self.long() if number < 0 else None
            start = self.at
            if abs(number) > len(self.data) - start:
                raise self.damaged()
            yield abs(number)
            if size is not None and self.at != start + size:
                raise self.damaged()

    def entries(self) -> dict[bytes, bytes]:
        """Return a map of bytes."""
        return {self.take(self.long()): self.take(self.long()) for number in self.items() for _ in range(number)}

    def skip_longs(self, count: int) -> None:
        match = _longs(count).match(self.data, self.at)
        if match is None:
            raise self.damaged()
        self.at = match.end()

    def skip_numbered_bytes(self, count: int) -> None:
        """Skip pairs of a number and bytes: the bounds of columns, which make up most of a large manifest."""
        data, at = self.data, self.at
        try:
            for _ in range(count):
                while data[at] > 127:
                    at += 1
                size = data[at + 1]
                if size > 127 or size & 1:
                    self.at = at + 1
                    self.skip(self.long())
                    at = self.at
                else:
                    at += 2 + (size >> 1)
        except IndexError:
            raise self.damaged() from None
        self.at = at
        self.skip(0)


@lru_cache(maxsize=512)
def _longs(count: int) -> re.Pattern[bytes]:
    return re.compile(rb"(?:[\x80-\xff]{0,9}[\x00-\x7f]){%d}" % count)


_Skipper: TypeAlias = "Callable[[_AvroWalker], object]"
_PRIMITIVES: Mapping[str, _Skipper] = {
    "null": lambda _: None,
    "boolean": lambda walker: walker.skip(1),
    "float": lambda walker: walker.skip(4),
    "double": lambda walker: walker.skip(8),
    **dict.fromkeys(("int", "long", "enum"), lambda walker: walker.long()),
    **dict.fromkeys(("bytes", "string"), lambda walker: walker.skip(walker.long())),
}


def _skipper(schema: Any) -> _Skipper:
    """Return a function that skips a value of an Avro schema; an invalid schema raises Python errors."""
    if isinstance(schema, list):
        return partial(_skip_union, [_skipper(each) for each in schema])
    kind = schema["type"] if isinstance(schema, dict) else schema
    if not isinstance(kind, str):
        return _skipper(kind)
    match kind:
        case "record":
            return partial(_skip_record, [_skipper(each["type"]) for each in schema["fields"]])
        case "fixed":
            size = int(schema["size"])
            return lambda walker: walker.skip(size)
        case "map":
            value = _skipper(schema["values"])
            return partial(_skip_items, partial(_skip_record, [_PRIMITIVES["string"], value]))
        case "array":
            return _array_skipper(schema["items"])
    return _PRIMITIVES[kind]


def _array_skipper(items: Any) -> _Skipper:
    fields = items.get("fields") if isinstance(items, dict) else None
    kinds = tuple(each["type"] if isinstance(each["type"], str) else "" for each in fields or ())
    if isinstance(items, str) and items in _LONGS:
        return partial(_skip_blocks, _AvroWalker.skip_longs)
    if len(kinds) == 2 and set(kinds) <= set(_LONGS):
        return partial(_skip_blocks, lambda walker, count: walker.skip_longs(2 * count))
    if len(kinds) == 2 and kinds[0] in _LONGS and kinds[1] == "bytes":
        return partial(_skip_blocks, _AvroWalker.skip_numbered_bytes)
    return partial(_skip_items, _skipper(items))


_LONGS = ("int", "long")


def _skip_record(fields: Sequence[_Skipper], walker: _AvroWalker) -> None:
    for skip in fields:
        skip(walker)


def _skip_union(branches: Sequence[_Skipper], walker: _AvroWalker) -> None:
    branch = walker.long()
    if not 0 <= branch < len(branches):
        raise walker.damaged()
    branches[branch](walker)


def _skip_blocks(skip: Callable[[_AvroWalker, int], None], walker: _AvroWalker) -> None:
    for count in walker.items():
        skip(walker, count)


def _skip_items(skip: _Skipper, walker: _AvroWalker) -> None:
    for count in walker.items():
        for _ in range(count):
            skip(walker)


# ---- table metadata -------------------------------------------------------------------------------


def ensure_metadata_consistent(metadata: TableMetadata, path: str, fix: str) -> None:
    """Check what PyIceberg does not check when it loads metadata, and what would fail later or give other rows.

    Raises:
        CorruptFile: something in the metadata contradicts the rest of it, or is out of range.
    """
    with translate_file_errors(path, fix):
        metadata.name_mapping()
        problem = next(_problems(metadata), None)
    if problem is not None:
        raise CorruptFile(path=path, reason=problem, fix=fix)


def _problems(metadata: TableMetadata) -> Iterator[str]:
    for schema in metadata.schemas:
        yield from _problems_of_schema(schema)
    if metadata.current_schema_id not in [each.schema_id for each in metadata.schemas]:
        yield f"the schema {metadata.current_schema_id} is missing"
    if metadata.default_spec_id not in metadata.specs():
        yield f"the partition spec {metadata.default_spec_id} is missing"
    if metadata.current_snapshot_id is not None and metadata.current_snapshot() is None:
        yield f"the current snapshot {metadata.current_snapshot_id} is missing"
    times = [metadata.last_updated_ms, *(each.timestamp_ms for each in metadata.snapshots)]
    times += [each.timestamp_ms for each in metadata.snapshot_log]
    if not all(0 <= time <= _LAST_MS for time in times):
        yield "a time is not between 1970 and 9999"
    for snapshot in metadata.snapshots:
        numbers = (snapshot.snapshot_id, snapshot.parent_snapshot_id or 0, snapshot.sequence_number or 0)
        if not all(-_LONG <= number < _LONG for number in numbers):
            yield f"a number of the snapshot {snapshot.snapshot_id} is out of range"


def _problems_of_schema(schema: Schema) -> Iterator[str]:
    ids = list(_field_ids(schema.fields))
    if len(set(ids)) < len(ids):
        yield f"the schema {schema.schema_id} has a field id twice"
    if not all(-_INT <= number < _INT for number in ids):
        yield f"the schema {schema.schema_id} has a field id that is out of range"
    len(schema.column_names)  # raises an error if two fields have one name


def _field_ids(fields: Iterable[Any]) -> Iterator[int]:
    """Yield the ids of fields, elements, keys and values at every depth."""
    waiting = list(fields)
    while waiting:
        each = waiting.pop()
        if hasattr(each, "field_id"):
            yield each.field_id
            each = each.field_type
        waiting += getattr(each, "fields", ())
        waiting += [getattr(each, f"{name}_field") for name in _ITEMS if hasattr(each, f"{name}_id")]


_ITEMS = ("element", "key", "value")
_INT = 2**31
