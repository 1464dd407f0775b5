"""The first and the quiet interval into Iceberg against the same into Delta and by dlt, and 10,000 files in one commit.

    python bench/iceberg.py [--turns 5] [--records 100000]

One session, the cases in turn; the first turn warms up. Compared are the processor seconds of all processes. dlt
writes Iceberg tables in a folder, once, in a process of its own; starting it does not count.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median

import dataset
from case import session
from processor_time import processor_time
from pyspark.sql import SparkSession
from turns import Row, print_rows

import widen
from widen.iceberg.catalog import to_table_name
from widen.iceberg.file_metrics import IcebergFile
from widen.iceberg.table_commit import NewTable, open_transaction
from widen.log.commit_outcome import StagedFiles
from widen.model.types import LONG, Field, StructType

DATA = Path(__file__).resolve().parent.parent / ".work" / "data" / "bench"
FILES, COLUMNS, MS_EACH = 10_000, 20, 0.5
TARGET, DLT_TARGET = 1.1, 0.5


def main(arguments: list[str]) -> int:
    """Measure, print a row for each case, and return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--records", type=int, default=100_000)
    options = parser.parse_args(arguments)
    return print_rows(f"{options.records:,} records", _rows(options.turns, options.records))


def _rows(turns: int, records: int) -> Iterator[Row]:
    first = dataset.write(DATA / f"first-{records}", seed=1, records=records)
    later = dataset.write(DATA / f"quiet-{records}", seed=2, records=records)
    used: dict[tuple[str, str], list[float]] = {}
    spark = session()
    for turn in range(turns + 1):
        for form in ("delta", "iceberg"):
            with tempfile.TemporaryDirectory(dir=DATA) as folder:
                for interval, source in (("first", first), ("quiet", later)):
                    with processor_time() as seconds:
                        _ingest(spark, form, source, Path(folder))
                    if turn:
                        used.setdefault((interval, form), []).append(sum(seconds.values()))
    spark.stop()
    cost = {key: median(each) for key, each in used.items()}
    for interval in ("first", "quiet"):
        yield Row(f"{interval} into Iceberg / Delta", cost[interval, "iceberg"], TARGET, cost[interval, "delta"])
    yield Row("first into Iceberg / dlt", cost["first", "iceberg"], DLT_TARGET, _dlt_seconds(first))
    yield Row("ms for each of 10,000 files", _commit_ms(), MS_EACH)


def _dlt_seconds(source: Path) -> float:
    """Return the processor seconds of dlt for the same files."""
    script = str(Path(__file__).with_name("dlt_case.py"))
    command = [sys.executable, script, "dlt-iceberg", str(source), str(DATA / "dlt-iceberg")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"dlt failed:\n{done.stderr[-4000:]}")
    return float(json.loads(done.stdout.splitlines()[-1])["cpu_seconds"])


def _ingest(spark: SparkSession, form: str, source: Path, folder: Path) -> None:
    if form == "delta":
        widen.ingest(str(source), folder / "table", evolve="split", spark=spark)
    else:
        widen.ingest(str(source), "shop.orders", catalog=folder / "c.db", evolve="split", spark=spark)


def _commit_ms() -> float:
    """Return the milliseconds for each file of a commit of many, with counts and bounds of every column."""
    folder = Path(tempfile.mkdtemp(dir=DATA))
    schema = StructType(tuple(Field(f"c{number}", LONG) for number in range(COLUMNS)))
    metrics = '[80,10,0,"AAAAAAAAAAA=","CQAAAAAAAAA="]'
    columns = ",".join(f'"{number + 1}":{metrics}' for number in range(COLUMNS))
    stats = f'{{"rows":10,"offsets":[4],"columns":{{{columns}}}}}'
    files = [IcebergFile(f"job/part-{number}.parquet", 1000, stats) for number in range(FILES)]
    started = time.process_time()
    transaction = open_transaction(to_table_name("shop.files", folder / "c.db"), None, (), NewTable(schema))
    transaction.add_snapshot(files, {})
    transaction.commit(StagedFiles())
    seconds = time.process_time() - started
    shutil.rmtree(folder)
    return 1000 * seconds / FILES


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
