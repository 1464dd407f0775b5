"""One measured case in a separate process; prints one JSON line with seconds and peak memory.

    python bench/case.py infer SOURCE TARGET

Cases: ``infer`` (Spark infers, then writes Parquet), ``known`` (Spark reads with the schema it is given, writes
Parquet), ``first`` (Widen, a new table), ``quiet`` (Widen, a table that has seen it all), ``verified`` (the same, with
the proof).
"""

from __future__ import annotations

import json
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

import psutil
from processor_time import processor_time
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

import widen

Case = Callable[[SparkSession, str, str], None]


def main(case: str, source: str, target: str) -> None:
    """Measure one case and print what it took."""
    spark = session()
    _warm_up(case, spark, Path(source), Path(target))
    jvm = spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid()  # type: ignore[union-attr]
    started = time.perf_counter()
    with worker_memory(jvm) as workers_mb, processor_time() as used:
        CASES[case](spark, source, target)
        seconds = time.perf_counter() - started
    python_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = {"seconds": seconds, "cpu_seconds": sum(used.values()), "python_mb": python_mb, "jvm_mb": peak_mb(jvm)}
    found["workers_mb"] = max(workers_mb, default=0.0)
    print(json.dumps({"case": case, **found}))
    spark.stop()


def infer(spark: SparkSession, source: str, target: str) -> None:
    """What users do today: infer in one pass, write in a second."""
    spark.read.json(source).write.parquet(target)


def known(spark: SparkSession, source: str, target: str) -> None:
    """The floor: the schema is known and nobody looks whether the data still fit it."""
    schema = StructType.fromJson(json.loads(schema_path(Path(source)).read_text()))
    spark.read.schema(schema).json(source).write.parquet(target)


def ingest(spark: SparkSession, source: str, target: str) -> None:
    """One interval of Widen into the table at the target, new or not."""
    widen.ingest(source, into=target, spark=spark)


def ingest_verified(spark: SparkSession, source: str, target: str) -> None:
    """The same with the proof."""
    verification = widen.ingest(source, into=target, spark=spark, verify=True).verification
    assert verification is not None
    assert verification.is_clean


def infer_schema(spark: SparkSession, source: str, target: str) -> None:
    """Not measured: keep Spark's inferred schema for the case ``known``."""
    schema_path(Path(source)).write_text(spark.read.json(source).schema.json())


CASES: dict[str, Case] = {
    "infer": infer,
    "known": known,
    "first": ingest,
    "quiet": ingest,
    "verified": ingest_verified,
    "schema": infer_schema,
}


def schema_path(source: Path) -> Path:
    """Where the schema of a source is kept."""
    return source.with_name(source.name + ".schema.json")


def session(heap: str = "3g") -> SparkSession:
    """Return a session on two cores with so much heap."""
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false"}
    builder = SparkSession.builder.master("local[2]")
    for key, value in {**quiet, "spark.sql.shuffle.partitions": "2", "spark.driver.memory": heap}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def _warm_up(case: str, spark: SparkSession, source: Path, target: Path) -> None:
    """Run the case once on a few lines, so that none pays for loading its classes and starting its workers."""
    few = target.with_name("warm-up") / "few.json"
    few.parent.mkdir(exist_ok=True)
    with next(source.glob("*.json")).open(encoding="utf-8") as lines:
        few.write_text("".join(line for line, _ in zip(lines, range(2_000), strict=False)), encoding="utf-8")
    schema_path(few).write_text(schema_path(source).read_text() if schema_path(source).exists() else "{}")
    warm = target.with_name("warm-up-target")
    shutil.rmtree(warm, ignore_errors=True)
    CASES[case](spark, str(few), str(warm))


def peak_mb(pid: int) -> float:
    """The peak of a process, in MB."""
    status = Path(f"/proc/{pid}/status")
    if not status.exists():
        return 0.0
    line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


@contextmanager
def worker_memory(jvm: int) -> Iterator[list[float]]:
    """Yield a list that grows by what all Python workers of a JVM together hold, in MB, ten times a second."""
    found: list[float] = []
    end = Event()

    def sample() -> None:
        while not end.wait(0.1):
            found.append(sum(map(_resident_mb, psutil.Process(jvm).children(recursive=True))))

    thread = Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        end.set()
        thread.join()


def _resident_mb(process: psutil.Process) -> float:
    try:
        return float(process.memory_info().rss) / 2**20
    except psutil.Error:  # it has ended
        return 0.0


if __name__ == "__main__":
    main(*sys.argv[1:])
