"""Contracts of records: checked, and read and written as documents of the Open Data Contract Standard.

A contract is the part of JSON Schema (2020-12) that `widen contract` writes, and some more. Every keyword with a
condition must be one of `KEYWORDS`: another one would be ignored, and what it forbids would pass. An integer is a
number without fraction and exponent, since 1.0 needs another column than 1.

Source: docs/guide/gate.md#contract
"""

from __future__ import annotations

import math
import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import field
from decimal import Decimal
from typing import Any

from widen.errors import InvalidConfig, InvalidOption, PackageMissing
from widen.errors.tables import open_failure
from widen.json.document import DateText, JsonDocument, JsonNumber, JsonText, TimestampText, parse_nested
from widen.json.kinds import parse_temporal
from widen.model.column_path import Path, format_path
from widen.model.value_classes import dataclass

ANNOTATIONS = frozenset(
    {"$schema", "$id", "$comment", "title", "description", "default", "examples", "deprecated", "contentEncoding"}
)
"""Keywords without a condition."""

KEYWORDS = frozenset(
    {
        *("type", "properties", "required", "additionalProperties", "items", "anyOf"),
        *("enum", "const", "format", "pattern", "minLength", "maxLength", "minimum", "maximum"),
    }
)
"""Keywords with a condition."""

TYPES = frozenset({"boolean", "integer", "number", "string", "array", "object", "null"})
_FORMATS: Mapping[str, type[str]] = {"date": DateText, "date-time": TimestampText}


@dataclass(frozen=True, slots=True)
class Breach:
    """A part of a record that a contract forbids.

    Args:
        path: The field, with the positions of arrays left out.
        reason: What is wrong; the same for all values that are wrong in the same way.
    """

    path: str
    reason: str


def ensure_contract(contract: object, place: str = "contract") -> None:
    """Check that Widen supports a contract.

    Raises:
        InvalidOption: it is not a schema, or has a keyword or a value that is not supported.
    """
    if isinstance(contract, bool):
        return
    if not isinstance(contract, Mapping):
        raise InvalidOption(option=place, value=contract, expected="Must be a JSON Schema: an object, true or false.")
    for keyword, value in contract.items():
        if keyword not in ANNOTATIONS and (keyword not in KEYWORDS or not _is_supported(keyword, value)):
            supported = ", ".join(sorted(KEYWORDS))
            expected = f"Not supported with this value. The supported keywords are {supported}."
            raise InvalidOption(option=f"{place}.{keyword}", value=value, expected=expected)
    for keyword in ("items", "additionalProperties"):
        if keyword in contract:
            ensure_contract(contract[keyword], f"{place}.{keyword}")
    for key, inner in contract.get("properties", {}).items():
        ensure_contract(inner, f"{place}.properties.{key}")
    for number, inner in enumerate(contract.get("anyOf", ())):
        ensure_contract(inner, f"{place}.anyOf.{number}")


def _is_supported(keyword: str, value: object) -> bool:
    match keyword:
        case "type":
            return all(isinstance(name, str) and name in TYPES for name in _as_list(value))
        case "format":
            return isinstance(value, str) and value in _FORMATS
        case "properties":
            return isinstance(value, Mapping)
        case "required":
            return isinstance(value, list) and all(isinstance(key, str) for key in value)
        case "enum" | "anyOf":
            return isinstance(value, list)
        case "minimum" | "maximum" | "minLength" | "maxLength":
            return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        case "pattern":
            return isinstance(value, str) and _is_pattern(value)
    return True


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _is_pattern(text: str) -> bool:
    """Return whether Python supports a pattern: JSON Schema uses ECMAScript patterns, which are not quite the same."""
    try:
        re.compile(text)
    except (re.error, RecursionError):
        return False
    return True


def find_breaches(contract: Any, document: JsonDocument, path: Path = ()) -> Iterator[Breach]:
    """Yield the parts of a document that a contract forbids.

    Args:
        path: The keys to it.
    """
    if contract is True or contract == {}:
        return
    document = parse_nested(document) if isinstance(document, JsonText) else document
    reasons = ["is not allowed"] if contract is False else list(_own_reasons(contract, document))
    yield from (Breach(format_path(path) if path else "the record", reason) for reason in reasons)
    if contract is False:
        return
    if isinstance(document, dict):
        yield from _object_breaches(contract, document, path)
    elif isinstance(document, list):
        for item in document:
            yield from find_breaches(contract.get("items", True), item, path)


def _object_breaches(contract: Mapping[str, Any], document: Mapping[str, Any], path: Path) -> Iterator[Breach]:
    properties, others = contract.get("properties", {}), contract.get("additionalProperties", True)
    for key, value in document.items():
        inner = properties.get(key, others)
        if inner is False:
            yield Breach(format_path((*path, key)), "is a new field")
        else:
            yield from find_breaches(inner, value, (*path, key) if key in properties else (*path, "*"))
    for key in contract.get("required", ()):
        if key not in document:
            yield Breach(format_path((*path, key)), "is missing")


def _own_reasons(contract: Mapping[str, Any], document: JsonDocument) -> Iterator[str]:
    actual = _type_of(document)
    if "type" in contract:
        allowed = _as_list(contract["type"])
        if actual not in allowed and not (actual == "integer" and "number" in allowed):
            yield f"is {_article(actual)}, not {' or '.join(map(_article, allowed))}"
            return
    if actual == "string":
        yield from _text_reasons(contract, str(document))
    if actual in ("integer", "number"):
        for keyword, sign in (("minimum", -1), ("maximum", 1)):
            if keyword in contract and _compare(document, contract[keyword]) == sign:
                yield f"is {'less' if sign < 0 else 'more'} than {contract[keyword]}"
    if "enum" in contract and not any(_is_equal(document, each) for each in contract["enum"]):
        yield "is not one of the allowed values"
    if "const" in contract and not _is_equal(document, contract["const"]):
        yield "is not the allowed value"
    if "anyOf" in contract and all(any(find_breaches(each, document)) for each in contract["anyOf"]):
        yield "fits none of the alternatives"


def _compare(number: str, limit: Any) -> int:
    """Return -1, 0 or 1 if a number is less than, equal to or more than a limit; NaN is more than all, as in Spark."""
    value, other = Decimal(number), Decimal(str(limit))
    return 1 if value.is_nan() else (value > other) - (value < other)


def _text_reasons(contract: Mapping[str, Any], text: str) -> Iterator[str]:
    if "format" in contract and not isinstance(parse_temporal(text), _FORMATS[contract["format"]]):
        yield f"is not of the format {contract['format']}"
    if "pattern" in contract and not re.search(contract["pattern"], text):
        yield f"does not match {contract['pattern']}"
    if len(text) < contract.get("minLength", 0):
        yield f"has fewer than {contract['minLength']} characters"
    if len(text) > contract.get("maxLength", len(text)):
        yield f"has more than {contract['maxLength']} characters"


def _type_of(document: JsonDocument) -> str:
    match document:
        case None:
            return "null"
        case bool():
            return "boolean"
        case JsonNumber():
            return "integer" if document.lstrip("-").isdecimal() else "number"
        case str():
            return "string"
        case dict():
            return "object"
    return "array"


def _article(name: str) -> str:
    return "null" if name == "null" else f"{'an' if name[0] in 'aio' else 'a'} {name}"


def _is_equal(document: JsonDocument, value: object) -> bool:
    if isinstance(document, JsonNumber):
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        return is_number and Decimal(document) == Decimal(str(value))
    return type(document) is type(value) and document == value


# Contracts as documents of the Open Data Contract Standard (ODCS).
#
# What the standard can say is written in its words, so that other tools understand it: types, records, arrays,
# required fields, lengths, patterns and bounds. Where its words alone would come back as a different contract (a field
# with several types, a record without new fields), the exact JSON Schema goes to the custom property `EXACT`, which
# wins when the document is read again.
#
# Source: docs/guide/gate.md#odcs; Open Data Contract Standard 3.1, "Schema"


SUFFIXES = (".odcs.yaml", ".odcs.yml")
"""How the names of such files end."""

API_VERSION = "v3.1.0"
EXACT = "widen.jsonSchema"
"""The custom property with the exact JSON Schema of a field, or with the additions of the whole record's schema."""

_TYPES: Mapping[str, Mapping[str, str]] = {
    "string": {"type": "string"},
    "date": {"type": "string", "format": "date"},
    "timestamp": {"type": "string", "format": "date-time"},
    "time": {"type": "string"},
    "number": {"type": "number"},
    "integer": {"type": "integer"},
    "boolean": {"type": "boolean"},
    "object": {"type": "object"},
    "array": {"type": "array"},
}
"""The JSON Schema of each logical type."""

_OPTIONS = ("minLength", "maxLength", "minimum", "maximum", "pattern")
"""The options of logical types that are keywords of JSON Schema with the same meaning."""

_NO_CONDITION = frozenset({"format", "timezone", "defaultTimezone"})
"""Options that say how values are shown or stored. A contract over JSON does not depend on them."""


@dataclass(frozen=True)
class OdcsContract:
    """A contract that was read.

    Args:
        unchecked: What the document demands and a check of single records cannot hold them to, e.g. ``id: unique``.
    """

    schema: dict[str, Any]
    unchecked: tuple[str, ...] = ()


def is_odcs(file: str) -> bool:
    """Return whether a file name belongs to an ODCS document; a name of one of its tables may follow after ``#``."""
    return file.partition("#")[0].lower().endswith(SUFFIXES)


def to_odcs(contract: Mapping[str, Any], location: str, version: int | None) -> str:
    """Return the contract of a table as YAML."""
    model = _import_model()
    name = str(contract["title"])
    record = model.SchemaObject(name=name, physicalType="table", logicalType="object", properties=_properties(contract))
    rest = {key: contract[key] for key in ("additionalProperties",) if key in contract}
    record.customProperties = [model.CustomProperty(property=EXACT, value=rest)] if rest else None
    document = model.OpenDataContractStandard(
        kind="DataContract",
        apiVersion=API_VERSION,
        # The same table has the same id in every version of its contract.
        id=str(uuid.uuid5(uuid.NAMESPACE_URL, location)),
        name=name,
        version=str(version),
        status="active",
        schema=[record],
    )
    return str(document.to_yaml())


def _properties(schema: Mapping[str, Any]) -> list[Any]:
    required = schema.get("required", ())
    return [_property(key, inner, key in required) for key, inner in schema.get("properties", {}).items()]


def _property(name: str | None, schema: Any, is_required: bool) -> Any:
    """Return a property whose standard part comes as close to a JSON Schema as it can."""
    model = _import_model()
    schema = {} if schema is True else schema
    given = schema.get("type", [])
    names = [given] if isinstance(given, str) else list(given)
    kinds = [each for each in names if each != "null"]
    found = model.SchemaProperty(name=name)
    # In the standard a required field is not null, and every other one may be.
    found.required = True if is_required and "null" not in names else None
    if len(kinds) == 1:
        found.logicalType = _logical_type(kinds[0], schema.get("format"))
        found.logicalTypeOptions = {key: schema[key] for key in _OPTIONS if key in schema} or None
        if kinds[0] == "object":
            found.properties = _properties(schema) or None
        if kinds[0] == "array" and "items" in schema:
            found.items = _property(None, schema["items"], "null" not in _names(schema["items"]))
    if len(kinds) != 1 or _to_schema(found, _Path()) != (schema, is_required):
        found.customProperties = [model.CustomProperty(property=EXACT, value=schema)]
        found.required = True if is_required else None
        if len(kinds) != 1:
            # The standard has no unions, and its schema wants a type: every value can be written as a string.
            found.logicalType = "string"
            found.description = f"One of: {', '.join(kinds)}" if kinds else "Any value"
    return found


def _logical_type(kind: str, text_format: str | None) -> str:
    for logical, schema in _TYPES.items():
        if schema == {"type": kind, **({"format": text_format} if text_format else {})}:
            return logical
    return kind


def _names(schema: Any) -> list[str]:
    given = schema.get("type", []) if isinstance(schema, Mapping) else []
    return [given] if isinstance(given, str) else list(given)


def read_odcs(file: str) -> OdcsContract:
    """Return the contract in a file.

    Args:
        file: The path; of a document with several tables, the name of one follows after ``#``.

    Raises:
        InvalidConfig: the file cannot be read, is not an ODCS document, or does not have the table.
    """
    import yaml

    model = _import_model()
    path, _, table = file.partition("#")
    expected = "Must be a document of the Open Data Contract Standard 3."
    try:
        document = model.OpenDataContractStandard.from_file(path)
    except (yaml.YAMLError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:500].rstrip(".")
        raise InvalidConfig(place=path, reason=reason, expected=expected) from error
    except OSError as error:
        raise InvalidConfig(place=path, reason=open_failure(error), expected=expected) from error
    if document.kind != "DataContract":
        raise InvalidConfig(place=path, reason="it has no kind: DataContract", expected=expected)
    objects = {str(each.name): each for each in document.schema_ or ()}
    if table not in objects and (table or len(objects) != 1):
        names = ", ".join(objects) or "none"
        fix = f"Name one of its tables, as in {path}#{next(iter(objects), 'orders')}."
        raise InvalidConfig(place=path, reason=f"it describes these tables: {names}", expected=fix)
    found = objects[table] if table else next(iter(objects.values()))
    notes = _Path()
    inner = _fields(found.properties or (), notes)
    notes.note(*_rules(found))
    rest = _exact(found)
    return OdcsContract({"type": "object", **inner, **(rest or {})}, tuple(notes.unchecked))


@dataclass
class _Path:
    """Where the reader is, and what it cannot check."""

    steps: tuple[str, ...] = ()
    unchecked: list[str] = field(default_factory=list)

    def __truediv__(self, name: str) -> _Path:
        return _Path((*self.steps, name), self.unchecked)

    def note(self, *what: str) -> None:
        """Record rules that a single record cannot break, or that are not supported."""
        place = ".".join(self.steps) or "the table"
        self.unchecked += [f"{place}: {each}" for each in what]


def _rules(described: Any) -> Iterator[str]:
    for name in ("unique", "primaryKey"):
        if getattr(described, name, None):
            yield name
    for rule in described.quality or ():
        yield f"quality {rule.metric or rule.name or rule.rule or rule.type or 'rule'}"


def _fields(properties: Any, path: _Path) -> dict[str, Any]:
    read = [(str(each.name), *_to_schema(each, path / str(each.name))) for each in properties]
    required = [name for name, _, is_required in read if is_required]
    result: dict[str, Any] = {"properties": {name: schema for name, schema, _ in read}}
    return {**result, **({"required": required} if required else {})}


def _to_schema(described: Any, path: _Path) -> tuple[dict[str, Any], bool]:
    """Return the JSON Schema of a property, and whether records must have it."""
    path.note(*_rules(described))
    is_required = described.required is True
    exact = _exact(described)
    if exact is not None:
        return exact, is_required
    if described.map is not None:
        values = True if described.map.value is None else _to_schema(described.map.value, path / "*")[0]
        schema: dict[str, Any] = {"type": "object", "additionalProperties": values}
    elif described.logicalType not in _TYPES:
        if described.logicalType or described.physicalType:
            path.note(f"type {described.logicalType or described.physicalType}")
        schema = {}
    else:
        schema = dict(_TYPES[described.logicalType])
    options = described.logicalTypeOptions or {}
    for key, value in options.items():
        if key in _OPTIONS:
            schema[key] = value
        elif key not in _NO_CONDITION:
            path.note(f"{key} {value}")
    if described.properties:
        schema |= _fields(described.properties, path)
    if described.items is not None:
        schema["items"] = _to_schema(described.items, path / "[]")[0]
    if described.enum:
        schema["enum"] = [each.value for each in described.enum]
    # A field that records may lack may be null in them as well.
    if not is_required and "type" in schema:
        schema["type"] = [schema["type"], "null"]
        if "enum" in schema:
            schema["enum"].append(None)
    return schema, is_required


def _exact(described: Any) -> dict[str, Any] | None:
    for each in described.customProperties or ():
        if each.property == EXACT and isinstance(each.value, dict):
            return dict(each.value)
    return None


def _import_model() -> Any:
    try:
        from open_data_contract_standard import model
    except ModuleNotFoundError as error:
        raise PackageMissing(package="widen[odcs]") from error
    return model
