"""Files of Iceberg tables as other writers leave them: with names of their own, with delete files, with Puffin."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent, ManifestWriterV2
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update.snapshot import _FastAppendFiles
from pyiceberg.typedef import Record
from pyroaring import BitMap64

from widen import ingest
from widen.spark.engine import Engine, LocalSession

PATH_ID, POSITION_ID = 2147483546, 2147483545
"""The reserved field ids of the columns of position deletes."""


def embedded_catalog(folder: Path) -> SqlCatalog:
    """A catalog in a SQLite file with the namespace ``ns``, which `widen` opens as an embedded catalog."""
    catalog = SqlCatalog(
        "default", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}/catalog_warehouse"
    )
    catalog.create_namespace_if_not_exists("ns")
    return catalog


def field(name: str, kind: pa.DataType, number: int | None = None) -> pa.Field:
    """An Arrow field with a field id, or without one."""
    return pa.field(name, kind, metadata={} if number is None else {"PARQUET:field_id": str(number)})


def write_file(table: Table, columns: Sequence[pa.Field], rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write a Parquet file below the table and return its path; no snapshot has it yet."""
    folder = Path(table.location().removeprefix("file://")) / "data"
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{uuid4()}.parquet"
    pq.write_table(pa.Table.from_pylist(list(rows), schema=pa.schema(list(columns))), path)
    return path


def data_file(path: Path, rows: int, **details: Any) -> DataFile:
    """The entry of a file in a manifest."""
    arguments: dict[str, Any] = {
        "content": DataFileContent.DATA,
        "file_path": f"file://{path}",
        "file_format": FileFormat.PARQUET,
        "partition": Record(),
        "record_count": rows,
        "file_size_in_bytes": path.stat().st_size,
        **details,
    }
    file = DataFile.from_args(**arguments)
    file.spec_id = 0
    return file


def append(table: Table, *files: DataFile) -> None:
    """Commit data files."""
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as update:
        for file in files:
            update.append_data_file(file)


def append_rows(catalog: SqlCatalog, *batches: Sequence[Mapping[str, Any]]) -> None:
    """Load rows into the table ``ns.t`` without Spark, with a snapshot and a file for each batch."""
    session: Any = LocalSession(Engine.LOCAL, pytest.fail)
    for rows in batches:
        with NamedTemporaryFile("w", suffix=".jsonl") as file:
            file.writelines(f"{json.dumps(row)}\n" for row in rows)
            file.flush()
            ingest(file.name, "ns.t", to="iceberg", catalog=catalog, evolve="fail", spark=session)


def append_deletes(table: Table, *files: DataFile) -> None:
    """Commit delete files, which PyIceberg cannot write."""
    with table.transaction() as transaction, _AppendDeletes(Operation.DELETE, transaction, table.io) as update:
        for file in files:
            update.append_data_file(file)


class _DeleteManifest(ManifestWriterV2):
    def content(self) -> ManifestContent:
        return ManifestContent.DELETES

    @property
    def _meta(self) -> dict[str, str]:
        return {**super()._meta, "content": "deletes"}


class _AppendDeletes(_FastAppendFiles):
    def new_manifest_writer(self, spec: Any) -> Any:
        output = self.new_manifest_output()
        return _DeleteManifest(spec, self.schema(), output, self._snapshot_id, self._compression)


def position_deletes(table: Table, rows: Iterable[tuple[Path, int]], **details: Any) -> DataFile:
    """A file of position deletes."""
    columns = [field("file_path", pa.string(), PATH_ID), field("pos", pa.int64(), POSITION_ID)]
    listed = [{"file_path": f"file://{path}", "pos": position} for path, position in rows]
    path = write_file(table, columns, listed)
    return data_file(path, len(listed), content=DataFileContent.POSITION_DELETES, **details)


def equality_deletes(
    table: Table, columns: Sequence[pa.Field], rows: Sequence[Mapping[str, Any]], ids: Sequence[int], **details: Any
) -> DataFile:
    """A file of equality deletes."""
    path = write_file(table, columns, rows)
    kind = DataFileContent.EQUALITY_DELETES
    return data_file(path, len(rows), content=kind, equality_ids=list(ids), **details)


def deletion_vector(table: Table, deleted: Mapping[Path, Iterable[int]], **details: Any) -> DataFile:
    """A Puffin file with a deletion vector for each data file.

    Source: the Puffin specification: ``PFA1``, blobs, then ``PFA1``, footer, its size, flags, ``PFA1``. A vector is its
    size in big-endian, the magic number, a 64-bit Roaring bitmap and a CRC-32 in big-endian.
    """
    folder = Path(table.location().removeprefix("file://")) / "data"
    path = folder / f"{uuid4()}.puffin"
    content, blobs, rows = bytearray(b"PFA1"), [], 0
    for file, positions in deleted.items():
        bitmap = BitMap64(positions)
        framed = bytes.fromhex("d1d33964") + bitmap.serialize()
        blob = struct.pack(">I", len(framed)) + framed + struct.pack(">I", zlib.crc32(framed))
        properties = {"referenced-data-file": f"file://{file}", "cardinality": str(len(bitmap))}
        blobs.append(
            {
                "type": "deletion-vector-v1",
                "fields": [],
                "snapshot-id": -1,
                "sequence-number": -1,
                "offset": len(content),
                "length": len(blob),
                "properties": properties,
            }
        )
        content += blob
        rows += len(bitmap)
    footer = json.dumps({"blobs": blobs}).encode()
    path.write_bytes(bytes(content) + b"PFA1" + footer + struct.pack("<iI", len(footer), 0) + b"PFA1")
    kind = DataFileContent.POSITION_DELETES
    return data_file(path, rows, content=kind, file_format=FileFormat.PUFFIN, **details)
