"""Keys and orders as columns of Arrow, for every type and combination; loads that lead to the same on each engine."""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import date, datetime, timezone
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from functools import reduce
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import widen
from support.covering import TRIES_ALL, covering
from support.exact import bag
from support.fault import FULL
from widen.changes import arrow_changes, iceberg_keys, keyed_load, spark_changes
from widen.changes.history import columns_of_order
from widen.changes.key_columns import KeyColumns, OrderColumns, join_texts, key_condition
from widen.evolution.key_rules import KeyRules
from widen.files.arrow_types import one_array, to_arrow_schema
from widen.iceberg.catalog import to_table_name
from widen.model.types import (
    BINARY,
    BOOLEAN,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    DataType,
    DecimalType,
    Field,
    StructType,
)
from widen.schema.source_metadata import SOURCE
from widen.spark.engine import Unsupported, require_spark
from widen.spark.spark_types import type_to_spark

INF, NAN = float("inf"), float("nan")
UTC = timezone.utc
DOUBLES = (0.0, -0.0, 1.0, -7.5, 0.1, 1e-7, -2.5e-18, 4e-19, 1e-19, 123456789.25, 2.0**53, INF, -INF, NAN)
DOUBLES += (0.30000000000000004, 1e15, 12345678901234.567, 1e-3, 1700000000.123456)
VALUES: dict[DataType, Sequence[Any]] = {
    BYTE: (0, -128, 127),
    LONG: (0, 1, -7, 2**53 + 1, 2**63 - 1, -(2**63)),
    FLOAT: (0.0, -0.0, 0.5, 0.1, -2.5, 16777216.0, NAN, INF),
    DOUBLE: DOUBLES,
    DecimalType(5, 0): (Decimal(0), Decimal(-7), Decimal(12300)),
    DecimalType(12, 4): (Decimal("0.0000"), Decimal("1.5000"), Decimal("-0.0010"), Decimal("12345678.1234")),
    DecimalType(38, 10): (Decimal("0.0000000001"), Decimal("-7"), Decimal(10**27), Decimal("99999999.50")),
    DecimalType(38, 30): (Decimal("1e-30"), Decimal("0.5"), Decimal("-1.0000000000000000005"), Decimal("99999999")),
    DecimalType(38, 0): (Decimal(10**20), Decimal(10**20 - 1), Decimal(1 - 10**20), Decimal(-(10**37)), Decimal(3)),
    DecimalType(38, 38): (Decimal("0." + "9" * 38), Decimal("-1e-38"), Decimal("5e-19"), Decimal("4.9e-19")),
    STRING: ("", "a", "n:1", "1", 'q"', "back\\", "tab\t", "ü€😀", "true"),
    BOOLEAN: (True, False),
    DATE: (date(1970, 1, 1), date(1, 1, 1), date(9999, 12, 31), date(2024, 2, 29)),
    TIMESTAMP: (
        datetime(1970, 1, 1, tzinfo=UTC),
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, tzinfo=UTC),
    ),
    TIMESTAMP_NTZ: (
        datetime(1970, 1, 1),
        datetime(1, 1, 1, 0, 0, 0, 1),
        datetime(9999, 12, 31, 23, 59, 59, 120_000),
        datetime(2024, 5, 6, 7, 8, 10),
        datetime(2024, 5, 6, 0, 0, 0, 500_000),
        datetime(2024, 5, 6, 10, 0, 0),
    ),
}
"""Values of each type of a key."""


def build_schema(types: Sequence[DataType], name: str = "k") -> StructType:
    """Return the columns of one field, and a number for each row."""
    columns = [Field(name, types[0])]
    columns += [Field(f"{name}_{at}", each, metadata={SOURCE: [name]}) for at, each in enumerate(types[1:], 1)]
    return StructType((Field("row", LONG), *columns))


def build_rows(types: Sequence[DataType], schema: StructType) -> pa.Table:
    """Return a row for each value of each type, in the column of that type, one without a value, and one with two."""
    names = schema.names
    rows = [{names[at + 1]: value} for at, data_type in enumerate(types) for value in VALUES[data_type]]
    rows += [{}, {name: VALUES[each][0] for name, each in zip(names[1:], types, strict=True)}]
    numbered = [{"row": number} | each for number, each in enumerate(rows)]
    return pa.Table.from_pylist(numbered, schema=to_arrow_schema(schema))


def on_spark(spark: SparkSession, rows: pa.Table, schema: StructType) -> Any:
    return spark.createDataFrame(rows).select(
        *(F.col(f.name).cast(type_to_spark(f.type)).alias(f.name) for f in schema)
    )


COMBINATIONS = [
    *((each,) for each in VALUES),
    *itertools.permutations((LONG, STRING)),
    (LONG, DOUBLE, STRING),
    (DecimalType(12, 4), DOUBLE, LONG),
    (BOOLEAN, STRING, LONG),
    (DATE, TIMESTAMP_NTZ, TIMESTAMP),
    (STRING, DecimalType(38, 30), FLOAT),
    (TIMESTAMP, LONG),
    tuple(VALUES),
]


@pytest.mark.parametrize("types", COMBINATIONS, ids=lambda types: "+".join(each.sql for each in types)[:60])
def test_a_key_has_one_text_in_each_column(types: Sequence[DataType]) -> None:
    schema = build_schema(types)
    rows = build_rows(types, schema)
    columns = KeyColumns.of(schema, ("k",))
    assert columns is not None
    values = one_array(columns.read(rows))
    texts = columns.texts(values).to_pylist()
    # Two rows have equal values exactly if they have the same text.
    codes = values.dictionary_encode().indices.to_pylist()
    assert len({*zip(codes, texts, strict=True)}) == len({*codes}) == len({*texts})
    for at, data_type in enumerate(types):  # the same text where the field has this column only
        own = KeyColumns.of(build_schema([data_type]), ("k",))
        assert own is not None
        alone = pa.table({"row": rows["row"], "k": rows[schema.names[1 + at]]})
        others = [name for name in schema.names[1:] if name != schema.names[1 + at]]
        is_alone = reduce(pc.and_, (rows[name].is_null() for name in others), rows["row"].is_valid())
        found = own.texts(one_array(own.read(alone.filter(is_alone)))).to_pylist()
        assert found == pa.array(texts).filter(one_array(is_alone)).to_pylist()


@pytest.mark.parametrize(("types", "ansi"), covering(COMBINATIONS, ["true", "false"]))
def test_spark_refuses_the_same_records(
    spark: SparkSession, request: pytest.FixtureRequest, types: Sequence[DataType], ansi: str
) -> None:
    """Where Spark writes the rows, it says which have no key or no order."""
    require_spark(spark, "it is compared with it")
    before = spark.conf.get("spark.sql.ansi.enabled")
    request.addfinalizer(lambda: spark.conf.set("spark.sql.ansi.enabled", str(before)))
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    schema = build_schema(types)
    rows = build_rows(types, schema)
    as_order = {*types} != {BOOLEAN}
    condition = key_condition(schema, KeyRules((("row",),), (("k",),)) if as_order else KeyRules((("k",),)))
    found = on_spark(spark, rows, schema).select(condition.to_rule()).collect()
    reasons = [
        condition.explain(row) if is_broken else None
        for row, is_broken in zip(rows.to_pylist(), condition.find_broken(rows).to_pylist(), strict=True)
    ]
    assert reasons == [row[0] for row in found]
    assert None in reasons


def test_texts_of_several_fields_are_json() -> None:
    texts = [*VALUES[STRING], 'a","s:b', "b", "a", "", *map(chr, range(32)), "\x7f", "\\n"]
    pairs = [*itertools.product(texts, texts)]
    schema = StructType((Field("a", STRING), Field("b", STRING)))
    rows = pa.Table.from_pylist([{"a": a, "b": b} for a, b in pairs], schema=to_arrow_schema(schema))
    keys = [KeyColumns.of(schema, path) for path in (("a",), ("b",))]
    ours = join_texts([each.texts(one_array(each.read(rows))) for each in keys if each is not None]).to_pylist()
    assert [json.loads(text) for text in ours] == [[f"s:{a}", f"s:{b}"] for a, b in pairs]
    assert len({*ours}) == len({*pairs})


def test_sequences_of_several_fields_sort_like_their_values_and_lead_back_to_them() -> None:
    types: Sequence[DataType] = (DecimalType(38, 10), STRING, DATE, STRING)
    texts = [*VALUES[STRING], "\0", "a\0", "a\1", "\0\0", "\0\1"]
    dice = random.Random(5)
    values = [tuple(dice.choice(texts if each == STRING else VALUES[each]) for each in types) for _ in range(400)]
    values = [row for row in values if abs(row[0]) < 10**20] + [(None, "a", None, "b"), (Decimal(1), "a", None, "b")]
    names = ["a", "b", "c", "d"]
    order = StructType(tuple(Field(name, each) for name, each in zip(names, types, strict=True)))
    schema = StructType((*order.fields, Field("until", order)))
    rows = pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in values], to_arrow_schema(order))
    paths, inside = [(name,) for name in names], [("until", name) for name in names]
    columns = OrderColumns.of(schema, paths)
    assert columns is not None
    found = one_array(columns.read(rows))
    written = columns_of_order(schema, inside, found)["until"].to_pylist()
    is_whole = [None not in row for row in values]
    assert written == [
        dict(zip(names, row, strict=True)) if whole else None for row, whole in zip(values, is_whole, strict=True)
    ]
    whole = [(one, other) for one, other in zip(values, found.to_pylist(), strict=True) if other is not None]
    by_value = sorted(whole, key=lambda each: [part.encode() if isinstance(part, str) else part for part in each[0]])
    assert [each[1] for each in by_value] == sorted(each[1] for each in whole)


def test_many_generated_doubles_are_ordered_as_decimals() -> None:
    draw, schema = random.Random(7), build_schema((DOUBLE, STRING))
    values = [draw.choice((1, -1)) * draw.random() * 10 ** draw.randrange(-30, 19) for _ in range(3_000)]
    values += [round(value, draw.randrange(20)) for value in values]
    rows = pa.Table.from_pylist(
        [{"row": at, "k": value} for at, value in enumerate(values)], schema=to_arrow_schema(schema)
    )
    columns, order = KeyColumns.of(schema, ("k",)), OrderColumns.of(schema, [("k",)])
    assert columns is not None
    assert order is not None
    digits = Decimal(1).scaleb(-18)
    with localcontext(Context(prec=60)):
        exact = [Decimal(repr(value)).quantize(digits, ROUND_HALF_UP) for value in values]
    assert order.read(rows).to_pylist() == exact
    texts = columns.read(rows).to_pylist()
    assert [float(text.removeprefix("n:")) for text in texts] == values


@pytest.mark.parametrize(
    ("data_type", "column", "text"),
    [
        (BINARY, pa.array([b"x\0\xff"]), "x:7800FF"),
        (DATE, pa.array([-800_000], pa.int32()).view(pa.date32()), "d:day -800000"),
        (TIMESTAMP_NTZ, pa.array([2**62]).view(pa.timestamp("us")), "d:us 4611686018427387904"),
        (TIMESTAMP_NTZ, pa.array([-800_000 * 86_400_000_000]).view(pa.timestamp("us")), "d:day -800000"),
        (DOUBLE, pa.array([1e22]), "n:1.0E22"),
        (DOUBLE, pa.array([5e-324]), "n:5.0E-324"),
        (FLOAT, pa.array([1e30], pa.float32()), "n:1.0000000150474662E30"),
    ],
)
def test_the_ends_of_types_have_texts(data_type: DataType, column: pa.Array, text: str) -> None:
    schema = build_schema((data_type, STRING))
    rows = pa.table({"row": [0], "k": column, "k_1": pa.array([None], pa.string())})
    columns, order = KeyColumns.of(schema, ("k",)), OrderColumns.of(schema, [("k",)])
    assert columns is not None
    assert columns.read(rows).to_pylist() == [text]
    if data_type == DOUBLE:
        assert order is not None
        assert order.find_missing(rows).to_pylist() == [abs(column[0].as_py()) >= 1e19]


def lines(*records: Any) -> str:
    return "".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in records)


DRIFTING = [
    lines(*({"id": key, "at": at, "n": at, "op": "u"} for at, key in enumerate((1, 2, 3, 2**40, 7)))),
    lines(
        *(
            {"id": key, "at": 10 + at, "n": at, "op": "u"}
            for at, key in enumerate(("1", 2, "x", 1.0, 2.5, True, "2.5"))
        ),
        {"id": [1], "at": 1},
        {"id": None, "at": 1},
        {"at": 5},
        {"id": 9},
        {"id": 3, "at": 99, "op": "d"},
        {"id": "7", "at": 99, "op": "d"},
        "not JSON",
    ),
    lines(
        *({"id": key, "at": at, "n": at, "op": "u"} for at, key in ((5, "1"), (50, 3), (99, 7), (50, "7"), (12, 2.50))),
        {"id": {"a": 1}, "at": 3},
        {"id": 1, "at": 4, "op": "d"},
        {"id": 1e15, "at": 4},
        {"id": 2.5, "at": 100, "op": "d"},
    ),
    lines(
        {"id": 2.5, "at": 50},
        {"id": "2.5", "at": 101},
        {"id": 1e15, "at": 5},
        {"id": "n:1", "at": 1},
    ),
]
"""Loads whose keys come in more and more columns."""

ORDERED = [
    lines({"id": 1, "at": 5}, {"id": 2, "at": 5.5}, {"id": 3, "at": 2**53 + 1}),
    lines(
        {"id": 1, "at": 4.75}, {"id": 2, "at": 5.25}, {"id": 3, "at": 2**53}, {"id": 4, "at": "x"}, {"id": 4, "at": 1}
    ),
    lines({"id": 1, "at": 5.0, "op": "d"}, {"id": 2, "at": 1e300}, {"id": 2, "at": 1e19}, {"id": 6, "at": True}),
    lines({"id": 1, "at": 4.9}, {"id": 1, "at": 1700000000.123456}, {"id": 4, "at": 1.0000000000000002}, {"id": 5}),
    lines({"id": 4, "at": [1]}, {"id": 4, "at": {"a": 1}}, {"id": 4, "at": 10**30}, {"id": 4, "at": 10**19}),
]
"""Loads whose order comes in more and more columns."""

DOUBLE_ORDERED = [
    lines({"id": 1, "at": 1.5, "op": "u"}, {"id": 2, "at": 1.5, "n": 1}),
    lines({"id": 1, "at": 1e300}, {"id": 2, "at": 1.25}, {"id": 2, "at": 2.5, "op": "d"}, {"id": 3, "at": -1e19}),
    lines({"id": 2, "at": 2.25}, {"id": 3, "at": -1e15}),
]
"""Numbers of 1e19 and more have no place in the order."""

TEXT_ORDERED = [
    lines({"id": 1, "at": "b"}, {"id": 2, "at": "2"}),
    lines(
        {"id": 1, "at": "a"}, {"id": 2, "at": 3}, {"id": 3, "at": [1]}, {"id": 3, "at": "é"}, {"id": 4, "at": {"a": 1}}
    ),
    lines(
        {"id": 1, "at": 7},
        {"id": 2, "at": True},
        {"id": 3, "at": "z"},
        {"id": 3, "at": "😀"},
        {"id": 3, "at": "\uffff"},
    ),
]

TIMES = [
    lines({"id": "2024-05-06", "at": "2024-05-06"}, {"id": "2024-05-06T07:08:09Z", "at": "2024-05-07"}),
    lines(
        {"id": "2024-05-06", "at": "2024-05-06T00:00:01Z"}, {"id": "2024-05-06T07:08:09Z", "at": "2024-05-06T23:00:00Z"}
    ),
    lines({"id": "2024-05-06T00:00:00", "at": "2024-05-07T00:00:01"}, {"id": "no time", "at": "2024-01-01"}),
    lines({"id": "2024-05-06T07:08:09Z", "at": "2024-05-08"}, {"id": "0001-01-01", "at": "9999-12-31T23:59:59.999999"}),
]

PARTIAL = [
    lines({"id": 1, "at": 1, "a": 1, "b": {"x": 1, "y": 2}}, {"id": 2, "at": 1, "a": 5})
    + lines({"id": 3, "at": 1, "r": {"k": "t", "w": {"v": 1}}}, {"id": 4, "at": 1, "r": [[{"k": "u"}], []]}),
    lines({"id": "1", "at": 2, "a": "text"}, {"id": 1, "at": 3, "b": {"x": 9.5}}, {"id": 1.0, "at": 2, "c": True})
    + lines({"id": 3, "at": 2, "r": {"w": {"u": 2}}}, {"id": 5, "at": 1, "r": [{"k": "x"}]}, {"id": 6, "r": {"k": 1}}),
    lines({"id": 2.0, "at": 7, "a": [1]}, {"id": "1", "at": 2.5, "b": {"z": 1}}, {"id": 2, "at": 9, "op": "d"})
    + lines(
        {"id": 3, "at": 3, "r": {"z": 3}}, {"id": 4, "at": 2, "r": {"w": {"v": 4}}}, {"id": 4, "at": 3, "r": {"k": 0}}
    ),
    lines({"id": 2, "at": 8.5, "a": 1}, {"id": 2, "at": 10, "c": 1}, {"id": 1, "at": 3.5, "a": "b"})
    + lines({"id": 3, "at": 4, "r": [{"k": "v"}]}, {"id": 5, "at": 4, "r": {"w": {"v": 5}}}),
]

NESTED = [
    lines({"order": {"id": 1, "no": "a"}, "at": 1}, {"order": {"id": 1, "no": "bc"}, "at": 1}),
    lines({"order": {"id": "1", "no": "a"}, "at": 2}, {"order": {"id": "1a", "no": "bc"}, "at": 2}),
    lines({"order": {"id": "1", "no": "abc"}, "at": 2}, {"order": {"id": 1, "no": 5}, "at": 2}, {"order": 5, "at": 3}),
    lines(
        {"order": {"id": 1, "no": "a"}, "at": 3}, {"order": {"id": "1", "no": None}, "at": 4}, {"order": None, "at": 3}
    ),
]

SEVERAL = [
    lines(
        *({"id": 1, "at": at, "s": {"lsn": lsn}} for at, lsn in (("a", 5), ("a", -5), ("ab", -7), ("a\0", 1), ("", 9))),
        {"id": 2, "at": "b", "s": {"lsn": 3}},
        {"id": 2, "at": "b", "s": {}},
        {"id": 2, "s": {"lsn": 1}},
        {"id": 3, "at": "é", "s": {"lsn": 2**40}, "op": "u"},
    ),
    lines(
        {"id": 1, "at": "ab", "s": {"lsn": -7.5}},
        {"id": 1, "at": "a\0\1", "s": {"lsn": -6}},
        {"id": 2, "at": "b", "s": {"lsn": 2.75}, "op": "d"},
        {"id": 3, "at": "😀", "s": {"lsn": -1e-7}, "op": "d"},
        {"id": 4, "at": "a", "s": {"lsn": "x"}},
    ),
    lines(
        {"id": 3, "at": "😀", "s": {"lsn": -2e-7}},
        {"id": 3, "at": "😀", "s": {"lsn": 0}},
        {"id": 2, "at": "b", "s": {"lsn": 2.75}},
        {"id": 1, "at": "aa", "s": {"lsn": 99}, "op": "d"},
        {"id": 1, "at": "ab", "s": {"lsn": -7}},
    ),
]
"""Loads that are ordered by two fields, one of them inside a record."""

VALUES_OF_TIES = (1, 10, 9, 2.5, -0.0, 1e-7, 1e20, "a", 'b"', "é", "😀\n", "z\\", True, False, [1, None], [], {"x": 1})
VALUES_OF_TIES += ({"x": None, "y": ["2024-05-06T07:08:09.5Z"]}, {}, None, "2024-05-06", 2**60, [{"x": 2}, None])
TIES = [
    lines(*({"id": at, "at": 1, "op": "u", "v": value} for at, value in enumerate(VALUES_OF_TIES))),
    lines(*({"id": at, "at": 1, "op": "u", "v": value} for at, value in enumerate(VALUES_OF_TIES[::-1]))),
    lines(
        *({"id": at, "at": 2, "op": "u", "v": v} for at in range(9) for v in (VALUES_OF_TIES * 2)[at : at + 6]),
        *({"id": at, "at": 2, "op": "d", "v": at} for at in (2, 5)),
        *({"id": at, "at": 1, "op": "u", "v": "zz", "w": at} for at in range(20)),
        {"id": 77, "at": 1, "op": "d"},
        {"id": 77, "at": 1, "op": "u", "v": "z"},
    ),
    lines({"id": 3, "at": 2, "op": "d"}, {"id": 2, "at": 2, "v": "~"}, {"id": 77, "at": 1}, {"id": "3", "at": 2}),
]
"""Records with equal sequences, of which the contents decide."""

UNORDERED = [
    lines({"id": 1, "n": 0, "at": 0, "op": "u"}, {"id": "1", "n": 1}, {"id": 2.5}, {"id": "2.50"}, {"id": "1", "n": 1}),
    lines({"id": 1.0, "n": 7}, {"id": "1", "n": 1}, {"id": 2.5}, {"id": True}, {"id": [1]}),
]
"""Loads of which the last one wins; some of their rows are there already."""

BY = {"sequence_by": "at", "delete_when": "op = 'd'"}
OPS = lines({"id": 0, "at": 0, "op": "u"})
MAPPED = {"delta.columnMapping.mode": "name"}
LOADS: dict[str, tuple[Sequence[str], dict[str, Any], dict[str, Any]]] = {
    "keys": (DRIFTING, {"key": ["id"], **BY}, {}),
    "keys that split": (DRIFTING, {"key": ["id"], "evolve": "split", **BY}, {}),
    "keys with mapped columns and vectors": (
        DRIFTING,
        {"key": ["ID"], **BY},
        {"schema": "id int", "properties": {**MAPPED, "delta.enableDeletionVectors": "true"}},
    ),
    "texts first": ([OPS.replace("0,", '"a",', 1), *DRIFTING], {"key": ["id"], **BY}, {}),
    "two keys": (DRIFTING, {"key": ["op", "id"], "sequence_by": "at"}, {}),
    "keys in a partition": (DRIFTING, {"key": ["id"], **BY}, {"schema": "id int, op string", "partition_by": ["id"]}),
    "decimals": (DRIFTING, {"key": ["id"], "numbers": "decimal", **BY}, {}),
    "without an order": ([DRIFTING[0], *UNORDERED], {"key": ["id"]}, {}),
    "orders": ([OPS, *ORDERED], {"key": ["id"], **BY}, {}),
    "orders that are doubles": (DOUBLE_ORDERED, {"key": ["id"], **BY}, {}),
    "orders that split": ([OPS, *ORDERED], {"key": ["id"], "evolve": "split", **BY}, {}),
    "orders that are decimals": ([OPS, *ORDERED], {"key": ["id"], "numbers": "decimal", **BY}, {}),
    "orders that are texts": (TEXT_ORDERED, {"key": ["id"], "sequence_by": "at"}, {}),
    "times": (TIMES, {"key": ["id"], "sequence_by": "at", "detect_dates": True}, {}),
    "orders of several fields": (SEVERAL, {"key": ["id"], **BY, "sequence_by": ["at", "s.lsn"]}, {}),
    "history of several fields": (SEVERAL, {"key": ["id"], "history": True, **BY, "sequence_by": ["s.lsn", "at"]}, {}),
    "partial records of several fields": (
        SEVERAL,
        {"key": ["id"], "missing": "keep", **BY, "sequence_by": ["at", "s.lsn"]},
        {},
    ),
    "partial records": ([OPS, *PARTIAL], {"key": ["id"], "missing": "keep", **BY}, {}),
    "partial records that split": ([OPS, *PARTIAL], {"key": ["id"], "missing": "keep", "evolve": "split", **BY}, {}),
    "ties": (TIES, {"key": ["id"], **BY}, {}),
    "ties with times": (TIES, {"key": ["id"], "detect_dates": True, **BY}, {}),
    "nested keys": (NESTED, {"key": ["order.id", "order.no"], "sequence_by": "at"}, {}),
    "history": ([OPS, *DRIFTING], {"key": ["id"], "history": True, **BY}, {}),
    "history in a partition": (
        [OPS, *ORDERED],
        {"key": ["id"], "history": True, **BY},
        {"schema": "id bigint, op string", "partition_by": ["op"]},
    ),
    "history of a table with a change feed": (
        [OPS, *ORDERED],
        {"key": ["id"], "history": True, **BY},
        {"schema": "id int", "properties": {**MAPPED, "delta.enableChangeDataFeed": "true"}},
    ),
    "history of times": (TIMES, {"key": ["id"], "sequence_by": "at", "detect_dates": True, "history": True}, {}),
    "history of texts": (TEXT_ORDERED, {"key": ["id"], "sequence_by": "at", "history": True}, {}),
    "history of decimals": ([OPS, *ORDERED], {"key": ["id"], "numbers": "decimal", "history": True, **BY}, {}),
    "history of ties": (TIES, {"key": ["id"], "history": True, **BY}, {}),
    "escaped keys": ([text.replace('"id"', '"my.id `x`"') for text in DRIFTING], {"key": ["`my.id ``x```"], **BY}, {}),
}


PROVED_ON_SPARK = (
    "keys",
    "orders",
    "partial records",
    "without an order",
    "history of ties",
    "orders that are doubles",
    "history of several fields",
    "orders of several fields",
)
"""The loads whose proof is compared, too, and that go to Iceberg tables."""


QUICK: tuple[str, ...] = ("keys", "partial records that split", "history of ties", "history of several fields")
QUICK += (
    ("ties", "nested keys", "without an order", "orders that are doubles", "history in a partition")
    if TRIES_ALL
    else ()
)
"""The loads into Delta tables; the first three in `make test`, and all of these where everything runs on Spark."""

CHOSEN = [(name, "delta") for name in (LOADS if FULL in os.environ else QUICK)]
CHOSEN += [(name, "iceberg") for name in (PROVED_ON_SPARK if FULL in os.environ else PROVED_ON_SPARK[-1:])]


@pytest.mark.parametrize(("name", "table_format"), CHOSEN)
def test_loads_by_keys_of_several_kinds_are_the_same(
    spark: SparkSession, tmp_path: Path, name: str, table_format: str
) -> None:
    """Also where Spark reads and writes what this process does not."""
    require_spark(spark, "it is compared with it")
    loads, options, created = LOADS[name]
    results: dict[str, list[Any]] = {"local": [], "spark": []}
    for engine, found in results.items():
        place, words = tmp_path / engine, dict(options)
        place.mkdir()
        target = str(place / "t")
        if table_format == "iceberg":
            target, words["catalog"], words["to"] = "a.t", str(place / "lake.db"), "iceberg"
        elif created:
            widen.create_table(target, **created)
        words |= {"engine": "local"} if engine == "local" else {"spark": spark}
        for number, text in enumerate(loads):
            file = tmp_path / f"{number}.json"
            file.write_text(text)
            with ExitStack() as patches:
                if engine == "spark":
                    leave_all_to_spark(patches)
                done = widen.ingest(file, target, verify=engine == "local" or name in PROVED_ON_SPARK, **words)
            proof = done.verification
            assert proof is None or proof.is_clean, (number, proof.places)
            plan = "" if MAPPED.items() <= created.get("properties", {}).items() else done.plan.hash
            found.append(
                (str(done.keys), done.records, done.quarantined, plan, str(proof) if name in PROVED_ON_SPARK else "")
            )
        found += [bag(rows_of(place, table, table_format)) for table in ("t", "t_quarantine")]
    assert results["local"] == results["spark"]
    assert any("late" in str(each[0]) for each in results["local"][:-2])


def leave_all_to_spark(patches: ExitStack) -> None:
    """Have Spark read and write all files of a load, as if Arrow could do neither."""
    refuse, refused = mock.Mock(side_effect=Unsupported("it is compared with it")), mock.Mock(return_value=None)
    for module, name, stands_for in (
        (keyed_load, "_decide", refuse),
        (arrow_changes, "_plan", refuse),
        (spark_changes, "find_obstacle", mock.Mock(return_value="it is compared with it")),
        (spark_changes, "copy_without_positions", refused),
        (iceberg_keys, "copy_unmarked", refused),
    ):
        patches.enter_context(mock.patch.object(module, name, stands_for))


def rows_of(place: Path, name: str, table_format: str) -> list[dict[str, Any]]:
    """Return the rows of a table without what differs from run to run; none of a table that does not exist."""
    if table_format == "iceberg":
        found = to_table_name(f"a.{name}", str(place / "lake.db")).find()
        rows = [] if found is None else found.scan().to_arrow().to_pylist()
    else:
        rows = widen.Table(str(place / name)).to_arrow().to_pylist() if (place / name).exists() else []
    return [{key: value for key, value in row.items() if key not in ("kept_at", "table_version")} for row in rows]
