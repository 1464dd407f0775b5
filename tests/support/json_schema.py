"""The schemas in docs/reference/json.schema.json, and whether a value is as they say."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

SCHEMAS: Mapping[str, Any] = json.loads(
    (Path(__file__).resolve().parents[2] / "docs" / "reference" / "json.schema.json").read_text(encoding="utf-8")
)["$defs"]

_TYPES: Mapping[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "array": (list,),
    "object": (dict,),
}
_KEYWORDS = {"description", "type", "enum", "properties", "required", "additionalProperties", "items", "anyOf", "$ref"}


def breaches(schema: Mapping[str, Any], value: Any, place: str = "") -> Iterator[str]:
    """Yield what is wrong with a value."""
    assert set(schema) <= _KEYWORDS, f"the schema of {place} has keywords that are not checked here"
    if "$ref" in schema:
        yield from breaches(SCHEMAS[schema["$ref"].removeprefix("#/$defs/")], value, place)
        return
    if "anyOf" in schema:
        found = [list(breaches(each, value, place)) for each in schema["anyOf"]]
        yield from min(found, key=len)
    names = schema.get("type", [])
    names = [names] if isinstance(names, str) else names
    if names and not any(_is_of_type(value, name) for name in names):
        yield f"{place or 'value'}: {value!r} is not {' or '.join(names)}"
    elif value not in schema.get("enum", [value]):
        yield f"{place}: {value!r} is not one of {schema['enum']}"
    elif isinstance(value, dict):
        yield from _object_breaches(schema, value, place)
    elif isinstance(value, list):
        for item in value:
            yield from breaches(schema.get("items", {}), item, f"{place}[]")


def _is_of_type(value: Any, name: str) -> bool:
    return isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def _object_breaches(schema: Mapping[str, Any], value: Mapping[str, Any], place: str) -> Iterator[str]:
    others = schema.get("additionalProperties", {})
    for key in schema.get("required", []):
        if key not in value:
            yield f"{place}.{key} is missing"
    for key, inner in value.items():
        known = schema.get("properties", {}).get(key)
        if known is None and others is False:
            yield f"{place}.{key} is not in the schema"
        elif isinstance(of_key := others if known is None else known, dict):
            yield from breaches(of_key, inner, f"{place}.{key}")
