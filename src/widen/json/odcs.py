"""Contracts as documents of the Open Data Contract Standard (ODCS).

What the standard can say is written in its words, so that other tools understand it: types, records, arrays, required
fields, lengths, patterns and bounds. Where its words alone would come back as a different contract (a field with
several types, a record without new fields), the exact JSON Schema goes to the custom property `EXACT`, which wins when
the document is read again.

Source: docs/guide/gate.md#odcs; Open Data Contract Standard 3.1, "Schema"
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from widen.errors import InvalidConfig, PackageMissing
from widen.errors.tables import open_failure

SUFFIXES = (".odcs.yaml", ".odcs.yml")
"""How the names of such files end."""

API_VERSION = "v3.1.0"
EXACT = "widen.jsonSchema"
"""The custom property that holds the exact JSON Schema of a field, or what that of the whole record adds."""

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
        schema: The JSON Schema of a record.
        unchecked: What the document demands and a check of single records cannot hold them to, e.g. ``id: unique``.
    """

    schema: dict[str, Any]
    unchecked: tuple[str, ...] = ()


def is_odcs(file: str) -> bool:
    """Return whether a file name is that of an ODCS document; a name of one of its tables may follow after ``#``."""
    return file.partition("#")[0].lower().endswith(SUFFIXES)


def to_odcs(contract: Mapping[str, Any], location: str, version: int | None) -> str:
    """Return the contract of a table as YAML.

    Args:
        contract: A JSON Schema as `Table.contract` gives it.
        location: The table.
        version: Its version.

    Raises:
        PackageMissing: ``open-data-contract-standard`` is not installed.
    """
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
        PackageMissing: ``open-data-contract-standard`` is not installed.
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
