"""Keys and orders as columns of Arrow: what tells rows apart, whatever column holds a value."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from widen.model.types import DATE, DOUBLE, LONG, STRING, TIMESTAMP_NTZ, DataType, DecimalType, Field, StructType
from widen.schema.source_metadata import SOURCE
from widen.spark.arrow_types import one_array, to_arrow_schema
from widen.spark.dml.key_columns import KeyColumns, OrderColumns, join_texts, key_condition
from widen.spark.dml.keyed_rows import KeyRules
from widen.spark.read.local_rows import NotLocal


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
    with pytest.raises(NotLocal):
        join_texts([pa.array(["s:\t"]), pa.array(["s:"])])


def test_an_order_is_a_number_or_a_text() -> None:
    number = OrderColumns.of(columns(LONG, DOUBLE, STRING), ("k",))
    text = OrderColumns.of(columns(STRING, LONG), ("k",))
    assert number is not None
    assert text is not None
    values = rows(columns(LONG, DOUBLE, STRING), (3,), (None, 2.5), (None, None, "z"), (None, 1e19))
    assert number.read(values).to_pylist() == [Decimal(3), Decimal("2.5"), None, None]
    assert number.find_missing(values).to_pylist() == [False, False, True, True]
    # A column of texts also has the text of other values.
    assert text.read(rows(columns(STRING, LONG), ("z",), ("3", 3), ())).to_pylist() == ["z", None, None]


def test_a_record_is_refused_for_what_it_lacks() -> None:
    fields = (*columns(LONG, STRING), Field("at", DOUBLE))
    condition = key_condition(StructType(fields), KeyRules((("k",),), ("at",)))
    given = [{"k": 1, "at": 1.0}, {"k_1": "x", "at": 0.0}, {"at": 1.0}, {"k": 1}, {"k": 1, "at": float("nan")}]
    table = pa.Table.from_pylist(given, schema=to_arrow_schema(StructType(fields)))
    assert condition.find_broken(table).to_pylist() == [False, False, True, True, True]
    no_key, no_order, nan = map(condition.explain, table.to_pylist()[2:])
    assert no_key == "the key k is missing, null or not a scalar"
    assert no_order == nan == "at has no value that tells which record is newer"
