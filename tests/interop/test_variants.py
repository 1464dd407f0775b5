"""Variant columns: added, written, changed and read by both engines, and brought into this process as JSON text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import widen
from widen.errors import FeatureRequired, UnsupportedColumnType
from widen.protocol.table_features import supported_features
from widen.table import Table, create_table

TEXTS = ['{"a":1,"b":[1.5,null,"x"]}', "5", "null", '"a b"', "[]", None]
LAYOUTS: list[dict[str, str]] = [
    {},
    {"delta.columnMapping.mode": "name", "delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"},
    {"delta.columnMapping.mode": "id", "delta.enableChangeDataFeed": "true"},
    {"delta.enableVariantShredding": "true"},
    {"delta.feature.variantType-preview": "supported"},
    {"delta.feature.materializePartitionColumns": "supported", "delta.enableChangeDataFeed": "true"},
]


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def variants(spark: SparkSession, texts: list[str | None] = TEXTS, first: int = 0) -> DataFrame:
    rows = [(number, number % 2, text) for number, text in enumerate(texts, first)]
    return (
        spark.createDataFrame(rows, "id int, p int, t string").selectExpr("id", "p", "parse_json(t) AS v").coalesce(1)
    )


def both(spark: SparkSession, place: str) -> list[tuple[Any, ...]]:
    """The rows of a table as JSON, which must be the same for both engines."""
    theirs, ours = (
        frame.selectExpr("id", "p", "to_json(v) AS v").orderBy("id").collect()
        for frame in (spark.read.format("delta").load(place), Table(place).read(spark=spark))
    )
    assert ours == theirs
    return [tuple(row) for row in theirs]


def expected(*rows: tuple[int, str | None]) -> list[tuple[Any, ...]]:
    return [(number, number % 2, text) for number, text in rows]


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: "-".join(key.rpartition(".")[2] for key in layout))
def test_changes_of_a_table_with_variants(spark: SparkSession, place: str, layout: Mapping[str, str]) -> None:
    table = create_table(place, "id int, p int, v variant", partition_by=["p"], properties=dict(layout))
    assert any(name.startswith("variantType") for name in supported_features(table.snapshot.protocol))
    table.append(variants(spark))
    rows = dict(enumerate(TEXTS))
    assert both(spark, place) == expected(*rows.items())

    table.update({"v": "parse_json('[7]')"}, "id = 1", spark=spark)
    table.delete("id = 4", spark=spark)
    clauses = table.merge(variants(spark, ['{"m":1}', "null"], first=5), "t.id = s.id")
    clauses.when_matched_update_all().when_not_matched_insert_all().execute()
    table.optimize(spark=spark)
    rows = {**rows, 1: "[7]", 5: '{"m":1}', 6: "null"}
    del rows[4]
    assert both(spark, place) == expected(*rows.items())

    spark.sql(f"INSERT INTO delta.`{place}` SELECT id + 10, p, v FROM delta.`{place}` WHERE id = 2")
    table.refresh()
    table.rewrite(spark=spark)
    assert both(spark, place) == expected(*rows.items(), (12, "null"))
    for path in Path(place).rglob("*.parquet"):
        if "_delta_log" not in path.parts and "variantShredding" not in "".join(layout):
            assert "typed_value" not in str(pq.read_schema(path)), path
    arrow = table.refresh().to_arrow().sort_by("id")
    assert [(row["id"], row["v"]) for row in arrow.to_pylist()] == [*rows.items(), (12, "null")]


def test_a_session_that_shreds_does_not_do_so_here(spark: SparkSession, place: str) -> None:
    table = create_table(place, "id int, p int, v variant")
    spark.conf.set("spark.sql.variant.inferShreddingSchema", "true")
    try:
        table.append(variants(spark, ['{"a":1}'] * 20))
    finally:
        spark.conf.unset("spark.sql.variant.inferShreddingSchema")
    [path] = Path(place).glob("*/*.parquet")
    assert "typed_value" not in str(pq.read_schema(path))


def test_a_column_is_added_as_delta_lake_adds_it(spark: SparkSession, tmp_path: Path) -> None:
    ours, theirs = str(tmp_path / "ours"), str(tmp_path / "theirs")
    for place in (ours, theirs):
        create_table(place, "id int, p int").append(spark.sql("SELECT 1 AS id, 1 AS p"))
    widen.sql(f"ALTER TABLE delta.`{ours}` ADD COLUMN v variant", spark=spark)
    spark.sql(f"ALTER TABLE delta.`{theirs}` ADD COLUMN v variant")
    assert supported_features(Table(ours).snapshot.protocol) == supported_features(Table(theirs).snapshot.protocol)
    widen.sql(f"INSERT INTO delta.`{ours}` SELECT 2 AS id, 0 AS p, parse_json('{{\"a\":1}}') AS v", spark=spark)
    assert both(spark, ours) == [(1, 1, None), (2, 0, '{"a":1}')]
    table = create_table(str(tmp_path / "more"), "id int")
    table.add_columns({"v": "variant", "s": "struct<v: variant>"})
    assert "variantType" in supported_features(table.snapshot.protocol)


def test_the_hint_of_an_append_leads_to_the_column(spark: SparkSession, place: str) -> None:
    table = create_table(place, "id int, p int")
    with pytest.raises(FeatureRequired, match="add_feature") as caught:
        table.append(variants(spark), merge_schema=True)
    assert "add_feature('variantType')" in str(caught.value)
    table.add_feature("variantType")
    table.append(variants(spark), merge_schema=True)
    assert both(spark, place) == expected(*enumerate(TEXTS))


def test_variants_at_any_depth_become_json_text(spark: SparkSession, place: str) -> None:
    columns = "id int, v variant, s struct<v: variant, n: int>, l array<variant>, m map<string, struct<v: variant>>"
    table = create_table(place, columns)
    value = "parse_json('{\"a\": [1, null]}')"
    nested = (
        f"named_struct('v', {value}, 'n', 2) AS s, array({value}, NULL) AS l, "
        f"map('k', named_struct('v', {value}), 'none', NULL) AS m"
    )
    table.append(spark.sql(f"SELECT 1 AS id, {value} AS v, {nested}"))
    table.append(spark.sql("SELECT 2 AS id"))
    text = '{"a":[1,null]}'
    first, second = table.to_arrow().sort_by("id").to_pylist()
    assert first == {
        "id": 1,
        "v": text,
        "s": {"v": text, "n": 2},
        "l": [text, None],
        "m": [("k", {"v": text}), ("none", None)],
    }
    assert second == {"id": 2, "v": None, "s": None, "l": None, "m": None}
    assert table.to_arrow().schema.field("v").type == pa.string()
    frame = table.to_pandas().sort_values("id")
    assert json.loads(frame["v"].iloc[0]) == {"a": [1, None]}
    assert frame["v"].iloc[1] is None or frame["v"].isna().iloc[1]
    assert table.to_arrow(where="id = 1").num_rows == 1


def test_a_load_names_the_variant_column_and_the_way_to_write_it(
    spark: SparkSession, place: str, tmp_path: Path
) -> None:
    create_table(place, "id int, p int, s struct<v: variant>")
    source = tmp_path / "s.jsonl"
    source.write_text('{"id": 1, "p": 1}\n')
    with pytest.raises(UnsupportedColumnType, match=r"s\.v cannot have the type variant.*Table\.append"):
        widen.ingest(str(source), place, spark=spark)
    assert Table(place).version == 0
