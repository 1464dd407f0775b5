"""Iceberg for Spark, PyIceberg and Widen on the same Iceberg tables: each reads what the others wrote and changed."""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

import widen
from interop.conftest import IcebergSpark
from support import similar_names
from support.command_line import run
from support.iceberg_files import field
from widen.errors import InvalidOption
from widen.model.types import quote_name


def ours(spark: SparkSession, table: widen.IcebergTable, where: str | None = None, **point: Any) -> list[str]:
    """Our rows as sorted JSON texts, like `IcebergSpark.json`."""
    frame = table.refresh().read(where, spark=spark, **point)
    return sorted(row[0] for row in frame.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false'))").collect())


def opened(folder: Path, name: str) -> widen.IcebergTable:
    return widen.IcebergTable(name, catalog=folder / "catalog.db")


def agree(
    spark: SparkSession, iceberg: IcebergSpark, table: widen.IcebergTable, filters: Sequence[str] = ()
) -> list[str]:
    """Assert that we read what Iceberg for Spark reads, with every filter, and return the rows."""
    name = f"default.{table.name}"
    everything = iceberg.json(f"SELECT * FROM {name}")
    assert ours(spark, table) == everything
    for where in filters:
        assert ours(spark, table, where) == iceberg.json(f"SELECT * FROM {name} WHERE {where}"), where
    return everything


EVOLVED = "default.ns.evolved"
COLUMNS = (
    "id int, price decimal(9,2), ratio float, at timestamp_ntz, seen timestamp, day date, text string, raw binary, "
    "s struct<a: int, b: string>, l array<struct<x: int>>, m map<string, decimal(9,2)>"
)
ROWS = (
    "SELECT CAST(id AS int) id, CAST(id / 4 AS decimal(9,2)) price, CAST(id AS float) ratio, "
    "timestamp_ntz'2024-02-28 12:00:00' + make_dt_interval(id) at, timestamp_seconds(id * 100000) seen, "
    "date_add(date'1969-12-30', CAST(id AS int)) day, IF(id % 5 = 0, NULL, concat('text', id)) text, "
    "IF(id % 7 = 0, NULL, unhex(lpad(hex(id), 8, '0'))) raw, IF(id % 4 = 0, NULL, named_struct('a', CAST(id AS int), "
    "'b', concat('b', id))) s, IF(id % 6 = 0, NULL, array(named_struct('x', CAST(id AS int)), NULL)) l, "
    "map('k', CAST(id AS decimal(9,2))) m FROM range({0}, {1})"
)
NEW_ROWS = (
    "SELECT id * 1000000000000 id, CAST(id * 100000000 AS decimal(18,2)) price, CAST(id / 3 AS double) ratio, "
    "timestamp_ntz'2025-01-01 00:00:00' at, timestamp_seconds(id) seen, date'2025-01-01' day, concat('w', id) words, "
    "unhex('00') raw, named_struct('a', id * 1000000000000, 'c', 'c', 'b', id) s, "
    "array(named_struct('x', CAST(id AS int), 'y', 'y')) l, map('k', CAST(id AS decimal(20,2))) m, id text "
    "FROM range({0}, {1})"
)
FILTERS = (
    "price < 99999999.99",
    "id > 7 AND id < 3000000000000",
    "seen >= timestamp'1970-01-05 00:00:00Z' AND day < date'1970-01-06'",
    "at < timestamp_ntz'2024-03-04 00:00:00'",
    "s.a IS NULL OR s.a > 5000000000",
    "ratio > 5.5",
    "words LIKE 'text1%' OR words IS NULL",
    "words IN ('text3', 'w31')",
    "NOT (id = 3 OR words = 'text6')",
)


def test_we_read_what_iceberg_for_spark_wrote_evolved_and_deleted(
    spark: SparkSession, iceberg: IcebergSpark, folder: Path
) -> None:
    iceberg.sql(
        f"CREATE TABLE {EVOLVED} ({COLUMNS}) USING iceberg PARTITIONED BY (days(at), bucket(4, id), truncate(5, text)) "
        "TBLPROPERTIES ('write.update.mode'='merge-on-read', 'write.delete.mode'='merge-on-read')",
        f"INSERT INTO {EVOLVED} {ROWS.format(0, 15)}",
    )
    table = opened(folder, "ns.evolved")
    assert len(agree(spark, iceberg, table, ("id = 3", "text = 'text6'", "price < 2"))) == 15
    first = table.version
    iceberg.sql(
        f"ALTER TABLE {EVOLVED} RENAME COLUMN text TO words",
        f"ALTER TABLE {EVOLVED} ALTER COLUMN id TYPE bigint",
        f"ALTER TABLE {EVOLVED} ALTER COLUMN price TYPE decimal(18,2)",
        f"ALTER TABLE {EVOLVED} ALTER COLUMN ratio TYPE double",
        f"ALTER TABLE {EVOLVED} ALTER COLUMN s.a TYPE bigint",
        f"ALTER TABLE {EVOLVED} ALTER COLUMN m.value TYPE decimal(20,2)",
        f"ALTER TABLE {EVOLVED} RENAME COLUMN s.b TO c",
        f"ALTER TABLE {EVOLVED} ADD COLUMNS (s.b bigint, l.element.y string, text bigint)",
        f"ALTER TABLE {EVOLVED} REPLACE PARTITION FIELD days(at) WITH months(at)",
        f"DELETE FROM {EVOLVED} WHERE id IN (2, 9)",
        f"INSERT INTO {EVOLVED} {NEW_ROWS.format(30, 36)}",
        f"UPDATE {EVOLVED} SET words = 'changed', s.b = 5 WHERE id = 4 OR id = 33000000000000",
        f"ALTER TABLE {EVOLVED} DROP PARTITION FIELD bucket(4, id)",
        f"DELETE FROM {EVOLVED} WHERE id = 31000000000000",
    )
    assert len(agree(spark, iceberg, table, FILTERS)) == 18
    sizes = iceberg.sql(f"SELECT content, count(*) FROM {EVOLVED}.all_delete_files GROUP BY content")
    assert [content for content, _ in sizes] == [1]  # there are position deletes
    assert ours(spark, table, version=first) == iceberg.json(f"SELECT * FROM {EVOLVED} VERSION AS OF {first}")
    iceberg.sql(
        f"ALTER TABLE {EVOLVED} CREATE TAG first AS OF VERSION {first}",
        f"ALTER TABLE {EVOLVED} CREATE BRANCH audit AS OF VERSION {first}",
        f"DELETE FROM {EVOLVED}.branch_audit WHERE id > 3",
    )
    assert ours(spark, table, tag="first") == iceberg.json(f"SELECT * FROM {EVOLVED} VERSION AS OF 'first'")
    assert ours(spark, table, branch="audit") == iceberg.json(f"SELECT * FROM {EVOLVED}.branch_audit")
    listed = iceberg.sql(f"SELECT file_path, record_count, file_size_in_bytes FROM {EVOLVED}.data_files")
    found = table.refresh().files().select(["path", "rows", "size_bytes"]).to_pylist()
    assert sorted(list(row.values()) for row in found) == sorted(listed)
    history = iceberg.sql(f"SELECT snapshot_id, operation FROM {EVOLVED}.snapshots ORDER BY committed_at DESC")
    mine = [[entry.version, entry.operation] for entry in table.history()]
    assert mine == [each for each in history if each[0] in {entry.version for entry in table.history()}]
    schema = {name: kind for name, kind, *_ in iceberg.sql(f"DESCRIBE {EVOLVED}")}
    assert {name: kind.replace(" ", "") for name, kind in table.read(spark=spark).dtypes} == {
        name: schema[name].replace(" ", "") for name in table.schema.names
    }


def test_deletion_vectors_and_defaults_of_version_3_are_read(
    spark: SparkSession, iceberg: IcebergSpark, folder: Path
) -> None:
    name = "default.ns.three"
    iceberg.sql(
        f"CREATE TABLE {name} (id bigint, p string) USING iceberg PARTITIONED BY (p) TBLPROPERTIES ("
        "'format-version'='3', 'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read')",
        f"INSERT INTO {name} SELECT id, concat('p', id % 2) FROM range(40)",
        f"DELETE FROM {name} WHERE id IN (3, 5, 8)",
        f"DELETE FROM {name} WHERE id % 10 = 1",
        f"INSERT INTO {name} SELECT id, concat('p', id % 2) FROM range(40, 50)",
        f"UPDATE {name} SET id = id + 1000 WHERE id = 6",
    )
    table = opened(folder, "ns.three")
    assert len(agree(spark, iceberg, table, ("id > 4 AND p = 'p1'", "id >= 1000"))) == 43
    formats = iceberg.sql(f"SELECT DISTINCT file_format FROM {name}.delete_files")
    assert formats == [["PUFFIN"]]
    table.add_columns({"x": "int"})
    assert len(agree(spark, iceberg, table, ("x IS NULL AND id > 4",))) == 43
    # The deletion vectors of files that are written again go with them; the others stay.
    table.delete("id = 10")
    assert len(agree(spark, iceberg, table, ("id > 4 AND p = 'p1'",))) == 42
    files = iceberg.sql(f"SELECT file_path FROM {name}.files WHERE content = 0")
    vectors = iceberg.sql(f"SELECT DISTINCT referenced_data_file FROM {name}.delete_files")
    assert {path for (path,) in vectors} <= {path for (path,) in files}
    assert vectors


@pytest.mark.parametrize("mode", ["copy-on-write", "merge-on-read"])
def test_row_lineage_is_that_of_iceberg_for_spark(
    spark: SparkSession, iceberg: IcebergSpark, folder: Path, mode: str
) -> None:
    """Of rows from before version 3, of new rows, and of rows that an update, a merge or a rewrite has moved."""
    name = f"lineage_{mode.replace('-', '_')}"
    table, modes = (
        f"default.ns.{name}",
        ", ".join(f"'write.{each}.mode'='{mode}'" for each in ("update", "merge", "delete")),
    )
    lineage = "_row_id, _last_updated_sequence_number"

    def compare() -> list[str]:
        mine = opened(folder, f"ns.{name}").read(row_lineage=True, spark=spark)
        assert mine.columns == ["id", "p", "_row_id", "_last_updated_sequence_number"]
        found = mine.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false'))").collect()
        expected = iceberg.json(f"SELECT id, p, {lineage} FROM {table}")
        assert sorted(row[0] for row in found) == expected
        return expected

    iceberg.sql(
        f"CREATE TABLE {table} (id bigint, p string) USING iceberg TBLPROPERTIES ('format-version'='2', {modes})",
        f"INSERT INTO {table} SELECT id, 'old' FROM range(5)",
    )
    with pytest.raises(InvalidOption, match="format version 2"):
        opened(folder, f"ns.{name}").read(row_lineage=True, spark=spark)
    iceberg.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('format-version'='3')")
    assert all('"_row_id":null' in row for row in compare())
    iceberg.sql(
        f"INSERT INTO {table} SELECT id, 'new' FROM range(10, 20, 1, 2)",
        f"INSERT INTO {table} SELECT id, 'new' FROM range(20, 25)",
    )
    assert not any('"_row_id":null' in row for row in compare())
    first = opened(folder, f"ns.{name}").version
    words = ("--catalog", str(folder / "catalog.db"), "--row-lineage", "--json")
    shown = [json.loads(line) for line in run("read", f"ns.{name}", *words).stdout.splitlines()]
    assert sorted(shown, key=lambda row: row["id"]) == sorted(map(json.loads, compare()), key=lambda row: row["id"])
    iceberg.sql(
        f"UPDATE {table} SET p = 'changed' WHERE id IN (1, 12, 22)",
        f"DELETE FROM {table} WHERE id IN (2, 13)",
        f"MERGE INTO {table} t USING (SELECT explode(array(14, 99)) AS id) s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET p = 'merged' WHEN NOT MATCHED THEN INSERT (id, p) VALUES (s.id, 'more')",
    )
    assert len(compare()) == 19
    iceberg.sql(f"CALL default.system.rewrite_data_files(table => 'ns.{name}', options => map('rewrite-all', 'true'))")
    ids = [row["_row_id"] for row in map(json.loads, compare())]
    assert len(set(ids)) == 19
    chosen = opened(folder, f"ns.{name}").read("_row_id > 7 AND id < 90", row_lineage=True, spark=spark)
    assert chosen.count() == iceberg.sql(f"SELECT count(*) FROM {table} WHERE _row_id > 7 AND id < 90")[0][0]
    with pytest.raises(InvalidOption, match="row_lineage"):
        opened(folder, f"ns.{name}").read(row_lineage=True, unified=True, spark=spark)
    for query in (
        f"SELECT id, {lineage} FROM {{t}}",
        "SELECT *, _ROW_ID AS `key` FROM {t} WHERE _row_id > 7",
        "SELECT `_row_id`, t.* FROM {t} t",
        "SELECT *, greatest(_row_id, id) FROM {t} WHERE coalesce(p, 'x') <> 'new' ORDER BY p, id",
        "SELECT count(*), max(_row_id * 2), max(_last_updated_sequence_number) FROM {t} GROUP BY p",
        "SELECT a._row_id - b._row_id AS d FROM {t} a JOIN {t} b ON a.id = b.id",
        f"SELECT p, _row_id FROM {{t}} VERSION AS OF {first}",
        "SELECT * FROM (SELECT id, _row_id FROM {t}) JOIN (SELECT *, _row_id AS r FROM {t}) USING (id)",
    ):
        rows = widen.sql(query.format(t=f"ns.{name}"), spark=spark, catalog=folder / "catalog.db")
        found = rows.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false'))").collect()
        assert sorted(row[0] for row in found) == iceberg.json(query.format(t=table)), query
    copy = f"CREATE TABLE delta.`{folder}/{name}` AS SELECT id, _row_id FROM ns.{name}"
    widen.sql(copy, spark=spark, catalog=folder / "catalog.db")
    merge = f"MERGE INTO delta.`{folder}/{name}` t USING (SELECT id, _row_id AS r FROM ns.{name}) s ON t._row_id = s.r"
    widen.sql(f"{merge} WHEN MATCHED THEN UPDATE SET id = s.id - s.id", spark=spark, catalog=folder / "catalog.db")
    assert {row["id"] for row in widen.Table(f"{folder}/{name}").to_arrow().to_pylist() if row["_row_id"]} == {0}
    for query in (
        "SELECT *, _row_id FROM {t}, (SELECT 1)",
        "SELECT a._row_id, b.* FROM {t} a JOIN {t} b USING (id)",
        "SELECT * EXCEPT (id) FROM {t} WHERE _row_id > 1",
    ):
        with pytest.raises(widen.RequestError, match="name the columns, or use `widen read --row-lineage`"):
            widen.sql(query.format(t=f"ns.{name}"), spark=spark, catalog=folder / "catalog.db")


def test_equality_deletes_are_applied(spark: SparkSession, iceberg: IcebergSpark, folder: Path) -> None:
    name = "default.ns.equal"
    iceberg.sql(
        f"CREATE TABLE {name} (id int, p string, x double) USING iceberg TBLPROPERTIES ('format-version'='2')",
        f"INSERT INTO {name} SELECT CAST(id AS int), IF(id % 3 = 0, NULL, concat('p', id % 3)), 1D FROM range(9)",
        f"INSERT INTO {name} VALUES (20, 'x', 0D), (21, 'x', -0D), (22, 'x', double('NaN')), (23, 'x', double('inf'))",
    )
    for number, (columns, rows, ids) in enumerate(
        (
            ([field("x", pa.float64(), 3)], [{"x": -0.0}, {"x": math.nan}], [3]),
            ([field("p", pa.string(), 2)], [{"p": None}], [2]),
            (
                [field("id", pa.int32(), 1), field("p", pa.string(), 2)],
                [{"id": 4, "p": "p1"}, {"id": 5, "p": "no"}],
                [1, 2],
            ),
        )
    ):
        path = folder / f"equal{number}.parquet"
        pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(columns)), path)
        iceberg.ask(equality_delete=[name, f"file://{path}", path.stat().st_size, len(rows), ids])
    iceberg.sql(
        f"ALTER TABLE {name} ALTER COLUMN id TYPE bigint", f"INSERT INTO {name} VALUES (3, NULL, 1D), (4, 'p1', 1D)"
    )
    rows = agree(spark, iceberg, opened(folder, "ns.equal"), ("p IS NULL", "id < 5", "x > 2"))
    assert len(rows) == 9


@pytest.mark.parametrize("version", ["1", "2"])
def test_equality_deletes_of_a_spec_with_only_void_fields_are_for_all_partitions(
    spark: SparkSession, iceberg: IcebergSpark, folder: Path, version: str
) -> None:
    """A table of format version 1 keeps a dropped partition field as a void one; Flink then writes such deletes."""
    name = f"default.ns.void{version}"
    iceberg.sql(
        f"CREATE TABLE {name} (id int, p string, v int) USING iceberg PARTITIONED BY (p) "
        f"TBLPROPERTIES ('format-version'='{version}')",
        f"INSERT INTO {name} VALUES (1, 'a', 10), (2, 'b', 20)",
        f"ALTER TABLE {name} DROP PARTITION FIELD p",
        f"ALTER TABLE {name} SET TBLPROPERTIES ('format-version'='2')",
        f"INSERT INTO {name} VALUES (3, 'a', 30), (4, 'b', 40)",
    )
    path = folder / f"void{version}.parquet"
    pq.write_table(pa.Table.from_pylist([{"id": 1}, {"id": 4}], schema=pa.schema([field("id", pa.int32(), 1)])), path)
    iceberg.ask(equality_delete=[name, f"file://{path}", path.stat().st_size, 2, [1]])
    table = opened(folder, f"ns.void{version}")
    assert len(agree(spark, iceberg, table, ("id < 3", "p = 'b'"))) == 2
    words = {"source_catalog": folder / "catalog.db", "catalog": folder / "catalog.db", "once": True, "spark": spark}
    widen.flow(f"ns.void{version}", f"ns.void_copy{version}", **words, checkpoint=folder / f"_void{version}")
    assert iceberg.sql(f"SELECT id FROM default.ns.void_copy{version} ORDER BY id") == [[2], [3]]
    # The target of a keyed flow: what it writes again must not bring deleted rows back.
    words["checkpoint"] = folder / f"_void_target{version}"
    iceberg.sql(
        f"CREATE TABLE {name}_new (id int, p string, v int) USING iceberg TBLPROPERTIES ('format-version'='2')",
        f"INSERT INTO {name}_new VALUES (2, 'b', 21), (5, 'c', 50)",
    )
    widen.flow(f"ns.void{version}_new", f"ns.void{version}", **words, keys=["id"])
    rows = agree(spark, iceberg, table.refresh())
    assert [json.loads(row)["id"] for row in rows] == [2, 3, 5]


DEFAULTS = (
    ("t", "boolean", True), ("i", "int", -7), ("n", "long", 2**40), ("f", "float", 0.1), ("d", "double", 1e300),
    ("c", "decimal(20, 4)", "-1234567890123456.7891"), ("day", "date", "1969-12-31"), ("old", "date", "0001-01-01"),
    ("ts", "timestamp", "1969-12-31T23:59:59.999999"), ("tz", "timestamptz", "2024-02-29T12:00:00.123456+00:00"),
    ("old_ts", "timestamp", "0001-01-01T00:00:00"), ("late_ts", "timestamp", "9999-12-31T23:59:59.999999"),
    ("text", "string", "2024-01-01"), ("raw", "binary", "00ff"), ("bits", "fixed[3]", "0a0b0c"),
)  # fmt: skip


def test_defaults_of_every_type_and_depth_are_read(spark: SparkSession, iceberg: IcebergSpark, folder: Path) -> None:
    name = "default.ns.defaults"
    iceberg.sql(
        f"CREATE TABLE {name} (id int, s struct<x: int>, l array<struct<x: int>>, m map<string, struct<x: int>>, "
        "ss struct<s: struct<x: int>>) USING iceberg TBLPROPERTIES ('format-version'='3')",
        f"INSERT INTO {name} VALUES (1, named_struct('x', 1), array(named_struct('x', 1), NULL), "
        "map('k', named_struct('x', 1), 'n', NULL), named_struct('s', named_struct('x', 1))), "
        "(2, NULL, NULL, NULL, named_struct('s', NULL)), (3, NULL, array(), map(), NULL)",
    )
    columns = [
        [parent, column, kind, value] for parent in (None, "s", "l", "m", "ss.s") for column, kind, value in DEFAULTS
    ]
    iceberg.ask(defaults=[name, columns])
    iceberg.sql(f"INSERT INTO {name} (id) VALUES (4)")
    table = opened(folder, "ns.defaults")
    filters = ("day < date'1970-01-01'", "s.tz > timestamp'2024-01-01 00:00:00Z'", "i = -7", "c IS NULL", "n < 5")
    assert len(agree(spark, iceberg, table, filters)) == 4
    here = table.to_arrow()  # without Spark
    assert here.sort_by("id") == table.read(spark=spark).toArrow().cast(here.schema).sort_by("id")
    unified = table.read(unified=True, spark=spark).selectExpr("to_json(struct(*), map('ignoreNullFields', 'false'))")
    assert sorted(row[0] for row in unified.collect()) == iceberg.json(f"SELECT * FROM {name}")
    iceberg.ask(defaults=[name, [[None, "key8", "uuid", "12345678-1234-5678-1234-567812345678"]]])
    keys = table.refresh().read(spark=spark).select("key8").distinct().collect()  # Spark has no type for a UUID
    assert [key.hex() for (key,) in keys] == ["12345678123456781234567812345678"]
    words = {"source_catalog": folder / "catalog.db", "catalog": folder / "catalog.db", "once": True, "spark": spark}
    widen.flow("ns.defaults", "ns.defaults_copy", **words, checkpoint=folder / "_defaults")
    query = "SELECT id, s.tz, ss.s.day, ts, tz, old, late_ts, c, raw, bits, text FROM default.ns.{}"
    assert iceberg.json(query.format("defaults_copy")) == iceberg.json(query.format("defaults"))


def test_iceberg_for_spark_reads_and_uses_the_defaults_that_we_set(
    spark: SparkSession, iceberg: IcebergSpark, folder: Path
) -> None:
    name = "default.ns.defaulted"
    iceberg.sql(
        f"CREATE TABLE {name} (id int, t string) USING iceberg TBLPROPERTIES ('format-version'='3')",
        f"INSERT INTO {name} SELECT CAST(id AS int), concat('t', id) FROM range(4)",
    )
    table = opened(folder, "ns.defaulted").add_columns(
        {
            "b": {"type": "boolean", "default": "true"},
            "n": {"type": "bigint", "default": "-7", "nullable": False},
            "f": {"type": "float", "default": "0.1"},
            "d": {"type": "double", "default": "1e300"},
            "c": {"type": "decimal(38,4)", "default": "-1234567890123456789012345678901234.5678"},
            "s": {"type": "string", "default": r"'it\'s \U0001f600'"},
            "raw": {"type": "binary", "default": "X'00FF'"},
            "day": {"type": "date", "default": "DATE '0001-01-01'"},
            "ts": {"type": "timestamp_ntz", "default": "TIMESTAMP_NTZ '9999-12-31 23:59:59.999999'"},
            "tz": {"type": "timestamp", "default": "TIMESTAMP '1969-12-31 23:59:59.999999Z'"},
        }
    )
    filters = (
        "n = -7 AND day < DATE '1970-01-01'",
        "s LIKE 'it%' AND b",
        "c IS NULL",
        "ts > timestamp_ntz'9999-01-01'",
    )
    assert len(agree(spark, iceberg, table, filters)) == 4
    iceberg.sql(f"INSERT INTO {name} (id) VALUES (10)")
    table.alter_column("n", default="8").alter_column("s", drop_default=True).alter_column("t", default="'new'")
    iceberg.sql(f"INSERT INTO {name} (id) VALUES (11)", f"UPDATE {name} SET b = NOT b WHERE id = 1")
    table.refresh().update({"b": "false"}, "id = 2")
    widen.sql(
        "INSERT INTO ns.defaulted (id, n) VALUES (12, 5), (13, DEFAULT)", catalog=folder / "catalog.db", spark=spark
    )
    table = table.refresh()
    assert len(agree(spark, iceberg, table, (*filters, "n = 8"))) == 8
    found = {row["id"]: (row["t"], row["n"], row["s"]) for row in table.to_arrow().to_pylist()}
    assert found[10] == (None, -7, "it's \U0001f600")
    assert found[11] == found[13] == ("new", 8, None)
    table.optimize()
    assert len(agree(spark, iceberg, table.refresh(), filters)) == 8


def test_columns_of_no_type_get_that_of_their_first_value(
    spark: SparkSession, iceberg: IcebergSpark, folder: Path
) -> None:
    """Iceberg for Spark makes a column of the type unknown for Spark's void, and reads it with any later type."""
    name = "default.ns.typeless"
    iceberg.sql(
        f"CREATE TABLE {name} (id int, u void, w void) USING iceberg TBLPROPERTIES ('format-version'='3')",
        f"INSERT INTO {name} VALUES (1, NULL, NULL), (2, NULL, NULL)",
    )
    table = opened(folder, "ns.typeless")

    def load(text: str) -> None:
        source = folder / f"{len(list(folder.glob('*.jsonl')))}.jsonl"
        source.write_text(text)
        done = widen.ingest(
            source, "ns.typeless", catalog=folder / "catalog.db", to="iceberg", verify=True, spark=spark
        )
        assert done.verification is not None
        assert done.verification.is_clean

    load('{"id": 3, "u": null}\n{"id": 4}\n')
    table.refresh().update({"id": "id + 10"}, "id = 2")
    table.refresh().delete("id = 3")
    assert len(agree(spark, iceberg, table.refresh(), ("u IS NULL", "id > 2"))) == 3
    load('{"id": 5, "u": 7}\n{"id": 6, "w": {"x": 1}}\n')
    assert len(agree(spark, iceberg, table.refresh(), ("u = 7", "u IS NULL", "w.x = 1"))) == 5
    iceberg.sql(f"INSERT INTO {name} VALUES (8, 9, named_struct('x', 2))", f"DELETE FROM {name} WHERE u = 7")
    assert len(agree(spark, iceberg, table.refresh(), ("u > 7", "w IS NULL"))) == 5


def test_others_read_the_columns_that_we_changed(
    spark: SparkSession, iceberg: IcebergSpark, catalog: SqlCatalog, folder: Path
) -> None:
    name = "default.ns.ours"
    iceberg.sql(
        f"CREATE TABLE {name} (id int, price decimal(9,2), ratio float, s struct<a: int>, l array<struct<x: int>>, "
        "t string) USING iceberg TBLPROPERTIES ('format-version'='2')",
        f"INSERT INTO {name} SELECT CAST(id AS int), CAST(id AS decimal(9,2)), CAST(id AS float), named_struct('a', "
        "CAST(id AS int)), array(named_struct('x', CAST(id AS int))), concat('t', id) FROM range(5)",
    )
    table = opened(folder, "ns.ours")
    table.alter_column("id", type="bigint", comment="The number.").alter_column("price", type="decimal(20,2)")
    table.alter_column("ratio", type="double", first=True).alter_column("s.a", type="bigint")
    table.rename_column("t", "u").add_columns({"t": {"type": "int", "comment": "New."}, "s.b": "string"})
    table.add_columns({"l.element.y": "date", "n": "map<string, array<bigint>>"}).drop_columns("l.element.x")
    iceberg.sql(
        f"INSERT INTO {name} VALUES (0.1D, 3000000000, 99999999999.99, named_struct('a', 3000000000, 'b', 'b'), "
        "array(named_struct('y', date'2024-01-01')), 'u', 1, map('k', array(1L)))"
    )
    rows = agree(
        spark, iceberg, table, ("price < 99999999999.99", "id >= 3000000000", "ratio > 0.05", "u = 't1'", "t IS NULL")
    )
    assert len(rows) == 6
    described = {column: (kind, comment) for column, kind, comment in iceberg.sql(f"DESCRIBE {name}")}
    assert list(described)[:8] == ["ratio", "id", "price", "s", "l", "u", "t", "n"]
    assert described["id"] == ("bigint", "The number.")
    assert described["t"] == ("int", "New.")
    scanned = catalog.load_table("ns.ours").scan().to_arrow()
    assert sorted(scanned["id"].to_pylist()) == [0, 1, 2, 3, 4, 3000000000]
    assert sorted(filter(None, scanned["u"].to_pylist())) == ["t0", "t1", "t2", "t3", "t4", "u"]


MEASURED_COLUMNS = (
    "b boolean, i int, l bigint, f float, d double, d9 decimal(9,2), d18 decimal(18,3), d38 decimal(38,10), "
    "t string, raw binary, day date, seen timestamp, at timestamp_ntz, nothing int, "
    "s struct<a: int, t: string, x: double>, l2 array<string>, m map<string, decimal(9,2)>"
)
MEASURED_ROWS = """
    SELECT IF(id % 2 = 0, NULL, id % 3 = 0) b, CAST(id - 3 AS int) i, id * 5000000000 l,
        CASE id WHEN 2 THEN float('NaN') WHEN 3 THEN NULL ELSE CAST(id - 4.5 AS float) END f,
        IF(id < 3, double('NaN'), id / 7) d, CAST(id - 5 AS decimal(9,2)) d9, CAST(id * -1000 AS decimal(18,3)) d18,
        CAST(CAST('1234567890123456789012345678' AS decimal(38,10)) - id AS decimal(38,10)) d38,
        IF(id = 5, NULL, concat('ééééééééééééééééé', id)) t, unhex(concat('00', hex(id), repeat('FF', 20))) raw,
        date_add(date'1969-12-25', CAST(id AS int)) day, timestamp_micros(id * 123456789012345 - 5) seen,
        timestamp_ntz'1969-12-31 23:59:59.999999' at, CAST(NULL AS int) nothing,
        IF(id = 1, NULL, named_struct('a', CAST(id AS int), 't', IF(id = 2, NULL, concat('text', id)),
            'x', IF(id = 4, double('NaN'), id - 4.5D))) s,
        IF(id = 1, NULL, array('x', NULL)) l2, map('k', CAST(id AS decimal(9,2))) m
    FROM range(0, 10, 1, 1)"""
METRICS = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts", "lower_bounds", "upper_bounds")
MODES = {
    "measured": "'write.metadata.metrics.column.t'='truncate(30)'",
    "counted": "'write.metadata.metrics.default'='counts', 'write.metadata.metrics.column.s.t'='truncate(4)'",
    "few": "'write.metadata.metrics.max-inferred-column-defaults'='5'",
}


@pytest.mark.parametrize("name", MODES)
def test_counts_and_bounds_are_those_of_iceberg_for_spark(
    spark: SparkSession, iceberg: IcebergSpark, folder: Path, name: str
) -> None:
    tables = {who: f"default.ns.{name}_{who}" for who in ("ours", "theirs")}
    for table in tables.values():
        iceberg.sql(
            f"CREATE TABLE {table} ({MEASURED_COLUMNS}) USING iceberg PARTITIONED BY (truncate(5, i), days(at)) "
            f"TBLPROPERTIES ({MODES[name]}, 'format-version'='2', 'write.distribution-mode'='none')"
        )
    mine = opened(folder, f"ns.{name}_ours").append(spark.sql(MEASURED_ROWS)).table
    iceberg.sql(f"INSERT INTO {tables['theirs']} {MEASURED_ROWS}")
    found = {
        who: iceberg.sql(
            f"SELECT to_json(struct(partition, spec_id, record_count)) AS file, {', '.join(METRICS)} "
            f"FROM {table}.files ORDER BY file"
        )
        for who, table in tables.items()
    }
    schema = mine.table.schema()
    # Like PyIceberg, we also count the values in lists and maps.
    repeated = {str(schema.find_field(each).field_id) for each in ("l2.element", "m.key", "m.value")}
    assert len(found["ours"]) == 3
    for (file, our_sizes, *ours_of_file), (expected, sizes, *theirs_of_file) in zip(*found.values(), strict=True):
        assert file == expected
        assert our_sizes.keys() == sizes.keys()
        with_nan = {number for number, count in ours_of_file[METRICS.index("nan_value_counts") - 1].items() if count}
        for metric, our_values, values in zip(METRICS[1:], ours_of_file, theirs_of_file, strict=True):
            # A file has no statistics of columns with NaN, so that Spark finds the rows.
            left_out = repeated | (set() if metric in ("value_counts", "nan_value_counts") else with_nan)
            assert without(our_values, repeated) == without(values, left_out), metric


def without(values: Mapping[str, Any], numbers: Collection[str]) -> dict[str, Any]:
    return {number: value for number, value in values.items() if number not in numbers}


def test_a_delete_by_others_keeps_nan(
    spark: SparkSession, iceberg: IcebergSpark, catalog: SqlCatalog, folder: Path
) -> None:
    """A file is deleted as a whole if its bounds say that all rows match, and NaN is in no bounds."""
    for who, delete in (
        ("spark", lambda name: iceberg.sql(f"DELETE FROM default.{name} WHERE d < 5")),
        ("pyiceberg", lambda name: catalog.load_table(name).delete("d < 5")),
    ):
        name = f"ns.nan_{who}"
        iceberg.sql(f"CREATE TABLE default.{name} (d double) USING iceberg TBLPROPERTIES ('format-version'='2')")
        table = opened(folder, name).append(spark.sql("SELECT explode(array(1D, 2D, double('NaN'))) d")).table
        delete(name)
        assert ours(spark, table) == ['{"d":"NaN"}'], who


def test_a_table_of_ours_survives_the_upkeep_of_iceberg_for_spark(
    spark: SparkSession, iceberg: IcebergSpark, folder: Path
) -> None:
    source, name, into = folder / "days", "default.ns.kept", {"into": "ns.kept", "catalog": folder / "catalog.db"}
    source.mkdir()
    for day in range(4):
        lines = [{"n": day * 10 + n, "v": n if day < 2 else f"text{n}", "l": [{"x": n}]} for n in range(5)]
        (source / f"{day}.json").write_text("\n".join(map(json.dumps, lines)))
        widen.ingest(str(source), **into, new=True, txn=("days", day), partition_by=["n"], spark=spark)
    table = opened(folder, "ns.kept")
    rows, loads = agree(spark, iceberg, table), table.loads()
    assert len(rows) == 20
    assert sorted(Path(file.path).name for load in loads for file in load.files) == [f"{day}.json" for day in range(4)]
    iceberg.sql(
        f"CALL default.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))",
        f"CALL default.system.rewrite_manifests('{name}')",
        f"CALL default.system.expire_snapshots('{name}', timestamp'2999-01-01 00:00:00', 1)",
    )
    place = Path(table.location.removeprefix("file://"))
    orphan = place / "data" / "orphan.parquet"
    orphan.write_bytes(b"left behind by a job that was killed")
    for path in place.rglob("*"):  # the procedure looks at no file of the last 24 hours
        os.utime(path, (0, 0))
    gone = iceberg.sql(f"CALL default.system.remove_orphan_files(table => '{name}')")
    assert [Path(path).name for (path,) in gone] == [orphan.name]
    assert agree(spark, iceberg, table, ("n < 12", "v_string = 'text3'")) == rows
    assert table.loads() == loads
    assert widen.ingest(str(source), **into, new=True, spark=spark).is_unchanged
    assert widen.ingest(str(source / "3.json"), **into, txn=("days", 3), spark=spark).is_repeated
    (source / "4.json").write_text('{"n": 99, "v": "later"}')
    widen.ingest(str(source), **into, new=True, spark=spark)
    assert len(agree(spark, iceberg, table, ("n = 99",))) == 21


def test_deleted_keys_survive_the_upkeep_of_iceberg_for_spark(
    spark: SparkSession, iceberg: IcebergSpark, folder: Path
) -> None:
    words = {"catalog": folder / "catalog.db", "key": ["id"], "sequence_by": "at", "delete_when": "op = 'd'"}

    def load(*records: tuple[int, int, str]) -> str:
        lines = [json.dumps(dict(zip(("id", "at", "op"), each, strict=True))) for each in records]
        (folder / "changes.json").write_text("\n".join(lines))
        return str(widen.ingest(str(folder / "changes.json"), "ns.status", spark=spark, **words).keys)

    load((1, 1, "u"), (2, 1, "u"))
    load((1, 5, "d"))
    table = opened(folder, "ns.status")
    iceberg.sql("CALL default.system.expire_snapshots('ns.status', timestamp'2999-01-01 00:00:00', 1)")
    for path in Path(table.location.removeprefix("file://")).rglob("*"):
        os.utime(path, (0, 0))
    assert iceberg.sql("CALL default.system.remove_orphan_files(table => 'ns.status')") == []
    assert load((1, 4, "u"), (2, 2, "u")) == "0 inserted, 1 updated, 0 deleted, 1 late"
    assert len(agree(spark, iceberg, table)) == 1


def test_a_flow_follows_the_snapshots_of_iceberg_for_spark(
    spark: SparkSession, iceberg: IcebergSpark, folder: Path
) -> None:
    """Position deletes, updates and compactions between batches, in the source and in the target."""
    name, place = "default.ns.flowed", {"source_catalog": folder / "catalog.db", "catalog": folder / "catalog.db"}
    merge_on_read = "'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read'"
    iceberg.sql(
        f"CREATE TABLE {name} (id int, v string) USING iceberg TBLPROPERTIES ('format-version'='2', {merge_on_read})",
        f"INSERT INTO {name} SELECT CAST(id AS int), concat('v', id) FROM range(0, 20, 1, 1)",
    )

    def flow() -> list[int]:
        words = {**place, "checkpoint": folder / "_flow", "keys": ["id"], "once": True, "spark": spark}
        batches = widen.flow("ns.flowed", "ns.copy", **words).batches
        expected = iceberg.json(f"SELECT id, v FROM {name}")
        assert iceberg.json("SELECT id, v FROM default.ns.copy") == expected
        rows = opened(folder, "ns.copy").read(spark=spark).selectExpr("to_json(struct(id, v))").collect()
        assert sorted(row[0] for row in rows) == expected
        return [batch.result.records if batch.result else 0 for batch in batches]

    assert flow() == [20]
    iceberg.sql(f"CALL default.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))")
    assert flow() == [0]
    iceberg.sql(f"INSERT INTO {name} VALUES (20, 'v20')", f"ALTER TABLE {name} ADD COLUMN w int")
    assert flow() == [1]
    iceberg.sql(f"ALTER TABLE default.ns.copy SET TBLPROPERTIES ({merge_on_read})")
    iceberg.sql(f"DELETE FROM {name} WHERE id = 3", "DELETE FROM default.ns.copy WHERE id = 3")
    assert flow() == [19]  # all rows of the file that the delete is for, but not the one that was added later
    iceberg.sql(f"UPDATE {name} SET v = 'new' WHERE id = 20")
    assert flow() == [1]


def test_rows_in_partitions_outside_of_the_calendar_are_replaced_or_refused(
    spark: SparkSession, iceberg: IcebergSpark, folder: Path
) -> None:
    """PyIceberg spells partitions as dates of Python, which begin with the year 1 and end with 9999."""
    name, source = "default.ns.ages", "default.ns.ages_new"
    rows = "(1, date'2024-01-01', 'a'), (2, date'+12000-01-01', 'b'), (3, date'-0044-03-15', 'c')"
    iceberg.sql(
        f"CREATE TABLE {name} (id int, day date, v string) USING iceberg PARTITIONED BY (days(day)) "
        "TBLPROPERTIES ('format-version'='2')",
        f"INSERT INTO {name} VALUES {rows}",
        f"CREATE TABLE {source} (id int, day date, v string) USING iceberg TBLPROPERTIES ('format-version'='2')",
        f"INSERT INTO {source} VALUES (1, date'2024-01-01', 'new')",
    )
    table = opened(folder, "ns.ages")
    filters = ("day > date'9999-12-31'", "day < date'0001-01-01'", "id = 2")
    assert len(agree(spark, iceberg, table, filters)) == 3
    assert len(table.files()) == 3
    words = {"source_catalog": folder / "catalog.db", "catalog": folder / "catalog.db", "once": True, "spark": spark}
    words |= {"keys": ["id"], "checkpoint": folder / "_ages"}
    widen.flow("ns.ages_new", "ns.ages", **words)
    assert iceberg.sql(f"SELECT v FROM {name} ORDER BY id") == [["new"], ["b"], ["c"]]
    iceberg.sql(f"INSERT INTO {source} VALUES (2, date'2024-01-01', 'moved')")
    with pytest.raises(widen.TableError, match="outside of the years 1 to 9999"):
        widen.flow("ns.ages_new", "ns.ages", **words)
    assert iceberg.sql(f"SELECT v FROM {name} ORDER BY id") == [["new"], ["b"], ["c"]]
    assert len(agree(spark, iceberg, table.refresh(), filters)) == 3


def test_writers_alternate(spark: SparkSession, iceberg: IcebergSpark, catalog: SqlCatalog, folder: Path) -> None:
    """Iceberg for Spark, PyIceberg and Widen change one table in turns; a model says which rows it must have."""
    name, chance = "default.ns.turns", random.Random(12)
    iceberg.sql(
        f"CREATE TABLE {name} (id bigint, a int) USING iceberg PARTITIONED BY (bucket(3, id)) "
        "TBLPROPERTIES ('format-version'='2', 'write.delete.mode'='merge-on-read', 'write.update.mode'='merge-on-read')"
    )
    table, model, columns, number = opened(folder, "ns.turns"), {}, ["a"], 0
    for step in range(14):
        kind = chance.choice(["insert", "insert", "delete", "update", "add", "rename", "drop"]) if step else "insert"
        if kind == "insert":
            rows = {number + at: {column: chance.choice([None, number]) for column in columns} for at in range(4)}
            values = ", ".join(
                f"({key}, {', '.join('NULL' if row[c] is None else str(row[c]) for c in columns)})"
                for key, row in rows.items()
            )
            iceberg.sql(f"INSERT INTO {name} (id, {', '.join(columns)}) VALUES {values}")
            model |= rows
            number += 4
        elif kind == "delete":
            key = chance.choice([*model, -1])
            iceberg.sql(f"DELETE FROM {name} WHERE id = {key}")
            model.pop(key, None)
        elif kind == "update":
            key = chance.choice([*model])
            iceberg.sql(f"UPDATE {name} SET {columns[0]} = 77 WHERE id = {key}")
            model[key][columns[0]] = 77
        elif kind == "add":
            new = chance.choice([each for each in "abcdef" if each not in columns])
            table.add_columns({new: "int"})
            columns.append(new)
            model = {key: {**row, new: None} for key, row in model.items()}
        elif kind == "rename":
            old, new = chance.choice(columns), chance.choice([each for each in "abcdef" if each not in columns])
            with catalog.load_table("ns.turns").update_schema() as update:
                update.rename_column(old, new)
            columns[columns.index(old)] = new
            model = {key: {new if c == old else c: value for c, value in row.items()} for key, row in model.items()}
        elif len(columns) > 1:
            gone = columns.pop()
            table.drop_columns(gone)
            model = {key: {c: value for c, value in row.items() if c != gone} for key, row in model.items()}
        found = table.refresh().read(spark=spark).collect()
        assert {row.id: {c: row[c] for c in columns} for row in found} == model, f"after step {step}: {kind}"
        assert len(found) == len(model)
    assert len(agree(spark, iceberg, table, (f"{columns[0]} > 10", f"{columns[0]} IS NULL", "id < 9"))) == len(model)
    scanned = catalog.load_table("ns.turns").scan().to_arrow().to_pylist()
    assert {row["id"]: {c: row[c] for c in columns} for row in scanned} == model


def test_a_mirror_and_an_ingestion_are_read_by_others(
    spark: SparkSession, iceberg: IcebergSpark, catalog: SqlCatalog, folder: Path
) -> None:
    compat = {"delta.enableIcebergCompatV2": "true", "delta.enableTypeWidening": "true"}
    delta = widen.create_table(str(folder / "a delta"), COLUMNS, partition_by=["day"], properties=compat)
    delta.append(spark.sql(ROWS.format(0, 9))).table.mirror(catalog=catalog, identifier="ns.mirror")
    delta.alter_column("id", type="bigint").rename_column("text", "words").append(
        spark.sql("SELECT * EXCEPT (text), text words FROM (" + ROWS.format(9, 12) + ")")
    )
    delta.delete("id = 2").table.mirror(catalog=catalog, identifier="ns.mirror")
    rows = agree(
        spark, iceberg, opened(folder, "ns.mirror"), ("id > 8", "words = 'text6'", "price < 1", "day < '1970-01-03'")
    )
    text = "to_json(struct(*), map('ignoreNullFields', 'false'))"
    assert rows == sorted(row[0] for row in delta.refresh().read(spark=spark).selectExpr(text).collect())
    source = folder / "drift.json"
    lines = [{"n": 1, "v": 5, "l": [{"x": 1}]}, {"n": 2, "v": "five", "l": None}, {"n": 3, "v": 2.5, "new": {"a": "b"}}]
    source.write_text("\n".join(map(json.dumps, lines)))
    widen.ingest(str(source), "ns.drift", catalog=folder / "catalog.db", spark=spark)
    assert len(agree(spark, iceberg, opened(folder, "ns.drift"), ("n > 1", "n = 2 OR v IS NULL"))) == 3
    docs = {name: doc for name, _, doc in iceberg.sql("DESCRIBE default.ns.drift")}
    assert docs["v_double"] == "evolved_from:v"


def test_every_name_gets_a_column_that_iceberg_for_spark_finds(
    spark: SparkSession, iceberg: IcebergSpark, folder: Path, tmp_path: Path
) -> None:
    for at, paths in enumerate(similar_names.write_batches(tmp_path)):
        name = f"ns.similar{at}"
        for path in paths:
            widen.ingest(path, name, to="iceberg", catalog=folder / "catalog.db", spark=spark)
        columns = [text for (text, *_) in iceberg.sql(f"DESCRIBE default.{name}") if text != "r" and text[:1] == "n"]
        rows = iceberg.sql(f"SELECT * FROM default.{name}")
        assert sorted(v for row in rows for v in row if isinstance(v, str)) == similar_names.expected(paths)
        listed = iceberg.sql(f"SELECT {', '.join(map(quote_name, columns))} FROM default.{name}")
        assert sorted(v for row in listed for v in row if v is not None) == similar_names.expected(paths)
        table = widen.IcebergTable(name, catalog=folder / "catalog.db")
        assert similar_names.values(table.read(spark=spark).collect()) == similar_names.expected(paths)


def test_rows_of_format_version_3(spark: SparkSession, iceberg: IcebergSpark, folder: Path) -> None:
    """Columns without a type have nulls; row ids, which the files may have, are no columns of the table."""
    name = "default.ns.third"
    iceberg.sql(
        f"CREATE TABLE {name} (id int, u void, s struct<a: int, w: void>) USING iceberg TBLPROPERTIES ("
        "'format-version'='3', 'write.delete.mode'='merge-on-read', 'write.update.mode'='copy-on-write')",
        f"INSERT INTO {name} SELECT CAST(id AS int), NULL, named_struct('a', 1, 'w', NULL) FROM range(9)",
        f"UPDATE {name} SET id = id + 100 WHERE id % 3 = 1",
        f"DELETE FROM {name} WHERE id = 2",
    )
    table = opened(folder, "ns.third")
    agree(spark, iceberg, table, ["id > 4", "u IS NULL", "s.w IS NOT NULL"])
    assert table.schema.sql == "struct<id: int, u: void, s: struct<a: int, w: void>>"
