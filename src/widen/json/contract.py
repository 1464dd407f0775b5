"""Check records against a contract: the part of JSON Schema (2020-12) that `widen contract` writes, and some more.

Every keyword with a condition must be one of `KEYWORDS`: another one would be ignored, and what it forbids would pass.
An integer is a number without fraction and exponent, since 1.0 needs another column than 1.

Source: docs/guide/gate.md#contract
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from widen.errors import InvalidOption
from widen.json.document import DateText, JsonDocument, JsonNumber, JsonText, TimestampText, parse_nested
from widen.json.kinds import parse_temporal
from widen.model.column_path import Path, format_path

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
    """Return whether Python has a pattern: JSON Schema means those of ECMAScript, which are not quite the same."""
    try:
        re.compile(text)
    except (re.error, RecursionError):
        return False
    return True


def find_breaches(contract: Any, document: JsonDocument, path: Path = ()) -> Iterator[Breach]:
    """Yield the parts of a document that a contract forbids.

    Args:
        contract: A contract that `ensure_contract` accepts.
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
            if keyword in contract and (Decimal(document) - Decimal(str(contract[keyword]))) * sign > 0:
                yield f"is {'less' if sign < 0 else 'more'} than {contract[keyword]}"
    if "enum" in contract and not any(_is_equal(document, each) for each in contract["enum"]):
        yield "is not one of the allowed values"
    if "const" in contract and not _is_equal(document, contract["const"]):
        yield "is not the allowed value"
    if "anyOf" in contract and all(any(find_breaches(each, document)) for each in contract["anyOf"]):
        yield "fits none of the alternatives"


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
