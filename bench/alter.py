"""ALTER COLUMN ... TYPE on tables of 1,000 and of 1,000,000 files, side by side with Delta Lake on Spark.

    python bench/alter.py [--runs 5] [--files 1000,1000000]

The tables are logs only: nobody reads a file to change a type. Each has a checkpoint at version 10 and no commit after
it. Every run opens a table that its session has not seen and widens one column; Widen and Delta Lake take turns in one
process, whose session has altered a small table before, so that neither pays for loading its classes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from pyspark.sql import SparkSession
from turns import Row, measure, print_rows

from widen import Table
from widen.log.checkpoint_writer import write_checkpoint
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT / ".work" / "data" / "bench"
LAST_VERSION = 10
PROPERTIES = {"delta.enableTypeWidening": "true"}
PROTOCOL = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["typeWidening"],
    "writerFeatures": ["typeWidening", "appendOnly", "invariants"],
}
FIELDS = [("id", "long"), ("quantity", "integer"), ("name", "string")]

# What is divided by what, and the most it may be.
GROWS, AGAINST = 1.5, 0.5


def main(runs: int, sizes: list[int]) -> int:
    """Measure in turns, print medians and ratios; 1 if a target is missed."""
    spark = delta_session()
    tables = {files: write_table(DATA / f"alter-{files}", files) for files in sizes}
    engines: dict[str, Callable[[str], None]] = {"Widen": _by_widen, "Delta Lake": lambda at: _by_delta(spark, at)}
    for alter in engines.values():
        timed(alter, tables[sizes[0]])
    found: dict[tuple[str, int], list[float]] = {}
    for _ in range(runs):
        for files, table in tables.items():
            for engine, alter in engines.items():
                found.setdefault((engine, files), []).append(timed(alter, table))
    spark.stop()
    cost = {key: median(each) for key, each in found.items()}
    small, large = min(sizes), max(sizes)
    rows = [Row(f"{large:,} / {small:,} files", cost["Widen", large], GROWS, cost["Widen", small])]
    rows += [
        Row(f"ALTER COLUMN, {files:,} files", cost["Widen", files], AGAINST, cost["Delta Lake", files])
        for files in sizes
    ]
    return print_rows("ALTER COLUMN", rows)


def write_table(table: Path, files: int) -> Path:
    """Write a log of so many files with a checkpoint at its last version, unless it is there, and return the table."""
    done = table / "_done"
    if not done.exists():
        shutil.rmtree(table, ignore_errors=True)
        log = table / "_delta_log"
        log.mkdir(parents=True)
        for version in range(LAST_VERSION + 1):
            numbers = range(version * files // (LAST_VERSION + 1), (version + 1) * files // (LAST_VERSION + 1))
            with (log / f"{version:020d}.json").open("w") as commit:
                commit.writelines(json.dumps(action) + "\n" for action in _actions(version, numbers))
        write_checkpoint(open_snapshot(LogStore(str(table))))
        done.touch()
    return table


def _actions(version: int, numbers: range) -> Iterator[dict[str, object]]:
    yield {"commitInfo": {"timestamp": 1_700_000_000_000 + version, "operation": "WRITE", "operationParameters": {}}}
    if version == 0:
        fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in FIELDS]
        yield {"protocol": PROTOCOL}
        yield {
            "metaData": {
                "id": "alter",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [],
                "configuration": PROPERTIES,
            }
        }
    for number in numbers:
        bounds = {"minValues": {"id": number}, "maxValues": {"id": number + 9}, "nullCount": {"id": 0}}
        stats = json.dumps({"numRecords": 1000, **bounds})
        add = {"path": f"part-{number:07d}.parquet", "partitionValues": {}, "size": 100_000 + number}
        yield {"add": {**add, "modificationTime": 1_700_000_000_000, "dataChange": True, "stats": stats}}


def timed(alter: Callable[[str], None], table: Path) -> float:
    """Return the processor seconds of a change of a copy of the table, which no process has opened before."""
    copy = table.with_name(f"altered-{time.time_ns()}")
    shutil.copytree(table, copy, copy_function=os.link)
    cost = measure(lambda: alter(str(copy)))
    shutil.rmtree(copy)
    return cost.cpu


def _by_widen(at: str) -> None:
    Table(at).alter_column("quantity", type="bigint")


def _by_delta(spark: SparkSession, at: str) -> None:
    spark.sql(f"ALTER TABLE delta.`{at}` ALTER COLUMN quantity TYPE BIGINT")


def delta_session() -> SparkSession:
    """Return a session that has Delta Lake."""
    jars = ",".join(map(str, sorted((ROOT / ".work" / "jars").glob("delta-*.jar"))))
    settings = {
        "spark.jars": jars,
        "spark.driver.memory": "4g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--files", default="1000,1000000")
    return parser.parse_args()


if __name__ == "__main__":
    options = _options()
    sys.exit(main(options.runs, [int(text) for text in options.files.split(",")]))
