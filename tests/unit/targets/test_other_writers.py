"""Other clients write to a table between two loads: the next load finds its columns and the rows of its keys."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, Schema, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.types import LongType

import widen
from support.command_line import run, run_json
from support.covering import covering
from widen.model.column_path import fields
from widen.model.schema_json import has_metadata_as_text
from widen.schema.source_metadata import SOURCE

FIRST = [
    {"order id": 1, "n": 5, "s": {"q": 1, "a b": "x"}, "l": [{"m": 1}], "t": {"u": 1}},
    {"order id": 2, "n": 6, "s": {"q": 2, "a b": "y"}, "l": [], "t": "text"},
]
NEXT = [
    {"order id": 2, "n": 60, "s": {"q": 20, "a b": "z"}, "l": [{"m": 2}], "t": "again"},
    {"order id": 3, "n": 7, "s": {"q": 3, "a b": "w"}, "l": [], "t": {"u": 3}},
]
"""Fields that Delta cannot name as they are, at the top and inside, and one of two kinds, with a column of each."""

COLUMNS = ["l", "n", "order_id", "s", "t", "t_string"]

ROWS = pa.table(
    {
        "l": pa.array([[{"m": 9}]], pa.list_(pa.struct([("m", pa.int64())]))),
        "n": pa.array([9]),
        "order_id": pa.array([9]),
        "s": pa.array([{"a_b": "v", "q": 9}], pa.struct([("a_b", pa.string()), ("q", pa.int64())])),
        "t": pa.array([{"u": 9}], pa.struct([("u", pa.int64())])),
        "t_string": pa.array(["nine"]),
    }
)
WIDER = ROWS.append_column("added", pa.array([1]))


def merge(place: str, rows: pa.Table, *, merge_schema: bool) -> None:
    merged = DeltaTable(place).merge(rows, "t.order_id = s.order_id", "s", "t", merge_schema=merge_schema)
    merged.when_matched_update_all().when_not_matched_insert_all().execute()


def restore(place: str) -> None:
    write_deltalake(place, WIDER, mode="append", schema_mode="merge")
    DeltaTable(place).restore(DeltaTable(place).version() - 1)


APPENDED, REPLACED, GONE = [1, 2, 9], [9], [1]
DELTALAKE: dict[str, tuple[Callable[[str], object], list[int]]] = {
    "append": (lambda p: write_deltalake(p, ROWS, mode="append"), APPENDED),
    "append, merge": (lambda p: write_deltalake(p, WIDER, mode="append", schema_mode="merge"), APPENDED),
    "overwrite": (lambda p: write_deltalake(p, ROWS, mode="overwrite"), REPLACED),
    "overwrite, merge": (lambda p: write_deltalake(p, WIDER, mode="overwrite", schema_mode="merge"), REPLACED),
    "overwrite, same columns": (
        lambda p: write_deltalake(p, ROWS, mode="overwrite", schema_mode="overwrite"),
        REPLACED,
    ),
    "overwrite, overwrite": (lambda p: write_deltalake(p, WIDER, mode="overwrite", schema_mode="overwrite"), REPLACED),
    "create": (lambda p: DeltaTable.create(p, Schema.from_arrow(WIDER.schema), mode="overwrite"), []),
    "where": (lambda p: write_deltalake(p, ROWS, mode="overwrite", predicate="order_id = 9"), APPENDED),
    "where, merge": (
        lambda p: write_deltalake(p, WIDER, mode="overwrite", predicate="order_id = 9", schema_mode="merge"),
        APPENDED,
    ),
    "where, overwrite": (
        lambda p: write_deltalake(p, WIDER, mode="overwrite", predicate="order_id = 9", schema_mode="overwrite"),
        APPENDED,
    ),
    "MERGE": (lambda p: merge(p, ROWS, merge_schema=False), APPENDED),
    "MERGE, merge_schema": (lambda p: merge(p, WIDER, merge_schema=True), APPENDED),
    "update": (lambda p: DeltaTable(p).update(updates={"n": "n + 1"}, predicate="order_id = 1"), [1, 2]),
    "delete": (lambda p: DeltaTable(p).delete("order_id = 2"), GONE),
    "compact": (lambda p: DeltaTable(p).optimize.compact(), [1, 2]),
    "z-order": (lambda p: DeltaTable(p).optimize.z_order(["order_id"]), [1, 2]),
    "restore": (restore, [1, 2]),
    "add columns": (lambda p: DeltaTable(p).alter.add_columns([Field("added", "long")]), [1, 2]),
    "add constraint": (lambda p: DeltaTable(p).alter.add_constraint({"c": "order_id > 0"}), [1, 2]),
    "properties": (lambda p: DeltaTable(p).alter.set_table_properties({"delta.appendOnly": "false"}), [1, 2]),
    "comment": (lambda p: DeltaTable(p).alter.set_column_metadata("n", {"comment": "amount"}), [1, 2]),
    "checkpoint": (lambda p: DeltaTable(p).create_checkpoint(), [1, 2]),
}
"""The ways in which deltalake writes to a table, and the orders that the table then has."""

LOSING = {"overwrite, same columns", "overwrite, overwrite", "create", "where, overwrite"}
"""The ways after which the schema has no metadata."""


LOADS = (False, True)
"""Whether a load changes rows by key."""


def write(path: Path, records: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def load(path: Path, records: list[dict[str, Any]], table: str, **options: Any) -> widen.IngestResult:
    return widen.ingest(write(path / "in.json", records), table, engine="local", **options)


def expected(before: list[int], *, by_key: bool) -> list[int]:
    return sorted({*before, 2, 3} if by_key else [*before, 2, 3])


def ensure_found(result: widen.IngestResult, found: pa.Table, orders: list[int]) -> None:
    """Check that a load of `NEXT` has added no column, and that its values are where those of the fields were."""
    assert not result.plan.operations
    assert str(result.verification).endswith("leaves exact")
    rows = found.to_pylist()
    assert sorted(row["order_id"] for row in rows) == orders
    (new,) = (row for row in rows if row["order_id"] == 3)
    shown = {name: new[name] for name in COLUMNS}
    filled = {"l": [], "n": 7, "order_id": 3, "s": {"a_b": "w", "q": 3}, "t": {"u": 3}, "t_string": None}
    assert shown == filled
    assert [row["t_string"] for row in rows if row["n"] == 60] == ["again"]


@pytest.mark.parametrize(("way", "by_key"), covering(DELTALAKE, LOADS))
def test_the_next_load_finds_its_columns(tmp_path: Path, way: str, by_key: bool) -> None:
    place, keys = str(tmp_path / "t"), {"key": ["order id"]} if by_key else {}
    load(tmp_path, FIRST, place, evolve="split", **keys)
    change, orders = DELTALAKE[way]
    change(place)
    assert way not in LOSING or SOURCE not in widen.Table(place).snapshot.metadata.schema_string
    result = load(tmp_path, NEXT, place, verify=True, **keys)
    table = widen.Table(place)
    ensure_found(result, table.to_arrow(), expected(orders, by_key=by_key))
    added = {} if "added" not in table.schema.names else {"added"}
    assert set(table.schema.names) == {*COLUMNS, *added}
    assert bool(result.plan.lost_sources) == (way in LOSING)
    assert not has_metadata_as_text(table.snapshot.metadata.schema_string)
    assert all(isinstance(field.metadata[SOURCE], list) for _, field in fields(table.schema))
    again = load(tmp_path, NEXT, place, **keys)
    assert (again.plan.operations, again.plan.lost_sources) == ((), "")


def test_a_schema_without_sources_is_named_once(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    load(tmp_path, FIRST, place, evolve="split")
    write_deltalake(place, ROWS, mode="overwrite", schema_mode="overwrite")
    words = (write(tmp_path / "in.json", NEXT), "--into", place)
    assert "Version 1" in run_json("plan", *words)["lostSources"]
    for command in ("plan", "ingest"):
        done = run(command, *words)
        assert done.exit_code == 0, done.stderr
        assert "has lost which fields its columns hold" in done.stdout
        assert "Version 1 removed it" in done.stdout
    assert "has lost" not in run("ingest", *words).stdout


def test_by_name_where_no_version_has_sources(tmp_path: Path) -> None:
    place, records = str(tmp_path / "t"), [{"id": 1, "n": 5}, {"id": 2, "n": 6}]
    load(tmp_path, records, place, evolve="split", key=["id"])
    write_deltalake(place, pa.table({"id": [1], "n": [5]}), mode="overwrite", schema_mode="overwrite")
    for commit in (tmp_path / "t" / "_delta_log").glob("*0.json"):
        DeltaTable(place).create_checkpoint()
        commit.unlink()
    result = load(tmp_path, records, place, key=["id"])
    assert result.plan.lost_sources == "No version in the log has it, so fields are matched with columns by name."
    table = widen.Table(place)
    assert (table.schema.names, table.to_arrow().num_rows) == (("id", "n"), 2)


def test_a_table_of_others_has_lost_nothing(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    write_deltalake(place, pa.table({"id": [1]}))
    assert not load(tmp_path, [{"id": 2}], place).plan.lost_sources


def _pyiceberg(catalog: SqlCatalog) -> dict[str, Callable[[], object]]:
    table = lambda: catalog.load_table("shop.orders")  # noqa: E731

    def columns(change: Callable[[Any], object]) -> None:
        with table().update_schema() as update:
            change(update)

    def rows() -> pa.Table:
        return ROWS.cast(table().schema().as_arrow())

    def properties(**changes: Any) -> None:
        with table().transaction() as transaction:
            for name, value in changes.items():
                getattr(transaction, name)(value)

    return {
        "append": lambda: table().append(rows()),
        "overwrite": lambda: table().overwrite(rows()),
        "overwrite where": lambda: table().overwrite(rows(), overwrite_filter="order_id = 2"),
        "upsert": lambda: table().upsert(rows().select(["order_id", "n"]), join_cols=["order_id"]),
        "delete": lambda: table().delete("order_id = 2"),
        "add a column": lambda: columns(lambda update: update.add_column("added", LongType())),
        "union by name": lambda: columns(lambda update: update.union_by_name(WIDER.schema)),
        "describe": lambda: columns(lambda update: update.update_column("n", doc="amount")),
        "properties": lambda: properties(set_properties={"owner": "ops"}),
        "without ours": lambda: properties(remove_properties="widen.sources"),
    }


ICEBERG_ORDERS = {
    "append": APPENDED,
    "overwrite": REPLACED,
    "overwrite where": [1, 9],
    "upsert": APPENDED,
    "delete": GONE,
}


@pytest.mark.parametrize(("way", "by_key"), covering(_pyiceberg(None), LOADS))  # type: ignore[arg-type]
def test_an_iceberg_table_keeps_its_columns(tmp_path: Path, way: str, by_key: bool) -> None:
    catalog = SqlCatalog("c", uri=f"sqlite:///{tmp_path / 'c.db'}", warehouse=f"file://{tmp_path / 'w'}")
    keys: dict[str, Any] = {"key": ["order id"]} if by_key else {}
    load(tmp_path, FIRST, "shop.orders", catalog=catalog, **keys)
    _pyiceberg(catalog)[way]()
    result = load(tmp_path, NEXT, "shop.orders", catalog=catalog, verify=True, **keys)
    orders = ICEBERG_ORDERS.get(way, [1, 2])
    ensure_found(result, catalog.load_table("shop.orders").scan().to_arrow(), expected(orders, by_key=by_key))
    assert bool(result.plan.lost_sources) == (way == "without ours")
    assert not load(tmp_path, NEXT, "shop.orders", catalog=catalog, **keys).plan.lost_sources
