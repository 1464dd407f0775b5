"""Conditions of deletions: what the proof finds by itself is what Spark finds, with both of its settings of ANSI."""

from __future__ import annotations

import os
import random
from typing import Any

import pyarrow as pa
import pytest
from msgspec.msgpack import Ext
from pyspark.sql import Row, SparkSession

from support.fault import FULL
from widen.evolution.key_rules import KeyRules
from widen.files.predicates import bind_condition
from widen.files.row_tests import plan_test
from widen.model.schema_json import parse_type
from widen.model.types import StructType
from widen.proof.canonical import LONG_NUMBER
from widen.proof.conditions import Undecided, UnsupportedCondition, build_condition
from widen.spark.engine import Unsupported

CONDITIONS = 4_000 if FULL in os.environ else 400

DDL = (
    "b: boolean, y: tinyint, h: smallint, i: int, n: bigint, f: double, m: decimal(6,2), w: decimal(38,0), "
    "s: string, g: string, d: date, t: timestamp, l: timestamp_ntz, r: struct<i: int>"
)
LITERALS = {
    "b": ("true", "false", "TRUE"),
    "number": (
        *("0", "1", "-1", "5", "5.5", "5.0", "-5.5", "0.1", "127", "128", "2147483647", "2147483648", "1e0", "5e-1"),
        *("9007199254740993", "9007199254740993.0", "9223372036854775807", "0.10", "1L", "5S", "2.5D", "1BD", ".5"),
        *("12345678901234567890", "1234.56", "1e308"),
    ),
    "s": ("'a'", "'A'", "''", "'b'", "'é'", "'5'", '"a"'),
    "d": ("'2024-02-29'", "DATE '2024-01-31'", "DATE '1969-12-31'"),
    "t": ("TIMESTAMP '2024-02-29T10:00:00.5Z'", "'2024-02-29T10:00:00Z'", "TIMESTAMP '1969-12-31 23:59:59Z'"),
    "l": ("TIMESTAMP_NTZ '2024-02-29 10:00:00'", "TIMESTAMP_NTZ '1969-12-31 23:59:59.000001'"),
}
MISSING = ("op", "r.op", "gone.at.`x y`", "`date`")
"""Fields that no record has had a value of, so that they have no column."""

KIND = {**dict.fromkeys(("y", "h", "i", "n", "f", "m", "w", "r.i"), "number"), **{name: name for name in "bsdtl"}}

VALUES: dict[str, tuple[tuple[str, Any], ...]] = {
    "b": (("true", True), ("false", False)),
    "y": (("5Y", 5), ("-1Y", -1)),
    "h": (("128S", 128), ("0S", 0)),
    "i": (("5", 5), ("6", 6), ("-5", -5), ("2147483647", 2147483647)),
    "n": (("5L", 5), ("9007199254740993L", 2**53 + 1), ("9223372036854775807L", 2**63 - 1)),
    "f": (
        *(("5.5D", 5.5), ("5D", 5), ("-0.0D", -0.0), ("0.1D", 0.1)),
        *(("double('NaN')", Ext(LONG_NUMBER, b"NaN")), ("double('-Infinity')", Ext(LONG_NUMBER, b"-Infinity"))),
    ),
    "m": (("5.50BD", 5.5), ("1234.56BD", 1234.56), ("-0.1BD", -0.1)),
    "w": (("5BD", 5), ("12345678901234567890BD", Ext(LONG_NUMBER, b"12345678901234567890"))),
    "s": (("'a'", "a"), ("'A'", "A"), ("''", ""), ("'ab\nc'", "ab\nc"), ("'😀'", "😀"), ("'é'", "é")),
    "g": (("'5'", "5"), ("'-12'", "-12"), ("'0'", "0")),
    "d": (("DATE '2024-02-29'", "2024-02-29"), ("DATE '1969-12-31'", "1969-12-31")),
    "t": (
        ("TIMESTAMP '2024-02-29T10:00:00.5Z'", "2024-02-29T10:00:00.5Z"),
        ("TIMESTAMP '1969-12-31 23:59:59Z'", "1969-12-31T23:59:59Z"),
    ),
    "l": (
        ("TIMESTAMP_NTZ '2024-02-29 10:00:00'", "2024-02-29T10:00:00"),
        ("TIMESTAMP_NTZ '1969-12-31 23:59:59.000001'", "1969-12-31T23:59:59.000001"),
    ),
}


def a_condition(chance: random.Random, depth: int = 2) -> str:
    if depth and chance.random() < 0.4:
        left, right = (a_condition(chance, depth - 1) for _ in range(2))
        return chance.choice((f"{left} AND {right}", f"{left} OR {right}", f"NOT ({left})", f"({left}) OR NOT {right}"))
    name = chance.choice((*KIND, "g", *MISSING))
    if name in MISSING:
        literals = chance.choice([*LITERALS.values()])
    else:
        literals = ("5", "-12", "0", "'5'", "'-12'") if name == "g" else LITERALS[KIND[name]]
    one, other = chance.choice(literals), chance.choice((*literals, "NULL"))
    sign = chance.choice(("=", "<>", "<", "<=", ">", ">=", "==", "!=", "<=>"))
    forms = [
        f"{name} {sign} {other}",
        f"{one} {sign} {name}",
        f"{name} IS NULL",
        f"{name} IS NOT NULL",
        f"{name} IN ({one}, {other})",
        f"{name} NOT IN ({one}, {other})",
        f"{name} BETWEEN {one} AND {other}",
        f"{name} NOT BETWEEN {one} AND {other}",
        f"{name} IS DISTINCT FROM {one}",
    ]
    if KIND.get(name) == "number":
        forms.append(f"{name} {sign} {chance.choice([each for each in KIND if KIND[each] == 'number'])}")
    if name == "s":
        pattern = chance.choice(("'a%'", "'_'", "'%é'", "'a_\n_'"))
        forms += [f"s LIKE {pattern}", f"s NOT LIKE {pattern}"]
    if name in MISSING:
        forms += [name, f"NOT {name}", f"{name} LIKE 'a%'", f"{name} IS TRUE", f"{name} = {chance.choice([*KIND])}"]
    if name == "b":
        forms += ["b", "b IS TRUE", "b IS NOT FALSE"]
    return chance.choice(forms)


@pytest.mark.parametrize("ansi", ["true", "false"])
def test_the_proof_finds_what_spark_finds(spark: SparkSession, monkeypatch: pytest.MonkeyPatch, ansi: str) -> None:
    schema = parse_type(f"struct<{DDL}>")
    assert isinstance(schema, StructType)
    chance, evaluated, compared, here = random.Random(42), {}, 0, 0
    forms, rows = [], []
    for _ in range(25):
        given = {name: chance.choice((*values, None)) for name, values in VALUES.items()}
        form = {name: value[1] for name, value in given.items() if value is not None}
        cells = [f"{'NULL' if value is None else value[0]} AS {name}" for name, value in given.items()]
        cells.append(f"named_struct('i', {given['i'][0] if given['i'] else 'NULL'}) AS r")
        forms.append({**form, "r": {"i": form["i"]} if "i" in form else {}})
        rows.append(f"SELECT {', '.join(cells)}")
    while len(evaluated) < CONDITIONS:
        text = a_condition(chance)
        try:
            evaluated[text] = build_condition(text, schema)
        except UnsupportedCondition:
            continue
    before = spark.conf.get("spark.sql.ansi.enabled")
    spark.conf.set("spark.sql.ansi.enabled", ansi)
    try:
        types = ", ".join(f"CAST({field.name} AS {field.type.sql}) AS {field.name}" for field in schema)
        table = spark.sql(f"SELECT {types} FROM ({' UNION ALL '.join(rows)})").toArrow()
        frame = spark.createDataFrame(table)
        texts = [*evaluated]
        for start in range(0, len(texts), 400):
            part = texts[start : start + 400]
            conditions = [as_columns(text, schema) for text in part]
            found = frame.selectExpr(*(f"({text}) AS c{at}" for at, text in enumerate(conditions))).collect()
            for form, row in zip(forms, found, strict=True):
                for at, text in enumerate(part):
                    try:
                        result = evaluated[text](form)
                    except Undecided:
                        continue
                    compared += 1
                    assert result is row[at], (text, form)
            here += compare_writer(table, schema, part, found)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", str(before))
    assert compared > 0.95 * len(evaluated) * len(forms)
    assert here > 0.6 * len(evaluated)


def as_columns(text: str, schema: StructType) -> str:
    condition = KeyRules((("i",),), delete_when=text).deletes(schema)
    assert condition is not None
    return condition


def compare_writer(rows: pa.Table, schema: StructType, texts: list[str], found: list[Row]) -> int:
    """Compare what this process finds without Spark, and return of how many conditions it does."""
    count = 0
    for at, text in enumerate(texts):
        try:
            test = plan_test(bind_condition(as_columns(text, schema), schema))
        except Unsupported:
            continue
        count += 1
        assert test(rows).to_pylist() == [row[at] for row in found], text
    return count
