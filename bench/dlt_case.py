"""One measured load by dlt in a separate process; prints one JSON line with seconds and peak memory.

    python bench/dlt_case.py dlt-duckdb|dlt-parquet|dlt-iceberg SOURCE TARGET

As dlt's own documentation reads JSON lines: its filesystem source and ``read_jsonl``, into DuckDB, into Parquet or into
Iceberg tables in a folder.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import dlt
from dlt.sources.filesystem import readers


def main(case: str, source: str, target: str) -> None:
    """Measure one case and print what it took."""
    place = Path(target)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    os.environ["RUNTIME__DLTHUB_TELEMETRY"] = "false"
    to: Any = (
        dlt.destinations.duckdb(str(place / "loaded.duckdb"))
        if case == "dlt-duckdb"
        else dlt.destinations.filesystem(bucket_url=place.as_uri())
    )
    pipeline = dlt.pipeline("bench", destination=to, dataset_name="bench", pipelines_dir=str(place / "work"))
    records = readers(bucket_url=Path(source).as_uri(), file_glob="*.json").read_jsonl().with_name("orders")
    if case == "dlt-iceberg":
        records.apply_hints(table_format="iceberg")
    started, cpu_started = time.perf_counter(), time.process_time()
    pipeline.run(records, loader_file_format="parquet")
    seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - cpu_started
    python_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = {"seconds": seconds, "cpu_seconds": cpu_seconds, "python_mb": python_mb, "jvm_mb": 0.0, "workers_mb": 0.0}
    print(json.dumps({"case": case, **found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
