"""Iceberg tables with columns that Spark has no type for: the other columns are read, shown and loaded.

Source: Iceberg's table specification, "Primitive Types"
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, time
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    FixedType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimeType,
    UUIDType,
)

import widen
from support.command_line import run
from support.covering import covering
from support.iceberg_files import embedded_catalog
from widen import ingest
from widen.errors import ColumnAlreadyExists, ColumnLeftOut, UnsupportedColumnType
from widen.iceberg.metadata_files import live_entries
from widen.iceberg.schema_conversion import find_unreadable, to_readable

NAME = "shop.times"
TIME = TimeType()


@pytest.fixture
def catalog(tmp_path: Path) -> SqlCatalog:
    catalog = embedded_catalog(tmp_path)
    catalog.create_namespace("shop")
    return catalog


def create(catalog: SqlCatalog, **options: Any) -> widen.IcebergTable:
    inner = StructType(NestedField(5, "x", LongType()), NestedField(6, "h", TIME))
    schema = Schema(
        NestedField(1, "id", LongType()),
        NestedField(2, "at", TIME),
        NestedField(3, "name", StringType()),
        NestedField(4, "s", inner),
    )
    table = catalog.create_table(NAME, schema, **options)
    row = {"id": 1, "at": time(1, 2, 3, 4), "name": "a", "s": {"x": 7, "h": time(5)}}
    table.append(pa.Table.from_pylist([row], schema=table.schema().as_arrow()))
    return widen.IcebergTable(NAME, Path(table.location().removeprefix("file://")).parents[2] / "catalog.db")


def load(folder: Path, *records: dict[str, Any], **words: Any) -> widen.IngestResult:
    path = folder / "new.jsonl"
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return ingest(str(path), NAME, catalog=folder / "catalog.db", engine="local", **words)


def stored(catalog: SqlCatalog) -> list[dict[str, Any]]:
    return sorted(catalog.load_table(NAME).scan().to_arrow().to_pylist(), key=lambda row: row["id"])


def in_file(catalog: SqlCatalog, number: int) -> dict[str, Any]:
    """Return the row of an id as its file has it."""
    files = catalog.load_table(NAME).inspect.files()["file_path"].to_pylist()
    rows = (row for path in files for row in pq.ParquetFile(path.removeprefix("file://")).read().to_pylist())
    return next(row for row in rows if row["id"] == number)


def test_what_is_left_out_is_named_by_its_path_and_the_rest_stays() -> None:
    def struct(first: int, *kinds: Any) -> StructType:
        return StructType(*(NestedField(first + at, f"f{at}", kind) for at, kind in enumerate(kinds)))

    schema = Schema(
        NestedField(1, "a", ListType(2, struct(3, TIME, LongType()))),
        NestedField(10, "b", MapType(11, struct(12, TIME, LongType()), 14, LongType())),
        NestedField(20, "c", MapType(21, StringType(), 22, ListType(23, TIME))),
        NestedField(30, "d", struct(31, TIME), required=True),
        NestedField(40, "e", LongType()),
    )
    left_out = find_unreadable(schema)
    assert str(left_out) == "a.element.f0 (time), b.key.f0 (time), c.value.element (time), d.f0 (time)"
    assert left_out.required == [("d",)]
    kept = {column.name: column.type.sql for column in to_readable(schema)}
    assert kept == {"a": "array<struct<f1: bigint>>", "e": "bigint"}


READS = (["read"], ["read", "--json"], ["show"], ["report"], ["history"])


@pytest.mark.parametrize("words", READS, ids=" ".join)
def test_the_other_columns_are_shown_without_spark(
    tmp_path: Path, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("WIDEN_ENGINE", "local")
    create(catalog)
    result = run(*words[:1], NAME, *words[1:], "--catalog", tmp_path / "catalog.db")
    assert result.exit_code == 0, result.output
    if words != ["history"]:
        assert "without at (time), s.h (time): Spark has no type for the values" in result.stderr
    if words == ["read", "--json"]:
        assert json.loads(result.stdout) == {"id": 1, "name": "a", "s": {"x": 7}}


@pytest.mark.parametrize("kind", ["timestamp_ns", "timestamptz_ns"])
def test_columns_of_nanoseconds_are_left_out(
    tmp_path: Path, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setenv("WIDEN_ENGINE", "local")
    schema = Schema(NestedField(1, "id", LongType()), NestedField(2, "at", TimestampType()))
    table = catalog.create_table(NAME, schema)
    table.append(pa.table({"id": [1], "at": [datetime(2024, 1, 1)]}, schema=table.schema().as_arrow()))
    path = Path(table.metadata_location.removeprefix("file://"))
    # PyIceberg does not write version 3, and reads no other type than that of the schema.
    metadata = json.loads(path.read_text().replace('"timestamp"', f'"{kind}"'))
    path.write_text(json.dumps({**metadata, "format-version": 3, "next-row-id": 1}))
    result = run("read", NAME, "--json", "--catalog", tmp_path / "catalog.db")
    assert (result.exit_code, json.loads(result.stdout)) == (0, {"id": 1}), result.output
    assert f"without at ({kind})" in result.stderr


def test_a_load_without_the_column_writes_null_there(tmp_path: Path, catalog: SqlCatalog) -> None:
    create(catalog)
    result = load(tmp_path, {"id": 2, "name": "b", "s": {"x": 8}, "new": 1}, verify=True)
    assert result.verification is not None
    assert result.verification.is_clean
    before = {"id": 1, "at": time(1, 2, 3, 4), "name": "a", "s": {"x": 7, "h": time(5)}, "new": None}
    assert stored(catalog) == [before, {"id": 2, "at": None, "name": "b", "s": {"x": 8, "h": None}, "new": 1}]


@pytest.mark.parametrize(
    ("record", "column"),
    [({"at": "01:02"}, "at"), ({"AT": 1}, "at"), ({"s": {"h": "05:00"}}, r"s\.h"), ({"s": {"H": 5}}, r"s\.h")],
    ids=str,
)
def test_a_load_that_has_values_for_the_column_is_refused(
    tmp_path: Path, catalog: SqlCatalog, record: dict[str, Any], column: str
) -> None:
    create(catalog)
    before = stored(catalog)
    with pytest.raises(UnsupportedColumnType, match=rf"Column {column} has the type time, .*cannot write values"):
        load(tmp_path, {"id": 2, **record})
    assert stored(catalog) == before
    if "at" in record:
        load(tmp_path, {"id": 2, **record}, exclude=["at"])
        assert [row["id"] for row in stored(catalog)] == [1, 2]


def required(catalog: SqlCatalog) -> None:
    with catalog.load_table(NAME).update_schema(allow_incompatible_changes=True) as update:
        update.update_column("at", required=True)


def partitioned(catalog: SqlCatalog) -> None:
    with catalog.load_table(NAME).update_spec() as update:
        update.add_field("at", IdentityTransform())


def sorted_by(catalog: SqlCatalog) -> None:
    with catalog.load_table(NAME).update_sort_order() as update:
        update.asc("at", IdentityTransform())


@pytest.mark.parametrize("change", [required, partitioned, sorted_by])
def test_a_table_that_needs_values_of_the_column_takes_no_load(
    tmp_path: Path, catalog: SqlCatalog, change: Callable[[SqlCatalog], None]
) -> None:
    create(catalog)
    change(catalog)
    with pytest.raises(UnsupportedColumnType, match=r"Column at has the type time, .* new rows have null there"):
        load(tmp_path, {"id": 2})


PLACES: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "alone": lambda kind: (kind, lambda value: value),
    "struct": lambda kind: (
        StructType(NestedField(50, "x", LongType()), NestedField(51, "h", kind)),
        lambda value: {"x": 7, "h": value},
    ),
    "list": lambda kind: (ListType(50, kind, element_required=False), lambda value: [value, None]),
    "map": lambda kind: (MapType(50, StringType(), 51, kind, value_required=False), lambda value: [("k", value)]),
    "list of structs": lambda kind: (
        ListType(50, StructType(NestedField(51, "x", LongType()), NestedField(52, "h", kind)), element_required=False),
        lambda value: [{"x": 7, "h": value}],
    ),
}
"""Where the column `at` has the type: the type of the column, and its values."""

TYPES: dict[str, tuple[Any, Any]] = {
    "time": (TIME, time(1, 2, 3, 4)),
    "uuid": (UUIDType(), UUID(int=5).bytes),
    "fixed": (FixedType(4), b"abcd"),
}
"""The types of format version 2 that Spark does not have, each with a value. Only a time is left out."""

Rows = list[tuple[int, bool, str]]
OLD: Rows = [(1, True, "a"), (2, True, "b"), (3, True, "a")]
"""The rows of the table: the id, whether `at` has its value, and the name. 1 and 2 are in one file."""


def to_null(name: str) -> Rows:
    return [*OLD, (9, False, name)]


CHANGES: dict[str, tuple[Callable[[widen.IcebergTable, Path], object], Rows]] = {
    "ingest": (lambda _, place: load(place, {"id": 9, "name": "z"}), to_null("z")),
    "ingest without the column": (
        lambda _, place: load(place, {"id": 9, "name": "z", "at": 5}, exclude=["at"]),
        to_null("z"),
    ),
    "update": (lambda table, _: table.update({"name": "'u'"}, "id = 2"), [OLD[0], (2, True, "u"), OLD[2]]),
    "update all": (lambda table, _: table.update({"name": "'u'"}), [(each, True, "u") for each, *_ in OLD]),
    "delete": (lambda table, _: table.delete("id = 1"), OLD[1:]),
    "delete a file": (lambda table, _: table.delete("id < 3"), OLD[2:]),
    "delete all": (lambda table, _: table.delete(), []),
    "delete none": (lambda table, _: table.delete("id = 7"), OLD),
    "optimize": (lambda table, _: table.optimize(), OLD),
    "optimize in order": (lambda table, _: table.set_sort_order("name DESC").optimize(sort=True), OLD),
    "optimize along a curve": (lambda table, _: table.optimize(zorder_by=["id", "name"]), OLD),
    "rewrite": (lambda table, _: table.change_partitioning(add=["bucket(4, id)"]).rewrite(), OLD),
    "comment": (lambda table, _: table.alter_column("name", comment="x"), OLD),
    "add": (lambda table, _: table.add_columns({"new": {"type": "int", "after": "at"}}).drop_columns("new"), OLD),
    "move": (lambda table, _: table.alter_column("at", comment="when", first=True), OLD),
    "rename": (lambda table, _: table.rename_column("at", "then").rename_column("then", "at"), OLD),
    "sort": (lambda table, _: table.set_sort_order("id"), OLD),
    "restore": (lambda table, _: table.restore(table.history()[0].version), OLD),
}
"""What changes a table, and the rows after it."""


LAYOUTS = [(kind, place) for place in PLACES for kind in TYPES if kind == "time" or place == "alone"]


@pytest.mark.parametrize(("change", "layout"), covering(CHANGES, LAYOUTS), ids=str)
def test_every_change_keeps_the_values(
    tmp_path: Path, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch, change: str, layout: tuple[str, str]
) -> None:
    monkeypatch.setenv("WIDEN_ENGINE", "local")
    kind = "time" if change.startswith("ingest") else layout[0]  # the length of a uuid is a rule, which Spark checks
    (iceberg_type, value), (run_change, after) = TYPES[kind], CHANGES[change]
    column_type, wrap = PLACES[layout[1]](iceberg_type)
    columns = (NestedField(1, "id", LongType()), NestedField(2, "at", column_type))
    made = catalog.create_table(NAME, Schema(*columns, NestedField(3, "name", StringType())))
    for rows in (OLD[:2], OLD[2:]):
        records = [{"id": each, "at": wrap(value), "name": name} for each, _, name in rows]
        made.append(pa.Table.from_pylist(records, schema=made.schema().as_arrow()))
    before = {row["id"]: row["at"] for row in stored(catalog)}
    run_change(widen.IcebergTable(NAME, tmp_path / "catalog.db"), tmp_path)
    found = [(row["id"], row["at"], row["name"]) for row in stored(catalog)]
    if change.startswith("ingest") and layout[1] == "list of structs":
        # PyIceberg 0.12 reads every null list of structs as an empty list: iceberg-python issue 3833.
        assert found.pop() == (9, [], "z")
        found.append((9, in_file(catalog, 9)["at"], "z"))
    assert found == [(number, before[number] if is_kept else None, name) for number, is_kept, name in after]


REFUSED: dict[str, Callable[[widen.IcebergTable, Path], object]] = {
    "ingest by key": lambda table, place: load(place, {"id": 1, "name": "b"}, key=["id"]),
    "assign": lambda table, place: table.update({"at": "NULL"}),
    "assign the struct": lambda table, place: table.update({"s": "NULL"}, "id = 1"),
    "update by it": lambda table, place: table.update({"name": "'b'"}, "at IS NULL"),
    "delete by it": lambda table, place: table.delete("s.h IS NULL"),
    "sort by it": lambda table, place: table.set_sort_order("at"),
    "partition by it": lambda table, place: table.change_partitioning(add=["at"]),
    "fill it": lambda table, place: table.alter_column("at", source="then"),
}


@pytest.mark.parametrize("call", REFUSED)
def test_what_needs_the_values_is_refused_and_changes_nothing(
    tmp_path: Path, catalog: SqlCatalog, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WIDEN_ENGINE", "local")
    table = create(catalog)
    load(tmp_path, {"id": 2})
    before, metadata = stored(catalog), catalog.load_table(NAME).metadata_location
    with pytest.raises(
        ColumnLeftOut, match=r"Column (at|s\.h) has the type time, which Spark does not have"
    ) as refused:
        REFUSED[call](table, tmp_path)
    assert "e.g. Trino" in refused.value.advice
    assert (stored(catalog), catalog.load_table(NAME).metadata_location) == (before, metadata)


@pytest.mark.parametrize("words", [["--select", "at"], ["--where", "s.h IS NULL"], ["--select", "s.h"]], ids=" ".join)
def test_a_query_of_the_column_says_why_it_cannot(
    tmp_path: Path, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch, words: list[str]
) -> None:
    monkeypatch.setenv("WIDEN_ENGINE", "local")
    create(catalog)
    done = run("read", NAME, "--catalog", str(tmp_path / "catalog.db"), *words)
    assert done.exit_code == 1
    assert "has the type time, which Spark does not have: Widen cannot use its values" in done.stderr
    done = run("sql", f"DESCRIBE TABLE {NAME}", "--catalog", str(tmp_path / "catalog.db"), "--json")
    assert '"at", "time"' in done.stdout or '"time"' in done.stdout, done.stdout


@pytest.mark.parametrize("name", ["at", "At"])
def test_the_name_of_the_column_is_taken(tmp_path: Path, catalog: SqlCatalog, name: str) -> None:
    table = create(catalog)
    for call in (lambda: table.rename_column("name", name), lambda: table.add_columns({name: "int"})):
        with pytest.raises(ColumnAlreadyExists):
            call()


def test_the_sources_of_the_column_survive_changes(tmp_path: Path, catalog: SqlCatalog) -> None:
    table = create(catalog)
    load(tmp_path, {"id": 2, "First Name": "b"})
    table.alter_column("name", source="full_name").drop_columns("at", "s")
    load(tmp_path, {"id": 3, "full_name": "c"})
    assert [row["name"] for row in stored(catalog)] == ["a", None, "c"]


def test_the_other_columns_can_change(tmp_path: Path, catalog: SqlCatalog) -> None:
    table = create(catalog).rename_column("s", "t").add_columns({"n": "int"}).drop_columns("t")
    assert table.schema.names == ("id", "name", "n")
    assert [column.name for column in table.columns] == ["id", "at", "name", "n"]
    assert [column.name for column in catalog.load_table(NAME).schema().fields] == ["id", "at", "name", "n"]


NANOS = 1_700_000_000_123_456_789
CHANGES_OF_ROWS: dict[str, tuple[Callable[[widen.IcebergTable], object], set[int]]] = {
    "delete": (lambda table: table.delete("id = 1"), {2, 3}),
    "update": (lambda table: table.update({"name": "'u'"}, "id = 2"), {1, 2, 3}),
    "optimize": (lambda table: table.optimize(), {1, 2, 3}),
    "optimize along a curve": (lambda table: table.optimize(zorder_by=["id"]), {1, 2, 3}),
}


@pytest.mark.parametrize("change", CHANGES_OF_ROWS)
def test_nanoseconds_are_copied_exactly(tmp_path: Path, change: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyIceberg does not write format version 3, so that the columns are added to the files of a load."""
    monkeypatch.setenv("WIDEN_ENGINE", "local")
    place = tmp_path / "catalog.db"
    for keys in ((1, 2), (3,)):
        records = [{"id": key, "name": "a"} for key in keys]
        ingest(records, NAME, catalog=place, to="iceberg", format_version=3)
    metadata = Path(widen.IcebergTable(NAME, place).table.metadata_location.removeprefix("file://"))
    value, kinds = json.loads(metadata.read_text()), {"at": pa.timestamp("ns"), "tz": pa.timestamp("ns", tz="UTC")}
    for number, (name, data_type) in enumerate(kinds.items(), 91):
        kind = "timestamp_ns" if data_type.tz is None else "timestamptz_ns"
        value["schemas"][-1]["fields"].append({"id": number, "name": name, "type": kind, "required": False})
        for path in tmp_path.rglob("*.parquet"):
            rows = pq.ParquetFile(path).read()
            column = pa.field(name, data_type, metadata={b"PARQUET:field_id": str(number).encode()})
            values = [NANOS + row["id"] for row in rows.to_pylist()]
            pq.write_table(rows.append_column(column, pa.array(values, data_type)), path)
    metadata.write_text(json.dumps(value | {"last-column-id": 92}))
    run_change, expected = CHANGES_OF_ROWS[change]
    run_change(widen.IcebergTable(NAME, place))
    table = widen.IcebergTable(NAME, place).table
    paths = [entry.data_file.file_path for entry in live_entries(table.metadata, table.io, table.current_snapshot())]
    found = pa.concat_tables(pq.ParquetFile(path.removeprefix("file://")).read(["id", "at", "tz"]) for path in paths)
    assert {*found["id"].to_pylist()} == expected
    for name in kinds:
        assert found[name].cast(pa.int64()).to_pylist() == [NANOS + each for each in found["id"].to_pylist()]
    assert widen.IcebergTable(NAME, place).to_arrow().column_names == ["id", "name"]
