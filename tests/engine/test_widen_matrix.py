"""Every pair of the matrix, at every depth: files of before and after are read together, exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from support.exact import form
from support.type_change import CASES, REFUSED, Case

import widen
from widen.errors import TypeChangeRefused
from widen.table import Table

DEPTHS = {
    "top": "{t}",
    "inside": "struct<x: {t}, y: string>",
    "items": "array<{t}>",
    "keys": "map<{t}, string>",
    "vals": "map<string, {t}>",
    "deep": "array<struct<z: map<string, {t}>>>",
}
STEPS = {
    "top": "",
    "inside": ".x",
    "items": ".element",
    "keys": ".key",
    "vals": ".value",
    "deep": ".element.z.value",
}
ENABLED = {"delta.enableTypeWidening": "true", "delta.feature.timestampNtz": "supported"}


def nested(depth: str, value: Any) -> Any:
    """Return a value as it stands at a depth; NaN and null keys, which no map should have, are left out."""
    if depth == "keys":
        return {} if value is None or value != value else {value: "v"}
    return {
        "top": value,
        "inside": (value, "y"),
        "items": [value, None],
        "vals": {"k": value},
        "deep": [({"k": value},)],
    }[depth]


def columns(which: str) -> str:
    return ", ".join(
        f"{case.name}_{depth} {shape.format(t=getattr(case, which))}" for case in CASES for depth, shape in DEPTHS.items()
    )


def rows(which: str) -> list[tuple[Any, ...]]:
    longest = max(len(getattr(case, which)) for case in CASES) + 1
    return [
        (number, f"p{number % 2}")
        + tuple(nested(depth, _at(getattr(case, which), number)) for case in CASES for depth in DEPTHS)
        for number in range(longest)
    ]


def _at(values: tuple[Any, ...], number: int) -> Any:
    return values[number] if number < len(values) else None


def values_of(row: Any) -> list[Any]:
    return [form(_plain(value)) for value in row]


def _plain(value: Any) -> Any:
    """Return a value without the names of struct fields, which are compared through the schema."""
    match value:
        case tuple():
            return tuple(map(_plain, value))
        case list():
            return [_plain(v) for v in value]
        case dict():
            return {_plain(k): _plain(v) for k, v in value.items()}
    return value


@pytest.mark.parametrize("partition_by", [(), ("p",)], ids=["flat", "partitioned"])
@pytest.mark.parametrize("mapping", ["none", "name", "id"])
def test_old_and_new_files_read_exactly(
    spark: SparkSession, tmp_path: Path, mapping: str, partition_by: tuple[str, ...]
) -> None:
    location = str(tmp_path / "table")
    properties = {**ENABLED, "delta.columnMapping.mode": mapping}
    table = widen.create_table(location, f"id int, p string, {columns('old')}", partition_by, properties)
    before = spark.createDataFrame(rows("before"), f"id int, p string, {columns('old')}")
    table.append(before)
    for case in CASES:
        for depth, step in STEPS.items():
            table.alter_column(f"{case.name}_{depth}{step}", type=case.new)
    after = [(row[0] + 100, *row[1:]) for row in rows("after")]
    table.append(spark.createDataFrame(after, f"id int, p string, {columns('new')}"))

    read = Table(location).read(spark)
    found = {row.id: values_of(row) for row in read.collect()}

    expected = {row[0]: values_of(row) for row in [*rows("widened"), *after]}
    assert {number: found[number] for number in expected} == expected
    assert found.keys() == expected.keys()
    assert [(f.name, f.dataType.simpleString(), f.metadata) for f in read.schema] == [
        (f.name, f.dataType.simpleString(), {})
        for f in spark.createDataFrame([], f"id int, p string, {columns('new')}").schema
    ]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_partition_column_widens(spark: SparkSession, tmp_path: Path, case: Case) -> None:
    location = str(tmp_path / "table")
    table = widen.create_table(location, f"id int, p {case.old}", ["p"], ENABLED)
    table.append(spark.createDataFrame([*enumerate(case.before), (90, None)], f"id int, p {case.old}"))
    table.alter_column("p", type=case.new)
    table.append(spark.createDataFrame([(100 + n, v) for n, v in enumerate(case.after)], f"id int, p {case.new}"))

    found = {row.id: form(row.p) for row in Table(location).read(spark).collect()}

    expected = {90: form(None), **{100 + n: form(v) for n, v in enumerate(case.after)}}
    expected |= {n: form(_partition(v, w)) for n, (v, w) in enumerate(zip(case.before, case.widened, strict=True))}
    assert found == expected


def _partition(before: Any, widened: Any) -> Any:
    """Return what a partition value reads as: the text of a float is read as a double, as the protocol has it."""
    texts = {3.4000000953674316: 3.4, 1234.56787109375: 1234.5679, 3.4028234663852886e38: 3.4028235e38}
    texts[1.401298464324817e-45] = 1.4e-45
    return texts.get(before, widened) if isinstance(before, float) else widened


@pytest.mark.parametrize(("old", "new"), REFUSED)
def test_other_pairs_are_refused(tmp_path: Path, old: str, new: str) -> None:
    table = widen.create_table(str(tmp_path), f"a {old}, s struct<b: {old}>", (), ENABLED)
    for path in ("a", "s.b"):
        with pytest.raises(TypeChangeRefused):
            table.alter_column(path, type=new)
    assert table.version == 0
