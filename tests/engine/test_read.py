"""Reading: tables of other writers and ours, time travel, skipping, long file lists, odd names."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

import widen
from support.covering import covering
from support.exact import assert_same
from support.foreign_file import add_file
from support.one_job import union
from widen.errors import (
    CorruptFile,
    InvalidOption,
    TableNotFound,
    UnsupportedFeatureForRead,
    UnsupportedTypeChange,
    VersionNotFound,
)
from widen.files.predicates import bind_condition
from widen.frames import scan as scans
from widen.frames.scan import plan_read
from widen.log.commit import commit
from widen.model.types import Field, StructType
from widen.protocol.actions import Protocol
from widen.table import Table

ENABLED = {"delta.enableTypeWidening": "true", "delta.feature.timestampNtz": "supported"}


def history(field: dict[str, Any], entry: dict[str, str] | None) -> dict[str, Any]:
    """Return a field as the schema JSON has it, with one recorded change of type."""
    return {**field, "metadata": {"delta.typeChanges": [entry]} if entry else {}}


def kept(table: Table, where: str) -> int:
    """Return how many files are left for Spark."""
    snapshot = table.snapshot
    return sum(g.files.num_rows for g in plan_read(snapshot, bind_condition(where, snapshot.schema)).groups)


# ---- tables of deltalake ---------------------------------------------------------------------------


def test_a_partitioned_nested_table_of_deltalake(spark: SparkSession, tmp_path: Path) -> None:
    rows = {
        "id": pa.array(range(6), pa.int64()),
        "day": pa.array(["2024-01-01", "2024-01-02", None, "a b", "ü/%=", ""], pa.string()),
        "nested": pa.array([{"x": n, "tags": ["t", None]} for n in range(5)] + [None]),
        "amount": pa.array([Decimal("1.10")] * 6, pa.decimal128(10, 2)),
        "at": pa.array([datetime(2024, 1, 1, 12, n, tzinfo=timezone.utc) for n in range(6)], pa.timestamp("us", "UTC")),
    }
    deltalake.write_deltalake(str(tmp_path), pa.table(rows), partition_by=["day"])
    deltalake.write_deltalake(str(tmp_path), pa.table(rows).slice(0, 2), mode="append")

    read = (
        Table(str(tmp_path)).read(spark=spark).select("id", "day", "nested", "amount", F.unix_micros("at").alias("at"))
    )

    first = 1704110400000000
    Nested = Row("x", "tags")
    expected = [
        Row(id=n, day=day or None, nested=Nested(n, ["t", None]), amount=Decimal("1.10"), at=first + n * 60_000_000)
        for n, day in enumerate(["2024-01-01", "2024-01-02", None, "a b", "ü/%="])
    ]
    expected += [Row(id=5, day=None, nested=None, amount=Decimal("1.10"), at=first + 300_000_000), *expected[:2]]
    assert_same(read.collect(), expected)


def test_partition_columns_of_every_type_of_deltalake(spark: SparkSession, tmp_path: Path) -> None:
    moment = datetime(2024, 1, 1, 12, 30, 0, 5)
    rows = pa.table(
        {
            "v": [1],
            "b": pa.array([True]),
            "d": pa.array([moment.date()]),
            "n": pa.array([moment], pa.timestamp("us")),
            "c": pa.array([Decimal("1.50")], pa.decimal128(5, 2)),
            "f": pa.array([1.5], pa.float64()),
        }
    )
    deltalake.write_deltalake(str(tmp_path), rows, partition_by=["b", "d", "n", "c", "f"])
    expected = Row(v=1, b=True, d=moment.date(), n=moment, c=Decimal("1.50"), f=1.5)
    assert_same(Table(str(tmp_path)).read(spark=spark).collect(), [expected])


def test_a_partition_of_times_does_not_depend_on_the_session(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "v int, t timestamp", partition_by=["t"])
    rows = spark.sql("select 1 v, timestamp_micros(1704112200000005) t union all select 2, timestamp_micros(-1)")
    table.append(rows.select("v", "t"))
    values = sorted(dict(entries)["t"] for entries in table.files()["partition_values"].to_pylist())
    assert values == ["1969-12-31T23:59:59.999999Z", "2024-01-01T12:30:00.000005Z"]
    assert_same(
        table.read(spark=spark).select("v", F.unix_micros("t").alias("t")).collect(),
        [Row(v=1, t=1704112200000005), Row(v=2, t=-1)],
    )
    assert kept(table, "t > timestamp'2000-01-01T00:00:00Z'") == 1


# ---- layouts ---------------------------------------------------------------------------------------


def test_partitions_are_what_the_log_says_and_not_the_directories(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(
        str(tmp_path / "t"), "v int, p decimal(5,1), q string", partition_by=["p", "q"], properties=ENABLED
    )
    data = pa.table({"v": pa.array([1], pa.int32())})
    add_file(table, "p=1/q=x/a.parquet", data, {"p": "1", "q": "x"})
    add_file(table, "q=x/p=1/b.parquet", data, {"p": "1.0", "q": "x"})
    add_file(table, "p=9/q=z/c.parquet", data, {"p": "2", "q": None})
    add_file(table, "random/d.parquet", data, {"p": None, "q": "ü %/=+"})
    add_file(table, str(tmp_path / "p=7" / "e f.parquet"), data, {"p": "3", "q": "y"}, absolute=True)
    add_file(table, "v=8/r=7/f.parquet", data, {"p": "4", "q": ""})
    expected = [
        (1, Decimal("1.0"), "x"),
        (1, Decimal("1.0"), "x"),
        (1, Decimal("2.0"), None),
        (1, None, "ü %/=+"),
        (1, Decimal("3.0"), "y"),
        (1, Decimal("4.0"), None),
    ]
    rows = [Row(v=v, p=p, q=q) for v, p, q in expected]
    assert_same(table.read(spark=spark).collect(), rows)
    assert_same(table.read(where="p = 1", spark=spark).collect(), rows[:2])
    assert kept(table, "p = 1") == 2
    assert kept(table, "q is null and p > 2") == 1


def test_many_partitions_that_no_directory_names(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path / "t"), "v int, p int", partition_by=["p"])
    count = scans.EXPLICIT_FILES + 8
    for number in range(count):
        data = pa.table({"v": pa.array([number], pa.int32())})
        add_file(table, f"d %{number}/x+y.parquet", data, {"p": str(number)})
    assert_same(table.read(spark=spark).collect(), [Row(v=n, p=n) for n in range(count)])
    assert_same(table.read(where="p in (3, 5)", spark=spark).collect(), [Row(v=n, p=n) for n in (3, 5)])


@pytest.mark.parametrize("folder", ["plain", "x=1", "ü b[1]*{2}"])
@pytest.mark.parametrize("count", [2, scans.EXPLICIT_FILES + 1])
def test_odd_places_and_long_lists(spark: SparkSession, tmp_path: Path, folder: str, count: int) -> None:
    table = widen.create_table(str(tmp_path / folder), "v int, p string, x int", partition_by=["p"])
    for number in range(count):
        data = pa.table({"v": pa.array([number], pa.int32()), "x": pa.array([5], pa.int32())})
        add_file(table, f"job{number % 3}/p=a%20{number % 2}/f{number}.parquet", data, {"p": f"a {number % 2}"})
    assert {g.is_hive for g in plan_read(table.snapshot, bind_condition("true", table.schema)).groups} == {True}
    assert_same(table.read(spark=spark).collect(), [Row(v=n, p=f"a {n % 2}", x=5) for n in range(count)])
    unpartitioned = widen.create_table(str(tmp_path / folder / "u"), "v int, x int")
    for number in range(count):
        data = pa.table({"v": pa.array([number], pa.int32()), "x": pa.array([5], pa.int32())})
        add_file(unpartitioned, f"x=9/f{number}.parquet", data, {})
    assert_same(unpartitioned.read(spark=spark).collect(), [Row(v=n, x=5) for n in range(count)])


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_an_empty_file_is_an_error_on_spark_too(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text(f'{{"id": "{name}"}}')
    catalog = {"catalog": tmp_path / "c.db"} if kind == "iceberg" else {}
    into = str(tmp_path / "t") if kind == "delta" else "db.t"
    for name in ("a", "b"):
        widen.ingest(tmp_path / f"{name}.json", into, to=kind, engine="local", **catalog)
    table = widen.Table(into) if kind == "delta" else widen.IcebergTable(into, **catalog)
    assert_same(table.read(spark=spark).collect(), [Row(id="a"), Row(id="b")])
    file = next(tmp_path.rglob("part-*.parquet"))
    file.write_bytes(b"")
    with pytest.raises(CorruptFile, match=f"{file.name} cannot be read: it is empty"):
        table.read(spark=spark).collect()


# ---- schemas ---------------------------------------------------------------------------------------


def test_the_schema_shows_comments_and_nothing_of_the_log(spark: SparkSession, tmp_path: Path) -> None:
    properties = {**ENABLED, "delta.columnMapping.mode": "name"}
    table = widen.create_table(str(tmp_path), "b int not null, s struct<x: int>, a int", properties=properties)
    table.append(spark.createDataFrame([(1, (2,), 3)], "b int, s struct<x: int>, a int"))
    table.alter_column("b", type="bigint", comment="the b")
    table.alter_column("s.x", type="bigint", comment="the x")
    table.add_columns({"s.y": "string", "z": "date"})
    schema = table.read(spark=spark).schema
    assert json.loads(schema.json()) == {
        "type": "struct",
        "fields": [
            {"name": "b", "type": "long", "nullable": True, "metadata": {"comment": "the b"}},
            {
                "name": "s",
                "type": {
                    "type": "struct",
                    "fields": [
                        {"name": "x", "type": "long", "nullable": True, "metadata": {"comment": "the x"}},
                        {"name": "y", "type": "string", "nullable": True, "metadata": {}},
                    ],
                },
                "nullable": True,
                "metadata": {},
            },
            {"name": "a", "type": "integer", "nullable": True, "metadata": {}},
            {"name": "z", "type": "date", "nullable": True, "metadata": {}},
        ],
    }
    assert_same(table.read(spark=spark).collect(), [Row(b=1, s=Row(x=2, y=None), a=3, z=None)])


def test_an_empty_table_has_its_schema(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(
        str(tmp_path), "a int not null, p string, l array<struct<x: int not null>>", partition_by=["p"]
    )
    read = table.read(where="p = 'x'", spark=spark)
    assert read.collect() == []
    assert read.schema.simpleString() == "struct<a:int,p:string,l:array<struct<x:int>>>"


INNER = {"name": "b", "type": "boolean", "nullable": True, "metadata": {}}
NARROWED = [
    ("integer", {"fromType": "long", "toType": "integer"}, ("a", "BIGINT", "INT")),
    (
        {"type": "array", "elementType": "string", "containsNull": True},
        {"fromType": "integer", "toType": "string", "fieldPath": "element"},
        ("a.element", "INT", "STRING"),
    ),
    (
        {"type": "map", "keyType": "integer", "valueType": "decimal(9,3)", "valueContainsNull": True},
        {"fromType": "decimal(9, 2)", "toType": "decimal(9,3)", "fieldPath": "value"},
        ("a.value", "DECIMAL(9,2)", "DECIMAL(9,3)"),
    ),
    (
        {"type": "struct", "fields": [history(INNER, {"fromType": "integer", "toType": "boolean"})]},
        None,
        ("a.b", "INT", "BOOLEAN"),
    ),
]


@pytest.mark.parametrize(("kind", "entry", "expected"), NARROWED)
def test_a_recorded_change_outside_the_matrix_is_refused(
    spark: SparkSession, tmp_path: Path, kind: Any, entry: dict[str, str] | None, expected: tuple[str, str, str]
) -> None:
    table = widen.create_table(str(tmp_path), "a int", properties=ENABLED)
    good = table.metadata.schema_string
    put_columns(table, history({"name": "a", "type": kind, "nullable": True, "metadata": {}}, entry))
    for version in (None, 1):
        with pytest.raises(UnsupportedTypeChange) as caught:
            table.read(version=version, spark=spark)
        assert tuple(caught.value.fields.values()) == expected
        put_columns(table, *json.loads(good)["fields"])
    assert table.read(spark=spark).collect() == []


def test_recorded_changes_between_texts_are_no_matter(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a string", properties=ENABLED)
    column = {"name": "a", "type": "string", "nullable": True, "metadata": {}}
    put_columns(table, history(column, {"fromType": "string", "toType": "string"}))
    assert table.read(spark=spark).collect() == []


def put_columns(table: Table, *columns: dict[str, Any]) -> None:
    """Commit a schema of these columns, whatever it says."""
    text = json.dumps({"type": "struct", "fields": columns})
    metadata = msgspec.structs.replace(table.metadata, schema_string=text)
    commit(table.store, table.refresh().snapshot, [metadata], "SET TBLPROPERTIES", {}).or_raise()
    table.refresh()


def test_shredded_variants_are_read(spark: SparkSession, tmp_path: Path) -> None:
    """Spark writes them with a setting; 4.0 also reads them with one only."""
    settings = {"writeShredding.enabled": "true", "forceShreddingSchemaForTest": "a int, b string"}
    for key, value in settings.items():
        spark.conf.set(f"spark.sql.variant.{key}", value)
    texts = ['{"a":1,"b":"x","c":[1]}', '{"a":"no"}', "5", None]
    rows = spark.createDataFrame(list(enumerate(texts)), "id int, t string").selectExpr("id", "parse_json(t) AS v")
    rows.coalesce(1).write.mode("overwrite").parquet(str(tmp_path))
    for key in settings:
        spark.conf.unset(f"spark.sql.variant.{key}")
    [file] = tmp_path.glob("*.parquet")
    assert "typed_value" in str(pq.read_schema(file))
    names = ["variantType", "variantShredding"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": names, "writerFeatures": names}
    schema = {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "integer", "nullable": True, "metadata": {}},
            {"name": "v", "type": "variant", "nullable": True, "metadata": {}},
        ],
    }
    metadata = {"id": "1", "format": {"provider": "parquet", "options": {}}, "schemaString": json.dumps(schema)}
    metadata |= {"partitionColumns": [], "configuration": {}, "createdTime": 1}
    add = {"path": file.name, "partitionValues": {}, "size": file.stat().st_size, "modificationTime": 1}
    actions = [{"protocol": protocol}, {"metaData": metadata}, {"add": {**add, "dataChange": True}}]
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    if spark.version < "4.1":
        spark.conf.set("spark.sql.variant.allowReadingShredded", "true")
    found = Table(str(tmp_path)).read(spark=spark).selectExpr("id", "to_json(v)").orderBy("id").collect()
    spark.conf.unset("spark.sql.variant.allowReadingShredded")
    assert [tuple(row) for row in found] == list(enumerate(texts))


def test_a_reader_feature_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    widen.create_table(str(tmp_path), "a int")
    protocol = Protocol(
        min_reader_version=3, min_writer_version=7, reader_features=("teleport",), writer_features=("teleport",)
    )
    line = json.dumps(
        {
            "protocol": {
                "minReaderVersion": protocol.min_reader_version,
                "minWriterVersion": protocol.min_writer_version,
                "readerFeatures": list(protocol.reader_features or ()),
                "writerFeatures": list(protocol.writer_features or ()),
            }
        }
    )
    (tmp_path / "_delta_log" / f"{1:020d}.json").write_text(line)
    with pytest.raises(UnsupportedFeatureForRead, match="teleport"):
        Table(str(tmp_path))


def test_times_of_years_that_python_does_not_know_are_written_and_found(spark: SparkSession, tmp_path: Path) -> None:
    columns = "d date, n timestamp_ntz, t timestamp"
    table = widen.create_table(str(tmp_path), columns, properties={**ENABLED, "delta.checkpointInterval": "1"})
    for year in ("+10000", "-0001", "2024"):
        moments = [f"date'{year}-01-01' d", f"timestamp_ntz'{year}-01-01' n", f"timestamp'{year}-01-01' t"]
        table.append(spark.sql(f"select {', '.join(moments)}"))
    for where, count in (("d > '9999-12-31'", 1), ("n < timestamp_ntz'2000-01-01'", 1), ("t is not null", 3)):
        assert (where, table.read(where=where, spark=spark).count()) == (where, count)


# ---- time travel -----------------------------------------------------------------------------------


def test_a_version_is_read_in_its_own_types(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a int", properties=ENABLED)
    table.append(spark.createDataFrame([(1,)], "a int"))
    table.alter_column("a", type="bigint")
    table.append(spark.createDataFrame([(2**40,)], "a bigint"))
    old = table.read(version=1, spark=spark)
    assert (old.schema.simpleString(), old.collect()) == ("struct<a:int>", [Row(a=1)])
    times = {version: time for version, time, _ in table.history()}
    at = datetime.fromtimestamp(times[2] / 1000, timezone.utc)
    read = table.read(timestamp=at, spark=spark)
    assert (read.schema.simpleString(), read.collect()) == ("struct<a:bigint>", [Row(a=1)])
    assert_same(table.read(timestamp="2999-01-01", spark=spark).collect(), [Row(a=1), Row(a=2**40)])
    with pytest.raises(VersionNotFound):
        table.read(version=9, spark=spark)
    with pytest.raises(InvalidOption):
        table.read(timestamp="yesterday", spark=spark)
    with pytest.raises(InvalidOption):
        table.read(version=1, timestamp="2999-01-01", spark=spark)
    with pytest.raises(TableNotFound):
        Table(str(tmp_path / "nowhere"))


# ---- filters ---------------------------------------------------------------------------------------

DECIMALS = "a decimal(9,2), s struct<d: decimal(9,2), n: int>, l array<struct<d: decimal(9,2)>>"


@pytest.mark.parametrize(("mapping", "writer"), covering(["none", "name"], ["spark", "pyarrow"]))
def test_filters_on_a_widened_decimal_lose_no_row(
    spark: SparkSession, tmp_path: Path, mapping: str, writer: str
) -> None:
    table = widen.create_table(str(tmp_path), DECIMALS, properties={**ENABLED, "delta.columnMapping.mode": mapping})
    value = Decimal("1.23")
    if writer == "spark":
        table.append(spark.createDataFrame([(value, (value, 1), [(value,)])], DECIMALS))
    else:
        fields = table.snapshot.schema.fields
        assert isinstance(fields[1].type, StructType)
        names, inner = (list(map(in_files, some)) for some in (fields, fields[1].type.fields))
        number = pa.decimal128(9, 2)
        shape = pa.struct([(inner[0], number), (inner[1], pa.int32())])
        struct = pa.array([dict(zip(inner, (value, 1), strict=True))], shape)
        add_file(table, "f.parquet", pa.table({names[0]: pa.array([value], number), names[1]: struct}), {})
    for path in ("a", "s.d", "l.element.d"):
        table.alter_column(path, type="decimal(19,2)")
    matching = [
        where.format(c=column, x=literal)
        for literal in ("21474836.48", "92233720368547758.07", "99999999999999999.99")
        for column in ("a", "s.d")
        for where in ("{c} < {x}", "{c} <= {x} and {c} > -{x}", "{c} <> {x} and {c} in (1.23, {x})", "not {c} = {x}")
    ]
    whole = table.read(spark=spark)
    pairs = [(where, whole.where(where), table.read(where=where, spark=spark)) for where in matching]
    reads = [read.select(F.lit(where)) for where, *both in pairs for read in both]
    found = Counter(row[0] for row in union(reads).collect())
    assert found == dict.fromkeys(matching, 2)


def in_files(field: Field) -> str:
    name = field.metadata.get("delta.columnMapping.physicalName", field.name)
    assert isinstance(name, str)
    return name


def test_files_are_skipped_by_statistics_old_and_new(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "i int, f float, s struct<t: string>, d date", properties=ENABLED)
    for low in (0, 100):
        rows = [(n, float(n), (f"k{n:03d}",), datetime(2024, 1, 1 + n // 100).date()) for n in range(low, low + 10)]
        table.append(spark.createDataFrame(rows, "i int, f float, s struct<t: string>, d date").coalesce(1))
    for column, new in (("i", "decimal(20,2)"), ("f", "double"), ("d", "timestamp_ntz")):
        table.alter_column(column, type=new)
    for where, files, count in [
        ("i = 5", 1, 1),
        ("i > 109", 0, 0),
        ("i >= 109", 1, 1),
        ("i < 0.5 or s.t = 'k105'", 2, 2),
        ("f = 5", 1, 1),
        ("f < -1", 0, 0),
        ("s.t between 'k100' and 'k101'", 1, 2),
        ("d = timestamp_ntz'2024-01-02 00:00:00'", 1, 10),
        ("d > '2024-01-03'", 0, 0),
        ("d >= date'2024-01-02'", 1, 10),
        ("i is null", 0, 0),
        ("not i < 100", 1, 10),
    ]:
        assert (where, kept(table, where), table.read(where=where, spark=spark).count()) == (where, files, count)


def test_no_row_is_skipped_that_spark_would_find(spark: SparkSession, tmp_path: Path) -> None:
    """Every comparison at every edge: what is read with skipping is what Spark finds without it."""
    columns = "id int, f float, d double, t timestamp, n timestamp_ntz, s string, i int"
    table = widen.create_table(str(tmp_path), columns, properties=ENABLED)
    edges: Sequence[tuple[Any, ...]] = [
        (3.4, 3.4, datetime(2024, 1, 1, 0, 0, 0, 1999), datetime(2024, 1, 1, 0, 0, 0, 1999), "a" * 31 + "zz", 1),
        (float("nan"), float("nan"), None, None, "\U0010ffff" * 33, None),
        (-0.0, 0.0, datetime(1970, 1, 1), datetime(1, 1, 1), "", -(2**31)),
        (16777216.0, 1e300, None, datetime(9999, 12, 31, 23, 59, 59, 999999), "b" * 33, 16777217),
    ]
    for number, row in enumerate(edges):
        table.append(spark.createDataFrame([(number, *row)], columns).coalesce(1))
    table.alter_column("f", type="double")
    table.alter_column("i", type="double")
    literals = {
        "f": ["3.4", "cast(3.4f as double)", "0", "-0.0D", "16777217", "double('NaN')", "3.4000000953674316"],
        "d": ["3.4", "0.0", "1e300", "9999999999999999"],
        "t": ["timestamp'2024-01-01 00:00:00.001999'", "'2024-01-01T00:00:00.001Z'", "timestamp'1970-01-01T00:00:00Z'"],
        "n": ["timestamp_ntz'2024-01-01 00:00:00.001999'", "'2024-01-01 00:00:00.001'", "date'0001-01-01'"],
        "s": [f"'{'a' * 31}zz'", f"'{'b' * 32}'", f"'{'b' * 34}'", "''", f"'{chr(0x10FFFF) * 32}'"],
        "i": ["16777217", "-2147483648", "1.0"],
    }
    wheres = [
        where
        for column, values in literals.items()
        for value in values
        for sign in ("=", "<>", "<", "<=", ">", ">=")
        for where in (
            f"{column} {sign} {value}",
            f"not ({value} {sign} {column})",
            f"({column} {sign} {value}) is null",
        )
    ]
    found = table.read(spark=spark).select("id", *(F.expr(where) for where in wheres)).collect()
    assert len(found) == len(edges)
    skips = 0
    for number, where in enumerate(wheres, 1):
        matching = {row.id for row in found if row[number] is True}
        groups = plan_read(table.snapshot, bind_condition(where, table.snapshot.schema)).groups
        left = {json.loads(text)["minValues"]["id"] for g in groups for text in g.files["stats"].to_pylist()}
        assert matching <= left, where
        skips += len(edges) - len(left)
    assert skips >= 300
