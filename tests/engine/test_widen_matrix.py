"""Every pair of the matrix, at every depth: files of before and after are read together, exactly."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import widen
from support.exact import form
from support.type_change import CASES, REFUSED
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
        f"{case.name}_{depth} {shape.format(t=getattr(case, which))}"
        for case in CASES
        for depth, shape in DEPTHS.items()
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


def test_partition_columns_widen(spark: SparkSession, tmp_path: Path) -> None:
    location = str(tmp_path / "table")
    names = [case.name for case in CASES]
    old, new = (", ".join(f"{case.name} {getattr(case, which)}" for case in CASES) for which in ("old", "new"))
    table = widen.create_table(location, f"id int, {old}", names, ENABLED)
    table.append(spark.createDataFrame(partitions("before"), f"id int, {old}"))
    for case in CASES:
        table.alter_column(case.name, type=case.new)
    after = [(row[0] + 100, *row[1:]) for row in partitions("after")]
    table.append(spark.createDataFrame(after, f"id int, {new}"))

    read = Table(location).read(spark).collect()

    expected = [*partitions("widened"), *after]
    assert {row.id: _named(names, row[1:]) for row in read} == {
        row[0]: _named(names, map(_read_from_text, row[1:])) for row in expected
    }


def _named(names: list[str], values: Iterable[Any]) -> dict[str, Any]:
    return dict(zip(names, map(form, values), strict=True))


def partitions(which: str) -> list[tuple[Any, ...]]:
    longest = max(len(getattr(case, which)) for case in CASES) + 1
    return [(number, *(_at(getattr(case, which), number) for case in CASES)) for number in range(longest)]


TEXTS = {3.4000000953674316: 3.4, 1234.56787109375: 1234.5679, 3.4028234663852886e38: 3.4028235e38}
TEXTS[1.401298464324817e-45] = 1.4e-45


def _read_from_text(value: Any) -> Any:
    """Return what a partition value reads as: the text of a float is read as a double, as the protocol has it."""
    return TEXTS.get(value, value) if isinstance(value, float) else value


@pytest.mark.parametrize(("old", "new"), REFUSED)
def test_other_pairs_are_refused(tmp_path: Path, old: str, new: str) -> None:
    table = widen.create_table(str(tmp_path), f"a {old}, s struct<b: {old}>", (), ENABLED)
    for path in ("a", "s.b"):
        with pytest.raises(TypeChangeRefused):
            table.alter_column(path, type=new)
    assert table.version == 0
