"""Appends that let a table grow: which types widen by themselves, what is cast on request, what is refused.

Expected answers are those of the acceptance matrix of Delta Lake's INSERT with schema evolution.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row, SparkSession

import widen
from support.exact import assert_same
from support.type_change import CASES, REFUSED, Case
from widen.errors import CastOverflow, InvalidOption, SchemaMismatch
from widen.model.schema_json import parse_type
from widen.protocol.type_widening import all_type_changes
from widen.spark.session import AUTO_MERGE, AUTOMATIC_WIDENING
from widen.table import Table

ENABLED = {"delta.enableTypeWidening": "true", "delta.feature.timestampNtz": "supported"}
DEPTHS = ("{}", "struct<x: {}>", "array<{}>", "map<{}, int>", "map<int, {}>")
RESTRICTED = {"double", "decimal(10,0)", "decimal(12,2)", "decimal(20,0)", "decimal(38,18)"}
"""What integers become only where every automatic widening is allowed."""


def is_restricted(case: Case) -> bool:
    return case.old in {"tinyint", "smallint", "int", "bigint"} and case.new in RESTRICTED


def columns(cases: list[Case], side: str) -> str:
    """One column for every case and depth."""
    found = [
        (f"{case.name}_{at}", depth.format(getattr(case, side))) for case in cases for at, depth in enumerate(DEPTHS)
    ]
    return ", ".join(f"{name} {kind}" for name, kind in found)


def row(cases: list[Case], side: str) -> tuple[Any, ...]:
    """The first value of every case, at every depth."""
    found: list[Any] = []
    for case in cases:
        value = getattr(case, side)[0]
        found += [value, (value,), [value, None], {value: 1}, {1: value}]
    return tuple(found)


def frame(spark: SparkSession, schema: str, *rows: tuple[Any, ...]) -> DataFrame:
    return spark.createDataFrame(list(rows), schema)


@contextmanager
def session(spark: SparkSession, **settings: str) -> Iterator[None]:
    keys = {"merge": AUTO_MERGE, "widening": AUTOMATIC_WIDENING}
    for name, value in settings.items():
        spark.conf.set(keys[name], value)
    try:
        yield
    finally:
        for name in settings:
            spark.conf.unset(keys[name])


def sql_type(table: Table, column: str) -> str:
    found = table.schema.find(column)
    assert found is not None
    return found.type.sql


# ---- modes -----------------------------------------------------------------------------------------


def test_every_pair_of_the_matrix_widens_at_every_depth(spark: SparkSession, tmp_path: Path) -> None:
    cases = list(CASES)
    table = widen.create_table(str(tmp_path), columns(cases, "old"), properties=ENABLED)
    table.append(frame(spark, columns(cases, "old"), row(cases, "before")))
    table.append(frame(spark, columns(cases, "new"), row(cases, "after")), merge_schema=True)
    wanted = spark.createDataFrame([], columns(cases, "new")).schema.simpleString()
    assert table.read(spark=spark).schema.simpleString() == wanted
    steps = [(".".join(path), str(c.old), str(c.new)) for path, c in all_type_changes(table.snapshot.schema)]
    places = ("", ".x", ".element", ".key", ".value")
    assert steps == [
        (f"{case.name}_{at}{place}", str(parse_type(case.old)), str(parse_type(case.new)))
        for case in cases
        for at, place in enumerate(places)
    ]
    expected = [row(cases, "widened"), row(cases, "after")]
    found = [tuple(_plain(value) for value in each) for each in table.read(spark=spark).collect()]
    assert_same(found, [tuple(_plain(value) for value in each) for each in expected])


def _plain(value: Any) -> Any:
    return tuple(value) if isinstance(value, tuple) else value


def test_the_same_family_is_all_that_widens_where_that_is_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), columns(list(CASES), "old"), properties=ENABLED)
    family = [case for case in CASES if not is_restricted(case)]
    with session(spark, widening="Same_Family_Type", merge="true"):
        table.append(frame(spark, columns(family, "new"), row(family, "after")))
    for case in CASES:
        wanted = case.old if is_restricted(case) else case.new
        assert sql_type(table, f"{case.name}_0") == wanted
        assert sql_type(table, f"{case.name}_2") == f"array<{wanted}>"
    others = [case for case in CASES if is_restricted(case)]
    with pytest.raises(SchemaMismatch) as caught:
        table.append(frame(spark, columns(others, "new")), merge_schema=True, widening="same_family")
    told = caught.value.fields["reason"].split("; ")  # type: ignore[attr-defined]
    assert len(told) == len(others) * len(DEPTHS)
    assert f"{others[0].name}_0 is {others[0].old} in the table and {others[0].new} in the data" in told


def test_nothing_widens_where_that_is_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a smallint, b double", properties=ENABLED)
    with pytest.raises(SchemaMismatch, match="a is smallint in the table and int in the data"):
        table.append(frame(spark, "a int", (1,)), merge_schema=True, widening="NEVER")
    data = frame(spark, "a int, b decimal(3,1), n int", (7, Decimal("1.5"), 1))
    table.append(data, merge_schema=True, widening="never", cast=True)
    assert table.schema.sql == "struct<a: smallint, b: double, n: int>"
    with pytest.raises(CastOverflow) as caught:
        table.append(frame(spark, "a int", (1,), (70_000,)), merge_schema=True, widening="never", cast=True)
    assert caught.value.fields == {"column": "a", "value": "99999", "old": "int", "new": "smallint"}
    assert_same(Table(str(tmp_path)).read(spark=spark).collect(), [Row(a=7, b=1.5, n=1)])


NARROWER = {("int", "tinyint"), ("bigint", "int"), ("double", "float"), ("timestamp_ntz", "date")}
NARROWER |= {("decimal(9,2)", "decimal(8,2)")}
"""Of the refused pairs those whose values fit the column as it is."""


def test_a_pair_that_is_not_in_the_matrix_changes_no_type(spark: SparkSession, tmp_path: Path) -> None:
    types = ", ".join(f"c{at} {old}" for at, (old, _) in enumerate(REFUSED))
    table = widen.create_table(str(tmp_path), types, properties=ENABLED)
    data = ", ".join(f"c{at} {new}" for at, (_, new) in enumerate(REFUSED))
    with pytest.raises(SchemaMismatch) as caught:
        table.append(frame(spark, data), merge_schema=True)
    assert caught.value.fields["reason"].split("; ") == [  # type: ignore[attr-defined]
        f"c{at} is {old} in the table and {new} in the data"
        for at, (old, new) in enumerate(REFUSED)
        if (old, new) not in NARROWER
    ]
    fitting = ", ".join(f"c{at} {new}" for at, (old, new) in enumerate(REFUSED) if (old, new) in NARROWER)
    table.append(frame(spark, fitting), merge_schema=True)
    assert (table.version, table.type_changes) == (1, [])
    assert [field.type.sql for field in table.schema] == [old for old, _ in REFUSED]


def test_only_a_wider_type_widens_not_one_that_overlaps(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "d decimal(10,2), i int, l bigint, w decimal(10,2)", properties=ENABLED)
    data = frame(
        spark,
        "d decimal(5,4), i decimal(5,2), l double, w int",
        (Decimal("1.2345"), Decimal("7.51"), 2.0**40, 5),
    )
    with pytest.raises(SchemaMismatch) as caught:
        table.append(data, merge_schema=True)
    assert caught.value.fields["plan"] == (
        "  - cast d from decimal(5,4) to decimal(10,2)\n"
        "  - cast i from decimal(5,2) to int\n"
        "  - cast l from double to bigint\n"
        "  - cast w from int to decimal(10,2)"
    )
    table.append(data, merge_schema=True, cast=True)
    assert_same(table.read(spark=spark).collect(), [Row(d=Decimal("1.23"), i=7, l=2**40, w=Decimal("5.00"))])


# ---- what must be on -------------------------------------------------------------------------------


def test_types_widen_only_where_the_schema_may_grow(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a smallint", properties=ENABLED)
    wide = frame(spark, "a int", (70_000,))
    for grows in (None, False):
        with pytest.raises(SchemaMismatch, match="merge_schema=True"):
            table.append(wide, merge_schema=grows)
    with pytest.raises(CastOverflow, match="99999"):
        table.append(wide, cast=True)
    with session(spark, merge="true"), pytest.raises(SchemaMismatch, match="a is smallint"):
        table.append(wide, merge_schema=False)
    with session(spark, merge="TRUE", widening="never"):
        table.append(wide, widening="always")
    assert table.schema.sql == "struct<a: int>"


def test_types_widen_only_where_that_is_enabled(spark: SparkSession, tmp_path: Path) -> None:
    disabled = {**ENABLED, "delta.feature.typeWidening": "supported", "delta.enableTypeWidening": "false"}
    table = widen.create_table(str(tmp_path), "a smallint", properties=disabled)
    with pytest.raises(SchemaMismatch, match=r"delta\.enableTypeWidening"):
        table.append(frame(spark, "a int", (1,)), merge_schema=True)
    table.append(frame(spark, "a int", (1,)), merge_schema=True, cast=True)
    assert (table.schema.sql, table.type_changes) == ("struct<a: smallint>", [])
    with pytest.raises(InvalidOption, match="always, same_family, never"):
        table.append(frame(spark, "a int"), widening="sometimes")
    with session(spark, widening="bla"), pytest.raises(InvalidOption, match="bla"):
        table.append(frame(spark, "a int"))


# ---- growth and upcasts together -------------------------------------------------------------------

NESTED = "s struct<x: smallint, y: bigint>, m map<string, smallint>, a array<smallint>"
"""A narrower and a wider field beside each other, a new field, and all of it inside an array and a map too."""


def test_wider_narrower_missing_and_new_fields_at_once(spark: SparkSession, tmp_path: Path) -> None:
    inner = "struct<x: smallint, y: bigint, z: date>"
    columns = f"id int, s {inner}, l array<{inner}>, m map<string, {inner}>"
    table = widen.create_table(str(tmp_path), columns, properties=ENABLED)
    table.append(frame(spark, f"id int, s {inner}", (1, (1, 2, None))))
    data = "struct<n: string, Y: int, X: int>"
    item = ("new", 5, 70_000)
    columns = f"id bigint, S {data}, l array<{data}>, m map<string, {data}>"
    table.append(frame(spark, columns, (2**40, item, [item, None], {"k": item})), merge_schema=True)
    grown = "struct<x: int, y: bigint, z: date, n: string>"
    assert table.schema.sql == f"struct<id: bigint, s: {grown}, l: array<{grown}>, m: map<string,{grown}>>"
    full = Row(x=70_000, y=5, z=None, n="new")
    expected = [
        Row(id=1, s=Row(x=1, y=2, z=None, n=None), l=None, m=None),
        Row(id=2**40, s=full, l=[full, None], m={"k": full}),
    ]
    assert_same(table.read(spark=spark).collect(), expected)


def test_partition_columns_widen_too(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(
        str(tmp_path), "a int, p int, d date, m decimal(4,1)", partition_by=["p", "d", "m"], properties=ENABLED
    )
    day, time = date(2024, 2, 29), datetime(2024, 2, 29, 12, 30)
    narrow, wide = "a int, p int, d date, m decimal(4,1)", "a int, p bigint, d timestamp_ntz, m decimal(8,3)"
    table.append(frame(spark, narrow, (1, 7, day, Decimal("1.5")), (2, None, None, None)))
    later = frame(spark, wide, (3, 2**40, time, Decimal("0.125")), (4, 7, None, Decimal("1.5")))
    table.append(later, merge_schema=True)
    assert table.schema.sql == "struct<a: int, p: bigint, d: timestamp_ntz, m: decimal(8,3)>"
    expected = [
        Row(a=1, p=7, d=datetime(2024, 2, 29), m=Decimal("1.500")),
        Row(a=2, p=None, d=None, m=None),
        Row(a=3, p=2**40, d=time, m=Decimal("0.125")),
        Row(a=4, p=7, d=None, m=Decimal("1.500")),
    ]
    assert_same(table.read(spark=spark).collect(), expected)
    assert {row.a for row in table.read(where="p = 7 and m = 1.5", spark=spark).collect()} == {1, 4}


def test_casts_reach_every_depth_and_name_the_value_that_does_not_fit(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), NESTED)
    wide = "s struct<x: double, y: decimal(20,0)>, m map<string, bigint>, a array<bigint>"
    table.append(frame(spark, wide, ((1.9, Decimal(5)), {"k": 7}, [8, None])), cast=True)
    assert_same(table.read(spark=spark).collect(), [Row(s=Row(x=1, y=5), m={"k": 7}, a=[8, None])])
    far = 10**5
    for values, column, value in [
        (((float(far), None), None, None), "s.x", "999999.9"),
        (((float("nan"), None), None, None), "s.x", "XxX"),
        ((None, {"k": far}, None), "m.value", "999999"),
        ((None, None, [1, far]), "a.element", "999999"),
    ]:
        with pytest.raises(CastOverflow) as caught:
            table.append(frame(spark, wide, values), cast=True)
        assert (caught.value.fields["column"], caught.value.fields["value"]) == (column, value)
    assert (Table(str(tmp_path)).version, caught.value.code) == (1, "CAST_OVERFLOW_IN_TABLE_INSERT")


def test_casts_do_not_depend_on_the_session(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a tinyint, s string")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with pytest.raises(CastOverflow, match="999"):
            table.append(frame(spark, "a int", (300,)), cast=True)
        table.append(frame(spark, "a int, s decimal(4,2)", (3, Decimal("1.50"))), cast=True)
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
    assert_same(table.read(spark=spark).collect(), [Row(a=3, s="1.50")])


def test_columns_without_a_type_get_one_and_record_nothing(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a int, v void, s struct<x: int, v: void>")
    table.append(frame(spark, "a int, s struct<x: int>", (1, (2,))))
    table.append(frame(spark, "v string, s struct<v: array<int>>", ("x", ([3],))), merge_schema=True)
    assert table.schema.sql == "struct<a: int, v: string, s: struct<x: int, v: array<int>>>"
    assert (table.type_changes, table.protocol.writer_features) == ([], None)
    expected = [Row(a=1, v=None, s=Row(x=2, v=None)), Row(a=None, v="x", s=Row(x=None, v=[3]))]
    assert_same(table.read(spark=spark).collect(), expected)


# ---- the history of types --------------------------------------------------------------------------


def test_the_history_stays_in_the_log_and_goes_nowhere_else(spark: SparkSession, tmp_path: Path) -> None:
    columns = "a smallint, m map<smallint, struct<x: smallint>>"
    table = widen.create_table(str(tmp_path / "one"), columns, properties=ENABLED)
    wide = "a int, m map<int, struct<x: int>>"
    table.append(frame(spark, wide, (1, {1: (1,)})), merge_schema=True)
    kept = list(all_type_changes(table.snapshot.schema))
    assert [".".join(path) for path, _ in kept] == ["a", "m.key", "m.value.x"]
    table.add_columns({"n": "int"}).alter_column("a", comment="c").set_properties({"note": "x"})
    table.set_properties({"delta.enableTypeWidening": "false"}).append(frame(spark, "a int, n int", (2, 3)))
    assert list(all_type_changes(table.snapshot.schema)) == kept
    read = table.read(spark=spark)
    assert {str(field.metadata) for field in read.schema} == {"{}", "{'comment': 'c'}"}
    other = widen.create_table(str(tmp_path / "other"), read.schema)
    other.append(read.select("*"))
    assert (other.type_changes, other.protocol.min_writer_version) == ([], 2)
    assert "typeChanges" not in other.metadata.schema_string
    assert_same(other.read(spark=spark).collect(), read.collect())
