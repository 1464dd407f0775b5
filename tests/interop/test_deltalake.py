"""deltalake (delta-rs): a second implementation that we share tables with, as long as nothing was widened."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaProtocolError
from pyspark.sql import SparkSession

from interop import rows
from widen.table import Table, create_table

# No map: deltalake gives its entries back as pairs. No float: nothing here is widened.
SCHEMA = "id bigint, city string, amount decimal(10,2), tags array<int>, who struct<name: string, age: int>"
MINE: list[Any] = [
    (1, "Gent", Decimal("99999999.99"), [2147483647, None], ("Ada", 32767)),
    (2, None, Decimal("-0.01"), [], (None, None)),
    (3, "Brno", None, None, None),
]
THEIRS = [
    {"id": 4, "city": "Oulu", "amount": Decimal("0.10"), "tags": [-1], "who": {"name": "Emre", "age": -2147483648}},
    {"id": 5, "city": "Gent", "amount": None, "tags": None, "who": None},
]
ARROW = pa.schema(
    [
        ("id", pa.int64()),
        ("city", pa.string()),
        ("amount", pa.decimal128(10, 2)),
        ("tags", pa.list_(pa.int32())),
        ("who", pa.struct([("name", pa.string()), ("age", pa.int32())])),
    ]
)


@pytest.fixture
def place(tmp_path: Path) -> str:
    return str(tmp_path / "table")


@pytest.mark.parametrize("partition_by", [(), ("city",)])
def test_deltalake_reads_what_we_wrote(spark: SparkSession, place: str, partition_by: tuple[str, ...]) -> None:
    create_table(place, SCHEMA, partition_by=partition_by).append(rows.frame(spark, MINE, SCHEMA))
    assert _found(place) == [_record(row) for row in MINE]


@pytest.mark.parametrize("partition_by", [[], ["city"]])
def test_we_read_what_deltalake_wrote(spark: SparkSession, place: str, partition_by: list[str]) -> None:
    write_deltalake(place, pa.Table.from_pylist(THEIRS, ARROW), partition_by=partition_by)
    found = Table(place).read(spark=spark)
    assert rows.shape(found) == rows.to_schema(SCHEMA).simpleString()
    assert [row.asDict(recursive=True) for row in found.orderBy("id").collect()] == THEIRS


@pytest.mark.parametrize("partition_by", [(), ("city",)])
def test_both_commit_in_turns(spark: SparkSession, place: str, partition_by: tuple[str, ...]) -> None:
    table = create_table(place, SCHEMA, partition_by=partition_by)
    for turn in range(3):
        table.append(rows.frame(spark, [(10 + turn, *row[1:]) for row in MINE[:1]], SCHEMA))
        write_deltalake(place, pa.Table.from_pylist([{**THEIRS[0], "id": 20 + turn}], ARROW), mode="append")
    ids = [10, 11, 12, 20, 21, 22]
    assert [each["id"] for each in _found(place)] == ids
    assert [row.id for row in table.refresh().read(spark=spark).orderBy("id").collect()] == ids
    assert DeltaTable(place).version() == table.version == 6


def test_deltalake_reads_our_checkpoint_and_we_read_theirs(spark: SparkSession, place: str) -> None:
    table = create_table(place, SCHEMA, properties={"delta.checkpointInterval": "2"})
    table.append(rows.frame(spark, MINE[:1], SCHEMA)).table.append(rows.frame(spark, MINE[1:], SCHEMA))
    log = Path(place, "_delta_log")
    (log / f"{0:020}.json").unlink()
    assert [each["id"] for each in _found(place)] == [1, 2, 3]
    write_deltalake(place, pa.Table.from_pylist(THEIRS, ARROW), mode="append")
    DeltaTable(place).create_checkpoint()
    for version in range(1, 4):
        (log / f"{version:020}.json").unlink()
    assert [row.id for row in Table(place).read(spark=spark).orderBy("id").collect()] == [1, 2, 3, 4, 5]


def test_deltalake_says_that_it_does_not_know_widening(spark: SparkSession, place: str) -> None:
    table = create_table(place, rows.NARROW, properties={"delta.enableTypeWidening": "true"})
    table.append(rows.frame(spark, rows.OLD, rows.NARROW)).table.alter_column("id", type="bigint")
    with pytest.raises(DeltaProtocolError, match="typeWidening"):
        DeltaTable(place).to_pyarrow_table()


def _found(place: str) -> list[dict[str, Any]]:
    return sorted(DeltaTable(place).to_pyarrow_table().to_pylist(), key=lambda record: record["id"])


def _record(row: Any) -> dict[str, Any]:
    who = None if row[4] is None else dict(zip(("name", "age"), row[4], strict=True))
    return dict(zip(("id", "city", "amount", "tags", "who"), (*row[:4], who), strict=True))
