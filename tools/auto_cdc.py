"""Put generated histories of keys through Spark's AUTO CDC and through Widen's loads by key, and compare the rows.

    make auto-cdc [HISTORIES=500]

AUTO CDC needs tables that take Spark's ``MERGE`` of DataSource V2. Printed is for Delta Lake and for Iceberg, with the
jars of ``make interop``, what keeps this Spark from it. The histories go to the first format that works, and else to
tables in memory of Spark's own tests, which no user has. They have late records, records that come twice, deletions,
and records after them; what both decide differently on purpose (see docs/guide/keys.md) is left out: equal sequences
with different records, null keys, and columns whose type changes.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyspark

import widen
from support.connect_server import connect_server

ROOT = Path(__file__).resolve().parent.parent
JARS = ROOT / ".work"
SCHEMA = "h BIGINT, k BIGINT, seq BIGINT, v STRING, op STRING"
DEFINITIONS = """
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()


@dp.temporary_view
def changes():
    reader = spark.readStream.schema({schema!r}).option("maxFilesPerTrigger", 1)
    return reader.json({landing!r})


dp.create_streaming_table("result")
dp.create_auto_cdc_flow(
    target="result", source="changes", keys=["h", "k"], sequence_by="seq", apply_as_deletes="op = 'D'"
)
"""
SPEC = """
name: judge
storage: {storage}
catalog: {catalog}
database: judged
libraries:
  - glob:
      include: load/**
"""
Record = dict[str, Any]


def formats(place: Path) -> Iterator[tuple[str, str, Mapping[str, str]]]:
    """Yield the name of each table format, its catalog, and the settings of Spark for it."""
    delta, iceberg, tests = (sorted((JARS / name).glob(pattern)) for name, pattern in _PATTERNS)
    catalog = "spark.sql.catalog.judge"
    extension = "io.delta.sql.DeltaSparkSessionExtension"
    of_delta = {
        "spark.sql.extensions": extension,
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.sources.default": "delta",
    }
    yield _name(delta), "spark_catalog", {**_jars(delta), **of_delta}
    of_iceberg = {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "hadoop",
        f"{catalog}.warehouse": str(place / "warehouse"),
    }
    yield _name(iceberg), "judge", {**_jars(iceberg), **of_iceberg}
    yield _name(tests), "judge", {**_jars(tests), catalog: f"org.apache.spark.sql.connector.catalog.{_IN_MEMORY}"}


_PATTERNS = (("jars", "delta-*.jar"), ("jars", "iceberg-*.jar"), ("jars-auto-cdc", "*.jar"))
_IN_MEMORY = "SharedTablesInMemoryRowLevelOperationTableCatalog"


def _name(jars: list[Path]) -> str:
    return jars[0].stem


def _jars(jars: list[Path]) -> dict[str, str]:
    return {"spark.jars": ",".join(map(str, jars))}


def make_history(number: int, dice: random.Random) -> list[list[Record]]:
    """Return the records of a history, in three batches: each event has a sequence of its own, and some come late."""
    records: list[Record] = [
        {"h": number, "k": dice.randrange(3), "seq": seq, "v": f"v{seq}", "op": dice.choice("UUUD")}
        for seq in range(dice.randrange(1, 12))
    ]
    places = sorted(records, key=lambda record: record["seq"] + dice.choice([0, 0, 0, 4, -4]))
    again = [record for record in places if dice.random() < 0.1]
    batches: list[list[Record]] = [[], [], []]
    for at, record in enumerate(places):
        batches[3 * at // len(places)].append(record)
    batches[2] += again
    return batches


def write_landing(landing: Path, histories: int) -> None:
    """Write a file for each batch, with the records of all histories."""
    landing.mkdir()
    dice = random.Random(44)
    made = [make_history(number, dice) for number in range(histories)]
    for batch in range(3):
        lines = (json.dumps(record) for history in made for record in history[batch])
        file = landing / f"{batch}.json"
        file.write_text("".join(f"{line}\n" for line in lines))
        os.utime(file, (1_700_000_000 + batch, 1_700_000_000 + batch))  # the stream takes the oldest first


def by_widen(place: Path, landing: Path) -> set[tuple[int, int, str]]:
    """Load each batch by key, with the proof, and return the rows."""
    table = place / "widen"
    words: Record = {"key": ["h", "k"], "sequence_by": "seq", "delete_when": "op = 'D'"}
    for file in sorted(landing.iterdir()):
        done = widen.ingest(file, table, engine="local", verify=True, **words)
        assert done.verification is not None
        assert done.verification.is_clean
    return {(row["h"], row["k"], row["v"]) for row in widen.Table(table).to_arrow().to_pylist()}


def by_auto_cdc(place: Path, catalog: str, landing: Path, url: str) -> set[tuple[int, int, str]]:
    """Run a pipeline over the batches, and return the rows.

    Raises:
        RuntimeError: it fails; with the sentence that says why.
    """
    from pyspark.sql.connect.session import SparkSession

    project = place / "project"
    (project / "load").mkdir(parents=True)
    (project / "load" / "changes.py").write_text(DEFINITIONS.format(schema=SCHEMA, landing=str(landing)))
    (project / "spark-pipeline.yml").write_text(SPEC.format(storage=(place / "storage").as_uri(), catalog=catalog))
    spark = SparkSession.builder.remote(url).getOrCreate()
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}.judged").collect()
    if catalog == "judge":  # sessions of Spark's own tests share tables, and a namespace only with a table in it
        spark.sql("CREATE TABLE judge.judged.first (id INT)").collect()
    # spark-pipelines itself starts a server of its own, whose tables in memory would be gone with it.
    words = [sys.executable, "-m", "pyspark.pipelines.cli", "run"]
    environment = {**os.environ, "SPARK_REMOTE": url}
    done = subprocess.run(words, cwd=project, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        found = re.findall(r"\[[A-Z0-9_.]{12,}\][^\n]*|java\.lang\.\w+Error[^\n]*", done.stdout + done.stderr)
        raise RuntimeError(next(iter(found), (done.stdout + done.stderr)[-500:])[:300])
    rows = spark.sql(f"SELECT h, k, v FROM {catalog}.judged.result").collect()
    return {(row["h"], row["k"], row["v"]) for row in rows}


def main(histories: int) -> int:
    """Print what each table format lacks, and how many keys differ; 1 if one does, or if nothing runs AUTO CDC."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        landing = place / "landing"
        write_landing(landing, histories)
        wanted = by_widen(place, landing)
        for name, catalog, settings in formats(place):
            shutil.rmtree(place / "project", ignore_errors=True)
            quiet = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
            try:
                with connect_server(place, {**settings, **quiet}) as url:
                    found = by_auto_cdc(place, catalog, landing, url)
            except Exception as error:
                print(f"Spark {pyspark.__version__} with {name}: AUTO CDC fails: {' '.join(str(error).split())[:300]}")
                continue
            different = sorted({row[:2] for row in wanted ^ found})
            print(f"Spark {pyspark.__version__} with {name}: {histories} histories, {len(wanted)} rows")
            print(f"{len(different)} keys differ{': ' if different else ''}{different[:5] or ''}")
            return int(bool(different))
    return 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1])))
