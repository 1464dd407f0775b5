"""Features that only writers must support: every table that lists one can be read, with its rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import widen
from support.exact import assert_same
from widen.protocol.table_features import FEATURES

COLLATED = {"__COLLATIONS": {"name": "spark.UTF8_LCASE"}}
TAGS = {"type": "array", "elementType": "string", "containsNull": True}
COLUMNS = [
    {"name": "id", "type": "long", "nullable": True, "metadata": {}},
    {"name": "name", "type": "string", "nullable": True, "metadata": COLLATED},
    {"name": "tags", "type": TAGS, "nullable": True, "metadata": {"__COLLATIONS": {"tags.element": "icu.UNICODE_CI"}}},
    {"name": "part", "type": "string", "nullable": True, "metadata": {"__COLLATIONS": {"part": "spark.UTF8_LCASE"}}},
]
PLAIN = [{**column, "metadata": {}} for column in COLUMNS]
ROWS = [(1, "Ada", ["x"], "A"), (2, "ada", [], "a"), (3, None, None, "a")]

WRITER_FEATURES = [
    *(feature.name for feature in FEATURES if not feature.is_reader),
    *("collations", "collations-preview", "coordinatedCommits-preview", "somethingNew"),
]


def write_table(folder: Path, feature: str, columns: list[dict[str, Any]], properties: Mapping[str, str]) -> None:
    """Write the log and the files as another writer does."""
    stored = {"part": "A"}, {"part": "a"}
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": [feature]}},
        {
            "metaData": {
                "id": "1f2e3d4c-0000-4000-8000-000000000001",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": columns}),
                "partitionColumns": ["part"],
                "configuration": dict(properties),
            }
        },
    ]
    (folder / "_delta_log").mkdir(parents=True)
    for number, values in enumerate(stored):
        rows = [row for row in ROWS if row[3] == values["part"]]
        columns_of = dict(
            zip(("id", "name", "tags"), map(list, zip(*(row[:3] for row in rows), strict=True)), strict=True)
        )
        path = folder / f"{number}.parquet"
        pq.write_table(
            pa.table(
                columns_of,
                schema=pa.schema([("id", pa.int64()), ("name", pa.string()), ("tags", pa.list_(pa.string()))]),
            ),
            path,
        )
        names = [row[1] for row in rows if row[1] is not None]
        stats = {
            "numRecords": len(rows),
            "minValues": {"name": min(names)},
            "maxValues": {"name": max(names)},
            "nullCount": {"name": len(rows) - len(names)},
        }
        add = {"path": path.name, "partitionValues": values, "size": path.stat().st_size, "modificationTime": 1}
        actions.append({"add": {**add, "dataChange": True, "stats": json.dumps(stats)}})
    (folder / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))


@pytest.mark.parametrize("feature", WRITER_FEATURES)
def test_rows_of_a_table_with_a_feature_for_writers(spark: SparkSession, tmp_path: Path, feature: str) -> None:
    columns = COLUMNS if feature.startswith("collations") else PLAIN
    write_table(tmp_path, feature, columns, {})
    table = widen.Table(str(tmp_path))

    for _ in range(2):  # what the first read leaves behind must not change the second
        read = table.read(spark=spark).orderBy("id")
        assert_same([tuple(row) for row in read.collect()], ROWS)
        assert [tuple(row.values()) for row in table.to_arrow().sort_by("id").to_pylist()] == ROWS


def test_conditions_on_collated_columns_see_every_equal_text(spark: SparkSession, tmp_path: Path) -> None:
    write_table(tmp_path, "collations", COLUMNS, {})
    table = widen.Table(str(tmp_path))
    widen.register(spark)

    for condition in ("name = 'ADA'", "name = 'Ada'", "name IN ('aDA')", "name BETWEEN 'ADA' AND 'ADa'", "name >= 'b'"):
        expected = [] if ">=" in condition else [1, 2]
        assert sorted(row.id for row in table.read(where=condition, spark=spark).collect()) == expected, condition
    assert sorted(row.id for row in table.read(where="part = 'A'", spark=spark).collect()) == [1, 2, 3]
    assert sorted(row.id for row in spark.read.format("widen").load(str(tmp_path)).where("part = 'A'").collect()) == [
        1,
        2,
        3,
    ]
    assert sorted(
        row.id for row in widen.sql(f"SELECT id FROM delta.`{tmp_path}` WHERE name = 'aDa'", spark=spark).collect()
    ) == [1, 2]
