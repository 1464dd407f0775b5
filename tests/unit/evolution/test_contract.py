"""The contract of a table: JSON Schema from its columns, with siblings as one union."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.command_line import run
from support.interval import interval
from widen.evolution.evolve import evolve
from widen.evolution.policy import Policy, TextForm
from widen.evolution.unify import build_contract
from widen.json.contract import ensure_contract
from widen.model.schema_json import parse_type
from widen.model.types import Field, StructType
from widen.table import Table, create_table


def contract_of(*days: dict[str, object], policy: Policy | None = None) -> dict[str, Any]:
    schema = None
    for day in days:
        schema = evolve(schema, interval(day), policy or Policy()).schema
    assert schema is not None
    return build_contract(schema, "t")["properties"]  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("boolean", {"type": ["boolean", "null"]}),
        ("smallint", {"type": ["integer", "null"]}),
        ("bigint", {"type": ["integer", "null"]}),
        ("double", {"type": ["number", "null"]}),
        ("decimal(12,2)", {"type": ["number", "null"]}),
        ("decimal(20,0)", {"type": ["integer", "null"]}),
        ("date", {"format": "date", "type": ["string", "null"]}),
        ("timestamp", {"format": "date-time", "type": ["string", "null"]}),
        ("string", {"type": ["string", "null"]}),
        ("binary", {"contentEncoding": "base64", "type": ["string", "null"]}),
        ("array<int>", {"items": {"type": ["integer", "null"]}, "type": ["array", "null"]}),
        ("map<string,int>", {"additionalProperties": {"type": ["integer", "null"]}, "type": ["object", "null"]}),
        (
            "struct<a: int>",
            {
                "type": ["object", "null"],
                "properties": {"a": {"type": ["integer", "null"]}},
                "additionalProperties": False,
            },
        ),
    ],
)
def test_types(text: str, expected: dict[str, Any]) -> None:
    found = build_contract(StructType((Field("x", parse_type(text)),)), "t")
    assert found == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "t",
        "type": "object",
        "properties": {"x": expected},
        "additionalProperties": False,
    }
    ensure_contract(found)


def test_siblings_are_one_union() -> None:
    assert contract_of({"a": "4"}, {"a": "boolean"}, {"a": "string"}) == {
        "a": {"type": ["boolean", "integer", "string", "null"]}
    }
    assert contract_of({"a": "4"}, {"a": "2.5"}) == {"a": {"type": ["number", "null"]}}
    assert contract_of({"a": "date"}, {"a": "string"}) == {"a": {"type": ["string", "null"]}}
    found = contract_of({"a": "long[]"}, {"a": "string"})["a"]
    assert found == {"items": {"type": ["integer", "string", "null"]}, "type": ["string", "array", "null"]}


def test_a_required_column_is_required_and_not_null() -> None:
    column = Field("id", parse_type("bigint"), nullable=False)
    found = build_contract(StructType((column, replace(column, name="n", nullable=True))), "t")
    assert found["required"] == ["id"]
    assert found["properties"]["id"] == {"type": "integer"}


def test_names_are_those_of_the_source_and_other_columns_are_left_out() -> None:
    schema = evolve(None, interval({"my key": "4"}, corrupt=1), Policy()).schema
    assert len(schema.fields) > 1
    assert list(build_contract(schema, "t")["properties"]) == ["my key"]


def test_a_field_that_is_kept_as_text_may_be_anything() -> None:
    policy = Policy(pins={("a",): TextForm.JSON})
    assert contract_of({"a": "string"}, policy=policy) == {"a": {}}


def test_the_command_and_the_method_write_it(tmp_path: Path) -> None:
    create_table(str(tmp_path / "orders"), "n int")
    found = Table(str(tmp_path / "orders")).contract()
    assert found["title"] == "orders"
    done = run("contract", str(tmp_path / "orders"))
    assert (done.exit_code, '"n":{"type":["integer","null"]}' in done.stdout) == (0, True)
