"""DROP FEATURE typeWidening on tables of which more or less is old, side by side with Delta Lake on Spark.

    python bench/drop.py [--runs 3] [--rows 1000000]

Every table has 20 files of the same rows; 2, 10 or all of them hold an int where the table has a bigint. What is
measured is the whole drop, with its barriers and checkpoints. The time must follow the bytes of the old files, and no
other file may be touched.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from alter import DATA, delta_session, timed
from pyspark.sql import DataFrame, SparkSession
from turns import Row, print_rows

import widen

FILES = 20
OLD = [2, 10, 20]
NARROW, WIDE = "quantity int, amount double, name string", "quantity bigint, amount double, name string"

# How many old files against how many, and the most that the first may take of the time of the second.
TARGETS = [(10, 20, 0.7), (2, 20, 0.4)]


def main(runs: int, rows: int) -> int:
    """Measure in turns, print medians and ratios; 1 if a target is missed or a file was touched that is not old."""
    spark = delta_session()
    for key in ("spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions"):
        spark.conf.set(key, "2")  # Delta Lake's own are for clusters
    tables = {old: write_table(spark, DATA / f"drop-{rows}-{old}", old, rows) for old in OLD}
    engines: dict[str, Callable[[str], object]] = {
        "Widen": lambda at: _by_widen(spark, at),
        "Delta Lake": _delta(spark),
    }
    for drop in engines.values():
        timed(drop, tables[OLD[0]])
    found: dict[tuple[str, int], list[float]] = {}
    for _ in range(runs):
        for old, table in tables.items():
            for engine, drop in engines.items():
                found.setdefault((engine, old), []).append(timed(drop, table))
    spark.stop()
    seconds = {key: median(each) for key, each in found.items()}
    for old, table in tables.items():
        print(f"  {old:>3} of {FILES} files old: {sum(_old_sizes(table, old)) / 1e6:.1f} MB")
    growth = [
        Row(f"{few} / {many} files old", seconds["Widen", few], most, seconds["Widen", many])
        for few, many, most in TARGETS
    ]
    beside = [
        Row(f"drop, {old} of {FILES} files old", seconds["Widen", old], 1, seconds["Delta Lake", old]) for old in OLD
    ]
    return print_rows(f"{rows:,} rows a file", [*growth, *beside])


def write_table(spark: SparkSession, table: Path, old: int, rows: int) -> Path:
    """Write a table of so many old files and the rest of them wide, unless it is there, and return it."""
    done = table / "_done"
    if not done.exists():
        shutil.rmtree(table, ignore_errors=True)
        made = widen.create_table(str(table), NARROW, properties={"delta.enableTypeWidening": "true"})
        made.append(_frame(spark, old, rows, "int")).table.alter_column("quantity", type="bigint")
        if old < FILES:
            made.append(_frame(spark, FILES - old, rows, "bigint"))
        done.touch()
    return table


def _frame(spark: SparkSession, files: int, rows: int, kind: str) -> DataFrame:
    text = "concat('customer ', cast(abs(hash(id)) % 90000 as string))"
    columns = [f"cast(id % 1000 as {kind}) quantity", "rand(7) * 1000 amount", f"{text} name"]
    return spark.range(0, files * rows, 1, files).selectExpr(*columns)


def _by_widen(spark: SparkSession, at: str) -> None:
    """Drop the feature, and stop the benchmark if that took away another file than the old ones."""
    old = {path for path, _ in _narrow(Path(at))}
    widen.Table(at).drop_feature("typeWidening", spark=spark)
    gone = {line["remove"]["path"] for commit in _commits(Path(at)) for line in commit if "remove" in line}
    if gone != old:
        sys.exit(f"{len(gone ^ old)} files were touched, or not, that should not, or should have been")


def _delta(spark: SparkSession) -> Callable[[str], object]:
    return lambda at: spark.sql(f"ALTER TABLE delta.`{at}` DROP FEATURE typeWidening").collect()


def _old_sizes(table: Path, old: int) -> list[int]:
    sizes = [size for _, size in _narrow(table)]
    assert len(sizes) == old, "the table is another one than it was made"
    return sizes


def _narrow(table: Path) -> list[tuple[str, int]]:
    """The files of the first write, with their sizes."""
    return [(line["add"]["path"], line["add"]["size"]) for line in _commits(table)[1] if "add" in line]


def _commits(table: Path) -> list[list[dict[str, Any]]]:
    files = sorted((table / "_delta_log").glob("*.json"))
    return [[json.loads(line) for line in file.read_text().splitlines()] for file in files]


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1_000_000)
    return parser.parse_args()


if __name__ == "__main__":
    options = _options()
    sys.exit(main(options.runs, options.rows))
