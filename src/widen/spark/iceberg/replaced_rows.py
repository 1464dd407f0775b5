"""Remove the rows that a batch replaces from an Iceberg table: the files with such rows are written again without them.

Source: Iceberg's table specification, "Row-level Deletes": copy-on-write
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from widen.iceberg.data_file import IcebergFile
from widen.iceberg.metadata_files import live_entries
from widen.iceberg.row_filter import to_row_filter
from widen.iceberg.scan_plan import IcebergScan, plan_scan
from widen.iceberg.snapshots import ReadPoint
from widen.model.types import StructType, quote_name
from widen.protocol.skipping.predicate import Predicate, UnknownPredicate
from widen.spark.dml.key_bounds import key_predicate
from widen.spark.dml.replaced_rows import ReplacedRows, anti_join_keys, semi_join_keys
from widen.spark.iceberg.scan import read_files
from widen.spark.iceberg.source import IcebergSource, to_uris
from widen.spark.ingest.iceberg_files import IcebergWriter
from widen.spark.read.deleted_rows import FILE
from widen.spark.read.scan import key_of
from widen.spark.spark_errors import translate_spark_errors

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from widen.iceberg.snapshot_history import DataFile


@dataclass(frozen=True, slots=True)
class RemovedRows:
    """The files of a change that removes rows.

    Args:
        written: The files with the other rows of these.
    """

    removed: Sequence[DataFile] = ()
    written: Sequence[IcebergFile] = ()


def remove_replaced_rows(
    replaced: ReplacedRows, io: FileIO, point: ReadPoint, schema: StructType, writer: IcebergWriter
) -> RemovedRows:
    """Rewrite the files that have rows to remove, without these rows; nothing is committed.

    Args:
        point: The snapshot to remove them from, with the metadata of the commit.
        schema: The columns of the commit, with field ids.
    """
    if point.snapshot is None:
        return RemovedRows()
    entries = [entry.data_file for entry in live_entries(point.metadata, io, point.snapshot)]
    if replaced.keys is None:
        return RemovedRows(entries)
    columns = [field for name in replaced.columns if (field := schema.find(name)) is not None]
    if len(columns) < len(replaced.columns):  # no row of the table has a key yet
        return RemovedRows()
    source = IcebergSource(replaced.spark, io, point)
    predicate = key_predicate(columns, replaced.keys)
    scan = plan_scan(point.metadata, io, point.snapshot, to_row_filter(predicate, point.schema))
    touched = _find_touched(replaced, source, schema, scan, predicate)
    if not touched.files:
        return RemovedRows()
    paths = {file.path for file in touched.files}
    # Without the predicate, since the other rows of these files are written again.
    rows = anti_join_keys(read_files(source, schema, touched, UnknownPredicate()), _names(replaced), replaced.keys)
    return RemovedRows([each for each in entries if each.file_path in paths], writer.write(rows))


def _find_touched(
    replaced: ReplacedRows, source: IcebergSource, schema: StructType, scan: IcebergScan, predicate: Predicate
) -> IcebergScan:
    """Return the files that have rows to remove."""
    if not scan.files:
        return scan
    assert replaced.keys is not None
    rows = read_files(source, schema, scan, predicate, with_file=True)
    with translate_spark_errors():
        rows_with_files = semi_join_keys(rows, _names(replaced), replaced.keys).select(FILE).distinct().collect()
    keys = {row[FILE] for row in rows_with_files}
    uris = to_uris(file.path for file in scan.files)
    files = tuple(file for file, uri in zip(scan.files, uris, strict=True) if key_of(uri) in keys)
    return replace(scan, files=files)


def _names(replaced: ReplacedRows) -> list[str]:
    return [quote_name(name) for name in replaced.columns]
