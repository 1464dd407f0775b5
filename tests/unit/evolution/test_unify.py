"""One logical column for each source field: its type, and the SQL that makes it."""

from __future__ import annotations

import pytest

from widen.evolution.unify import unify_schema, view_sql
from widen.model.schema_json import parse_type
from widen.model.types import ArrayType, Field, StructType
from widen.schema.source_metadata import ROLE, source_field


def columns(source: str, *types: str) -> list[Field]:
    """The first is the one with the plain name."""
    names = [source, *(f"{source}_{at}" for at in range(1, len(types)))]
    pairs = zip(names, types, strict=True)
    return [source_field(name, parse_type(text), (source,), is_evolved=name != source) for name, text in pairs]


COMMON = [
    (["bigint", "string"], "string"),
    (["int", "bigint"], "bigint"),
    (["int", "double"], "double"),
    (["bigint", "double"], "string"),
    (["bigint", "decimal(10,2)"], "decimal(22,2)"),
    (["decimal(10,2)", "double"], "string"),
    (["boolean", "date"], "string"),
    (["int", "boolean"], "string"),
    (["decimal(10,2)", "boolean"], "string"),
    (["date", "timestamp"], "timestamp"),
    (["timestamp", "bigint"], "string"),
    (["float", "double"], "double"),
    (["array<bigint>", "string", "array<string>"], "array<string>"),
    (["array<array<int>>", "bigint"], "array<array<bigint>>"),
    (["struct<b: bigint>", "array<struct<b: bigint, c: string>>"], "array<struct<b: bigint, c: string>>"),
    (["struct<b: bigint>", "string"], "string"),
    (["map<string, bigint>", "map<string, string>"], "map<string,string>"),
    (["binary", "bigint"], "string"),
    (["binary", "binary"], "binary"),
]


@pytest.mark.parametrize(("types", "expected"), COMMON, ids=lambda value: str(value))
def test_the_type_is_one_that_every_value_converts_to(types: list[str], expected: str) -> None:
    (found,) = unify_schema(StructType(tuple(columns("a", *types))))
    assert (found.name, found.type.sql) == ("a", expected)


def test_a_field_with_one_column_stays_as_it_is() -> None:
    schema = StructType(tuple(columns("unit price", "struct<b: array<int>>")))
    assert [(c.sql, c.columns) for c in unify_schema(schema)] == [("`unit price`", ("unit price",))]


def test_the_one_column_is_the_coalesce_of_the_seed() -> None:
    schema = StructType((*columns("my_field", "bigint", "string"), *columns("n", "int")))
    assert view_sql(schema, "v", "t") == (
        "CREATE OR REPLACE VIEW v AS\nSELECT\n"
        "  coalesce(my_field_1, CAST(my_field AS string)) AS my_field,\n"
        "  n AS n\n"
        "FROM t"
    )
    assert view_sql(schema, "v", "t", is_temporary=True).startswith("CREATE OR REPLACE TEMPORARY VIEW v AS")


def test_columns_are_told_by_their_source_and_not_by_their_names() -> None:
    lone = source_field("a_string", parse_type("string"), ("a_string",), is_evolved=False)
    schema = StructType((*columns("a", "bigint"), lone))
    assert [c.name for c in unify_schema(schema)] == ["a", "a_string"]


def test_a_field_whose_plain_column_is_gone_is_called_as_what_is_left() -> None:
    schema = StructType(tuple(columns("a", "bigint", "string")[1:]))
    assert [c.name for c in unify_schema(schema)] == ["a_1"]


def test_columns_with_a_role_come_last_and_as_they_are() -> None:
    rescued = Field("_rescued", parse_type("string"), metadata={ROLE: "_rescued"})
    schema = StructType((rescued, *columns("a", "bigint")))
    assert [c.sql for c in unify_schema(schema)] == ["a", "_rescued"]


def test_no_variable_hides_a_column() -> None:
    schema = StructType((*columns("x1", "array<bigint>", "array<string>"), *columns("X_", "bigint")))
    assert "x__1 -> coalesce(x__1.`1`, CAST(x__1.`0` AS string))" in unify_schema(schema)[0].sql


def test_columns_are_joined_inside_arrays_of_records() -> None:
    inner = StructType(tuple(columns("p", "bigint", "string")))
    (found,) = unify_schema(StructType((Field("o", ArrayType(inner)),)))
    assert found.type.sql == "array<struct<p: string>>"
    assert found.sql == (
        "transform(o, x1 -> CASE WHEN x1 IS NOT NULL THEN"
        " named_struct('p', coalesce(x1.p_1, CAST(x1.p AS string))) END)"
    )
