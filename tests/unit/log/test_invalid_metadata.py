"""Protocols and metadata that no valid table has: refused with an error of ours, whatever is asked of the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import widen
from support import log_table as log
from widen.errors import CorruptLog, UnsupportedFeature, WidenError

LONG = {"name": "id", "type": "long", "nullable": True, "metadata": {}}


def table(folder: Path, protocol: dict[str, Any], **changes: Any) -> str:
    content = {**log.metadata(partitions=())["metaData"], **changes}
    (folder / "_delta_log").mkdir()
    lines = [{"protocol": protocol}, {"metaData": content}]
    (folder / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, lines)))
    return str(folder)


def versions(reader: int, writer: int, **lists: Any) -> dict[str, Any]:
    return {"minReaderVersion": reader, "minWriterVersion": writer, **lists}


@pytest.mark.parametrize(
    "protocol",
    [
        versions(3, 5),
        versions(3, 5, readerFeatures=[]),
        versions(3, 7),
        versions(3, 7, writerFeatures=[]),
        versions(3, 7, readerFeatures=[]),
        versions(1, 7),
        versions(-1, 2),
        versions(1, -2),
    ],
)
def test_a_protocol_whose_parts_contradict_each_other_is_refused(tmp_path: Path, protocol: dict[str, Any]) -> None:
    with pytest.raises(CorruptLog, match="is not valid"):
        widen.Table(table(tmp_path, protocol))


def test_a_writer_version_that_nobody_knows_is_refused_for_writing(tmp_path: Path) -> None:
    found = widen.Table(table(tmp_path, versions(1, 8)))
    with pytest.raises(UnsupportedFeature, match="writer version 8"):
        found.set_properties({"a": "b"})


@pytest.mark.parametrize(
    "changes",
    [
        {"partitionColumns": ["id", "id"]},
        {"format": {"provider": "parquet", "options": "text"}},
        {"format": {"provider": "parquet", "options": {"a": [1]}}},
        {"schemaString": json.dumps({"type": "struct", "fields": [{**LONG, "name": ["id"]}]})},
        {"schemaString": json.dumps({"type": "struct", "fields": [{**LONG, "name": None}]})},
        {"schemaString": json.dumps({"type": "struct", "fields": [{**LONG, "metadata": "text"}]})},
    ],
)
def test_metadata_of_a_wrong_shape_raise_an_error_of_ours(tmp_path: Path, changes: dict[str, Any]) -> None:
    place = table(tmp_path, versions(1, 2), **changes)
    for use in (
        lambda: widen.Table(place).schema,
        lambda: widen.Table(place).to_arrow(),
        lambda: widen.Table(place).set_properties({"a": "b"}),
    ):
        with pytest.raises(WidenError):
            use()
