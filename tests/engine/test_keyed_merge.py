"""A merge on equal keys without a join does what the same merge does with one: generated tables and sources."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

import widen
from support.change import FEED, LAYOUTS, VECTORS, actions, last_commit, layout_name, leftovers, plain
from widen.changes import keyed_merge, merge
from widen.errors import AmbiguousMerge, RowRefused, WidenError
from widen.files.predicates import find_equal_columns
from widen.table import Table

SCHEMA = "id bigint, p string, n int, s struct<x: int, y: string>"
ROUNDS = 2
TIMES = ("numTargetFilesAdded", "numTargetChangeFilesAdded")
"""What depends on how many tasks write."""


def rows_of(rng: random.Random, count: int, first: int, last: int, *, distinct: bool) -> list[tuple[Any, ...]]:
    """Rows with some keys that are null, as there are in sources and in tables."""
    ids = rng.sample(range(first, last), count) if distinct else rng.choices(range(first, last), k=count)
    keys = [None if rng.random() < 0.1 else each for each in ids]
    return [(key, f"p{at % 3}", rng.choice([None, at]), (rng.randrange(9), "y")) for at, key in enumerate(keys)]


def tables(
    spark: SparkSession, place: Path, layout: tuple[dict[str, str], tuple[str, ...]], rows: list[tuple[Any, ...]]
) -> list[Table]:
    """The same table twice, each in two files; one of them has lost a row."""
    found = []
    for name in ("keyed", "joined"):
        properties, partition_by = layout
        table = widen.create_table(str(place / name), SCHEMA, partition_by=partition_by, properties=properties)
        half = len(rows) // 2
        for part in (rows[:half], rows[half:]):
            table.append(spark.createDataFrame(part, SCHEMA).coalesce(1))
        found.append(table.delete(f"id = {next(row[0] for row in rows if row[0] is not None)}", spark=spark).table)
    return found


def content(spark: SparkSession, table: Table) -> list[str]:
    """The rows of the newest version."""
    return sorted(map(repr, table.refresh().read(spark=spark).collect()))


def recorded(table: Table) -> list[str]:
    """The change data of the newest commit: whole rows, apart from their partition columns."""
    paths = [Path(table.location) / each["path"] for each in actions(table, "cdc")]
    rows = [row for path in paths for row in pq.ParquetFile(path).read().to_pylist()]
    return sorted(re.sub(r"'col-[0-9a-f-]+'", "'name'", repr(tuple(row.values()))) for row in rows)


def upsert(table: Table, source: DataFrame, on: str) -> Any:
    """What a merge says, and what it leaves: rows, numbers and changes, or its error."""
    try:
        table.merge(source, on).when_matched_update_all().when_not_matched_insert_all().execute()
    except WidenError as error:
        return type(error), str(error).replace(table.location, "")
    operation, parameters, numbers = last_commit(table)
    assert leftovers(table) == []
    return operation, parameters, {key: each for key, each in numbers.items() if key not in TIMES}, recorded(table)


def joined(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "find_merge_keys", lambda *_: ())


@pytest.mark.parametrize("layout", LAYOUTS, ids=layout_name)
@pytest.mark.parametrize("on", ["t.id = s.id", "(s.p = t.p) AND t.id = s.id"])
def test_rows_numbers_and_changes_are_those_of_a_join(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, layout: Any, on: str
) -> None:
    made: list[bool] = []
    apply = keyed_merge._KeyedMerge._apply
    monkeypatch.setattr(keyed_merge._KeyedMerge, "_apply", lambda *args: made.append(True) or apply(*args))
    for round_ in range(ROUNDS):
        rng = random.Random(f"{layout} {on} {round_}")
        with monkeypatch.context() as patched:
            keyed, other = tables(spark, tmp_path / str(round_), layout, rows_of(rng, 30, 0, 40, distinct=True))
            rows = rows_of(rng, 14, 10, 60, distinct=True)
            source = spark.createDataFrame(rows, SCHEMA).coalesce(1)
            here = upsert(keyed, source, on)
            joined(patched)
            assert here == upsert(other, source, on)
            assert content(spark, keyed) == content(spark, other)
    assert len(made) == ROUNDS


@pytest.mark.parametrize("properties", [{}, {**FEED, **VECTORS}], ids=layout_name)
def test_repeated_keys_do_what_they_do_in_a_join(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, properties: dict[str, str]
) -> None:
    """New keys that the source repeats are all inserted; rows of the table that share a key are all updated."""
    for name, (rows, new) in {
        "new": ([(1, "p0", 1, (1, "y")), (2, "p1", 2, (2, "y")), (3, "p1", 2, None)], [7, 7, None, None, 2]),
        "table": ([(1, "p0", 1, None), (2, "p1", 2, None), (2, "p2", 3, None), (4, "p", 4, None)], [2, 4, 9]),
        "ambiguous": ([(1, "p0", 1, None), (2, "p1", 2, None), (3, "p2", 3, None)], [2, 2, 3, 3, 3, 9]),
        "none": ([(1, "p0", 1, None), (2, "p1", 2, None)], []),
    }.items():
        with monkeypatch.context() as patched:
            keyed, other = tables(spark, tmp_path / name, (properties, ()), rows)
            given = [(each, "new", at, (at, "s")) for at, each in enumerate(new)]
            source = spark.createDataFrame(given, SCHEMA).coalesce(1)
            here = upsert(keyed, source, "t.id = s.id")
            joined(patched)
            assert here == upsert(other, source, "t.id = s.id")
            assert content(spark, keyed) == content(spark, other)
            assert (here[0] is AmbiguousMerge) == (name == "ambiguous")


def test_a_refused_row_leaves_nothing(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path / "t"), SCHEMA, properties={"delta.constraints.small": "n < 100"})
    table.append(spark.createDataFrame([(1, "p", 1, None)], SCHEMA))
    source = spark.createDataFrame([(1, "p", 500, None)], SCHEMA)
    with pytest.raises(RowRefused):
        table.merge(source, "t.id = s.id").when_matched_update_all().when_not_matched_insert_all().execute()
    assert leftovers(table) == []


def test_a_random_source_is_asked_once_also_where_a_join_follows(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path / "t"), "id bigint, p string")
    table.append(spark.createDataFrame([(1, "a"), (1, "b"), (2, "c")], "id bigint, p string"))
    source = spark.sql("SELECT 1L AS id, uuid() AS p")
    table.merge(source, "t.id = s.id").when_matched_update_all().when_not_matched_insert_all().execute()
    first, second, third = plain(spark, table.refresh())
    assert first[1] == second[1] != "a"
    assert third == (2, "c")


def test_only_equal_columns_are_keys() -> None:
    for on, keys in {
        "t.id = s.id": [("id", "id")],
        "(S.b = T.a) AND t.c = s.`d e`": [("a", "b"), ("c", "d e")],
        "t.a = s.a OR t.b = s.b": [],
        "NOT t.a = s.a": [],
        "t.a <=> s.a": [],
        "t.a = s.a + 1": [],
        "t.a = s.a AND t.b = 1": [],
        "t.a = t.b": [],
        "id = s.id": [],
        "t.a.b = s.a": [],
        r"t.a = s.a AND s.b = '\n'": [],
    }.items():
        assert find_equal_columns(on, "t", "s") == keys, on
