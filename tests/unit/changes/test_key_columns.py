"""Keys and orders as columns of Arrow: what tells rows apart, whatever column holds a value."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import widen
from widen.changes import keyed_load
from widen.changes.key_columns import KeyColumns, OrderColumns, join_texts, key_condition, values_of_order
from widen.evolution.key_rules import KeyRules
from widen.files.arrow_types import one_array, to_arrow, to_arrow_schema
from widen.model.types import (
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    LONG,
    STRING,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    Field,
    StructType,
)
from widen.schema.source_metadata import SOURCE


def columns(*types: DataType) -> StructType:
    """Return the columns of a field `k`."""
    more = [Field(f"k_{at}", each, metadata={SOURCE: ["k"]}) for at, each in enumerate(types[1:], 1)]
    return StructType((Field("k", types[0]), *more))


def rows(schema: StructType, *values: Any) -> pa.Table:
    """Return a row for each value, with nulls in the columns for which there is none."""
    given = [dict(zip(schema.names, each, strict=False)) for each in values]
    return pa.Table.from_pylist(given, schema=to_arrow_schema(schema))


def keys(schema: StructType, *values: Any) -> list[str | None]:
    found = KeyColumns.of(schema, ("k",))
    assert found is not None
    texts: list[str | None] = found.texts(one_array(found.read(rows(schema, *values)))).to_pylist()
    return texts


@pytest.mark.parametrize(
    ("schema", "values", "expected"),
    [
        (columns(LONG, STRING), [(7,), (None, "7"), (7, "7"), ()], ["n:7", "s:7", "n:7", None]),
        (columns(STRING, LONG), [("7",), (None, 7), ("7", 7)], ["s:7", "n:7", "n:7"]),
        (columns(DOUBLE, LONG), [(7.0,), (None, 7), (-0.0,), (0.5,)], ["n:7", "n:7", "n:0", "n:0.5"]),
        (columns(DOUBLE, LONG), [(float("nan"),), (float("-inf"),)], ["n:NaN", "n:-Infinity"]),
        (columns(DecimalType(9, 2), DecimalType(20, 9)), [(Decimal("1.50"),), (None, Decimal("1.5"))], ["n:1.5"] * 2),
        (columns(DecimalType(20, 9)), [(Decimal("1e-9"),), (Decimal(-100),)], ["n:0.000000001", "n:-100"]),
        (
            columns(DATE, TIMESTAMP_NTZ),
            [(date(2024, 5, 6),), (None, datetime(2024, 5, 6)), (None, datetime(2024, 5, 6, 10, 20, 30, 400_000))],
            ["d:2024-05-06", "d:2024-05-06", "d:2024-05-06 10:20:30.4"],
        ),
    ],
)
def test_a_key_is_its_kind_and_its_value(schema: StructType, values: list[Any], expected: list[str | None]) -> None:
    assert keys(schema, *values) == expected


def test_texts_of_several_fields_do_not_run_together() -> None:
    pairs = [("a", "bc"), ("ab", "c"), ('a","s:b', ""), ("a", 's:b",""'), ("a\\", "b"), ("a", "\\b")]
    left, right = (pa.array([f"s:{pair[at]}" for pair in pairs]) for at in range(2))
    assert len({*join_texts([left, right]).to_pylist()}) == len(pairs)
    assert join_texts([left, right])[0].as_py() == '["s:a","s:bc"]'
    assert join_texts([pa.array(["s:\t\x01"]), pa.array(["s:"])]).to_pylist() == [r'["s:\t\u0001","s:"]']


def test_an_order_is_a_number_or_a_text() -> None:
    number = OrderColumns.of(columns(LONG, DOUBLE, STRING), [("k",)])
    text = OrderColumns.of(columns(STRING, LONG), [("k",)])
    assert number is not None
    assert text is not None
    values = rows(columns(LONG, DOUBLE, STRING), (3,), (None, 2.5), (None, None, "z"), (None, 1e19))
    assert number.read(values).to_pylist() == [Decimal(3), Decimal("2.5"), None, None]
    assert number.find_missing(values).to_pylist() == [False, False, True, True]
    # A column of texts also has the text of other values.
    assert text.read(rows(columns(STRING, LONG), ("z",), ("3", 3), ())).to_pylist() == ["z", None, None]


def test_a_record_is_refused_for_what_it_lacks() -> None:
    fields = (*columns(LONG, STRING), Field("at", DOUBLE))
    condition = key_condition(StructType(fields), KeyRules((("k",),), (("at",),)))
    given = [{"k": 1, "at": 1.0}, {"k_1": "x", "at": 0.0}, {"at": 1.0}, {"k": 1}, {"k": 1, "at": float("nan")}]
    table = pa.Table.from_pylist(given, schema=to_arrow_schema(StructType(fields)))
    assert condition.find_broken(table).to_pylist() == [False, False, True, True, True]
    no_key, no_order, nan = map(condition.explain, table.to_pylist()[2:])
    assert no_key == "the key k is missing, null or not a scalar"
    assert no_order == nan == "at has no value that tells which record is newer"


def test_bounds_are_those_of_the_columns_that_have_values() -> None:
    def bounds(schema: StructType, *values: Any) -> list[Any]:
        found = KeyColumns.of(schema, ("k",))
        assert found is not None
        return found.bounds(one_array(found.read(rows(schema, *values))))

    assert bounds(columns(LONG), (7,), (-3,)) == [(LONG, ("k",), -3, 7)]
    assert bounds(columns(DATE), (date(1970, 1, 3),)) == [(DATE, ("k",), 2, 2)]
    two = columns(LONG, STRING)
    # The text of a number beside it is not another value.
    assert bounds(two, (7, "7"), (-3,), (None, "x")) == [(LONG, ("k",), -3, 7), (STRING, ("k_1",), "x", "x")]
    assert bounds(two, (7,)) == [(LONG, ("k",), 7, 7)]
    assert bounds(two, (None, "b"), (None, "n:1")) == [(STRING, ("k_1",), "b", "n:1")]
    assert bounds(columns(LONG, DOUBLE), (7,)) == []
    assert bounds(columns(DOUBLE), (7.0,)) == []


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_files_without_the_keys_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """Also where a key has several columns, and where the table had none of them for the values of the batch."""
    decide, merges = keyed_load.decide_load, list[tuple[Any, Any]]()

    def watch(spark: Any, load: Any) -> Any:
        merge = decide(spark, load)
        merges.append((merge, len(load.table.find_files(merge.searched))))
        return merge

    monkeypatch.setattr(keyed_load, "decide_load", watch)
    words: dict[str, Any] = {"to": "iceberg", "catalog": tmp_path / "c.db"} if kind == "iceberg" else {}
    into = "a.t" if kind == "iceberg" else tmp_path / "t"
    for ids in ([1, 2], [11, 12], ["a", "b"], [21], [12], ["a"], [2, "b"], ["z"], [1.5]):
        (tmp_path / "in.json").write_text("".join(json.dumps({"id": each, "n": len(merges)}) + "\n" for each in ids))
        widen.ingest(tmp_path / "in.json", into, engine="local", key=["id"], sequence_by="n", **words)
    assert [str(merge.counts)[:21] for merge, _ in merges] == [
        *["2 inserted, 0 updated"] * 3,
        "1 inserted, 0 updated",
        *["0 inserted, 1 updated"] * 2,
        "0 inserted, 2 updated",
        *["1 inserted, 0 updated"] * 2,
    ]
    # A file that was written before the table had a column of strings says nothing of it.
    assert [count for _, count in merges] == [0, 0, 2, 0, 1, 2, 2, 0, 0]


DAY = 86_400_000_000


@pytest.mark.parametrize(
    ("data_type", "orders", "expected"),
    [
        (
            LONG,
            ["5", "-7", "2.5", "9223372036854775807", "9223372036854775808", None],
            [5, -7, None, 2**63 - 1, None, None],
        ),
        (BYTE, ["127", "128", "-128", "-129"], [127, None, -128, None]),
        (DOUBLE, ["0.1", "2.5", "-0.000000000000000001", "0"], [0.1, 2.5, -1e-18, 0.0]),
        (FLOAT, ["0.1", "0.5", "16777217"], [None, 0.5, None]),
        (DecimalType(3, 1), ["12.5", "12.55", "99.9", "100", "-99.9"], ["12.5", None, "99.9", None, "-99.9"]),
        (DecimalType(38, 30), ["0.5", "12345678", "123456789"], ["0.5", "12345678", None]),
        (
            DATE,
            ["0", f"{DAY}", f"{-DAY}", "1", "0.5"],
            [date(1970, 1, 1), date(1970, 1, 2), date(1969, 12, 31), None, None],
        ),
        (TIMESTAMP_NTZ, [f"{DAY + 1}", "0.5"], [datetime(1970, 1, 2, microsecond=1), None]),
        (STRING, ["1"], [None]),
    ],
    ids=lambda each: each.sql if isinstance(each, DataType) else "",
)
def test_an_order_is_held_by_a_column_exactly_or_not_at_all(
    data_type: DataType, orders: list[str | None], expected: list[Any]
) -> None:
    numbers = pa.array([None if each is None else Decimal(each) for each in orders], pa.decimal128(38, 18))
    found = values_of_order(numbers, data_type)
    assert found is not None
    assert found.type == to_arrow(data_type)
    wanted = [Decimal(each) if isinstance(each, str) else each for each in expected]
    assert found.to_pylist() == wanted


def test_a_text_orders_in_a_column_of_texts_only() -> None:
    words = pa.array(["b", None])
    assert [values_of_order(words, each) for each in (STRING, LONG)] == [words, pa.nulls(2, pa.int64())]
    assert values_of_order(words, BOOLEAN) is None
    # Of doubles, the shortest digits count.
    digits = [Decimal(1152921504606847000), Decimal(2**60)]
    large = values_of_order(pa.array(digits, pa.decimal128(38, 18)), DOUBLE)
    assert large is not None
    assert large.to_pylist() == [2.0**60, None]
