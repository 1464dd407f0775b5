"""Rules of a table that new rows must obey: nulls, lengths, invariants, constraints, defaults, generated, identity."""

from __future__ import annotations

import json
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as F

import widen
from support.change import in_one_task
from support.exact import assert_same
from widen.errors import (
    CheckViolated,
    IdentityColumnGiven,
    IdentityExhausted,
    JobFailed,
    NotNullViolated,
    RowRefused,
    StringTooLong,
)
from widen.model.schema_json import parse_type
from widen.model.types import ArrayType, Field, StructType
from widen.table import Table

FEATURES = {
    f"delta.feature.{name}": "supported"
    for name in ("invariants", "checkConstraints", "generatedColumns", "allowColumnDefaults", "identityColumns")
}


def field(name: str, kind: str, nullable: bool = True, **metadata: object) -> Field:
    return Field(name, parse_type(kind), nullable, {_dotted(key): value for key, value in metadata.items()})


def _dotted(key: str) -> str:
    return key if key.startswith("__") else key.replace("__", ".")


def new_table(place: Path, *fields: Field, partition_by: tuple[str, ...] = (), **properties: str) -> Table:
    given = {_dotted(key): value for key, value in properties.items()}
    return widen.create_table(
        str(place), StructType(fields), partition_by=partition_by, properties={**FEATURES, **given}
    )


def parquet_files(place: Path) -> list[Path]:
    return [path for path in place.rglob("*.parquet") if "_delta_log" not in path.parts]


# ---- constraints and invariants --------------------------------------------------------------------


@pytest.fixture(scope="module")
def ruled(tmp_path_factory: pytest.TempPathFactory) -> Table:
    invariant = json.dumps({"expression": {"expression": "amount < 100 OR note IS NOT NULL"}})
    inner = field("x", "int", delta__invariants=json.dumps({"expression": {"expression": "s.x <> 7"}}))
    return new_table(
        tmp_path_factory.mktemp("ruled"),
        field("id", "int"),
        field("amount", "int", delta__invariants=invariant),
        field("note", "string"),
        Field("s", StructType((inner,))),
        field("p", "string"),
        partition_by=("p",),
        delta__constraints__positive="amount > 0",
        **{"delta__constraints__Known p": "`p` in ('a', 'b')"},
    )


ROW = "id int, amount int, note string, s struct<x: int>, p string"
GOOD = (1, 5, None, (1,), "a")


@pytest.mark.parametrize(
    ("row", "name", "expression", "values"),
    [
        ((2, -1, None, (1,), "a"), "The constraint positive", "amount > 0", '{"amount":"-9"}'),
        ((2, None, "why", (1,), "a"), "The constraint positive", "amount > 0", '{"amount":null}'),
        ((2, 5, None, (1,), "c"), "The constraint Known p", "`p` in ('a', 'b')", '{"p":"x"}'),
        (
            (2, 100, None, (1,), "a"),
            "The invariant of column amount",
            "amount < 100 OR note IS NOT NULL",
            '{"amount":"999","note":null}',
        ),
        ((2, 5, None, (7,), "a"), "The invariant of column s.x", "s.x <> 7", '{"s":{"x":"9"}}'),
        ((2, 5, None, None, "a"), "The invariant of column s.x", "s.x <> 7", '{"s":null}'),
    ],
)
def test_a_row_that_breaks_a_rule_fails_the_append_with_its_values(
    spark: SparkSession, ruled: Table, row: tuple[Any, ...], name: str, expression: str, values: str
) -> None:
    before = ruled.refresh().version
    with pytest.raises(CheckViolated) as caught:
        ruled.append(in_one_task(spark, [GOOD, row], ROW))
    assert caught.value.fields == {"name": name, "expression": expression, "values": values}
    assert caught.value.code == "DELTA_VIOLATE_CONSTRAINT_WITH_VALUES"
    assert Table(ruled.location).version == before
    assert len(parquet_files(Path(ruled.location))) == ruled.files().num_rows


def test_a_session_may_ask_for_raw_values_in_errors(spark: SparkSession, ruled: Table) -> None:
    """They are masked otherwise, in errors of Spark too."""
    spark.conf.set("spark.widen.samples", "raw")
    try:
        with pytest.raises(CheckViolated, match='"amount":-71'):
            ruled.append(spark.createDataFrame([(2, -71, None, (1,), "a")], ROW))
    finally:
        spark.conf.unset("spark.widen.samples")
    broken = spark.createDataFrame([GOOD], ROW).withColumn("id", F.expr("cast(concat('Secret', id) as int)"))
    with pytest.raises(JobFailed) as caught:
        ruled.append(broken)
    assert "'Xxxxxx9'" in caught.value.message
    assert "Secret1" not in caught.value.message


def test_rows_that_obey_are_written(spark: SparkSession, ruled: Table) -> None:
    ruled.append(spark.createDataFrame([GOOD, (2, 500, "why", (8,), "b")], ROW))
    assert_same(
        ruled.read(spark=spark).where("amount > 4").collect(),
        [Row(id=1, amount=5, note=None, s=Row(x=1), p="a"), Row(id=2, amount=500, note="why", s=Row(x=8), p="b")],
    )


def test_a_rule_counts_only_where_its_feature_is_supported(spark: SparkSession, tmp_path: Path) -> None:
    invariant = json.dumps({"expression": {"expression": "a > 0"}})
    listed = {"delta.feature.domainMetadata": "supported", "delta.feature.timestampNtz": "supported"}
    table = widen.create_table(
        str(tmp_path), StructType((field("a", "int", delta__invariants=invariant),)), properties=listed
    )
    assert "invariants" in (table.protocol.writer_features or ())
    with pytest.raises(CheckViolated):
        table.append(spark.createDataFrame([(0,)], "a int"))


# ---- lengths of texts ------------------------------------------------------------------------------


def test_texts_that_are_too_long_fail_the_append(spark: SparkSession, tmp_path: Path) -> None:
    limited, pairs = "__CHAR_VARCHAR_TYPE_STRING", "map<string,struct<x:string,y:string>>"
    table = new_table(
        tmp_path,
        field("v", "string", **{limited: "varchar(3)"}),
        field("c", "string", **{limited: "char(2)"}),
        field("l", "array<string>", **{limited: "array<varchar(2)>"}),
        field("m", pairs, **{limited: "map<string,struct<x:varchar(1),y:string>>"}),
    )
    columns = f"v string, c string, l array<string>, m {pairs}"
    good = ("äöü", "ab", ["ab", None], {"long": ("a", "long")})
    table.append(spark.createDataFrame([good, (None, None, None, None)], columns))
    for row, column, limit in [
        (("abcd", "ab", [], {}), "v", 3),
        (("a", "abc", [], {}), "c", 2),
        (("a", "ab", ["a", "abc"], {}), "l.element", 2),
        (("a", "ab", [], {"k": ("ab", "y")}), "m.value.x", 1),
    ]:
        with pytest.raises(StringTooLong) as caught:
            table.append(spark.createDataFrame([good, row], columns))
        told = caught.value.fields
        assert (told["column"], told["limit"]) == (column, f"of {limit} characters at most")
        assert ("abc" in told["value"], "xxx" in told["value"] or "xx" in told["value"]) == (False, True)
    assert table.version == 1


# ---- defaults --------------------------------------------------------------------------------------


def test_missing_columns_get_their_defaults_and_given_nulls_stay(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(
        tmp_path,
        field("id", "int"),
        field("a", "bigint", False, CURRENT_DEFAULT="6 * 7"),
        field("b", "date", CURRENT_DEFAULT="DATE '2024-02-29'"),
        field("c", "struct<x: int, y: string>", CURRENT_DEFAULT="named_struct('x', 1, 'y', 'why')"),
        field("d", "string"),
    )
    table.append(spark.createDataFrame([(1,)], "id int"))
    table.append(spark.createDataFrame([(2, 5, None)], "id int, A int, b date"))
    default = Row(x=1, y="why")
    expected = [
        Row(id=1, a=42, b=date(2024, 2, 29), c=default, d=None),
        Row(id=2, a=5, b=None, c=default, d=None),
    ]
    assert_same(table.read(spark=spark).collect(), expected)
    with pytest.raises(NotNullViolated, match="Column a"):
        table.append(spark.createDataFrame([(3, None)], "id int, a int"))


NOT_NULL_INSIDE = StructType(
    (
        Field("id", parse_type("int")),
        Field("r", StructType((Field("a", parse_type("int"), False), Field("s", parse_type("struct<x: int>"))))),
        Field("items", ArrayType(StructType((Field("a", parse_type("int"), False),)))),
    )
)


def test_a_null_struct_with_a_not_null_field_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    """As in Delta Lake, which refuses to update tables that have such rows; Iceberg allows them."""
    place = str(tmp_path / "t")
    table = new_table(tmp_path / "t", *NOT_NULL_INSIDE)
    name, full = f"delta.`{place}`", "named_struct('a', 1, 's', null)"
    widen.sql(f"INSERT INTO {name} VALUES (1, {full}, array(null))", spark=spark)
    for statement in (
        f"INSERT INTO {name} VALUES (2, null, null)",
        f"UPDATE {name} SET r = null",
        f"INSERT OVERWRITE {name} SELECT 3, null, null",
        f"MERGE INTO {name} t USING (SELECT 1 id) s ON t.id = s.id WHEN MATCHED THEN UPDATE SET r = null",
        f"MERGE INTO {name} t USING (SELECT 9 id) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id)",
    ):
        with pytest.raises(NotNullViolated, match=r"r\.a"):
            widen.sql(statement, spark=spark)
    with pytest.raises(NotNullViolated, match=r"r\.a"):
        table.append(spark.createDataFrame([(2, None)], "id int, r struct<a: int>"))
    source = tmp_path / "source.json"
    source.write_text('{"id": 2, "r": null}\n{"id": 3}\n{"id": 4, "r": {"s": {"x": 1}}}\n{"id": 5, "r": {"a": 1}}\n')
    done = widen.ingest(str(source), place, spark=spark)
    assert done.quarantined == 3
    assert sorted(row.id for row in Table(place).read(spark=spark).collect()) == [1, 5]


# ---- generated columns -----------------------------------------------------------------------------


def test_generated_columns_are_computed_or_checked(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(
        tmp_path,
        field("at", "timestamp_ntz"),
        field("price", "decimal(10,2)", CURRENT_DEFAULT="1.5"),
        field("day", "date", delta__generationExpression="CAST(at AS DATE)"),
        field("total", "decimal(12,2)", delta__generationExpression="price * 2"),
        partition_by=("day",),
    )
    moment = datetime(2024, 2, 29, 23, 30)
    table.append(spark.createDataFrame([(moment,), (None,)], "at timestamp_ntz"))
    table.append(spark.createDataFrame([(moment, date(2024, 2, 29))], "at timestamp_ntz, day date"))
    found = table.read(spark=spark).selectExpr("string(at)", "string(day)", "string(price)", "string(total)").collect()
    filled = ("2024-02-29 23:30:00", "2024-02-29", "1.50", "3.00")
    assert_same([tuple(row) for row in found], [filled, filled, (None, None, "1.50", "3.00")])
    with pytest.raises(CheckViolated) as caught:
        table.append(spark.createDataFrame([(moment, date(2024, 3, 1))], "at timestamp_ntz, day date"))
    assert caught.value.fields["name"] == "The generated column day"
    assert caught.value.fields["expression"] == "day <=> (CAST(at AS DATE))"
    assert table.version == 2


# ---- identity columns ------------------------------------------------------------------------------


def identity(name: str, *, start: int = 1, step: int = 1, explicit: bool = False, mark: int | None = None) -> Field:
    known = {} if mark is None else {"delta__identity__highWaterMark": mark}
    return field(
        name,
        "bigint",
        delta__identity__start=start,
        delta__identity__step=step,
        delta__identity__allowExplicitInsert=explicit,
        **known,
    )


def marks(table: Table) -> list[int | None]:
    columns = [field.metadata for field in table.snapshot.schema if "delta.identity.start" in field.metadata]
    return [metadata.get("delta.identity.highWaterMark") for metadata in columns]


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_identity_values_are_unique_and_go_on_where_they_ended(
    spark: SparkSession, tmp_path: Path, mapping: str
) -> None:
    fields = (field("n", "bigint"), identity("up"), identity("down", start=100, step=-7, explicit=True))
    table = new_table(tmp_path, *fields, delta__columnMapping__mode=mapping)
    seen_up: set[int] = set()
    seen_down: set[int] = set()
    for turn, partitions in enumerate((1, 4, 2)):
        rows = spark.range(turn * 100, turn * 100 + 50, numPartitions=partitions).withColumnRenamed("id", "n")
        table.append(rows)
        found = table.read(spark=spark).where(f"n >= {turn * 100}").collect()
        up, down = {row.up for row in found}, {row.down for row in found}
        assert len(up) == len(down) == 50
        assert not up & seen_up
        assert not down & seen_down
        assert min(up) > max(seen_up, default=0)
        assert max(down) < min(seen_down, default=101)
        assert all((value - 100) % 7 == 0 for value in down)
        seen_up, seen_down = seen_up | up, seen_down | down
        assert marks(table) == [max(seen_up), min(seen_down)]
    table.append(spark.createDataFrame([(1000, 5)], "n bigint, down bigint"))
    assert marks(table)[1] == min(seen_down)
    with pytest.raises(IdentityColumnGiven, match="up"):
        table.append(spark.createDataFrame([(1, 2)], "n bigint, UP bigint"))


@pytest.mark.parametrize("way", ["append", "INSERT", "MERGE", "replaceWhere", "ingest"])
def test_more_tasks_than_shuffle_partitions_leave_small_gaps(spark: SparkSession, tmp_path: Path, way: str) -> None:
    table = new_table(tmp_path / "t", field("n", "bigint"), identity("i"))
    rows = spark.range(0, 40, numPartitions=7).withColumnRenamed("id", "n")
    if way == "append":
        table.append(rows)
    elif way == "replaceWhere":
        table.overwrite(rows, where="n >= 0")
    elif way == "ingest":
        widen.ingest(rows, table.location, spark=spark)
    else:
        rows.createOrReplaceTempView("seven_tasks")
        place = f"delta.`{table.location}`"
        merge = f"MERGE INTO {place} t USING seven_tasks s ON t.n = s.n WHEN NOT MATCHED THEN INSERT (n) VALUES (s.n)"
        widen.sql(f"INSERT INTO {place} (n) SELECT n FROM seven_tasks" if way == "INSERT" else merge, spark=spark)
    values = [row.i for row in Table(table.location).read(spark=spark).collect()]
    lanes = int(spark.conf.get("spark.sql.shuffle.partitions"))
    assert len(set(values)) == 40
    assert (min(values), max(values) <= 40 * lanes) == (1, True)
    assert marks(Table(table.location)) == [max(values)]


def test_identity_values_end_with_bigint(spark: SparkSession, tmp_path: Path) -> None:
    table = new_table(tmp_path, field("n", "int"), identity("i", mark=9223372036854775806))
    table.append(spark.createDataFrame([(1,)], "n int").coalesce(1))
    assert [row.i for row in table.read(spark=spark).collect()] == [9223372036854775807]
    with pytest.raises(IdentityExhausted, match="Column i"):
        table.append(spark.createDataFrame([(2,)], "n int"))
    assert table.version == 1


def test_every_refused_row_is_of_one_family() -> None:
    assert all(issubclass(kind, RowRefused) for kind in (CheckViolated, NotNullViolated, StringTooLong))


# ---- ingestion -------------------------------------------------------------------------------------


def test_an_ingestion_makes_the_values_that_records_lack(spark: SparkSession, tmp_path: Path) -> None:
    source = tmp_path / "source.json"
    source.write_text('{"n": 1}\n')
    for name, column, value in [
        ("identityColumns", identity("i"), 1),
        ("generatedColumns", field("i", "int", delta__generationExpression="n + 1"), 2),
        ("allowColumnDefaults", field("i", "int", CURRENT_DEFAULT="7"), 7),
    ]:
        table = new_table(tmp_path / name, field("n", "int"), column)
        widen.ingest(str(source), table.location, spark=spark)
        assert [(row.n, row.i) for row in widen.Table(table.location).read(spark=spark).collect()] == [(1, value)], name


@pytest.mark.parametrize("by_text", [True, False])
def test_a_column_that_a_generated_column_uses_is_not_widened(
    spark: SparkSession, tmp_path: Path, *, by_text: bool
) -> None:
    """A wider number gets a column of its own; other columns of the same batch are widened."""
    schema = parse_type("struct<id: int, qty: int, twice: int>")
    assert isinstance(schema, StructType)
    generated = {"delta.generationExpression": "qty * 2"}
    fields = [Field(each.name, each.type, metadata=generated if each.name == "twice" else {}) for each in schema]
    table = widen.create_table(
        str(tmp_path / "t"), StructType(tuple(fields)), properties={"delta.enableTypeWidening": "true"}
    )
    rows = [(1, 1), (2, 3_000_000_000), (3_000_000_000, 4)]
    source: Any = spark.createDataFrame(rows, "id bigint, qty bigint")
    if by_text:
        source = str(tmp_path / "a.json")
        Path(source).write_text("".join(json.dumps({"id": at, "qty": qty}) + "\n" for at, qty in rows))
    done = widen.ingest(source, table.location, spark=spark, verify=True)
    assert done.verification is not None
    assert done.verification.is_clean
    assert done.quarantined == 0
    assert {each.name: each.type.sql for each in table.refresh().schema}["qty"] == "int"
    found = sorted((row.id, row.qty, row.twice, row.qty_long) for row in table.read(spark=spark).collect())
    assert found == [(1, 1, 2, 1), (2, None, None, 3_000_000_000), (3_000_000_000, 4, 8, 4)]
