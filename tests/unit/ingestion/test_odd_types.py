"""Types of Parquet and Arrow that no table has: their values become those of other types, exactly or not at all."""

from __future__ import annotations

import math
import random
import uuid
from datetime import datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import widen
from widen.errors import InvalidOption, SourceContentError
from widen.sources import arrow_columns
from widen.sources.arrow_columns import ColumnRules

UTC = timezone.utc
NAN = float("nan")
KEY = uuid.UUID(int=7)


def write(path: Path, **columns: pa.Array) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    size = len(next(iter(columns.values())))
    pq.write_table(pa.table({"id": pa.array(range(size)), **columns}), path)
    return path


def load(source: Any, table: Path, **options: Any) -> widen.IngestResult:
    done = widen.ingest(source, table, verify=True, engine="local", **options)
    assert str(done.verification).endswith("leaves exact")
    return done


def rows(table: Path, *names: str) -> list[Any]:
    found = sorted(widen.Table(table).to_arrow().to_pylist(), key=lambda row: row["id"])
    return [tuple(row[name] for name in names) if len(names) > 1 else row[names[0]] for row in found]


def types(table: Path) -> dict[str, str]:
    return {field.name: field.type.sql for field in widen.Table(table).schema}


ODD: list[tuple[pa.Array, str, list[Any]]] = [
    (pa.array([0, None, 10**9 + 1000, -1000], pa.timestamp("ns")), "timestamp_ntz",
     [datetime(1970, 1, 1), None, datetime(1970, 1, 1, 0, 0, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999)]),
    (pa.array([1000, None], pa.timestamp("ns", "Europe/Paris")), "timestamp",
     [datetime(1970, 1, 1, 0, 0, 0, 1, UTC), None]),
    (pa.array([time(1, 2, 3, 4000), None], pa.time32("ms")), "string", ["01:02:03.004", None]),
    (pa.array([time(1, 2, 3, 4)], pa.time64("us")), "string", ["01:02:03.000004"]),
    (pa.array([5], pa.time64("ns")), "string", ["00:00:00.000000005"]),
    (pa.array([timedelta(milliseconds=-5), None], pa.duration("ms")), "bigint", [-5, None]),
    (pa.array([2**62], pa.duration("ns")), "bigint", [2**62]),
    (pa.array([1.5, None, -0.0, 65504.0], pa.float16()), "double", [1.5, None, -0.0, 65504.0]),
    (pa.array([Decimal("1.25"), None], pa.decimal256(60, 2)), "decimal(38,2)", [Decimal("1.25"), None]),
    (pa.array([KEY.bytes, None], pa.binary(16)).cast(pa.uuid()), "string", [str(KEY), None]),
    (pa.array([[1000], [], None], pa.list_(pa.timestamp("ns"))), "array<timestamp_ntz>",
     [[datetime(1970, 1, 1, 0, 0, 0, 1)], [], None]),
    (pa.array([{"a": time(1)}, None], pa.struct([("a", pa.time64("us"))])), "struct<a: string>",
     [{"a": "01:00:00.000000"}, None]),
    (pa.array([[("k", 1.5)], None], pa.map_(pa.string(), pa.float16())), "map<string,double>", [[("k", 1.5)], None]),
]  # fmt: skip


@pytest.mark.parametrize(("values", "column", "expected"), ODD)
@pytest.mark.parametrize("form", ["file", "memory"])
def test_values_stay_exactly_what_they_are(
    tmp_path: Path, values: pa.Array, column: str, expected: list[Any], form: str
) -> None:
    source: Any = write(tmp_path / "in" / "a.parquet", x=values)
    load(source if form == "file" else pa.table({"id": range(len(values)), "x": values}), tmp_path / "t")
    assert types(tmp_path / "t")["x"] == column
    found = rows(tmp_path / "t", "x")
    assert found == expected
    assert [math.copysign(1, each) for each in found if isinstance(each, float)] == [
        math.copysign(1, each) for each in expected if isinstance(each, float)
    ]


NANOS = pa.array([1_000, 1_234, None, -1], pa.timestamp("ns", "UTC"))
MICRO = datetime(1970, 1, 1, 0, 0, 0, 1, UTC)


@pytest.mark.parametrize("form", ["file", "memory"])
def test_nanoseconds_are_an_error_or_cut_or_text(tmp_path: Path, form: str) -> None:
    file = write(tmp_path / "in" / "a.parquet", x=NANOS, s=pa.array(list("abcd")))
    source: Any = file if form == "file" else pq.read_table(file)
    with pytest.raises(SourceContentError, match="times that microseconds do not hold"):
        widen.ingest(source, tmp_path / "t", engine="local")
    assert not (tmp_path / "t").exists()
    load(source, tmp_path / "cut", nanos="truncate")
    before = datetime(1969, 12, 31, 23, 59, 59, 999999, UTC)
    assert rows(tmp_path / "cut", "x", "s") == [(MICRO, "a"), (MICRO, "b"), (None, "c"), (before, "d")]
    load(source, tmp_path / "text", nanos="text")
    assert rows(tmp_path / "text", "x_timestamp") == [MICRO, None, None, None]
    assert rows(tmp_path / "text", "x") == [
        "1970-01-01T00:00:00.000001Z", "1970-01-01T00:00:00.000001234Z", None, "1969-12-31T23:59:59.999999999Z",
    ]  # fmt: skip
    with pytest.raises(InvalidOption, match="nanos"):
        widen.ingest(source, tmp_path / "t", engine="local", nanos="round")


def test_nanoseconds_at_any_depth_are_text(tmp_path: Path) -> None:
    inner = pa.array([[{"t": 1}], [{"t": 1000}], None], pa.list_(pa.struct([("t", pa.timestamp("ns"))])))
    done = load(write(tmp_path / "in" / "a.parquet", x=inner), tmp_path / "t", nanos="text")
    assert done.records == 3
    found = widen.Table(tmp_path / "t").to_arrow().sort_by("id")["x"].to_pylist()
    texts = [None if each is None else [str(item["t"]) for item in each] for each in found]
    assert texts == [["1970-01-01T00:00:00.000000001"], ["1970-01-01T00:00:00.000001"], None]


def test_what_fits_no_column_is_a_bad_file(tmp_path: Path) -> None:
    write(tmp_path / "in" / "a.parquet", x=pa.array([Decimal(10**40)], pa.decimal256(60, 0)))
    write(tmp_path / "in" / "b.parquet", x=pa.array([Decimal(1)], pa.decimal256(60, 0)))
    done = widen.ingest(tmp_path / "in", tmp_path / "t", engine="local", skip_bad_files=True)
    assert [(Path(each.path).name, "38 digits" in each.reason) for each in done.bad_files] == [("a.parquet", True)]
    assert rows(tmp_path / "t", "x") == [Decimal(1)]


def test_folders_and_quarantine_know_the_file(tmp_path: Path) -> None:
    write(tmp_path / "in" / "day=1" / "a.parquet", x=pa.array([time(1), None], pa.time64("us")))
    write(tmp_path / "in" / "day=2" / "b.parquet", x=pa.array(["text"]))
    load(tmp_path / "in", tmp_path / "t", new=True, source_columns=True)
    found = sorted(widen.Table(tmp_path / "t").to_arrow().to_pylist(), key=lambda row: (row["day"], row["id"]))
    assert [(row["day"], row["x"], Path(row["_source_file"]).name) for row in found] == [
        ("1", "01:00:00.000000", "a.parquet"), ("1", None, "a.parquet"), ("2", "text", "b.parquet"),
    ]  # fmt: skip
    assert widen.ingest(tmp_path / "in", tmp_path / "t", new=True, engine="local").is_unchanged


@pytest.mark.parametrize("nanos", ["truncate", "text"])
def test_the_proof_finds_values_that_were_converted_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nanos: str
) -> None:
    source = write(tmp_path / "in" / "a.parquet", x=NANOS, t=pa.array([time(at) for at in range(4)], pa.time64("us")))
    stored = arrow_columns._to_stored

    def wrong(values: pa.Array, rules: ColumnRules) -> pa.Array:
        right = stored(values, rules)
        return right.take(pa.array(range(len(right))[::-1])) if pa.types.is_time(values.type) else right

    monkeypatch.setattr(arrow_columns, "_to_stored", wrong)
    with pytest.raises(widen.errors.WidenError, match="one of the records 1 to 4 differs"):
        widen.ingest(source, tmp_path / "t", engine="local", verify=True, nanos=nanos)


@pytest.mark.parametrize("seed", range(20))
def test_generated_nanoseconds_come_back(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    counts = [
        None if chance.random() < 0.1 else chance.randint(-(2**61), 2**61) // (unit := chance.choice([1, 1000])) * unit
        for _ in range(200)
    ]
    zone = chance.choice([None, "UTC"])
    values = pa.array(counts, pa.timestamp("ns", zone))
    source = write(tmp_path / "in" / "a.parquet", x=values, l=pa.ListArray.from_arrays(range(201), values))
    load(source, tmp_path / "text", nanos="text")
    texts = [None if each is None else pa.scalar(each, pa.timestamp("ns")) for each in counts]
    column = "x_timestamp" if zone else "x_timestamp_ntz"
    for (text, moment), expected in zip(rows(tmp_path / "text", "x", column), texts, strict=True):
        assert (text is None) == (expected is None)
        if text is not None and expected is not None:
            assert pa.scalar(text.rstrip("Z")).cast(pa.timestamp("ns")).value == expected.value
            assert (moment is not None) == (expected.value % 1000 == 0)
    load(source, tmp_path / "cut", nanos="truncate")
    epoch = datetime(1970, 1, 1, tzinfo=UTC if zone else None)
    cut = [
        None if each is None else (each - epoch) // timedelta(microseconds=1) for each in rows(tmp_path / "cut", "x")
    ]
    assert cut == [None if each is None else each // 1000 for each in counts]


# ---- integers as floats ----------------------------------------------------------------------------

FLOATS: list[tuple[pa.Array, str, list[Any]]] = [
    (pa.array([1.0, 2.0, NAN, None]), "bigint", [1, 2, None, None]),
    (pa.array([1.0, 2.0], pa.float32()), "bigint", [1, 2]),
    (pa.array([-(2.0**52), 0.0]), "bigint", [-(2**52), 0]),
    (pa.array([1.0, 2.5]), "double", [1.0, 2.5]),
    (pa.array([1.0, math.inf]), "double", [1.0, math.inf]),
    (pa.array([1.0, -0.0]), "double", [1.0, -0.0]),
    (pa.array([2.0**53, 1.0]), "double", [2.0**53, 1.0]),
    (pa.array([[1.0, NAN], None, []]), "array<bigint>", [[1, None], None, []]),
    (pa.array([{"a": 1.0, "b": 1.5}]), "struct<a: bigint, b: double>", [{"a": 1, "b": 1.5}]),
    (pa.array([[("k", 3.0)]], pa.map_(pa.string(), pa.float64())), "map<string,bigint>", [[("k", 3)]]),
]


@pytest.mark.parametrize(("values", "column", "expected"), FLOATS)
@pytest.mark.parametrize("form", ["file", "memory"])
def test_columns_of_integers_come_as_integers(
    tmp_path: Path, values: pa.Array, column: str, expected: list[Any], form: str
) -> None:
    file = write(tmp_path / "in" / "a.parquet", x=values)
    source: Any = file if form == "file" else pq.read_table(file).to_reader(max_chunksize=1)
    load(source, tmp_path / "t", integral_doubles="convert")
    assert types(tmp_path / "t")["x"] == column
    assert rows(tmp_path / "t", "x") == expected


@pytest.mark.parametrize("form", ["file", "memory"])
def test_a_column_of_integers_stays_one(tmp_path: Path, form: str) -> None:
    load(write(tmp_path / "in" / "a.parquet", x=pa.array([1, 2])), tmp_path / "t")
    file = write(tmp_path / "more" / "b.parquet", x=pa.array([3.0, NAN]))
    source: Any = file if form == "file" else pq.read_table(file)
    load(source, tmp_path / "t", integral_doubles="convert")
    assert types(tmp_path / "t") == {"id": "bigint", "x": "bigint"}
    with pytest.raises(InvalidOption, match="integral_doubles"):
        widen.ingest(source, tmp_path / "t", engine="local", integral_doubles="drop")


def test_floats_stay_floats_by_default(tmp_path: Path) -> None:
    load(write(tmp_path / "in" / "a.parquet", x=pa.array([1.0, NAN])), tmp_path / "t")
    assert types(tmp_path / "t")["x"] == "double"
