"""The vectors of the evolution specification, V1 to V21, and the four examples of the seed, in mode split."""

from __future__ import annotations

import pytest

from support.interval import run

X = {"x": "string"}

VECTORS = {
    "V1": (["boolean", "date"], [["a:boolean"], ["a_date:date", "a_string:string"]]),
    "V2": (["long", "double"], [["a:long"], ["a_double:double"]]),
    "V3": (["long", "string"], [["a:long"], ["a_string:string"]]),
    "V4": (["string", "long"], [["a:string"], []]),
    "V5": (["long[]", "string"], [["a:long[]"], ["a_string:string", "a_array_string:string[]"]]),
    "V6": (
        ["string string[] string[][] string[][][]"],
        [["a:string[][][]", "a_string:string", "a_array_string:string[]", "a_array2_string:string[][]"]],
    ),
    "V7": (["boolean long double"], [["a:double", "a_boolean:boolean"]]),
    "V8": (["timestamp", "long"], [["a:timestamp"], ["a_long:long"]]),
    "V9": (["long", "timestamp"], [["a:long"], []]),
    "V10": (["long timestamp"], [["a:long", "a_timestamp:timestamp"]]),
    "V11, date first": (["date", "long"], [["a:date"], ["a_long:long"]]),
    "V11, long first": (["long", "date"], [["a:long"], []]),
    "V12": (["boolean date"], [["a:string", "a_boolean:boolean", "a_date:date"]]),
    "V13": (["long[] string"], [["a:string[]", "a_string:string", "a_array_long:long[]"]]),
    "V17, scalar first": (["string", "string[]"], [["a:string"], ["a_array_string:string[]"]]),
    "V17, array first": (["string[]", "string"], [["a:string[]"], []]),
    "V18": (
        ["long[]", "string", "date", "boolean", "long[][]"],
        [
            ["a:long[]"],
            ["a_string:string", "a_array_string:string[]"],
            [],
            [],
            ["a_array2_long:long[][]", "a_array2_string:string[][]"],
        ],
    ),
    "V19": (["long", "double", "string", "boolean"], [["a:long"], ["a_double:double"], ["a_string:string"], []]),
    "V21, date first": (["date", "timestamp"], [["a:date"], ["a_timestamp:timestamp"]]),
    "V21, timestamp first": (["timestamp", "date"], [["a:timestamp"], []]),
}

RECORD_VECTORS = {
    "V15, string first": ([["string"], [(0, X)]], [["a:string"], ["a_record:record{x:string}"]]),
    "V15, record first": ([[(0, X)], ["string"]], [["a:record{x:string}"], ["a_string:string"]]),
    "V15, together": ([["string", (0, X)]], [["a:record{x:string}", "a_string:string"]]),
    "V16, scalar first": ([[(0, X)], [(1, X)]], [["a:record{x:string}"], ["a_array_record:record[]{x:string}"]]),
    "V16, array first": ([[(1, X)], [(0, X)]], [["a:record[]{x:string}"], []]),
    "V20": (
        [["long[] string[] long[][]", (1, {"b": "long"})]],
        [
            [
                "a:record[]{b:long}",
                "a_array_long:long[]",
                "a_array_string:string[]",
                "a_array2_long:long[][]",
                "a_array2_string:string[][]",
            ]
        ],
    ),
}


@pytest.mark.parametrize(("intervals", "expected"), VECTORS.values(), ids=VECTORS)
def test_kinds_of_one_field_give_the_columns_of_the_vector(intervals: list[str], expected: list[list[str]]) -> None:
    added = run(*({"a": kinds} for kinds in intervals))
    assert [sorted(columns) for columns in added] == [sorted(columns) for columns in expected]
    assert added[0][0] == expected[0][0], "the column with the plain name comes first"


@pytest.mark.parametrize(("intervals", "expected"), RECORD_VECTORS.values(), ids=RECORD_VECTORS)
def test_records_give_the_columns_of_the_vector(intervals: list[list[object]], expected: list[list[str]]) -> None:
    added = run(*({"a": values} for values in intervals))
    assert [sorted(columns) for columns in added] == [sorted(columns) for columns in expected]


def test_v14_records_of_four_dims_together() -> None:
    [added] = run({"a": [(0, {"p": "long"}), (1, {"q": "long"}), (2, {"r": "long"}), (3, {"s": "long"})]})
    assert added == [
        "a:record[][][]{p:long, q:long, r:long, s:long}",
        "a_record:record{p:long}",
        "a_array_record:record[]{q:long}",
        "a_array2_record:record[][]{r:long}",
    ]


def test_example_1_a_string_after_an_array_of_longs() -> None:
    assert run({"a": "long[]"}, {"a": "string"}) == [
        ["a:long[]"],
        ["a_string:string", "a_array_string:string[]"],
    ]


def test_example_2_a_nested_string_of_four_dims() -> None:
    [added] = run({"a": [(0, {"b": "string string[] string[][] string[][][]"})]})
    assert added == [
        "a:record{b:string[][][], b_string:string, b_array_string:string[], b_array2_string:string[][]}",
    ]


def test_example_3_a_nested_boolean_long_and_double() -> None:
    [added] = run({"a": [(0, {"b": "boolean long double"})]})
    assert added == ["a:record{b:double, b_boolean:boolean}"]


def test_example_4_records_of_four_dims_below_a_record() -> None:
    b = [(0, {"c": "string"}), (1, {"x": "string"}), (2, {"y": "string"}), (3, {"z": "string"})]
    [added] = run({"a": [(0, {"b": b})]})
    assert added == [
        "a:record{b:record[][][]{c:string, x:string, y:string, z:string}, b_record:record{c:string},"
        " b_array_record:record[]{x:string}, b_array2_record:record[][]{y:string}}",
    ]


def test_every_vector_of_the_specification_has_a_row() -> None:
    numbers = {int(name.split(",")[0][1:]) for name in (*VECTORS, *RECORD_VECTORS)} | {14}
    assert numbers == set(range(1, 22))
