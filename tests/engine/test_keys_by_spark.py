"""Loads by key where only Spark evaluates the condition of deletions, or writes the rows: the rows are the same."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import widen
from engine.test_keys import Keyed, Record, record
from engine.test_keys_iceberg import IcebergKeyed
from support.fault import FULL

COLUMNS = "id bigint, at bigint, n bigint, op string, s string"
COMPAT = {"delta.columnMapping.mode": "name", "delta.enableIcebergCompatV2": "true"}
CHECK = {"delta.constraints.small": "pmod(n, 1000003) >= 0 AND length(coalesce(s, '')) < 90"}
TABLES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "check": (COLUMNS, CHECK),
    "check, with a feed": (COLUMNS, {**CHECK, "delta.enableChangeDataFeed": "true"}),
    "generated": (f"{COLUMNS}, g bigint GENERATED ALWAYS AS (id * 2)", {}),
    "identity": (f"{COLUMNS}, g bigint GENERATED ALWAYS AS IDENTITY", {}),
    "varchar": (COLUMNS.replace("s string", "s varchar(30)"), {"delta.enableDeletionVectors": "true"}),
    "default": (
        f"{COLUMNS}, g string DEFAULT concat('a', 'b')",
        {"delta.feature.allowColumnDefaults": "supported"},
    ),
    "compat": (COLUMNS, COMPAT),
    "row tracking": (COLUMNS, {"delta.enableRowTracking": "true"}),
}
"""Tables by what only Spark does with their rows."""

SOME = ("check, with a feed", "default", "compat")


def batches(seed: str) -> list[list[Record]]:
    """Records of a few keys, without a field here and there."""
    dice, number = random.Random(seed), itertools.count()
    made = []
    for batch in range(3):
        records = [record(dice.randrange(7), next(number) + batch, next(number), dice.choice("uuud")) for _ in range(9)]
        made.append([{**each, "s": f"s{each['n'] % 5}"} if dice.random() < 0.6 else each for each in records])
    return made


@pytest.mark.parametrize("words", [{}, {"missing": "keep"}, {"history": True}], ids=["newest", "partial", "history"])
@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_a_condition_that_only_spark_evaluates_deletes_the_same(
    spark: SparkSession, tmp_path: Path, table_format: str, words: dict[str, Any]
) -> None:
    results = []
    for name, condition in (("arrow", "op = 'd'"), ("spark", "lower(concat(op, '')) = 'd'")):
        place = tmp_path / name
        place.mkdir()
        kind = Keyed if table_format == "delta" else IcebergKeyed
        keyed = kind(spark, place, "id", delete_when=condition, verify=True, **words)
        counts = [str(keyed.ingest(records, files=2).keys) for records in batches(table_format)]
        results.append((counts, keyed.rows("id", "at", "n", "s")))
    assert results[0] == results[1]
    assert results[0][1]


@pytest.mark.parametrize("words", [{"missing": "keep"}, {"history": True}], ids=["partial", "history"])
@pytest.mark.parametrize("kind", TABLES if FULL in os.environ else SOME)
def test_rows_that_only_spark_writes_are_those_of_a_plain_table(
    spark: SparkSession, tmp_path: Path, kind: str, words: dict[str, Any]
) -> None:
    results = []
    for name, (columns, properties) in {"plain": (COLUMNS, {}), "t": TABLES[kind]}.items():
        place = tmp_path / name
        place.mkdir()
        keyed = Keyed(spark, place, "id", **words)
        listed = ", ".join(f'"{key}" = "{value}"' for key, value in properties.items())
        more = f" TBLPROPERTIES ({listed})" if listed else ""
        widen.sql(f"CREATE TABLE delta.`{keyed.location}` ({columns}) USING delta{more}", spark=spark)
        counts = [str(keyed.ingest(records, files=2).keys) for records in batches(kind)]
        results.append((counts, keyed.rows("id", "at", "n", "s")))
        if name == "t" and "g " in columns:
            computed = keyed.rows("id", "g")
            assert all(value is not None for _, value in computed)
            assert kind != "generated" or all(value == 2 * key for key, value in computed)
    assert results[0] == results[1]
    assert results[0][1]
