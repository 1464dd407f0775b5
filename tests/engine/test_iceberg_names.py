"""Files of Iceberg tables whose columns have names that differ only in case: read in every session."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from decimal import Decimal as D
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import (
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
    UUIDType,
)
from pyspark.sql import Row, SparkSession

import widen
from support.iceberg_files import (
    append,
    append_deletes,
    data_file,
    embedded_catalog,
    equality_deletes,
    field,
    position_deletes,
    write_file,
)

SCHEMA = (
    NestedField(1, "a", IntegerType(), required=False),
    NestedField(2, "A", UUIDType(), required=False),
    NestedField(
        3,
        "s",
        StructType(
            NestedField(4, "x", DecimalType(9, 2), required=False),
            NestedField(5, "X", StringType(), required=False),
        ),
        required=False,
    ),
    NestedField(
        6,
        "l",
        ListType(
            7,
            StructType(
                NestedField(8, "y", FloatType(), required=False), NestedField(9, "Y", StringType(), required=False)
            ),
            False,
        ),
        required=False,
    ),
    NestedField(
        10,
        "m",
        MapType(11, StringType(), 12, StructType(NestedField(13, "z", TimestamptzType(), required=False)), False),
        required=False,
    ),
    NestedField(14, "M", StringType(), required=False),
)
MOMENT = datetime(2024, 5, 6, 7, 8, 9, 10, tzinfo=timezone.utc)


def row(number: int) -> dict[str, object]:
    pair, items = {"x": D(number), "X": f"s{number}"}, [{"y": number / 2, "Y": "l"}, None]
    whole = {"a": number, "A": bytes([number]) * 16, "s": pair, "l": items, "m": [("k", {"z": MOMENT})], "M": "dropped"}
    return whole if number else {"a": 0}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """Two files from before the columns were renamed, widened, dropped and added."""
    catalog = embedded_catalog(tmp_path)
    table = catalog.create_table("ns.alike", Schema(*SCHEMA))
    columns = list(table.schema().as_arrow())
    append(table, *(data_file(write_file(table, columns, [row(at), row(at + 1)]), 2) for at in (0, 2)))
    with table.update_schema() as update:
        update.rename_column("A", "b")
        update.rename_column(("s", "X"), "u")
        update.rename_column(("l", "Y"), "u")
        update.delete_column("M")
        update.update_column("a", LongType())
        update.update_column(("s", "x"), DecimalType(18, 2))
        update.update_column(("l", "y"), DoubleType())
    with table.update_schema() as update:
        update.add_column("B2", StringType())
        update.add_column(("s", "U2"), StringType())
    return table


@pytest.fixture(params=["false", "true"])
def session(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    spark.conf.set("spark.sql.caseSensitive", request.param)
    yield spark
    spark.conf.unset("spark.sql.caseSensitive")


def expected(number: int) -> tuple[object, ...]:
    if not number:
        return (0, None, None, None, None, None)
    items, times = [Row(number / 2, "l"), None], {"k": Row(MOMENT.replace(tzinfo=None))}
    return (number, bytes([number]) * 16, Row(D(number), f"s{number}", None), items, times, None)


def read(table: Table, spark: SparkSession, where: str | None = None) -> list[tuple[object, ...]]:
    found = widen.IcebergTable("ns.alike", catalog=table.catalog).read(where, spark=spark)
    assert found.columns == ["a", "b", "s", "l", "m", "B2"]
    return sorted((tuple(row) for row in found.collect()), key=lambda row: row[0])


def test_columns_are_found_by_id_whatever_the_session_compares(session: SparkSession, table: Table) -> None:
    assert read(table, session) == [expected(at) for at in range(4)]
    assert read(table, session, "s.u > 's1' AND a < 3") == [expected(2)]
    new = session.sql("SELECT 2L * 1e10 a, 'new' B2").selectExpr("CAST(a AS bigint) a", "B2")
    widen.IcebergTable("ns.alike", catalog=table.catalog).append(new)
    assert read(table.refresh(), session)[-1] == (20_000_000_000, None, None, None, None, "new")


def test_deletes_find_their_rows_there(session: SparkSession, table: Table) -> None:
    columns = [field("id", pa.int32(), 1), field("ID", pa.string(), 99)]
    append_deletes(
        table,
        equality_deletes(table, columns, [{"id": 3}], [1]),
        position_deletes(table, [(path, 0) for path in data_files(table)]),
    )
    assert read(table, session) == [expected(1)]


def data_files(table: Table) -> list[Path]:
    return [Path(task.file.file_path.removeprefix("file://")) for task in table.scan().plan_files()]


def test_files_without_ids_have_them_from_the_name_mapping(session: SparkSession, table: Table) -> None:
    names = [("a", 1), ("A", 6)]
    mapping = ", ".join(f'{{"field-id": {number}, "names": ["{name}"]}}' for name, number in names)
    with table.transaction() as transaction:
        transaction.set_properties({"schema.name-mapping.default": f"[{mapping}]"})
    path = write_file(table, [field("a", pa.int64()), field("A", pa.string())], [{"a": 9, "A": "dropped"}])
    append(table, data_file(path, 1))
    assert read(table, session, "a = 9") == [(9, None, None, None, None, None)]
