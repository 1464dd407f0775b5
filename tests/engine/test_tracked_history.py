"""Tracked fields on Spark, which decides by itself and proves by itself: the same versions as without it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from engine.test_keyed_proof import FORMATS, open_keyed, with_cell, wrap_decision
from engine.test_keys import Keyed, leave_to_spark
from support.tracked_events import DRIFTING, NESTED, NUMBERS, Loads, cut, expected_rows, generate
from widen.changes.keyed_files import NewRows
from widen.changes.keyed_load import LocalMerge
from widen.changes.tracked_fields import TrackedFields
from widen.spark.engine import require_spark

VALUES = {"nested": NESTED, "drifting": DRIFTING}


@pytest.mark.parametrize(
    ("values", "option", "table_format"),
    [
        ("nested", "history_columns", "delta"),
        ("nested", "history_except", "iceberg"),
        ("drifting", "history_columns", "iceberg"),
        ("drifting", "history_except", "delta"),
    ],
)
def test_spark_makes_and_proves_the_same_versions(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table_format: str, values: str, option: str
) -> None:
    session = require_spark(spark, "it decides")
    dice = random.Random(f"{table_format} {values} {option}")
    monkeypatch.setattr("widen.changes.keyed_load._decide", leave_to_spark)
    events = generate(dice, VALUES[values])
    loads = Loads(tmp_path, table_format, **{option: ["status"] if option == "history_columns" else ["n"]})
    words: dict[str, Any] = {"engine": None, "spark": session}
    monkeypatch.setattr("widen.spark.engine.SESSION_WINS", True)
    for batch in [NUMBERS, *cut(dice, events, most=3)]:
        loads.load(batch, **words)
    assert loads.versions() == expected_rows(
        [*NUMBERS, *events], ("status",) if option == "history_columns" else ("status", "op")
    )


def record(number: int, at: int, status: str, op: str = "u") -> dict[str, Any]:
    return {"id": 1, "at": at, "n": number, "op": op, "status": status}


FIRST = [record(1, 1, "a"), record(2, 10, "a")]
BATCH = [record(3, 5, "b"), record(5, 6, "b"), record(4, 12, "a")]
"""Versions: 1 from 1 to 5, 5 from 5 to 10, 4 from 10 on; 3 and 2 are records that the next one updates."""

WRONG: Mapping[str, Callable[[pa.Table], pa.Table]] = {
    "an update is a version": lambda rows: with_cell(with_cell(rows, 3, "_valid_to", 6), 5, "_valid_from", 6),
    "a version starts with its last record": lambda rows: with_cell(rows, 4, "_valid_from", 12),
    "a version starts too early": lambda rows: with_cell(rows, 4, "_valid_from", 6),
    "a version ends too late": lambda rows: with_cell(rows, 5, "_valid_to", 12),
    "an updated record is current": lambda rows: with_cell(rows, 3, "_is_current", True),
    "an updated record never ends": lambda rows: with_cell(rows, 2, "_valid_to", None),
    "an updated record has no start": lambda rows: with_cell(rows, 2, "_valid_from", None),
    "an updated record is lost": lambda rows: rows.filter(pc.not_equal(rows["n"], 3)),
    "an updated record comes twice": lambda rows: pa.concat_tables([rows, rows.filter(pc.equal(rows["n"], 3))]),
    "the last version is lost": lambda rows: rows.filter(pc.not_equal(rows["n"], 4)),
    "a tracked value is changed": lambda rows: with_cell(rows, 3, "status", "c"),
    "another value is changed": lambda rows: with_cell(rows, 2, "op", "x"),
}


NAMES = ("none", *WRONG, "every record is a version", "no record is a version")
PROVED = [(name, engine, FORMATS[at % 2]) for at, name in enumerate(NAMES) for engine in ("local", "spark")]
"""On both engines; tables of both formats one after the other, which the proof reads alike."""


@pytest.mark.parametrize(("name", "engine", "table_format"), PROVED)
def test_the_proof_finds_what_is_wrong(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, table_format: str, name: str
) -> None:
    if engine == "spark":
        require_spark(spark, "it proves")
        monkeypatch.setattr("widen.spark.engine.SESSION_WINS", True)
    keyed, found = open_keyed(spark, tmp_path, table_format, history=True, history_columns=["status"]), []
    keyed.ingest(FIRST)
    change = WRONG.get(name, lambda rows: rows)
    if name.endswith("record is a version"):
        is_every = name.startswith("every")

        def wrong(_: TrackedFields, rows: pa.Table) -> pa.Array:
            return pa.array(range(len(rows)) if is_every else [0] * len(rows), pa.uint64())

        monkeypatch.setattr(TrackedFields, "hash", wrong)

    def mutate(merge: LocalMerge, *_: Any) -> LocalMerge:
        assert merge.new_rows is not None
        rows = pa.concat_tables(merge.new_rows.read())
        assert name not in ("none", *WRONG) or sorted(rows["n"].to_pylist()) == [1, 2, 3, 4, 5]
        return replace(merge, new_rows=NewRows.of(change(rows)))

    wrap_decision(monkeypatch, mutate, found)
    for module in ("widen.changes.change_context", "widen.changes.iceberg_keys"):
        monkeypatch.setattr(f"{module}.ensure_same_count", lambda *_: None)
    proof = keyed.ingest(BATCH).verification
    assert found
    assert proof is not None
    assert proof.is_clean == (name == "none"), str(proof)


def test_values_that_an_event_leaves_out_are_compared_as_they_were(spark: SparkSession, tmp_path: Path) -> None:
    """Only Spark decides which values a version keeps; a late event changes what later ones keep."""
    session = require_spark(spark, "it decides")
    keyed = Keyed(session, tmp_path, "id", envelope="debezium", sequence_by="_ts_ms", delete_when=None, verify=True)
    keyed.words |= {"history": True, "history_columns": ["text"]}

    def event(at: int, text: str, n: int) -> dict[str, Any]:
        return {"op": "u", "ts_ms": at, "after": {"id": 1, "text": text, "n": n}}

    kept = "__debezium_unavailable_value"
    for batch in ([event(1, "long", 1)], [event(5, kept, 5), event(7, "long", 7)], [event(3, "other", 3)]):
        done = keyed.ingest(batch)
        assert done.verification is not None
        assert done.verification.is_clean, done.verification.places
    found = keyed.rows("n", "text", "_valid_from", "_valid_to")
    assert found == [(1, "long", 1, 3), (3, "other", 3, 3), (5, "other", 3, 7), (7, "long", 7, None)]
