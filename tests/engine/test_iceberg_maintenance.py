"""Optimize, rewrite, vacuum, branches, tags and layouts of Iceberg tables, judged by PyIceberg's scan."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StringType
from pyspark.sql import SparkSession

import widen
from support.iceberg_files import append_deletes, embedded_catalog, position_deletes
from widen.changes import iceberg_compact
from widen.errors import InvalidOption, RetentionTooShort, UnsupportedFeatureForWrite, VersionNotFound

SCHEMA = Schema(
    NestedField(1, "id", IntegerType(), required=False),
    NestedField(2, "kind", StringType(), required=False),
    NestedField(3, "size", LongType(), required=False),
)
COLUMNS = "id int, kind string, size bigint"


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return embedded_catalog(tmp_path)


@pytest.fixture
def made(catalog: SqlCatalog, spark: SparkSession) -> Callable[..., widen.IcebergTable]:
    def make(appends: int = 3, *, partitioned: bool = False, **properties: str) -> widen.IcebergTable:
        spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "kind")) if partitioned else PartitionSpec()
        catalog.create_table("ns.t", SCHEMA, partition_spec=spec, properties=properties)
        table = widen.IcebergTable("ns.t", catalog=catalog)
        for at in range(appends):
            rows = [(at * 10 + each, "ab"[each % 2], each) for each in range(4)]
            table.append(spark.createDataFrame(rows, COLUMNS).coalesce(1))
        return table

    return make


def rows(table: Table | widen.IcebergTable) -> list[tuple[object, ...]]:
    inner = table.refresh().table if isinstance(table, widen.IcebergTable) else table.refresh()
    return sorted(tuple(row.values()) for row in inner.scan().to_arrow().to_pylist())


def local(path: str) -> Path:
    return Path(path.removeprefix("file://"))


def data_files(table: widen.IcebergTable) -> set[str]:
    return {str(each) for each in (local(table.location) / "data").rglob("*.parquet")}


# ---- optimize -------------------------------------------------------------------------------------


@pytest.mark.parametrize("partitioned", [False, True])
def test_optimize_writes_the_files_of_a_partition_together(
    made: Callable[..., widen.IcebergTable], spark: SparkSession, partitioned: bool
) -> None:
    table = made(3, partitioned=partitioned)
    before, count = rows(table), 2 if partitioned else 1
    dry = table.optimize(dry_run=True, spark=spark)
    assert (dry.metrics["numRemovedFiles"], table.files().num_rows) == (3 * count, 3 * count)
    done = table.optimize(spark=spark)
    assert (done.metrics["numRemovedFiles"], done.metrics["numAddedFiles"]) == (3 * count, count)
    assert rows(table) == before
    snapshot = table.table.current_snapshot()
    assert snapshot.summary.operation.value == "replace"
    assert snapshot.summary["total-records"] == "12"
    assert snapshot.summary["total-data-files"] == str(count)
    assert table.optimize(spark=spark).metrics == {}


def test_optimize_applies_deletes_and_drops_the_delete_files(
    made: Callable[..., widen.IcebergTable], spark: SparkSession
) -> None:
    table = made(2)
    file = local(table.files()["path"][0].as_py())
    append_deletes(table.table, position_deletes(table.table, [(file, 0), (file, 2)]))
    left = rows(table)
    assert len(left) == 6
    done = table.optimize(spark=spark)
    assert done.metrics["numRemovedDeleteFiles"] == 1
    assert rows(table) == left
    assert sorted(map(tuple, table.read(spark=spark).collect())) == left
    summary = table.table.current_snapshot().summary
    assert (summary["total-records"], summary["total-delete-files"]) == ("6", "0")
    assert summary["total-position-deletes"] == "0"
    assert [each.file.file_path for each in table.table.scan().plan_files() if each.delete_files] == []


def test_optimize_keeps_delete_files_of_files_that_it_leaves(
    made: Callable[..., widen.IcebergTable], spark: SparkSession
) -> None:
    table = made(2, partitioned=True)
    of_a = next(each.file for each in table.table.scan().plan_files() if each.file.partition[0] == "a")
    append_deletes(table.table, position_deletes(table.table, [(local(of_a.file_path), 0)], partition=of_a.partition))
    left = rows(table)
    table.optimize("kind = 'b'", spark=spark)
    assert rows(table) == left
    assert table.table.current_snapshot().summary["total-delete-files"] == "1"


def test_optimize_makes_files_of_the_size_and_in_the_order_of_the_table(
    made: Callable[..., widen.IcebergTable], spark: SparkSession
) -> None:
    table = made(0).set_sort_order("size DESC")
    for seed in range(3):
        table.append(spark.range(4000).selectExpr("int(id) id", "'x' kind", f"pmod(hash(id, {seed}), 1000000) size"))
    size = sum(table.files()["size_bytes"].to_pylist())
    table.optimize(sort=True, target_bytes=size // 4, spark=spark)
    files = sorted(table.table.scan().plan_files(), key=lambda each: each.file.upper_bounds[3][::-1])
    assert len(files) >= 3
    assert {each.file.sort_order_id for each in files} == {table.table.metadata.default_sort_order_id}
    bounds = sorted(
        (int.from_bytes(f.file.lower_bounds[3], "little"), int.from_bytes(f.file.upper_bounds[3], "little"))
        for f in files
    )
    assert all(high <= low for (_, high), (low, _) in pairwise(bounds)), bounds


def test_optimize_along_a_curve(made: Callable[..., widen.IcebergTable], spark: SparkSession) -> None:
    table = made(3)
    before = rows(table)
    assert table.optimize(zorder_by=["id", "size"], spark=spark).metrics["numRemovedFiles"] == 3
    assert rows(table) == before
    with pytest.raises(InvalidOption, match="sort cannot be True"):
        table.optimize(sort=True, spark=spark)


def test_an_append_during_an_optimize_is_kept_with_what_was_written(
    made: Callable[..., widen.IcebergTable], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, other = made(3), []
    write = iceberg_compact.IcebergCompaction._write

    def write_and_append(self: iceberg_compact.IcebergCompaction, *arguments: object) -> None:
        write(self, *arguments)  # type: ignore[arg-type]
        if not other:
            other.append(1)
            widen.IcebergTable("ns.t", table.table.catalog).append(spark.createDataFrame([(99, "z", 9)], COLUMNS))

    monkeypatch.setattr(iceberg_compact.IcebergCompaction, "_write", write_and_append)
    written = []
    monkeypatch.setattr(
        iceberg_compact.IcebergCompaction, "plan", _counted(iceberg_compact.IcebergCompaction.plan, written)
    )
    table.optimize(spark=spark)
    assert len(rows(table)) == 13
    assert table.files().num_rows == 2
    assert len(written) == 1, "what was written is committed, and not planned again"


def _counted(call: Callable[..., object], calls: list[object]) -> Callable[..., object]:
    def counted(*arguments: object) -> object:
        calls.append(arguments)
        return call(*arguments)

    return counted


def test_a_delete_during_an_optimize_wins(
    made: Callable[..., widen.IcebergTable], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, other = made(3), []
    write = iceberg_compact.IcebergCompaction._write
    file = local(table.files()["path"][0].as_py())

    def write_and_delete(self: iceberg_compact.IcebergCompaction, *arguments: object) -> None:
        write(self, *arguments)  # type: ignore[arg-type]
        if not other:
            other.append(1)
            newest = table.table.catalog.load_table("ns.t")
            append_deletes(newest, position_deletes(newest, [(file, 1)]))

    monkeypatch.setattr(iceberg_compact.IcebergCompaction, "_write", write_and_delete)
    table.optimize(spark=spark)
    assert len(rows(table)) == 11
    assert table.files().num_rows == 1


def test_rewrite_takes_files_with_old_types_and_old_partitions(
    made: Callable[..., widen.IcebergTable], spark: SparkSession
) -> None:
    table = made(2)
    table.alter_column("id", type="bigint")
    table.append(spark.createDataFrame([(2**40, "c", 1)], "id bigint, kind string, size bigint").coalesce(1))
    before = rows(table)
    assert table.rewrite(dry_run=True, spark=spark).metrics["numRemovedFiles"] == 2
    assert table.rewrite(spark=spark).metrics["numRemovedFiles"] == 2
    assert rows(table) == before
    assert table.rewrite(spark=spark).metrics == {}
    table.change_partitioning(add=["kind"])
    table.rewrite(spark=spark)
    assert rows(table) == before
    assert {row["partition"] for row in table.files().to_pylist()} == {"kind=a", "kind=b", "kind=c"}


# ---- vacuum ---------------------------------------------------------------------------------------


def age(table: widen.IcebergTable, hours: float = 24 * 30) -> None:
    """Make all files of the table, and its snapshots, look older."""
    then = time.time() - hours * 3600
    for path in local(table.location).rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))


def test_vacuum_expires_snapshots_and_deletes_what_only_they_need(
    made: Callable[..., widen.IcebergTable], spark: SparkSession
) -> None:
    table = made(3)
    table.optimize(spark=spark)
    left, files = rows(table), data_files(table)
    orphan = local(table.location) / "data" / "killed" / "part.parquet"
    orphan.parent.mkdir()
    orphan.write_bytes(b"x")
    with pytest.raises(RetentionTooShort):
        table.vacuum(0)
    dry = table.vacuum(0, dry_run=True, force=True)
    assert len(dry.expired) == 3
    assert data_files(table) == files | {str(orphan)}
    done = table.vacuum(0, force=True)
    assert done.files == dry.files
    assert len(data_files(table)) == 1
    assert rows(table) == left
    assert len(table.table.metadata.snapshots) == 1
    assert sorted(map(tuple, table.read(spark=spark).collect())) == left
    assert table.vacuum(0, force=True).files == ()


def test_vacuum_keeps_what_branches_tags_and_the_number_to_keep_need(
    made: Callable[..., widen.IcebergTable], spark: SparkSession
) -> None:
    table = made(1)
    first = table.version
    table.create_tag("first").create_branch("work")
    branch = widen.IcebergTable("ns.t", table.table.catalog, branch="work")
    branch.append(spark.createDataFrame([(77, "w", 7)], COLUMNS))
    table.refresh().overwrite(spark.createDataFrame([(1, "n", 1)], COLUMNS))
    table.append(spark.createDataFrame([(2, "n", 2)], COLUMNS))
    done = table.vacuum(0, keep_last=1, force=True)
    assert len(done.expired) == 1
    assert {row[0] for row in table.read(tag="first", spark=spark).select("id").collect()} == {0, 1, 2, 3}
    assert table.read(branch="work", spark=spark).count() == 5
    assert table.read(version=first, spark=spark).count() == 4
    table.drop_tag("first").drop_branch("work")
    assert first in table.vacuum(0, force=True).expired
    with pytest.raises(VersionNotFound):
        table.read(version=first, spark=spark)
    assert rows(table) == [(1, "n", 1), (2, "n", 2)]


def test_vacuum_keeps_young_files_and_the_loads(catalog: SqlCatalog, spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "in"
    source.mkdir()
    for at in range(2):
        (source / f"{at}.json").write_text(json.dumps({"id": at}) + "\n")
        widen.ingest(source, into="ns.loads", catalog=catalog, new=True, spark=spark)
    table = widen.IcebergTable("ns.loads", catalog)
    young = local(table.location) / "data" / "young.parquet"
    young.write_bytes(b"x")
    age(table)
    young.write_bytes(b"x")
    table.vacuum(24 * 5)
    assert young.exists()
    table.vacuum(0, force=True)
    assert not young.exists()
    widen.ingest(source, into="ns.loads", catalog=catalog, new=True, spark=spark)
    assert table.refresh().read(spark=spark).count() == 2


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (lambda table: table.set_properties({"gc.enabled": "false"}), "gc.enabled is false"),
        (lambda table: _delta_log(table), "_delta_log"),
    ],
)
def test_vacuum_refuses_files_that_others_need(
    made: Callable[..., widen.IcebergTable], prepare: Callable[[widen.IcebergTable], object], reason: str
) -> None:
    table = made(1)
    prepare(table)
    with pytest.raises(UnsupportedFeatureForWrite, match=reason):
        table.vacuum(dry_run=True)


def _delta_log(table: widen.IcebergTable) -> None:
    folder = local(table.location) / "_delta_log"
    folder.mkdir()
    (folder / "0.json").write_text("{}")


def test_a_vacuum_that_loses_a_race_against_a_rollback_deletes_nothing(
    made: Callable[..., widen.IcebergTable], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    from widen.errors import ContentionError
    from widen.iceberg import expiry
    from widen.table import iceberg_maintenance

    table = made(2)
    first = table.history()[-1].version
    table.overwrite(spark.createDataFrame([(5, "n", 5)], COLUMNS))
    files, run = data_files(table), expiry.run_expiry

    def roll_back_first(*arguments: object) -> object:
        widen.IcebergTable("ns.t", table.table.catalog).restore(first)
        return run(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(iceberg_maintenance, "run_expiry", roll_back_first)
    with pytest.raises(ContentionError):
        table.vacuum(0, force=True)
    assert data_files(table) == files
    assert len(rows(table)) == 4


# ---- branches and tags ----------------------------------------------------------------------------


def test_branches_are_created_written_to_and_fast_forwarded(
    made: Callable[..., widen.IcebergTable], spark: SparkSession
) -> None:
    table = made(1)
    before = rows(table)
    table.create_branch("work", keep_hours=48)
    branch = widen.IcebergTable("ns.t", table.table.catalog, branch="work")
    branch.delete("id < 2", spark=spark)
    branch.optimize(spark=spark)
    assert rows(table) == before
    assert [(each.name, each.kind, each.keep_hours) for each in table.references] == [
        ("main", "branch", None),
        ("work", "branch", 48),
    ]
    table.fast_forward("main", "work")
    assert rows(table) == before[2:]
    table.append(spark.createDataFrame([(50, "n", 5)], COLUMNS))
    with pytest.raises(InvalidOption, match="snapshots that work does not have"):
        table.fast_forward("main", "work")
    with pytest.raises(InvalidOption, match="has a branch of that name"):
        table.create_tag("work")
    with pytest.raises(InvalidOption, match="main branch"):
        table.drop_branch("main")
    with pytest.raises(VersionNotFound):
        table.drop_tag("work")
    assert [each.name for each in table.drop_branch("work").references] == ["main"]


def test_a_table_without_snapshots_has_nothing_to_tag(made: Callable[..., widen.IcebergTable]) -> None:
    table = made(0)
    with pytest.raises(InvalidOption, match="no snapshot yet"):
        table.create_tag("first")
    assert table.vacuum().files == ()
    assert table.references == []


# ---- partitions and sort orders -------------------------------------------------------------------


def test_partition_fields_and_sort_orders_change(made: Callable[..., widen.IcebergTable], spark: SparkSession) -> None:
    table = made(1)
    table.change_partitioning(add=["bucket(4, id)", "KIND"])
    assert table.partition_by == ("bucket(4, id)", "kind")
    table.change_partitioning(add=["truncate(2, kind)"], drop=["kind"])
    assert table.partition_by == ("bucket(4, id)", "truncate(2, kind)")
    table.set_sort_order("kind", "id DESC NULLS FIRST")
    assert table.sort_order == ("kind ASC NULLS FIRST", "id DESC NULLS FIRST")
    table.append(spark.createDataFrame([(8, "bb", 1), (9, "aa", 1)], COLUMNS))
    assert len(rows(table)) == 6
    assert table.set_sort_order().sort_order == ()
    for wrong in ({"add": ["truncate(2, kind)"]}, {"drop": ["size"]}, {"add": ["day(id)"]}, {"add": ["bucket(x, id)"]}):
        with pytest.raises(InvalidOption):
            table.change_partitioning(**wrong)  # type: ignore[arg-type]
    with pytest.raises(widen.errors.ColumnNotFound):
        table.set_sort_order("nothing")
