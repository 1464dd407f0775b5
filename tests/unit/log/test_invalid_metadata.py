"""Protocols and metadata that no valid table has: refused with an error of ours, whatever is asked of the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import widen
from support import log_table as log
from widen.errors import CorruptLog, FeatureRequired, UnsupportedFeature, WidenError
from widen.model.types import INTEGER, Field
from widen.schema.operations import AddColumn

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


def checksum_of(folder: Path, **changes: Any) -> None:
    """Write the checksum of version 0, with changes."""
    lines = [json.loads(line) for line in (folder / "_delta_log" / f"{0:020}.json").read_text().splitlines()]
    content = {"tableSizeBytes": 0, "numFiles": 0, "numMetadata": 1, "numProtocol": 1}
    content |= {"metadata": lines[1]["metaData"], "protocol": lines[0]["protocol"], **changes}
    (folder / "_delta_log" / f"{0:020}.crc").write_text(json.dumps(content))


CONTRADICTIONS: dict[str, dict[str, Any]] = {
    "schema": {"schemaString": json.dumps({"type": "struct", "fields": [{**LONG, "type": "integer"}]})},
    "id": {"id": "another"},
    "properties": {"configuration": {"delta.appendOnly": "true"}},
    "partition columns": {"partitionColumns": ["id"]},
}


@pytest.mark.parametrize("part", CONTRADICTIONS)
@pytest.mark.parametrize("knows", [False, True])
def test_a_checksum_that_contradicts_the_log_is_not_written_on(tmp_path: Path, part: str, knows: bool) -> None:
    place = table(tmp_path, versions(1, 2), schemaString=json.dumps({"type": "struct", "fields": [LONG]}))
    written = [
        {**log.metadata(partitions=())["metaData"], "schemaString": json.dumps({"type": "struct", "fields": [LONG]})}
    ]
    checksum_of(tmp_path, metadata={**written[0], **CONTRADICTIONS[part]})
    if knows:  # what was checked before counts no longer
        right = json.loads((tmp_path / "_delta_log" / f"{0:020}.crc").read_text())
        checksum_of(tmp_path)
        widen.Table(place).set_properties({"a": "b"})
        (tmp_path / "_delta_log" / f"{1:020}.json").unlink()
        (tmp_path / "_delta_log" / f"{1:020}.crc").unlink()
        (tmp_path / "_delta_log" / f"{0:020}.crc").write_text(json.dumps(right))
    with pytest.raises(CorruptLog, match=rf"{0:020}.crc.* contradicts the log \({part}\).*Delete this file"):
        widen.Table(place).set_properties({"a": "b"})
    (tmp_path / "_delta_log" / f"{0:020}.crc").unlink()
    opened = widen.Table(place).schema
    changed = widen.Table(place).set_properties({"a": "b"})
    assert (changed.version, changed.schema) == (1, opened)


def test_a_checksum_with_another_protocol_or_without_a_load_is_not_written_on(tmp_path: Path) -> None:
    place = table(tmp_path, versions(1, 2))
    checksum_of(tmp_path, protocol=versions(1, 4))
    with pytest.raises(CorruptLog, match=r"contradicts the log \(protocol\)"):
        widen.Table(place).set_properties({"a": "b"})
    checksum_of(tmp_path)
    lines = (tmp_path / "_delta_log" / f"{0:020}.json").read_text()
    (tmp_path / "_delta_log" / f"{0:020}.json").write_text(f'{lines}\n{{"txn":{{"appId":"a","version":7}}}}')
    checksum_of(tmp_path, setTransactions=[{"appId": "a", "version": 6}])
    with pytest.raises(CorruptLog, match=r"contradicts the log \(transactions\)"):
        widen.Table(place).set_properties({"a": "b"})


def test_the_metadata_of_a_table_with_timestamp_ntz_needs_its_feature(tmp_path: Path) -> None:
    """Rows may be written, as Delta Lake does."""
    column = {"name": "at", "type": "timestamp_ntz", "nullable": True, "metadata": {}}
    place = table(tmp_path, versions(1, 2), schemaString=json.dumps({"type": "struct", "fields": [column]}))
    with pytest.raises(FeatureRequired, match="timestampNtz"):
        widen.Table(place).set_properties({"a": "b"})
    with pytest.raises(FeatureRequired, match="timestampNtz"):
        widen.Table(place).change_columns([AddColumn((), Field("x", INTEGER))])
    widen.Table(place).add_feature("timestampNtz").set_properties({"a": "b"})
    assert "timestampNtz" in (widen.Table(place).protocol.writer_features or ())
