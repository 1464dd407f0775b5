"""How each cost grows: every dimension at three sizes, and its slope; docs/scale.md has the numbers.

    python bench/scale.py [records] [columns] [kinds] [files] [versions]

A slope of 1 means that ten times the size costs ten times as much; 0 means that the size does not matter. Compared are
processor seconds of all processes.
"""

from __future__ import annotations

import math
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from statistics import median

import msgspec
from processor_time import processor_time
from snapshot import _make_checkpoint, write_log

import widen
from widen.batches.text_tasks import BatchWriteSpec, collect_notes, merge_notes
from widen.evolution.evolve import evolve
from widen.evolution.policy import Policy
from widen.frames.scan import plan_read
from widen.json.observation import Observation
from widen.log.checkpoint_writer import write_checkpoint
from widen.log.commit import commit
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.model.types import DATE, LONG, StructType
from widen.protocol.actions import Add
from widen.protocol.data_skipping import Compare, Predicate
from widen.sources.file_ranges import as_raw_records

RUNS = 3
Costs = Mapping[str, Callable[[], object]]


def main(names: Sequence[str]) -> int:
    """Measure the dimensions and print their costs and slopes."""
    with tempfile.TemporaryDirectory(prefix="widen-bench-") as folder:
        for name in names or list(DIMENSIONS):
            sizes, make = DIMENSIONS[name]
            found: dict[str, list[float]] = {}
            print(f"{name}: {', '.join(f'{size:,}' for size in sizes)}")
            for size in sizes:
                place = Path(folder, f"{name}-{size}")
                place.mkdir()
                for what, cost in make(place, size).items():
                    found.setdefault(what, []).append(measure(cost))
                shutil.rmtree(place)
            for what, costs in found.items():
                print(
                    f"  {what:<36}{'  '.join(f'{cost:9.3f} s' for cost in costs)}   slope {slope(sizes, costs):.2f}",
                    flush=True,
                )
    return 0


def measure(cost: Callable[[], object]) -> float:
    """Return the median processor seconds of a call after a first one."""
    cost()
    found = []
    for _ in range(RUNS):
        with processor_time() as used:
            cost()
        found.append(sum(used.values()))
    return median(found)


def slope(sizes: Sequence[int], costs: Sequence[float]) -> float:
    """Return the exponent with which costs grow between the first and the last size."""
    return math.log(max(costs[-1], 1e-3) / max(costs[0], 1e-3)) / math.log(sizes[-1] / sizes[0])


def _task(records: Iterator[object]) -> Costs:
    """Return the parts of an interval of so many records, without what Spark needs to start a task."""
    texts = as_raw_records([msgspec.json.encode(record) for record in records], "file:/records.json")
    policy, nothing = Policy(), Observation()
    unknown = BatchWriteSpec(None, nothing.to_json(), StructType(), policy, is_exhaustive=True)
    observed = merge_notes(collect_notes(texts, unknown))
    known = BatchWriteSpec(None, observed.to_json(), evolve(None, observed, policy).schema, policy)
    return {
        "observe all records": lambda: collect_notes(texts, unknown),
        "plan": lambda: evolve(None, observed, policy),
        "make the rows of a quiet interval": lambda: collect_notes(texts, known),
    }


def _records(place: Path, size: int) -> Costs:
    return _task({"id": n, "name": f"name {n}", "amount": n / 4, "at": {"day": n % 28}} for n in range(size))


def _columns(place: Path, size: int) -> Costs:
    return _task({f"c{column}": n + column for column in range(size)} for n in range(100_000 // size))


def _kinds(place: Path, size: int) -> Costs:
    kinds = [1, "text", {"a": 1}, [1, 2]]
    return _task({f"c{column}": kinds[n % size] for column in range(20)} for n in range(5_000))


def _files(place: Path, size: int) -> Costs:
    commits, checkpoint = place / "commits", place / "checkpoint"
    write_log(commits, size)
    _make_checkpoint(commits, checkpoint)
    shutil.rmtree(commits)
    store = LogStore(str(checkpoint))
    snapshot = open_snapshot(store)
    number = iter(range(10**9))

    def append() -> None:
        adds = [
            Add(
                path=f"new/{next(number)}",
                partition_values={"day": "2024-01-01"},
                size=1,
                modification_time=1,
                data_change=True,
            )
        ]
        commit(store, open_snapshot(store), adds, "WRITE", {}).or_raise()

    def where(predicate: Predicate) -> Callable[[], object]:
        return lambda: plan_read(snapshot, predicate)

    return {
        "open": lambda: open_snapshot(store).metadata,
        "list all files": lambda: open_snapshot(store).files(),
        "plan id = 5": where(Compare(("id",), LONG, "=", 5)),
        "plan day = 2024-01-05": where(Compare(("day",), DATE, "=", date(2024, 1, 5))),
        "commit one file": append,
        "write a checkpoint": lambda: write_checkpoint(open_snapshot(store)),
    }


def _versions(place: Path, size: int) -> Costs:
    table = widen.create_table(str(place / "table"), "n bigint", properties={"delta.checkpointInterval": "1000000"})
    store = LogStore(table.location)
    number = iter(range(10**9))

    def append() -> None:
        add = Add(path=f"f{next(number)}", partition_values={}, size=1, modification_time=1, data_change=True)
        commit(store, open_snapshot(store), [add], "WRITE", {}).or_raise()

    append()
    log = Path(table.location, "_delta_log")
    entry, checksum = (log / f"{1:020d}.{ending}" for ending in ("json", "crc"))
    for version in range(2, size + 1):
        (log / f"{version:020d}.json").write_text(entry.read_text().replace('"f0"', f'"g{version}"'))
        shutil.copy(checksum, log / f"{version:020d}.crc")
    return {
        "open": lambda: open_snapshot(store).metadata,
        "commit one file": append,
        "list all files": lambda: open_snapshot(store).files(),
        "ten entries of the history": lambda: open_snapshot(store).history(10),
    }


DIMENSIONS: Mapping[str, tuple[Sequence[int], Callable[[Path, int], Costs]]] = {
    "records": ((2_000, 8_000, 32_000), _records),
    "columns": ((10, 50, 250), _columns),
    "kinds": ((1, 2, 4), _kinds),
    "files": ((10_000, 50_000, 250_000), _files),
    "versions": ((100, 500, 2_500), _versions),
}
"""By name: three sizes, and what to measure at each."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
