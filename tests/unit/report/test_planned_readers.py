"""What a plan says of other readers: the same as their predictions once the batch is loaded."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import widen
from support.command_line import run, run_json
from widen.errors import InvalidOption
from widen.evolution.plan import Plan, PlannedReader

TARGETS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("delta", {}),
    ("delta", {"enable_type_widening": True}),
    ("delta", {"evolve": "split"}),
    ("iceberg", {}),
    ("iceberg", {"format_version": 3}),
)
VALUES = (
    lambda choose: choose.randrange(-9, 9),
    lambda choose: choose.randrange(2**40),
    lambda choose: choose.random(),
    lambda choose: choose.choice("abc"),
    lambda choose: choose.random() < 0.5,
    lambda choose: [choose.randrange(3)],
    lambda choose: {"k": choose.randrange(3), "w": choose.choice("ab")},
    lambda choose: None,
)


def make_batch(choose: random.Random, kinds: dict[str, Any]) -> list[dict[str, Any]]:
    kinds[choose.choice("abcde")] = choose.choice(VALUES)
    return [{"id": at, **{name: make(choose) for name, make in kinds.items()}} for at in range(3)]


def open_table(place: str, options: dict[str, Any]) -> Any:
    return widen.IcebergTable(place, options["catalog"]) if "catalog" in options else widen.Table(place)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("target", TARGETS, ids=lambda target: "-".join([target[0], *target[1]]))
def test_a_plan_predicts_what_readers_do_after_the_load(tmp_path: Path, target: Any, seed: int) -> None:
    choose, kinds = random.Random(seed), dict[str, Any]()
    table_format, options = target[0], dict(target[1])
    place = "ns.t" if table_format == "iceberg" else str(tmp_path / "t")
    if table_format == "iceberg":
        options["catalog"] = str(tmp_path / "catalog.db")
    before = None
    for _ in range(4):
        batch = make_batch(choose, kinds)
        planned = widen.plan(batch, place, readers=["all"], engine="local", **options).readers
        widen.ingest(batch, place, engine="local", **options)
        found = {each.reader.name: each for each in open_table(place, options).readers()}
        assert [each.reader for each in planned] == list(found)
        for each in planned:
            assert each.before == ("" if before is None else before[each.reader].outcome.value)
            certain = {reason for reason in each.reasons if not reason.endswith("(possibly)")}
            reasons = {trait.text for trait in found[each.reader].reasons}
            assert certain <= reasons
            assert {text.removesuffix(" (possibly)") for text in each.reasons} >= reasons
            if certain == set(each.reasons):
                assert each.after == found[each.reader].outcome.value
        before = found


def test_the_plan_of_a_widening_names_who_stops_reading(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    widen.create_table(place, "v float", properties={"widen.typeWidening": "whenNeeded"})
    widen.ingest(pa.table({"v": pa.array([0.1], pa.float32())}), place)
    source = pa.table({"v": [0.1]})
    plan = widen.plan(source, place, readers=["polars", "duckdb", "spark"])
    assert {each.reader: each.change for each in plan.readers} == {
        "spark": "reads",
        "polars": "reads → refuses",
        "duckdb": "reads → wrong: filters for a range",
        "duckdb-deltalake": "reads → refuses",
    }
    assert "the table feature typeWidening" in next(each for each in plan.readers if each.reader == "polars").reasons
    assert [each.reader for each in widen.plan(source, place).readers] == ["duckdb"]  # by default only what goes wrong
    assert plan.hash == widen.plan(source, place).hash


def test_a_plan_that_changes_nothing_names_the_readers_as_they_are(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    widen.ingest([{"a": 1}], place)
    plan = widen.plan([{"a": 2}], place, readers=["polars"])
    assert plan.is_empty
    assert [(each.before, each.after) for each in plan.readers] == [("reads", "reads")]


def test_a_reader_that_was_not_tested_is_refused_before_the_source_is_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="readers cannot be 'excel'"):
        widen.plan(iter(()), str(tmp_path / "t"), readers=["excel"])


@pytest.fixture
def drift(tmp_path: Path) -> tuple[str, str]:
    place, source = str(tmp_path / "t"), tmp_path / "b.json"
    widen.ingest([{"v": 1, "w": 1}], place)
    source.write_text(json.dumps({"v": 1.5, "w": 2**80}))
    return str(source), place


def test_the_command_shows_readers_in_each_form(drift: tuple[str, str]) -> None:
    source, place = drift
    shown = run("plan", source, "--into", place, "--readers", "polars,daft")
    assert shown.exit_code == 2
    assert "reads → refuses" in shown.stdout
    assert "polars, scan_delta" in shown.stdout
    value = run_json("plan", source, "--into", place, "--readers", "polars", code=2)
    assert [(each["reader"], each["before"], each["after"]) for each in value["readers"]] == [
        ("polars", "reads", "refuses")
    ]
    markdown = run("plan", source, "--into", place, "--readers", "polars", "--markdown").stdout
    assert "**What other readers do with the table then**" in markdown
    assert "reads → refuses" in markdown


def test_the_plan_of_a_file_of_loads_tells_it_for_each_step(tmp_path: Path, drift: tuple[str, str]) -> None:
    source, place = drift
    file = tmp_path / "loads.toml"
    file.write_text(f'[[load]]\nname = "l"\nsource = "{source}"\ninto = "{place}"\n')
    value = run_json("plan", str(file), "--readers", "polars", code=2)
    assert [each["after"] for each in value["steps"][0]["plan"]["readers"]] == ["refuses"]
    planned = widen.plan_run(file, readers=["polars"]).steps[0].plan
    assert isinstance(planned, Plan)
    assert [each.after for each in planned.readers] == ["refuses"]


@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_the_report_has_a_section_of_other_readers(tmp_path: Path, table_format: str) -> None:
    place, words = str(tmp_path / "t"), list[str]()
    if table_format == "iceberg":
        place, words = "ns.t", ["--catalog", str(tmp_path / "catalog.db")]
    nested = pa.array([None, {"a": 1}])
    widen.ingest(pa.table({"s": nested}), place, catalog=words[-1] if words else None)
    shown = run("report", place, *words, "--readers", "chdb,polars")
    assert shown.exit_code == 0
    assert "Other readers" in shown.stdout
    value = run_json("report", place, *words, "--readers", "chdb,polars")
    found = {each["reader"].partition("-")[0]: each for each in value["readers"]}
    assert (found["polars"]["outcome"], found["polars"]["reasons"]) == ("reads", [])
    assert run("report", place, *words, "--readers", "chdb,polars", "--html", str(tmp_path / "r.html")).exit_code == 0
    page = (tmp_path / "r.html").read_text()
    assert "Other readers" in page
    assert found["chdb"]["version"] in page
    assert "Other readers" not in run("report", place, *words).stdout
    refused = run("report", place, *words, "--readers", "excel")
    assert refused.exit_code == 1
    assert "excel" in refused.stderr


def test_a_line_about_a_reader_names_some_columns_of_a_wide_table() -> None:
    reader = PlannedReader(
        "duckdb", "DuckDB", "1.5", "reads", "wrong", "filters", tuple(f"c{n}: short" for n in range(1200))
    )
    assert str(reader) == "DuckDB 1.5: reads → wrong: filters (c0: short, c1: short, c2: short, … and 1,197 more)"
