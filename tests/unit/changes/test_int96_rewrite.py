"""Files with INT96 timestamps that other readers wrap around are found by bounds and footers, and rewritten."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import widen

FAR, NEAR = datetime(1500, 1, 1, tzinfo=timezone.utc), datetime(2020, 1, 1, tzinfo=timezone.utc)


def make(place: Path, *values: datetime, is_int96: bool = True) -> widen.Table:
    """A table whose files have one timestamp each, as Delta Lake for Spark writes them."""
    (place / "_delta_log").mkdir(parents=True)
    field = {"name": "v", "type": "timestamp", "nullable": True, "metadata": {}}
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {
            "metaData": {
                "id": "1",
                "format": {"provider": "parquet", "options": {}},
                "partitionColumns": [],
                "schemaString": json.dumps({"type": "struct", "fields": [field]}),
                "configuration": {},
            }
        },
    ]
    for at, value in enumerate(values):
        path, text = place / f"{at}.parquet", value.strftime("%Y-%m-%dT%H:%M:%S.000Z")
        data = pa.table({"v": pa.array([value], pa.timestamp("us", "UTC"))})
        pq.write_table(data, path, use_deprecated_int96_timestamps=is_int96, store_schema=False)
        stats = {"numRecords": 1, "minValues": {"v": text}, "maxValues": {"v": text}, "nullCount": {"v": 0}}
        add = {"path": path.name, "partitionValues": {}, "size": path.stat().st_size, "modificationTime": 0}
        actions.append({"add": {**add, "dataChange": True, "stats": json.dumps(stats)}})
    (place / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    return widen.Table(place)


def far_traits(table: widen.Table) -> list[str]:
    return [trait.name for each in table.readers("polars") for trait in each.reasons]


def test_files_of_far_years_are_rewritten_and_then_read_by_polars(tmp_path: Path) -> None:
    table = make(tmp_path / "t", FAR, NEAR)
    assert polars.read_delta(table.location)["v"].to_list() != [FAR, NEAR]
    assert far_traits(table) == ["int96-far"]
    change = table.rewrite()
    assert change.metrics["numRemovedFiles"] == 1
    assert far_traits(table) == []
    assert sorted(polars.read_delta(table.location)["v"].to_list()) == [FAR, NEAR]
    assert sorted(table.to_arrow()["v"].to_pylist()) == [FAR, NEAR]
    assert table.rewrite().metrics == {}


@pytest.mark.parametrize(("value", "is_int96"), [(NEAR, True), (FAR, False)])
def test_other_files_stay(tmp_path: Path, value: datetime, *, is_int96: bool) -> None:
    table = make(tmp_path / "t", value, is_int96=is_int96)
    assert far_traits(table) == []
    assert table.rewrite().metrics == {}
    assert table.version == 0
