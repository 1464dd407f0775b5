"""Damaged Iceberg tables: whatever their metadata, manifests, delete files or catalog hold, an error of ours says so.

``make fuzz`` reads 5,000 mutants, on all cores; WIDEN_ICEBERG_FUZZ_FIRST and WIDEN_ICEBERG_FUZZ_COUNT choose others.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from support import iceberg_files, iceberg_mutants
from widen.errors import CorruptFile, TableError
from widen.table import IcebergTable

pytestmark = pytest.mark.sweep

FIRST = int(os.environ.get("WIDEN_ICEBERG_FUZZ_FIRST", "0"))
COUNT = int(os.environ.get("WIDEN_ICEBERG_FUZZ_COUNT", "40"))
MANY = 1_000


def test_no_mutant_of_a_table_does_more_than_raise_an_error_of_ours(tmp_path: Path) -> None:
    parts = os.cpu_count() or 1 if COUNT >= MANY else 1
    firsts = [FIRST + COUNT * part // parts for part in range(parts + 1)]
    counts = [end - first for first, end in pairwise(firsts)]
    processes = [started(tmp_path, first, count) for first, count in zip(firsts, counts, strict=False)]
    ends = [process.wait() for process in processes]
    for first, end in zip(firsts, ends, strict=False):
        assert end == 0, (tmp_path / f"{first}.log").read_text()[-2000:]  # the last line is the mutant that ended it
    results = [(tmp_path / f"{first}.jsonl").read_text().splitlines() for first in firsts[:-1]]
    assert [json.loads(line) for lines in results for line in lines] == [{"done": count} for count in counts]


def started(folder: Path, first: int, count: int) -> subprocess.Popen[bytes]:
    """Start a process that reads these mutants and writes what went wrong into a file: a pipe would fill up."""
    command = [sys.executable, "-m", iceberg_mutants.__name__, str(folder), str(first), str(count)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    with (folder / f"{first}.jsonl").open("w") as output, (folder / f"{first}.log").open("w") as errors:
        return subprocess.Popen(command, env=environment, stdout=output, stderr=errors)


@pytest.mark.parametrize("kind", ["manifest", "manifest list"])
@pytest.mark.parametrize("damage", ["deleted", "emptied", "cut", "a pipe"])
def test_a_damaged_file_of_metadata_is_named(tmp_path: Path, kind: str, damage: str) -> None:
    """A truncated manifest must not be a shorter list of files: their rows would be missing without an error."""
    (seed, *_) = iceberg_mutants.make_seeds(tmp_path / "seeds")
    found = sorted((seed / "catalog_warehouse").rglob("*.avro"), key=lambda path: path.stat().st_mtime_ns)
    path = [each for each in found if each.name.startswith("snap-") == (kind == "manifest list")][-1]
    content = path.read_bytes()
    path.unlink()
    if damage == "a pipe":
        os.mkfifo(path)
    elif damage != "deleted":
        path.write_bytes(b"" if damage == "emptied" else content[: content.rindex(content[-16:], 0, -16) + 18])
    table = IcebergTable(iceberg_mutants.NAME, seed / "catalog.db")
    assert len(table.history()) == 3
    with pytest.raises(CorruptFile, match=path.name):
        table.files()


def test_a_current_snapshot_that_is_missing_is_not_an_empty_table(tmp_path: Path) -> None:
    table = iceberg_files.embedded_catalog(tmp_path).create_table("ns.t", iceberg_mutants.SCHEMA)
    path = iceberg_files.write_file(table, iceberg_mutants.COLUMNS, iceberg_mutants.ROWS)
    iceberg_files.append(table, iceberg_files.data_file(path, 5))
    metadata = Path(table.refresh().metadata_location.removeprefix("file://"))
    value = json.loads(metadata.read_text())
    value["refs"], value["snapshots"] = {}, []
    metadata.write_text(json.dumps(value))
    with pytest.raises(TableError, match=f"{metadata.name} cannot be read: the current snapshot [0-9]+ is missing"):
        IcebergTable("ns.t", tmp_path / "catalog.db")
