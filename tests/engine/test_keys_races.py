"""Another writer commits between what an ingestion by key has read and its commit: no key gets two rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import widen
from engine.test_keys import Keyed, record
from engine.test_keys_iceberg import NAME, IcebergKeyed
from support.race import other_first
from widen.errors import ContentionError
from widen.table import IcebergTable, create_table
from widen.targets.delta import DeltaDraft
from widen.targets.iceberg import IcebergDraft

BATCH = [record(1, 5, 50), record(2, 5, 51, "d"), record(6, 5, 52)]


def append(keyed: Keyed) -> None:
    kind = "int" if isinstance(keyed, IcebergKeyed) else "bigint"
    rows = keyed.spark.createDataFrame([(6, 4, 60, "u")], f"id {kind}, at {kind}, n {kind}, op string")
    if isinstance(keyed, IcebergKeyed):
        IcebergTable(NAME, catalog=keyed.words["catalog"]).append(rows)
    else:
        keyed.table.append(rows)


def delete(keyed: Keyed) -> None:
    if isinstance(keyed, IcebergKeyed):
        IcebergTable(NAME, catalog=keyed.words["catalog"]).delete("id = 1", spark=keyed.spark)
    else:
        keyed.table.delete("id = 1", spark=keyed.spark)


def optimize(keyed: Keyed) -> None:
    keyed.table.optimize(spark=keyed.spark)


def ingest_older(keyed: Keyed) -> None:
    widen.ingest(keyed.batch([record(1, 4, 40), record(6, 3, 41)]), keyed.location, spark=keyed.spark, **keyed.words)


def ingest_newer(keyed: Keyed) -> None:
    widen.ingest(keyed.batch([record(1, 9, 90), record(6, 9, 91)]), keyed.location, spark=keyed.spark, **keyed.words)


WRITERS: Mapping[str, tuple[Callable[[Any], None], list[int]]] = {
    "append": (append, [50, 52]),
    "delete": (delete, [50, 52]),
    "optimize": (optimize, [50, 52]),
    "an older batch": (ingest_older, [50, 52]),
    "a newer batch": (ingest_newer, [90, 91]),
}
"""What the other writer does, and the rows at the end."""


@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("kind", ["plain", "vectors"])
def test_a_delta_table_has_one_row_for_each_key(
    spark: SparkSession, tmp_path: Path, writer: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed = Keyed(spark, tmp_path, "id")
    properties = {"delta.enableDeletionVectors": str(kind == "vectors").lower()}
    create_table(keyed.location, "id bigint, at bigint, n bigint, op string", properties=properties)
    keyed.ingest([record(1, 1, 1), record(2, 1, 2)])
    keyed.ingest([record(0, 1, 3)])
    other, wanted = WRITERS[writer]
    other_first(monkeypatch, DeltaDraft, "commit", lambda: other(keyed))
    keyed.ingest(BATCH)
    assert keyed.numbers() == [3, *wanted]
    assert keyed.rows("id") == [(0,), (1,), (6,)]


@pytest.mark.parametrize("writer", sorted(WRITERS.keys() - {"optimize"}))
def test_an_iceberg_table_has_one_row_for_each_key(
    spark: SparkSession, tmp_path: Path, writer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed = IcebergKeyed(spark, tmp_path, "id", verify=False)
    keyed.ingest([record(1, 1, 1), record(2, 1, 2)])
    keyed.ingest([record(0, 1, 3)])
    other, wanted = WRITERS[writer]
    other_first(monkeypatch, IcebergDraft, "commit", lambda: other(keyed))
    keyed.ingest(BATCH)
    assert keyed.numbers() == [3, *wanted]
    assert keyed.rows("id") == [(0,), (1,), (6,)]


def test_versions_are_inserted_into_those_of_another_writer(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keyed = Keyed(spark, tmp_path, "id", history=True)
    keyed.ingest([record(1, 1, 1), record(2, 1, 2)])
    other_first(monkeypatch, DeltaDraft, "commit", lambda: ingest_older(keyed))
    keyed.ingest(BATCH)
    assert keyed.rows("n", "_valid_from", "_valid_to") == [
        (1, 1, 4), (2, 1, 5), (40, 4, 5), (41, 3, 5), (50, 5, None), (52, 5, None),
    ]  # fmt: skip


def test_who_always_loses_leaves_nothing(keyed_table: Keyed, monkeypatch: pytest.MonkeyPatch) -> None:
    other_first(monkeypatch, DeltaDraft, "commit", lambda: ingest_older(keyed_table), times=100)
    with pytest.raises(ContentionError):
        keyed_table.ingest(BATCH)
    assert 50 not in keyed_table.numbers()
    assert keyed_table.rows("id") == [(1,), (2,), (6,)]


@pytest.fixture
def keyed_table(spark: SparkSession, tmp_path: Path) -> Keyed:
    keyed = Keyed(spark, tmp_path, "id")
    keyed.ingest([record(1, 1, 1), record(2, 1, 2)])
    return keyed
