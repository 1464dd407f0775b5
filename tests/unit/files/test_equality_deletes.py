"""Rows that equality deletes remove, as `widen read` shows the others without Spark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import DoubleType, FloatType, LongType, NestedField, StringType, StructType

import widen
from support.iceberg_files import (
    append,
    append_deletes,
    data_file,
    deletion_vector,
    embedded_catalog,
    equality_deletes,
    field,
    write_file,
)
from widen.cli.show_commands import query_iceberg_table
from widen.errors import CorruptFile
from widen.iceberg.snapshots import SnapshotReference
from widen.spark.engine import Unsupported

NAN = float("nan")
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
    NestedField(3, "size", DoubleType(), required=False),
    NestedField(4, "place", StructType(NestedField(6, "zip", StringType(), required=False)), required=False),
    NestedField(5, "rate", FloatType(), required=False),
)
ID, NAME, SIZE = field("id", pa.int64(), 1), field("name", pa.string(), 2), field("size", pa.float64(), 3)
PLACE = pa.field("place", pa.struct([field("zip", pa.string(), 6)]), metadata={"PARQUET:field_id": "4"})
RATE = field("rate", pa.float32(), 5)
ROWS = [
    {"id": 1, "name": "a", "size": 0.0, "place": {"zip": "x"}, "rate": 0.1},
    {"id": 2, "name": "b", "size": -0.0, "place": None, "rate": None},
    {"id": 3, "name": None, "size": NAN, "place": {"zip": None}, "rate": NAN},
    {"id": 4, "name": "a", "size": None, "place": {"zip": "y"}, "rate": 0.2},
    {"id": None, "name": "b", "size": 1.5, "place": {"zip": "x"}, "rate": 0.1},
    {"id": None, "name": None, "size": -1.5, "place": {"zip": "x"}, "rate": -0.0},
]


@pytest.fixture
def table(tmp_path: Path) -> Table:
    return make(embedded_catalog(tmp_path))


def make(catalog: SqlCatalog) -> Table:
    table = catalog.create_table("ns.t", SCHEMA, properties={"format-version": "2"})
    for part in (ROWS[:3], ROWS[3:]):
        append(table, data_file(write_file(table, [ID, NAME, SIZE, PLACE, RATE], part), len(part)))
    return table


def read(table: Table, where: str | None = None) -> list[int]:
    """Return the numbers of the rows that are left, from 1."""
    opened = widen.IcebergTable(".".join(table.name()), table.catalog)
    _, rows = query_iceberg_table(opened, SnapshotReference(), where, (), None, unified=False, row_lineage=False)
    return sorted(list(map(repr, ROWS)).index(repr(row)) + 1 for row in with_plain_floats(rows))


def with_plain_floats(rows: pa.Table) -> list[dict[str, Any]]:
    found = rows.to_pylist()
    return [{**row, "rate": row["rate"] and round(row["rate"], 3)} for row in found]


Key = Mapping[str, Any]
DELETES: Mapping[str, tuple[Sequence[pa.Field], Sequence[Key], Sequence[int], list[int]]] = {
    "a value": ([ID], [{"id": 2}, {"id": 77}], [1], [1, 3, 4, 5, 6]),
    "a narrower type": ([field("id", pa.int32(), 1)], [{"id": 2}], [1], [1, 3, 4, 5, 6]),
    "null": ([NAME], [{"name": None}], [2], [1, 2, 4, 5]),
    "two columns": ([ID, NAME], [{"id": 1, "name": "b"}, {"id": 4, "name": "a"}], [1, 2], [1, 2, 3, 5, 6]),
    "two columns with nulls": ([ID, NAME], [{"id": None, "name": "b"}, {"id": 3}], [1, 2], [1, 2, 4, 6]),
    "more columns than needed": ([ID, NAME], [{"id": 1, "name": "z"}], [1], [2, 3, 4, 5, 6]),
    "a zero": ([SIZE], [{"size": 0.0}], [3], [2, 3, 4, 5, 6]),
    "a negative zero": ([SIZE], [{"size": -0.0}], [3], [1, 3, 4, 5, 6]),
    "NaN": ([SIZE], [{"size": -NAN}], [3], [1, 2, 4, 5, 6]),
    "floats": ([RATE], [{"rate": 0.1}, {"rate": NAN}, {"rate": 0.0}], [5], [2, 4, 6]),
    "a field of a struct": ([PLACE], [{"place": {"zip": "x"}}], [6], [2, 3, 4]),
    "a null field": ([PLACE], [{"place": {"zip": None}}], [6], [1, 4, 5, 6]),
    "three columns": (
        [ID, NAME, SIZE],
        [{"id": 4, "name": "a"}, {"name": "b", "size": 1.5}, {"id": 1, "name": "a", "size": -0.0}],
        [1, 2, 3],
        [1, 2, 3, 6],
    ),
}


@pytest.mark.parametrize("what", DELETES)
def test_rows_with_the_deleted_values_are_left_out(table: Table, what: str) -> None:
    columns, deleted, ids, left = DELETES[what]
    append_deletes(table, equality_deletes(table, columns, deleted, ids))
    assert read(table) == left


def test_deletes_are_for_older_files(table: Table) -> None:
    first = equality_deletes(table, [NAME], [{"name": "a"}], [2])
    append_deletes(table, first, equality_deletes(table, [ID, NAME], [{"id": 2, "name": "b"}], [1, 2]))
    assert read(table) == [3, 5, 6]
    append(table, data_file(write_file(table, [ID, NAME, SIZE, PLACE, RATE], ROWS[:2]), 2))
    assert read(table) == [1, 2, 3, 5, 6]
    assert read(table, "id > 1") == [2, 3]
    append_deletes(table, equality_deletes(table, [ID], [{"id": None}], [1]))
    [path] = {Path(each["file_path"].removeprefix("file://")) for each in added_last(table)}
    append_deletes(table, deletion_vector(table, {path: [0]}))
    assert read(table) == [2, 3]


def added_last(table: Table) -> list[dict[str, Any]]:
    found = table.refresh().inspect.data_files().to_pylist()
    return [each for each in found if each["record_count"] == 2]


def test_deletes_name_dropped_columns(table: Table) -> None:
    append_deletes(table, equality_deletes(table, [NAME], [{"name": "a"}], [2]))
    with table.update_schema() as update:
        update.delete_column("name")
        update.add_column("name", LongType())
    opened = widen.IcebergTable("ns.t", table.catalog)
    _, rows = query_iceberg_table(opened, SnapshotReference(), None, ("id",), None, unified=False, row_lineage=False)
    assert sorted(rows["id"].to_pylist(), key=str) == [2, 3, None, None]


def test_deletes_stay_in_their_partition(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "p", StringType(), required=False))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    catalog = embedded_catalog(tmp_path)
    table = catalog.create_table("ns.p", schema, partition_spec=spec)
    columns = [ID, field("p", pa.string(), 2)]
    for p in ("a", "b"):
        path = write_file(table, columns, [{"id": at, "p": p} for at in range(3)])
        append(table, data_file(path, 3, partition=Record(p)))
    append_deletes(table, equality_deletes(table, columns[:1], [{"id": 1}], [1], partition=Record("a")))
    opened = widen.IcebergTable("ns.p", catalog)
    _, rows = query_iceberg_table(opened, SnapshotReference(), None, (), None, unified=False, row_lineage=False)
    found = {(row["id"], row["p"]) for row in rows.to_pylist()}
    assert found == {(0, "a"), (0, "b"), (1, "b"), (2, "a"), (2, "b")}


def test_values_that_are_not_in_the_files_are_left_to_spark(tmp_path: Path) -> None:
    schema = Schema(NestedField(1, "id", LongType(), required=False), NestedField(2, "p", StringType(), required=False))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "p"))
    table = embedded_catalog(tmp_path).create_table("ns.p", schema, partition_spec=spec)
    append(table, data_file(write_file(table, [ID], [{"id": 1}]), 1, partition=Record("a")))
    deletes = equality_deletes(table, [field("p", pa.string(), 2)], [{"p": "a"}], [2], partition=Record("a"))
    append_deletes(table, deletes)
    with pytest.raises(Unsupported):
        read(table)


def test_a_delete_file_that_cannot_be_read(table: Table) -> None:
    deletes = equality_deletes(table, [ID], [{"id": 2}], [1])
    append_deletes(table, deletes)
    Path(deletes.file_path.removeprefix("file://")).unlink()
    with pytest.raises(CorruptFile, match="does not exist"):
        read(table)
