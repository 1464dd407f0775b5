"""Reading tables whose types have changed, side by side with the same tables rewritten, and with Spark's own wide read.

    python bench/read.py [--runs 3] [--rows 20000000]

First every row of a table of which 9 in 10 files are old is read, and of the same table written in the new type only.
Then the widened column is read of files that are all old: by Widen, and by Spark told to read the new type. The cases
of a change take turns in one session that has read them before.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from alter import DATA, delta_session
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import widen

FILES = 10
PROPERTIES = {"delta.enableTypeWidening": "true", "delta.feature.timestampNtz": "supported"}
VALUE = "pmod(hash(id), 100000000)"

# The changes, what their old values are made of, and the most that the old table may take of the time of the new one.
MIXED = {
    ("int", "bigint"): (VALUE, 1.05),
    ("int", "double"): (VALUE, 1.05),
    ("float", "double"): (f"{VALUE} / 7", 1.05),
    ("decimal(9,2)", "decimal(18,2)"): (f"{VALUE} / 100", 1.05),
    ("date", "timestamp_ntz"): (f"date_add(date'2000-01-01', cast({VALUE} % 9000 as int))", 1.05),
}
# Likewise for files that are all old, against Spark's own wide read of them.
OLD = {("int", "decimal(20,0)"): (VALUE, 0.5), ("bigint", "decimal(38,10)"): (VALUE, 0.5)}

Case = Callable[[], None]


def main(runs: int, rows: int) -> int:
    """Measure, print medians and ratios; 1 if a target is missed."""
    spark = delta_session()
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    ratios = []
    for (old, new), (value, most) in MIXED.items():
        seconds = measure(_mixed(spark, old, new, value, rows), runs)
        ratios.append((f"{old} -> {new}: 90 % old / rewritten", seconds["90 % old"] / seconds["rewritten"], most))
    for (old, new), (value, most) in OLD.items():
        seconds = measure(_old(spark, old, new, value, rows), runs)
        ratios.append((f"{old} -> {new}: Widen / Spark", seconds["Widen"] / seconds["Spark"], most))
    spark.stop()
    for what, ratio, most in ratios:
        print(f"  {what:<56}  {ratio:.2f}  (at most {most})")
    return int(any(ratio > most for _, ratio, most in ratios))


def measure(cases: dict[str, Case], runs: int) -> dict[str, float]:
    """Run the cases in turns and return the median of each in seconds."""
    found: dict[str, list[float]] = {name: [] for name in cases}
    for run in range(runs + 1):
        for name, case in cases.items():
            started = time.perf_counter()
            case()
            if run:  # the first is for the compilers
                found[name].append(time.perf_counter() - started)
    seconds = {name: median(each) for name, each in found.items()}
    for name, each in seconds.items():
        print(f"  {name:<12}{each:>8.2f} s", flush=True)
    return seconds


def _mixed(spark: SparkSession, old: str, new: str, value: str, rows: int) -> dict[str, Case]:
    mixed = write_table(spark, old, new, value, rows, old_files=FILES - 1)
    rewritten = write_table(spark, old, new, value, rows, old_files=0)
    print(f"{rows:,} rows of id, value {old} -> {new}, name")
    return {
        "90 % old": lambda: _read_rows(widen.Table(str(mixed)).read(spark=spark)),
        "rewritten": lambda: _read_rows(widen.Table(str(rewritten)).read(spark=spark)),
    }


def _old(spark: SparkSession, old: str, new: str, value: str, rows: int) -> dict[str, Case]:
    table = write_table(spark, old, new, value, rows, old_files=FILES)
    files = [str(file) for file in table.glob("*/*.parquet")]
    print(f"{rows:,} rows of {old} -> {new}")
    return {
        "Widen": lambda: _read_values(widen.Table(str(table)).read(spark=spark)),
        "Spark": lambda: _read_values(spark.read.schema(f"value {new}").parquet(*files)),
    }


def _read_rows(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _read_values(frame: DataFrame) -> None:
    frame.agg(F.max("value")).collect()


def write_table(spark: SparkSession, old: str, new: str, value: str, rows: int, old_files: int) -> Path:
    """Write a table of which so many files are old, unless it is there, and return it."""
    place = DATA / f"read-{rows}-{old}-{new}-{old_files}"
    if not (place / "_done").exists():
        shutil.rmtree(place, ignore_errors=True)
        table = widen.create_table(str(place), _columns(old if old_files else new), properties=PROPERTIES)
        if old_files:
            table.append(_rows(spark, value, old, old, 0, old_files, rows)).table.alter_column("value", type=new)
        if old_files < FILES:
            table.append(_rows(spark, value, old, new, old_files, FILES, rows))
        (place / "_done").touch()
    return place


def _columns(kind: str) -> str:
    return f"id bigint, value {kind}, name string"


def _rows(spark: SparkSession, value: str, old: str, kind: str, first: int, end: int, rows: int) -> DataFrame:
    """Return the rows of some files: the same numbers whatever type they have."""
    ids = spark.range(first * rows // FILES, end * rows // FILES, 1, end - first)
    return ids.selectExpr("id", f"cast(cast({value} as {old}) as {kind}) value", "concat('customer ', id % 1000) name")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rows", type=int, default=20_000_000)
    return parser.parse_args()


if __name__ == "__main__":
    options = _options()
    sys.exit(main(options.runs, options.rows))
