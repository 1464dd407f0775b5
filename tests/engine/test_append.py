"""Appending: what fits, what is cast, what is refused; statistics; nothing half visible; two writers."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

import widen
from support.change import in_one_task
from support.exact import assert_same
from support.race import interrupt
from widen.errors import CorruptFile, EnabledWithoutFeature, FeatureRequired, JobFailed, NotNullViolated, SchemaMismatch
from widen.log.commit import commit
from widen.protocol.actions import Metadata
from widen.protocol.table_properties import ENABLE_TYPE_WIDENING
from widen.table import Table

ENABLED = {"delta.enableTypeWidening": "true"}


def statistics(table: Table) -> list[dict[str, Any]]:
    return [json.loads(text) for text in table.files()["stats"].to_pylist()]


def parquet_files(location: Path) -> list[Path]:
    return [path for path in location.rglob("*.parquet") if "_delta_log" not in path.parts]


# ---- what is written -------------------------------------------------------------------------------


def test_statistics_are_those_of_delta(spark: SparkSession, tmp_path: Path) -> None:
    columns = (
        "i int, d decimal(9,2), f float, g double, s string, day date, t timestamp, n timestamp_ntz, b boolean,"
        " x binary, st struct<a: int, b: struct<c: string>>, l array<int>, m map<string,int>, p string"
    )
    table = widen.create_table(
        str(tmp_path), columns, partition_by=["p"], properties={"delta.feature.timestampNtz": "supported"}
    )
    moment = datetime(2024, 5, 1, 12, 0, 0, 123456)
    instant = moment.replace(tzinfo=timezone.utc)
    inner = (7, ("z",))
    rows = [
        (
            1,
            Decimal("1.10"),
            1.5,
            -0.0,
            "b" * 40,
            moment.date(),
            instant,
            moment,
            True,
            b"x",
            inner,
            [1],
            {"k": 1},
            "p",
        ),
        (None, Decimal("-2.00"), 0.25, 0.0, "a", None, instant, moment, None, None, None, None, None, "p"),
    ]
    done = table.append(spark.createDataFrame(rows, columns).coalesce(1))
    assert (done.operation, done.version, done.table.version) == ("WRITE", 1, 1)
    assert (done.metrics["numFiles"], done.metrics["numOutputRows"]) == (1, 2)
    assert {key: str(value) for key, value in done.metrics.items()} == table.history(limit=1)[0].metrics
    (found,) = statistics(table)
    if spark.version.startswith("4.0."):  # there the session alone decides how times are written: as INT96, unbounded
        found["minValues"]["t"] = found["maxValues"]["t"] = "2024-05-01T12:00:00.123Z"
    assert [found] == [
        {
            "numRecords": 2,
            "minValues": {
                "i": 1,
                "d": -2.0,
                "f": 0.25,
                "g": 0.0,
                "s": "a",
                "day": "2024-05-01",
                "t": "2024-05-01T12:00:00.123Z",
                "n": "2024-05-01T12:00:00.123",
                "b": True,  # without it, deltalake's Arrow dataset leaves the file out; Delta Lake has none
                "st": {"a": 7, "b": {"c": "z"}},
            },
            "maxValues": {
                "i": 1,
                "d": 1.1,
                "f": 1.5,
                "g": 0.0,
                "s": "b" * 31 + "c",
                "day": "2024-05-01",
                "t": "2024-05-01T12:00:00.123Z",
                "n": "2024-05-01T12:00:00.123",
                "b": True,
                "st": {"a": 7, "b": {"c": "z"}},
            },
            "nullCount": {
                "i": 1,
                "d": 0,
                "f": 0,
                "g": 0,
                "s": 0,
                "day": 1,
                "t": 0,
                "n": 0,
                "b": 1,
                "x": 1,
                "st": {"a": 1, "b": {"c": 1}},
            },
        }
    ]
    assert '"d":-2.00' in table.files()["stats"][0].as_py()
    assert '"g":-0.0' in table.files()["stats"][0].as_py()


def test_texts_that_are_not_utf8_have_no_bounds(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "id int, s string")
    table.append(spark.sql("SELECT 1 AS id, 'a' AS s UNION ALL SELECT 2, cast(X'ff41' AS string)").coalesce(1))
    (stats,) = statistics(table)
    assert (stats["minValues"], stats["maxValues"], stats["nullCount"]) == ({"id": 1}, {"id": 2}, {"id": 0, "s": 0})
    matching = table.read(where="s > 'b'", spark=spark).selectExpr("id", "hex(s)").collect()
    assert [tuple(row) for row in matching] == [(2, "FF41")]


def test_footers_of_many_files_are_read_by_the_executors(spark: SparkSession, tmp_path: Path) -> None:
    from widen.limits import DRIVER_FOOTERS

    count = DRIVER_FOOTERS + 6
    table = widen.create_table(str(tmp_path), "i int, p int", partition_by=["p"])
    table.append(spark.range(count).select(F.col("id").cast("int").alias("i"), F.col("id").cast("int").alias("p")))
    found = sorted(
        (entry["numRecords"], entry["minValues"]["i"], entry["maxValues"]["i"]) for entry in statistics(table)
    )
    assert found == [(1, n, n) for n in range(count)]


def test_one_commit_with_its_provenance(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "i int, p int", partition_by=["p"])
    table.append(spark.createDataFrame([(1, 1), (2, 2), (3, 2)], "i int, p int").coalesce(1))
    version, _, info = table.history(1)[0]
    size = sum(path.stat().st_size for path in parquet_files(tmp_path))
    assert (version, info["operation"], info["isBlindAppend"], info["readVersion"]) == (1, "WRITE", True, 0)
    assert info["operationParameters"] == {"mode": "Append", "partitionBy": '["p"]'}
    assert info["operationMetrics"] == {"numFiles": "2", "numOutputRows": "3", "numOutputBytes": str(size)}
    assert {path.parents[1] for path in parquet_files(tmp_path)} != {tmp_path}


def test_deltalake_reads_what_is_appended(spark: SparkSession, tmp_path: Path) -> None:
    columns = (
        "id bigint, p string, s struct<x: int, l: array<decimal(10,2)>>, t timestamp, d date, m map<string,double>"
    )
    names, times = ["a b", "ü/%=", None] * 2, [datetime(2024, 1, 1, n, tzinfo=timezone.utc) for n in range(6)]
    amounts, day = [Decimal("1.10"), None], date(2024, 1, 1)
    rows = [(n, names[n], (n, amounts), times[n], day, {"k": 0.5}) for n in range(6)]
    table = widen.create_table(str(tmp_path), columns, partition_by=["p"])
    table.append(spark.createDataFrame(rows, columns))
    table.append(spark.createDataFrame(rows[:1], columns))
    found = deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table().sort_by("id").to_pylist()
    assert found == [
        {"id": n, "p": names[n], "s": {"x": n, "l": amounts}, "t": times[n], "d": day, "m": [("k", 0.5)]}
        for n in [0, *range(6)]
    ]


# ---- what fits -------------------------------------------------------------------------------------


def test_columns_are_matched_by_name_and_narrower_ones_are_cast(spark: SparkSession, tmp_path: Path) -> None:
    columns = "Id bigint, amount decimal(12,2), s struct<x: bigint, y: string>, l array<struct<z: double>>"
    table = widen.create_table(str(tmp_path), columns + ", m map<bigint,date>")
    frame = spark.createDataFrame(
        [([(1,)], {1: None}, ("why", 3), 5, 7)],
        "L array<struct<Z: int>>, m map<int,void>, S struct<Y: string, X: tinyint>, ID smallint, AMOUNT int",
    )
    table.append(frame)
    table.append(spark.createDataFrame([(1,)], "id int"))
    assert table.read(spark=spark).schema.simpleString() == (
        "struct<Id:bigint,amount:decimal(12,2),s:struct<x:bigint,y:string>,l:array<struct<z:double>>,m:map<bigint,date>>"
    )
    expected = [
        Row(Id=5, amount=Decimal("7.00"), s=Row(x=3, y="why"), l=[Row(z=1.0)], m={1: None}),
        Row(Id=1, amount=None, s=None, l=None, m=None),
    ]
    assert_same(table.read(spark=spark).collect(), expected)


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        ("a bigint", "a is int in the table and bigint in the data"),
        ("a string", "a is int in the table and string in the data"),
        ("b int", "b (int) is not in the table"),
        ("s struct<x: bigint>", "s.x is int in the table and bigint in the data"),
        ("s struct<z: int>", "s.z (int) is not in the table"),
        ("l array<bigint>", "l.element is int in the table and bigint in the data"),
        ("l map<int,int>", "l is array<int> in the table and map<int,int> in the data"),
        ("m map<string,int>", "m.key is int in the table and string in the data"),
        ("a int, A int", "A is a duplicate of a"),
        ("a bigint, b int", "a is int in the table and bigint in the data; b (int) is not in the table"),
    ],
)
def test_what_does_not_fit_is_named(spark: SparkSession, tmp_path: Path, columns: str, told: str) -> None:
    table = widen.create_table(
        str(tmp_path), "a int, s struct<x: int>, l array<int>, m map<int,int>", properties=ENABLED
    )
    with pytest.raises(SchemaMismatch) as caught:
        table.append(spark.createDataFrame([], columns))
    assert set(caught.value.fields["reason"].split("; ")) == set(told.split("; "))  # type: ignore[union-attr, attr-defined]
    assert (table.version, parquet_files(tmp_path)) == (0, [])


@pytest.mark.parametrize("mapping", ["none", "name", "id"])
def test_merging_adds_columns_and_widens(spark: SparkSession, tmp_path: Path, mapping: str) -> None:
    properties = {**ENABLED, "delta.columnMapping.mode": mapping}
    table = widen.create_table(
        str(tmp_path), "a int, s struct<x: float>, l array<struct<y: int>>", properties=properties
    )
    old = spark.createDataFrame([(1, (0.5,), [(2,)])], "a int, s struct<x: float>, l array<struct<y: int>>")
    table.append(old)
    wide = "l array<struct<y: bigint, n: date>>, s struct<x: double, z: string>, a decimal(12,2), new map<string,int>"
    rows = [([(2**40, date(2024, 1, 1))], (0.1, "z"), Decimal("1.25"), {"k": 1})]
    table.append(spark.createDataFrame(rows, wide), merge_schema=True)
    assert table.version == 2
    assert table.schema.sql == (
        "struct<a: decimal(12,2), s: struct<x: double, z: string>, l: array<struct<y: bigint, n: date>>,"
        " new: map<string,int>>"
    )
    assert [(".".join(path), str(c.old), str(c.new)) for path, c in table.type_changes] == [
        ("a", "integer", "decimal(12,2)"),
        ("s.x", "float", "double"),
        ("l.element.y", "integer", "long"),
    ]
    table.append(old)
    expected = [
        Row(a=Decimal("1.00"), s=Row(x=0.5, z=None), l=[Row(y=2, n=None)], new=None),
        Row(a=Decimal("1.25"), s=Row(x=0.1, z="z"), l=[Row(y=2**40, n=date(2024, 1, 1))], new={"k": 1}),
        Row(a=Decimal("1.00"), s=Row(x=0.5, z=None), l=[Row(y=2, n=None)], new=None),
    ]
    assert_same(table.read(spark=spark).collect(), expected)


def test_merging_widens_nothing_where_widening_is_not_enabled(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a int")
    with pytest.raises(SchemaMismatch, match="a is int in the table and bigint in the data"):
        table.append(spark.createDataFrame([(1,)], "a bigint"), merge_schema=True)
    with pytest.raises(FeatureRequired, match="timestampNtz"):
        table.append(spark.createDataFrame([], "n timestamp_ntz"), merge_schema=True)
    assert table.version == 0


def test_enabled_without_the_feature_is_an_illegal_state(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a int")
    broken = Metadata(
        id=table.metadata.id,
        schema_string=table.metadata.schema_string,
        partition_columns=(),
        configuration={ENABLE_TYPE_WIDENING: "true"},
    )
    commit(table.store, table.snapshot, [broken], "SET TBLPROPERTIES", {}).or_raise()
    for merge_schema in (False, True):
        with pytest.raises(EnabledWithoutFeature):
            table.append(spark.createDataFrame([(1,)], "a int"), merge_schema=merge_schema)
    with pytest.raises(EnabledWithoutFeature):
        table.alter_column("a", type="bigint")
    assert Table(str(tmp_path)).read(spark=spark).count() == 0


# ---- what fails leaves nothing ---------------------------------------------------------------------

STRICT = (
    "a int not null, s struct<x: int not null>, l array<struct<y: int not null>>,"
    " m map<string, struct<z: int not null>>"
)


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ((None, (1,), [(1,)], {"k": (1,)}), "a"),
        ((1, (None,), [(1,)], {"k": (1,)}), "s.x"),
        ((1, (1,), [(1,), (None,)], {"k": (1,)}), "l.element.y"),
        ((1, (1,), [(1,)], {"k": (None,)}), "m.value.z"),
    ],
)
def test_a_null_against_the_schema_fails_the_whole_append(
    spark: SparkSession, tmp_path: Path, row: tuple[Any, ...], column: str
) -> None:
    table = widen.create_table(str(tmp_path), STRICT)
    good = [(1, (1,), [(1,), None], {"k": None}), (2, (5,), None, None)]
    table.append(spark.createDataFrame(good, STRICT.replace(" not null", "")))
    with pytest.raises(NotNullViolated, match=f"Column {column} is NOT NULL, but a row has null in it"):
        table.append(in_one_task(spark, [*good, row], STRICT.replace(" not null", "")))
    assert (Table(str(tmp_path)).version, table.read(spark=spark).count()) == (1, 2)
    assert len(parquet_files(tmp_path)) == table.files().num_rows


def test_a_missing_column_that_must_not_be_null(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), STRICT)
    with pytest.raises(SchemaMismatch, match="a must not be null and is not in the data"):
        table.append(spark.createDataFrame([([],)], "l array<struct<y: int>>"))


def test_a_failing_job_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a int")
    frame = spark.range(0, 1000, numPartitions=1)
    broken = frame.select(F.when(F.col("id") == 999, F.raise_error("broken")).otherwise(1).cast("int").alias("a"))
    with pytest.raises(JobFailed, match="broken"):
        table.append(broken)
    assert (Table(str(tmp_path)).version, parquet_files(tmp_path)) == (0, [])


def test_an_unreadable_file_is_named(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "source" / "half.parquet"
    source.parent.mkdir()
    source.write_bytes(b"PAR1 this is cut off")
    table = widen.create_table(str(tmp_path / "table"), "a int")
    with pytest.raises(CorruptFile, match=r"half\.parquet"):
        table.append(spark.read.schema("a int").parquet(str(source.parent)))
    assert Table(table.location).version == 0


def test_an_empty_append_is_a_commit_without_files(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a int")
    table.append(spark.createDataFrame([], "a int"))
    assert (table.version, table.files().num_rows, parquet_files(tmp_path)) == (1, 0, [])


# ---- two writers -----------------------------------------------------------------------------------


def test_two_appends_both_land(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = widen.create_table(str(tmp_path), "a int")
    interrupt(monkeypatch, lambda: Table(str(tmp_path)).append(spark.createDataFrame([(2,)], "a int")))
    table.append(spark.createDataFrame([(1,)], "a int"))
    assert table.version == 2
    assert_same(Table(str(tmp_path)).read(spark=spark).collect(), [Row(a=1), Row(a=2)])
