"""What it costs to ask a large table for its readers, and to repair its bounds.

    python bench/readers.py [--files 1000000] [--repaired 100000]

`Table.readers()` runs in a process of its own, on a checkpoint of so many files with floats that became doubles, long
decimals, timestamps, a struct and booleans: compared are processor seconds, with those of listing the files, which is
its limit. Repaired are short floats, in the commit that widens the column, and rounded decimals by
`rewrite(statistics=True)`, which reads the footer of each file (hard links to one file). Called again, it finds by the
log that all bounds are exact. All of it beside the writing of a checkpoint of the same table.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from turns import Row, print_rows

import widen
from widen.log.checkpoint_writer import write_checkpoint
from widen.log.snapshot import open_snapshot

READERS_SECONDS, REPAIR_RATIO = 2.0, 2.0
COLUMNS = "id bigint, name string, v float, c decimal(18,2), at timestamp, s struct<x: int>, flag boolean"
_MOST_LINKS = 50_000
"""ext4 has up to 65,000 links to a file."""
EXACT = "90071992547409.93"
"""A decimal that deltalake writes as a double, which ends in 2."""
INTENT = {"widen.typeWidening": "whenNeeded"}


def main(files: int, repaired: int) -> int:
    """Measure and print the rows; 1 if a goal is missed."""
    return print_rows("Readers and bounds", _rows(files, repaired))


def _rows(files: int, repaired: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="widen-bench-") as folder:
        table = str(Path(folder, "t"))
        make_table(table, files)
        widen.Table(table).alter_column("v", type="double")
        write_checkpoint(open_snapshot(widen.Table(table).store))
        asked, listed = _case("readers", table), _case("files", table)
        yield Row(f"{files:,} files: readers", asked, READERS_SECONDS, limit=listed)
    with tempfile.TemporaryDirectory(prefix="widen-bench-") as folder:
        table = str(Path(folder, "t"))
        make_table(table, repaired, "90071992547409.92", flag="true")
        _link_files(table, repaired)
        for title, name in (("widen", "widen"), ("rewrite", "rewrite"), ("rewrite again", "rewrite")):
            done = _case(name, table)
            written = _case("checkpoint", table)
            yield Row(f"{repaired:,} files: bounds, by {title}", done, REPAIR_RATIO, written)


def make_table(table: str, files: int, decimal: str = EXACT, flag: str = "") -> None:
    """Make a table whose log names so many files, with floats and booleans as Delta Lake for Spark writes them.

    Args:
        decimal: The bounds of a decimal.
        flag: The bounds of a boolean; empty for none.
    """
    log = Path(widen.create_table(table, COLUMNS, properties=INTENT).location, "_delta_log")
    with (log / f"{1:020}.json").open("w") as lines:
        lines.write(json.dumps({"commitInfo": {"timestamp": 1_700_000_000_000, "operation": "WRITE"}}) + "\n")
        lines.writelines(_add_line(number, decimal, flag) for number in range(files))


def _add_line(number: int, c: str, flag: str) -> str:
    v, flag = number % 1000 / 10 + 0.1, flag and f',"flag":{flag}'
    times = f'"at":"2024-01-01T00:00:{number % 60:02}.000Z"'
    low, high = (
        f'{{"id":{number},"name":"a{number}","v":{bound:.1f},"c":{c},{times},"s":{{"x":{number}}}{flag}}}'
        for bound in (v, v + 1)
    )
    nulls = '{"id":0,"name":0,"v":0,"c":0,"at":0,"s":{"x":0},"flag":0}'
    text = f'{{"numRecords":1,"minValues":{low},"maxValues":{high},"nullCount":{nulls}}}'
    add = {"path": f"part-{number:08}.parquet", "partitionValues": {}, "size": 1000, "dataChange": True}
    more = {"modificationTime": 1_700_000_000_000, "stats": text}
    return json.dumps({"add": {**add, **more}}, separators=(",", ":")) + "\n"


def _link_files(table: str, files: int) -> None:
    row = {"id": 1, "name": "a", "v": 0.1, "c": Decimal(EXACT)}
    kinds = [("id", pa.int64()), ("name", pa.string()), ("v", pa.float32()), ("c", pa.decimal128(18, 2))]
    for number in range(files):
        path = Path(table, f"part-{number:08}.parquet")
        if number % _MOST_LINKS == 0:
            first = path
            pq.write_table(pa.Table.from_pylist([row], pa.schema(kinds)), path)
        else:
            os.link(first, path)


def _case(name: str, table: str) -> float:
    command = [sys.executable, str(Path(__file__).resolve()), "--case", name, table]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return float(done.stdout)


def run_case(name: str, table: str) -> None:
    """Run one case in this process, and print its processor seconds."""
    opened = widen.Table(table)
    calls = {
        "readers": opened.readers,
        "files": lambda: opened.refresh().files(),
        "widen": lambda: opened.alter_column("v", type="double"),
        "rewrite": lambda: opened.rewrite(statistics=True),
        "checkpoint": lambda: write_checkpoint(open_snapshot(opened.store)),
    }
    started = time.process_time()
    calls[name]()
    print(time.process_time() - started)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--case"]:
        run_case(*sys.argv[2:])
        sys.exit(0)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, default=1_000_000)
    parser.add_argument("--repaired", type=int, default=100_000)
    given = parser.parse_args()
    sys.exit(main(given.files, given.repaired))
