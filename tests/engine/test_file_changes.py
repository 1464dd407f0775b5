"""Changes that Arrow makes file by file: the same rows, change data and numbers as those that Spark makes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import widen
from support.change import FEED, VECTORS, actions, last_commit, layout_name, leftovers
from support.covering import covering
from support.written_once import written_once
from widen.changes import arrow_changes, update_delete
from widen.errors import AssignedOverflow, CheckViolated, JobFailed, NotNullViolated
from widen.spark.engine import Engine, LocalSession, Unsupported
from widen.table import Table

COLUMNS = "id int, p string, f double, s struct<x: int, y: string>, t timestamp"
ROWS = """
    SELECT CAST(id AS int) id, IF(id % 5 = 0, NULL, concat('p', id % 2)) p,
        CASE WHEN id = 3 THEN double('NaN') WHEN id = 4 THEN NULL ELSE id / 2 END f,
        IF(id % 7 = 0, NULL, named_struct('x', CAST(id AS int), 'y', IF(id % 4 = 0, NULL, 'old'))) s,
        timestamp'2024-01-01 00:00:00Z' + make_dt_interval(CAST(id AS int)) t
    FROM range({first}, {last})
"""
Layout = tuple[dict[str, str], tuple[str, ...]]
LAYOUTS: list[Layout] = [
    ({}, ()),
    ({**FEED, "delta.columnMapping.mode": "name"}, ("p",)),
    (VECTORS, ("p",)),
    ({**FEED, **VECTORS, "delta.columnMapping.mode": "name"}, ()),
]
WORKS: dict[str, Any] = {
    "a few rows": lambda table, spark: table.delete("id % 10 = 3 OR s.x BETWEEN 14 AND 15", spark=spark),
    "nulls and NaN": lambda table, spark: table.delete("NOT (f < 5 AND p = 'p1')", spark=spark),
    "a whole file and a part": lambda table, spark: table.delete("id >= 8", spark=spark),
    "a new column": lambda table, spark: table.delete("n IS NULL AND id < 3", spark=spark),
    "no row": lambda table, spark: table.update({"id": "id + 1"}, "id > 99", spark=spark),
    "all rows": lambda table, spark: table.update({"n": "id * 2"}, spark=spark),
    "nothing in columns": lambda table, spark: table.update({"f": "NULL", "s": "null"}, "id > 8", spark=spark),
    "several columns": lambda table, spark: table.update(
        {"id": "-id", "f": "id", "p": "'new'"}, "t < TIMESTAMP'2024-01-07T00:00:00Z' AND p LIKE 'p%'", spark=spark
    ),
    "rows that Spark finds": lambda table, spark: table.delete("substring(p, 2) = '1' OR length(s.y) > 3", spark=spark),
    "rows of a column": lambda table, spark: table.update(
        {"n": "7", "f": "f / 2"}, F.col("id") > 11, spark=spark
    ).table.delete(F.pmod("id", F.lit(4)) == 3, spark=spark),
    "what is already deleted": lambda table, spark: (
        table.delete("id % 4 = 1", spark=spark)
        .table.update({"f": "f + 1"}, "id % 2 = 1", spark=spark)
        .table.delete("id % 3 = 0", spark=spark)
    ),
}


FOR_SPARK = {"rows that Spark finds", "rows of a column"}
"""The works that start Spark."""


@written_once
def written_table(spark: SparkSession, place: Path, properties: dict[str, str], split: tuple[str, ...]) -> Table:
    """Rows 0 to 19, half of them in files of a narrower type and without the last column."""
    table = widen.create_table(
        str(place), COLUMNS, partition_by=split, properties={"delta.enableTypeWidening": "true", **properties}
    )
    table.append(spark.sql(ROWS.format(first=0, last=10)).coalesce(1))
    table.alter_column("id", type="bigint")
    table.add_columns({"n": "int"})
    rows = spark.sql(ROWS.format(first=10, last=20)).selectExpr("*", "id + 100 AS n")
    return table.append(rows.coalesce(1)).table


def told(spark: SparkSession, table: Table, first: int) -> tuple[Any, ...]:
    """What a table has now, what it has recorded, and what its last commit says of that."""
    table = table.refresh()
    _, parameters, numbers = last_commit(table)
    counts = {name: count for name, count in numbers.items() if name in ("numUpdatedRows", "numDeletedRows")}
    recorded = []
    if table.properties.get("delta.enableChangeDataFeed") == "true":
        recorded = sorted(map(repr, table.changes(first, spark=spark).drop("_commit_timestamp").collect()))
    rows = sorted(map(repr, table.read(spark=spark).collect()))
    assert len(rows) == table.to_arrow().num_rows
    live = sum(json.loads(add["stats"])["numRecords"] - cardinality(add) for add in actions(table, "add"))
    assert live <= len(rows)
    return rows, parameters, counts, recorded


def cardinality(add: dict[str, Any]) -> int:
    """How many rows the deletion vector of a file marks."""
    vector = add.get("deletionVector")
    return vector["cardinality"] if vector else 0


@pytest.mark.parametrize(("work", "layout"), covering(WORKS, LAYOUTS), ids=layout_name)
def test_arrow_changes_what_spark_changes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, work: str, layout: Layout
) -> None:
    properties, split = layout
    found, starts = [], []
    here: Any = LocalSession(Engine.AUTO, lambda reason: starts.append(reason) or spark)
    # A lane may not do what another one does.
    for lane, refused in (("arrow", "change_in_place"), ("spark", "change_files"), ("here", "change_in_place")):
        table = written_table(spark, tmp_path / lane, properties, split)
        first = table.version + 1
        with monkeypatch.context() as patched:
            patched.setattr(update_delete, refused, refuse)
            WORKS[work](table, here if lane == "here" else spark)
        found.append(told(spark, table, first) if table.refresh().version >= first else table.version)
        assert leftovers(table) == []
    assert found[0] == found[1]
    assert found[0] == found[2]
    assert bool(starts) == (work in FOR_SPARK), starts


def refuse(*_: object) -> None:
    raise Unsupported("it is not for this lane")


@pytest.mark.parametrize(("properties", "split"), LAYOUTS, ids=layout_name)
def test_tasks_do_the_same_with_large_files(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    properties: dict[str, str],
    split: tuple[str, ...],
) -> None:
    found = []
    for lane in ("here", "tasks"):
        table = written_table(spark, tmp_path / lane, properties, split)
        first = table.version + 1
        if lane == "tasks":
            monkeypatch.setattr(arrow_changes, "CHANGED_BYTES", 0)
            monkeypatch.setattr(arrow_changes, "CHANGE_TASK_BYTES", 1_000)
        monkeypatch.setattr(update_delete, "change_in_place", refuse)
        table.update({"n": "id + 1"}, "id % 3 = 1", spark=spark).table.delete("id > 7 OR f IS NULL", spark=spark)
        table.refresh().update({"p": "'here'"}, "pmod(id, 4) IN (0, 2)", spark=spark)
        found.append(told(spark, table, first))
        assert leftovers(table) == []
    assert found[0] == found[1]


@pytest.mark.parametrize("most_bytes", [0, 2**20], ids=["in tasks", "here"])
def test_what_breaks_a_rule_is_named_and_leaves_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most_bytes: int
) -> None:
    monkeypatch.setattr(arrow_changes, "CHANGED_BYTES", most_bytes)
    starts: list[str] = []
    session: Any = LocalSession(Engine.AUTO, lambda reason: starts.append(reason) or spark) if most_bytes else spark
    table = widen.create_table(str(tmp_path), "id int NOT NULL, small smallint, n int")
    table.append(spark.sql("SELECT CAST(id AS int) id, 1S small, CAST(id AS int) n FROM range(10)"))
    table.add_constraint("positive", "n >= 0", spark=spark)
    with pytest.raises(CheckViolated, match="positive"):
        table.update({"n": "n - 5"}, "id < 5", spark=session)
    assert starts == []
    with pytest.raises(AssignedOverflow, match="9999"):
        table.update({"small": "40000"}, "id = 3", spark=session)
    with pytest.raises(NotNullViolated):
        table.update({"id": "CASE WHEN id > 5 THEN id END"}, "n > 4", spark=session)
    with pytest.raises(JobFailed, match=r"(?i)overflow"):
        table.delete("n + 2147483647 > 0", spark=session)
    assert leftovers(table) == []
    assert table.update({"n": "n + 1"}, "id = 3", spark=session).version == 3
