"""Flows: what changes in one table arrives in the next, whatever its schema becomes."""

from __future__ import annotations

import contextlib
import json
import os
import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import widen
from support.command_line import run
from support.fault import FULL
from support.flow_drift import DRIFTS, Drift, comparable, create_bronze, drift_and_append, to_gold, to_silver
from widen.errors import (
    FlowChanged,
    FlowKeyRefused,
    InvalidOption,
    LimitExceeded,
    SourceHistoryLost,
    SourceRowsRemoved,
)
from widen.log.log_store import LogStore
from widen.table import Table, create_table

SILVER = "SELECT id, day, amount * 2 AS twice FROM source"
GOLD = "SELECT day, sum(twice) AS total, count(*) AS orders FROM source GROUP BY day"


class Lake:
    """Tables in a folder, and flows between them."""

    def __init__(self, spark: SparkSession, place: Path) -> None:
        self.spark, self.place = spark, place
        self.runs, self.saved = [0], b""

    def table(self, name: str) -> Table:
        return Table(str(self.place / name))

    def add(self, query: str, name: str = "bronze") -> None:
        widen.ingest(self.spark.sql(query), str(self.place / name))

    def step(self, source: str, into: str, **words: Any) -> list[widen.FlowBatch]:
        words = {"checkpoint": str(self.place / f"_flows_{into}"), "once": True, "spark": self.spark, **words}
        return widen.flow(str(self.place / source), str(self.place / into), **words).batches

    def run(self) -> None:
        self.step("bronze", "silver", sql=SILVER, keys=["id"])
        self.step("silver", "gold", sql=GOLD, keys=["day"])

    def rows(self, name: str) -> list[tuple[Any, ...]]:
        return sorted((tuple(row) for row in self.table(name).read(spark=self.spark).collect()), key=repr)


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return Lake(spark, tmp_path)


def test_rows_arrive_with_updates_and_deletes(lake: Lake) -> None:
    lake.add("SELECT id, IF(id < 3, 'mon', 'tue') day, CAST(id AS int) amount FROM range(5) t(id)")
    lake.run()
    assert lake.rows("gold") == [("mon", 6, 3), ("tue", 14, 2)]
    bronze = lake.table("bronze")
    bronze.update({"amount": "100"}, "id = 4")
    bronze.delete("day = 'mon'")
    lake.add("SELECT CAST(9 AS bigint) id, 'wed' day, CAST(5000000000 AS bigint) amount")
    lake.run()
    assert lake.rows("gold") == [("tue", 206, 2), ("wed", 10000000000, 1)]
    assert [field.type.sql for field in lake.table("silver").schema] == ["bigint", "string", "bigint"]


LIKE_OTHERS = {
    *("tinyint_to_int", "tinyint_to_bigint", "tinyint_to_double", "smallint_to_int", "smallint_to_bigint"),
    *("smallint_to_decimal_10_0", "smallint_to_double", "int_to_decimal_12_2", "decimal_5_2_to_decimal_7_2"),
}
"""The drifts of a run with all faults only: others change the same kinds of types."""


def _rounds() -> list[list[Drift]]:
    """One drift a round with all faults, else two rounds of several."""
    drifts = [drift for drift in DRIFTS if FULL in os.environ or drift.column not in LIKE_OTHERS]
    size = 1 if FULL in os.environ else -(-len(drifts) // 2)
    return [drifts[at : at + size] for at in range(0, len(drifts), size)]


@pytest.mark.parametrize("feed", ["true", "false"] if FULL in os.environ else ["true"])
def test_drifts_run_through_a_chain_without_a_stop(lake: Lake, feed: str) -> None:
    """Gold is what a batch makes of bronze, after each round of drifts with an update and a deletion."""
    words = {"delta.enableChangeDataFeed": feed, "delta.enableDeletionVectors": feed}
    rounds = _rounds()
    bronze = create_bronze(
        lake.spark, str(lake.place / "bronze"), [each for drifts in rounds for each in drifts], **words
    )
    for number, drifts in enumerate([[], *rounds]):
        if drifts:
            drift_and_append(lake.spark, bronze, drifts, 10 + number)
            bronze.update({"day": "'wed'"}, f"id = {number - 1}")
            bronze.delete(f"id = {number + 9}" if number > 1 else "id = 3")
        lake.step("bronze", "silver", transform=to_silver, keys=["id"])
        lake.step("silver", "gold", transform=to_gold, keys=["day"])
        rows = bronze.refresh().read(spark=lake.spark)
        assert comparable(lake.table("silver").read(unified=True)) == comparable(to_silver(rows))
        assert comparable(lake.table("gold").read(unified=True)) == comparable(to_gold(to_silver(rows)))


# ---- without keys ----------------------------------------------------------------------------------


def test_added_rows_are_appended_and_removed_ones_are_told(lake: Lake) -> None:
    lake.add("SELECT explode(array(0, 1)) id")
    lake.add("SELECT explode(array(2, 3)) id")
    parts = lake.step("bronze", "archive", max_bytes=1)
    assert [(each.part, each.first, each.last) for each in parts] == [(0, 1, 1), (1, 1, 1)]
    bronze = lake.table("bronze")
    bronze.optimize()
    bronze.set_properties({"a": "b"})
    (nothing,) = lake.step("bronze", "archive", max_bytes=1)
    assert (nothing.first, nothing.last, nothing.result) == (2, bronze.version, None)
    lake.add("SELECT 9 id, 'x' kind")
    bronze.refresh().delete("id = 0")
    with pytest.raises(SourceRowsRemoved, match=f"version {bronze.version}"):
        lake.step("bronze", "archive")
    (skipping,) = lake.step("bronze", "archive", removed="skip")
    assert skipping.skipped == (bronze.version,)
    assert lake.rows("archive") == [(0, None), (1, None), (2, None), (3, None), (9, "x")]
    assert lake.step("bronze", "archive") == []


def test_a_query_that_the_first_version_does_not_fit_waits_for_a_later_one(lake: Lake) -> None:
    lake.add("SELECT 1 id")
    for _ in range(2):
        with pytest.raises(InvalidOption, match="`n` cannot be resolved"):
            lake.step("bronze", "archive", sql="SELECT id, n FROM source")
    lake.add("SELECT 2 id, 5 n")
    lake.step("bronze", "archive", sql="SELECT id, n FROM source")
    assert lake.rows("archive") == [(1, None), (2, 5)]


def test_a_query_that_fails_leaves_the_parts_of_another_process_alone(lake: Lake) -> None:
    for number in range(3):
        lake.add(f"SELECT {number} id")
    calls: list[int] = []

    def transform(rows: DataFrame) -> DataFrame:
        calls.append(1)
        if len(calls) == 1:  # another process commits the first part, and then both fail
            lake.step("bronze", "archive", transform=transform, max_bytes=1)
        if len(calls) == 3:
            raise OSError("no route to host")
        return rows

    with pytest.raises(OSError, match="no route"):
        lake.step("bronze", "archive", transform=transform, max_bytes=1)
    assert len(lake.rows("archive")) == 1
    lake.table("bronze").optimize()
    lake.step("bronze", "archive", transform=transform, max_bytes=1)
    assert lake.rows("archive") == [(0,), (1,), (2,)]


def test_rows_that_fixed_columns_cannot_hold_wait_in_quarantine(lake: Lake) -> None:
    lake.add("SELECT 1 id, 1 n")
    create_table(str(lake.place / "archive"), "id int, n int").add_constraint("small", "n < 10")
    lake.add("SELECT 2 id, 50 n")
    (batch,) = lake.step("bronze", "archive")
    assert batch.result is not None
    assert (batch.result.records, batch.result.quarantined) == (1, 1)
    lake.table("archive").drop_constraint("small")
    assert widen.replay(str(lake.place / "archive_quarantine"), str(lake.place / "archive")).replayed == 1
    assert lake.rows("archive") == [(1, 1), (2, 50)]


def test_corrupt_and_evolved_columns_keep_their_names_and_comments(lake: Lake, tmp_path: Path) -> None:
    source = tmp_path / "drift.json"
    bronze, silver, gold = (str(tmp_path / name) for name in ("bronze", "silver", "gold"))
    for text in ('{"id":1,"a":1}\nnot json', '{"id":2,"a":"x"}'):
        source.write_text(text)
        widen.ingest(str(source), into=bronze, spark=lake.spark)
    for first, then in ((bronze, silver), (silver, gold)):
        widen.flow(first, into=then, checkpoint=f"{then}.checkpoint", once=True, spark=lake.spark)
        old, new = widen.Table(first).schema, widen.Table(then).schema
        assert sorted(new.names) == sorted(old.names)
        comments = {field.name: field.metadata.get("comment") for field in old}
        assert {field.name: field.metadata.get("comment") for field in new} == comments
        columns = sorted(old.names)
        read = [
            sorted(map(repr, widen.Table(each).read(spark=lake.spark).select(*columns).collect()))
            for each in (first, then)
        ]
        assert read[0] == read[1]


def test_a_flow_writes_iceberg(lake: Lake) -> None:
    lake.add("SELECT 1 id, CAST(1 AS int) n")
    words = {"checkpoint": str(lake.place / "cp"), "once": True, "catalog": str(lake.place / "lake.db")}
    widen.flow(str(lake.place / "bronze"), "a.b", spark=lake.spark, **words)
    lake.add("SELECT 2 id, CAST(5000000000 AS bigint) n")
    widen.flow(str(lake.place / "bronze"), "a.b", spark=lake.spark, **words)
    rows = widen.IcebergTable("a.b", catalog=words["catalog"]).read(spark=lake.spark).select("id", "n").collect()
    assert sorted(map(tuple, rows)) == [(1, 1), (2, 5000000000)]


# ---- with keys -------------------------------------------------------------------------------------


def test_every_change_of_the_source_arrives(lake: Lake) -> None:
    """Null keys, keys that are expressions, an overwrite, a restore, a rename, and a feed that the target records."""
    words = {"delta.enableChangeDataFeed": "true", "delta.columnMapping.mode": "name"}
    bronze = create_table(str(lake.place / "bronze"), "at timestamp_ntz, n int", properties=words)
    create_table(str(lake.place / "days"), "day date, total bigint", properties=words)
    query = "SELECT to_date(at) AS day, sum(n) AS total FROM source GROUP BY 1 -- for each day"
    keys = {"day": "to_date(at)"}

    def run() -> list[tuple[str, int]]:
        lake.step("bronze", "days", sql=query, keys=keys)
        return [(str(day), total) for day, total in lake.rows("days")]

    def append(values: str) -> None:
        bronze.refresh().append(lake.spark.sql(f"SELECT at, n FROM VALUES {values} AS t(at, n)"))

    append("(timestamp_ntz'2024-01-01 10:00', 1), (timestamp_ntz'2024-01-01 11:00', 2), (null, 5)")
    begun = bronze.version
    assert run() == [("None", 5), ("2024-01-01", 3)]
    before = lake.table("days").version
    append("(null, 6), (timestamp_ntz'2024-01-02 10:00', 4)")
    bronze.delete("n = 1")
    assert run() == [("None", 11), ("2024-01-01", 2), ("2024-01-02", 4)]
    feed = lake.table("days").changes(before + 1, spark=lake.spark).groupBy("_change_type").count().collect()
    assert sorted(map(tuple, feed)) == [("delete", 2), ("insert", 3)]
    bronze.overwrite(lake.spark.sql("SELECT timestamp_ntz'2024-01-03 10:00' AS at, 7 AS n"))
    assert run() == [("2024-01-03", 7)]
    bronze.restore(begun)
    assert run() == [("None", 5), ("2024-01-01", 3)]
    bronze.refresh().rename_column("n", "m")
    with pytest.raises(InvalidOption, match="Spark says"):
        run()
    bronze.rename_column("m", "n")
    bronze.delete()
    assert run() == []


def test_files_without_the_keys_of_a_batch_are_not_read(lake: Lake) -> None:
    create_table(str(lake.place / "bronze"), "k date, n int")
    silver = lake.place / "silver"
    files: dict[str, Path] = {}
    for key in ("date'0001-01-02'", "date'2024-01-01'", "NULL"):
        lake.table("bronze").append(lake.spark.sql(f"SELECT CAST({key} AS date) AS k, 1 AS n"))
        lake.step("bronze", "silver", keys=["k"])
        (files[key],) = {*silver.glob("**/*.parquet")} - {*files.values()}
    lake.table("bronze").update({"n": "2"}, "k = '2024-01-01' OR k IS NULL")
    hidden = files["date'0001-01-02'"].rename(silver / "hidden")
    lake.step("bronze", "silver", keys=["k"])
    hidden.rename(files["date'0001-01-02'"])
    found = {None if day is None else day.year: n for day, n in lake.rows("silver")}
    assert found == {1: 1, 2024: 2, None: 2}


def test_a_key_must_tell_which_rows_to_replace(lake: Lake) -> None:
    lake.add("SELECT 1 id, 'mon' day, 1 n")
    for query, keys in (("SELECT n FROM source", ["id"]), ("SELECT id + 1 AS id FROM source", ["id"]), (None, ["x"])):
        with pytest.raises(FlowKeyRefused):
            lake.step("bronze", "refused", sql=query, keys=keys)
    assert not (lake.place / "refused").exists()
    create_table(str(lake.place / "days"), "day date, n int")
    with pytest.raises(FlowKeyRefused, match="cannot hold"):
        lake.step("bronze", "days", sql="SELECT day, n FROM source", keys=["day"])
    create_table(str(lake.place / "small"), "day string, n int").add_constraint("small", "n < 1")
    with pytest.raises(LimitExceeded):
        lake.step("bronze", "small", sql="SELECT day, n FROM source", keys=["day"])
    assert lake.rows("days") == lake.rows("small") == []


def test_a_flow_that_is_another_one_is_told(lake: Lake) -> None:
    lake.add("SELECT 1 id, 1 n")
    lake.step("bronze", "silver", sql="SELECT id, n FROM source", keys=["id"])
    with pytest.raises(FlowChanged, match="its query was SELECT id, n"):
        lake.step("bronze", "silver", sql="SELECT id, n + 1 AS n FROM source", keys=["id"])
    with pytest.raises(FlowChanged, match="its keys were id"):
        lake.step("bronze", "silver", sql="SELECT id, n FROM source")
    lake.add("SELECT 7 id, 7 n", "silver")
    (batch,) = lake.step("bronze", "silver", sql="SELECT id, n + 1 AS n FROM source", keys=["id"], rebuild=True)
    assert batch.is_rebuild
    assert lake.rows("silver") == [(1, 2)]
    (lake.place / "_flows_silver" / "flow.json").unlink()
    assert lake.step("bronze", "silver", sql="SELECT id, n + 1 AS n FROM source", keys=["id"]) == []
    (lake.place / "bronze").rename(lake.place / "old")
    lake.add("SELECT 1 id, 1 n")
    with pytest.raises(FlowChanged, match="another table than before"):
        lake.step("bronze", "silver", sql="SELECT id, n + 1 AS n FROM source", keys=["id"])


def test_history_that_the_source_has_lost_is_told(lake: Lake) -> None:
    lake.add("SELECT 1 id, 1 n")
    lake.step("bronze", "silver", keys=["id"])
    bronze = lake.table("bronze")
    bronze.update({"n": "2"}, "id = 1")
    bronze.vacuum(0, force=True)
    with pytest.raises(SourceHistoryLost, match="deleted by a vacuum"):
        lake.step("bronze", "silver", keys=["id"])
    lake.step("bronze", "silver", keys=["id"], rebuild=True)
    assert lake.rows("silver") == [(1, 2)]


# ---- exactly once ----------------------------------------------------------------------------------


class Killed(BaseException):
    """The process ends here."""


def _kill_at(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """End the process before or after a write of this process to a log or a checkpoint."""
    calls = iter(range(1000))
    for name in ("put", "put_if_absent"):
        write = getattr(LogStore, name)

        def killed(*args: Any, write: Any = write) -> Any:
            if (call := next(calls)) == number // 2 and number % 2 == 0:
                raise Killed
            done = write(*args)
            if call == number // 2:
                raise Killed
            return done

        monkeypatch.setattr(LogStore, name, killed)


@pytest.mark.parametrize("keys", [None, ["id"]])
def test_a_flow_that_is_killed_anywhere_commits_each_row_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, keys: list[str] | None
) -> None:
    rng = random.Random(str(keys))
    kills = [*range(10)] * 10 if FULL in os.environ else rng.sample(range(8), 3)
    for row, number in enumerate(kills):
        lake.add(f"SELECT {row} id, {row} n")
        with monkeypatch.context() as patch:
            _kill_at(patch, number)
            with contextlib.suppress(Killed):
                lake.step("bronze", "silver", keys=keys)
        lake.add(f"SELECT {1000 + row} id, {row} n")
        lake.step("bronze", "silver", keys=keys)
        assert lake.rows("silver") == lake.rows("bronze")


def test_only_one_process_commits_a_batch(lake: Lake) -> None:
    """Another process runs the same flow while this one computes, from the checkpoint as it was before."""
    checkpoint = lake.place / "_flows_archive" / "flow.json"

    def interrupted(rows: DataFrame) -> DataFrame:
        if len(runs := lake.runs) == 1:
            runs.append(1)
            checkpoint.write_bytes(lake.saved)
            lake.add("SELECT 3 id")
            lake.step("bronze", "archive", transform=interrupted)
        return rows

    lake.runs, lake.saved = [0, 0], b""
    lake.add("SELECT 1 id")
    lake.step("bronze", "archive", transform=interrupted)
    lake.add("SELECT 2 id")
    lake.runs, lake.saved = [0], checkpoint.read_bytes()
    lake.step("bronze", "archive", transform=interrupted)
    assert lake.rows("archive") == [(1,), (2,), (3,)]


# ---- a chain in a file, and the command line -------------------------------------------------------


def test_a_chain_in_a_file_runs_until_it_is_stopped(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(lake.place)
    (lake.place / "chain.toml").write_text(
        f"""
        [[step]]
        source = "bronze"
        into = "silver"
        sql = "{SILVER}"
        keys = ["id"]
        checkpoint = "cp/silver"
        [[step]]
        source = "silver"
        into = "gold"
        sql = "{GOLD}"
        keys = {{day = "day"}}
        checkpoint = "cp/gold"
        """
    )
    create_table("bronze", "id int, day string, amount int", properties={"delta.enableTypeWidening": "true"})
    assert widen.flow_chain("chain.toml", once=True, spark=lake.spark).batches[0].result is None
    lake.add("SELECT 1 id, 'mon' day, 1 amount")
    seen: list[widen.FlowBatch] = []
    lake.spark.conf.set(default := "spark.databricks.delta.properties.defaults.enableDeletionVectors", "true")
    running = widen.flow_chain("chain.toml", every_seconds=0.1, spark=lake.spark, on_batch=seen.append)
    try:
        while len(seen) < 2:
            assert not running.wait(0.2)
        lake.add("SELECT 2 id, 'mon' day, CAST(5000000000 AS bigint) amount")
        while len(seen) < 4:
            assert not running.wait(0.2)
    finally:
        lake.spark.conf.unset(default)
        running.stop()
    assert running.wait()
    assert not running.is_active
    assert lake.table("silver").properties["delta.enableDeletionVectors"] == "true"
    assert lake.rows("gold") == [("mon", 10000000002, 2)]
    assert [each.into.rpartition("/")[2] for each in running.batches] == ["silver", "gold"] * 2


def test_the_command_line_tells_each_batch(lake: Lake) -> None:
    lake.add("SELECT 1 id, 'mon' day, 1 amount")
    words = ["flow", str(lake.place / "bronze"), "--into", str(lake.place / "silver"), "--keys", "id", "--once"]
    words += ["--checkpoint", str(lake.place / "cp"), "--sql", SILVER]
    shown = run(*words, "--json")
    (batch,) = map(json.loads, shown.stdout.splitlines())
    assert (batch["firstVersion"], batch["lastVersion"], batch["result"]["records"]) == (0, 0, 1)
    lake.table("bronze").delete("id = 1")
    assert "0 records" in run(*words).stdout
    assert lake.rows("silver") == []
    lake.table("bronze").set_properties({"a": "b"})
    assert "no row has changed" in run(*words).stdout
    failed = run(*words[:-1], "SELECT id FROM source")
    assert (failed.exit_code, "belongs to a different flow" in failed.stderr) == (1, True)
    assert run("flow", "a", "--once").exit_code == run("flow", "chain.toml", "--into", "t").exit_code == 1
