"""Defaults of columns: in metadata, as the values that rows get, and as literals of SQL."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from widen.errors import CorruptMetadata, IcebergDefaultRefused
from widen.iceberg.column_defaults import default_text, ensure_write_defaults, initial_defaults, parse_default


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
        ("time", "00:00:01.5", 1_500_000),
    ],
)
def test_defaults_are_days_microseconds_digits_and_bytes(kind: str, text: Any, value: Any) -> None:
    assert initial_defaults(schema_with(kind, text), "t") == {1: value}


@pytest.mark.parametrize(("kind", "value"), [("long", "x"), ("int", 1.5), ("string", 7), ("boolean", "x")])
def test_a_default_of_another_type_is_an_error(kind: str, value: Any) -> None:
    with pytest.raises(CorruptMetadata, match=f"initial-default of the column x .* is not a value of the type {kind}"):
        initial_defaults(schema_with(kind, value), "t")


LITERALS = [
    ("boolean", "true", True),
    ("int", "-7", -7),
    ("int", "-2147483648", -(2**31)),
    ("long", "-9223372036854775808", -(2**63)),
    ("float", "1.5", 1.5),
    ("double", "0.1", 0.1),
    ("double", "1e+300D", 1e300),
    ("decimal(9, 2)", "-1.25", "-1.25"),
    ("decimal(38, 0)", "9" * 38, "9" * 38),
    ("string", r"'it\'s \\ ö'", "it's \\ ö"),
    ("string", "''", ""),
    ("string", r"'$\{x}'", "${x}"),
    ("binary", "X'00FF'", "00ff"),
    ("fixed[2]", "X'0A0B'", "0a0b"),
    ("uuid", "X'00000000000000000000000000000001'", "00000000-0000-0000-0000-000000000001"),
    ("date", "DATE '0001-01-01'", "0001-01-01"),
    ("timestamp", "TIMESTAMP_NTZ '9999-12-31 23:59:59.999999'", "9999-12-31T23:59:59.999999"),
    ("timestamptz", "TIMESTAMP '1970-01-01 00:00:00+00:00'", "1970-01-01T00:00:00+00:00"),
]
"""Types, literals as they are shown, and the same values in the JSON of table metadata."""


@pytest.mark.parametrize(("kind", "text", "value"), LITERALS)
def test_literals_and_metadata_say_the_same(kind: str, text: str, value: Any) -> None:
    stored = {"id": 1, "name": "x", "type": kind, "required": False, "write-default": value}
    field = NestedField.model_validate(stored)
    assert default_text(field.field_type, field.write_default) == text
    assert parse_default(text, field.field_type, ("x",)) == field.write_default
    # What is stored for the literal is what PyIceberg reads again, so that two versions of a schema can be compared.
    made = field.model_copy(update={"write_default": parse_default(text, field.field_type, ("x",))})
    assert made.model_dump(mode="json") == field.model_dump(mode="json") | {"write-default": value}


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("decimal(9, 2)", "3", "3.00"),
        ("double", "3", 3.0),
        ("date", "'2024-01-02'", "2024-01-02"),
        ("timestamptz", "TIMESTAMP '2024-01-02 03:04:05+02:00'", "2024-01-02T01:04:05+00:00"),
        ("uuid", "'00000000-0000-0000-0000-000000000001'", "00000000-0000-0000-0000-000000000001"),
        ("binary", "X'F'", "0f"),
        ("string", "'it''s'", "it's"),
        ("string", r"'a\u0062\n'", "ab\n"),
        ("string", 'r"\\d"', "\\d"),
        ("long", "3L", 3),
    ],
)
def test_other_spellings(kind: str, text: str, value: Any) -> None:
    field = schema_with(kind, None).fields[0]
    made = field.model_copy(update={"write_default": parse_default(text, field.field_type, ("x",))})
    assert made.model_dump(mode="json")["write-default"] == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int", "2147483648"),
        ("int", "1.0"),
        ("int", "true"),
        ("int", "'5'"),
        ("int", "1 + 1"),
        ("int", "id"),
        ("int", "rand()"),
        ("long", "9223372036854775808"),
        ("boolean", "1"),
        ("float", "1e39"),
        ("double", "double('NaN')"),
        ("double", "true"),
        ("decimal(9, 2)", "1.005"),
        ("decimal(9, 2)", "10000000"),
        ("string", "5"),
        ("string", "current_user()"),
        ("date", "current_date()"),
        ("date", "'2024-13-01'"),
        ("date", "TIMESTAMP_NTZ '2024-01-01 00:00:00'"),
        ("timestamp", "TIMESTAMP '2024-01-01 00:00:00Z'"),
        ("timestamptz", "TIMESTAMP '2024-01-01 00:00:00'"),
        ("timestamptz", "DATE '2024-01-01'"),
        ("fixed[2]", "X'00'"),
        ("uuid", "'x'"),
        ("uuid", "X'00'"),
        ("time", "'00:00:00'"),
        ("struct<2: y: optional int>", "1"),
        ("string", "'unclosed"),
        ("string", ""),
    ],
)
def test_what_is_not_a_literal_of_the_type_is_refused(kind: str, text: str) -> None:
    inner = [{"id": 2, "name": "y", "type": "int", "required": False}]
    data_type = (
        schema_with({"type": "struct", "fields": inner} if "struct" in kind else kind, None).fields[0].field_type
    )
    with pytest.raises(IcebergDefaultRefused, match=r"Column s\.x cannot have the default"):
        parse_default(text, data_type, ("s", "x"))


def test_null_is_no_default() -> None:
    data_type = schema_with("int", None).fields[0].field_type
    assert parse_default("NULL", data_type, ("x",)) is None
    assert default_text(data_type, None) is None


@pytest.mark.parametrize(("kind", "value"), [("long", "x"), ("string", 7), ("date", 1.5)])
def test_a_damaged_default_of_new_rows_is_named(kind: str, value: Any) -> None:
    field = schema_with(kind, None).fields[0].model_copy(update={"write_default": value})
    assert default_text(field.field_type, value) is None
    with pytest.raises(CorruptMetadata, match=f"write-default of the column x .* is not a value of the type {kind}"):
        ensure_write_defaults(Schema(field), "t")
