"""Changes of rows by key, beside Delta Lake's MERGE and an append by Widen, in one session, on the same files.

    python bench/keys.py [--rows 1000000] [--runs 3] [--kinds plain vectors partial history iceberg] [--dlt]

A batch of JSON changes 1 % or 30 % of the rows of a table. Delta Lake gets the schema by hand and reads the same files;
so its cost has Spark's read in it. It merges into a table without deletion vectors, with them where ours has them.
Every engine works on a copy of the same table, and they take turns; an Iceberg table, which cannot be copied, gets one
batch after another. All have done the work once before. Costs are processor seconds of all processes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from alter import DATA, delta_session
from pyspark.sql import SparkSession
from turns import Cost, Row, measure, middle, print_rows

import widen

GOAL, GOAL_OF_APPEND = 1.0, 1.5
FILES = 8
SHARES = (0.01, 0.3)
COLUMNS = "id BIGINT, n BIGINT, s STRING, d DOUBLE, at BIGINT"


KINDS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "vectors": {},
    "partial": {"missing": "keep"},
    "history": {"history": True},
    "iceberg": {},
}
"""The words of an ingestion by key into each kind of table."""

PARTIAL = ("id", "n", "at")
"""The fields of partial records."""

WORDS = {"key": ["id"], "sequence_by": "at"}


def main(rows: int, runs: int, kinds: Sequence[str], *, has_dlt: bool) -> int:
    """Measure in turns and print a row for each case; 1 if a goal is missed."""
    spark = delta_session()
    for key in ("spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions"):
        spark.conf.set(key, "2")  # Delta Lake's own are for clusters
    missed = print_rows(f"{rows:,} rows", (row for kind in kinds for row in _rows(spark, rows, runs, kind)))
    spark.stop()
    if has_dlt:
        _print_dlt(rows)
    return missed


def _rows(spark: SparkSession, rows: int, runs: int, kind: str) -> Iterator[Row]:
    for share in SHARES:
        costs: dict[str, list[Cost]] = {}
        for _ in range(runs + 1):
            for engine, cost in _turn(spark, rows, share, kind):
                costs.setdefault(engine, []).append(cost)
        found = {engine: middle(each[1:]) for engine, each in costs.items()}
        walls = ", ".join(f"{engine} {cost.wall:.2f} s" for engine, cost in found.items())
        print(f"  on the wall, {kind} {share:.0%}: {walls}")
        # Only the plain kinds do what a MERGE does.
        goal = GOAL if kind in ("plain", "vectors") else float("inf")
        yield Row(f"{kind} {share:.0%} / MERGE of Delta Lake and read", found["keys"].cpu, goal, found["MERGE"].cpu)
        goal = GOAL_OF_APPEND if kind in ("plain", "vectors") and share == min(SHARES) else float("inf")
        yield Row(f"{kind} {share:.0%} / append", found["keys"].cpu, goal, found["append"].cpu)


def _turn(spark: SparkSession, rows: int, share: float, kind: str) -> Iterator[tuple[str, Cost]]:
    """Yield what each engine needs for a batch."""
    delta, batch = write_table(spark, rows, vectors=kind == "vectors"), write_batch(rows, share)
    if kind == "iceberg":
        catalog = _write_iceberg_table(spark, rows)
        newer = write_batch(rows, share, newer=next(_BATCHES))
        yield "keys", measure(lambda: widen.ingest(newer, "shop.changed", catalog=catalog, spark=spark, **WORDS))
        yield "append", measure(lambda: widen.ingest(newer, "shop.added", catalog=catalog, spark=spark))
        Path(newer).unlink()
    else:
        table = _write_history(spark, rows) if kind == "history" else delta
        changes = write_batch(rows, share, fields=PARTIAL) if kind == "partial" else batch
        yield "keys", _change(lambda at: widen.ingest(changes, at, spark=spark, **WORDS, **KINDS[kind]), table)
        yield "append", _change(lambda at: widen.ingest(changes, at, spark=spark), delta)
    yield "MERGE", _change(lambda at: _merge_by_delta(spark, batch, at), delta)


_BATCHES = count(2)
"""By how much the records of each batch for an Iceberg table are newer than the rows at first."""


def _write_history(spark: SparkSession, rows: int) -> Path:
    """Write a table with history, with the rows of the others, unless it is there."""
    place = DATA / f"keys-{rows}-history"
    if not (place / "_delta_log").exists():
        widen.ingest(write_first(rows), place, spark=spark, **WORDS, history=True)
    return place


def _write_iceberg_table(spark: SparkSession, rows: int) -> Path:
    """Write two Iceberg tables with the rows of the others, unless they are there, and return their catalog."""
    catalog = DATA / f"keys-{rows}-iceberg" / "c.db"
    if not catalog.exists():
        catalog.parent.mkdir(parents=True)
        widen.ingest(write_first(rows), "shop.changed", catalog=catalog, spark=spark, **WORDS)
        widen.ingest(write_first(rows), "shop.added", catalog=catalog, spark=spark)
    return catalog


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


def write_first(rows: int) -> str:
    """Write all rows of a table as JSON lines, in several files, unless they are there, and return the folder."""
    place = DATA / f"keys-{rows}-first"
    if not place.exists():
        place.mkdir(parents=True)
        for part in range(FILES):
            with (place / f"{part}.json").open("w") as file:
                for key in range(part * rows // FILES, (part + 1) * rows // FILES):
                    row = {"id": key, "n": key * 2, "s": f"text {key % 100000}", "d": key / 7, "at": key}
                    file.write(json.dumps(row) + "\n")
    return str(place)


def write_batch(rows: int, share: float, *, fields: Sequence[str] = (), newer: int = 1) -> str:
    """Write the changed rows as JSON lines, spread over all files of the table, unless they are there.

    Args:
        fields: The fields of the records; by default all.
        newer: By how much they are newer than the rows.
    """
    name = f"{share:.0%}{'-partial' if fields else ''}{f'-{newer}' if newer > 1 else ''}"
    place = DATA / f"keys-{rows}-{name}.json"
    if not place.exists():
        with place.open("w") as file:
            for key in range(rows):
                if key % 1000 < round(share * 1000):
                    changed = {"id": key, "n": key * 3, "s": f"new {key % 1000}", "d": key + 0.5, "at": key + newer}
                    kept = {name: changed[name] for name in fields} if fields else changed
                    file.write(json.dumps(kept) + "\n")
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
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--dlt", action="store_true", help="also measure dlt's merge")
    return parser.parse_args()


if __name__ == "__main__":
    options = _options()
    sys.exit(main(options.rows, options.runs, options.kinds, has_dlt=options.dlt))
