"""The mirror of a Delta table as Iceberg: the same rows and ids for PyIceberg, made from the log alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import widen
from support.command_line import run_json
from support.iceberg_files import embedded_catalog
from widen.errors import InvalidOption, MirrorRefused
from widen.log.log_store import LogStore

COMPAT = {"delta.enableIcebergCompatV2": "true", "delta.enableTypeWidening": "true"}
COLUMNS = (
    "id int, price decimal(9,2), ratio double, f float, s struct<a: int>, l array<struct<x: int>>, m map<string, int>, "
    "at timestamp, local timestamp_ntz, day date, p string"
)
ROWS = (
    "SELECT CAST(id AS int) id, CAST(id / 4 AS decimal(9,2)) price, id / 3 ratio, CAST(id / 3 AS float) f, "
    "named_struct('a', CAST(id AS int)) s, array(named_struct('x', CAST(id AS int))) l, map('k', CAST(id AS int)) m, "
    "timestamp_micros(id * 1000001) at, timestamp_ntz'1969-12-31 23:59:59.999999' local, "
    "date_add(date'1969-12-31', CAST(id % 2 AS int)) day, IF(id % 3 = 0, NULL, concat('a b/', id % 3)) p "
    "FROM range({0}, {1})"
)
FILTERS = (
    "id = 3",
    "price <= 1.25 AND id > 0",
    "ratio > 3.3",
    "f >= 3",
    "at < '1970-01-01T00:00:05.000006+00:00'",
    "at >= '1970-01-01T00:00:09.000009+00:00'",
    "local < '1970-01-01T00:00:00'",
    "day = '1969-12-31'",
    "p = 'a b/1'",
    "p is null",
    "s.a = 7",
)


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return embedded_catalog(tmp_path)


@pytest.fixture
def table(spark: SparkSession, tmp_path: Path) -> widen.Table:
    made = widen.create_table(str(tmp_path / "a delta"), COLUMNS, partition_by=["p", "day"], properties=COMPAT)
    return made.append(spark.sql(ROWS.format(0, 12))).table


def ids(spark: SparkSession, table: widen.Table, where: str | None = None) -> list[int]:
    return sorted(row.id for row in table.refresh().read(where, spark=spark).select("id").collect())


def test_the_mirror_follows_every_change(
    spark: SparkSession, table: widen.Table, catalog: SqlCatalog, tmp_path: Path
) -> None:
    done = table.mirror(catalog=catalog, identifier="ns.m")
    assert (done.version, done.added, done.removed) == (1, table.files().num_rows, 0)
    mirror = catalog.load_table("ns.m")
    for where in FILTERS:
        spark_where = where.replace("T0", " 0").replace("local < '", "local < timestamp_ntz'")
        found = sorted(mirror.scan(row_filter=where, selected_fields=("id",)).to_arrow()["id"].to_pylist())
        assert found == ids(spark, table, spark_where), where
    assert table.mirror(catalog=catalog, identifier="ns.m").snapshot_id is None
    table.alter_column("id", type="bigint").rename_column("price", "cost").add_columns({"new": "string"})
    table.append(spark.sql("SELECT * EXCEPT (price), price cost, 'n' new FROM (" + ROWS.format(12, 15) + ")"))
    table.delete("id < 4")
    done = table.mirror(catalog=catalog, identifier="ns.m")
    assert (done.version, done.snapshot_id) == (table.version, mirror.refresh().metadata.current_snapshot_id)
    snapshot = mirror.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert snapshot.summary["widen.delta-version"] == str(table.version)
    numbers = {field.name: field.metadata["delta.columnMapping.id"] for field in table.snapshot.schema}
    assert {field.name: field.field_id for field in mirror.schema().fields} == numbers
    assert str(mirror.schema().find_type("id")) == "long"
    ours = widen.IcebergTable("ns.m", catalog=catalog)
    text = "to_json(struct(*), map('ignoreNullFields', 'false'))"
    wanted = sorted(row[0] for row in table.read(spark=spark).selectExpr(text).collect())
    assert sorted(row[0] for row in ours.read(spark=spark).selectExpr(text).collect()) == wanted
    assert sorted(mirror.scan().to_arrow()["id"].to_pylist()) == ids(spark, table)
    words = ("handover", table.location, "--to", "iceberg", "--identifier", "ns.m")
    assert run_json(*words, "--catalog", str(tmp_path / "catalog.db"))["rows"] == len(ids(spark, table))


def test_only_the_log_is_read(
    spark: SparkSession, table: widen.Table, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(self: LogStore, path: str) -> None:
        raise AssertionError(path)

    monkeypatch.setattr(LogStore, "open", closed)
    assert table.mirror(catalog=catalog, identifier="ns.m").added == table.files().num_rows


def test_a_version_that_the_log_has_lost_is_compared_by_the_mirror(
    spark: SparkSession, table: widen.Table, catalog: SqlCatalog, tmp_path: Path
) -> None:
    table.mirror(catalog=catalog, identifier="ns.m")
    table.append(spark.sql(ROWS.format(20, 22))).table.delete("id = 5")
    with catalog.load_table("ns.m").transaction() as transaction:
        transaction.set_properties({"widen.delta-version": "-1"})
    done = table.mirror(catalog=catalog, identifier="ns.m")
    assert done.version == table.version
    assert sorted(catalog.load_table("ns.m").scan().to_arrow()["id"].to_pylist()) == ids(spark, table)


def test_what_cannot_be_mirrored_is_refused_before_anything_is_written(
    spark: SparkSession, table: widen.Table, catalog: SqlCatalog, tmp_path: Path
) -> None:
    plain = widen.create_table(str(tmp_path / "plain"), "id int")
    with pytest.raises(MirrorRefused, match="IcebergCompatV1 or IcebergCompatV2"):
        plain.mirror(catalog=catalog, identifier="new.plain")
    assert catalog.list_namespaces() == [("ns",)]
    other = widen.create_table(str(tmp_path / "other"), "id int", properties=COMPAT)
    other.mirror(catalog=catalog, identifier="ns.m")
    with pytest.raises(InvalidOption, match=r"identifier cannot be 'ns\.m'"):
        table.mirror(catalog=catalog, identifier="ns.m")
    table.mirror(catalog=catalog, identifier="ns.t")
    catalog.create_table("ns.foreign", catalog.load_table("ns.m").schema())
    with pytest.raises(InvalidOption, match=r"identifier cannot be 'ns\.foreign'"):
        table.mirror(catalog=catalog, identifier="ns.foreign")
