"""The record of loads of tables that are restored, also forwards, after any maintenance: each file is loaded once."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import widen
from widen.log import load_segments, loads
from widen.table import IcebergTable, Table

STEPS = 20


@pytest.fixture(autouse=True)
def small_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few files make segments, and delete record files as soon as nothing needs them."""
    monkeypatch.setattr(load_segments, "GROUP_FILES", 4)
    for module in (load_segments, loads):
        monkeypatch.setattr(module, "MAX_SEGMENT_FILES", 32)
    monkeypatch.setattr(loads, "MAX_INLINE_FILES", 5)
    monkeypatch.setattr(loads, "CLEANUP_EVERY", 2)
    monkeypatch.setattr(loads, "KEPT_MS", -60_000)


class Shop:
    """A landing zone and its table, and what may happen to them.

    Args:
        place: A new folder.
    """

    def __init__(self, place: Path, format: str, rng: random.Random) -> None:
        self.place, self.rng, self.files, self.points = place, rng, 0, list[int]()
        self.landing = place / "in%2"
        self.landing.mkdir(parents=True)
        self.catalog = str(place / "c.db") if format == "iceberg" else None
        self.name = "shop.t" if self.catalog else str(place / "t")

    @property
    def table(self) -> Any:
        return IcebergTable(self.name, self.catalog) if self.catalog else Table(self.name)

    def write(self) -> Path:
        path = self.landing / f"{self.rng.choice('ab%')}{self.files}.json"
        path.write_text(f'{{"id": {self.files}}}\n')
        self.files += 1
        return path

    def ingest(self, source: Path, **words: Any) -> bool:
        return widen.ingest(source, self.name, catalog=self.catalog, engine="local", **words).is_unchanged

    def load(self) -> None:
        for _ in range(self.rng.choice([1, 2, 3, 8])):
            self.write()
        self.ingest(self.landing, new=True, max_files=self.rng.choice([None, 2]))
        while not self.ingest(self.landing, new=True):
            continue
        assert len(self.ids()) == self.files

    def load_by_name(self) -> None:
        self.ingest(self.write())

    def restore(self) -> None:
        self.table.restore(self.rng.choice(self.points))

    def maintain(self) -> None:
        if not self.catalog:
            self.table.optimize()
            self.table.vacuum()

    def copy(self) -> None:
        if not self.catalog:
            shutil.move(shutil.copytree(self.place / "t", self.place / "copy"), self.place / "moved")
            shutil.rmtree(self.place / "t")
            (self.place / "moved").rename(self.place / "t")

    def ids(self) -> list[int]:
        table = self.table
        return (table.table.scan() if self.catalog else table).to_arrow()["id"].to_pylist()  # type: ignore[no-any-return]

    def ensure_each_once(self) -> None:
        ids, recorded = self.ids(), Counter(file.path for load in self.table.loads() for file in load.files)
        assert len(set(ids)) == len(ids)
        assert set(recorded.values()) <= {1}
        assert sorted(int(path.rpartition("/")[2][1:-5]) for path in recorded) == sorted(ids)
        self.points.append(self.table.version)


@pytest.mark.parametrize("format", ["delta", "iceberg"])
@pytest.mark.parametrize("seed", range(4))
def test_each_file_is_loaded_once_whatever_version_is_restored(tmp_path: Path, format: str, seed: int) -> None:
    rng = random.Random(seed)
    shop = Shop(tmp_path / "shop", format, rng)
    shop.load()
    shop.ensure_each_once()
    steps: list[Callable[[], None]] = [
        shop.load,
        shop.load_by_name,
        shop.restore,
        shop.restore,
        shop.maintain,
        shop.copy,
    ]
    for _ in range(STEPS):
        rng.choice(steps)()
        shop.ensure_each_once()
    shop.load()
    shop.ensure_each_once()
