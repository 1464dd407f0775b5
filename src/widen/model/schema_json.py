"""Decode and encode the schema JSON; types and metadata that are not known are kept as they are.

Source: PROTOCOL.md#schema-serialization-format
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from widen.errors import CorruptLog, InvalidType
from widen.model.type_parser import parse_type
from widen.model.types import ArrayType, AtomicType, DataType, DecimalType, Field, MapType, OpaqueType, StructType

_MALFORMED = (msgspec.DecodeError, RecursionError, KeyError, TypeError, AttributeError, ValueError, InvalidType)
"""Raised for invalid JSON, for JSON that is nested too deeply, and for values of an unexpected shape."""


@lru_cache(maxsize=16)
def from_json(text: str) -> StructType:
    """Return the schema in a ``schemaString``. The last ones are cached, since a commit needs the same one many times.

    Raises:
        CorruptLog: the text is not valid JSON, or its outermost type is not a struct.

    Source: PROTOCOL.md#schema-serialization-format
    """
    try:
        result = type_from_value(msgspec.json.decode(text))
    except _MALFORMED as error:
        raise _corrupt(f"its schemaString cannot be read ({error})") from error
    if not isinstance(result, StructType):
        raise _corrupt("its schemaString is not a struct")
    return result


def _corrupt(reason: str) -> CorruptLog:
    return CorruptLog(path="_delta_log", reason=reason, fix="Restore the log from a backup, or read an older version.")


def to_json(schema: StructType) -> str:
    """Return the ``schemaString`` of a schema."""
    return msgspec.json.encode(type_to_value(schema)).decode()


def type_from_value(value: Any) -> DataType:
    """Return the type of a decoded JSON value; an unknown type becomes an `OpaqueType`.

    Raises:
        KeyError: an object lacks a required key.
        InvalidType: a decimal has an invalid precision or scale.
    """
    if isinstance(value, str):
        try:
            return parse_type(value)
        except InvalidType:
            if value.startswith("decimal"):
                raise
            return OpaqueType(msgspec.json.encode(value).decode())
    match value["type"]:
        case "struct":
            return StructType(tuple(field_from_value(f) for f in value["fields"]))
        case "array":
            return ArrayType(type_from_value(value["elementType"]), value["containsNull"])
        case "map":
            key, item = type_from_value(value["keyType"]), type_from_value(value["valueType"])
            return MapType(key, item, value["valueContainsNull"])
    return OpaqueType(msgspec.json.encode(value).decode())


def field_from_value(value: dict[str, Any]) -> Field:
    """Return the field of a decoded JSON object.

    Raises:
        KeyError: the name or the type is missing.
        InvalidType: the name is not a text, or the metadata is not an object.
    """
    name, metadata = value["name"], value.get("metadata") or {}
    if not isinstance(name, str) or not isinstance(metadata, dict):
        raise InvalidType(text=str(name), reason="a field needs a text as its name and an object as its metadata")
    return Field(name, type_from_value(value["type"]), value.get("nullable", True), metadata)


def type_to_value(data_type: DataType) -> Any:
    """Return the JSON value of a type, ready to encode."""
    match data_type:
        case AtomicType() | DecimalType():
            return str(data_type)
        case OpaqueType(text):
            return msgspec.json.decode(text)
        case StructType(fields):
            return {"type": "struct", "fields": [field_to_value(f) for f in fields]}
        case ArrayType(element, contains_null):
            return {"type": "array", "elementType": type_to_value(element), "containsNull": contains_null}
        case MapType(key, value, contains_null):
            return {
                "type": "map",
                "keyType": type_to_value(key),
                "valueType": type_to_value(value),
                "valueContainsNull": contains_null,
            }


def field_to_value(item: Field) -> dict[str, Any]:
    """Return the JSON object of a field, ready to encode."""
    return {
        "name": item.name,
        "type": type_to_value(item.type),
        "nullable": item.nullable,
        "metadata": dict(item.metadata),
    }
