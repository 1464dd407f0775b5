"""Changes of columns on tables with rows: old files and new ones are read alike, and rows that forbid a change do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

import widen
from widen.errors import ConcurrentAppend, MetadataChanged, WidenError
from widen.spark.spark_types import to_spark
from widen.table import Table

WIDE = {"delta.enableTypeWidening": "true"}
NESTED = (
    "id int, s struct<x: int, y: string>, l array<struct<x: int, y: string>>, m map<string, struct<x: int, y: string>>"
)
ODD = "n `q`.r\n'\";-- 🦆 =(,)"


def rows(spark: SparkSession, found: list[Any], columns: str) -> DataFrame:
    return spark.createDataFrame(found, columns).coalesce(1)


def said(frame: DataFrame) -> list[Any]:
    """The rows as plain values by name, ordered by their first column."""
    return sorted(
        (row.asDict(recursive=True) for row in frame.collect()), key=lambda row: str(next(iter(row.values())))
    )


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "table")


@pytest.mark.parametrize("mode", ["name", "id", "upgraded"])
def test_old_and_new_files_are_read_alike_after_every_kind_of_change(
    spark: SparkSession, place: str, mode: str
) -> None:
    first = {} if mode == "upgraded" else {"delta.columnMapping.mode": mode}
    table = widen.create_table(place, NESTED, properties={**WIDE, **first})
    table.append(rows(spark, [(1, (1, "a"), [(1, "a")], {"k": (1, "a")})], NESTED))
    if mode == "upgraded":
        table.set_properties({"delta.columnMapping.mode": "name"})
    for parent in ("s", "l.element", "m.value"):
        table.rename_column(f"{parent}.x", "z")
        table.alter_column(f"{parent}.z", type="bigint", after="y")
        table.drop_columns(f"{parent}.y")
        table.add_columns({f"{parent}.y": {"type": "date", "first": True}, f"{parent}.x": "int"})
    table.rename_column("id", ODD)
    table.rename_column("l", "id")
    table.alter_column("m", first=True)
    table.append(table.read(spark=spark).selectExpr("*"))
    old = {"y": None, "z": 1, "x": None}
    row = {"m": {"k": old}, ODD: 1, "s": old, "id": [old]}
    assert said(table.read(spark=spark)) == [row, row]
    assert table.schema.sql.startswith("struct<m: map<string,struct<y: date, z: bigint, x: int>>, `n ``q``.r\n'\"")


def test_a_dropped_column_does_not_come_back_with_its_name(spark: SparkSession, place: str) -> None:
    table = widen.create_table(
        place, "p int, a int, b int", partition_by=("p",), properties={"delta.columnMapping.mode": "name"}
    )
    table.append(rows(spark, [(1, 2, 3)], "p int, a int, b int"))
    table.drop_columns("a").rename_column("b", "a").rename_column("p", "b").add_columns({"p": "string"})
    table.append(rows(spark, [(4, 5, "6")], "b int, a int, p string"))
    assert table.partition_by == ("b",)
    assert said(table.read(spark=spark)) == [{"b": 1, "a": 3, "p": None}, {"b": 4, "a": 5, "p": "6"}]
    assert said(table.read(where="b = 1 and a > 2", spark=spark)) == [{"b": 1, "a": 3, "p": None}]
    assert said(table.read(version=1, spark=spark)) == [{"p": 1, "a": 2, "b": 3}]


def test_null_is_forbidden_only_if_no_row_has_it(spark: SparkSession, place: str) -> None:
    table = widen.create_table(place, "a int, s struct<x: int> not null")
    table.append(rows(spark, [Row(a=1, s=Row(x=None)), Row(a=2, s=Row(x=1))], "a int, s struct<x: int>"))
    table.alter_column("a", nullable=False, spark=spark)
    info = table.history(1)[0][2]
    assert (info["operation"], info["isBlindAppend"], info["operationMetrics"]) == (
        "CHANGE COLUMN",
        False,
        {"numCheckedRows": "2"},
    )
    assert json.loads(info["operationParameters"]["column"])["nullable"] is False
    with pytest.raises(WidenError, match=r"DELTA_NEW_NOT_NULL_VIOLATION.*s\.x.* 1 rows"):
        table.alter_column("s.x", nullable=False, spark=spark)
    with pytest.raises(WidenError, match=r"null|NULL"):
        table.append(rows(spark, [(None, (1,))], "a int, s struct<x: int>"))


def test_what_all_rows_allow_fails_when_rows_come_meanwhile(spark: SparkSession, place: str) -> None:
    table = widen.create_table(place, "a int")
    table.append(rows(spark, [(1,)], "a int"))
    late = Table(place)
    late.refresh = lambda: late  # type: ignore[method-assign]
    table.append(rows(spark, [(None,)], "a int"))
    for change in (
        lambda: late.alter_column("a", nullable=False, spark=spark),
        lambda: late.add_constraint("c", "a > 0", spark=spark),
    ):
        with pytest.raises(ConcurrentAppend):
            change()
    assert late.alter_column("a", comment="rows do not matter").version == 3


def test_a_constraint_is_what_all_rows_fulfil(spark: SparkSession, place: str) -> None:
    table = widen.create_table(place, "a int, `b c` struct<x: int>", properties={"delta.columnMapping.mode": "name"})
    table.append(rows(spark, [(1, (2,)), (3, None)], "a int, `b c` struct<x: int>"))
    for name, expression, code, told in [
        ("c", "a > 1", "DELTA_NEW_CHECK_CONSTRAINT_VIOLATION", "1 rows"),
        ("c", "`b c`.x > 0", "DELTA_NEW_CHECK_CONSTRAINT_VIOLATION", "1 rows"),
        ("c", "a + 1", "DELTA_NON_BOOLEAN_CHECK_CONSTRAINT", "a + 1"),
        ("c", "nope > 1", "WIDEN_INVALID_CONSTRAINT", "nope"),
        ("c", "a >", "WIDEN_INVALID_CONSTRAINT", "a >"),
        ("c", "sum(a) > 1", "WIDEN_INVALID_CONSTRAINT", "sum"),
        ("c", "rand() < 2", "WIDEN_INVALID_CONSTRAINT", "rand"),
    ]:
        with pytest.raises(WidenError) as caught:
            table.add_constraint(name, expression, spark=spark)
        assert (caught.value.code, told in str(caught.value)) == (code, True), expression
    table.add_constraint("Positive", "a > 0", spark=spark)
    assert table.properties["delta.constraints.positive"] == "a > 0"
    with pytest.raises(WidenError, match=r"positive -> a > 0"):
        table.drop_columns("a")
    version = table.drop_constraint("POSITIVE").version
    assert table.drop_constraint("positive", if_exists=True).version == version


def test_a_default_has_the_type_of_its_column(spark: SparkSession, place: str) -> None:
    table = widen.create_table(place, "a int, b date", properties={"delta.feature.allowColumnDefaults": "supported"})
    for path, wrong in [("a", "'x'"), ("a", "rand()"), ("a", "nope()"), ("b", "1")]:
        with pytest.raises(WidenError) as caught:
            table.alter_column(path, default=wrong, spark=spark)
        assert caught.value.code == "INVALID_DEFAULT_VALUE", wrong
    table.alter_columns({"a": {"default": "1 + 1"}, "b": {"default": "current_date()"}}, spark=spark)
    assert table.version == 1
    assert table.alter_column("b", default="null", spark=spark).version == 2


def test_an_identity_column_goes_on_behind_its_values(spark: SparkSession, place: str) -> None:
    table = widen.create_table(place, "id bigint, v int")
    table.append(rows(spark, [(25, 1), (7, 2)], "id bigint, v int"))
    log = Path(place, "_delta_log", "00000000000000000002.json")
    metadata = json.loads(Path(place, "_delta_log", "00000000000000000000.json").read_text().splitlines()[1])
    identity = {"delta.identity.start": 1, "delta.identity.step": 10, "delta.identity.allowExplicitInsert": True}
    schema = json.loads(metadata["metaData"]["schemaString"])
    schema["fields"][0]["metadata"] = identity
    metadata["metaData"]["schemaString"] = json.dumps(schema)
    protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 6}}
    log.write_text("\n".join(map(json.dumps, ({"commitInfo": {}}, metadata, protocol))))
    table = Table(place).sync_identity("ID", spark=spark)
    assert table.snapshot.schema.fields[0].metadata == {**identity, "delta.identity.highWaterMark": 31}
    assert json.loads(table.history(1)[0][2]["operationParameters"]["column"])["metadata"] == identity
    assert table.sync_identity("id", spark=spark).version == 3
    with pytest.raises(WidenError, match="DELTA_IDENTITY_COLUMNS_ALTER_NON_IDENTITY_COLUMN"):
        table.sync_identity("v", spark=spark)


ODD_NAMES = [ODD, "a.b", "`", "element", "'; drop table x --", "ключ", "\\n", " "]


def test_odd_names_survive_the_way_to_the_files_and_back(spark: SparkSession, place: str) -> None:
    table = widen.create_table(place, "a int, s struct<a: int>", properties={"delta.columnMapping.mode": "name"})
    first, *others = ODD_NAMES
    table.rename_column("a", first).rename_column(("s", "a"), first)
    table.add_columns({(*above, name): "int" for name in others for above in ((), ("s",))})
    table.alter_columns({(name,): {"comment": name, "after": first} for name in others})
    table.alter_columns({("s", name): {"comment": name, "first": True} for name in others})
    reopened = Table(place)
    assert reopened.schema.names == (first, *reversed(others), "s")
    assert [field.metadata.get("comment") for field in reopened.schema] == [None, *reversed(others), None]
    reopened.append(spark.createDataFrame([(*range(8), tuple(range(8)))], to_spark(reopened.schema)))
    top = dict(zip(reopened.schema.names, range(8), strict=False))
    inner = {**{name: at for at, name in enumerate(reversed(others))}, first: 7}
    assert said(reopened.read(spark=spark)) == [{**top, "s": inner}]
    reopened.drop_columns(*((name,) for name in others), *(("s", name) for name in others))
    assert said(reopened.read(spark=spark)) == [{first: 0, "s": {first: 7}}]


def test_of_two_changes_at_once_one_lands_and_the_other_is_told_why(place: str) -> None:
    table = widen.create_table(place, "a int", properties=WIDE)
    late = Table(place)
    late.refresh = lambda: late  # type: ignore[method-assign]
    table.alter_column("a", type="bigint")
    with pytest.raises(MetadataChanged, match=r"DELTA_METADATA_CHANGED.*Version 1 .*CHANGE COLUMN by Widen/"):
        late.alter_column("a", type="bigint")
    assert Table(place).version == 1
