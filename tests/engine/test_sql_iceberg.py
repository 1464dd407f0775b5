"""SQL over the tables of an Iceberg catalog, judged by PyIceberg's scan, and joined with Delta tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import DataFrame, SparkSession

import widen
from support.command_line import run, run_json
from support.iceberg_files import embedded_catalog
from widen.cli import output
from widen.errors import (
    IcebergDefaultsNotSupported,
    IcebergTableNotFound,
    InvalidOption,
    NotForIceberg,
    OptionMissing,
    RequestError,
    TableAlreadyExists,
    WidenError,
)
from widen.spark import session


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sql")


@pytest.fixture(scope="module")
def catalog(folder: Path) -> SqlCatalog:
    return embedded_catalog(folder)


class Sql:
    """Statements in one catalog."""

    def __init__(self, spark: SparkSession, catalog: SqlCatalog) -> None:
        self.spark, self.catalog = spark, catalog

    def __call__(self, text: str) -> list[tuple[object, ...]]:
        done = widen.sql(text, catalog=self.catalog, spark=self.spark)
        return [tuple(row) for row in done.collect()] if isinstance(done, DataFrame) else []

    def rows(self, name: str) -> list[tuple[object, ...]]:
        """What PyIceberg reads."""
        scan = self.catalog.load_table(name).scan().to_arrow().to_pylist()
        return sorted((tuple(row.values()) for row in scan), key=repr)


@pytest.fixture
def sql(spark: SparkSession, catalog: SqlCatalog) -> Sql:
    return Sql(spark, catalog)


@pytest.fixture
def orders(sql: Sql, request: pytest.FixtureRequest) -> str:
    name = f"ns.t{abs(hash(request.node.name))}"
    columns, fields = "id int, kind string, at timestamp", "bucket(4, id), days(at)"
    sql(f"CREATE TABLE {name} ({columns}) USING iceberg PARTITIONED BY ({fields})")
    sql(f"INSERT INTO {name} VALUES (1, 'a', timestamp'2024-01-01 00:00:00Z'), (2, 'b', NULL)")
    return name


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("RENAME COLUMN kind TO kind", "Column kind already exists"),
        ("RENAME COLUMN Kind TO kind", "Column kind already exists"),
        ("ALTER COLUMN kind AFTER KIND", "Column kind cannot be moved after itself"),
    ],
)
def test_a_column_is_not_its_own_place_or_name(sql: Sql, orders: str, statement: str, reason: str) -> None:
    before = sql.catalog.load_table(orders).metadata
    with pytest.raises(RequestError, match=reason):
        sql(f"ALTER TABLE {orders} {statement}")
    assert sql.catalog.load_table(orders).metadata == before
    sql(f"ALTER TABLE {orders} ALTER COLUMN kind AFTER id")  # where it is
    assert sql.catalog.load_table(orders).schema() == before.schema()


def test_tables_of_namespaces_with_several_levels(sql: Sql) -> None:
    table = "l1.`l 2`.l3.orders"
    sql(f"CREATE TABLE {table} (id int COMMENT 'number', kind string) USING iceberg")
    sql(f"INSERT INTO {table} VALUES (1, 'a'), (2, 'b')")
    query = (
        f"SELECT l3.orders.id, {table}.kind AS `l3.orders.kind` FROM {table} WHERE orders.id < 2 AND L3.orders.id > 0"
    )
    assert sql(query) == [(1, "a")]
    assert sql(f"SELECT {table}.* FROM {table} JOIN {table} AS o ON l3.orders.id = o.id + 1") == [(2, "b")]
    sql(f"CREATE TABLE l1.copy AS SELECT * FROM {table}")
    assert sql.rows("l1.copy") == sql.rows("l1.l 2.l3.orders") == [(1, "a"), (2, "b")]
    assert [field.doc for field in sql.catalog.load_table("l1.copy").schema().fields] == ["number", None]
    sql(f"MERGE INTO {table} USING l1.copy ON {table}.id = l1.copy.id + 1 WHEN MATCHED THEN UPDATE SET kind = 'm'")
    assert sql.rows("l1.l 2.l3.orders") == [(1, "a"), (2, "m")]
    for missing in ("l1.nowhere.l3.orders", "l1.l2.missing"):
        with pytest.raises(IcebergTableNotFound, match=f"There is no Iceberg table {missing}"):
            sql(f"SELECT * FROM {missing} JOIN {table} USING (id)")


def test_a_plain_query_of_a_branch_needs_no_spark(
    sql: Sql, orders: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name, at = orders, ("--catalog", str(folder / "catalog.db"), "--json")
    widen.IcebergTable(name, sql.catalog).create_branch("audit")
    sql(f"INSERT INTO {name}.branch_audit (id) VALUES (3)")
    queries = (
        f"SELECT kind, id FROM {name}",
        f"SELECT id FROM {name}.branch_audit WHERE id > 1",
        f"SELECT count(*) FROM {name}",
    )
    expected = [sorted(run("sql", query, *at).stdout.splitlines()) for query in queries]
    monkeypatch.setattr(session, "find_active", lambda: None)
    monkeypatch.setattr(output, "spark_session", lambda *_: pytest.fail("it starts Spark"))
    assert [sorted(run("sql", query, *at).stdout.splitlines()) for query in queries] == expected
    assert expected[1:] == [['{"id":2}', '{"id":3}'], ['{"count(1)":2}']]


def test_a_delta_table_is_created_from_a_query_of_an_iceberg_table(sql: Sql, orders: str, tmp_path: Path) -> None:
    sql(f"CREATE TABLE delta.`{tmp_path}/copy` AS SELECT * FROM {orders}")
    table = widen.Table(str(tmp_path / "copy"))
    assert [(row["id"], row["kind"]) for row in sorted(table.to_arrow().to_pylist(), key=str)] == [(1, "a"), (2, "b")]
    assert [dict(field.metadata) for field in table.schema] == [{}, {}, {}]


def test_rows_are_inserted_updated_merged_and_deleted(sql: Sql, orders: str) -> None:
    sql(f"INSERT INTO {orders} (kind, id) SELECT 'c', 3")
    sql(f"UPDATE {orders} AS o SET kind = concat(o.kind, 'x') WHERE o.id < 3")
    sql(f"DELETE FROM {orders} WHERE id = 2")
    sql(
        f"MERGE INTO {orders} t USING (SELECT 3 AS id, 'm' AS kind UNION ALL SELECT 4, 'n') s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET kind = s.kind WHEN NOT MATCHED THEN INSERT (id, kind) VALUES (s.id, s.kind)"
    )
    assert [row[:2] for row in sql.rows(orders)] == [(1, "ax"), (3, "m"), (4, "n")]
    assert sql(f"SELECT id, kind FROM {orders} ORDER BY id DESC LIMIT 1") == [(4, "n")]
    sql(f"INSERT INTO {orders} REPLACE WHERE id > 2 SELECT 9, 'r', NULL")
    assert [row[0] for row in sql.rows(orders)] == [1, 9]
    sql(f"INSERT OVERWRITE {orders} SELECT 5, 'o', NULL")
    assert [row[0] for row in sql.rows(orders)] == [5]
    sql(f"TRUNCATE TABLE {orders}")
    assert sql.rows(orders) == []


def test_versions_branches_and_tags_are_read(sql: Sql, orders: str) -> None:
    first = sql(f"DESCRIBE HISTORY {orders}")[0][0]
    sql(f"ALTER TABLE {orders} CREATE TAG v1 RETAIN 7 DAYS")
    sql(f"ALTER TABLE {orders} CREATE BRANCH audit AS OF VERSION {first}")
    sql(f"DELETE FROM {orders} WHERE id = 1")
    assert sql(f"SELECT count(*) FROM {orders} VERSION AS OF {first}") == [(2,)]
    assert sql(f"SELECT count(*) FROM {orders} VERSION AS OF 'v1' x JOIN {orders} y ON x.id = y.id") == [(1,)]
    assert sql(f"SELECT count(*) FROM {orders} FOR VERSION AS OF 'audit'") == [(2,)]
    moment = sql("SELECT timestamp FROM (VALUES (1)) v CROSS JOIN (SELECT current_timestamp() AS timestamp)")[0][0]
    assert sql(f"SELECT count(*) FROM {orders} TIMESTAMP AS OF '{moment}'") == [(1,)]
    sql(f"ALTER TABLE {orders} FAST FORWARD audit TO main")
    assert sql(f"SELECT count(*) FROM {orders} VERSION AS OF 'audit'") == [(1,)]
    sql(f"RESTORE TABLE {orders} TO VERSION AS OF {first}")
    assert len(sql.rows(orders)) == 2
    sql(f"ALTER TABLE {orders} DROP TAG v1")
    sql(f"ALTER TABLE {orders} DROP BRANCH audit")
    with pytest.raises(WidenError, match="does not have the branch v1"):
        sql(f"SELECT * FROM {orders} VERSION AS OF 'v1'")


def test_a_query_joins_delta_and_iceberg_tables(sql: Sql, orders: str, tmp_path: Path) -> None:
    delta = f"delta.`{tmp_path}/customers`"
    sql(f"CREATE TABLE {delta} (id int, name string)")
    sql(f"INSERT INTO {delta} VALUES (1, 'Ann'), (7, 'Bob')")
    assert sql(f"SELECT name, kind FROM {orders} o JOIN {delta} c USING (id)") == [("Ann", "a")]
    sql(f"INSERT INTO {delta} SELECT id, kind FROM {orders} WHERE id = 2")
    assert sql(f"SELECT name FROM {delta} WHERE id = 2") == [("b",)]
    sql(f"MERGE INTO {orders} USING {delta} c ON {orders}.id = c.id WHEN MATCHED THEN DELETE")
    assert sql.rows(orders) == []


def test_columns_properties_and_the_layout_change(sql: Sql, orders: str) -> None:
    for change in (
        "ALTER COLUMN id TYPE bigint",
        "ADD COLUMNS (note string COMMENT 'by hand')",
        "RENAME COLUMN note TO remark",
        "DROP COLUMN kind",
        "SET TBLPROPERTIES ('owner' = 'shop')",
        "UNSET TBLPROPERTIES IF EXISTS ('nothing')",
        "DROP PARTITION FIELD days(at)",
        "REPLACE PARTITION FIELD bucket(4, id) WITH bucket(2, id)",
        "ADD PARTITION FIELD truncate(2, remark)",
        "WRITE ORDERED BY id DESC, at NULLS LAST",
    ):
        sql(f"ALTER TABLE {orders} {change}")
    sql(f"COMMENT ON TABLE {orders} IS 'orders of the shop'")
    table = sql.catalog.load_table(orders)
    assert {str(each.field_type) for each in table.schema().fields[:1]} == {"long"}
    assert table.schema().column_names == ["id", "at", "remark"]
    assert dict(sql(f"SHOW TBLPROPERTIES {orders}"))["owner"] == "shop"
    described = sql(f"DESCRIBE EXTENDED {orders}")
    assert ("remark", "string", "by hand") in described
    assert ("Part 0", "bucket(2, id)", "") in described
    assert ("Comment", "orders of the shop", "") in described
    widened = widen.IcebergTable(orders, sql.catalog)
    assert widened.sort_order == ("id DESC NULLS LAST", "at ASC NULLS LAST")
    sql(f"ALTER TABLE {orders} WRITE UNORDERED")
    detail = widen.sql(f"DESCRIBE DETAIL {orders}", catalog=sql.catalog, spark=sql.spark)
    assert isinstance(detail, DataFrame)
    row = detail.collect()[0]
    assert (row.format, row.numFiles, row.formatVersion, row.sortOrder) == ("iceberg", 2, 2, [])
    assert row.branches == ["main"]


def test_maintenance(sql: Sql, orders: str) -> None:
    sql(f"INSERT INTO {orders} VALUES (1, 'c', timestamp'2024-01-01 01:00:00Z')")
    before = sql.rows(orders)
    sql(f"OPTIMIZE {orders}")
    assert sql.rows(orders) == before
    assert sql(f"DESCRIBE HISTORY {orders} LIMIT 1")[0][2] == "replace"
    sql(f"ALTER TABLE {orders} ALTER COLUMN id TYPE bigint")
    sql(f"REWRITE {orders}")
    assert sql(f"VACUUM {orders} DRY RUN") == []
    sql(f"VACUUM {orders}")
    with pytest.raises(WidenError) as raised:
        sql(f"VACUUM {orders} RETAIN 0 HOURS")
    assert raised.value.code == "ICEBERG_VACUUM_RETENTION_PERIOD_TOO_SHORT"


def test_tables_are_created_with_rows(sql: Sql) -> None:
    sql("CREATE TABLE ns.made PARTITIONED BY (k) COMMENT 'm' AS SELECT id, id % 2 AS k FROM range(5)")
    assert sql.rows("ns.made") == [(0, 0), (1, 1), (2, 0), (3, 1), (4, 0)]
    assert len(sql.catalog.load_table("ns.made").metadata.snapshots) == 1
    sql("CREATE TABLE IF NOT EXISTS ns.made (x int)")
    with pytest.raises(TableAlreadyExists):
        sql("CREATE TABLE ns.made (x int)")
    sql("CREATE TABLE other.level.made (x int)")
    assert sql.rows("other.level.made") == []


@pytest.mark.parametrize(
    ("statement", "error", "words"),
    [
        ("ALTER TABLE {t} ADD CONSTRAINT c CHECK (id > 0)", NotForIceberg, "CHECK constraints"),
        ("ALTER TABLE {t} CLUSTER BY (id)", NotForIceberg, "sort order"),
        ("ALTER TABLE {t} DROP FEATURE x", NotForIceberg, "format version"),
        ("ALTER TABLE {t} REPLACE COLUMNS (id int)", NotForIceberg, "by their ids"),
        ("ALTER TABLE {t} DROP PARTITION FIELD kind", InvalidOption, "partitioned by"),
        ("CREATE TABLE ns.x (id int) LOCATION '/tmp/x'", InvalidOption, "catalog chooses the location"),
        ("CREATE TABLE ns.x (id int) PARTITIONED BY (days(id))", InvalidOption, "which day cannot take"),
        ("CREATE TABLE ns.x (id int) CLUSTER BY (id)", InvalidOption, "WRITE ORDERED BY"),
        ("CREATE TABLE ns.x (id int DEFAULT 1)", IcebergDefaultsNotSupported, "format version 2"),
        ("CREATE TABLE delta.`/tmp/x` (id int) PARTITIONED BY (bucket(2, id))", InvalidOption, "for Iceberg tables"),
        ("ALTER TABLE ns.missing WRITE UNORDERED", WidenError, "does not have it"),
        ("UPDATE {t} SET nothing = 1", WidenError, "nothing"),
        ("ALTER TABLE {t} ALTER COLUMN id TYPE string", WidenError, "Iceberg does not allow"),
    ],
)
def test_what_is_refused_has_a_code_of_iceberg(
    sql: Sql, orders: str, statement: str, error: type[WidenError], words: str
) -> None:
    with pytest.raises(error, match=words) as raised:
        sql(statement.format(t=orders))
    assert not raised.value.code.startswith("DELTA_")


def test_without_a_catalog_a_statement_says_what_it_needs(spark: SparkSession, tmp_path: Path) -> None:
    for text in ("CREATE TABLE a.b (x int) USING iceberg", "ALTER TABLE a.b WRITE UNORDERED"):
        with pytest.raises(OptionMissing, match="catalog is missing"):
            widen.sql(text, spark=spark)


def test_the_command_line(catalog: SqlCatalog, folder: Path, spark: SparkSession) -> None:
    place = ("--catalog", str(folder / "catalog.db"))
    assert "done, without a new snapshot" in run("sql", "CREATE TABLE ns.cli (id int)", *place).stdout
    assert "ns.cli: snapshot" in run("sql", "INSERT INTO ns.cli VALUES (1), (2)", *place).stdout
    lines = run("sql", "SELECT id FROM ns.cli ORDER BY id", *place, "--json").stdout.splitlines()
    assert [json.loads(line) for line in lines] == [{"id": 1}, {"id": 2}]
    assert run_json("sql", "DELETE FROM ns.cli WHERE id = 1", *place)["changed"] is True
    assert run_json("sql", "DESCRIBE ns.cli", *place)[0]["col_name"] == "id"
    refused = run("sql", "ALTER TABLE ns.cli DROP COLUMN nothing", *place)
    assert refused.exit_code == 1
    assert "DELTA_" not in refused.stderr
