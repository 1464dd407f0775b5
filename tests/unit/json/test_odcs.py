"""Contracts as ODCS documents: valid by the schema of the standard, and the same contract when read again."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from widen.errors import InvalidConfig
from widen.evolution.unify import build_contract
from widen.json.contract import EXACT, ensure_contract, is_odcs, read_odcs, to_odcs
from widen.model.schema_json import from_json

SCHEMA = json.loads(files("open_data_contract_standard").joinpath("schema.json").read_text(encoding="utf-8"))
"""The schema of the standard, from its own package."""

TABLE = {
    "id": ("long", False),
    "name": ("string", True),
    "total": ("double", True),
    "ok": ("boolean", True),
    "day": ("date", True),
    "at": ("timestamp", False),
    "tags": ({"type": "array", "elementType": "string", "containsNull": True}, True),
    "sums": ({"type": "map", "keyType": "string", "valueType": "double", "valueContainsNull": True}, True),
}


def struct(fields: dict[str, Any]) -> dict[str, Any]:
    described = [
        {"name": name, "type": what, "nullable": null, "metadata": {}} for name, (what, null) in fields.items()
    ]
    return {"type": "struct", "fields": described}


def contract_of(fields: dict[str, Any]) -> dict[str, Any]:
    return build_contract(from_json(json.dumps(struct(fields))), "orders")


def round_trip(contract: dict[str, Any], folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the contract as it comes back, and the YAML document."""
    text = to_odcs(contract, "s3://lake/orders", 7)
    document = yaml.safe_load(text)
    jsonschema.validate(document, SCHEMA)
    file = folder / "orders.odcs.yaml"
    file.write_text(text)
    return read_odcs(str(file)).schema, document


def plain(contract: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in contract.items() if key not in ("$schema", "title")}


def properties(document: dict[str, Any]) -> dict[str, Any]:
    return {each["name"]: each for each in document["schema"][0]["properties"]}


def test_a_table_in_the_words_of_the_standard(tmp_path: Path) -> None:
    contract = contract_of(TABLE)
    found, document = round_trip(contract, tmp_path)
    assert found == plain(contract)
    described = properties(document)
    assert {name: each.get("logicalType") for name, each in described.items()} == {
        "id": "integer",
        "name": "string",
        "total": "number",
        "ok": "boolean",
        "day": "date",
        "at": "timestamp",
        "tags": "array",
        "sums": "object",
    }
    assert [name for name, each in described.items() if each.get("required")] == ["id", "at"]
    exact = [name for name, each in described.items() if "customProperties" in each]
    assert exact == ["sums"]  # the standard 3.1 has no maps
    assert document["apiVersion"] == "v3.1.0"
    assert document["version"] == "7"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": ["number", "string", "null"]},
        {"type": ["integer", "array", "null"], "items": {"type": ["string", "null"]}},
        {"type": ["object", "null"], "properties": {"a": {"type": ["string", "null"]}}, "additionalProperties": False},
        {},
        {"type": ["string", "null"], "enum": ["a", "b"]},
        {"type": "string", "const": "a"},
        {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        {"type": ["array", "null"], "items": {"type": ["array", "null"], "items": {"type": ["boolean", "null"]}}},
        {"type": ["string", "null"], "minLength": 2, "maxLength": 3, "pattern": "^a"},
        {"type": "number", "minimum": -1.5, "maximum": 8},
        {"type": ["string", "null"], "contentEncoding": "base64"},
    ],
)
@pytest.mark.parametrize("required", [False, True])
def test_what_the_standard_cannot_say_comes_back(schema: dict[str, Any], required: bool, tmp_path: Path) -> None:
    contract = {
        "title": "orders",
        "type": "object",
        "properties": {"a": schema},
        **({"required": ["a"]} if required else {}),
        "additionalProperties": False,
    }
    found, document = round_trip(contract, tmp_path)
    assert found == plain(contract)
    assert document["schema"][0]["customProperties"] == [{"property": EXACT, "value": {"additionalProperties": False}}]


FOREIGN = """
apiVersion: v3.1.0
kind: DataContract
id: 53581432-6c55-4ba2-a65f-72344a91553a
status: active
version: 1.0.0
schema:
  - name: orders
    quality:
      - metric: rowCount
        mustBeGreaterThan: 0
    properties:
      - name: id
        logicalType: integer
        primaryKey: true
        required: true
        logicalTypeOptions: {minimum: 1, multipleOf: 2}
      - name: placed
        logicalType: timestamp
        logicalTypeOptions: {format: "yyyy-MM-dd'T'HH:mm:ssZ"}
      - name: customer
        logicalType: object
        required: true
        properties:
          - {name: email, logicalType: string, unique: true, logicalTypeOptions: {pattern: "@", maxLength: 40}}
      - name: lines
        logicalType: array
        items: {logicalType: object, properties: [{name: sku, logicalType: string, required: true}]}
      - {name: blob, physicalType: geometry}
  - name: customers
    properties: [{name: id, logicalType: string}]
"""


def test_a_contract_of_others(tmp_path: Path) -> None:
    file = tmp_path / "shop.odcs.yaml"
    file.write_text(FOREIGN)
    found = read_odcs(f"{file}#orders")
    ensure_contract(found.schema)
    assert found.schema == {
        "type": "object",
        "properties": {
            "id": {"type": "integer", "minimum": 1},
            "placed": {"type": ["string", "null"], "format": "date-time"},
            "customer": {
                "type": "object",
                "properties": {"email": {"type": ["string", "null"], "pattern": "@", "maxLength": 40}},
            },
            "lines": {
                "type": ["array", "null"],
                "items": {
                    "type": ["object", "null"],
                    "properties": {"sku": {"type": "string"}},
                    "required": ["sku"],
                },
            },
            "blob": {},
        },
        "required": ["id", "customer"],
    }
    assert set(found.unchecked) == {
        "the table: quality rowCount",
        "id: primaryKey",
        "id: multipleOf 2",
        "customer.email: unique",
        "blob: type geometry",
    }
    assert read_odcs(f"{file}#customers").schema["properties"] == {"id": {"type": ["string", "null"]}}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (FOREIGN, "describes these tables: orders, customers"),
        ("kind: DataContract\nsurprise: 1", "surprise"),
        ("a: [", "flow"),
        ("- 1", "mapping"),
        ("apiVersion: v3.1.0", "no kind: DataContract"),
        ("kind: DataContract", "describes these tables: none"),
    ],
)
def test_documents_that_cannot_be_used(text: str, reason: str, tmp_path: Path) -> None:
    file = tmp_path / "shop.odcs.yml"
    file.write_text(text)
    with pytest.raises(InvalidConfig, match=reason):
        read_odcs(str(file))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="no-such"):
        read_odcs(str(tmp_path / "no-such.odcs.yaml"))
    (tmp_path / "latin.odcs.yaml").write_bytes(b"kind: caf\xe9")
    with pytest.raises(InvalidConfig):
        read_odcs(str(tmp_path / "latin.odcs.yaml"))


@pytest.mark.parametrize(("name", "expected"), [("a.odcs.yaml", True), ("A.ODCS.YML#t", True), ("a.yaml", False)])
def test_names(name: str, expected: bool) -> None:
    assert is_odcs(name) is expected
