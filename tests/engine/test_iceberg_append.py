"""Appending to Iceberg tables: rows, new columns and wider types in one commit, judged by PyIceberg's own scan."""

from __future__ import annotations

import struct
from datetime import time
from decimal import Decimal as D
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, Transform, TruncateTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyspark.sql import Row, SparkSession

import widen
from support.iceberg_files import append as append_files
from support.iceberg_files import data_file, embedded_catalog, field, write_file
from widen.changes import iceberg_write as append
from widen.errors import (
    AmbiguousColumns,
    CheckViolated,
    ColumnLeftOut,
    InvalidColumnName,
    NotNullViolated,
    SchemaMismatch,
    UnsupportedFeatureForRead,
    WrongLength,
)
from widen.iceberg.catalog import to_catalog
from widen.spark.spark_types import DataFrame

SCHEMA = Schema(
    NestedField(1, "id", IntegerType(), required=True),
    NestedField(2, "kind", StringType(), required=False),
    NestedField(3, "price", DecimalType(9, 2), required=False),
)


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return embedded_catalog(tmp_path)


@pytest.fixture
def partitioned(catalog: SqlCatalog) -> Table:
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "kind"))
    return catalog.create_table("ns.t", SCHEMA, partition_spec=spec)


def rows(table: Table) -> list[dict[str, object]]:
    return sorted(table.refresh().scan().to_arrow().to_pylist(), key=lambda row: row["id"])


def test_rows_columns_and_types_come_in_one_commit(
    spark: SparkSession, partitioned: Table, catalog: SqlCatalog
) -> None:
    table = widen.IcebergTable("ns.t", catalog=catalog)
    done = table.append(spark.sql("SELECT 'a' KIND, CAST(1 AS smallint) id"))
    assert (done.table is table, done.operation, done.version) == (True, "append", table.version)
    assert (done.metrics["added-data-files"], done.metrics["added-records"]) == (1, 1)
    assert rows(partitioned) == [{"id": 1, "kind": "a", "price": None}]
    wide = "SELECT 3000000000 id, CAST(12345678901.25 AS decimal(15,2)) price, 'n' note, named_struct('x', array(1)) s"
    with pytest.raises(SchemaMismatch, match="Iceberg can widen int to bigint"):
        table.append(spark.sql(wide))
    table.append(spark.sql(wide), merge_schema=True)
    assert rows(partitioned) == [
        {"id": 1, "kind": "a", "price": None, "note": None, "s": None},
        {"id": 3000000000, "kind": None, "price": D("12345678901.25"), "note": "n", "s": {"x": [1]}},
    ]
    assert str(partitioned.schema().find_type("price")) == "decimal(15, 2)"
    assert len(partitioned.metadata.snapshots) == 2
    assert [entry.operation for entry in table.history()] == ["append", "append"]
    assert sorted(str(row["partition"]) for row in table.files().to_pylist()) == ["kind=a", "kind=null"]
    assert table.read("price > 1", spark=spark).count() == 1


@pytest.mark.parametrize(
    ("data_type", "low", "fits"),
    [
        (IntegerType(), "-2147483648", "-2147483640"),
        (LongType(), "-9223372036854775808", "-9223372036854775800"),
        (DecimalType(9, 2), "-9999999.99", "-9999999.90"),
    ],
    ids=str,
)
def test_a_number_that_cannot_be_truncated_is_refused_and_quarantined(
    spark: SparkSession, catalog: SqlCatalog, tmp_path: Path, data_type: PrimitiveType, low: str, fits: str
) -> None:
    schema = Schema(NestedField(1, "x", data_type, False))
    by_tens = PartitionSpec(PartitionField(1, 1000, TruncateTransform(10), "x_trunc"))
    theirs = catalog.create_table("ns.low", schema, partition_spec=by_tens)
    table = widen.IcebergTable("ns.low", catalog=catalog)
    with pytest.raises(CheckViolated, match=r"partition field x_trunc"):
        table.append(spark.sql(f"SELECT CAST('{low}' AS {table.schema.fields[0].type.sql}) x"))
    source = tmp_path / "low.jsonl"
    source.write_text(f'{{"x":{low}}}\n{{"x":{fits}}}\n{{"x":null}}\n')
    done = widen.ingest(str(source), "ns.low", catalog=catalog, verify=True, spark=spark)
    assert done.verification is not None
    assert done.verification.is_clean
    assert (done.records, done.quarantined) == (2, 1)
    found = [row["x"] for row in theirs.refresh().scan().to_arrow().to_pylist()]
    assert sorted(map(str, found)) == sorted([fits, "None"])
    assert table.refresh().read(f"x = {fits}", spark=spark).count() == 1


@pytest.mark.parametrize(
    ("data_type", "transform"),
    [(DateType(), IdentityTransform()), (TimestamptzType(), DayTransform()), (TimestampType(), HourTransform())],
    ids=str,
)
def test_a_date_that_cannot_be_committed_as_a_partition_is_refused_and_quarantined(
    spark: SparkSession, catalog: SqlCatalog, data_type: PrimitiveType, transform: Transform[Any, Any]
) -> None:
    schema = Schema(NestedField(1, "n", IntegerType(), False), NestedField(2, "x", data_type, False))
    catalog.create_table("ns.far", schema, partition_spec=PartitionSpec(PartitionField(2, 1000, transform, "x_part")))
    table = widen.IcebergTable("ns.far", catalog=catalog)
    sql = f"CAST(timestamp_micros({{}}) AS {table.schema.fields[1].type.sql})"
    moments = (
        -62135769600000000,
        -62135596800000000 + 10**11,
        None,
        253402300799999999 - 10**11,
        253402300800000000 + 10**11,
    )
    queries = (f"SELECT {n} n, {'NULL' if m is None else sql.format(m)} x" for n, m in enumerate(moments))
    frame = spark.sql(" UNION ALL ".join(queries))
    with pytest.raises(CheckViolated, match=r"partition field x_part"):
        table.append(frame)
    done = widen.ingest(frame, "ns.far", catalog=catalog, verify=True, spark=spark)
    assert done.verification is not None
    assert done.verification.is_clean
    assert (done.records, done.quarantined) == (3, 2)
    assert sorted(row[0] for row in table.refresh().read(spark=spark).select("n").collect()) == [1, 2, 3]
    kept = widen.IcebergTable("ns.far_quarantine", catalog=catalog).read(spark=spark)
    assert sorted(row["text"][:6] for row in kept.collect()) == ['{"n":0', '{"n":4']


ROUNDED = struct.unpack("f", struct.pack("f", 0.1))[0]


def test_pyiceberg_rounds_a_double_that_it_reads() -> None:
    # Once this fails, partitions by doubles need no care any more: see rounded_sources.
    assert new_decoder(struct.pack("<d", 0.1)).read_double() == ROUNDED


def test_files_without_a_double_of_their_partition_are_refused(spark: SparkSession, catalog: SqlCatalog) -> None:
    schema = Schema(NestedField(1, "x", DoubleType(), False), NestedField(2, "id", IntegerType(), False))
    by_x = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "x"))
    theirs = catalog.create_table("ns.imported", schema, partition_spec=by_x)
    path = write_file(theirs, [field("id", pa.int32(), 2)], [{"id": 1}])
    append_files(theirs, data_file(path, 1, partition=Record(0.1)))
    with pytest.raises(UnsupportedFeatureForRead, match="files without x, whose partition value is a double"):
        widen.IcebergTable("ns.imported", catalog=catalog).read(spark=spark)


def test_partitions_of_floats_that_are_not_finite(spark: SparkSession, catalog: SqlCatalog) -> None:
    schema = Schema(NestedField(1, "x", DoubleType(), False), NestedField(2, "id", IntegerType(), False))
    by_x = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "x"))
    catalog.create_table("ns.floats", schema, partition_spec=by_x)
    table = widen.IcebergTable("ns.floats", catalog=catalog)
    names = ("NaN", "Infinity", "-Infinity", "-0.0", "0.0", "0.1")
    frame = spark.createDataFrame([(float(name), name) for name in names] + [(None, "null")], "x double, name string")
    frame = frame.selectExpr("x", "CAST(row_number() OVER (ORDER BY name) AS int) id")
    table.append(frame)
    partitions = {str(file.file.partition[0]) for file in table.table.scan().plan_files()}
    assert partitions == {"nan", "inf", "-inf", "-0.0", "0.0", str(ROUNDED), "None"}
    conditions = ("x = double('NaN')", "x > 0", "x < 0", "x = 0", "x IS NULL", "NOT x = 0.1", "x >= double('Infinity')")
    for where in (*conditions, "x = 0.1D", "x <= 0.1D", f"x = {ROUNDED!r}D"):
        found = sorted(row.id for row in table.read(where, spark=spark).collect())
        assert found == sorted(row.id for row in frame.filter(where).collect()), where


def test_names_with_dots(spark: SparkSession, catalog: SqlCatalog) -> None:
    catalog.create_table("ns.dots", Schema(NestedField(1, "a.b", StringType(), False)))
    table = widen.IcebergTable("ns.dots", catalog=catalog)
    table.append(spark.sql("SELECT 'x' `a.b`, struct(1 `d.e`) c"), merge_schema=True)
    assert [tuple(row) for row in table.read("`a.b` = 'x'", spark=spark).collect()] == [("x", Row(1))]
    with pytest.raises(InvalidColumnName, match="Iceberg spells it like"):
        table.append(spark.sql("SELECT named_struct('b', 1) a"), merge_schema=True)


def test_uuids_in_lists_and_folders_of_any_name(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "a b%20c"
    folder.mkdir()
    fixed = MapType(4, StringType(), 5, FixedType(2), False)
    schema = Schema(NestedField(1, "us", ListType(2, UUIDType(), False), False), NestedField(3, "m", fixed, False))
    catalog = to_catalog(folder / "catalog.db").open()
    catalog.create_namespace("ns")
    catalog.create_table("ns.t", schema)
    table = widen.IcebergTable("ns.t", catalog=folder / "catalog.db")
    table.append(spark.sql("SELECT array(unhex(repeat('0f', 16)), NULL) us, map('k', X'0102') m"))
    (row,) = table.table.scan().to_arrow().to_pylist()
    assert row == {"us": [UUID("0f" * 16), None], "m": [("k", b"\x01\x02")]}
    assert table.read(spark=spark).count() == 1
    with pytest.raises(WrongLength, match=r"us\.element has the wrong length: expected 16 bytes"):
        table.append(spark.sql("SELECT array(X'01') us"))
    spark.sql("SELECT map('k', X'0102') m UNION ALL SELECT map('k', X'0102', 'l', X'01')").write.parquet(f"{folder}/p")
    done = widen.ingest(f"{folder}/p", into="ns.t", to="iceberg", catalog=folder / "catalog.db", verify=True)
    assert (done.records, done.quarantined, done.verification.lost) == (1, 1, 0)
    (kept,) = widen.IcebergTable("ns.t_quarantine", catalog=folder / "catalog.db").read(spark=spark).collect()
    assert "m.value has the wrong length: expected 2 bytes" in kept["reason"]


def test_names_that_differ_only_in_case_are_refused_until_one_is_renamed(spark: SparkSession, tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "a", StringType(), False), NestedField(2, "A", StringType(), False))
    catalog = to_catalog(tmp_path / "catalog.db").open()
    catalog.create_namespace("ns")
    catalog.create_table("ns.t", schema)
    catalog.load_table("ns.t").append(pa.table({"a": ["small"], "A": ["large"]}))
    table = widen.IcebergTable("ns.t", catalog=catalog)
    (tmp_path / "source.json").write_text('{"a": "x", "A": "y"}')
    arguments: dict[str, Any] = {"into": "ns.t", "to": "iceberg", "catalog": tmp_path / "catalog.db"}
    for call in (
        lambda: table.read(spark=spark),
        lambda: table.append(spark.sql("SELECT 'x' a")),
        lambda: widen.ingest(str(tmp_path / "source.json"), **arguments),
    ):
        with pytest.raises(AmbiguousColumns, match=r"The columns a and A of .* differ at most in case"):
            call()
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        assert [tuple(row) for row in table.read(spark=spark).collect()] == [("small", "large")]
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert table.rename_column("A", "b").schema.names == ("a", "b")


def test_what_iceberg_cannot_widen_is_refused(spark: SparkSession, partitioned: Table, catalog: SqlCatalog) -> None:
    table = widen.IcebergTable("ns.t", catalog=catalog)
    for wrong in ("SELECT 1.5D id", "SELECT 1 id, CAST(1 AS decimal(12,4)) price", "SELECT 1 id, X'00' kind"):
        with pytest.raises(SchemaMismatch):
            table.append(spark.sql(wrong), merge_schema=True)
    with pytest.raises(NotNullViolated, match="id"):
        table.append(spark.sql("SELECT CAST(NULL AS int) id"))
    assert partitioned.refresh().metadata.snapshots == []
    assert not list(Path(partitioned.location().removeprefix("file://")).glob("data/**/*.parquet"))


def test_an_append_that_loses_the_race_is_planned_again(
    spark: SparkSession, partitioned: Table, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, checks = widen.IcebergTable("ns.t", catalog=catalog), []

    def race(frame: DataFrame, *others: object, **limits: object) -> DataFrame:
        checks.append(len(others))
        if len(checks) == 1:
            partitioned.append(pa.Table.from_pylist([{"id": 7}], schema=partitioned.schema().as_arrow()))
        return unpatched(frame, *others, **limits)  # type: ignore[arg-type]

    unpatched = append.check_rows
    monkeypatch.setattr(append, "check_rows", race)
    table.append(spark.sql("SELECT 8 id"))
    assert [row["id"] for row in rows(partitioned)] == [7, 8]
    assert len(checks) == 2


def test_a_column_that_spark_has_no_type_for_does_not_block_the_others(spark: SparkSession, tmp_path: Path) -> None:
    catalog, noon = embedded_catalog(tmp_path), time(12)
    columns = (NestedField(1, "id", LongType()), NestedField(2, "at", TimeType()), NestedField(3, "n", StringType()))
    made = catalog.create_table("ns.times", Schema(*columns))
    rows = [{"id": number, "at": noon, "n": "a"} for number in (1, 2)]
    made.append(pa.Table.from_pylist(rows, schema=made.schema().as_arrow()))
    table = widen.IcebergTable("ns.times", catalog)
    table.append(spark.sql("SELECT 3L AS id, 'b' AS n"))
    widen.sql("INSERT INTO ns.times VALUES (4, 'c')", catalog=catalog, spark=spark)
    source = "SELECT 1L AS id, 'd' AS n UNION ALL SELECT 5L, 'e'"
    merge = table.merge(spark.sql(source), "t.id = s.id")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    table.overwrite(spark.sql("SELECT 3L AS id, 'f' AS n"), where="id = 3")
    found = sorted(tuple(row.values()) for row in catalog.load_table("ns.times").scan().to_arrow().to_pylist())
    assert found == [(1, noon, "d"), (2, noon, "a"), (3, None, "f"), (4, None, "c"), (5, None, "e")]
    for call in (table.append, table.overwrite):
        with pytest.raises(ColumnLeftOut, match=r"Column at has the type time, .* cannot write values of it"):
            call(spark.sql("SELECT 6L AS id, '01:02' AS at"))
