"""Opening a table and listing its files, side by side with deltalake, every case in a separate process.

    python bench/snapshot.py [FILES ...]

Logs of 100,000 and 1,000,000 files, as 1,000 JSON commits and as one checkpoint (written by deltalake). Both sides
open the table and return all files with sizes, partition values and statistics as one Arrow table: Widen with
``open_snapshot(...).files()``, deltalake with ``DeltaTable(...).get_add_actions()``, its lightest listing that has
as much (``file_uris()``, without sizes and statistics, is measured too and not compared).

Compared are processor seconds of the calls, without the imports; then the peak of memory of the process, and what the
calls added to the peak after the imports, since importing Arrow for Python alone takes more than a small log. The limit
of a checkpoint is what PyArrow needs to read its columns with values. At last a condition on a column is planned.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from turns import Row, print_rows

COMMITS = 1000
RUNS = 3
SIZES = (100_000, 1_000_000)
AT_MOST: dict[str, Any] = {"seconds": {"commits": 0.5, "checkpoint": 0.15}, "added_mb": 0.5, "peak_mb": 0.5}
PLANNED_SECONDS = 1e-6
"""The most processor seconds for each file that planning may take."""
SCHEMA = {
    "type": "struct",
    "fields": [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in [("id", "long"), ("name", "string"), ("amount", "double"), ("day", "date")]
    ],
}


def main(sizes: list[int]) -> int:
    """Measure every case in turns and print the rows; 1 if a goal is missed."""
    return print_rows("Snapshots", _rows(sizes))


def _rows(sizes: list[int]) -> Iterator[Row]:
    for files in sizes:
        with tempfile.TemporaryDirectory(prefix="widen-bench-") as folder:
            commits, checkpoint = Path(folder, "commits"), Path(folder, "checkpoint")
            write_log(commits, files)
            _make_checkpoint(commits, checkpoint)
            for name, table in (("commits", commits), ("checkpoint", checkpoint)):
                yield from _compare(name, table, files)


def _compare(name: str, table: Path, files: int) -> Iterator[Row]:
    cases = ["widen", "deltalake", "widen-open", "deltalake-uris", *(["widen-where", "pyarrow"] * (name != "commits"))]
    runs: dict[str, list[dict[str, float]]] = {case: [] for case in cases}
    for _ in range(RUNS):
        for case in cases:
            runs[case].append(_measured(case, table, files))
    found = {case: {key: median(run[key] for run in done) for key in done[0]} for case, done in runs.items()}
    title = f"{files:,} files, {name}:"
    limit = found["pyarrow"]["seconds"] if "pyarrow" in found else None
    ours, theirs = found["widen"], found["deltalake"]
    yield Row(f"{title} seconds", ours["seconds"], AT_MOST["seconds"][name], theirs["seconds"], limit)
    for key in ("added_mb", "peak_mb") if files >= SIZES[-1] else ("added_mb",):
        yield Row(f"{title} {key}", ours[key], AT_MOST[key], theirs[key])
    if "widen-where" in found:
        seconds = found["widen-where"]["seconds"] - ours["seconds"]
        yield Row(f"{title} plan a condition, in seconds", seconds, max(files * PLANNED_SECONDS, 0.2))
    for case in ("widen-open", "deltalake-uris"):
        print(f"  {case}: {found[case]['seconds']:.3f} s, peak {found[case]['peak_mb']:.0f} MB")


def _measured(case: str, table: Path, files: int) -> dict[str, float]:
    command = [sys.executable, str(Path(__file__).resolve()), "--case", case, str(table)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    numbers: dict[str, float] = json.loads(done.stdout)
    listed = numbers.pop("files")
    if listed != {"widen-open": 0, "widen-where": 1}.get(case, files):
        sys.exit(f"{case} found {listed} files in {table}, not {files}")
    return numbers


def run_case(case: str, table: str) -> None:
    """Run one case in this process and print its numbers as JSON."""
    calls = _CASES[case]()
    imported_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    files = calls(table)
    seconds = time.process_time() - started
    peak_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    numbers = {"peak_mb": peak_kb / 1024, "added_mb": (peak_kb - imported_kb) / 1024}
    print(json.dumps({"seconds": seconds, "files": files, **numbers}))


def _widen(work: str):
    import pyarrow as pa
    import pyarrow.json
    import pyarrow.parquet

    from widen.log import checkpoint_reader, log_replay
    from widen.log.file_list import filter_files
    from widen.log.log_store import LogStore
    from widen.log.snapshot import open_snapshot
    from widen.model.types import LONG
    from widen.protocol.data_skipping import Compare, FileSelection

    pa.scalar(1)  # imports pandas, as a Spark session does
    assert all((pa.json, pa.parquet.ParquetFile, vars(checkpoint_reader)["pq"], log_replay.pc.filter))

    def calls(table: str) -> int:
        snapshot = open_snapshot(LogStore(table))
        assert snapshot.metadata.id
        if work == "open":
            return 0
        selection = FileSelection(Compare(("id",), LONG, "=", 5), snapshot.schema, "none", ("day",))
        return (filter_files(snapshot.files(), selection) if work == "where" else snapshot.files()).num_rows

    return calls


def _pyarrow():
    import pyarrow.parquet as pq

    columns = [f"add.{name}" for name in ("path", "partitionValues", "size", "modificationTime", "stats")]

    def calls(table: str) -> int:
        (checkpoint,) = Path(table, "_delta_log").glob("*.parquet")
        return pq.ParquetFile(checkpoint).read(columns, use_threads=False).num_rows - 2  # the protocol and the metadata

    return calls


def _deltalake(*, uris: bool):
    from deltalake import DeltaTable

    def calls(table: str) -> int:
        opened = DeltaTable(table)
        return len(opened.file_uris()) if uris else opened.get_add_actions().num_rows

    return calls


_CASES = {
    "widen": lambda: _widen("list"),
    "widen-open": lambda: _widen("open"),
    "widen-where": lambda: _widen("where"),
    "pyarrow": _pyarrow,
    "deltalake": lambda: _deltalake(uris=False),
    "deltalake-uris": lambda: _deltalake(uris=True),
}


def write_log(table: Path, files: int) -> None:
    """Write a log of `COMMITS` commits that add so many files."""
    log = table / "_delta_log"
    log.mkdir(parents=True)
    draw = random.Random(1)
    for version in range(COMMITS):
        numbers = range(version * files // COMMITS, (version + 1) * files // COMMITS)
        lines = [*_first_lines(version), *_add_lines(numbers, draw)]
        text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
        (log / f"{version:020d}.json").write_text(text)


def _first_lines(version: int) -> Iterator[dict[str, object]]:
    info = {"timestamp": 1_700_000_000_000 + version, "operation": "WRITE", "operationParameters": {"mode": "Append"}}
    yield {"commitInfo": info}
    if version == 0:
        yield {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
        metadata = {"id": str(uuid.UUID(int=1)), "format": {"provider": "parquet", "options": {}}}
        yield {
            "metaData": {
                **metadata,
                "schemaString": json.dumps(SCHEMA),
                "partitionColumns": ["day"],
                "configuration": {},
            }
        }


def _add_lines(numbers: range, draw: random.Random) -> Iterator[dict[str, object]]:
    for number in numbers:
        day = f"2024-01-{number % 28 + 1:02d}"
        stats = {
            "numRecords": 1000 + number,
            "minValues": {"id": number * 1000, "name": f"alpha{number}", "amount": 0.5 + number},
            "maxValues": {"id": number * 1000 + 999, "name": f"omega{number}", "amount": 1000.25 + number},
            "nullCount": {"id": 0, "name": 3, "amount": 1},
        }
        name = f"part-{number:05d}-{uuid.UUID(int=draw.getrandbits(128))}-c000.snappy.parquet"
        add = {"path": f"day={day}/{name}", "partitionValues": {"day": day}, "size": 100_000 + number}
        more = {"modificationTime": 1_700_000_000_000 + number, "dataChange": True}
        yield {"add": {**add, **more, "stats": json.dumps(stats, separators=(",", ":"))}}


def _make_checkpoint(commits: Path, checkpoint: Path) -> None:
    """Copy the table and leave only a checkpoint of it, written by deltalake."""
    shutil.copytree(commits, checkpoint)
    script = "import sys; from deltalake import DeltaTable; DeltaTable(sys.argv[1]).create_checkpoint()"
    subprocess.run([sys.executable, "-c", script, str(checkpoint)], check=True)
    for path in (checkpoint / "_delta_log").glob("*[0-9].json"):
        path.unlink()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--case"]:
        run_case(*sys.argv[2:])
        sys.exit(0)
    sys.exit(main([int(text) for text in sys.argv[1:]] or list(SIZES)))
