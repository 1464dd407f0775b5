"""A table of orders whose types drifted, as a log written by hand: nothing here calls the code under test."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from support.log_table import write_commit

DAY_MS = 86_400_000
HOSTILE = "<script>alert(1)</script>\x1b[31m"


def field(name: str, kind: Any, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def schema(*fields: dict[str, Any]) -> dict[str, Any]:
    text = json.dumps({"type": "struct", "fields": list(fields)})
    content = {"id": "7d0c", "format": {"provider": "parquet", "options": {}}, "schemaString": text}
    return {"metaData": {**content, "partitionColumns": [], "configuration": {"delta.enableTypeWidening": "true"}}}


def info(operation: str, time_ms: int, **parameters: Any) -> dict[str, Any]:
    return {"commitInfo": {"timestamp": time_ms, "operation": operation, "operationParameters": parameters}}


def data(path: str, rows: int, size: int, **stats: Any) -> dict[str, Any]:
    content = {"path": path, "partitionValues": {}, "size": size, "modificationTime": 1, "dataChange": True}
    return {"add": {**content, "stats": json.dumps({"numRecords": rows, **stats})}}


def event(column: list[str], kind: str, grade: str, rule: str, sample: str, count: int) -> dict[str, Any]:
    told = {"rules": [rule], "source": column[:1], "kinds": [kind], "column": column, "count": count}
    return {**told, "first": ["file:/in/day%202/orders.json", 6], "sample": sample, "grade": grade}


WIDENED = {"delta.typeChanges": [{"fromType": "integer", "toType": "double"}]}
EVOLVED = {"comment": "evolved_from:tags", "widen.source": ["tags"], "widen.evolvedFrom": "tags"}
PROTOCOL = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["typeWidening"],
        "writerFeatures": ["typeWidening", "appendOnly", "invariants"],
    }
}


def write_drift(table: Path, sample: str = "12.5") -> Path:
    """Three versions: two columns and 10 rows; one widened, two added, 20 rows; a comment set by hand."""
    before = (field("total", "integer"), field("tags", "string"))
    lines = {"type": "array", "elementType": "string", "containsNull": True}
    after = (
        field("total", "double", **WIDENED),
        field("tags", "string"),
        field("tags_array_string", lines, **EVOLVED),
        field("_corrupt_record", "string", **{"widen.role": "_corrupt_record"}),
    )
    events = [
        event(["total"], "double", "widening", "D1", sample, 12),
        event(["tags_array_string"], "string[]", "structural", "U8", "gift", 4),
    ]
    first = {"minValues": {"total": 3, "tags": "a"}, "maxValues": {"total": 90, "tags": "m"}}
    second = {"minValues": {"total": 0.5}, "maxValues": {"total": 88.25}}
    write_commit(
        table,
        0,
        info("WRITE", 0, mode="Append"),
        PROTOCOL,
        schema(*before),
        data("a.parquet", 10, 1000, **first, nullCount={"total": 0, "tags": 4}),
    )
    write_commit(
        table,
        1,
        info("WRITE", 0, mode="Append", evolve="widen", events=json.dumps(events)),
        schema(*after),
        data("b.parquet", 20, 3000, **second, nullCount={"total": 1, "tags": 20, "_corrupt_record": 19}),
    )
    write_commit(
        table, 2, info("CHANGE COLUMN", 0), schema(after[0], field("tags", "string", comment="labels"), *after[2:])
    )
    for version in range(3):
        path = table / "_delta_log" / f"{version:020d}.json"
        seconds = (1_700_000_000_000 + version * DAY_MS) / 1000
        os.utime(path, (seconds, seconds))
    return table
