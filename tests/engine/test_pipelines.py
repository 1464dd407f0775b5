"""`widen run`: the loads and flows of one file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import widen
from support.command_line import run_json
from widen.flows.pipelines import StepStatus

FILE = """
[defaults]
new = true

[[load]]
source = "{0}/orders"
into = "{0}/lake/orders"
max_corrupt = 0
verify = true

[[load]]
source = "{0}/customers"
into = "{0}/lake/customers"

[[flow]]
source = "{0}/lake/orders"
into = "{0}/lake/days"
sql = "SELECT day, sum(amount) AS total FROM source GROUP BY day"
keys = ["day"]
checkpoint = "{0}/lake/_flows/days"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    put(tmp_path / "orders/1.json", {"day": "mon", "amount": 1.5}, {"day": "mon", "amount": 2})
    put(tmp_path / "customers/1.json", {"id": 1})
    (tmp_path / "run.toml").write_text(FILE.format(tmp_path))
    return tmp_path / "run.toml"


def put(path: Path, *records: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))


def totals(spark: SparkSession, folder: Path) -> dict[str, float]:
    return {row.day: row.total for row in widen.Table(str(folder / "lake/days")).read(spark=spark).collect()}


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_failure_stops_only_what_it_feeds(spark: SparkSession, file: Path, jobs: int) -> None:
    folder, events = file.parent, list[str]()
    run = widen.run(file, jobs=jobs, spark=spark, on_event=lambda event: events.append(event.kind))
    assert run.is_clean
    assert events.count("load") == 3
    assert totals(spark, folder) == {"mon": 3.5}
    assert {each.status for each in widen.run(file, jobs=jobs, spark=spark).steps} == {StepStatus.UNCHANGED}

    (folder / "orders/2.json").write_text('{"day": "tue"}\n{"day": "tu\n')
    put(folder / "customers/2.json", {"id": 2**40})
    run = widen.run(file, jobs=jobs, spark=spark)
    assert [each.status.value for each in run.steps] == ["failed", "loaded", "skipped"]
    assert run.is_only_over_limits
    assert "days: skipped, because it needs orders" in repr(run)
    assert widen.Table(str(folder / "lake/customers")).read(spark=spark).count() == 2

    put(folder / "orders/2.json", {"day": "tue", "amount": "free"}, {"day": "tue", "amount": 7})
    run = widen.run(file, only=["orders", "days"], jobs=jobs, spark=spark)
    assert [each.step.name for each in run.steps] == ["orders", "days"]
    assert run.is_clean
    assert totals(spark, folder) == {"mon": 3.5, "tue": 7}


def test_the_command_ends_with_the_code_of_its_worst_step(spark: SparkSession, file: Path) -> None:
    del spark
    value = run_json("run", str(file))
    assert [step["status"] for step in value["steps"]] == ["loaded", "loaded", "loaded"]
    (file.parent / "orders/2.json").write_text('{"day": "tue"}\n{"day": "tu\n')
    value = run_json("run", str(file), code=3)
    assert value["steps"][0]["error"]["code"] == "WIDEN_LIMIT_EXCEEDED"
    assert value["steps"][2]["because"] == ["orders"]
    (file.parent / "customers/1.json").unlink()
    (file.parent / "customers").rmdir()
    value = run_json("run", str(file), code=1)
    assert [step["status"] for step in value["steps"]] == ["failed", "failed", "skipped"]
