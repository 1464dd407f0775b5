"""Loads by the order of names: which folders are listed, and audits that find late names."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import widen
from widen.errors import InvalidOption, OptionMissing
from widen.ingestion.result import IngestResult
from widen.sources import file_comparison
from widen.sources.find_files import LocalWalk, to_files

DAY_MS = 86_400_000
NAMES = ("a", "a.json", "ab", "a=1", "b", "2026", "1", "10", "9", "a%20", "é", "-")


def listed(walk: LocalWalk) -> list[str]:
    return sorted(file.path for batch in walk.batches() for file in to_files(batch))


def grow(rng: random.Random, folder: Path, depth: int) -> None:
    """Fill a folder with files, folders and links to files."""
    for name in rng.sample(NAMES, rng.randint(1, 5)):
        path = folder / name
        if depth and rng.random() < 0.5:
            path.mkdir()
            grow(rng, path, depth - 1)
        elif rng.random() < 0.1:
            path.symlink_to(folder.parent / "outside")
        else:
            path.write_text("{}\n")


@pytest.mark.parametrize("seed", range(30))
def test_a_walk_after_a_name_has_the_files_after_it(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    (tmp_path / "outside").write_text("{}\n")
    (tmp_path / "in").mkdir()
    grow(rng, tmp_path / "in", 3)
    place = str(tmp_path / "in")
    every = [path.removeprefix(f"file:{place}/") for path in listed(LocalWalk([place], drops_links=False))]
    for last in (*every, "2026/", "a", "zz", "a=1/x", "/"):
        found = listed(LocalWalk([f"{place}/"], drops_links=False, after={f"{place}/": last}))
        assert [path.removeprefix(f"file:{place}/") for path in found] == [name for name in every if name > last], last


class Days:
    """A landing zone with a folder a day, its table, and a clock."""

    def __init__(self, place: Path, catalog: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place, self.catalog, self.now_ms = place, catalog, 1_800_000_000_000
        monkeypatch.setattr(file_comparison, "current_ms", lambda: self.now_ms)

    @property
    def table(self) -> Any:
        return widen.IcebergTable("shop.t", self.catalog) if self.catalog else widen.Table(str(self.place / "t"))

    def write(self, *names: str) -> None:
        for name in names:
            path = self.place / "in" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f'{{"name": "{name}"}}\n')

    def load(self, **words: Any) -> IngestResult:
        into = "shop.t" if self.catalog else self.place / "t"
        words = {"audit": "1d", "order": "name", "catalog": self.catalog, **words}
        return widen.ingest(self.place / "in", into, new=True, engine="local", **words)

    def names(self, **words: Any) -> tuple[int, int, int]:
        """Load, and return how many records that are, how many files were missed, and how many folders audited."""
        done = self.load(**words)
        return done.records, done.compared.missed.count, done.compared.audited.count


@pytest.fixture(params=["delta", "iceberg"])
def days(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Days:
    return Days(tmp_path, str(tmp_path / "c.db") if request.param == "iceberg" else None, monkeypatch)


def test_an_audit_finds_late_names_once_a_day(days: Days) -> None:
    days.write("2026/11/28/1.json", "2026/11/29/1.json")
    assert days.names() == (2, 0, 1)
    days.write("2026/11/28/2.json", "2026/11/29/2.json")
    assert days.names() == (1, 0, 0)
    days.now_ms += DAY_MS - 1
    assert days.names() == (0, 0, 0)
    days.now_ms += 1
    done = days.load()
    assert (done.records, done.compared.missed.first) == (1, (f"file:{days.place}/in/2026/11/28/2.json",))
    assert done.compared.after.count == 0
    days.now_ms += DAY_MS - 1
    assert days.names() == (0, 0, 0)
    days.now_ms += 1
    assert days.names() == (0, 0, 1)
    assert days.names() == (0, 0, 0), "an audit that finds nothing is noted, although it commits nothing"
    assert days.table.loads()[-1].records == 1


def test_an_audit_on_demand_also_sees_changed_files(days: Days) -> None:
    days.write("a/1.json", "b/1.json")
    days.load(audit=None)
    days.write("a/2.json")
    (days.place / "in/a/1.json").write_text('{"name": "longer than before"}\n')
    assert days.names(audit=None) == (0, 0, 0)
    assert days.names(audit="now", changed="skip") == (1, 1, 1)
    assert days.names() == (0, 0, 0), "an audit on demand is one of the day"


def test_an_audit_that_leaves_late_files_to_the_next_load_goes_on(days: Days) -> None:
    days.write("b/1.json")
    days.load()
    days.write("a/1.json", "a/2.json", "c/1.json", "c/2.json")
    days.now_ms += DAY_MS
    assert days.names(max_files=1) == (1, 2, 1)
    assert days.names(max_files=1) == (1, 1, 1)
    assert days.names(max_files=1) == (1, 0, 0)
    assert days.names() == (1, 0, 0)


def test_a_restore_brings_back_the_time_of_the_audit(days: Days) -> None:
    days.write("b/1.json")
    days.load()
    before = days.table.version
    days.now_ms += DAY_MS
    days.write("a/1.json")
    assert days.names() == (1, 1, 1)
    days.table.restore(before)
    assert days.names() == (1, 1, 1)


def test_folders_that_can_have_nothing_new_are_not_opened(days: Days, monkeypatch: pytest.MonkeyPatch) -> None:
    days.write(*(f"date=2026-11-{day:02}/{part}.json" for day in range(1, 29) for part in range(3)))
    days.load()
    days.write("date=2026-11-28/3.json", "date=2026-11-29/0.json")
    opened: list[str] = []
    plain: Callable[..., int] = os.open
    monkeypatch.setattr(
        os, "open", lambda path, *more, **words: (opened.append(str(path)), plain(path, *more, **words))[1]
    )
    assert days.names() == (2, 0, 0)
    folders = {path.rpartition("/")[2] for path in opened if "/in/date=" in path and os.path.isdir(path)}
    assert folders == {"date=2026-11-28", "date=2026-11-29"}


@pytest.mark.parametrize(
    ("words", "error", "reason"),
    [
        ({"order": "any"}, OptionMissing, "audit needs order"),
        ({"audit": "daily"}, InvalidOption, "Must be now, or a time such as 1d"),
        ({"audit": "0d"}, None, ""),
    ],
)
def test_an_audit_is_a_time_and_needs_the_order(
    days: Days, words: dict[str, Any], error: type[Exception] | None, reason: str
) -> None:
    days.write("a.json")
    if error is None:
        assert days.names(**words) == (1, 0, 1)
        assert days.names(**words) == (0, 0, 1)
        return
    with pytest.raises(error, match=reason):
        days.load(**words)
