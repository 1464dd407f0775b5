"""Defaults of columns in metadata, as values that Spark gets."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.schema import Schema

from widen.errors import CorruptMetadata
from widen.frames.iceberg_scan import initial_defaults


def schema_with(kind: Any, value: Any) -> Schema:
    """A schema whose only column has a default, parsed as from a metadata file."""
    column = {"id": 1, "name": "x", "type": kind, "required": False, "initial-default": value}
    return Schema.model_validate({"type": "struct", "schema-id": 0, "fields": [column]})


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("date", "1969-12-31", -1),
        ("date", "0001-01-01", -719162),
        ("timestamp", "1969-12-31T23:59:59.999999", -1),
        ("timestamp", "9999-12-31T23:59:59.999999", 253402300799999999),
        ("timestamptz", "1970-01-01T00:00:00.000001+00:00", 1),
        ("decimal(9, 2)", "-1.25", Decimal("-1.25")),
        ("binary", "00ff", b"\x00\xff"),
        ("fixed[2]", "0a0b", b"\x0a\x0b"),
        ("uuid", "00000000-0000-0000-0000-000000000001", bytes(15) + b"\x01"),
        ("string", "1969-12-31", "1969-12-31"),
        ("boolean", True, True),
        ("double", 1, 1),
    ],
)
def test_defaults_are_days_microseconds_digits_and_bytes(kind: str, text: Any, value: Any) -> None:
    assert initial_defaults(schema_with(kind, text), "t") == {1: value}


@pytest.mark.parametrize(("kind", "value"), [("long", "x"), ("int", 1.5), ("string", 7), ("boolean", "x")])
def test_a_default_of_another_type_is_an_error(kind: str, value: Any) -> None:
    with pytest.raises(CorruptMetadata, match=f"initial-default of the column x .* is not a value of the type {kind}"):
        initial_defaults(schema_with(kind, value), "t")
