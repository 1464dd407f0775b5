"""The mode widen, decision by decision: what is widened in place, what is split, what starts narrow."""

from __future__ import annotations

import pytest

from support.interval import columns, plan_of
from widen.evolution.policy import Mode, Policy
from widen.model.schema_json import parse_type
from widen.model.types import StructType
from widen.schema.operations import AddColumn, WidenType
from widen.schema.source_metadata import TableFormat


def schema(text: str) -> StructType:
    """Return a declared schema, e.g. ``a: int, b: array<long>``."""
    found = parse_type(f"struct<{text}>")
    assert isinstance(found, StructType)
    return found


FIRST_SIGHT = {
    "whole numbers of 32 bits start as int": ("7 -2147483648 2147483647", ["a:int"]),
    "one past them is a long": ("7 2147483648", ["a:long"]),
    "int and exact fractions: double (U15)": ("7 2.5", ["a:double"]),
    "a long that no double holds and fractions: decimal (D2)": ("9007199254740993 2.5", ["a:decimal(17,1)"]),
    "past 64 bits: decimal (D1)": ("9223372036854775808", ["a:decimal(19,0)"]),
    "past 64 bits beside small ones: one decimal": ("7 9223372036854775808", ["a:decimal(19,0)"]),
    "a fraction that no double holds: decimal (D1)": ("0.1234567890123456789", ["a:decimal(19,19)"]),
    "all three: decimal with room for all": (
        "7 2.5 9223372036854775808 0.1234567890123456789",
        ["a:decimal(38,19)"],
    ),
    "past 38 digits: string (D1)": ("123456789012345678901234567890123456789", ["a:string"]),
    "past the doubles: string (D3)": ("1e400", ["a:string"]),
    "a double of 300 digits and a long that no double holds: apart": (
        "1e300 9007199254740993",
        ["a:double", "a_long:long"],
    ),
    "a boolean beside ints (D18)": ("7 boolean", ["a:int", "a_boolean:boolean"]),
    "a boolean beside doubles (D18)": ("2.5 boolean", ["a:double", "a_boolean:boolean"]),
    "arrays of booleans beside ints have no common denominator (D18)": (
        "7 boolean[]",
        ["a:int", "a_array_boolean:boolean[]"],
    ),
    "a string holds booleans and numbers": ("7 boolean string", ["a:string", "a_boolean:boolean", "a_int:int"]),
    "an int beside strings": ("7 string", ["a:string", "a_int:int"]),
    "an int beside timestamps is a long (U16)": ("7 timestamp", ["a:long", "a_timestamp:timestamp"]),
    "ints and arrays of doubles": ("7 2.5[]", ["a:double[]", "a_int:int"]),
    "numbers of one array are one (D8)": ("7[] 2.5[] 4000000000[]", ["a:double[]"]),
}

LATER = {
    "int, then long": ("a: int", "2147483648", ["a:long"]),
    "int, then an exact fraction": ("a: int", "2.5", ["a:double"]),
    "int, then long and exact fractions": ("a: int", "2147483648 2.5", ["a:double"]),
    "int, then past 64 bits": ("a: int", "9223372036854775808", ["a:decimal(19,0)"]),
    "int, then a fraction that no double holds": ("a: int", "0.1234567890123456789", ["a:decimal(29,19)"]),
    "int, then a long that no double holds, and fractions": ("a: int", "9007199254740993 2.5", ["a:decimal(17,1)"]),
    "int, then what no one type holds": ("a: int", "9007199254740993 1e300", ["a:long", "a_double:double"]),
    "byte, then int": ("a: tinyint", "300", ["a:int"]),
    "short, then a fraction": ("a: smallint", "2.5", ["a:double"]),
    "long, then a fraction": ("a: bigint", "2.5", ["a:decimal(21,1)"]),
    "long, then 19 digits of fraction": (
        "a: bigint",
        "0.1234567890123456789",
        ["a:long", "a_decimal:decimal(19,19)", "a_string:string"],
    ),
    "long, then a double of 300 digits": ("a: bigint", "1e300", ["a:long", "a_double:double"]),
    "long, then -0.0, which no decimal holds": ("a: bigint", "-0.0", ["a:long", "a_double:double"]),
    "decimal, then more of both digits": ("a: decimal(10,2)", "123456789.123", ["a:decimal(12,3)"]),
    "decimal, then a longer scale": ("a: decimal(10,2)", "0.125", ["a:decimal(11,3)"]),
    "decimal, then a small int": ("a: decimal(10,2)", "7", ["a:decimal(10,2)"]),
    "decimal, then past 38 digits together": (
        "a: decimal(38,0)",
        "0.1234567890123456789",
        ["a:decimal(38,0)", "a_string:string"],
    ),
    "float, then a double": ("a: float", "2.5", ["a:double"]),
    "float, then a long": ("a: float", "7", ["a:double"]),
    "double, then an exact long": ("a: double", "7", ["a:double"]),
    "double, then a long that no double holds": ("a: double", "9007199254740993", ["a:double", "a_long:long"]),
    "date, then timestamp: another type than Delta's widening": (
        "a: date",
        "timestamp",
        ["a:date", "a_timestamp:timestamp"],
    ),
    "int, then string": ("a: int", "string", ["a:int", "a_string:string"]),
    "boolean, then int": ("a: boolean", "7", ["a:boolean", "a_int:int"]),
    "int, then boolean (D18)": ("a: int", "boolean", ["a:int", "a_boolean:boolean"]),
    "byte, then boolean (D18)": ("a: tinyint", "boolean", ["a:byte", "a_boolean:boolean"]),
    "long, then boolean (D18)": ("a: bigint", "boolean", ["a:long", "a_boolean:boolean"]),
    "float, then boolean (D18)": ("a: float", "boolean", ["a:float", "a_boolean:boolean"]),
    "decimal, then boolean (D18)": ("a: decimal(5,2)", "boolean", ["a:decimal(5,2)", "a_boolean:boolean"]),
    "int, then arrays of booleans (D18)": ("a: int", "boolean[]", ["a:int", "a_array_boolean:boolean[]"]),
    "array of int, then boolean (D18)": ("a: array<int>", "boolean", ["a:int[]", "a_boolean:boolean"]),
    "int, then boolean and a fraction (D18)": ("a: int", "boolean 2.5", ["a:double", "a_boolean:boolean"]),
    "int, then boolean and strings": ("a: int", "boolean string", ["a:int", "a_boolean:boolean", "a_string:string"]),
    "timestamp, then long (U16)": ("a: timestamp", "7", ["a:timestamp", "a_long:long"]),
    "array of int, then a longer element": ("a: array<int>", "2147483648[]", ["a:long[]"]),
    "array of int, then a wider scalar": ("a: array<int>", "2.5", ["a:double[]"]),
    "int, then an array of int": ("a: int", "7[]", ["a:int", "a_array_int:int[]"]),
    "binary holds nothing a source has": ("a: binary", "7", ["a:binary", "a_int:int"]),
    "map holds nothing a source has": ("a: map<string,int>", "7", ["a:map<string,integer>", "a_int:int"]),
    "what no decimal holds and strings are one string": (
        "a: boolean",
        "99999999999999999999999999999999999999 0.12345678901234567890123456789012345678 string",
        ["a:boolean", "a_string:string"],
    ),
    "declared string (U5)": ("a: string", "7 2.5 boolean", ["a:string"]),
}


@pytest.mark.parametrize(("values", "expected"), FIRST_SIGHT.values(), ids=FIRST_SIGHT)
def test_first_sight_takes_the_narrowest_exact_type(values: str, expected: list[str]) -> None:
    assert columns(plan_of({"a": values}).schema) == expected


@pytest.mark.parametrize(("declared", "values", "expected"), LATER.values(), ids=LATER)
def test_a_column_is_widened_where_that_is_exact_else_split(declared: str, values: str, expected: list[str]) -> None:
    assert columns(plan_of({"a": values}, schema(declared)).schema) == expected


FORMATS = {
    "Delta widens int to double": (TableFormat.DELTA, "a: int", "2.5", ["a:double"]),
    "IcebergCompat does not": (TableFormat.DELTA_ICEBERG_COMPAT, "a: int", "2.5", ["a:int", "a_double:double"]),
    "IcebergCompat widens int to long": (TableFormat.DELTA_ICEBERG_COMPAT, "a: int", "2147483648", ["a:long"]),
    "IcebergCompat grows a precision": (
        TableFormat.DELTA_ICEBERG_COMPAT,
        "a: decimal(10,2)",
        "1234567890.12",
        ["a:decimal(12,2)"],
    ),
    "IcebergCompat grows no scale": (
        TableFormat.DELTA_ICEBERG_COMPAT,
        "a: decimal(10,2)",
        "0.125",
        ["a:decimal(10,2)", "a_double:double", "a_decimal:decimal(11,3)"],
    ),
    "Iceberg widens float to double": (TableFormat.ICEBERG_V2, "a: float", "2.5", ["a:double"]),
    "Iceberg does not widen long to decimal": (
        TableFormat.ICEBERG_V3,
        "a: bigint",
        "9223372036854775808",
        ["a:long", "a_decimal:decimal(20,0)"],
    ),
}


@pytest.mark.parametrize(("table_format", "declared", "values", "expected"), FORMATS.values(), ids=FORMATS)
def test_the_format_decides_what_is_widened_in_place(
    table_format: TableFormat, declared: str, values: str, expected: list[str]
) -> None:
    policy = Policy(table_format=table_format)
    assert columns(plan_of({"a": values}, schema(declared), policy).schema) == expected


def test_a_leaf_in_an_array_of_structs_is_widened_where_it_stands() -> None:
    before = schema("a: array<struct<b: int, c: array<int>>>")
    plan = plan_of({"a": [(1, {"b": "2147483648", "c": "2.5[]"})]}, before)
    assert [str(operation) for operation in plan.operations] == [
        "widen a.element.b from int to bigint",
        "widen a.element.c.element from int to double",
    ]
    assert [event.rules for event in plan.events] == [("D1",), ("D1",)]


def test_a_new_sub_field_is_added_to_the_struct_in_the_array() -> None:
    plan = plan_of({"a": [(1, {"b": "7", "c": "7"})]}, schema("a: array<struct<b: int>>"))
    [operation] = plan.operations
    assert isinstance(operation, AddColumn)
    assert operation.path == ("a", "element", "c")


def test_what_the_widened_column_covers_needs_no_other() -> None:
    plan = plan_of({"a": "2147483648 timestamp"}, schema("a: int"))
    assert [str(operation) for operation in plan.operations] == ["widen a from int to bigint"]
    assert columns(plan.schema) == ["a:long"]


def test_the_denominator_is_widened_into_where_it_can_be() -> None:
    plan = plan_of({"a": "timestamp"}, schema("a: array<int>"))
    assert columns(plan.schema) == ["a:long[]", "a_timestamp:timestamp"]
    assert plan.operations[0] == WidenType(("a", "element"), parse_type("int"), parse_type("long"))


def test_split_widens_nothing_and_knows_no_int() -> None:
    assert columns(plan_of({"a": "2.5", "b": "7"}, schema("a: int"), Policy(Mode.SPLIT)).schema) == [
        "a:int",
        "a_double:double",
        "b:long",
    ]
