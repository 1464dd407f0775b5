"""Optimize, vacuum and a stream's read beside Delta Lake, in one session, on copies of the same table.

    python bench/upkeep.py [--files 400] [--rows 1000] [--runs 3]

The table has so many files of so many rows, one commit for every 20 of them. Both engines read all rows and then all
later commits as a stream that ends, make few files of all of them, and delete the removed files. Compared are processor
seconds of all processes; the limit of optimize is what PyArrow needs to read all files and write one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from alter import DATA, delta_session
from pyspark.sql import SparkSession
from turns import Cost, Row, Work, measure, middle, print_rows

import widen
from widen import Table

GOAL = 1.0
FILES_IN_COMMIT = 20


def main(files: int, rows: int, runs: int) -> int:
    """Measure in turns and print the rows; 1 if a goal is missed."""
    spark = delta_session()
    widen.register(spark)
    for key in ("spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions"):
        spark.conf.set(key, "2")  # Delta Lake's own are for clusters
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    missed = print_rows(f"{files:,} files of {rows:,} rows", _rows(spark, files, rows, runs))
    spark.stop()
    return missed


def _rows(spark: SparkSession, files: int, rows: int, runs: int) -> Iterator[Row]:
    table = write_table(spark, files, rows)
    costs: dict[tuple[str, str], list[Cost]] = {}
    for _ in range(runs + 1):
        for engine in ENGINES:
            copy = table.with_name(f"upkeep-{time.time_ns()}")
            shutil.copytree(table, copy, copy_function=os.link)
            for name, work in _works(spark, engine, str(copy)).items():
                costs.setdefault((name, engine), []).append(measure(work))
            shutil.rmtree(copy)
    limits = {"optimize": measure(lambda: _copy(table)).cpu}
    for name in ("stream", "optimize", "vacuum"):
        ours, peer = (middle(costs[name, engine][1:]).cpu for engine in ENGINES)
        yield Row(f"{name} {files:,} files", ours, GOAL, peer, limits.get(name))


ENGINES = ("widen", "delta")


def _works(spark: SparkSession, engine: str, table: str) -> dict[str, Work]:
    """Return the works of an engine, in the order in which they run."""
    works: dict[str, dict[str, Work]] = {
        "widen": {
            "optimize": lambda: Table(table).optimize(spark=spark),
            "vacuum": lambda: Table(table).vacuum(0, force=True),
        },
        "delta": {
            "optimize": lambda: spark.sql(f"OPTIMIZE delta.`{table}`").collect(),
            "vacuum": lambda: spark.sql(f"VACUUM delta.`{table}` RETAIN 0 HOURS").collect(),
        },
    }
    return {"stream": lambda: _stream(spark, engine, table), **works[engine]}


def _stream(spark: SparkSession, engine: str, table: str) -> None:
    """Read all rows, and then the commits from the second on, a commit for each batch."""
    for options in ({}, {"startingVersion": "2", "maxFilesPerTrigger": str(FILES_IN_COMMIT)}):
        progress = f"{table}-progress-{time.time_ns()}"
        rows = spark.readStream.format(engine).options(**options).load(table)
        writer = rows.writeStream.format("noop").option("checkpointLocation", progress)
        writer.trigger(availableNow=True).start().awaitTermination()
        shutil.rmtree(progress)


def _copy(table: Path) -> None:
    """Read all files, and write one."""
    rows = pa.concat_tables(pq.ParquetFile(file).read() for file in table.rglob("*.parquet") if _is_data(file))
    pq.write_table(rows, table / "_copy")
    (table / "_copy").unlink()


def _is_data(file: Path) -> bool:
    return "_delta_log" not in file.parts


def write_table(spark: SparkSession, files: int, rows: int) -> Path:
    """Write a table of so many files, unless it is there, and return it."""
    place = DATA / f"upkeep-{files}-{rows}"
    if not (place / "_done").exists():
        shutil.rmtree(place, ignore_errors=True)
        table = widen.create_table(str(place), "id bigint, value double, name string")
        for first in range(0, files, FILES_IN_COMMIT):
            numbers = range(first * rows, min(first + FILES_IN_COMMIT, files) * rows)
            ids = spark.range(numbers.start, numbers.stop, 1, len(numbers) // rows)
            table.append(ids.selectExpr("id", "id / 7D value", "concat('customer ', id % 1000) name"))
        (place / "_done").touch()
    return place


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=3)
    return parser.parse_args()


if __name__ == "__main__":
    options = _options()
    sys.exit(main(options.files, options.rows, options.runs))
