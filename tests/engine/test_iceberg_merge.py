"""Merges into Iceberg tables, judged by PyIceberg's scan."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, IdentityTransform, Transform
from pyiceberg.types import IntegerType, NestedField, StringType, StructType
from pyspark.sql import SparkSession

import widen
from support.covering import covering
from support.iceberg_files import append_deletes, append_rows, embedded_catalog, position_deletes
from support.iceberg_ways import WAYS, leave_to_spark
from widen.errors import (
    AmbiguousMerge,
    ColumnMissingInSource,
    ColumnNotFound,
    MergeWithoutClause,
    NotNullViolated,
    SchemaMismatch,
    WidenError,
)

SCHEMA = Schema(
    NestedField(1, "id", IntegerType(), required=True),
    NestedField(2, "kind", StringType(), required=False),
    NestedField(3, "size", IntegerType(), required=False),
    NestedField(4, "place", StructType(NestedField(5, "zip", StringType(), required=False)), required=False),
)
ROWS = [
    {"id": 1, "kind": "a", "size": 10, "place": {"zip": "x"}},
    {"id": 2, "kind": "a", "size": None, "place": None},
    {"id": 3, "kind": "b", "size": 30, "place": {"zip": None}},
    {"id": 4, "kind": None, "size": 40, "place": {"zip": "y"}},
    {"id": 5, "kind": "b", "size": 50, "place": {"zip": "z"}},
    {"id": 6, "kind": "c", "size": None, "place": {"zip": "x"}},
]
SOURCE = "VALUES (2, 'z', 200), (3, 'y', 300), (9, 'x', 900) AS v(id, kind, size)"
LAYOUTS: dict[str, Transform[Any, Any] | None] = {
    "whole": None,
    "by kind": IdentityTransform(),
    "by bucket": BucketTransform(2),
}
Row = dict[str, Any]


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return embedded_catalog(tmp_path)


@pytest.fixture
def made(catalog: SqlCatalog) -> Callable[..., Table]:
    def make(layout: str = "whole", version: str = "2") -> Table:
        transform = LAYOUTS[layout]
        spec = PartitionSpec() if transform is None else PartitionSpec(PartitionField(2, 1000, transform, "p"))
        table = catalog.create_table("ns.t", SCHEMA, partition_spec=spec, properties={"format-version": version})
        append_rows(catalog, ROWS[:4], ROWS[4:])
        return table.refresh()

    return make


def rows(table: Table) -> list[Row]:
    return sorted(table.refresh().scan().to_arrow().to_pylist(), key=lambda row: row["id"])


def changed(numbers: dict[int, Row | None], *more: Row) -> list[Row]:
    """Return the rows with some changed or, for None, deleted, and more rows."""
    kept = [{**row, **(numbers.get(row["id"]) or {})} for row in ROWS if numbers.get(row["id"], row) is not None]
    return sorted((*kept, *more), key=lambda row: row["id"])


NINE = {"id": 9, "kind": "x", "size": 900, "place": None}
MERGES: dict[str, tuple[Callable[[Any], Any], list[Row], tuple[int, int, int]]] = {
    "upsert": (
        lambda merge: merge.when_matched_update({"kind": "s.kind", "size": "s.size"}).when_not_matched_insert(
            {"id": "s.id", "kind": "s.kind", "size": "s.size"}
        ),
        changed({2: {"kind": "z", "size": 200}, 3: {"kind": "y", "size": 300}}, NINE),
        (1, 2, 0),
    ),
    "update one, delete one": (
        lambda merge: merge.when_matched_update(
            {"size": "t.id + s.size"}, condition="t.kind = 'b'"
        ).when_matched_delete(),
        changed({2: None, 3: {"size": 303}}),
        (0, 1, 1),
    ),
    "delete only": (
        lambda merge: merge.when_matched_delete(),
        changed({2: None, 3: None}),
        (0, 0, 2),
    ),
    "insert only": (
        lambda merge: merge.when_not_matched_insert({"id": "s.id", "kind": "s.kind", "size": "s.size"}),
        changed({}, NINE),
        (1, 0, 0),
    ),
    "rows without a match": (
        lambda merge: merge.when_not_matched_by_source_delete(
            condition="t.size > 40"
        ).when_not_matched_by_source_update({"place.zip": "'none'"}),
        changed(
            {
                1: {"place": {"zip": "none"}},
                4: {"place": {"zip": "none"}},
                5: None,
                6: {"place": {"zip": "none"}},
            }
        ),
        (0, 3, 1),
    ),
    "everything": (
        lambda merge: (
            merge.when_matched_delete(condition="s.id = 2")
            .when_matched_update({"kind": "s.kind"})
            .when_not_matched_insert({"id": "s.id"}, condition="s.size > 1000")
            .when_not_matched_insert({"id": "s.id + 1", "size": "s.size"})
            .when_not_matched_by_source_delete(condition="t.kind IS NULL")
        ),
        changed({2: None, 3: {"kind": "y"}, 4: None}, {"id": 10, "kind": None, "size": 900, "place": None}),
        (1, 1, 2),
    ),
}


@pytest.mark.parametrize(("merge", "place"), covering(MERGES, product(WAYS, LAYOUTS)), ids=str)
def test_a_merge_is_one_snapshot(
    spark: SparkSession,
    catalog: SqlCatalog,
    made: Callable[..., Table],
    monkeypatch: pytest.MonkeyPatch,
    merge: str,
    place: tuple[str, str],
) -> None:
    way, layout = place
    leave_to_spark(monkeypatch, *WAYS[way])
    table, (act, expected, counts) = made(layout), MERGES[merge]
    opened = widen.IcebergTable("ns.t", catalog=catalog)
    done = act(opened.merge(spark.sql(f"SELECT * FROM {SOURCE}"), "t.id = s.id")).execute()
    assert rows(table) == expected
    assert (done.operation, done.version) == ("merge", table.current_snapshot().snapshot_id)
    assert len(table.metadata.snapshots) == 3
    assert tuple(done.metrics[f"numTargetRows{name}"] for name in ("Inserted", "Updated", "Deleted")) == counts
    assert [row.id for row in opened.read(spark=spark).orderBy("id").collect()] == [row["id"] for row in expected]


def test_required_fields_of_rows_that_are_deleted_are_no_obstacle(spark: SparkSession, catalog: SqlCatalog) -> None:
    place = StructType(NestedField(3, "zip", StringType(), required=True))
    schema = Schema(NestedField(1, "id", IntegerType(), required=True), NestedField(2, "place", place, required=False))
    table = catalog.create_table("ns.t", schema)
    old = [{"id": number, "place": None if number == 2 else {"zip": "x"}} for number in range(5)]
    table.append(pa.Table.from_pylist(old, schema=schema.as_arrow()))
    source = spark.sql("SELECT * FROM VALUES (1, 'y'), (2, 'y'), (3, 'y'), (9, NULL) AS v(id, zip)")
    merge = widen.IcebergTable("ns.t", catalog=catalog).merge(source, "t.id = s.id")
    merge = merge.when_matched_delete(condition="t.id = 1").when_matched_update(
        {"place.zip": "s.zip"}, condition="t.id = 3"
    )
    merge.when_matched_update({"id": "t.id + 10"}).when_not_matched_insert({"id": "s.id"}).execute()
    assert rows(table) == [
        old[0],
        {"id": 3, "place": {"zip": "y"}},
        old[4],
        {"id": 9, "place": None},
        {**old[2], "id": 12},
    ]


def test_a_merge_adds_and_widens_columns(spark: SparkSession, catalog: SqlCatalog, made: Callable[..., Table]) -> None:
    table, opened = made("by kind", "1"), widen.IcebergTable("ns.t", catalog=catalog)
    source = spark.sql("SELECT * FROM VALUES (2, 'a', 3000000000, true), (9, 'x', 1, false) AS v(id, kind, size, more)")
    merge = opened.merge(source, "t.id = s.id", merge_schema=True)
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    wanted = changed({2: {"size": 3000000000}}, {"id": 9, "kind": "x", "size": 1, "place": None})
    assert rows(table) == [{**row, "more": {2: True, 9: False}.get(row["id"])} for row in wanted]
    assert {each.field_type.__class__.__name__ for each in table.schema().fields if each.name == "size"} == {"LongType"}


def test_rows_that_others_have_deleted_match_nothing(
    spark: SparkSession, catalog: SqlCatalog, made: Callable[..., Table]
) -> None:
    table = made()
    first = min(file["file_path"] for file in table.inspect.files().to_pylist() if file["record_count"] == 4)
    append_deletes(table, position_deletes(table, [(Path(first.removeprefix("file://")), 1)]))
    merge = widen.IcebergTable("ns.t", catalog=catalog).merge(spark.sql(f"SELECT * FROM {SOURCE}"), "t.id = s.id")
    values = {"id": "s.id", "kind": "s.kind", "size": "s.size"}
    done = merge.when_matched_update({"size": "s.size"}).when_not_matched_insert(values).execute()
    two = {"id": 2, "kind": "z", "size": 200, "place": None}
    assert rows(table) == changed({2: None, 3: {"size": 300}}, two, NINE)
    assert done.metrics["numTargetRowsInserted"] == 2


def test_nothing_to_merge_is_no_snapshot(spark: SparkSession, catalog: SqlCatalog, made: Callable[..., Table]) -> None:
    table, opened = made(), widen.IcebergTable("ns.t", catalog=catalog)
    source = spark.sql(f"SELECT * FROM {SOURCE}")
    done = opened.merge(source, "t.id = s.id + 100").when_matched_delete().execute()
    assert (done.version, done.metrics) == (table.current_snapshot().snapshot_id, {})
    catalog.create_table("ns.empty", SCHEMA)
    empty = widen.IcebergTable("ns.empty", catalog=catalog)
    assert empty.merge(source, "t.id = s.id").when_matched_delete().execute().metrics == {}
    empty.merge(source, "t.id = s.id").when_not_matched_insert({"id": "s.id"}).execute()
    assert [row["id"] for row in rows(catalog.load_table("ns.empty"))] == [2, 3, 9]


REFUSED: dict[str, tuple[Callable[[Any, SparkSession], Any], type[WidenError]]] = {
    "no clause": (lambda table, spark: table.merge(spark.range(1), "t.id = s.id"), MergeWithoutClause),
    "two rows match": (
        lambda table, spark: table.merge(
            spark.sql("SELECT 1 id UNION ALL SELECT 1"), "t.id = s.id"
        ).when_matched_update({"size": "0"}),
        AmbiguousMerge,
    ),
    "column": (
        lambda table, spark: table.merge(spark.range(3), "t.id = s.id").when_matched_update({"nothing": "1"}),
        ColumnNotFound,
    ),
    "source column": (
        lambda table, spark: table.merge(spark.range(3), "t.id = s.id").when_not_matched_insert_all(),
        ColumnMissingInSource,
    ),
    "type": (
        lambda table, spark: table.merge(spark.range(3), "t.id = s.id").when_matched_update({"place": "1"}),
        SchemaMismatch,
    ),
    "required": (
        lambda table, spark: table.merge(spark.range(9), "t.id = s.id").when_not_matched_insert({"kind": "'q'"}),
        NotNullViolated,
    ),
    "range": (
        lambda table, spark: table.merge(spark.range(3), "t.id = s.id").when_matched_update({"size": "3000000000"}),
        WidenError,
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_merge_changes_nothing(
    spark: SparkSession, catalog: SqlCatalog, made: Callable[..., Table], case: str
) -> None:
    act, error = REFUSED[case]
    table = made()
    files = {*Path(table.location().removeprefix("file://")).rglob("*.parquet")}
    with pytest.raises(error):
        act(widen.IcebergTable("ns.t", catalog=catalog), spark).execute()
    assert (rows(table), len(table.metadata.snapshots)) == (ROWS, 2)
    assert {*Path(table.location().removeprefix("file://")).rglob("*.parquet")} == files


def test_a_lost_race_is_run_again(
    spark: SparkSession, catalog: SqlCatalog, made: Callable[..., Table], monkeypatch: pytest.MonkeyPatch
) -> None:
    from widen.changes import iceberg_changes

    table, waiting = made(), [{**ROWS[0], "id": 9}]

    def after_another(*words: Any) -> Any:
        if waiting:
            schema = catalog.load_table("ns.t").schema().as_arrow()
            catalog.load_table("ns.t").append(pa.Table.from_pylist([waiting.pop()], schema=schema))
        return open_writer(*words)

    open_writer = iceberg_changes.open_iceberg_writer
    monkeypatch.setattr(iceberg_changes, "open_iceberg_writer", after_another)
    merge = widen.IcebergTable("ns.t", catalog=catalog).merge(spark.sql(f"SELECT * FROM {SOURCE}"), "t.id = s.id")
    done = merge.when_matched_update({"size": "s.size"}).when_not_matched_insert({"id": "s.id"}).execute()
    assert (done.metrics["numTargetRowsUpdated"], done.metrics["numTargetRowsInserted"]) == (3, 0)
    assert rows(table) == changed({2: {"size": 200}, 3: {"size": 300}}, {**ROWS[0], "id": 9, "size": 900})
