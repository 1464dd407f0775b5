"""Tables of format version 3, whose rows have ids: what PyIceberg does not write of them.

PyIceberg reads the metadata and the manifests of such a table, without the ids of rows. What it does not write is here:
the update of the format version, the metadata file of a catalog without a server, and the snapshots. Each data file
gets the id of its first row, either in its manifest or, for all files of a manifest at once, in the manifest list. A
file that is listed again in another manifest keeps the id that it had.

Source: Iceberg's table specification, "Row Lineage", "First Row ID Assignment", "Manifests" and "Snapshots"
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from copy import copy
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, cast

import msgspec

from widen.errors import UnsupportedFeatureForWrite
from widen.iceberg.metadata_files import ROW_IDS, may_list, position_of, read_listed_entries, read_listed_manifests
from widen.model.lazy_module import import_lazily

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile, ManifestEntry, ManifestFile
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.update import TableUpdate

ice_avro = import_lazily("pyiceberg.avro.file")
ice_catalog = import_lazily("pyiceberg.catalog")
ice_errors = import_lazily("pyiceberg.exceptions")
ice_manifest = import_lazily("pyiceberg.manifest")
ice_metadata = import_lazily("pyiceberg.table.metadata")
ice_serializers = import_lazily("pyiceberg.serializers")
ice_snapshots = import_lazily("pyiceberg.table.snapshots")
ice_typedef = import_lazily("pyiceberg.typedef")
snapshot_updates = import_lazily("pyiceberg.table.update.snapshot")
table_update = import_lazily("pyiceberg.table.update")

# ---- metadata -------------------------------------------------------------------------------------


def upgrade_to(version: int) -> TableUpdate:
    """Return the update that raises the format version of a table."""
    kind = table_update.UpgradeFormatVersionUpdate if version < ROW_IDS else _upgrade()
    return cast("TableUpdate", kind(format_version=version))


def with_upgrade(updates: Iterable[TableUpdate]) -> tuple[TableUpdate, ...]:
    """Return updates of a new table with the update of its format version that also knows this one."""
    plain = table_update.UpgradeFormatVersionUpdate
    return tuple(upgrade_to(each.format_version) if isinstance(each, plain) else each for each in updates)


@cache
def _upgrade() -> type[Any]:
    """Return the class of an update that PyIceberg refuses; servers read it as PyIceberg's own."""

    class UpgradeToRowIds(table_update.UpgradeFormatVersionUpdate):  # type: ignore[name-defined, misc]
        pass

    def upgrade(update: Any, metadata: TableMetadata, context: Any) -> Any:
        if metadata.format_version >= ROW_IDS:
            return metadata
        if metadata.format_version == 1:
            metadata = table_update._apply_table_update(upgrade_to(2), metadata, context)
        context.add_update(update)
        fields = {**dict(metadata), "format_version": ROW_IDS, "next_row_id": 0}
        return ice_metadata.TableMetadataV3.model_construct(**fields)

    table_update._apply_table_update.register(UpgradeToRowIds)(upgrade)
    return UpgradeToRowIds


def with_row_id_metadata(catalog: Catalog) -> Catalog:
    """Return a catalog that also writes the metadata files of such tables, if it writes metadata files at all.

    The catalog may be the caller's, so that it stays as it is.
    """
    if isinstance(catalog, ice_catalog.MetastoreCatalog):
        catalog = copy(catalog)
        cast(Any, catalog).__class__ = _writing(type(catalog))
    return catalog


@cache
def _writing(kind: type[Any]) -> type[Any]:
    class Writing(kind):  # type: ignore[misc]
        def _update_and_stage_table(self, current_table: Any, *arguments: Any) -> Any:
            if current_table is not None and current_table.metadata.format_version >= ROW_IDS:
                ensure_kept(current_table.io, current_table.metadata_location, current_table.metadata)
            return super()._update_and_stage_table(current_table, *arguments)

        @staticmethod
        def _write_metadata(metadata: Any, io: Any, metadata_path: str) -> None:
            kind._write_metadata(_writable(metadata), io, metadata_path)

        @staticmethod
        def _write_metadata_no_exist_check(metadata: Any, io: Any, metadata_path: str) -> None:
            kind._write_metadata_no_exist_check(_writable(metadata), io, metadata_path)

    Writing.__name__ = Writing.__qualname__ = kind.__name__
    Writing.__module__ = kind.__module__
    return Writing


def _writable(metadata: Any) -> Any:
    if metadata.format_version < ROW_IDS:
        return metadata
    return _written().model_construct(**{**dict(metadata), "next_row_id": metadata.next_row_id or 0})


@cache
def _written() -> type[Any]:
    class Written(ice_metadata.TableMetadataV3):  # type: ignore[name-defined, misc]
        def model_dump_json(self, exclude_none: bool = True, **options: Any) -> str:
            return str(ice_typedef.IcebergBaseModel.model_dump_json(self, exclude_none=exclude_none, **options))

    return Written


def ensure_kept(io: Any, path: str, metadata: TableMetadata) -> None:
    """Check that PyIceberg would write everything again that a metadata file has.

    Raises:
        UnsupportedFeatureForWrite: it would drop a setting that it does not know.
    """
    with io.new_input(path).open() as stream:
        compressor = ice_serializers.Compressor.get_compressor(path)
        with compressor.stream_decompressor(stream) as content:
            stored = msgspec.json.decode(content.read())
    kept = msgspec.json.decode(_writable(metadata).model_dump_json())
    lost = sorted(set(_lost(stored, kept)))
    if lost:
        raise UnsupportedFeatureForWrite(verb="write to", location=metadata.location, features=", ".join(lost))


def _lost(stored: Any, kept: Any) -> Iterable[str]:
    """Yield the keys of stored objects that are not kept; null, which stands for nothing, may go."""
    if isinstance(stored, dict):
        inner = kept if isinstance(kept, dict) else {}
        for key, value in stored.items():
            if key in inner:
                yield from _lost(value, inner[key])
            elif value is not None and value != [] and not (key == "current-snapshot-id" and value == -1):
                yield key
    elif isinstance(stored, list) and isinstance(kept, list):
        for own, other in zip(stored, kept, strict=False):
            yield from _lost(own, other)


# ---- snapshots ------------------------------------------------------------------------------------


@cache
def row_id_producer() -> type[Any]:
    """Return the class of a producer of snapshots of such a table, in the form of PyIceberg's producers."""
    return type("RowIdProducer", (_RowIdSnapshot, snapshot_updates._SnapshotProducer), {})


class _RowIdSnapshot:
    """How a producer of snapshots writes manifests with the ids of rows, mixed into the class of PyIceberg's own."""

    _transaction: Any
    _io: Any
    _snapshot_id: int
    _parent_snapshot_id: int | None
    _target_branch: str
    _compression: Any
    vectors: Sequence[DataFile] = ()
    """The new deletion vectors."""

    dropped: Collection[str] = ()
    """The manifests of delete files that apply to no file any more."""

    _added_data_files: list[DataFile]
    _deleted_data_files: set[DataFile]
    _written_manifest_lists: list[str]
    snapshot_properties: dict[str, str]
    commit_uuid: Any

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...  # what PyIceberg's class has

    def _existing_manifests(self) -> list[ManifestFile]:
        """Return the manifests of the snapshot before, without the removed files."""
        metadata = self._transaction.table_metadata
        paths = {each.file_path for each in self._deleted_data_files}
        marked = {cast("str", _referenced(each)) for each in self.vectors}
        self._build_delete_files_partition_predicate()
        parent = metadata.snapshot_by_id(self._parent_snapshot_id) if self._parent_snapshot_id else None
        listed = read_listed_manifests(metadata, self._io, parent)
        self.removed_deletes, found = list["DataFile"](), set[str]()
        live = [each for each in listed if each.has_added_files() or each.has_existing_files()]
        data, deleted = ice_manifest.ManifestContent.DATA, ice_manifest.ManifestEntryStatus.DELETED
        for each in live:
            if each.manifest_path in self.dropped:
                entries = read_listed_entries(metadata, self._io, each)
                self.removed_deletes += [entry.data_file for entry in entries if entry.status != deleted]
        kept = [
            manifest
            for each in live
            if each.manifest_path not in self.dropped
            for manifest in self._without(each, paths if each.content == data else paths | marked, found)
        ]
        if missing := paths - found:
            message = f"Missing required files to delete: {', '.join(sorted(missing))}"
            raise ice_errors.ValidationException(message)
        return kept

    def _deleted_entries(self) -> list[ManifestEntry]:
        return []  # they stand in the manifests that had the files

    def _validate_concurrency(self) -> None:
        pass  # Widen looks at what another writer did, and plans again

    def _manifests(self) -> list[ManifestFile]:
        return [*self._added(), *self._existing_manifests()]

    def _added(self) -> Iterable[ManifestFile]:
        status, kind = ice_manifest.ManifestEntryStatus.ADDED, ice_manifest.ManifestContent
        if self._added_data_files:
            files = map(_with_row_id, self._added_data_files)
            entries = [_entry(file, status, self._snapshot_id) for file in files]
            yield self._write(self._transaction.table_metadata.spec(), kind.DATA, entries)
        for number in sorted({each.spec_id for each in self.vectors}):
            own = [_entry(each, status, self._snapshot_id) for each in self.vectors if each.spec_id == number]
            yield self._write(self.spec(number), kind.DELETES, own)

    def _without(self, manifest: ManifestFile, paths: Collection[str], found: set[str]) -> Iterable[ManifestFile]:
        """Yield a manifest without the entries of removed files: itself if it has none.

        Args:
            paths: The locations of the removed data files, and of those whose delete files are removed.
            found: Gets the locations of removed data files that the manifest has.
        """
        is_data = manifest.content == ice_manifest.ManifestContent.DATA
        if not paths or (is_data and not self._may_have(manifest, paths)):
            yield manifest
            return
        entries = read_listed_entries(self._transaction.table_metadata, self._io, manifest)
        deleted, existing = ice_manifest.ManifestEntryStatus.DELETED, ice_manifest.ManifestEntryStatus.EXISTING
        live = [each for each in entries if each.status != deleted]
        gone = [
            each for each in live if (each.data_file.file_path if is_data else _referenced(each.data_file)) in paths
        ]
        if not gone:
            yield manifest
            return
        if is_data:
            found.update(each.data_file.file_path for each in gone)
        else:
            self.removed_deletes.extend(each.data_file for each in gone)
        own = {id(each) for each in gone}
        yield self._write(
            self.spec(manifest.partition_spec_id),
            manifest.content,
            [
                _entry(each.data_file, deleted, self._snapshot_id, each)
                if id(each) in own
                else _entry(each.data_file, existing, each.snapshot_id, each)
                for each in live
            ],
        )

    def _may_have(self, manifest: ManifestFile, paths: Collection[str]) -> bool:
        is_possible = bool(self._build_manifest_evaluator(manifest.partition_spec_id)(manifest))
        return is_possible and may_list(self._io, manifest.manifest_path, paths)

    def _write(self, spec: PartitionSpec, content: Any, entries: Sequence[ManifestEntry]) -> ManifestFile:
        output = self.new_manifest_output()
        writer = _manifest_writer()(spec, self.schema(), output, self._snapshot_id, self._compression)
        writer.own_content = content
        with writer:
            for each in entries:
                writer.add_entry(each)
        return _with_row_id(writer.to_manifest_file())  # type: ignore[no-any-return]

    def _with_deletes(self, summary: Any) -> Any:
        """Return a snapshot summary that also counts delete files, which PyIceberg does not."""
        added, removed = _count("added", self.vectors), _count("removed", self.removed_deletes)
        entries = dict(summary.additional_properties)
        for name, count in (added + removed).items():
            entries[name] = str(int(entries.get(name, 0)) + count)
        for name in _TOTALS:
            if f"total-{name}" in entries:
                changed = added[f"added-{name}"] - removed[f"removed-{name}"]
                entries[f"total-{name}"] = str(max(0, int(entries[f"total-{name}"]) + changed))
        return ice_snapshots.Summary(summary.operation, **entries)

    def _commit(self) -> Any:
        metadata, io = self._transaction.table_metadata, self._io
        first = metadata.next_row_id or 0
        manifests, number = self._manifests(), metadata.next_sequence_number()
        summary = self._with_deletes(self._summary(self.snapshot_properties))
        name = snapshot_updates._new_manifest_list_file_name(
            snapshot_id=self._snapshot_id, attempt=0, commit_uuid=self.commit_uuid
        )
        path = self._transaction._table.location_provider().new_metadata_location(name)
        self._written_manifest_lists.append(path)
        writer = _list_writer()(
            io.new_output(path), self._snapshot_id, self._parent_snapshot_id, number, self._compression
        )
        writer.start_at(first)
        with writer:
            writer.add_manifests(manifests)
        snapshot = ice_snapshots.Snapshot(
            snapshot_id=self._snapshot_id,
            parent_snapshot_id=self._parent_snapshot_id,
            manifest_list=path,
            sequence_number=number,
            summary=summary,
            schema_id=metadata.current_schema_id,
            first_row_id=first,
            added_rows=writer.following - first,
        )
        branch = self._target_branch
        known = metadata.refs.get(branch)
        moved = table_update.SetSnapshotRefUpdate(
            snapshot_id=self._snapshot_id,
            parent_snapshot_id=self._parent_snapshot_id,
            ref_name=branch,
            type=snapshot_updates.SnapshotRefType.BRANCH,
        )
        expected = table_update.AssertRefSnapshotId(
            snapshot_id=known.snapshot_id if known is not None else None, ref=branch
        )
        return (table_update.AddSnapshotUpdate(snapshot=snapshot), moved), (expected,)


_TOTALS = ("delete-files", "position-deletes", "equality-deletes", "files-size")
"""The entries of a snapshot summary that have a total which delete files change."""


def _count(verb: str, deletes: Sequence[DataFile]) -> Counter[str]:
    """Return the entries of a snapshot summary about added or removed delete files."""
    kinds, formats = ice_manifest.DataFileContent, ice_manifest.FileFormat
    found = Counter({f"{verb}-delete-files": len(deletes), f"{verb}-files-size": sum(map(_size, deletes))})
    for each in deletes:
        kind = "equality" if each.content == kinds.EQUALITY_DELETES else "position"
        is_vector = each.file_format == formats.PUFFIN
        found[f"{verb}-dvs" if is_vector else f"{verb}-{kind}-delete-files"] += 1
        found[f"{verb}-{kind}-deletes"] += each.record_count
    return +found


def _size(file: DataFile) -> int:
    """Return the size of a delete file in bytes: of a vector only, where a file has several."""
    at = position_of(ice_manifest.DATA_FILE_TYPE[ROW_IDS], "content_size_in_bytes")
    return cast("int | None", cast(Any, file)[at]) or file.file_size_in_bytes


def _referenced(file: DataFile) -> str | None:
    """Return the only data file that a delete file is for, if its entry says so."""
    return cast(
        "str | None", cast(Any, file)[position_of(ice_manifest.DATA_FILE_TYPE[ROW_IDS], "referenced_data_file")]
    )


def _entry(file: DataFile, status: Any, snapshot_id: int | None, known: ManifestEntry | None = None) -> ManifestEntry:
    return cast(
        "ManifestEntry",
        ice_manifest.ManifestEntry.from_args(
            ROW_IDS,
            status=status,
            snapshot_id=snapshot_id,
            sequence_number=None if known is None else known.sequence_number,
            file_sequence_number=None if known is None else known.file_sequence_number,
            data_file=file,
        ),
    )


def _with_row_id(record: Any) -> Any:
    """Return a data file or a manifest of PyIceberg's with the fields that only this format version has."""
    is_file = isinstance(record, ice_manifest.DataFile)
    struct = ice_manifest.DATA_FILE_TYPE[ROW_IDS] if is_file else ice_manifest.MANIFEST_LIST_FILE_STRUCTS[ROW_IDS]
    missing = len(struct.fields) - len(record)
    widened = type(record)(*chain(record._data, [None] * missing))
    if is_file:
        widened.spec_id = record.spec_id
    return widened


@cache
def _manifest_writer() -> type[Any]:
    class ManifestWriter(ice_manifest.ManifestWriterV2):  # type: ignore[name-defined, misc]
        own_content: Any = None

        def content(self) -> Any:
            return self.own_content

        @property
        def version(self) -> Any:
            return ROW_IDS

        @property
        def _meta(self) -> dict[str, str]:
            is_data = self.own_content == ice_manifest.ManifestContent.DATA
            return {**super()._meta, "content": "data" if is_data else "deletes"}

        def new_writer(self) -> Any:
            schema = self._with_partition(ROW_IDS)
            return ice_avro.AvroOutputFile(
                output_file=self._output_file,
                file_schema=schema,
                record_schema=schema,
                schema_name="manifest_entry",
                metadata=self._meta,
            )

    return ManifestWriter


@cache
def _list_writer() -> type[Any]:
    class ManifestListWriter(ice_manifest.ManifestListWriterV2):  # type: ignore[name-defined, misc]
        following: int = 0

        def start_at(self, first_row_id: int) -> None:
            """Give the rows of manifests that have no ids yet the ids from this one."""
            self._format_version = ROW_IDS
            self._meta |= {"format-version": str(ROW_IDS), "first-row-id": str(first_row_id)}
            self.following = first_row_id

        def __enter__(self) -> Any:
            schema = ice_manifest.MANIFEST_LIST_FILE_SCHEMAS[ROW_IDS]
            self._writer = ice_avro.AvroOutputFile(
                output_file=self._output_file,
                record_schema=schema,
                file_schema=schema,
                schema_name="manifest_file",
                metadata=self._meta,
            )
            self._writer.__enter__()
            return self

        def prepare_manifest(self, manifest_file: ManifestFile) -> ManifestFile:
            listed: ManifestFile = super().prepare_manifest(manifest_file)
            at = position_of(ice_manifest.MANIFEST_LIST_FILE_STRUCTS[ROW_IDS])
            if listed.content == ice_manifest.ManifestContent.DATA and listed[at] is None:
                listed[at] = self.following
                self.following += (listed.added_rows_count or 0) + (listed.existing_rows_count or 0)
            return listed

    return ManifestListWriter
