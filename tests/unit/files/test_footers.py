"""The types in footers, and which of them are old: at every depth, by the names and ids in files."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.type_change import CASES, REFUSED, Case
from widen.errors import CorruptFile
from widen.files.footers import old_types, type_of
from widen.log.log_store import LogStore
from widen.model.column_path import format_path
from widen.model.schema_json import from_json, parse_type
from widen.model.types import StructType

ARROW = {
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "string": pa.string(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
}
DEPTHS = {
    "c": lambda t: t,
    "c.f": lambda t: pa.struct([("f", t)]),
    "c.element": pa.list_,
    "c.key": lambda t: pa.map_(t, pa.string()),
    "c.value": lambda t: pa.map_(pa.string(), t),
    "c.element.value.element.f": lambda t: pa.list_(pa.map_(pa.string(), pa.list_(pa.struct([("f", t)])))),
}
SQL_DEPTHS = {
    "c": "{}",
    "c.f": "struct<f: {}>",
    "c.element": "array<{}>",
    "c.key": "map<{}, string>",
    "c.value": "map<string, {}>",
    "c.element.value.element.f": "array<map<string, array<struct<f: {}>>>>",
}


def arrow(sql: str) -> pa.DataType:
    if sql.startswith("decimal"):
        return pa.decimal128(*map(int, sql[8:-1].split(",")))
    return ARROW[sql]


def table(text: str) -> StructType:
    schema = parse_type(f"struct<{text}>")
    assert isinstance(schema, StructType)
    return schema


def written(folder: Path, schema: pa.Schema, **options: object) -> LogStore:
    pq.write_table(schema.empty_table(), folder / "f.parquet", **options)
    return LogStore(str(folder))


def find_old_types(store: LogStore, schema: StructType, mode: str = "none") -> dict[str, str]:
    return {format_path(path): old.sql for path, old in old_types(store, schema, mode, "f.parquet")[1].items()}


@pytest.mark.parametrize("path", DEPTHS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_an_old_type_is_found_at_every_depth(tmp_path: Path, case: Case, path: str) -> None:
    store = written(tmp_path, pa.schema([("c", DEPTHS[path](arrow(case.old)))]))
    assert find_old_types(store, table("c: " + SQL_DEPTHS[path].format(case.new))) == {path: case.old}
    assert find_old_types(store, table("c: " + SQL_DEPTHS[path].format(case.old))) == {}


@pytest.mark.parametrize(("old", "new"), REFUSED)
def test_a_difference_other_than_a_widening_is_not_old(tmp_path: Path, old: str, new: str) -> None:
    assert find_old_types(written(tmp_path, pa.schema([("c", arrow(old))])), table(f"c: {new}")) == {}


@pytest.mark.parametrize(
    ("before", "now"),
    [
        (pa.binary(), "string"),  # no annotation: it reads as text all the same
        (pa.int32(), "tinyint"),  # no width: likewise
        (pa.timestamp("ms", "UTC"), "timestamp"),
        (pa.large_string(), "string"),
        (pa.dictionary(pa.int32(), pa.string()), "string"),
        (pa.null(), "int"),
    ],
)
def test_a_type_that_reads_the_same_is_not_old(tmp_path: Path, before: pa.DataType, now: str) -> None:
    assert find_old_types(written(tmp_path, pa.schema([("c", before)])), table(f"c: {now}")) == {}


@pytest.mark.parametrize("as_integer", [True, False])
def test_a_decimal_has_its_digits_in_every_encoding(tmp_path: Path, as_integer: bool) -> None:
    rows = pa.table({"c": pa.array([Decimal("1.25")], pa.decimal128(9, 2))})
    pq.write_table(rows, tmp_path / "f.parquet", store_decimal_as_integer=as_integer)
    store = LogStore(str(tmp_path))
    assert find_old_types(store, table("c: decimal(9,2)")) == {}
    assert find_old_types(store, table("c: decimal(18,2)")) == {"c": "decimal(9,2)"}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.uint8(), "smallint"),
        (pa.uint16(), "int"),
        (pa.uint32(), "bigint"),
        (pa.uint64(), "decimal(20,0)"),
        (pa.timestamp("ns"), "timestamp_ntz"),
        (pa.time64("us"), "void"),
        (pa.null(), "void"),
        (pa.binary(7), "binary"),
        (pa.bool_(), "boolean"),
    ],
)
def test_other_types_are_those_that_spark_reads(tmp_path: Path, kind: pa.DataType, expected: str) -> None:
    written(tmp_path, pa.schema([("c", kind)]))
    assert type_of(pq.read_metadata(tmp_path / "f.parquet").schema.column(0)).sql == expected


def test_int96_is_a_timestamp(tmp_path: Path) -> None:
    written(tmp_path, pa.schema([("c", pa.timestamp("ns"))]), use_deprecated_int96_timestamps=True)
    assert type_of(pq.read_metadata(tmp_path / "f.parquet").schema.column(0)).sql == "timestamp"


def test_missing_and_dropped_columns_do_not_count(tmp_path: Path) -> None:
    store = written(tmp_path, pa.schema([("gone", pa.int8()), ("s", pa.struct([("gone", pa.int8())]))]))
    assert find_old_types(store, table("new: int, s: struct<new: int>")) == {}


def test_names_are_compared_exactly_and_may_have_dots(tmp_path: Path) -> None:
    store = written(tmp_path, pa.schema([("A", pa.int8()), ("x.y", pa.int8()), ("x", pa.struct([("y", pa.int32())]))]))
    assert find_old_types(store, table("a: int, `x.y`: int, x: struct<y: int>")) == {"`x.y`": "tinyint"}


def test_deleted_rows_are_counted(tmp_path: Path) -> None:
    pq.write_table(pa.table({"c": pa.array([1, 2, 3], pa.int8())}), tmp_path / "f.parquet")
    assert old_types(LogStore(str(tmp_path)), table("c: int"), "none", "f.parquet")[0] == 3


def mapped(name: str, physical: str, number: int, kind: object = "integer") -> dict[str, object]:
    metadata = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    return {"name": name, "type": kind, "nullable": True, "metadata": metadata}


def test_mapped_columns_are_matched_by_physical_name(tmp_path: Path) -> None:
    inner = {"type": "struct", "fields": [mapped("a", "p3", 3)]}
    schema = from_json(
        json.dumps({"type": "struct", "fields": [mapped("a", "b", 1), mapped("b", "a", 2), mapped("s", "q", 4, inner)]})
    )
    kinds = [("a", pa.int32()), ("b", pa.int8()), ("q", pa.struct([("p3", pa.int16()), ("a", pa.int8())]))]
    assert find_old_types(written(tmp_path, pa.schema(kinds)), schema, "name") == {"a": "tinyint", "s.a": "smallint"}


def test_columns_are_matched_by_id_in_mode_id(tmp_path: Path) -> None:
    inner = {"type": "struct", "fields": [mapped("x", "p4", 4), mapped("y", "p5", 5)]}
    items = {"type": "array", "elementType": inner, "containsNull": True}
    fields = [mapped("a", "p1", 1), mapped("b", "p2", 2), mapped("c", "p3", 3, items)]
    schema = from_json(json.dumps({"type": "struct", "fields": fields}))

    def stored(name: str, kind: pa.DataType, number: int) -> pa.Field:
        return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})

    element = pa.struct([stored("p4", pa.int8(), 5), stored("p5", pa.int32(), 4)])
    store = written(tmp_path, pa.schema([stored("p1", pa.int8(), 2), stored("z", pa.list_(element), 3)]))
    assert find_old_types(store, schema, "id") == {"b": "tinyint", "c.element.y": "tinyint"}


def test_a_file_without_ids_is_refused_in_mode_id(tmp_path: Path) -> None:
    schema = from_json(json.dumps({"type": "struct", "fields": [mapped("a", "p1", 1)]}))
    store = written(tmp_path, pa.schema([("p1", pa.int8())]))
    assert find_old_types(store, schema, "name") == {"a": "tinyint"}
    with pytest.raises(CorruptFile, match="the file has no field ids"):
        find_old_types(store, schema, "id")


def test_a_file_that_is_not_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "f.parquet").write_text("corrupted")
    with pytest.raises(CorruptFile, match=r"f\.parquet cannot be read"):
        old_types(LogStore(str(tmp_path)), table("c: int"), "none", "f.parquet")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorruptFile, match=r"f\.parquet .*vacuumed or deleted"):
        old_types(LogStore(str(tmp_path)), table("c: int"), "none", "f.parquet")
