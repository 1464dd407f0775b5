"""One logical column for each source field, read and as a view: both say the same, and no value is lost."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from widen import ingest
from widen.frames.scan import unify_rows
from widen.model.schema_json import parse_type
from widen.model.types import StructType
from widen.schema.source_metadata import source_field
from widen.table import Table

BIG = 9007199254740993
FIRST = [
    {"n": 1, "a": 7, "tags": [1, 2], "o": [{"p": 1, "q": {"r": 1}}, {"p": 2}], "big": BIG}
    | {"at": "2024-01-31T00:00:00Z"},
    {"n": 2, "mixed": [1, "x", [2], {"b": 1}], "rec": {"c": "s"}, "unit price": 1},
]
THEN = [
    {"n": 3, "a": "seven", "tags": "x", "o": [{"p": "x", "q": "s"}, {"p": 3}], "big": 2.5, "at": 1706659200123},
    {"n": 4, "a": [True], "tags": ["1", None, 3], "o": {"p": 2.5}, "mixed": 5, "rec": [{"x": "s"}, {"c": 1}]},
    {"n": 5, "tags": [], "big": [BIG, 2.5], "mixed": {"b": "q"}, "rec": [[{"y": "s"}]], "unit price": "1 EUR"},
]
EXPECTED: list[dict[str, Any]] = [
    {"n": 1, "a": ["7"], "tags": ["1", "2"], "o": [{"p": "1", "q": '{"r":1}'}, {"p": "2", "q": None}]}
    | {"big": [str(BIG)], "at": "2024-01-31T00:00:00Z"},
    {"n": 2, "mixed": [["1"], ["x"], ["2"], ['{"b":"1"}']], "rec": [[{"c": "s", "x": None, "y": None}]]}
    | {"unit_price": "1"},
    {"n": 3, "a": ["seven"], "tags": ["x"], "o": [{"p": "x", "q": "s"}, {"p": "3", "q": None}], "big": ["2.5"]}
    | {"at": "1706659200123"},
    {"n": 4, "a": ["true"], "tags": ["1", None, "3"], "o": [{"p": "2.5", "q": None}], "mixed": [["5"]]}
    | {"rec": [[{"c": None, "x": "s", "y": None}], [{"c": "1", "x": None, "y": None}]]},
    {"n": 5, "tags": [], "big": [str(BIG), "2.5"], "mixed": [['{"b":"q"}']]}
    | {"rec": [[{"c": None, "x": None, "y": "s"}]], "unit_price": "1 EUR"},
]


def write_lines(place: Path, records: Sequence[Any]) -> str:
    place.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(place)


def test_every_value_is_in_the_one_column_of_its_field(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    for number, records in enumerate((FIRST, THEN)):
        source = write_lines(tmp_path / f"{number}.json", records)
        ingest(source, place, evolve="split", detect_dates=["at"], spark=spark)
    table = Table(place)
    told = table.read(unified=True, spark=spark)
    rows = [row.asDict(recursive=True) for row in told.orderBy("n").collect()]
    assert [{name: value for name, value in row.items() if value is not None} for row in rows] == EXPECTED

    table.read(spark=spark).createOrReplaceTempView("as_it_is")
    spark.sql(table.view_sql("one_column_a_field", "as_it_is", temporary=True))
    view = spark.table("one_column_a_field")
    assert view.schema == told.schema
    assert [row.asDict(recursive=True) for row in view.orderBy("n").collect()] == rows


def test_a_condition_means_the_columns_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    ingest(write_lines(tmp_path / "a.json", [{"a": 1}]), place, evolve="split", spark=spark)
    ingest(write_lines(tmp_path / "b.json", [{"a": "x"}]), place, evolve="split", spark=spark)
    table = Table(place)
    assert table.read(where="a_string = 'x'", unified=True, spark=spark).collect() == [("x",)]
    assert "FROM delta.`" in table.view_sql("v")


def test_times_in_records_that_become_texts_keep_all_digits(spark: SparkSession, tmp_path: Path) -> None:
    place = str(tmp_path / "table")
    for number, value in enumerate(({"at": "2024-05-06T07:08:09.123456Z"}, "x")):
        source = write_lines(tmp_path / f"{number}.json", [{"v": value}])
        ingest(source, place, evolve="split", detect_dates=["v.at"], spark=spark)
    table = Table(place)
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        rows = table.read(unified=True, spark=spark).collect()
        table.read(spark=spark).createOrReplaceTempView("rows_of_times")
        spark.sql(table.view_sql("times_in_records", "rows_of_times", temporary=True))
        viewed = spark.table("times_in_records").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))
    assert {row.v for row in rows} == {'{"at":"2024-05-06T07:08:09.123456Z"}', "x"}
    assert sorted(viewed) == sorted(rows)


def test_maps_are_joined_entry_by_entry(spark: SparkSession) -> None:
    """What no ingestion makes in one row, but its columns together could hold."""
    columns = [("h", "map<string, bigint>"), ("h_map_string", "map<string, string>")]
    fields = [source_field(name, parse_type(text), ("h",), is_evolved=name != "h") for name, text in columns]
    frame = spark.createDataFrame(
        [({"a": 1}, {"a": "1", "b": "x"}), (None, {"c": "y"}), (None, None)],
        "h map<string, bigint>, h_map_string map<string, string>",
    )
    found = [row.h for row in unify_rows(frame, StructType(tuple(fields))).collect()]
    assert found == [{"a": "1", "b": "x"}, {"c": "y"}, None]
