"""An existing Delta table: it widens only if type widening is on, and the plan says how to turn it on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import widen
from support.command_line import run, run_json
from widen.errors import LimitExceeded, TypeChangeRefused
from widen.model.types import DOUBLE, INTEGER
from widen.schema.operations import WidenType

ON = ("delta.enableTypeWidening", "true")


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A table that an ingestion did not create: protocol 1, 2, and no type widening."""
    table = widen.create_table(str(tmp_path / "t"), "id int, total int")
    assert ON[0] not in table.properties
    return str(tmp_path / "t")


@pytest.fixture
def source(tmp_path: Path) -> str:
    path = tmp_path / "a.json"
    path.write_text('{"id": 1, "total": 12}\n{"id": 2, "total": 12.5}\n')
    return str(path)


def columns(table: str) -> dict[str, str]:
    return {field.name: field.type.sql for field in widen.Table(table).schema}


def test_a_plan_says_what_would_widen_and_how(spark: SparkSession, table: str, source: str) -> None:
    plan = widen.plan(source, table, spark=spark)
    assert plan.widenable == (WidenType(("total",), INTEGER, DOUBLE),)
    shown = run("plan", source, "--into", table)
    assert shown.exit_code == 2
    assert "widen total from int to double" in shown.stdout
    assert "--enable-type-widening" in shown.stdout
    listed = json.loads(run("plan", source, "--into", table, "--json").stdout)["widenable"]
    assert [each["path"] for each in listed] == [["total"]]
    done = run("ingest", source, "--into", table)
    assert "--enable-type-widening" in done.stdout
    assert columns(table) == {"id": "int", "total": "int", "total_double": "double"}


def test_it_is_turned_on_with_the_commit(spark: SparkSession, table: str, source: str) -> None:
    planned = widen.plan(source, table, enable_type_widening=True, spark=spark)
    assert (planned.enables_widening, planned.widenable) == (True, ())
    done = run("ingest", source, "--into", table, "--enable-type-widening", "--verify", "--plan-hash", planned.hash)
    assert done.exit_code == 0, done.stderr
    assert "do not support the table feature typeWidening" in done.stdout
    assert columns(table) == {"id": "int", "total": "double"}
    opened = widen.Table(table)
    assert (opened.version, ON in opened.properties.items()) == (1, True)
    assert "typeWidening" in opened.snapshot.protocol.reader_features
    again = widen.plan(source, table, enable_type_widening=True, spark=spark)
    assert (again.is_empty, again.enables_widening) == (True, False)


def test_a_batch_that_changes_nothing_else_turns_it_on(spark: SparkSession, table: str, tmp_path: Path) -> None:
    (tmp_path / "b.json").write_text('{"id": 1}\n')
    config = tmp_path / "c.toml"
    config.write_text("enable_type_widening = true\n")
    words = (str(tmp_path / "b.json"), "--into", table, "--config", str(config))
    assert run("plan", *words).exit_code == 2
    assert run_json("ingest", *words)["plan"]["enablesTypeWidening"] is True
    assert ON in widen.Table(table).properties.items()


def test_by_key_in_mode_split_and_in_a_stream(spark: SparkSession, table: str, source: str, tmp_path: Path) -> None:
    (tmp_path / "first.json").write_text('{"id": 1, "total": 3}\n')
    widen.ingest(str(tmp_path / "first.json"), table, key=["id"], spark=spark)
    widen.ingest(source, table, key=["id"], enable_type_widening=True, spark=spark)
    rows = widen.Table(table).read(spark=spark).collect()
    assert sorted((row.id, row.total) for row in rows) == [(1, 12.0), (2, 12.5)]

    other = str(tmp_path / "split")
    widen.create_table(other, "id int, total int")
    widen.ingest(source, other, evolve="split", enable_type_widening=True, spark=spark)
    assert columns(other) == {"id": "int", "total": "int", "total_double": "double"}
    assert ON in widen.Table(other).properties.items()

    followed, landing = str(tmp_path / "followed"), tmp_path / "in"
    landing.mkdir()
    (landing / "a.json").write_text('{"id": 2, "total": 12.5}\n')
    widen.create_table(followed, "id int, total int")
    words = ("--into", followed, "--once", "--checkpoint", str(tmp_path / "cp"), "--enable-type-widening")
    assert run("ingest", str(landing), *words).exit_code == 0
    assert columns(followed) == {"id": "int", "total": "double"}


def test_a_flow_turns_it_on_in_its_target(spark: SparkSession, table: str, source: str, tmp_path: Path) -> None:
    bronze = str(tmp_path / "bronze")
    widen.ingest(source, bronze, spark=spark)
    done = run(
        *("flow", bronze, "--into", table, "--checkpoint", str(tmp_path / "cp"), "--once"), "--enable-type-widening"
    )
    assert done.exit_code == 0, done.stderr
    assert columns(table) == {"id": "int", "total": "double"}


def test_alter_says_the_command_that_turns_it_on(table: str) -> None:
    done = run("alter", table, "total", "--type", "bigint")
    assert done.exit_code == 1
    assert "`widen properties TABLE --set delta.enableTypeWidening=true`" in done.stderr
    with pytest.raises(TypeChangeRefused):
        widen.Table(table).alter_column("total", type="bigint")


def test_an_interval_over_a_limit_stops_a_stream_until_the_file_is_repaired(
    spark: SparkSession, tmp_path: Path
) -> None:
    landing, table = tmp_path / "in", str(tmp_path / "t")
    landing.mkdir()
    (landing / "1.json").write_text('{"n": 1}\n')
    words = (str(landing), "--into", table, "--once", "--checkpoint", str(tmp_path / "cp"), "--max-corrupt", "0")
    assert run("ingest", *words).exit_code == 0
    (landing / "2.json").write_text('{"n": 2}\nnot JSON\n')
    done = run("ingest", *words)
    assert (done.exit_code, widen.Table(table).version) == (3, 0)
    assert "1 of 2 lines are not records" in done.stderr
    assert run("ingest", *words).exit_code == 3

    (landing / "2.json").write_text('{"n": 2}\n{"n": 3}\n')
    (landing / "3.json").write_text('{"n": 4}\n')
    assert run("ingest", *words).exit_code == 0
    assert sorted(row.n for row in widen.Table(table).read(spark=spark).collect()) == [1, 2, 3, 4]


def test_every_limit_applies_to_a_stream(spark: SparkSession, tmp_path: Path) -> None:
    landing, table = tmp_path / "in", str(tmp_path / "t")
    landing.mkdir()
    widen.create_table(table, "n int, day date", partition_by=["day"])
    (landing / "1.json").write_text('{"n": 1, "day": "soon"}\n{"n": 2, "day": "2024-01-01", "tags": ["a"]}\n')
    start = {"into": table, "checkpoint": str(tmp_path / "cp"), "once": True, "spark": spark}
    with pytest.raises(LimitExceeded, match="1 of 2 records do not fit fixed columns"):
        widen.ingest_stream(str(landing), **start, max_quarantined=0).wait()
    (landing / "1.json").write_text('{"n": [1], "day": "2024-01-01"}\n')
    with pytest.raises(LimitExceeded, match="changes of the grade structural or worse"):
        widen.ingest_stream(str(landing), **start, fail_on="structural").wait()
    assert widen.Table(table).version == 0
    assert widen.ingest_stream(str(landing), **start).wait()
    assert widen.Table(table).version == 1


WHEN_NEEDED = {"widen.typeWidening": "whenNeeded"}


def insert_wider(table: widen.Table, wider: DataFrame) -> None:
    table.append(wider, merge_schema=True, widening="always")


def merge_wider(table: widen.Table, wider: DataFrame) -> None:
    merge = table.merge(wider, "t.id = s.id", merge_schema=True, widening="always")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()


def overwrite_wider(table: widen.Table, wider: DataFrame) -> None:
    table.overwrite(wider, merge_schema=True, widening="always")


def save_wider(table: widen.Table, wider: DataFrame) -> None:
    widen.register(wider.sparkSession)
    writer = wider.write.format("widen").mode("append").option("mergeSchema", "true").option("widening", "always")
    writer.save(table.location)


@pytest.mark.parametrize("write", [insert_wider, merge_wider, overwrite_wider, save_wider])
def test_every_write_brings_the_feature_with_the_first_type_change(
    spark: SparkSession, tmp_path: Path, write: Callable[[widen.Table, DataFrame], None]
) -> None:
    table = widen.create_table(tmp_path / "t", "id int, total int", properties=WHEN_NEEDED)
    table.append(spark.createDataFrame([(1, 12)], "id int, total int"))
    assert table.snapshot.protocol.min_reader_version == 1
    write(table, spark.createDataFrame([(2, 12.5)], "id int, total double"))
    table.refresh()
    assert (table.version, columns(table.location)["total"]) == (2, "double")
    assert "typeWidening" in table.snapshot.protocol.reader_features
    assert table.properties == dict([ON])
    assert {(2, 12.5)} <= {(row["id"], row["total"]) for row in table.to_arrow().to_pylist()}
