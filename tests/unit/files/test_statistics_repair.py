"""Bounds that the footers contradict are replaced, and no row changes: filters of other readers then find them."""

from __future__ import annotations

import json
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

import widen
from support.command_line import run, run_json
from support.race import other_first
from widen.errors import OptionConflict
from widen.files import statistics_repair
from widen.log import exact_bounds
from widen.log.log_store import LogStore
from widen.report import build_report

LONG = Decimal("90071992547409.93")
VALUES = (LONG, -LONG, Decimal("1.25"), Decimal("9999999999999999.99"))


def decimals(location: Path) -> widen.Table:
    """A table of deltalake with a long decimal in each file, which it writes to the log as a double."""
    for value in VALUES:
        rows = {"c": pa.array([value], pa.decimal128(18, 2)), "s": [{"w": value}]}
        kind = pa.struct([("w", pa.decimal128(38, 4))])
        write_deltalake(location, pa.table({**rows, "s": pa.array(rows["s"], kind)}), mode="append")
    return widen.Table(location)


def bounds(table: widen.Table) -> list[tuple[Decimal, ...]]:
    stats = [json.loads(text, parse_float=Decimal) for text in table.refresh().files()["stats"].to_pylist()]
    found = [(each["minValues"], each["maxValues"]) for each in stats]
    return sorted((low["c"], high["c"], low["s"]["w"], high["s"]["w"]) for low, high in found)


def found_by_others(location: Path, value: Decimal) -> list[int]:
    table = DeltaTable(location)
    polars = import_module("polars")
    query = f"SELECT * FROM t WHERE c = arrow_cast('{value}', 'Decimal128(18, 2)')"
    condition = ds.field("c") == pa.scalar(value, pa.decimal128(18, 2))
    return [
        table.to_pyarrow_dataset().to_table(filter=condition).num_rows,
        pa.table(QueryBuilder().register("t", table).execute(query).read_all()).num_rows,
        polars.scan_delta(str(location)).filter(polars.col("c") == value).collect().height,
    ]


def test_decimals_that_went_through_a_double(tmp_path: Path) -> None:
    table = decimals(tmp_path)
    assert found_by_others(tmp_path, LONG) == [0, 0, 0]  # deltalake 1.6.6; see the page on readers
    before = table.to_arrow().sort_by("c")
    assert run("rewrite", str(tmp_path), "--statistics").stdout.startswith("replaced the bounds of 3 files")
    assert bounds(table) == sorted((value,) * 4 for value in VALUES)
    assert [found_by_others(tmp_path, value) for value in VALUES] == [[1, 1, 1]] * 4
    after = widen.Table(tmp_path)
    assert (after.version, after.files().num_rows) == (len(VALUES), len(VALUES))
    assert after.to_arrow().sort_by("c").equals(before)
    assert run_json("rewrite", str(tmp_path), "--statistics") == {"version": 4, "changed": False, "repairedFiles": 0}
    assert after.refresh().version == 4


SMALL = Decimal("-0.0000001")


def small_decimals_found(location: Path) -> int:
    dataset = DeltaTable(location).to_pyarrow_dataset()
    return int(dataset.count_rows(filter=ds.field("v") == pa.scalar(SMALL, pa.decimal128(9, 7))))


def test_decimals_with_exponents_are_written_out(tmp_path: Path) -> None:
    """deltalake 1.6.6 writes 1e-7, which its own Arrow dataset takes for null."""
    rows = pa.table({"v": pa.array([SMALL], pa.decimal128(9, 7)), "e": [1e-300]})
    write_deltalake(tmp_path, rows)
    assert small_decimals_found(tmp_path) == 0
    assert build_report.build_report(widen.Table(tmp_path).snapshot).inexact.files == 1
    assert widen.Table(tmp_path).rewrite(statistics=True).metrics == {"numRepairedFiles": 1}
    assert small_decimals_found(tmp_path) == 1
    (stats,) = widen.Table(tmp_path).files()["stats"].to_pylist()
    assert '"v":-0.0000001' in stats
    assert json.loads(stats)["maxValues"]["e"] == 1e-300
    assert widen.Table(tmp_path).rewrite(statistics=True).metrics == {}


def test_few_digits_at_a_large_scale(tmp_path: Path) -> None:
    """deltalake 1.6.6 divides by 10 to the power of the scale as a double, which is exact only up to 22."""
    value = Decimal("7E-30")
    write_deltalake(tmp_path, pa.table({"c": pa.array([value], pa.decimal128(38, 30))}))
    table = widen.Table(tmp_path)
    assert '{"c":6.999999999999999e-30}' in table.files()["stats"][0].as_py()
    duckdb = next(each for each in table.readers("duckdb") if each.reader.name == "duckdb")  # 1.5.5 loses the row
    assert (duckdb.outcome.value, duckdb.because) == ("wrong", ("c: bounds of decimals are rounded",))
    assert table.rewrite(statistics=True).metrics == {"numRepairedFiles": 1}
    assert f'{{"c":{value:f}}}' in table.files()["stats"][0].as_py()


@pytest.mark.parametrize("vectors", ["false", "true"])
def test_widen_writes_decimals_without_exponents(tmp_path: Path, vectors: str) -> None:
    properties = {"delta.enableDeletionVectors": vectors}
    widen.create_table(tmp_path, "id int, v decimal(9,7)", properties=properties)
    rows = {"id": pa.array([1, 2], pa.int32()), "v": pa.array([SMALL, Decimal("1.5")], pa.decimal128(9, 7))}
    widen.ingest(pa.table(rows), tmp_path, engine="local")
    widen.Table(tmp_path).delete("id = 2")  # with vectors it writes the statistics of the file again
    assert vectors == "true" or small_decimals_found(tmp_path) == 1
    (stats,) = widen.Table(tmp_path).files()["stats"].to_pylist()
    assert '"v":-0.0000001' in stats
    assert widen.Table(tmp_path).rewrite(statistics=True).metrics == {}


def test_floats_that_became_doubles_beside_doubles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short bounds of a float are wrong, and the same text is right for a double: the footer tells."""
    monkeypatch.setattr(exact_bounds, "REPAIRED_FILES", 0)
    location = tmp_path / "t"
    widen.create_table(location, "v float", properties={"widen.typeWidening": "whenNeeded"})
    widen.ingest(pa.table({"v": pa.array([0.1], pa.float32())}), str(location), engine="local")
    log = location / "_delta_log" / f"{1:020}.json"
    log.write_text(log.read_text().replace("0.10000000149011612", "0.1"))
    widen.ingest(pa.table({"v": [0.1]}), str(location), engine="local")
    table = widen.Table(location)
    assert lows(table) == [0.1, 0.1]
    change = table.rewrite(statistics=True)
    assert (change.operation, change.metrics, change.version) == ("REPAIR STATISTICS", {"numRepairedFiles": 1}, 3)
    assert lows(table) == [0.1, 0.10000000149011612]
    adds = [line["add"] for line in lines(location, 3) if "add" in line]
    assert [each["dataChange"] for each in adds] == [False]
    assert table.rewrite(statistics=True).metrics == {}
    assert table.version == 3


def lows(table: widen.Table) -> list[float]:
    return sorted(json.loads(text)["minValues"]["v"] for text in table.refresh().files()["stats"].to_pylist())


def lines(location: Path, version: int) -> list[dict[str, Any]]:
    text = (location / "_delta_log" / f"{version:020}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_several_commits_and_a_file_that_another_one_removes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each commit has some of the files. What is removed meanwhile does not come back, and no footer is read twice."""
    table, reads = decimals(tmp_path), []
    real = statistics_repair.read_bounds_here

    def counted(store: Any, columns: Any, paths: list[str]) -> Any:
        reads.extend(paths)
        return real(store, columns, paths)

    monkeypatch.setattr(statistics_repair, "read_bounds_here", counted)
    monkeypatch.setattr(statistics_repair, "MOST_FILES", 1)
    other_first(monkeypatch, LogStore, "put_if_absent", lambda: widen.Table(tmp_path).delete("c < 0"))
    table.rewrite(statistics=True)
    left = [value for value in VALUES if value != -LONG]
    assert bounds(table) == sorted((value,) * 4 for value in left)
    assert sorted(table.to_arrow()["c"].to_pylist()) == sorted(left)
    assert len(reads) == len(set(reads))


def test_the_report_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = decimals(tmp_path)
    checks = {each["name"]: each for each in run_json("report", str(tmp_path))["summary"]["checks"]}
    assert checks["Bounds"]["status"] == "watch"
    assert "of 3 files" in checks["Bounds"]["text"]
    assert f"widen rewrite {tmp_path} --statistics" in checks["Bounds"]["text"]
    monkeypatch.setattr(build_report, "AUTOMATIC_FILES", 2)
    assert "of up to 3 files" in run("report", str(tmp_path)).stdout
    assert "of 3 files" in run("report", str(tmp_path), "--footers").stdout
    table.rewrite(statistics=True)
    checks = {each["name"]: each for each in run_json("report", str(tmp_path), "--footers")["summary"]["checks"]}
    assert "Bounds" not in checks


def test_a_table_with_nothing_to_doubt_reads_no_footer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics_repair, "read_bounds_here", None)
    rows = pa.table({"d": pa.array([Decimal("1.5")], pa.decimal128(20, 2)), "x": [0.1], "n": [2**62]})
    widen.ingest(rows, str(tmp_path), engine="local")
    assert widen.Table(tmp_path).rewrite(statistics=True).metrics == {}


def test_the_history_and_the_statistics_are_two_commands(tmp_path: Path) -> None:
    widen.create_table(tmp_path, "v double")
    with pytest.raises(OptionConflict, match="clear_history"):
        widen.Table(tmp_path).rewrite(statistics=True, clear_history=True)
