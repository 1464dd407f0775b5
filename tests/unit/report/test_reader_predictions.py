"""Which readers read a table: predicted from its traits, for tables that exist and for the answers of the data file."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import widen
from support.command_line import run, run_json
from widen.errors import InvalidOption
from widen.report import reader_predictions
from widen.report.reader_predictions import QUESTIONS, TRAITS, Outcome, Prediction


def outcomes(table: widen.Table, *names: str) -> dict[str, str]:
    return {each.reader.name: each.outcome.value for each in table.readers(*names)}


def reasons(predictions: list[Prediction]) -> dict[str, list[str]]:
    return {each.reader.name: [trait.name for trait in each.reasons] for each in predictions}


def test_every_reader_reads_a_plain_table(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    widen.ingest(pa.table({"id": [1, 2], "name": ["a", None]}), into=place)
    found = outcomes(widen.Table(place))
    assert set(found) == {reader.name for reader in reader_predictions.tested_readers("delta")}
    assert set(found.values()) == {"reads"}


def test_a_widened_column_says_who_refuses_and_who_loses_rows(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    table = widen.create_table(place, "v float", properties={"delta.enableTypeWidening": "true"})
    widen.ingest(pa.table({"v": pa.array([0.1], pa.float32())}), into=place)
    table.refresh().alter_column("v", type="double")
    found = {each.reader.name: each for each in table.readers("deltalake", "polars", "duckdb")}
    assert found["polars"].outcome is Outcome.REFUSES
    assert [trait.name for trait in found["polars"].reasons] == ["typeWidening"]
    assert (found["duckdb"].outcome, found["duckdb"].when) == (Outcome.WRONG, "filters for a range")
    assert [trait.text for trait in found["duckdb"].reasons] == ["v: float became double"]
    table.rewrite()
    assert outcomes(table, "duckdb")["duckdb"] == "reads"


def test_rounded_bounds_of_decimals_are_found_and_repaired(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    values = pa.array([Decimal("90071992547409.93")], pa.decimal128(18, 2))
    write_deltalake(place, pa.table({"c": values}))
    table = widen.Table(place)
    found = {each.reader.name: each for each in table.readers("polars", "duckdb")}
    assert found["polars"].answers == {
        "scan": Outcome.READS,
        "equal": Outcome.WRONG,
        "range": Outcome.WRONG,
        "count": Outcome.READS,
        "null": Outcome.READS,
    }
    assert found["duckdb"].outcome is Outcome.WRONG
    table.rewrite(statistics=True)
    assert outcomes(table, "polars", "duckdb") == {"polars": "reads", "duckdb": "reads", "duckdb-deltalake": "reads"}


def test_nan_is_found_where_bounds_leave_it_out(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    write_deltalake(place, pa.table({"v": [1.0, float("nan")]}))
    assert reasons(widen.Table(place).readers("duckdb"))["duckdb"] == ["nan-hidden"]
    write_deltalake(place, pa.table({"v": [1.0, 2.0]}), mode="overwrite")
    assert reasons(widen.Table(place).readers("duckdb"))["duckdb"] == []


def test_a_reader_that_was_not_tested_is_named(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    widen.ingest(pa.table({"id": [1]}), into=place)
    with pytest.raises(InvalidOption, match=r"readers cannot be 'excel'. Must be one of: "):
        widen.Table(place).readers("excel")
    assert set(outcomes(widen.Table(place), "duckdb")) == {"duckdb", "duckdb-deltalake"}


def test_the_command_shows_what_each_reader_does(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    widen.create_table(place, "id int", properties={"delta.enableTypeWidening": "true"})
    shown = run("readers", place, "--readers", "polars,daft")
    assert shown.exit_code == 0
    assert "refuses" in shown.stdout
    assert "the table feature typeWidening" in shown.stdout
    assert f"widen drop-feature {place} typeWidening" in shown.stderr
    value = run_json("readers", place, "--readers", "polars")
    assert [(each["reader"], each["outcome"]) for each in value["readers"]] == [("polars", "refuses")]


def test_the_data_file_has_only_known_traits_readers_and_answers() -> None:
    text = Path(reader_predictions.__file__).with_name(reader_predictions.DATA).read_text(encoding="utf-8")
    data = json.loads(text)
    assert len(data["readers"]) >= 12
    for table_format, traits in data["answers"].items():
        readers = {name for name, each in data["readers"].items() if each["format"] == table_format}
        assert set(traits) <= set(TRAITS)
        for answers in traits.values():
            assert set(answers) <= readers
            for found in answers.values():
                assert found
                assert set(found) <= set(QUESTIONS)
                assert set(found.values()) <= {"refuses", "wrong"}


def test_files_from_before_a_double_was_added_have_no_nan(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    widen.ingest(pa.table({"id": [1]}), into=place)
    nested = pa.array([{"y": 2.5}, {"y": float("nan")}])
    widen.ingest(pa.table({"id": [2, 3], "x": [0.5, None], "s": nested}), into=place)
    found = {trait.text for each in widen.Table(place).readers() for trait in each.reasons}
    assert found == {"s.y: NaN beside numbers", "s: nested, and may be null"}
