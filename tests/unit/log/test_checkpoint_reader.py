"""Statistics and partition values of checkpoints, as typed columns and as JSON text."""

from __future__ import annotations

import json
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.log_table import ADD_COLUMN, CHECKPOINT, PROTOCOL, metadata, paired, write_commit
from support.state import schema
from widen.log.checkpoint_reader import parsed_partition_values, parsed_stats, to_json_text
from widen.log.log_store import LogStore
from widen.log.snapshot import open_snapshot
from widen.model.types import TIMESTAMP, Field, StructType
from widen.protocol.data_skipping import Compare, FileSelection


def texts(values: list[Any], data_type: pa.DataType) -> list[Any]:
    """Return the JSON text of these lower bounds."""
    parsed = pa.array([{"minValues": {"a": value}} for value in values], pa.struct([low(data_type)]))
    return [json.loads(text)["minValues"].get("a") for text in to_json_text(parsed, None).to_pylist()]


def low(data_type: pa.DataType) -> pa.Field:
    return pa.field("minValues", pa.struct([("a", data_type)]))


def test_bounds_keep_the_format_of_their_old_type() -> None:
    assert texts([5], pa.int8()) == [5]
    assert texts([date(2024, 1, 1)], pa.date32()) == ["2024-01-01"]
    assert texts([datetime(2024, 1, 1, 0, 0, 0, 1999)], pa.timestamp("us")) == ["2024-01-01T00:00:00.001"]
    noon = datetime(2024, 1, 1, 12, tzinfo=timezone.utc)
    assert texts([noon], pa.timestamp("us", "UTC")) == ["2024-01-01T12:00:00.000Z"]


def test_a_float_is_written_as_its_exact_double() -> None:
    assert texts([3.4], pa.float32()) == [3.4000000953674316]


def test_decimals_keep_all_digits() -> None:
    value = Decimal("12345678901234567890.123456789012345678")
    parsed = pa.array([{"minValues": {"a": value}}], pa.struct([low(pa.decimal128(38, 18))]))
    assert to_json_text(parsed, None).to_pylist() == [f'{{"minValues":{{"a":{value}}}}}']


def test_bounds_that_json_or_python_cannot_represent_are_left_out() -> None:
    assert texts([float("nan"), float("inf"), 1.5], pa.float64()) == [None, None, 1.5]
    for kind in (pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC")):
        ints = pa.array([2**31 - 1, 0], pa.int32()) if kind == pa.date32() else pa.array([2**62, 0], pa.int64())
        bounds = pa.StructArray.from_arrays([ints.cast(kind)], ["a"])
        found = to_json_text(pa.StructArray.from_arrays([bounds], ["minValues"]), None).to_pylist()
        assert found[0] == '{"minValues":{}}'
        assert "1970-01-01" in found[1]


def test_int96_times_are_in_utc(tmp_path: Path) -> None:
    """INT96 was Spark's default; such a checkpoint may have no statistics as JSON text."""
    times = [datetime(1, 1, 1), datetime(2024, 1, 1, 0, 0, 0, 123456), datetime(9999, 12, 31)]
    kind = pa.struct([("at", pa.timestamp("us"))])
    column = pa.struct([*ADD_COLUMN, ("stats_parsed", pa.struct([("numRecords", pa.int64()), ("minValues", kind)]))])
    plain = {"partitionValues": [], "size": 1, "modificationTime": 1, "dataChange": False}
    adds = [{**plain, "path": str(at), "stats_parsed": {"numRecords": 1, "minValues": {"at": at}}} for at in times]
    rows = [*map(paired, [PROTOCOL, metadata(partitions=())]), *({"add": one} for one in adds)]
    schema = pa.schema([("add", column) if field.name == "add" else field for field in CHECKPOINT])
    write_commit(tmp_path, 0, PROTOCOL, metadata(partitions=()))
    place = tmp_path / "_delta_log" / f"{0:020d}.checkpoint.parquet"
    pq.write_table(pa.Table.from_pylist(rows, schema), place, use_deprecated_int96_timestamps=True)
    files = open_snapshot(LogStore(str(tmp_path))).files().sort_by("path")
    low = [json.loads(text)["minValues"]["at"] for text in files["stats"].to_pylist()]
    assert low == ["0001-01-01T00:00:00.000Z", "2024-01-01T00:00:00.123Z", "9999-12-31T00:00:00.000Z"]
    kept = Compare(("at",), TIMESTAMP, "<", datetime(2024, 1, 1, tzinfo=timezone.utc))
    selection = FileSelection(kept, StructType((Field("at", TIMESTAMP),)), "none", ())
    assert [selection.can_match({}, text) for text in files["stats"].to_pylist()] == [True, False, False]


def test_an_existing_text_wins() -> None:
    parsed = pa.array([{"minValues": {"a": 1}}, {"minValues": {"a": 2}}, None], pa.struct([low(pa.int32())]))
    given = pa.array(["{}", None, None], pa.string())
    assert to_json_text(parsed, given).to_pylist() == ["{}", '{"minValues":{"a":2}}', None]


# ---- as columns ------------------------------------------------------------------------------------

GOOD = '{"numRecords":3,"minValues":{"a":1.5},"maxValues":{"a":2.5},"nullCount":{"a":0}}'


@pytest.mark.parametrize(
    ("misfit", "kept"),
    [
        ('{"numRecords":2,"minValues":{"a":"-Infinity"},"maxValues":{"a":1.0},"nullCount":{"a":1}}', (2, {"a": 1})),
        ('{"numRecords":2,"minValues":{"a":1.0},"nullCount":{"a":"x"}}', (None, None)),
        ('{"numRecords":2}{"numRecords":2}', (None, None)),
        ("[]", (None, None)),
        ("null", (None, None)),
        ("{", (None, None)),
    ],
)
def test_bounds_that_do_not_fit_do_not_affect_other_files(misfit: str, kept: tuple[Any, Any]) -> None:
    """Delta Spark writes infinite doubles as strings."""
    rows = pa.RecordBatch.from_arrays([pa.array([GOOD, misfit, None, GOOD], pa.string())], names=["stats"])
    made = parsed_stats(schema("a double"), ()).convert(rows).to_pylist()
    expected = {"numRecords": 3, "tightBounds": None, "minValues": {"a": 1.5}, "maxValues": {"a": 2.5}}
    assert made[0] == made[3] == {**expected, "nullCount": {"a": 0}}
    assert (made[1]["numRecords"], made[1]["nullCount"]) == kept
    assert made[1]["minValues"] is made[2] is None


@pytest.mark.parametrize(
    ("type_text", "texts", "expected"),
    [
        ("bigint", ["1", " 2", "x", ""], [1, None, None, None]),
        ("decimal(12,2)", ["1", "1.50"], [Decimal("1.00"), Decimal("1.50")]),
        ("double", ["1", "1.5", "-Infinity"], [1.0, 1.5, float("-inf")]),
        ("timestamp_ntz", ["2024-01-01", "2024-01-01 10:00:00"], [datetime(2024, 1, 1), datetime(2024, 1, 1, 10)]),
        ("date", ["2024-01-01", "+10000-01-01"], [date(2024, 1, 1), None]),
        ("boolean", ["true", "false"], [True, False]),
        ("binary", ["a"], [b"a"]),
    ],
)
def test_each_partition_value_is_cast_to_the_current_type(
    type_text: str, texts: list[str], expected: list[Any]
) -> None:
    """Values written under the old type and under the new one are in the same column."""
    values = pa.array([[("p", text)] for text in texts], pa.map_(pa.string(), pa.string()))
    rows = pa.RecordBatch.from_arrays([values], names=["partition_values"])
    column = parsed_partition_values(schema(f"p {type_text}"), ["p"], ["p"])
    assert column.convert(rows).to_pylist() == [{"p": value} for value in expected]
