"""A CSV file without its header does not lose its first record: the table would have to have one of its names."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import widen
from widen.errors import SourceError
from widen.spark.source import open_source
from widen.table import Table

FIRST = "Order ID,total\n1,2.5\n"
NO_HEADER = "2,3.5\n3,4.5\n"


def loaded(spark: SparkSession, folder: Path) -> str:
    (folder / "1.csv").write_text(FIRST)
    place = str(folder / "table")
    widen.ingest(str(folder / "1.csv"), into=place, spark=spark)
    return place


@pytest.mark.parametrize("lane", ["tasks", "lines", "large"])
def test_a_first_line_without_a_field_of_the_table_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lane: str
) -> None:
    place, source = loaded(spark, tmp_path), tmp_path / "2.csv"
    source.write_text(NO_HEADER * (1 if lane != "large" else 2**21))
    if lane == "lines":
        monkeypatch.setattr(open_source, "can_read", lambda *_: False)
    for work in (widen.plan, widen.ingest):
        with pytest.raises(SourceError, match=r"2\.csv.*has none of the fields in its first line.*header=true"):
            work(str(source), into=place, spark=spark)
    assert Table(place).version == 0
    assert [list(row) for row in Table(place).read(spark=spark).collect()] == [["1", "2.5"]]


@pytest.mark.parametrize(
    ("text", "options", "columns"),
    [
        ("total,city\n3.5,Gent\n", {}, ["city"]),  # one field is enough
        ("ORDER_ID\n2\n", {}, ["ORDER_ID_2"]),  # in any case
        (NO_HEADER, {"header": "true"}, ["2", "3.5"]),
        (NO_HEADER, {"header": "false"}, ["_c0", "_c1"]),
    ],
)
def test_other_first_lines_are_names(
    spark: SparkSession, tmp_path: Path, text: str, options: dict[str, str], columns: list[str]
) -> None:
    place, source = loaded(spark, tmp_path), tmp_path / "2.csv"
    source.write_text(text)
    widen.ingest(str(source), into=place, options=options, spark=spark)
    assert Table(place).schema.names == ("Order_ID", "total", *columns)


def test_a_stream_stops_at_a_file_without_its_header(spark: SparkSession, tmp_path: Path) -> None:
    place, landing = loaded(spark, tmp_path), tmp_path / "landing"
    landing.mkdir()
    (landing / "2.csv").write_text(NO_HEADER)
    arguments = {"into": place, "checkpoint": str(tmp_path / "checkpoint"), "once": True, "spark": spark}
    with pytest.raises(SourceError, match="none of the fields"):
        widen.ingest_stream(str(landing), **arguments).wait()
    (landing / "2.csv").write_text("total\n3.5\n")
    widen.ingest_stream(str(landing), **arguments).wait()
    assert sorted(row.total for row in Table(place).read(spark=spark).collect()) == ["2.5", "3.5"]
