"""Ingestions by key that are killed or whose store fails: repeated, every key has exactly its newest row.

A process that is killed does nothing any more: from one call to a store on, no call is made, not even to clean up.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

import widen
from engine.test_iceberg_faults import CALLS, WITHOUT_LATE, IcebergInjector
from support.fault import FULL, Injector, Operation, OutsideError, Spot, chosen, complaints, faults_of
from widen.errors import WidenError
from widen.errors.tables import notes_of
from widen.iceberg.catalog import to_table_name
from widen.spark.engine import Engine, LocalSession
from widen.table import Table, create_table

CI_FAULTS, CI_KILLS = 3, 4
"""How many faults and kills a run takes that is not asked for all of them."""

BEFORE = [(1, 5, "u"), (2, 5, "u"), (3, 5, "u"), (4, 5, "u"), (9, 5, "d")]
BATCH = [(1, 6, "u"), (2, 4, "u"), (3, 6, "d"), (5, 1, "u"), (9, 4, "u"), (1, 5, "u"), (8, 1, "d")]
ROWS = {"plain": [(1, 6), (2, 5), (4, 5), (5, 1)]}
ROWS["history"] = [(1, 5), (1, 6), (2, 4), (2, 5), (3, 5), (4, 5), (5, 1), (9, 4)]

KINDS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "partial": {},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "feed": {"delta.enableChangeDataFeed": "true"},
    "history": {},
}


@dataclass
class Killed(Injector):
    """From a call on, or after it, the process makes no more calls."""

    is_after: bool = False

    def around(self, name: str, call: Callable[[], Any], half: Callable[[], Any]) -> Any:
        self.calls.append(name)
        at = len(self.calls) - 1
        if self.number is None or at < self.number:
            return call()
        found = call() if self.is_after and at == self.number else None
        if hasattr(found, "close"):
            found.close()  # as the end of a process does
        raise KeyboardInterrupt


def prepare(spark: SparkSession, kind: str, place: Path) -> None:
    place.mkdir()
    properties = {**KINDS[kind], "delta.checkpointInterval": "1", "delta.enableTypeWidening": "true"}
    create_table(str(place / "t"), "id bigint, at bigint, op string", properties=properties)
    write_source(place, BEFORE)
    load(spark, kind, place)
    write_source(place, BATCH)


def write_source(place: Path, events: list[tuple[int, int, str]]) -> None:
    lines = [json.dumps({"id": key, "at": at, "op": op}) for key, at, op in events]
    (place / "s.jsonl").write_text("".join(f"{line}\n" for line in lines))


def load(spark: SparkSession, kind: str, place: Path) -> int:
    return ingest(spark, kind, place / "s.jsonl", str(place / "t"))


def ingest(spark: SparkSession, kind: str, source: Path, target: str, **words: Any) -> int:
    words |= {"key": ["id"], "sequence_by": "at", "delete_when": "op = 'd'"}
    words |= {"history": {"history": True}, "partial": {"missing": "keep"}}.get(kind, {})
    # What needs no Spark is done without it, as by default: its calls to the store are the same.
    session = spark if isinstance(spark, LocalSession) else LocalSession(Engine.AUTO, lambda _: spark)
    version = widen.ingest(str(source), target, spark=cast(SparkSession, session), **words).version
    assert version is not None
    return version


def rows(place: Path) -> list[tuple[int, int]]:
    return sorted((row["id"], row["at"]) for row in Table(str(place / "t")).to_arrow().to_pylist())


def wrong_rows(spark: SparkSession, kind: str, before: list[tuple[int, int]], place: Path) -> list[str]:
    """Return what is wrong with the rows after a load that may have failed, and after it is repeated."""
    wanted, found = ROWS["history" if kind == "history" else "plain"], rows(place)
    wrong = [] if found in (before, wanted) else [f"a part is visible: {found}"]
    load(spark, kind, place)
    if rows(place) != wanted:
        wrong.append(f"the end is {rows(place)}")
    return wrong


@dataclass(frozen=True)
class Prepared:
    """A table before a batch of its kind, and every fault that the batch can meet."""

    operation: Operation
    template: Path
    spots: list[Spot]


@pytest.fixture(scope="module")
def prepared(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Prepared]:
    """Make what the tests of a kind start from, once for all of them."""

    @cache
    def make(kind: str) -> Prepared:
        operation = Operation(f"keys {kind}", partial(prepare, spark, kind), partial(load, spark, kind))
        place = tmp_path_factory.mktemp(kind)
        return Prepared(operation, place / "template", faults_of(operation, place / "template", place / "work"))

    return make


@pytest.mark.parametrize("kind", KINDS)
def test_no_fault_of_the_store_leaves_a_key_twice(
    spark: SparkSession,
    tmp_path: Path,
    kind: str,
    prepared: Callable[[str], Prepared],
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    of_kind = prepared(kind)
    template, spots = of_kind.template, of_kind.spots
    taken, look = chosen(spots, CI_FAULTS, kind), partial(wrong_rows, spark, kind, rows(template))
    wrong = [each for spot in taken for each in complaints(of_kind.operation, template, tmp_path / "work", spot, look)]
    assert wrong == []
    record_testsuite_property(f"faults of keys, {kind}", f"{len(taken)} of {len(spots)}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_that_is_killed_leaves_no_key_twice(
    spark: SparkSession,
    tmp_path: Path,
    kind: str,
    prepared: Callable[[str], Prepared],
    record_testsuite_property: Callable[[str, object], None],
) -> None:
    work, template, spots = tmp_path / "work", prepared(kind).template, prepared(kind).spots
    before = rows(template)
    calls = [(number, is_after) for number in sorted({spot.number for spot in spots}) for is_after in (False, True)]
    taken = calls if FULL in os.environ else random.Random(kind).sample(calls, CI_KILLS)
    wrong = []
    for number, is_after in taken:
        shutil.copytree(template, work)
        with suppress(KeyboardInterrupt), Killed(number, is_after=is_after).active():
            load(spark, kind, work)
        wrong += [f"call {number}, {is_after}: {each}" for each in wrong_rows(spark, kind, before, work)]
        shutil.rmtree(work)
    assert wrong == []
    record_testsuite_property(f"kills of keys, {kind}", f"{len(taken)} of {len(calls)}")


# Iceberg tables. Their metadata has the paths of its files, so that the files of a table are put back where they were.


NAME = "shop.status"
ICEBERG_KINDS = ("plain", "partial", "history")
LATER = 100
"""How much later the records of a round are than those of the one before."""


@dataclass
class Rounds:
    """An Iceberg table by key, in a folder of its own, and what it must hold after a batch.

    The first round makes the table, which takes other calls than the next one. That is tried again and again, each time
    with the files as they were before its batch.

    Args:
        kept: A copy of these files.
        calls: The calls of the batch without a fault.
    """

    spark: SparkSession
    kind: str
    place: Path
    kept: Path
    number: int = 0
    calls: list[str] = field(default_factory=list)

    @property
    def catalog(self) -> Path:
        return self.place / "c.db"

    def make(self) -> None:
        """Make the table as it is before the batch that is tried."""
        self.place.mkdir()
        self.load("before")
        self.load()
        self.number += 1
        self.load("before")
        shutil.copytree(self.place, self.kept)
        injector = IcebergInjector()
        with injector.active():
            self.load()
        assert self.rows() == self.wanted()
        self.calls = injector.calls

    def begin(self) -> None:
        """Put the files back that were there before the batch."""
        kept = {path.relative_to(self.kept) for path in self.kept.rglob("*")}
        for path in sorted(self.place.rglob("*"), reverse=True):
            if path.relative_to(self.place) not in kept:
                path.rmdir() if path.is_dir() else path.unlink()
        # The database of the catalog stays the same file, which connections have open.
        shutil.copytree(self.kept, self.place, dirs_exist_ok=True)

    def load(self, name: str = "batch") -> None:
        source = self.place / f"{name}{self.number}.jsonl"
        if not source.exists():  # a load that is repeated finds the same file
            events = BEFORE if name == "before" else BATCH
            later = [{"id": key, "at": self.at(at), "op": op} for key, at, op in events]
            source.write_text("".join(f"{json.dumps(each)}\n" for each in later))
        ingest(self.spark, self.kind, source, NAME, catalog=self.catalog)

    def at(self, at: int, number: int | None = None) -> int:
        return at + LATER * (self.number if number is None else number)

    def wanted(self) -> list[tuple[int, int]]:
        """What the table must hold after the batch of this round."""
        if self.kind != "history":
            return sorted((key, self.at(at)) for key, at in ROWS["plain"])
        return sorted((key, self.at(at, each)) for key, at in ROWS["history"] for each in range(self.number + 1))

    def rows(self) -> list[tuple[int, int]]:
        found = to_table_name(NAME, self.catalog).load().scan(selected_fields=("id", "at")).to_arrow()
        return sorted(zip(found["id"].to_pylist(), found["at"].to_pylist(), strict=True))

    def newest(self) -> tuple[str, int | None]:
        """The newest metadata file, which every commit replaces, and the newest snapshot."""
        table = to_table_name(NAME, self.catalog).load()
        return table.metadata_location, table.metadata.current_snapshot_id

    def wrong_after(self, injector: Injector) -> list[str]:
        """Return what is wrong after a batch in which calls go wrong, and after it is repeated."""
        self.begin()
        before, newest, ended = self.rows(), self.newest(), None
        try:
            with injector.active():
                self.load()
        except (WidenError, OutsideError, KeyboardInterrupt) as error:
            ended = error
        wrong, (metadata, snapshot) = [], self.newest()
        is_visible, said = metadata != newest[0], "; ".join([str(ended), *notes_of(ended)])
        if self.rows() != (self.wanted() if is_visible else before):
            wrong.append(f"a part is visible: {self.rows()}")
        if ended is None and not is_visible:
            wrong.append("it was acknowledged, and nothing is visible")
        if isinstance(ended, WidenError) and is_visible and str(snapshot) not in said:
            wrong.append(f"snapshot {snapshot} is visible, and the error does not say so: {said}")
        self.load()
        if self.rows() != self.wanted():
            wrong.append(f"the end is {self.rows()}")
        return [f"{ended!r}: {each}" for each in wrong]


@pytest.fixture(scope="module")
def rounds_of(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Rounds]:
    """Make the table of a kind, once for all tests."""

    @cache
    def make(kind: str) -> Rounds:
        place = tmp_path_factory.mktemp(f"iceberg-{kind}")
        rounds = Rounds(spark, kind, place / "table", place / "kept")
        rounds.make()
        return rounds

    return make


@pytest.mark.parametrize("kind", ICEBERG_KINDS)
def test_no_fault_of_the_store_or_the_catalog_leaves_a_key_twice(
    kind: str, rounds_of: Callable[[str], Rounds], record_testsuite_property: Callable[[str, object], None]
) -> None:
    rounds = rounds_of(kind)
    spots = [
        Spot(number, call, fault)
        for number, call in enumerate(rounds.calls)
        for fault in CALLS.get(call.rpartition(".")[2], (None, WITHOUT_LATE))[1]
        if fault in WITHOUT_LATE  # SQLite is a file, so no answer is late
    ]
    commit = min(spot.number for spot in spots if spot.call == "iceberg.commit_table")
    around = spots if FULL in os.environ else [spot for spot in spots if commit - 5 <= spot.number]
    taken = chosen(around, CI_FAULTS, f"iceberg {kind}")
    wrong = [
        f"{spot.call} {spot.number} {spot.fault.value}, {each}"
        for spot in taken
        for each in rounds.wrong_after(IcebergInjector(spot.number, spot.fault))
    ]
    assert wrong == []
    record_testsuite_property(f"faults of keys in Iceberg, {kind}", f"{len(taken)} of {len(spots)}")


@dataclass
class IcebergKilled(Killed, IcebergInjector):
    """The same for the calls to PyIceberg's files and catalog."""


@pytest.mark.parametrize("kind", ICEBERG_KINDS)
def test_a_process_that_is_killed_leaves_no_key_of_an_iceberg_table_twice(
    kind: str, rounds_of: Callable[[str], Rounds], record_testsuite_property: Callable[[str, object], None]
) -> None:
    rounds = rounds_of(kind)
    calls = [(number, is_after) for number in range(len(rounds.calls)) for is_after in (False, True)]
    taken = calls if FULL in os.environ else random.Random(f"iceberg {kind}").sample(calls, CI_KILLS)
    wrong = [
        f"call {number}, {is_after}, {each}"
        for number, is_after in taken
        for each in rounds.wrong_after(IcebergKilled(number, is_after=is_after))
    ]
    assert wrong == []
    record_testsuite_property(f"kills of keys in Iceberg, {kind}", f"{len(taken)} of {len(calls)}")
