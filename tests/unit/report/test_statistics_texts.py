"""What is told from texts of statistics is what their decoding tells: never less, and for nulls exactly the same."""

from __future__ import annotations

import json
import random
from typing import Any

import pyarrow as pa
import pytest

from widen.model.schema_json import parse_type
from widen.model.types import StructType
from widen.report.statistics_texts import StatisticsTexts

SCHEMA = parse_type('struct<v: double, at: timestamp, s: struct<x: int, w: string>, `q"u`: double, t: struct<y: int>>')
TWICE = parse_type("struct<v: double, at: timestamp, s: struct<x: int, v: double, at: timestamp>, nullCount: int>")
TIMES = ("2024-01-01T00:00:00.000Z", "1999-12-31T00:00:00.000Z", "1500-01-01T00:00:00.000Z", "9999-12-31T00:00:00.000Z")


def make_statistics(choose: random.Random, schema: StructType) -> str | None:
    """Return statistics as writers write them: any order, bounds or counts left out, spaces, texts of any kind."""
    oddity = choose.random()
    if oddity < 0.04:
        return choose.choice((None, "", "{}"))

    def bounds(struct: Any) -> dict[str, Any]:
        found = {}
        for field in struct.fields:
            if isinstance(field.type, StructType):
                found[field.name] = bounds(field.type)
            elif choose.random() > 0.05:
                found[field.name] = value(str(field.type))
        return dict(choose.sample(list(found.items()), len(found)))

    def value(kind: str) -> Any:
        if kind == "timestamp":
            return choose.choice(TIMES[:2]) if choose.random() < 0.9 else choose.choice(TIMES)
        if kind == "string":
            return choose.choice(('"v":1', '"nullCount":{"x":0}', "NaN", "}"))
        if kind == "double" and choose.random() < 0.04:
            return choose.choice(("NaN", None))  # deltalake writes null bounds
        return choose.choice((0, 1.5, -2))

    def counts(struct: Any) -> dict[str, Any]:
        return {
            field.name: counts(field.type) if isinstance(field.type, StructType) else int(choose.random() < 0.02)
            for field in struct.fields
            if choose.random() > 0.01
        }

    parts = {"numRecords": 3, "minValues": bounds(schema), "maxValues": bounds(schema), "nullCount": counts(schema)}
    if oddity < 0.3:
        parts = dict(choose.sample(list(parts.items()), len(parts)))
    return json.dumps(parts, separators=(",", ":") if oddity < 0.95 else None)


def at(value: Any, *path: str) -> Any:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


@pytest.mark.parametrize("schema", [SCHEMA, TWICE], ids=["one of a name", "two of a name"])
@pytest.mark.parametrize("size", [1, 5, 40])
def test_no_file_is_overlooked(schema: StructType, size: int) -> None:
    choose, skipped, nulls = random.Random(size), 0, set[bool]()
    for _ in range(300):
        texts = [make_statistics(choose, schema) for _ in range(size)]
        if choose.random() < 0.5:  # many files of one writer
            texts = [choose.choice(texts[:2]) for _ in texts]
        table = pa.table({"stats": pa.array([None, *texts], pa.string()), "n": range(size + 1)}).slice(1)
        decoded = {number: json.loads(text or "{}") for number, text in enumerate(texts, 1)}
        statistics = StatisticsTexts(table, schema)
        found = {number for rows in statistics.unbounded(("v",)) for number in rows["n"].to_pylist()}
        lacking = {
            number
            for number, each in decoded.items()
            if not {type(at(each, key, "v")) for key in ("minValues", "maxValues")} <= {int, float}
        }
        assert lacking <= found
        far = {number for rows in statistics.outside_centuries(("at",)) for number in rows["n"].to_pylist()}
        years = {
            n: [at(each, key, "at") or "1500" for key in ("minValues", "maxValues")] for n, each in decoded.items()
        }
        assert {number for number, texts in years.items() if not {text[:2] for text in texts} <= {"19", "20"}} <= far
        expected = all(at(each, "nullCount", "s", "x") == 0 for each in decoded.values())
        assert statistics.counts_no_null(("s", "x")) is expected
        skipped += size - len(found) + size - len(far)
        nulls.add(expected)
    assert nulls == {True, False}
    assert skipped or schema is TWICE
