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
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import widen
from support.fault import FULL, Injector, Operation, OutsideError, chosen, complaints, faults_of
from widen.errors import WidenError
from widen.table import Table, create_table

CI_FAULTS, CI_KILLS = 3, 4
"""How many faults and kills a run takes that is not asked for all of them."""

BEFORE = [(1, 5, "u"), (2, 5, "u"), (3, 5, "u"), (4, 5, "u"), (9, 5, "d")]
BATCH = [(1, 6, "u"), (2, 4, "u"), (3, 6, "d"), (5, 1, "u"), (9, 4, "u"), (1, 5, "u"), (8, 1, "d")]
ROWS = {"plain": [(1, 6), (2, 5), (4, 5), (5, 1)]}
ROWS["history"] = [(1, 5), (1, 6), (2, 4), (2, 5), (3, 5), (4, 5), (5, 1), (9, 4)]

KINDS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
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
    words: dict[str, Any] = {"key": ["id"], "sequence_by": "at", "delete_when": "op = 'd'"}
    words |= {"history": True} if kind == "history" else {}
    version = widen.ingest(str(place / "s.jsonl"), str(place / "t"), spark=spark, **words).version
    assert version is not None
    return version


def rows(spark: SparkSession, place: Path) -> list[tuple[int, int]]:
    return sorted((row.id, row.at) for row in Table(str(place / "t")).read(spark=spark).collect())


def wrong_after(spark: SparkSession, kind: str, template: Path, work: Path, injector: Injector) -> list[str]:
    """Load a batch, with what an injector does, and once more; return what is wrong then."""
    shutil.copytree(template, work)
    before, wanted = rows(spark, work), ROWS["history" if kind == "history" else "plain"]
    with suppress(WidenError, OutsideError, MemoryError, KeyboardInterrupt), injector.active():
        load(spark, kind, work)
    for call in injector.late:
        with suppress(WidenError):
            call()
    found = rows(spark, work)
    wrong = [] if found in (before, wanted) else [f"a part is visible: {found}"]
    load(spark, kind, work)
    if rows(spark, work) != wanted:
        wrong.append(f"the end is {rows(spark, work)}")
    shutil.rmtree(work)
    at = len(injector.calls) if injector.number is None else injector.number
    return [f"{kind}, call {at}, {injector.fault}: {each}" for each in wrong]


@pytest.mark.parametrize("kind", KINDS)
def test_no_fault_of_the_store_leaves_a_key_twice(
    spark: SparkSession, tmp_path: Path, kind: str, record_testsuite_property: Callable[[str, object], None]
) -> None:
    template, work = tmp_path / "template", tmp_path / "work"
    operation = Operation(f"keys {kind}", partial(prepare, spark, kind), partial(load, spark, kind))
    spots = faults_of(operation, template, work)
    taken = chosen(spots, CI_FAULTS, kind)
    wrong = [each for spot in taken for each in complaints(operation, template, work, spot)]
    for spot in taken:
        wrong += wrong_after(spark, kind, template, work, Injector(spot.number, spot.fault))
    assert wrong == []
    record_testsuite_property(f"faults of keys, {kind}", f"{len(taken)} of {len(spots)}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_that_is_killed_leaves_no_key_twice(
    spark: SparkSession, tmp_path: Path, kind: str, record_testsuite_property: Callable[[str, object], None]
) -> None:
    template, work = tmp_path / "template", tmp_path / "work"
    operation = Operation(f"keys {kind}", partial(prepare, spark, kind), partial(load, spark, kind))
    spots = faults_of(operation, template, work)
    calls = [(number, is_after) for number in {spot.number for spot in spots} for is_after in (False, True)]
    taken = calls if FULL in os.environ else random.Random(kind).sample(calls, CI_KILLS)
    wrong = []
    for number, is_after in taken:
        wrong += wrong_after(spark, kind, template, work, Killed(number, is_after=is_after))
    assert wrong == []
    record_testsuite_property(f"kills of keys, {kind}", f"{len(taken)} of {len(calls)}")
