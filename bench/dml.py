"""Merge, update, delete and compaction beside Delta Lake, in one session, on the same data.

    python bench/dml.py [--rows 10000000] [--runs 3] [--only merge,update] [--where "pmod(id, 1000) < {}"]

Each work runs with deletion vectors on and off, with the change data feed on and off, on 1 % and on 30 % of the rows.
Both engines work on a copy of the same table and take turns; both have done the work once before. Compared are
processor seconds of all processes, which a busy machine changes less than the time on the wall. The limit is what
PyArrow needs to read all files and to write the changed rows.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import pyarrow.parquet as pq
from alter import DATA, delta_session
from pyspark.sql import SparkSession
from turns import Cost, Row, measure, middle, print_rows

from widen import Table

GOAL = 0.8
FILES = 8
SHARES = (0.01, 0.3)
SETTINGS = ("delta.enableDeletionVectors", "delta.enableChangeDataFeed")
Work = Callable[[SparkSession, str, str], object]


def main(rows: int, runs: int, only: set[str], where: str) -> int:
    """Measure in turns and print a row for each case; 1 if a goal is missed."""
    spark = delta_session()
    for key in ("spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions"):
        spark.conf.set(key, "2")  # Delta Lake's own are for clusters
    missed = print_rows(f"{rows:,} rows", _rows(spark, rows, runs, only, where))
    spark.stop()
    return missed


def _rows(spark: SparkSession, rows: int, runs: int, only: set[str], where: str) -> Iterator[Row]:
    for vectors, feed in product((False, True), repeat=2):
        table = write_table(spark, rows, vectors=vectors, feed=feed)
        for share, (name, engines) in product(SHARES, WORKS.items()):
            if only and name not in only:
                continue
            condition = where.format(round(share * 1000))
            source = spark.range(rows).where(condition).selectExpr("id", "id * 3 AS n", "'new' AS s", "1.5D AS d")
            source.createOrReplaceTempView("changes")
            costs: dict[str, list[Cost]] = {}
            for _ in range(runs + 1):
                for engine, work in engines.items():
                    costs.setdefault(engine, []).append(change(spark, work, table, condition))
            ours, peer = (middle(costs[engine][1:]).cpu for engine in ("Widen", "Delta Lake"))
            what = f"{name} {share:.0%}, vectors {'on' if vectors else 'off'}, feed {'on' if feed else 'off'}"
            yield Row(what, ours, GOAL, peer, measure(lambda: _copy(table, share)).cpu)  # noqa: B023


def _copy(table: Path, share: float) -> None:
    """Read all files, and write as many rows as change."""
    with tempfile.TemporaryDirectory() as folder:
        for file in table.glob("*.parquet"):
            rows = pq.read_table(file)
            pq.write_table(rows.slice(0, round(len(rows) * share)), Path(folder, file.name))


def write_table(spark: SparkSession, rows: int, *, vectors: bool, feed: bool) -> Path:
    """Write a table by Delta Lake, unless it is there."""
    place = DATA / f"dml-{rows}-{int(vectors)}{int(feed)}"
    if not (place / "_delta_log").exists():
        properties = ", ".join(
            f"'{key}' = '{str(on).lower()}'" for key, on in zip(SETTINGS, (vectors, feed), strict=True)
        )
        columns = "id BIGINT, n BIGINT, s STRING, d DOUBLE"
        spark.sql(f"CREATE TABLE delta.`{place}` ({columns}) USING delta TBLPROPERTIES ({properties})")
        frame = spark.range(0, rows, 1, FILES).selectExpr(
            "id", "id * 2 AS n", "concat('text ', id % 100000) AS s", "id / 7 AS d"
        )
        frame.write.format("delta").mode("append").save(str(place))
    return place


def change(spark: SparkSession, work: Work, table: Path, condition: str) -> Cost:
    """Return what a work costs on a copy of the table."""
    copy = table.with_name(f"changed-{time.time_ns()}")
    shutil.copytree(table, copy, copy_function=os.link)
    cost = measure(lambda: work(spark, str(copy), condition))
    shutil.rmtree(copy)
    return cost


def _merge(spark: SparkSession, at: str, condition: str) -> None:
    builder = Table(at).merge(spark.table("changes"), "t.id = s.id")
    builder.when_matched_update_all().when_not_matched_insert_all().execute()


def _merge_by_delta(spark: SparkSession, at: str, condition: str) -> None:
    spark.sql(
        f"MERGE INTO delta.`{at}` t USING changes s ON t.id = s.id WHEN MATCHED THEN UPDATE SET * "
        "WHEN NOT MATCHED THEN INSERT *"
    )


WORKS: dict[str, dict[str, Work]] = {
    "merge": {"Widen": _merge, "Delta Lake": _merge_by_delta},
    "update": {
        "Widen": lambda spark, at, where: Table(at).update({"n": "n + 1"}, where, spark=spark),
        "Delta Lake": lambda spark, at, where: spark.sql(f"UPDATE delta.`{at}` SET n = n + 1 WHERE {where}"),
    },
    "delete": {
        "Widen": lambda spark, at, where: Table(at).delete(where, spark=spark),
        "Delta Lake": lambda spark, at, where: spark.sql(f"DELETE FROM delta.`{at}` WHERE {where}"),
    },
    "compact": {
        "Widen": lambda spark, at, where: Table(at).optimize(spark=spark),
        "Delta Lake": lambda spark, at, where: spark.sql(f"OPTIMIZE delta.`{at}`"),
    },
}
"""By name: the same work by both engines, on a table, given a condition on its rows."""


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default="", help="the works to measure")
    parser.add_argument("--where", default="id % 1000 < {}", help="the condition, with a place for the rows per mille")
    return parser.parse_args()


if __name__ == "__main__":
    options = _options()
    sys.exit(main(options.rows, options.runs, set(filter(None, options.only.split(","))), options.where))
