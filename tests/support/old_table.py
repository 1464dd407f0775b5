"""Tables whose types have changed, and what their files and their log say; nothing here calls the code under test."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

ENABLED = {"delta.enableTypeWidening": "true", "delta.feature.timestampNtz": "supported"}


def log(table: Path) -> list[dict[str, Any]]:
    """Every action of the commits that are there, oldest first, each with the version under ``version``."""
    return [
        {**json.loads(line), "version": int(path.stem)}
        for path in sorted((table / "_delta_log").glob("*.json"))
        for line in path.read_text().splitlines()
    ]


def operations(table: Path) -> list[str]:
    """What the commits say that they are, oldest first."""
    return [line["commitInfo"]["operation"] for line in log(table) if "commitInfo" in line]


def removed(table: Path, since: int) -> int:
    """How many files were removed in the versions after one."""
    return sum("remove" in line and line["version"] > since for line in log(table))


def live(table: Path) -> dict[str, dict[str, Any]]:
    """The add actions of the live files by path; the log must be there from its beginning."""
    files: dict[str, dict[str, Any]] = {}
    for version in sorted({line["version"] for line in log(table)}):
        lines = [line for line in log(table) if line["version"] == version]
        for line in lines:
            files.pop(line.get("remove", {}).get("path"), None)
        files.update({line["add"]["path"]: line["add"] for line in lines if "add" in line})
    return files


def file_types(table: Path, paths: Any) -> set[tuple[tuple[str, pa.DataType], ...]]:
    """The columns and their Arrow types in each of some files; what is nested in them has no names of its own."""
    return {
        tuple((field.name, _plain(field.type)) for field in pq.read_schema(_at(table, path)).remove_metadata())
        for path in paths
    }


def _at(table: Path, path: str) -> Path:
    return Path(unquote(path.removeprefix("file://"))) if path.startswith(("/", "file:")) else table / unquote(path)


def _plain(data_type: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(data_type):
        return pa.struct([(str(at), _plain(field.type)) for at, field in enumerate(data_type)])
    if pa.types.is_map(data_type):
        return pa.map_(_plain(data_type.key_type), _plain(data_type.item_type))
    return pa.list_(_plain(data_type.value_type)) if pa.types.is_list(data_type) else data_type


def age(place: Path, hours: float) -> None:
    """Let everything in the log of a table, or one file, have been written that much earlier."""
    for path in (place / "_delta_log").rglob("*") if place.is_dir() else [place]:
        status = path.stat()
        os.utime(path, (status.st_atime - hours * 3600, status.st_mtime - hours * 3600))
