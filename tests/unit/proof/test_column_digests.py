"""Digests of values: exact, whatever the order of the rows, their batches and the layout of their types."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from widen.proof.column_digests import TableDigest, describe_difference, digest_batches

DOUBLES, MAPS = pa.list_(pa.float64()), pa.map_(pa.string(), pa.int32())
STRUCTS = pa.struct([("x", pa.int32()), ("y", pa.string())])
UTC = datetime(2024, 2, 29, 1, 2, 3, 4, timezone.utc)


def digest(values: list[Any], data_type: pa.DataType) -> TableDigest:
    return digest_batches([pa.table({"a": pa.array(values, data_type)})])


@pytest.mark.parametrize(
    ("values", "data_type", "other", "other_type"),
    [
        ([1, None, -128], pa.int8(), [-128, 1, None], pa.int64()),
        ([0.5, -0.0, None, math.nan], pa.float32(), [math.nan, None, 0.5, -0.0], pa.float64()),
        (["a", None, ""], pa.string(), ["", "a", None], pa.string_view()),
        (["a", None], pa.large_string(), ["a", None], pa.dictionary(pa.int8(), pa.string())),
        ([b"a", b""], pa.binary(), [b"", b"a"], pa.large_binary()),
        ([UTC], pa.timestamp("us", "UTC"), [UTC], pa.timestamp("ns", "Europe/Berlin")),
        ([[1.0, None], None, []], DOUBLES, [[], [1.0, None], None], pa.large_list(pa.float64())),
        (
            [[("a", 1)], None, [("b", None), ("c", 2)]],
            MAPS,
            [None, [{"key": "a", "value": 1}], [{"key": "b", "value": None}, {"key": "c", "value": 2}]],
            pa.large_list(pa.struct([("key", pa.string()), ("value", pa.int64())])),
        ),
        ([{"x": 1, "y": "b"}], STRUCTS, [{"y": "b", "x": 1}], pa.struct([("y", pa.string()), ("x", pa.int32())])),
    ],
)
def test_equal_values_have_equal_digests(
    values: list[Any], data_type: pa.DataType, other: list[Any], other_type: pa.DataType
) -> None:
    assert digest(values, data_type) == digest(other, other_type)


@pytest.mark.parametrize(
    ("values", "other", "data_type"),
    [
        ([2**53 + 1], [2**53], pa.int64()),
        ([None], [0], pa.int64()),
        ([1, 1, 2], [1, 2, 2], pa.int64()),
        ([0.0], [-0.0], pa.float64()),
        ([None], [math.nan], pa.float64()),
        ([None], [""], pa.string()),
        (["ab", "c"], ["a", "bc"], pa.string()),
        ([Decimal("1.10")], [Decimal("1.01")], pa.decimal128(10, 2)),
        ([[1.0, None]], [[None, 1.0]], DOUBLES),
        ([[1.0], [2.0]], [[1.0, 2.0], []], DOUBLES),
        ([[]], [None], DOUBLES),
        ([[None]], [[]], DOUBLES),
        ([{"x": None, "y": None}], [None], STRUCTS),
        ([[("a", 1), ("b", 2)]], [[("a", 2), ("b", 1)]], MAPS),
    ],
)
def test_different_values_have_different_digests(values: list[Any], other: list[Any], data_type: pa.DataType) -> None:
    assert digest(values, data_type).columns != digest(other, data_type).columns


def test_kinds_of_types_are_told_apart() -> None:
    types = (pa.int64(), pa.float64(), pa.string(), pa.decimal128(10, 2), pa.date32(), pa.timestamp("us"), pa.null())
    nulls_and_ones = {digest([1], pa.int64()).records}
    assert len({digest(["1"], pa.string()).records, digest([1.0], pa.float64()).records} | nulls_and_ones) == 3
    assert len({digest([None], each).records for each in types}) == 1


def test_batches_and_parts_add_up() -> None:
    values = pa.array([[1.0, None], None, [], [0.0], [5.0, 6.0]] * 30_000, DOUBLES)
    whole = digest_batches([pa.table({"a": values, "b": range(150_000)})])
    table = pa.table({"a": values, "b": range(150_000)})
    parts = [
        digest_batches([table.slice(70_001)]),
        digest_batches(table.slice(0, 70_001).to_batches(max_chunksize=999)),
    ]
    parts[0].merge(parts[1])
    assert parts[0] == whole == TableDigest.from_json(whole.to_json())


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"a": [1, 2], "b": ["x", "y"]}, None),
        ({"b": ["y", "x"], "a": [2, 1]}, None),
        ({"a": [1, 2], "b": ["y", "x"]}, "returns values of different rows as one row"),
        ({"a": [1, 3], "b": ["x", None]}, "returns wrong values in a, b"),
        ({"a": [1], "b": ["x"]}, "returns 1 rows, and the table has 2"),
        ({"a": [1, 2], "c": ["x", "y"]}, "returns no column b but the column c"),
        ({"a": [1, 2]}, "returns no column b"),
    ],
)
def test_a_difference_is_named(found: dict[str, list[Any]], words: str | None) -> None:
    expected = digest_batches([pa.table({"a": [1, 2], "b": ["x", "y"]})])
    assert describe_difference(expected, digest_batches([pa.table(found)])) == words


def test_a_client_that_aborts_after_its_read_has_answered() -> None:
    program = (
        "import atexit, os, pyarrow as pa; from widen.proof import column_digests as d; atexit.register(os.abort); "
        "d._READERS = {'c': {'r': lambda asked: (['a'], [pa.record_batch({'a': [1, None]})])}}; d.run_readers()"
    )
    asked = json.dumps({"client": "c", "reader": "r"})
    done = subprocess.run([sys.executable, "-c", program], input=asked, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    lost, digest = done.stdout.strip().splitlines()
    assert json.loads(lost) == []
    found = TableDigest.from_json(digest)
    assert describe_difference(digest_batches([pa.record_batch({"a": [1, None]})], ["a"]), found) is None
