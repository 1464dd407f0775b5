"""The example of twelve sources: each day every one of them loads, without Java, and every value is proved."""

from __future__ import annotations

import os
import runpy
from collections import Counter
from pathlib import Path

import pytest

import widen
from widen.flows.pipelines import StepStatus

EXAMPLE = Path(__file__).parents[3] / "examples" / "twelve-sources"
DAYS = range(1, 22) if os.environ.get("WIDEN_TEST_FAULTS") else (1, 3, 5, 8, 10)
"""The days on which most sources change; all of them with WIDEN_TEST_FAULTS."""


def test_every_source_loads_each_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIDEN_ENGINE", "local")
    monkeypatch.chdir(tmp_path)
    days = runpy.run_path(str(EXAMPLE / "make_days.py"))
    sent = Counter[str]()
    for day in DAYS:
        sent.update(days["write_day"](tmp_path / "landing", day))
        run = widen.run(EXAMPLE / "pipelines.toml")
        ended = {step.step.name: step for step in run.steps}
        assert {name: str(step) for name, step in ended.items() if step.status is not StepStatus.LOADED} == {}
        for name, step in ended.items():
            (result,) = step.loads
            assert result.verification is not None, name
            assert (result.verification.lost, result.corrupt, result.quarantined) == (0, 0, 0), (name, day)
    for name in sent:
        rows = widen.Table(f"lake/{name}").to_arrow()
        if name == "customers":  # by key
            assert rows.num_rows == 20 - sum(3 < day < 20 for day in DAYS[-1:]), name
        else:
            assert rows.num_rows == sent[name], name
    types = {name: widen.Table(f"lake/{name}").schema for name in sent}
    assert {field.name: field.type.sql for field in types["sales"]}["amount"].startswith("decimal")
    assert {field.name: field.type.sql for field in types["stock"]}["count"] == "bigint"
    assert {field.name: field.type.sql for field in types["budget"]}["amount"] == "double"
    assert {"timeUnixNano", "severityNumber", "body"} <= {field.name for field in types["logs"]}

    planned = widen.plan_run(EXAMPLE / "pipelines.toml")
    assert {each.step.name: each.outcome.value for each in planned.steps} == dict.fromkeys(sent, "nothing")


def test_the_file_has_at_most_60_lines() -> None:
    text = (EXAMPLE / "pipelines.toml").read_text()
    assert len([line for line in text.splitlines() if line.strip()]) <= 60
