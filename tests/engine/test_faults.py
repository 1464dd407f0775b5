"""What `tests/property/test_log_faults.py` shows for the log, for the operations that run jobs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest import mock

import pytest
from pyspark.sql import SparkSession

from support.fault import FULL, Operation, chosen, complaints, faults_of, from_commit_on
from widen import ingest, replay
from widen.changes import rewrite_files
from widen.table import Table, create_table

CI_FAULTS = 2
"""How many faults of one operation a run takes that is not asked for all of them."""

EVERY_VERSION = {"delta.checkpointInterval": "1", "delta.enableTypeWidening": "true"}
RECORDS = [{"n": 1, "amount": 5}, {"n": 2, "amount": -5}, {"n": 3, "amount": -900}]
QUARANTINE = ("t", "t_quarantine")


def table(place: Path) -> Table:
    return Table(str(place / "t"))


def prepare(spark: SparkSession, place: Path) -> None:
    made = create_table(str(place / "t"), "n int, amount int", properties=EVERY_VERSION)
    made.append(spark.createDataFrame([(1, 5), (2, 6)], "n int, amount int").coalesce(1))
    write_source(place, {"n": 3, "amount": 7})


def prepare_old_types(spark: SparkSession, place: Path) -> None:
    prepare(spark, place)
    table(place).alter_column("n", type="long")


def prepare_constraint(spark: SparkSession, place: Path) -> None:
    made = create_table(str(place / "t"), "n int, amount int", properties=EVERY_VERSION)
    made.add_constraint("positive", "amount > 0", spark=spark)
    write_source(place, *RECORDS)


def prepare_quarantine(spark: SparkSession, place: Path) -> None:
    prepare_constraint(spark, place)
    ingest(str(place / "s.jsonl"), str(place / "t"), spark=spark)
    table(place).drop_constraint("positive")
    table(place).add_constraint("bounded", "amount > -100", spark=spark)


def prepare_small_files(spark: SparkSession, place: Path) -> None:
    """Two partitions of two files each: a compaction commits each partition on its own."""
    made = create_table(str(place / "t"), "n int, p int", partition_by=["p"], properties=EVERY_VERSION)
    for number in range(2):
        made.append(spark.sql(f"SELECT {number} AS n, int(id) AS p FROM range(2)").coalesce(1))


def compact(spark: SparkSession, place: Path) -> int:
    with mock.patch.object(rewrite_files, "BATCH_BYTES", 1):
        return table(place).optimize(spark=spark).version


def prepare_sibling(spark: SparkSession, place: Path) -> None:
    """A field with two columns, one of which can be folded and dropped."""
    properties = {**EVERY_VERSION, "delta.columnMapping.mode": "name"}
    create_table(str(place / "t"), "n int", properties=properties)
    write_source(place, {"n": 1, "v": 5})
    ingest(str(place / "s.jsonl"), str(place / "t"), spark=spark)
    write_source(place, {"n": 2, "v": "6"})
    ingest(str(place / "s.jsonl"), str(place / "t"), spark=spark)


def write_source(place: Path, *records: object) -> None:
    (place / "s.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))


def append(spark: SparkSession, place: Path) -> int:
    return table(place).append(spark.createDataFrame([(4, 4)], "n int, amount int")).version


def overwrite(spark: SparkSession, place: Path) -> int:
    return table(place).overwrite(spark.createDataFrame([(4, 4)], "n int, amount int")).version


def merge(spark: SparkSession, place: Path) -> int:
    rows = spark.createDataFrame([(2, 9), (5, 5)], "n int, amount int")
    clauses = table(place).merge(rows, "t.n = s.n").when_matched_update_all().when_not_matched_insert_all()
    return clauses.execute().version


def take(spark: SparkSession, place: Path, *, txn: tuple[str, int] | None = None) -> int:
    return ingest(str(place / "s.jsonl"), str(place / "t"), spark=spark, txn=txn).version


def release(spark: SparkSession, place: Path) -> int:
    return replay(str(place / "t_quarantine"), str(place / "t"), spark=spark).version


OPERATIONS = {
    "append": (prepare, append),
    "overwrite": (prepare, overwrite),
    "update": (
        prepare,
        lambda spark, place: table(place).update({"amount": "amount + 1"}, "n = 1", spark=spark).version,
    ),
    "delete": (prepare, lambda spark, place: table(place).delete("n = 1", spark=spark).version),
    "merge": (prepare, merge),
    "ingest": (prepare, take),
    "stream": (prepare, partial(take, txn=("stream", 7))),
    "rewrite": (prepare_old_types, lambda spark, place: table(place).rewrite(spark=spark).version),
    "optimize": (prepare_small_files, compact),
    "drop feature": (
        prepare_old_types,
        lambda spark, place: table(place).drop_feature("typeWidening", spark=spark).version,
    ),
    "fold": (prepare_sibling, lambda spark, place: table(place).fold("v_string", spark=spark).version),
    "ingest with quarantine": (prepare_constraint, take),
    "replay": (prepare_quarantine, release),
}
SEVERAL_COMMITS = ("optimize", "drop feature", "fold")
SEVERAL_TABLES = ("ingest with quarantine", "replay")


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_fault_of_the_store_loses_anything(
    spark: SparkSession, tmp_path: Path, name: str, record_testsuite_property: Callable[[str, object], None]
) -> None:
    prepares, runs = OPERATIONS[name]
    operation = Operation(
        name,
        lambda place: (place.mkdir(), prepares(spark, place)),
        partial(runs, spark),
        tables=QUARANTINE if name in SEVERAL_TABLES else ("t",),
        is_one_commit=name not in SEVERAL_COMMITS,
    )
    template, work = tmp_path / "template", tmp_path / "work"
    spots = faults_of(operation, template, work)
    spots = chosen(spots if FULL in os.environ else from_commit_on(spots), CI_FAULTS, name)
    record_testsuite_property(f"faults of {name}", len(spots))
    assert len(spots) >= CI_FAULTS
    assert [wrong for spot in spots for wrong in complaints(operation, template, work, spot)] == []
