"""Warm turns: Spark's work and ours on the same data, in turn, in one session. Medians of all turns but the first.

    python bench/warm.py [--turns 4] [--small] [--only json,csv,parquet,shapes]

Prints seconds, processor seconds of all processes, and every ratio of processor seconds with its goal. ``known`` is
Spark's write with a schema that it is given, ``infer`` Spark's inference and write, ``copy`` Spark's copy of Parquet;
``quiet`` is an interval into a table that has seen it all, ``first`` one into a new table.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import dataset
import shape_data
from case import session
from processor_time import processor_time
from pyspark.sql import SparkSession

import widen

DATA = Path(__file__).resolve().parent.parent / ".work" / "data" / "bench" / "warm"
TARGET = DATA / "target"
Work = Callable[[], object]


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Args:
        name: What is compared.
        ours: Our work, from the source to `TARGET`.
        theirs: Spark's work on the same source.
        goal: What the ratio of processor seconds may be at most.
        seen: A source that the table of an interval has seen before; None for a new table.
    """

    name: str
    ours: Callable[[str], object]
    theirs: Work
    source: Path
    goal: float
    seen: Path | None = None


def main(arguments: list[str]) -> int:
    """Measure, print the table, and return 1 if a goal is missed."""
    options = _options(arguments)
    spark = session()
    share = 0.1 if options.small else 1.0
    missed = False
    print(f"Warm: one session, local[2]; load of the machine {os.getloadavg()[0]:.1f}")
    print(f"  {'work':<40}{'ours s':>8}{'CPU s':>8}{'Spark s':>9}{'CPU s':>8}")
    for group in options.only.split(","):
        for row in GROUPS[group](spark, share):
            missed |= _measure(row, options.turns)
    spark.stop()
    return int(missed)


def _measure(row: Row, turns: int) -> bool:
    """Run both works in every turn, print the row and its ratio, and tell whether it is over its goal."""
    seen = DATA / "seen"
    shutil.rmtree(seen, ignore_errors=True)
    if row.seen is not None:
        shutil.rmtree(TARGET, ignore_errors=True)
        row.ours(str(row.seen))
        shutil.move(TARGET, seen)
    found: dict[str, list[tuple[float, float]]] = {"ours": [], "theirs": []}
    for _ in range(turns):
        for name, work in (("theirs", row.theirs), ("ours", partial(row.ours, str(row.source)))):
            shutil.rmtree(TARGET, ignore_errors=True)
            if name == "ours" and row.seen is not None:
                shutil.copytree(seen, TARGET)
            with processor_time() as used:
                started = time.perf_counter()
                work()
                seconds = time.perf_counter() - started
            found[name].append((seconds, sum(used.values())))
    (ours, ours_cpu), (theirs, theirs_cpu) = (
        tuple(median(turn[at] for turn in found[name][1:] or found[name]) for at in (0, 1)) for name in found
    )
    ratio = ours_cpu / theirs_cpu
    print(f"  {row.name:<40}{ours:>8.2f}{ours_cpu:>8.2f}{theirs:>9.2f}{theirs_cpu:>8.2f}")
    print(f"  {row.name:<40}{ratio:>6.3f}  (at most {row.goal}){'' if ratio <= row.goal else '  MISSED'}", flush=True)
    return ratio > row.goal


def _json(spark: SparkSession, share: float) -> list[Row]:
    rows = []
    for drifting, quiet_goal in ((dataset.DRIFTING, 0.8), (0.01, 0.5)):
        first, later = (
            dataset.write(DATA / f"orders-{share}-{drifting}-{seed}", seed, round(300_000 * share), drifting)
            for seed in (1, 2)
        )
        rows += [
            Row(f"{drifting:.0%} drift, quiet / known", _ingest(spark), _known(spark, later), later, quiet_goal, first),
            Row(f"{drifting:.0%} drift, first / infer", _ingest(spark), _infer(spark, first), first, 0.6),
        ]
    return rows


def _csv(spark: SparkSession, share: float) -> list[Row]:
    first, later = (
        shape_data.write_csv(DATA / f"csv-{share}-{seed}", seed, round(2_000_000 * share)) for seed in (1, 2)
    )
    rows = []
    for name, schema, detects in (("texts", shape_data.CSV_TEXTS, False), ("types", shape_data.CSV_SCHEMA, True)):
        reader = spark.read.schema(schema).option("header", True)
        theirs = partial(lambda reader: reader.csv(str(later)).write.parquet(str(TARGET)), reader)
        rows.append(Row(f"CSV {name}, quiet / known", _ingest(spark, detect_types=detects), theirs, later, 0.7, first))
    return rows


def _parquet(spark: SparkSession, share: float) -> list[Row]:
    sources = []
    for seed in (1, 2):
        texts = shape_data.write_csv(DATA / f"csv-{share}-{seed}", seed, round(2_000_000 * share))
        place = DATA / f"parquet-{share}-{seed}"
        if not (place / "_SUCCESS").exists():
            reader = spark.read.schema(shape_data.CSV_SCHEMA).option("header", True)
            reader.csv(str(texts)).write.mode("overwrite").parquet(str(place))
        sources.append(place)
    first, later = sources
    return [
        Row("Parquet, quiet / copy", _ingest(spark), _copy(spark, later), later, 1.2, first),
        Row("Parquet, first / copy", _ingest(spark), _copy(spark, first), first, 1.2),
    ]


SHAPES: dict[str, tuple[int, shape_data.Make]] = {
    "200 fields": (4_000, shape_data.wide(200)),
    "2,000 fields": (400, shape_data.wide(2_000)),
    "deep": (18_000, shape_data.deep),
    "long texts": (1_500, shape_data.long_text),
}
"""How many records of each shape are about 15 MB, so that a row takes less than a minute."""


def _shapes(spark: SparkSession, share: float) -> list[Row]:
    rows = []
    for name, (records, make) in SHAPES.items():
        place = f"{name.replace(',', '').replace(' ', '-')}-{share}"
        first, later = (
            shape_data.write_json(DATA / f"{place}-{seed}", seed, round(records * share), make) for seed in (1, 2)
        )
        rows.append(Row(f"{name}, quiet / known", _ingest(spark), _known(spark, later), later, 1.2, first))
    return rows


GROUPS: dict[str, Callable[[SparkSession, float], list[Row]]] = {
    "json": _json,
    "csv": _csv,
    "parquet": _parquet,
    "shapes": _shapes,
}


def _ingest(spark: SparkSession, **options: bool) -> Callable[[str], object]:
    return lambda source: widen.ingest(source, into=str(TARGET), spark=spark, **options)


def _known(spark: SparkSession, source: Path) -> Work:
    schema = spark.read.json(str(source)).schema
    return lambda: spark.read.schema(schema).json(str(source)).write.parquet(str(TARGET))


def _infer(spark: SparkSession, source: Path) -> Work:
    return lambda: spark.read.json(str(source)).write.parquet(str(TARGET))


def _copy(spark: SparkSession, source: Path) -> Work:
    return lambda: spark.read.parquet(str(source)).write.parquet(str(TARGET))


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=4)
    parser.add_argument("--small", action="store_true", help="a tenth of the data")
    parser.add_argument("--only", default=",".join(GROUPS))
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
