"""Keep the classes that Spark loads, as the Java machine has prepared them: tests then start Spark in half the time.

    python tools/spark_classes.py .work/spark-classes.jsa

Runs Spark once and lets Java write the archive when it exits. If Java cannot write it, tests run without one.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from pyspark.sql import SparkSession

import widen


def main(target: str) -> int:
    """Write the archive under another name first, so that no test sees a part of it."""
    part = Path(f"{target}.part")
    options = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xlog:disable", f"-XX:ArchiveClassesAtExit={part}")
    os.environ["SPARK_SUBMIT_OPTS"] = " ".join(options)
    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    with tempfile.TemporaryDirectory() as folder:
        use(spark, Path(folder))
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    java = gateway.proc
    spark.stop()
    java.stdin.close()  # the Java machine ends when its input does
    java.wait()
    if part.exists():
        part.replace(target)
    return 0


def use(spark: SparkSession, folder: Path) -> None:
    """Do what most tests do."""
    (folder / "in.jsonl").write_text('{"id": 1, "s": {"x": [1]}}\n{"id": "two"}\n')
    widen.ingest(str(folder / "in.jsonl"), str(folder / "t"), spark=spark)
    table = widen.create_table(str(folder / "u"), "id int, n int", properties={"delta.enableTypeWidening": "true"})
    table.append(spark.sql("SELECT id, 1 n FROM VALUES (1), (2) AS v(id)"))
    table.alter_column("id", type="bigint")
    table.update({"n": "n + 1"}, "id = 1", spark=spark)
    table.merge(spark.range(3).selectExpr("id", "5 n"), "t.id = s.id").when_matched_update_all().execute()
    table.delete("id = 2", spark=spark)
    table.read("id = 1", spark=spark).collect()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
