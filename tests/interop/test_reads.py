"""Every pair of the matrix at every depth, read across engines: one writes, one widens, each reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession

from interop import rows
from support import every_pair
from support.every_pair import PROPERTIES, assert_holds, changes, columns, spelled
from support.type_change import CASES
from widen.files.predicates import bind_condition
from widen.frames.scan import plan_read
from widen.table import Table, create_table

MAPPINGS = ["none", "name", "id"]


# ---- who writes, who widens, who reads -------------------------------------------------------------


def write_ours(spark: SparkSession, place: str, mapping: str) -> None:
    table = create_table(place, columns("old"), properties={**PROPERTIES, "delta.columnMapping.mode": mapping})
    table.append(old_rows(spark))


def write_delta(spark: SparkSession, place: str, mapping: str) -> None:
    properties = {**PROPERTIES, "delta.columnMapping.mode": mapping}
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in properties.items())
    spark.sql(f"CREATE TABLE delta.`{place}` ({columns('old')}) USING delta TBLPROPERTIES ({listed})")
    old_rows(spark).write.format("delta").mode("append").save(place)


def write_with_deltalake(spark: SparkSession, place: str, mapping: str) -> None:
    write_deltalake(place, old_rows(spark).toArrow())
    Table(place).set_properties({**PROPERTIES, "delta.columnMapping.mode": mapping})


def widen_ours(spark: SparkSession, place: str) -> None:
    Table(place).alter_columns({path: {"type": new} for path, new in changes()})


def widen_delta(spark: SparkSession, place: str) -> None:
    listed = ", ".join(f"{path} TYPE {new}" for path, new in changes())
    spark.sql(f"ALTER TABLE delta.`{place}` ALTER COLUMN {listed}")


def append_ours(place: str, new: DataFrame) -> None:
    Table(place).append(new)


def append_delta(place: str, new: DataFrame) -> None:
    new.write.format("delta").mode("append").save(place)


def old_rows(spark: SparkSession) -> DataFrame:
    return rows.frame(spark, every_pair.rows("before"), columns("old")).coalesce(1)


def new_rows(spark: SparkSession) -> DataFrame:
    return rows.frame(spark, every_pair.rows("after", first_id=1000), columns("new")).coalesce(1)


EXPECTED = (every_pair.rows("widened"), every_pair.rows("after", first_id=1000))


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_delta_reads_every_pair_that_we_wrote_and_widened(spark: SparkSession, tmp_path: Path, mapping: str) -> None:
    place = str(tmp_path / "table")
    write_ours(spark, place, mapping)
    widen_ours(spark, place)
    append_ours(place, new_rows(spark))
    found = spark.read.format("delta").load(place)
    assert rows.shape(found) == rows.to_schema(columns("new")).simpleString()
    assert_holds(found.collect(), *EXPECTED)


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_we_read_every_pair_that_delta_wrote_and_widened(spark: SparkSession, tmp_path: Path, mapping: str) -> None:
    place = str(tmp_path / "table")
    write_delta(spark, place, mapping)
    widen_delta(spark, place)
    append_delta(place, new_rows(spark))
    found = Table(place).read(spark=spark)
    assert rows.shape(found) == rows.to_schema(columns("new")).simpleString()
    assert_holds(found.collect(), *EXPECTED)


@pytest.mark.parametrize("write", [write_ours, write_with_deltalake])
def test_delta_widens_what_others_wrote_and_both_read_it(
    spark: SparkSession, tmp_path: Path, write: Callable[[SparkSession, str, str], None]
) -> None:
    place = str(tmp_path / "table")
    write(spark, place, "none")
    widen_delta(spark, place)
    append_ours(place, new_rows(spark))
    assert_holds(spark.read.format("delta").load(place).collect(), *EXPECTED)
    assert_holds(Table(place).read(spark=spark).collect(), *EXPECTED)


@pytest.mark.parametrize("write", [write_delta, write_with_deltalake])
def test_we_widen_what_others_wrote_and_both_read_it(
    spark: SparkSession, tmp_path: Path, write: Callable[[SparkSession, str, str], None]
) -> None:
    place = str(tmp_path / "table")
    write(spark, place, "none")
    widen_ours(spark, place)
    append_delta(place, new_rows(spark))
    assert_holds(spark.read.format("delta").load(place).collect(), *EXPECTED)
    assert_holds(Table(place).read(spark=spark).collect(), *EXPECTED)
    assert hidden(Table(place)) == []


def hidden(table: Table) -> list[str]:
    """Return the conditions that are true of an old value, and leave out the file that holds it."""
    values = [(case.name, value) for case in CASES for value in case.widened if value == value]
    wheres = [
        f"{column} {sign} {spelled(value)}"
        for name, value in values
        for column in (f"{name}_top", f"{name}_inside.x")
        for sign in ("=", "<=", ">=")
    ]
    (old,) = (path for path in paths(table, "id = 0"))
    return [where for where in wheres if old not in paths(table, where)]


def paths(table: Table, where: str) -> list[Any]:
    groups = plan_read(table.snapshot, bind_condition(where, table.snapshot.schema)).groups
    return [path for group in groups for path in group.files["path"].to_pylist()]
