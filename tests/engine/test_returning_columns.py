"""A dropped column that comes back with a load: the plan, the result, the history and the report say so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import widen
from support.command_line import run, run_json

Record = dict[str, Any]
RECORDS: list[Record] = [{"n": 1, "b": 7, "s": {"x": 1, "y": 2}}, {"n": 2, "B": 8, "s": {"x": 3, "y": 4}, "new": 5}]


def source(place: Path, record: Record) -> str:
    path = place / "s.jsonl"
    path.write_text(json.dumps(record) + "\n")
    return str(path)


def delta(spark: SparkSession, place: Path) -> dict[str, Any]:
    """Load a table, drop two of its columns, and return what names it."""
    name = str(place / "t")
    widen.create_table(name, "n bigint", properties={"delta.columnMapping.mode": "name"})
    widen.ingest(source(place, RECORDS[0]), name, spark=spark)
    table = widen.Table(name).drop_columns("b", "s.y")
    return {"into": name, "said": f"version {table.version}", "options": {}}


def iceberg(spark: SparkSession, place: Path) -> dict[str, Any]:
    catalog = str(place / "catalog.db")
    made = SqlCatalog("default", uri=f"sqlite:///{catalog}", warehouse=(place / "w").as_uri())
    made.create_namespace("shop")
    widen.ingest(source(place, RECORDS[0]), "shop.t", catalog=catalog, spark=spark)
    widen.IcebergTable("shop.t", catalog).drop_columns("b", "s.y")
    schema = made.load_table("shop.t").metadata.current_schema_id
    return {"into": "shop.t", "said": f"schema {schema}", "options": {"catalog": catalog}}


@pytest.mark.parametrize("prepare", [delta, iceberg])
def test_what_a_load_says_of_columns_that_come_back(
    spark: SparkSession, tmp_path: Path, prepare: Callable[[SparkSession, Path], dict[str, Any]]
) -> None:
    given = prepare(spark, tmp_path)
    path, options = source(tmp_path, RECORDS[1]), {**given["options"], "spark": spark}
    back = {"B": given["said"], "s.y": given["said"]}

    plan = widen.plan(path, given["into"], **options)
    done = widen.ingest(path, given["into"], verify=True, **options)
    assert done.verification is not None
    assert done.verification.is_clean
    for told in (plan.events, done.plan.events):
        assert {".".join(each.source): each.dropped_in for each in told if each.dropped_in} == back

    flags = ["--catalog", options["catalog"]] if "catalog" in options else []
    report = run("report", given["into"], *flags).stdout
    assert f"again; {given['said']} dropped it" in " ".join(report.split())
    history = json.dumps(run_json("history", given["into"], *flags))
    assert history.count(f'"droppedIn": "{given["said"]}"') >= 2
    opened = widen.IcebergTable("shop.t", options["catalog"]) if "catalog" in options else widen.Table(given["into"])
    [first] = opened.read(spark=spark).where("n = 1").collect()
    assert [value for name, value in first.asDict().items() if name.lower() == "b"] == [None]
    assert first.s.y is None
