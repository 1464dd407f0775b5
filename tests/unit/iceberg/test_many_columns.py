"""Loads that add many columns to tables of many columns take linear time: nothing is done again for each of them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from unittest import mock

import pyarrow as pa
import pytest
from pyiceberg import table as ice_table
from pyiceberg.table.update import update_table_metadata

from support.iceberg_files import embedded_catalog
from widen import ingest
from widen.errors import InvalidColumnName
from widen.files import footers
from widen.iceberg.catalog import to_table_name
from widen.iceberg.column_changes import SpelledNames
from widen.iceberg.table_commit import open_transaction
from widen.model.column_path import fields, find_field
from widen.model.types import LONG, Field, StructType
from widen.protocol.column_mapping import COLUMN_ID
from widen.schema.alter import apply_operation
from widen.schema.operations import AddColumn, DropColumn, Operation, RenameColumn


@pytest.mark.parametrize("added", [1, 40])
def test_pyiceberg_copies_the_metadata_as_often_for_many_columns_as_for_one(tmp_path: Path, added: int) -> None:
    """PyIceberg copies them where it commits, and nowhere else."""
    path, words = tmp_path / "a.jsonl", {"catalog": tmp_path / "catalog.db", "engine": "local"}
    path.write_text(json.dumps({f"a{number}": number for number in range(50)}) + "\n")
    ingest(str(path), "shop.t", **words)
    path.write_text("".join(json.dumps({f"b{number}": {"c": 1}}) + "\n" for number in range(added)))
    with mock.patch.object(ice_table, "update_table_metadata", wraps=update_table_metadata) as copies:
        ingest(str(path), "shop.t", **words)
    assert copies.call_count == 0


def test_the_metadata_that_a_transaction_keeps_are_those_of_pyiceberg(tmp_path: Path) -> None:
    embedded_catalog(tmp_path).create_table("ns.t", pa.schema([("a", pa.int64())]))
    name = to_table_name("ns.t", tmp_path / "catalog.db")
    operations = [AddColumn((), Field(f"b{number}", LONG)) for number in range(3)]
    opened = open_transaction(name, name.load(), operations)
    for step in range(2):
        kept, updates = opened.metadata, opened.transaction._updates
        expected = update_table_metadata(opened.transaction._table.metadata, updates)
        assert kept is opened.metadata
        assert kept.model_copy(update={"last_updated_ms": expected.last_updated_ms}) == expected
        opened.set_properties({"step": str(step)})
        assert opened.metadata is not kept


def random_operation(random_: random.Random, schema: StructType) -> Operation:
    """Return an operation on a column or below a struct, whose names have dots."""
    names = ("a", "b", "a.b", "b.a", "c")
    paths = [path for path, _ in fields(schema)]
    structs = [
        (),
        *(path for path in paths if isinstance((find_field(schema, path) or Field("", LONG)).type, StructType)),
    ]
    match random_.choice(("add", "add", "rename", "drop")):
        case "add":
            inner = LONG if random_.random() < 0.5 else StructType((Field(random_.choice(names), LONG),))
            return AddColumn(random_.choice(structs), Field(random_.choice(names), inner))
        case "rename" if paths:
            return RenameColumn(random_.choice(paths), random_.choice(names))
    return DropColumn(random_.choice(paths)) if paths else AddColumn((), Field("a", LONG))


@pytest.mark.parametrize("seed", range(40))
def test_names_that_pyiceberg_spells_alike_are_found_as_by_looking_at_all_of_them(seed: int) -> None:
    random_, schema = random.Random(seed), StructType()
    spelled = SpelledNames(schema)
    for _ in range(15):
        operation = random_operation(random_, schema)
        path = operation.path
        siblings = dict(fields(schema))
        new = (*path[:-1], operation.name) if isinstance(operation, RenameColumn) else path
        if not isinstance(operation, DropColumn) and new in siblings:
            continue  # refused for another reason
        after = apply_operation(schema, operation)
        texts = [".".join(each) for each, _ in fields(after)]
        if len(set(texts)) < len(texts):
            with pytest.raises(InvalidColumnName, match="Iceberg spells it like"):
                spelled.apply(schema, operation)
            return
        spelled.apply(schema, operation)
        schema = after


def test_each_column_of_a_file_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    field_id = footers.field_id

    def count(column: pa.Field) -> str:
        seen.append(column.name)
        return field_id(column)

    monkeypatch.setattr(footers, "field_id", count)
    columns = [pa.field(f"old{at}", pa.int64(), metadata={"PARQUET:field_id": str(at)}) for at in range(300)]
    schema = StructType(tuple(Field(f"new{at}", LONG, metadata={COLUMN_ID: at}) for at in range(400)))
    found = dict(footers.names_of_columns(columns, schema))
    assert found == {(f"new{at}",): f"old{at}" for at in range(300)}
    assert len(seen) == len(columns)
