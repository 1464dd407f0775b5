"""Reading Iceberg tables: columns by field id, old types, missing columns, deleted rows, time travel and filters."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal as D
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JJavaError
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform, TruncateTransform
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    PrimitiveType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from pyspark.errors import PySparkException
from pyspark.sql import Row, SparkSession

import widen
from support.covering import TRIES_ALL
from support.iceberg_files import (
    append,
    append_deletes,
    data_file,
    deletion_vector,
    embedded_catalog,
    equality_deletes,
    field,
    position_deletes,
    write_file,
)
from support.one_job import collect_each
from widen.cli.row_output import _lines
from widen.cli.show_commands import query_iceberg_table
from widen.errors import CorruptFile, InvalidOption, UnsupportedFeatureForRead, VersionNotFound
from widen.files import iceberg_columns
from widen.files.data_reader import json_lines
from widen.frames import scan
from widen.iceberg.snapshots import SnapshotReference
from widen.log.commit_files import to_ms
from widen.spark.engine import Unsupported

UTC = timezone.utc


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    return embedded_catalog(tmp_path)


def opened(table: Table) -> widen.IcebergTable:
    return widen.IcebergTable(".".join(table.name()), catalog=table.catalog)


def rows(table: Table, spark: SparkSession, where: str | None = None, **point: Any) -> list[tuple[Any, ...]]:
    """Rows as tuples, sorted by their first column."""
    found = opened(table).read(where, spark=spark, **point).collect()
    return sorted((tuple(row) for row in found), key=lambda row: (row[0] is None, row[0]))


def by_id(*columns: tuple[int, str, Any]) -> Schema:
    return Schema(*(NestedField(number, name, kind, required=False) for number, name, kind in columns))


# ---- columns --------------------------------------------------------------------------------------


NESTED = Schema(
    NestedField(1, "id", IntegerType(), required=False),
    NestedField(2, "price", DecimalType(9, 2), required=False),
    NestedField(3, "ratio", FloatType(), required=False),
    NestedField(
        4,
        "s",
        StructType(
            NestedField(5, "a", IntegerType(), required=False), NestedField(6, "b", StringType(), required=False)
        ),
        required=False,
    ),
    NestedField(
        7, "l", ListType(8, StructType(NestedField(9, "x", IntegerType(), required=False)), False), required=False
    ),
    NestedField(10, "m", MapType(11, StringType(), 12, DecimalType(9, 2), False), required=False),
    NestedField(13, "c", StringType(), required=False),
    NestedField(14, "d", StringType(), required=False),
)


@pytest.fixture(scope="module")
def evolved(tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Two rows before many changes of columns, one row after them; written and changed by PyIceberg."""
    table = embedded_catalog(tmp_path_factory.mktemp("evolved")).create_table("ns.evolved", NESTED)
    struct, item = pa.struct([("a", pa.int32()), ("b", pa.string())]), pa.struct([("x", pa.int32())])
    columns = [("id", pa.int32()), ("price", pa.decimal128(9, 2)), ("ratio", pa.float32()), ("s", struct)]
    columns += [("l", pa.list_(item)), ("m", pa.map_(pa.string(), pa.decimal128(9, 2)))]
    columns += [("c", pa.string()), ("d", pa.string())]
    old = [
        {
            "id": 1,
            "price": D("1.25"),
            "ratio": 0.5,
            "s": {"a": 1, "b": "one"},
            "l": [{"x": 1}, None],
            "m": [("k", D("2.50"))],
            "c": "c1",
            "d": "d1",
        },
        {"id": 2, "l": [], "d": "d2"},  # PyIceberg writes a null list as an empty one
    ]
    table.append(pa.Table.from_pylist(old, schema=pa.schema(columns)))
    with table.update_schema() as update:
        update.update_column("id", LongType())
        update.update_column("price", DecimalType(18, 2))
        update.update_column("ratio", DoubleType())
        update.update_column(("s", "a"), LongType())
        update.update_column(("m", "value"), DecimalType(20, 2))
        update.rename_column("c", "kept")
    with table.update_schema() as update:
        update.rename_column("d", "c")  # the name that old files have for another column
        update.add_column(("l", "y"), StringType())
        update.rename_column(("s", "b"), "text")
    with table.update_schema() as update:
        update.add_column("d", LongType())  # a new column with the name of an old one
        update.add_column(("s", "b"), LongType())
    new = {"id": 2**40, "price": D("21474836.48"), "ratio": 1e300, "s": {"a": 2**40, "text": "t", "b": 7}}
    new |= {"l": [{"x": 3, "y": "why"}], "m": [("k", D("123456789012345.00"))], "kept": "c3", "c": "d3", "d": 3}
    table.append(pa.Table.from_pylist([new], schema=table.schema().as_arrow()))
    return table


OLD_1 = (1, D("1.25"), 0.5, Row(1, "one", None), [Row(1, None), None], {"k": D("2.50")}, "c1", "d1", None)
OLD_2 = (2, None, None, None, [], None, None, "d2", None)
NEW = (
    2**40,
    D("21474836.48"),
    1e300,
    Row(2**40, "t", 7),
    [Row(3, "why")],
    {"k": D("123456789012345.00")},
    "c3",
    "d3",
    3,
)


def test_columns_are_found_by_id_and_old_types_widen(spark: SparkSession, evolved: Table) -> None:
    assert rows(evolved, spark) == [OLD_1, OLD_2, NEW]
    frame = opened(evolved).read(spark=spark)
    assert frame.columns == ["id", "price", "ratio", "s", "l", "m", "kept", "c", "d"]
    assert frame.schema.simpleString() == (
        "struct<id:bigint,price:decimal(18,2),ratio:double,s:struct<a:bigint,text:string,b:bigint>,"
        "l:array<struct<x:int,y:string>>,m:map<string,decimal(20,2)>,kept:string,c:string,d:bigint>"
    )
    assert [tuple(row) for row in frame.select("d", "s.text", "c").orderBy("c").collect()] == [
        (None, "one", "d1"), (None, None, "d2"), (3, "t", "d3"),
    ]  # fmt: skip


EVOLVED_FILTERS = [
    ("price < 21474836.48", [OLD_1]),  # the literal does not fit the old type of the column
    ("price <= 21474836.48", [OLD_1, NEW]),
    ("price < 99999999999.99", [OLD_1, NEW]),
    ("id > 1 and id < 3000000000", [OLD_2]),
    ("id >= 3000000000", [NEW]),
    ("ratio > 0.4999999999", [OLD_1, NEW]),
    ("s.a < 4611686018427387904", [OLD_1, NEW]),
    ("s.text = 'one'", [OLD_1]),
    ("s.b is null", [OLD_1, OLD_2]),
    ("s.b = 7", [NEW]),
    ("c = 'd1'", [OLD_1]),
    ("kept = 'c1' or d = 3", [OLD_1, NEW]),
    ("d is null", [OLD_1, OLD_2]),
    ("not (d = 3)", []),
    ("id in (1, 1099511627776) and c <> 'd1'", [NEW]),
]


def test_filters_find_the_same_rows_in_old_and_new_files(spark: SparkSession, evolved: Table) -> None:
    table = opened(evolved)
    found = collect_each([table.read(where, spark=spark) for where, _ in EVOLVED_FILTERS])
    for (where, expected), rows in zip(EVOLVED_FILTERS, found, strict=True):
        assert sorted(rows) == expected, where


def test_a_snapshot_is_read_in_its_own_columns(spark: SparkSession, evolved: Table, tmp_path: Path) -> None:
    first, second = evolved.metadata.snapshots
    old = [(1, D("1.25"), 0.5, Row(1, "one"), [Row(1), None], {"k": D("2.50")}, "c1", "d1")]
    assert rows(evolved, spark, "c = 'c1'", version=first.snapshot_id) == old
    before = datetime.fromtimestamp(second.timestamp_ms / 1000, UTC) - timedelta(milliseconds=1)
    assert rows(evolved, spark, "id = 1", timestamp=before) == old
    with evolved.manage_snapshots() as manage:
        manage.create_tag(first.snapshot_id, "v1").create_branch(first.snapshot_id, "old")
    assert rows(evolved, spark, "d = 'd1'", tag="v1") == old
    assert rows(evolved, spark, "c = 'd1'", branch="old") == [OLD_1]  # branches are read in the current columns
    assert rows(evolved, spark, timestamp=datetime.now(UTC)) == [OLD_1, OLD_2, NEW]
    table = opened(evolved)
    for point, missing in (
        ({"version": 5}, "does not have the snapshot 5: it has expired or never existed"),
        ({"branch": "v1"}, "does not have the branch v1: it has only main, old"),
        ({"tag": "none"}, "does not have the tag none: it has only v1"),
        (
            {"timestamp": "2020-01-01"},
            "does not have a snapshot of 2020-01-01T00:00:00+00:00: all its snapshots are newer",
        ),
    ):
        with pytest.raises(VersionNotFound, match=missing.replace("+", r"\+")):
            table.read(spark=spark, **point)  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="version cannot be used together with tag"):
        table.read(version=1, tag="v1", spark=spark)


def test_a_table_without_a_snapshot_has_no_rows(spark: SparkSession, catalog: SqlCatalog) -> None:
    table = opened(catalog.create_table("ns.empty", NESTED))
    assert table.version is None
    assert table.read("id > 0", spark=spark).collect() == []
    assert table.files().num_rows == 0


def test_files_may_have_names_of_their_own(spark: SparkSession, catalog: SqlCatalog) -> None:
    table = catalog.create_table(
        "ns.named", by_id((1, "id", LongType()), (2, "a", StringType()), (3, "b", StringType()))
    )
    swapped = [field("b", pa.string(), 2), field("x y", pa.int32(), 1), field("a", pa.string(), 3)]
    other = [field("a", pa.string(), 99), field("b", pa.string(), 98), field("ID", pa.int64(), 1)]
    first = write_file(table, swapped, [{"b": "a1", "x y": 1, "a": "b1"}])
    second = write_file(table, other, [{"a": "no", "b": "no", "ID": 2}])
    append(table, data_file(first, 1), data_file(second, 1))
    assert rows(table, spark) == [(1, "a1", "b1"), (2, None, None)]
    assert rows(table, spark, "a = 'a1'") == [(1, "a1", "b1")]
    assert rows(table, spark, "a is null") == [(2, None, None)]


def test_old_rows_have_the_initial_default_of_each_type_of_time(spark: SparkSession, catalog: SqlCatalog) -> None:
    """Source: Iceberg's table specification, Default values."""
    defaults: tuple[tuple[str, PrimitiveType, str], ...] = (
        ("day", DateType(), "1969-12-31"),
        ("at", TimestampType(), "1969-12-31T23:59:59.999999"),
        ("old", TimestampType(), "1582-10-04T01:02:03"),
        ("zoned", TimestamptzType(), "1969-12-31T23:59:59.999999+00:00"),
        ("price", DecimalType(9, 2), "-1.25"),
        ("name", StringType(), "1969-12-31"),
    )
    names = [name for name, _, _ in defaults]
    columns = [(at, name, kind) for at, (name, kind, _) in enumerate(defaults, 2)]
    table = catalog.create_table("ns.defaults", by_id((1, "id", LongType()), *columns))
    path = write_file(table, [field("id", pa.int64(), 1)], [{"id": 1}])
    append(table, data_file(path, 1))
    # PyIceberg does not write version 3, but reads it.
    place = Path(table.metadata_location.removeprefix("file://"))
    metadata = json.loads(place.read_text()) | {"format-version": 3, "next-row-id": 1}
    for column, (_, _, text) in zip(metadata["schemas"][0]["fields"][1:], defaults, strict=True):
        column["initial-default"] = column["write-default"] = text
    place.write_text(json.dumps(metadata))
    select = ", ".join(f"CAST({name} AS string) AS {name}" for name in names)
    opened(table).read(spark=spark).createOrReplaceTempView("defaults")
    zone = spark.conf.get("spark.sql.session.timeZone")
    try:
        for name in ("UTC", "America/New_York"):
            spark.conf.set("spark.sql.session.timeZone", name)
            moment = "1969-12-31 23:59:59.999999" if name == "UTC" else "1969-12-31 18:59:59.999999"
            found = tuple(spark.sql(f"SELECT {select} FROM defaults").collect()[0])
            assert found == (
                *("1969-12-31", "1969-12-31 23:59:59.999999", "1582-10-04 01:02:03", moment, "-1.25", "1969-12-31"),
            )
    finally:
        spark.conf.set("spark.sql.session.timeZone", zone)
    for where in ("day = date'1969-12-31'", "at < timestamp_ntz'1970-01-01'", "old < timestamp_ntz'1600-01-01'"):
        assert [row[0] for row in rows(table, spark, where)] == [1]
    assert rows(table, spark, "zoned >= timestamp'1970-01-01T00:00:00Z'") == []


def test_files_without_ids_need_a_name_mapping(spark: SparkSession, catalog: SqlCatalog) -> None:
    schema = by_id((1, "id", LongType()), (2, "s", StructType(NestedField(3, "a", StringType(), required=False))))
    table = catalog.create_table("ns.mapped", schema)
    columns = [field("number", pa.int64()), field("s", pa.struct([field("old", pa.string())]))]
    path = write_file(table, columns, [{"number": 1, "s": {"old": "x"}}])
    append(table, data_file(path, 1))
    with pytest.raises(CorruptFile, match="it has no field ids, and the table has no name mapping"):
        opened(table).read(spark=spark)
    below = '{"field-id": 2, "names": ["s"], "fields": [{"field-id": 3, "names": ["a", "old"]}]}'
    mapping = f'[{{"field-id": 1, "names": ["id", "number"]}}, {below}]'
    with table.transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": mapping})
    assert rows(table, spark) == [(1, Row("x"))]
    # A rename to the name of a dropped column: the file has both, and the older name is that of the column.
    both = write_file(table, [field("number", pa.int64()), field("id", pa.int64())], [{"number": 8, "id": 9}])
    append(table, data_file(both, 1))
    assert rows(table, spark) == [(1, Row("x")), (9, None)]


def test_a_column_that_cannot_become_the_type_of_the_table_is_an_error(
    spark: SparkSession, catalog: SqlCatalog
) -> None:
    table = catalog.create_table("ns.wrong", by_id((1, "d", DecimalType(10, 2))))
    path = write_file(table, [field("d", pa.decimal128(10, 3), 1)], [{"d": D("1.234")}])
    append(table, data_file(path, 1))
    with pytest.raises(
        CorruptFile, match=r"its column d is decimal128\(10, 3\), which cannot be read as decimal\(10,2\)"
    ):
        opened(table).read(spark=spark)


def test_a_missing_file_is_named(spark: SparkSession, catalog: SqlCatalog) -> None:
    table = catalog.create_table("ns.gone", by_id((1, "id", LongType())))
    path = write_file(table, [field("id", pa.int64(), 1)], [{"id": 1}])
    append(table, data_file(path, 1))
    path.unlink()
    with pytest.raises(CorruptFile, match=f"{path} cannot be read: the file does not exist"):
        opened(table).read(spark=spark)


def test_a_file_that_is_deleted_during_a_read_is_an_error(spark: SparkSession, catalog: SqlCatalog) -> None:
    """Also with a setting of Spark that skips missing files, and after its footer has been read."""
    table = catalog.create_table("ns.leaving", by_id((1, "id", LongType())))
    paths = [write_file(table, [field("id", pa.int64(), 1)], [{"id": number}]) for number in range(2)]
    append(table, *(data_file(path, 1) for path in paths))
    append_deletes(table, position_deletes(table, [(paths[0], 0)]))
    frame = opened(table).read(spark=spark)
    assert [row[0] for row in frame.collect()] == [1]
    paths[1].unlink()
    spark.conf.set("spark.sql.files.ignoreMissingFiles", "true")
    try:
        with pytest.raises((PySparkException, Py4JJavaError), match=paths[1].name):
            frame.collect()
        with pytest.raises((PySparkException, Py4JJavaError, CorruptFile), match=paths[1].name):
            opened(table).read(spark=spark).collect()
    finally:
        spark.conf.unset("spark.sql.files.ignoreMissingFiles")


TYPES = by_id(
    (1, "uuid", UUIDType()),
    (2, "fixed", FixedType(3)),
    (3, "bytes", BinaryType()),
    (4, "day", DateType()),
    (5, "local", TimestampType()),
    (6, "instant", TimestamptzType()),
)


def test_types_without_a_counterpart_are_binary_or_refused(spark: SparkSession, catalog: SqlCatalog) -> None:
    table = catalog.create_table("ns.types", TYPES)
    moment = datetime(1960, 2, 29, 12, 30, 15, 123456)
    row = {"uuid": bytes(range(16)), "fixed": b"abc", "bytes": b"", "day": date(1, 1, 1), "local": moment}
    table.append(pa.Table.from_pylist([{**row, "instant": moment.replace(tzinfo=UTC)}], schema=TYPES.as_arrow()))
    frame = opened(table).read("local < timestamp_ntz'1960-03-01'", spark=spark)
    assert [kind for _, kind in frame.dtypes] == ["binary", "binary", "binary", "date", "timestamp_ntz", "timestamp"]
    (found,) = frame.selectExpr(
        "hex(uuid)", "hex(fixed)", "hex(bytes)", "day", "local", "unix_micros(instant)"
    ).collect()
    micros = (moment - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    assert tuple(found) == ("000102030405060708090A0B0C0D0E0F", "616263", "", date(1, 1, 1), moment, micros)


def test_columns_without_a_type_of_spark_are_left_out(spark: SparkSession, catalog: SqlCatalog) -> None:
    inner = StructType(NestedField(4, "x", LongType()), NestedField(5, "h", TimeType()))
    table = catalog.create_table("ns.time", by_id((1, "id", LongType()), (2, "t", TimeType()), (3, "s", inner)))
    rows = [{"id": number, "t": time(number), "s": {"x": number, "h": time(5)}} for number in (1, 2)]
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    assert [tuple(row) for row in opened(table).read("id = 2", spark=spark).collect()] == [(2, (2,))]


def test_a_file_that_asks_for_views_is_read_and_changed(spark: SparkSession, catalog: SqlCatalog) -> None:
    schema = by_id((1, "id", LongType()), (2, "t", StringType()), (3, "b", BinaryType()))
    table = catalog.create_table("ns.views", schema)
    table.append(pa.table({"id": [1, 2], "t": ["x", "y"], "b": [b"p", b"q"]}, schema=schema.as_arrow()))
    (task,) = table.scan().plan_files()
    place = task.file.file_path.removeprefix("file://")
    views = pq.read_table(place).cast(
        pa.schema([field.with_type(VIEWS.get(field.type, field.type)) for field in pq.read_schema(place)])
    )
    pq.write_table(views, place)
    opened(table).update({"t": "concat(t, t)"}, "t = 'x'", spark=spark)
    opened(table).delete("t = 'y'", spark=spark)
    assert [tuple(row) for row in opened(table.refresh()).read(spark=spark).collect()] == [(1, "xx", bytearray(b"p"))]


VIEWS = {
    pa.string(): pa.string_view(),
    pa.large_string(): pa.string_view(),
    pa.binary(): pa.binary_view(),
    pa.large_binary(): pa.binary_view(),
}


# ---- filters --------------------------------------------------------------------------------------


NUMBERS = [None, float("nan"), float("-inf"), 0.0, 0.1, 3.0, float("inf")]


def test_filters_follow_spark_where_bounds_do_not(spark: SparkSession, catalog: SqlCatalog) -> None:
    """Bounds leave NaN out, and a float is not the double that it is compared with."""
    schema = by_id((1, "id", LongType()), (2, "f", FloatType()), (3, "d", DoubleType()))
    table = catalog.create_table("ns.floats", schema)
    for at, value in enumerate(NUMBERS):
        table.append(pa.Table.from_pylist([{"id": at, "f": value, "d": value}], schema=schema.as_arrow()))
    frame = opened(table).read(spark=spark)
    memory = spark.createDataFrame(frame.collect(), frame.schema)
    conditions = [
        f"{not_} {column} {operator} {value}"
        for not_ in ("", "not")
        for column in ("f", "d")
        for operator in ("=", "<>", "<", "<=", ">", ">=")
        for value in ("0", "0.1D", "3", "double('NaN')")
    ]
    wanted = memory.selectExpr("id", *(f"{text} c{at}" for at, text in enumerate(conditions))).collect()
    table_, here = opened(table), dict[int, list[tuple[int]]]()
    for at, text in enumerate(conditions):
        with suppress(Unsupported):
            here[at] = [(id,) for id in query(table, text, ["id"])[1]["id"].to_pylist()]
    # Each operator with each value, of some column, also with Spark.
    by_spark = [at for at in range(len(conditions)) if at not in here or TRIES_ALL or at % 5 == 0]
    found = collect_each([table_.read(conditions[at], spark=spark).select("id") for at in by_spark])
    for at, text in enumerate(conditions):
        expected = sorted((row.id,) for row in wanted if row[f"c{at}"])
        assert at not in here or sorted(here[at]) == expected, text
        assert at not in by_spark or sorted(found[by_spark.index(at)]) == expected, text


@pytest.fixture
def partitioned(catalog: SqlCatalog) -> Table:
    """Twelve days and numbers in partitions by value and day, then by day and bucket, then in none."""
    schema = by_id((1, "id", IntegerType()), (2, "at", TimestampType()), (3, "kind", StringType()))
    spec = PartitionSpec(
        PartitionField(3, 1000, IdentityTransform(), "kind"), PartitionField(2, 1001, DayTransform(), "at_day")
    )
    table = catalog.create_table("ns.partitioned", schema, partition_spec=spec)
    bucket = BucketTransform(4).transform(LongType())
    partition = {
        0: lambda row: Record(row["kind"], (row["at"] - datetime(1970, 1, 1)).days),
        1: lambda row: Record((row["at"] - datetime(1970, 1, 1)).days, bucket(row["id"])),
        2: lambda row: Record(),
    }
    for start in range(0, 12, 3):
        kind = pa.int32() if start == 0 else pa.int64()
        columns = [field("id", kind, 1), field("at", pa.timestamp("us"), 2), field("kind", pa.string(), 3)]
        for number in range(start, start + 3):
            name = None if number % 3 == 0 else f"k{number % 3}"
            row = {"id": number, "at": datetime(2024, 1, 1 + number), "kind": name}
            number_of_spec = table.spec().spec_id
            path = write_file(table, columns, [row])
            append(table, data_file(path, 1, partition=partition[number_of_spec](row)))
        if start == 0:
            with table.update_schema() as update:
                update.update_column("id", LongType())
                update.rename_column("kind", "sort")
        if start == 3:
            with table.update_spec() as update_spec:
                update_spec.remove_field("kind")
                update_spec.add_field("id", BucketTransform(4), "id_bucket")
        if start == 6:
            with table.update_spec() as update_spec:
                update_spec.remove_field("at_day")
                update_spec.remove_field("id_bucket")
    return table


PARTITION_FILTERS = [
    ("id = 7", [7]),
    ("sort = 'k1'", [1, 4, 7, 10]),
    ("sort is null", [0, 3, 6, 9]),
    ("sort <> 'k1'", [2, 5, 8, 11]),
    ("at >= timestamp_ntz'2024-01-05 00:00:00' and at < timestamp_ntz'2024-01-09'", [4, 5, 6, 7]),
    ("id < 100000000000 and sort = 'k2'", [2, 5, 8, 11]),
    ("id in (1, 6, 11)", [1, 6, 11]),
]


def test_filters_skip_partitions_of_every_spec(spark: SparkSession, partitioned: Table) -> None:
    table = opened(partitioned)
    found = collect_each([table.read(where, spark=spark).select("id") for where, _ in PARTITION_FILTERS])
    for (where, expected), rows in zip(PARTITION_FILTERS, found, strict=True):
        assert sorted(id for (id,) in rows) == expected, where


def test_a_dropped_partition_column_does_not_disturb(spark: SparkSession, partitioned: Table) -> None:
    with partitioned.update_schema() as update:
        update.delete_column("sort")
    assert [row[0] for row in rows(partitioned, spark, "id > 9 or at = timestamp_ntz'2024-01-02'")] == [1, 10, 11]


def test_files_without_their_partition_columns_have_them_from_the_partition(
    spark: SparkSession, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Hive left them: an identity partition column that stands in no file."""
    schema = by_id((1, "id", LongType()), (2, "day", DateType()), (3, "kind", StringType()))
    spec = PartitionSpec(
        PartitionField(2, 1000, IdentityTransform(), "day"), PartitionField(3, 1001, IdentityTransform(), "kind")
    )
    table = catalog.create_table("ns.hive", schema, partition_spec=spec)
    days = [(None, None), (date(2024, 2, 29), "a b"), (date(1969, 12, 31), "")]
    files = []
    for number, (day, kind) in enumerate(days):
        path = write_file(table, [field("id", pa.int64(), 1)], [{"id": number}, {"id": number + 10}])
        counted = None if day is None else (day - date(1970, 1, 1)).days
        files.append(data_file(path, 2, partition=Record(counted, kind)))
    append(table, *files)
    assert rows(table, spark) == sorted((at + more, *days[at]) for at in range(3) for more in (0, 10))
    assert [row[0] for row in rows(table, spark, "kind = 'a b' or day < date'1970-01-01'")] == [1, 2, 11, 12]


@pytest.mark.parametrize(
    ("first", "later"), [(IntegerType(), None), (LongType(), None), (IntegerType(), LongType())], ids=str
)
def test_rows_are_found_in_partitions_whose_truncated_number_has_overflowed(
    spark: SparkSession, catalog: SqlCatalog, first: PrimitiveType, later: PrimitiveType | None
) -> None:
    """Iceberg for Spark gives the smallest numbers a partition at the other end of the type."""
    bits = 32 if isinstance(first, IntegerType) else 64
    by_tens = PartitionSpec(PartitionField(1, 1000, TruncateTransform(10), "x_trunc"))
    table = catalog.create_table("ns.low", by_id((1, "x", first)), partition_spec=by_tens)
    low = -(2 ** (bits - 1))
    for number, partition in ((low, low - low % 10 + 2**bits), (low + 9, low + 9 - (low + 9) % 10), (5, 0)):
        path = write_file(table, [field("x", pa.int32() if bits == 32 else pa.int64(), 1)], [{"x": number}])
        append(table, data_file(path, 1, partition=Record(partition)))
    if later is not None:
        with table.update_schema() as update:
            update.update_column("x", later)
    for where, expected in (
        (f"x = {low}", [low]),
        ("x < 0", [low, low + 9]),
        (f"x IN (5, {low})", [low, 5]),
        ("x > 0", [5]),
    ):
        assert [row[0] for row in rows(table, spark, where)] == expected


def test_many_files_are_read_through_a_manifest_and_footers_by_executors(
    spark: SparkSession, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create_table("ns.many", by_id((1, "id", LongType()), (2, "a", StringType())))
    paths = [write_file(table, [field(name, pa.int64(), 1)], [{name: at}]) for at, name in enumerate(["x", "id"] * 6)]
    append(table, *(data_file(path, 1) for path in paths))
    monkeypatch.setattr(scan, "EXPLICIT_FILES", 2)
    monkeypatch.setattr(iceberg_columns, "DRIVER_SCHEMAS", 2)
    assert [row[0] for row in rows(table, spark)] == list(range(12))
    paths[3].unlink()
    iceberg_columns._cache.clear()
    with pytest.raises(CorruptFile, match=f"{paths[3]} cannot be read: the file does not exist"):
        opened(table).read(spark=spark)


def test_another_thread_may_empty_the_cache_of_footers(
    spark: SparkSession, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = catalog.create_table("ns.cached", by_id((1, "id", LongType())))
    append(table, data_file(write_file(table, [field("x", pa.int64(), 1)], [{"x": 1}]), 1))
    assert [row[0] for row in rows(table, spark)] == [1]
    append(table, data_file(write_file(table, [field("id", pa.int64(), 1)], [{"id": 2}]), 1))
    read = iceberg_columns.read_files
    monkeypatch.setattr(iceberg_columns, "read_files", lambda *args: (iceberg_columns._cache.clear(), read(*args))[1])
    assert [row[0] for row in rows(table, spark)] == [1, 2]


# ---- deleted rows ---------------------------------------------------------------------------------


@pytest.fixture
def numbers(catalog: SqlCatalog) -> tuple[Table, list[Path]]:
    """Two files with the rows 0 to 4 and 5 to 9, of which the second calls its columns otherwise."""
    table = catalog.create_table("ns.deleted", by_id((1, "id", LongType()), (2, "name", StringType())))
    columns = (
        [field("id", pa.int64(), 1), field("name", pa.string(), 2)],
        [field("i", pa.int32(), 1), field("n", pa.string(), 2)],
    )
    listed = [
        [{c[0].name: at, c[1].name: f"n{at % 3}" if at % 4 else None} for at in range(start, start + 5)]
        for c, start in zip(columns, (0, 5), strict=True)
    ]
    paths = [write_file(table, c, r) for c, r in zip(columns, listed, strict=True)]
    for path in paths:
        append(table, data_file(path, 5))
    return table, paths


def ids(table: Table, spark: SparkSession, where: str | None = None) -> list[int]:
    return [row[0] for row in rows(table, spark, where)]


def test_position_deletes_and_deletion_vectors_are_applied(
    spark: SparkSession, numbers: tuple[Table, list[Path]]
) -> None:
    table, (first, second) = numbers
    append_deletes(table, position_deletes(table, [(first, 0), (first, 4), (second, 2)]))
    assert ids(table, spark) == [1, 2, 3, 5, 6, 8, 9]
    append_deletes(table, deletion_vector(table, {second: [0, 2], first: [1]}))
    assert ids(table, spark) == [2, 3, 6, 8, 9]
    assert ids(table, spark, "id > 2 and name = 'n0'") == [3, 6, 9]
    before = table.metadata.snapshots[-2].snapshot_id
    assert [row[0] for row in rows(table, spark, version=before)] == [1, 2, 3, 5, 6, 8, 9]


def test_a_delete_does_not_touch_newer_files(spark: SparkSession, numbers: tuple[Table, list[Path]]) -> None:
    table, _ = numbers
    columns = [field("id", pa.int64(), 1), field("name", pa.string(), 2)]
    append_deletes(
        table, equality_deletes(table, [columns[1]], [{"name": "n1"}, {"name": None}], [2]),
        equality_deletes(table, columns, [{"id": 5, "name": "n2"}, {"id": 6, "name": "n2"}], [1, 2]),
        equality_deletes(table, [field("id", pa.int32(), 1)], [{"id": 9}], [1]),
    )  # fmt: skip
    assert ids(table, spark) == [2, 3, 6]  # n1: 1, 7; null: 0, 4, 8; by both: 5; by id: 9
    append(table, data_file(write_file(table, columns, [{"id": 11, "name": "n1"}, {"id": 12, "name": None}]), 2))
    assert ids(table, spark) == [2, 3, 6, 11, 12]
    assert ids(table, spark, "name is null or id < 3") == [2, 12]


def test_equality_deletes_name_dropped_columns(spark: SparkSession, numbers: tuple[Table, list[Path]]) -> None:
    table, _ = numbers
    append_deletes(table, equality_deletes(table, [field("name", pa.string(), 2)], [{"name": "n1"}], [2]))
    with table.update_schema() as update:
        update.delete_column("name")
        update.add_column("name", LongType())
    assert rows(table, spark) == [(at, None) for at in (0, 2, 3, 4, 5, 6, 8, 9)]


def test_equality_deletes_of_a_spec_with_only_void_fields_are_for_all_partitions(
    spark: SparkSession, catalog: SqlCatalog
) -> None:
    schema = by_id((1, "id", LongType()), (2, "p", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    table = catalog.create_table("ns.void", schema, partition_spec=spec, properties={"format-version": "1"})
    columns = [field("id", pa.int64(), 1), field("p", pa.string(), 2)]
    for p in ("a", "b"):
        path = write_file(table, columns, [{"id": at, "p": p} for at in range(3)])
        append(table, data_file(path, 3, partition=Record(p)))
    with table.update_spec() as update:
        update.remove_field("p")
    with table.transaction() as transaction:
        transaction.upgrade_table_version(2)
    assert [str(each.transform) for each in table.spec().fields] == ["void"]
    deletes = equality_deletes(table, columns[:1], [{"id": 1}], [1], partition=Record(None))
    deletes.spec_id = table.spec().spec_id
    append_deletes(table, deletes)
    assert set(rows(table, spark)) == {(0, "a"), (0, "b"), (2, "a"), (2, "b")}


def test_deletes_stay_in_their_partition(spark: SparkSession, catalog: SqlCatalog) -> None:
    schema = by_id((1, "id", LongType()), (2, "p", StringType()))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    table = catalog.create_table("ns.deletes", schema, partition_spec=spec)
    columns = [field("id", pa.int64(), 1), field("p", pa.string(), 2)]
    for p in ("a", "b"):
        path = write_file(table, columns, [{"id": at, "p": p} for at in range(3)])
        append(table, data_file(path, 3, partition=Record(p)))
    append_deletes(table, equality_deletes(table, columns[:1], [{"id": 1}], [1], partition=Record("a")))
    assert set(rows(table, spark)) == {(0, "a"), (0, "b"), (1, "b"), (2, "a"), (2, "b")}


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda data: data[:-1], "it is not a complete Puffin file"),
        (
            lambda data: data[:20] + bytes([data[20] ^ 1]) + data[21:],
            "the checksum of a deletion vector does not match",
        ),
        (lambda data: data[:7] + bytes([data[7] ^ 1]) + data[8:], "a deletion vector has a wrong size or magic number"),
    ],
)
def test_a_damaged_vector_is_an_error(
    spark: SparkSession, numbers: tuple[Table, list[Path]], damage: Any, reason: str
) -> None:
    table, (first, _) = numbers
    vector = deletion_vector(table, {first: [1]})
    append_deletes(table, vector)
    path = Path(vector.file_path.removeprefix("file://"))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(Exception, match=reason):
        opened(table).read(spark=spark).collect()


def test_what_pyiceberg_deleted_is_gone(spark: SparkSession, partitioned: Table) -> None:
    partitioned.delete(EqualTo("id", 4))
    new = pa.Table.from_pylist([{"id": 20}], schema=partitioned.schema().as_arrow())
    partitioned.overwrite(new, overwrite_filter=EqualTo("sort", "k2"))
    assert [row[0] for row in rows(partitioned, spark)] == [0, 1, 3, 6, 7, 9, 10, 20]


def test_other_formats_are_refused_by_name(spark: SparkSession, catalog: SqlCatalog) -> None:
    table = catalog.create_table("ns.orc", by_id((1, "id", LongType())))
    path = write_file(table, [field("id", pa.int64(), 1)], [{"id": 1}])
    append(table, data_file(path, 1, file_format="ORC"))
    with pytest.raises(UnsupportedFeatureForRead, match="does not support files in the format orc"):
        opened(table).read(spark=spark)


# ---- rows that this process reads -----------------------------------------------------------------


def query(
    table: Table, where: str | None = None, select: Sequence[str] = (), *, unified: bool = False, **point: Any
) -> tuple[Any, pa.Table]:
    """Return the columns and the rows that `widen read` shows without Spark."""
    timestamp = point.pop("timestamp", None)
    wanted = SnapshotReference(timestamp_ms=None if timestamp is None else to_ms(timestamp), **point)
    return query_iceberg_table(opened(table), wanted, where, select, None, unified=unified, row_lineage=False)


def ensure_same_rows(spark: SparkSession, table: Table, *asked: Mapping[str, Any], **point: Any) -> None:
    """Check that `widen read` shows the rows of Spark without it, for each condition and selection."""
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    try:
        for each in asked:
            where, select, unified = each.get("where"), each.get("select", ()), each.get("unified", False)
            frame = opened(table).read(where, unified=unified, spark=spark, **point)
            chosen = frame.selectExpr(*select) if select else frame
            columns, found = query(table, where, select, unified=unified, **point)
            assert list(columns.names) == chosen.columns
            assert sorted(json_lines(columns, found)) == sorted(_lines(chosen, None)), each
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))


def test_this_process_reads_changed_columns_as_spark_does(spark: SparkSession, evolved: Table) -> None:
    ensure_same_rows(
        spark,
        evolved,
        {},
        {"where": "id > 1"},
        {"where": "price < 2 OR s.a > 5", "select": ["id", "s.text AS t", "l[0].x AS x"]},
        {"where": "c = 'd1'", "select": ["count(*)"]},
    )
    first = evolved.metadata.snapshots[0].snapshot_id
    ensure_same_rows(spark, evolved, {}, {"where": "c = 'c1'", "select": ["d"]}, version=first)


def test_this_process_skips_files_by_partitions_as_spark_does(spark: SparkSession, partitioned: Table) -> None:
    ensure_same_rows(
        spark, partitioned, {}, *({"where": where} for where, _ in PARTITION_FILTERS if "_ntz'" not in where)
    )
    assert query(partitioned, "id = 7", ["id"])[1].to_pylist() == [{"id": 7}]


def test_this_process_leaves_deleted_rows_out_as_spark_does(
    spark: SparkSession, numbers: tuple[Table, list[Path]]
) -> None:
    table, (first, second) = numbers
    append_deletes(table, position_deletes(table, [(first, 0), (first, 4), (second, 2)]))
    ensure_same_rows(spark, table, {}, {"where": "name IS NULL"})
    append_deletes(table, deletion_vector(table, {second: [0, 2], first: [1]}))
    asked = ({}, {"where": "id > 2 AND name = 'n0'"}, {"select": ["count(*)", "count(name) AS named"]})
    ensure_same_rows(spark, table, *asked)
    ensure_same_rows(spark, table, {}, version=table.metadata.snapshots[-2].snapshot_id)
    columns = [field("id", pa.int64(), 1), field("name", pa.string(), 2)]
    append(table, data_file(write_file(table, columns, [{"id": 11, "name": "n1"}]), 1))
    ensure_same_rows(spark, table, *asked)
    append_deletes(table, equality_deletes(table, columns[:1], [{"id": 3}], [1]))
    ensure_same_rows(spark, table, {}, {"where": "name IS NULL", "select": ["id"]})
    assert ids(table, spark) == [2, 6, 8, 9, 11]


def test_this_process_reads_fields_of_several_columns_as_spark_does(spark: SparkSession, tmp_path: Path) -> None:
    database = tmp_path / "catalog.db"
    for number, text in enumerate(('{"id": 1, "v": 1}\n', '{"id": 2, "v": "x"}\n{"id": 3}\n')):
        (tmp_path / f"{number}.json").write_text(text)
        widen.ingest(tmp_path / f"{number}.json", "ns.split", catalog=str(database), engine="local")
    table = widen.IcebergTable("ns.split", catalog=str(database))
    assert len(table.columns) == 3
    ensure_same_rows(spark, table.table, {}, {"unified": True}, {"unified": True, "where": "id > 1", "select": ["v"]})


def test_what_only_spark_reads_is_left_to_it(spark: SparkSession, catalog: SqlCatalog) -> None:
    empty = catalog.create_table("ns.empty", by_id((1, "id", LongType())))
    ensure_same_rows(spark, empty, {}, {"where": "id = 1", "select": ["count(*)"]})
    similar = catalog.create_table("ns.similar", by_id((1, "id", LongType()), (2, "ID", LongType())))
    with pytest.raises(Unsupported, match="id and ID"):
        query(similar)
    # A value that is in no file, but in the manifest.
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "n"))
    old = catalog.create_table("ns.apart", by_id((1, "id", LongType()), (2, "n", LongType())), partition_spec=spec)
    path = write_file(old, [field("id", pa.int64(), 1)], [{"id": 1}])
    append(old, data_file(path, 1, partition=Record(7)))
    with pytest.raises(Unsupported, match="not in its files"):
        query(old)
    assert rows(old, spark) == [(1, 7)]
