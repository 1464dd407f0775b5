"""One small table for the changes of rows, in every layout, and what a commit of them says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import widen
from support.written_once import written_once
from widen.protocol.actions import DeletionVector
from widen.protocol.deletion_vectors import locate_vector
from widen.table import Table

SCHEMA = "id bigint, p string, s struct<x: int, y: string>"
VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}

LAYOUTS: list[tuple[dict[str, str], tuple[str, ...]]] = [
    ({}, ()),
    ({"delta.columnMapping.mode": "name"}, ("p",)),
    (VECTORS, ("p",)),
    ({**FEED, "delta.columnMapping.mode": "id"}, ()),
    ({**FEED, **VECTORS}, ("p",)),
]
"""Properties and partition columns: files written anew or deletion vectors, with and without a record of changes."""


def layout_name(layout: Any) -> str:
    """A short name for a layout or a part of it, and for a case beside it."""
    if isinstance(layout, str):
        return layout
    if isinstance(layout, tuple) and layout and isinstance(layout[0], dict):
        return "-".join(map(layout_name, layout))
    if isinstance(layout, dict):
        return "+".join(key.removeprefix("delta.").removeprefix("enable") for key in layout) or "plain"
    return "split" if layout else "whole"


def numbered(first: int, last: int) -> list[tuple[int, str, tuple[int, str]]]:
    """Rows with ids from the first to before the last one, in three partitions."""
    return [(n, f"p{n % 3}", (n, "old")) for n in range(first, last)]


def in_one_task(spark: SparkSession, rows: Sequence[tuple[Any, ...]], schema: str) -> DataFrame:
    """Rows of which one fails a write, for tests that look for what is left of it.

    Spark does not wait for the other tasks of a job that fails; they may leave files after the rest is gone.
    """
    return spark.createDataFrame(rows, schema).coalesce(1)


@written_once
def two_files(spark: SparkSession, place: Path, properties: dict[str, str], partition_by: tuple[str, ...]) -> Table:
    """A table of rows 0 to 19, whose ids were int in the first half of them; version 3."""
    properties = {"delta.enableTypeWidening": "true", **properties}
    table = widen.create_table(
        str(place), SCHEMA.replace("bigint", "int"), partition_by=partition_by, properties=properties
    )
    table.append(spark.createDataFrame(numbered(0, 10), SCHEMA.replace("bigint", "int")).coalesce(1))
    table.alter_column("id", type="bigint")
    return table.append(spark.createDataFrame(numbered(10, 20), SCHEMA).coalesce(1)).table


def ids(spark: SparkSession, table: Table) -> list[int]:
    """The ids that the table has now, sorted."""
    return sorted(row.id for row in table.read(spark=spark).select("id").collect())


def plain(spark: SparkSession, table: Table) -> list[Any]:
    """The rows as plain tuples, by their first column."""
    rows = table.read(spark=spark).collect()
    found = [tuple(tuple(value) if isinstance(value, tuple) else value for value in row) for row in rows]
    return sorted(found, key=lambda row: (row[0], repr(row)))


def last_commit(table: Table) -> tuple[str, dict[str, Any], dict[str, int]]:
    """The operation of the newest commit, its parameters, and its numbers other than zero and of bytes."""
    _, _, info = table.history(1)[0]
    numbers = {key: int(value) for key, value in info["operationMetrics"].items() if "Bytes" not in key}
    return info["operation"], info["operationParameters"], {key: count for key, count in numbers.items() if count}


def actions(table: Table, key: str) -> list[dict[str, Any]]:
    """The actions of one kind in the newest commit, as they stand there."""
    path = Path(table.location) / "_delta_log" / f"{table.refresh().version:020d}.json"
    lines = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    return [line[key] for line in lines if key in line]


def changes(table: Table) -> list[tuple[Any, ...]]:
    """What the newest commit has recorded for those who follow the changes: what happened and the first column."""
    found = []
    for action in actions(table, "cdc"):
        file = pq.ParquetFile(Path(table.location) / action["path"]).read()
        found += list(zip(file["_change_type"].to_pylist(), file.column(0).to_pylist(), strict=True))
    return sorted(found)


def leftovers(table: Table) -> list[str]:
    """The files in the place of the table that no version speaks of."""
    folder, known = Path(table.location), set()
    for commit in (folder / "_delta_log").glob("*.json"):
        for line in map(msgspec.json.decode, commit.read_bytes().splitlines()):
            for action in (line.get("add"), line.get("cdc")):
                known |= set(_files_of(action)) if action else set()
    found = [path for path in folder.rglob("*") if path.is_file() and "_delta_log" not in path.parts]
    return [path.name for path in found if path.suffix in (".parquet", ".bin") and path.name not in known]


def _files_of(action: dict[str, Any]) -> list[str]:
    vector = action.get("deletionVector")
    at = locate_vector(msgspec.convert(vector, DeletionVector)) if vector else None
    return [unquote(action["path"]).rpartition("/")[2], *([at.path.rpartition("/")[2]] if at else [])]
