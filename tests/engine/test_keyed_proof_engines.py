"""The proof of ingestions by key says the same on both engines, which each test chooses itself."""

from __future__ import annotations

import itertools
import random
from collections.abc import Mapping
from decimal import Decimal
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, cast
from unittest import mock

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from engine.test_keyed_proof import FORMATS, open_keyed
from engine.test_keys import drifting_records, record
from engine.test_row_versions import partial_records
from support.covering import TRIES_ALL, covering
from widen.changes import deleted_keys
from widen.changes.deleted_keys import KeyLists
from widen.errors import InvalidOption
from widen.spark import ship
from widen.spark.engine import Engine, LocalSession, is_local, require_spark

WORDS: Mapping[str, Mapping[str, Any]] = {"newest": {}, "partial": {"missing": "keep"}, "history": {"history": True}}


@pytest.mark.parametrize(("kind", "table_format"), covering(WORDS, FORMATS))
def test_both_engines_prove_the_same(spark: SparkSession, tmp_path: Path, kind: str, table_format: str) -> None:
    """Also where deletions, late and repeated records, several kinds of keys and drifting columns come together."""
    require_spark(spark, "it is compared with it")
    words, proofs, dice = WORDS[kind], dict[str, list[Any]](), random.Random("proofs")
    number = itertools.count()
    make = partial_records if "missing" in words else drifting_records
    batches = [make(dice, 12, batch, number) for batch in range(3)]
    batches.append(batches[-1])
    for name in ("local", "spark"):
        place = tmp_path / name
        keyed = open_keyed(spark, place, table_format, **words)
        proofs[name] = []
        for batch in batches:
            local = LocalSession(Engine.AUTO, lambda _: spark)
            with mock.patch("widen.spark.engine.SESSION_WINS", new=True):
                keyed.spark = cast(SparkSession, local) if name == "local" else spark
                done = keyed.ingest(batch)
            proofs[name].append(done.verification)
    assert proofs["local"] == proofs["spark"]
    assert all(proof.is_clean for proof in proofs["local"])


CONDITIONS = [
    "op = 'd'",
    "op IN ('d', 'x')",
    "NOT (op <> 'd')",
    "n BETWEEN 20 AND 29 OR op = 'd'",
    "at >= 4 AND n IS NOT NULL",
    "n IS NULL",
    "flag = true",
    "price > 2.5",
    "price <= -1",
    "'u' < op",
    "day = '2024-01-02' OR day > DATE '2024-05-01'",
    "r.x = 1 AND NOT r.y IS NULL",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_of_deletions_are_proved_alike(spark: SparkSession, tmp_path: Path, condition: str) -> None:
    require_spark(spark, "it is compared with it")
    records = [
        {
            "id": key,
            "at": key % 6,
            "n": None if key % 5 == 0 else key,
            "op": "uxd"[key % 3] if key % 7 else None,
            "flag": key % 4 == 0 if key % 3 else None,
            "price": key / 4 - 3,
            "day": f"2024-0{1 + key % 6}-02" if key % 4 else None,
            "r": {"x": key % 2, "y": "z" if key % 3 else None} if key % 5 else None,
        }
        for key in range(1, 40)
    ]
    found = []
    for name in ("local", "spark"):
        local = LocalSession(Engine.AUTO, lambda _: spark)
        keyed = open_keyed(spark, tmp_path / name, "delta", delete_when=condition, detect_dates=True)
        with mock.patch("widen.spark.engine.SESSION_WINS", new=True):
            keyed.spark = cast(SparkSession, local) if name == "local" else spark
            found.append(keyed.ingest(records))
            if name == "local":
                assert is_local(local), local.explanation
    here, there = found
    assert here.verification == there.verification
    assert here.verification is not None
    assert here.verification.is_clean
    assert here.keys is not None
    assert here.keys == there.keys
    assert 0 < here.keys.unknown_deletes < len(records)


ORDERS: Mapping[str, list[list[Any]]] = {
    "times, then numbers": [["2024-01-02T05:00:00Z", "2024-01-02T06:00:00.5Z"], [1714564800, "2024-02-02", 2.5, 1e3]],
    "dates, then all kinds": [["2024-01-02", "2024-01-03"], [17145, "2024-02-02T06:00:00Z", "2024-02-02", "soon"]],
    "numbers, then times": [[1714564800, 5000], [1714564800123, "2024-02-02T06:00:00Z", "2024-02-02"]],
    "all kinds at once": [[5, "2024-01-02", "2024-01-02T05:00:00Z"], [1714564800123, "2024-03-02", 2.5, "soon"]],
    "days, then dates": [[19000, 19001], ["2024-03-02", 19999, "2024-03-01"]],
}


ON_SPARK = ORDERS if TRIES_ALL else ("numbers, then times", "all kinds at once")


@pytest.mark.parametrize(("name", "engine"), [*product(ORDERS, ["local"]), *product(ON_SPARK, ["spark"])])
def test_an_order_of_numbers_and_times_is_proved(spark: SparkSession, tmp_path: Path, name: str, engine: str) -> None:
    keyed = open_keyed(spark, tmp_path, "delta", detect_dates=["at"])
    first, second = ORDERS[name]
    for orders in (first, second, [*reversed(second), *first]):
        with mock.patch("widen.spark.engine.SESSION_WINS", new=engine == "spark"):
            done = keyed.ingest([record(key % 3, order, key) for key, order in enumerate(orders)])
        assert done.verification is not None
        assert done.verification.is_clean, str(done.verification)


@pytest.mark.parametrize("table_format", FORMATS)
def test_nothing_is_committed_that_executors_cannot_prove(
    spark: SparkSession, tmp_path: Path, table_format: str
) -> None:
    """The driver writes a few records by key itself, so only the proof finds out that executors lack a package."""
    session = require_spark(spark, "its executors are asked")
    keyed = open_keyed(session, tmp_path, table_format)
    with (
        mock.patch.object(ship, "NEEDED", ("surely_missing",)),
        mock.patch.object(ship, "_checked", set()),
        mock.patch.object(ship, "_runs_this_python", return_value=False),
        pytest.raises(InvalidOption, match="cannot import surely_missing"),
    ):
        keyed.ingest([record(1, 1, "a")])
    done = keyed.ingest([record(1, 1, "a")])
    assert str(done.keys) == "1 inserted, 0 updated, 0 deleted, 0 late"
    assert done.verification.is_clean


@pytest.mark.parametrize(("engine", "table_format"), [*product(["local", "spark"], FORMATS)])
def test_the_proof_finds_deleted_keys_itself(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: str, table_format: str
) -> None:
    keyed = open_keyed(spark, tmp_path, table_format)

    def is_proved(*records: dict[str, Any]) -> bool:
        with mock.patch("widen.spark.engine.SESSION_WINS", new=engine == "spark"):
            proof = keyed.ingest(records).verification
        assert proof is not None
        return proof.is_clean

    assert is_proved(record(1, 1, 1), record(2, 1, 2))
    assert is_proved(record(1, 5, 3, "d"))
    with monkeypatch.context() as writer:  # it finds no list, so the late record brings the row back
        writer.setattr(KeyLists, "list_path", None)
        assert not is_proved(record(1, 4, 4))
    with monkeypatch.context() as writer:  # it lists no deletion, which a later load would miss
        writer.setattr(KeyLists, "add", lambda lists, *_: lists.head)
        assert not is_proved(record(2, 5, 5, "d"))
    assert is_proved(record(2, 6, 6, "d"), record(3, 1, 7))
    write = deleted_keys._write_here
    for at, key in enumerate(
        ("n:8", "n:99"), 1
    ):  # it lists a deletion that nothing made, of a key of the batch or of another one
        more = {"__widen_key_0": key, "__widen_number": Decimal(9)}
        with monkeypatch.context() as writer:
            writer.setattr(deleted_keys, "_write_here", partial(write_more, write, more))
            assert not is_proved(record(8, at, 8), record(9, at, 9, "d"))


def write_more(write: Any, more: dict[str, Any], store: Any, folder: str, keys: pa.Table) -> Any:
    return write(store, folder, pa.concat_tables([keys, pa.Table.from_pylist([more], schema=keys.schema)]))
