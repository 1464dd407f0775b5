"""Bounds of float columns that become double: exact in the commit that widens them, whoever else commits meanwhile."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import given
from hypothesis import strategies as st

import widen
from support.race import other_first
from widen.log import exact_bounds
from widen.log.exact_bounds import exact_floats, without_named
from widen.log.log_store import LogStore
from widen.protocol.actions import Add, Remove
from widen.protocol.table_features import TYPE_WIDENING

ON = {"delta.enableTypeWidening": "true"}


def as_float(value: float) -> float:
    return struct.unpack("f", struct.pack("f", value))[0]


def short(value: float) -> str:
    """The text that Delta Lake for Spark writes for a float: as few digits as name it."""
    return next(text for digits in range(1, 10) if as_float(float(text := f"{value:.{digits}g}")) == as_float(value))


def table_of(location: Path, *values: float, properties: dict[str, str] = ON) -> widen.Table:
    """A table with one float of each value in a file of its own, and the statistics of Delta Lake for Spark."""
    widen.create_table(location, "v float, s struct<w: float, x: int>, a array<float>", properties=properties)
    for value in values:
        add(location, value)
    return widen.Table(location)


def add(location: Path, value: float) -> None:
    nested = pa.array([{"w": value, "x": 1}], pa.struct([("w", pa.float32()), ("x", pa.int32())]))
    rows = {"v": pa.array([value], pa.float32()), "s": nested, "a": pa.array([[value]], pa.list_(pa.float32()))}
    widen.ingest(pa.table(rows), str(location), engine="local")
    log = sorted((location / "_delta_log").glob("*.json"))[-1]
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            bounds = f'{{"v": {short(value)}, "s": {{"w": {short(value)}, "x": 1}}}}'
            line["add"]["stats"] = (
                f'{{"numRecords": 1, "minValues": {bounds}, "maxValues": {bounds}, "nullCount": {{}}}}'
            )
    log.write_text("\n".join(map(json.dumps, lines)))
    for checksum in (location / "_delta_log").glob("*.crc"):
        checksum.unlink()


def bounds(table: widen.Table) -> list[tuple[Any, ...]]:
    stats = [json.loads(text) for text in table.refresh().files()["stats"].to_pylist()]
    found = [(each["minValues"], each["maxValues"]) for each in stats]
    return sorted((low["v"], high["v"], low["s"]["w"], high["s"]["w"]) for low, high in found)


def last_commit(table: widen.Table) -> list[dict[str, Any]]:
    path = Path(table.location, "_delta_log", f"{table.refresh().version:020}.json")
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_the_commit_that_widens_makes_them_exact(tmp_path: Path, mapping: str) -> None:
    if mapping == "name":
        # The statistics of this test have logical names.
        table = table_of(tmp_path, 0.1, 0.5, 0.3)
        table.set_properties({"delta.columnMapping.mode": "name"})
    else:
        table = table_of(tmp_path, 0.1, 0.5, 0.3)
    table.alter_columns({"v": {"type": "double"}, "s.w": {"type": "double"}})
    assert bounds(table) == sorted((as_float(value),) * 4 for value in (0.1, 0.5, 0.3))
    adds = [line["add"] for line in last_commit(table) if "add" in line]
    assert [each["dataChange"] for each in adds] == [False, False]  # 0.5 is exact as it is
    assert [line for line in last_commit(table) if "remove" in line] == []
    assert table.to_arrow("v > 0.1")["v"].to_pylist().count(as_float(0.1)) == 1
    assert table.to_arrow().num_rows == 3
    assert sorted(widen.Table(tmp_path).to_arrow()["v"].to_pylist()) == sorted(map(as_float, (0.1, 0.5, 0.3)))


@pytest.mark.parametrize("limit", [0, 100_000])
def test_a_partition_column_keeps_its_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """Its values stand in the log only, as texts of floats; the text of a double is another one."""
    monkeypatch.setattr(exact_bounds, "REPAIRED_FILES", limit)
    rows = {"p": pa.array([0.1, 0.5, None, 0.1], pa.float32()), "v": pa.array([0.3, 0.5, 0.7, 0.1], pa.float32())}
    write_deltalake(tmp_path, pa.table(rows), partition_by=["p"])
    table = widen.Table(tmp_path).set_properties(ON)
    before = table.to_arrow().to_pylist()
    assert {row["p"] for row in before} == {as_float(0.1), 0.5, None}
    table.alter_columns({"p": {"type": "double"}, "v": {"type": "double"}})
    after = widen.Table(tmp_path).to_arrow()
    assert sorted(map(str, after.to_pylist())) == sorted(map(str, before))
    assert after.schema.field("p").type == pa.float64()
    assert table.to_arrow("p > 0.1").num_rows == 3
    assert table.to_arrow(f"p = {as_float(0.1)!r}").num_rows == 2


def test_only_the_column_that_widens(tmp_path: Path) -> None:
    table = table_of(tmp_path, 0.1)
    table.alter_column("s.w", type="double")
    assert bounds(table) == [(0.1, 0.1, as_float(0.1), as_float(0.1))]


def test_an_element_of_an_array_has_no_bounds(tmp_path: Path) -> None:
    table = table_of(tmp_path, 0.1)
    table.alter_column("a.element", type="double")
    assert [line for line in last_commit(table) if "add" in line] == []


def test_a_load_that_widens_makes_them_exact_too(tmp_path: Path) -> None:
    table = table_of(tmp_path / "t", 0.1, properties={"widen.typeWidening": "whenNeeded"})
    widen.ingest(pa.table({"v": [0.7]}), str(tmp_path / "t"), engine="local", verify=True)
    assert TYPE_WIDENING in (table.refresh().snapshot.protocol.reader_features or ())
    stats = [json.loads(text) for text in table.files()["stats"].to_pylist()]
    assert sorted(each["minValues"]["v"] for each in stats) == [as_float(0.1), 0.7]
    assert table.version == 2


@pytest.mark.parametrize("removes", [False, True])
def test_another_commit_in_between(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, removes: bool) -> None:
    """A file that it adds becomes exact as well, and a file that it removes does not come back."""
    table = table_of(tmp_path, 0.1, 0.3)

    def other() -> None:
        if removes:
            widen.Table(tmp_path).delete("v < 0.2")
        else:
            add(tmp_path, 0.7)

    other_first(monkeypatch, LogStore, "put_if_absent", other)
    table.alter_columns({"v": {"type": "double"}, "s.w": {"type": "double"}})
    expected = (0.3,) if removes else (0.1, 0.3, 0.7)
    assert table.refresh().version == 4
    assert bounds(table) == [(as_float(value),) * 4 for value in expected]
    assert sorted(table.to_arrow()["v"].to_pylist()) == [as_float(value) for value in expected]


def test_too_many_files_are_left_with_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(exact_bounds, "REPAIRED_FILES", 1)
    table = table_of(tmp_path, 0.1, 0.3)
    table.alter_column("v", type="double")
    assert "--statistics" in caplog.text
    assert [low for low, *_ in bounds(table)] == [0.1, 0.3]


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_the_float_nearest_to_a_short_text_is_the_value(value: float) -> None:
    text = short(value)
    add = Add("p", {}, 1, 1, data_change=True, stats=f'{{"minValues":{{"v":{text}}},"maxValues":{{"v":{text}}}}}')
    changed = exact_floats([add], [("v",)])
    stats = json.loads((changed or [add])[0].stats)
    assert (stats["minValues"]["v"], stats["maxValues"]["v"]) == (value, value)
    assert bool(changed) is (float(text) != value)


NO_FLOATS = ("{}", "[]", "x", *(f'{{"minValues":{{"v":{text}}}}}' for text in ('"NaN"', "null", "1e300", "true", "{}")))


@pytest.mark.parametrize("stats", [None, "", *NO_FLOATS])
def test_other_statistics_stay(stats: str | None) -> None:
    assert exact_floats([Add("p", {}, 1, 1, data_change=True, stats=stats)], [("v",)]) == []


def test_digits_of_other_columns_stay() -> None:
    stats = '{"numRecords":1,"minValues":{"v":0.1,"d":12345678901234567890.123456789012345678}}'
    (add,) = exact_floats([Add("p", {}, 1, 1, data_change=True, stats=stats)], [("v",)])
    assert '"d":12345678901234567890.123456789012345678' in add.stats
    assert not add.data_change


DOUBLES: dict[str, Callable[[Decimal, int], str]] = {
    "deltalake": lambda value, scale: repr(float(int(value.scaleb(scale))) / 10.0**scale),
    "shortest": lambda value, _: repr(float(value)),
    "to the scale": lambda value, scale: f"{float(value):.{scale}f}",
}


@given(st.integers(1, 38).flatmap(lambda digits: st.tuples(st.integers(0, digits), st.integers(1, 10**digits - 1))))
def test_a_decimal_that_a_double_may_have_rounded(number: tuple[int, int]) -> None:
    scale, unscaled = number
    value = Decimal((0, tuple(map(int, str(unscaled))), -scale))
    texts = {name: Decimal(write(value, scale)) for name, write in DOUBLES.items()}
    for name, text in texts.items():
        if text != value and text.adjusted() + scale < 38:
            assert may_be_rounded(text, scale), name
    is_written = value in (texts["shortest"], texts["to the scale"])
    assert may_be_rounded(value, scale) == ((len(str(unscaled)) > 15 or scale > 22) and is_written)


def may_be_rounded(value: Decimal, scale: int) -> bool:
    stats = [f'{{"minValues": {{"c": {low}}}, "maxValues": {{"c": {value:f}}}}}' for low in ("0", f"-{value:f}")]
    (found,) = set(exact_bounds.may_be_rounded(pa.record_batch({"stats": stats}), {("c",): scale}).to_pylist())
    return bool(found)


def test_what_another_commit_names_is_left_out() -> None:
    def added(path: str, *, data_change: bool = False) -> Add:
        return Add(path, {}, 1, 1, data_change=data_change)

    def removed(path: str) -> Remove:
        return Remove(path, data_change=True)

    ours = [added("a"), added("b"), added("c"), added("d", data_change=True), removed("b")]
    theirs = [removed("a"), removed("b"), added("d"), added("e")]
    assert without_named(ours, theirs) == [added("b"), added("c"), added("d", data_change=True), removed("b")]
