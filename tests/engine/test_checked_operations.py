"""Checks before a change of columns: Arrow and Spark count the same rows, and judge defaults alike."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from widen import Table, create_table
from widen.errors import ConstraintRefused, EngineUnsuitable, WidenError
from widen.frames import row_checks
from widen.log.snapshot import Snapshot
from widen.model.column_path import parse_path
from widen.schema.operations import AddConstraint, Operation, SetDefault, SetNotNull
from widen.spark.engine import Engine, LocalSession, Unsupported
from widen.table.open_table import to_table_schema

KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "mapped": {"properties": {"delta.columnMapping.mode": "name"}},
    "deleted": {"properties": {"delta.enableDeletionVectors": "true"}},
    "partitioned": {"partition_by": ["id", "t"]},
}
OPERANDS = {
    "id": ["0", "1", "2.5", "-3"],
    "n": ["0", "9223372036854775807", "1e3"],
    "d": ["0.5", "0", "double('NaN')"],
    "t": ["'b'", "''", "'é'"],
    "day": ["DATE '2020-02-29'", "'2020-03-01'"],
    "at": ["TIMESTAMP '2020-01-01 00:00:00'"],
    "amount": ["1.25", "0", "1"],
    "s.x": ["1", "0"],
    "s.y": ["'b'"],
}


VALUES = {
    "id int": ("0", "1", "2", "-3"),
    "n bigint": ("0", "9223372036854775807", "1000"),
    "d double": ("0.5D", "-0.0D", "double('NaN')"),
    "t string": ("'a'", "''", "'é'"),
    "day date": ("DATE '2020-02-29'", "DATE '1600-01-01'"),
    "at timestamp": ("TIMESTAMP '2020-01-01 00:00:00'",),
    "amount decimal(9,2)": ("1.25", "0", "-7.5"),
    "s struct<x int, y string>": ("named_struct('x', 1, 'y', 'b')", "named_struct('x', NULL, 'y', '')"),
}


def write_rows(spark: SparkSession, place: Path, kind: str, numbers: random.Random) -> Table:
    table = create_table(place, ", ".join(VALUES), **KINDS[kind])
    for _ in range(2):
        rows = " UNION ALL ".join(f"SELECT {', '.join(_row(numbers))}" for _ in range(12))
        table.append(spark.sql(rows), cast=True)
    if kind == "deleted":
        table.delete("id = 1", spark=spark)
    return table.refresh()


def _row(numbers: random.Random) -> list[str]:
    picked = ("NULL" if numbers.random() < 0.1 else numbers.choice(values) for values in VALUES.values())
    columns = (column.partition(" ") for column in VALUES)
    return [f"CAST({value} AS {kind}) AS {name}" for (name, _, kind), value in zip(columns, picked, strict=True)]


def generate(numbers: random.Random) -> Operation:
    if numbers.random() < 0.25:
        return SetNotNull(parse_path(numbers.choice(list(OPERANDS))))
    parts = [_comparison(numbers) for _ in range(numbers.randint(1, 3))]
    return AddConstraint("c", numbers.choice((" AND ", " OR ")).join(parts))


def _comparison(numbers: random.Random) -> str:
    name = numbers.choice(list(OPERANDS))
    value = numbers.choice(OPERANDS[name])
    shape = numbers.choice(("{} {} {}", "NOT ({} {} {})", "{0} IS NOT NULL", "{0} IN ({2})", "{0} IS NULL"))
    return shape.format(name, numbers.choice(("=", "<>", "<", "<=", ">", ">=")), value)


def local() -> LocalSession:
    return LocalSession(Engine.LOCAL, lambda reason: pytest.fail(f"Spark starts: {reason}"))


@pytest.mark.parametrize("kind", KINDS)
def test_arrow_and_spark_count_the_same_rows(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    numbers = random.Random(kind)
    snapshot, counted = write_rows(spark, tmp_path / "t", kind, numbers).snapshot, 0
    for _ in range(60):
        operation = generate(numbers)
        try:
            here = row_checks._count_here(snapshot, [operation])
        except Unsupported:
            continue
        counted += 1
        assert here == row_checks._count_on_spark(spark, snapshot, [operation]), operation
    assert counted > 30


def test_a_condition_is_no_statement(spark: SparkSession, tmp_path: Path) -> None:
    snapshot = write_rows(spark, tmp_path / "t", "plain", random.Random(3)).snapshot
    for session in (local(), spark):
        with pytest.raises((EngineUnsuitable, ConstraintRefused)):
            row_checks.check_operations(session, snapshot, [AddConstraint("c", "id IS NULL OR id < 99 ;")])


def outcome(session: Any, snapshot: Snapshot, operation: Operation) -> str:
    try:
        return str(row_checks.check_operations(session, snapshot, [operation]))
    except WidenError as error:
        return str(error)


def test_the_errors_are_the_same(spark: SparkSession, tmp_path: Path) -> None:
    numbers = random.Random(1)
    snapshot = write_rows(spark, tmp_path / "t", "plain", numbers).snapshot
    for operation in (
        SetNotNull(("n",)),
        SetNotNull(("id",)),
        AddConstraint("c", "id >= 0"),
        AddConstraint("c", "id < 9"),
    ):
        assert outcome(local(), snapshot, operation) == outcome(spark, snapshot, operation)


CONSTANTS = [
    *("NULL", "1", "-1", "1L", "2147483648", "300", "1.5", "1.25BD", "1e0", "1.5D", "true", "'a'", "''", "'long text'"),
    *("DATE '2020-02-29'", "TIMESTAMP '2020-01-01 00:00:00'", "X'41'", "CAST(1 AS bigint)", "1 + 1", "'a' || 'b'"),
    *("id", "hash(1)", "rand()", "1 +", "(SELECT 1)", "current_date()", "CAST('x' AS int)", "- 1", "+1", "1;"),
]
TYPES = (
    *("boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal(9,2)"),
    *("string", "varchar(3)", "binary", "date", "timestamp"),
)


@pytest.mark.parametrize("kind", TYPES)
def test_defaults_are_judged_alike(spark: SparkSession, kind: str) -> None:
    schema, known = to_table_schema(f"id int, v {kind}"), 0
    for constant in CONSTANTS:
        default = [SetDefault(("v",), constant)]
        try:
            here = str(row_checks.ensure_defaults(local(), default, schema))
        except EngineUnsuitable:
            continue
        except WidenError as error:
            here = str(error)
        known += 1
        try:
            there = str(row_checks.ensure_defaults(spark, default, schema))
        except WidenError as error:
            there = str(error)
        assert here == there, constant
    assert (known > 10) is (kind != "varchar(3)")


@pytest.mark.parametrize("step", [1, -1])
def test_the_bound_of_a_column_is_found_by_both(spark: SparkSession, tmp_path: Path, step: int) -> None:
    snapshot = write_rows(spark, tmp_path / "t", "deleted", random.Random(2)).snapshot
    for name in ("id", "n"):
        bounds = {
            row_checks.column_bound(session, snapshot, (name,), is_lowest=step < 0) for session in (local(), spark)
        }
        assert len(bounds) == 1
        assert None not in bounds
