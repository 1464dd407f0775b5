"""Data files that tasks have written, as PyIceberg commits them; no file is opened again.

Source: Iceberg's table specification, "Manifests".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from widen.iceberg.file_metrics import FileMetrics
from widen.iceberg.partitions import decode_partition
from widen.model.lazy_module import import_lazily

if TYPE_CHECKING:
    from pyiceberg import manifest as iceberg_manifest
    from pyiceberg import typedef as iceberg_typedef
    from pyiceberg.table.metadata import TableMetadata
else:
    iceberg_manifest = import_lazily("pyiceberg.manifest")
    iceberg_typedef = import_lazily("pyiceberg.typedef")

_DATA_PATH = "write.data.path"


@dataclass(frozen=True, slots=True)
class IcebergFile:
    """A data file that is written but not committed.

    Args:
        path: The path below the data location of the table.
        stats: Its metrics, as `widen.iceberg.file_metrics.FileMetrics` in JSON.
        partition: Its partition values; see `widen.iceberg.partitions.encode_partition`.
    """

    path: str
    size: int
    stats: str
    partition: str = ""

    @property
    def metrics(self) -> FileMetrics:
        """The counts and bounds of its columns."""
        return _decode_metrics(self.stats)


_decode_metrics = msgspec.json.Decoder(FileMetrics).decode


def data_location(metadata: TableMetadata) -> str:
    """Return the location of new data files."""
    return str(metadata.properties.get(_DATA_PATH) or f"{metadata.location.rstrip('/')}/data").rstrip("/")


def to_data_file(file: IcebergFile, metadata: TableMetadata) -> iceberg_manifest.DataFile:
    """Return a written file as PyIceberg's, with its counts and bounds; the file is not opened.

    Args:
        metadata: The metadata that it is committed with.
    """
    metrics = file.metrics
    columns = metrics.columns
    arguments: dict[str, Any] = {
        "content": iceberg_manifest.DataFileContent.DATA,
        "file_path": f"{data_location(metadata)}/{file.path}",
        "file_format": iceberg_manifest.FileFormat.PARQUET,
        "partition": iceberg_typedef.Record(*decode_partition(file.partition)),
        "record_count": metrics.rows,
        "file_size_in_bytes": file.size,
        "column_sizes": {number: each.size_bytes for number, each in columns.items()},
        "value_counts": {number: each.values for number, each in columns.items()},
        "null_value_counts": {number: each.nulls for number, each in columns.items() if each.nulls is not None},
        "nan_value_counts": {number: each.nans for number, each in columns.items() if each.nans is not None},
        "lower_bounds": {number: each.low for number, each in columns.items() if each.low is not None},
        "upper_bounds": {number: each.high for number, each in columns.items() if each.high is not None},
        "key_metadata": None,
        "split_offsets": metrics.offsets,
        "equality_ids": None,
        "sort_order_id": None,
    }
    data_file = iceberg_manifest.DataFile.from_args(**arguments)
    data_file.spec_id = metadata.default_spec_id
    return data_file
