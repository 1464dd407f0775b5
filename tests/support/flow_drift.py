"""Twenty and more drifts of a table, one column each, and a chain of two queries that reads all of its columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from widen.table import Table, create_table


@dataclass(frozen=True)
class Drift:
    """What happens to one column.

    Args:
        column: Its name.
        old: Its type before.
        before: A value, in SQL.
        after: A value that only the changed column holds, in SQL; empty to leave it out.
        change: Changes the table.
        new: The name of the column that holds the new value; by default the same.
    """

    column: str
    old: str
    before: str
    after: str
    change: Callable[[Table], object]
    new: str = ""

    def __str__(self) -> str:
        return self.column


def _widening(old: str, new: str, before: str, after: str) -> Drift:
    column = f"{old}_to_{new}".replace("(", "_").replace(",", "_").replace(")", "")
    return Drift(
        column, old, f"CAST({before} AS {old})", f"CAST({after} AS {new})", lambda t: t.alter_column(column, type=new)
    )


DRIFTS = (
    _widening("tinyint", "smallint", "1", "300"),
    _widening("tinyint", "int", "2", "70000"),
    _widening("tinyint", "bigint", "3", "5000000000"),
    _widening("tinyint", "decimal(10,0)", "4", "6000000000"),
    _widening("tinyint", "double", "5", "1.5"),
    _widening("smallint", "int", "6", "70000"),
    _widening("smallint", "bigint", "7", "5000000000"),
    _widening("smallint", "decimal(10,0)", "8", "6000000000"),
    _widening("smallint", "double", "9", "2.5"),
    _widening("int", "bigint", "10", "5000000000"),
    _widening("int", "decimal(12,2)", "11", "6000000000.25"),
    _widening("int", "double", "12", "3.5"),
    _widening("bigint", "decimal(22,2)", "13", "12345678901234567890.25"),
    _widening("float", "double", "0.5", "1e300"),
    _widening("decimal(5,2)", "decimal(7,2)", "1.25", "12345.25"),
    _widening("decimal(5,2)", "decimal(9,4)", "2.25", "12345.1875"),
    _widening("date", "timestamp_ntz", "DATE'2024-01-02'", "TIMESTAMP_NTZ'2024-01-02 03:04:05.000006'"),
    Drift(
        "field_widens", "struct<a: int>", "named_struct('a', 1)", "named_struct('a', 5000000000)",
        lambda t: t.alter_column("field_widens.a", type="bigint"),
    ),
    Drift(
        "field_comes", "struct<a: int>", "named_struct('a', 1)", "named_struct('a', 2, 'b', 'new')",
        lambda t: t.add_columns({"field_comes.b": "string"}),
    ),
    Drift(
        "element_widens", "array<int>", "array(1)", "array(5000000000)",
        lambda t: t.alter_column("element_widens.element", type="bigint"),
    ),
    Drift(
        "value_widens", "map<string, int>", "map('k', 1)", "map('k', 5000000000)",
        lambda t: t.alter_column("value_widens.value", type="bigint"),
    ),
    Drift("column_comes", "", "", "'new'", lambda t: t.add_columns({"column_comes": "string"})),
    Drift(
        "kind", "int", "7", "'seven'", lambda t: t.add_columns({"kind_string": "string"}), new="kind_string",
    ),
    Drift("renamed", "int", "1", "2", lambda t: t.rename_column("renamed", "name_is_new"), new="name_is_new"),
    Drift("dropped", "int", "1", "", lambda t: t.drop_columns("dropped")),
)  # fmt: skip

PROPERTIES = {
    "delta.enableTypeWidening": "true",
    "delta.columnMapping.mode": "name",
    "delta.feature.timestampNtz": "supported",
}


def create_bronze(spark: SparkSession, location: str, drifts: Iterable[Drift] = DRIFTS, **more: str) -> Table:
    """Create the table with two rows for each of two days."""
    columns = [drift for drift in drifts if drift.old]
    schema = ", ".join(["id bigint", "day string", *(f"`{drift.column}` {drift.old}" for drift in columns)])
    table = create_table(location, schema, properties={**PROPERTIES, **more})
    values = ["id", "IF(id % 2 = 0, 'mon', 'tue') day", *(f"{drift.before} `{drift.column}`" for drift in columns)]
    return table.append(spark.sql(f"SELECT {', '.join(values)} FROM range(4) t(id)")).table


def drift_and_append(spark: SparkSession, table: Table, drifts: Iterable[Drift], row_id: int) -> None:
    """Let columns drift, and append a row that needs it."""
    values = [f"CAST({row_id} AS bigint) id", "'mon' day"]
    for drift in drifts:
        drift.change(table.refresh())
        values += [f"{drift.after} `{drift.new or drift.column}`"] if drift.after else []
    table.append(spark.sql(f"SELECT {', '.join(values)}"))


def to_silver(rows: DataFrame) -> DataFrame:
    """Return the rows with one more column."""
    return rows.withColumn("length", F.length("day"))


def to_gold(rows: DataFrame) -> DataFrame:
    """Return for each day what all other columns hold."""
    return rows.groupBy("day").agg(*(each for field in rows.schema for each in _aggregates(field)))


def _aggregates(field: T.StructField) -> list[Any]:
    column = F.col(field.name)
    if field.name == "day":
        return []
    if isinstance(field.dataType, T.NumericType):
        return [F.sum(column).alias(f"sum_{field.name}"), F.max(column).alias(f"max_{field.name}")]
    if isinstance(field.dataType, (T.StructType, T.ArrayType, T.MapType)):
        return [F.max(F.to_json(column)).alias(f"max_{field.name}")]
    return [F.min(column).alias(f"min_{field.name}"), F.max(column).alias(f"max_{field.name}")]


def comparable(rows: DataFrame) -> list[dict[str, Any]]:
    """Return rows without nulls, numbers by their value: 6, 6.0 and "6" are the same here."""
    found = [{key: _value(value) for key, value in row.asDict().items() if value is not None} for row in rows.collect()]
    return sorted(found, key=repr)


def _value(value: Any) -> Any:
    if isinstance(value, (int, float, Decimal, str)):
        try:
            number = Decimal(repr(value) if isinstance(value, float) else str(value))
        except InvalidOperation:
            return value
        return str(number.normalize())
    return str(value)
