"""Arrow copies files of Iceberg tables without some of their rows, whatever the files call their columns."""

from __future__ import annotations

from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
)
from pyroaring import BitMap64

import widen
from support.command_line import run_json
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
from widen.changes.iceberg_write import ChangedRows, copy_unmarked, open_iceberg_writer
from widen.files.arrow_types import to_arrow_schema
from widen.files.deleted_rows import ROW
from widen.frames.iceberg_scan import IcebergSource
from widen.iceberg.catalog import to_table_name
from widen.iceberg.scan_plan import plan_scan
from widen.iceberg.schema_conversion import to_model
from widen.iceberg.snapshots import SnapshotReference, find_read_point
from widen.iceberg.table_commit import open_transaction

SCHEMA = Schema(
    NestedField(1, "id", IntegerType(), required=True),
    NestedField(2, "f", FloatType(), required=False),
    NestedField(3, "e", DecimalType(9, 2), required=False),
    NestedField(4, "s", StructType(NestedField(5, "a", IntegerType(), required=False)), required=False),
    NestedField(6, "l", ListType(7, StringType(), element_required=False), required=False),
    NestedField(8, "m", MapType(9, StringType(), 10, IntegerType(), value_required=False), required=False),
    NestedField(11, "at", TimestamptzType(), required=False),
    NestedField(12, "local", TimestampType(), required=False),
    NestedField(13, "day", DateType(), required=False),
    NestedField(14, "b", BinaryType(), required=False),
    NestedField(15, "four", FixedType(4), required=False),
    NestedField(16, "yes", BooleanType(), required=False),
    NestedField(17, "gone", StringType(), required=False),
)
FULL: dict[str, Any] = {
    "f": -0.0,
    "e": Decimal("-1.25"),
    "s": {"a": 3},
    "l": ["x", None],
    "m": {"k": 1, "j": None},
    "at": datetime(1969, 12, 31, 23, 59, 59, 999_999, timezone.utc),
    "local": datetime(9999, 12, 31, 23, 59, 59, 999_999),
    "day": date(1, 1, 1),
    "b": b"\x00",
    "four": b"1234",
    "yes": True,
    "gone": "g",
}


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table with a file of older columns and one of the present ones."""
    table = embedded_catalog(tmp_path).create_table("ns.t", SCHEMA, properties={"format-version": "2"})
    nothing = dict.fromkeys(FULL)
    rows = [{"id": 1, **FULL}, {"id": 2, **nothing}, {"id": 3, **FULL, "f": float("nan"), "s": {"a": None}, "l": []}]
    table.append(pa.Table.from_pylist(rows, schema=table.schema().as_arrow()))
    with table.update_schema() as update:
        update.update_column("id", LongType())
        update.update_column("f", DoubleType())
        update.update_column("e", DecimalType(18, 2))
        update.rename_column("l", "list")
        update.rename_column("s.a", "renamed")
        update.delete_column("gone")
        update.add_column(("s", "new"), StringType())
        update.add_column("more", StringType())
    more = [{"id": 4, "e": Decimal("1234567890123456.25"), "s": {"renamed": 1, "new": "n"}, "more": "m"}, {"id": 5}]
    table.append(pa.Table.from_pylist(more, schema=table.schema().as_arrow()))
    return table


def copies(
    table: Table,
    folder: Path,
    *gone: int,
    missing: Path | None = None,
    new: dict[int, dict[str, Any]] | None = None,
    added: list[dict[str, Any]] | None = None,
) -> tuple[list[Any], pa.Table] | None:
    """Copy all files without the rows of some ids, and return the written files with their rows.

    Args:
        missing: A file that is deleted before.
        new: New values by id; all of them for the same columns.
        added: More rows.
    """
    name = to_table_name("ns.t", folder / "catalog.db")
    point = find_read_point(table.metadata, SnapshotReference())
    assert point.snapshot is not None
    scan = plan_scan(point, table.io)
    marked, replaced = {}, {}
    schema = to_arrow_schema(to_model(table.schema()))
    for file in scan.files:
        ids = pq.read_table(file.path.removeprefix("file://"), columns=["id"])["id"].to_pylist()
        marked[file.path] = BitMap64([at for at, each in enumerate(ids) if each in gone])
        rows = [{ROW: at, **new[each]} for at, each in enumerate(ids) if new and each in new]
        if rows:
            kinds = [pa.field(ROW, pa.int64()), *(schema.field(name) for name in rows[0] if name != ROW)]
            replaced[file.path] = pa.RecordBatch.from_pylist(rows, pa.schema(kinds))
    if missing is not None:
        missing.unlink()
    writer = open_iceberg_writer(open_transaction(name, name.load(), ()), to_model(table.schema()))
    source: Any = IcebergSource(no_session, table.io, point)
    rows = None if added is None else pa.Table.from_pylist(added, schema)
    changed = ChangedRows(replaced, [] if rows is None else [(lambda: [rows], rows.nbytes)])
    written = copy_unmarked(source, writer, scan, marked, changed=changed)
    if written is None:
        return None
    return written, pa.concat_tables([pq.read_table(path) for path in parts(table)])


def no_session() -> NoReturn:
    raise AssertionError("no session is needed")


def parts(table: Table) -> list[Path]:
    """The files that we have written."""
    return [*Path(table.location().removeprefix("file://")).rglob("part-*.parquet")]


def expected(table: Table, *gone: int) -> list[str]:
    """The rows as PyIceberg reads them; as texts, because NaN is not equal to itself, but -0.0 is to 0.0."""
    return sorted(repr(row) for row in table.scan().to_arrow().to_pylist() if row["id"] not in gone)


def test_rows_are_copied_in_the_types_and_names_of_the_table(table: Table, tmp_path: Path) -> None:
    found = copies(table, tmp_path, 2, 5)
    assert found is not None
    written, rows = found
    assert sorted(map(repr, rows.to_pylist())) == expected(table, 2, 5)
    assert sum(file.metrics.rows for file in written) == 3


def test_a_file_without_other_rows_is_not_read(table: Table, tmp_path: Path) -> None:
    second = next(each for each in table.inspect.files().to_pylist() if each["record_count"] == 2)
    left = expected(table, 4, 5)
    found = copies(table, tmp_path, 4, 5, missing=Path(second["file_path"].removeprefix("file://")))
    assert found is not None
    assert sorted(map(repr, found[1].to_pylist())) == left


def test_copies_are_in_the_partitions_of_the_table(table: Table, tmp_path: Path) -> None:
    with table.update_spec() as update:
        update.add_field("id", BucketTransform(2), "bucket")
    found = copies(table, tmp_path, 2)
    assert found is not None
    written, rows = found
    assert {file.partition for file in written} == {'[["",0]]', '[["",1]]'}
    assert sorted(map(repr, rows.to_pylist())) == expected(table, 2)


def test_new_values_are_where_the_old_ones_were(table: Table, tmp_path: Path) -> None:
    """Also of structs, lists and maps, in files that call the columns otherwise, and beside rows that are gone."""
    new = {
        1: {"s": None, "list": ["y"], "m": {"z": None}, "f": float("nan"), "e": None},
        3: {"s": {"renamed": 9, "new": "n"}, "list": None, "m": None, "f": -0.0, "e": Decimal("0.10")},
        5: {"s": {"renamed": None, "new": None}, "list": [], "m": {}, "f": 1.5, "e": Decimal("1.00")},
    }
    before = {row["id"]: row for row in table.scan().to_arrow().to_pylist()}
    more = [{**before[5], "id": 6, "more": "more"}]
    found = copies(table, tmp_path, 2, new=new, added=more)
    assert found is not None
    written, rows = found
    wanted = [{**before[number], **new.get(number, {})} for number in (1, 3, 4, 5)]
    as_lists = [{**row, "m": None if row["m"] is None else [*dict(row["m"]).items()]} for row in [*wanted, *more]]
    assert sorted(map(repr, rows.to_pylist())) == sorted(map(repr, as_lists))
    assert sum(file.metrics.rows for file in written) == 5


def test_new_rows_are_written_where_no_file_is_copied(table: Table, tmp_path: Path) -> None:
    found = copies(table, tmp_path, 1, 2, 3, 4, 5, added=[{"id": 7}])
    assert found is not None
    assert [row["id"] for row in found[1].to_pylist()] == [7]


def test_rows_that_others_have_deleted_by_their_position_are_not_copied(table: Table, tmp_path: Path) -> None:
    first = min(each["file_path"] for each in table.inspect.files().to_pylist())
    append_deletes(table, position_deletes(table, [(Path(first.removeprefix("file://")), 0)]))
    left = expected(table, 2)
    assert len(left) == 3
    found = copies(table, tmp_path, 2)
    assert found is not None
    assert sorted(map(repr, found[1].to_pylist())) == left


def test_rows_that_others_have_deleted_by_their_values_are_not_copied(
    table: Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = expected(table, 2, 4)
    append_deletes(table, equality_deletes(table, [field("id", pa.int64(), 1)], [{"id": 4}], [1]))
    monkeypatch.setattr("widen.frames.iceberg_scan.EQUALITY_BYTES", 0)
    assert copies(table, tmp_path, 2) is None
    assert not parts(table)
    monkeypatch.undo()
    found = copies(table, tmp_path, 2)
    assert found is not None
    assert sorted(map(repr, found[1].to_pylist())) == left


def test_times_of_the_julian_calendar_are_left_to_spark(table: Table, tmp_path: Path) -> None:
    local = table.schema().find_field("local").field_id
    path = write_file(table, [field("id", pa.int64(), 1), field("local", pa.timestamp("us"), local)], [{"id": 9}])
    pq.write_table(pq.read_table(path), path, use_deprecated_int96_timestamps=True)
    append(table, data_file(path, 1))
    assert copies(table, tmp_path, 2) is None
    assert not parts(table)


@pytest.fixture
def without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("widen.spark.engine.find_session", lambda *_: no_session())


def test_small_files_are_compacted_without_spark(table: Table, tmp_path: Path, without_spark: None) -> None:
    left = expected(table)
    done = run_json("optimize", "ns.t", "--catalog", str(tmp_path / "catalog.db"))
    assert (done["files"], done["newFiles"]) == (2, 1)
    table.refresh()
    assert expected(table) == left
    assert [file["record_count"] for file in table.inspect.files().to_pylist()] == [5]


def test_old_types_and_partitions_are_rewritten_without_spark(
    table: Table, tmp_path: Path, without_spark: None
) -> None:
    with table.update_spec() as update:
        update.add_field("id", BucketTransform(2), "bucket")
    left = expected(table)
    done = widen.IcebergTable("ns.t", tmp_path / "catalog.db").rewrite()
    assert done.metrics["numRemovedFiles"] == 2
    table.refresh()
    assert expected(table) == left
    files = table.inspect.files().to_pylist()
    assert {file["spec_id"] for file in files} == {table.spec().spec_id}
    schemas = [pq.read_schema(file["file_path"].removeprefix("file://")) for file in files]
    assert {str(schema.field("id").type) for schema in schemas} == {"int64"}
    assert {str(schema.field("e").type) for schema in schemas} == {"decimal128(18, 2)"}
