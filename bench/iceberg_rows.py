"""Appends, ingestion and changes of rows of Iceberg tables against Iceberg for Spark, and the sizes of the files.

    python bench/iceberg_rows.py JARS [--turns 3] [--records 300000]

JARS are Iceberg for Spark and the JDBC driver of SQLite, separated by a comma. Both engines work in one session and
take turns; the first turn warms up. Compared are the processor seconds of all processes. Iceberg for Spark writes by
copy-on-write.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

import dataset
from processor_time import processor_time
from pyspark.sql import SparkSession
from turns import Row, print_rows

import widen

DATA = Path(__file__).resolve().parent.parent / ".work" / "data" / "bench"
FIRST_KEY = 1_000_000
"""The first key of the records; see `dataset`."""

COPY_ON_WRITE = ", ".join(f"'write.{name}.mode'='copy-on-write'" for name in ("delete", "update", "merge"))


def main(arguments: list[str]) -> int:
    """Measure, print a row for each case, and return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jars")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--records", type=int, default=300_000)
    options = parser.parse_args(arguments)
    DATA.mkdir(parents=True, exist_ok=True)
    source = dataset.write(DATA / f"first-{options.records}", seed=1, records=options.records)
    with tempfile.TemporaryDirectory(dir=DATA) as folder:
        bench = Bench(options.jars, Path(folder), source, options.records)
        for turn in range(options.turns + 1):
            bench.run_turn(turn)
        rows = bench.rows()
        bench.spark.stop()
    return print_rows(f"{options.records:,} records", rows)


class Bench:
    """Both engines on one catalog."""

    def __init__(self, jars: str, folder: Path, source: Path, records: int) -> None:
        catalog = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/c.db", "warehouse": f"file://{folder}/c_warehouse"}
        settings = {
            "spark.jars": jars,
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.default": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.default.cache-enabled": "false",
            **{f"spark.sql.catalog.default.{key}": value for key, value in catalog.items()},
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "4",
        }
        builder = SparkSession.builder.master("local[2]")
        for key, value in settings.items():
            builder = builder.config(key, value)
        self.spark, self.folder, self.source, self.records = builder.getOrCreate(), folder, source, records
        self.spark.sparkContext.setLogLevel("ERROR")
        self.spark.sql("CREATE NAMESPACE IF NOT EXISTS default.shop")
        self.schema = self.spark.read.json(str(source)).schema
        self.used: dict[str, list[float]] = {}
        self.sizes: dict[str, int] = {}

    def measure(self, name: str, work: Callable[[], object], turn: int) -> None:
        with processor_time() as seconds:
            work()
        if turn:
            self.used.setdefault(name, []).append(sum(seconds.values()))

    def run_turn(self, turn: int) -> None:
        """Load the source three ways, then change the rows of both Iceberg tables in the same way."""
        spark, place = self.spark, {"catalog": self.folder / "c.db", "spark": self.spark}
        ours, theirs = f"shop.ours{turn}", f"shop.theirs{turn}"

        def append() -> None:
            rows = spark.read.schema(self.schema).json(str(self.source))
            writer = rows.writeTo(f"default.{theirs}").using("iceberg").tableProperty("format-version", "2")
            writer.create()

        self.measure("Delta", lambda: widen.ingest(self.source, self.folder / f"delta{turn}", spark=spark), turn)
        self.measure("ingest", lambda: widen.ingest(self.source, ours, **place), turn)
        self.measure("append", append, turn)
        spark.sql(f"ALTER TABLE default.{theirs} SET TBLPROPERTIES ({COPY_ON_WRITE})")
        table = widen.IcebergTable(ours, self.folder / "c.db")
        self.sizes = {name: _size(self.folder, each) for name, each in (("ours", ours), ("theirs", theirs))}
        key = next(each.name for each in self.schema if each.dataType.typeName() == "long")
        condition = f"{key} % 100 = 7"
        self.measure("our delete", lambda: table.delete(condition, spark=spark), turn)
        self.measure("their delete", lambda: spark.sql(f"DELETE FROM default.{theirs} WHERE {condition}"), turn)
        change = f"{key} % 100 = 8"
        self.measure("our update", lambda: table.update({key: f"{key} + 0"}, change, spark=spark), turn)
        update = f"UPDATE default.{theirs} SET {key} = {key} + 0 WHERE {change}"
        self.measure("their update", lambda: spark.sql(update), turn)
        # Every key has a row, unless that was deleted before.
        step = self.records // 3000
        changes = spark.range(0, 3000).selectExpr(f"{FIRST_KEY} + id * {step} AS k", "id AS n")
        changes.createOrReplaceTempView("changes")

        def merge() -> None:
            builder = table.merge(changes, f"t.{key} = s.k")
            builder.when_matched_delete(condition="s.n % 2 = 0").when_matched_update({key: "s.k"}).execute()

        self.measure("our merge", merge, turn)
        statement = (
            f"MERGE INTO default.{theirs} t USING changes s ON t.{key} = s.k "
            f"WHEN MATCHED AND s.n % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET {key} = s.k"
        )
        self.measure("their merge", lambda: spark.sql(statement), turn)
        counts = {name: spark.sql(f"SELECT count(*) FROM default.{name}").collect()[0][0] for name in (ours, theirs)}
        assert len(set(counts.values())) == 1, counts
        assert counts[ours] < 0.99 * self.records, counts

    def rows(self) -> list[Row]:
        """Return the rows of the table."""
        cost = {name: median(each) for name, each in self.used.items()}
        rows = [
            Row("ingest into Iceberg / into Delta", cost["ingest"], 1.05, cost["Delta"]),
            Row("ingest / writeTo with a known schema", cost["ingest"], 1.0, cost["append"]),
            Row("megabytes / those of Iceberg for Spark", self.sizes["ours"] / 1e6, 1.05, self.sizes["theirs"] / 1e6),
        ]
        for name in ("delete", "update", "merge"):
            rows.append(Row(f"{name} / copy-on-write", cost[f"our {name}"], 1.0, cost[f"their {name}"]))
        return rows


def _size(folder: Path, name: str) -> int:
    """Return the size of the data files of a table."""
    _, table = name.split(".")
    roots = [each for each in (folder / "c_warehouse").rglob(table) if each.is_dir()]
    return sum(file.stat().st_size for root in roots for file in root.rglob("data/**/*.parquet"))


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    sys.exit(main(sys.argv[1:]))
