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
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

import widen
from support.fault import FULL, Injector, Operation, chosen, complaints, faults_of
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
    words: dict[str, Any] = {"key": ["id"], "sequence_by": "at", "delete_when": "op = 'd'"}
    words |= {"history": {"history": True}, "partial": {"missing": "keep"}}.get(kind, {})
    # What needs no Spark is done without it, as by default: its calls to the store are the same.
    session = spark if isinstance(spark, LocalSession) else LocalSession(Engine.AUTO, lambda _: spark)
    version = widen.ingest(str(place / "s.jsonl"), str(place / "t"), spark=cast(SparkSession, session), **words).version
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


@pytest.mark.parametrize("kind", KINDS)
def test_no_fault_of_the_store_leaves_a_key_twice(
    spark: SparkSession, tmp_path: Path, kind: str, record_testsuite_property: Callable[[str, object], None]
) -> None:
    template, work = tmp_path / "template", tmp_path / "work"
    operation = Operation(f"keys {kind}", partial(prepare, spark, kind), partial(load, spark, kind))
    spots = faults_of(operation, template, work)
    taken, look = chosen(spots, CI_FAULTS, kind), partial(wrong_rows, spark, kind, rows(template))
    assert [each for spot in taken for each in complaints(operation, template, work, spot, look)] == []
    record_testsuite_property(f"faults of keys, {kind}", f"{len(taken)} of {len(spots)}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_that_is_killed_leaves_no_key_twice(
    spark: SparkSession, tmp_path: Path, kind: str, record_testsuite_property: Callable[[str, object], None]
) -> None:
    template, work = tmp_path / "template", tmp_path / "work"
    operation = Operation(f"keys {kind}", partial(prepare, spark, kind), partial(load, spark, kind))
    spots, before = faults_of(operation, template, work), rows(template)
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
