"""Changes of columns: what Iceberg allows in version 2, one commit each, and nothing that it forbids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.table.sorting import SortField, SortOrder
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
)

from support.iceberg_files import embedded_catalog
from widen.errors import (
    ColumnAlreadyExists,
    ColumnInUse,
    ColumnNotFound,
    IcebergDefaultsNotSupported,
    InvalidColumnName,
    InvalidOption,
    ItemCommentRefused,
    ItemRenameRefused,
    LastColumnDropRefused,
    NestedTypeChangeRefused,
    NewColumnNotNull,
    PartitionColumnDropRefused,
    TableChanged,
    TypeChangeRefused,
    UnsupportedColumnType,
)
from widen.iceberg import table_commit as commit
from widen.iceberg.catalog import TableName, to_table_name
from widen.iceberg.schema_conversion import to_model
from widen.iceberg.table_commit import commit_columns
from widen.schema.alter import parse_column_changes, parse_drops, parse_new_columns, parse_rename

POINT = StructType(NestedField(9, "x", IntegerType(), required=False))
SCHEMA = Schema(
    NestedField(1, "id", IntegerType(), required=True),
    NestedField(2, "price", DecimalType(10, 2), required=False, doc="In euros."),
    NestedField(3, "text", StringType(), required=False),
    NestedField(4, "day", DateType(), required=False),
    NestedField(5, "ratio", FloatType(), required=False),
    NestedField(6, "at", StructType(NestedField(7, "a", IntegerType(), required=False)), required=False),
    NestedField(8, "points", ListType(10, POINT, element_required=False), required=False),
    NestedField(11, "by", MapType(12, POINT, 13, IntegerType(), value_required=False), required=False),
    identifier_field_ids=[1],
)


@pytest.fixture
def table(tmp_path: Path) -> Table:
    spec = PartitionSpec(PartitionField(4, 1000, IdentityTransform(), "day"))
    order = SortOrder(SortField(5, IdentityTransform()))
    return embedded_catalog(tmp_path).create_table("ns.t", SCHEMA, partition_spec=spec, sort_order=order)


@pytest.fixture
def name(table: Table) -> TableName:
    return to_table_name("ns.t", table.catalog)


def alter(name: TableName, column: str, **wanted: Any) -> Table:
    schema = to_model(name.load().schema())
    return commit_columns(name, parse_column_changes(schema, {column: wanted}))  # type: ignore[dict-item]


def kind(table: Table, column: str) -> str:
    return str(table.schema().find_type(column))


def test_types_widen_as_version_2_allows(name: TableName) -> None:
    assert kind(alter(name, "id", type="bigint"), "id") == "long"
    assert kind(alter(name, "price", type="decimal(12,2)"), "price") == "decimal(12, 2)"
    assert kind(alter(name, "ratio", type="double"), "ratio") == "double"
    assert kind(alter(name, "at.a", type="bigint"), "at.a") == "long"
    assert kind(alter(name, "points.element.x", type="bigint"), "points.element.x") == "long"
    assert kind(alter(name, "by.value", type="bigint"), "by.value") == "long"
    assert name.load().schema().find_field("price").doc == "In euros."


@pytest.mark.parametrize(
    ("column", "new", "error"),
    [
        ("price", "decimal(12,4)", TypeChangeRefused),  # PyIceberg accepts this one
        ("text", "binary", TypeChangeRefused),  # and this one
        ("price", "decimal(9,2)", TypeChangeRefused),
        ("id", "double", TypeChangeRefused),
        ("id", "decimal(12,0)", TypeChangeRefused),
        ("day", "timestamp_ntz", TypeChangeRefused),
        ("ratio", "float", None),
        ("at", "struct<a: bigint>", NestedTypeChangeRefused),
        ("by.key.x", "bigint", ColumnInUse),
        ("nothing", "bigint", ColumnNotFound),
    ],
)
def test_what_the_specification_forbids_never_reaches_pyiceberg(
    name: TableName, column: str, new: str, error: type[Exception] | None
) -> None:
    before = name.load().metadata
    if error is None:
        alter(name, column, type=new)
    else:
        with pytest.raises(error):
            alter(name, column, type=new)
    assert name.load().metadata == before


def test_pyiceberg_itself_accepts_what_the_specification_forbids(table: Table) -> None:
    """When this fails, PyIceberg has learned it; our checks stay."""
    with table.update_schema() as update:
        update.update_column("price", DecimalType(12, 4))
        update.update_column("text", BinaryType())
    assert (kind(table, "price"), kind(table, "text")) == ("decimal(12, 4)", "binary")


def test_columns_are_added_renamed_moved_and_dropped(name: TableName) -> None:
    schema = to_model(name.load().schema())
    added = {"note": {"type": "string", "comment": "By hand.", "after": "id"}, "at.b": "array<struct<c: int>>"}
    table = commit_columns(name, parse_new_columns(schema, {**added, "points.element.y": "bigint"}))
    assert table.schema().column_names[:2] == ["id", "note"]
    assert table.schema().find_field("note").doc == "By hand."
    assert kind(table, "at.b.element.c") == "int"
    assert kind(table, "points.element.y") == "long"
    assert len({*table.schema().field_ids}) == len(table.schema().field_ids)
    number = table.schema().find_field("note").field_id
    schema = to_model(table.schema())
    table = commit_columns(name, parse_rename(schema, "note", "remark"))
    assert table.schema().find_field("remark").field_id == number
    table = alter(name, "remark", first=True, comment="New.")
    assert (table.schema().column_names[0], table.schema().find_field("remark").doc) == ("remark", "New.")
    drops = parse_drops(to_model(table.schema()), ["remark", "at.a"], if_exists=False)
    assert not {"remark", "at.a"} & {*commit_columns(name, drops).schema().column_names}


def test_a_plan_may_use_the_columns_that_it_makes(name: TableName) -> None:
    schema = to_model(name.load().schema())
    new = parse_new_columns(schema, {"s": "struct<a: int>", "s.b": "int"})
    renamed = parse_rename(schema, "text", "words")
    dropped = parse_drops(schema, ["at"], if_exists=False)
    again = parse_new_columns(schema, {"text": "bigint"})
    table = commit_columns(name, [*new, *renamed, *dropped, *again])
    assert (kind(table, "s.b"), kind(table, "words"), kind(table, "text")) == ("int", "string", "long")
    assert len(table.metadata.metadata_log) == 1


def test_a_column_that_is_to_follow_itself_stays(name: TableName) -> None:
    before = name.load().schema()
    changes: Any = {"price": {"after": "PRICE", "type": "decimal(12,2)"}}
    commit_columns(name, parse_column_changes(to_model(before), changes))
    after = name.load().schema()
    assert after.column_names == before.column_names
    assert str(after.find_type("price")) == "decimal(12, 2)"


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda s: parse_drops(s, ["day"], if_exists=False), PartitionColumnDropRefused, "day"),
        (lambda s: parse_drops(s, ["ratio"], if_exists=False), ColumnInUse, "sorted by it"),
        (lambda s: parse_drops(s, ["id"], if_exists=False), ColumnInUse, "identifies the rows"),
        (lambda s: parse_drops(s, ["at.a"], if_exists=False), LastColumnDropRefused, "at would have"),
        (lambda s: parse_drops(s, ["by.value"], if_exists=False), ItemRenameRefused, "by.value"),
        (lambda s: parse_rename(s, "id", "DAY"), ColumnAlreadyExists, "day"),
        (lambda s: parse_rename(s, "points.element", "p"), ItemRenameRefused, "points.element"),
        (lambda s: parse_new_columns(s, {"by.key.z": "int"}), ColumnInUse, "by.key is the key of a map"),
        (lambda s: parse_new_columns(s, {"ID": "int"}), ColumnAlreadyExists, "id"),
        (lambda s: parse_new_columns(s, {"`at.a`": "int"}), InvalidColumnName, "spells it like at.a"),
        (lambda s: parse_rename(s, "day", "at.a"), InvalidColumnName, "spells it like"),
        (lambda s: parse_new_columns(s, {"v": "variant"}), UnsupportedColumnType, "variant"),
        (lambda s: parse_new_columns(s, {"v": "varchar(3)"}), InvalidOption, "varchar"),
        (
            lambda s: parse_new_columns(s, {"v": {"type": "int", "nullable": False}}),
            NewColumnNotNull,
            "v",
        ),
        (lambda s: parse_column_changes(s, {"day": {"nullable": False}}), InvalidOption, "forbid null"),
        (
            lambda s: parse_column_changes(s, {"id": {"nullable": True}}),
            ColumnInUse,
            "identifies the rows",
        ),
        (lambda s: parse_column_changes(s, {"day": {"default": "1"}}), IcebergDefaultsNotSupported, "format version 2"),
        (
            lambda s: parse_column_changes(s, {"by.value": {"comment": "c"}}),
            ItemCommentRefused,
            "by.value",
        ),
    ],
)
def test_other_changes_are_refused_with_the_reason(
    name: TableName, change: Any, error: type[Exception], message: str
) -> None:
    before = name.load().metadata
    with pytest.raises(error, match=message):
        commit_columns(name, change(to_model(name.load().schema())))
    assert name.load().metadata == before


def test_files_without_ids_keep_the_names_of_dropped_columns(table: Table, name: TableName) -> None:
    ids = {column: table.schema().find_field(column).field_id for column in ("id", "price", "text", "points.x")}
    with table.transaction() as transaction:
        mapping = create_mapping_from_schema(table.schema()).model_dump_json()
        transaction.set_properties({"schema.name-mapping.default": mapping})
    with table.update_schema() as update:
        update.delete_column("text").delete_column(("points", "x")).delete_column("price")
        update.add_column(("points", "y"), IntegerType())
    schema = to_model(table.schema())
    added = {"text": "int", "points.element.x": "string", "new": "int"}
    table = commit_columns(name, parse_new_columns(schema, added))  # type: ignore[arg-type]
    assert table.schema().find_field("text").field_id != ids["text"]
    ids |= {column: table.schema().find_field(column).field_id for column in ("points.y", "new")}
    table = commit_columns(name, parse_rename(schema, "id", "price"))
    kept = table.metadata.name_mapping()
    assert kept is not None
    names = {each.field_id: each.names for each in kept.root}
    assert {column: names[ids[column]] for column in ("id", "price", "text", "new")} == {
        "id": ["id"], "price": ["price"], "text": ["text"], "new": ["new"],
    }  # fmt: skip
    (item,) = next(each.fields for each in kept.root if each.names == ["points"])
    assert {each.field_id: each.names for each in item.fields} == {ids["points.y"]: ["y"], ids["points.x"]: ["x"]}


def test_a_change_that_another_writer_made_first_wins(name: TableName, monkeypatch: pytest.MonkeyPatch) -> None:
    def race(name: TableName, table: Any) -> None:
        with name.load().update_schema() as update:
            update.add_column("theirs", LongType())

    monkeypatch.setattr(commit, "ensure_table_writable", race)
    with pytest.raises(TableChanged, match=r"ns\.t in the meantime: Requirement failed: current schema id has changed"):
        alter(name, "id", type="bigint")
    assert kind(name.load(), "id") == "int"
