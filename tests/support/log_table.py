"""Logs written by hand, line by line, as the protocol describes them; nothing here calls the code under test."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": True, "metadata": {}},
            {"name": "day", "type": "date", "nullable": True, "metadata": {}},
        ],
    }
)
PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
TEXT_MAP = pa.map_(pa.string(), pa.string())
ADD_COLUMN = pa.struct(
    [
        ("path", pa.string()),
        ("partitionValues", TEXT_MAP),
        ("size", pa.int64()),
        ("modificationTime", pa.int64()),
        ("dataChange", pa.bool_()),
        ("stats", pa.string()),
    ]
)
REMOVE_COLUMN = pa.struct([("path", pa.string()), ("deletionTimestamp", pa.int64()), ("dataChange", pa.bool_())])
PROTOCOL_COLUMN = pa.struct(
    [
        ("minReaderVersion", pa.int32()),
        ("minWriterVersion", pa.int32()),
        ("readerFeatures", pa.list_(pa.string())),
        ("writerFeatures", pa.list_(pa.string())),
    ]
)
METADATA_COLUMN = pa.struct(
    [
        ("id", pa.string()),
        ("format", pa.struct([("provider", pa.string()), ("options", TEXT_MAP)])),
        ("schemaString", pa.string()),
        ("partitionColumns", pa.list_(pa.string())),
        ("configuration", TEXT_MAP),
    ]
)
TXN_COLUMN = pa.struct([("appId", pa.string()), ("version", pa.int64())])
SIDECAR_COLUMN = pa.struct([("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64())])
VERSION_COLUMN = pa.struct([("version", pa.int64())])
CHECKPOINT = pa.schema(
    [
        ("protocol", PROTOCOL_COLUMN),
        ("metaData", METADATA_COLUMN),
        ("txn", TXN_COLUMN),
        ("add", ADD_COLUMN),
        ("remove", REMOVE_COLUMN),
    ]
)
V2_CHECKPOINT = pa.schema([*CHECKPOINT, ("checkpointMetadata", VERSION_COLUMN), ("sidecar", SIDECAR_COLUMN)])
SIDECAR = pa.schema([("add", ADD_COLUMN), ("remove", REMOVE_COLUMN)])


def metadata(configuration: Mapping[str, str] | None = None, partitions: tuple[str, ...] = ("day",)) -> dict[str, Any]:
    """A metaData line."""
    content = {
        "id": "1f2e3d4c-0000-4000-8000-000000000001",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": SCHEMA,
        "partitionColumns": list(partitions),
        "configuration": dict(configuration or {}),
    }
    return {"metaData": content}


def add(path: str, *, day: str | None = "2024-01-01", size: int = 100, **more: Any) -> dict[str, Any]:
    """An add line."""
    content = {"path": path, "partitionValues": {"day": day}, "size": size, "modificationTime": 7, "dataChange": True}
    return {"add": {**content, **more}}


def remove(path: str, **more: Any) -> dict[str, Any]:
    """A remove line."""
    return {"remove": {"path": path, "deletionTimestamp": 4_000_000_000_000, "dataChange": True, **more}}


def write_commit(table: Path, version: int, *lines: dict[str, Any]) -> Path:
    """Write a commit file."""
    return write_json(table, f"{version:020d}.json", *lines)


def write_json(table: Path, name: str, *lines: dict[str, Any]) -> Path:
    """Write a file of JSON lines into the log."""
    path = table / "_delta_log" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def write_parquet(table: Path, name: str, schema: pa.Schema, *rows: dict[str, Any]) -> Path:
    """Write a Parquet file into the log."""
    path = table / "_delta_log" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist([paired(row) for row in rows], schema), path)
    return path


def paired(row: dict[str, Any]) -> dict[str, Any]:
    """Maps as lists of pairs, which is how Arrow takes them."""
    content = json.loads(json.dumps(row))
    for key, name in (("add", "partitionValues"), ("metaData", "configuration")):
        if key in content:
            content[key][name] = list(content[key][name].items())
    if "metaData" in content:
        content["metaData"]["format"]["options"] = []
    return content
