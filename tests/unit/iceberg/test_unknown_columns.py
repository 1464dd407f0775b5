"""Columns of the type unknown, which tables of format version 3 have: files do not have them.

Source: Iceberg's table specification, "Primitive Types" and "Schema Evolution"
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import widen
from support.command_line import run
from widen.errors import UnsupportedColumnType

UNKNOWN = {"type": "unknown", "required": False}


def load(place: Path, *records: dict[str, Any], **options: Any) -> Any:
    path = place / f"{len(list(place.glob('*.json')))}.json"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    done = widen.ingest(path, "ns.t", catalog=place / "catalog.db", to="iceberg", verify=True, **options)
    assert done.verification is not None
    assert done.verification.is_clean
    return done


@pytest.fixture(params=[{}, {"key": ["id"]}], ids=["added", "by key"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    found: dict[str, Any] = request.param
    return found


@pytest.fixture
def place(tmp_path: Path, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table with a row, and with such columns, one of them in a struct."""
    monkeypatch.setitem(sys.modules, "pyspark.java_gateway", None)
    load(tmp_path, {"id": 1, "s": {"x": 1}}, format_version=3, **options)
    path = Path(opened(tmp_path).table.metadata_location.removeprefix("file://"))
    metadata = json.loads(path.read_text())
    fields = metadata["schemas"][-1]["fields"]
    fields.append({"id": 91, "name": "u", **UNKNOWN, "doc": "Nothing yet."})
    next(each for each in fields if each["name"] == "s")["type"]["fields"].append({"id": 92, "name": "v", **UNKNOWN})
    metadata["last-column-id"] = 92
    path.write_text(json.dumps(metadata))
    return tmp_path


def opened(place: Path) -> widen.IcebergTable:
    return widen.IcebergTable("ns.t", place / "catalog.db")


def rows(place: Path) -> list[dict[str, Any]]:
    """All rows, as PyIceberg reads them."""
    return sorted(opened(place).table.scan().to_arrow().to_pylist(), key=lambda row: row["id"])


def stored(place: Path) -> set[str]:
    """The columns of all files of the table."""
    paths = opened(place).files()["path"].to_pylist()
    root = Path(opened(place).location.removeprefix("file://"))
    files = [path for path in root.rglob("*.parquet") if any(path.name in each for each in paths)]
    assert len(files) == len(paths)
    return {leaf.path for path in files for leaf in map(pq.ParquetFile(path).schema.column, range(_count(path)))}


def _count(path: Path) -> int:
    return int(pq.ParquetFile(path).metadata.num_columns)


FIRST = {"id": 1, "s": {"x": 1, "v": None}, "u": None}


def test_records_without_a_value_leave_the_column_as_it_is(place: Path, options: dict[str, Any]) -> None:
    load(place, {"id": 2, "u": None, "s": {"x": 2, "v": None}}, {"id": 3}, **options)
    assert rows(place) == [FIRST, {**FIRST, "id": 2, "s": {"x": 2, "v": None}}, {"id": 3, "s": None, "u": None}]
    assert str(opened(place).table.schema().find_type("u")) == "unknown"
    assert {name.partition(".")[0] for name in stored(place)} == {"id", "s"}
    assert "s.v" not in stored(place)


@pytest.mark.parametrize(
    ("value", "kind"),
    [(5, "int"), (2**40, "long"), ("a", "string"), (1.5, "double"), (True, "boolean"), ({"y": 1, "z": "b"}, "struct")],
)
def test_the_first_value_gives_the_column_its_type(place: Path, options: dict[str, Any], value: Any, kind: str) -> None:
    before = {each["path"] for each in opened(place).files().to_pylist()}
    done = load(place, {"id": 2, "u": value}, **options)
    assert [str(each).partition(" ")[0] for each in done.plan.operations] == ["add"]
    field = opened(place).table.schema().find_field("u")
    assert (field.field_id, str(field.field_type).partition("<")[0], field.doc) == (91, kind, "Nothing yet.")
    assert rows(place) == [FIRST, {"id": 2, "s": None, "u": value}]
    assert before < {each["path"] for each in opened(place).files().to_pylist()}  # nothing was written again
    load(place, {"id": 3, "u": value}, {"id": 4}, **options)
    assert [row["u"] for row in rows(place)] == [None, value, value, None]


def test_a_list_and_a_field_of_a_struct_get_their_types(place: Path, options: dict[str, Any]) -> None:
    load(place, {"id": 2, "u": [1, None], "s": {"x": 2, "v": "b"}}, **options)
    schema = opened(place).table.schema()
    assert (schema.find_field("s.v").field_id, str(schema.find_type("s.v"))) == (92, "string")
    assert rows(place) == [FIRST, {"id": 2, "s": {"x": 2, "v": "b"}, "u": [1, None]}]


def test_a_statement_gives_a_type(place: Path) -> None:
    widen.sql("ALTER TABLE ns.t ALTER COLUMN u TYPE bigint", catalog=place / "catalog.db")
    widen.sql("ALTER TABLE ns.t ALTER COLUMN s.v TYPE date", catalog=place / "catalog.db")
    schema = opened(place).table.schema()
    assert [str(schema.find_type(name)) for name in ("u", "s.v")] == ["long", "date"]
    assert rows(place) == opened(place).to_arrow().to_pylist() == [FIRST]


def test_reads_and_changes_need_no_spark(place: Path) -> None:
    table = opened(place)
    assert table.to_arrow("u IS NULL").to_pylist() == [FIRST]
    assert table.to_arrow("u IS NOT NULL").num_rows == 0
    assert table.to_pandas()["u"].tolist() == [None]
    assert table.to_polars()["u"].to_list() == [None]
    assert run("read", "ns.t", "--catalog", str(place / "catalog.db"), "--engine", "local").exit_code == 0
    table.update({"id": "id + 1"}, "u IS NULL")
    assert rows(place) == [{**FIRST, "id": 2}]


def test_a_field_that_is_always_null_makes_such_a_column(tmp_path: Path, options: dict[str, Any]) -> None:
    first = {"id": 1, "x": None, "s": {"a": 1, "b": None}, "e": [], "l": [{"q": 1, "z": None}], "r": {"n": None}}
    load(tmp_path, first, format_version=3, **options)
    assert types(tmp_path) == {"id": "int", "l": "list", "s": "struct", "x": "unknown", "s.b": "unknown"}
    # Old tables get it, too. A name in another case belongs to the same column.
    load(tmp_path, {"id": 2, "X": None, "s": {"a": 1, "c": None}, "y.y": None}, **options)
    assert types(tmp_path) == {**types(tmp_path), "s.c": "unknown", "y_y": "unknown"}
    assert len(types(tmp_path)) == 7
    numbers = {name: opened(tmp_path).table.schema().find_field(name).field_id for name in ("x", "y_y", "s.c")}
    load(tmp_path, {"id": 3, "x": {"k": 1, "n": None}, "y.y": "a", "s": {"a": 1, "c": 1.5}}, **options)
    assert {name: opened(tmp_path).table.schema().find_field(name).field_id for name in numbers} == numbers
    assert [types(tmp_path)[name] for name in ("x", "x.n", "y_y", "s.c")] == ["struct", "unknown", "string", "double"]
    (found,) = opened(tmp_path).to_arrow("id = 3").to_pylist()
    nested = {"s": {"a": 1, "b": None, "c": 1.5}, "x": {"k": 1, "n": None}}
    assert found == {"id": 3, "l": None, **nested, "y_y": "a"}
    before = len(opened(tmp_path).table.metadata.schemas)
    load(tmp_path, {"id": 4, "x": None, "s": {"b": None}}, **options)
    assert len(opened(tmp_path).table.metadata.schemas) == before


def types(place: Path) -> dict[str, str]:
    """The types of the columns, and of the fields of structs; of nested types only what they are."""
    schema = opened(place).table.schema()
    paths = [name for name in schema.column_names if not name.startswith("l.")]
    kinds = {name: str(schema.find_type(name)).partition("<")[0] for name in paths}
    return {name: kind for name, kind in kinds.items() if "." not in name or name in ("s.b", "s.c", "x.n")}


@pytest.mark.parametrize("options", [{}], ids=["added"])
@pytest.mark.parametrize(
    "more",
    [{}, {"evolve": "freeze"}, {"max_columns": 2}, {"format_version": 2}],
    ids=["a name that is taken", "freeze", "full", "version 2"],
)
def test_a_field_stays_pending(tmp_path: Path, more: dict[str, Any], options: dict[str, Any]) -> None:
    if "evolve" in more or "max_columns" in more:
        load(tmp_path, {"id": 1, "y_y": 1}, format_version=3)
        load(tmp_path, {"id": 2, "x": None}, **more)
    else:
        load(tmp_path, {"id": 1, "y_y": 1, **({} if not more else {"x": None})}, **{"format_version": 3, **more})
        load(tmp_path, {"id": 2, "y.y": None})
    assert set(types(tmp_path)) == {"id", "y_y"}


def test_statements_make_such_columns(tmp_path: Path) -> None:
    catalog, three = tmp_path / "catalog.db", "TBLPROPERTIES ('format-version' = '3')"
    load(tmp_path, {"id": 1})
    for text, reason in (
        ("CREATE TABLE ns.u (id int, v void)", "version 2"),
        ("ALTER TABLE ns.t ADD COLUMN v void", "version 2"),
        (f"CREATE TABLE ns.u (id int, v void NOT NULL) {three}", "NOT NULL"),
        (f"CREATE TABLE ns.u (id int, v array<void>) {three}", "item of a list"),
    ):
        with pytest.raises(UnsupportedColumnType, match=reason):
            widen.sql(text, catalog=catalog)
    widen.sql(f"CREATE TABLE ns.u (id int, v void, s struct<a: int, b: void>) {three}", catalog=catalog)
    widen.sql("ALTER TABLE ns.u ADD COLUMN w void", catalog=catalog)
    schema = widen.IcebergTable("ns.u", catalog).table.schema()
    assert [str(schema.find_type(name)) for name in ("v", "s.b", "w")] == ["unknown"] * 3
