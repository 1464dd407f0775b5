"""Sources that say their types: the same rules on the schema, and conversions in tasks. Every table is proved."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from functools import reduce
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

import fastavro
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyarrow import orc
from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import widen
from support.exact import assert_same
from widen import IngestResult, ingest, plan
from widen.batches import column_copy, frame_batch, int96_times, open_source, parquet_batch
from widen.batches.column_copy import ColumnCopy
from widen.batches.column_values import JudgedRows, RowConversion
from widen.batches.open_source import BatchReader
from widen.errors import CorruptFile, EvolutionRefused, InvalidOption, JobFailed, SourceError
from widen.evolution.policy import Policy
from widen.files import conversions
from widen.files.arrow_types import to_arrow
from widen.frames.table_writers import DeltaRows
from widen.model.types import DATE, INTEGER, STRING, TIMESTAMP, DataType, Field, StructType
from widen.sources.find_files import find_source
from widen.spark.engine import require_spark
from widen.table import Table
from widen.verification import records as verification
from widen.verification.records import verify


def proved(source: DataFrame | str, table: Path, **words: Any) -> IngestResult:
    done = ingest(source, str(table), verify=True, **words)
    assert done.verification is not None
    assert done.verification.is_clean, done.verification
    return done


def types(table: Path) -> dict[str, str]:
    return {field.name: field.type.sql for field in Table(str(table)).schema}


def rows(spark: SparkSession, table: Path) -> list[dict[str, Any]]:
    """The rows without what is null in them, by ``n``."""
    found = [row.asDict(recursive=True) for row in Table(str(table)).read(spark=spark).collect()]
    found.sort(key=lambda row: (row["n"] is not None, row["n"]))
    return [{name: value for name, value in row.items() if value is not None} for row in found]


def frame(spark: SparkSession, *selects: str) -> DataFrame:
    """A row for each select list; the types of the first count."""
    return reduce(DataFrame.unionAll, (spark.sql(f"SELECT {select}") for select in selects))


SCALARS = """
    true AS bo, 1Y AS by, 2S AS sh, 3 AS i, 9007199254740993L AS l, 0.1f AS fl, double('-0.0') AS d,
    12345678901234567890.12BD AS de, date'2024-05-01' AS da, timestamp'2024-05-01 12:00:00.123456Z' AS t,
    timestamp_ntz'2024-05-01 12:00:00.000001' AS tn, 'x' AS s, X'00ff' AS b
"""


def test_every_type_at_every_depth(spark: SparkSession, tmp_path: Path) -> None:
    source = spark.sql(f"SELECT 1 AS n, struct({SCALARS}) AS r").selectExpr(
        "n", "r.*", "r", "array(r, null) AS a", "map('k', r, 'none', null) AS m", "array(array(r.l), null) AS aa",
        "array(map(7, array(r.t))) AS am", "parse_json('{\"v\": [1, null]}') AS v", "null AS nothing",
    )  # fmt: skip
    done = proved(source, tmp_path / "table")
    record = (
        "struct<b: binary, bo: boolean, by: int, d: double, da: date, de: decimal(22,2), fl: double, i: int, l: bigint,"
        " s: string, sh: int, t: timestamp, tn: timestamp_ntz>"
    )
    found = types(tmp_path / "table")
    assert found["r"] == record
    assert (found["a"], found["m"]) == (f"array<{record}>", f"map<string,{record}>")
    assert found["aa"] == "array<array<bigint>>"
    assert (found["am"], found["v"]) == ("array<map<string,array<timestamp>>>", "string")
    assert "nothing" not in found
    assert [pending.source for pending in done.plan.pending] == [("nothing",)]
    assert {event.source: event.count for event in done.plan.events}[("aa",)] == 1
    [row] = rows(spark, tmp_path / "table")
    assert (row["l"], row["fl"], row["de"], row["v"]) == (
        9007199254740993,
        0.10000000149011612,
        Decimal("12345678901234567890.12"),
        '{"v":[1,null]}',
    )
    assert proved(source, tmp_path / "table").plan.is_empty


def test_columns_of_other_types_take_what_they_hold(spark: SparkSession, tmp_path: Path) -> None:
    """Narrower kinds need no column; what a declared column does not hold exactly gets one beside it."""
    table = tmp_path / "table"
    columns = "n int, a string, b double, c decimal(12,2), d timestamp, e array<bigint>, f string, g array<string>"
    widen.create_table(str(table), columns)
    source = frame(
        spark,
        "1 AS n, 4L AS a, 7L AS b, 5 AS c, 1700000000L AS d, 8 AS e, timestamp'2024-05-01 12:00:00.5Z' AS f, true AS g",
        "2, null, 9007199254740993, null, null, null, null, null",
    )
    proved(source, table, evolve="split")
    assert set(types(table)) == {"n", "a", "b", "b_long", "c", "d", "d_long", "e", "f", "g"}
    first, second = rows(spark, table)
    assert (first["a"], first["b"], first["b_long"], first["c"]) == ("4", 7.0, 7, Decimal("5.00"))
    assert (first["d"].timestamp(), first["d_long"]) == (1700000000, 1700000000)
    assert (first["e"], first["f"], first["g"]) == ([8], "2024-05-01T12:00:00.5Z", ["true"])
    assert second == {"n": 2, "b_long": 9007199254740993}


def test_values_are_looked_at_where_types_leave_it_open(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    widen.create_table(str(table), "n int, a double, b bigint")
    source = frame(spark, "1 AS n, 9007199254740992L AS a, timestamp'2024-05-01 12:00:00.123Z' AS b")
    assert proved(source, table, evolve="split").plan.is_empty
    assert rows(spark, table)[0]["b"] == 1714564800123
    other = frame(spark, "2 AS n, 1L AS a, timestamp'2024-05-01 12:00:00.123456Z' AS b")
    proved(other, table, evolve="split")
    assert set(types(table)) == {"n", "a", "b", "b_timestamp"}
    text_of_a_double = frame(spark, "3 AS n, 1234567890123456800L AS a")
    assert proved(text_of_a_double, table, evolve="split").plan.is_empty


def test_true_and_1_stay_apart_in_mode_widen(spark: SparkSession, tmp_path: Path) -> None:
    proved(frame(spark, "1 AS n, 7L AS a, 7.5BD AS b, array(1) AS c"), tmp_path)
    proved(frame(spark, "2 AS n, true AS a, false AS b, array(true, null) AS c"), tmp_path)
    assert rows(spark, tmp_path)[1] == {
        "n": 2,
        "a_boolean": True,
        "b_boolean": False,
        "c_array_boolean": [True, None],
    }


def test_a_boolean_becomes_a_number_in_mode_split(spark: SparkSession, tmp_path: Path) -> None:
    proved(frame(spark, "1 AS n, 7L AS a"), tmp_path, evolve="split")
    proved(frame(spark, "2 AS n, true AS a"), tmp_path, evolve="split")
    assert rows(spark, tmp_path)[1] == {"n": 2, "a": 1}


def test_columns_are_widened_in_place(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    proved(frame(spark, "1 AS n, 1 AS a, date'2024-05-01' AS b, 1.5BD AS c, map('k', 1) AS d, array(1) AS e"), table)
    Table(str(table)).add_feature("timestampNtz")
    later = "2 AS n, 2147483648L AS a, timestamp_ntz'2024-05-01 12:00:00' AS b, 12.25BD AS c, map('k', 2L) AS d"
    done = proved(frame(spark, f"{later}, array(2.5D) AS e"), table)
    assert types(table) == {
        "n": "int", "a": "bigint", "b": "timestamp_ntz", "c": "decimal(4,2)", "d": "map<string,bigint>",
        "e": "array<double>",
    }  # fmt: skip
    assert {event.grade.value for event in done.plan.events} == {"widening"}
    assert rows(spark, table)[1]["d"] == {"k": 2}


def test_shapes_drift_as_in_texts(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    first = "1 AS n, 'x' AS a, array(struct(1 AS x)) AS b, map('k', 1) AS c, X'01' AS d"
    proved(frame(spark, first), table, evolve="split")
    proved(frame(spark, "2 AS n, array('y') AS a, struct(2 AS x, 'z' AS y) AS b, map('k', 'v') AS c, 1 AS d"), table)
    found = types(table)
    assert found["a_array_string"] == "array<string>"
    assert found["b"] == "array<struct<x: bigint, y: string>>"
    assert {found[name] for name in found if name.startswith("c_map")} == {"map<string,string>"}
    assert found["d_int"] == "int"
    assert rows(spark, table)[1]["b"] == [{"x": 2, "y": "z"}]


def test_what_no_column_may_be_made_for_is_kept_as_json(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    proved(frame(spark, "1 AS n, 1 AS a, struct(1 AS x) AS r"), table)
    drifted = "'x' AS a, struct(2 AS x, timestamp'2024-05-01 12:00:00.000001Z' AS y) AS r, array(1.5D, null) AS new"
    plain = "3, null, named_struct('x', 3, 'y', cast(null AS timestamp)), null"
    proved(frame(spark, f"2 AS n, {drifted}", plain), table, evolve="freeze")
    assert types(table) == {"n": "int", "a": "int", "r": "struct<x: int>", "_rescued": "string"}
    assert [row.get("_rescued") for row in rows(spark, table)] == [
        None,
        '{"a":"x","r":{"y":"2024-05-01T12:00:00.000001Z"},"new":[1.5,null]}',
        None,
    ]
    with pytest.raises(EvolutionRefused, match="new"):
        ingest(frame(spark, f"4 AS n, {drifted}"), str(table), evolve="fail")


def test_empty_arrays_and_maps_without_a_place_are_kept_as_json(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    proved(frame(spark, "1 AS n, 1 AS a, array(1) AS l"), table)
    new = "cast(array() AS array<int>) AS new, cast(null AS array<int>) AS missing"
    empty = f"array(array(1)) AS l, cast(map() AS map<string, int>) AS m, {new}"
    proved(frame(spark, f"2 AS n, cast(array() AS array<int>) AS a, {empty}"), table, evolve="freeze")
    assert json.loads(rows(spark, table)[1]["_rescued"]) == {"a": [], "new": [], "l": [[1]], "m": {}}


def test_a_frozen_table_keeps_what_is_empty_in_json(spark: SparkSession, tmp_path: Path) -> None:
    table, source = tmp_path / "table", tmp_path / "source.json"
    texts = ['{"a":null,"b":[],"c":{},"d":1}', '{"d":[null,[],{}],"e":{"f":null,"g":[{}]}}', '{"a":null}']
    source.write_text("\n".join(texts))
    for expected in (texts, [*texts, *texts]):
        result = ingest(str(source), str(table), evolve="freeze", verify=True, spark=spark)
        assert result.verification is not None
        assert (result.verification.lost, result.verification.extra) == (0, 0)
        found = Table(str(table)).read(spark=spark).collect()
        assert sorted(row["_rescued"] for row in found) == sorted(expected)


def test_what_is_said_of_single_fields_holds(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    source = frame(spark, "1 AS n, 5 AS secret, struct(1 AS x, 'y' AS y) AS r, struct(1 AS x) AS j, 7L AS d")
    words = {"mask": ["secret", "r.y"], "exclude": ["r.x"], "pins": {"j": "json", "d": "decimal(18,4)"}}
    proved(source, table, **words)
    assert rows(spark, table) == [{"n": 1, "secret": "***", "r": {"y": "***"}, "j": '{"x":1}', "d": Decimal("7.0000")}]


def test_names_that_differ_only_in_case_are_fields_of_their_own(spark: SparkSession, tmp_path: Path) -> None:
    """Also inside records, whose fields Spark does not tell apart then."""
    table = tmp_path / "table"
    ddl = "n int, id int, ID int, r struct<a: int, A: string, x: string>, l array<struct<b: int, B: int>>"
    source = spark.createDataFrame([(1, 2, 3, (4, "x", "y"), [(5, 6)])], ddl)
    proved(source, table, mask=["r.A"], exclude=["r.x"], pins={"l": "json"})
    [row] = rows(spark, table)
    assert row == {"n": 1, "id": 2, "ID_2": 3, "r": {"a": "***", "A_2": "***"}, "l": '[{"b":5,"B":6}]'}
    frozen = tmp_path / "frozen"
    proved(frame(spark, "1 AS n"), frozen)
    proved(source.where("n = 1").drop("n"), frozen, evolve="freeze")
    rescued = '{"id":2,"ID":3,"r":{"a":4,"A":"x","x":"y"},"l":[{"b":5,"B":6}]}'
    assert [row._rescued for row in Table(str(frozen)).read(spark=spark).where("n IS NULL").collect()] == [rescued]


def test_keys_of_maps_are_the_same_texts_in_json(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    maps = (
        "map(timestamp'2024-05-01 12:00:00.5Z', 1) AS a, map(date'2024-05-01', 1) AS b, map(double('NaN'), 1) AS c,"
        " map(timestamp_ntz'2024-05-01 12:00:00', map(1.50BD, true)) AS d"
    )
    proved(frame(spark, "1 AS n"), table)
    proved(frame(spark, f"2 AS n, {maps}"), table, evolve="freeze")
    assert rows(spark, table)[1]["_rescued"] == (
        '{"a":{"2024-05-01T12:00:00.5Z":1},"b":{"2024-05-01":1},"c":{"NaN":1},"d":{"2024-05-01T12:00:00":{"1.50":true}}}'
    )


def test_what_is_hidden_is_hidden_in_texts_and_variants(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    select = "1 AS n, struct('1' AS phone, 2 AS x) AS c, array(struct('1' AS phone)) AS l, map('phone', '1') AS m"
    source = frame(spark, f"{select}, parse_json('{{\"phone\":1}}') AS v")
    hidden = ["c.phone", "l.phone", "m.phone"]
    proved(source, table, mask=[*hidden, "v"], pins={"c": "json", "l": "text", "m": "json"})
    assert rows(spark, table) == [
        {"n": 1, "c": '{"phone":"***","x":2}', "l": '[{"phone":"***"}]', "m": '{"phone":"***"}', "v": "***"}
    ]
    with pytest.raises(SourceError, match="variants of v"):
        ingest(source, str(table), mask=["v.phone"])


def test_rows_that_say_other_things_each_time_are_proved(spark: SparkSession, tmp_path: Path) -> None:
    source = spark.range(3).select(F.col("id").alias("n"), F.current_timestamp().alias("at"))
    proved(source, tmp_path / "table")
    assert source.storageLevel == StorageLevel.NONE


def test_rows_that_say_other_things_each_time_are_in_one_of_two_tables(spark: SparkSession, tmp_path: Path) -> None:
    require_spark(spark, "a function is made for it")
    table = tmp_path / "table"
    widen.create_table(str(table), "n bigint, p int not null")
    chance = F.udf(lambda: random.choice((1, None)), "int").asNondeterministic()
    done = ingest(spark.range(500).select(F.col("id").alias("n"), chance().alias("p")), str(table))
    there = Table(str(table)).read(spark=spark).select("n")
    kept = (
        Table(str(done.quarantine)).read(spark=spark).select(F.get_json_object("text", "$.n").cast("bigint").alias("n"))
    )
    assert there.unionAll(kept).distinct().count() == there.count() + kept.count() == 500


def test_rows_that_do_not_fit_what_cannot_yield_are_quarantined(spark: SparkSession, tmp_path: Path) -> None:
    table = tmp_path / "table"
    widen.create_table(str(table), "n int not null, p int, a int", partition_by=["p"])
    done = proved(frame(spark, "1 AS n, '1' AS p, 1 AS a"), table)
    assert (done.records, done.quarantined) == (0, 1)
    source = frame(spark, "2 AS n, 2 AS p, 'x' AS a", "null, 3, 'y'")
    done = proved(source, table)
    assert (done.records, done.quarantined) == (1, 1)
    kept = sorted(Table(str(done.quarantine)).read(spark=spark).collect(), key=lambda row: row["reason"])
    assert [row["text"] for row in kept] == ['{"p":3,"a":"y"}', '{"n":1,"p":"1","a":1}']
    assert rows(spark, table) == [{"n": 2, "p": 2, "a_string": "x"}]


def test_files_of_parquet_whose_types_drift(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "in"
    frame(spark, "1 AS n, 1 AS a").write.parquet(str(source / "day=2024-01-01"))
    frame(spark, "2L AS n, 'x' AS a, 0.5D AS b").write.parquet(str(source / "day=2024-01-02"))
    planned = plan(str(source), str(tmp_path / "table"))
    done = proved(str(source), tmp_path / "table", plan_hash=planned.hash)
    assert types(tmp_path / "table") == {
        "n": "bigint", "a": "string", "a_int": "int", "b": "double", "day": "string"
    }  # fmt: skip
    first = next(event.first for event in done.plan.events if event.column == ("b",))
    assert first is not None
    assert ("day=2024-01-02" in first[0], first[1]) == (True, 1)
    assert rows(spark, tmp_path / "table") == [
        {"n": 1, "a": "1", "a_int": 1, "day": "2024-01-01"},
        {"n": 2, "a": "x", "b": 0.5, "day": "2024-01-02"},
    ]


def test_no_digit_of_an_int96_time_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    """Spark reads INT96 as microseconds; a record with nanoseconds beyond them has the time as text."""
    ns, second = pa.timestamp("ns"), 1_700_000_000_000_000_000
    inner = pa.struct([("x", ns), ("y", ns)])
    written = {
        "n": pa.array([1, 2, 3, 4]),
        "T": pa.array([second + 123_456_789, second + 123_456_000, None, -1], ns),
        "exact": pa.array([second] * 4, ns),
        "r": pa.array([[{"x": second + 1, "y": second}], None, [{"x": second, "y": None}, None], []], pa.list_(inner)),
    }
    for name in ("a b%é.parquet", "c.parquet"):
        pq.write_table(pa.table(written), tmp_path / name, use_deprecated_int96_timestamps=True)
    table = tmp_path / "table"
    done = proved(str(tmp_path / "a b%é.parquet"), table)
    assert done.records == 4
    assert types(table)["T"] == "string"
    assert types(table)["T_timestamp"] == "timestamp"
    assert types(table)["exact"] == "timestamp"
    record = "struct<x: string, x_timestamp: timestamp, y: timestamp>"
    assert types(table)["r"] == f"array<{record}>"
    found = rows(spark, table)
    assert [row.get("T") for row in found] == [
        "2023-11-14T22:13:20.123456789Z",
        "2023-11-14T22:13:20.123456Z",
        None,
        "1969-12-31T23:59:59.999999999Z",
    ]
    assert found[0]["r"][0]["x"] == "2023-11-14T22:13:20.000000001Z"
    assert [row.get("T_timestamp") is not None for row in found] == [False, True, False, False]
    assert proved(str(tmp_path / "*.parquet"), table).plan.is_empty


def test_times_in_files_that_only_spark_can_open_lose_no_digit(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example in HDFS, or with credentials of the session: Spark passes on the bytes of files with INT96."""
    second = 1_700_000_000_000_000_000
    for name, times in (("a b%é.parquet", [second + 1, None]), ("whole.parquet", [second])):
        times = pa.table({"n": pa.array(range(len(times))), "t": pa.array(times, pa.timestamp("ns"))})
        pq.write_table(times, tmp_path / name, use_deprecated_int96_timestamps=True)
    new = pa.array([second // 1000], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"n": [7], "t": new}), tmp_path / "new.parquet")
    opened = int96_times._open

    def refuse(path: str, content: bytes | None = None, unit: str = "us") -> pq.ParquetFile:
        if content is None:
            raise OSError("no filesystem for this scheme")
        return opened(path, content, unit)

    monkeypatch.setattr(int96_times, "_open", refuse)
    assert proved(str(tmp_path / "*.parquet"), tmp_path / "table").records == 4
    found = [row["t"] for row in rows(spark, tmp_path / "table") if "t" in row]
    assert sorted(found) == ["2023-11-14T22:13:20.000000001Z", *["2023-11-14T22:13:20Z"] * 2]
    assert spark.conf.get("spark.sql.parquet.int96AsTimestamp") == "true"


def test_times_of_orc_with_nanoseconds_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    ns = pa.timestamp("ns")
    for name, rest in (("whole", 1000), ("cut %41", 1001)):
        deep = pa.array([[{"x": rest}], None], pa.list_(pa.struct([("x", ns)])))
        table = pa.table({"n": [1, 2], "t": pa.array([0, None], ns), "s": pa.array(["0.1234567", ""]), "r": deep})
        orc.write_table(table, str(tmp_path / f"{name}.orc"))
    assert proved(str(tmp_path / "whole.orc"), tmp_path / "table").records == 2
    with pytest.raises(SourceError, match=r"cut %41\.orc.*nanoseconds, which Spark would cut"):
        widen.ingest(str(tmp_path / "*.orc"), str(tmp_path / "table"))


def test_times_of_orc_with_nanoseconds_are_cut_on_request(spark: SparkSession, tmp_path: Path) -> None:
    counts = [0, 1, 999, 1000, 1001, 1_699_999_999_123_456_789, 1_700_000_000_999_999_999, -6_213_559_680_000_000_000]
    times = pa.array(counts, pa.timestamp("ns", "UTC"))
    deep = pa.array([[{"x": each}] for each in times], pa.list_(pa.struct([("x", times.type)])))
    orc.write_table(pa.table({"t": times, "r": deep}), str(tmp_path / "a.orc"))
    for word in ("error", "text"):
        with pytest.raises(SourceError, match="nanos='truncate'"):
            widen.ingest(str(tmp_path / "a.orc"), str(tmp_path / "table"), nanos=word, spark=spark)
    loaded = widen.ingest(str(tmp_path / "a.orc"), str(tmp_path / "table"), nanos="truncate", verify=True, spark=spark)
    assert loaded.verification is not None
    assert loaded.verification.is_clean
    found = widen.Table(str(tmp_path / "table")).to_arrow()
    taken = found.column("t").cast(pa.int64()).to_pylist()
    assert sorted(taken) == sorted(each // 1000 for each in counts)
    assert [each[0]["x"] for each in found.column("r").to_pylist()] == found.column("t").to_pylist()


def test_the_proof_leaves_computed_columns_out_of_quarantined_with_different_schemas(
    spark: SparkSession, tmp_path: Path
) -> None:
    size = Field("size", STRING, metadata={"CURRENT_DEFAULT": "'M'"})
    schema = StructType((Field("n", INTEGER), Field("k", INTEGER, nullable=False), size))
    properties = {"delta.feature.allowColumnDefaults": "supported"}
    widen.create_table(str(tmp_path / "table"), schema, properties=properties)
    for name, numbers in (("a", [1, 2]), ("b", ["3", "x"])):
        sizes = pa.array(["L", "S"])
        pq.write_table(pa.table({"n": numbers, "k": pa.array([1, None], pa.int32()), "size": sizes}), tmp_path / name)
        (tmp_path / name).rename(tmp_path / f"{name}.parquet")
    done = proved(str(tmp_path / "*.parquet"), tmp_path / "table")
    assert (done.records, done.quarantined) == (2, 2)


def test_a_number_is_kept_beside_a_timestamp(spark: SparkSession, tmp_path: Path) -> None:
    """A timestamp column shows what a number may mean; the number itself is rescued, or its record is quarantined."""
    frozen, fixed = tmp_path / "frozen", tmp_path / "fixed"
    widen.create_table(str(frozen), "n int, t timestamp")
    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"n":2,"t":1700000000}\n')
    for source in (frame(spark, "1 AS n, 1700000000L AS t"), str(lines)):
        proved(source, frozen, evolve="freeze")
    assert [(row["t"].timestamp(), row["_rescued"]) for row in rows(spark, frozen)] == [
        (1700000000, '{"t":1700000000}')
    ] * 2
    widen.create_table(str(fixed), "n int, t timestamp NOT NULL")
    for source in (frame(spark, "1 AS n, 1700000000L AS t"), str(lines)):
        assert proved(source, fixed).quarantined == 1
        assert proved(source, fixed, epoch_unit={"t": "s"}).quarantined == 0
    assert [row["t"].timestamp() for row in rows(spark, fixed)] == [1700000000] * 2


@pytest.mark.parametrize("listed", [0, 2**20])
def test_many_quarantined_records_do_not_come_through_the_driver(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: int
) -> None:
    require_spark(spark, "tasks write the records of a DataFrame")
    monkeypatch.setattr(frame_batch, "LISTED_BYTES", listed)
    table = tmp_path / "table"
    widen.create_table(str(table), "n int NOT NULL, p string", partition_by=["p"])
    done = proved(spark.sql("SELECT IF(id % 4 = 1, NULL, id) AS n, concat('p', id % 2) AS p FROM range(40)"), table)
    assert (done.records, done.quarantined) == (30, 10)
    kept = Table(str(done.quarantine)).read(spark=spark).collect()
    assert sorted(json.loads(row["text"])["p"] for row in kept) == ["p1"] * 10
    assert {row["reason"] for row in kept} == {"n is null, and column n is NOT NULL"}


def test_nothing_is_left_of_parts_if_one_fails(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, select in (("a", "1 AS n"), ("b", "'x' AS n")):
        frame(spark, select).write.parquet(str(tmp_path / "in" / name))

    def failing(writing: Callable[[Any], Any]) -> Callable[[Any], Any]:
        calls = count()

        def run(self: Any) -> Any:
            if next(calls):
                raise JobFailed(reason="it was meant to")
            return writing(self)

        return run

    for each in (frame_batch._Writing, ColumnCopy):  # on Spark, and without it
        monkeypatch.setattr(each, "run", failing(each.run))
    with pytest.raises(JobFailed, match="meant"):
        ingest(str(tmp_path / "in"), str(tmp_path / "table"))
    assert not [*tmp_path.glob("table/**/*.parquet")]


def test_a_stream_of_typed_rows(spark: SparkSession, tmp_path: Path) -> None:
    frame(spark, "1 AS n, 'x' AS a").write.parquet(str(tmp_path / "in"))
    stream = spark.readStream.schema("n int, a string").parquet(str(tmp_path / "in"))
    words = {"checkpoint": str(tmp_path / "checkpoint"), "once": True, "verify": True}
    assert widen.ingest_stream(stream, str(tmp_path / "table"), **words).wait()
    assert rows(spark, tmp_path / "table") == [{"n": 1, "a": "x"}]


def test_the_proof_sees_what_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    source = frame(spark, "1 AS n, array(1L, 2L) AS a, 'x' AS b", "2, array(3L), 'y'")
    done = proved(source, tmp_path / "table")
    assert done.verification is not None
    assert done.verification.leaves == 7
    table = Table(str(tmp_path / "table"))
    for changed in (source.where("n = 1"), source.withColumn("a", F.expr("slice(a, 1, 1)")), source.limit(0)):
        batch = BatchReader().open(spark, source)
        other = BatchReader().open(spark, changed)
        other.typed._homes.update({path.partition("/")[0]: 0 for path in table.files()["path"].to_pylist()})  # type: ignore[attr-defined]
        there = other.table_digests(
            DeltaRows(table.store, table.snapshot), table.files()["path"].to_pylist(), Policy(), None
        )
        assert verify(batch.source_digests(table.snapshot.schema, Policy()), there).is_clean
        assert not verify(other.source_digests(table.snapshot.schema, Policy()), there).is_clean


def test_files_are_copied_and_proved_by_columns(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the rows nor their digests pass through Java, and the table is the one that Spark would write."""
    scalars = SCALARS.replace("0.1f", "CAST(n / 3 AS float)").replace("'x'", "concat('x', n)")
    nested = ("n", "r.*", "r", "array(r, null) AS a", "map('k', r, 'none', null) AS m", "array(array(r.l), null) AS aa")
    source = spark.range(600).selectExpr("CAST(id AS int) AS n").selectExpr("n", f"struct({scalars}) AS r")
    source.selectExpr(*nested, "CAST(null AS string) AS nothing").coalesce(1).write.parquet(str(tmp_path / "one"))
    more = source.selectExpr("n + 600 AS n", "struct(r.*, 1 AS more) AS r", "IF(n % 2 = 0, array(), null) AS e")
    more.withColumn("e", F.col("e").cast("array<int>")).coalesce(1).write.parquet(str(tmp_path / "two"))

    def load(table: Path) -> list[IngestResult]:
        return [proved(str(tmp_path / name), table) for name in ("one", "two", "one")]

    monkeypatch.setattr(column_copy, "DRIVER_FOOTERS", 0)
    expected = load(tmp_path / "by-spark")
    monkeypatch.undo()
    copied: list[ColumnCopy] = []
    run = ColumnCopy.run
    monkeypatch.setattr(ColumnCopy, "run", lambda self: copied.append(self) or run(self))
    monkeypatch.setattr(verification, "_compare_digests", lambda *_: pytest.fail("the sums differ"))
    done = load(tmp_path / "table")
    assert len(copied) == 3
    assert [each.plan.events for each in done] == [each.plan.events for each in expected]
    assert [each.plan.pending for each in done] == [each.plan.pending for each in expected]
    assert [str(each.verification) for each in done] == [str(each.verification) for each in expected]
    assert types(tmp_path / "table") == types(tmp_path / "by-spark")
    by_spark, by_copy = (Table(str(tmp_path / name)).read(spark=spark).collect() for name in ("by-spark", "table"))
    assert len(by_copy) == 1800
    assert_same(by_copy, by_spark)


def test_the_proof_by_columns_names_what_is_lost(spark: SparkSession, tmp_path: Path) -> None:
    source = spark.range(300).selectExpr("id AS n", "array(id, id + 1) AS a", "concat('text ', id) AS t")
    source.coalesce(1).write.parquet(str(tmp_path / "in"))
    proved(str(tmp_path / "in"), tmp_path / "table")
    [path] = (tmp_path / "table").rglob("*.parquet")
    stored = pq.read_table(path)
    lists = [each[:1] if number == 7 else each for number, each in enumerate(stored["a"].to_pylist())]
    at = stored.schema.get_field_index("a")
    damaged = stored.set_column(at, stored.schema.field(at), pa.array(lists, stored.schema.field(at).type))
    pq.write_table(damaged, path)
    table, batch = Table(str(tmp_path / "table")), BatchReader().open(spark, str(tmp_path / "in"))
    paths = table.files()["path"].to_pylist()
    batch.typed._homes.update({path.partition("/")[0]: 0 for path in paths})  # type: ignore[attr-defined]
    sides = (
        batch.source_digests(table.snapshot.schema, Policy()),
        batch.table_digests(DeltaRows(table.store, table.snapshot), paths, Policy(), None),
    )
    assert all(side.has_sums for side in sides)
    found = verify(*sides)
    assert (found.records, found.lost > 0, found.extra) == (300, True, 1)
    assert found.places[0].endswith(":8: a")


BAD = {
    "two columns of one name": ("1 AS a, 2 AS a", SourceError, "two columns"),
    "a type of no table": ("interval '1' day AS a", SourceError, "interval"),
    "a map by records": ("map(struct(1 AS x), 1) AS a", SourceError, "map"),
    "no record": ("1 AS a WHERE false", SourceError, "no record"),
    "two fields of one name": ("named_struct('x', 1, 'x', 2) AS a", SourceError, "two columns named a.x"),
}


@pytest.mark.parametrize(("select", "error", "match"), BAD.values(), ids=BAD)
def test_what_cannot_be_taken_in(
    spark: SparkSession, tmp_path: Path, select: str, error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        ingest(spark.sql(f"SELECT {select}"), str(tmp_path / "table"))
    with pytest.raises(InvalidOption):
        ingest(spark.range(1), str(tmp_path / "table"), format="csv")


def test_files_that_spark_cannot_read_are_told_with_the_way_out(spark: SparkSession, tmp_path: Path) -> None:
    times = pa.table({"t": pa.array([1], pa.timestamp("ns"))})
    twice = pa.table({"id": [1], "ID": [2]})
    for name, written, way_out in (("times", times, "--nanos truncate"), ("twice", twice, "caseSensitive")):
        pq.write_table(written, tmp_path / f"{name}.parquet")
        with pytest.raises(SourceError) as found:
            ingest(str(tmp_path / f"{name}.parquet"), str(tmp_path / "table"))
        assert way_out in (found.value.advice or "")
    (tmp_path / "broken.parquet").write_bytes(b"hello" * 10)
    with pytest.raises(CorruptFile, match=r"broken\.parquet"):
        ingest(str(tmp_path / "broken.parquet"), str(tmp_path / "table"))


def test_the_name_of_a_file_may_look_like_a_pattern(spark: SparkSession, tmp_path: Path) -> None:
    for name in ("[ab].parquet", "c{d}.parquet"):
        pq.write_table(pa.table({"n": [1]}), tmp_path / name)
        assert proved(str(tmp_path / name), tmp_path / "table").records == 1


def test_avro_is_read_alike_with_a_session_of_this_machine(spark: SparkSession, tmp_path: Path) -> None:
    fields = [{"name": "id", "type": "int"}, {"name": "x", "type": ["null", "string", "long"]}]
    records = [{"id": at, "x": value} for at, value in enumerate([1, "a", None, 2**40])]
    (tmp_path / "day=1").mkdir()
    with (tmp_path / "day=1" / "a.avro").open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "r", "fields": fields}, records)
    found = []
    for engine, words in (("local", {}), ("auto", {"spark": spark})):
        table = tmp_path / f"table-{engine}"
        proved(str(tmp_path / "day=1" / "a.avro"), table, engine=engine, source_columns=True, **words)
        found.append((types(table), widen.Table(table).to_arrow().drop_columns("_loaded_at").sort_by("id").to_pylist()))
    assert found[0] == found[1]
    assert [row["x_long"] for row in found[0][1]] == [1, None, None, 2**40]
    assert found[0][1][0]["day"] == "1"


@pytest.mark.parametrize("nanos", ["truncate", "text"])
def test_types_that_spark_does_not_read_arrive_alike(spark: SparkSession, tmp_path: Path, nanos: str) -> None:
    moments = pa.array([1_000, 1_234, None], pa.timestamp("ns"))
    clock = pa.array([1, None, 3], pa.time64("us"))
    pq.write_table(pa.table({"id": [1, 2, 3], "x": moments, "t": clock}), tmp_path / "a.parquet")
    found = []
    for engine, words in (("local", {}), ("auto", {"spark": spark})):
        table = tmp_path / f"table-{engine}"
        proved(str(tmp_path / "a.parquet"), table, engine=engine, nanos=nanos, **words)
        found.append((types(table), widen.Table(table).to_arrow().sort_by("id").to_pylist()))
    assert found[0] == found[1]
    assert [row["t"] for row in found[0][1]] == ["00:00:00.000001", None, "00:00:00.000003"]


def test_a_compression_that_arrow_lacks_is_left_to_spark(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet", compression="snappy")

    def refuse(*_: Any, **__: Any) -> None:
        raise pa.ArrowNotImplementedError("no such codec")

    monkeypatch.setattr(parquet_batch.pq, "ParquetFile", refuse)
    assert not open_source._has_odd_types(find_source(spark, [str(tmp_path / "a.parquet")]))


@pytest.mark.parametrize("is_split", [False, True])
def test_the_quarantine_names_the_avro_file(spark: SparkSession, tmp_path: Path, *, is_split: bool) -> None:
    required = pa.schema([pa.field("id", pa.int64()), pa.field("n", pa.int64(), nullable=False)])
    DeltaTable.create(str(tmp_path / "t"), required)
    fields = [{"name": "id", "type": "long"}, {"name": "n", "type": ["null", "long"]}]
    fields += [{"name": "x", "type": ["long", "string"]}] * is_split
    records = [{"id": at, "n": None if at == 1 else at, "x": "a" if at else 5} for at in range(3)]
    with (tmp_path / "a.avro").open("wb") as file:
        fastavro.writer(file, {"type": "record", "name": "r", "fields": fields}, records)
    done = ingest(str(tmp_path / "a.avro"), str(tmp_path / "t"), spark=spark, quarantine=str(tmp_path / "q"))
    assert done.quarantined == 1
    [row] = widen.Table(tmp_path / "q").to_arrow().to_pylist()
    assert (row["file"].removeprefix("file:"), row["position"]) == (f"{tmp_path}/a.avro", 0 if is_split else 2)


def test_a_damaged_avro_file_is_named(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "a.avro").write_bytes(b"Obj\x01")
    with pytest.raises(CorruptFile, match=r"a\.avro"):
        ingest(str(tmp_path / "a.avro"), str(tmp_path / "table"))


TIME_TEXTS = (
    *("2024-05-01", "2024-02-30", "0000-01-01", "9999-12-31", "2024-5-1", " 2024-05-01", "2024-05-01\n", "May", ""),
    *("2024-05-01T10:00:00Z", "2024-05-01T10:00:00.500Z", "2024-05-01T10:00:00+00:00", "2024-05-01T00:00:00Z"),
    *("2024-05-01T10:00:00", "2024-05-01T10:00:00.123456", "2024-05-01T00:00:00.000", "0001-01-01T00:00:00"),
    *("2024-05-01T10:00:00.1234567890", "2024-05-01T10:00:00.1234567Z", "2016-12-31T23:59:60Z", "2024-05-01 10:00:00"),
    *("2024-05-01T10:00:00+02:00", "2024-05-01T24:00:00", "2024-05-01T10:00Z", "9999-12-31T23:59:59.999999Z"),
)
TIME_COLUMNS = (
    "n bigint, d date, t timestamp, l timestamp_ntz, r struct<d: date, l: array<timestamp_ntz>>, m map<string,date>"
)


def _held(row: dict[str, Any]) -> dict[str, Any]:
    """A row without maps whose only value is null: typed sources leave them beside the column that has the value."""
    return {name: value for name, value in row.items() if value != {"k": None}}


@pytest.mark.parametrize("mode", ["widen", "split"])
def test_strings_go_into_columns_of_dates_like_the_texts_of_json(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    records = [
        {"n": n, "d": text, "t": text, "l": text, "r": {"d": text, "l": [text, None, "2024-05-01"]}, "m": {"k": text}}
        for n, text in enumerate(TIME_TEXTS)
    ]
    lines = tmp_path / "times.jsonl"
    lines.write_text("".join(json.dumps(record) + "\n" for record in records))
    fields = "n bigint, d string, t string, l string, r struct<d: string, l: array<string>>, m map<string,string>"
    for name, source in (("text", str(lines)), ("typed", spark.createDataFrame(records, fields))):
        widen.create_table(str(tmp_path / name), TIME_COLUMNS)
        proved(source, tmp_path / name, spark=spark, evolve=mode)
    typed, text = ([_held(row) for row in rows(spark, tmp_path / name)] for name in ("typed", "text"))
    assert typed == text
    assert types(tmp_path / "typed") == types(tmp_path / "text")
    first = rows(spark, tmp_path / "typed")[TIME_TEXTS.index("2024-05-01T10:00:00.123456")]
    assert (first["l"], first["d_string"]) == (datetime(2024, 5, 1, 10, 0, 0, 123456), "2024-05-01T10:00:00.123456")
    assert "l_string" not in first or first["l_string"] == first["d_string"]


def test_the_proof_tells_what_was_a_string_and_finds_a_wrong_date(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = "d date, l timestamp_ntz, k date NOT NULL"
    widen.create_table(str(tmp_path / "t"), columns)
    records = [("2024-05-01", "2024-05-01T10:00:00.50", "2024-05-01"), (None, None, "May")]
    source = spark.createDataFrame(records, "d string, l string, k string")
    done = proved(source, tmp_path / "t", spark=spark)
    assert (done.plan.is_empty, done.records, done.quarantined) == (True, 1, 1)
    assert done.verification is not None
    assert done.verification.converted == 3

    class DayLate(RowConversion):
        """A conversion that runs in other processes, which get it by value."""

        def judge(self, *words: Any, **more: Any) -> JudgedRows:
            read, day = conversions.temporal_values, timedelta(days=1)

            def read_late(texts: pa.Array, kind: DataType) -> pa.Array:
                late = [each and each + day for each in read(texts, kind).to_pylist()]
                return pa.array(late, to_arrow(kind))

            with mock.patch.object(conversions, "temporal_values", read_late):
                return super().judge(*words, **more)

    monkeypatch.setattr(frame_batch, "RowConversion", DayLate)
    widen.create_table(str(tmp_path / "late"), columns)
    late = ingest(source, str(tmp_path / "late"), spark=spark, verify=True)
    assert late.verification is not None
    assert not late.verification.is_clean


def test_the_proof_knows_times_that_no_column_holds_and_dates_that_are_midnights(
    spark: SparkSession, tmp_path: Path
) -> None:
    """In any time zone; a date in the rescue column counts like the same date in a column of timestamps."""
    midnights = ("2024-05-01T00:00:00Z", "2024-05-01T00:00:00.000+00:00", "2024-05-01T00:00:00")
    texts = ("2024-05-01", *midnights, "2024-05-01T10:00:00.500Z", "May")
    records = [(n, text, text, text, {"k": text}, [text, "2024-05-01"]) for n, text in enumerate(texts)]
    source = spark.createDataFrame(
        records, "n int, d string, t string, l string, m map<string,string>, a array<string>"
    )
    columns = "n int, d date, t timestamp, l timestamp_ntz, m map<string,timestamp_ntz>, a array<timestamp>"
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        for mode, rule in (("widen", ""), ("freeze", ""), ("freeze", " NOT NULL")):
            table = tmp_path / f"{mode}{bool(rule)}"
            widen.create_table(str(table), columns.replace("l timestamp_ntz", f"l timestamp_ntz{rule}", 1))
            done = proved(source, table, spark=spark, evolve=mode)
            assert (done.records, done.quarantined) == ((2, 4) if rule else (6, 0))
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone or "UTC")


TIME_FAULTS: dict[str, tuple[str, str, str]] = {
    "a midnight becomes its date": ("date", "string", "'2024-05-01T00:00:00Z'"),
    "a time becomes its midnight": ("timestamp", "string", "'2024-05-01T10:00:00Z'"),
    "a timestamp becomes the text of its date": ("string", "timestamp", "timestamp'2024-05-01 00:00:00Z'"),
    "a timestamp without a zone becomes the text of its date": (
        "string", "timestamp_ntz", "timestamp_ntz'2024-05-01 00:00:00'"
    ),
    "a date becomes the text of a timestamp": ("string", "date", "date'2024-05-01'"),
    "a date becomes another time of its day": ("timestamp", "date", "date'2024-05-01'"),
    "a date becomes another local time of its day": ("timestamp_ntz", "date", "date'2024-05-01'"),
}  # fmt: skip
"""A wrong conversion for each column: the types of the column and of the source, and a value in SQL."""


def test_the_proof_finds_each_time_that_is_cut(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row has a number and one time; no row with a wrong time is found again, and every other one is."""
    require_spark(spark, "its proof is looked at")
    faults = list(TIME_FAULTS.values())
    columns = ", ".join(f"c{number} {kind}" for number, (kind, *_) in enumerate(faults))
    values = (f"IF(n = {number}, {value}, NULL) AS c{number}" for number, (_, _, value) in enumerate(faults))
    source = spark.sql(
        f"SELECT n, {', '.join(values)} FROM VALUES {', '.join(f'({n})' for n in range(len(faults)))} t(n)"
    )
    widen.create_table(str(tmp_path / "right"), f"n int, {columns}")
    proved(source, tmp_path / "right", spark=spark, evolve="freeze")

    class Wrong(RowConversion):
        """A conversion that runs in other processes, which get it by value."""

        def judge(self, *words: Any, **more: Any) -> JudgedRows:
            read, ten = conversions.temporal_values, datetime(2024, 5, 1, 10)

            def read_wrongly(texts: pa.Array, kind: DataType) -> pa.Array:
                pattern = ("T10:00", "T00:00") if kind == TIMESTAMP else ("T00:00:00Z?$", "")
                is_date = kind in (DATE, TIMESTAMP)
                return read(pc.replace_substring_regex(texts, *pattern) if is_date else texts, kind)

            def always(value: object) -> Callable[..., pa.Array]:
                return lambda values, _, new: pc.if_else(
                    values.is_valid(), pa.scalar(value, to_arrow(new)), pa.scalar(None, to_arrow(new))
                )

            wrong = {
                ("timestamp", "string"): always("2024-05-01"),
                ("timestamp_ntz", "string"): always("2024-05-01"),
                ("date", "string"): always("2024-05-01 10:00:00"),
                ("date", "timestamp"): always(ten.replace(tzinfo=timezone.utc)),
                ("date", "timestamp_ntz"): always(ten),
            }
            with (
                mock.patch.object(conversions, "temporal_values", read_wrongly),
                mock.patch.dict(conversions.CONVERSIONS, wrong),
            ):
                return super().judge(*words, **more)

    monkeypatch.setattr(frame_batch, "RowConversion", Wrong)
    widen.create_table(str(tmp_path / "wrong"), f"n int, {columns}")
    done = ingest(source, str(tmp_path / "wrong"), spark=spark, verify=True, evolve="freeze")
    assert done.verification is not None
    assert (len(done.verification.places), done.verification.records) == (len(faults), len(faults))
    assert done.verification.lost >= len(faults)


def test_kinds_are_counted_in_the_first_records_and_rare_ones_in_all(spark: SparkSession, tmp_path: Path) -> None:
    for name, start in (("a", 1_100), ("b", 0)):
        numbers = range(start, 1_200)
        rare = pa.array([None] * start + [[None, f"{name}{n}"] for n in numbers], pa.list_(pa.string()))
        source = pa.table({"n": pa.array(range(1_200), pa.int64()), "rare": rare, "never": pa.nulls(1_200, pa.bool_())})
        (tmp_path / "in").mkdir(exist_ok=True)
        pq.write_table(source, tmp_path / "in" / f"{name}.parquet")
    done = ingest(str(tmp_path / "in"), str(tmp_path / "table"), spark=spark, samples="raw")
    events = {event.column: event for event in done.plan.events}
    found = {column[0]: (event.count, event.sample) for column, event in events.items()}
    assert found == {"n": (1_000, "0"), "rare": (1_300, "a1100"), "never": (0, "")}
    assert [Path(event.first[0]).name + f":{event.first[1]}" for event in events.values() if event.first] == [
        "a.parquet:1", "a.parquet:1101"
    ]  # fmt: skip
    assert all(event.at_least for event in done.plan.events)


def test_all_records_are_looked_at_again_only_if_the_first_are_not_all(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[bool] = []
    run = frame_batch.KindAggregates._run
    monkeypatch.setattr(
        frame_batch.KindAggregates, "_run", lambda *words, **more: passes.append(True) or run(*words, **more)
    )
    done = ingest(frame(spark, "1 AS n, 'x' AS a"), str(tmp_path / "rows"), samples="raw")
    assert len(passes) == 1
    assert {e.column: (e.count, e.sample, e.at_least) for e in done.plan.events} == {
        ("n",): (1, "1", False), ("a",): (1, "x", False)
    }  # fmt: skip
    many = spark.range(0, 1_200, 1, 1).selectExpr("id AS n", "IF(id >= 1100, 'y', null) AS b")
    done = ingest(many, str(tmp_path / "many"), samples="raw")
    assert len(passes) == 3
    assert {e.column: (e.count, e.sample) for e in done.plan.events} == {("n",): (1_000, "0"), ("b",): (100, "y")}
