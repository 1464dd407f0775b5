"""Delta Lake on Spark beside us where writes let tables grow: automatic widening, rules, Iceberg, races."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession

from support.exact import assert_same
from support.race import interrupt
from support.type_change import CASES
from widen.errors import CheckViolated, IcebergIncompatible, IdentityColumnGiven, SchemaMismatch
from widen.model.column_path import fields
from widen.spark.session import AUTO_MERGE, AUTOMATIC_WIDENING
from widen.table import Table, create_table

WIDENING = {"delta.enableTypeWidening": "true", "delta.feature.timestampNtz": "supported"}
DEPTHS = ("{}", "struct<x: {}>", "array<{}>", "map<{}, int>", "map<int, {}>")


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "table")


def columns(side: str) -> str:
    """One column for every pair of the matrix and every depth."""
    found = [(f"{case.name}_{at}", d.format(getattr(case, side))) for case in CASES for at, d in enumerate(DEPTHS)]
    return ", ".join(f"{name} {kind}" for name, kind in found)


def row(side: str) -> tuple[Any, ...]:
    values = [getattr(case, side)[0] for case in CASES]
    return tuple(found for v in values for found in (v, (v,), [v, None], {v: 1}, {1: v}))


def data(spark: SparkSession, schema: str, *rows: Any) -> DataFrame:
    return spark.createDataFrame([each if isinstance(each, tuple) else (each,) for each in rows], schema)


def sql(spark: SparkSession, place: str, text: str) -> None:
    spark.sql(text.format(t=f"delta.`{place}`"))


def theirs(spark: SparkSession, place: str, columns: str, properties: dict[str, str], more: str = "") -> None:
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    sql(spark, place, f"CREATE TABLE {{t}} ({columns}) USING delta {more} TBLPROPERTIES ({listed})")


def they_append(frame: DataFrame, place: str, *, merges: bool = False) -> None:
    frame.coalesce(1).write.format("delta").mode("append").option("mergeSchema", str(merges)).save(place)


def they_read(spark: SparkSession, place: str) -> DataFrame:
    return spark.read.format("delta").load(place)


def plain(rows: list[Any]) -> list[Any]:
    return [tuple(tuple(value) if isinstance(value, tuple) else value for value in each) for each in rows]


def recorded(place: str) -> dict[str, Any]:
    """The history of every field that has one, as the log has it, whatever the order of its keys."""
    found = {".".join(path): field.metadata for path, field in fields(Table(place).snapshot.schema)}
    return {at: metadata["delta.typeChanges"] for at, metadata in found.items() if "delta.typeChanges" in metadata}


# ---- automatic widening ----------------------------------------------------------------------------


@pytest.mark.parametrize("mapping", ["none", "id"])
@pytest.mark.parametrize("we_begin", [True, False])
def test_what_one_widens_by_itself_the_other_reads_records_alike_and_goes_on(
    spark: SparkSession, tmp_path: Path, mapping: str, we_begin: bool
) -> None:
    """Every pair of the matrix at every depth."""
    place, other = str(tmp_path / "one"), str(tmp_path / "other")
    properties = {**WIDENING, "delta.columnMapping.mode": mapping}
    narrow, wide = data(spark, columns("old"), row("before")), data(spark, columns("new"), row("after"))
    create_table(place, columns("old"), properties=properties).append(narrow)
    theirs(spark, other, columns("old").replace(":", ": "), properties)
    they_append(narrow, other)
    if we_begin:
        Table(place).append(wide, merge_schema=True)
        they_append(wide, other, merges=True)
        assert recorded(place) == recorded(other)
        they_append(wide, place)
    else:
        they_append(wide, place, merges=True)
        Table(place).append(wide)
    expected = [row("widened"), row("after"), row("after")]
    assert_same(plain(Table(place).read(spark=spark).collect()), expected)
    assert_same(plain(they_read(spark, place).collect()), expected)


def test_both_widen_the_same_table_in_turns(spark: SparkSession, place: str) -> None:
    table = create_table(place, "id int, a tinyint, s struct<x: float>", properties=WIDENING)
    table.append(data(spark, "id int, a smallint", (1, 300)), merge_schema=True)
    they_append(data(spark, "id int, a int, s struct<x: double>", (2, 70_000, (0.1,))), place, merges=True)
    table.append(data(spark, "id int, a bigint, n array<int>", (3, 2**40, [1])), merge_schema=True)
    widest = data(spark, "id int, a decimal(20,0), n array<bigint>", (4, Decimal(10**18), [2**40]))
    they_append(widest, place, merges=True)
    sql(spark, place, "ALTER TABLE {t} ALTER COLUMN id TYPE bigint")
    table.append(data(spark, "id int, a tinyint", (5, 7)), merge_schema=True)
    pairs = [(c["fromType"], c["toType"]) for c in recorded(place)["a"]]
    assert pairs == [("byte", "short"), ("short", "integer"), ("integer", "long"), ("long", "decimal(20,0)")]
    for found in (they_read(spark, place), table.read(spark=spark)):
        assert found.schema.simpleString() == "struct<id:bigint,a:decimal(20,0),s:struct<x:double>,n:array<bigint>>"
        rows = found.orderBy("id").collect()
        assert [int(each.a) for each in rows] == [300, 70_000, 2**40, 10**18, 7]
        assert [each.n for each in rows] == [None, None, [1], [2**40], None]
        assert [each.s and each.s.x for each in rows] == [None, 0.1, None, None, None]


def test_the_preview_says_versions_alike(spark: SparkSession, tmp_path: Path) -> None:
    properties = {"delta.feature.typeWidening-preview": "supported", "delta.enableTypeWidening": "true"}
    mine, other = str(tmp_path / "mine"), str(tmp_path / "other")
    wide = data(spark, "a int, l array<int>", (70_000, [1]))
    create_table(mine, "a smallint, l array<smallint>", properties=properties).append(wide, merge_schema=True)
    theirs(spark, other, "a smallint, l array<smallint>", properties)
    they_append(wide, other, merges=True)
    assert recorded(mine) == recorded(other)
    assert recorded(mine)["a"] == [{"fromType": "short", "toType": "integer", "tableVersion": 1}]
    both = {frozenset(Table(at).protocol.writer_features or ()) for at in (mine, other)}
    assert both == {frozenset({"typeWidening-preview", "appendOnly", "invariants"})}


def test_a_property_in_another_case_is_the_same_to_both(spark: SparkSession, tmp_path: Path) -> None:
    mine, other = str(tmp_path / "mine"), str(tmp_path / "other")
    create_table(mine, "a int").set_properties({"Delta.enableTypeWidening": "true"})
    theirs(spark, other, "a int", {"note": "x"})
    sql(spark, other, "ALTER TABLE {t} SET TBLPROPERTIES ('Delta.enableTypeWidening' = 'true')")
    for at in (mine, other):
        assert Table(at).properties["delta.enableTypeWidening"] == "true"
        assert set(Table(at).protocol.writer_features or ()) == {"typeWidening", "appendOnly", "invariants"}
        sql(spark, at, "ALTER TABLE {t} ALTER COLUMN a TYPE bigint")


@pytest.mark.parametrize("widening", ["always", "same_family", "never"])
def test_the_modes_mean_the_same(spark: SparkSession, tmp_path: Path, widening: str) -> None:
    mine, other = str(tmp_path / "mine"), str(tmp_path / "other")
    narrow, wide = "a int, b int, c date", "a bigint, b double, c timestamp_ntz"
    rows = data(spark, wide, (7, 2.0, None))
    create_table(mine, narrow, properties=WIDENING)
    theirs(spark, other, narrow, WIDENING)
    rows.createOrReplaceTempView("wide_rows")
    settings = {AUTOMATIC_WIDENING: {"same_family": "same_family_type"}.get(widening, widening), AUTO_MERGE: "true"}
    for key, value in settings.items():
        spark.conf.set(key, value)
    try:
        Table(mine).append(rows, cast=True)
        sql(spark, other, "INSERT INTO {t} SELECT * FROM wide_rows")
    finally:
        for key in settings:
            spark.conf.unset(key)
    assert Table(mine).schema.sql == Table(other).schema.sql
    assert_same(Table(mine).read(spark=spark).collect(), they_read(spark, other).collect())


# ---- rules -----------------------------------------------------------------------------------------

RULED = (
    "id bigint GENERATED ALWAYS AS IDENTITY, a int NOT NULL, day date GENERATED ALWAYS AS (CAST(at AS DATE)), "
    "at timestamp, note varchar(3) DEFAULT 'x', s struct<x: int>"
)


def test_rules_that_they_made_bind_our_appends(spark: SparkSession, place: str) -> None:
    theirs(spark, place, RULED, {**WIDENING, "delta.feature.allowColumnDefaults": "supported"}, "PARTITIONED BY (day)")
    sql(spark, place, "ALTER TABLE {t} ADD CONSTRAINT small CHECK (a < 100 AND s.x IS NOT NULL)")
    sql(spark, place, "INSERT INTO {t} (a, at, s) VALUES (1, '2024-02-29 12:00:00', named_struct('x', 1))")
    table = Table(place)
    good = data(spark, "a int, at string, s struct<x: int>", (2, "2024-03-01 12:00:00", (2,)))
    table.append(good.withColumn("at", good["at"].cast("timestamp")))
    with pytest.raises(CheckViolated, match="small"):
        table.append(data(spark, "a int, s struct<x: int>", (100, (1,))))
    with pytest.raises(IdentityColumnGiven):
        table.append(data(spark, "id bigint, a int, s struct<x: int>", (7, 1, (1,))))
    sql(spark, place, "INSERT INTO {t} (a, at, s) VALUES (3, '2024-03-02 12:00:00', named_struct('x', 3))")
    found = they_read(spark, place).orderBy("a").collect()
    assert [(each.a, str(each.day), each.note) for each in found] == [
        (1, "2024-02-29", "x"),
        (2, "2024-03-01", "x"),
        (3, "2024-03-02", "x"),
    ]
    assert len({each.id for each in found}) == 3
    assert_same(table.refresh().read(spark=spark).collect(), found)


def test_merges_of_both_number_the_rows_of_an_identity_column(spark: SparkSession, place: str) -> None:
    columns = "n bigint GENERATED ALWAYS AS IDENTITY (START WITH 7 INCREMENT BY 5), id int, p string"
    theirs(spark, place, columns, WIDENING, "PARTITIONED BY (p)")
    for turn in range(4):
        rows = spark.range(5 * turn, 5 * turn + 8).selectExpr("int(id) id", f"'{turn}' p")
        if turn % 2:
            rows.createOrReplaceTempView("s")
            matched = "WHEN MATCHED THEN UPDATE SET p = s.p WHEN NOT MATCHED THEN INSERT (id, p) VALUES (s.id, s.p)"
            sql(spark, place, f"MERGE INTO {{t}} t USING s ON t.id = s.id {matched}")
        else:
            merge = Table(place).merge(rows, "t.id = s.id").when_matched_update({"p": "s.p"})
            merge.when_not_matched_insert_all().execute()
        found = they_read(spark, place).collect()
        assert len({row.n for row in found}) == len(found) == 5 * turn + 8
        assert {(row.n - 7) % 5 for row in found} == {0}
    assert_same(Table(place).read(spark=spark).collect(), found)


def test_rules_that_we_keep_bind_their_appends(spark: SparkSession, place: str) -> None:
    table = create_table(place, "a tinyint, b tinyint", properties={**WIDENING, "delta.constraints.ck": "hash(a) <> 0"})
    with pytest.raises(SchemaMismatch, match="DELTA_CONSTRAINT_DATA_TYPE_MISMATCH"):
        table.append(data(spark, "a int", 70_000), merge_schema=True)
    with pytest.raises((PySparkException, Py4JJavaError), match="DELTA_CONSTRAINT_DATA_TYPE_MISMATCH"):
        they_append(data(spark, "a int, b tinyint", (70_000, 1)), place, merges=True)
    table.append(data(spark, "a tinyint, b int", (1, 70_000)), merge_schema=True)
    they_append(data(spark, "a tinyint, b int", (2, 80_000)), place)
    assert_same(they_read(spark, place).collect(), [Row(a=1, b=70_000), Row(a=2, b=80_000)])


# ---- Iceberg compatibility -------------------------------------------------------------------------

NESTED = "id int, l array<array<int>>, m map<string, struct<x: array<date>>>, p string, t timestamp"
"""Elements, keys and values at several depths, a partition column, and a time."""


def nested_rows(spark: SparkSession, first: int) -> DataFrame:
    full = (first, [[1], None], {"k": (["2024-02-29"],)}, "a b", "2024-02-29 12:00:00")
    text = [full, (first + 1, None, None, None, None)]
    given = NESTED.replace("date", "string").replace("timestamp", "string")
    return spark.createDataFrame(text, given).selectExpr(
        "id", "l", "transform_values(m, (k, v) -> named_struct('x', cast(v.x as array<date>))) as m", "p",
        "cast(t as timestamp) as t",
    )  # fmt: skip


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("we_begin", [True, False])
def test_tables_for_iceberg_are_shared(spark: SparkSession, place: str, version: int, we_begin: bool) -> None:
    properties = {**WIDENING, f"delta.enableIcebergCompatV{version}": "true"}
    shown = NESTED if version == 2 else "id int, p string, t timestamp"
    names = [part.split()[0] for part in shown.split(", ") if part.split()[0] in ("id", "l", "m", "p", "t")]
    if we_begin:
        create_table(place, shown, partition_by=["p"], properties=properties)
    else:
        theirs(spark, place, shown, properties, "PARTITIONED BY (p)")
    frames = [nested_rows(spark, first).select(*names) for first in (1, 3, 5)]
    table = Table(place).append(frames[0]).table
    they_append(frames[1], place)
    sql(spark, place, "ALTER TABLE {t} ALTER COLUMN id TYPE bigint")
    table.append(frames[2])
    with pytest.raises((PySparkException, Py4JJavaError), match="DELTA_ICEBERG_COMPAT_VIOLATION"):
        sql(spark, place, "ALTER TABLE {t} ALTER COLUMN id TYPE decimal(20,0)")
    they, ours = they_read(spark, place), table.refresh().read(spark=spark)
    assert they.count() == 6
    assert_same(ours.collect(), they.collect())
    assert_same(ours.where("p = 'a b'").collect(), they.where("p = 'a b'").collect())


def test_both_refuse_compatibility_after_a_change_that_iceberg_does_not_know(spark: SparkSession, place: str) -> None:
    table = create_table(place, "a int", properties={**WIDENING, "delta.columnMapping.mode": "name"})
    table.append(data(spark, "a double", 0.5), merge_schema=True)
    with pytest.raises(IcebergIncompatible, match="UNSUPPORTED_TYPE_WIDENING"):
        table.set_properties({"delta.enableIcebergCompatV2": "true"})
    with pytest.raises((PySparkException, Py4JJavaError), match="UNSUPPORTED_TYPE_WIDENING"):
        sql(spark, place, "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableIcebergCompatV2' = 'true')")


# ---- races -----------------------------------------------------------------------------------------


def test_our_append_is_made_again_after_their_change_of_type(
    spark: SparkSession, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = create_table(place, "a int", properties=WIDENING)
    they_widen = data(spark, "a bigint", 2**40)
    interrupt(monkeypatch, lambda: they_append(they_widen, place, merges=True))
    table.append(data(spark, "a bigint, b int", (1, 2)), merge_schema=True)
    assert_same(they_read(spark, place).collect(), [Row(a=2**40, b=None), Row(a=1, b=2)])
    assert len(recorded(place)["a"]) == 1
    off = "ALTER TABLE {t} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'false')"
    interrupt(monkeypatch, lambda: sql(spark, place, off))
    with pytest.raises(SchemaMismatch, match=r"a is bigint in the table and decimal\(20,0\) in the data"):
        table.append(data(spark, "a decimal(20,0)", Decimal(1)), merge_schema=True)
    assert json.loads(table.refresh().metadata.schema_string)["fields"][0]["type"] == "long"
