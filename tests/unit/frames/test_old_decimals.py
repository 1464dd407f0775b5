"""Old types that a scan has to know, and how it splits files by them; without Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

from widen.files.scan_groups import LAYOUTS, ScanGroup, slow_decimals, split_group, unsafe_columns
from widen.log.file_list import FILES
from widen.model.column_path import parse_path
from widen.model.schema_json import from_json, parse_type, to_json
from widen.model.types import INTEGER, LONG, DecimalType, StructType
from widen.protocol.type_widening import record_type_changes

SHAPES = {
    "a": "{t}",
    "a.x": "struct<x: {t}>",
    "a.x.y": "struct<x: struct<y: {t}>>",
    "a.element": "array<{t}>",
    "a.key": "map<{t}, int>",
    "a.value": "map<int, {t}>",
    "a.element.x": "array<struct<x: {t}>>",
}
STRUCT_PATHS = ("a", "a.x", "a.x.y")


def changed(shape: str, *types: str) -> StructType:
    """Return the schema of one column that went through these types."""
    schema, *later = (parse_type(f"struct<a: {shape.format(t=one)}>") for one in types)
    for after in later:
        assert isinstance(schema, StructType)
        assert isinstance(after, StructType)
        schema = record_type_changes(schema, after)
    assert isinstance(schema, StructType)
    return schema


@pytest.mark.parametrize("path", SHAPES)
@pytest.mark.parametrize(
    ("types", "is_unsafe", "is_slow"),
    [
        (("decimal(9,2)", "decimal(18,2)"), True, False),
        (("decimal(9,2)", "decimal(18,4)"), True, False),
        (("decimal(9,2)", "decimal(19,2)"), True, True),
        (("decimal(5,2)", "decimal(9,2)", "decimal(38,2)"), True, True),
        (("int", "decimal(10,0)", "decimal(18,0)"), True, False),
        (("int", "decimal(10,0)"), False, False),
        (("int", "decimal(20,0)"), False, True),
        (("bigint", "decimal(38,10)"), False, True),
        (("int", "bigint"), False, False),
        (("float", "double"), False, False),
        (("date", "timestamp_ntz"), False, False),
        (("decimal(38,2)",), False, False),
    ],
)
def test_a_scan_has_to_know_unsafe_and_slow_decimals(
    path: str, types: tuple[str, ...], is_unsafe: bool, is_slow: bool
) -> None:
    """Spark pushes no filters on leaves inside arrays and maps."""
    schema, leaf = changed(SHAPES[path], *types), parse_path(path)
    is_unsafe = is_unsafe and path in STRUCT_PATHS
    assert unsafe_columns(schema, (), has_lists=False) == ({leaf} if is_unsafe else set())
    assert slow_decimals(schema, ()) == ({leaf} if is_slow else set())
    assert unsafe_columns(schema, ("a",), has_lists=False) == slow_decimals(schema, ("a",)) == set()


@pytest.mark.parametrize("path", SHAPES)
@pytest.mark.parametrize(
    ("types", "is_unsafe"),
    [
        (("int", "bigint"), True),
        (("tinyint", "smallint", "bigint"), True),
        (("decimal(9,2)", "decimal(18,2)"), True),
        (("tinyint", "int"), False),  # Parquet stores both in 32 bits
        (("int", "double"), False),
        (("int", "decimal(20,0)"), False),
        (("bigint",), False),
    ],
)
def test_a_list_of_values_is_unsafe_where_the_file_has_fewer_bits(
    path: str, types: tuple[str, ...], is_unsafe: bool
) -> None:
    schema, leaf = changed(SHAPES[path], *types), parse_path(path)
    expected = {leaf} if is_unsafe and path in STRUCT_PATHS else set()
    assert unsafe_columns(schema, (), has_lists=True) == expected
    assert unsafe_columns(schema, ("a",), has_lists=True) == set()


def test_the_history_of_a_dropped_field_does_not_matter() -> None:
    text = to_json(changed("array<{t}>", "decimal(9,2)", "decimal(19,2)"))
    schema = from_json(text.replace('"element"', '"key.element"'))
    assert unsafe_columns(schema, (), has_lists=True) == slow_decimals(schema, ()) == set()


def listed(count: int) -> pa.Table:
    columns = {field.name: pa.nulls(count, field.type) for field in FILES}
    return pa.table({**columns, "path": pa.array([f"f{n}" for n in range(count)])}, FILES)


def test_files_are_split_by_their_old_types() -> None:
    old, older = ((("a",), LONG),), ((("a",), INTEGER),)
    group = ScanGroup(listed(5), is_hive=False, has_vectors=True, values={})
    parts = [(part.stored, part.files["path"].to_pylist()) for part in split_group(group, [old, (), old, None, older])]
    assert parts == [(old, ["f0", "f2"]), ((), ["f1"]), (None, ["f3"]), (older, ["f4"])]


def test_rare_layouts_are_read_like_unknown_ones() -> None:
    ways = [((("a",), DecimalType(precision, 0)),) for precision in range(1, LAYOUTS + 3)]
    group = ScanGroup(listed(2 * len(ways) - 1), is_hive=False, has_vectors=False, values={})
    parts = list(split_group(group, [*ways, *reversed(ways[:-1])]))
    assert len(parts) == LAYOUTS + 1
    assert sum(part.files.num_rows for part in parts) == group.files.num_rows
    (unknown,) = (part for part in parts if part.stored is None)
    assert f"f{len(ways) - 1}" in unknown.files["path"].to_pylist()
