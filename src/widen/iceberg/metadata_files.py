"""Files of Iceberg metadata as PyIceberg reads them: whatever is wrong with one is an error of ours that names it.

PyIceberg raises errors of many libraries for damaged files, takes a truncated Avro file for a shorter one, and opens
devices and pipes if a path names one.

Source: Iceberg's table specification, "Manifests", "Manifest Lists" and "Table Metadata"
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from widen.errors import CatalogRefused, CorruptFile, WidenError
from widen.errors.foreign import first_line
from widen.model.lazy_module import import_lazily

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import ManifestEntry, ManifestFile
    from pyiceberg.schema import Schema
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

ice_avro = import_lazily("pyiceberg.avro.file")
ice_manifest = import_lazily("pyiceberg.manifest")

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
        CorruptFile: it is.
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
    """Return the manifests of a snapshot; none for no snapshot.

    Raises:
        CorruptFile: the manifest list is missing or damaged.
    """
    if snapshot is None:
        return []
    path, specs = snapshot.manifest_list, metadata.specs()
    with translate_file_errors(path):
        manifests: list[ManifestFile] = snapshot.manifests(_CompleteFiles(io))  # type: ignore[arg-type]
        for each in manifests:
            if each.partition_spec_id not in specs:
                reason = f"it names the partition spec {each.partition_spec_id}, which the table does not have"
                raise CorruptFile(path=path, reason=reason, fix=_RESTORE)
        return [Manifest(each, io, len(specs[each.partition_spec_id].fields)) for each in manifests]


def live_entries(metadata: TableMetadata, io: FileIO, snapshot: Snapshot | None) -> Iterator[ManifestEntry]:
    """Yield the manifest entries of the data files of a snapshot; nothing for no snapshot.

    Raises:
        CorruptFile: a manifest or the manifest list is missing or damaged.
    """
    data = (each for each in read_manifests(metadata, io, snapshot) if each.is_data)
    return chain.from_iterable(each.fetch_manifest_entry() for each in data)


@dataclass(frozen=True, eq=False)
class Manifest:
    """A manifest of PyIceberg's whose entries are checked; PyIceberg's planner takes it for one of its own.

    Args:
        fields: The number of its partition fields.
    """

    manifest: ManifestFile
    io: FileIO
    fields: int

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
            entries: list[ManifestEntry] = self.manifest.fetch_manifest_entry(
                _CompleteFiles(self.io),  # type: ignore[arg-type]
                discard_deleted,
            )
            problem = next(filter(None, map(self._find_problem, entries)), None)
            if problem:
                raise CorruptFile(path=path, reason=problem, fix=_RESTORE)
            listed = (self.manifest.added_files_count or 0) + (self.manifest.existing_files_count or 0)
            live = sum(entry.status != ice_manifest.ManifestEntryStatus.DELETED for entry in entries)
            if live < listed:
                reason = f"it has {live} files, and the manifest list says {listed}"
                raise CorruptFile(path=path, reason=reason, fix=_RESTORE)
            return entries

    def _find_problem(self, entry: ManifestEntry) -> str | None:
        file = entry.data_file
        numbers = (file.record_count, file.file_size_in_bytes, entry.sequence_number or 0)
        if not all(0 <= number < _LONG for number in numbers):
            return f"a number of the file {file.file_path} is out of range"
        if len(file.partition) != self.fields:
            return f"the file {file.file_path} has {len(file.partition)} partition values instead of {self.fields}"
        counts = chain.from_iterable((each or {}).values() for each in (file.value_counts, file.null_value_counts))
        return f"a count of the file {file.file_path} is out of range" if any(n >= _LONG for n in counts) else None


@dataclass(frozen=True)
class _CompleteFiles:
    """Avro files that are read whole and have their end; all that PyIceberg's readers need of a store."""

    io: FileIO

    def new_input(self, path: str) -> _CompleteFile:
        ensure_regular(path)
        with self.io.new_input(path).open() as stream:
            file = _CompleteFile(path, stream.read())
        file.ensure_complete()
        return file


@dataclass(frozen=True)
class _CompleteFile:
    path: str
    content: bytes

    def open(self, seekable: bool = True) -> BytesIO:
        return BytesIO(self.content)

    def ensure_complete(self) -> None:
        """Check that the file ends with its sync marker, as the header and every block do."""
        end = self.content[-_SYNC_BYTES:]
        if len(end) == _SYNC_BYTES and self.content.count(end) > 1:
            return
        with ice_avro.AvroFile(self) as reader:  # a file without a block has the marker once
            if reader.header.sync != end:
                raise CorruptFile(path=self.path, reason="its end is missing, or followed by more", fix=_RESTORE)


# ---- table metadata -------------------------------------------------------------------------------


def ensure_consistent(metadata: TableMetadata, path: str, fix: str) -> None:
    """Check what PyIceberg does not check when it loads metadata, and what would fail later or give other rows.

    Args:
        path: The metadata file, for the error.

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
