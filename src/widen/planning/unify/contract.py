"""What a table has learned about its source, as a JSON Schema (draft 2020-12): a contract for later batches.

There is a property for each source field; the types of all its columns are one union. A column that takes any value
puts no condition on its field, and a column that is not a field of the source has no property.

Source: docs/guide/gate.md#contract, docs/evolution-rules.md#one-logical-field
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from widen.model.types import (
    BINARY,
    BOOLEAN,
    DATE,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VARIANT,
    ArrayType,
    AtomicType,
    DataType,
    DecimalType,
    Field,
    MapType,
    StructType,
)
from widen.observe.file_fields import SIGN
from widen.observe.kind import DOUBLE_WORD, INT_WORD, LONG_WORD, word_of
from widen.planning.evolution.source_metadata import FORM, fields_by_source, role_of

DIALECT = "https://json-schema.org/draft/2020-12/schema"

_ATOMIC: Mapping[AtomicType, Mapping[str, str]] = {
    BOOLEAN: {"type": "boolean"},
    DATE: {"type": "string", "format": "date"},
    TIMESTAMP: {"type": "string", "format": "date-time"},
    TIMESTAMP_NTZ: {"type": "string", "format": "date-time"},
    BINARY: {"type": "string", "contentEncoding": "base64"},
}
_NUMBERS: Mapping[str, str] = {INT_WORD: "integer", LONG_WORD: "integer", DOUBLE_WORD: "number"}
_ORDER = ("boolean", "integer", "number", "string", "array", "object", "null")


def build_contract(schema: StructType, title: str) -> dict[str, Any]:
    """Return the contract of a table."""
    return {"$schema": DIALECT, "title": title, **_object(field for field in schema if role_of(field) is None)}


def _object(fields: Iterable[Field]) -> dict[str, Any]:
    # Fields that records get from the path of their file are not part of the records.
    groups = {key: group for key, group in fields_by_source(fields).items() if not key.endswith(SIGN)}
    required = [key for key, group in groups.items() if not any(field.nullable for field in group)]
    described = {"type": "object", "properties": {key: _property(group) for key, group in groups.items()}}
    return {**described, **({"required": required} if required else {}), "additionalProperties": False}


def _property(columns: list[Field]) -> dict[str, Any]:
    if any(FORM in column.metadata for column in columns):
        return {}
    is_nullable = any(column.nullable for column in columns)
    return _union([column.type for column in columns], is_nullable=is_nullable)


def _union(types: list[DataType], *, is_nullable: bool = True) -> dict[str, Any]:
    """Return the schema of values of several types. Each keyword applies to values of its own type only."""
    if VARIANT in types:
        return {}
    schemas = [_atomic(each) for each in types if not isinstance(each, (ArrayType, MapType, StructType))]
    elements = [each.element for each in types if isinstance(each, ArrayType)]
    structs = [each for each in types if isinstance(each, StructType)]
    values = [each.value for each in types if isinstance(each, MapType)]
    names = {str(schema["type"]) for schema in schemas}
    union: dict[str, Any] = {}
    for keyword in ("format", "contentEncoding"):
        texts = {schema.get(keyword) for schema in schemas if schema["type"] == "string"}
        # A format applies to all strings of the field, so one column of plain strings rules it out.
        if len(texts) == 1 and None not in texts:
            union[keyword] = texts.pop()
    if elements:
        names.add("array")
        union["items"] = _union(elements)
    if structs or values:
        names.add("object")
        union |= _object(field for struct in structs for field in struct) if structs else {}
        union |= {"additionalProperties": _union(values)} if values else {}
    # In JSON Schema every integer is a number.
    if "number" in names:
        names.discard("integer")
    ordered = [name for name in _ORDER if name in names or (is_nullable and name == "null")]
    return {**union, "type": ordered[0] if len(ordered) == 1 else ordered}


def _atomic(data_type: DataType) -> Mapping[str, str]:
    if isinstance(data_type, DecimalType):
        return {"type": "integer" if data_type.scale == 0 else "number"}
    named = _ATOMIC.get(data_type) if isinstance(data_type, AtomicType) else None
    return named or {"type": _NUMBERS.get(word_of(data_type) or "", "string")}
