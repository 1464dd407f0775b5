"""Compaction of Iceberg tables sorts rows without Spark; PyIceberg and PyArrow alone say what is in the new files."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cmp_to_key
from itertools import groupby, pairwise
from math import isnan
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DoubleType, LongType, NestedField, StringType, StructType

import widen
from support.iceberg_files import append_deletes, embedded_catalog, position_deletes
from widen.changes import iceberg_compact
from widen.errors import EngineUnsuitable
from widen.spark import engine, session

SCHEMA = Schema(
    NestedField(1, "p", StringType(), required=False),
    NestedField(2, "n", LongType(), required=False),
    NestedField(3, "d", DoubleType(), required=False),
    NestedField(4, "s", StructType(NestedField(5, "t", StringType(), required=False)), required=False),
)
ORDERS: Sequence[Sequence[str]] = (("n",), ("d DESC NULLS LAST", "n"), ("s.t NULLS LAST", "d DESC"), ("p", "n DESC"))
BATCHES, ROWS = 4, 500


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIDEN_ENGINE", "local")
    for module in (session, engine):
        monkeypatch.setattr(module, "find_active", lambda: None)


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return embedded_catalog(tmp_path)


@pytest.fixture
def made(catalog: SqlCatalog) -> Callable[..., Table]:
    def make(seed: int, *, partitioned: bool) -> Table:
        spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "p")) if partitioned else PartitionSpec()
        table = catalog.create_table("ns.t", SCHEMA, partition_spec=spec)
        chosen = random.Random(seed)
        for _ in range(BATCHES):
            table.append(pa.Table.from_pylist([row(chosen) for _ in range(ROWS)], schema=table.schema().as_arrow()))
        first = next(iter(table.scan().plan_files())).file
        path = Path(first.file_path.removeprefix("file://"))
        append_deletes(table, position_deletes(table, [(path, 0), (path, 3)], partition=first.partition))
        return table.refresh()

    return make


def row(chosen: random.Random) -> dict[str, Any]:
    text = chosen.choice([None, "", "z", "ü", "\U0001f600", "aa"])
    return {
        "p": chosen.choice([None, "x", "y"]),
        "n": chosen.choice([None, chosen.randint(-(2**63), 2**63 - 1), 7]),
        "d": chosen.choice([None, float("nan"), float("-inf"), 1.5, chosen.uniform(-9, 9)]),
        "s": chosen.choice([None, {"t": text}]),
    }


def contents(table: Table) -> list[str]:
    """The rows as texts, in which NaN is equal to itself."""
    return sorted(map(repr, table.refresh().scan().to_arrow().to_pylist()))


def files(table: Table) -> list[tuple[Any, list[dict[str, Any]], int | None]]:
    """The partition, the rows and the sort order of each file."""
    found = [each.file for each in table.refresh().scan().plan_files()]
    return [
        (
            tuple(file.partition[at] for at in range(len(file.partition))),
            pq.read_table(file.file_path.removeprefix("file://")).to_pylist(),
            file.sort_order_id,
        )
        for file in found
    ]


def compare(keys: Sequence[str], one: dict[str, Any], other: dict[str, Any]) -> int:
    """How two rows follow each other in an order: Spark has NaN above all numbers."""
    for key in keys:
        name, *words = key.split()
        is_descending, is_last = "DESC" in words, "LAST" in words
        a, b = (value(each, name) for each in (one, other))
        if a is None or b is None:
            if (a is None) != (b is None):
                return 1 if (a is None) == is_last else -1
        elif a != b:
            return 1 if (a < b) == is_descending else -1
    return 0


def value(row: dict[str, Any], name: str) -> Any:
    if name == "s.t":
        text = row["s"] and row["s"]["t"]
        return text.encode() if text is not None else None
    found = row[name]
    return (isnan(found), 0 if isnan(found) else found) if name == "d" and found is not None else found


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("keys", ORDERS)
def test_sorted_files(made: Callable[..., Table], keys: Sequence[str], partitioned: bool) -> None:
    table = made(len(keys[0]), partitioned=partitioned)
    before, size = contents(table), sum(each.file.file_size_in_bytes for each in table.scan().plan_files())
    given = widen.IcebergTable("ns.t", table.catalog).set_sort_order(*keys)
    full = [key if "NULLS" in key else f"{key} NULLS {'LAST' if 'DESC' in key else 'FIRST'}" for key in keys]
    assert list(given.sort_order) == [key if len(key.split()) == 4 else key.replace(" ", " ASC ", 1) for key in full]
    done = given.optimize(sort=True, target_bytes=size // 6)
    assert contents(table) == before
    assert done.metrics["numRemovedDeleteFiles"] == 1
    found = files(table)
    assert len(found) > 3
    order = cmp_to_key(lambda one, other: compare(full, one, other))
    for partition, some in groupby(sorted(found, key=lambda each: repr(each[0])), key=lambda each: each[0]):
        ordered = sorted(some, key=lambda each: order(each[1][0]))
        for _, rows, number in ordered:
            assert all(compare(full, one, other) <= 0 for one, other in pairwise(rows)), partition
            assert number == table.metadata.default_sort_order_id
        assert all(compare(full, one[1][-1], other[1][0]) <= 0 for one, other in pairwise(ordered)), "ranges overlap"


def test_an_optimize_keeps_the_order_of_a_sorted_table(made: Callable[..., Table]) -> None:
    table = made(3, partitioned=True)
    before = contents(table)
    given = widen.IcebergTable("ns.t", table.catalog).set_sort_order("n DESC NULLS LAST")
    assert given.optimize().metrics["numAddedFiles"] == 3
    assert contents(table) == before
    for _, rows, number in files(table):
        assert all(compare(["n DESC NULLS LAST"], one, other) <= 0 for one, other in pairwise(rows))
        assert number == table.metadata.default_sort_order_id


@pytest.mark.parametrize("partitioned", [False, True])
def test_files_along_a_curve(made: Callable[..., Table], partitioned: bool) -> None:
    table = made(5, partitioned=partitioned)
    before, size = contents(table), sum(each.file.file_size_in_bytes for each in table.scan().plan_files())
    widen.IcebergTable("ns.t", table.catalog).optimize(zorder_by=["d", "n"], target_bytes=size // 16)
    assert contents(table) == before
    found = [rows for partition, rows, _ in files(table) if partition in {(), ("x",)}]
    assert len(found) > 3
    buckets = {name: quarters([value(row, name) for rows in found for row in rows]) for name in ("n", "d")}
    cells = [{tuple(buckets[name](value(row, name)) for name in buckets) for row in rows} for rows in found]
    assert sum(map(len, cells)) / len(cells) <= 7, "of 16 pairs of quarters, where rows without an order have all"


def quarters(values: Sequence[Any]) -> Callable[[Any], int]:
    """In which quarter of some values a value is."""
    ordered = sorted((each is not None, each) for each in values if each is not None)
    nulls = sum(each is None for each in values)
    bounds = [ordered[at - nulls] for at in (len(values) * part // 4 for part in (1, 2, 3)) if at >= nulls]
    return lambda value: 0 if value is None else sum(bound <= (True, value) for bound in bounds)


def test_old_partitions_are_sorted_together(made: Callable[..., Table]) -> None:
    table = made(8, partitioned=True)
    before = contents(table)
    given = widen.IcebergTable("ns.t", table.catalog).change_partitioning(drop=["p"]).set_sort_order("n")
    given.optimize(sort=True)
    assert contents(table) == before
    ((_, rows, _),) = files(table)
    assert all(compare(["n"], one, other) <= 0 for one, other in pairwise(rows))


@pytest.mark.parametrize("options", [{"sort": True}, {"zorder_by": ["n"]}], ids=["sort", "curve"])
def test_more_than_this_process_sorts(
    made: Callable[..., Table], options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = made(1, partitioned=False)
    monkeypatch.setattr(iceberg_compact, "SORTED_BYTES", 1024)
    given = widen.IcebergTable("ns.t", table.catalog).set_sort_order("n")
    with pytest.raises(EngineUnsuitable, match=r"because it sorts more than 1\.0 kB of files together"):
        given.optimize(**options)
    assert len(files(table)) == BATCHES
