"""Loads of new files that are killed before any of their file operations, alone and two at a time.

Run as a program: ``killed_loads.py FOLDER FORMAT SEED COUNT`` prints what is wrong afterwards, as JSON lines. The
format is ``delta`` or ``iceberg``. The program imports once and forks each load. Segments and their limits are small,
so that a few files make every kind of record.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import widen
from widen.errors import ContentionError
from widen.log import load_segments, loads
from widen.table import IcebergTable, Table

NAMES = ("a", "b%20c", "100%", "d e", "x=1%/f", "g+h", "é")
"""What the names of files begin with."""

LOADS_OF_A_TABLE = 12
MOST_KILLS = 3
_WRITES = {"os.rename", "os.link", "os.remove", "os.mkdir", "os.truncate", "sqlite3.connect"}


@dataclass(frozen=True)
class Shop:
    """A folder with new files, and the table that gets them."""

    place: Path
    format: str

    @property
    def landing(self) -> Path:
        return self.place / "land%20ing"

    @property
    def table(self) -> str:
        return "shop.t" if self.format == "iceberg" else str(self.place / "t")

    @property
    def words(self) -> dict[str, Any]:
        catalog = str(self.place / "c.db") if self.format == "iceberg" else None
        return {"catalog": catalog, "engine": "local"}

    def add_files(self, rng: random.Random, first: int, count: int) -> None:
        for number in range(first, first + count):
            path = self.landing / f"{rng.choice(NAMES)}{number}.json"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f'{{"id": {number}}}\n')

    def load(self, max_files: int | None = None) -> None:
        widen.ingest(self.landing, self.table, new=True, max_files=max_files, **self.words)

    def find_complaints(self, count: int) -> list[str]:
        """Return what is wrong after a load that has ended: each file has to be in the table and its record once."""
        if self.format == "iceberg":
            table = IcebergTable(self.table, self.words["catalog"])
            ids, recorded = table.table.scan().to_arrow()["id"].to_pylist(), table.loads()
        else:
            ids, recorded = Table(self.table).to_arrow()["id"].to_pylist(), Table(self.table).loads()
        wrong = [f"file {number} is in the table {times} times" for number, times in Counter(ids).items() if times > 1]
        wrong += [f"file {number} is not in the table" for number in range(count) if number not in set(ids)]
        files = Counter(file.path for load in recorded for file in load.files)
        wrong += [f"{path} is recorded {times} times" for path, times in files.items() if times > 1]
        return wrong if len(files) == count else [*wrong, f"{len(files)} of {count} files are recorded"]


def fork(place: Path, work: Callable[[], None], operations: int | None = None) -> int:
    """Do work in a new process, and return its id.

    Args:
        operations: The process is killed before the operation after so many; None to let it end.
    """
    if child := os.fork():
        return child
    left = sys.maxsize if operations is None else operations

    def count(event: str, values: tuple[Any, ...]) -> None:
        nonlocal left
        is_write = event in _WRITES or (event == "open" and isinstance(values[2], int) and values[2] & os.O_CREAT)
        left -= is_write
        if is_write and left < 0:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    try:
        work()
    except ContentionError:
        os._exit(0)
    except BaseException:  # a process that must not return to what its parent does
        (place / "error").write_text(traceback.format_exc())
        os._exit(1)
    os._exit(0)


def end_of(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def load_with_kills(shop: Shop, rng: random.Random) -> list[str]:
    """Load the new files in processes that are killed, often two at a time, and at last in one that ends."""
    for _ in range(rng.randint(1, MOST_KILLS)):
        limits = [rng.choice([None, 2]) for _ in range(rng.randint(1, 2))]
        children = [
            fork(shop.place, lambda limit=limit: shop.load(limit), rng.choice([None, *range(48)])) for limit in limits
        ]
        for child in children:
            if end_of(child) not in (0, -signal.SIGKILL):
                return [(shop.place / "error").read_text()[-1500:]]
    return [] if end_of(fork(shop.place, shop.load)) == 0 else [(shop.place / "error").read_text()[-1500:]]


def main(folder: Path, format: str, seed: int, count: int) -> None:
    """Load that many times, and print what is wrong after each load."""
    load_segments.GROUP_FILES, load_segments.MAX_SEGMENT_FILES = 4, 32
    loads.MAX_SEGMENT_FILES, loads.MAX_INLINE_FILES, loads.CLEANUP_EVERY = 32, 5, 3
    files = 0
    for number in range(count):
        rng = random.Random(f"{seed} {number}")
        shop = Shop(folder / f"{format}-{seed}-{number // LOADS_OF_A_TABLE}", format)
        if not shop.landing.exists():
            files = 0
        added = rng.choice([1, 2, 3, 9])
        shop.add_files(rng, files, added)
        files += added
        if wrong := load_with_kills(shop, rng) or shop.find_complaints(files):
            print(json.dumps({"load": number, "wrong": wrong[:10]}), flush=True)
            return
    print(json.dumps({"done": count}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
