"""Appends, ingestion and changes of rows of Iceberg tables against Iceberg for Spark, and the sizes of the files.

    python bench/iceberg_rows.py JARS [--turns 3] [--records 300000] [--every 100] [--sorted] [--deleted] [--vectors]

JARS are Iceberg for Spark and the JDBC driver of SQLite, separated by a comma. Both engines work in one session and
take turns; the first turn warms up. Compared are the processor seconds of all processes. Both write by copy-on-write,
or with --vectors deletion vectors of format version 3; then loads by key are compared with our own copies. A change is
of one row in --every. Tables that are sorted or have position deletes are made by Iceberg for Spark, both of them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median

import dataset
from processor_time import processor_time
from pyspark.sql import DataFrameWriterV2, SparkSession
from turns import Row, print_rows

import widen

DATA = Path(__file__).resolve().parent.parent / ".work" / "data" / "bench"
FIRST_KEY = 1_000_000
"""The first key of the records; see `dataset`."""

STATEMENTS = ("delete", "update", "merge")


def main(arguments: list[str]) -> int:
    """Measure, print a row for each case, and return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jars")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--every", type=int, default=100)
    parser.add_argument("--sorted", action="store_true")
    parser.add_argument("--deleted", action="store_true")
    parser.add_argument("--vectors", action="store_true")
    options = parser.parse_args(arguments)
    DATA.mkdir(parents=True, exist_ok=True)
    source = dataset.write(DATA / f"first-{options.records}", seed=1, records=options.records)
    with tempfile.TemporaryDirectory(dir=DATA) as folder:
        bench = Bench(options, Path(folder), source)
        for turn in range(options.turns + 1):
            bench.run_turn(turn)
        rows = bench.rows()
        bench.spark.stop()
    return print_rows(f"{options.records:,} records, changes of one in {options.every}", rows)


class Bench:
    """Both engines on one catalog."""

    def __init__(self, options: argparse.Namespace, folder: Path, source: Path) -> None:
        catalog = {"type": "jdbc", "uri": f"jdbc:sqlite:{folder}/c.db", "warehouse": f"file://{folder}/c_warehouse"}
        settings = {
            "spark.jars": options.jars,
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
        self.spark, self.folder, self.source, self.options = builder.getOrCreate(), folder, source, options
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
        spark, place, records, every = self.spark, {"catalog": self.folder / "c.db", "spark": self.spark}, *self.counts
        ours, theirs = f"shop.ours{turn}", f"shop.theirs{turn}"
        key = next(each.name for each in self.schema if each.dataType.typeName() == "long")
        if self.is_made:
            for name in (ours, theirs):
                self.make(f"default.{name}", key)
        else:
            self.measure("Delta", lambda: widen.ingest(self.source, self.folder / f"delta{turn}", spark=spark), turn)
            version = {"format_version": self.version}
            self.measure("ingest", lambda: widen.ingest(self.source, ours, **place, **version), turn)
            self.measure("append", lambda: self.append(f"default.{theirs}").create(), turn)
        table = widen.IcebergTable(ours, self.folder / "c.db")
        self.set_mode(f"default.{theirs}")
        self.set_mode(f"default.{ours}")
        self.sizes = {name: _size(self.folder, each) for name, each in (("ours", ours), ("theirs", theirs))}
        condition = f"{key} % {every} = {7 % every}"
        self.measure("our delete", lambda: table.delete(condition, spark=spark), turn)
        self.measure("their delete", lambda: spark.sql(f"DELETE FROM default.{theirs} WHERE {condition}"), turn)
        change = f"{key} % {every} = {8 % every}"
        self.measure("our update", lambda: table.update({key: f"{key} + 0"}, change, spark=spark), turn)
        update = f"UPDATE default.{theirs} SET {key} = {key} + 0 WHERE {change}"
        self.measure("their update", lambda: spark.sql(update), turn)
        # Every key has a row, and none of these was deleted before.
        changes = spark.range(0, records // every).selectExpr(f"{FIRST_KEY + 1} + id * {every} AS k", "id AS n")
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
        assert counts[ours] <= (1 - 0.9 / every) * records, counts
        if self.options.vectors:
            self.load_by_key(ours, key, turn)

    def load_by_key(self, name: str, key: str, turn: int) -> None:
        """Load the same records twice by key: with vectors, and with copies of files."""
        records, every = self.counts
        lines = [json.dumps({key: FIRST_KEY + 4 + at * every}) for at in range(records // every)]
        place = {"catalog": self.folder / "c.db", "key": [key], "missing": "keep"}
        for way in ("merge-on-read", "copy-on-write"):
            source = self.folder / f"keys-{turn}-{way}.json"
            source.write_text("\n".join(lines))
            widen.IcebergTable(name, self.folder / "c.db").set_properties({"write.merge.mode": way})
            self.measure(way, lambda source=source: widen.ingest(source, name, **place), turn)

    def set_mode(self, name: str) -> None:
        """Say in the properties of a table how its rows change."""
        mode = "merge-on-read" if self.options.vectors else "copy-on-write"
        texts = ", ".join(f"'write.{each}.mode'='{mode}'" for each in STATEMENTS)
        self.spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ({texts})")

    @property
    def version(self) -> int:
        """The format version of the tables."""
        return 3 if self.options.vectors else 2

    @property
    def counts(self) -> tuple[int, int]:
        """The number of records, and of which one changes."""
        return self.options.records, self.options.every

    @property
    def is_made(self) -> bool:
        """Whether Iceberg for Spark makes both tables."""
        return bool(self.options.sorted or self.options.deleted)

    def append(self, name: str) -> DataFrameWriterV2:
        """Return what writes the source into a table with the known schema."""
        rows = self.spark.read.schema(self.schema).json(str(self.source))
        return rows.writeTo(name).using("iceberg").tableProperty("format-version", str(self.version))

    def make(self, name: str, key: str) -> None:
        """Make a table that is sorted or has position deletes, as the options say."""
        self.append(name).tableProperty("write.delete.mode", "merge-on-read").create()
        if self.options.sorted:
            self.spark.sql(f"ALTER TABLE {name} WRITE ORDERED BY {key}")
            self.spark.sql(f"TRUNCATE TABLE {name}")
            self.append(name).append()
        if self.options.deleted:
            self.spark.sql(f"DELETE FROM {name} WHERE {key} % 1000 = 991")

    def rows(self) -> list[Row]:
        """Return the rows of the table."""
        cost = {name: median(each) for name, each in self.used.items()}
        rows = []
        if not self.is_made:
            size = {name: each / 1e6 for name, each in self.sizes.items()}
            rows = [
                Row("ingest into Iceberg / into Delta", cost["ingest"], 1.05, cost["Delta"]),
                Row("ingest / writeTo with a known schema", cost["ingest"], 1.0, cost["append"]),
                Row("megabytes / those of Iceberg for Spark", size["ours"], 1.05, size["theirs"]),
            ]
        way, goal = ("merge-on-read", 0.15) if self.options.vectors else ("copy-on-write", 1.0)
        for name in STATEMENTS:
            rows.append(Row(f"{name} / {way}", cost[f"our {name}"], goal, cost[f"their {name}"]))
        if self.options.vectors:
            rows.append(Row("load by key / our copies", cost["merge-on-read"], 0.3, cost["copy-on-write"]))
        return rows


def _size(folder: Path, name: str) -> int:
    """Return the size of the data files of a table."""
    _, table = name.split(".")
    roots = [each for each in (folder / "c_warehouse").rglob(table) if each.is_dir()]
    return sum(file.stat().st_size for root in roots for file in root.rglob("data/**/*.parquet"))


if __name__ == "__main__":
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    sys.exit(main(sys.argv[1:]))
