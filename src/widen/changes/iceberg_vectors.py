"""Mark rows of an Iceberg table as deleted, where its settings ask for that instead of copies of their files.

Each data file has at most one deletion vector, which has the rows of older vectors and position deletes, too. The
vectors of a commit are in one Puffin file.

Source: Iceberg's table specification, "Deletion Vectors"; the Puffin specification
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from widen.frames.iceberg_scan import IcebergSource
from widen.iceberg.file_metrics import data_location
from widen.iceberg.metadata_files import ROW_IDS, live_entries
from widen.iceberg.puffin import pack_puffin
from widen.iceberg.scan_plan import IcebergScan
from widen.log.commit_outcome import StagedFiles
from widen.model.lazy_module import import_lazily
from widen.model.value_classes import dataclass

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table.metadata import TableMetadata
    from pyroaring import BitMap64

    from widen.frames.table_writers import IcebergWriter

ice_manifest = import_lazily("pyiceberg.manifest")

_MERGE_ON_READ = "merge-on-read"


def marks_rows(metadata: TableMetadata, statement: str) -> bool:
    """Return whether a statement marks rows instead of copying files.

    Args:
        statement: ``delete``, ``update`` or ``merge``, as in the table property ``write.delete.mode``.
    """
    mode = metadata.properties.get(f"write.{statement}.mode", "")
    return metadata.format_version >= ROW_IDS and mode.lower() == _MERGE_ON_READ


@dataclass(frozen=True, slots=True)
class MarkedFiles:
    """Data files that lose rows.

    Args:
        vectors: The new deletion vectors of the others, as delete files of a manifest.
    """

    removed: Sequence[DataFile]
    vectors: Sequence[DataFile]


def mark_deleted(
    source: IcebergSource,
    writer: IcebergWriter,
    scan: IcebergScan,
    deleted: Mapping[str, BitMap64],
    staged: StagedFiles,
) -> MarkedFiles:
    """Write the deletion vectors of the files of a scan.

    Args:
        deleted: All deleted rows by the path of each file, those that were deleted before included.
    """
    paths, point = {file.path for file in scan.files}, source.point
    files = [each.data_file for each in live_entries(point.metadata, source.io, point.snapshot, paths)]
    marked = [file for file in files if len(deleted[file.file_path]) < file.record_count]
    removed = [file for file in files if len(deleted[file.file_path]) >= file.record_count]
    if not marked:
        return MarkedFiles(removed, ())
    content, places = pack_puffin({file.file_path: deleted[file.file_path] for file in marked})
    path = f"{writer.new_layout().job}/deletes.puffin"
    staged.add_folders(writer.store, [path.partition("/")[0]])
    writer.store.put(path, content)
    location = f"{data_location(point.metadata)}/{path}"
    vectors = [
        _delete_file(file, location, len(content), len(deleted[file.file_path]), place)
        for file, place in zip(marked, places, strict=True)
    ]
    return MarkedFiles(removed, vectors)


def _delete_file(file: DataFile, path: str, size: int, rows: int, place: tuple[int, int]) -> DataFile:
    """Return the vector of a data file as an entry of a manifest has it."""
    offset, length = place
    vector: Any = ice_manifest.DataFile.from_args(
        ROW_IDS,
        content=ice_manifest.DataFileContent.POSITION_DELETES,
        file_path=path,
        file_format=ice_manifest.FileFormat.PUFFIN,
        partition=file.partition,
        record_count=rows,
        file_size_in_bytes=size,
        referenced_data_file=file.file_path,
        content_offset=offset,
        content_size_in_bytes=length,
    )
    vector.spec_id = file.spec_id
    return cast("DataFile", vector)
