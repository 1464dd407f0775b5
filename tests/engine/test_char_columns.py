"""Columns of char(n): reads pad their texts on both engines, and conditions find the rows that Delta Lake finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from support.char_columns import FOR_SPARK, FOUND, READ, write_table
from support.one_job import collect_each
from widen.files.expressions import query_locally
from widen.spark.engine import Engine, LocalSession, Unsupported
from widen.table import Table


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Table:
    return write_table(tmp_path_factory.mktemp("char") / "t")


def test_texts_are_padded(spark: SparkSession, table: Table) -> None:
    assert sorted(table.to_arrow().to_pylist(), key=lambda row: row["id"]) == READ
    assert [row.asDict(recursive=True) for row in table.read(spark=spark).orderBy("id").collect()] == READ


def test_conditions_find_the_same_rows(spark: SparkSession, table: Table) -> None:
    for condition, ids in FOUND.items():
        here = query_locally(table.snapshot, condition, ["id"])[1]["id"].to_pylist()
        assert sorted(here) == ids, condition
    for condition in FOR_SPARK:
        with pytest.raises(Unsupported):
            query_locally(table.snapshot, condition, ["id"])
    conditions = FOUND | FOR_SPARK
    frames = [table.read(where=each, spark=spark).select("id") for each in conditions]
    found = [sorted(number for (number,) in each) for each in collect_each(frames)]
    assert dict(zip(conditions, found, strict=True)) == conditions
    pushed = [*conditions][::6]  # into the files, whose texts are shorter
    found = collect_each([table.read(spark=spark).where(each).select("id") for each in pushed])
    assert [sorted(number for (number,) in each) for each in found] == [conditions[each] for each in pushed]
    names = [f"c{at}" for at in range(len(conditions))]
    marked = table.read(spark=spark).selectExpr(
        "id", *(f"{condition} AS {name}" for condition, name in zip(conditions, names, strict=True))
    )
    rows = marked.orderBy("id").collect()
    assert {
        each: [row.id for row in rows if row[name]] for each, name in zip(conditions, names, strict=True)
    } == conditions


BOTH = "p <> 'ab' AND c > 'ab'"


@pytest.mark.parametrize(
    ("condition", "engine"), [("p = 'ab'", "local"), ("c = 'ab '", "spark"), (BOTH, "spark"), (BOTH, "local")]
)
def test_a_deletion_removes_these_rows(spark: SparkSession, tmp_path: Path, engine: str, condition: str) -> None:
    table = write_table(tmp_path / "t")
    table.set_properties({"delta.enableDeletionVectors": "true"})
    session: Any = spark if engine == "spark" else LocalSession(Engine.AUTO, lambda _: spark)
    gone = {"p = 'ab'": [1, 2], "c = 'ab '": [1], "p <> 'ab' AND c > 'ab'": [3]}[condition]
    left = Table(table.location).delete(condition, spark=session).table.to_arrow()["id"].to_pylist()
    assert sorted(left) == [number for number in range(1, 6) if number not in gone]
