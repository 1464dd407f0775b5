"""What peers lose: the comparison inputs of the evolution specification, section 4, each with what we keep.

Two intervals of one table in mode widen, every input its own field; both proved leaf by leaf.
"""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import SparkSession

from widen import ingest
from widen.model.schema_json import parse_type
from widen.schema.source_metadata import TableFormat, can_widen
from widen.table import Table

D = Decimal
UTC = timezone.utc

# For each input: the JSON values of its field in the two intervals, its columns by their suffix, and what stands in the
# columns for each value, nulls apart.
INPUTS: dict[str, tuple[list[str], list[str], dict[str, str], list[dict[str, Any]]]] = {
    "bool column then 7": (
        ["true"],
        ["7"],
        {"": "boolean", "_int": "int"},
        [{"": True}, {"_int": 7}],
    ),
    "long column then a text of digits": (
        ["1099511627776"],
        ['"007"'],
        {"": "bigint", "_string": "string"},
        [{"": 1099511627776}, {"_string": "007"}],
    ),
    "long column then 2.5": (
        ["1099511627776"],
        ["2.5"],
        {"": "decimal(21,1)"},
        [{"": D("1099511627776.0")}, {"": D("2.5")}],
    ),
    "double column then 2^53+1": (
        ["0.5"],
        ["9007199254740993"],
        {"": "double", "_long": "bigint"},
        [{"": 0.5}, {"_long": 9007199254740993}],
    ),
    "double column then 1e400": (
        ["0.5"],
        ["1e400"],
        {"": "double", "_string": "string"},
        [{"": 0.5}, {"_string": "1e400"}],
    ),
    "2^63 with a double nearby": (
        ["9223372036854775808", "0.5"],
        [],
        {"": "decimal(20,1)"},
        [{"": D("9223372036854775808.0")}, {"": D("0.5")}],
    ),
    "only null": (["null"], ["7"], {"": "int"}, [{}, {"": 7}]),
    "only empty arrays": (["[]"], ["[7]", "[]"], {"": "array<int>"}, [{}, {"": [7]}, {"": []}]),
    "a text in an array of longs": (
        ["[1,2]"],
        ['[1,"y"]'],
        {"": "array<int>", "_array_string": "array<string>"},
        [{"": [1, 2]}, {"": [1, None], "_array_string": ["1", "y"]}],
    ),
    "scalar and array": (
        ["1", "[2,3]"],
        [],
        {"": "array<int>", "_int": "int"},
        [{"": [1], "_int": 1}, {"": [2, 3]}],
    ),
    "scalar and record": (
        ["1", '{"x":2}'],
        [],
        {"": "struct<x: int>", "_int": "int"},
        [{"_int": 1}, {"": {"x": 2}}],
    ),
    "array and record": (
        ["[1]", '{"x":2}'],
        [],
        {"": "struct<x: int>", "_array_int": "array<int>"},
        [{"_array_int": [1]}, {"": {"x": 2}}],
    ),
    "date column and timestamp": (
        ['"2024-05-01"'],
        ['"2024-05-01T12:00:00.123456Z"'],
        {"": "date", "_timestamp": "timestamp"},
        [{"": date(2024, 5, 1)}, {"_timestamp": datetime(2024, 5, 1, 12, 0, 0, 123456, UTC)}],
    ),
}

NAMES = {name: f"f{number:02}" for number, name in enumerate(INPUTS)}

# Records of their own, and the columns that say them.
RECORDS = {
    "keys that differ in case": ('{"userId":1,"user_id":2,"UserID":3}', {"userId": 1, "user_id": 2, "UserID_2": 3}),
    "a key that looks like a path": ('{"p":{"b":1},"p__b":2}', {"p": {"b": 1}, "p__b": 2}),
    "a key twice": ('{"a":1,"a":2}', {"_corrupt_record": '{"a":1,"a":2}'}),
}


def lines(which: int) -> list[str]:
    """The records of one interval: ``n`` numbers them, a hundred an interval."""
    values = {name: vector[which] for name, vector in INPUTS.items()}
    records = []
    for number in range(max(map(len, values.values()))):
        fields = [f'"{NAMES[name]}":{each[number]}' for name, each in values.items() if number < len(each)]
        records.append(f'{{"n":{100 * which + number},{",".join(fields)}}}')
    return records + ([text for text, _ in RECORDS.values()] if which else [])


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Table:
    place = tmp_path_factory.mktemp("peers")
    for which in (0, 1):
        (place / f"{which}.jsonl").write_text("\n".join(lines(which)) + "\n", encoding="utf-8")
        source = str(place / f"{which}.jsonl")
        done = ingest(source, str(place / "table"), detect_dates=True, verify=True, spark=spark)
        assert done.verification is not None
        assert done.verification.is_clean, done.verification
    return Table(str(place / "table"))


@pytest.fixture(scope="module")
def rows(spark: SparkSession, table: Table) -> list[dict[str, Any]]:
    """The rows without nulls, instants in UTC whatever the zone of the session is."""
    instants = {field.name for field in table.schema if field.type == parse_type("timestamp")}
    found = [row.asDict(recursive=True) for row in table.read(spark=spark).collect()]
    told = [{key: value for key, value in row.items() if value is not None} for row in found]
    return [{key: value.astimezone(UTC) if key in instants else value for key, value in row.items()} for row in told]


@pytest.mark.parametrize("name", INPUTS)
def test_each_input_keeps_its_columns(table: Table, name: str) -> None:
    expected = {NAMES[name] + suffix: parse_type(text).sql for suffix, text in INPUTS[name][2].items()}
    found = {field.name: field.type.sql for field in table.schema if field.name.split("_")[0] == NAMES[name]}
    assert found == expected


@pytest.mark.parametrize("name", INPUTS)
def test_each_input_keeps_its_values(rows: list[dict[str, Any]], name: str) -> None:
    first, second, _, expected = INPUTS[name]
    numbers = [*range(len(first)), *range(100, 100 + len(second))]
    by_number = {row["n"]: row for row in rows if "n" in row}
    for number, cells in zip(numbers, expected, strict=True):
        told = {key: value for key, value in by_number[number].items() if key.split("_")[0] == NAMES[name]}
        assert told == {NAMES[name] + suffix: value for suffix, value in cells.items()}


@pytest.mark.parametrize("name", RECORDS)
def test_each_record_is_kept_under_names_of_its_own(rows: list[dict[str, Any]], name: str) -> None:
    expected = RECORDS[name][1]
    others = [{key: value for key, value in row.items() if key != "_corrupt_at"} for row in rows if "n" not in row]
    assert expected in others, json.dumps(others)


def test_a_scale_that_iceberg_forbids_to_change_is_not_asked_for() -> None:
    old, new = parse_type("decimal(10,2)"), parse_type("decimal(14,4)")
    able = {each for each in TableFormat if can_widen(each, old, new)}
    assert able == {TableFormat.DELTA}
