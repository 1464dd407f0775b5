"""Names that readers may take for one, judged by Spark with Delta Lake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import widen
from support.similar_names import expected, similar_groups, values, write_batches
from widen import ingest
from widen.model.types import is_same_name, name_key, quote_name
from widen.table import Table

SAME = [("sira", "SIRA"), ("straße", "STRAẞE"), ("k", "\u212a"), ("σ", "Σ"), ("sira", "sıra"), ("i", "İ")]


def test_names_are_the_same_exactly_where_java_says_so(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    order = jvm.java.lang.String.CASE_INSENSITIVE_ORDER
    pairs = [(name, other) for group in similar_groups() for name in group for other in group]
    differing = [
        (name, other)
        for name, other in pairs
        if (order.compare(name, other) == 0) != (name_key(name) == name_key(other))
    ]
    assert differing == []


def test_every_name_gets_a_column_that_delta_lake_finds(spark: SparkSession, tmp_path: Path) -> None:
    for at, paths in enumerate(write_batches(tmp_path)):
        place = str(tmp_path / f"t{at}")
        for path in paths:
            ingest(path, place, spark=spark)
        frame = spark.read.format("delta").load(place)
        assert values(frame.collect()) == expected(paths)
        struct = Table(place).schema.find("r")
        assert struct is not None
        names = [name for name in frame.columns if name != "r"]
        columns = [quote_name(name) for name in names] + [f"r.{quote_name(item.name)}" for item in struct.type]  # type: ignore[union-attr]
        ours = values(Table(place).read(spark=spark, unified=True).collect())
        assert ours == expected(paths)
        flat = frame.select(*columns).collect()
        found = [sorted(filter(None, (row[k] for row in flat for k in range(lo, hi)))) for lo, hi in halves(columns)]
        assert found == [expected(paths)] * 2


def halves(columns: list[str]) -> list[tuple[int, int]]:
    return [(0, len(columns) // 2), (len(columns) // 2, len(columns))]


# ---- what callers name ---------------------------------------------------------------------------


def one(spark: SparkSession, name: str, value: int) -> DataFrame:
    return spark.createDataFrame([(value,)], f"{quote_name(name)} int")


@pytest.mark.parametrize(("name", "other"), [("straße", "strasse"), ("ﬁ", "fi"), ("ŉ", "ʼn")])
def test_an_append_does_not_land_in_a_similar_column(
    spark: SparkSession, tmp_path: Path, name: str, other: str
) -> None:
    table = widen.create_table(str(tmp_path), f"{quote_name(name)} int")
    with pytest.raises(widen.WidenError):
        table.append(one(spark, other, 1))
    table.append(one(spark, other, 1), merge_schema=True)
    rows = spark.read.format("delta").load(str(tmp_path)).collect()
    assert [row.asDict() for row in rows] == [{name: None, other: 1}]


@pytest.mark.parametrize(("name", "other"), SAME)
def test_an_append_lands_in_the_column_that_spark_takes_for_the_same(
    spark: SparkSession, tmp_path: Path, name: str, other: str
) -> None:
    table = widen.create_table(str(tmp_path), f"{quote_name(name)} int")
    table.append(one(spark, other, 1))
    rows = spark.read.format("delta").load(str(tmp_path)).collect()
    assert [row.asDict() for row in rows] == [{name: 1}]


@pytest.mark.parametrize("names", [("strasse", "straße"), ("sira", "sıra"), ("s", "ſ"), ("i", "İ"), ("µ", "μ")])
def test_a_table_of_delta_lake_with_both_names_is_read_and_changed(
    spark: SparkSession, tmp_path: Path, names: tuple[str, str]
) -> None:
    first, second = names
    frame = spark.createDataFrame([(1, 2)], f"{quote_name(first)} int, {quote_name(second)} int")
    frame.write.format("delta").save(str(tmp_path))
    table = Table(str(tmp_path))
    table.append(frame.selectExpr(f"{quote_name(second)} + 2 {quote_name(second)}", f"3 {quote_name(first)}"))
    assert [tuple(row) for row in table.read(spark=spark).orderBy(first).collect()] == [(1, 2), (3, 4)]
    assert [tuple(row) for row in table.read(f"{quote_name(second)} = 4", spark=spark).collect()] == [(3, 4)]
    assert table.to_pandas()[[first, second]].sort_values(first).values.tolist() == [[1, 2], [3, 4]]
    table.set_properties({"delta.enableTypeWidening": "true"})
    table.alter_column(quote_name(second), type="bigint")
    table.delete(f"{quote_name(second)} = 2", spark=spark)
    table.update({quote_name(second): f"{quote_name(first)} + 2"}, spark=spark)
    source = frame.selectExpr(f"3 {quote_name(first)}", f"6L {quote_name(second)}")
    table.merge(source, f"t.{quote_name(first)} = s.{quote_name(first)}").when_matched_update_all().execute()
    rows = spark.read.format("delta").load(str(tmp_path)).collect()
    assert [tuple(row) for row in rows] == [(3, 6)]


def test_a_column_that_spark_takes_for_another_cannot_be_added(tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "sira int, `İ` int")
    for name in ("sıra", "SIRA", "i", "i\u0307"):
        with pytest.raises(widen.WidenError):
            table.add_columns({quote_name(name): "int"})
    assert is_same_name("İ", "i")
