"""Changes of rows beside Delta Lake's own: twin tables, each changed by its own engine, and one changed in turns."""

from __future__ import annotations

import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession

from interop import rows
from support.fault import FULL
from widen.table import Table, create_table

NARROW = "id int, city string, amount decimal(10,2), who struct<name: string, age: int>"
WIDE = "id bigint, city string, amount decimal(10,2), who struct<name: string, age: int>"
CITIES = ("Gent", "Brno", None)
FIRST = [(n, CITIES[n % 3], Decimal(n) / 4, (f"n{n}", n)) for n in range(20)]
SECOND = [(n, CITIES[n % 3], None if n % 2 else Decimal(n), None if n == 21 else (None, n)) for n in range(20, 40)]
SOURCE = [
    (3, "Oulu", Decimal("0.01"), ("new", 300)),
    (24, None, Decimal("9.99"), None),
    (30, "gone", None, (None, None)),
    (50, "Gent", Decimal("1.00"), ("in", 1)),
    (51, "out", None, None),
]
MORE = [(60, "Gent", None, ("g", 0)), (61, "Gent", Decimal("6.10"), None)]

VECTORS = {"delta.enableDeletionVectors": "true"}
FEED = {"delta.enableChangeDataFeed": "true"}
MAPPED = {"delta.columnMapping.mode": "name"}
TABLES: list[tuple[dict[str, str], tuple[str, ...]]] = [
    ({}, ("city",)),
    ({**VECTORS, **MAPPED}, ("city",)),
    ({**FEED, **VECTORS, "delta.columnMapping.mode": "id"}, ()),
]
SHARED: list[dict[str, str]] = [{}, {**FEED, **VECTORS}]
if FULL in os.environ:  # each of these properties is also in a table above
    TABLES += [({}, ()), (VECTORS, ()), (FEED, ("city",))]
    SHARED += [VECTORS]
Ours = Callable[[Table, SparkSession], object]


def _merge(table: Table, spark: SparkSession) -> None:
    merge = table.merge(rows.frame(spark, SOURCE, WIDE), "t.id = s.id AND t.id < 1000")
    merge = merge.when_matched_delete(condition="s.city = 'gone'")
    amount = "coalesce(s.amount, t.amount) * 2"
    merge = merge.when_matched_update({"who": "s.who", "amount": amount}, condition="s.id < 10")
    merge = merge.when_matched_update_all()
    merge = merge.when_not_matched_insert_all(condition="s.city <> 'out'")
    merge = merge.when_not_matched_insert({"id": "s.id + 100", "city": "'Brno'"})
    merge = merge.when_not_matched_by_source_update({"who.name": "concat('x', t.id)"}, condition="t.id % 7 = 0")
    merge.when_not_matched_by_source_delete(condition="t.id % 5 = 0").execute()


MERGE = """
MERGE INTO {table} t USING source s ON t.id = s.id AND t.id < 1000
WHEN MATCHED AND s.city = 'gone' THEN DELETE
WHEN MATCHED AND s.id < 10 THEN UPDATE SET who = s.who, amount = coalesce(s.amount, t.amount) * 2
WHEN MATCHED THEN UPDATE SET *
WHEN NOT MATCHED AND s.city <> 'out' THEN INSERT *
WHEN NOT MATCHED THEN INSERT (id, city) VALUES (s.id + 100, 'Brno')
WHEN NOT MATCHED BY SOURCE AND t.id % 7 = 0 THEN UPDATE SET who.name = concat('x', t.id)
WHEN NOT MATCHED BY SOURCE AND t.id % 5 = 0 THEN DELETE
"""

STEPS: list[tuple[Ours, str]] = [
    (
        lambda table, spark: table.delete("id % 4 = 1 AND amount > 1", spark=spark),
        "DELETE FROM {table} WHERE id % 4 = 1 AND amount > 1",
    ),
    (
        lambda table, spark: table.update(
            {"who.age": "who.age * 2", "city": "upper(city)"}, "abs(id - 20) < 5", spark=spark
        ),
        "UPDATE {table} SET who.age = who.age * 2, city = upper(city) WHERE abs(id - 20) < 5",
    ),
    (_merge, MERGE),
    (lambda table, spark: table.delete("city = 'Brno'", spark=spark), "DELETE FROM {table} WHERE city = 'Brno'"),
    (lambda table, spark: table.delete("id = 14", spark=spark), "DELETE FROM {table} WHERE id = 14"),
    (
        lambda table, spark: table.overwrite(rows.frame(spark, MORE, WIDE), where="city = 'Gent' AND id > 5"),
        "INSERT INTO {table} REPLACE WHERE city = 'Gent' AND id > 5 SELECT * FROM more",
    ),
    (lambda table, spark: table.update({"amount": "id"}, spark=spark), "UPDATE {table} SET amount = id"),
]
READ_BY_DELTA = (2, len(STEPS) - 1)
"""After which steps Delta Lake reads the tables, too, which takes it longer than most of the changes."""


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "table")


@pytest.mark.parametrize(("properties", "partition_by"), TABLES)
def test_twin_tables_stay_the_same(
    spark: SparkSession, tmp_path: Path, properties: dict[str, str], partition_by: tuple[str, ...]
) -> None:
    mine, theirs = str(tmp_path / "mine"), str(tmp_path / "theirs")
    table = _ours(spark, mine, properties, partition_by)
    _theirs(spark, theirs, properties, partition_by)
    for number, (ours, sql) in enumerate(STEPS):
        ours(table, spark)
        _run(spark, theirs, sql)
        expected = rows.exact(Table(theirs).read(spark=spark))
        assert rows.exact(table.read(spark=spark)) == expected
        if number in READ_BY_DELTA:
            assert rows.exact(_delta(spark, mine)) == rows.exact(_delta(spark, theirs)) == expected
    if FEED.items() <= properties.items():
        assert _feed(spark, mine) == _feed(spark, theirs)


@pytest.mark.parametrize("properties", SHARED)
def test_both_change_one_table_in_turns(spark: SparkSession, tmp_path: Path, properties: dict[str, str]) -> None:
    place, other = str(tmp_path / "shared"), str(tmp_path / "theirs")
    table = _ours(spark, place, properties, ())
    _theirs(spark, other, properties, ())
    for number, (ours, sql) in enumerate(STEPS):
        ours(table, spark) if number % 2 else _run(spark, place, sql)
        _run(spark, other, sql)
        assert rows.exact(table.refresh().read(spark=spark)) == rows.exact(Table(other).read(spark=spark))
    assert rows.exact(_delta(spark, place)) == rows.exact(_delta(spark, other))
    _run(spark, place, "OPTIMIZE {table}")
    assert rows.exact(table.refresh().read(spark=spark)) == rows.exact(_delta(spark, other))


def test_delta_purges_our_vectors(spark: SparkSession, place: str) -> None:
    table = _ours(spark, place, VECTORS, ())
    table.delete("id % 3 = 0", spark=spark).table.delete("id % 3 = 1", spark=spark)
    left = [n for n in range(40) if n % 3 == 2]
    assert [row.id for row in _delta(spark, place).orderBy("id").collect()] == left
    _run(spark, place, "REORG TABLE {table} APPLY (PURGE)")
    assert table.refresh().files()["deletion_vector"].null_count == table.files().num_rows
    assert [row.id for row in table.read(spark=spark).orderBy("id").collect()] == left


@pytest.mark.parametrize("properties", [{}, {**VECTORS, **FEED, **MAPPED}])
def test_rows_keep_their_ids_for_delta(spark: SparkSession, place: str, properties: dict[str, str]) -> None:
    table = _ours(spark, place, {"delta.enableRowTracking": "true", **properties}, ("city",))
    before = _row_ids(spark, place)
    table.delete("id < 5", spark=spark).table.update({"amount": "1"}, "id = 10 OR id = 30", spark=spark)
    _merge(table, spark)
    after = _row_ids(spark, place)
    assert len({row_id for row_id, _ in after.values()}) == len(after)
    new = {3, 50, 151}  # 3 was deleted before
    assert {n: after[n][1] for n in new} == {3: 6, 50: 6, 151: 6}
    changed = {7: 6, 14: 6, 21: 6, 24: 6, 28: 6, 35: 6}
    kept = after.keys() - new
    assert {n: after[n] for n in kept} == {n: (before[n][0], changed.get(n, before[n][1])) for n in kept}


def test_dynamic_partitions(spark: SparkSession, tmp_path: Path) -> None:
    mine, theirs = str(tmp_path / "mine"), str(tmp_path / "theirs")
    table = _ours(spark, mine, {}, ("city",))
    _theirs(spark, theirs, {}, ("city",))
    new = rows.frame(spark, [*MORE, (62, None, None, None)], WIDE)
    table.overwrite(new, partitions="dynamic")
    new.write.format("delta").mode("overwrite").option("partitionOverwriteMode", "dynamic").save(theirs)
    assert rows.exact(_delta(spark, mine)) == rows.exact(_delta(spark, theirs))


def test_a_merge_widens_and_adds_alike(spark: SparkSession, tmp_path: Path) -> None:
    mine, theirs = str(tmp_path / "mine"), str(tmp_path / "theirs")
    schema, properties = "id int, a smallint, b smallint, s struct<x: tinyint>", {"delta.enableTypeWidening": "true"}
    create_table(mine, schema, properties=properties)
    _run(spark, theirs, f"CREATE TABLE {{table}} ({schema}) USING delta TBLPROPERTIES ({_told(properties)})")
    for place in (mine, theirs):
        _run(spark, place, "INSERT INTO {table} VALUES (1, 1S, 1S, named_struct('x', 1Y)), (2, 2S, 2S, NULL)")
    source = spark.sql("SELECT 2 id, 70000 a, 5 b, named_struct('x', 300, 'y', 'new') s, 1.5D more")
    source.createOrReplaceTempView("wider")
    table = Table(mine)
    table.merge(source, "t.id = s.id", merge_schema=True).when_matched_update({"a": "s.a", "b": "s.b + t.b"}).execute()
    _run(
        spark,
        theirs,
        "MERGE WITH SCHEMA EVOLUTION INTO {table} t USING (SELECT id, a, b FROM wider) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET a = s.a, b = s.b + t.b",
    )
    assert table.read(spark=spark).schema.simpleString() == _delta(spark, theirs).schema.simpleString()
    table.merge(source, "t.id = s.id + 1", merge_schema=True).when_not_matched_insert_all().execute()
    _run(
        spark,
        theirs,
        "MERGE WITH SCHEMA EVOLUTION INTO {table} t USING wider s ON t.id = s.id + 1 WHEN NOT MATCHED THEN INSERT *",
    )
    assert table.read(spark=spark).schema.simpleString() == _delta(spark, theirs).schema.simpleString()
    assert rows.exact(_delta(spark, mine).orderBy("a")) == rows.exact(_delta(spark, theirs).orderBy("a"))
    assert rows.exact(table.read(spark=spark).orderBy("a")) == rows.exact(_delta(spark, theirs).orderBy("a"))


def test_deltalake_reads_what_we_changed(spark: SparkSession, place: str) -> None:
    """Without widening, which it does not know, and without vectors."""
    table = create_table(place, WIDE, partition_by=("city",), properties=FEED)
    table.append(rows.frame(spark, FIRST, WIDE)).table.append(rows.frame(spark, SECOND, WIDE))
    for ours, _ in STEPS:
        ours(table, spark)
    found = DeltaTable(place).to_pyarrow_table().sort_by("id").select(["id", "city", "amount"]).to_pylist()
    mine = table.read(spark=spark).select("id", "city", "amount").orderBy("id").collect()
    assert [tuple(row.values()) for row in found] == [tuple(row) for row in mine]


def _ours(spark: SparkSession, place: str, properties: dict[str, str], partition_by: tuple[str, ...]) -> Table:
    table = create_table(
        place, NARROW, partition_by=partition_by, properties={"delta.enableTypeWidening": "true", **properties}
    )
    table.append(rows.frame(spark, FIRST, NARROW).coalesce(1)).table.alter_column("id", type="bigint")
    return table.append(rows.frame(spark, SECOND, WIDE).coalesce(1)).table


def _theirs(spark: SparkSession, place: str, properties: dict[str, str], partition_by: tuple[str, ...]) -> None:
    split = f"PARTITIONED BY ({', '.join(partition_by)})" if partition_by else ""
    told = _told({"delta.enableTypeWidening": "true", **properties})
    _run(spark, place, f"CREATE TABLE {{table}} ({NARROW}) USING delta {split} TBLPROPERTIES ({told})")
    rows.frame(spark, FIRST, NARROW).coalesce(1).write.format("delta").mode("append").save(place)
    _run(spark, place, "ALTER TABLE {table} ALTER COLUMN id TYPE bigint")
    rows.frame(spark, SECOND, WIDE).coalesce(1).write.format("delta").mode("append").save(place)


def _told(properties: dict[str, str]) -> str:
    return ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())


def _run(spark: SparkSession, place: str, sql: str) -> None:
    rows.frame(spark, SOURCE, WIDE).createOrReplaceTempView("source")
    rows.frame(spark, MORE, WIDE).createOrReplaceTempView("more")
    spark.sql(sql.format(table=f"delta.`{place}`"))


def _delta(spark: SparkSession, place: str) -> DataFrame:
    return spark.read.format("delta").load(place)


def _row_ids(spark: SparkSession, place: str) -> dict[int, tuple[int, int]]:
    """The id of each row and the version that changed it last, as Delta Lake tells them."""
    found = _delta(spark, place).selectExpr("id", "_metadata.row_id", "_metadata.row_commit_version")
    return {row[0]: (row[1], row[2]) for row in found.collect()}


def _feed(spark: SparkSession, place: str) -> list[Any]:
    """The changes of the rows since the type changed, in no order of their own."""
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", "3").load(place)
    found = feed.drop("_commit_timestamp").collect()
    return sorted(repr(row) for row in found)
