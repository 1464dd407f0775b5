"""The sink that ingests, in streams of one session, beside Delta Lake's sink and its MERGE in `foreachBatch`.

    python bench/sink.py [--batches 20] [--megabytes 5] [--rows 1000000] [--runs 3] [--only append,keys,iceberg]

Append: micro-batches of JSON, in which 1 % of the records drift. Delta Lake gets them by `from_json` with the schema by
hand, in which values that drift are null; Widen observes, widens and keeps them. Keys: one micro-batch changes 1 % or
30 % of the rows of a table, with deletion vectors. Iceberg: micro-batches change 1 % of 300,000 rows each, beside one
call of `widen.ingest` for each of these files, into an Iceberg table, too. Streams take turns, each with a new
checkpoint and table, and have done the work once before. Costs are processor seconds of all processes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path

from alter import DATA, delta_session
from keys import COLUMNS, SHARES, WORDS, write_batch, write_first, write_table
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from turns import Cost, Row, measure, middle, print_rows, take_turns

import widen

GOALS = {"append": 0.6, "keys": 0.1, "iceberg": 0.6}
ICEBERG_ROWS = 300_000
DRIFT = 0.01
SCHEMA = "id BIGINT, at STRING, user STRUCT<name: STRING, age: BIGINT>, total DOUBLE, tags ARRAY<STRING>, note STRING"


def main(batches: int, megabytes: float, rows: int, runs: int, only: Sequence[str]) -> int:
    """Measure in turns and print a row for each case; 1 if a goal is missed."""
    spark = delta_session()
    for key in ("spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions"):
        spark.conf.set(key, "2")  # Delta Lake's own are for clusters
    works = {
        "append": lambda: _append(spark, batches, megabytes, runs),
        "keys": lambda: _keys(spark, rows, runs),
        "iceberg": lambda: _iceberg(spark, min(rows, ICEBERG_ROWS), batches, runs),
    }
    title = f"{batches} micro-batches of {megabytes:g} MB; {rows:,} rows by key"
    missed = print_rows(title, (row for name in only for row in works[name]()))
    spark.stop()
    return missed


def _append(spark: SparkSession, batches: int, megabytes: float, runs: int) -> Iterator[Row]:
    landing = write_landing(batches, megabytes)

    def by_widen() -> None:
        _run(_texts(spark, landing), "widen", ingest="json")

    def by_delta() -> None:
        record = F.from_json("value", SCHEMA).alias("record")
        _run(_texts(spark, landing).select(record).select("record.*"), "delta")

    costs = take_turns({"widen": by_widen, "delta": by_delta}, runs)
    print(f"  on the wall: {', '.join(f'{name} {cost.wall:.1f} s' for name, cost in costs.items())}")
    work = f"JSON, {DRIFT:.0%} drift / from_json and Delta Lake's sink"
    yield Row(work, costs["widen"].cpu, GOALS["append"], costs["delta"].cpu)


def _keys(spark: SparkSession, rows: int, runs: int) -> Iterator[Row]:
    table = write_table(spark, rows, vectors=True)

    def by_widen(landing: Path, at: str) -> None:
        _run(_texts(spark, landing), "widen", at, ingest="json", key="id", sequenceBy="at")

    def by_delta(landing: Path, at: str) -> None:
        def merge(frame: DataFrame, number: int) -> None:
            frame.createOrReplaceTempView("changes")
            frame.sparkSession.sql(
                f"MERGE INTO delta.`{at}` t USING changes s ON t.id = s.id "
                "WHEN MATCHED AND s.at > t.at THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )

        frame = _texts(spark, landing).select(F.from_json("value", COLUMNS).alias("record")).select("record.*")
        with_place = frame.writeStream.foreachBatch(merge).option("checkpointLocation", f"{at}-checkpoint")
        with_place.trigger(availableNow=True).start().awaitTermination()

    for share in SHARES:
        batch = Path(write_batch(rows, share))
        landing = batch.with_suffix("")
        landing.mkdir(exist_ok=True)
        if not (landing / batch.name).exists():
            os.link(batch, landing / batch.name)
        works = {"widen": by_widen, "delta": by_delta}
        turns = [{name: _change(work, landing, table) for name, work in works.items()} for _ in range(runs + 1)]
        found = {name: middle(turn[name] for turn in turns[1:]) for name in works}
        print(f"  on the wall, {share:.0%}: {', '.join(f'{name} {cost.wall:.1f} s' for name, cost in found.items())}")
        yield Row(f"by key, {share:.0%} / MERGE in foreachBatch", found["widen"].cpu, GOALS["keys"], found["delta"].cpu)


def _iceberg(spark: SparkSession, rows: int, batches: int, runs: int) -> Iterator[Row]:
    place = DATA / f"sink-iceberg-{time.time_ns()}"
    place.mkdir(parents=True)
    catalog, delta, newer = place / "c.db", place / "delta", count(2)
    for table in ("shop.sink", "shop.loads"):
        widen.ingest(write_first(rows), table, catalog=catalog, spark=spark, **WORDS)
    widen.ingest(write_first(rows), delta, spark=spark, **WORDS)

    def by_stream(at: str, landing: Path, **options: str) -> None:
        _run(_texts(spark, landing), "widen", at, ingest="json", key="id", sequenceBy="at", **options)

    def turn() -> dict[str, Cost]:
        landing = place / f"landing-{next(newer)}"
        landing.mkdir()
        for number in range(batches):
            Path(write_batch(rows, min(SHARES), newer=next(newer))).rename(landing / f"{number:04}.json")
        files = sorted(landing.iterdir())
        new = {name: {"checkpointLocation": str(landing.with_suffix(f".{name}"))} for name in ("delta", "iceberg")}
        return {
            "Delta": measure(lambda: by_stream(str(delta), landing, **new["delta"])),
            "Iceberg": measure(lambda: by_stream("shop.sink", landing, catalog=str(catalog), **new["iceberg"])),
            "loads": measure(
                lambda: [widen.ingest(each, "shop.loads", catalog=catalog, spark=spark, **WORDS) for each in files]
            ),
        }

    turns = [turn() for _ in range(runs + 1)]
    found = {name: middle(each[name] for each in turns[1:]) for name in turns[0]}
    print(f"  on the wall, {batches} batches: {', '.join(f'{name} {cost.wall:.1f} s' for name, cost in found.items())}")
    for name in ("Delta", "Iceberg"):
        work = f"by key, 1 % of {rows:,} into {name} / loads into Iceberg"
        yield Row(work, found[name].cpu / batches, GOALS["iceberg"], found["loads"].cpu / batches)
    shutil.rmtree(place)


def _change(work: Callable[[Path, str], object], landing: Path, table: Path) -> Cost:
    """Return what a stream costs on a copy of the table."""
    copy = table.with_name(f"changed-{time.time_ns()}")
    shutil.copytree(table, copy, copy_function=os.link)
    cost = measure(lambda: work(landing, str(copy)))
    for place in (copy, copy.with_name(f"{copy.name}-checkpoint")):
        shutil.rmtree(place)
    return cost


def _texts(spark: SparkSession, landing: Path) -> DataFrame:
    return spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(str(landing))


def _run(frame: DataFrame, sink: str, at: str | None = None, **options: str) -> None:
    """Run a stream over what is there, into a table, by default a new one."""
    place = at or str(DATA / f"sink-{time.time_ns()}")
    options = {"checkpointLocation": f"{place}-checkpoint"} | options
    frame.writeStream.format(sink).options(**options).trigger(availableNow=True).start(place).awaitTermination()
    if at is None:
        shutil.rmtree(place)
        shutil.rmtree(f"{place}-checkpoint")


def write_landing(batches: int, megabytes: float) -> Path:
    """Write the files of the micro-batches, unless they are there, and return their folder."""
    place = DATA / f"sink-{batches}-{megabytes:g}"
    if place.exists():
        return place
    rng, key = random.Random(1), 0
    hidden = place.with_name(f".{place.name}")
    hidden.mkdir(parents=True, exist_ok=True)
    for number in range(batches):
        with (hidden / f"{number:04}.json").open("w") as file:
            while file.tell() < megabytes * 1e6:
                file.write(json.dumps(_record(key, rng)) + "\n")
                key += 1
    hidden.rename(place)
    return place


def _record(key: int, rng: random.Random) -> dict[str, object]:
    total: object = round(rng.uniform(1, 1000), 2)
    return {
        "id": key,
        "at": f"2026-01-{1 + key % 28:02}T{key % 24:02}:00:00Z",
        "user": {"name": f"user {key % 5000}", "age": key % 90},
        "total": f"{total} EUR" if rng.random() < DRIFT else total,
        "tags": [f"t{key % 7}", f"u{key % 11}"],
        "note": f"note number {key} of an order",
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--megabytes", type=float, default=5)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(GOALS))
    return parser.parse_args()


if __name__ == "__main__":
    options = _options()
    sys.exit(main(options.batches, options.megabytes, options.rows, options.runs, options.only))
