"""Tables that Iceberg can read: what stands in their files."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest
from pyspark.sql import Row, SparkSession

import widen
from support.change import in_one_task
from support.exact import assert_same
from widen.errors import CheckViolated, IcebergIncompatible, SchemaMismatch, TypeChangeRefused
from widen.model.column_path import fields
from widen.table import Table

V1, V2 = {"delta.enableIcebergCompatV1": "true"}, {"delta.enableIcebergCompatV2": "true"}
WIDE = {"delta.enableTypeWidening": "true"}
MOMENT = datetime(2024, 2, 29, 12, 30, 15, 123456)


def files(table: Table) -> list[tuple[Path, dict[str, str | None], dict[str, Any]]]:
    """Path, partition values and statistics of every live file."""
    found = table.files().select(["path", "partition_values", "stats"]).to_pylist()
    paths = [Path(table.location, unquote(each["path"])) for each in found]
    said = [(dict(each["partition_values"]), json.loads(each["stats"])) for each in found]
    return [(path, *what) for path, what in zip(paths, said, strict=True)]


def parquet_ids(path: Path) -> dict[str, int]:
    """The id of every node of a Parquet schema that has one, by its path."""
    found: dict[str, int] = {}

    def walk(node: Any, at: str) -> None:
        number = (node.metadata or {}).get(b"PARQUET:field_id")
        where = f"{at}.{node.name}" if at else node.name
        if number is not None:
            found[where] = int(number)
        if str(node.type).startswith("map"):
            walk(node.type.key_field, where)
            walk(node.type.item_field, where)
        elif str(node.type).startswith("list"):
            walk(node.type.value_field.with_name("element"), where)
        elif str(node.type).startswith("struct"):
            for at_child in range(node.type.num_fields):
                walk(node.type.field(at_child), where)

    for node in pq.read_schema(path):
        walk(node, "")
    return found


def test_an_empty_string_of_a_partition_is_null_in_the_log_and_in_the_file(spark: SparkSession, tmp_path: Path) -> None:
    """Source: PROTOCOL.md#partition-value-serialization"""
    table = widen.create_table(str(tmp_path), "n int, p string", partition_by=["p"], properties=V2)
    table.append(spark.sql("SELECT 1 AS n, '' AS p UNION ALL SELECT 2, NULL UNION ALL SELECT 3, 'x'").coalesce(1))
    for path, values, _ in files(table):
        [text] = values.values()
        stored = pq.ParquetFile(path).read()
        assert set(stored.column(stored.num_columns - 1).to_pylist()) == {text}
    assert {text for _, values, _ in files(table) for text in values.values()} == {None, "x"}
    assert sorted(map(tuple, table.read(spark=spark).collect())) == [(1, None), (2, None), (3, "x")]


@pytest.mark.parametrize("mapping", ["name", "id"])
def test_elements_keys_and_values_have_their_ids_in_the_files(
    spark: SparkSession, tmp_path: Path, mapping: str
) -> None:
    columns = "l array<array<int>>, m map<string, struct<x: array<decimal(9,2)>>>, s struct<t: timestamp>"
    table = widen.create_table(str(tmp_path), columns, properties={**V2, "delta.columnMapping.mode": mapping})
    instant = MOMENT.replace(tzinfo=timezone.utc)
    row = ([[1, None], None], {"k": ([Decimal("1.10")],)}, (instant,))
    table.append(spark.createDataFrame([row, (None, None, None)], columns))
    known: dict[str, int] = {}
    names = {".".join(p): f.metadata["delta.columnMapping.physicalName"] for p, f in fields(table.snapshot.schema)}
    for _, field in fields(table.snapshot.schema):
        known[field.metadata["delta.columnMapping.physicalName"]] = field.metadata["delta.columnMapping.id"]
        known.update(field.metadata.get("delta.columnMapping.nested.ids", {}))
    lists, maps, inner, struct, time = (names[at] for at in ("l", "m", "m.value.x", "s", "s.t"))
    for path, _, _ in files(table):
        found = parquet_ids(path)
        assert found == {
            lists: known[lists],
            f"{lists}.element": known[f"{lists}.element"],
            f"{lists}.element.element": known[f"{lists}.element.element"],
            maps: known[maps],
            f"{maps}.key": known[f"{maps}.key"],
            f"{maps}.value": known[f"{maps}.value"],
            f"{maps}.value.{inner}": known[inner],
            f"{maps}.value.{inner}.element": known[f"{inner}.element"],
            struct: known[struct],
            f"{struct}.{time}": known[time],
        }
        assert len(set(found.values())) == len(found)
        physical = {column.path: column.physical_type for column in pq.read_metadata(path).schema}
        assert physical[f"{struct}.{time}"] == "INT64"
    expected = Row(l=[[1, None], None], m={"k": Row(x=[Decimal("1.10")])}, s=row[2])
    assert table.read(spark=spark).where("l is not null").select("l", "m").collect() == [
        Row(l=expected.l, m=expected.m)
    ]
    assert table.read(spark=spark).where(f"s.t = timestamp'{instant.isoformat()}'").count() == 1


@pytest.mark.parametrize("switch", [V1, V2])
def test_partition_columns_stand_in_the_files_after_the_others(
    spark: SparkSession, tmp_path: Path, switch: dict[str, str]
) -> None:
    columns = "p string, a int, d date, b string, t timestamp_ntz"
    table = widen.create_table(str(tmp_path), columns, partition_by=["p", "d", "t"], properties=switch)
    day, other = date(2024, 2, 29), date(1, 1, 1)
    rows = [
        ("a/b", 1, day, "one", MOMENT),
        ("a/b", 2, day, "two", MOMENT),
        ("ü %", 3, other, None, None),
        (None, 4, None, "four", MOMENT),
        ("", 5, None, "five", MOMENT),
    ]
    table.append(spark.createDataFrame(rows, columns).repartition(2))
    names = {field.name: field.metadata["delta.columnMapping.physicalName"] for field in table.snapshot.schema}
    stored = [names[name] for name in ("a", "b", "p", "d", "t")]
    seen = set()
    for path, values, stats in files(table):
        assert pq.read_schema(path).names == stored
        content = pq.read_table(path).to_pylist()
        assert stats["numRecords"] == len(content)
        assert set(stats["minValues"]) <= {names["a"], names["b"]}
        seen.add((values[names["p"]], values[names["d"]], values[names["t"]]))
        for found in content:
            assert found[names["p"]] == values[names["p"]]
            assert (None if found[names["d"]] is None else found[names["d"]].isoformat()) == values[names["d"]]
    time = "2024-02-29 12:30:15.123456"
    assert seen == {("a/b", "2024-02-29", time), ("ü %", "0001-01-01", None), (None, None, time)}
    expected = [Row(p=p or None, a=a, d=d, b=b, t=t) for p, a, d, b, t in rows]
    assert_same(table.read(spark=spark).collect(), expected)
    assert_same(table.read(where="p = 'a/b' and a > 1", spark=spark).select("a").collect(), [Row(a=2)])


def test_names_in_files_may_have_dots(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "`a.b` int, `p.q` string", partition_by=["p.q"])
    table.set_properties({**V2, "delta.columnMapping.mode": "name"})
    table.append(spark.sql("SELECT 1 `a.b`, 'x' `p.q`"))
    assert [tuple(row) for row in table.read("`a.b` = 1", spark=spark).collect()] == [(1, "x")]


def test_rules_hold_there_too_and_nothing_is_left_of_what_fails(spark: SparkSession, tmp_path: Path) -> None:
    properties = {**V2, "delta.constraints.positive": "a > 0"}
    table = widen.create_table(str(tmp_path), "a int not null, l array<int>", properties=properties)
    table.append(spark.createDataFrame([(1, [1])], "a int, l array<int>"))
    with pytest.raises(CheckViolated, match="positive"):
        table.append(in_one_task(spark, [(1, [1]), (-1, [2])], "a int, l array<int>"))
    table.append(spark.createDataFrame([], "a int, l array<int>"))
    assert len([path for path in tmp_path.rglob("*.parquet") if "_delta_log" not in path.parts]) == 1
    assert_same(table.read(spark=spark).collect(), [Row(a=1, l=[1])])


def test_types_change_only_as_iceberg_knows(spark: SparkSession, tmp_path: Path) -> None:
    table = widen.create_table(str(tmp_path), "a int, f float, l array<int>", properties={**V2, **WIDE})
    table.append(spark.createDataFrame([(1, 0.5, [1])], "a int, f float, l array<int>"))
    with pytest.raises(TypeChangeRefused, match=r"from INT to DOUBLE.*icebergCompatV2"):
        table.alter_column("l.element", type="double")
    with pytest.raises(SchemaMismatch, match="a is int in the table and double in the data"):
        table.append(spark.createDataFrame([(1.5,)], "a double"), merge_schema=True)
    table.append(spark.createDataFrame([(2.0, [7])], "a double, l array<bigint>"), merge_schema=True, cast=True)
    table.alter_column("f", type="double").append(spark.createDataFrame([(0.1,)], "f double"))
    assert table.schema.sql == "struct<a: int, f: double, l: array<bigint>>"
    expected = [Row(a=1, f=0.5, l=[1]), Row(a=2, f=None, l=[7]), Row(a=None, f=0.1, l=None)]
    assert_same(table.read(spark=spark).collect(), expected)


def test_compatibility_begins_only_where_the_files_allow_it(spark: SparkSession, tmp_path: Path) -> None:
    mapped = {"delta.columnMapping.mode": "name", **WIDE}
    table = widen.create_table(str(tmp_path / "split"), "a int, p int", partition_by=["p"], properties=mapped)
    table.append(spark.createDataFrame([(1, 1)], "a int, p int"))
    with pytest.raises(IcebergIncompatible, match="PARTITION_COLUMNS_NOT_IN_FILES"):
        table.set_properties(V1)
    table.set_properties(V2).append(spark.createDataFrame([(2, 2)], "a int, p int"))
    assert_same(table.read(spark=spark).collect(), [Row(a=1, p=1), Row(a=2, p=2)])
    changed = widen.create_table(str(tmp_path / "changed"), "a int", properties=mapped)
    changed.append(spark.createDataFrame([(1,)], "a int")).table.alter_column("a", type="double")
    with pytest.raises(IcebergIncompatible, match=r"UNSUPPORTED_TYPE_WIDENING.*from int to double"):
        changed.set_properties(V2)
    assert Table(changed.location).version == 2
