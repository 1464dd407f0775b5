"""Changes of rows by key, beside Delta Lake's MERGE and an append by Widen, in one session, on the same files.

    python bench/keys.py [--rows 1000000] [--runs 3] [--dlt]

A batch of JSON changes 1 % or 30 % of the rows of a table, with deletion vectors off and on. Delta Lake gets the schema
by hand and reads the same files; so its cost has Spark's read in it. Every engine works on a copy of the same table;
they take turns, and all have done the work once before. Costs are processor seconds of all processes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

from alter import DATA, delta_session
from pyspark.sql import SparkSession
from turns import Cost, Row, measure, middle, print_rows

import widen

GOAL, GOAL_OF_APPEND = 1.0, 1.5
FILES = 8
SHARES = (0.01, 0.3)
COLUMNS = "id BIGINT, n BIGINT, s STRING, d DOUBLE, at BIGINT"


def main(rows: int, runs: int, *, has_dlt: bool) -> int:
    """Measure in turns and print a row for each case; 1 if a goal is missed."""
    spark = delta_session()
    for key in ("spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions"):
        spark.conf.set(key, "2")  # Delta Lake's own are for clusters
    missed = print_rows(f"{rows:,} rows", _rows(spark, rows, runs, has_dlt=has_dlt))
    spark.stop()
    return missed


def _rows(spark: SparkSession, rows: int, runs: int, *, has_dlt: bool) -> Iterator[Row]:
    for vectors, share in product((False, True), SHARES):
        table, batch = write_table(spark, rows, vectors=vectors), write_batch(rows, share)
        engines: dict[str, Callable[[str], object]] = {
            "keys": lambda at: widen.ingest(batch, at, key=["id"], sequence_by="at", spark=spark),  # noqa: B023
            "Delta Lake": lambda at: _merge_by_delta(spark, batch, at),  # noqa: B023
            "append": lambda at: widen.ingest(batch, at, spark=spark),  # noqa: B023
        }
        costs: dict[str, list[Cost]] = {}
        for _ in range(runs + 1):
            for engine, work in engines.items():
                costs.setdefault(engine, []).append(_change(work, table))
        found = {engine: middle(each[1:]) for engine, each in costs.items()}
        walls = ", ".join(f"{engine} {cost.wall:.2f} s" for engine, cost in found.items())
        what = f"{share:.0%}, vectors {'on' if vectors else 'off'}"
        print(f"  on the wall, {what}: {walls}")
        yield Row(f"keys {what} / MERGE of Delta Lake and read", found["keys"].cpu, GOAL, found["Delta Lake"].cpu)
        if share == min(SHARES):
            yield Row(f"keys {what} / append", found["keys"].cpu, GOAL_OF_APPEND, found["append"].cpu)
    if has_dlt:
        _print_dlt(rows)


def write_table(spark: SparkSession, rows: int, *, vectors: bool) -> Path:
    """Write a table by Delta Lake, unless it is there."""
    place = DATA / f"keys-{rows}-{int(vectors)}"
    if not (place / "_delta_log").exists():
        properties = f"'delta.enableDeletionVectors' = '{str(vectors).lower()}'"
        spark.sql(f"CREATE TABLE delta.`{place}` ({COLUMNS}) USING delta TBLPROPERTIES ({properties})")
        frame = spark.range(0, rows, 1, FILES).selectExpr(
            "id", "id * 2 AS n", "concat('text ', id % 100000) AS s", "id / 7 AS d", "id AS at"
        )
        frame.write.format("delta").mode("append").save(str(place))
    return place


def write_batch(rows: int, share: float) -> str:
    """Write the changed rows as JSON lines, spread over all files of the table, unless they are there."""
    place = DATA / f"keys-{rows}-{share:.0%}.json"
    if not place.exists():
        with place.open("w") as file:
            for key in range(rows):
                if key % 1000 < round(share * 1000):
                    changed = {"id": key, "n": key * 3, "s": f"new {key % 1000}", "d": key + 0.5, "at": key + 1}
                    file.write(json.dumps(changed) + "\n")
    return str(place)


def _change(work: Callable[[str], object], table: Path) -> Cost:
    """Return what a work costs on a copy of the table."""
    copy = table.with_name(f"changed-{time.time_ns()}")
    shutil.copytree(table, copy, copy_function=os.link)
    cost = measure(lambda: work(str(copy)))
    shutil.rmtree(copy)
    return cost


def _merge_by_delta(spark: SparkSession, batch: str, at: str) -> None:
    spark.read.schema(COLUMNS).json(batch).createOrReplaceTempView("changes")
    spark.sql(
        f"MERGE INTO delta.`{at}` t USING changes s ON t.id = s.id WHEN MATCHED AND s.at > t.at THEN UPDATE SET * "
        "WHEN NOT MATCHED THEN INSERT *"
    )


def _print_dlt(rows: int) -> None:
    """Print what dlt's merge of 1 % into a Delta table takes on the wall; it needs no session."""
    import dlt

    place = DATA / "keys-dlt"
    shutil.rmtree(place, ignore_errors=True)
    pipeline = dlt.pipeline(
        "widen_bench_keys", destination=dlt.destinations.filesystem(str(place)), pipelines_dir=str(place / "work")
    )

    def load(keys: Iterator[int], n: int) -> float:
        records = ({"id": key, "n": key * n, "s": f"text {key % 100000}", "d": key / 7, "at": key * n} for key in keys)
        resource = dlt.resource(
            records, name="rows", primary_key="id", write_disposition={"disposition": "merge", "strategy": "upsert"}
        )
        started = time.perf_counter()
        pipeline.run(resource, table_format="delta")
        return time.perf_counter() - started

    load(iter(range(rows)), 2)
    changed = load((key for key in range(rows) if key % 1000 < round(min(SHARES) * 1000)), 3)
    print(f"  on the wall, dlt merges {min(SHARES):.0%} of {rows:,} rows: {changed:.2f} s")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--dlt", action="store_true", help="also measure dlt's merge")
    return parser.parse_args()


if __name__ == "__main__":
    options = _options()
    sys.exit(main(options.rows, options.runs, has_dlt=options.dlt))
