"""Data in memory into a new Delta table: a pandas DataFrame and an Arrow table beside deltalake, dicts beside dlt.

    python bench/memory.py [--rows 5000000] [--dicts 100000] [--runs 3]

``deltalake.write_deltalake`` gets the same Arrow data and writes it with its own defaults. dlt loads the same dicts
into Parquet in a folder. Compared are processor seconds; the first turn, in which modules are imported, does not count.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dlt
import numpy as np
import pyarrow as pa
from deltalake import write_deltalake
from turns import Row, Work, print_rows, take_turns

import widen


def make_table(rows: int) -> pa.Table:
    """Return rows of five types."""
    dice = np.random.default_rng(45)
    return pa.table(
        {
            "id": pa.array(np.arange(rows, dtype="int64") + 2**33),
            "amount": pa.array(dice.integers(0, 10**6, rows) / 4),
            "name": pa.array(dice.choice([f"name {number}" for number in range(5000)], rows)),
            "at": pa.array(1_706_500_000_000_000 + dice.integers(0, 10**12, rows)).cast(pa.timestamp("us", "UTC")),
            "paid": pa.array(dice.integers(0, 2, rows).astype(bool)),
        }
    )


def make_dicts(count: int) -> list[dict[str, Any]]:
    """Return records as a service sends them, with a list and a nested object."""
    dice = random.Random(45)
    start = dt.datetime(2024, 1, 29, tzinfo=dt.timezone.utc)
    return [
        {
            "id": number,
            "total": dice.randrange(4000) / 4,
            "customer": {"id": dice.randrange(900), "city": "Ghent"},
            "tags": [dice.choice("abc")],
            "at": (start + dt.timedelta(seconds=number)).isoformat(),
        }
        for number in range(count)
    ]


def anew(place: Path, work: Work) -> Work:
    """Return a work that begins without its folder."""

    def run() -> object:
        shutil.rmtree(place, ignore_errors=True)
        return work()

    return run


def by_dlt(place: Path, records: list[dict[str, Any]]) -> object:
    """Load dicts with dlt, as its documentation shows."""
    to = dlt.destinations.filesystem(bucket_url=place.as_uri())
    pipeline = dlt.pipeline("memory", destination=to, dataset_name="memory", pipelines_dir=str(place / "work"))
    return pipeline.run(records, table_name="orders", loader_file_format="parquet")


def compare(place: Path, rows: int, dicts: int, runs: int) -> Iterator[Row]:
    """Yield a row for each kind of data."""
    table = make_table(rows)
    frame, records = table.to_pandas(), make_dicts(dicts)
    ours, theirs = place / "ours", place / "theirs"
    for name, goal, load, peer in (
        ("arrow", 1.1, lambda: widen.ingest(table, ours), lambda: write_deltalake(str(theirs), table)),
        ("pandas", 1.1, lambda: widen.ingest(frame, ours), lambda: write_deltalake(str(theirs), table)),
        ("dicts", 0.5, lambda: widen.ingest(records, ours), lambda: by_dlt(theirs, records)),
    ):
        costs = take_turns({"ours": anew(ours, load), "peer": anew(theirs, peer)}, runs)
        yield Row(f"memory / {name}", costs["ours"].cpu, goal, costs["peer"].cpu)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--dicts", type=int, default=100_000)
    parser.add_argument("--runs", type=int, default=3)
    chosen = parser.parse_args()
    os.environ["RUNTIME__DLTHUB_TELEMETRY"], os.environ["WIDEN_ENGINE"] = "false", "local"
    with tempfile.TemporaryDirectory() as folder:
        title = f"{chosen.rows:,} rows and {chosen.dicts:,} dicts, processor seconds"
        raise SystemExit(print_rows(title, compare(Path(folder), chosen.rows, chosen.dicts, chosen.runs)))
